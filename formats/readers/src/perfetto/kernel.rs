//! Events of the kernel: rows of the tables that other formats have, too.
//!
//! ```text
//! 4 sched sched_switch 1:prev_comm:s 2:prev_pid:i …      a line of events.txt: the number in `FtraceEvent`, then the fields
//! ```
//! Names, numbers and types are those of Perfetto's `event_info.cc`; events that it does not know describe themselves, or are
//! generic.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{
    Comm, Event, EventId, EventKind, FieldType, Fields, Place, Sample, Sink, Value as Cell,
};

use super::entry::Item;
use super::types::Declared;
use crate::problems::Problems;
use crate::protobuf::{Message, Value};

const EVENTS: &str = include_str!("events.txt");
const GENERIC: u64 = 327;
const SWITCH: u64 = 4;
const WAKING: u64 = 20;
const RENAME: u64 = 236;
/// Threads whose names are remembered, and events that describe themselves.
const REMEMBERED_MAX: usize = 1 << 20;
const COLUMNS_MAX: usize = 256;

/// An event: its columns by the number of their fields.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    system: String,
    name: String,
    columns: Vec<(u64, String, FieldType)>,
}

/// Events that describe themselves.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    by_number: HashMap<u64, Schema>,
}

impl Schemas {
    /// Takes a `GenericEventDescriptor`.
    pub(super) fn describe(&mut self, body: &[u8]) {
        let (mut number, mut system, mut descriptor) = (None, String::new(), &b""[..]);
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(value)) => number = Some(value),
                (2, Value::Bytes(value)) => descriptor = value,
                (3, Value::Bytes(value)) => system = String::from_utf8_lossy(value).into_owned(),
                _ => {}
            }
        }
        let Some(number) = number.filter(|_| self.by_number.len() < REMEMBERED_MAX) else {
            return;
        };
        let (mut name, mut columns) = (String::new(), Vec::new());
        for field in Message::new(descriptor, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Bytes(value)) => name = String::from_utf8_lossy(value).into_owned(),
                (2, Value::Bytes(value)) if columns.len() < COLUMNS_MAX => {
                    columns.extend(described(value));
                }
                _ => {}
            }
        }
        let schema = Schema {
            system: if system.is_empty() {
                "ftrace".to_owned()
            } else {
                system
            },
            name,
            columns,
        };
        self.by_number.insert(number, schema);
    }
}

/// A field of a `DescriptorProto`.
fn described(body: &[u8]) -> Option<(u64, String, FieldType)> {
    let (mut name, mut number, mut kind) = (None, None, 0);
    for field in Message::new(body, 0).map_while(Result::ok) {
        match (field.number, field.value) {
            (1, Value::Bytes(value)) => name = Some(String::from_utf8_lossy(value).into_owned()),
            (3, Value::Number(value)) => number = Some(value),
            (5, Value::Number(value)) => kind = value,
            _ => {}
        }
    }
    let kind = match kind {
        3 | 16 | 18 => FieldType::Int(8),
        5 | 15 | 17 => FieldType::Int(4),
        4 | 6 => FieldType::UInt(8),
        7 | 13 => FieldType::UInt(4),
        8 => FieldType::Bool,
        12 => FieldType::Binary,
        _ => FieldType::Text,
    };
    Some((number?, name?, kind))
}

/// The events of `events.txt`, by number.
fn known() -> HashMap<u64, &'static str> {
    let lines = EVENTS.lines().filter_map(|line| {
        let (number, rest) = line.split_once(' ')?;
        Some((number.parse().ok()?, rest))
    });
    lines.collect()
}

/// `sched sched_switch 1:prev_comm:s …`
fn schema(line: &str) -> Option<Schema> {
    let mut words = line.split(' ');
    let (system, name) = (words.next()?.to_owned(), words.next()?.to_owned());
    let columns = words.filter_map(|word| {
        let mut parts = word.split(':');
        let (number, name) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let kind = match parts.next()? {
            "i" => FieldType::Int(4),
            "I" => FieldType::Int(8),
            "u" => FieldType::UInt(4),
            "U" => FieldType::UInt(8),
            "B" => FieldType::Binary,
            "L" => FieldType::UIntList(8),
            _ => FieldType::Text,
        };
        Some((number, name, kind))
    });
    Some(Schema {
        system,
        name,
        columns: columns.collect(),
    })
}

/// The thread that a CPU runs, as its last switch says.
#[derive(Debug, Clone, Copy)]
struct Running<'a> {
    tid: i32,
    priority: i32,
    comm: &'a [u8],
}

pub(super) struct Kernel<'a> {
    lines: HashMap<u64, &'static str>,
    described: HashMap<u64, Schema>,
    /// Types by number.
    types: HashMap<u64, (EventId, Schema)>,
    running: HashMap<u32, Running<'a>>,
    comms: HashMap<i32, &'a [u8]>,
}

impl<'a> Kernel<'a> {
    pub(super) fn new(schemas: &Schemas) -> Kernel<'a> {
        Kernel {
            lines: known(),
            described: schemas.by_number.clone(),
            types: HashMap::new(),
            running: HashMap::new(),
            comms: HashMap::new(),
        }
    }

    /// Emits an event of a bundle.
    pub(super) fn event(
        &mut self,
        (time, cpu): (i64, u32),
        body: &'a [u8],
        types: &mut Declared,
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (mut tid, mut data, mut is_whole) = (None, None, true);
        for field in Message::new(body, 0) {
            match field.map(|field| (field.number, field.value)) {
                Ok((2, Value::Number(value))) => tid = Some(value as i32),
                Ok((number, Value::Bytes(inner))) => data = Some((number, inner)),
                Ok(_) => {}
                Err(_) => is_whole = false,
            }
        }
        let Some((number, data)) = data.filter(|_| is_whole) else {
            let message = || format!("an event of an ftrace bundle without data, at {time} ns");
            return problems.report(sink, Place::Whole, "ftrace event", message);
        };
        let at = Sample {
            time: Some(time),
            cpu: Some(cpu),
            tid,
            ..Sample::of(EventId(0))
        };
        match number {
            GENERIC => self.generic(at, data, types, sink),
            _ => self.known(at, number, data, types, problems, sink),
        }
    }

    fn known(
        &mut self,
        at: Sample<'a>,
        number: u64,
        data: &'a [u8],
        types: &mut Declared,
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        self.declare(number, types, problems, sink)?;
        let Some((id, schema)) = self.types.get(&number) else {
            return Ok(());
        };
        let mut lists = Vec::new();
        let columns = &schema.columns;
        if columns
            .iter()
            .any(|column| column.2 == FieldType::UIntList(8))
        {
            let fields = Message::new(data, 0).map_while(Result::ok);
            for field in fields.filter(|field| {
                columns
                    .iter()
                    .any(|column| column.0 == field.number && column.2 == FieldType::UIntList(8))
            }) {
                lists.extend(field.value.numbers());
            }
        }
        let mut values = vec![Cell::Null; columns.len()];
        for field in Message::new(data, 0).map_while(Result::ok) {
            let found = columns.iter().zip(&mut values);
            for ((_, _, kind), value) in found.filter(|((number, _, _), _)| *number == field.number)
            {
                *value = match kind {
                    FieldType::UIntList(_) => Cell::UIntList(&lists),
                    kind => cell(*kind, field.value),
                };
            }
        }
        let sample = Sample {
            event: *id,
            fields: Fields::Values(&values),
            ..at
        };
        let texts: Vec<(Option<i64>, &'a [u8])> = match number {
            SWITCH => notes(data, [(2, 1), (6, 5)]),
            RENAME => notes(data, [(1, 3), (0, 0)]),
            17 | WAKING | 114 => notes(data, [(2, 1), (0, 0)]),
            _ => Vec::new(),
        };
        for (tid, comm) in texts {
            self.name(at.time, tid.map(|tid| tid as i32), comm, sink)?;
        }
        if number == SWITCH {
            self.note_switch(at.cpu, data);
        }
        sink.event(Event::Sample(&sample))
    }

    fn declare(
        &mut self,
        number: u64,
        types: &mut Declared,
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        if self.types.contains_key(&number) {
            return Ok(());
        }
        let known = self.lines.get(&number).and_then(|line| schema(line));
        let schema = match known.or_else(|| self.described.get(&number).cloned()) {
            Some(schema) => schema,
            None => {
                let message = || {
                    format!(
                        "ftrace events with the unknown number {number}: their fields are not read"
                    )
                };
                problems.report(sink, Place::Whole, "unknown ftrace event", message)?;
                Schema {
                    system: "ftrace".into(),
                    name: format!("event_{number}"),
                    columns: Vec::new(),
                }
            }
        };
        let columns = schema.columns.iter();
        let columns = columns
            .map(|(_, name, kind)| (name.clone(), *kind))
            .collect();
        let names = (schema.system.as_str(), schema.name.as_str());
        let id = types.of(names, EventKind::Tracepoint, columns, sink)?;
        self.types.insert(number, (id, schema));
        Ok(())
    }

    /// Remembers who runs next.
    fn note_switch(&mut self, cpu: Option<u32>, data: &'a [u8]) {
        let mut next = Running {
            tid: 0,
            priority: 0,
            comm: b"",
        };
        for field in Message::new(data, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (5, Value::Bytes(comm)) => next.comm = comm,
                (6, Value::Number(tid)) => next.tid = tid as i32,
                (7, Value::Number(priority)) => next.priority = priority as i32,
                _ => {}
            }
        }
        if let Some(cpu) = cpu
            && (self.running.len() < REMEMBERED_MAX || self.running.contains_key(&cpu))
        {
            self.running.insert(cpu, next);
        }
    }

    /// Emits the name of a thread, if it is new.
    fn name(
        &mut self,
        time: Option<i64>,
        tid: Option<i32>,
        comm: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(tid) = tid.filter(|tid| *tid > 0 && !comm.is_empty()) else {
            return Ok(());
        };
        if self.comms.get(&tid) == Some(&comm) {
            return Ok(());
        }
        if self.comms.len() < REMEMBERED_MAX || self.comms.contains_key(&tid) {
            self.comms.insert(tid, comm);
        }
        sink.event(Event::Comm(Comm {
            time,
            pid: None,
            tid,
            comm,
            exec: false,
        }))
    }

    /// Emits a compact event.
    pub(super) fn compact(
        &mut self,
        time: i64,
        item: Item<'a>,
        types: &mut Declared,
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (number, cpu, tid, comm, values) = match item {
            Item::Switch {
                cpu,
                state,
                tid,
                priority,
                comm,
            } => {
                let next = Running {
                    tid,
                    priority,
                    comm,
                };
                let before = self.running.get(&cpu).copied();
                if before.is_some() || self.running.len() < REMEMBERED_MAX {
                    self.running.insert(cpu, next);
                }
                let int = |value: i32| Cell::Int(i64::from(value));
                let values = [
                    before.map_or(Cell::Null, |before| Cell::Bytes(before.comm)),
                    before.map_or(Cell::Null, |before| int(before.tid)),
                    before.map_or(Cell::Null, |before| int(before.priority)),
                    Cell::Int(state),
                    Cell::Bytes(comm),
                    int(tid),
                    int(priority),
                ];
                (
                    SWITCH,
                    cpu,
                    before.map(|before| before.tid),
                    (tid, comm),
                    values,
                )
            }
            Item::Waking {
                cpu,
                tid,
                target,
                priority,
                comm,
            } => {
                let int = |value: i32| Cell::Int(i64::from(value));
                let values = [
                    Cell::Bytes(comm),
                    int(tid),
                    int(priority),
                    Cell::Int(1),
                    int(target),
                    Cell::Null,
                    Cell::Null,
                ];
                let waker = self.running.get(&cpu).map(|running| running.tid);
                (WAKING, cpu, waker, (tid, comm), values)
            }
            _ => return Ok(()),
        };
        self.declare(number, types, problems, sink)?;
        let Some((event, schema)) = self.types.get(&number) else {
            return Ok(());
        };
        let sample = Sample {
            time: Some(time),
            cpu: Some(cpu),
            tid,
            fields: Fields::Values(values.get(..schema.columns.len()).unwrap_or(&values)),
            ..Sample::of(*event)
        };
        self.name(Some(time), Some(comm.0), comm.1, sink)?;
        sink.event(Event::Sample(&sample))
    }

    fn generic(
        &mut self,
        at: Sample<'a>,
        data: &'a [u8],
        types: &mut Declared,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (mut name, mut columns, mut values) = (&b""[..], Vec::new(), Vec::new());
        for field in Message::new(data, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Bytes(value)) => name = value,
                (2, Value::Bytes(value)) if values.len() < COLUMNS_MAX => {
                    let (column, value) = generic_field(value);
                    let is_text = matches!(value, Cell::Bytes(_) | Cell::Null);
                    let kind = match value {
                        Cell::UInt(_) => FieldType::UInt(8),
                        _ if is_text => FieldType::Text,
                        _ => FieldType::Int(8),
                    };
                    columns.push((String::from_utf8_lossy(column).into_owned(), kind));
                    values.push(value);
                }
                _ => {}
            }
        }
        let name = String::from_utf8_lossy(name);
        let (system, name) = name.split_once(':').unwrap_or(("ftrace", &name));
        let event = types.of((system, name), EventKind::Tracepoint, columns, sink)?;
        sink.event(Event::Sample(&Sample {
            event,
            fields: Fields::Values(&values),
            ..at
        }))
    }
}

/// Threads and their names in an event: pairs of the fields of a thread ID and a name.
fn notes<const N: usize>(data: &[u8], pairs: [(u64, u64); N]) -> Vec<(Option<i64>, &[u8])> {
    let mut found = vec![(None, &b""[..]); N];
    for field in Message::new(data, 0).map_while(Result::ok) {
        for ((tid, comm), note) in pairs.iter().zip(&mut found) {
            match field.value {
                Value::Number(value) if field.number == *tid => {
                    note.0 = Some(value.cast_signed());
                }
                Value::Bytes(value) if field.number == *comm => note.1 = value,
                _ => {}
            }
        }
    }
    found
}

fn generic_field(body: &[u8]) -> (&[u8], Cell<'_>) {
    let (mut name, mut found) = (&b""[..], Cell::Null);
    for field in Message::new(body, 0).map_while(Result::ok) {
        match (field.number, field.value) {
            (1, Value::Bytes(value)) => name = value,
            (3, Value::Bytes(value)) => found = Cell::Bytes(value),
            (4, Value::Number(value)) => found = Cell::Int(value.cast_signed()),
            (5, Value::Number(value)) => found = Cell::UInt(value),
            _ => {}
        }
    }
    (name, found)
}

/// A value of a column. Numbers of 32 bits may have their sign extended.
fn cell(kind: FieldType, value: Value<'_>) -> Cell<'_> {
    match (kind, value) {
        (FieldType::Text | FieldType::Binary, Value::Bytes(bytes)) => Cell::Bytes(bytes),
        (FieldType::Int(4), Value::Number(value)) => Cell::Int(i64::from(value as i32)),
        (FieldType::Int(_), Value::Number(value)) => Cell::Int(value.cast_signed()),
        (FieldType::UInt(4), Value::Number(value)) => Cell::UInt(u64::from(value as u32)),
        (FieldType::UInt(_), Value::Number(value)) => Cell::UInt(value),
        (FieldType::Bool, Value::Number(value)) => Cell::Bool(value != 0),
        _ => Cell::Null,
    }
}
