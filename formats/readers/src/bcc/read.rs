//! Lines → aggregates, rows, messages.

use perfquet_events::event::{
    Action, AggregateValue, Bucket, Event, EventId, Fields, Loss, NamedFrame, Sample, Sink,
};
use perfquet_events::{Error, Input};

use super::{histogram, stack, tool};
use crate::columns::{Below, Columns, RowsUnder, is_elision};
use crate::lines::{Line, Lines, Meter, signed, unsigned, words};
use crate::printout::{Printout, Stacks, Sum};
use crate::value_table::ValueTable;

/// More bars than any histogram has.
const BARS_MAX: usize = 1 << 16;
/// Lists of events with a table each.
const TABLES_MAX: usize = 256;
const HALF_A_DAY: i64 = 43_200_000_000_000;

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let mut reader = Reader {
        lines: Lines::of(&map),
        here: Lines::of(&map),
        out: Printout::new("bcc", sink)?,
        section: None,
        key: Vec::new(),
        table: None,
        paused: None,
        tables: Vec::new(),
        days: 0,
        last_time: 0,
    };
    let mut meter = Meter::default();
    loop {
        reader.here = reader.lines.clone();
        let Some(line) = reader.lines.next() else {
            break;
        };
        reader.line(line.without_interrupt())?;
        meter.report(reader.lines.progress(), reader.out.sink)?;
    }
    reader.out.finish()
}

/// A table that is being read.
#[derive(Debug, Clone)]
enum Table<'a> {
    Values(ValueTable<'a>),
    /// Index of a list of events.
    Events(usize),
}

/// A list of events.
struct List<'a> {
    name: &'static str,
    titles: &'a [u8],
    columns: Columns,
    event: EventId,
    /// Columns of the time, process, thread and name.
    time: Option<usize>,
    pid: Option<usize>,
    tid: Option<usize>,
    comm: Option<usize>,
}

struct Reader<'a, 's> {
    lines: Lines<'a>,
    /// The lines from the current one on.
    here: Lines<'a>,
    out: Printout<'s>,
    /// The line that names the next histogram.
    section: Option<&'a [u8]>,
    /// Key of the last histogram.
    key: Vec<&'a [u8]>,
    table: Option<Table<'a>>,
    /// The list above a blank line.
    paused: Option<usize>,
    tables: Vec<List<'a>>,
    /// Nanoseconds of the days before the current one.
    days: i64,
    last_time: i64,
}

impl<'a> Reader<'a, '_> {
    fn peek(&self) -> Option<Line<'a>> {
        self.lines.clone().next().map(Line::without_interrupt)
    }

    fn line(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text;
        if text.trim_ascii().is_empty() {
            self.out.counts.blank += 1;
            // trace prints a blank line below the stack of an event.
            self.paused = match self.table.take() {
                Some(Table::Events(place)) => Some(place),
                _ => self.paused,
            };
            return Ok(());
        }
        if let Some(time) = tool::time_of_day(text.trim_ascii()) {
            self.out.counts.header += 1;
            return self.printing(time);
        }
        if let Some(unit) = histogram::head(text) {
            return self.histogram(line, unit);
        }
        if self.is_section(text) {
            self.out.counts.header += 1;
            self.section = Some(text.trim_ascii());
            return Ok(());
        }
        if let Some(table) = ValueTable::of(text)
            && self.peek().is_some_and(|row| table.row(row.text).is_some())
        {
            self.out.counts.header += 1;
            self.key = self.section.take().into_iter().collect();
            self.table = Some(Table::Values(table));
            return Ok(());
        }
        if let Some(name) = tool::of_titles(text)
            && self.list(name, text)?
        {
            self.out.counts.header += 1;
            return Ok(());
        }
        let paused = self.paused.take();
        match (self.table.take(), paused) {
            (Some(table), _) => self.row(line, table),
            (None, Some(place)) if self.is_event(text, place) => {
                self.row(line, Table::Events(place))
            }
            (None, _) => self.other(line),
        }
    }

    /// A line without a table: a stack, the averages below a histogram, a message.
    fn other(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text;
        if let Some((unit, [average, total, count])) = histogram::averages(text) {
            self.out.counts.data += 1;
            let name = unit.as_bytes();
            return self.sums(
                name,
                &[
                    (Action::Avg, average),
                    (Action::Sum, total),
                    (Action::Count, count),
                ],
            );
        }
        if let Some([bytes, count]) = stack::allocations(text) {
            let before = self.lines.clone();
            let frames = stack::frames_below(text, &mut self.lines);
            self.out.counts.data += 1 + lines_between(before, &self.lines);
            return self.allocations(&frames, bytes, count);
        }
        if text.starts_with(b"  ") || text.starts_with(b"\t") {
            let mut lines = self.here.clone();
            if let Some(valued) = stack::valued(&mut lines) {
                self.lines = lines;
                self.out.counts.data += valued.lines;
                return self.out.sum(Sum {
                    keys: &valued.key,
                    value: Some(valued.value),
                    stacks: Stacks::of(&valued.frames),
                    ..Sum::default()
                });
            }
        }
        if histogram::bar(text).is_some() {
            return self
                .out
                .problem(line, "the head of a histogram above a bar");
        }
        if histogram::is_like_bar(text) && text.trim_ascii_end().ends_with(b"|") {
            return self.out.problem(line, "a bar of a histogram");
        }
        if let Some(count) = lost(text) {
            self.out.counts.loss += 1;
            return self.out.sink.event(Event::Loss(Loss {
                time: None,
                cpu: None,
                event: None,
                count: Some(count),
                in_all: None,
                reason: "lost events",
            }));
        }
        // memleak prints the time before a text.
        let first = text.get(..10).and_then(tool::time_of_day);
        if let Some(time) = first {
            self.printing(time)?;
        }
        self.out.message(line, Stacks::default())
    }

    /// Begins a printing at a time of day. At midnight, the next day begins.
    fn printing(&mut self, time: i64) -> Result<(), Error> {
        self.out.clock("local time of day")?;
        self.table = None;
        let time = self.of_day(time);
        self.out.printing(Some(time));
        Ok(())
    }

    fn of_day(&mut self, time: i64) -> i64 {
        if self.last_time - time > HALF_A_DAY {
            self.days = self.days.saturating_add(2 * HALF_A_DAY);
        }
        self.last_time = time;
        time.saturating_add(self.days)
    }

    /// Whether the line names the histogram or table below it: `pid = 7`, `Process: x`, a probe of argdist.
    fn is_section(&self, text: &[u8]) -> bool {
        let text = text.trim_ascii();
        let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
        let is_probe = matches!(text, [b'p' | b'r' | b't' | b'u', b':', ..]);
        let is_key = has(b" = ") || text.starts_with(b"Process: ") || is_probe;
        is_key
            && self.peek().is_some_and(|next| {
                histogram::head(next.text).is_some()
                    || (is_probe && ValueTable::of(next.text).is_some())
            })
    }

    fn histogram(&mut self, head: Line<'a>, unit: &'a [u8]) -> Result<(), Error> {
        self.table = None;
        let (mut bars, mut action): (Vec<Bucket>, _) = (Vec::new(), None);
        while let Some(line) = self.peek() {
            match histogram::bar(line.text) {
                Some(bar) if bars.len() < BARS_MAX => {
                    self.out.counts.data += 1;
                    bars.push(bar);
                    action = action.or(Some(histogram::action(line.text)));
                }
                Some(_) => self.out.problem(line, "at most 65536 bars")?,
                None if histogram::is_like_bar(line.text) => {
                    self.out.problem(line, "a bar of a histogram")?;
                }
                None => break,
            }
            self.lines.next();
        }
        self.key = self.section.take().into_iter().collect();
        if bars.is_empty() {
            return self.out.problem(head, "bars below the head of a histogram");
        }
        self.out.counts.header += 1;
        self.out.sum(Sum {
            name: unit,
            action,
            keys: &self.key,
            buckets: &bars,
            ..Sum::default()
        })
    }

    fn sums(&mut self, name: &[u8], values: &[(Action, AggregateValue)]) -> Result<(), Error> {
        for (action, value) in values {
            self.out.sum(Sum {
                name,
                action: Some(*action),
                keys: &self.key,
                value: Some(*value),
                ..Sum::default()
            })?;
        }
        Ok(())
    }

    fn allocations(
        &mut self,
        frames: &[NamedFrame<'_>],
        bytes: AggregateValue,
        count: AggregateValue,
    ) -> Result<(), Error> {
        let values = [
            (&b"bytes"[..], Action::Sum, bytes),
            (b"allocations", Action::Count, count),
        ];
        for (name, action, value) in values {
            self.out.sum(Sum {
                name,
                action: Some(action),
                value: Some(value),
                stacks: Stacks::of(frames),
                ..Sum::default()
            })?;
        }
        Ok(())
    }

    fn row(&mut self, line: Line<'a>, table: Table<'a>) -> Result<(), Error> {
        match table {
            Table::Values(values) => {
                let Some((keys, found)) = values.row(line.text) else {
                    if is_elision(line.text) {
                        self.table = Some(Table::Values(values));
                        return self.out.problem(line, "the omitted lines");
                    }
                    // Other text ends the table.
                    return self.other(line);
                };
                self.out.counts.data += 1;
                let keys: Vec<&[u8]> = self.key.iter().copied().chain(keys).collect();
                for ((name, action), value) in values.values.iter().zip(found) {
                    self.out.sum(Sum {
                        name,
                        action: *action,
                        keys: &keys,
                        value: Some(value),
                        ..Sum::default()
                    })?;
                }
                self.table = Some(Table::Values(values));
                Ok(())
            }
            Table::Events(place) => {
                self.table = Some(Table::Events(place));
                self.event(line, place)
            }
        }
    }

    /// Begins or continues a list of events. Returns false if no row follows.
    fn list(&mut self, name: &'static str, titles: &'a [u8]) -> Result<bool, Error> {
        let titles = titles.trim_ascii_end();
        let known = self.tables.iter().position(|list| list.titles == titles);
        let place = match known {
            Some(place) => place,
            None if self.tables.len() >= TABLES_MAX => return Ok(false),
            None => {
                // The last column may be empty.
                let least_words = words(titles).count().saturating_sub(1);
                let rows = RowsUnder::new(self.lines.clone(), titles, move |text| {
                    match text.trim_ascii() {
                        b"" => Below::End,
                        _ if words(text).count() >= least_words => Below::Row,
                        _ => Below::Other,
                    }
                });
                let Some(columns) = Columns::under(titles, rows).filter(Columns::has_numbers)
                else {
                    return Ok(false);
                };
                let same = self.tables.iter().filter(|list| list.name == name).count();
                let numbered = match same {
                    0 => name.to_owned(),
                    others => format!("{name}_{}", others + 1),
                };
                let event = self.out.declare(&columns.event_type("bcc", &numbered))?;
                let of = |wanted: &[&[u8]]| {
                    let mut words = words(titles);
                    words.position(|word| wanted.contains(&word))
                };
                self.tables.push(List {
                    name,
                    titles,
                    event,
                    time: of(&[b"TIME(s)", b"TIME"]),
                    pid: of(&[b"PID"]),
                    tid: of(&[b"TID"]),
                    comm: of(&[b"COMM", b"PCOMM"]),
                    columns,
                });
                self.tables.len() - 1
            }
        };
        self.table = Some(Table::Events(place));
        Ok(true)
    }

    /// The cells of an event, if the line is one.
    fn cells(&self, text: &'a [u8], place: usize) -> Option<Vec<&'a [u8]>> {
        let list = self.tables.get(place)?;
        let cells = list.columns.cells(text);
        let cells = cells.filter(|cells| list.columns.fits(cells));
        // The name of a thread may have blanks.
        cells.or_else(|| list.columns.with_blanks_in(text, list.comm?))
    }

    /// Whether a line after a blank one continues a list: it has the number of a process.
    fn is_event(&self, text: &'a [u8], place: usize) -> bool {
        let pid = self.tables.get(place).and_then(|list| list.pid);
        let cells = self.cells(text, place);
        let cell = pid.and_then(|pid| cells?.get(pid).copied());
        cell.is_some_and(|cell| unsigned(cell).is_some())
    }

    fn event(&mut self, line: Line<'a>, place: usize) -> Result<(), Error> {
        let Some(cells) = self.cells(line.text, place) else {
            let expected = match is_elision(line.text) {
                true => "the omitted lines",
                false => "a row of the list above",
            };
            return self.out.problem(line, expected);
        };
        let mut frames = Vec::new();
        if self
            .peek()
            .is_some_and(|next| next.text.starts_with(b"        "))
        {
            let before = self.lines.clone();
            frames = stack::frames_below(line.text, &mut self.lines);
            self.out.counts.data += lines_between(before, &self.lines);
        }
        let stacks = match frames.as_slice() {
            [] => Stacks::default(),
            frames => Stacks::of(frames),
        };
        let Some(list) = self.tables.get(place) else {
            return Ok(());
        };
        let values = list.columns.values(&cells);
        let cell = |column: Option<usize>| cells.get(column?).copied();
        let id = |column| i32::try_from(signed(cell(column)?)?).ok();
        let sample = Sample {
            pid: id(list.pid),
            tid: id(list.tid),
            comm: cell(list.comm),
            kernel_stack: stacks.kernel(),
            user_stack: stacks.user(),
            fields: Fields::Values(&values),
            ..Sample::of(list.event)
        };
        let text = cell(list.time).unwrap_or_default();
        let time = match (tool::time_of_day(text), tool::seconds(text)) {
            (Some(time), _) => {
                self.out.clock("local time of day")?;
                Some(self.of_day(time))
            }
            (None, Some(time)) => {
                self.out.clock("seconds since the tool began")?;
                Some(time)
            }
            (None, None) => None,
        };
        self.out.counts.data += 1;
        self.out
            .sink
            .event(Event::Sample(&Sample { time, ..sample }))
    }
}

/// `Lost 7 events`, `Possibly lost 7 samples`: the number.
fn lost(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let rest = text
        .strip_prefix("Possibly lost ")
        .or(text.strip_prefix("Lost ").or(text.strip_prefix("lost ")))?;
    let (count, rest) = rest.split_once(' ')?;
    (rest.starts_with("samples") || rest.starts_with("events")).then_some(())?;
    unsigned(count.as_bytes())
}

/// Number of lines between two positions in a text.
fn lines_between(mut from: Lines<'_>, to: &Lines<'_>) -> u64 {
    let mut count = 0;
    while from.rest().len() > to.rest().len() && from.next().is_some() {
        count += 1;
    }
    count
}
