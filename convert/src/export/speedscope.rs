//! speedscope's own format: <https://www.speedscope.app>.
//!
//! ```text
//! {"profiles":[{"type":"sampled","name":"cycles: dd (220)","event":"cycles","comm":"dd","tid":220,"samples":[[0,1,2],…],"weights":[10101,…]},
//!              {"type":"evented","name":"calls: dd (220)","comm":"dd","tid":220,"events":[{"type":"O","frame":3,"at":1500},…]}],
//!  "shared":{"frames":[{"name":"main","file":"/usr/bin/dd"},…]}}
//! ```
//! One profile per event, thread and name of the thread, and one per thread with calls. The time axis of a sampled profile
//! is the sum of its weights. Times are exact nanoseconds after the first event.
//!
//! speedscope ignores members that it does not know. Ours are those that its names only show: `event`, `comm`, `pid`, `tid`,
//! `cpu` and `context` of a profile, `comm` of a call after its thread was renamed, `module` and `space` of a frame.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;

use super::aggregates;
use super::batch::{Head, Heads, column, i64_at, i64_column, text_at};
use super::calls::{OpenDepths, Owner, each_call};
use super::json::{Json, text};
use super::lanes::Lanes;
use super::losses::{each_loss, problems};
use super::source::Source;
use super::spool::{Spool, part};
use super::stacks::Stacks;
use super::threads::Threads;
use super::weights::Weights;
use super::{Exporter, Output, Tally};

/// `--to speedscope`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "speedscope",
    about: "profile of speedscope, for www.speedscope.app",
    output: Output::File {
        ending: ".speedscope.json",
        next: "open it in https://www.speedscope.app, or: speedscope FILE",
        write,
    },
};

/// Numbers of rows and bytes beyond which browsers become slow.
const MANY_ROWS: u64 = 2_000_000;
const MANY_BYTES: u64 = 400 << 20;
/// Number of the name of a thread without a name.
const NO_COMM: u32 = u32::MAX;
const NO_DEPTH: i32 = -1;

fn write(source: &Source<'_>, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let stacks = Stacks::read(source.trace)?;
    let mut export = Export {
        stacks: &stacks,
        first: source.first_time(),
        threads: Threads::read(source.trace)?,
        comms: Comms::default(),
        frames: Frames::default(),
        profiles: Vec::new(),
        sampled: HashMap::new(),
        weights: Weights::of(source, tally)?,
        evented: HashMap::new(),
        rows: Spool::new()?,
    };
    export.samples(source, tally)?;
    export.events(source, tally)?;
    export.calls(source, tally)?;
    export.aggregates(source, tally)?;
    each_loss(source, tally, |_| Ok(()))?;
    problems(source, tally)?;
    let mut json = Json::new(out);
    export.write(source, &mut json)?;
    json.flush()?;
    let rows: u64 = tally.written().iter().map(|(_, count)| count).sum();
    if rows > MANY_ROWS || json.size() > MANY_BYTES {
        tally.note("speedscope holds about 2,000,000 rows and 400 MiB: use --time".to_owned());
    }
    Ok(())
}

/// The distinct frames of all profiles.
#[derive(Default)]
struct Frames {
    /// Encoded as JSON.
    all: Vec<String>,
    numbers: HashMap<String, u32>,
}

/// A frame as speedscope has it. The format has no field for modules, so a module is the file if no source is known.
#[derive(Default)]
struct FrameNames<'a> {
    name: &'a str,
    module: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<i32>,
    is_kernel: bool,
}

impl Frames {
    fn number(&mut self, names: &FrameNames<'_>) -> u32 {
        let mut frame = format!("{{\"name\":{}", text(names.name));
        if let Some(file) = names.file.or(names.module) {
            frame += &format!(",\"file\":{}", text(file));
        }
        if let Some(line) = names.line {
            frame += &format!(",\"line\":{line}");
        }
        // A file with a module is a source even if its line is not known.
        if let Some(module) = names.module.filter(|_| names.file.is_some()) {
            frame += &format!(",\"module\":{}", text(module));
        }
        if names.is_kernel {
            frame += ",\"space\":\"kernel\"";
        }
        frame.push('}');
        let next = self.all.len() as u32;
        *self.numbers.entry(frame).or_insert_with_key(|frame| {
            self.all.push(frame.clone());
            next
        })
    }
}

/// A profile, whose rows are in the group with its number.
struct Profile {
    name: String,
    /// Members of ours, encoded as JSON, each followed by a comma.
    members: String,
    kind: Kind,
    /// Sum of the weights, or number of calls; profiles are sorted by it.
    weight: i64,
    start: i64,
    end: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Samples, whose weights have this unit.
    Samples(&'static str),
    Calls,
}

/// Lanes of a thread or CPU, and the profile of each.
type LaneProfiles = (Lanes, HashMap<usize, usize>);

/// The profiles of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ThreadKey {
    pid: Option<i32>,
    tid: Option<i32>,
    /// Index of the thread: a reused TID has several.
    thread: Option<usize>,
    /// Number of the name: a thread that runs another program has several.
    comm: Option<u32>,
}

/// Names of threads, by number.
#[derive(Default)]
struct Comms {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Comms {
    fn number(&mut self, comm: Option<&str>) -> Option<u32> {
        let comm = comm?;
        if let Some(number) = self.numbers.get(comm) {
            return Some(*number);
        }
        let number = self.all.len() as u32;
        self.all.push(comm.to_owned());
        self.numbers.insert(comm.to_owned(), number);
        Some(number)
    }

    fn name(&self, number: Option<u32>) -> Option<&str> {
        self.all.get(number? as usize).map(String::as_str)
    }
}

struct Export<'e> {
    stacks: &'e Stacks,
    first: i64,
    threads: Threads,
    comms: Comms,
    frames: Frames,
    profiles: Vec<Profile>,
    /// By event and thread.
    sampled: HashMap<String, HashMap<ThreadKey, usize>>,
    weights: Weights,
    /// By thread and lane.
    evented: HashMap<(Owner, Option<usize>), LaneProfiles>,
    rows: Spool,
}

impl Export<'_> {
    fn samples(&mut self, source: &Source<'_>, tally: &mut Tally) -> Result<()> {
        const WANTED: [&str; 8] = [
            "time",
            "pid",
            "tid",
            "comm",
            "kernel_stack",
            "user_stack",
            "event",
            "period",
        ];
        let mut written = 0;
        for table in source.samples() {
            for batch in source.rows(table, Some(&WANTED))? {
                let batch = batch?;
                let heads = Heads::of(&batch);
                let events = column(&batch, "event");
                let periods = i64_column(&batch, "period");
                for row in 0..batch.num_rows() {
                    let event = events.and_then(|events| text_at(events, row));
                    let weight = self.weights.of_sample(event, i64_at(periods, row));
                    let weight = weight.max(0);
                    self.sample(event.unwrap_or("samples"), &heads.row(row), weight)?;
                }
                written += batch.num_rows() as u64;
            }
        }
        tally.wrote("sample", written);
        Ok(())
    }

    /// Adds hits with stacks, each with a weight of 1.
    fn events(&mut self, source: &Source<'_>, tally: &mut Tally) -> Result<()> {
        const WANTED: [&str; 6] = ["time", "pid", "tid", "comm", "kernel_stack", "user_stack"];
        let (mut written, mut without_stack) = (0, 0);
        for table in source.events() {
            let name = source.event_name(table);
            for batch in source.rows(table, Some(&WANTED))? {
                let batch = batch?;
                let heads = Heads::of(&batch);
                for row in 0..batch.num_rows() {
                    let head = heads.row(row);
                    if head.kernel_stack.is_none() && head.user_stack.is_none() {
                        without_stack += 1;
                        continue;
                    }
                    written += 1;
                    self.sample(&name, &head, 1)?;
                }
            }
        }
        tally.wrote("event", written);
        tally.omit("event", "without a stack", without_stack);
        Ok(())
    }

    fn sample(&mut self, event: &str, head: &Head<'_>, weight: i64) -> Result<()> {
        // Looked up in two steps, because `entry` would allocate the name of every row.
        let thread = head.tid.and_then(|tid| self.threads.find(tid, head.time));
        let key = ThreadKey {
            pid: head.pid,
            tid: head.tid,
            thread,
            comm: self.comms.number(head.comm),
        };
        let known = self.sampled.get(event);
        let known = known.and_then(|threads| threads.get(&key).copied());
        let group = known.unwrap_or_else(|| {
            let group = self.profiles.len();
            let threads = self.sampled.entry(event.to_owned()).or_default();
            threads.insert(key, group);
            // Its other units have no name in the format.
            let units = [
                "nanoseconds",
                "microseconds",
                "milliseconds",
                "seconds",
                "bytes",
            ];
            let unit = Some(self.weights.unit(event)).filter(|unit| units.contains(unit));
            let kind = Kind::Samples(unit.unwrap_or("none"));
            self.profiles.push(Profile {
                name: format!(
                    "{event}: {}",
                    thread_name(&self.threads, head.comm, head.tid, thread)
                ),
                members: format!("\"event\":{},", text(event))
                    + &thread_members(head.comm, head.pid, head.tid),
                kind,
                weight: 0,
                start: 0,
                end: 0,
            });
            group
        });
        let profile = &mut self.profiles[group];
        profile.weight = profile.weight.saturating_add(weight);
        let mut record = [0; 16];
        record[..4].copy_from_slice(&head.user_stack.unwrap_or(0).to_le_bytes());
        record[4..8].copy_from_slice(&head.kernel_stack.unwrap_or(0).to_le_bytes());
        record[8..].copy_from_slice(&weight.to_le_bytes());
        self.rows.push(group, &record)
    }

    fn calls(&mut self, source: &Source<'_>, tally: &mut Tally) -> Result<()> {
        let mut overlapping = 0;
        let first = self.first;
        let mut depths = OpenDepths::default();
        let counts = each_call(source, |call| {
            let owner = call.owner();
            let thread = match owner {
                Owner::Thread { tid, .. } => self.threads.find(tid, Some(call.time)),
                Owner::Cpu { .. } | Owner::Unknown => None,
            };
            let (lanes, groups) = self.evented.entry((owner, thread)).or_default();
            let end = call.end().unwrap_or(call.time);
            let Some(place) = lanes.place(call.time, end, usize::MAX) else {
                overlapping += 1;
                return Ok(());
            };
            let next = self.profiles.len();
            let group = *groups.entry(place.lane).or_insert(next);
            if group == next {
                let overlapping = if place.lane > 0 { ", overlapping" } else { "" };
                let comm = call.head.comm;
                let (owner, members) = match owner {
                    Owner::Thread { tid, pid } => (
                        thread_name(&self.threads, comm, Some(tid), thread),
                        thread_members(comm, pid, Some(tid)),
                    ),
                    Owner::Cpu { cpu, what } => {
                        let context = match what {
                            "calls" => String::new(),
                            context => format!(",\"context\":\"{context}\""),
                        };
                        let members = format!("\"cpu\":{cpu}{context},");
                        (format!("CPU {cpu} {what}"), members)
                    }
                    Owner::Unknown => ("unknown thread".to_owned(), String::new()),
                };
                self.profiles.push(Profile {
                    name: format!("calls: {owner}{overlapping}"),
                    members,
                    kind: Kind::Calls,
                    weight: 0,
                    start: call.time.saturating_sub(first),
                    end: 0,
                });
            }
            let name = match (call.entry_seen, call.exit_seen, call.duration) {
                (_, _, Some(_)) => call.name().to_owned(),
                (false, _, None) => format!("{} (entry not seen)", call.name()),
                (true, _, None) => format!("{} (exit not seen)", call.name()),
            };
            let frame = self.frames.number(&FrameNames {
                name: &name,
                module: call.module,
                ..FrameNames::default()
            });
            let comm = self.comms.number(call.head.comm);
            let profile = &mut self.profiles[group];
            profile.weight += 1;
            profile.end = profile.end.max(end.saturating_sub(first));
            let mut record = [0; 28];
            record[..8].copy_from_slice(&call.time.saturating_sub(first).to_le_bytes());
            record[8..16].copy_from_slice(&end.saturating_sub(first).to_le_bytes());
            record[16..20].copy_from_slice(&frame.to_le_bytes());
            record[20..24].copy_from_slice(&comm.unwrap_or(NO_COMM).to_le_bytes());
            let depth = depths.of(call).unwrap_or(NO_DEPTH);
            record[24..].copy_from_slice(&depth.to_le_bytes());
            self.rows.push(group, &record)
        })?;
        tally.wrote("call", counts.calls - overlapping);
        counts.omissions(tally);
        tally.omit("call", "more than 256 overlapping", overlapping);
        Ok(())
    }

    /// Adds a profile for each aggregation with stacks.
    fn aggregates(&mut self, source: &Source<'_>, tally: &mut Tally) -> Result<()> {
        let sums = aggregates::read(source.trace)?;
        let mut keys: Vec<&aggregates::Key> = sums.keys().collect();
        keys.sort();
        for key in &keys {
            let name = key.0.as_deref().unwrap_or("aggregate");
            let head = Head {
                user_stack: key.2,
                kernel_stack: key.3,
                ..Head::default()
            };
            let value = sums.get(*key).map_or(0, |(_, sum)| sum.rounded());
            self.sample(name, &head, value.max(0))?;
        }
        tally.wrote("aggregate", keys.len() as u64);
        let others = source.aggregate_rows().saturating_sub(keys.len() as u64);
        tally.omit("aggregate", aggregates::OMITTED, others);
        Ok(())
    }

    fn write(&mut self, source: &Source<'_>, json: &mut Json<'_>) -> Result<()> {
        json.raw(format!(
            "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":{},\"name\":{},\"activeProfileIndex\":0,\"profiles\":[",
            text(concat!("perfquet@", env!("CARGO_PKG_VERSION"))),
            text(&source.name),
        ))?;
        if self.profiles.is_empty() {
            // Without a profile, the page shows its loading screen forever.
            json.raw("{\"type\":\"sampled\",\"name\":\"nothing recorded\",\"unit\":\"none\",\"startValue\":0,\"endValue\":0,\"samples\":[],\"weights\":[]}")?;
        }
        let mut order: Vec<usize> = (0..self.profiles.len()).collect();
        order.sort_by_key(|group| {
            let profile = &self.profiles[*group];
            (profile.kind, std::cmp::Reverse(profile.weight), *group)
        });
        for (index, group) in order.into_iter().enumerate() {
            json.raw(if index > 0 { ",\n" } else { "\n" })?;
            match self.profiles[group].kind {
                Kind::Calls => self.write_calls(json, group)?,
                Kind::Samples(unit) => self.write_samples(json, group, unit)?,
            }
        }
        json.raw("],\"shared\":{\"frames\":[")?;
        json.list(&self.frames.all, |json, frame| json.raw(frame))?;
        json.raw("]}}\n")
    }

    fn write_samples(&mut self, json: &mut Json<'_>, group: usize, unit: &str) -> Result<()> {
        let profile = &self.profiles[group];
        json.raw(format!(
            "{{\"type\":\"sampled\",\"name\":{},{}\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{},\"samples\":[",
            text(&profile.name),
            profile.members,
            profile.weight,
        ))?;
        let (stacks, frames) = (self.stacks, &mut self.frames);
        let mut is_first = true;
        let mut known: HashMap<[u8; 8], String> = HashMap::new();
        self.rows.each(group, |record| {
            if !std::mem::take(&mut is_first) {
                json.raw(",")?;
            }
            let stack: [u8; 8] = part(record, 0);
            let line = known.entry(stack).or_insert_with(|| {
                let user = i32::from_le_bytes(part(record, 0));
                let kernel = i32::from_le_bytes(part(record, 4));
                stack_of(stacks, frames, user, kernel)
            });
            json.raw(line)
        })?;
        json.raw("],\"weights\":[")?;
        let mut is_first = true;
        self.rows.each(group, |record| {
            if !std::mem::take(&mut is_first) {
                json.raw(",")?;
            }
            json.raw(i64::from_le_bytes(part(record, 8)).to_string())
        })?;
        json.raw("]}")
    }

    fn write_calls(&self, json: &mut Json<'_>, group: usize) -> Result<()> {
        let profile = &self.profiles[group];
        json.raw(format!(
            "{{\"type\":\"evented\",\"name\":{},{}\"unit\":\"nanoseconds\",\"startValue\":{},\"endValue\":{},\"events\":[",
            text(&profile.name),
            profile.members,
            profile.start,
            profile.end,
        ))?;
        // Frame and end of the open calls.
        let mut open: Vec<(u32, i64)> = Vec::new();
        let mut is_first = true;
        let mut event = |json: &mut Json<'_>, kind: &str, (frame, at): (u32, i64), more: &str| {
            if !std::mem::take(&mut is_first) {
                json.raw(",")?;
            }
            json.raw(format!(
                "{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at}{more}}}"
            ))
        };
        // The name of the profile is that of the first call.
        let mut last = None;
        self.rows.each(group, |record| {
            let start = i64::from_le_bytes(part(record, 0));
            let end = i64::from_le_bytes(part(record, 8));
            let frame = u32::from_le_bytes(part(record, 16));
            while let Some(inner) = open.pop_if(|(_, over)| *over <= start) {
                event(json, "C", inner, "")?;
            }
            open.push((frame, end));
            let comm = u32::from_le_bytes(part(record, 20));
            let is_renamed = last.replace(comm).is_some_and(|last| last != comm);
            let comm = match self.comms.name(Some(comm)).filter(|_| is_renamed) {
                Some(comm) => format!(",\"comm\":{}", text(comm)),
                None => String::new(),
            };
            let depth = match i32::from_le_bytes(part(record, 24)) {
                NO_DEPTH => String::new(),
                // Where times do not tell it.
                depth => format!(",\"call_depth\":{depth}"),
            };
            event(json, "O", (frame, start), &(comm + &depth))
        })?;
        while let Some(inner) = open.pop() {
            event(json, "C", inner, "")?;
        }
        json.raw("]}")
    }
}

/// Returns a stack as a list of frames, root first.
fn stack_of(stacks: &Stacks, frames: &mut Frames, user: i32, kernel: i32) -> String {
    let mut ids = Vec::new();
    stacks.frames_of(Some(kernel), &mut ids);
    stacks.frames_of(Some(user), &mut ids);
    let found = ids.iter().rev().filter_map(|id| stacks.frame(*id));
    let numbers: Vec<String> = found
        .map(|frame| {
            let names = FrameNames {
                name: &stacks.label(frame),
                module: stacks.text(frame.module),
                file: stacks.text(frame.file),
                line: frame.line,
                is_kernel: frame.is_kernel,
            };
            frames.number(&names).to_string()
        })
        .collect();
    format!("[{}]", numbers.join(","))
}

/// Formats the members that identify a thread, for `perfquet-convert`: the name of a profile is for people.
fn thread_members(comm: Option<&str>, pid: Option<i32>, tid: Option<i32>) -> String {
    let mut members = String::new();
    if let Some(comm) = comm {
        members += &format!("\"comm\":{},", text(comm));
    }
    for (name, id) in [("pid", pid), ("tid", tid)] {
        if let Some(id) = id {
            members += &format!("\"{name}\":{id},");
        }
    }
    members
}

/// Formats name and TID; `#2` after it means the second thread with this TID.
fn thread_name(
    threads: &Threads,
    comm: Option<&str>,
    tid: Option<i32>,
    thread: Option<usize>,
) -> String {
    let tid = tid.map(
        |tid| match thread.map_or(0, |index| threads.earlier(index)) {
            0 => tid.to_string(),
            earlier => format!("{tid} #{}", earlier + 1),
        },
    );
    match (comm, tid) {
        (Some(comm), Some(tid)) => format!("{comm} ({tid})"),
        (None, Some(tid)) => format!("({tid})"),
        (Some(comm), None) => comm.to_owned(),
        (None, None) => "all".to_owned(),
    }
}
