//! Programs that pair entries and returns of functions.
//!
//! Many kernel functions share one link; all other functions get two events each. The programs are switched off until their
//! object is enabled.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use anyhow::Result;
use perfquet_ebpf::layout::Lane;
use perfquet_ebpf::{EbpfLoader, End, Error, Hook, Object};

use super::{Reason, refused};
use crate::failure::Failure;
use crate::journal::own_records::OwnRecords;
use crate::probe::call::Functions;
use crate::probe::definition::Definitions;
use crate::probe::edges::Both;
use crate::probe::{Usage, hooks};
use crate::recording::{self, Reach};
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::Event;

const OPTION: &str = "--call";
/// Maximum number of threads with open calls, and of nested open calls.
const MOST_OPEN: u32 = 65_536;
/// Reason for calls that are open at the end, or that their thread never leaves.
const OPEN: &str = "filtered: calls of unknown duration";
/// Reason for returns of functions that share a link.
const MISSED: &str = "returns missed by the kernel, in any process: too many open calls of a function, or inside a BPF program";

/// The attachments of the programs.
#[derive(Default)]
pub(super) struct Pairing {
    /// Indexed by the numbers of functions in the programs.
    pub(super) functions: Vec<Both>,
    /// Events of the functions that do not share a link.
    events: Vec<Event>,
    /// Hits that the kernel had missed before the start.
    missed_before: u64,
}

/// Sets the size of the maps of open calls.
pub(super) fn size(loader: &mut EbpfLoader<'_>) {
    loader.map_max_entries("lanes", MOST_OPEN);
    loader.map_max_entries("open_calls", MOST_OPEN);
}

impl Pairing {
    /// Attaches the programs `call_enter` and `call_leave` of an object.
    pub(super) fn attach(
        object: &mut Object,
        wanted: &[Functions],
        reach: Reach<'_>,
        definitions: &mut Option<Definitions>,
    ) -> Result<Pairing> {
        let mut pairing = Pairing::default();
        let all = || wanted.iter().flat_map(|functions| &functions.all);
        let in_kernel: BTreeSet<&str> = all()
            .filter(|both| both.module.is_empty())
            .map(|both| both.function.as_str())
            .collect();
        let hooks = match in_kernel.len() >= hooks::FEWEST {
            true => hooks::addresses(&in_kernel),
            false => BTreeMap::new(),
        };
        let is_hooked = |both: &&Both| both.module.is_empty() && hooks.contains_key(&both.function);
        let hooks = match pairing.hook(object, all().filter(is_hooked), &hooks) {
            Ok(()) => hooks,
            Err(error) => {
                log::info!("an event for each function: {error:#}");
                BTreeMap::new()
            }
        };
        object
            .attach_tracepoint("call_thread_exit", "sched_process_exit")
            .map_err(|error| refused(OPTION, &error))?;
        let left = all().count() - pairing.functions.len();
        // Descriptors: an event and a link at each end.
        limits::raise_by(Resource::OpenFiles, 4 * left as u64);
        for functions in wanted {
            let functions = functions.without(&hooks);
            pairing.attach_each(object, &functions, reach, definitions)?;
        }
        Ok(pairing)
    }

    /// Attaches the programs to all functions by one link.
    fn hook<'a>(
        &mut self,
        object: &mut Object,
        wanted: impl Iterator<Item = &'a Both>,
        addresses: &BTreeMap<String, u64>,
    ) -> Result<()> {
        let functions: Vec<Both> = wanted.cloned().collect();
        if functions.is_empty() {
            return Ok(());
        }
        let hook = |(number, both): (u64, &Both)| {
            Some(Hook {
                address: *addresses.get(&both.function)?,
                cookie: number,
            })
        };
        let hooks: Vec<Hook> = (0..).zip(&functions).filter_map(hook).collect();
        // The return first: a call entered before it is attached would stay open.
        let hooked = object.hook("call_leave", End::Return, &hooks);
        let hooked = hooked.and_then(|()| object.hook("call_enter", End::Entry, &hooks));
        if let Err(error) = hooked {
            object.unhook();
            return Err(refused(OPTION, &error).into());
        }
        self.functions = functions;
        Ok(())
    }

    /// Attaches the programs by two events per function, at its entry and return.
    fn attach_each(
        &mut self,
        object: &mut Object,
        wanted: &Functions,
        reach: Reach<'_>,
        definitions: &mut Option<Definitions>,
    ) -> Result<()> {
        let failed = |error: Error| refused(OPTION, &error);
        if wanted.all.is_empty() {
            return Ok(());
        }
        // Load the programs first, so that a rejection by the verifier leaves no probes to remove.
        for program in ["call_leave", "call_enter"] {
            object.prepare(program).map_err(failed)?;
        }
        let pairs = wanted.define(definitions, Usage::Programs)?;
        for (both, [entry, exit]) in pairs {
            let number = self.functions.len() as u64;
            for (probe, program) in [(exit, "call_leave"), (entry, "call_enter")] {
                let events = recording::for_program(&probe, reach)?;
                if let Some(event) = events.first() {
                    let attached = object.attach(program, event.as_fd(), number);
                    attached.map_err(failed)?;
                }
                self.events.extend(events);
            }
            self.functions.push(both);
        }
        Ok(())
    }

    /// Returns the descriptors of the probes.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.events.iter().map(|event| event.as_raw_fd())
    }

    /// Starts counting returns that the kernel misses.
    pub(super) fn begin(&mut self, object: &Object) {
        self.missed_before = object.missed();
    }

    /// Adds the numbers of calls that are still open and of missed returns; returns the latter.
    pub(super) fn put_losses(
        &self,
        object: &Object,
        records: &mut OwnRecords,
    ) -> Result<u64, Failure> {
        let lanes = object.entries::<u64, Lane>("lanes");
        let lanes = lanes.map_err(|error| refused(OPTION, &error))?;
        let open = lanes.iter().map(|(_, lane)| lane.depth).sum();
        if open > 0 {
            records.loss(open, OPEN);
        }
        let missed = object.missed().saturating_sub(self.missed_before);
        if missed > 0 {
            records.loss(missed, &format!("{OPTION}: {MISSED}"));
        }
        Ok(missed)
    }
}

/// Returns the reasons for filtered and lost calls, by their numbers in open_calls.h; `least` and `most` describe the
/// limits.
pub(super) fn reasons(least: &str, most: &str) -> [Reason; 6] {
    [
        Reason::Filtered(format!("filtered: calls shorter than {least}")),
        Reason::Filtered(format!("filtered: calls longer than {most}")),
        Reason::Lost("nested deeper than 64 calls"),
        Reason::Lost("a return without its entry"),
        Reason::Lost("ring full"),
        Reason::Filtered(OPEN.to_owned()),
    ]
}
