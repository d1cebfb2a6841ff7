//! Perfetto's protobuf traces, for ui.perfetto.dev and trace_processor.
//!
//! ```text
//! sched_switch, sched_waking, …    ftrace bundles     ─►  CPU tracks, thread states
//! other events of the kernel       generic ftrace     ─►  table ftrace_event
//! samples                          PerfSample         ─►  flame graphs
//! calls                            BEGIN and END      ─►  nested slices of the thread
//! events of programs, losses       INSTANT
//! ```
//! The importer sorts by time, so tables are written one by one. It discards data without an error if its rules are
//! broken; comments mention each rule where the code follows it. The trace's clock, whichever it is, is written as
//! BOOTTIME, the clock of ftrace bundles.

mod fields;
mod kernel;
mod packets;
mod samples;
mod slices;
mod tracks;

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use arrow_array::Array;
use perfquet_trace::count::counted;

use super::batch::{Heads, column, i64_at, i64_column, text_at};
use super::event_types::EventType;
use super::losses::{each_loss, problems};
use super::source::{RowTable, Source};
use super::stacks::Stacks;
use super::threads::Threads;
use super::values::{Cell, counter_of, fields, is_marker};
use super::weights::Weights;
use super::{Exporter, Output, Tally};
use fields::{attributes, clock_snapshot, packet, process_tree, system_info, track_event};
use kernel::{Bundles, KernelEvents, Shape};
use packets::Packets;
use samples::SampleSequences;
use tracks::{Annotation, Track, TrackEvent, Tracks};

/// `--to perfetto`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "perfetto",
    about: "Perfetto's trace format, for ui.perfetto.dev and trace_processor",
    output: Output::Timeline {
        ending: ".pftrace",
        next: "open it in https://ui.perfetto.dev",
        write,
    },
};

/// Number of rows beyond which Perfetto's UI runs out of memory in many browsers.
const MANY_ROWS: u64 = 5_000_000;

/// Of several traces, each is a machine: threads and CPUs with the same IDs are others.
fn write(sources: &[Source<'_>], out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let mut packets = Packets::new(out);
    // The wall clock of the first is that of the timeline.
    let first = sources.first().filter(|first| first.number() == 0);
    let wall = first.and_then(|first| {
        let offset = first.trace.manifest().facts.wall_offset?;
        offset.checked_sub(first.at(0))
    });
    for source in sources {
        packets.machine = source.number() as u64;
        write_trace(source, wall, &mut packets, tally)?;
    }
    packets.flush()?;
    let rows: u64 = tally.written().iter().map(|(_, count)| count).sum();
    if rows > MANY_ROWS {
        tally.note(
            "browsers hold about 5,000,000 events: use --time, or trace_processor --httpd with the UI"
                .to_owned(),
        );
    }
    Ok(())
}

fn write_trace(
    source: &Source<'_>,
    wall: Option<i64>,
    packets: &mut Packets<'_>,
    tally: &mut Tally,
) -> Result<()> {
    let threads = Threads::of(source)?;
    let stacks = Stacks::read(source.trace)?;
    let machine = packets.machine;
    let mut export = Export {
        source,
        wall,
        threads: &threads,
        packets,
        tracks: Tracks::new(&threads, machine),
        samples: SampleSequences::new(&stacks),
        bundles: Bundles::default(),
    };
    let problems = problems(source, tally)?;
    export.facts(problems)?;
    export.processes()?;
    export.events(tally)?;
    export.samples(tally)?;
    slices::write(source, export.packets, &mut export.tracks, tally)?;
    export.losses(tally)?;
    tally.omit(
        "aggregate",
        "Perfetto has no aggregates",
        source.aggregate_rows(),
    );
    Ok(())
}

/// Whether a trace has switches of some threads only, with the moments at which these get a CPU.
fn is_of_some_threads(source: &Source<'_>) -> bool {
    let facts = &source.trace.manifest().facts;
    let scope = facts.other.get("scope").map(String::as_str);
    let is_of_threads = scope.is_some_and(|scope| !scope.starts_with("system"));
    let has = |event: &str| {
        let mut tables = source.events();
        tables.any(|table| source.event_name(table) == event)
    };
    is_of_threads && has("sched:sched_switch") && has("perf:context_switch")
}

struct Export<'e, 'o> {
    source: &'e Source<'e>,
    /// Offset of the timeline to wall-clock time.
    wall: Option<i64>,
    threads: &'e Threads,
    packets: &'e mut Packets<'o>,
    tracks: Tracks<'e>,
    samples: SampleSequences<'e>,
    bundles: Bundles,
}

impl Export<'_, '_> {
    /// Writes the clock, the system, and other facts about the trace.
    fn facts(&mut self, problems: u64) -> Result<()> {
        let facts = &self.source.trace.manifest().facts;
        let start = self.source.first_time().max(0);
        let wall = self.wall.and_then(|offset| start.checked_add(offset));
        self.packets.add(|message| {
            message.message(packet::CLOCK_SNAPSHOT, |message| {
                let mut clock = |id, time: i64| {
                    message.message(clock_snapshot::CLOCKS, |message| {
                        message.uint(clock_snapshot::CLOCK_ID, id);
                        message.int(clock_snapshot::TIMESTAMP, time);
                    });
                };
                clock(clock_snapshot::BOOTTIME, start);
                if let Some(wall) = wall.filter(|wall| *wall > 0) {
                    clock(clock_snapshot::REALTIME, wall);
                }
                message.uint(clock_snapshot::PRIMARY, clock_snapshot::BOOTTIME);
            });
        })?;
        // Without a release, the importer decodes thread states as those of Linux 4.4; letters are encoded as since
        // 4.14.
        let release = facts.os_release.as_deref().unwrap_or("4.14.0");
        self.packets.add(|message| {
            message.message(packet::SYSTEM_INFO, |message| {
                message.message(system_info::UTSNAME, |message| {
                    message.text(system_info::SYSNAME, "Linux");
                    if facts.os_release.is_none() {
                        // Our reader takes no release from such a message.
                        message.text(system_info::VERSION, "release unknown");
                    }
                    message.text(system_info::RELEASE, release);
                    if let Some(machine) = &facts.architecture {
                        message.text(system_info::MACHINE, machine);
                    }
                });
                if let Some(cpus) = facts.cpus {
                    message.uint(system_info::CPUS, u64::from(cpus));
                }
                if let Some(bytes) = facts.memory_bytes {
                    message.uint(system_info::MEMORY_BYTES, bytes);
                }
            });
        })?;
        let state = self.source.trace.manifest().state.as_str();
        let problems = (problems > 0).then(|| problems.to_string());
        let known = [
            (
                "perfquet.trace",
                Some(self.source.name.as_str()).filter(|_| self.source.is_placed()),
            ),
            ("perfquet.clock", facts.clock.as_deref()),
            ("perfquet.host", facts.host.as_deref()),
            ("perfquet.cpu_model", facts.cpu_model.as_deref()),
            ("perfquet.recorder", facts.recorder.as_deref()),
            ("perfquet.command_line", facts.command_line.as_deref()),
            ("perfquet.state", Some(state)),
            ("perfquet.read_errors", problems.as_deref()),
        ];
        self.packets.add(|message| {
            message.message(packet::TRACE_ATTRIBUTES, |message| {
                for (key, value) in known {
                    let Some(value) = value else {
                        continue;
                    };
                    message.message(attributes::ATTRIBUTE, |message| {
                        message.text(attributes::KEY, key);
                        message.text(attributes::TEXT, value);
                    });
                }
            });
        })
    }

    /// Writes names and processes of threads, because scheduler events contain only TIDs. A reused TID has several
    /// packets, by start.
    fn processes(&mut self) -> Result<()> {
        let start = self.source.first_time().max(0);
        for (index, thread) in self.threads.all().iter().enumerate() {
            // The first thread with a TID has it from the beginning.
            let is_first = self.threads.find(thread.tid, None) == Some(index);
            let time = thread.start_time.filter(|_| !is_first).unwrap_or(start);
            let Some(pid) = thread.pid else {
                continue;
            };
            self.packets.add(|message| {
                message.int(packet::TIMESTAMP, time.max(0));
                message.uint(packet::SEQUENCE_ID, 1);
                message.message(packet::PROCESS_TREE, |message| {
                    if thread.tid == pid {
                        message.message(process_tree::PROCESSES, |message| {
                            message.int(process_tree::PID, i64::from(pid));
                            if let Some(parent) = thread.parent {
                                message.int(process_tree::PARENT, i64::from(parent));
                            }
                            let cmdline = thread.cmdline.as_deref().or(thread.comm.as_deref());
                            for word in cmdline.unwrap_or_default().split_whitespace() {
                                message.text(process_tree::CMDLINE, word);
                            }
                        });
                    }
                    message.message(process_tree::THREADS, |message| {
                        message.int(process_tree::TID, i64::from(thread.tid));
                        message.int(process_tree::TGID, i64::from(pid));
                        if let Some(comm) = &thread.comm {
                            message.text(process_tree::NAME, comm);
                        }
                    });
                });
            })?;
        }
        Ok(())
    }

    /// Writes tracepoints, probes and markers.
    fn events(&mut self, tally: &mut Tally) -> Result<()> {
        let source = self.source;
        let mut counts = EventCounts::default();
        for table in source.events() {
            self.events_of(table, &mut counts)?;
        }
        self.exits(&mut counts)?;
        self.bundles.flush(self.packets)?;
        tally.wrote("event", counts.events);
        tally.omit("event", "without a timestamp", counts.without_time);
        tally.omit("event", "before time 0 of the clock", counts.before_zero);
        if counts.switches_out > 0 {
            tally.note(format!(
                "CPUs are shown as idle after {} of sched_switch: only some threads were recorded",
                counted(counts.switches_out, "event")
            ));
        }
        if counts.exits > 0 {
            tally.note(format!(
                "{} of sched_switch added where a thread exits",
                counted(counts.exits, "event")
            ));
        }
        if counts.stacks > 0 {
            tally.note(format!(
                "the stacks of {} are samples of their events, too",
                counted(counts.stacks, "event")
            ));
        }
        Ok(())
    }

    /// Ends the last period of each thread of which only the exit is recorded, in recordings of some threads.
    fn exits(&mut self, counts: &mut EventCounts) -> Result<()> {
        let mut running: Vec<(usize, i64, i32)> = std::mem::take(&mut counts.running)
            .into_iter()
            .filter_map(|(index, last)| Some((index, last.time, last.cpu?)))
            .collect();
        running.sort_unstable();
        for (index, since, cpu) in running {
            let thread = &self.threads.all()[index];
            let end = thread.end_time.filter(|&end| end >= since);
            let Some(end) = end.filter(|&end| self.source.is_in_time(Some(end))) else {
                continue;
            };
            counts.exits += 1;
            let comm = thread.comm.as_deref().unwrap_or_default();
            self.bundles.add(self.packets, cpu, |message| {
                kernel::write_exit(message, end, thread.tid, comm);
            })?;
        }
        Ok(())
    }

    fn events_of(&mut self, table: &RowTable<'_>, counts: &mut EventCounts) -> Result<()> {
        let source = self.source;
        let name = source.event_name(table);
        let mut types = source.event_types();
        let event: Option<EventType> = types.find(|event| event.table == table.name).cloned();
        // Events of programs belong to their thread, events of the kernel to a CPU.
        let is_of_program = matches!(
            source.event_kind(table),
            "uprobe" | "uretprobe" | "usdt" | "marker"
        );
        let is_marker = is_marker(&name);
        let shape = match is_of_some_threads(source) {
            true => Shape::of_some_threads(&name),
            false => Shape::of(&name),
        };
        for batch in source.rows(table, None)? {
            let batch = batch?;
            let heads = Heads::of(&batch);
            let kernel = KernelEvents::of(&name, &shape, &batch);
            let buffer = column(&batch, "buf").filter(|_| is_marker);
            for row in 0..batch.num_rows() {
                let head = heads.row(row);
                let time = match head.time {
                    Some(time) if time >= 0 => time,
                    Some(_) => {
                        counts.before_zero += 1;
                        continue;
                    }
                    None => {
                        counts.without_time += 1;
                        continue;
                    }
                };
                counts.events += 1;
                if matches!(shape, Shape::SwitchOut | Shape::SwitchIn) {
                    let is_in = matches!(shape, Shape::SwitchIn);
                    counts.switches_out += u64::from(!is_in);
                    let tid = kernel.thread(&head, row);
                    let index = tid.and_then(|tid| self.threads.find(tid, Some(time)));
                    if let Some(index) = index.filter(|_| !is_in || kernel.is_in(row)) {
                        let cpu = head.cpu.filter(|_| is_in);
                        let last = counts.running.entry(index).or_insert(Last { time, cpu });
                        if time >= last.time {
                            *last = Last { time, cpu };
                        }
                    }
                }
                if head.kernel_stack.is_some() || head.user_stack.is_some() {
                    counts.stacks += 1;
                    self.samples
                        .sample(self.packets, &name, event.as_ref(), time, &head, 1)?;
                }
                let counter = buffer.and_then(|column| counter_of(text_at(column, row)?));
                if let Some((pid, name, value)) = counter {
                    let value = match value.parse() {
                        Ok(number) => Annotation::Int(number),
                        Err(_) => Annotation::Float(value.parse().unwrap_or(0.0)),
                    };
                    let name = name.to_owned();
                    let track = Track::Counter { pid, name };
                    self.tracks.count(self.packets, &track, time, &value)?;
                }
                match head.cpu {
                    Some(cpu) if !is_of_program && kernel.thread(&head, row).is_some() => {
                        self.bundles.add(self.packets, cpu, |message| {
                            kernel.write(message, time, &head, row);
                        })?;
                    }
                    _ => {
                        let track = match head.tid {
                            Some(tid) => Track::Thread {
                                tid,
                                pid: head.pid,
                                lane: 0,
                            },
                            None => head.pid.map_or(Track::Named("events"), Track::Process),
                        };
                        let annotations: Vec<(String, Annotation)> = fields(&batch)
                            .into_iter()
                            .filter_map(|(name, column)| Some((name, annotation(column, row)?)))
                            .collect();
                        let event = TrackEvent {
                            time,
                            kind: track_event::INSTANT,
                            category: "events",
                            name: &name,
                            annotations: &annotations,
                        };
                        self.tracks.event(self.packets, &track, head.comm, &event)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn samples(&mut self, tally: &mut Tally) -> Result<()> {
        const WANTED: [&str; 9] = [
            "time",
            "cpu",
            "pid",
            "tid",
            "comm",
            "kernel_stack",
            "user_stack",
            "event",
            "period",
        ];
        let source = self.source;
        let types: HashMap<String, EventType> = source
            .event_types()
            .filter(|event| event.is_sampled())
            .map(|event| (event.name.clone(), event.clone()))
            .collect();
        let weights = Weights::of(source, tally)?;
        let (mut written, mut without_time, mut before_zero) = (0, 0, 0);
        for table in source.samples() {
            for batch in source.rows(table, Some(&WANTED))? {
                let batch = batch?;
                let heads = Heads::of(&batch);
                let events = column(&batch, "event");
                let periods = i64_column(&batch, "period");
                for row in 0..batch.num_rows() {
                    let head = heads.row(row);
                    let time = match head.time {
                        Some(time) if time >= 0 => time,
                        Some(_) => {
                            before_zero += 1;
                            continue;
                        }
                        None => {
                            without_time += 1;
                            continue;
                        }
                    };
                    written += 1;
                    let event = events
                        .and_then(|events| text_at(events, row))
                        .unwrap_or("samples");
                    let period = weights.of_sample(Some(event), i64_at(periods, row));
                    let period = period.max(0).cast_unsigned();
                    self.samples.sample(
                        self.packets,
                        event,
                        types.get(event),
                        time,
                        &head,
                        period,
                    )?;
                }
            }
        }
        tally.wrote("sample", written);
        tally.omit("sample", "without a timestamp", without_time);
        tally.omit("sample", "before time 0 of the clock", before_zero);
        Ok(())
    }

    /// Writes each loss as an instant; losses of a CPU also set the data-loss marks of the UI.
    fn losses(&mut self, tally: &mut Tally) -> Result<()> {
        let source = self.source;
        let (mut written, mut without_time) = (0, 0);
        each_loss(source, tally, |loss| {
            if let (Some(cpu), true) = (loss.cpu, loss.is_lost()) {
                let count = loss.count.unwrap_or(1).max(1).cast_unsigned();
                let event = loss.event.as_deref().unwrap_or_default();
                let time = loss.time.unwrap_or(0).max(0);
                if !self.samples.lost(self.packets, event, time, cpu, count)? {
                    self.bundles.lost(self.packets, cpu)?;
                }
            }
            let Some(time) = loss.time.filter(|time| *time >= 0) else {
                without_time += 1;
                return Ok(());
            };
            written += 1;
            let mut annotations = Vec::new();
            if let Some(count) = loss.count {
                annotations.push(("count".to_owned(), Annotation::Int(count)));
            }
            if let Some(cpu) = loss.cpu {
                annotations.push(("cpu".to_owned(), Annotation::Int(cpu.into())));
            }
            if let Some(event) = &loss.event {
                annotations.push(("event".to_owned(), Annotation::Text(event.clone())));
            }
            annotations.push(("reason".to_owned(), Annotation::Text(loss.reason.clone())));
            let event = TrackEvent {
                time,
                kind: track_event::INSTANT,
                category: "losses",
                name: &loss.sentence(),
                annotations: &annotations,
            };
            self.tracks
                .event(self.packets, &Track::Named("losses"), None, &event)
        })?;
        tally.wrote("loss record", written);
        tally.omit("loss record", "without a timestamp", without_time);
        Ok(())
    }
}

#[derive(Default)]
struct EventCounts {
    events: u64,
    stacks: u64,
    without_time: u64,
    before_zero: u64,
    /// Switches whose next thread is not shown.
    switches_out: u64,
    /// The last switch of each thread, in recordings of some threads.
    running: HashMap<usize, Last>,
    /// Added switches.
    exits: u64,
}

/// A switch of a thread, and the CPU that it got; `None` if it left it.
struct Last {
    time: i64,
    cpu: Option<i32>,
}

/// Returns a field of an event as an argument; `None` for NULL.
fn annotation(column: &dyn Array, row: usize) -> Option<Annotation> {
    Some(match Cell::at(column, row) {
        Cell::Null => return None,
        Cell::Bool(truth) => Annotation::Bool(truth),
        Cell::Int(number) => Annotation::Int(number),
        Cell::UInt(number) => Annotation::UInt(number),
        Cell::Float(number) => Annotation::Float(number),
        Cell::Text(text) => Annotation::Text(text.into_owned()),
    })
}
