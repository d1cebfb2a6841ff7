//! Traces → events, in the order of time: the streams are merged, each is read packet by packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perfquet_events::event::{Event, Fact, Loss, Place, Progress, Sink, time_of};
use perfquet_events::wire::PauseRecord;
use perfquet_events::{Error, Input};

use super::decode::Decoder;
use super::emit::{Emitter, Plan, Types};
use super::files::{Folder, METADATA};
use super::gaps::gaps;
use super::layout::{self, Layout, StreamLayout};
use super::lexer::Flaw;
use super::metadata;
use super::names::Tracer;
use super::packets::{self, Packet, RELEASED_BYTES, StreamFile, Streams};
use super::schema::{Clock, Metadata};
use crate::files::Files;
use crate::problems::Problems;

const PROGRESS_PACKETS: u64 = 64;
/// Events of LTTng before 2.12 may be shortly after the end of their packet, those of barectf before its begin.
const SLACK_NS: i64 = 1_000_000_000;
/// Facts of the environment.
const FACTS_MAX: usize = 100;

/// A trace with its layout.
struct Trace<'f> {
    folder: &'f Folder,
    metadata: Metadata,
    tracer: Tracer,
    layout: Layout,
}

/// Reads all traces of an input.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let files = Files::of(input, METADATA)?;
    let folders = Folder::all(&files);
    let mut problems = Problems::default();
    if folders.is_empty() {
        let head = input.head();
        let is_metadata =
            metadata::is_packets(head) || metadata::is_plain(head) || metadata::is_json(head);
        let hint = match is_metadata {
            true => "\nhint: this is the metadata alone: name its directory",
            false => "",
        };
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Whole,
            message: "expected a directory or an archive (.tar, .zip) with a trace: a file \"metadata\" beside the files of its streams".to_owned() + hint,
        });
    }
    let traces = traces(input.name(), &files, &folders, &mut problems, sink)?;
    one_clock(input.name(), &traces)?;
    facts(&traces, sink)?;
    let plans = plans(&traces, sink)?;
    let streams = streams(&files, &traces, &mut problems, sink)?;
    files.release();
    let mut merge = Merge {
        gaps: gaps_of(&traces, &streams),
        files: &files,
        traces: &traces,
        plans: &plans,
        emitter: Emitter::default(),
        problems,
        packets: 0,
        done: 0,
        released: 0,
        total: streams
            .iter()
            .flatten()
            .map(|packet| packet.bytes as u64)
            .sum(),
    };
    merge.run(&streams, sink)?;
    merge.problems.finish(sink)
}

/// Parses the metadata of all traces. One that cannot be read is an error if it is the only one.
fn traces<'f>(
    name: &str,
    files: &Files,
    folders: &'f [Folder],
    problems: &mut Problems,
    sink: &mut dyn Sink,
) -> Result<Vec<Trace<'f>>, Error> {
    let mut traces = Vec::new();
    let mut first = None;
    for folder in folders {
        let parsed = metadata::parse(files.bytes(folder.metadata)).and_then(|metadata| {
            let tracer = Tracer::of(&metadata);
            let layout = layout::layout(&metadata, !tracer.is_kernel())?;
            Ok((metadata, tracer, layout))
        });
        let file = files.name(folder.metadata);
        match parsed {
            Ok((metadata, tracer, layout)) => {
                for (line, message) in &metadata.skipped {
                    problems.report(sink, Place::Line(*line), "metadata", || {
                        format!("{file}: {message}")
                    })?;
                }
                let clocks = &metadata.clocks;
                if let Some(first) = clocks.first()
                    && clocks.iter().any(|other| !other.runs_like(first))
                {
                    problems.report(sink, Place::Whole, "clocks", || {
                        format!(
                            "{file}: expected one clock, found {}; all times are read as those of {:?}",
                            clocks.len(),
                            first.name
                        )
                    })?;
                }
                traces.push(Trace {
                    folder,
                    metadata,
                    tracer,
                    layout,
                });
            }
            Err(Flaw { line, message }) => {
                let place = match line {
                    0 => Place::Whole,
                    line => Place::Line(line),
                };
                if folders.len() > 1 {
                    problems.report(sink, place, "trace", || format!("{file}: {message}"))?;
                }
                first = first.or(Some((place, format!("{file}: {message}"))));
            }
        }
    }
    match first {
        Some((place, message)) if traces.is_empty() => Err(Error::Damaged {
            input: name.to_owned(),
            place,
            message,
        }),
        _ => Ok(traces),
    }
}

/// Checks that times of all traces can be compared.
fn one_clock(name: &str, traces: &[Trace<'_>]) -> Result<(), Error> {
    let clocks = |trace: &Trace<'_>| trace.metadata.clocks.first().cloned();
    let is_same = |one: &Clock, other: &Clock| match (&one.uuid, &other.uuid) {
        (Some(one_uuid), Some(other_uuid)) => one_uuid == other_uuid && one.name == other.name,
        _ => one == other,
    };
    let Some(first) = traces.first() else {
        return Ok(());
    };
    let Some(clock) = clocks(first) else {
        return Ok(());
    };
    let other = traces
        .iter()
        .find(|trace| clocks(trace).is_some_and(|other| !is_same(&clock, &other)));
    let Some(other) = other else {
        return Ok(());
    };
    let shown = |trace: &Trace<'_>| format!("{name}/{}", trace.folder.name);
    Err(Error::Unsupported {
        input: name.to_owned(),
        message: format!(
            "its traces have different clocks, so that their times cannot be compared: {} and {}\nhint: name the directory of each trace",
            shown(first),
            shown(other)
        ),
    })
}

fn facts(traces: &[Trace<'_>], sink: &mut dyn Sink) -> Result<(), Error> {
    let clocks = || {
        traces
            .iter()
            .flat_map(|trace| trace.metadata.clocks.first())
    };
    if let Some(clock) = clocks().next() {
        sink.event(Event::Fact(Fact::Clock(match clock.name.as_str() {
            "" => "unknown",
            name => name,
        })))?;
        if let Some(offset) = clocks().find_map(Clock::wall_offset) {
            sink.event(Event::Fact(Fact::WallOffset(offset)))?;
        }
    }
    let Some(trace) = traces.first() else {
        return Ok(());
    };
    // Sessions are divided into chunks with the same ID.
    if let Some(uuid) = trace.metadata.uuid {
        let recording: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        sink.event(Event::Fact(Fact::Recording(&recording)))?;
    }
    // The clocks of LTTng have the ID of the boot.
    let boot = clocks().next().and_then(|clock| clock.uuid.as_deref());
    if let (Tracer::LttngKernel | Tracer::LttngUser, Some(boot)) = (trace.tracer, boot) {
        sink.event(Event::Fact(Fact::Other {
            name: "clock.boot_id",
            value: boot.trim_matches('"'),
        }))?;
    }
    let env = |name: &str| trace.metadata.env(name);
    if let Some(tracer) = env("tracer_name") {
        let mut recorder = tracer.to_owned();
        if let Some(major) = env("tracer_major") {
            recorder += &format!(" {major}.{}", env("tracer_minor").unwrap_or("0"));
        } else if let (Tracer::Perf, Some(version)) = (trace.tracer, env("version")) {
            recorder += &format!(" {version}");
        }
        sink.event(Event::Fact(Fact::Recorder(&recorder)))?;
    }
    let is_ours = env("tracer_name") == Some("perfquet");
    for (name, value) in trace.metadata.env.iter().take(FACTS_MAX) {
        let other = format!("ctf.{name}");
        sink.event(Event::Fact(match name.as_str() {
            "hostname" | "host" => Fact::Host(value),
            "kernel_release" | "release" => Fact::OsRelease(value),
            "machine" | "architecture" => Fact::Architecture(value),
            "command_line" if is_ours => Fact::CommandLine(value),
            "scope" if is_ours => Fact::Other {
                name: "scope",
                value,
            },
            _ => Fact::Other {
                name: &other,
                value,
            },
        }))?;
    }
    Ok(())
}

/// The plans of all event classes: by trace, stream, class.
type Plans = Vec<Vec<Vec<Plan>>>;

fn plans(traces: &[Trace<'_>], sink: &mut dyn Sink) -> Result<Plans, Error> {
    let mut types = Types::default();
    let mut plans = Plans::new();
    for trace in traces {
        let tracer_name = trace.metadata.env("tracer_name");
        let mut of_trace = Vec::new();
        for stream in &trace.layout.streams {
            let mut of_stream = Vec::new();
            for class in &stream.classes {
                of_stream.push(types.plan(class, trace.tracer, tracer_name, sink)?);
            }
            of_trace.push(of_stream);
        }
        plans.push(of_trace);
    }
    Ok(plans)
}

/// Finds the packets of all streams.
fn streams(
    files: &Files,
    traces: &[Trace<'_>],
    problems: &mut Problems,
    sink: &mut dyn Sink,
) -> Result<Vec<Vec<Packet>>, Error> {
    let mut streams = Streams::default();
    let mut touched = 0;
    for (place, trace) in traces.iter().enumerate() {
        let group = group_of(traces, place);
        for &file in &trace.folder.streams {
            let stream_file = StreamFile {
                trace: place,
                group,
                file,
                name: files.name(file),
                bytes: files.bytes(file),
                layout: &trace.layout,
                endian: trace.metadata.endian.unwrap_or_default(),
                release: &|| files.release(),
            };
            streams.add(&stream_file, problems, sink)?;
            touched += stream_file.bytes.len();
            if touched >= RELEASED_BYTES {
                touched = 0;
                files.release();
            }
        }
    }
    Ok(streams.finish())
}

/// The times between the sessions.
fn gaps_of(traces: &[Trace<'_>], streams: &[Vec<Packet>]) -> Vec<(i64, i64)> {
    gaps(streams, traces.len(), |packet| {
        let trace = traces.get(packet.trace)?;
        let clock = trace.metadata.clocks.first()?;
        let (begin, end) = (packet.begin?, packet.end?);
        let time = |cycles| time_of(clock.nanoseconds(cycles));
        // Packets of crashed programs end at 0.
        let span = (time(begin), time(begin.max(end)));
        Some((group_of(traces, packet.trace), span))
    })
}

/// Traces with one UUID are parts of one: snapshots, rotation.
fn group_of(traces: &[Trace<'_>], place: usize) -> usize {
    let uuid = traces.get(place).and_then(|trace| trace.metadata.uuid);
    let is_first = |other: &Trace<'_>| uuid.is_some() && other.metadata.uuid == uuid;
    traces.iter().position(is_first).unwrap_or(place)
}

/// A stream while it is read.
struct Cursor<'a> {
    decoder: Decoder<'a>,
    packets: std::slice::Iter<'a, Packet>,
    packet: Option<&'a Packet>,
    stream: Option<&'a StreamLayout>,
    clock: Option<&'a Clock>,
    /// Where the current event begins, in bits.
    event_at: u64,
    /// The time of the current event.
    time: Option<i64>,
    /// The last readable event, or the begin of the packet: its time, and its cycles.
    last: (Option<i64>, u64),
}

struct Merge<'a> {
    /// Times that no session recorded, the last one first.
    gaps: Vec<(i64, i64)>,
    files: &'a Files,
    traces: &'a [Trace<'a>],
    plans: &'a Plans,
    emitter: Emitter,
    problems: Problems,
    packets: u64,
    done: u64,
    released: u64,
    total: u64,
}

impl<'a> Merge<'a> {
    fn run(&mut self, streams: &'a [Vec<Packet>], sink: &mut dyn Sink) -> Result<(), Error> {
        let mut cursors: Vec<Cursor<'a>> = Vec::new();
        for packets in streams {
            let layouts = packets
                .iter()
                .filter_map(|packet| self.traces.get(packet.trace));
            let sizes = layouts.map(|trace| (trace.layout.registers, trace.layout.columns));
            let (registers, columns) = sizes.fold((0, 0), |most, size| {
                (most.0.max(size.0), most.1.max(size.1))
            });
            cursors.push(Cursor {
                decoder: Decoder::new(registers, columns),
                packets: packets.iter(),
                packet: None,
                stream: None,
                clock: None,
                event_at: 0,
                time: None,
                last: (None, 0),
            });
        }
        let mut heap = BinaryHeap::new();
        for (place, cursor) in cursors.iter_mut().enumerate() {
            if self.advance(cursor, sink)? {
                heap.push(Reverse((cursor.time.unwrap_or(i64::MIN), place)));
            }
        }
        while let Some(Reverse((_, place))) = heap.pop() {
            let Some(cursor) = cursors.get_mut(place) else {
                break;
            };
            // Most often, the next event is of the same stream.
            loop {
                self.pause(cursor.time, sink)?;
                self.event(cursor, sink)?;
                if !self.advance(cursor, sink)? {
                    break;
                }
                let next = Reverse((cursor.time.unwrap_or(i64::MIN), place));
                if heap.peek().is_some_and(|other| *other > next) {
                    heap.push(next);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reports the time between two sessions before the first event of the later one.
    #[inline]
    fn pause(&mut self, time: Option<i64>, sink: &mut dyn Sink) -> Result<(), Error> {
        while let Some((begin, end)) = self.gaps.pop_if(|gap| time >= Some(gap.1)) {
            for (time, reason) in [(begin, PauseRecord::PAUSED), (end, PauseRecord::RESUMED)] {
                sink.event(Event::Loss(Loss {
                    time: Some(time),
                    cpu: None,
                    event: None,
                    count: None,
                    in_all: None,
                    reason,
                }))?;
            }
        }
        Ok(())
    }

    /// Goes to the next event, up to its header; `false` after the last one.
    fn advance(&mut self, cursor: &mut Cursor<'a>, sink: &mut dyn Sink) -> Result<bool, Error> {
        loop {
            if let (Some(packet), Some(stream)) = (cursor.packet, cursor.stream) {
                if cursor.decoder.at < packet.content_bits {
                    cursor.event_at = cursor.decoder.at;
                    cursor.decoder.event(stream.packet_columns);
                    let header = stream.event_header.as_ref();
                    match header.map_or(Ok(()), |header| cursor.decoder.decode(header)) {
                        Ok(()) => {
                            if stream.has_clock {
                                cursor.time = cursor.now(cursor.decoder.clock);
                            }
                            match cursor.flaw(packet, stream) {
                                None => return Ok(true),
                                Some(flaw) => self.broken(cursor, packet, &flaw, sink)?,
                            }
                        }
                        Err(reason) => self.broken(cursor, packet, reason, sink)?,
                    }
                }
                self.end(cursor, packet, sink)?;
            }
            let Some(packet) = cursor.packets.next() else {
                cursor.packet = None;
                return Ok(false);
            };
            self.begin(cursor, packet, sink)?;
        }
    }

    fn begin(
        &mut self,
        cursor: &mut Cursor<'a>,
        packet: &'a Packet,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(trace) = self.traces.get(packet.trace) else {
            return Ok(());
        };
        let bytes = self.files.bytes(packet.file);
        let bytes = bytes.get(packet.offset..packet.offset + packet.bytes);
        cursor.decoder.packet(bytes.unwrap_or_default());
        cursor.packet = Some(packet);
        cursor.clock = trace.metadata.clocks.first();
        cursor.stream = match packets::open(&trace.layout, &mut cursor.decoder) {
            Ok((_, stream)) => Some(stream),
            // Its head was read before.
            Err(_) => None,
        };
        cursor.decoder.end = packet.content_bits;
        if let Some(begin) = packet.begin {
            cursor.decoder.clock = begin;
            cursor.last = (cursor.now(begin), begin);
        }
        if packet.lost_packets > 0 {
            sink.event(Event::Loss(Loss {
                time: packet.begin.and_then(|begin| cursor.now(begin)),
                cpu: cursor.cpu(),
                event: None,
                count: None,
                in_all: None,
                reason: "packet lost",
            }))?;
        }
        self.packets += 1;
        self.done += packet.bytes as u64;
        if self.done - self.released >= RELEASED_BYTES as u64 {
            self.released = self.done;
            self.files.release();
        }
        if self.packets.is_multiple_of(PROGRESS_PACKETS) {
            let (done, total) = (self.done, Some(self.total));
            sink.event(Event::Progress(Progress { done, total }))?;
        }
        Ok(())
    }

    fn end(
        &mut self,
        cursor: &mut Cursor<'a>,
        packet: &Packet,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        cursor.packet = None;
        if packet.lost == 0 {
            return Ok(());
        }
        // In traces of crashed programs, packets end at 0.
        let end = packet.end.filter(|end| packet.begin <= Some(*end));
        sink.event(Event::Loss(Loss {
            time: end.and_then(|end| cursor.now(end)).or(cursor.time),
            cpu: cursor.cpu(),
            event: None,
            count: Some(packet.lost),
            in_all: None,
            reason: "buffer full",
        }))
    }

    /// Reports an event that cannot be read. The rest of its packet is lost, from the last event that could be.
    fn broken(
        &mut self,
        cursor: &mut Cursor<'a>,
        packet: &Packet,
        reason: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let offset = packet.offset as u64 + cursor.event_at / 8;
        let bytes = packet
            .content_bits
            .saturating_sub(cursor.event_at)
            .div_ceil(8);
        let file = self.files.name(packet.file);
        self.problems
            .report(sink, Place::Offset(offset), "event", || {
                format!("{file}: {reason}; {bytes} bytes to the end of the packet are skipped")
            })?;
        (cursor.time, cursor.decoder.clock) = cursor.last;
        sink.event(Event::Loss(Loss {
            time: cursor.time,
            cpu: cursor.cpu(),
            event: None,
            count: None,
            in_all: None,
            reason: "unreadable",
        }))?;
        cursor.decoder.at = packet.content_bits;
        Ok(())
    }

    /// Decodes and emits the current event.
    fn event(&mut self, cursor: &mut Cursor<'a>, sink: &mut dyn Sink) -> Result<(), Error> {
        let (Some(packet), Some(stream)) = (cursor.packet, cursor.stream) else {
            return Ok(());
        };
        let Some(place) = class_of(stream, &cursor.decoder) else {
            return Ok(());
        };
        let plans = self.plans.get(packet.trace);
        let plan = plans
            .and_then(|streams| streams.get(packet.stream))
            .and_then(|classes| classes.get(place));
        let (Some(class), Some(plan)) = (stream.classes.get(place), plan) else {
            return Ok(());
        };
        let nodes = [&stream.event_context, &class.context, &class.fields];
        for node in nodes.into_iter().flatten() {
            if let Err(reason) = cursor.decoder.decode(node) {
                return self.broken(cursor, packet, reason, sink);
            }
        }
        if cursor.decoder.at > packet.content_bits {
            return self.broken(cursor, packet, "an event reaches past its packet", sink);
        }
        if cursor.decoder.at == cursor.event_at {
            return self.broken(cursor, packet, "an event without any bits", sink);
        }
        cursor.last = (cursor.time, cursor.decoder.clock);
        self.emitter.emit(plan, &cursor.decoder, cursor.time, sink)
    }
}

/// The class of the current event.
#[inline]
fn class_of(stream: &StreamLayout, decoder: &Decoder<'_>) -> Option<usize> {
    let place = stream.by_id.get(&decoder.id).copied();
    // The only event needs no ID.
    let is_only = || stream.classes.len() == 1 && stream.event_header.is_none();
    place.or_else(|| is_only().then_some(0))
}

impl Cursor<'_> {
    /// Why the header of the current event is not one.
    #[inline]
    fn flaw(&self, packet: &Packet, stream: &StreamLayout) -> Option<String> {
        if class_of(stream, &self.decoder).is_none() {
            return Some(format!("the metadata has no event {}", self.decoder.id));
        }
        // Packets of crashed programs end at 0.
        let end = packet.end.filter(|end| packet.begin <= Some(*end));
        let end = end.and_then(|end| self.now(end));
        let (time, last) = (self.time?, self.last.0);
        let is_outside = end.is_some_and(|end| time > end.saturating_add(SLACK_NS))
            || last.is_some_and(|last| time < last.saturating_sub(SLACK_NS));
        is_outside.then(|| "an event outside of the time of its packet".to_owned())
    }

    /// Cycles as time.
    fn now(&self, cycles: u64) -> Option<i64> {
        Some(time_of(self.clock?.nanoseconds(cycles)))
    }

    fn cpu(&self) -> Option<u32> {
        let register = self.stream?.roles.cpu?;
        let cpu = u32::try_from(self.decoder.register(register)).ok();
        cpu.filter(|cpu| *cpu != u32::MAX)
    }
}
