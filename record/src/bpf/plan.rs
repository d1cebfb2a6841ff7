//! Requested aggregations: their actions, their key, and where programs find what they aggregate.

use perfquet_ebpf::layout::{
    AggSettings, Fetch, Part, Predicate, SHORT_TEXT_WORDS, Saved, TEXT_WORDS, Value,
};
use perfquet_events::event::Action;

use crate::probe::Probe;
use crate::sys::host;

/// A part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// A string; whether of at most 16 bytes.
    Text {
        /// Two words suffice.
        is_short: bool,
    },
    /// Name of the probe or function.
    Probe,
}

impl Key {
    /// The part of a program's key, unless it is a field's.
    pub(super) fn part(self) -> Part {
        match self {
            Key::Comm => Part::Comm,
            Key::Process => Part::Process,
            Key::Thread => Part::Thread,
            Key::Cpu => Part::Cpu,
            Key::KernelStack => Part::KernelStack,
            Key::UserStack => Part::UserStack,
            Key::Number { .. } => Part::Number,
            Key::Text { .. } => Part::Text,
            // Without probe numbers, each probe has its own object.
            Key::Probe if !are_numbers_told() => Part::Nothing,
            Key::Probe => Part::Probe,
        }
    }

    /// Whether it is a stack.
    pub(super) fn is_stack(self) -> bool {
        matches!(self, Key::KernelStack | Key::UserStack)
    }

    /// Words that it takes.
    pub(super) fn words(self) -> usize {
        match self {
            Key::Comm | Key::Text { is_short: true } => SHORT_TEXT_WORDS,
            Key::Text { is_short: false } => TEXT_WORDS,
            _ => 1,
        }
    }
}

/// What one action makes of the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// What it is called in `aggregates`.
    pub(crate) name: String,
    /// What it does.
    pub(crate) action: Action,
    /// With the time without that in other calls, where others of its plan have the duration.
    pub(crate) is_of_self: bool,
    /// The values are nanoseconds.
    pub(crate) is_time: bool,
}

impl Output {
    /// Whether it has bars.
    pub(super) fn is_distribution(&self) -> bool {
        matches!(
            self.action,
            Action::Quantize | Action::Lquantize | Action::Llquantize
        )
    }
}

/// A requested aggregation: the actions on one value by one key, of which one at most is a distribution.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// The actions.
    pub(crate) outputs: Vec<Output>,
    /// Steps and levels of the distribution; the rest is filled in when it is loaded.
    pub(crate) settings: AggSettings,
    /// Of llquantize.
    pub(crate) edges: Vec<u64>,
    /// By what,
    pub(crate) keys: Vec<Key>,
    /// under which names; none for stacks.
    pub(crate) key_names: Vec<String>,
}

impl Plan {
    /// What it is called in messages.
    pub(super) fn name(&self) -> &str {
        self.outputs.first().map_or("", |output| &output.name)
    }

    /// Bits of the actions, for programs.
    pub(super) fn actions(&self, is_of_self: bool) -> u32 {
        let outputs = self.outputs.iter();
        let outputs = outputs.filter(|output| output.is_of_self == is_of_self);
        let bits = outputs.map(|output| 1 << output.action.number());
        bits.fold(0, |all, bit| all | bit)
    }
}

/// How the values are found at a probe or function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reads {
    /// The aggregated value.
    pub(crate) value: Located,
    /// The parts of the key; those that every probe has are not looked at.
    pub(crate) keys: Vec<Located>,
    /// Which hits or calls count.
    pub(crate) predicate: Predicate,
    /// What is saved at each beginning.
    pub(crate) saved: Vec<Saved>,
}

impl Reads {
    /// Nothing is fetched.
    pub(crate) fn nothing(keys: usize) -> Reads {
        Reads {
            value: Located::default(),
            keys: vec![Located::default(); keys],
            predicate: Predicate::default(),
            saved: Vec::new(),
        }
    }
}

/// Where a program finds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Located {
    /// At the hit or the end.
    Fetched(Fetch),
    /// Saved at the beginning, in this place.
    Saved(u32),
    /// Measured.
    Measured(Value),
}

impl Default for Located {
    fn default() -> Located {
        Located::Fetched(Fetch::default())
    }
}

/// A requested aggregation and where its values are.
pub(crate) struct Requested<P> {
    /// What is made of them.
    pub(crate) plan: Plan,
    /// The probes or functions, and how values are found there.
    pub(crate) sources: Vec<(P, Reads)>,
}

impl Requested<Probe> {
    /// One of hits at which nothing is fetched.
    pub(crate) fn plain(name: &str, keys: &[(&str, Key)], probe: Probe) -> Requested<Probe> {
        let key_names = keys.iter().filter(|(_, key)| !key.is_stack());
        let key_names = key_names.map(|(name, _)| (*name).to_owned()).collect();
        let keys: Vec<Key> = keys.iter().map(|(_, key)| *key).collect();
        let reads = Reads::nothing(keys.len());
        Requested {
            plan: Plan {
                outputs: vec![Output {
                    name: name.to_owned(),
                    action: Action::Count,
                    is_of_self: false,
                    is_time: false,
                }],
                keys,
                key_names,
                ..Plan::default()
            },
            sources: vec![(probe, reads)],
        }
    }
}

/// Whether a program gets the number that it was attached with.
pub(super) fn are_numbers_told() -> bool {
    host::is_linux(5, 15)
}
