//! `--call`: pairs entries and returns of kernel or user functions into rows of `calls`.
//!
//! ```text
//! --call 'vfs_read count $retval'     p:pq_…/vfs_read vfs_read count=$arg3:u64
//!                                     r4096:pq_…/vfs_read__return vfs_read ret=$retval:s64
//! --call './prog:work n'              likewise, in the program
//! ```
//! The journal records the function and the edge (entry or return) of each probe. Addresses need no lookup then, and
//! the hits have no table.

use std::collections::BTreeMap;

use perfquet_events::event::{CallEdge, Purpose};

use super::argument;
use super::definition::{Definition, Definitions};
use super::edges::Both;
use super::kprobe;
use super::rejected::Rejected;
use super::{Kind, Probe, Usage, is_of_program, may_have_programs, uprobe};
use crate::failure::{Failure, misuse};

/// The functions of one option.
pub(crate) struct Functions {
    text: String,
    /// Whether the name is a pattern, whose rejected matches are skipped.
    is_pattern: bool,
    pub(crate) all: Vec<Both>,
    /// Number of further matches, which need no probes.
    others: usize,
}

/// Finds the functions of an option, without defining probes.
pub(crate) fn functions(text: &str) -> Result<Functions, Failure> {
    let has_object = is_of_program(text);
    let spec = argument::parse(text, has_object)?;
    if spec.offset != 0 || spec.line.is_some() {
        return Err(
            misuse(format!("{text}: --call does not support an offset or line"))
                .hint("use --kprobe or --uprobe for a place in a function"),
        );
    }
    if spec.event.is_some() {
        return Err(misuse(format!(
            "{text}: --call does not support an event name"
        )));
    }
    Ok(Functions {
        text: text.to_owned(),
        is_pattern: spec.function.contains(['*', '?', '[']),
        all: match has_object {
            true => uprobe::calls(text, &spec)?,
            false => kprobe::calls(text, &spec)?,
        },
        others: 0,
    })
}

impl Functions {
    /// Returns the functions that are not in `others`.
    pub(crate) fn without(&self, others: &BTreeMap<String, u64>) -> Functions {
        self.only(|both| !both.module.is_empty() || !others.contains_key(&both.function))
    }

    /// Keeps only the functions for which `is_wanted` returns true.
    pub(crate) fn only(&self, is_wanted: impl Fn(&Both) -> bool) -> Functions {
        let all = self.all.iter().filter(|both| is_wanted(both));
        let all: Vec<Both> = all.cloned().collect();
        Functions {
            text: self.text.clone(),
            is_pattern: self.is_pattern,
            others: self.all.len() - all.len(),
            all,
        }
    }

    /// Keeps only the functions for which `is_kept` returns true; it is called for each, in their order.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut() -> bool) {
        let before = self.all.len();
        self.all.retain(|_| is_kept());
        self.others += before - self.all.len();
    }

    /// Defines entry and return of each function for a use of them, in this order. With a pattern, functions that the
    /// kernel does not allow to probe are skipped.
    pub(crate) fn define(
        &self,
        definitions: &mut Option<Definitions>,
        usage: Usage,
    ) -> Result<Vec<(Both, [Probe; 2])>, Failure> {
        let mut pairs = Vec::with_capacity(self.all.len());
        let mut rejected = Rejected::default();
        for both in &self.all {
            let mut both = both.clone();
            if usage == Usage::Programs {
                both.entry.forms.retain(may_have_programs);
                both.exit.forms.retain(may_have_programs);
            }
            match define(&both, usage, Definitions::of(definitions)?) {
                Ok(pair) => pairs.push((both, pair)),
                // The kernel rejects functions that it needs to handle probes, and names that occur twice.
                Err(failure) if self.is_pattern => rejected.add(&both.function, failure),
                Err(failure) => return Err(failure),
            }
        }
        let taken = pairs.len() + self.others;
        rejected.report(&self.text, taken, "functions cannot be probed")?;
        Ok(pairs)
    }
}

fn define(both: &Both, usage: Usage, definitions: &mut Definitions) -> Result<[Probe; 2], Failure> {
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
        let probe = match usage {
            Usage::Rows => definitions.define(&definition)?,
            Usage::Programs => definitions.define_for_programs(&definition)?,
        };
        Ok(with_purpose(probe, edge(is_entry)))
    };
    // The return is defined first: an entry without a return would be a call that never ends.
    let exit = one(&both.exit, false)?;
    Ok([one(&both.entry, true)?, exit])
}

/// Sets the purpose of a probe's hits.
pub(crate) fn with_purpose(mut probe: Probe, purpose: Purpose) -> Probe {
    if let Kind::Tracepoint(tracepoint) = &mut probe.kind {
        tracepoint.purpose = purpose;
    }
    probe
}
