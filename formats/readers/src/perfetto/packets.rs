//! Packets → entries that are sorted by time. A packet's meaning depends on those before it in its sequence.

use std::borrow::Cow;
use std::io::Read;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Place, Sink};

use super::clock::Clocks;
use super::entry::{Entry, Item};
use super::interned::{Defaults, Interned};
use super::kernel::Schemas;
use super::names::{Fate, kind};
use super::tracks::Tracks;
use crate::problems::Problems;
use crate::protobuf::{Damage, Message, Value};

/// Of all compressed packets, unless the file is large.
const INFLATED_MIN: u64 = 64 << 20;
/// Far more than packets can be compressed.
const INFLATED_FACTOR: u64 = 100;
/// Fields of a `TrackEvent`: flow_ids and terminating_flow_ids, in both forms; thread_time and thread_instruction_count, absolute and as
/// differences.
const FLOWS: [u64; 4] = [36, 42, 47, 48];
const THREAD_COUNTS: [u64; 4] = [2, 8, 17, 20];
/// Sequences with a state.
const SEQUENCES_MAX: usize = 1 << 20;

/// A stretch of packets: of the file, or the contents of a compressed packet.
pub(super) struct Piece<'a> {
    offset: u64,
    bytes: Cow<'a, [u8]>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sequence {
    state: u32,
    defaults: u32,
    thread: u32,
    /// Whether interned data is whole.
    is_valid: bool,
    /// For times as differences, in nanoseconds.
    legacy_time: Option<i64>,
}

/// What the packets contain.
#[derive(Default)]
pub(super) struct Contents<'a> {
    pub(super) clocks: Clocks,
    pub(super) tracks: Tracks<'a>,
    pub(super) schemas: Schemas,
    pub(super) states: Vec<Interned<'a>>,
    pub(super) defaults: Vec<Defaults<'a>>,
    /// Process and thread of sequences without tracks.
    pub(super) threads: Vec<(Option<i32>, Option<i32>)>,
    pub(super) entries: Vec<Entry<'a>>,
    /// Packets by the number of their data.
    pub(super) others: HashMap<u64, u64>,
    pub(super) trees: Vec<&'a [u8]>,
    pub(super) facts: Vec<(u64, &'a [u8])>,
    /// Overruns by CPU: at the start, at the end.
    pub(super) overruns: HashMap<u64, (u64, u64)>,
    /// Losses of Perfetto's own buffers up to the last packet with statistics.
    pub(super) buffer_losses: [(u64, &'static str); 3],
    /// Slices with what no table holds: flows to other slices, time and instructions of their threads.
    pub(super) flows: u64,
    pub(super) thread_counts: u64,
    pub(super) packets: u64,
    sequences: HashMap<u64, Sequence>,
}

/// Members of a packet.
#[derive(Default)]
struct Packet<'a> {
    time: Option<u64>,
    clock: Option<u64>,
    sequence: u64,
    flags: u64,
    is_cleared: bool,
    is_after_loss: bool,
    is_first: bool,
    interned: Option<&'a [u8]>,
    defaults: Option<&'a [u8]>,
    data: Option<(u64, &'a [u8])>,
}

/// The stretches of a file, with compressed packets inflated.
pub(super) fn pieces<'a>(
    bytes: &'a [u8],
    problems: &mut Problems,
    sink: &mut dyn Sink,
) -> Result<Vec<Piece<'a>>, Error> {
    let mut pieces = Vec::new();
    let mut left = INFLATED_MIN.max(INFLATED_FACTOR.saturating_mul(bytes.len() as u64));
    let (mut start, mut place) = (0, 0);
    let mut fields = Message::new(bytes, 0);
    let push = |pieces: &mut Vec<Piece<'a>>, start: usize, end: usize| {
        if let Some(bytes) = bytes.get(start..end).filter(|bytes| !bytes.is_empty()) {
            pieces.push(Piece {
                offset: start as u64,
                bytes: Cow::Borrowed(bytes),
            });
        }
    };
    while let Some(Ok(field)) = fields.next() {
        let end = fields.place();
        if let Some((is_zstd, body)) = field.value.bytes().and_then(compressed) {
            push(&mut pieces, start, place);
            let (bytes, is_whole) = inflate(is_zstd, body, left);
            left = left.saturating_sub(bytes.len() as u64);
            if !is_whole {
                let message = || "compressed packets that cannot be inflated whole".to_owned();
                problems.report(sink, Place::Offset(field.offset), "inflate", message)?;
            }
            pieces.push(Piece {
                offset: field.offset,
                bytes: Cow::Owned(bytes),
            });
            start = end;
        }
        place = end;
    }
    push(&mut pieces, start, bytes.len());
    Ok(pieces)
}

/// The contents of a packet with compressed packets, and whether they are zstd.
fn compressed(packet: &[u8]) -> Option<(bool, &[u8])> {
    // Other fields precede it only seldom, and they are few.
    let mut fields = Message::new(packet, 0).map_while(Result::ok).take(8);
    fields.find_map(|field| match (field.number, field.value) {
        (50, Value::Bytes(body)) => Some((false, body)),
        (133, Value::Bytes(body)) => Some((true, body)),
        _ => None,
    })
}

fn inflate(is_zstd: bool, body: &[u8], limit: u64) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let outcome = match is_zstd {
        true => zstd::stream::read::Decoder::new(body)
            .and_then(|decoder| decoder.take(limit).read_to_end(&mut bytes)),
        false => flate2::read::ZlibDecoder::new(body)
            .take(limit)
            .read_to_end(&mut bytes),
    };
    (bytes, outcome.is_ok_and(|length| (length as u64) < limit))
}

/// The losses in a `TraceStats`, of all its buffers.
fn buffer_losses(data: &[u8]) -> [(u64, &'static str); 3] {
    let mut losses = [
        (0u64, "Perfetto's buffer was full: chunks were overwritten"),
        (0, "Perfetto's buffer was full: chunks were discarded"),
        (0, "a program's buffer was full: packets were dropped"),
    ];
    let fields = Message::new(data, 0).map_while(Result::ok);
    let buffers = fields.filter(|field| field.number == 1);
    for buffer in buffers.filter_map(|field| field.value.bytes()) {
        for field in Message::new(buffer, 0).map_while(Result::ok) {
            let index = [3, 18, 19]
                .iter()
                .position(|number| *number == field.number);
            let loss = index.and_then(|index| losses.get_mut(index));
            if let (Some(loss), Value::Number(count)) = (loss, field.value) {
                loss.0 = loss.0.saturating_add(count);
            }
        }
    }
    losses
}

impl<'a> Contents<'a> {
    /// Whether our exporter has written the trace: it names its attributes `perfquet.clock`.
    pub(super) fn is_ours(&self) -> bool {
        let holds = |body: &[u8]| body.windows(9).any(|part| part == b"perfquet.");
        let mut facts = self.facts.iter();
        facts.any(|(number, body)| *number == 126 && holds(body))
    }

    /// Takes the packets of all pieces.
    pub(super) fn read(
        &mut self,
        pieces: &'a [Piece<'a>],
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        self.states.push(Interned::default());
        self.defaults.push(Defaults::default());
        self.threads.push((None, None));
        for piece in pieces {
            for field in Message::new(&piece.bytes, piece.offset) {
                match field {
                    Ok(field) => {
                        if let (1, Value::Bytes(body)) = (field.number, field.value) {
                            self.packets += 1;
                            self.packet(body, field.offset, problems, sink)?;
                        }
                    }
                    Err(Damage { offset, message }) => {
                        let message = || format!("{message}; the packets after it are not read");
                        problems.report(sink, Place::Offset(offset), "trace", message)?;
                    }
                }
            }
        }
        self.entries.sort_by_key(|entry| (entry.time, entry.rank));
        Ok(())
    }

    fn packet(
        &mut self,
        body: &'a [u8],
        offset: u64,
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (packet, damage) = Packet::of(body, offset);
        if let Some(damage) = damage {
            let message = || format!("packet: {}", damage.message);
            problems.report(sink, Place::Offset(damage.offset), "packet", message)?;
        }
        let mut sequence = match self.sequences.get(&packet.sequence) {
            Some(sequence) => *sequence,
            None => Sequence::default(),
        };
        self.update(&mut sequence, &packet);
        let needs_state = packet.flags & 2 != 0;
        let is_readable = !needs_state || sequence.is_valid;
        if let Some((number, data)) = packet.data
            && is_readable
        {
            let is_timed = self.data(&mut sequence, &packet, number, data, problems, sink)?;
            if !is_timed {
                let message =
                    || "packets on a clock that no snapshot relates to the trace's".to_owned();
                problems.report(sink, Place::Offset(offset), "clock", message)?;
            }
        }
        if self.sequences.len() < SEQUENCES_MAX || self.sequences.contains_key(&packet.sequence) {
            self.sequences.insert(packet.sequence, sequence);
        }
        if packet.data.is_some() && !is_readable {
            let message = || "packets whose interned data is lost".to_owned();
            problems.report(sink, Place::Offset(offset), "interned", message)?;
        }
        Ok(())
    }

    /// Follows the state of a sequence.
    fn update(&mut self, sequence: &mut Sequence, packet: &Packet<'a>) {
        if packet.is_cleared || packet.flags & 1 != 0 {
            sequence.is_valid = true;
            sequence.state = self.states.len() as u32;
            self.states.push(Interned::default());
            sequence.defaults = 0;
            sequence.legacy_time = None;
        } else if packet.is_after_loss && !packet.is_first {
            sequence.is_valid = false;
            let time = self.entries.last().map_or(0, |entry| entry.time);
            self.entries.push(Entry {
                time,
                rank: 0,
                item: Item::Loss {
                    cpu: None,
                    count: None,
                    reason: "packets of a sequence were dropped",
                },
            });
        }
        if let Some(defaults) = packet.defaults {
            sequence.defaults = self.defaults.len() as u32;
            self.defaults.push(Defaults::of(defaults));
        }
        if let Some(interned) = packet.interned {
            if sequence.state == 0 {
                sequence.state = self.states.len() as u32;
                self.states.push(Interned::default());
            }
            if let Some(state) = self.states.get_mut(sequence.state as usize) {
                state.add(interned);
            }
        }
    }

    /// The time of a packet on the trace's clock.
    fn time(&mut self, sequence: &Sequence, packet: &Packet<'_>) -> Option<i64> {
        let default = self.defaults.get(sequence.defaults as usize)?.clock;
        let clock = packet.clock.or(default).unwrap_or(self.clocks.trace());
        self.clocks.time(packet.sequence, clock, packet.time?)
    }

    /// Takes the data of a packet; false if it has no time.
    fn data(
        &mut self,
        sequence: &mut Sequence,
        packet: &Packet<'a>,
        number: u64,
        data: &'a [u8],
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<bool, Error> {
        match number {
            1 => return self.bundle(data, problems, sink),
            2 => self.trees.push(data),
            6 => self.clocks.snapshot(packet.sequence, data),
            7 | 9 | 11 | 66 => {
                let time = match number {
                    11 if packet.time.is_none() => self.legacy_time(sequence, data),
                    _ => self.time(sequence, packet),
                };
                let Some(time) = time else {
                    return Ok(false);
                };
                self.timed(sequence, packet, number, data, time);
            }
            34 => self.ftrace_stats(data),
            35 => self.buffer_losses = buffer_losses(data),
            43 | 44 => {
                let (thread, reference) = self.tracks.legacy(number, data);
                if number == 44 {
                    sequence.thread = self.threads.len() as u32;
                    self.threads.push(thread);
                    sequence.legacy_time = reference;
                }
            }
            60 => self.tracks.descriptor(data),
            45 | 126 => self.facts.push((number, data)),
            _ => {}
        }
        if !matches!(kind(number), Some((_, _, Fate::Read))) {
            *self.others.entry(number).or_default() += 1;
        }
        Ok(true)
    }

    fn timed(
        &mut self,
        sequence: &Sequence,
        packet: &Packet<'a>,
        number: u64,
        body: &'a [u8],
        time: i64,
    ) {
        let (state, defaults) = (sequence.state, sequence.defaults);
        let (item, rank) = match number {
            11 => {
                let duration = super::tracks::complete(body).unwrap_or(-1);
                let numbers = || Message::new(body, 0).map_while(Result::ok);
                let has = |wanted: &[u64]| numbers().any(|field| wanted.contains(&field.number));
                self.flows += u64::from(has(&FLOWS));
                self.thread_counts += u64::from(has(&THREAD_COUNTS));
                let item = Item::Track {
                    body,
                    state,
                    defaults,
                    thread: sequence.thread,
                    duration,
                };
                (item, duration.max(0).saturating_neg())
            }
            7 | 9 => {
                let packet = number;
                (Item::Statistics { packet, body }, 0)
            }
            _ => {
                let item = Item::Sample {
                    body,
                    state,
                    defaults,
                    sequence: packet.sequence as u32,
                };
                (item, 0)
            }
        };
        self.entries.push(Entry { time, rank, item });
    }

    /// The time in a track event itself, on MONOTONIC.
    fn legacy_time(&mut self, sequence: &mut Sequence, data: &[u8]) -> Option<i64> {
        let mut fields = Message::new(data, 0).map_while(Result::ok);
        let time = fields.find_map(|field| match (field.number, field.value) {
            (1, Value::Number(delta)) => {
                let delta = delta.cast_signed().saturating_mul(1000);
                let time = sequence.legacy_time?.saturating_add(delta);
                sequence.legacy_time = Some(time);
                Some(time)
            }
            (16, Value::Number(time)) => Some(time.cast_signed().saturating_mul(1000)),
            _ => None,
        })?;
        self.clocks.time(0, 3, u64::try_from(time).ok()?)
    }

    fn ftrace_stats(&mut self, data: &[u8]) {
        let mut is_end = false;
        for field in Message::new(data, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(phase)) => is_end = phase == 2,
                (2, Value::Bytes(cpu)) => {
                    let (mut id, mut lost) = (0, 0u64);
                    for field in Message::new(cpu, 0).map_while(Result::ok) {
                        match (field.number, field.value) {
                            (1, Value::Number(value)) => id = value,
                            (3 | 4 | 8, Value::Number(value)) => lost = lost.saturating_add(value),
                            _ => {}
                        }
                    }
                    let overruns = self.overruns.entry(id).or_default();
                    match is_end {
                        true => overruns.1 = lost,
                        false => *overruns = (lost, lost),
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes an ftrace bundle; false if its clock has no relation to the trace's.
    fn bundle(
        &mut self,
        data: &'a [u8],
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<bool, Error> {
        let mut bundle = Bundle {
            cpu: 0,
            clock: 6,
            times: (None, None),
            is_lossy: false,
        };
        for field in Message::new(data, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(cpu)) => bundle.cpu = u32::try_from(cpu).unwrap_or(u32::MAX),
                (3, Value::Number(lost)) => bundle.is_lossy = lost != 0,
                (5, Value::Number(clock)) => {
                    bundle.clock = [6, 6, 0, 0, 5].get(clock as usize).copied().unwrap_or(6)
                }
                (6, Value::Number(time)) => bundle.times.0 = Some(time.cast_signed()),
                (7, Value::Number(time)) => bundle.times.1 = Some(time.cast_signed()),
                (11, Value::Bytes(descriptor)) => self.schemas.describe(descriptor),
                _ => {}
            }
        }
        let (first, mut is_timed) = (self.entries.len(), true);
        for field in Message::new(data, 0) {
            match field {
                Ok(field) => match (field.number, field.value) {
                    (2, Value::Bytes(body)) => is_timed &= self.ftrace_event(&bundle, body),
                    (4, Value::Bytes(body)) => is_timed &= self.compact(&bundle, body),
                    _ => {}
                },
                Err(damage) => {
                    let message = || format!("bundle: {}", damage.message);
                    problems.report(sink, Place::Whole, "bundle", message)?;
                }
            }
        }
        if bundle.is_lossy {
            let added = self.entries.get(first..).unwrap_or_default();
            let time = added.iter().map(|entry| entry.time).min();
            let last = self.entries.last().map(|entry| entry.time);
            self.entries.push(Entry {
                time: time.or(last).unwrap_or(0),
                rank: 0,
                item: Item::Loss {
                    cpu: Some(bundle.cpu),
                    count: None,
                    reason: "events of an ftrace bundle were lost before it",
                },
            });
        }
        Ok(is_timed)
    }

    fn bundle_time(&mut self, bundle: &Bundle, time: u64) -> Option<i64> {
        match (bundle.clock, bundle.times) {
            (0, (Some(ftrace), Some(boot))) => {
                let since = time.cast_signed().wrapping_sub(ftrace);
                let time = boot.checked_add(since)?;
                self.clocks.time(0, 6, u64::try_from(time).ok()?)
            }
            (0, _) => None,
            (clock, _) => self.clocks.time(0, clock, time),
        }
    }

    fn ftrace_event(&mut self, bundle: &Bundle, body: &'a [u8]) -> bool {
        let mut fields = Message::new(body, 0).map_while(Result::ok);
        let time = fields.find(|field| field.number == 1);
        let time = time.and_then(|field| field.value.number()).unwrap_or(0);
        let Some(time) = self.bundle_time(bundle, time) else {
            return false;
        };
        let item = Item::Ftrace {
            cpu: bundle.cpu,
            body,
        };
        self.entries.push(Entry {
            time,
            rank: 0,
            item,
        });
        true
    }

    fn compact(&mut self, bundle: &Bundle, body: &'a [u8]) -> bool {
        let mut texts: Vec<&'a [u8]> = Vec::new();
        let mut columns: [Vec<u64>; 13] = Default::default();
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (5, Value::Bytes(text)) => texts.push(text),
                (number, value) => {
                    if let Some(column) = columns.get_mut(number as usize) {
                        column.extend(value.numbers());
                    }
                }
            }
        }
        let number = |column: usize, row: usize| {
            let column = columns.get(column)?;
            column.get(row).copied()
        };
        let int = |column, row| number(column, row).unwrap_or(0) as i32;
        let comm = |column, row| {
            let place = usize::try_from(number(column, row)?).ok()?;
            texts.get(place).copied()
        };
        let cpu = bundle.cpu;
        let mut is_timed = true;
        for (times, is_switch) in [(1, true), (7, false)] {
            let (mut time, mut row) = (0u64, 0);
            while let Some(delta) = number(times, row) {
                time = time.wrapping_add(delta);
                let item = match is_switch {
                    true => Item::Switch {
                        cpu,
                        state: number(2, row).unwrap_or(0).cast_signed(),
                        tid: int(3, row),
                        priority: int(4, row),
                        comm: comm(6, row).unwrap_or_default(),
                    },
                    false => Item::Waking {
                        cpu,
                        tid: int(8, row),
                        target: int(9, row),
                        priority: int(10, row),
                        comm: comm(11, row).unwrap_or_default(),
                    },
                };
                row += 1;
                match self.bundle_time(bundle, time) {
                    Some(time) => self.entries.push(Entry {
                        time,
                        rank: 0,
                        item,
                    }),
                    None => is_timed = false,
                }
            }
        }
        is_timed
    }
}

struct Bundle {
    cpu: u32,
    /// 0: see `times`.
    clock: u64,
    /// A moment on the bundle's clock, and on BOOTTIME.
    times: (Option<i64>, Option<i64>),
    is_lossy: bool,
}

impl<'a> Packet<'a> {
    /// The members of a packet up to the first damage, and that damage.
    fn of(body: &'a [u8], offset: u64) -> (Packet<'a>, Option<Damage>) {
        let mut packet = Packet::default();
        for field in Message::new(body, offset) {
            let field = match field {
                Ok(field) => field,
                Err(damage) => return (packet, Some(damage)),
            };
            match (field.number, field.value) {
                (8, Value::Number(time)) => packet.time = Some(time),
                (58, Value::Number(clock)) => packet.clock = Some(clock),
                (10, Value::Number(sequence)) => packet.sequence = sequence,
                (13, Value::Number(flags)) => packet.flags = flags,
                (41, Value::Number(value)) => packet.is_cleared = value != 0,
                (42, Value::Number(value)) => packet.is_after_loss = value != 0,
                (87, Value::Number(value)) => packet.is_first = value != 0,
                (12, Value::Bytes(body)) => packet.interned = Some(body),
                (59, Value::Bytes(body)) => packet.defaults = Some(body),
                // They are separate pieces.
                (50 | 133, _) => {}
                (number, Value::Bytes(body)) => packet.data = Some((number, body)),
                _ => {}
            }
        }
        (packet, None)
    }
}
