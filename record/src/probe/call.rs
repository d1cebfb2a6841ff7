//! `--call`: functions of the kernel or of a program, whose entries and returns together are rows of `calls`.
//!
//! ```text
//! --call 'vfs_read count $retval'     p:pq_…/vfs_read vfs_read count=$arg3:u64
//!                                     r4096:pq_…/vfs_read__return vfs_read ret=$retval:s64
//! --call './prog:work n'              likewise, in the program
//! ```
//! The journal says of each probe which edge of which function it is, so that no address has to be looked up, and so
//! that its hits have no table of their own.

use std::collections::BTreeMap;

use perfquet_events::event::{CallEdge, Purpose};

use super::argument;
use super::definition::{Definition, Definitions};
use super::edges::Both;
use super::form::Form;
use super::kprobe;
use super::left_out::LeftOut;
use super::{Kind, Probe, is_of_program, uprobe};
use crate::failure::{Failure, misuse};

/// The functions that one option asks for.
pub(crate) struct Functions {
    text: String,
    /// It stands for what is there, so that some may be left out.
    is_pattern: bool,
    pub(crate) all: Vec<Both>,
    /// Number of further matches, which need no probes.
    others: usize,
}

/// What the text asks for. Nothing is defined yet.
pub(crate) fn functions(text: &str) -> Result<Functions, Failure> {
    let has_object = is_of_program(text);
    let asked = argument::parse(text, has_object)?;
    if asked.offset != 0 || asked.line.is_some() {
        return Err(misuse(format!(
            "{text}: --call takes a whole function, without offset or line"
        ))
        .hint("use --kprobe or --uprobe to probe a place in a function"));
    }
    if asked.event.is_some() {
        return Err(misuse(format!(
            "{text}: a call is named after its function"
        )));
    }
    Ok(Functions {
        text: text.to_owned(),
        is_pattern: asked.function.contains(['*', '?', '[']),
        all: match has_object {
            true => uprobe::calls(text, &asked)?,
            false => kprobe::calls(text, &asked)?,
        },
        others: 0,
    })
}

impl Functions {
    /// Those that are not among the kernel's functions `others`.
    pub(crate) fn without(&self, others: &BTreeMap<String, u64>) -> Functions {
        let is_left =
            |both: &&Both| !both.module.is_empty() || !others.contains_key(&both.function);
        let all: Vec<Both> = self.all.iter().filter(is_left).cloned().collect();
        Functions {
            text: self.text.clone(),
            is_pattern: self.is_pattern,
            others: self.all.len() - all.len(),
            all,
        }
    }

    /// Defines entry and return of each in a form that `is_possible`, in this order; of a pattern, those that the kernel lets
    /// anybody probe.
    pub(crate) fn define(
        &self,
        definitions: &mut Option<Definitions>,
        is_possible: fn(&Form) -> bool,
    ) -> Result<Vec<(Both, [Probe; 2])>, Failure> {
        let mut pairs = Vec::with_capacity(self.all.len());
        let mut left_out = LeftOut::default();
        for both in &self.all {
            let mut both = both.clone();
            both.entry.forms.retain(is_possible);
            both.exit.forms.retain(is_possible);
            match define(&both, Definitions::of(definitions)?) {
                Ok(pair) => pairs.push((both, pair)),
                // Functions that the kernel needs to handle a probe cannot be probed themselves, nor names that it has
                // twice.
                Err(failure) if self.is_pattern => left_out.add(&both.function, failure),
                Err(failure) => return Err(failure),
            }
        }
        let taken = pairs.len() + self.others;
        left_out.tell(&self.text, taken, "functions cannot be probed")?;
        Ok(pairs)
    }
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
