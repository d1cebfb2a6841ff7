//! The output of `perf trace`: system calls with the names of their arguments, events, stacks, and the tables of `-s`.
//!
//! ```text
//!          ? (         ): sys/15262  ... [continued]: execve())                          = 0
//!      0.247 ( 0.016 ms): sys/15262 mmap(len: 8192, prot: READ|WRITE, flags: PRIVATE)    = 0x7fae29910000
//!      1.524 (         ): sys/15263 read(fd: 4<pipe:[284418]>, count: 64)                ...
//!      1.524 ( 4.852 ms): sys/15263  ... [continued]: read())                            = 35
//!      4.757 (         ): sys/15262 sched:sched_switch(prev_comm: "sys", prev_state: 1, next_pid: 15 (rcu_preempt))
//!                                        _start (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)
//! LOST 12 events!
//! ```
//! As perf's builtin-trace.c prints it, with `-T`, `--duration`, `-s`, `-S`, `--call-graph`, `--no-comm`, `-F`, `-e`.
//!
//! - Times are milliseconds since the first event, with `-T` those of perf's clock. The line does not say which.
//! - Arguments are `NAME=VALUE`; perf leaves out those that are 0. Of other events, a number that is left out is 0, too.
//! - The two lines of an interrupted call become one call, as with strace's.

mod line;

use std::collections::BTreeMap;

use hashbrown::HashMap;
use perfquet_events::event::{
    Action, AggregateValue, Call, Common, Event, EventId, EventKind, EventType, Fact, Field,
    FieldType, Fields, Function, Leave, Loss, NamedFrame, Place, Problem, Sample, Sink, Space,
    Stack, Value,
};
use perfquet_events::{Error, Input};

use super::call::{Outcome, arguments};
use super::line::cut;
use super::signal_type::signal_type;
use super::summary;
use crate::lines::{Counts, Line, Lines, Meter, hexadecimal, signed, unsigned, words};
use line::{Body, Row, SUMMARY, frame, is_name, lost, milliseconds};

pub(super) use line::is_perf_trace;

const FRAMES_MAX: usize = 512;
/// Kinds of events, and columns of each.
const EVENTS_MAX: usize = 1000;
const COLUMNS_MAX: usize = 64;
/// Open calls of all threads.
const OPEN_MAX: usize = 1 << 20;

/// A kind of events, with the types of its columns.
#[derive(Default)]
struct Kind {
    id: u32,
    /// Whether all values are integers.
    columns: BTreeMap<Vec<u8>, bool>,
    /// The text of older versions, or that of a page fault.
    is_text: bool,
}

/// What the whole text has: the second lines of calls, and the columns of events.
#[derive(Default)]
struct Ahead<'a> {
    /// By the number of the first line: result and duration, and the lines after the second one.
    ends: HashMap<u64, (&'a [u8], Option<i64>, Lines<'a>)>,
    /// Numbers of the second lines.
    joined: hashbrown::HashSet<u64>,
    kinds: BTreeMap<(&'a [u8], &'a [u8]), Kind>,
}

const FAULTS: &[u8] = b"perf_trace";

impl<'a> Ahead<'a> {
    fn of(text: &'a [u8]) -> Ahead<'a> {
        let mut ahead = Ahead::default();
        let mut open: HashMap<(Option<i32>, &[u8]), u64> = HashMap::new();
        let mut lines = Lines::of(text);
        while let Some(line) = lines.next() {
            let Some(row) = Row::parse(line.text) else {
                continue;
            };
            match row.body {
                Body::Begin { name, .. } if open.len() < OPEN_MAX => {
                    open.insert((row.tid, name), line.number);
                }
                Body::End { name, result } => {
                    if let Some(first) = open.remove(&(row.tid, name)) {
                        ahead
                            .ends
                            .insert(first, (result, row.duration, lines.clone()));
                        ahead.joined.insert(line.number);
                    }
                }
                Body::Event(system, name, values) => ahead.event(system, name, values),
                Body::Fault(kind, _) => ahead.event(FAULTS, kind, b""),
                _ => {}
            }
        }
        for (id, kind) in (1..).zip(ahead.kinds.values_mut()) {
            kind.id = id;
        }
        ahead
    }

    fn event(&mut self, system: &'a [u8], name: &'a [u8], values: &'a [u8]) {
        if self.kinds.len() >= EVENTS_MAX && !self.kinds.contains_key(&(system, name)) {
            return;
        }
        let kind = self.kinds.entry((system, name)).or_default();
        let found = columns(values);
        kind.is_text |= found.is_none();
        for (key, value) in found.unwrap_or_default() {
            if kind.columns.len() >= COLUMNS_MAX && !kind.columns.contains_key(key) {
                continue;
            }
            *kind.columns.entry(key.to_vec()).or_insert(true) &= integer(value).is_some();
        }
    }
}

/// `prev_comm: "sleep", prev_state: 1`; `None` for another text.
fn columns(values: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let parts = arguments(values);
    let pairs = parts
        .iter()
        .map(|part| cut(part, b": ").filter(|(key, _)| is_name(key)));
    let pairs: Option<Vec<_>> = pairs.collect();
    pairs.filter(|pairs| !pairs.is_empty())
}

/// `120`, `0x7f`, `15 (rcu_preempt)`
fn integer(value: &[u8]) -> Option<i64> {
    let value = match cut(value, b" (") {
        Some((number, rest)) if rest.ends_with(b")") => number,
        _ => value,
    };
    match value.strip_prefix(b"0x") {
        Some(digits) => hexadecimal(digits).map(|value| value as i64),
        None => signed(value).or_else(|| unsigned(value).map(|value| value as i64)),
    }
}

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let ahead = Ahead::of(&map);
    sink.event(Event::Fact(Fact::Recorder("perf trace")))?;
    sink.event(Event::Fact(Fact::Clock("perf trace")))?;
    // The view of system calls recognizes these traces by this table.
    sink.event(Event::Type(&signal_type()))?;
    for ((system, name), kind) in &ahead.kinds {
        sink.event(Event::Type(&kind.declared(system, name)))?;
    }
    let mut reader = Reader {
        ahead,
        table: None,
        others: 0,
        first_other: 0,
        counts: Counts::default(),
    };
    let mut meter = Meter::default();
    let mut lines = Lines::of(&map);
    while let Some(line) = lines.next() {
        reader.line(line, &lines, sink)?;
        meter.report(lines.progress(), sink)?;
    }
    reader.finish(sink)
}

impl Kind {
    fn declared(&self, system: &[u8], name: &[u8]) -> EventType {
        let field = |name: &[u8], kind| Field {
            name: String::from_utf8_lossy(name).into_owned(),
            kind,
            layout: None,
            declaration: String::new(),
        };
        let columns = self
            .columns
            .iter()
            .map(|(name, is_integer)| match is_integer {
                true => field(name, FieldType::Int(8)),
                false => field(name, FieldType::Text),
            });
        let mut fields: Vec<Field> = columns.collect();
        if self.is_text {
            fields.push(field(b"text", FieldType::Text));
        }
        EventType {
            system: String::from_utf8_lossy(system).into_owned(),
            name: String::from_utf8_lossy(name).into_owned(),
            kind: EventKind::Tracepoint,
            fields,
            ..EventType::default()
        }
    }
}

/// The table of `-s`.
#[derive(Default)]
struct Table<'a> {
    /// `sleep (11339)` of the line above it.
    thread: Option<(&'a [u8], &'a [u8])>,
    /// Names of its columns; empty before its head.
    names: Vec<&'a [u8]>,
}

struct Reader<'a> {
    ahead: Ahead<'a>,
    /// After the head of the summary.
    table: Option<Table<'a>>,
    others: u64,
    first_other: u64,
    counts: Counts,
}

impl<'a> Reader<'a> {
    fn line(
        &mut self,
        line: Line<'a>,
        after: &Lines<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let text = line.text;
        if text.trim_ascii().is_empty() {
            self.counts.blank += 1;
            return Ok(());
        }
        if text.trim_ascii() == SUMMARY {
            self.counts.header += 1;
            self.table = Some(Table::default());
            return Ok(());
        }
        if let Some(count) = lost(text) {
            self.counts.loss += 1;
            return sink.event(Event::Loss(Loss {
                time: None,
                cpu: None,
                event: None,
                count: Some(count),
                in_all: None,
                reason: "buffer full",
            }));
        }
        match Row::parse(text) {
            Some(row) if !matches!(row.body, Body::Other(_)) => {
                self.counts.data += 1;
                self.row(line.number, &row, after, sink)
            }
            _ if self.table.is_some() => self.summary(line, sink),
            _ if frame(text).is_some() => {
                // Belongs to the line above.
                self.counts.data += 1;
                Ok(())
            }
            _ => {
                self.other(line.number);
                Ok(())
            }
        }
    }

    fn other(&mut self, number: u64) {
        if self.others == 0 {
            self.first_other = number;
        }
        self.others += 1;
        self.counts.problem += 1;
    }

    fn row(
        &mut self,
        number: u64,
        row: &Row<'a>,
        after: &Lines<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let common = Common {
            time: row.time,
            tid: row.tid,
            comm: row.comm,
            ..Common::default()
        };
        match row.body {
            Body::Call { name, args, result } => {
                let outcome = outcome(result, row.duration);
                call(common, name, args, outcome, after.clone(), sink)
            }
            Body::Begin { name, args } => match self.ahead.ends.remove(&number) {
                Some((result, duration, after)) => {
                    call(common, name, args, outcome(result, duration), after, sink)
                }
                None => {
                    let nothing = Lines::of(b"");
                    call(common, name, args, Outcome::default(), nothing, sink)
                }
            },
            Body::End { name, result } => {
                if self.ahead.joined.contains(&number) {
                    return Ok(());
                }
                let outcome = outcome(result, row.duration);
                let text = [b"sys_", name].concat();
                sink.event(Event::Leave(&Leave {
                    common,
                    function: Function::named(&text),
                    duration: outcome.duration,
                    retval: outcome.value,
                    ..Leave::default()
                }))
            }
            Body::Event(system, name, values) => {
                self.event(&common, (system, name), values, after, sink)
            }
            Body::Fault(kind, text) => self.event(&common, (FAULTS, kind), text, after, sink),
            Body::Other(_) => Ok(()),
        }
    }

    fn event(
        &mut self,
        common: &Common<'a>,
        name: (&'a [u8], &'a [u8]),
        text: &'a [u8],
        after: &Lines<'a>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let Some(kind) = self.ahead.kinds.get(&name) else {
            self.counts.data -= 1;
            self.other(0);
            return Ok(());
        };
        let found = columns(text);
        let mut values = Vec::with_capacity(kind.columns.len() + 1);
        for (key, is_integer) in &kind.columns {
            let value = found
                .iter()
                .flatten()
                .find(|(other, _)| other == key)
                .map(|(_, value)| *value);
            values.push(match (value, is_integer) {
                (Some(value), true) => integer(value).map_or(Value::Null, Value::Int),
                (Some(value), false) => Value::Bytes(unquoted(value)),
                // perf leaves out zeros.
                (None, true) if found.is_some() => Value::Int(0),
                (None, _) => Value::Null,
            });
        }
        if kind.is_text {
            values.push(match found {
                Some(_) => Value::Null,
                None => Value::Bytes(text),
            });
        }
        let frames = Frames::of(after.clone());
        sink.event(Event::Sample(&Sample {
            time: common.time,
            tid: common.tid,
            comm: common.comm,
            kernel_stack: frames.kernel(),
            user_stack: frames.user(),
            fields: Fields::Values(&values),
            ..Sample::of(EventId(kind.id))
        }))
    }

    /// A line after the head of the summary.
    fn summary(&mut self, line: Line<'a>, sink: &mut dyn Sink) -> Result<(), Error> {
        let Some(table) = &mut self.table else {
            return Ok(());
        };
        let text = line.text.trim_ascii();
        self.counts.header += 1;
        if let Some((name, rest)) = cut(text, b"), ")
            && memchr::memmem::find(rest, b" events").is_some()
            && let Some(open) = memchr::memmem::rfind(name, b" (")
        {
            let (comm, tid) = name.split_at_checked(open).unwrap_or_default();
            *table = Table {
                thread: Some((comm, tid.get(2..).unwrap_or_default())),
                names: Vec::new(),
            };
            return Ok(());
        }
        if text.starts_with(b"syscall ") {
            table.names = words(text).collect();
            return Ok(());
        }
        // The units of the columns, the ruler, `total, 218 events`.
        let is_note = text.starts_with(b"(msec)") || text.starts_with(b"---");
        if is_note || table.names.is_empty() {
            return Ok(());
        }
        let cells: Vec<&[u8]> = words(text).collect();
        let (names, thread) = (&table.names, table.thread);
        let cell = |wanted: &[u8]| {
            let place = names.iter().position(|name| *name == wanted)?;
            cells.get(place).copied()
        };
        let calls = cell(b"calls").and_then(unsigned);
        if calls.is_none() || cells.len() != names.len() {
            self.counts.header -= 1;
            self.other(line.number);
            return Ok(());
        }
        self.counts.header -= 1;
        self.counts.data += 1;
        let number = |name: &[u8]| cell(name).and_then(unsigned);
        // Milliseconds with three decimals.
        let nanoseconds = |name: &[u8]| cell(name).and_then(milliseconds);
        let seconds = |time: i64| AggregateValue::Float(time as f64 / 1e9);
        let sums = [
            (
                &b"calls"[..],
                Action::Count,
                number(b"calls").map(AggregateValue::of_unsigned),
            ),
            (
                b"errors",
                Action::Count,
                number(b"errors").map(AggregateValue::of_unsigned),
            ),
            (b"seconds", Action::Sum, nanoseconds(b"total").map(seconds)),
            (b"shortest", Action::Min, nanoseconds(b"min").map(seconds)),
            (b"longest", Action::Max, nanoseconds(b"max").map(seconds)),
        ];
        let mut keys = vec![cell(b"syscall").unwrap_or_default()];
        keys.extend(thread.iter().flat_map(|(comm, tid)| [*comm, *tid]));
        summary::emit(&sums, &keys, 0, sink)
    }

    fn finish(self, sink: &mut dyn Sink) -> Result<(), Error> {
        if self.others > 0 {
            sink.event(Event::Problem(Problem {
                place: Place::Line(self.first_other),
                count: self.others,
                message: "lines that perf trace did not write, such as the output of the program",
            }))?;
        }
        self.counts.report("perf_trace.lines", sink)
    }
}

/// The text of a string; others as they are.
fn unquoted(value: &[u8]) -> &[u8] {
    let inside = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    inside.unwrap_or(value)
}

/// The result of a call. An error without a name is one that the program never sees: its number is in a message.
fn outcome(result: &[u8], duration: Option<i64>) -> Outcome<'_> {
    let mut outcome = Outcome::parse(result);
    if outcome.value == Some(-1) && outcome.error.is_none() {
        let number = cut(result, b"strerror_r(").and_then(|(_, rest)| cut(rest, b","));
        let number = number.and_then(|(number, _)| signed(number));
        outcome.value = number.and_then(i64::checked_neg);
    }
    outcome.duration = duration;
    outcome
}

fn call<'a>(
    common: Common<'a>,
    name: &[u8],
    args: &[u8],
    outcome: Outcome<'_>,
    after: Lines<'a>,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    let named = |argument: &&[u8]| match cut(argument, b": ") {
        Some((key, value)) if is_name(key) => [key, b"=", value].concat(),
        _ => argument.to_vec(),
    };
    let mut texts: Vec<Vec<u8>> = arguments(args).iter().map(named).collect();
    texts.extend(outcome.error.map(|error| [b"error=", error].concat()));
    let args: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let frames = Frames::of(after);
    let text = [b"sys_", name].concat();
    sink.event(Event::Call(&Call {
        common: Common {
            kernel_stack: frames.kernel(),
            user_stack: frames.user(),
            ..common
        },
        function: Function::named(&text),
        caller: Function::Unknown,
        depth: None,
        context: None,
        args: &args,
        duration: outcome.duration,
        retval: outcome.value,
        may_nest: false,
    }))
}

/// The frames on the following lines, leaf first.
struct Frames<'a> {
    kernel: Vec<NamedFrame<'a>>,
    user: Vec<NamedFrame<'a>>,
}

impl<'a> Frames<'a> {
    fn of(lines: Lines<'a>) -> Frames<'a> {
        let frames = lines.map_while(|line| frame(line.text)).take(FRAMES_MAX);
        let (kernel, user) = frames.partition(|frame| frame.space == Space::Kernel);
        Frames { kernel, user }
    }

    fn kernel(&self) -> Stack<'_> {
        stack(&self.kernel)
    }

    fn user(&self) -> Stack<'_> {
        stack(&self.user)
    }
}

fn stack<'f>(frames: &'f [NamedFrame<'f>]) -> Stack<'f> {
    match frames {
        [] => Stack::None,
        frames => Stack::Named(frames),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_programs_never_see() {
        let text = b"-1 (unknown) (INTERNAL ERROR: strerror_r(514, [buf], 128)=22)";
        assert_eq!(outcome(text, None).value, Some(-514));
        assert_eq!(
            outcome(b"-1 EPERM (Operation not permitted)", None).value,
            Some(-1)
        );
        assert_eq!(outcome(b"15265 (sys)", None).value, Some(15265));
    }
}
