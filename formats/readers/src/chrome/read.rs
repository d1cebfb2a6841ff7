//! Events → calls, hits, names of threads, in the order of time.

use std::borrow::Cow;

use perfquet_events::event::{
    Call, Comm, Common, Enter, Event, Fact, Fields, Function, Leave, Place, Problem, Progress,
    Sample, Sink, Value,
};
use perfquet_events::{Error, Input};

use super::types::{OTHER, Type, Types, is_null};
use crate::json::{Scanner, integer, members, nanoseconds, text};
use crate::lines::quoted;

/// Members beside the events that become facts, and the length of their values.
const FACTS_MAX: usize = 100;
const FACT_BYTES: usize = 4096;
const PROGRESS_EVENTS: usize = 1 << 14;

/// Reads all events.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let file = File::of(&map);
    if file.events.is_empty() && file.names.is_empty() {
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Offset(0),
            message: format!(
                "expected an array of events with \"ph\", found {}",
                quoted(&map)
            ),
        });
    }
    file.emit(&map, sink)
}

/// An event with the members that are needed of it.
#[derive(Debug, Default, Clone)]
struct Members<'a> {
    phase: &'a [u8],
    name: Cow<'a, [u8]>,
    category: Cow<'a, [u8]>,
    time: Option<i64>,
    duration: Option<i64>,
    pid: Option<&'a [u8]>,
    tid: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    args: &'a [u8],
}

impl<'a> Members<'a> {
    fn of(object: &'a [u8]) -> Members<'a> {
        let mut found = Members::default();
        for (key, value) in members(object) {
            match key {
                b"ph" => found.phase = crate::json::inside(value).unwrap_or_default(),
                b"name" => found.name = text(value),
                b"cat" => found.category = text(value),
                b"ts" => found.time = nanoseconds(value),
                b"dur" => found.duration = nanoseconds(value),
                b"pid" => found.pid = Some(value),
                b"tid" => found.tid = Some(value),
                b"id" => found.id = Some(value),
                // Numbers of one process, or of all: {"local": "0x1"}.
                b"id2" => {
                    found.id = members(value).next().map(|(_, value)| value);
                }
                b"args" => found.args = value,
                _ => {}
            }
        }
        found
    }

    fn kind(&self) -> Kind {
        match self.phase {
            b"X" => Kind::Complete,
            b"B" => Kind::Begin,
            b"E" => Kind::End,
            b"C" | b"i" | b"I" | b"R" | b"n" | b"b" | b"e" => Kind::Hit,
            b"M" => Kind::Name,
            _ => Kind::Other,
        }
    }

    /// Whether the phase and the ID tell hits of the same event apart.
    fn has_phase(&self) -> bool {
        matches!(self.phase, b"b" | b"n" | b"e") || self.id.is_some()
    }

    fn common(&self) -> Common<'_> {
        let id = |value: Option<&[u8]>| i32::try_from(integer(value?)?).ok();
        let pid = id(self.pid);
        // uftrace and others write only one of them.
        let tid = match self.tid {
            Some(value) => id(Some(value)),
            None => pid,
        };
        // A thread may be a text: "stream 7".
        let name = self.tid.filter(|_| tid.is_none());
        Common {
            time: self.time,
            pid,
            tid,
            comm: name.and_then(crate::json::inside),
            ..Common::default()
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Complete,
    Begin,
    End,
    /// Of an event with a table.
    Hit,
    /// Name of a process or thread.
    Name,
    Other,
}

/// An event in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    time: i64,
    /// Of two calls that begin at the same time, the longer one encloses the other.
    rank: i64,
    offset: u64,
}

/// What the first pass finds.
#[derive(Debug, Default)]
struct File<'a> {
    events: Vec<Entry>,
    /// Offsets of events that name processes and threads.
    names: Vec<u64>,
    types: Types<'a>,
    facts: Vec<(&'a [u8], &'a [u8])>,
    /// Where the text ends too early.
    cut: Option<u64>,
    /// Values in the array that are no events, and the offset of the first.
    strangers: (u64, u64),
    /// Events without a time.
    timeless: (u64, u64),
    /// Events whose thread is a text.
    unnumbered: (u64, u64),
}

impl<'a> File<'a> {
    fn of(bytes: &'a [u8]) -> File<'a> {
        let mut file = File::default();
        let start = match bytes.starts_with(b"\xef\xbb\xbf") {
            true => 3,
            false => 0,
        };
        let mut scanner = Scanner::new(bytes);
        scanner.place = start;
        match scanner.peek() {
            Some(b'[') => file.array(&mut scanner),
            Some(b'{') => file.object(&mut scanner),
            _ => {}
        }
        if !file.events.is_sorted() {
            file.events.sort_unstable();
        }
        file
    }

    fn object(&mut self, scanner: &mut Scanner<'a>) {
        scanner.take(b'{');
        while let Some(key) = scanner.next_key() {
            if key == b"traceEvents" && scanner.peek() == Some(b'[') {
                self.array(scanner);
                continue;
            }
            let start = scanner.place;
            let Some(value) = scanner.value() else {
                self.cut = self.cut.or(Some(start as u64));
                return;
            };
            if self.facts.len() < FACTS_MAX && value.len() <= FACT_BYTES {
                self.facts.push((key, value));
            }
        }
        if !scanner.take(b'}') {
            self.cut = self.cut.or(Some(scanner.place as u64));
        }
    }

    fn array(&mut self, scanner: &mut Scanner<'a>) {
        scanner.take(b'[');
        loop {
            while scanner.take(b',') {}
            match scanner.peek() {
                Some(b']') => {
                    scanner.take(b']');
                    return;
                }
                // The closing bracket may be missing.
                None => return,
                Some(_) => {}
            }
            let start = scanner.place;
            let Some(value) = scanner.value() else {
                self.cut = Some(start as u64);
                return;
            };
            self.event(start as u64, value);
        }
    }

    fn event(&mut self, offset: u64, value: &'a [u8]) {
        let event = Members::of(value);
        if event.phase.is_empty() {
            count(&mut self.strangers, offset);
            return;
        }
        let kind = event.kind();
        if kind == Kind::Name {
            self.names.push(offset);
            return;
        }
        if event.time.is_none() {
            count(&mut self.timeless, offset);
        }
        let common = event.common();
        if common.tid.is_none() && event.tid.is_some() {
            count(&mut self.unnumbered, offset);
        }
        match kind {
            Kind::Hit => {
                let (name, category) = (event.name.clone(), event.category.clone());
                self.types
                    .note(category, name, event.has_phase(), event.args);
            }
            Kind::Other => self.types.has_other = true,
            _ => {}
        }
        self.events.push(Entry {
            // An event without a time stays with those before it.
            time: event
                .time
                .or(self.events.last().map(|entry| entry.time))
                .unwrap_or(0),
            rank: match kind {
                Kind::Complete => event.duration.unwrap_or(0).saturating_neg(),
                _ => i64::MIN,
            },
            offset,
        });
    }

    fn emit(&self, bytes: &'a [u8], sink: &mut dyn Sink) -> Result<(), Error> {
        sink.event(Event::Fact(Fact::Clock("trace file")))?;
        for (key, value) in &self.facts {
            sink.event(Event::Fact(Fact::Other {
                name: &format!("chrome.{}", String::from_utf8_lossy(key)),
                value: &String::from_utf8_lossy(&text(value)),
            }))?;
        }
        for &offset in &self.names {
            name(at(bytes, offset), sink)?;
        }
        self.types.declare(sink)?;
        for (number, entry) in self.events.iter().enumerate() {
            self.one(at(bytes, entry.offset), sink)?;
            if number % PROGRESS_EVENTS == 0 {
                let (done, total) = (number as u64, Some(self.events.len() as u64));
                sink.event(Event::Progress(Progress { done, total }))?;
            }
        }
        self.problems(sink)
    }

    fn problems(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let cut = (u64::from(self.cut.is_some()), self.cut.unwrap_or(0));
        for ((count, offset), message) in [
            (
                cut,
                "cut short: the text ends inside of an event or a member",
            ),
            (self.strangers, "expected an event with \"ph\""),
            (self.timeless, "event without a time"),
            (self.unnumbered, "the thread is a text, not a number"),
        ] {
            if count > 0 {
                sink.event(Event::Problem(Problem {
                    place: Place::Offset(offset),
                    count,
                    message,
                }))?;
            }
        }
        Ok(())
    }

    fn one(&self, object: &'a [u8], sink: &mut dyn Sink) -> Result<(), Error> {
        let event = Members::of(object);
        let common = event.common();
        let function = Function::Named {
            name: &event.name,
            module: &event.category,
        };
        match event.kind() {
            Kind::Complete => {
                let args = arguments(event.args);
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                sink.event(Event::Call(&Call {
                    common,
                    function,
                    caller: Function::Unknown,
                    depth: None,
                    context: None,
                    args: &args,
                    duration: event.duration.filter(|duration| *duration >= 0),
                    retval: None,
                    may_nest: common.tid.is_some(),
                }))
            }
            Kind::Begin => {
                let args = arguments(event.args);
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                sink.event(Event::Enter(&Enter {
                    common,
                    function,
                    args: &args,
                    ..Enter::default()
                }))
            }
            // The name may be missing, and the category may differ.
            Kind::End => sink.event(Event::Leave(&Leave {
                common,
                ..Leave::default()
            })),
            Kind::Hit => match self.types.of(event.category.clone(), event.name.clone()) {
                Some((id, of_type)) => {
                    let texts = Texts::of(&event, of_type);
                    hit(&event, common, &texts.values(of_type), Sample::of(id), sink)
                }
                None => self.other(&event, common, sink),
            },
            Kind::Other => self.other(&event, common, sink),
            Kind::Name => Ok(()),
        }
    }

    fn other(
        &self,
        event: &Members<'_>,
        common: Common<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let id = event.id.map(text);
        let values: [Value<'_>; OTHER.len()] = [
            Value::Bytes(event.phase),
            Value::Bytes(&event.category),
            Value::Bytes(&event.name),
            id.as_deref().map_or(Value::Null, Value::Bytes),
            match event.args {
                b"" => Value::Null,
                args => Value::Bytes(args),
            },
        ];
        hit(event, common, &values, Sample::of(self.types.other()), sink)
    }
}

fn hit(
    event: &Members<'_>,
    common: Common<'_>,
    values: &[Value<'_>],
    sample: Sample<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    sink.event(Event::Sample(&Sample {
        time: event.time,
        pid: common.pid,
        tid: common.tid,
        comm: common.comm,
        fields: Fields::Values(values),
        ..sample
    }))
}

type JsonAndText<'a> = (&'a [u8], Cow<'a, [u8]>);

/// The texts of a hit's columns.
struct Texts<'a> {
    phase: Option<&'a [u8]>,
    id: Option<Cow<'a, [u8]>>,
    /// JSON and text of each column.
    args: Vec<Option<JsonAndText<'a>>>,
}

impl<'a> Texts<'a> {
    fn of(event: &Members<'a>, of_type: &Type) -> Texts<'a> {
        let value = |name: &[u8]| {
            let found = members(event.args).find(|(key, _)| *key == name);
            found
                .map(|(_, value)| (value, text(value)))
                .filter(|(value, _)| !is_null(value))
        };
        Texts {
            phase: of_type.has_phase.then_some(event.phase),
            id: event.id.map(text),
            args: of_type
                .columns
                .iter()
                .map(|(name, _)| value(name))
                .collect(),
        }
    }

    fn values(&self, of_type: &Type) -> Vec<Value<'_>> {
        use perfquet_events::event::FieldType;
        let mut values = Vec::new();
        if let Some(phase) = self.phase {
            values.push(Value::Bytes(phase));
            values.push(self.id.as_deref().map_or(Value::Null, Value::Bytes));
        }
        for ((_, kind), arg) in of_type.columns.iter().zip(&self.args) {
            let Some((json, text)) = arg else {
                values.push(Value::Null);
                continue;
            };
            let float = || std::str::from_utf8(json).ok()?.parse().ok();
            values.push(match kind {
                FieldType::Bool => Value::Bool(*json == b"true"),
                FieldType::Int(_) => integer(json).map_or(Value::Null, Value::Int),
                FieldType::Float => float().map_or(Value::Null, Value::Float),
                _ => Value::Bytes(text),
            });
        }
        values
    }
}

/// Emits the name of a process or thread.
fn name(object: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
    let event = Members::of(object);
    let Some((_, name)) = members(event.args).find(|(key, _)| *key == b"name") else {
        return Ok(());
    };
    let name = text(name);
    let common = event.common();
    let tid = match &*event.name {
        b"process_name" => common.pid,
        b"thread_name" => common.tid,
        _ => None,
    };
    let Some(tid) = tid else {
        return Ok(());
    };
    sink.event(Event::Comm(Comm {
        time: None,
        pid: common.pid,
        tid,
        comm: &name,
        exec: false,
    }))
}

/// The members of an object as `name=value`.
fn arguments(args: &[u8]) -> Vec<Vec<u8>> {
    members(args)
        .map(|(name, value)| [name, b"=", &text(value)].concat())
        .collect()
}

/// The value at an offset that the first pass has found.
fn at(bytes: &[u8], offset: u64) -> &[u8] {
    let mut scanner = Scanner::new(bytes);
    scanner.place = usize::try_from(offset).unwrap_or(usize::MAX);
    scanner.value().unwrap_or_default()
}

fn count((count, first): &mut (u64, u64), offset: u64) {
    if *count == 0 {
        *first = offset;
    }
    *count += 1;
}
