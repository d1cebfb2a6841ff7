//! Layouts shared by the recorder and its BPF programs.
//!
//! Each struct has a twin of the same name in a header or program in this directory. Integers are in native byte order;
//! padding is explicit.
//!
//! ```text
//! settings   written before a program is loaded: constants to it     FrameSettings
//! maps       read and written while it runs                          Control, whom, lost
//! ```
//! The records that programs write into the rings have no struct here, because the loader does not read them: their
//! layout, and the numbers of records and actions, are in formats/events/src/wire/, whose tests compare them with the C
//! code.

#![expect(unsafe_code, reason = "plain structs that the kernel reads and writes")]

mod aggregate;
mod calls;
mod latency;
mod off_cpu;
mod predicate;

use aya::Pod;

pub use aggregate::{
    AggSettings, Base, Cell, Fetch, KeyPart, MOST_KEYS, MOST_STEPS, NARROW_WORDS, NO_BAR,
    NO_BAR_OF_SELF, NarrowKey, Part, SHORT_TEXT_WORDS, Step, TEXT_WORDS, Value, WIDE_WORDS,
    WideKey,
};
pub use calls::{
    CallSettings, Lane, MOST_ARGUMENTS, MOST_SAVED, MOST_TEXTS, Saved, SavedValue, Saving,
};
pub use latency::{LatencySettings, LatencyStart, MOST_LATENCY_KEYS, MOST_STARTS};
pub use off_cpu::{OffCell, OffKey, OffSettings, OffStart};
pub use predicate::{CONDITION_WORDS, Condition, MOST_CONDITIONS, Predicate, Subject, Test};

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
    /// Number of the interval; each interval has separate cells.
    pub interval: u32,
    /// 0
    pub unused_too: u32,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_headers() {
        assert_eq!(size_of::<FrameSettings>(), 16 + MOST_CPUS / 8);
        assert_eq!(size_of::<Control>(), 16);
    }

    #[test]
    fn cpus_are_bits() {
        let settings = FrameSettings::new(Whom::Processes, 7, &[0, 65, MOST_CPUS as u32]);
        assert_eq!((settings.whom, settings.has_cpus), (1, 1));
        assert_eq!(settings.cpus[..3], [1, 2, 0]);
        assert_eq!(FrameSettings::new(Whom::Everything, 7, &[]).has_cpus, 0);
    }
}
