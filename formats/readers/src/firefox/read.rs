//! Profile → samples by time, then markers and counters by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perfquet_events::event::{
    Call, Comm, Common, Event, EventId, EventKind, EventType, Fact, FieldType, Fields, Function,
    Leave, Place, Progress, Sample, Sink, Stack, Value,
};
use perfquet_events::{Error, Input};

use super::allocations::{self, allocations};
use super::stacks::Defined;
use super::symbols::{self, Symbols};
use super::tables::{Shared, Tables, member};
use super::threads::{Row, Thread, Weights, nanoseconds};
use crate::columns::event_type;
use crate::exported::function;
use crate::json::{Scanner, decimal, elements, inside, integer, text};
use crate::lines::quoted;
use crate::problems::Problems;
use crate::thread_numbers::ThreadNumbers;

const THREADS_MAX: usize = 1 << 16;
const PROGRESS_SAMPLES: u64 = 1 << 14;

/// Reads a whole profile.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let (file, cut) = File::of(&map);
    let meta = file.meta;
    if member(&[meta], b"preprocessedProfileVersion").is_empty() {
        let is_raw = !member(&[meta], b"version").is_empty();
        return Err(match is_raw {
            true => Error::Unsupported {
                input: input.name().to_owned(),
                message: "a raw profile of Gecko\nhint: open it in https://profiler.firefox.com and save it".to_owned(),
            },
            false => Error::Damaged {
                input: input.name().to_owned(),
                place: Place::Offset(cut.unwrap_or(0)),
                message: format!("expected \"meta\" with a version of processed profiles, found {}", quoted(&map)),
            },
        });
    }
    let is_ours =
        inside(member(&[meta], b"importedFrom")).is_some_and(|from| from.starts_with(b"perfquet "));
    let mut problems = Problems::default();
    let beside = symbols::beside(input)?;
    let symbols = match &beside {
        Some((path, bytes)) => {
            let name = path.display().to_string();
            match Symbols::of(bytes) {
                Some(symbols) => {
                    let value = &format!("{name}: {} addresses", symbols.len());
                    let name = "firefox.symbols";
                    sink.event(Event::Fact(Fact::Other { name, value }))?;
                    symbols
                }
                None => {
                    let message = || format!("{name}: expected symbols of samply");
                    problems.report(sink, Place::Whole, "symbols", message)?;
                    Symbols::default()
                }
            }
        }
        None => Symbols::default(),
    };
    let shared = Shared::of(meta, file.libraries(), is_ours, symbols);
    let (tables, threads, dropped) = file.threads();
    let mut reader = Reader {
        whole: &map,
        file: &file,
        shared: &shared,
        tables: &tables,
        events: Vec::new(),
        types: 0,
        problems,
    };
    let threads = reader.declare(threads, is_ours, sink)?;
    reader.samples(threads, sink)?;
    if let Some(offset) = cut {
        let message = || "cut short: the text ends inside of a member".to_owned();
        reader
            .problems
            .report(sink, Place::Offset(offset), "cut", message)?;
    }
    if dropped > 0 {
        let message = || format!("{dropped} threads beyond {THREADS_MAX}");
        reader
            .problems
            .report(sink, Place::Whole, "threads", message)?;
    }
    reader.problems.finish(sink)
}

/// The members of a profile.
#[derive(Debug, Default)]
struct File<'a> {
    meta: &'a [u8],
    libs: &'a [u8],
    shared: &'a [u8],
    threads: Vec<&'a [u8]>,
    counters: &'a [u8],
}

impl<'a> File<'a> {
    /// The members, and where the text ends too early.
    fn of(bytes: &'a [u8]) -> (File<'a>, Option<u64>) {
        let mut file = File::default();
        let mut scanner = Scanner::new(bytes);
        scanner.take(b'{');
        while let Some(key) = scanner.next_key() {
            if key == b"threads" && scanner.peek() == Some(b'[') {
                scanner.take(b'[');
                while !scanner.take(b']') {
                    scanner.take(b',');
                    let start = scanner.place;
                    match scanner.value() {
                        Some(thread) => file.threads.push(thread),
                        None => return (file, Some(start as u64)),
                    }
                }
                continue;
            }
            let start = scanner.place;
            let Some(value) = scanner.value() else {
                return (file, Some(start as u64));
            };
            match key {
                b"meta" => file.meta = value,
                b"libs" => file.libs = value,
                b"shared" => file.shared = value,
                b"counters" => file.counters = value,
                _ => {}
            }
        }
        let cut = (!scanner.take(b'}')).then_some(scanner.place as u64);
        (file, cut)
    }

    /// Libraries of the profile; of old versions, those of the first thread.
    fn libraries(&self) -> &'a [u8] {
        match (self.libs, self.threads.first()) {
            (b"", Some(thread)) => member(&[thread], b"libs"),
            (libs, _) => libs,
        }
    }

    /// The tables, the threads that use them, and the number of threads beyond the limit.
    fn threads(&self) -> (Vec<Tables<'a>>, Vec<Thread<'a>>, u64) {
        let are_shared = !member(&[self.shared], b"stackTable").is_empty();
        let mut tables = Vec::new();
        if are_shared {
            tables.push(Tables::of(&[self.shared]));
        }
        let mut threads = Vec::new();
        for object in self.threads.iter().take(THREADS_MAX) {
            if !are_shared {
                tables.push(Tables::of(&[object, self.shared]));
            }
            threads.push(Thread::of(object, tables.len().saturating_sub(1)));
        }
        let dropped = self.threads.len().saturating_sub(THREADS_MAX);
        (tables, threads, dropped as u64)
    }
}

/// Gives numbers to threads whose ID is a text: "main-1".
fn number(threads: &mut [Thread<'_>], sink: &mut dyn Sink) -> Result<(), Error> {
    let mut numbers = ThreadNumbers::default();
    fn ids(object: &[u8]) -> (Option<&[u8]>, Option<&[u8]>) {
        let id = |name: &[u8]| Some(member(&[object], name)).filter(|id| !id.is_empty());
        (id(b"pid"), id(b"tid"))
    }
    let is_text = |thread: &Thread<'_>| thread.tid.is_none() && ids(thread.object).1.is_some();
    for thread in threads.iter().filter(|thread| is_text(thread)) {
        let (pid, tid) = ids(thread.object);
        numbers.note(pid, tid);
    }
    numbers.emit("firefox", sink)?;
    for thread in threads.iter_mut().filter(|thread| is_text(thread)) {
        let (pid, tid) = ids(thread.object);
        let (process, number) = numbers.of(pid, tid);
        thread.pid = thread.pid.or(process);
        thread.tid = number;
    }
    Ok(())
}

/// A marker or a value of a counter, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    time: Option<i64>,
    /// Of two calls that begin at the same time, the longer one encloses the other.
    rank: i64,
    thread: usize,
    name: i32,
    category: i32,
    phase: i32,
    /// Offset of the data.
    data: usize,
}

struct Reader<'f, 'a> {
    whole: &'a [u8],
    file: &'f File<'a>,
    shared: &'f Shared<'a>,
    tables: &'f [Tables<'a>],
    /// Names of the declared events of samples.
    events: Vec<String>,
    types: u32,
    problems: Problems,
}

impl<'f, 'a> Reader<'f, 'a> {
    /// Offset of a part of the text.
    fn place(&self, part: &[u8]) -> Place {
        let offset = part.as_ptr().addr().checked_sub(self.whole.as_ptr().addr());
        offset.map_or(Place::Whole, |offset| Place::Offset(offset as u64))
    }

    /// Emits facts, names and the events of samples.
    fn declare(
        &mut self,
        mut threads: Vec<Thread<'a>>,
        is_ours: bool,
        sink: &mut dyn Sink,
    ) -> Result<Vec<Thread<'a>>, Error> {
        let meta = |name: &[u8]| text(member(&[self.file.meta], name));
        sink.event(Event::Fact(Fact::Clock("trace file")))?;
        let start = decimal(member(&[self.file.meta], b"startTime"), 6).filter(|start| *start > 0);
        if let Some(start) = start {
            sink.event(Event::Fact(Fact::WallOffset(start)))?;
        }
        for name in [
            "product",
            "importedFrom",
            "preprocessedProfileVersion",
            "interval",
            "oscpu",
            "platform",
            "arguments",
        ] {
            let value = meta(name.as_bytes());
            if !value.is_empty() {
                let name = &format!("firefox.{name}");
                let value = &String::from_utf8_lossy(&value);
                sink.event(Event::Fact(Fact::Other { name, value }))?;
            }
        }
        let product = String::from_utf8_lossy(&meta(b"product")).into_owned();
        if !is_ours {
            number(&mut threads, sink)?;
        }
        for thread in &mut threads {
            self.name(thread, sink)?;
            let name = match thread.weights {
                // Our exports have the event in place of the product.
                _ if is_ours && !product.is_empty() && !product.starts_with("perfquet") => &product,
                Weights::Time => "time",
                Weights::Samples => "samples",
                Weights::Bytes => "bytes",
            };
            let known = self.events.iter().position(|other| other == name);
            let place = match known {
                Some(place) => place,
                None => {
                    sink.event(Event::Type(&EventType {
                        system: "firefox".into(),
                        name: name.to_owned(),
                        kind: EventKind::Counter,
                        ..EventType::default()
                    }))?;
                    self.types += 1;
                    self.events.push(name.to_owned());
                    self.events.len() - 1
                }
            };
            thread.event = u32::try_from(place).unwrap_or(0);
        }
        Ok(threads)
    }

    fn name(&self, thread: &Thread<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        let process = match thread.is_main {
            true => thread.pid.filter(|pid| Some(*pid) != thread.tid),
            false => None,
        };
        for (tid, comm) in [(process, &thread.process), (thread.tid, &thread.name)] {
            if let Some(tid) = tid.filter(|_| !comm.is_empty()) {
                sink.event(Event::Comm(Comm {
                    time: None,
                    pid: thread.pid,
                    tid,
                    comm,
                    exec: false,
                }))?;
            }
        }
        Ok(())
    }

    /// Emits all samples by time, then markers and counters.
    fn samples(&mut self, mut threads: Vec<Thread<'a>>, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut next: Vec<Option<Row<'a>>> = threads
            .iter_mut()
            .map(|thread| thread.samples.next())
            .collect();
        let time_of = |row: &Option<Row<'_>>| row.as_ref().map(|row| row.time);
        let mut order: BinaryHeap<Reverse<(Option<i64>, usize)>> = next
            .iter()
            .enumerate()
            .filter_map(|(place, row)| Some(Reverse((time_of(row)?, place))))
            .collect();
        let mut defined = Defined::of(self.tables);
        let mut count = 0u64;
        while let Some(Reverse((_, place))) = order.pop() {
            let (Some(thread), Some(slot)) = (threads.get_mut(place), next.get_mut(place)) else {
                continue;
            };
            let row = slot.take();
            *slot = thread.samples.next();
            if let Some(time) = time_of(slot) {
                order.push(Reverse((time, place)));
            }
            if let Some(row) = row {
                self.sample(row, thread, &mut defined, sink)?;
            }
            count += 1;
            if count.is_multiple_of(PROGRESS_SAMPLES) {
                sink.event(Event::Progress(Progress {
                    done: count,
                    total: None,
                }))?;
            }
        }
        for kind in allocations::Kind::ALL {
            self.allocations(kind, &threads, &mut defined, sink)?;
        }
        self.markers(&threads, sink)?;
        self.counters(&threads, sink)
    }

    fn sample(
        &mut self,
        row: Row<'a>,
        thread: &Thread<'a>,
        defined: &mut Defined<'f>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (kernel_stack, user_stack) = self.stacks(&row, thread, defined, sink)?;
        let digits = match thread.weights {
            Weights::Time => 6,
            Weights::Samples | Weights::Bytes => 0,
        };
        let period = match row.weight {
            None => Some(1),
            Some(weight) => decimal(weight, digits).and_then(|weight| u64::try_from(weight).ok()),
        };
        if period.is_none() {
            let found = row.weight.map_or("none".to_owned(), quoted);
            let message = || format!("expected a weight of at least 0, found {found}");
            self.problems
                .report(sink, self.place(row.stack), "weight", message)?;
        }
        sink.event(Event::Sample(&Sample {
            time: row.time,
            pid: thread.pid,
            tid: thread.tid,
            comm: thread.tid.is_none().then_some(&*thread.name),
            period,
            kernel_stack,
            user_stack,
            ..Sample::of(EventId(thread.event))
        }))
    }

    /// The stacks of a sample; reports what it lacks.
    fn stacks<'d>(
        &mut self,
        row: &Row<'a>,
        thread: &Thread<'a>,
        defined: &'d mut Defined<'f>,
        sink: &mut dyn Sink,
    ) -> Result<(Stack<'d>, Stack<'d>), Error> {
        let stack = integer(row.stack).and_then(|stack| i32::try_from(stack).ok());
        let tables: Option<&'f Tables<'a>> = self.tables.get(thread.tables);
        let none = (Stack::None, Stack::None);
        let (stacks, is_known) = match (stack, tables) {
            (Some(stack), Some(tables)) => {
                let tables = (thread.tables, tables);
                defined.stacks(tables, stack, self.shared, sink)?
            }
            _ => (none, row.stack == b"null"),
        };
        if !is_known {
            let message = || format!("expected the index of a stack, found {}", quoted(row.stack));
            self.problems
                .report(sink, self.place(row.stack), "stack", message)?;
        }
        if row.time.is_none() {
            let message = || "a sample without a time".to_owned();
            self.problems
                .report(sink, self.place(row.stack), "time", message)?;
        }
        Ok(stacks)
    }

    fn allocations(
        &mut self,
        kind: allocations::Kind,
        threads: &[Thread<'a>],
        defined: &mut Defined<'f>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let all = allocations(kind, threads);
        if all.is_empty() {
            return Ok(());
        }
        sink.event(Event::Type(&event_type(
            "firefox",
            kind.name(),
            kind.fields(),
        )))?;
        let event = EventId(self.types);
        self.types += 1;
        for allocation in &all {
            let Some(thread) = threads.get(allocation.thread) else {
                continue;
            };
            if let Some(found) = allocation.problem() {
                let message = || format!("expected a number of bytes, found {}", quoted(found));
                self.problems
                    .report(sink, self.place(found), "bytes", message)?;
            }
            let (kernel_stack, user_stack) = self.stacks(&allocation.row, thread, defined, sink)?;
            allocation.with_values(|values| {
                sink.event(Event::Sample(&Sample {
                    time: allocation.row.time,
                    pid: thread.pid,
                    tid: allocation.tid().or(thread.tid),
                    comm: thread.tid.is_none().then_some(&*thread.name),
                    kernel_stack,
                    user_stack,
                    fields: Fields::Values(values),
                    ..Sample::of(event)
                }))
            })?;
        }
        Ok(())
    }

    fn markers(&mut self, threads: &[Thread<'a>], sink: &mut dyn Sink) -> Result<(), Error> {
        let mut entries = Vec::new();
        for (place, thread) in threads.iter().enumerate() {
            self.entries(place, thread, &mut entries);
        }
        if entries.is_empty() {
            return Ok(());
        }
        entries.sort_unstable();
        let fields = [
            ("name", FieldType::Text),
            ("category", FieldType::Text),
            ("duration", FieldType::Int(8)),
            ("phase", FieldType::Text),
            ("data", FieldType::Text),
        ];
        sink.event(Event::Type(&event_type("firefox", "marker", &fields)))?;
        let event = EventId(self.types);
        self.types += 1;
        for entry in &entries {
            if let Some(thread) = threads.get(entry.thread) {
                self.marker(entry, thread, event, sink)?;
            }
        }
        Ok(())
    }

    fn entries(&self, place: usize, thread: &Thread<'a>, entries: &mut Vec<Entry>) {
        let markers = member(&[thread.object], b"markers");
        let column = |name: &[u8]| elements(member(&[markers], name));
        let (mut starts, mut ends) = (column(b"startTime"), column(b"endTime"));
        let (mut phases, mut categories, mut data) =
            (column(b"phase"), column(b"category"), column(b"data"));
        let index = |value: Option<&[u8]>| {
            let index = value.and_then(integer);
            index
                .and_then(|index| i32::try_from(index).ok())
                .unwrap_or(-1)
        };
        let time =
            |value: Option<&[u8]>| value.and_then(|value| decimal(value, 9)).map(nanoseconds);
        for name in column(b"name") {
            let (start, end) = (time(starts.next()), time(ends.next()));
            let data = data.next().unwrap_or(b"");
            entries.push(Entry {
                time: start.or(end),
                rank: match start.zip(end) {
                    Some((start, end)) => start.saturating_sub(end),
                    None => 1,
                },
                thread: place,
                name: index(Some(name)),
                category: index(categories.next()),
                phase: index(phases.next()),
                data: data
                    .as_ptr()
                    .addr()
                    .saturating_sub(self.whole.as_ptr().addr()),
            });
        }
    }

    fn marker(
        &self,
        entry: &Entry,
        thread: &Thread<'_>,
        event: EventId,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let mut scanner = Scanner::new(self.whole);
        scanner.place = entry.data;
        let data = scanner
            .value()
            .filter(|data| data.starts_with(b"{"))
            .unwrap_or_default();
        let strings = self
            .tables
            .get(thread.tables)
            .map_or(&[][..], |tables| &tables.strings);
        let name = usize::try_from(entry.name)
            .ok()
            .and_then(|name| strings.get(name));
        let name: &[u8] = name.map_or(b"", |name| name);
        let duration = (entry.rank <= 0).then_some(entry.rank.saturating_neg());
        let common = Common {
            time: entry.time,
            pid: thread.pid,
            tid: thread.tid,
            ..Common::default()
        };
        if self.shared.is_ours && inside(member(&[data], b"type")) == Some(b"Call") {
            let args = text(member(&[data], b"args"));
            let args: Vec<&[u8]> = if args.is_empty() {
                Vec::new()
            } else {
                vec![&args]
            };
            let module = text(member(&[data], b"module"));
            let function = function(name, &module);
            let retval = integer(member(&[data], b"retval"));
            let depth = integer(member(&[data], b"call_depth"));
            let depth = depth.and_then(|depth| u32::try_from(depth).ok());
            if inside(member(&[data], b"note")) == Some(b"entry not seen") && duration.is_none() {
                return sink.event(Event::Leave(&Leave {
                    common,
                    function,
                    depth,
                    retval,
                    ..Leave::default()
                }));
            }
            return sink.event(Event::Call(&Call {
                common,
                function,
                caller: Function::Unknown,
                depth,
                context: None,
                args: &args,
                duration,
                retval,
                may_nest: thread.tid.is_some(),
            }));
        }
        let category = usize::try_from(entry.category).ok();
        let category = category.and_then(|index| self.shared.categories.get(index));
        let values = [
            Value::Bytes(name),
            category.map_or(Value::Null, |name| Value::Bytes(name)),
            duration
                .filter(|_| entry.phase == 1)
                .map_or(Value::Null, Value::Int),
            match entry.phase {
                0 => Value::Bytes(b"instant"),
                1 => Value::Bytes(b"interval"),
                2 => Value::Bytes(b"start"),
                3 => Value::Bytes(b"end"),
                _ => Value::Null,
            },
            match data {
                b"" => Value::Null,
                data => Value::Bytes(data),
            },
        ];
        sink.event(Event::Sample(&Sample {
            time: common.time,
            pid: common.pid,
            tid: common.tid,
            fields: Fields::Values(&values),
            ..Sample::of(event)
        }))
    }

    fn counters(&mut self, threads: &[Thread<'a>], sink: &mut dyn Sink) -> Result<(), Error> {
        let mut event = None;
        for counter in elements(self.file.counters) {
            let of = |name: &[u8]| member(&[counter], name);
            // Before version 51, a counter had groups of samples.
            let mut samples = of(b"samples");
            if samples.is_empty() {
                let first = elements(of(b"sampleGroups")).next().unwrap_or_default();
                samples = member(&[first], b"samples");
            }
            let (name, category) = (text(of(b"name")), text(of(b"category")));
            let main =
                integer(of(b"mainThreadIndex")).and_then(|index| usize::try_from(index).ok());
            let pid = main.and_then(|index| threads.get(index)?.pid);
            let mut times = elements(member(&[samples], b"time"));
            let mut deltas = elements(member(&[samples], b"timeDeltas"));
            let mut time_ps = 0i64;
            for count in elements(member(&[samples], b"count")) {
                let event = match event {
                    Some(event) => event,
                    None => {
                        let fields = [
                            ("counter", FieldType::Text),
                            ("category", FieldType::Text),
                            ("change", FieldType::Float),
                        ];
                        sink.event(Event::Type(&event_type("firefox", "counter", &fields)))?;
                        self.types += 1;
                        *event.insert(EventId(self.types - 1))
                    }
                };
                let picoseconds = |value: Option<&[u8]>| decimal(value?, 9);
                time_ps = match (picoseconds(times.next()), picoseconds(deltas.next())) {
                    (Some(time), _) => time,
                    (None, Some(delta)) => time_ps.saturating_add(delta),
                    (None, None) => time_ps,
                };
                let change: Option<f64> = std::str::from_utf8(count)
                    .ok()
                    .and_then(|count| count.parse().ok());
                sink.event(Event::Sample(&Sample {
                    time: Some(nanoseconds(time_ps)),
                    pid,
                    fields: Fields::Values(&[
                        Value::Bytes(&name),
                        Value::Bytes(&category),
                        change.map_or(Value::Null, Value::Float),
                    ]),
                    ..Sample::of(event)
                }))?;
            }
        }
        Ok(())
    }
}
