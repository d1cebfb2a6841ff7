//! A requested aggregation: its action, its key, and the probes whose hits it aggregates.

use perfquet_ebpf::layout::{AggSettings, Fetch, Part, Predicate, TEXT_WORDS};
use perfquet_events::event::Action;

use crate::probe::Probe;
use crate::sys::host;

/// A part of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// Name of the thread.
    Comm,
    /// Process.
    Process,
    /// Thread.
    Thread,
    /// CPU.
    Cpu,
    /// The kernel's stack.
    KernelStack,
    /// The user's stack.
    UserStack,
    /// A number; whether it has a sign.
    Number {
        /// Shown with its sign.
        is_signed: bool,
    },
    /// A text.
    Text,
    /// Name of the probe.
    Probe,
}

impl Key {
    pub(super) fn part(&self) -> Part {
        match self {
            Key::Comm => Part::Comm,
            Key::Process => Part::Process,
            Key::Thread => Part::Thread,
            Key::Cpu => Part::Cpu,
            Key::KernelStack => Part::KernelStack,
            Key::UserStack => Part::UserStack,
            Key::Number { .. } => Part::Number,
            Key::Text => Part::Text,
            // Without probe numbers, each probe has its own object.
            Key::Probe if !are_numbers_told() => Part::Nothing,
            Key::Probe => Part::Probe,
        }
    }

    /// Words that it takes.
    pub(super) fn words(&self) -> usize {
        match self {
            Key::Comm => 2,
            Key::Text => TEXT_WORDS,
            _ => 1,
        }
    }
}

/// Where hits come from.
#[derive(Clone)]
pub(crate) struct Source {
    /// Which probe.
    pub(crate) probe: Probe,
    /// How the value is fetched there,
    pub(crate) value: Fetch,
    /// and the parts of the key; not looked at for those that are not fetched.
    pub(crate) keys: Vec<Fetch>,
    /// Which of them count.
    pub(crate) predicate: Predicate,
}

impl Source {
    /// Whether one program serves for both.
    pub(super) fn fetches_as(&self, other: &Source) -> bool {
        self.probe.is_sampled() == other.probe.is_sampled()
            && (&self.value, &self.keys, &self.predicate)
                == (&other.value, &other.keys, &other.predicate)
    }

    /// One at which nothing is fetched.
    pub(crate) fn new(probe: Probe) -> Source {
        Source {
            probe,
            value: Fetch::default(),
            keys: Vec::new(),
            predicate: Predicate::default(),
        }
    }
}

/// A requested aggregation.
pub(crate) struct Plan {
    /// What it is called in `aggregates`.
    pub(crate) name: String,
    /// What it does.
    pub(crate) action: Action,
    /// Steps and levels of distributions; the rest is filled in here.
    pub(crate) settings: AggSettings,
    /// Of llquantize.
    pub(crate) edges: Vec<u64>,
    /// By what.
    pub(crate) keys: Vec<Key>,
    /// Probes whose hits it sums up.
    pub(crate) sources: Vec<Source>,
}

/// Whether a program gets the number that it was attached with.
pub(super) fn are_numbers_told() -> bool {
    host::is_linux(5, 15)
}
