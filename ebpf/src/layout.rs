//! What both sides share: the recorder and its programs in the kernel.
//!
//! Each struct has a twin of the same name in a header or program beside this file. Numbers are in the machine's own
//! byte order; there is no padding that nobody wrote.
//!
//! ```text
//! settings   written before a program is loaded: constants to it     FrameSettings
//! maps       read and written while it runs                          Control, whom, lost
//! records    come through the rings into the journal                 RECORD_…
//! ```

#![expect(unsafe_code, reason = "plain structs that the kernel reads and writes")]

use aya::Pod;

/// CPUs that can be chosen among.
pub const MOST_CPUS: usize = 4096;
/// Entries of the map `lost`.
pub const MOST_REASONS: u32 = 16;

/// Whom a program lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Whom {
    /// Everything.
    #[default]
    Everything,
    /// The processes in the map `whom`, and what they start.
    Processes,
    /// The threads in the map `whom`, and what they start.
    Threads,
}

/// Values of the map `whom`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhomState {
    /// A command that waits for its exec.
    Waiting = 1,
    /// To be recorded.
    Running = 2,
}

/// Constants of every program (`struct frame_settings`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FrameSettings {
    /// [`Whom`]
    pub whom: u32,
    /// The process that is left out: the recorder. 0: none.
    pub own_process: u32,
    /// Only the CPUs in `cpus`.
    pub has_cpus: u32,
    /// 0
    pub unused: u32,
    /// A bit for each.
    pub cpus: [u64; MOST_CPUS / 64],
}

impl FrameSettings {
    /// `cpus` empty: all.
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
    /// Not 0: record.
    pub is_on: u32,
    /// 0, which a program may rely on.
    pub unused: u32,
}

/// Kinds of the records in `perfquet:…` events: their first 32 bits, behind which come 32 of zeroes. The reader,
/// formats/readers/src/perf_data/own.rs, describes what follows.
pub const RECORD_STACK: u32 = 1;
/// An aggregate; the recorder writes it.
pub const RECORD_AGGREGATE: u32 = 2;
/// A loss; the recorder writes it.
pub const RECORD_LOSS: u32 = 3;
/// A call (`struct call_record` in calls.bpf.c).
pub const RECORD_CALL: u32 = 4;

/// Steps of a [`Fetch`].
pub const MOST_STEPS: usize = 6;
/// Parts of an aggregation's key.
pub const MOST_KEYS: usize = 6;
/// Words of a key: the number of the bar, and the parts behind it.
pub const NARROW_WORDS: usize = 8;
/// The same with room for texts.
pub const WIDE_WORDS: usize = 40;
/// Words of a text in a key; it ends with a NUL.
pub const TEXT_WORDS: usize = 16;

/// Where a value begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// There is none.
    Nothing,
    /// [`Fetch::constant`]
    Constant,
    /// The register at this word of `struct pt_regs`.
    Register,
    /// The field at this offset of a tracepoint's record.
    Field,
}

/// From the value before to the next: add the offset, read there.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// Bytes.
    pub offset: i64,
    /// In user space, not in the kernel.
    pub is_user: u32,
    /// 0
    pub unused: u32,
}

/// What to fetch at a probe (`struct fetch`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fetch {
    /// [`Base`]
    pub base: u32,
    /// Register or field.
    pub place: u32,
    /// The value itself.
    pub constant: u64,
    /// How many of `path`.
    pub steps: u32,
    /// Bytes of the value: 1, 2, 4, 8; of a text that is a field, how long it is.
    pub size: u32,
    /// Widened with its sign.
    pub is_signed: u32,
    /// A field of bits: how far from the low end,
    pub shift: u32,
    /// and how wide; 0: the whole value.
    pub bits: u32,
    /// The last step leads to a text.
    pub is_text: u32,
    /// A field that tells where its text is: 1 from the start of the record, 2 from its own end.
    pub is_located: u32,
    /// 0
    pub unused: u32,
    /// Steps from the base.
    pub path: [Step; MOST_STEPS],
}

/// What a part of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// There is none.
    Nothing,
    /// Name of the thread, two words.
    Comm,
    /// Process.
    Process,
    /// Thread.
    Thread,
    /// CPU.
    Cpu,
    /// Number of the kernel's stack.
    KernelStack,
    /// Number of the user's stack.
    UserStack,
    /// A number that is fetched.
    Number,
    /// A text that is fetched, [`TEXT_WORDS`] words.
    Text,
    /// The number with which the program was attached.
    Probe,
}

/// A part of a key (`struct key_part`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyPart {
    /// [`Part`]
    pub part: u32,
    /// Where in the key.
    pub word: u32,
    /// For numbers and texts.
    pub fetch: Fetch,
}

/// What an aggregation does; so numbered in RECORD_AGGREGATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    /// Counts hits.
    #[default]
    Count,
    /// Adds up.
    Sum,
    /// Arithmetic mean.
    Avg,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Standard deviation.
    Stddev,
    /// Distribution by powers of two.
    Quantize,
    /// Distribution by equal steps.
    Lquantize,
    /// Distribution by equal steps within powers.
    Llquantize,
}

/// Constants of agg.bpf.c (`struct agg_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AggSettings {
    /// [`Action`]
    pub action: u32,
    /// Keys have [`WIDE_WORDS`].
    pub is_wide: u32,
    /// lquantize: where the first step begins,
    pub low: i64,
    /// how wide each is,
    pub step: u64,
    /// and how many there are.
    pub levels: u64,
    /// What is aggregated.
    pub value: Fetch,
    /// By what.
    pub keys: [KeyPart; MOST_KEYS],
}

/// Conditions of a [`Predicate`].
pub const MOST_CONDITIONS: usize = 6;
/// Words of a text that is compared; it ends with a NUL.
pub const CONDITION_WORDS: usize = 8;

/// How a value is compared with the constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Test {
    /// There is no condition.
    #[default]
    None,
    /// It is the same.
    Equal,
    /// It is less.
    Less,
    /// It is greater.
    Greater,
    /// They have a bit in common.
    Bits,
    /// As a text: the same bytes where the mask has ones.
    Text,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subject {
    /// What is fetched.
    #[default]
    Field,
    /// Name of the thread.
    Comm,
    /// CPU.
    Cpu,
    /// Thread.
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
    /// With what, if that is a number.
    pub constant: u64,
    /// With what, if that is a text.
    pub text: [u64; CONDITION_WORDS],
    /// Which of its bytes count.
    pub mask: [u64; CONDITION_WORDS],
    /// The field.
    pub fetch: Fetch,
}

/// Which hits count (`struct predicate`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicate {
    /// Bit N: whether a hit counts where just the conditions hold whose bits are set in N.
    pub truth: u64,
    /// What is compared.
    pub conditions: [Condition; MOST_CONDITIONS],
}

impl Default for Predicate {
    /// Every hit counts.
    fn default() -> Predicate {
        Predicate {
            truth: u64::MAX,
            conditions: [Condition::default(); MOST_CONDITIONS],
        }
    }
}

/// Arguments that calls.bpf.c takes at an entry.
pub const MOST_ARGUMENTS: usize = 6;

/// Constants of calls.bpf.c (`struct call_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallSettings {
    /// Nanoseconds: shorter calls are left out,
    pub least: u64,
    /// and longer ones.
    pub most: u64,
    /// Where arguments are in `struct pt_regs`, in words.
    pub arguments: [u32; MOST_ARGUMENTS],
    /// Where what a function returned is.
    pub returned: u32,
    /// 0
    pub unused: u32,
}

/// What is kept for a key on a CPU (`struct cell`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cell {
    /// Hits.
    pub count: u64,
    /// Of the values, in 64 bits.
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

    /// Takes in what another CPU has.
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
    /// Shorter times are left out, nanoseconds.
    pub least: u64,
}

/// Which thread is off the CPU, where, why (`struct off_key`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct OffKey {
    /// Number of the kernel's stack.
    pub kernel_stack: u64,
    /// Number of the user's stack.
    pub user_stack: u64,
    /// Its name.
    pub comm: [u8; 16],
    /// Name of who woke it; empty: nobody, or not yet.
    pub waker: [u8; 16],
    /// Its process.
    pub process: u32,
    /// 0 preempted, 1 interruptible, 2 uninterruptible, 3 idle, 4 anything else.
    pub state: u32,
}

/// A thread that is off the CPU (`struct off_start`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffStart {
    /// What its time will be added to.
    pub key: OffKey,
    /// Since when.
    pub time: u64,
}

/// What is kept for a key on a CPU (`struct off_cell`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffCell {
    /// How often.
    pub count: u64,
    /// Nanoseconds.
    pub total: u64,
}

/// Key of an aggregation without texts.
pub type NarrowKey = [u64; NARROW_WORDS];
/// Key of an aggregation with texts.
pub type WideKey = [u64; WIDE_WORDS];

/// Why something was lost: the number in the map `lost`, and the words in `losses`.
pub const REASONS: &[(u32, &str)] = &[
    (0, "no room in the map"),
    (1, "too many at once on one CPU"),
    (2, "memory that could not be read"),
    (3, "a process that could not be followed"),
    (4, "a stack that could not be told"),
];
/// The first of the reasons that a program numbers itself.
pub const OWN_REASONS: u32 = 8;

// SAFETY: plain numbers in C's order, all bits of which mean something; no padding (checked below).
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
