//! `--call` with `--min-duration` or `--max-duration`: entry and return are paired in the kernel, and what is not in range
//! never leaves it.
//!
//! ```text
//! Plan::of (functions) ─► load: programs at them ─► connect (rings) ─► perfquet:calls
//! ```
//! Where that cannot be (no permission, no BTF, arguments that are not plain registers), the probes themselves are recorded
//! and paired when they are encoded, which gives the same rows.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use anyhow::Result;
use perfquet_ebpf::layout::{CallSettings, MOST_ARGUMENTS};
use perfquet_ebpf::{EbpfLoader, End, Error, Hook, Object, compiled};
use perfquet_events::event::{CallArgument, CallFunction, Selection, span};

use super::agg::registers;
use super::{Reason, Whom, refused, send, tell_losses, whom};
use crate::failure::{Failure, failed};
use crate::journal::told::Told;
use crate::probe::call::Functions;
use crate::probe::definition::{Definition, Definitions};
use crate::probe::edges::Both;
use crate::probe::{Kind, Probe, hooks, may_have_programs};
use crate::recording::{self, Recording};
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::Event;

const OPTION: &str = "--call";
/// The event that carries them.
const NAME: &str = "calls";
/// Those that are still open at the end, or that a thread never leaves.
const OPEN: &str = "filtered: calls of unknown duration";

/// Of functions that are hooked together.
const MISSED: &str = "returns let pass by the kernel, of any process: no room to wait for one more, or inside of a program";

/// Functions whose calls are wanted.
pub(crate) struct Plan {
    functions: Vec<Functions>,
    selection: Selection,
}

/// Their programs.
pub(crate) struct Calls {
    object: Object,
    functions: Vec<CallFunction>,
    selection: Selection,
    /// What they are attached to, one by one.
    events: Vec<Event>,
    /// What hooks let pass before the start.
    missed_before: u64,
}

impl Plan {
    /// Nothing is defined and loaded yet.
    pub(crate) fn of(mut functions: Vec<Functions>, selection: &Selection) -> Plan {
        // Each once, as the last option asks for it: 'vfs_*', and vfs_read with its arguments.
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

    /// Entries and returns, to be recorded themselves.
    pub(crate) fn define(
        &self,
        definitions: &mut Option<Definitions>,
    ) -> Result<Vec<Probe>, Failure> {
        let mut probes = Vec::new();
        for functions in &self.functions {
            let pairs = functions.define(definitions, |_| true)?;
            probes.extend(pairs.into_iter().flat_map(|(_, pair)| pair));
        }
        Ok(probes)
    }

    /// Loads the programs and attaches them: to many functions of the kernel by one link, to all others by events of their
    /// own. They are off.
    pub(crate) fn load(
        &self,
        whom: &Whom<'_>,
        definitions: &mut Option<Definitions>,
    ) -> Result<Calls> {
        let wanted = || self.functions.iter().flat_map(|functions| &functions.all);
        if wanted().any(|both| function(0, both).is_none()) {
            return Err(failed("their arguments are not plain registers").into());
        }
        let in_kernel: BTreeSet<&str> = wanted()
            .filter(|both| both.module.is_empty())
            .map(|both| both.function.as_str())
            .collect();
        let hooks = match in_kernel.len() >= hooks::FEWEST {
            true => hooks::addresses(&in_kernel),
            false => BTreeMap::new(),
        };
        let mut calls = Calls {
            object: self.object(whom)?,
            functions: Vec::new(),
            selection: self.selection.clone(),
            events: Vec::new(),
            missed_before: 0,
        };
        let in_kernel = |both: &&Both| both.module.is_empty();
        let by_hook = wanted()
            .filter(in_kernel)
            .filter(|both| hooks.contains_key(&both.function));
        let hooks = match calls.hook(by_hook, &hooks) {
            Ok(()) => hooks,
            Err(error) => {
                log::info!("an event for each function: {error:#}");
                BTreeMap::new()
            }
        };
        let exit = calls
            .object
            .attach_tracepoint("call_thread_exit", "sched_process_exit");
        exit.map_err(|error| refused(OPTION, &error))?;
        let left = wanted().count() - calls.functions.len();
        // An event and a link at either end.
        limits::raise_by(Resource::OpenFiles, 4 * left as u64);
        for functions in &self.functions {
            let functions = functions.without(&hooks);
            calls.attach(&functions, whom, definitions)?;
        }
        Ok(calls)
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
        });
        Ok(object.map_err(|error| refused(OPTION, &error))?)
    }
}

impl Calls {
    /// By one link for all of them.
    fn hook<'a>(
        &mut self,
        wanted: impl Iterator<Item = &'a Both>,
        addresses: &BTreeMap<String, u64>,
    ) -> Result<()> {
        let functions: Vec<CallFunction> = (0..)
            .zip(wanted)
            .filter_map(|(number, both)| function(number, both))
            .collect();
        if functions.is_empty() {
            return Ok(());
        }
        let hook = |function: &CallFunction| {
            Some(Hook {
                address: *addresses.get(&function.function)?,
                cookie: function.number.into(),
            })
        };
        let hooks: Vec<Hook> = functions.iter().filter_map(hook).collect();
        // The return first: an entry that nobody ends would stay open.
        let hooked = self.object.hook("call_leave", End::Return, &hooks);
        let hooked = hooked.and_then(|()| self.object.hook("call_enter", End::Entry, &hooks));
        if let Err(error) = hooked {
            self.object.unhook();
            return Err(refused(OPTION, &error).into());
        }
        self.functions = functions;
        Ok(())
    }

    /// By an event at the entry and one at the return of each.
    fn attach(
        &mut self,
        wanted: &Functions,
        whom: &Whom<'_>,
        definitions: &mut Option<Definitions>,
    ) -> Result<()> {
        let failed = |error: Error| refused(OPTION, &error);
        if wanted.all.is_empty() {
            return Ok(());
        }
        // What the kernel says to the programs, before it is asked for the probes.
        for program in ["call_leave", "call_enter"] {
            self.object.prepare(program).map_err(failed)?;
        }
        let pairs = wanted.define(definitions, may_have_programs)?;
        for (both, [entry, exit]) in pairs {
            let number = self.functions.len() as u32;
            let Some(function) = function(number, &both) else {
                continue;
            };
            for (probe, program) in [(exit, "call_leave"), (entry, "call_enter")] {
                let event = recording::everywhere(&probe, whom.cpus)?;
                self.object
                    .attach(program, event.as_fd(), number.into())
                    .map_err(failed)?;
                self.events.push(event);
            }
            self.functions.push(function);
        }
        Ok(())
    }

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
        if is_on {
            self.missed_before = self.object.missed();
        }
        let result = self.object.set_on(is_on);
        Ok(result.map_err(|error| refused(OPTION, &error))?)
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
        let open = depths.map_err(|error| refused(OPTION, &error))?;
        let open = open.iter().map(|(_, depth)| depth).sum();
        if open > 0 {
            told.loss(open, OPEN);
        }
        let missed = self.object.missed().saturating_sub(self.missed_before);
        if missed > 0 {
            told.loss(missed, &format!("{OPTION}: {MISSED}"));
        }
        Ok(missed + tell_losses(&self.object, OPTION, told, &own)?)
    }
}

/// The values recorded with the calls of a function; `None`: more than programs fetch.
fn function(number: u32, both: &Both) -> Option<CallFunction> {
    let words = |definition: &Definition| {
        // All forms fetch the same.
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
