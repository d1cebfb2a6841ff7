//! `--call` with `--min-duration` or `--max-duration`: entries and returns are paired in the kernel, and calls out of range
//! never leave it.
//!
//! ```text
//! Plan::of (functions) ─► load: programs at them ─► connect (rings) ─► perfquet:calls
//! ```
//! Without permission or BTF, or with arguments that are not plain registers, entries and returns are recorded instead and
//! paired by the encoder, with the same rows.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};

use anyhow::Result;
use perfquet_ebpf::layout::{CallSettings, MOST_ARGUMENTS};
use perfquet_ebpf::{EbpfLoader, Object, compiled};
use perfquet_events::event::{CallArgument, CallFunction, Selection, span};

use super::agg::registers;
use super::pairing::{self, Pairing};
use super::{Whom, put_losses, refused, send, whom};
use crate::failure::{Failure, failed};
use crate::journal::own_records::OwnRecords;
use crate::probe::call::Functions;
use crate::probe::definition::{Definition, Definitions};
use crate::probe::edges::Both;
use crate::probe::{Kind, Probe, Usage};
use crate::recording::{Reach, Recording};

const OPTION: &str = "--call";
/// The event whose samples are calls.
const NAME: &str = "calls";

/// The requested functions.
pub(crate) struct Plan {
    functions: Vec<Functions>,
    selection: Selection,
}

/// The loaded programs.
pub(crate) struct Calls {
    object: Object,
    pairing: Pairing,
    functions: Vec<CallFunction>,
    selection: Selection,
}

impl Plan {
    /// Plans the programs, without defining or loading anything.
    pub(crate) fn of(mut functions: Vec<Functions>, selection: &Selection) -> Plan {
        // Each function once, by its last option: 'vfs_*' and then 'vfs_read count' adds an argument to one of them.
        let mut seen = BTreeSet::new();
        for functions in functions.iter_mut().rev() {
            let is_new = |both: &Both| seen.insert((both.module.clone(), both.function.clone()));
            functions.all.retain(is_new);
        }
        functions.retain(|functions| !functions.all.is_empty());
        Plan {
            functions,
            selection: selection.clone(),
        }
    }

    /// Returns the probes of entries and returns, to be recorded as events.
    pub(crate) fn define(
        &self,
        definitions: &mut Option<Definitions>,
    ) -> Result<Vec<Probe>, Failure> {
        let mut probes = Vec::new();
        for functions in &self.functions {
            let pairs = functions.define(definitions, Usage::Rows)?;
            probes.extend(pairs.into_iter().flat_map(|(_, pair)| pair));
        }
        Ok(probes)
    }

    /// Loads and attaches the programs, switched off.
    pub(crate) fn load(
        &self,
        whom: &Whom<'_>,
        definitions: &mut Option<Definitions>,
    ) -> Result<Calls> {
        let mut wanted = self.functions.iter().flat_map(|functions| &functions.all);
        if wanted.any(|both| function(0, both).is_none()) {
            return Err(failed("their arguments are not plain registers").into());
        }
        let mut object = self.object(whom)?;
        let tids = whom::tids(whom);
        let reach = Reach {
            cpus: whom.cpus,
            tids: tids.as_deref(),
        };
        let pairing = Pairing::attach(&mut object, &self.functions, reach, definitions)?;
        let functions = (0..).zip(&pairing.functions);
        Ok(Calls {
            functions: functions
                .filter_map(|(number, both)| function(number, both))
                .collect(),
            object,
            pairing,
            selection: self.selection.clone(),
        })
    }

    fn object(&self, whom: &Whom<'_>) -> Result<Object> {
        let limit = |limit: Option<i64>, otherwise| {
            limit.map_or(otherwise, |limit| u64::try_from(limit).unwrap_or(0))
        };
        let mut settings = CallSettings {
            least: limit(self.selection.min_duration, 0),
            most: limit(self.selection.max_duration, u64::MAX),
            returned: registers::returned().ok_or_else(|| failed("registers are not known"))?,
            ..CallSettings::default()
        };
        for (number, place) in (1..).zip(&mut settings.arguments) {
            *place = registers::argument(number).unwrap_or(settings.returned);
        }
        let target = whom::filter(whom)?;
        let object = Object::load(compiled::CALLS, &target, |loader: &mut EbpfLoader<'_>| {
            loader.override_global("call_settings", &settings, true);
            pairing::size(loader);
        });
        Ok(object.map_err(|error| refused(OPTION, &error))?)
    }
}

impl Calls {
    /// Returns the event whose samples are calls.
    pub(crate) fn output(&self) -> Probe {
        let mut probe = Probe::output(NAME, false);
        if let Kind::Output { functions, .. } = &mut probe.kind {
            functions.clone_from(&self.functions);
        }
        probe
    }

    /// Connects the programs' output to the rings.
    pub(crate) fn connect(&mut self, recording: &Recording) -> Result<(), Failure> {
        send(&mut self.object, "call_records", recording, NAME)
    }

    /// Returns the descriptors of the probes.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let links = self.object.links().map(|link| link.as_raw_fd());
        links.chain(self.pairing.descriptors())
    }

    /// Enables or disables recording.
    pub(crate) fn set_on(&mut self, is_on: bool) -> Result<()> {
        if is_on {
            self.pairing.begin(&self.object);
        }
        let result = self.object.set_on(is_on);
        Ok(result.map_err(|error| refused(OPTION, &error))?)
    }

    /// Adds the numbers of filtered and lost calls; returns the number of lost ones.
    pub(crate) fn put_losses(&self, records: &mut OwnRecords) -> Result<u64, Failure> {
        let shown = |limit: Option<i64>| span(limit.unwrap_or_default());
        let limits = &self.selection;
        let reasons = pairing::reasons(&shown(limits.min_duration), &shown(limits.max_duration));
        let missed = self.pairing.put_losses(&self.object, records)?;
        Ok(missed + put_losses(&self.object, OPTION, records, &reasons)?)
    }
}

/// Returns the values to record with the calls of a function; `None` if programs cannot fetch them.
fn function(number: u32, both: &Both) -> Option<CallFunction> {
    let words = |definition: &Definition| {
        // All forms of a probe have the same arguments.
        let form = definition.forms.last()?;
        let words = form.body.split_whitespace().skip(1);
        words.map(argument).collect::<Option<Vec<_>>>()
    };
    Some(CallFunction {
        number,
        function: both.function.clone(),
        module: both.module.clone(),
        arguments: words(&both.entry)?,
        returned: words(&both.exit)?.into_iter().next(),
    })
}

/// `count=$arg3:u64`, `ms=%di:s32`, `ret=$retval:s64`.
fn argument(word: &str) -> Option<CallArgument> {
    let (name, value) = word.split_once('=')?;
    let (value, kind) = value.rsplit_once(':')?;
    let place = if let Some(number) = value.strip_prefix("$arg") {
        number.parse::<usize>().ok()?.checked_sub(1)?
    } else if let Some(register) = value.strip_prefix('%') {
        let register = registers::named(register)?;
        (0..MOST_ARGUMENTS).find(|place| registers::argument(place + 1) == Some(register))?
    } else if value == "$retval" {
        0
    } else {
        return None;
    };
    let is_known = CallArgument::is_kind(kind) && place < MOST_ARGUMENTS;
    is_known.then(|| CallArgument {
        name: name.to_owned(),
        place,
        kind: kind.to_owned(),
    })
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::argument;

    #[test]
    fn values_fetched_by_bpf_programs() {
        let place = |word| argument(word).map(|argument| argument.place);
        assert_eq!(place("count=$arg3:u64"), Some(2));
        assert_eq!(place("ms=%di:s32"), Some(0));
        assert_eq!(place("ret=$retval:x64"), Some(0));
        for other in [
            "n=+8(%di):u32",
            "s=%di:string",
            "x=%bx:u64",
            "n=$arg7:u8",
            "%di",
        ] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
