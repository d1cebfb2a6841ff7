//! Lines → aggregates.

use perfquet_events::event::{Action, AggregateValue, Sink};
use perfquet_events::{Error, Input};

use crate::lines::{Line, Lines, Meter, unsigned, words};
use crate::printout::{Printout, Stacks, Sum};

/// The first bytes of gmon.out.
pub(super) const GMON: &[u8] = b"gmon\x01\0\0\0";

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    if map.starts_with(GMON) {
        return Err(Error::Unsupported {
            input: input.name().to_owned(),
            message: "counts of gprof without names of functions\nhint: run gprof PROGRAM gmon.out > FILE, and import FILE".to_owned(),
        });
    }
    let mut reader = Reader {
        out: Printout::new("gprof", sink)?,
        table: None,
        titles: Vec::new(),
        function: None,
    };
    let mut lines = Lines::of(&map);
    let mut meter = Meter::default();
    while let Some(line) = lines.next() {
        reader.line(line)?;
        meter.report(lines.progress(), reader.out.sink)?;
    }
    reader.out.finish()
}

/// The tables of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Flat,
    Graph,
}

/// The table that these titles begin.
pub(super) fn head(line: &[u8]) -> Option<Head> {
    let words: Vec<&[u8]> = words(line).take(9).collect();
    match words.as_slice() {
        [b"time", b"seconds", b"seconds", .., b"name"] => Some(Head::Flat),
        [
            b"index",
            b"%",
            b"time",
            b"self",
            b"children",
            b"called",
            b"name",
        ] => Some(Head::Graph),
        _ => None,
    }
}

struct Reader<'a, 's> {
    out: Printout<'s>,
    table: Option<Head>,
    /// Units of the means: `ms/call`.
    titles: Vec<&'a [u8]>,
    /// The function of the current block, once its line was read.
    function: Option<&'a [u8]>,
}

impl<'a> Reader<'a, '_> {
    fn line(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text;
        if text.trim_ascii().is_empty() {
            self.out.counts.blank += 1;
            // A blank line or a form feed ends a table.
            self.table = None;
            return Ok(());
        }
        if let Some(head) = head(text) {
            self.out.counts.header += 1;
            self.table = Some(head);
            self.titles = words(text)
                .filter(|word| word.ends_with(b"/call"))
                .collect();
            self.function = None;
            return Ok(());
        }
        match self.table {
            None => self.out.message(line, Stacks::default()),
            Some(Head::Flat) => self.flat(line),
            Some(Head::Graph) => self.graph(line),
        }
    }

    fn sum(
        &mut self,
        name: &[u8],
        action: Action,
        keys: &[&[u8]],
        value: AggregateValue,
    ) -> Result<(), Error> {
        self.out.sum(Sum {
            name,
            action: Some(action),
            keys,
            value: Some(value),
            ..Sum::default()
        })
    }

    /// `100.16      0.16     0.16     3001     0.05     0.05  leaf`; calls and means may be missing.
    fn flat(&mut self, line: Line<'a>) -> Result<(), Error> {
        let (numbers, name) = numbers(line.text);
        let (Some(self_seconds), false) = (numbers.get(2), name.is_empty()) else {
            return self.out.problem(line, "a row of the flat profile");
        };
        if !matches!(numbers.len(), 3 | 4 | 6) {
            return self.out.problem(line, "3, 4 or 6 numbers and a function");
        }
        self.out.counts.data += 1;
        let keys = [name];
        self.sum(b"self seconds", Action::Sum, &keys, *self_seconds)?;
        if let Some(calls) = numbers.get(3) {
            self.sum(b"calls", Action::Count, &keys, *calls)?;
        }
        let titles = self.titles.clone();
        let means = numbers.get(4..).unwrap_or_default();
        for ((prefix, unit), mean) in [b"self ", &b"total "[..]]
            .into_iter()
            .zip(titles)
            .zip(means)
        {
            self.sum(&[prefix, unit].concat(), Action::Avg, &keys, *mean)?;
        }
        Ok(())
    }

    fn graph(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text.trim_ascii();
        if text.starts_with(b"-----") {
            self.out.counts.header += 1;
            self.function = None;
            return Ok(());
        }
        if let Some(rest) = text.strip_prefix(b"[") {
            let after = rest.iter().position(|&byte| byte == b']');
            let (numbers, called) = numbers(
                after
                    .and_then(|end| rest.get(end + 1..))
                    .unwrap_or_default(),
            );
            let (_, name) = counted(called);
            let (Some(children), false) = (numbers.get(2), name.is_empty()) else {
                return self.out.problem(line, "the function of a block");
            };
            self.out.counts.data += 1;
            self.function = Some(name);
            return self.sum(b"children seconds", Action::Sum, &[name], *children);
        }
        let Some(caller) = self.function else {
            // A caller: the block of the caller has the same numbers.
            self.out.counts.header += 1;
            return Ok(());
        };
        let (numbers, called) = numbers(text);
        let (count, callee) = counted(called);
        // A recursive call has no seconds, and its count is the only number.
        let (seconds, count) = match (numbers.as_slice(), count) {
            ([own, children], Some(count)) => (Some((*own, *children)), count),
            ([own, children, count], None) => (Some((*own, *children)), *count),
            ([count], None) => (None, *count),
            ([], Some(count)) => (None, count),
            _ => return self.out.problem(line, "a function that is called"),
        };
        if callee.is_empty() {
            return self.out.problem(line, "a function that is called");
        }
        self.out.counts.data += 1;
        let keys = [caller, callee];
        self.sum(b"edge calls", Action::Count, &keys, count)?;
        if let Some((own, children)) = seconds {
            self.sum(b"edge self seconds", Action::Sum, &keys, own)?;
            self.sum(b"edge children seconds", Action::Sum, &keys, children)?;
        }
        Ok(())
    }
}

/// The numbers that a line begins with, and the rest of it.
fn numbers(line: &[u8]) -> (Vec<AggregateValue>, &[u8]) {
    let mut rest = line.trim_ascii();
    let mut numbers = Vec::new();
    while numbers.len() < 6 {
        let end = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_number = !word.is_empty()
            && word
                .iter()
                .all(|byte| byte.is_ascii_digit() || *byte == b'.');
        let value = std::str::from_utf8(word)
            .ok()
            .filter(|_| is_number)
            .and_then(AggregateValue::parse);
        let Some(value) = value else { break };
        numbers.push(value);
        rest = after.trim_ascii_start();
    }
    (numbers, rest)
}

/// `3000/3001   leaf [1]`, `1+2692536 fib [4]`, `main <cycle 1> [2]`: the count before the slash or plus, and the function.
fn counted(text: &[u8]) -> (Option<AggregateValue>, &[u8]) {
    let end = text
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    let mut parts = word.splitn(2, |byte| matches!(byte, b'/' | b'+'));
    let count = parts
        .next()
        .and_then(unsigned)
        .zip(parts.next().and_then(unsigned));
    let name = match count {
        Some(_) => after.trim_ascii(),
        None => text,
    };
    let name = match name.iter().rposition(|&byte| byte == b'[') {
        Some(open) if name.ends_with(b"]") => name.get(..open).unwrap_or_default().trim_ascii_end(),
        _ => name,
    };
    (
        count.map(|(count, _)| AggregateValue::of_unsigned(count)),
        name,
    )
}
