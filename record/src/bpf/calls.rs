//! `--call` with `--min-duration` or `--max-duration`: entry and return are paired in the kernel, and what is not in range
//! never leaves it.
//!
//! ```text
//! Plan::of (probes of functions) ─► load: programs at them ─► connect (rings) ─► perfquet:calls
//! ```
//! Where that cannot be (no permission, no BTF, arguments that are not plain registers), the probes themselves are recorded
//! and paired when they are encoded, which gives the same rows.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use anyhow::Result;
use perfquet_ebpf::layout::{CallSettings, MOST_ARGUMENTS};
use perfquet_ebpf::{EbpfLoader, Error, Object, objects};
use perfquet_formats::event::{CallArgument, CallFunction, Purpose, Selection, span};

use super::agg::registers;
use super::{Reason, Whom, refused, send, tell_losses, whom};
use crate::failure::{Failure, failed};
use crate::journal::told::Told;
use crate::probe::{Kind, Probe};
use crate::recording::{self, Recording};
use crate::sys::perf_event::Event;

/// The event that carries them.
const NAME: &str = "calls";
/// Those that are still open at the end, or that a thread never leaves.
const OPEN: &str = "filtered: calls of unknown duration";

/// Functions whose calls are wanted.
pub(crate) struct Plan {
    /// Entry and return of each, one behind the other.
    probes: Vec<Probe>,
    functions: Vec<CallFunction>,
    selection: Selection,
}

/// Their programs.
pub(crate) struct Calls {
    object: Object,
    functions: Vec<CallFunction>,
    selection: Selection,
    /// What they are attached to.
    events: Vec<Event>,
}

impl Plan {
    /// Of pairs of probes; gives them back if they fetch what programs do not.
    pub(crate) fn of(probes: Vec<Probe>, selection: &Selection) -> Result<Plan, Vec<Probe>> {
        let functions = (0u32..).zip(probes.chunks_exact(2)).map(|(number, pair)| {
            let (entry, exit) = (pair.first()?, pair.get(1)?);
            function(number, entry, exit)
        });
        match functions.collect::<Option<Vec<_>>>() {
            Some(functions) if !functions.is_empty() => Ok(Plan {
                functions,
                probes,
                selection: selection.clone(),
            }),
            _ => Err(probes),
        }
    }

    /// The probes, to be recorded themselves.
    pub(crate) fn into_probes(self) -> Vec<Probe> {
        self.probes
    }

    /// Loads the programs and attaches them. They are off.
    pub(crate) fn load(&self, whom: &Whom<'_>) -> Result<Calls> {
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
        let object = Object::load(objects::CALLS, &target, |loader: &mut EbpfLoader<'_>| {
            loader.override_global("call_settings", &settings, true);
        });
        let failed = |error: Error| refused("--call", &error);
        let mut object = object.map_err(failed)?;
        let mut events = Vec::with_capacity(self.probes.len());
        for (function, pair) in self.functions.iter().zip(self.probes.chunks_exact(2)) {
            // The return first: an entry that nobody ends would stay open.
            for (probe, program) in pair.iter().rev().zip(["call_leave", "call_enter"]) {
                let event = recording::everywhere(probe, whom.cpus)?;
                object
                    .attach(program, event.as_fd(), function.number.into())
                    .map_err(failed)?;
                events.push(event);
            }
        }
        object
            .attach_tracepoint("call_thread_exit", "sched_process_exit")
            .map_err(failed)?;
        Ok(Calls {
            object,
            functions: self.functions.clone(),
            selection: self.selection.clone(),
            events,
        })
    }
}

impl Calls {
    /// The event that carries them.
    pub(crate) fn output(&self) -> Probe {
        let mut probe = Probe::output(NAME, false);
        if let Kind::Output { functions, .. } = &mut probe.kind {
            functions.clone_from(&self.functions);
        }
        probe
    }

    /// Leads what they write into the rings.
    pub(crate) fn connect(&mut self, recording: &Recording) -> Result<(), Failure> {
        send(&mut self.object, "call_records", recording, NAME)
    }

    /// What holds the probes.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let links = self.object.links().map(|link| link.as_raw_fd());
        links.chain(self.events.iter().map(|event| event.as_raw_fd()))
    }

    /// Lets them record, or stops them.
    pub(crate) fn set_on(&mut self, is_on: bool) -> Result<()> {
        let result = self.object.set_on(is_on);
        Ok(result.map_err(|error| refused("--call", &error))?)
    }

    /// Adds what they left out and lost, and says how many were lost.
    pub(crate) fn tell(&self, told: &mut Told) -> Result<u64, Failure> {
        let shown = |limit: Option<i64>| span(limit.unwrap_or_default());
        let limits = &self.selection;
        let own = [
            Reason::Filtered(format!(
                "filtered: calls shorter than {}",
                shown(limits.min_duration)
            )),
            Reason::Filtered(format!(
                "filtered: calls longer than {}",
                shown(limits.max_duration)
            )),
            Reason::Lost("deeper than 64 calls in each other"),
            Reason::Lost("a return without its entry"),
            Reason::Lost("ring full"),
            Reason::Filtered(OPEN.to_owned()),
        ];
        let depths = self.object.entries::<u64, u64>("depths");
        let open = depths.map_err(|error| refused("--call", &error))?;
        let open = open.iter().map(|(_, depth)| depth).sum();
        if open > 0 {
            told.loss(open, OPEN);
        }
        tell_losses(&self.object, "--call", told, &own)
    }
}

/// What is told with the calls of a function; `None`: more than programs fetch.
fn function(number: u32, entry: &Probe, exit: &Probe) -> Option<CallFunction> {
    let (Kind::Tracepoint(entry), Kind::Tracepoint(exit)) = (&entry.kind, &exit.kind) else {
        return None;
    };
    let Purpose::Edge(edge) = &entry.purpose else {
        return None;
    };
    let words = |definition: &Option<(_, crate::probe::definition::Form)>| {
        let (_, form) = definition.as_ref()?;
        let words = form.body.split_whitespace().skip(1);
        words.map(argument).collect::<Option<Vec<_>>>()
    };
    Some(CallFunction {
        number,
        function: edge.function.clone(),
        module: edge.module.clone(),
        arguments: words(&entry.definition)?,
        returned: words(&exit.definition)?.into_iter().next(),
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
    fn what_programs_fetch() {
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
