//! Lines → aggregates, calls, messages.

use hashbrown::HashMap;
use perfquet_events::event::{
    Action, AggregateValue, Bucket, Common, Enter, Event, Function, Leave, Sink,
};
use perfquet_events::{Error, Input};

use super::indent::{self, Edge};
use super::stack;
use crate::columns::is_elision;
use crate::distribution::{Bar, Label, Steps, bar_parts, buckets, label};
use crate::lines::{Line, Lines, Meter, signed, words};
use crate::printout::{Printout, Stacks, Sum};
use crate::value_table::ValueTable;

/// More bars than any histogram has.
const BARS_MAX: usize = 1 << 16;
/// Threads whose open calls are remembered.
const THREADS_MAX: usize = 1 << 16;
/// Enclosing calls remembered for each thread.
const DEPTH_MAX: usize = 1 << 12;

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let edges = Lines::of(&map).filter_map(|line| indent::edge(line.text));
    let blanks = edges.map(|edge| edge.blanks).min();
    let mut reader = Reader {
        lines: Lines::of(&map),
        out: Printout::new("systemtap", sink)?,
        title: None,
        table: None,
        outermost_blanks: blanks.unwrap_or(0),
        threads: HashMap::new(),
    };
    let mut meter = Meter::default();
    while let Some(line) = reader.lines.next() {
        reader.line(line)?;
        meter.report(reader.lines.progress(), reader.out.sink)?;
    }
    reader.out.finish()
}

/// Whether a line is the head of a histogram: `value |----- count`.
pub(super) fn is_head(line: &[u8]) -> bool {
    let rest = line.trim_ascii().strip_prefix(b"value |");
    let dashes = rest.and_then(|rest| rest.strip_suffix(b" count"));
    dashes.is_some_and(|dashes| !dashes.is_empty() && dashes.iter().all(|&byte| byte == b'-'))
}

struct Reader<'a, 's> {
    lines: Lines<'a>,
    out: Printout<'s>,
    /// The line above a histogram.
    title: Option<&'a [u8]>,
    table: Option<ValueTable<'a>>,
    /// Blanks before the arrow of an outermost call.
    outermost_blanks: u32,
    /// Start of each open call of a thread in microseconds; those not seen are `None`.
    threads: HashMap<i32, Vec<Option<u64>>>,
}

impl<'a> Reader<'a, '_> {
    fn peek(&self) -> Option<Line<'a>> {
        self.lines.clone().next()
    }

    fn line(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text.strip_prefix(b"^C").unwrap_or(line.text);
        if text.trim_ascii().is_empty() {
            self.out.counts.blank += 1;
            // A blank line may be between the rows of a table, too.
            let next = self.peek().map_or(&b""[..], |next| next.text);
            self.table = self.table.take().filter(|table| table.row(next).is_some());
            return Ok(());
        }
        if is_head(text) {
            return self.histogram(line);
        }
        if let Some(edge) = indent::edge(text) {
            self.out.counts.data += 1;
            return self.call(&edge);
        }
        let next = self.peek().map_or(&b""[..], |next| next.text);
        if is_head(next) {
            self.out.counts.header += 1;
            self.title = Some(text.trim_ascii());
            return Ok(());
        }
        if let Some(table) = ValueTable::of(text).filter(|table| {
            let mut below = self.lines.clone();
            // A blank line may follow the titles.
            below
                .by_ref()
                .take(2)
                .any(|row| table.row(row.text).is_some())
        }) {
            self.out.counts.header += 1;
            if next.trim_ascii().is_empty() {
                self.lines.next();
                self.out.counts.blank += 1;
            }
            self.table = Some(table);
            return Ok(());
        }
        if self.table.is_some() && is_elision(text) {
            return self.out.problem(line, "the omitted lines");
        }
        if let Some(table) = self.table.take()
            && let Some((keys, values)) = table.row(text)
        {
            self.out.counts.data += 1;
            for ((name, action), value) in table.values.iter().zip(values) {
                let (keys, value, action) = (keys.as_slice(), Some(value), *action);
                self.out.sum(Sum {
                    name,
                    action,
                    keys,
                    value,
                    ..Sum::default()
                })?;
            }
            self.table = Some(table);
            return Ok(());
        }
        self.other(Line { text, ..line })
    }

    /// A line with the backtrace below it.
    fn other(&mut self, line: Line<'a>) -> Result<(), Error> {
        if stack::frame(line.text).is_some() {
            return self.out.problem(line, "a line above the backtrace");
        }
        if bar(line.text.trim_ascii()).is_some() {
            return self
                .out
                .problem(line, "the head of a histogram above a bar");
        }
        if stack::is_like_frame(line.text) {
            return self.out.problem(line, "an address and its symbol");
        }
        let frames = stack::frames(&mut self.lines);
        self.out.counts.data += frames.len() as u64;
        let stacks = match frames.as_slice() {
            [] => Stacks::default(),
            frames => Stacks::of(frames),
        };
        match signed(line.text.trim_ascii()) {
            Some(value) if !frames.is_empty() => {
                self.out.counts.data += 1;
                self.out.sum(Sum {
                    value: Some(AggregateValue::Int(value)),
                    stacks,
                    ..Sum::default()
                })
            }
            _ => self.out.message(line, stacks),
        }
    }

    fn histogram(&mut self, head: Line<'a>) -> Result<(), Error> {
        self.table = None;
        let mut bars: Vec<Bar> = Vec::new();
        while let Some(line) = self.peek() {
            let text = line.text.trim_ascii();
            if text == b"~" {
                self.out.counts.header += 1;
            } else if let Some(bar) = bar(text).filter(|_| bars.len() < BARS_MAX) {
                self.out.counts.data += 1;
                bars.push(bar);
            } else if text.contains(&b'|') && !is_head(text) {
                self.out.problem(line, "a bar of a histogram")?;
            } else {
                break;
            }
            self.lines.next();
        }
        let (action, buckets) = distribution(&bars);
        let title = self
            .title
            .take()
            .map(|title| title.strip_suffix(b":").unwrap_or(title));
        let keys: Vec<&[u8]> = title.into_iter().collect();
        if bars.is_empty() {
            return self.out.problem(head, "bars below the head of a histogram");
        }
        self.out.counts.header += 1;
        self.out.sum(Sum {
            action,
            keys: &keys,
            buckets: &buckets,
            ..Sum::default()
        })
    }

    fn call(&mut self, edge: &Edge<'_>) -> Result<(), Error> {
        let depth = edge.blanks.saturating_sub(self.outermost_blanks);
        let common = Common {
            tid: Some(edge.tid),
            comm: Some(edge.comm),
            ..Common::default()
        };
        let function = Function::named(edge.function);
        if edge.is_entry {
            self.entered(edge, depth);
            return self.out.sink.event(Event::Enter(&Enter {
                common,
                function,
                depth: Some(depth),
                args: &indent::arguments(edge.rest),
                ..Enter::default()
            }));
        }
        let duration = self.left(edge, depth);
        self.out.sink.event(Event::Leave(&Leave {
            common,
            function,
            depth: Some(depth),
            duration,
            retval: indent::returned(edge.rest),
            ..Leave::default()
        }))
    }

    fn entered(&mut self, edge: &Edge<'_>, depth: u32) {
        let depth = depth as usize;
        if depth >= DEPTH_MAX {
            return;
        }
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&edge.tid) {
            self.threads.clear();
        }
        let open = self.threads.entry(edge.tid).or_default();
        open.resize(depth, None);
        open.push(Some(edge.elapsed_us));
    }

    /// Nanoseconds of the call that returns, if its entry was printed.
    fn left(&mut self, edge: &Edge<'_>, depth: u32) -> Option<i64> {
        let open = self.threads.get_mut(&edge.tid)?;
        let start = open.get(depth as usize).copied().flatten()?;
        open.truncate(depth as usize);
        let elapsed_us = edge.elapsed_us.checked_sub(start)?;
        i64::try_from(elapsed_us).ok()?.checked_mul(1000)
    }
}

/// `  4096 |@   1`, `<0 |@  2`, `>90 |  3`.
pub(super) fn bar(text: &[u8]) -> Option<Bar> {
    let (text, count) = bar_parts(text)?;
    let value = |text: &[u8]| signed(text.trim_ascii());
    let label = match text.trim_ascii().split_first() {
        Some((b'<', rest)) => Label::Below(value(rest)?),
        Some((b'>', rest)) => Label::AtLeast(value(rest)?),
        _ => label(words(text).next()?)?,
    };
    Some(Bar { label, count })
}

/// The function and the buckets of bars.
fn distribution(bars: &[Bar]) -> (Option<Action>, Vec<Bucket>) {
    let action = match Steps::of(bars, None) {
        Steps::Double => Some(Action::Quantize),
        _ if is_log(bars) => Some(Action::Quantize),
        Steps::Equal(_) | Steps::Labels => Some(Action::Lquantize),
    };
    let mut buckets = buckets(bars, action);
    // `>90` below a row 90 begins where that row ends.
    if let [.., before, last] = buckets.as_mut_slice()
        && last.high.is_none()
        && last.low == before.low
    {
        last.low = before.high;
    }
    (action, buckets)
}

/// Whether all labels are powers of two, and not in equal steps: rows may be left out.
fn is_log(bars: &[Bar]) -> bool {
    let mut values = Vec::new();
    for bar in bars {
        match bar.label {
            Label::Value(value) => values.push(value),
            _ => return false,
        }
    }
    let is_power = |value: &i64| value.unsigned_abs().is_power_of_two() || *value == 0;
    let mut steps = values.windows(2).filter_map(|pair| match pair {
        [low, high] => high.checked_sub(*low),
        _ => None,
    });
    let first = steps.next();
    let is_uneven = steps.any(|step| Some(step) != first);
    let is_pair = matches!(values.as_slice(), [low, _] if *low != 0);
    values.iter().all(is_power) && (is_uneven || is_pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &str, expected: &str) {
        let bars: Vec<Bar> = lines
            .lines()
            .map(|line| bar(line.as_bytes()).expect(line))
            .collect();
        let end = |end: Option<i64>| end.map_or("_".to_owned(), |end| end.to_string());
        let (action, buckets) = distribution(&bars);
        let mut text = action.map_or("", Action::as_str).to_owned();
        for bucket in buckets {
            text += &format!(
                " {}..{}x{}",
                end(bucket.low),
                end(bucket.high),
                bucket.count
            );
        }
        assert_eq!(text, expected);
    }

    #[test]
    fn bars() {
        check(
            " 1024 |@@  2\n 2048 |  0\n",
            "quantize 1024..2048x2 2048..4096x0",
        );
        check(
            " -2 |@ 1\n -1 |  0\n 0 |@ 4\n 1 |@@  2\n 2 |@  2\n",
            "quantize -3..-1x1 -1..0x0 0..1x4 1..2x2 2..4x2",
        );
        // Rows between were elided.
        check(
            " -1024 |@ 1\n -512 |@ 1\n 0 | 0\n 64 |@ 3\n 128 |@ 3\n",
            "quantize -2047..-1023x1 -1023..-511x1 0..1x0 64..128x3 128..256x3",
        );
        check(
            " <0 |@ 1\n 0 |@ 2\n 10 | 0\n 20 |@ 3\n >20 |@ 4\n",
            "lquantize _..0x1 0..10x2 10..20x0 20..30x3 30.._x4",
        );
    }
}
