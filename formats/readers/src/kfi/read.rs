//! Lines → calls.

use perfquet_events::event::{Call, Common, Event, Fact, Loss, Place, Problem, Sink, time_of};
use perfquet_events::{Error, Input};

use super::config;
use super::header::{self, Line as Head};
use super::row::{self, Delta, Row, without_console};
use super::segments::{self, Segments};
use crate::lines::{Line, LineProblems, Lines, Meter, quoted};

const NANOSECONDS: u64 = 1000;
/// Maximum number of unknown header lines kept.
const NOTES_MAX: u64 = 20;

/// Reads all runs of a log.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    if config::is_config(&map) {
        let config = config::check(&String::from_utf8_lossy(&map));
        return Err(Error::Unsupported {
            input: input.name().to_owned(),
            message: format!("a KFI configuration, not a trace: {config}"),
        });
    }
    let mut reader = Reader::default();
    let mut meter = Meter::default();
    let mut lines = Lines::of(&map);
    loop {
        let ahead = lines.clone();
        let Some(line) = lines.next() else { break };
        reader.line(line, &ahead, sink)?;
        meter.report(lines.progress(), sink)?;
    }
    if reader.run.number == 0 {
        let first = Lines::of(&map).next().map_or(&b""[..], |line| line.text);
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Line(1),
            message: format!(
                "expected \"Kernel Instrumentation Run ID\" or a row of a log, found {}",
                quoted(first)
            ),
        });
    }
    reader.finish(sink)
}

#[derive(Default)]
struct Reader<'a> {
    run: Run<'a>,
    /// Number of lines before the first run that belong to no log.
    before: u64,
    problems: LineProblems,
}

/// The state of the current run.
#[derive(Default)]
struct Run<'a> {
    /// From 1; 0 before the first run.
    number: u64,
    /// Time of the start trigger, in microseconds.
    start: Option<u64>,
    /// Number of rows stated in the header.
    announced: Option<u64>,
    rows: u64,
    /// Number of calls filtered, summed over the reported filters.
    filtered: u64,
    notes: u64,
    is_below_ruler: bool,
    /// Whether the columns are those of 2.4, which KFT prints on the console; there, -1 is unsigned.
    is_dump: bool,
    /// Set at the first row.
    segments: Option<Segments>,
    segment: u64,
    watch: segments::Watch<'a>,
    last_entry: u64,
    /// Number of rows whose entry precedes that of the row above, on several CPUs.
    inversions: u64,
    /// Whether the rows have CPUs.
    has_cpus: bool,
}

impl<'a> Reader<'a> {
    fn line(
        &mut self,
        line: Line<'a>,
        ahead: &Lines<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        // No header line begins with three numbers, and rows rarely have a prefix.
        if let Some(row) = Row::of(line.text) {
            return self.row(line, &row, ahead, sink);
        }
        let text = without_console(line.text);
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        if let Some(row) = Row::of(text) {
            return self.row(line, &row, ahead, sink);
        }
        if let Some(head) = header::line(text) {
            return self.head(head, sink);
        }
        match (self.run.number, self.run.is_below_ruler) {
            (0, _) => {
                self.before += 1;
                Ok(())
            }
            (_, false) => self.note(line, sink),
            (_, true) => {
                let expected = "entry, delta, pid, function and caller";
                self.problems.line(line, expected, sink)
            }
        }
    }

    /// Begins a run, after closing the one before.
    fn begin(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        self.close_run(sink)?;
        if self.run.number == 0 {
            sink.event(Event::Fact(Fact::Recorder("KFI")))?;
            if self.before > 0 {
                sink.event(Event::Problem(Problem {
                    place: Place::Line(1),
                    count: self.before,
                    message: "lines before the start of the log",
                }))?;
            }
        }
        self.run = Run {
            number: self.run.number + 1,
            segment: 1,
            ..Run::default()
        };
        Ok(())
    }

    fn head(&mut self, head: Head<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        let is_new = match head {
            Head::Run(_) => true,
            // A header without its first lines; a second one without its number.
            Head::Started(..) => self.run.number == 0 || self.run.rows > 0,
            _ => self.run.number == 0,
        };
        if is_new {
            self.begin(sink)?;
        }
        match head {
            Head::Run(id) => self.fact("run", id, sink),
            Head::Started(mark, by) => {
                self.run.start = Some(mark);
                self.fact("start", &mark.to_string(), sink)?;
                self.fact("start.by", by, sink)
            }
            Head::Stopped(mark, by) => {
                self.fact("stop", &mark.to_string(), sink)?;
                self.fact("stop.by", by, sink)?;
                match by {
                    "log full" => loss(None, "log full", sink),
                    _ => Ok(()),
                }
            }
            Head::Filter(name, value) => self.fact(&format!("filter.{name}"), value, sink),
            Head::Filtered(name, reason, count) => {
                self.run.filtered = self.run.filtered.saturating_add(count);
                self.fact(&format!("filtered.{name}"), &count.to_string(), sink)?;
                loss(Some(count), reason, sink)
            }
            Head::FilteredInAll(count) => {
                self.fact("filtered", &count.to_string(), sink)?;
                let rest = count.saturating_sub(self.run.filtered);
                loss(Some(rest), "filtered", sink)
            }
            Head::NotFound(count) => {
                self.fact("not_found", &count.to_string(), sink)?;
                loss(Some(count), "exit without entry", sink)
            }
            Head::Entries(count) => {
                self.run.announced = Some(count);
                self.fact("entries", &count.to_string(), sink)
            }
            Head::Status(status) => self.fact("status", status, sink),
            Head::Ruler { is_dump } => {
                self.run.is_below_ruler = true;
                self.run.is_dump = is_dump;
                Ok(())
            }
            Head::Columns | Head::Title => Ok(()),
        }
    }

    /// Records an unknown header line, as in slides and web pages.
    fn note(&mut self, line: Line<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        self.run.notes += 1;
        let number = self.run.notes;
        if number > NOTES_MAX {
            return self.problems.line(line, "a line of KFI's header", sink);
        }
        let text = String::from_utf8_lossy(without_console(line.text));
        self.fact(&format!("note.{number}"), text.trim(), sink)
    }

    fn row(
        &mut self,
        line: Line<'_>,
        row: &Row<'a>,
        ahead: &Lines<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        if self.run.number == 0 {
            self.begin(sink)?;
        }
        let segments = match self.run.segments {
            Some(segments) => segments,
            None => self.first_row(row, ahead, sink)?,
        };
        self.doubts(line, row, sink)?;
        self.order(line, row, segments, sink)?;
        self.run.rows += 1;
        let is_last = line.number >= segments.last_line;
        let args = args(row, (!is_last).then_some(self.run.segment));
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let start = self.run.start.unwrap_or(0);
        let time = time_of(start.saturating_add(row.entry).saturating_mul(NANOSECONDS));
        sink.event(Event::Call(&Call {
            common: Common {
                time: is_last.then_some(time),
                cpu: row.who.cpu,
                tid: row.who.tid,
                ..Common::default()
            },
            function: row::function(row.function),
            caller: row::caller(row.caller),
            depth: None,
            context: Some(row.who.context()),
            args: &args,
            duration: row.duration().and_then(nanoseconds),
            retval: None,
            may_nest: true,
        }))
    }

    /// Reports facts that apply to all rows of the run.
    fn first_row(
        &mut self,
        row: &Row<'_>,
        ahead: &Lines<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Segments, Error> {
        let clock = match self.run.start {
            Some(_) => "kfi",
            None => "kfi-relative",
        };
        sink.event(Event::Fact(Fact::Clock(clock)))?;
        let segments = segments::look(ahead);
        self.run.segments = Some(segments);
        if segments.count > 1 {
            self.fact("segments", &segments.count.to_string(), sink)?;
        }
        self.run.has_cpus = row.who.has_cpu;
        if row.who.has_cpu {
            self.fact("smp", "true", sink)?;
        }
        Ok(segments)
    }

    /// Reports oddities in a readable row.
    fn doubts(&mut self, line: Line<'_>, row: &Row<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        if self.run.has_cpus != row.who.has_cpu {
            let expected = match self.run.has_cpus {
                true => "a CPU after the PID, as in the first row",
                false => "no CPU after the PID, as in the first row",
            };
            self.problems.line(line, expected, sink)?;
        }
        match row.delta {
            Delta::Other(b"-2" | b"no exit") | Delta::Known(_) | Delta::NoExit => {}
            Delta::Other(b"4294967295" | b"18446744073709551615") if self.run.is_dump => {}
            Delta::Other(_) => {
                self.problems
                    .line(line, "microseconds or -1 after the entry", sink)?;
            }
        }
        if row.has_more {
            let expected = "only a frame pointer and three arguments after the caller";
            self.problems.line(line, expected, sink)?;
        }
        Ok(())
    }

    /// Tracks segments. With a single CPU, rows are in the order of their entries.
    fn order(
        &mut self,
        line: Line<'_>,
        row: &Row<'a>,
        segments: Segments,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let goes_back = row.entry < self.run.last_entry;
        self.run.last_entry = row.entry;
        if segments.count > 1 && self.run.watch.starts_anew(row) {
            self.run.segment += 1;
            return Ok(());
        }
        match (goes_back, self.run.has_cpus) {
            (false, _) => Ok(()),
            (true, true) => {
                self.run.inversions += 1;
                Ok(())
            }
            (true, false) => {
                let expected = "an entry not before that of the row above";
                self.problems.line(line, expected, sink)
            }
        }
    }

    fn fact(&self, name: &str, value: &str, sink: &mut dyn Sink) -> Result<(), Error> {
        let name = match self.run.number {
            0 | 1 => format!("kfi.{name}"),
            number => format!("kfi.{number}.{name}"),
        };
        sink.event(Event::Fact(Fact::Other { name: &name, value }))
    }

    /// Compares the counts in the header with the rows read.
    fn close_run(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        if self.run.inversions > 0 {
            self.fact("inversions", &self.run.inversions.to_string(), sink)?;
        }
        let (Some(announced), rows) = (self.run.announced, self.run.rows) else {
            return Ok(());
        };
        if announced == rows {
            return Ok(());
        }
        let message = format!("expected {announced} rows, as in the header, found {rows}");
        self.problems.report(Place::Whole, &message, sink)
    }

    fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        self.close_run(sink)?;
        self.problems.finish(sink)
    }
}

/// The row's values other than those of its call. Rows of an earlier segment have no time, but keep their entry.
fn args(row: &Row<'_>, earlier_segment: Option<u64>) -> Vec<Vec<u8>> {
    const NAMES: [&[u8]; 4] = [b"frame=", b"arg1=", b"arg2=", b"arg3="];
    let mut args = Vec::new();
    if let Delta::Other(delta) = row.delta {
        args.push([b"delta=", delta].concat());
    }
    for (name, value) in NAMES.iter().zip(row.args) {
        if !value.is_empty() {
            args.push([name, value].concat());
        }
    }
    if let Some(segment) = earlier_segment {
        args.push(format!("segment={segment}").into_bytes());
        args.push(format!("entry={}", row.entry).into_bytes());
    }
    args
}

fn nanoseconds(microseconds: u64) -> Option<i64> {
    i64::try_from(microseconds.checked_mul(NANOSECONDS)?).ok()
}

fn loss(count: Option<u64>, reason: &str, sink: &mut dyn Sink) -> Result<(), Error> {
    if count == Some(0) {
        return Ok(());
    }
    sink.event(Event::Loss(Loss {
        time: None,
        cpu: None,
        event: None,
        count,
        in_all: None,
        reason,
    }))
}
