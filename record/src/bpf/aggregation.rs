//! One aggregation: its programs, and what they have summed up.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use anyhow::Result;
use perfquet_ebpf::layout::{AggSettings, Fetch, KeyPart, MOST_KEYS, NARROW_WORDS, WIDE_WORDS};
use perfquet_ebpf::{EbpfLoader, Object};

use super::plan::{Key, Plan, Source, are_numbers_told};
use super::{TOLD, Whom, aggregate_rows, refused, send, tell_losses, whom};
use crate::failure::{Failure, misuse};
use crate::journal::told::Told;
use crate::probe::rejected::Rejected;
use crate::probe::{Kind, Probe};
use crate::recording::{self, NOT_RECORDED, Recording, Settings};
use crate::sys::limits::{self, Resource};
use crate::sys::perf_event::Event;
use crate::sys::privileges;

const OBJECT: &[u8] = perfquet_ebpf::compiled::AGG;
/// Keys of one aggregation, the bars of distributions counted one by one.
const MOST_CELLS: u32 = 16_384;
/// Different stacks in the keys of one aggregation.
const MOST_STACKS: u32 = 65_536;

/// Rings, maps, the journal.
const OTHER_FILES: u64 = 100;

/// One that is loaded.
pub(crate) struct Aggregation {
    plan: Plan,
    loaded: Vec<Loaded>,
    cpus: Vec<u32>,
    settings: Settings,
}

/// The programs for probes at which the same is fetched.
struct Loaded {
    object: Object,
    probes: Vec<Probe>,
    /// What they are attached to.
    events: Vec<Event>,
}

impl Aggregation {
    /// Loads the programs.
    pub(crate) fn load(plan: Plan, whom: &Whom<'_>, settings: &Settings) -> Result<Aggregation> {
        let target = whom::filter(whom)?;
        let (keys, is_wide) = layout(&plan)?;
        // An event and a link for each, beside those that are there.
        let count = plan.sources.len();
        let needed = 2 * count as u64 + OTHER_FILES;
        let limit = limits::raise_by(Resource::OpenFiles, 2 * count as u64);
        if limit < needed {
            return Err(privileges::too_many_files(count, needed, limit).into());
        }
        let mut loaded = Vec::new();
        for sources in together(&plan) {
            let [source, ..] = sources[..] else { continue };
            let mut constants = AggSettings {
                action: plan.action.number(),
                is_wide: is_wide.into(),
                value: source.value,
                ..plan.settings
            };
            for ((place, key), fetch) in constants.keys.iter_mut().zip(&keys).zip(
                source
                    .keys
                    .iter()
                    .copied()
                    .chain(std::iter::repeat(Fetch::default())),
            ) {
                *place = KeyPart { fetch, ..*key };
            }
            let cells = if is_wide {
                "wide_cells"
            } else {
                "narrow_cells"
            };
            let has_stacks = plan
                .keys
                .iter()
                .any(|key| matches!(key, Key::KernelStack | Key::UserStack));
            let object = Object::load(OBJECT, &target, |loader: &mut EbpfLoader<'_>| {
                loader.override_global("agg_settings", &constants, true);
                loader.override_global("predicate", &source.predicate, true);
                loader.map_max_entries(cells, MOST_CELLS);
                loader.map_max_entries("edges", plan.edges.len().max(1) as u32);
                if has_stacks {
                    loader.map_max_entries("told_stacks", MOST_STACKS);
                }
            });
            loaded.push(Loaded {
                object: object.map_err(|error| refused(&plan.name, &error))?,
                probes: sources.iter().map(|source| source.probe.clone()).collect(),
                events: Vec::new(),
            });
        }
        Ok(Aggregation {
            plan,
            loaded,
            cpus: whom.cpus.to_vec(),
            settings: settings.clone(),
        })
    }

    /// Attaches the programs.
    pub(crate) fn connect(&mut self, recording: &Recording) -> Result<()> {
        let name = &self.plan.name;
        let refused = |error| refused(name, &error);
        let (mut rejected, mut taken) = (Rejected::default(), 0);
        for loaded in &mut self.loaded {
            send(&mut loaded.object, "stack_records", recording, TOLD)?;
            for (place, edge) in self.plan.edges.iter().enumerate() {
                loaded
                    .object
                    .set("edges", place as u32, *edge)
                    .map_err(refused)?;
            }
            let has_number = self.plan.keys.contains(&Key::Probe);
            for (number, probe) in (0..).zip(&loaded.probes) {
                let cookie = if has_number { number } else { 0 };
                let how = (&self.cpus[..], &self.settings);
                match attach(&mut loaded.object, probe, cookie, how, name) {
                    Ok(events) => {
                        loaded.events.extend(events);
                        taken += 1;
                    }
                    Err(error) if probe.pattern.is_some() => rejected.add(&probe.name, error),
                    Err(error) => return Err(error),
                }
            }
        }
        rejected.report(name, taken, NOT_RECORDED)
    }

    /// What holds the tracepoints, and the recorder's own probes only `with_own`.
    pub(crate) fn slow_to_close(&self, with_own: bool) -> impl Iterator<Item = RawFd> {
        let is_slow = move |probe: &Probe| match &probe.kind {
            Kind::Tracepoint(tracepoint) => with_own || !tracepoint.is_own,
            Kind::Sampled | Kind::Output { .. } => false,
        };
        let slow = self.loaded.iter();
        let slow = slow.filter(move |loaded| loaded.probes.iter().all(is_slow));
        slow.flat_map(|loaded| {
            let links = loaded.object.links().map(|link| link.as_raw_fd());
            links.chain(loaded.events.iter().map(|event| event.as_raw_fd()))
        })
    }

    /// Lets them record, or stops them.
    pub(crate) fn set_on(&mut self, is_on: bool) -> Result<()> {
        for loaded in &mut self.loaded {
            loaded
                .object
                .set_on(is_on)
                .map_err(|error| refused(&self.plan.name, &error))?;
            if loaded.probes.iter().all(Probe::is_sampled) {
                for event in &loaded.events {
                    match is_on {
                        true => event.enable()?,
                        false => event.disable()?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds all that was summed up and lost, and says how many were lost.
    pub(crate) fn tell(&mut self, told: &mut Told) -> Result<u64> {
        let mut lost = 0;
        let mut rows = aggregate_rows::AggregateRows::new(&self.plan);
        for loaded in &self.loaded {
            let is_wide = words_of(&self.plan.keys) > NARROW_WORDS;
            rows.add(&loaded.object, &loaded.probes, is_wide)
                .map_err(|error| refused(&self.plan.name, &error))?;
            lost += tell_losses(&loaded.object, &self.plan.name, told, &[])?;
        }
        for row in rows.finish() {
            told.aggregate(&self.plan.name, self.plan.action, &row);
        }
        Ok(lost)
    }
}

/// Attaches the program for a probe to it, wherever it is hit; gives what it is attached to.
fn attach(
    object: &mut Object,
    probe: &Probe,
    cookie: u64,
    (cpus, settings): (&[u32], &Settings),
    name: &str,
) -> Result<Vec<Event>> {
    let (program, events) = match &probe.kind {
        Kind::Sampled => (
            "aggregate_sample",
            recording::sampling(probe, cpus, settings)?,
        ),
        // One, anywhere: the program runs at every hit of the machine.
        Kind::Tracepoint(tracepoint) => (
            match tracepoint.is_own {
                true => "aggregate_probe",
                false => "aggregate_tracepoint",
            },
            vec![recording::everywhere(probe, cpus)?],
        ),
        Kind::Output { .. } => return Ok(Vec::new()),
    };
    for event in &events {
        let attached = object.attach(program, event.as_fd(), cookie);
        attached.map_err(|error| refused(name, &error))?;
    }
    Ok(events)
}

/// Sources at which the same is fetched share their programs and maps.
fn together(plan: &Plan) -> Vec<Vec<&Source>> {
    let is_alone = plan.keys.contains(&Key::Probe) && !are_numbers_told();
    let mut groups: Vec<Vec<&Source>> = Vec::new();
    for source in &plan.sources {
        let group = groups.iter_mut().find(|group| {
            let is_same = |other: &&Source| other.fetches_as(source);
            !is_alone && group.first().is_some_and(is_same)
        });
        match group {
            Some(group) => group.push(source),
            None => groups.push(vec![source]),
        }
    }
    groups
}

/// The bar and the parts.
fn words_of(keys: &[Key]) -> usize {
    1 + keys.iter().map(Key::words).sum::<usize>()
}

/// The slot of each key part, and whether it uses the wide one.
fn layout(plan: &Plan) -> Result<(Vec<KeyPart>, bool), Failure> {
    let words = words_of(&plan.keys);
    if plan.keys.len() > MOST_KEYS || words > WIDE_WORDS {
        return Err(misuse(format!(
            "{}: too many parts in the key, expected at most {MOST_KEYS}, two of them strings",
            plan.name
        )));
    }
    let mut word = 1;
    let parts = plan.keys.iter().map(|key| {
        let part = KeyPart {
            part: key.part() as u32,
            word: word as u32,
            fetch: Fetch::default(),
        };
        word += key.words();
        part
    });
    Ok((parts.collect(), words > NARROW_WORDS))
}
