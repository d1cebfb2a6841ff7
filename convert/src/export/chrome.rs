//! Chrome's trace events: JSON for Perfetto, chrome://tracing, speedscope and others.
//!
//! ```text
//! {"displayTimeUnit":"ns","otherData":{…},"traceEvents":[
//! {"ph":"X","cat":"calls","name":"vfs_read","pid":220,"tid":220,"ts":1500.001,"dur":2000.003,"args":{"count":4096}},
//! ```
//! One event per line. `ts` and `dur` count microseconds after the first event, with three decimals and without
//! rounding: rounded calls would overlap. Overlapping calls get separate rows. Perfetto shows no stacks of this format,
//! so samples are omitted.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use perfquet_trace::count::counted;

use super::batch::{Heads, column, text_at};
use super::calls::{Call, OpenDepths, Owner, each_call};
use super::json::{Json, decimal, text, write_text};
use super::lanes::Lanes;
use super::losses::{each_loss, problems};
use super::source::{RowTable, Source};
use super::threads::Threads;
use super::values::{Cell, counter_of, fields, is_marker};
use super::{Exporter, Output, SLICES_DEEPEST, Tally};

/// `--to chrome`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "chrome",
    about: "Chrome's trace event JSON, for Perfetto and chrome://tracing",
    output: Output::Timeline {
        ending: ".trace.json.gz",
        next: "open it in https://ui.perfetto.dev",
        write,
    },
};

/// Number of events beyond which viewers run out of memory.
const MANY_ROWS: u64 = 2_000_000;
/// First ID of rows that are not threads; the kernel's thread IDs end at 2^22.
const FIRST_ROW: i64 = 1 << 24;
/// Distance between the IDs of threads that had the same ID one after another. Viewers read IDs of 31 bits.
const REUSED: i64 = 1 << 25;
/// Threads with one ID that are told apart.
const MOST_REUSED: usize = 60;
/// Numbers in JavaScript are exact up to this one.
const EXACT: i64 = 1 << 53;

fn write(sources: &[Source<'_>], out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let firsts = sources.iter().map(Source::first_time);
    let mut export = Export {
        json: Json::new(out),
        first: firsts.min().unwrap_or(0),
        threads: Threads::default(),
        rows: HashMap::new(),
        processes: HashMap::new(),
        process_names: HashMap::new(),
        next_row: FIRST_ROW,
        trace: None,
        others: HashMap::new(),
        merged: 0,
    };
    export.facts(sources)?;
    let mut counts = Counts::default();
    for source in sources {
        export.threads = Threads::of(source)?;
        export.trace = source.is_placed().then(|| Placed {
            number: source.number(),
            name: source.name.clone(),
        });
        // The same IDs are other threads in each trace.
        export.rows.clear();
        export.others.clear();
        export.calls(source, &mut counts)?;
        for table in source.events() {
            export.events(source, table, &mut counts)?;
        }
        export.losses(source, tally)?;
        problems(source, tally)?;
        let samples = source.samples().map(|table| source.table_rows(table));
        let samples = samples.fold(0, u64::saturating_add);
        tally.omit("sample", "Chrome's format has no stacks", samples);
        tally.omit(
            "aggregate",
            "Chrome's format has no aggregates",
            source.aggregate_rows(),
        );
    }
    export.json.raw("\n]}\n")?;
    export.json.flush()?;
    tally.wrote("event", counts.events);
    tally.wrote("call", counts.calls);
    tally.omit(
        "stack",
        "of a row: Chrome's format has no stacks",
        counts.stacks,
    );
    tally.omit("event", "without a timestamp", counts.without_time);
    tally.omit(
        "call",
        "nested deeper than 512, or 256 overlapping",
        counts.too_deep,
    );
    tally.omit("call", "without a timestamp", counts.calls_without_time);
    if export.merged > 0 {
        tally.note(format!(
            "{} share a row with an earlier one: more than 60 had the same ID",
            counted(export.merged, "thread")
        ));
    }
    if counts.events + counts.calls > MANY_ROWS {
        tally.note("viewers hold about 2,000,000 events: use --time, or --to perfetto".to_owned());
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    events: u64,
    calls: u64,
    stacks: u64,
    without_time: u64,
    calls_without_time: u64,
    too_deep: u64,
}

/// A row of the viewer; `index` is that of the thread, since a reused TID has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    Thread {
        pid: Option<i32>,
        tid: Option<i32>,
        index: Option<usize>,
    },
    Lane {
        owner: Owner,
        index: Option<usize>,
        lane: usize,
    },
}

struct Export<'o> {
    json: Json<'o>,
    first: i64,
    threads: Threads,
    /// PID and TID of each row.
    rows: HashMap<Row, (i64, i64)>,
    processes: HashMap<i64, ()>,
    /// Names of processes that are not those of their first threads, by PID.
    process_names: HashMap<i64, String>,
    next_row: i64,
    /// The trace, if it is one of several.
    trace: Option<Placed>,
    /// The IDs of processes and threads of later traces: their own are those of others.
    others: HashMap<i64, i64>,
    /// Threads whose ID more than [`MOST_REUSED`] earlier ones had.
    merged: u64,
}

/// The start of the names of facts in which an import of this format keeps names of processes.
const PROCESS_NAME: &str = "chrome.process_name.";

struct Placed {
    number: usize,
    name: String,
}

impl Export<'_> {
    fn facts(&mut self, sources: &[Source<'_>]) -> Result<()> {
        let Some(source) = sources.first() else {
            return Ok(());
        };
        let manifest = source.trace.manifest();
        let facts = &manifest.facts;
        if !source.is_placed() {
            let names = facts.other.iter().filter_map(|(name, value)| {
                let pid = name.strip_prefix(PROCESS_NAME)?.parse().ok()?;
                Some((pid, value.clone()))
            });
            self.process_names = names.collect();
        }
        let wall = facts
            .wall_offset
            .filter(|_| source.number() == 0)
            .map(|offset| {
                offset
                    .saturating_sub(source.at(0))
                    .saturating_add(self.first)
                    .to_string()
            });
        let start = self.first.to_string();
        self.json
            .raw("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"exporter\":")?;
        self.json
            .text(concat!("perfquet ", env!("CARGO_PKG_VERSION")))?;
        for (name, value) in [
            ("clock", facts.clock.as_deref()),
            ("start_ns", Some(start.as_str())),
            ("start_since_1970_ns", wall.as_deref()),
            ("host", facts.host.as_deref()),
            ("os_release", facts.os_release.as_deref()),
            ("architecture", facts.architecture.as_deref()),
            ("recorder", facts.recorder.as_deref()),
            ("command_line", facts.command_line.as_deref()),
            ("scope", facts.other.get("scope").map(String::as_str)),
            ("state", Some(manifest.state.as_str())),
        ] {
            if let Some(value) = value {
                self.json.raw(format!(",\"{name}\":"))?;
                self.json.text(value)?;
            }
        }
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        if source.is_placed() {
            self.json.raw(",\"traces\":")?;
            self.json.text(&names.join(", "))?;
        }
        self.json.raw("},\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0,\"tid\":0,\"args\":{}}")
    }

    /// Returns PID and TID of a row; writes its name when called for the first time.
    fn row(&mut self, row: Row, comm: Option<&str>) -> Result<(i64, i64)> {
        if let Some(known) = self.rows.get(&row) {
            return Ok(*known);
        }
        let (Row::Thread { index, .. } | Row::Lane { index, .. }) = row;
        let main = index.and_then(|index| self.threads.main_thread(index));
        let reused = index.map_or(0, |index| self.threads.earlier(index));
        self.merged += u64::from(reused > MOST_REUSED);
        let comm_of = |index: Option<usize>| self.threads.all()[index?].comm.as_deref();
        let comm = comm_of(index).or(comm);
        let id = |id: i32, index: Option<usize>| {
            let earlier = index.map_or(0, |index| self.threads.earlier(index));
            i64::from(id) + earlier.min(MOST_REUSED) as i64 * REUSED
        };
        let name = comm.unwrap_or("[unknown]").to_owned();
        let of_unknown = match row {
            Row::Thread { pid, tid: None, .. } => pid.and_then(|pid| self.threads.process(pid)),
            Row::Thread { .. } | Row::Lane { .. } => None,
        };
        let process = comm_of(main).or(of_unknown.and_then(|main| main.comm.as_deref()));
        let process = process.map(str::to_owned);
        let (pid, tid, name) = match row {
            // A thread of an unknown process is shown as a process.
            Row::Thread {
                pid,
                tid: Some(tid),
                ..
            } => (
                pid.map_or_else(|| id(tid, index), |pid| id(pid, main)),
                id(tid, index),
                name,
            ),
            Row::Thread { pid, tid: None, .. } => (
                i64::from(pid.unwrap_or(0)),
                FIRST_ROW - 1,
                "[unknown]".to_owned(),
            ),
            Row::Lane { owner, lane, .. } => {
                self.next_row += 1;
                let overlapping = if lane > 0 { " overlapping" } else { "" };
                match owner {
                    Owner::Thread { tid, pid } => (
                        pid.map_or_else(|| id(tid, index), |pid| id(pid, main)),
                        self.next_row,
                        format!("{name} [{tid}]{overlapping}"),
                    ),
                    Owner::Cpu { cpu, what } => (
                        FIRST_ROW,
                        self.next_row,
                        format!("CPU {cpu} {what}{overlapping}"),
                    ),
                    Owner::Unknown => (FIRST_ROW, self.next_row, "calls".to_owned()),
                }
            }
        };
        let identity = identity(row, comm, (pid, tid));
        let is_of_cpus = pid == FIRST_ROW;
        let shown = |name: String, id: i64| match &self.trace {
            Some(trace) if trace.number > 0 && id < FIRST_ROW => format!("{name} [{id}]"),
            _ => name,
        };
        let name = shown(name, tid);
        let process = process.map(|process| shown(process, pid));
        let (pid, tid) = (self.other(pid), self.other(tid));
        self.rows.insert(row, (pid, tid));
        if self.processes.insert(pid, ()).is_none() {
            let process = match is_of_cpus {
                true => "CPUs".to_owned(),
                false => {
                    let own = self.process_names.remove(&pid);
                    own.or(process).unwrap_or_else(|| name.clone())
                }
            };
            let process = match &self.trace {
                Some(trace) => format!("{}: {process}", trace.name),
                None => process,
            };
            self.json.raw(format!(
                ",\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{}}}}}",
                text(&process)
            ))?;
        }
        self.json.raw(format!(
            ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{}{}}}}}",
            text(&name),
            identity.filter(|_| self.trace.is_none()).unwrap_or_default(),
        ))?;
        Ok((pid, tid))
    }

    /// The ID of a process or thread in the file.
    fn other(&mut self, id: i64) -> i64 {
        match &self.trace {
            Some(trace) if trace.number > 0 => {
                let next = &mut self.next_row;
                *self.others.entry(id).or_insert_with(|| {
                    *next += 1;
                    *next
                })
            }
            _ => id,
        }
    }

    fn calls(&mut self, source: &Source<'_>, counts: &mut Counts) -> Result<()> {
        let mut lanes: HashMap<Owner, Lanes> = HashMap::new();
        let mut depths = OpenDepths::default();
        let passed = each_call(source, |call| {
            let owner = call.owner();
            let end = call.end();
            let place = match end {
                Some(end) => {
                    let lanes = lanes.entry(owner).or_default();
                    let Some(place) = lanes.place(call.time, end, SLICES_DEEPEST) else {
                        counts.too_deep += 1;
                        return Ok(());
                    };
                    place.lane
                }
                None => 0,
            };
            let index = match owner {
                Owner::Thread { tid, .. } => self.threads.find(tid, Some(call.time)),
                Owner::Cpu { .. } | Owner::Unknown => None,
            };
            let row = match owner {
                Owner::Thread { pid, tid } if place == 0 => Row::Thread {
                    pid,
                    tid: Some(tid),
                    index,
                },
                owner => Row::Lane {
                    owner,
                    index,
                    lane: place,
                },
            };
            counts.calls += 1;
            self.call(row, call, end, depths.of(call))
        })?;
        counts.calls_without_time = passed.without_time;
        counts.stacks += passed.with_stack;
        Ok(())
    }

    fn call(
        &mut self,
        row: Row,
        call: &Call<'_>,
        end: Option<i64>,
        depth: Option<i32>,
    ) -> Result<()> {
        let (pid, tid) = self.row(row, call.head.comm)?;
        let time = decimal(call.time.saturating_sub(self.first), 3);
        let head = match end {
            Some(end) => {
                let duration = decimal(end.saturating_sub(call.time), 3);
                format!(
                    "{{\"ph\":\"X\",\"cat\":\"calls\",\"name\":{},\"pid\":{pid},\"tid\":{tid},\"ts\":{time},\"dur\":{duration}",
                    text(call.name())
                )
            }
            None => {
                let missing = if call.entry_seen { "exit" } else { "entry" };
                let name = format!("{} ({missing} not seen)", call.name());
                format!(
                    "{{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"calls\",\"name\":{},\"pid\":{pid},\"tid\":{tid},\"ts\":{time}",
                    text(&name)
                )
            }
        };
        let mut args: Vec<u8> = Vec::new();
        let mut arg = |name: &str, value: &str| {
            args.push(if args.is_empty() { b'{' } else { b',' });
            write_text(&mut args, name);
            args.push(b':');
            match value.parse::<i64>() {
                Ok(number) if number.unsigned_abs() < EXACT.cast_unsigned() => {
                    args.extend_from_slice(number.to_string().as_bytes())
                }
                _ => write_text(&mut args, value),
            }
        };
        for (index, text) in call.args.iter().enumerate() {
            match text.split_once('=') {
                Some((name, value)) => arg(name, value),
                None => arg(&format!("arg{}", index + 1), text),
            }
        }
        if let Some(retval) = call.retval {
            arg("retval", &retval.to_string());
        }
        if let Some(module) = call.module {
            arg("module", module);
        }
        // Where times do not tell it.
        if let Some(depth) = depth {
            arg("call_depth", &depth.to_string());
        }
        self.line(&head, &args)
    }

    /// Tracepoints, probes and markers.
    fn events(
        &mut self,
        source: &Source<'_>,
        table: &RowTable<'_>,
        counts: &mut Counts,
    ) -> Result<()> {
        let name = source.event_name(table);
        let quoted = text(&name);
        for batch in source.rows(table, None)? {
            let batch = batch?;
            let heads = Heads::of(&batch);
            let fields = fields(&batch);
            let buffer = column(&batch, "buf").filter(|_| is_marker(&name));
            for row in 0..batch.num_rows() {
                let head = heads.row(row);
                let Some(time) = head.time else {
                    counts.without_time += 1;
                    continue;
                };
                counts.events += 1;
                counts.stacks +=
                    u64::from(head.kernel_stack.is_some() || head.user_stack.is_some());
                let index = head.tid.and_then(|tid| self.threads.find(tid, Some(time)));
                let row_of_thread = Row::Thread {
                    pid: head.pid,
                    tid: head.tid,
                    index,
                };
                let (pid, tid) = self.row(row_of_thread, head.comm)?;
                let time = decimal(time.saturating_sub(self.first), 3);
                if let Some((pid, name, value)) =
                    buffer.and_then(|column| counter_of(text_at(column, row)?))
                {
                    let value: f64 = value.parse().unwrap_or(0.0);
                    let pid = self.other(pid.into());
                    self.line(
                        &format!(
                            "{{\"ph\":\"C\",\"name\":{},\"pid\":{pid},\"tid\":{pid},\"ts\":{time}",
                            text(name)
                        ),
                        format!("{{\"value\":{value}").as_bytes(),
                    )?;
                }
                let mut args: Vec<u8> = Vec::new();
                let cpu = head.cpu.map(|cpu| format!("\"cpu\":{cpu}"));
                if let Some(cpu) = cpu {
                    args.push(b'{');
                    args.extend_from_slice(cpu.as_bytes());
                }
                for (name, column) in &fields {
                    let value = Cell::at(*column, row);
                    if value == Cell::Null {
                        continue;
                    }
                    args.push(if args.is_empty() { b'{' } else { b',' });
                    write_text(&mut args, name);
                    args.push(b':');
                    match value {
                        Cell::Int(number) if number.unsigned_abs() < EXACT.cast_unsigned() => {
                            args.extend_from_slice(number.to_string().as_bytes());
                        }
                        Cell::UInt(number) if number < EXACT.cast_unsigned() => {
                            args.extend_from_slice(number.to_string().as_bytes());
                        }
                        Cell::Float(number) if number.is_finite() => {
                            args.extend_from_slice(number.to_string().as_bytes());
                        }
                        Cell::Bool(truth) => args.extend_from_slice(truth.to_string().as_bytes()),
                        other => write_text(&mut args, &other.text()),
                    }
                }
                self.line(
                    &format!("{{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"events\",\"name\":{quoted},\"pid\":{pid},\"tid\":{tid},\"ts\":{time}"),
                    &args,
                )?;
            }
        }
        Ok(())
    }

    fn losses(&mut self, source: &Source<'_>, tally: &mut Tally) -> Result<()> {
        let (mut written, mut without_time) = (0, 0);
        each_loss(source, tally, |loss| {
            let Some(time) = loss.time else {
                without_time += 1;
                return Ok(());
            };
            written += 1;
            let time = decimal(time.saturating_sub(self.first), 3);
            let of_trace = match &self.trace {
                Some(trace) => format!("{}: ", trace.name),
                None => String::new(),
            };
            let mut args = format!("{{\"reason\":{}", text(&loss.reason));
            if let Some(count) = loss.count {
                args += &format!(",\"count\":{count}");
            }
            if let Some(cpu) = loss.cpu {
                args += &format!(",\"cpu\":{cpu}");
            }
            self.line(
                &format!(
                    "{{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"losses\",\"name\":{},\"pid\":0,\"tid\":0,\"ts\":{time}",
                    text(&format!("{of_trace}{}", loss.sentence()))
                ),
                args.as_bytes(),
            )
        })?;
        tally.wrote("loss record", written);
        tally.omit("loss record", "without a timestamp", without_time);
        Ok(())
    }

    /// Writes an event: its members and its arguments, both without the closing bracket.
    fn line(&mut self, head: &str, args: &[u8]) -> Result<()> {
        self.json.raw(",\n")?;
        self.json.raw(head)?;
        if !args.is_empty() {
            self.json.raw(",\"args\":")?;
            self.json.raw(args)?;
            self.json.raw("}")?;
        }
        self.json.raw("}")
    }
}

/// Formats a member that identifies the thread or CPU of a row whose IDs are not its own, for `perfquet-convert`. Viewers ignore it.
fn identity(row: Row, comm: Option<&str>, ids: (i64, i64)) -> Option<String> {
    let mut members = Vec::new();
    let (pid, tid, cpu) = match row {
        Row::Thread { pid, tid, .. } => (pid, tid, None),
        Row::Lane { owner, .. } => match owner {
            Owner::Thread { pid, tid } => (pid, Some(tid), None),
            Owner::Cpu { cpu, what } => (None, None, Some((cpu, what))),
            Owner::Unknown => (None, None, None),
        },
    };
    if pid.map(i64::from) == Some(ids.0) && tid.map(i64::from) == Some(ids.1) {
        return None;
    }
    if let Some(comm) = comm {
        members.push(format!("\"comm\":{}", text(comm)));
    }
    for (name, id) in [("pid", pid), ("tid", tid), ("cpu", cpu.map(|(cpu, _)| cpu))] {
        members.extend(id.map(|id| format!("\"{name}\":{id}")));
    }
    if let Some((_, what)) = cpu {
        members.push(format!("\"context\":\"{what}\""));
    }
    Some(format!(",\"perfquet\":{{{}}}", members.join(",")))
}
