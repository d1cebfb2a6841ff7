//! One aggregation: its programs and its results.
//!
//! ```text
//! of_hits, of_calls, of_latency ─► connect (rings, probes) ─► set_on … ─► tell
//! ```
//! Sources with equal fetches share an object: its programs and its maps.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use anyhow::Result;
use perfquet_ebpf::layout::{
    AggSettings, Cell, Fetch, KeyPart, MOST_KEYS, NARROW_WORDS, Part, Value, WIDE_WORDS,
};
use perfquet_ebpf::walk_tables::WalkTables;
use perfquet_ebpf::{EbpfLoader, Error, Object, Target, compiled};

use super::aggregate_rows;
use super::intervals::Intervals;
use super::latency::Latency;
use super::pairing::{self, Pairing};
use super::plan::{Key, Located, Plan, Reads, Requested, has_cookies};
use super::walking::Variants;
use super::{OWN_RECORDS, Printing, Whom, put_losses, refused, send, whom};
use crate::failure::{Failure, misuse};
use crate::journal::own_records::OwnRecords;
use crate::probe::call::Functions;
use crate::probe::definition::Definitions;
use crate::probe::edges::Both;
use crate::probe::rejected::Rejected;
use crate::probe::stacks::Stacks;
use crate::probe::{Kind, Probe};
use crate::recording::{self, NOT_RECORDED, Reach, Recording, Settings};
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::Event;
use crate::sys::privileges;
use crate::sys::{clock, host};

/// Maximum number of keys of one aggregation; each bar of a distribution counts.
const MOST_CELLS: u32 = 16_384;
/// Memory for the cells of an aggregation by stack, of which there are more than of other keys.
const STACK_CELLS_BYTES: usize = 64 << 20;
/// The longest key with the kernel's own data.
const KEY_BYTES: usize = 400;
/// Maximum number of distinct stacks in the keys of one aggregation.
const MOST_STACKS: u32 = 65_536;
/// Maximum number of open latencies, and of open calls with long strings.
const MOST_BEGUN: u32 = 65_536;
const MOST_TEXTS: u32 = 16_384;

/// Returns the maximum number of keys. The kernel allocates all cells of all CPUs when the map is created.
fn most_cells(has_stacks: bool, cpus: usize) -> u32 {
    if !has_stacks {
        return MOST_CELLS;
    }
    let fitting = STACK_CELLS_BYTES / (KEY_BYTES + cpus * size_of::<Cell>());
    (fitting as u32).clamp(MOST_CELLS, MOST_STACKS)
}

/// Rings, maps, the journal.
const OTHER_FILES: u64 = 100;

/// Names of the programs for the starts of a latency.
const STARTS: [&str; 4] = [
    "latency_start_0",
    "latency_start_1",
    "latency_start_2",
    "latency_start_3",
];

/// The object of aggregations of hits.
const HITS: Variants = Variants {
    walking: compiled::AGG_WALKED,
    plain: compiled::AGG,
};

/// A loaded aggregation.
pub(crate) struct Aggregation {
    plan: Plan,
    groups: Vec<Group>,
    intervals: Intervals,
    cpus: Vec<u32>,
    /// Threads of the target; `None`: the whole system.
    tids: Option<Vec<i32>>,
    settings: Settings,
    /// Tables of the programs that walk stacks, until they are taken.
    tables: Vec<WalkTables>,
}

/// The programs for sources with equal fetches.
struct Group {
    object: Object,
    /// Whether its programs walk user stacks by unwind tables.
    walks: bool,
    /// Names of the sources, indexed by their numbers in the programs.
    names: Vec<String>,
    attachments: Vec<Attachment>,
    /// Functions to pair.
    functions: Vec<Functions>,
    pairing: Option<Pairing>,
    /// Attachments of the programs.
    events: Vec<Event>,
}

/// A program at a probe.
struct Attachment {
    program: &'static str,
    probe: Probe,
    cookie: u64,
}

/// The program for hits of a probe.
fn program_at(probe: &Probe) -> &'static str {
    match &probe.kind {
        Kind::Sampled => "aggregate_sample",
        Kind::Tracepoint(tracepoint) if tracepoint.is_own => "aggregate_probe",
        Kind::Tracepoint(_) | Kind::Output { .. } => "aggregate_tracepoint",
    }
}

impl Aggregation {
    /// Loads the programs for hits of probes.
    pub(crate) fn of_hits(
        requested: Requested<Probe>,
        whom: &Whom<'_>,
        settings: &Settings,
    ) -> Result<Aggregation> {
        // Descriptors: an event and a link for each probe, besides those in use.
        let count = requested.sources.len();
        let needed = 2 * count as u64 + OTHER_FILES;
        let limit = limits::raise_by(Resource::OpenFiles, 2 * count as u64);
        if limit < needed {
            return Err(privileges::too_many_files(count, needed, limit).into());
        }
        let target = whom::filter(whom)?;
        let mut aggregation = Aggregation::new(requested.plan, whom, settings);
        let has_numbers = aggregation.plan.keys.contains(&Key::Probe);
        let (sampled, others): (Vec<_>, Vec<_>) = requested
            .sources
            .into_iter()
            .partition(|(probe, _)| probe.is_sampled());
        let groups = [sampled, others].map(|sources| together(&aggregation.plan, sources));
        for (reads, probes) in groups.into_iter().flatten() {
            let constants = constants(&aggregation.plan, &reads, aggregation.settings.stacks)?;
            let how = (&constants, &reads);
            let load = |bytes| aggregation.load(bytes, &target, how, |_| {});
            let prepare = |object: &mut Object| {
                probes
                    .iter()
                    .map(program_at)
                    .try_for_each(|program| object.prepare(program))
            };
            let loaded = HITS.load(aggregation.walks(), load, prepare);
            let (object, tables) =
                loaded.map_err(|error| refused(aggregation.plan.name(), &error))?;
            let walks = tables.is_some();
            aggregation.tables.extend(tables);
            // Sites of a static probe have one name, and so one number.
            let number_of = |probe: &Probe| {
                let first = probes.iter().position(|other| other.name == probe.name);
                first.unwrap_or(0) as u64
            };
            let attachment = |probe: &Probe| Attachment {
                program: program_at(probe),
                probe: probe.clone(),
                cookie: if has_numbers { number_of(probe) } else { 0 },
            };
            aggregation.groups.push(Group {
                object,
                walks,
                names: probes.iter().map(|probe| probe.name.clone()).collect(),
                attachments: probes.iter().map(attachment).collect(),
                functions: Vec::new(),
                pairing: None,
                events: Vec::new(),
            });
        }
        Ok(aggregation)
    }

    /// Loads the programs for calls of functions, which are among `functions`.
    pub(crate) fn of_calls(
        requested: Requested<Both>,
        functions: &[Functions],
        whom: &Whom<'_>,
        settings: &Settings,
    ) -> Result<Aggregation> {
        let target = whom::filter(whom)?;
        let mut aggregation = Aggregation::new(requested.plan, whom, settings);
        let groups = together(&aggregation.plan, requested.sources);
        let is_self = |reads: &Reads| reads.value == Located::Measured(Value::SelfTime);
        let has_self = aggregation.plan.actions(true) != 0;
        if groups.len() > 1 && (has_self || groups.iter().any(|(reads, _)| is_self(reads))) {
            return Err(misuse(format!(
                "{}: self time requires the same arguments for all functions",
                aggregation.plan.name()
            ))
            .hint("aggregate duration instead, or drop the arguments and their filters")
            .into());
        }
        for (reads, all) in groups {
            let saved = reads.saved.first().copied().unwrap_or_default();
            let has_texts = saved.texts[0] != Fetch::default();
            let constants = constants(&aggregation.plan, &reads, aggregation.settings.stacks)?;
            let how = (&constants, &reads);
            let loaded = aggregation.load(compiled::AGG_CALLS, &target, how, |loader| {
                loader.override_global("call_saved", &saved, true);
                pairing::size(loader);
                if has_texts {
                    loader.map_max_entries("open_texts", MOST_TEXTS);
                }
            });
            let object = loaded.map_err(|error| refused(aggregation.plan.name(), &error))?;
            let is_here = |both: &Both| {
                let is_it = |other: &Both| {
                    (&other.module, &other.function) == (&both.module, &both.function)
                };
                all.iter().any(is_it)
            };
            aggregation.groups.push(Group {
                object,
                walks: false,
                names: Vec::new(),
                attachments: Vec::new(),
                functions: functions.iter().map(|of| of.only(is_here)).collect(),
                pairing: None,
                events: Vec::new(),
            });
        }
        Ok(aggregation)
    }

    /// Loads the programs for a latency.
    pub(crate) fn of_latency(
        requested: Requested<Latency>,
        whom: &Whom<'_>,
        settings: &Settings,
    ) -> Result<Aggregation> {
        let mut aggregation = Aggregation::new(requested.plan, whom, settings);
        for (latency, reads) in requested.sources {
            let target = match latency.is_by_thread() {
                true => whom::filter_by_thread(whom)?,
                false => whom::filter(whom)?,
            };
            let settings = latency.settings(&reads.saved);
            let constants = constants(&aggregation.plan, &reads, aggregation.settings.stacks)?;
            let how = (&constants, &reads);
            let loaded = aggregation.load(compiled::AGG_LATENCY, &target, how, |loader| {
                loader.override_global("latency_settings", &settings, true);
                loader.map_max_entries("starts", MOST_BEGUN);
            });
            let object = loaded.map_err(|error| refused(aggregation.plan.name(), &error))?;
            let attachment = |(program, probe)| Attachment {
                program,
                probe,
                cookie: 0,
            };
            let starts = latency.starts.into_iter().map(|start| start.probe);
            // The end first: a latency that started before it is attached would never end.
            let all =
                std::iter::once(("latency_end", latency.end)).chain(STARTS.into_iter().zip(starts));
            aggregation.groups.push(Group {
                object,
                walks: false,
                names: Vec::new(),
                attachments: all.map(attachment).collect(),
                functions: Vec::new(),
                pairing: None,
                events: Vec::new(),
            });
        }
        Ok(aggregation)
    }

    fn new(plan: Plan, whom: &Whom<'_>, settings: &Settings) -> Aggregation {
        Aggregation {
            plan,
            groups: Vec::new(),
            intervals: Intervals::default(),
            cpus: whom.cpus.to_vec(),
            tids: whom::tids(whom),
            settings: settings.clone(),
            tables: Vec::new(),
        }
    }

    /// Loads an object with the constants of an aggregation; `configure` sets those of its kind.
    fn load<'a>(
        &self,
        bytes: &'static [u8],
        target: &Target,
        (constants, reads): (&'a AggSettings, &'a Reads),
        configure: impl FnOnce(&mut EbpfLoader<'a>),
    ) -> Result<Object, Error> {
        let plan = &self.plan;
        let cells = match constants.is_wide {
            0 => "narrow_cells",
            _ => "wide_cells",
        };
        let has_stacks = plan.keys.iter().any(|key| key.is_stack());
        let mut object = Object::load(bytes, target, |loader: &mut EbpfLoader<'a>| {
            loader.override_global("agg_settings", constants, true);
            loader.override_global("predicate", &reads.predicate, true);
            loader.map_max_entries(
                cells,
                most_cells(has_stacks, host::possible_cpus() as usize),
            );
            loader.map_max_entries("edges", plan.edges.len().max(1) as u32);
            if has_stacks {
                loader.map_max_entries("told_stacks", MOST_STACKS);
            }
            configure(loader);
        })?;
        for (place, edge) in plan.edges.iter().enumerate() {
            object.set("edges", place as u32, *edge)?;
        }
        Ok(object)
    }

    /// Whether its programs are to walk user stacks.
    fn walks(&self) -> bool {
        self.has_user_stacks() && self.settings.stacks.are_walked_by_programs()
    }

    /// Takes the tables of the programs.
    pub(super) fn take_walk_tables(&mut self) -> Vec<WalkTables> {
        std::mem::take(&mut self.tables)
    }

    /// Whether its keys include user stacks.
    pub(crate) fn has_user_stacks(&self) -> bool {
        self.plan.keys.contains(&Key::UserStack) && self.settings.stacks.has_user_side()
    }

    /// Attaches the programs.
    pub(crate) fn connect(
        &mut self,
        recording: &Recording,
        definitions: &mut Option<Definitions>,
    ) -> Result<()> {
        let name = self.plan.name();
        let reach = Reach {
            cpus: &self.cpus,
            tids: self.tids.as_deref(),
        };
        let (mut rejected, mut taken) = (Rejected::default(), 0);
        for group in &mut self.groups {
            send(&mut group.object, "stack_records", recording, OWN_RECORDS)?;
            if group.walks {
                let observed = group.object.observe_births();
                observed.map_err(|error| refused(name, &error))?;
            }
            if !group.functions.is_empty() {
                let object = &mut group.object;
                let pairing = Pairing::attach(object, &group.functions, reach, definitions)?;
                let functions = pairing.functions.iter();
                group.names = functions.map(|both| both.function.clone()).collect();
                group.pairing = Some(pairing);
            }
            for attachment in &group.attachments {
                let how = (reach, &self.settings);
                match attach(&mut group.object, attachment, how, name) {
                    Ok(events) => {
                        group.events.extend(events);
                        taken += 1;
                    }
                    Err(error) if attachment.probe.pattern.is_some() => {
                        rejected.add(&attachment.probe.name, error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        rejected.report(name, taken, NOT_RECORDED)
    }

    /// Returns the descriptors of tracepoints and, if `with_own`, of the recorder's probes.
    pub(crate) fn slow_to_close(&self, with_own: bool) -> impl Iterator<Item = RawFd> {
        let is_slow = move |attachment: &Attachment| match &attachment.probe.kind {
            Kind::Tracepoint(tracepoint) => with_own || !tracepoint.is_own,
            Kind::Sampled | Kind::Output { .. } => false,
        };
        let slow = self.groups.iter().filter(move |group| {
            let is_of_functions = group.pairing.is_some();
            (with_own || !is_of_functions) && group.attachments.iter().all(is_slow)
        });
        slow.flat_map(|group| {
            let links = group.object.links().map(|link| link.as_raw_fd());
            let paired = group.pairing.iter().flat_map(Pairing::descriptors);
            let events = group.events.iter().map(|event| event.as_raw_fd());
            links.chain(paired).chain(events)
        })
    }

    /// Enables or disables recording.
    pub(crate) fn set_on(&mut self, is_on: bool) -> Result<()> {
        for group in &mut self.groups {
            if let Some(pairing) = group.pairing.as_mut().filter(|_| is_on) {
                pairing.begin(&group.object);
            }
            if is_on {
                self.intervals.begin(clock::monotonic());
            }
            group
                .object
                .set_on(is_on)
                .map_err(|error| refused(self.plan.name(), &error))?;
            let mut probes = group.attachments.iter().map(|attachment| &attachment.probe);
            if probes.all(Probe::is_sampled) {
                for event in &group.events {
                    match is_on {
                        true => event.enable()?,
                        false => event.disable()?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Switches the programs to the next interval.
    pub(crate) fn begin_interval(&mut self) -> Result<(), Failure> {
        let next = self.intervals.next();
        for group in &mut self.groups {
            let begun = group.object.begin_interval(next);
            begun.map_err(|error| refused(self.plan.name(), &error))?;
        }
        Ok(())
    }

    /// Ends an interval that the programs have left, and adds its aggregates.
    pub(crate) fn end_interval(
        &mut self,
        records: &mut OwnRecords,
        printing: &mut Printing<'_>,
    ) -> Result<(), Failure> {
        let is_wide = words_of(&self.plan.keys) > NARROW_WORDS;
        let plan = &self.plan;
        let refused = |error| refused(plan.name(), &error);
        let mut entries = Vec::new();
        for group in &mut self.groups {
            let how = (is_wide, |number| self.intervals.is_over(number));
            let found = aggregate_rows::entries(&group.object, plan, &group.names, how);
            let (found, stale) = found.map_err(refused)?;
            aggregate_rows::remove(&mut group.object, &stale).map_err(refused)?;
            entries.extend(found);
        }
        let cells = self.intervals.end(entries);
        let how = (printing.has_intervals, printing.is_last);
        for printout in self.intervals.printouts(&cells, printing.now, how) {
            let rows = aggregate_rows::rows(plan, printout.cells);
            for (output, row) in &rows {
                records.aggregate(&output.name, output.action, row, printout.since);
            }
            if let (Some(live), Some(_)) = (&mut printing.live, printout.since) {
                live.show(plan, &rows, printout.cells);
            }
        }
        Ok(())
    }

    /// Adds the losses, and returns their number.
    pub(crate) fn put_losses(&mut self, records: &mut OwnRecords) -> Result<u64> {
        let name = self.plan.name();
        let mut lost = 0;
        for group in &self.groups {
            if let Some(pairing) = &group.pairing {
                lost += pairing.put_losses(&group.object, records)?;
            }
            lost += put_losses(&group.object, name, records, &pairing::reasons("", ""))?;
        }
        if self.intervals.given_up() > 0 {
            records.loss(
                self.intervals.given_up(),
                &format!("{name}: no room in the totals"),
            );
        }
        Ok(lost)
    }
}

/// Attaches a program to every location of its probe; returns the attachments.
fn attach(
    object: &mut Object,
    attachment: &Attachment,
    (reach, settings): (Reach<'_>, &Settings),
    name: &str,
) -> Result<Vec<Event>> {
    let probe = &attachment.probe;
    let (events, attached) = match &probe.kind {
        Kind::Sampled => {
            let events = recording::sampling(probe, reach.cpus, settings)?;
            let count = events.len();
            (events, count)
        }
        Kind::Tracepoint(_) => (recording::for_program(probe, reach)?, 1),
        Kind::Output { .. } => return Ok(Vec::new()),
    };
    for event in events.iter().take(attached) {
        let attached = object.attach(attachment.program, event.as_fd(), attachment.cookie);
        attached.map_err(|error| refused(name, &error))?;
    }
    Ok(events)
}

/// Groups sources by equal fetches.
fn together<P>(plan: &Plan, sources: Vec<(P, Reads)>) -> Vec<(Reads, Vec<P>)> {
    let is_alone = plan.keys.contains(&Key::Probe) && !has_cookies();
    let mut groups: Vec<(Reads, Vec<P>)> = Vec::new();
    for (source, reads) in sources {
        match groups
            .iter_mut()
            .find(|(other, _)| !is_alone && *other == reads)
        {
            Some((_, group)) => group.push(source),
            None => groups.push((reads, vec![source])),
        }
    }
    groups
}

/// Returns the number of words of a key: the bar and the parts.
fn words_of(keys: &[Key]) -> usize {
    1 + keys.iter().map(|key| key.words()).sum::<usize>()
}

/// Returns the constants of an object.
fn constants(plan: &Plan, reads: &Reads, stacks: Stacks) -> Result<AggSettings, Failure> {
    let words = words_of(&plan.keys);
    if plan.keys.len() > MOST_KEYS || words > WIDE_WORDS {
        return Err(misuse(format!(
            "{}: too many keys, expected at most {MOST_KEYS}, including two long strings",
            plan.name()
        )));
    }
    let (value_kind, value_place, value) = match reads.value {
        Located::Fetched(fetch) => (Value::Fetched, 0, fetch),
        Located::Saved(place) => (Value::Saved, place, Fetch::default()),
        Located::Measured(measured) => (measured, 0, Fetch::default()),
    };
    let mut settings = AggSettings {
        actions: plan.actions(false),
        self_actions: plan.actions(true),
        is_wide: (words > NARROW_WORDS).into(),
        value_kind: value_kind as u32,
        value_place,
        value,
        ..plan.settings
    };
    let part_of = |key: &Key| match key {
        Key::KernelStack if !stacks.has_kernel_side() => Part::Nothing,
        Key::UserStack if !stacks.has_user_side() => Part::Nothing,
        key => key.part(),
    };
    let mut word = 1;
    for ((part, key), at) in settings.keys.iter_mut().zip(&plan.keys).zip(&reads.keys) {
        let (kind, place, fetch) = match (*at, key) {
            (Located::Saved(place), Key::Number { .. }) => {
                (Part::SavedNumber, place, Fetch::default())
            }
            (Located::Saved(place), Key::Text { .. }) => (Part::SavedText, place, Fetch::default()),
            (Located::Fetched(fetch), _) => (part_of(key), 0, fetch),
            (Located::Saved(_) | Located::Measured(_), _) => (part_of(key), 0, Fetch::default()),
        };
        *part = KeyPart {
            part: kind as u32,
            word: word as u32,
            place,
            words: key.words() as u32,
            fetch,
        };
        word += key.words();
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_stacks_depend_on_the_number_of_cpus() {
        assert_eq!(most_cells(false, 2), MOST_CELLS);
        assert_eq!(most_cells(true, 2), MOST_STACKS);
        assert_eq!(most_cells(true, 16), 57_456);
        assert_eq!(most_cells(true, 64), 19_328);
        assert_eq!(most_cells(true, 1024), MOST_CELLS);
    }
}
