//! The two ends of a call: a probe at the entry, and one at the return.

use super::argument::{Argument, ProbeSpec, Value};
use super::definition::Definition;

/// The position of a probe in its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// The entry, or a place inside.
    Entry,
    /// A return as a separate event, with the return value.
    Return,
    /// A return as the end of a call, with only the requested values.
    Exit,
}

impl Edge {
    /// Edge of a probe that is a separate event.
    pub(super) fn of_probe(at_return: bool) -> Edge {
        match at_return {
            true => Edge::Return,
            false => Edge::Entry,
        }
    }
}

/// The two probes of a function.
#[derive(Clone)]
pub(crate) struct Both {
    pub(crate) function: String,
    /// File; empty for the kernel.
    pub(crate) module: String,
    pub(crate) entry: Definition,
    pub(crate) exit: Definition,
}

/// Returns the specifications for the entry and for the return, which has the values of the return.
pub(super) fn sides(spec: &ProbeSpec) -> (ProbeSpec, ProbeSpec) {
    let (mut entry, mut exit) = (spec.clone(), spec.clone());
    entry.arguments.retain(|argument| !is_of_return(argument));
    exit.arguments.retain(is_of_return);
    for argument in &mut exit.arguments {
        let is_text = argument
            .kind
            .as_deref()
            .is_some_and(|kind| kind.ends_with("string"));
        if is_text && is_retval(argument) {
            argument.value = Value::Raw("+0($retval)".to_owned());
        }
        // The return value has one column, whatever its name.
        if is_retval(argument) || argument.name.is_none() {
            argument.name = Some("ret".to_owned());
        }
    }
    (entry, exit)
}

/// Whether the value is `$retval`, or reached through it.
fn is_of_return(argument: &Argument) -> bool {
    matches!(&argument.value, Value::Raw(raw) if raw.contains("$retval"))
}

pub(super) fn is_retval(argument: &Argument) -> bool {
    matches!(&argument.value, Value::Raw(raw) if raw == "$retval")
}
