//! Lines → costs, edges, jumps.

use perfquet_events::event::{
    Action, Event, EventId, EventKind, EventType, Fact, NamedFrame, Sample, Sink, Space, Stack,
};
use perfquet_events::{Error, Input};

use super::edges::{CALLS, EXECUTIONS, Edges, JUMPS};
use super::names::Names;
use crate::lines::{Counts, Line, LineProblems, Lines, Meter, hexadecimal, unsigned, words};

/// Events of a file.
const EVENTS_MAX: usize = 256;
/// Descriptions kept as facts.
const FACTS_MAX: usize = 100;

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let mut reader = Reader {
        sink,
        objects: Names::default(),
        files: Names::default(),
        functions: Names::default(),
        here: Place::default(),
        called: Called::default(),
        jump: None,
        edges: Edges::default(),
        positions: vec![Position::Line],
        last: [0; 3],
        events: Vec::new(),
        declared: 0,
        sums: Vec::new(),
        pid: None,
        facts: 0,
        problems: LineProblems::default(),
        counts: Counts::default(),
    };
    let mut lines = Lines::of(&map);
    let mut meter = Meter::default();
    while let Some(line) = lines.next() {
        reader.line(line)?;
        meter.report(lines.progress(), reader.sink)?;
    }
    reader.edges.emit(reader.sink)?;
    reader.problems.finish(reader.sink)?;
    reader.counts.report("callgrind.lines", reader.sink)
}

/// Where costs belong.
#[derive(Debug, Default, Clone, Copy)]
struct Place<'a> {
    object: &'a [u8],
    file: &'a [u8],
    function: &'a [u8],
}

/// What `cob=`, `cfi=` and `cfn=` name, and the count of `calls=`.
#[derive(Debug, Default, Clone, Copy)]
struct Called<'a> {
    object: Option<&'a [u8]>,
    function: Option<&'a [u8]>,
    count: Option<u64>,
}

/// A jump: times taken, executions, target.
#[derive(Debug, Clone, Copy)]
struct Jump {
    taken: u64,
    executed: u64,
    target: [u64; 3],
}

/// What the columns before the costs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Instruction,
    Line,
    Other,
}

struct Reader<'a, 's> {
    sink: &'s mut dyn Sink,
    objects: Names<'a>,
    files: Names<'a>,
    functions: Names<'a>,
    here: Place<'a>,
    called: Called<'a>,
    /// A jump, whose source is on the next line.
    jump: Option<Jump>,
    edges: Edges<'a>,
    positions: Vec<Position>,
    /// Positions on the last line, which may be given relative to them.
    last: [u64; 3],
    /// IDs of the events in the current part.
    events: Vec<(&'a [u8], EventId)>,
    declared: u32,
    /// Costs of the current part.
    sums: Vec<u64>,
    pid: Option<i32>,
    facts: usize,
    problems: LineProblems,
    counts: Counts,
}

impl<'a> Reader<'a, '_> {
    fn line(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text.trim_ascii();
        match text.first() {
            None => self.counts.blank += 1,
            Some(b'#') => self.counts.header += 1,
            Some(b'0'..=b'9' | b'+' | b'-' | b'*') => return self.costs(line, text),
            Some(_) => {
                let is_known = match text.iter().position(|byte| matches!(byte, b'=' | b':')) {
                    Some(end) if text.get(end) == Some(&b'=') => self.assignment(
                        text.get(..end).unwrap_or_default(),
                        text.get(end + 1..).unwrap_or_default().trim_ascii(),
                    ),
                    Some(end) => {
                        let value = text.get(end + 1..).unwrap_or_default().trim_ascii();
                        return self.head(line, text.get(..end).unwrap_or_default(), value);
                    }
                    None => false,
                };
                match is_known {
                    true => self.counts.header += 1,
                    false => return self.problem(line, "a name that was defined, or costs"),
                }
            }
        }
        Ok(())
    }

    fn problem(&mut self, line: Line<'_>, expected: &str) -> Result<(), Error> {
        self.counts.problem += 1;
        self.problems.line(line, expected, self.sink)
    }

    /// `fn=(2) main`; returns false if the name is unknown.
    fn assignment(&mut self, key: &[u8], value: &'a [u8]) -> bool {
        match key {
            b"ob" => set(&mut self.here.object, self.objects.name(value)),
            b"fl" | b"fi" | b"fe" => set(&mut self.here.file, self.files.name(value)),
            b"fn" => set(&mut self.here.function, self.functions.name(value)),
            b"cob" => {
                self.called.object = self.objects.name(value);
                self.called.object.is_some()
            }
            // The file of the called function is not part of an edge's key, but its name may be defined here.
            b"cfi" | b"cfl" | b"jfi" => self.files.name(value).is_some(),
            b"jfn" => self.functions.name(value).is_some(),
            b"cfn" => {
                self.called.function = self.functions.name(value);
                self.called.function.is_some()
            }
            b"calls" => {
                self.called.count = words(value).next().and_then(unsigned);
                self.called.count.is_some()
            }
            b"jump" | b"jcnd" => {
                self.jump = self.jump(value);
                self.jump.is_some()
            }
            _ => false,
        }
    }

    /// `jump=7 +3`, `jcnd=13/24 +34 *`: times taken, of executions, and the target.
    fn jump(&self, value: &[u8]) -> Option<Jump> {
        let mut parts = words(value);
        let mut counts = parts.next()?.split(|&byte| byte == b'/');
        let taken = unsigned(counts.next()?)?;
        let mut jump = Jump {
            taken,
            executed: counts.next().and_then(unsigned).unwrap_or(taken),
            target: [0; 3],
        };
        for (slot, last) in jump
            .target
            .iter_mut()
            .zip(self.last)
            .take(self.positions.len())
        {
            *slot = position(parts.next()?, last)?;
        }
        Some(jump)
    }

    /// A line of the head: `events: Ir Dr`.
    fn head(&mut self, line: Line<'_>, key: &[u8], value: &'a [u8]) -> Result<(), Error> {
        self.counts.header += 1;
        let text = String::from_utf8_lossy(value);
        match key {
            b"events" => return self.declare(value),
            b"positions" => {
                self.positions = words(value)
                    .take(self.last.len())
                    .map(|word| match word {
                        b"instr" => Position::Instruction,
                        b"line" => Position::Line,
                        _ => Position::Other,
                    })
                    .collect();
            }
            b"creator" => self.sink.event(Event::Fact(Fact::Recorder(&text)))?,
            b"cmd" => self.sink.event(Event::Fact(Fact::CommandLine(&text)))?,
            b"pid" => self.pid = unsigned(value).and_then(|pid| i32::try_from(pid).ok()),
            b"totals" => return self.compare(line, value),
            // Xdebug writes the sums there; callgrind writes totals as well.
            b"summary" | b"part" | b"thread" | b"version" => {}
            b"desc" | b"event" => {
                self.facts += 1;
                if self.facts <= FACTS_MAX {
                    let (name, value) = text.split_once(':').unwrap_or(("", &text));
                    let name =
                        format!("callgrind.{} {}", String::from_utf8_lossy(key), name.trim());
                    let (name, value) = (name.trim(), value.trim());
                    self.sink.event(Event::Fact(Fact::Other { name, value }))?;
                }
            }
            _ => {
                self.counts.header -= 1;
                return self.problem(line, "a line of the head, or costs");
            }
        }
        Ok(())
    }

    fn declare(&mut self, names: &'a [u8]) -> Result<(), Error> {
        let known = std::mem::take(&mut self.events);
        for name in words(names).take(EVENTS_MAX) {
            // Parts of a file have the same events.
            let id = match known.iter().find(|(other, _)| *other == name) {
                Some((_, id)) => *id,
                None if self.declared as usize >= EVENTS_MAX => continue,
                None => {
                    self.sink.event(Event::Type(&EventType {
                        system: "callgrind".into(),
                        name: String::from_utf8_lossy(name).into_owned(),
                        kind: EventKind::Counter,
                        ..EventType::default()
                    }))?;
                    self.declared += 1;
                    EventId(self.declared - 1)
                }
            };
            self.events.push((name, id));
        }
        self.sums = vec![0; self.events.len()];
        Ok(())
    }

    /// Compares the costs of a part with its totals.
    fn compare(&mut self, line: Line<'_>, totals: &[u8]) -> Result<(), Error> {
        let totals: Option<Vec<u64>> = words(totals).map(unsigned).collect();
        let totals = totals.unwrap_or_default();
        let is_same = self
            .sums
            .iter()
            .enumerate()
            .all(|(place, sum)| totals.get(place).copied().unwrap_or(0) == *sum);
        if !is_same {
            let expected = format!("totals of {:?}, the sums of the costs above", self.sums);
            self.problems.line(line, &expected, self.sink)?;
        }
        self.sums.fill(0);
        Ok(())
    }

    /// A line of positions and costs: of code, of the calls above it, or the source of a jump.
    fn costs(&mut self, line: Line<'a>, text: &'a [u8]) -> Result<(), Error> {
        let mut parts = words(text);
        let mut at = [0u64; 3];
        for (place, slot) in at.iter_mut().enumerate().take(self.positions.len()) {
            let last = self.last.get(place).copied().unwrap_or(0);
            match parts.next().and_then(|part| position(part, last)) {
                Some(value) => *slot = value,
                None => return self.problem(line, "positions and costs"),
            }
        }
        let costs: Option<Vec<u64>> = parts.map(unsigned).collect();
        let Some(costs) = costs.filter(|costs| costs.len() <= self.events.len()) else {
            return self.problem(line, "positions and a cost for each event");
        };
        self.last = at;
        self.counts.data += 1;
        let called = std::mem::take(&mut self.called);
        if let Some(jump) = self.jump.take() {
            let keys = [
                self.here.function.into(),
                self.code(at).into(),
                self.code(jump.target).into(),
            ];
            self.edges.add(JUMPS, &keys, jump.taken, self.sink)?;
            return self.edges.add(EXECUTIONS, &keys, jump.executed, self.sink);
        }
        let Some(count) = called.count else {
            return self.cost(at, &costs);
        };
        // Calls from a line, with the inclusive cost of each event.
        let callee = called.function.unwrap_or_default();
        let keys = [self.here.function.into(), callee.into()];
        self.edges.add(CALLS, &keys, count, self.sink)?;
        for ((name, _), cost) in self.events.iter().zip(&costs) {
            self.edges
                .add((name, Action::Sum), &keys, *cost, self.sink)?;
        }
        Ok(())
    }

    fn of(&self, at: [u64; 3], wanted: Position) -> Option<u64> {
        let place = self
            .positions
            .iter()
            .position(|position| *position == wanted)?;
        at.get(place).copied()
    }

    fn cost(&mut self, at: [u64; 3], costs: &[u64]) -> Result<(), Error> {
        let line = self
            .of(at, Position::Line)
            .and_then(|line| u32::try_from(line).ok());
        let frame = [NamedFrame {
            function: self.here.function,
            module: self.here.object,
            file: self.here.file,
            line: line.filter(|line| *line > 0),
            space: Space::User,
            ..NamedFrame::default()
        }];
        for (place, ((_, event), cost)) in self.events.iter().zip(costs).enumerate() {
            if let Some(sum) = self.sums.get_mut(place) {
                *sum = sum.saturating_add(*cost);
            }
            if *cost == 0 {
                continue;
            }
            let ip = self.of(at, Position::Instruction);
            self.sink.event(Event::Sample(&Sample {
                pid: self.pid,
                period: Some(*cost),
                ip,
                user_stack: Stack::Named(&frame),
                ..Sample::of(*event)
            }))?;
        }
        Ok(())
    }

    /// The address or the line of code.
    fn code(&self, at: [u64; 3]) -> Vec<u8> {
        match self.of(at, Position::Instruction) {
            Some(address) => format!("{address:#x}").into_bytes(),
            None => self
                .of(at, Position::Line)
                .unwrap_or(0)
                .to_string()
                .into_bytes(),
        }
    }
}

/// Sets a name if it is known.
fn set<'a>(slot: &mut &'a [u8], name: Option<&'a [u8]>) -> bool {
    *slot = name.unwrap_or_default();
    name.is_some()
}

/// `16`, `0x4011a0`, and relative to the last position: `+3`, `-2`, `*`.
fn position(text: &[u8], last: u64) -> Option<u64> {
    let number = |text: &[u8]| match text.strip_prefix(b"0x") {
        Some(digits) => hexadecimal(digits),
        None => unsigned(text),
    };
    match text.split_first()? {
        (b'*', []) => Some(last),
        (b'+', rest) => last.checked_add(number(rest)?),
        (b'-', rest) => last.checked_sub(number(rest)?),
        _ => number(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        assert_eq!(position(b"16", 3), Some(16));
        assert_eq!(position(b"0x1f", 3), Some(31));
        assert_eq!(position(b"+0x10", 3), Some(19));
        assert_eq!(position(b"-2", 3), Some(1));
        assert_eq!(position(b"*", 3), Some(3));
        for text in ["", "-4", "+", "*1", "x"] {
            assert_eq!(position(text.as_bytes(), 3), None, "{text}");
        }
    }
}
