//! The Firefox Profiler's processed profiles, version 60: <https://profiler.firefox.com>.
//!
//! ```text
//! { "meta": {…}, "threads": [ { "name": "dd", "samples": { "stack": […], "time": […], "weight": […] }, "markers": {…} } ],
//!   "counters": […], "libs": […], "shared": { "stackTable": {…}, "frameTable": {…}, "funcTable": {…}, "stringArray": […] } }
//! ```
//! The profiler upgrades older versions and rejects newer ones, so an old version is written. Its lists are columns per
//! thread, so rows are first grouped in a temporary file. Times are milliseconds after the first event, with all
//! nanoseconds.

mod markers;
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use anyhow::Result;

use super::batch::{Head, Heads, column, i64_at, i64_column, text_at};
use super::calls::{OpenDepths, call_of};
use super::json::{Json, decimal, text, write_text};
use super::losses::{each_loss, problems};
use super::merged::MergedRows;
use super::source::{RowTable, Source};
use super::spool::{Spool, part};
use super::stacks::Stacks;
use super::threads::{Thread, Threads};
use super::values::{counter_of, is_marker};
use super::weights::Weights;
use super::{Exporter, Output, Tally};
use markers::{CALL, LOSS, event_data, schemas};
use tables::Tables;

/// `--to firefox`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "firefox",
    about: "profile of the Firefox Profiler, for profiler.firefox.com",
    output: Output::File {
        ending: ".firefox.json.gz",
        next: "open it in https://profiler.firefox.com",
        write,
    },
};

/// Indices of [`CATEGORIES`].
const USER: usize = 1;
const KERNEL: usize = 2;
const CALLS: u8 = 3;
const EVENTS: u8 = 4;
const LOSSES: u8 = 5;
const CATEGORIES: &str = r#"[{"name":"Other","color":"grey","subcategories":["Other"]},{"name":"User","color":"yellow","subcategories":["Other"]},{"name":"Kernel","color":"orange","subcategories":["Other"]},{"name":"Calls","color":"blue","subcategories":["Other"]},{"name":"Events","color":"green","subcategories":["Other"]},{"name":"Lost events","color":"red","subcategories":["Other"]}]"#;

/// Number of rows beyond which the profiler becomes slow.
const MANY_ROWS: u64 = 8_000_000;
/// Strings in the browser's JavaScript are limited to 512 MiB.
const MANY_BYTES: u64 = 400 << 20;

/// Phases of markers.
const INSTANT: u8 = 0;
const INTERVAL: u8 = 1;

fn write(source: &Source<'_>, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let stacks = Stacks::read(source.trace)?;
    let mut profile = Profile {
        source,
        first: source.first_time(),
        threads: Threads::read(source.trace)?,
        tables: Tables::new(&stacks),
        tracks: Vec::new(),
        by_thread: HashMap::new(),
        rows: Spool::new()?,
        counters: BTreeMap::new(),
        counts: Spool::new()?,
        weights: Weights::of(source, tally)?,
        depths: OpenDepths::default(),
    };
    let mut sampled = source.event_types().filter(|event| event.is_sampled());
    let event = sampled
        .find(|event| event.rows > 0)
        .map(|event| event.name.clone());
    let event = event.as_ref();
    profile.samples(event, tally)?;
    profile.markers(tally)?;
    let lost = profile.losses(tally)?;
    let problems = problems(source, tally)?;
    tally.omit(
        "aggregate",
        "the Firefox Profiler has no aggregates",
        source.aggregate_rows(),
    );
    if profile.tracks.is_empty() {
        // The profiler rejects a profile without threads.
        profile.track(&Head::default());
    }
    let mut json = Json::new(out);
    let is_clock = event.is_some_and(|event| profile.weights.are_time(event));
    profile.meta(&mut json, event.map(String::as_str), lost, problems)?;
    profile.write_threads(&mut json, is_clock)?;
    profile.write_counters(&mut json)?;
    let facts = &source.trace.manifest().facts;
    let architecture = facts.architecture.as_deref().unwrap_or_default();
    profile.tables.write(&mut json, architecture)?;
    json.raw("}")?;
    json.flush()?;
    let rows: u64 = tally.written().iter().map(|(_, count)| count).sum();
    if rows > MANY_ROWS || json.size() > MANY_BYTES {
        tally.note(
            "the profiler holds about 8,000,000 rows and 400 MiB of JSON: use --time".to_owned(),
        );
    }
    Ok(())
}

/// PID, TID, and thread: a reused PID has several processes.
type ThreadKey = (Option<i32>, Option<i32>, Option<usize>);

struct Profile<'e> {
    source: &'e Source<'e>,
    first: i64,
    threads: Threads,
    tables: Tables<'e>,
    tracks: Vec<TrackOfThread>,
    by_thread: HashMap<ThreadKey, usize>,
    /// Samples of track N are in group 2 N, markers in group 2 N + 1.
    rows: Spool,
    /// Group in `counts` by PID and name.
    counters: BTreeMap<(i32, String), usize>,
    counts: Spool,
    weights: Weights,
    depths: OpenDepths,
}

/// A thread of the profile.
struct TrackOfThread {
    pid: Option<i32>,
    tid: Option<i32>,
    /// Index of the thread, if it is known.
    thread: Option<usize>,
    comm: String,
    last_time: i64,
    /// Whether samples must be sorted.
    is_unsorted: bool,
}

/// The process of a track.
struct Identity<'t> {
    /// Its main thread.
    process: Option<&'t Thread>,
    /// Processes that had the PID before.
    earlier_processes: usize,
    /// Threads that had the TID before.
    earlier_threads: usize,
}

impl Profile<'_> {
    /// Returns the index of the track of a row's thread.
    fn track(&mut self, head: &Head<'_>) -> usize {
        let next = self.tracks.len();
        let thread = head.tid.and_then(|tid| self.threads.find(tid, head.time));
        let key = (head.pid, head.tid, thread);
        let index = *self.by_thread.entry(key).or_insert(next);
        if index == next {
            let known = thread.and_then(|index| self.threads.all()[index].comm.as_deref());
            self.tracks.push(TrackOfThread {
                pid: head.pid,
                tid: head.tid,
                thread,
                comm: known.or(head.comm).unwrap_or("[unknown]").to_owned(),
                last_time: i64::MIN,
                is_unsorted: false,
            });
        }
        index
    }

    fn samples(&mut self, event: Option<&String>, tally: &mut Tally) -> Result<()> {
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
        let (mut written, mut others, mut idle, mut without_time) = (0, 0, 0, 0);
        let source = self.source;
        for table in source.samples() {
            for batch in source.rows(table, Some(&WANTED))? {
                let batch = batch?;
                let heads = Heads::of(&batch);
                let events = column(&batch, "event");
                let periods = i64_column(&batch, "period");
                for row in 0..batch.num_rows() {
                    let head = heads.row(row);
                    if events.and_then(|events| text_at(events, row)) != event.map(String::as_str) {
                        others += 1;
                        continue;
                    }
                    if head.tid == Some(0) {
                        idle += 1;
                        continue;
                    }
                    let Some(time) = head.time else {
                        without_time += 1;
                        continue;
                    };
                    let index = self.track(&head);
                    let track = &mut self.tracks[index];
                    track.is_unsorted |= time < track.last_time;
                    track.last_time = time;
                    let stack = self.tables.stack(head.user_stack, head.kernel_stack);
                    let mut record = [0; 20];
                    record[..8].copy_from_slice(&time.to_le_bytes());
                    let event = event.map(String::as_str);
                    let period = self.weights.of_sample(event, i64_at(periods, row));
                    record[8..16].copy_from_slice(&period.to_le_bytes());
                    record[16..].copy_from_slice(&stack.unwrap_or(u32::MAX).to_le_bytes());
                    self.rows.push(2 * index, &record)?;
                    written += 1;
                }
            }
        }
        tally.wrote("sample", written);
        tally.omit("sample", "of other events: choose with --event", others);
        tally.omit("sample", "of idle CPUs (TID 0)", idle);
        tally.omit("sample", "without a timestamp", without_time);
        Ok(())
    }

    /// Writes events and calls in time order.
    fn markers(&mut self, tally: &mut Tally) -> Result<()> {
        let source = self.source;
        let tables: Vec<&RowTable<'_>> = source.events().chain(source.calls()).collect();
        let names: Vec<String> = tables
            .iter()
            .map(|table| source.event_name(table))
            .collect();
        let (mut events, mut calls, mut without_time) = (0, 0, 0);
        let mut rows = MergedRows::open(source, &tables)?;
        while let Some(row) = rows.next()? {
            let table = tables[row.table];
            let head = row.columns.head();
            let Some(time) = head.time else {
                without_time += 1;
                continue;
            };
            let index = self.track(&head);
            if table.is_calls() {
                calls += 1;
                self.call(index, &row.columns)?;
                continue;
            }
            events += 1;
            let name = &names[row.table];
            if is_marker(name)
                && let Some((pid, counter, value)) = row.columns.text("buf").and_then(counter_of)
            {
                self.count(pid, counter, time, value.parse().unwrap_or(0.0))?;
            }
            let mut data = event_data(name, table, &row.columns);
            data.extend_from_slice(self.cause(time, &head).as_bytes());
            let marker = Marker {
                name: self.tables.string(name),
                start: time,
                end: None,
                phase: INSTANT,
                category: EVENTS,
            };
            self.rows.push(2 * index + 1, &marker.record(&data))?;
        }
        tally.wrote("event", events);
        tally.wrote("call", calls);
        tally.omit("row", "without a timestamp", without_time);
        Ok(())
    }

    /// Returns the stack of a row as a member of its marker.
    fn cause(&mut self, time: i64, head: &Head<'_>) -> String {
        let stack = self.tables.stack(head.user_stack, head.kernel_stack);
        let Some(stack) = stack else {
            return String::new();
        };
        let time = decimal(time.saturating_sub(self.first), 6);
        format!(",\"cause\":{{\"time\":{time},\"stack\":{stack}}}")
    }

    fn call(&mut self, track: usize, row: &super::batch::BatchRow<'_>) -> Result<()> {
        let Some(call) = call_of(row) else {
            return Ok(());
        };
        let mut data = format!("{{\"type\":\"{CALL}\"").into_bytes();
        let mut field = |name: &str, value: &str| {
            data.extend_from_slice(format!(",\"{name}\":").as_bytes());
            write_text(&mut data, value);
        };
        if !call.args.is_empty() {
            field("args", &call.args.join(", "));
        }
        if let Some(module) = call.module {
            field("module", module);
        }
        if let Some(retval) = call.retval {
            field("retval", &retval.to_string());
        }
        match (call.entry_seen, call.exit_seen) {
            (true, true) => {}
            (false, _) => field("note", "entry not seen"),
            (true, false) => field("note", "exit not seen"),
        }
        if let Some(self_time) = call.self_time {
            data.extend_from_slice(format!(",\"self_time\":{self_time}").as_bytes());
        }
        // Where times do not tell it.
        if let Some(depth) = self.depths.of(&call) {
            data.extend_from_slice(format!(",\"call_depth\":{depth}").as_bytes());
        }
        data.extend_from_slice(self.cause(call.time, &call.head).as_bytes());
        let end = call.end();
        let marker = Marker {
            name: self.tables.string(call.name()),
            start: call.time,
            end,
            phase: if end.is_some() { INTERVAL } else { INSTANT },
            category: CALLS,
        };
        self.rows.push(2 * track + 1, &marker.record(&data))
    }

    fn count(&mut self, pid: i32, name: &str, time: i64, value: f64) -> Result<()> {
        let next = self.counters.len();
        let group = *self.counters.entry((pid, name.to_owned())).or_insert(next);
        let mut record = [0; 16];
        record[..8].copy_from_slice(&time.to_le_bytes());
        record[8..].copy_from_slice(&value.to_le_bytes());
        self.counts.push(group, &record)
    }

    /// Writes losses as markers of a separate thread.
    fn losses(&mut self, tally: &mut Tally) -> Result<u64> {
        let (mut written, mut without_time) = (0, 0);
        let head = Head {
            comm: Some("losses"),
            ..Head::default()
        };
        let source = self.source;
        let counts = each_loss(source, tally, |loss| {
            let Some(time) = loss.time else {
                without_time += 1;
                return Ok(());
            };
            written += 1;
            let index = self.track(&head);
            let mut data = format!("{{\"type\":\"{LOSS}\",\"reason\":{}", text(&loss.reason));
            if let Some(count) = loss.count {
                data += &format!(",\"count\":{count}");
            }
            if let Some(cpu) = loss.cpu {
                data += &format!(",\"cpu\":{cpu}");
            }
            if let Some(event) = &loss.event {
                data += &format!(",\"event\":{}", text(event));
            }
            let marker = Marker {
                name: self.tables.string(&loss.sentence()),
                start: time,
                end: None,
                phase: INSTANT,
                category: LOSSES,
            };
            self.rows
                .push(2 * index + 1, &marker.record(data.as_bytes()))
        })?;
        tally.wrote("loss record", written);
        tally.omit("loss record", "without a timestamp", without_time);
        Ok(counts.events)
    }

    fn meta(
        &self,
        json: &mut Json<'_>,
        event: Option<&str>,
        lost: u64,
        problems: u64,
    ) -> Result<()> {
        let facts = &self.source.trace.manifest().facts;
        let start = facts
            .wall_offset
            .map_or(0, |offset| offset.saturating_add(self.first));
        let types = self.source.event_types();
        let sampled = types
            .filter(|known| Some(known.name.as_str()) == event)
            .last();
        let interval = match sampled.map(|event| (event.is_clock(), event.period, event.frequency))
        {
            Some((true, Some(period), _)) => decimal(period, 6),
            Some((_, _, Some(frequency))) if frequency > 0 => decimal(1_000_000_000 / frequency, 6),
            _ => "1".to_owned(),
        };
        json.raw(format!(
            "{{\"meta\":{{\"interval\":{interval},\"startTime\":{},\"processType\":0,\"product\":{},\"stackwalk\":1,\"debug\":false,\
             \"version\":24,\"preprocessedProfileVersion\":60,\"categories\":{CATEGORIES},\"markerSchema\":{},\
             \"symbolicated\":true,\"symbolicationNotSupported\":true,\"usesOnlyOneStackType\":true,\
             \"sourceCodeIsNotOnSearchfox\":true,\"keepProfileThreadOrder\":true,\"importedFrom\":{},\
             \"sampleUnits\":{{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"}}",
            decimal(start, 6),
            text(event.map_or("perfquet", |event| event)),
            schemas(self.source),
            text(concat!("perfquet ", env!("CARGO_PKG_VERSION"))),
        ))?;
        let known = [
            ("platform", facts.host.as_deref()),
            ("oscpu", facts.os_release.as_deref()),
            ("CPUName", facts.cpu_model.as_deref()),
            ("arguments", facts.command_line.as_deref()),
        ];
        for (name, value) in known {
            if let Some(value) = value {
                json.raw(format!(",\"{name}\":{}", text(value)))?;
            }
        }
        if let Some(cpus) = facts.cpus {
            json.raw(format!(",\"logicalCPUs\":{cpus}"))?;
        }
        if let Some(bytes) = facts.memory_bytes {
            json.raw(format!(",\"mainMemory\":{bytes}"))?;
        }
        let state = text(self.source.trace.manifest().state.as_str());
        json.raw(format!(
            ",\"extra\":[{{\"label\":\"perfquet\",\"entries\":[\
             {{\"label\":\"Lost events\",\"format\":\"integer\",\"value\":{lost}}},\
             {{\"label\":\"Read errors\",\"format\":\"integer\",\"value\":{problems}}},\
             {{\"label\":\"State\",\"format\":\"string\",\"value\":{state}}}]}}]"
        ))?;
        let order = self.order();
        let heaviest = (0..order.len()).max_by_key(|place| {
            (
                self.rows.records(2 * order[*place]),
                std::cmp::Reverse(*place),
            )
        });
        json.raw(format!(
            ",\"initialSelectedThreads\":[{}]}}",
            heaviest.unwrap_or(0)
        ))
    }

    /// Returns the tracks by PID and TID; those without IDs are last.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tracks.len()).collect();
        order.sort_by_key(|index| {
            let track = &self.tracks[*index];
            let identity = self.identity(track);
            (
                track.pid.unwrap_or(i32::MAX),
                identity.earlier_processes,
                track.tid.unwrap_or(i32::MAX),
                identity.earlier_threads,
            )
        });
        order
    }

    /// Returns the process of a track, and how often its PID and TID had been used before.
    fn identity(&self, track: &TrackOfThread) -> Identity<'_> {
        let main = track
            .thread
            .and_then(|index| self.threads.main_thread(index));
        let unknown = track.pid.filter(|_| track.thread.is_none());
        let by_pid = unknown.and_then(|pid| self.threads.process(pid));
        Identity {
            process: main.map(|index| &self.threads.all()[index]).or(by_pid),
            earlier_processes: main.map_or(0, |index| self.threads.earlier(index)),
            earlier_threads: track.thread.map_or(0, |index| self.threads.earlier(index)),
        }
    }

    /// Formats start and end, or 0 and null if they are unknown.
    fn lifetime(&self, thread: Option<&Thread>) -> (String, String) {
        let millis = |time: i64| decimal(time.saturating_sub(self.first).max(0), 6);
        let start = thread.and_then(|thread| thread.start_time);
        let end = thread.and_then(|thread| thread.end_time);
        (
            start.map_or_else(|| "0".to_owned(), millis),
            end.map_or_else(|| "null".to_owned(), millis),
        )
    }

    fn write_threads(&self, json: &mut Json<'_>, is_clock: bool) -> Result<()> {
        json.raw(",\"threads\":[")?;
        json.list(self.order(), |json, index| {
            let track = &self.tracks[index];
            let tid = track.tid.unwrap_or(0);
            let pid = track.pid.or(track.tid).unwrap_or(0);
            let identity = self.identity(track);
            let process = identity.process;
            let (startup, shutdown) = self.lifetime(process);
            let thread = track.thread.map(|index| &self.threads.all()[index]);
            let (register, unregister) = self.lifetime(thread);
            // Firefox itself names the next process with a PID "212.1".
            let pid_text = match identity.earlier_processes {
                0 => format!("\"{pid}\""),
                earlier => format!("\"{pid}.{earlier}\""),
            };
            let tid_text = match identity.earlier_threads {
                0 => tid.to_string(),
                earlier => format!("\"{tid}.{earlier}\""),
            };
            // The profiler needs both IDs; `perfquet-convert` reads those that are known.
            let ids = match (track.pid, track.tid) {
                (Some(_), Some(_)) => String::new(),
                (Some(pid), None) => format!("\"perfquet\":{{\"pid\":{pid}}},"),
                (None, Some(tid)) => format!("\"perfquet\":{{\"tid\":{tid}}},"),
                (None, None) => "\"perfquet\":{},".to_owned(),
            };
            json.raw(format!(
                "{{\"processType\":\"default\",\"processStartupTime\":{startup},\"processShutdownTime\":{shutdown},\"registerTime\":{register},\
                 \"unregisterTime\":{unregister},\"pausedRanges\":[],\"showMarkersInTimeline\":true,\"name\":{},\"processName\":{},\
                 \"isMainThread\":{},\"pid\":{pid_text},\"tid\":{tid_text},{ids}",
                text(&track.comm),
                text(process.and_then(|main| main.comm.as_deref()).unwrap_or(&track.comm)),
                pid == tid,
            ))?;
            self.write_samples(json, index, is_clock)?;
            self.write_markers(json, index)?;
            json.raw("}")
        })?;
        json.raw("]")
    }

    fn write_samples(&self, json: &mut Json<'_>, index: usize, is_clock: bool) -> Result<()> {
        let length = self.rows.records(2 * index);
        let kind = if is_clock { "tracing-ms" } else { "samples" };
        json.raw(format!(
            "\"samples\":{{\"length\":{length},\"weightType\":\"{kind}\""
        ))?;
        self.sample_column(json, index, "stack", |record| {
            match u32::from_le_bytes(part(record, 16)) {
                u32::MAX => "null".to_owned(),
                stack => stack.to_string(),
            }
        })?;
        self.sample_column(json, index, "time", |record| {
            let time = i64::from_le_bytes(part(record, 0));
            decimal(time.saturating_sub(self.first), 6)
        })?;
        self.sample_column(json, index, "weight", |record| {
            let period = i64::from_le_bytes(part(record, 8));
            match is_clock {
                true => decimal(period, 6),
                false => period.to_string(),
            }
        })?;
        // Periods of other counters do not measure CPU time.
        if is_clock {
            self.sample_column(json, index, "threadCPUDelta", |record| {
                i64::from_le_bytes(part(record, 8)).max(0).to_string()
            })?;
        }
        json.raw("},")
    }

    fn sample_column(
        &self,
        json: &mut Json<'_>,
        index: usize,
        name: &str,
        cell: impl Fn(&[u8]) -> String,
    ) -> Result<()> {
        json.raw(format!(",\"{name}\":["))?;
        let mut is_first = true;
        let mut add = |record: &[u8]| {
            if !std::mem::take(&mut is_first) {
                json.raw(",")?;
            }
            json.raw(cell(record))
        };
        if self.tracks[index].is_unsorted {
            let mut records: Vec<Vec<u8>> = Vec::new();
            self.rows.each(2 * index, |record| {
                records.push(record.to_vec());
                Ok(())
            })?;
            records.sort_by_key(|record| i64::from_le_bytes(part(record, 0)));
            for record in &records {
                add(record)?;
            }
        } else {
            self.rows.each(2 * index, add)?;
        }
        json.raw("]")
    }

    fn write_markers(&self, json: &mut Json<'_>, index: usize) -> Result<()> {
        let group = 2 * index + 1;
        json.raw(format!(
            "\"markers\":{{\"length\":{}",
            self.rows.records(group)
        ))?;
        let mut column = |name: &str, cell: &dyn Fn(&[u8]) -> Vec<u8>| -> Result<()> {
            json.raw(format!(",\"{name}\":["))?;
            let mut is_first = true;
            self.rows.each(group, |record| {
                if !std::mem::take(&mut is_first) {
                    json.raw(",")?;
                }
                json.raw(cell(record))
            })?;
            json.raw("]")
        };
        let time = |record: &[u8], place: usize| match i64::from_le_bytes(part(record, place)) {
            i64::MIN => b"null".to_vec(),
            time => decimal(time.saturating_sub(self.first), 6).into_bytes(),
        };
        let byte = |record: &[u8], place: usize| {
            let byte = record.get(place).copied().unwrap_or(0);
            byte.to_string().into_bytes()
        };
        column("name", &|record| {
            u32::from_le_bytes(part(record, 16))
                .to_string()
                .into_bytes()
        })?;
        column("startTime", &|record| time(record, 0))?;
        column("endTime", &|record| time(record, 8))?;
        column("phase", &|record| byte(record, 20))?;
        column("category", &|record| byte(record, 21))?;
        column("data", &|record| {
            [record.get(22..).unwrap_or_default(), b"}"].concat()
        })?;
        json.raw("}")
    }

    fn write_counters(&self, json: &mut Json<'_>) -> Result<()> {
        let order = self.order();
        json.raw(",\"pages\":[],\"counters\":[")?;
        json.list(&self.counters, |json, ((pid, name), group)| {
            let main = order.iter().position(|index| self.tracks[*index].pid == Some(*pid));
            json.raw(format!(
                "{{\"name\":{0},\"category\":\"Other\",\"description\":{0},\"pid\":\"{pid}\",\"mainThreadIndex\":{1},\
                 \"samples\":{{\"length\":{2},\"time\":[",
                text(name),
                main.unwrap_or(0),
                self.counts.records(*group),
            ))?;
            let mut is_first = true;
            self.counts.each(*group, |record| {
                if !std::mem::take(&mut is_first) {
                    json.raw(",")?;
                }
                let time = i64::from_le_bytes(part(record, 0));
                json.raw(decimal(time.saturating_sub(self.first), 6))
            })?;
            // Differences between successive values.
            json.raw("],\"count\":[")?;
            let (mut is_first, mut last) = (true, 0.0);
            self.counts.each(*group, |record| {
                if !std::mem::take(&mut is_first) {
                    json.raw(",")?;
                }
                let value = f64::from_le_bytes(part(record, 8));
                json.raw((value - std::mem::replace(&mut last, value)).to_string())
            })?;
            json.raw("]}}")
        })?;
        json.raw("],")
    }
}

/// A marker without its data.
struct Marker {
    name: u32,
    start: i64,
    end: Option<i64>,
    phase: u8,
    category: u8,
}

impl Marker {
    /// Encodes start, end, name, phase, category, and data without its closing bracket.
    fn record(&self, data: &[u8]) -> Vec<u8> {
        let end = self.end.unwrap_or(i64::MIN);
        [
            self.start.to_le_bytes().as_slice(),
            &end.to_le_bytes(),
            &self.name.to_le_bytes(),
            &[self.phase, self.category],
            data,
        ]
        .concat()
    }
}
