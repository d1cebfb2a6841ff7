//! Values fetched at probes, and their aggregation: ebpf/src/fetch.h, ebpf/src/aggregate.h.

#![expect(unsafe_code, reason = "plain structs that the kernel reads and writes")]

use aya::Pod;

/// Maximum number of steps of a [`Fetch`].
pub const MOST_STEPS: usize = 6;
/// Maximum number of parts of an aggregation's key.
pub const MOST_KEYS: usize = 6;
/// Words of a key: the bar number with that of the interval in its upper half, followed by the parts.
pub const NARROW_WORDS: usize = 8;
/// Words of a key with room for strings.
pub const WIDE_WORDS: usize = 40;
/// Words of a string in a key; it ends with a NUL.
pub const TEXT_WORDS: usize = 16;
/// Words of a comm, or of a field with at most as many bytes.
pub const SHORT_TEXT_WORDS: usize = 2;
/// Bar number of the cell for all actions that are not distributions.
pub const NO_BAR: i32 = i32::MIN;
/// The same of the time without that in other calls.
pub const NO_BAR_OF_SELF: i32 = i32::MIN + 1;

/// The start of a [`Fetch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// No value.
    Nothing,
    /// [`Fetch::constant`]
    Constant,
    /// The register at this word of `struct pt_regs`.
    Register,
    /// The field at this offset of a tracepoint's record.
    Field,
    /// The CPU.
    Cpu,
    /// The TID.
    Thread,
}

/// One step from a pointer to the next value: add the offset, and read there.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// Bytes.
    pub offset: i64,
    /// Whether the address is in user space.
    pub is_user: u32,
    /// 0
    pub unused: u32,
}

/// A value to fetch at a probe (`struct fetch`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fetch {
    /// [`Base`]
    pub base: u32,
    /// Register or field.
    pub place: u32,
    /// The value, if it is a constant.
    pub constant: u64,
    /// Number of steps in `path`.
    pub steps: u32,
    /// Size of the value in bytes: 1, 2, 4, 8; for a string field, its length.
    pub size: u32,
    /// Whether to sign-extend it.
    pub is_signed: u32,
    /// Of a bit field: offset from the low end,
    pub shift: u32,
    /// and width in bits; 0 for the whole value.
    pub bits: u32,
    /// Whether the last step leads to a string.
    pub is_text: u32,
    /// Of a field with the location of its string: 1 if relative to the start of the record, 2 if to its own end.
    pub is_located: u32,
    /// 0
    pub unused: u32,
    /// Steps from the base.
    pub path: [Step; MOST_STEPS],
}

/// Kind of a key part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Unused.
    Nothing,
    /// Comm, two words.
    Comm,
    /// PID.
    Process,
    /// TID.
    Thread,
    /// CPU.
    Cpu,
    /// ID of the kernel stack.
    KernelStack,
    /// ID of the user stack.
    UserStack,
    /// A fetched number.
    Number,
    /// A fetched string of [`KeyPart::words`].
    Text,
    /// The cookie with which the program was attached.
    Probe,
    /// A number saved at the beginning, in [`KeyPart::place`].
    SavedNumber,
    /// A string saved at the beginning.
    SavedText,
}

/// The aggregated value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Value {
    /// [`AggSettings::value`], at the hit or the end.
    #[default]
    Fetched,
    /// A number saved at the beginning, in [`AggSettings::value_place`].
    Saved,
    /// Nanoseconds from the beginning to the end.
    Duration,
    /// The same without the time in other calls.
    SelfTime,
    /// Tasks that wait for the CPU.
    Runqueue,
}

/// A part of a key (`struct key_part`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyPart {
    /// [`Part`]
    pub part: u32,
    /// Index of its first word in the key.
    pub word: u32,
    /// Where a saved value is.
    pub place: u32,
    /// Words of a string: [`SHORT_TEXT_WORDS`] or [`TEXT_WORDS`].
    pub words: u32,
    /// For numbers and strings.
    pub fetch: Fetch,
}

/// Constants of aggregate.h (`struct agg_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AggSettings {
    /// Bits of the actions, by `Action::number` of perfquet-events, with at most one distribution.
    pub actions: u32,
    /// Bits of the actions on the self time, in addition to those on the duration; no distributions.
    pub self_actions: u32,
    /// Whether keys have [`WIDE_WORDS`].
    pub is_wide: u32,
    /// 0
    pub unused: u32,
    /// [`Value`]
    pub value_kind: u32,
    /// Where a saved value is.
    pub value_place: u32,
    /// lquantize: start of the first step,
    pub low: i64,
    /// width of each step,
    pub step: u64,
    /// number of steps.
    pub levels: u64,
    /// The aggregated value.
    pub value: Fetch,
    /// The keys.
    pub keys: [KeyPart; MOST_KEYS],
}

/// Values of a key on one CPU (`struct cell`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cell {
    /// Number of hits.
    pub count: u64,
    /// Sum of the values, in 64 bits.
    pub sum: u64,
    /// See [`Cell::least`].
    pub inverted_least: u64,
    /// See [`Cell::most`].
    pub biased_most: u64,
    /// Sum of the squares, low half,
    pub squares_low: u64,
    /// high half.
    pub squares_high: u64,
}

impl Cell {
    /// The smallest value.
    pub fn least(&self) -> i64 {
        (!self.inverted_least ^ 1 << 63) as i64
    }

    /// The largest value.
    pub fn most(&self) -> i64 {
        (self.biased_most ^ 1 << 63) as i64
    }

    /// Merges the values of another CPU.
    pub fn add(&mut self, other: &Cell) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.inverted_least = self.inverted_least.max(other.inverted_least);
        self.biased_most = self.biased_most.max(other.biased_most);
        let squares = self.squares().wrapping_add(other.squares());
        self.squares_low = squares as u64;
        self.squares_high = (squares >> 64) as u64;
    }

    /// Subtracts an earlier state; the smallest and largest value are unchanged.
    pub fn subtract(&mut self, earlier: &Cell) {
        self.count = self.count.saturating_sub(earlier.count);
        self.sum = self.sum.wrapping_sub(earlier.sum);
        let squares = self.squares().wrapping_sub(earlier.squares());
        self.squares_low = squares as u64;
        self.squares_high = (squares >> 64) as u64;
    }

    /// Sum of the squares.
    pub fn squares(&self) -> u128 {
        u128::from(self.squares_high) << 64 | u128::from(self.squares_low)
    }
}

/// Key of an aggregation without strings.
pub type NarrowKey = [u64; NARROW_WORDS];
/// Key of an aggregation with strings.
pub type WideKey = [u64; WIDE_WORDS];

// SAFETY: plain integers in C layout, valid for any bits; no padding (checked below).
unsafe impl Pod for AggSettings {}
// SAFETY: as above.
unsafe impl Pod for Cell {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_headers() {
        assert_eq!(size_of::<Fetch>(), 48 + MOST_STEPS * 16);
        assert_eq!(
            size_of::<AggSettings>(),
            48 + size_of::<Fetch>() + MOST_KEYS * (16 + size_of::<Fetch>())
        );
        assert_eq!(size_of::<Cell>(), 48);
    }
}
