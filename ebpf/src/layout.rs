//! Layouts shared by the recorder and its BPF programs.
//!
//! Each struct has a twin of the same name in a header or program in this directory. Integers are in native byte order;
//! padding is explicit.
//!
//! ```text
//! settings   written before a program is loaded: constants to it     FrameSettings
//! maps       read and written while it runs                          Control, whom, lost
//! ```
//! The records that programs write into the rings have no struct here, since the loader never looks at them: their layout
//! and their numbers, and those of actions, are in formats/events/src/wire/, whose tests compare them with the C code.

#![expect(unsafe_code, reason = "plain structs that the kernel reads and writes")]

use aya::Pod;

/// Maximum number of CPUs in a selection.
pub const MOST_CPUS: usize = 4096;
/// Entries of the map `lost`.
pub const MOST_REASONS: u32 = 16;

/// The selection of threads that a program records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Whom {
    /// Everything.
    #[default]
    Everything,
    /// The processes in the map `whom`, and their descendants.
    Processes,
    /// The threads in the map `whom`, and the threads they start.
    Threads,
}

/// Values of the map `whom`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhomState {
    /// A command that waits for its exec.
    Waiting = 1,
    /// Recorded.
    Running = 2,
}

/// Constants of every program (`struct frame_settings`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FrameSettings {
    /// [`Whom`]
    pub whom: u32,
    /// The excluded process: the recorder. 0 if none.
    pub own_process: u32,
    /// Whether to record only the CPUs in `cpus`.
    pub has_cpus: u32,
    /// 0
    pub unused: u32,
    /// One bit per CPU.
    pub cpus: [u64; MOST_CPUS / 64],
}

impl FrameSettings {
    /// Returns the settings; an empty `cpus` means all.
    pub fn new(whom: Whom, own_process: u32, cpus: &[u32]) -> FrameSettings {
        let mut settings = FrameSettings {
            whom: whom as u32,
            own_process,
            has_cpus: u32::from(!cpus.is_empty()),
            unused: 0,
            cpus: [0; MOST_CPUS / 64],
        };
        for cpu in cpus {
            if let Some(word) = settings.cpus.get_mut(*cpu as usize / 64) {
                *word |= 1 << (cpu % 64);
            }
        }
        settings
    }
}

/// The map `control` (`struct control`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Control {
    /// Whether to record; 0 is off.
    pub is_on: u32,
    /// Always 0; a program may rely on it.
    pub unused: u32,
}

/// Maximum number of steps of a [`Fetch`].
pub const MOST_STEPS: usize = 6;
/// Maximum number of parts of an aggregation's key.
pub const MOST_KEYS: usize = 6;
/// Words of a key: the bar number, followed by the parts.
pub const NARROW_WORDS: usize = 8;
/// Words of a key with room for strings.
pub const WIDE_WORDS: usize = 40;
/// Words of a string in a key; it ends with a NUL.
pub const TEXT_WORDS: usize = 16;

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
    /// A fetched string, [`TEXT_WORDS`] words.
    Text,
    /// The cookie with which the program was attached.
    Probe,
}

/// A part of a key (`struct key_part`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyPart {
    /// [`Part`]
    pub part: u32,
    /// Index of its first word in the key.
    pub word: u32,
    /// For numbers and strings.
    pub fetch: Fetch,
}

/// Constants of agg.bpf.c (`struct agg_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AggSettings {
    /// Number of the action, that of `Action::number` of perfquet-events.
    pub action: u32,
    /// Whether keys have [`WIDE_WORDS`].
    pub is_wide: u32,
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

/// Maximum number of conditions of a [`Predicate`].
pub const MOST_CONDITIONS: usize = 6;
/// Words of a string in a comparison; it ends with a NUL.
pub const CONDITION_WORDS: usize = 8;

/// Comparison of a value with a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Test {
    /// No condition.
    #[default]
    None,
    /// Equal.
    Equal,
    /// Less.
    Less,
    /// Greater.
    Greater,
    /// Any common bit.
    Bits,
    /// As a string: equal bytes where the mask has ones.
    Text,
}

/// The compared value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subject {
    /// The fetched value.
    #[default]
    Field,
    /// Comm.
    Comm,
    /// CPU.
    Cpu,
    /// TID.
    Thread,
}

/// One comparison (`struct condition`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Condition {
    /// [`Test`]
    pub test: u32,
    /// [`Subject`]
    pub subject: u32,
    /// The constant, if it is a number.
    pub constant: u64,
    /// The constant, if it is a string.
    pub text: [u64; CONDITION_WORDS],
    /// Mask of the bytes to compare.
    pub mask: [u64; CONDITION_WORDS],
    /// The field.
    pub fetch: Fetch,
}

/// Filter for hits (`struct predicate`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicate {
    /// Truth table: bit N is the result if exactly the conditions with bits set in N hold.
    pub truth: u64,
    /// The conditions.
    pub conditions: [Condition; MOST_CONDITIONS],
}

impl Default for Predicate {
    /// Matches every hit.
    fn default() -> Predicate {
        Predicate {
            truth: u64::MAX,
            conditions: [Condition::default(); MOST_CONDITIONS],
        }
    }
}

/// Maximum number of arguments that calls.bpf.c records at an entry.
pub const MOST_ARGUMENTS: usize = 6;

/// Constants of calls.bpf.c (`struct call_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallSettings {
    /// Minimum duration in nanoseconds,
    pub least: u64,
    /// and maximum duration.
    pub most: u64,
    /// Positions of the arguments in `struct pt_regs`, in words.
    pub arguments: [u32; MOST_ARGUMENTS],
    /// Position of the return value.
    pub returned: u32,
    /// 0
    pub unused: u32,
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

    /// Sum of the squares.
    pub fn squares(&self) -> u128 {
        u128::from(self.squares_high) << 64 | u128::from(self.squares_low)
    }
}

/// Constants of offcpu.bpf.c (`struct off_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffSettings {
    /// Minimum duration in nanoseconds.
    pub least: u64,
}

/// A thread off the CPU: location and reason (`struct off_key`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct OffKey {
    /// ID of the kernel stack.
    pub kernel_stack: u64,
    /// ID of the user stack.
    pub user_stack: u64,
    /// Its comm.
    pub comm: [u8; 16],
    /// Comm of its waker; empty if none, or not yet.
    pub waker: [u8; 16],
    /// Its PID.
    pub process: u32,
    /// 0 preempted, 1 interruptible, 2 uninterruptible, 3 idle, 4 anything else.
    pub state: u32,
}

/// A thread that is off the CPU (`struct off_start`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffStart {
    /// The key to which its time is added.
    pub key: OffKey,
    /// Start time.
    pub time: u64,
}

/// Values of a key on one CPU (`struct off_cell`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffCell {
    /// Count.
    pub count: u64,
    /// Nanoseconds.
    pub total: u64,
}

/// Key of an aggregation without strings.
pub type NarrowKey = [u64; NARROW_WORDS];
/// Key of an aggregation with strings.
pub type WideKey = [u64; WIDE_WORDS];

/// Reasons for losses: the index in the map `lost`, and the text in `losses`.
pub const REASONS: &[(u32, &str)] = &[
    (0, "no room in the map"),
    (1, "too many at once on one CPU"),
    (2, "memory that could not be read"),
    (3, "a process that could not be followed"),
    (4, "a stack that could not be recorded"),
];
/// The first reason with a meaning specific to the program.
pub const OWN_REASONS: u32 = 8;

// SAFETY: plain integers in C layout, valid for any bits; no padding (checked below).
unsafe impl Pod for FrameSettings {}
// SAFETY: as above.
unsafe impl Pod for Control {}
// SAFETY: as above.
unsafe impl Pod for CallSettings {}
// SAFETY: as above.
unsafe impl Pod for AggSettings {}
// SAFETY: as above.
unsafe impl Pod for Predicate {}
// SAFETY: as above.
unsafe impl Pod for Cell {}
// SAFETY: as above.
unsafe impl Pod for OffSettings {}
// SAFETY: as above.
unsafe impl Pod for OffKey {}
// SAFETY: as above.
unsafe impl Pod for OffStart {}
// SAFETY: as above.
unsafe impl Pod for OffCell {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_headers() {
        assert_eq!(size_of::<FrameSettings>(), 16 + MOST_CPUS / 8);
        assert_eq!(size_of::<Control>(), 8);
        assert_eq!(size_of::<Fetch>(), 48 + MOST_STEPS * 16);
        assert_eq!(
            size_of::<AggSettings>(),
            32 + size_of::<Fetch>() + MOST_KEYS * (8 + size_of::<Fetch>())
        );
        assert_eq!(
            size_of::<Predicate>(),
            8 + MOST_CONDITIONS * (16 + CONDITION_WORDS * 16 + size_of::<Fetch>())
        );
        assert_eq!(size_of::<Cell>(), 48);
        assert_eq!(size_of::<CallSettings>(), 48);
        assert_eq!((size_of::<OffKey>(), size_of::<OffStart>()), (56, 64));
    }

    #[test]
    fn cpus_are_bits() {
        let settings = FrameSettings::new(Whom::Processes, 7, &[0, 65, MOST_CPUS as u32]);
        assert_eq!((settings.whom, settings.has_cpus), (1, 1));
        assert_eq!(settings.cpus[..3], [1, 2, 0]);
        assert_eq!(FrameSettings::new(Whom::Everything, 7, &[]).has_cpus, 0);
    }
}
