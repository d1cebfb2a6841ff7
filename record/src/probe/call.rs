//! `--call`: functions of the kernel or of a program, whose entries and returns together are rows of `calls`.
//!
//! ```text
//! --call 'vfs_read count $retval'     p:pq_…/vfs_read vfs_read count=$arg3:u64
//!                                     r4096:pq_…/vfs_read__return vfs_read ret=$retval:s64
//! --call './prog:work n'              likewise, in the program
//! ```
//! The journal says of each probe which edge of which function it is, so that no address has to be looked up, and so
//! that its hits have no table of their own.

use perfquet_formats::event::{CallEdge, Purpose};

use super::argument::{self, Argument, Asked, Value};
use super::definition::{Definition, Definitions, Form};
use super::kprobe::{self, is_retval};
use super::{Kind, Probe, uprobe};
use crate::failure::{Failure, misuse};

/// What a probe stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// An entry, or a place inside.
    Entry,
    /// A return as an event of its own: what was returned belongs to it.
    Return,
    /// A return as the end of a call: what was asked for and nothing else.
    Exit,
}

impl Edge {
    /// Of a probe that is an event of its own.
    pub(super) fn of_probe(at_return: bool) -> Edge {
        match at_return {
            true => Edge::Return,
            false => Edge::Entry,
        }
    }
}

/// The two probes of a function.
pub(super) struct Both {
    pub(super) function: String,
    /// File; empty for the kernel.
    pub(super) module: String,
    pub(super) entry: Definition,
    pub(super) exit: Definition,
}

/// What is to be fetched at the entry, and at the return: what was returned.
pub(super) fn sides(asked: &Asked) -> (Asked, Asked) {
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

/// Defines the probes that the text asks for.
pub(crate) fn probes(
    text: &str,
    definitions: &mut Definitions,
    is_possible: fn(&Form) -> bool,
) -> Result<Vec<Probe>, Failure> {
    let place = text.split_whitespace().next().unwrap_or_default();
    let has_object = place.contains(':');
    let asked = argument::parse(text, has_object)?;
    if asked.offset != 0 || asked.line.is_some() {
        return Err(
            misuse(format!("{text}: a call is that of a whole function"))
                .hint("--kprobe and --uprobe probe places in a function"),
        );
    }
    if asked.event.is_some() {
        return Err(misuse(format!(
            "{text}: a call has the name of its function"
        )));
    }
    let mut all = match has_object {
        true => uprobe::calls(text, &asked)?,
        false => kprobe::calls(text, &asked)?,
    };
    for both in &mut all {
        both.entry.forms.retain(is_possible);
        both.exit.forms.retain(is_possible);
    }
    let is_pattern = asked.function.contains(['*', '?', '[']);
    let mut probes = Vec::with_capacity(2 * all.len());
    let mut refused = Vec::new();
    let mut first_failure = None;
    for both in &all {
        match define(both, definitions) {
            Ok(pair) => probes.extend(pair),
            // Functions that the kernel needs to handle a probe cannot be probed themselves, nor names that it has twice.
            Err(failure) if is_pattern => {
                log::info!("{}: {failure}", both.function);
                refused.push(both.function.as_str());
                first_failure.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    match first_failure {
        Some(failure) if probes.is_empty() => return Err(failure),
        Some(_) => log::warn!(
            "{text}: {} of {} functions cannot be probed: {}",
            refused.len(),
            all.len(),
            shortened(&refused)
        ),
        None => {}
    }
    Ok(probes)
}

fn define(both: &Both, definitions: &mut Definitions) -> Result<[Probe; 2], Failure> {
    let edge = |is_entry| {
        Purpose::Edge(CallEdge {
            is_entry,
            function: both.function.clone(),
            module: both.module.clone(),
        })
    };
    let mut one = |definition: &Definition, is_entry| {
        let definition = Definition {
            system: definition.system.replacen("probe", "call", 1),
            ..definition.clone()
        };
        let probe = definitions.define(&definition)?;
        Ok(with_purpose(probe, edge(is_entry)))
    };
    // The return first: an entry without it would be a call that never ends.
    let exit = one(&both.exit, false)?;
    Ok([one(&both.entry, true)?, exit])
}

/// Says what a probe's hits are for.
pub(crate) fn with_purpose(mut probe: Probe, purpose: Purpose) -> Probe {
    if let Kind::Tracepoint(tracepoint) = &mut probe.kind {
        tracepoint.purpose = purpose;
    }
    probe
}

fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>();
    match names.len() > SHOWN {
        true => format!("{}, …", shown.join(", ")),
        false => shown.join(", "),
    }
}
