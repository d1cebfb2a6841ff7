//! Events → calls, hits, names of threads, in the order of time.

use std::borrow::Cow;

use hashbrown::HashMap;
use perfquet_events::event::{
    Call, Comm, Common, Enter, Event, Fact, Fields, Function, Leave, Loss, Place, Problem,
    Progress, Sample, Sink, Stack, Value,
};
use perfquet_events::input::Map;
use perfquet_events::{Error, Input};

use super::members::{Kind, Members};
use super::open::{End, Open};
use super::order::{Entry, Order};
use super::ours::{self, Ours};
use super::samples::Samples;
use super::types::{OTHER, Type, Types, is_null};
use crate::json::{Scanner, elements, integer, members, nanoseconds, text};
use crate::lines::quoted;
use crate::thread_numbers::ThreadNumbers;

/// Members beside the events that become facts, and the length of their values.
const FACTS_MAX: usize = 100;
const FACT_BYTES: usize = 4096;
const PROGRESS_EVENTS: usize = 1 << 14;
/// Bytes of the input after which its pages are released.
const RELEASED_BYTES: usize = 32 << 20;

/// Reads all events.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let mut file = File::new(&map, input.temporary_bytes_max());
    file.find()?;
    if file.events.len() == 0 && file.names.is_empty() {
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Offset(0),
            message: format!(
                "expected an array of events with \"ph\", found {}",
                quoted(&map)
            ),
        });
    }
    file.emit(sink)
}

/// What the first pass finds.
struct File<'a> {
    map: &'a Map,
    /// Where pages were last released.
    released: usize,
    events: Order,
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
    open: Open,
    threads: ThreadNumbers<'a>,
    /// An export of ours.
    ours: Option<Ours<'a>>,
    samples: Samples<'a>,
    /// What other members say.
    said: Said,
}

/// What members beside the events say.
#[derive(Default)]
struct Said {
    /// The time of day at time 0.
    wall_offset: Option<i64>,
    /// The buffer of the recorder was too small.
    is_overwritten: bool,
    /// Lines of a trace that is a text inside, and where it is.
    system_lines: (u64, u64),
    /// Bytes after the end, and where they begin.
    rest: (u64, u64),
}

impl<'a> File<'a> {
    fn new(map: &'a Map, temporary_bytes_max: u64) -> File<'a> {
        File {
            map,
            released: 0,
            events: Order::new(temporary_bytes_max),
            names: Vec::new(),
            types: Types::default(),
            facts: Vec::new(),
            cut: None,
            strangers: (0, 0),
            timeless: (0, 0),
            open: Open::default(),
            threads: ThreadNumbers::default(),
            ours: None,
            samples: Samples::default(),
            said: Said::default(),
        }
    }

    /// Finds all events.
    fn find(&mut self) -> Result<(), Error> {
        let bytes: &'a [u8] = self.map;
        let mut scanner = Scanner::new(bytes);
        scanner.place = match bytes.starts_with(b"\xef\xbb\xbf") {
            true => 3,
            false => 0,
        };
        match scanner.peek() {
            Some(b'[') => self.array(&mut scanner)?,
            Some(b'{') => self.object(&mut scanner)?,
            _ => return Ok(()),
        }
        while scanner.take(b',') {}
        if self.cut.is_none() && scanner.peek().is_some_and(|byte| byte != 0) {
            let rest = bytes.len().saturating_sub(scanner.place);
            self.said.rest = (rest as u64, scanner.place as u64);
        }
        Ok(())
    }

    fn object(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Error> {
        scanner.take(b'{');
        while let Some(key) = scanner.next_key() {
            if key == b"traceEvents" && scanner.peek() == Some(b'[') {
                self.array(scanner)?;
                continue;
            }
            let start = scanner.place;
            let Some(value) = scanner.value() else {
                self.cut = self.cut.or(Some(start as u64));
                return Ok(());
            };
            if key == b"otherData" {
                self.ours = Ours::of(value);
            }
            if self.ours.is_some() || self.member(key, value, start as u64)? {
                continue;
            }
            if self.facts.len() < FACTS_MAX && value.len() <= FACT_BYTES {
                self.facts.push((key, value));
            }
        }
        if !scanner.take(b'}') {
            self.cut = self.cut.or(Some(scanner.place as u64));
        }
        Ok(())
    }

    /// Takes a member beside the events; `false` if it is a fact.
    fn member(&mut self, key: &[u8], value: &'a [u8], start: u64) -> Result<bool, Error> {
        match key {
            b"samples" => {
                let mut all = elements(value);
                while let Some(sample) = all.next() {
                    let end = all.place() as u64 + start;
                    let offset = end.saturating_sub(sample.len() as u64);
                    let sample = Members::take(&mut Scanner::new(sample)).unwrap_or_default();
                    self.threads.note(sample.pid, sample.tid);
                    self.samples.note(&sample);
                    if sample.time.is_none() {
                        count(&mut self.timeless, offset);
                    }
                    self.events.push(Entry {
                        time: sample.time.or(self.events.last_time).unwrap_or(0),
                        rank: i64::MIN,
                        offset,
                    })?;
                }
                self.samples.place = start..start + value.len() as u64;
            }
            b"stackFrames" => self.samples.frames(value),
            b"systemTraceEvents" => {
                let text = text(value);
                let lines = text.split(|byte| *byte == b'\n');
                let is_event = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
                self.said.system_lines = (lines.filter(is_event).count() as u64, start);
            }
            b"beginningOfTime" => {
                self.said.wall_offset = nanoseconds(value).filter(|offset| *offset > 0);
                return Ok(false);
            }
            b"viztracer_metadata" => {
                let is = |(key, value): (&[u8], &[u8])| key == b"overflow" && value == b"true";
                self.said.is_overwritten = members(value).any(is);
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn array(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Error> {
        scanner.take(b'[');
        loop {
            while scanner.take(b',') {}
            match scanner.peek() {
                Some(b']') => {
                    scanner.take(b']');
                    return Ok(());
                }
                // The closing bracket may be missing.
                None => return Ok(()),
                Some(_) => {}
            }
            let start = scanner.place;
            let Some(event) = Members::take(scanner) else {
                self.cut = Some(start as u64);
                return Ok(());
            };
            self.event(start as u64, &event)?;
            if start - self.released >= RELEASED_BYTES {
                self.released = start;
                self.map.release();
            }
        }
    }

    fn event(&mut self, offset: u64, event: &Members<'a>) -> Result<(), Error> {
        if event.phase.is_empty() {
            count(&mut self.strangers, offset);
            return Ok(());
        }
        let kind = event.kind();
        // Names of processes may have any thread, and uftrace's of threads have none.
        let is_of_thread =
            kind != Kind::Name || &*event.name == b"thread_name" && event.tid.is_some();
        if self.ours.is_none() && is_of_thread {
            match kind.is_call() {
                true => self.threads.note_call(event.pid, event.tid),
                false => self.threads.note(event.pid, event.tid),
            }
        }
        if kind == Kind::Name {
            if let Some(ours) = &mut self.ours {
                ours.note(event);
            }
            self.names.push(offset);
            return Ok(());
        }
        let of_ours = self.ours.as_ref().and_then(|_| ours::kind(event));
        if of_ours == Some(ours::Kind::Repeated) {
            return Ok(());
        }
        if event.time.is_none() {
            count(&mut self.timeless, offset);
        }
        match kind {
            Kind::Hit if of_ours == Some(ours::Kind::Hit) => {
                let names = ours::names(event);
                let is_cpu = members(event.args)
                    .next()
                    .is_some_and(|(key, _)| key == b"cpu");
                self.types.note(names, false, (event.args, is_cpu));
            }
            // Calls and losses.
            Kind::Hit if of_ours.is_some() => {}
            Kind::Hit => {
                let (name, category) = (event.name.clone(), event.category.clone());
                self.types
                    .note((category, name), event.has_phase(), (event.args, false));
            }
            Kind::Other => self.types.has_other = true,
            _ => {}
        }
        self.events.push(Entry {
            // An event without a time stays with those before it.
            time: event.time.or(self.events.last_time).unwrap_or(0),
            rank: match kind {
                Kind::Complete => event.duration.unwrap_or(0).saturating_neg(),
                _ => i64::MIN,
            },
            offset,
        })
    }

    fn emit(mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        match &self.ours {
            Some(ours) => ours.emit_facts(sink)?,
            None => sink.event(Event::Fact(Fact::Clock("trace file")))?,
        }
        if let Some(offset) = self.said.wall_offset {
            sink.event(Event::Fact(Fact::WallOffset(offset)))?;
        }
        for (key, value) in &self.facts {
            sink.event(Event::Fact(Fact::Other {
                name: &format!("chrome.{}", String::from_utf8_lossy(key)),
                value: &String::from_utf8_lossy(&text(value)),
            }))?;
        }
        if self.ours.is_none() {
            self.threads.emit("chrome", sink)?;
        }
        self.emit_names(sink)?;
        self.types.declare(self.ours.is_some(), sink)?;
        self.samples.declare(self.types.next(), sink)?;
        if self.said.is_overwritten {
            sink.event(Event::Loss(Loss {
                time: None,
                cpu: None,
                event: None,
                count: None,
                in_all: None,
                reason: "overflow",
            }))?;
        }
        let events = std::mem::replace(&mut self.events, Order::new(0));
        let total = Some(events.len() as u64);
        let mut read_bytes = 0;
        for (number, entry) in events.sorted()?.enumerate() {
            let (event, length) = self.at(entry.offset);
            match self.samples.place.contains(&entry.offset) {
                true => {
                    let common = self.common(&event);
                    self.samples.emit(&event, common, sink)?;
                }
                false => self.one(entry.offset, &event, sink)?,
            }
            read_bytes += length;
            if read_bytes >= RELEASED_BYTES {
                read_bytes = 0;
                self.map.release();
            }
            if number % PROGRESS_EVENTS == 0 {
                let done = number as u64;
                sink.event(Event::Progress(Progress { done, total }))?;
            }
        }
        self.problems(sink)
    }

    /// Emits the names of processes, which are those of their first threads, and then those of threads, whatever their order.
    fn emit_names(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut processes: HashMap<i32, Vec<u8>> = HashMap::new();
        let mut facts = 0;
        for kind in [&b"process_name"[..], b"thread_name"] {
            for &offset in &self.names {
                let event = self.at(offset).0;
                let is_other = |ours: &Ours<'_>| ours.is_other(&event);
                if *event.name != *kind || self.ours.as_ref().is_some_and(is_other) {
                    continue;
                }
                let mut common = self.common(&event);
                if common.tid.is_none() && event.tid.is_none() {
                    // The number is that of a thread of another process.
                    (common.pid, common.tid) = (None, self.threads.of(None, event.pid).1);
                }
                let Some(comm) = name(&event, &common) else {
                    continue;
                };
                let of_process = processes.get(&comm.tid).filter(|_| kind == b"thread_name");
                if let Some(process) =
                    of_process.filter(|process| process.as_slice() != &*comm.comm)
                    && facts < FACTS_MAX
                {
                    facts += 1;
                    sink.event(Event::Fact(Fact::Other {
                        name: &format!("chrome.process_name.{}", comm.tid),
                        value: &String::from_utf8_lossy(process),
                    }))?;
                }
                if kind == b"process_name" {
                    processes.insert(comm.tid, comm.comm.to_vec());
                } else {
                    processes.remove(&comm.tid);
                }
                sink.event(Event::Comm(Comm {
                    time: None,
                    pid: common.pid,
                    tid: comm.tid,
                    comm: &comm.comm,
                    exec: false,
                }))?;
            }
        }
        Ok(())
    }

    fn problems(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let cut = (u64::from(self.cut.is_some()), self.cut.unwrap_or(0));
        for ((count, offset), message) in [
            (
                (self.types.dropped, 0),
                "arguments beyond 64 columns of their event: no table has them",
            ),
            (
                cut,
                "cut short: the text ends inside of an event or a member",
            ),
            (self.strangers, "expected an event with \"ph\""),
            (self.timeless, "event without a time"),
            (
                self.open.unknown,
                "an \"E\" whose name is not open in its thread: it ends nothing",
            ),
            (
                self.said.system_lines,
                "lines of ftrace in \"systemTraceEvents\" are not read: save that text as a file, and import it",
            ),
            (
                (self.samples.dropped, self.samples.place.start),
                "samples of more than 1,000 events",
            ),
            (
                (self.samples.broken.get(), self.samples.place.start),
                "stacks with a frame that is not in \"stackFrames\", or with more than 1,024",
            ),
        ] {
            if count > 0 {
                sink.event(Event::Problem(Problem {
                    place: Place::Offset(offset),
                    count,
                    message,
                }))?;
            }
        }
        if let (bytes @ 1.., offset) = self.said.rest {
            sink.event(Event::Problem(Problem {
                place: Place::Offset(offset),
                count: 1,
                message: &format!(
                    "{bytes} bytes after the end of the trace are not read: if they are another trace, import each apart"
                ),
            }))?;
        }
        Ok(())
    }

    /// The event at an offset that the first pass has found, and its length.
    fn at(&self, offset: u64) -> (Members<'a>, usize) {
        let mut scanner = Scanner::new(self.map);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        scanner.place = start;
        let event = Members::take(&mut scanner).unwrap_or_default();
        (event, scanner.place.saturating_sub(start))
    }

    fn common(&self, event: &Members<'a>) -> Common<'a> {
        let (pid, tid) = self.threads.of(event.pid, event.tid);
        Common {
            time: event.time,
            pid,
            tid,
            ..Common::default()
        }
    }

    fn one(&mut self, offset: u64, event: &Members<'a>, sink: &mut dyn Sink) -> Result<(), Error> {
        if let Some((ours, kind)) = self.ours.as_ref().zip(ours::kind(event)) {
            return match kind {
                ours::Kind::Call => ours.call(event, sink),
                ours::Kind::Loss => ours.loss(event, sink),
                ours::Kind::Repeated => Ok(()),
                ours::Kind::Hit => {
                    let common = ours.common(event);
                    match self.types.of(ours::names(event)) {
                        Some((id, of_type)) => {
                            let is_cpu = common.cpu.is_some();
                            let texts = Texts::of(event, of_type, is_cpu);
                            hit(common, &texts.values(of_type), Sample::of(id), sink)
                        }
                        None => self.other(event, common, sink),
                    }
                }
            };
        }
        let mut common = self.common(event);
        if event.kind().is_call() {
            (common.pid, common.tid) = self.threads.of_call(event.pid, event.tid);
        }
        let stack = self.samples.stack(event.frame);
        if !stack.is_empty() {
            common.user_stack = Stack::Named(&stack);
        }
        let function = Function::Named {
            name: &event.name,
            module: &event.category,
        };
        match event.kind() {
            Kind::Complete => {
                let args = arguments(event.args);
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                let duration = event.duration.filter(|duration| *duration >= 0);
                sink.event(Event::Call(&Call {
                    common,
                    function,
                    caller: Function::Unknown,
                    depth: None,
                    context: None,
                    args: &args,
                    duration,
                    retval: None,
                    // Without a duration, nothing says which calls are inside.
                    may_nest: common.tid.is_some() && duration.is_some(),
                }))
            }
            Kind::Begin => {
                self.open.begin(common.tid, &event.name);
                let args = arguments(event.args);
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                sink.event(Event::Enter(&Enter {
                    common,
                    function,
                    args: &args,
                    ..Enter::default()
                }))
            }
            Kind::End => {
                let function = match self.open.end(common.tid, &event.name, offset) {
                    End::Unknown => return Ok(()),
                    End::Innermost => Function::Unknown,
                    // The category may differ.
                    End::Named => Function::named(&event.name),
                };
                sink.event(Event::Leave(&Leave {
                    common,
                    function,
                    ..Leave::default()
                }))
            }
            Kind::Hit => match self.types.of((event.category.clone(), event.name.clone())) {
                Some((id, of_type)) => {
                    let texts = Texts::of(event, of_type, false);
                    hit(common, &texts.values(of_type), Sample::of(id), sink)
                }
                None => self.other(event, common, sink),
            },
            Kind::Other => self.other(event, common, sink),
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
        hit(common, &values, Sample::of(self.types.other()), sink)
    }
}

fn hit(
    common: Common<'_>,
    values: &[Value<'_>],
    sample: Sample<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    sink.event(Event::Sample(&Sample {
        time: common.time,
        cpu: common.cpu,
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
    /// `is_cpu`: the first argument is no column.
    fn of(event: &Members<'a>, of_type: &Type, is_cpu: bool) -> Texts<'a> {
        let value = |name: &[u8]| {
            let mut args = members(event.args).skip(usize::from(is_cpu));
            let found = args.find(|(key, _)| *key == name);
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

/// A thread and its name.
struct Named<'a> {
    tid: i32,
    comm: Cow<'a, [u8]>,
}

/// The name of a thread, or of a process, which is that of its first thread.
fn name<'a>(event: &Members<'a>, common: &Common<'_>) -> Option<Named<'a>> {
    let (_, name) = members(event.args).find(|(key, _)| *key == b"name")?;
    let tid = match &*event.name {
        b"process_name" => common.pid,
        b"thread_name" => common.tid,
        _ => None,
    };
    Some(Named {
        tid: tid?,
        comm: text(name),
    })
}

/// The members of an object as `name=value`.
fn arguments(args: &[u8]) -> Vec<Vec<u8>> {
    members(args)
        .map(|(name, value)| [name, b"=", &text(value)].concat())
        .collect()
}

fn count((count, first): &mut (u64, u64), offset: u64) {
    if *count == 0 {
        *first = offset;
    }
    *count += 1;
}
