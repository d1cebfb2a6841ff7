//! Requested aggregations: their actions, their key, and the locations of their values.

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
    /// PID.
    Process,
    /// TID.
    Thread,
    /// CPU.
    Cpu,
    /// Kernel stack.
    KernelStack,
    /// User stack.
    UserStack,
    /// A number.
    Number {
        /// Printed as signed.
        is_signed: bool,
    },
    /// A string.
    Text {
        /// At most 16 bytes, which are two words.
        is_short: bool,
    },
    /// Name of the probe or function.
    Probe,
}

impl Key {
    /// Returns the part in a program's key; fields are handled separately.
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
            Key::Probe if !has_cookies() => Part::Nothing,
            Key::Probe => Part::Probe,
        }
    }

    /// Returns whether it is a stack.
    pub(super) fn is_stack(self) -> bool {
        matches!(self, Key::KernelStack | Key::UserStack)
    }

    /// Returns the number of words in the key.
    pub(super) fn words(self) -> usize {
        match self {
            Key::Comm | Key::Text { is_short: true } => SHORT_TEXT_WORDS,
            Key::Text { is_short: false } => TEXT_WORDS,
            _ => 1,
        }
    }
}

/// Result of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// Name in `aggregates`.
    pub(crate) name: String,
    /// The action.
    pub(crate) action: Action,
    /// Uses the time outside nested calls, while other actions of the plan use the duration.
    pub(crate) is_of_self: bool,
    /// Values are in nanoseconds.
    pub(crate) is_time: bool,
}

impl Output {
    /// Returns whether it has bars.
    pub(super) fn is_distribution(&self) -> bool {
        matches!(
            self.action,
            Action::Quantize | Action::Lquantize | Action::Llquantize
        )
    }
}

/// A requested aggregation: actions on one value by one key, with at most one distribution.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// The actions.
    pub(crate) outputs: Vec<Output>,
    /// Steps and levels of the distribution; the other members are set when the program is loaded.
    pub(crate) settings: AggSettings,
    /// Edges of llquantize.
    pub(crate) edges: Vec<u64>,
    /// The key.
    pub(crate) keys: Vec<Key>,
    /// Names of the key's parts, without stacks.
    pub(crate) key_names: Vec<String>,
}

impl Plan {
    /// Returns the name in messages.
    pub(super) fn name(&self) -> &str {
        self.outputs.first().map_or("", |output| &output.name)
    }

    /// Returns the bits of the actions for programs.
    pub(super) fn actions(&self, is_of_self: bool) -> u32 {
        let outputs = self.outputs.iter();
        let outputs = outputs.filter(|output| output.is_of_self == is_of_self);
        let bits = outputs.map(|output| 1 << output.action.number());
        bits.fold(0, |all, bit| all | bit)
    }
}

/// Fetches at a probe or function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reads {
    /// The aggregated value.
    pub(crate) value: Located,
    /// The parts of the key; ignored for parts that every probe has.
    pub(crate) keys: Vec<Located>,
    /// Selects hits or calls.
    pub(crate) predicate: Predicate,
    /// Values saved at each start.
    pub(crate) saved: Vec<Saved>,
}

impl Reads {
    /// Returns fetches without any fields.
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
    /// Fetched at the hit or the end.
    Fetched(Fetch),
    /// In this slot, saved at the start.
    Saved(u32),
    /// A measured value.
    Measured(Value),
}

impl Default for Located {
    fn default() -> Located {
        Located::Fetched(Fetch::default())
    }
}

/// A requested aggregation with the locations of its values.
pub(crate) struct Requested<P> {
    /// The aggregation.
    pub(crate) plan: Plan,
    /// The probes or functions, with the fetches for each.
    pub(crate) sources: Vec<(P, Reads)>,
}

impl Requested<Probe> {
    /// Returns an aggregation of hits without any fields.
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

/// Returns whether programs get a cookie, the number that they were attached with.
pub(super) fn has_cookies() -> bool {
    host::is_linux(5, 15)
}
