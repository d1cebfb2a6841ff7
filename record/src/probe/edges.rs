//! The two ends of a call: a probe at the entry, and one at the return.

use super::argument::{Argument, ProbeSpec, Value};
use super::definition::Definition;

/// What a probe stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// An entry, or a place inside.
    Entry,
    /// A return as a separate event, with the return value.
    Return,
    /// A return as the end of a call, with only the requested values.
    Exit,
}

impl Edge {
    /// Of a probe that is a separate event.
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

/// What is to be fetched at the entry, and at the return: what was returned.
pub(super) fn sides(asked: &ProbeSpec) -> (ProbeSpec, ProbeSpec) {
    let (mut entry, mut exit) = (asked.clone(), asked.clone());
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
        // There is one column for it, whatever name was given.
        if is_retval(argument) || argument.name.is_none() {
            argument.name = Some("ret".to_owned());
        }
    }
    (entry, exit)
}

/// `$retval`, or what it points to.
fn is_of_return(argument: &Argument) -> bool {
    matches!(&argument.value, Value::Raw(raw) if raw.contains("$retval"))
}

pub(super) fn is_retval(argument: &Argument) -> bool {
    matches!(&argument.value, Value::Raw(raw) if raw == "$retval")
}
