//! The text that babeltrace, babeltrace2 and `lttng view` print.
//!
//! ```text
//! [15:33:09.696766391] (+?.?????????) vm sched_switch: { cpu_id = 0 }, { prev_comm = "sh", prev_tid = 7, … }
//! [15:33:09.696772671] (+0.000006280) vm shop:order: { cpu_id = 0 }, { vpid = 7, vtid = 7 }, { number = 1, color = ( "RED" : container = 0 ) }
//! ```
//! Read as printed without options, with `--clock-seconds`, `--clock-date`, `--clock-gmt`, `--clock-cycles`, `--no-delta`, `-n all -f all`,
//! and with more fields before the name (`--fields=all`, `--fields=loglevel`): a log level is not kept.
//! Rows are those of the trace itself (`emit.rs`), except that:
//!
//! - the text has no types: integers have 64 bits, and of a variant only the value is known;
//! - without a date, times are nanoseconds since midnight; cycles have no time;
//! - whether the kernel or a program wrote an event follows from names: LTTng's of the kernel have a CPU, and no colon;
//! - lost events are those of babeltrace's warnings, if they are in the text.

mod line;
mod value;

use hashbrown::HashMap;
use perfquet_events::event::{Event, Fact, FieldType, Loss, Place, Sink, Value};
use perfquet_events::{Error, Input};

use super::emit::{Emitter, Plan, Slots, Types};
use super::layout::{ClassLayout, Column, ScopeOf};
use super::names::{self, Tracer};
use crate::lines::{Counts, Lines, Meter, quoted, unsigned};
use crate::problems::Problems;
use line::{Row, Time, is_begin};
use value::{Parsed, json};

const HEAD_LINES: usize = 8;
/// Lines of one event: babeltrace 1 prints line endings in strings as they are.
const PIECES_MAX: usize = 64;
const CLASSES_MAX: usize = 10_000;
const COLUMNS_MAX: usize = 1000;
/// End of the name of a column with the labels of another one.
const LABEL: &[u8] = b"_label";
const HALF_A_DAY: i64 = 12 * 3600 * 1_000_000_000;

/// Whether the first lines are events.
pub(super) fn is_text(head: &[u8]) -> bool {
    let is_cut = head.len() >= perfquet_events::input::HEAD_BYTES;
    let mut events = 0;
    let mut lines = Lines::of(head)
        .map(|line| line.text)
        .take(HEAD_LINES)
        .peekable();
    while let Some(text) = lines.next() {
        let is_last = lines.peek().is_none();
        if line::parse(text).is_some() {
            events += 1;
        } else if is_begin(text) && ((is_last && is_cut) || has_difference(text)) {
            // A long event, or one with a line ending in a string.
            let marks = [&b": { "[..], b", name = "];
            let is_event = marks
                .iter()
                .any(|mark| memchr::memmem::find(text, mark).is_some());
            events += usize::from(events == 0 && is_event);
        } else if !text.is_empty() && !is_message(text) && events == 0 {
            return false;
        }
    }
    events > 0
}

/// `] (+0.000006280) `
fn has_difference(text: &[u8]) -> bool {
    memchr::memmem::find(text.get(..64).unwrap_or(text), b"] (+").is_some()
}

/// Whether this is the output of `sink.text.details`.
pub(super) fn is_details(head: &[u8]) -> bool {
    head.starts_with(b"Trace class:\n")
        && memchr::memmem::find(head, b"\n  Stream class (ID ").is_some()
}

/// An event class, as its lines show it.
#[derive(Debug, Default)]
struct Class {
    columns: Vec<Column>,
    places: HashMap<(u8, Vec<u8>), usize>,
    /// Whether a column has negative numbers, and numbers above those with a sign.
    signs: Vec<(bool, bool)>,
}

/// A value of an event.
enum Slot<'a> {
    Null,
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(std::borrow::Cow<'a, [u8]>),
    Ints(Vec<i64>),
    UInts(Vec<u64>),
}

struct Values<'a>(Vec<Slot<'a>>);

impl Slots for Values<'_> {
    fn value(&self, slot: usize) -> Value<'_> {
        match self.0.get(slot) {
            None | Some(Slot::Null) => Value::Null,
            Some(Slot::Int(number)) => Value::Int(*number),
            Some(Slot::UInt(number)) => Value::UInt(*number),
            Some(Slot::Float(number)) => Value::Float(*number),
            Some(Slot::Text(text)) => Value::Bytes(text),
            Some(Slot::Ints(list)) => Value::IntList(list),
            Some(Slot::UInts(list)) => Value::UIntList(list),
        }
    }
}

/// What the whole text has.
#[derive(Default)]
struct Ahead {
    classes: HashMap<Vec<u8>, Class>,
    order: Vec<Vec<u8>>,
    /// Whether every event has a host before its name.
    has_host: bool,
    host: Option<Vec<u8>>,
    time: Option<Time>,
    rows: u64,
    has_perf: bool,
    has_kernel: bool,
    has_user: bool,
    is_exported: bool,
    /// Values without names, which have no columns.
    unnamed: u64,
}

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let text = joined(&map);
    let ahead = Ahead::of(&text);
    ahead.check(input, &map)?;
    ahead.facts(sink)?;
    let mut types = Types::default();
    let plans = ahead.plans(&mut types, sink)?;
    let mut problems = Problems::default();
    if ahead.time == Some(Time::Cycles) {
        problems.report(sink, Place::Whole, "time", || {
            "times are cycles of a clock whose frequency is not printed\nhint: print the trace with: babeltrace2 --clock-seconds"
                .to_owned()
        })?;
    }
    if ahead.unnamed > 0 {
        let unnamed = ahead.unnamed;
        problems.report(sink, Place::Whole, "names", || {
            format!("{unnamed} values without names are not read")
        })?;
    }
    let mut emitter = Emitter::default();
    let mut counts = Counts::default();
    let (mut meter, mut clock) = (Meter::default(), Clock::default());
    let mut lines = Lines::of(&text);
    while let Some(found) = lines.next() {
        meter.report(lines.progress(), sink)?;
        let text = found.text;
        if let Some((count, reason)) = loss(text) {
            counts.loss += 1;
            sink.event(Event::Loss(Loss {
                time: None,
                cpu: None,
                event: None,
                count,
                in_all: None,
                reason,
            }))?;
            continue;
        }
        if is_message(text) {
            counts.header += 1;
            continue;
        }
        let row = line::parse(text);
        let plan = row.as_ref().and_then(|row| {
            let name = ahead.name(row);
            Some((plans.get(name)?, ahead.classes.get(name)?))
        });
        let (Some(row), Some((plan, class))) = (row, plan) else {
            match text.trim_ascii().is_empty() {
                true => counts.blank += 1,
                false => {
                    counts.problem += 1;
                    problems.report(sink, Place::Line(found.number), "line", || {
                        format!("expected an event, found {}", quoted(text))
                    })?;
                }
            }
            continue;
        };
        counts.data += 1;
        let time = clock.at(row.time);
        let values = class.values(row);
        emitter.emit(plan, &values, time, sink)?;
    }
    problems.finish(sink)?;
    counts.report("babeltrace.lines", sink)
}

impl Ahead {
    /// Fails for a text without events or names of fields.
    fn check(&self, input: &Input, map: &[u8]) -> Result<(), Error> {
        if self.rows == 0 {
            let first = Lines::of(map).next().map_or(&b""[..], |line| line.text);
            return Err(Error::Damaged {
                input: input.name().to_owned(),
                place: Place::Line(1),
                message: format!(
                    "expected an event as babeltrace2 prints it, found {}",
                    quoted(first)
                ),
            });
        }
        if self.unnamed > 0 && self.classes.values().all(|class| class.columns.is_empty()) {
            return Err(Error::Unsupported {
            input: input.name().to_owned(),
            message: "expected the names of fields, found values alone\nhint: print the trace with: babeltrace2 --names=payload,context"
                .to_owned(),
        });
        }
        Ok(())
    }

    /// Declares the types of all events; returns what becomes of the fields of each.
    fn plans(&self, types: &mut Types, sink: &mut dyn Sink) -> Result<HashMap<&[u8], Plan>, Error> {
        let mut plans: HashMap<&[u8], Plan> = HashMap::new();
        for name in &self.order {
            let Some(class) = self.classes.get(name) else {
                continue;
            };
            let layout = ClassLayout {
                name: String::from_utf8_lossy(name).into_owned(),
                context: None,
                fields: None,
                columns: class.columns.clone(),
            };
            let plan = types.plan(&layout, self.tracer(name), None, sink)?;
            plans.insert(name, plan);
        }
        Ok(plans)
    }
}

/// Times of day rise over midnight.
#[derive(Default)]
struct Clock {
    last: i64,
    days: i64,
}

impl Clock {
    fn at(&mut self, time: Time) -> Option<i64> {
        match time {
            Time::None | Time::Cycles => None,
            Time::Local(time) | Time::Seconds(time) => Some(time),
            Time::OfDay(time) => {
                if time + HALF_A_DAY < self.last {
                    self.days += 2 * HALF_A_DAY;
                }
                self.last = time;
                time.checked_add(self.days)
            }
        }
    }
}

/// A message of babeltrace, if its standard error is in the text: `WARNING: …`, `11-29 12:14:01.553 28174 28174 W PLUGIN/SRC.CTF.FS/DS …`.
fn is_message(text: &[u8]) -> bool {
    let has =
        |wanted: &[u8]| memchr::memmem::find(text.get(..64).unwrap_or(text), wanted).is_some();
    text.starts_with(b"WARNING: ") || has(b"[warning]") || has(b" W PLUGIN/") || has(b" W LIB/")
}

/// `[warning] Tracer discarded 3 events between …`, of babeltrace 1 and 2.
fn loss(text: &[u8]) -> Option<(Option<u64>, &'static str)> {
    let is_message =
        text.starts_with(b"WARNING: ") || memchr::memmem::find(text, b"[warning]").is_some();
    if !is_message {
        return None;
    }
    let number = |after: &[u8]| {
        let start = memchr::memmem::find(text, after)? + after.len();
        let rest = text.get(start..)?;
        let end = memchr::memchr(b' ', rest)?;
        let what = rest.get(end + 1..)?;
        Some((unsigned(rest.get(..end)?)?, what))
    };
    let (count, what) = number(b"racer discarded ").or_else(|| number(b"racer lost "))?;
    match what.starts_with(b"event") {
        true => Some((Some(count), "buffer full")),
        false if what.starts_with(b"trace packet") || what.starts_with(b"packet") => {
            Some((None, "packet lost"))
        }
        false => None,
    }
}

/// Joins events that have line endings in their strings. Lines keep their numbers: empty ones follow.
fn joined(text: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    let mut out: Vec<u8> = Vec::new();
    let mut copied = 0;
    let mut lines = Lines::of(text);
    let place = |lines: &Lines<'_>| text.len() - lines.rest().len();
    while let Some(first) = lines.next() {
        if !is_begin(first.text) || line::parse(first.text).is_some() {
            continue;
        }
        let end = place(&lines);
        let start = end.saturating_sub(first.text.len() + 1);
        let mut whole = first.text.to_vec();
        let mut next = lines.clone();
        let mut pieces = 0;
        while let Some(piece) = next.next().filter(|piece| !is_begin(piece.text)) {
            pieces += 1;
            whole.push(b'\n');
            whole.extend_from_slice(piece.text);
            if line::parse(&whole).is_some() {
                out.extend_from_slice(text.get(copied..start).unwrap_or_default());
                // The reader sees lines, so the endings are written as they are in C.
                for &byte in &whole {
                    match byte {
                        b'\n' => out.extend_from_slice(b"\\n"),
                        byte => out.push(byte),
                    }
                }
                out.extend(std::iter::repeat_n(b'\n', pieces + 1));
                copied = place(&next);
                lines = next;
                break;
            }
            if pieces >= PIECES_MAX {
                break;
            }
        }
    }
    match copied {
        0 => std::borrow::Cow::Borrowed(text),
        _ => {
            out.extend_from_slice(text.get(copied..).unwrap_or_default());
            std::borrow::Cow::Owned(out)
        }
    }
}

impl Ahead {
    fn of(text: &[u8]) -> Ahead {
        let mut ahead = Ahead {
            has_host: Lines::of(text)
                .filter_map(|found| line::parse(found.text))
                .all(|row| row.domain.is_some() || row.name.contains(&b' ')),
            ..Ahead::default()
        };
        for found in Lines::of(text) {
            let Some(row) = line::parse(found.text) else {
                continue;
            };
            ahead.rows += 1;
            if row.time != Time::None && ahead.time.is_none() {
                ahead.time = Some(row.time);
            }
            ahead.row(row);
        }
        // The kernel's events have numbers alone.
        for name in &ahead.order {
            if ahead.tracer(name).is_kernel()
                && let Some(class) = ahead.classes.get_mut(name)
            {
                class.drop_labels();
            }
        }
        ahead
    }

    /// The name of an event, without the host.
    fn name<'r>(&self, row: &Row<'r>) -> &'r [u8] {
        let space = memchr::memchr(b' ', row.name).filter(|_| self.has_host);
        space.map_or(row.name, |space| {
            row.name.get(space + 1..).unwrap_or_default()
        })
    }

    fn row(&mut self, row: Row<'_>) {
        let name = self.name(&row);
        if self.host.is_none() {
            let first = self
                .has_host
                .then(|| row.name.split(|byte| matches!(byte, b' ' | b':')).next());
            self.host = row.host.or(first.flatten()).map(<[u8]>::to_vec);
        }
        let text = String::from_utf8_lossy(name);
        let is_user = row.domain == Some(b"ust") || text.starts_with("lttng_ust");
        let has_cpu = row.scopes.iter().any(|(of, _)| *of == ScopeOf::Packet);
        self.has_user |= is_user;
        self.has_perf |= text.starts_with("perf_mmap") || text == "perf_comm";
        let is_known =
            names::kernel_name(&text).0 != "lttng" || text.starts_with("lttng_statedump");
        self.has_kernel |= row.domain == Some(b"kernel")
            || (has_cpu && !text.contains(':') && (is_known || self.host.is_some()));
        let name = name.to_vec();
        if !self.classes.contains_key(&name) {
            if self.classes.len() >= CLASSES_MAX {
                return;
            }
            self.order.push(name.clone());
        }
        let class = self.classes.entry(name).or_default();
        for (of, members) in row.scopes {
            for (key, _) in &members {
                self.has_perf |= *key == b"perf_tid" || *key == b"perf_ip";
                self.is_exported |= *key == b"entry_seen";
                if key.is_empty() {
                    self.unnamed += 1;
                }
            }
            flatten(of, members, &mut |of, name, value| {
                class.learn(of, name, &value)
            });
        }
    }

    fn tracer(&self, name: &[u8]) -> Tracer {
        let has_system = name.contains(&b':');
        match has_system {
            _ if self.is_exported => Tracer::Perfquet,
            _ if self.has_perf => Tracer::Perf,
            false if self.has_kernel => Tracer::LttngKernel,
            true if self.has_user || self.has_host || self.host.is_some() => Tracer::LttngUser,
            _ => Tracer::Other,
        }
    }

    fn facts(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let clock = match self.time {
            None | Some(Time::None) => "unknown",
            Some(Time::OfDay(_)) => "local time of day",
            Some(Time::Local(_)) => "local time",
            // Before 1973: a clock that began when the system did.
            Some(Time::Seconds(time)) if time < 100_000_000_000_000_000 => "unknown",
            Some(Time::Seconds(_)) => "realtime",
            Some(Time::Cycles) => "cycles",
        };
        sink.event(Event::Fact(Fact::Recorder("babeltrace")))?;
        sink.event(Event::Fact(Fact::Clock(clock)))?;
        if clock == "realtime" {
            sink.event(Event::Fact(Fact::WallOffset(0)))?;
        }
        match &self.host {
            Some(host) => sink.event(Event::Fact(Fact::Host(&String::from_utf8_lossy(host)))),
            None => Ok(()),
        }
    }
}

/// Passes the members of a structure on as columns: structures as `a.b`, enumerations with `NAME_label`, lengths not at all.
fn flatten<'a>(
    of: ScopeOf,
    members: Vec<(&'a [u8], Parsed<'a>)>,
    column: &mut dyn FnMut(ScopeOf, Vec<u8>, Slot<'a>),
) {
    flatten_into(of, b"", members, column);
}

fn flatten_into<'a>(
    of: ScopeOf,
    prefix: &[u8],
    members: Vec<(&'a [u8], Parsed<'a>)>,
    column: &mut dyn FnMut(ScopeOf, Vec<u8>, Slot<'a>),
) {
    let names: Vec<&[u8]> = members.iter().map(|(name, _)| *name).collect();
    let is_length = |name: &[u8]| {
        let of_other = name
            .strip_prefix(b"_")
            .and_then(|name| name.strip_suffix(b"_length"));
        of_other.is_some_and(|other| names.contains(&other))
    };
    for (name, value) in members {
        if name.is_empty() || is_length(name) {
            continue;
        }
        let full = [prefix, name].concat();
        match value {
            Parsed::Labeled(label, number) => {
                let label = label.map_or(Slot::Null, Slot::Text);
                let name = [&full[..], LABEL].concat();
                column(of, full, scalar(*number));
                column(of, name, label);
            }
            Parsed::Struct(mut inner) => {
                // A variant has a value without a name.
                if let [(b"", _)] = inner.as_slice() {
                    if let Some((_, value)) = inner.pop() {
                        column(of, full, scalar(value));
                    }
                    continue;
                }
                let prefix = [&full[..], b"."].concat();
                flatten_into(of, &prefix, inner, column);
            }
            value => column(of, full, scalar(value)),
        }
    }
}

fn scalar(value: Parsed<'_>) -> Slot<'_> {
    match value {
        Parsed::Int(number) => Slot::Int(number),
        Parsed::UInt(number) => Slot::UInt(number),
        Parsed::Float(number) => Slot::Float(number),
        Parsed::Text(text) => Slot::Text(text),
        Parsed::Labeled(_, number) => scalar(*number),
        Parsed::Array(items) => {
            let ints: Option<Vec<i64>> = items
                .iter()
                .map(|item| match item {
                    Parsed::Int(number) => Some(*number),
                    _ => None,
                })
                .collect();
            let uints = || {
                let numbers = items.iter().map(|item| match item {
                    Parsed::UInt(number) => Some(*number),
                    Parsed::Int(number) => u64::try_from(*number).ok(),
                    _ => None,
                });
                numbers.collect::<Option<Vec<u64>>>()
            };
            match ints {
                Some(list) => Slot::Ints(list),
                None => match uints() {
                    Some(list) => Slot::UInts(list),
                    None => as_json(&Parsed::Array(items)),
                },
            }
        }
        other @ Parsed::Struct(_) => as_json(&other),
    }
}

fn as_json<'a>(value: &Parsed<'_>) -> Slot<'a> {
    let mut text = String::new();
    json(value, &mut text);
    Slot::Text(text.into_bytes().into())
}

impl Class {
    /// Removes the columns of labels.
    fn drop_labels(&mut self) {
        let is_label = |column: &Column| {
            let number = column.name.as_bytes().strip_suffix(LABEL);
            number.is_some_and(|number| self.place(column.of, number).is_some())
        };
        let kept: Vec<bool> = self
            .columns
            .iter()
            .map(|column| !is_label(column))
            .collect();
        let mut keep = kept.iter();
        self.columns.retain(|_| keep.next() == Some(&true));
        self.places.clear();
        for (place, column) in self.columns.iter().enumerate() {
            let key = (column.of as u8, column.name.clone().into_bytes());
            self.places.insert(key, place);
        }
    }

    fn place(&self, of: ScopeOf, name: &[u8]) -> Option<usize> {
        self.places.get(&(of as u8, name.to_vec())).copied()
    }

    /// Widens the type of a column by a value.
    fn learn(&mut self, of: ScopeOf, name: Vec<u8>, value: &Slot<'_>) {
        let kind = match value {
            // A label that never has a text.
            Slot::Null => FieldType::Text,
            Slot::Int(_) => FieldType::Int(8),
            Slot::UInt(_) => FieldType::UInt(8),
            Slot::Float(_) => FieldType::Float,
            Slot::Text(_) => FieldType::Text,
            Slot::Ints(_) => FieldType::IntList(8),
            Slot::UInts(_) => FieldType::UIntList(8),
        };
        let is_large = |number: &u64| i64::try_from(*number).is_err();
        let (is_negative, is_large) = match value {
            Slot::Int(number) => (*number < 0, false),
            Slot::Ints(list) => (list.iter().any(|number| *number < 0), false),
            Slot::UInt(number) => (false, is_large(number)),
            Slot::UInts(list) => (false, list.iter().any(is_large)),
            _ => (false, false),
        };
        let Some(place) = self.place(of, &name) else {
            if self.columns.len() < COLUMNS_MAX {
                self.columns.push(Column {
                    name: String::from_utf8_lossy(&name).into_owned(),
                    kind,
                    of,
                });
                self.places.insert((of as u8, name), self.columns.len() - 1);
                self.signs.push((is_negative, is_large));
            }
            return;
        };
        let (Some(column), Some(signs)) = (self.columns.get_mut(place), self.signs.get_mut(place))
        else {
            return;
        };
        *signs = (signs.0 | is_negative, signs.1 | is_large);
        column.kind = match (column.kind, kind) {
            (one, other) if one == other => one,
            (FieldType::Int(_) | FieldType::UInt(_), FieldType::Int(_) | FieldType::UInt(_)) => {
                FieldType::UInt(8)
            }
            (
                FieldType::IntList(_) | FieldType::UIntList(_),
                FieldType::IntList(_) | FieldType::UIntList(_),
            ) => FieldType::UIntList(8),
            (
                FieldType::Int(_) | FieldType::UInt(_) | FieldType::Float,
                FieldType::Int(_) | FieldType::UInt(_) | FieldType::Float,
            ) => FieldType::Float,
            _ => FieldType::Text,
        };
        column.kind = match (*signs, column.kind) {
            // No type has both.
            ((true, true), FieldType::Int(_) | FieldType::UInt(_)) => FieldType::Text,
            ((true, true), FieldType::IntList(_) | FieldType::UIntList(_)) => FieldType::Text,
            ((true, false), FieldType::UInt(_)) => FieldType::Int(8),
            ((true, false), FieldType::UIntList(_)) => FieldType::IntList(8),
            (_, other) => other,
        };
    }

    /// The values of an event, as its columns have them.
    fn values<'a>(&self, row: Row<'a>) -> Values<'a> {
        let mut values: Vec<Slot<'a>> = self.columns.iter().map(|_| Slot::Null).collect();
        for (of, members) in row.scopes {
            flatten(of, members, &mut |of, name, value| {
                let Some(place) = self.place(of, &name) else {
                    return;
                };
                let kind = self.columns.get(place).map(|column| column.kind);
                if let (Some(kind), Some(slot)) = (kind, values.get_mut(place)) {
                    *slot = fitted(value, kind);
                }
            });
        }
        Values(values)
    }
}

/// A value in the type of its column.
fn fitted(value: Slot<'_>, kind: FieldType) -> Slot<'_> {
    match (value, kind) {
        (Slot::Int(number), FieldType::UInt(_)) => Slot::UInt(number.cast_unsigned()),
        (Slot::UInt(number), FieldType::Int(_)) => Slot::Int(number.cast_signed()),
        (Slot::Int(number), FieldType::Float) => Slot::Float(number as f64),
        (Slot::UInt(number), FieldType::Float) => Slot::Float(number as f64),
        (Slot::Ints(list), FieldType::UIntList(_)) => {
            Slot::UInts(list.into_iter().map(i64::cast_unsigned).collect())
        }
        (Slot::UInts(list), FieldType::IntList(_)) => {
            Slot::Ints(list.into_iter().map(u64::cast_signed).collect())
        }
        (Slot::Int(number), FieldType::Text) => Slot::Text(number.to_string().into_bytes().into()),
        (Slot::UInt(number), FieldType::Text) => Slot::Text(number.to_string().into_bytes().into()),
        (Slot::Float(number), FieldType::Text) => {
            Slot::Text(number.to_string().into_bytes().into())
        }
        (Slot::Ints(list), FieldType::Text) => Slot::Text(format!("{list:?}").into_bytes().into()),
        (Slot::UInts(list), FieldType::Text) => Slot::Text(format!("{list:?}").into_bytes().into()),
        (value, _) => value,
    }
}
