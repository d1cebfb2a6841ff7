//! Tracks, and the events on them: calls, markers, counters.
//!
//! ```text
//! track 7: thread 101 of process 100        track 8: counter "queue" below track 9, process 100
//! ```

use hashbrown::HashMap;
use perfquet_events::event::{Common, Event, FieldType, Sink};
use perfquet_events::{Error, event::Comm};

use super::interned::{Defaults, Interned, text};
use crate::protobuf::{Message, Value};

/// Columns of a marker, and names of them that are nested.
pub(super) const COLUMNS_MAX: usize = 64;
const NESTED_MAX: u32 = 8;
/// Parents of a track that are followed.
const PARENTS_MAX: u32 = 64;

#[derive(Debug, Default, Clone, Copy)]
struct Track<'a> {
    parent: Option<u64>,
    name: &'a [u8],
    pid: Option<i32>,
    tid: Option<i32>,
    counter: Option<Counter>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counter {
    kind: u64,
    multiplier: i64,
    is_incremental: bool,
}

/// Process, thread and name.
type Named<'a> = (Option<i32>, i32, &'a [u8]);

/// All tracks.
#[derive(Debug, Default)]
pub(super) struct Tracks<'a> {
    by_uuid: HashMap<u64, Track<'a>>,
    process_names: Vec<Named<'a>>,
    thread_names: Vec<Named<'a>>,
    totals: HashMap<u64, f64>,
}

/// Where an event is.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    /// Calls on it nest as those of a thread do.
    pub(super) is_thread: bool,
    pub(super) track: &'a [u8],
    uuid: u64,
}

impl<'a> Tracks<'a> {
    /// Takes a `TrackDescriptor`.
    pub(super) fn descriptor(&mut self, body: &'a [u8]) {
        let (mut uuid, mut track) = (0, Track::default());
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(value)) => uuid = value,
                (2 | 10 | 13, Value::Bytes(name)) => track.name = name,
                (5, Value::Number(parent)) => track.parent = Some(parent),
                (3, Value::Bytes(process)) => {
                    let ((pid, _), _) = self.legacy(43, process);
                    track.pid = pid;
                }
                (4, Value::Bytes(thread)) => {
                    ((track.pid, track.tid), _) = self.legacy(44, thread);
                }
                (8, Value::Bytes(counter)) => track.counter = Some(Counter::of(counter)),
                _ => {}
            }
        }
        self.by_uuid.insert(uuid, track);
    }

    /// Takes a `ProcessDescriptor` or `ThreadDescriptor`: its process and thread, and its reference time in nanoseconds.
    pub(super) fn legacy(
        &mut self,
        number: u64,
        body: &'a [u8],
    ) -> ((Option<i32>, Option<i32>), Option<i64>) {
        let is_thread = number == 44;
        let (mut pid, mut tid, mut name, mut reference) = (None, None, &b""[..], None);
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value, is_thread) {
                (1, Value::Number(value), _) => pid = Some(value as i32),
                (2, Value::Number(value), true) => tid = Some(value as i32),
                (5, Value::Bytes(value), true) | (6, Value::Bytes(value), false) => name = value,
                (6, Value::Number(value), true) => {
                    reference = Some(value.cast_signed().saturating_mul(1000));
                }
                _ => {}
            }
        }
        let named = if is_thread { tid } else { pid };
        if let Some(named) = named.filter(|_| !name.is_empty()) {
            let names = match is_thread {
                true => &mut self.thread_names,
                false => &mut self.process_names,
            };
            names.push((pid, named, name));
        }
        ((pid, tid), reference)
    }

    pub(super) fn emit_names(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        // The name of a process is that of its first thread, unless that has one itself.
        for &(pid, tid, comm) in self.process_names.iter().chain(&self.thread_names) {
            sink.event(Event::Comm(Comm {
                time: None,
                pid,
                tid,
                comm,
                exec: false,
            }))?;
        }
        Ok(())
    }

    fn place(&self, uuid: u64) -> Place<'a> {
        let Some(own) = self.by_uuid.get(&uuid) else {
            return Place {
                uuid,
                ..Place::default()
            };
        };
        let mut place = Place {
            pid: own.pid,
            tid: own.tid,
            is_thread: own.tid.is_some(),
            track: own.name,
            uuid,
        };
        let (mut parent, mut left) = (own.parent, PARENTS_MAX);
        while let Some(track) = parent.and_then(|parent| self.by_uuid.get(&parent))
            && left > 0
        {
            place.pid = place.pid.or(track.pid);
            place.tid = place.tid.or(track.tid);
            (parent, left) = (track.parent, left - 1);
        }
        place
    }

    /// A counter's name, and the value that it has after an event.
    pub(super) fn count(&mut self, uuid: u64, value: f64) -> (String, Place<'a>, f64) {
        let place = self.place(uuid);
        let counter = self.by_uuid.get(&uuid).and_then(|track| track.counter);
        let counter = counter.unwrap_or_default();
        let name = match (place.track, counter.kind) {
            (b"", 1) => "thread_time".to_owned(),
            (b"", 2) => "thread_instruction_count".to_owned(),
            (b"", _) => format!("counter {uuid}"),
            (name, _) => String::from_utf8_lossy(name).into_owned(),
        };
        let mut value = value * counter.multiplier.max(1) as f64;
        if counter.is_incremental {
            let total = self.totals.entry(uuid).or_default();
            *total += value;
            value = *total;
        }
        (name, place, value)
    }
}

impl Counter {
    fn of(body: &[u8]) -> Counter {
        let mut counter = Counter::default();
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(kind)) => counter.kind = kind,
                (4, Value::Number(value)) => counter.multiplier = value.cast_signed(),
                (5, Value::Number(value)) => counter.is_incremental = value != 0,
                _ => {}
            }
        }
        counter
    }
}

/// The duration of a legacy event of phase X, in nanoseconds.
pub(super) fn complete(body: &[u8]) -> Option<i64> {
    let mut fields = Message::new(body, 0).map_while(Result::ok);
    let legacy = fields.find(|field| field.number == 6)?.value.bytes()?;
    let legacy = Legacy::of(legacy);
    (legacy.phase == b'X').then(|| legacy.duration.unwrap_or(0))
}

#[derive(Debug, Default, Clone, Copy)]
struct Legacy {
    phase: u8,
    name: Option<u64>,
    duration: Option<i64>,
    id: Option<u64>,
    pid: Option<i32>,
    tid: Option<i32>,
}

impl Legacy {
    fn of(body: &[u8]) -> Legacy {
        let mut legacy = Legacy::default();
        for field in Message::new(body, 0).map_while(Result::ok) {
            let Value::Number(value) = field.value else {
                continue;
            };
            match field.number {
                1 => legacy.name = Some(value),
                2 => legacy.phase = u8::try_from(value).unwrap_or(b'?'),
                3 => legacy.duration = Some(value.cast_signed().saturating_mul(1000)),
                6 | 10 | 11 => legacy.id = Some(value),
                18 => legacy.pid = Some(value as i32),
                19 => legacy.tid = Some(value as i32),
                _ => {}
            }
        }
        legacy
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Begin,
    End,
    Complete,
    Instant,
    Counter,
    /// A step of a flow, or a kind of event that is not known.
    Unread,
}

/// An event on a track.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackEvent<'a> {
    pub(super) phase: Phase,
    pub(super) name: &'a [u8],
    pub(super) category: &'a [u8],
    pub(super) place: Place<'a>,
    /// Distinguishes overlapping calls.
    id: Option<u64>,
    pub(super) value: Option<f64>,
}

impl<'a> TrackEvent<'a> {
    /// Time and thread of the event.
    pub(super) fn common(&self, time: i64) -> Common<'a> {
        let track = self.place.track;
        Common {
            time: Some(time),
            pid: self.place.pid,
            tid: self.place.tid,
            comm: (self.place.tid.is_none() && !track.is_empty()).then_some(track),
            ..Common::default()
        }
    }

    pub(super) fn of(
        body: &'a [u8],
        state: &Interned<'a>,
        defaults: &Defaults<'a>,
        (pid, tid): (Option<i32>, Option<i32>),
        tracks: &Tracks<'a>,
    ) -> TrackEvent<'a> {
        let (mut kind, mut name, mut category, mut track) = (0, None, None, defaults.track);
        let (mut value, mut legacy) = (None, None);
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (9, Value::Number(found)) => kind = found,
                (10, Value::Number(id)) => name = state.text(text::EVENT, id),
                (23, Value::Bytes(text)) => name = Some(text),
                (3, found) if category.is_none() => {
                    let id = found.numbers().next().unwrap_or(0);
                    category = state.text(text::CATEGORY, id);
                }
                (22, Value::Bytes(text)) => category = category.or(Some(text)),
                (11, Value::Number(uuid)) => track = Some(uuid),
                (30, Value::Number(found)) => value = Some(found.cast_signed() as f64),
                (44, Value::Fixed64(found)) => value = Some(f64::from_bits(found)),
                (6, Value::Bytes(found)) => legacy = Some(Legacy::of(found)),
                _ => {}
            }
        }
        let place = match track {
            Some(uuid) => tracks.place(uuid),
            None => Place {
                pid,
                tid,
                is_thread: tid.is_some(),
                ..Place::default()
            },
        };
        let mut event = TrackEvent {
            phase: match kind {
                1 => Phase::Begin,
                2 => Phase::End,
                3 => Phase::Instant,
                4 => Phase::Counter,
                _ => Phase::Unread,
            },
            name: name.unwrap_or_default(),
            category: category.unwrap_or_default(),
            place,
            id: None,
            value,
        };
        if let Some(legacy) = legacy {
            event.legacy(legacy, kind, state);
        }
        event
    }

    fn legacy(&mut self, legacy: Legacy, kind: u64, state: &Interned<'a>) {
        if let (b"", Some(id)) = (self.name, legacy.name) {
            self.name = state.text(text::EVENT, id).unwrap_or_default();
        }
        self.place.pid = legacy.pid.or(self.place.pid);
        self.place.tid = legacy.tid.or(self.place.tid);
        self.place.is_thread |= legacy.tid.is_some();
        if kind != 0 {
            return;
        }
        self.phase = match legacy.phase {
            b'B' | b'b' | b'S' => Phase::Begin,
            b'E' | b'e' | b'F' => Phase::End,
            b'X' => Phase::Complete,
            b'i' | b'I' | b'R' | b'n' | b'T' | b'p' | b'C' => Phase::Instant,
            _ => Phase::Unread,
        };
        if matches!(legacy.phase, b'b' | b'e' | b'S' | b'F') {
            self.id = legacy.id;
            self.place.is_thread = false;
        }
    }

    pub(super) fn uuid(&self) -> u64 {
        self.place.uuid
    }

    /// Begins and ends with the same key belong together.
    pub(super) fn key(&self) -> (u8, u64, &'a [u8]) {
        let bits = |id: Option<i32>| u64::from(id.unwrap_or(-1).cast_unsigned());
        match (self.id, self.place.is_thread) {
            (Some(id), _) => (2, id, self.name),
            (None, true) => (1, bits(self.place.pid) << 32 | bits(self.place.tid), b""),
            (None, false) => (0, self.place.uuid, b""),
        }
    }
}

/// A value of an annotation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Argument<'a> {
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(&'a [u8]),
}

impl Argument<'_> {
    pub(super) fn kind(self) -> FieldType {
        match self {
            Argument::Bool(_) => FieldType::Bool,
            Argument::Int(_) => FieldType::Int(8),
            Argument::UInt(_) => FieldType::UInt(8),
            Argument::Float(_) => FieldType::Float,
            Argument::Text(_) => FieldType::Text,
        }
    }

    pub(super) fn text(self) -> Vec<u8> {
        match self {
            Argument::Bool(value) => value.to_string().into_bytes(),
            Argument::Int(value) => value.to_string().into_bytes(),
            Argument::UInt(value) => value.to_string().into_bytes(),
            Argument::Float(value) => value.to_string().into_bytes(),
            Argument::Text(value) => value.to_vec(),
        }
    }
}

/// The annotations of an event; those inside of others have names with dots.
pub(super) fn arguments<'a>(body: &'a [u8], state: &Interned<'a>) -> Vec<(Vec<u8>, Argument<'a>)> {
    let mut found = Vec::new();
    for field in Message::new(body, 0).map_while(Result::ok) {
        if let (4, Value::Bytes(annotation)) = (field.number, field.value) {
            annotation_into(annotation, b"", state, NESTED_MAX, &mut found);
        }
    }
    found
}

fn annotation_into<'a>(
    body: &'a [u8],
    prefix: &[u8],
    state: &Interned<'a>,
    left: u32,
    found: &mut Vec<(Vec<u8>, Argument<'a>)>,
) {
    if found.len() >= COLUMNS_MAX || left == 0 {
        return;
    }
    let (mut name, mut value, mut inner) = (&b""[..], None, Vec::new());
    for field in Message::new(body, 0).map_while(Result::ok) {
        match (field.number, field.value) {
            (1, Value::Number(id)) => name = state.text(text::ANNOTATION, id).unwrap_or_default(),
            (10, Value::Bytes(text)) => name = text,
            (2, Value::Number(found)) => value = Some(Argument::Bool(found != 0)),
            (3 | 7, Value::Number(found)) => value = Some(Argument::UInt(found)),
            (4, Value::Number(found)) => value = Some(Argument::Int(found.cast_signed())),
            (5, Value::Fixed64(bits)) => value = Some(Argument::Float(f64::from_bits(bits))),
            (6 | 9, Value::Bytes(text)) => value = Some(Argument::Text(text)),
            (17, Value::Number(id)) => {
                value = state.text(text::VALUE, id).map(Argument::Text);
            }
            (11 | 12, Value::Bytes(body)) if inner.len() < COLUMNS_MAX => inner.push(body),
            _ => {}
        }
    }
    let name = match (prefix, name) {
        (b"", name) => name.to_vec(),
        (prefix, b"") => [prefix, b".", inner.len().to_string().as_bytes()].concat(),
        (prefix, name) => [prefix, b".", name].concat(),
    };
    for body in inner {
        annotation_into(body, &name, state, left - 1, found);
    }
    if let Some(value) = value {
        found.push((name, value));
    }
}
