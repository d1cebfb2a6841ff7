//! Classifies lines: heads, stacks, graphs, losses.
//!
//! The first megabyte (in a kernel log, that of the dump) is read twice. The first pass learns the column types of the
//! events, and whether there are stacks. An event waits until the next line shows that it is complete: a text may
//! continue over several lines, and a stack may follow. In a file with stacks, an event waits for the next event of its
//! CPU, since lines of other CPUs may come between an event and its stack.

use std::collections::VecDeque;

use hashbrown::HashSet;
use perfquet_events::event::{Event, Fact, Loss, Place, Sink, Switch};
use perfquet_events::scan::trim;
use perfquet_events::{Error, Input};

use super::dump::{self, Dump};
use super::emit::Emission;
use super::graph::{self, GraphLine};
use super::head::{self, Head, Parts};
use super::header::{self, HeaderLine};
use super::hist::{HistLine, Histogram};
use super::item::{Body, Item};
use super::mmio::{self, MmioLine};
use super::open_stack::{self, OpenStack};
use super::page::{self, Page, PageLine};
use crate::lines::{Counts, Line, Lines, Meter, quoted};
use crate::payload_text::Payloads;

/// Size of the part that is read twice.
const LEARN_BYTES: usize = 1 << 20;
/// Maximum number of events that wait for their stacks.
const MAX_WAITING: usize = 128;
/// More CPUs than any host has.
const MAX_CPUS: usize = 8192;
/// The kernel's lines have at most a few kilobytes.
const MAX_LINE_BYTES: usize = 1 << 20;
/// Pages of the input are released after this many bytes.
const RELEASE_BYTES: u64 = 64 << 20;

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let text: &[u8] = &map;
    let mut silent = Silent;
    let dump = announced_dump(text);
    let from = text.get(dump.unwrap_or(0)..).unwrap_or_default();
    let beginning = whole_lines(from.get(..LEARN_BYTES).unwrap_or(from));
    let payloads = Payloads::learn();
    let mut learning = Session::new(beginning, dump.is_some(), &mut silent, payloads);
    learning.read_all(|| ())?;
    if !learning.found_something() {
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Line(1),
            message: format!(
                "expected events of ftrace (comm-tid [cpu] time: event), found {}",
                quoted(text)
            ),
        });
    }
    let has_stacks = learning.has_stacks;
    let has_heads = learning.has_heads;
    let indents = learning.emission.indents.learned();
    let mut payloads = learning.emission.payloads;
    payloads.learned();
    let mut session = Session::new(text, dump.is_some(), sink, payloads);
    session.has_stacks = has_stacks;
    session.has_heads = has_heads;
    session.emission.indents = indents;
    session.read_all(|| map.release())?;
    session.finish()
}

/// Offset of the line that announces a dump, which may be far into a log.
fn announced_dump(text: &[u8]) -> Option<usize> {
    let beginning = text.get(..LEARN_BYTES).unwrap_or(text);
    let head = text
        .get(..perfquet_events::input::HEAD_BYTES)
        .unwrap_or(text);
    match dump::announced(beginning) {
        None if dump::is_log(head) => dump::announced(text),
        found => found,
    }
}

/// The text without a last line that may be truncated, from which nothing is learned.
fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte == b'\n');
    end.and_then(|end| text.get(..=end)).unwrap_or(text)
}

/// Discards all events.
struct Silent;

impl Sink for Silent {
    fn event(&mut self, _: Event<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// The forms of event lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Normal,
    Graph,
    Latency,
    Verbose,
    Raw,
    Blk,
    Mmio,
    /// A graph with only the last column.
    BareGraph,
}

const FORMS: [Form; 8] = [
    Form::Normal,
    Form::Graph,
    Form::Latency,
    Form::Verbose,
    Form::Raw,
    Form::Blk,
    Form::Mmio,
    Form::BareGraph,
];

/// The CPUs of the entries since the last header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryCpus {
    None,
    One(u32),
    Several,
}

/// The state of reading one input.
pub(super) struct Session<'a, 's> {
    text: &'a [u8],
    pub(super) emission: Emission<'a, 's>,
    page: Page,
    dump: Dump,
    form: Form,
    /// The file is known to be a graph.
    is_graph: bool,
    /// A header named a tracer: a line without a head may be an event.
    has_tracer: bool,
    has_heads: bool,
    pub(super) has_stacks: bool,
    pub(super) waiting: VecDeque<Item<'a>>,
    pub(super) stack: Option<OpenStack<'a>>,
    histogram: Histogram<'a>,
    /// Number of entries in the buffer as stated by the header.
    stated_entries: Option<u64>,
    pub(super) entries: u64,
    /// Number of CPUs as stated by the header.
    stated_cpus: Option<u32>,
    cpus_of_entries: EntryCpus,
    /// CPUs inside an interrupt.
    interrupted: HashSet<u32>,
}

impl<'a, 's> Session<'a, 's> {
    fn new(
        text: &'a [u8],
        is_log: bool,
        sink: &'s mut dyn Sink,
        payloads: Payloads<'a>,
    ) -> Session<'a, 's> {
        let head = text
            .get(..perfquet_events::input::HEAD_BYTES)
            .unwrap_or(text);
        Session {
            text,
            emission: Emission::new(sink, payloads),
            page: if page::is_page(head) {
                Page::Outside
            } else {
                Page::None
            },
            dump: match is_log {
                true => Dump::Outside,
                false => Dump::None,
            },
            form: Form::Normal,
            is_graph: false,
            has_tracer: false,
            has_heads: false,
            has_stacks: false,
            waiting: VecDeque::new(),
            stack: None,
            histogram: Histogram::default(),
            stated_entries: None,
            entries: 0,
            stated_cpus: None,
            cpus_of_entries: EntryCpus::None,
            interrupted: HashSet::new(),
        }
    }

    fn read_all(&mut self, release: impl Fn()) -> Result<(), Error> {
        let mut lines = Lines::of(self.text);
        let mut meter = Meter::default();
        let mut released = 0;
        loop {
            let progress = lines.progress();
            let Some(mut line) = lines.next() else {
                break;
            };
            let mut start = usize::try_from(progress.done).unwrap_or(usize::MAX);
            match self.dump.line(line.text) {
                Some(text) => {
                    start = start.saturating_add(line.text.len() - text.len());
                    line.text = text;
                }
                None => {
                    self.emission.counts.header += 1;
                    continue;
                }
            }
            match self.page.line(line.text) {
                PageLine::Text(text) => self.line(Line { text, ..line }, start)?,
                PageLine::Markup => self.emission.counts.header += 1,
                PageLine::ForeignBlock => {
                    self.emission
                        .problem(line, "the text of ftrace in the next block of the page")?;
                }
            }
            meter.report(progress, self.emission.sink)?;
            if progress.done - released >= RELEASE_BYTES {
                released = progress.done;
                release();
            }
        }
        self.end_stack()?;
        self.flush()?;
        self.histogram.end(self.emission.sink)
    }

    fn found_something(&self) -> bool {
        let Counts {
            data,
            header,
            loss,
            problem,
            ..
        } = self.emission.counts;
        data + header + loss > 0 || problem == 0
    }

    fn finish(mut self) -> Result<(), Error> {
        self.check_entries()?;
        self.emission
            .counts
            .report("ftrace.lines", self.emission.sink)?;
        self.emission.payloads.report_unnamed(self.emission.sink)?;
        self.emission.problems.finish(self.emission.sink)
    }

    fn line(&mut self, line: Line<'a>, start: usize) -> Result<(), Error> {
        let text = line.text;
        if text.len() > MAX_LINE_BYTES {
            return self.emission.problem(line, "a line of at most a megabyte");
        }
        if self.stack.is_some() && self.frame(text)? {
            return Ok(());
        }
        match text.first() {
            None => {
                self.emission.counts.blank += 1;
                return Ok(());
            }
            Some(b'#') => return self.header(line),
            _ => {}
        }
        if self.histogram.is_open() {
            return self.line_of_histogram(line);
        }
        let first = self.form;
        if self.event(first, line, start)? {
            return Ok(());
        }
        self.other_line(line, start)
    }

    #[cold]
    fn other_line(&mut self, line: Line<'a>, start: usize) -> Result<(), Error> {
        let text = line.text;
        if trim(text).is_empty() {
            self.emission.counts.blank += 1;
            return Ok(());
        }
        if let Some((cpu, count)) = header::loss(text) {
            self.emission.counts.loss += 1;
            self.flush()?;
            // Noticed where the line is: between the last event and the next one.
            let time = self.emission.last_time;
            return self.loss(time, cpu, count, "buffer overrun");
        }
        if let Some(found) = header::of_tool(text) {
            self.emission.counts.header += 1;
            return self.header_line(found);
        }
        if let Some((name, value)) = mmio::fact(text) {
            self.emission.counts.header += 1;
            return self.emission.other_fact(&name, value);
        }
        for form in FORMS {
            if form != self.form && self.event(form, line, start)? {
                self.form = form;
                return Ok(());
            }
        }
        // Without heads, a line that can only be an event does not continue the text before it.
        let has_no_heads = self.has_tracer && !self.has_heads;
        if has_no_heads && let Some((is_user, rest)) = open_stack::start(text) {
            return self.begin_stack(Head::default(), is_user, rest);
        }
        let is_event = has_no_heads && super::shape::is_sure_payload(text);
        if !is_event && self.continues(line, start) {
            self.emission.counts.data += 1;
            return Ok(());
        }
        if is_event || has_no_heads && super::shape::is_payload(text) {
            return self.item(Head::default(), Body::Payload(trim(text)), line, start);
        }
        if super::hist::is_row(text) {
            self.histogram.begin(self.emission.sink)?;
            return self.line_of_histogram(line);
        }
        self.emission.problem(
            line,
            "an event (comm-tid [cpu] time: event), or a call of a graph",
        )
    }

    /// Reads a line of this form. Returns false if the line has another form.
    #[inline]
    fn event(&mut self, form: Form, line: Line<'a>, start: usize) -> Result<bool, Error> {
        let text = line.text;
        let parts: Option<Parts<'a>> = match form {
            Form::Normal => head::normal(text),
            Form::Latency => head::latency(text),
            Form::Verbose => head::verbose(text),
            Form::Graph => {
                return match graph::line(text, false) {
                    Some(found) => self.graph_line(found, line, start),
                    None => Ok(false),
                };
            }
            Form::BareGraph if self.is_graph => {
                return match graph::line(text, true) {
                    Some(found) => self.graph_line(found, line, start),
                    None => Ok(false),
                };
            }
            Form::BareGraph => None,
            Form::Raw => {
                return match head::raw(text) {
                    Some((head, kind)) => {
                        self.item(head, Body::Raw(kind), line, start)?;
                        Ok(true)
                    }
                    None => Ok(false),
                };
            }
            Form::Blk => {
                return match head::blk_classic(text) {
                    Some((head, device, rest)) => {
                        self.item(head, Body::Blk(device, rest), line, start)?;
                        Ok(true)
                    }
                    None => Ok(false),
                };
            }
            Form::Mmio => {
                return match mmio::line(text) {
                    Some((head, found)) => self.mmio_line(head, found, line, start),
                    None => Ok(false),
                };
            }
        };
        let Some((head, payload)) = parts else {
            return Ok(false);
        };
        self.has_heads = true;
        if matches!(payload.first(), Some(b'<' | b'k' | b'u'))
            && let Some((is_user, rest)) = open_stack::start(payload)
        {
            self.begin_stack(head, is_user, rest)?;
            return Ok(true);
        }
        let offset = start + (text.len() - payload.len());
        self.item(head, Body::Payload(payload), line, offset)?;
        Ok(true)
    }

    fn graph_line(
        &mut self,
        found: GraphLine<'a>,
        line: Line<'a>,
        start: usize,
    ) -> Result<bool, Error> {
        match found {
            GraphLine::Function {
                head,
                duration,
                depth,
                text,
            } => {
                self.has_heads = true;
                let in_interrupt = head.cpu.is_some_and(|cpu| self.interrupted.contains(&cpu));
                let offset = start + (line.text.len() - text.len());
                let body = Body::Graph {
                    duration,
                    depth,
                    text,
                    in_interrupt,
                };
                self.item(head, body, line, offset)?;
            }
            GraphLine::Interrupt { cpu, begins } => {
                self.emission.counts.data += 1;
                self.flush()?;
                if let Some(cpu) = cpu {
                    // A hostile file may name any number of CPUs.
                    if begins && self.interrupted.len() < MAX_CPUS {
                        self.interrupted.insert(cpu);
                    } else {
                        self.interrupted.remove(&cpu);
                    }
                }
            }
            GraphLine::Switch {
                cpu,
                previous,
                next,
            } => {
                self.emission.counts.data += 1;
                self.flush()?;
                self.emission.sink.event(Event::Switch(Switch {
                    time: None,
                    cpu,
                    previous_tid: previous.0,
                    previous_comm: previous.1.unwrap_or_default(),
                    next_tid: next.0,
                    next_comm: next.1.unwrap_or_default(),
                }))?;
            }
        }
        Ok(true)
    }

    fn mmio_line(
        &mut self,
        head: Head<'a>,
        found: MmioLine<'a>,
        line: Line<'a>,
        start: usize,
    ) -> Result<bool, Error> {
        if let MmioLine::Lost(count) = found {
            self.emission.counts.loss += 1;
            self.flush()?;
            self.loss(None, None, Some(count), "buffer overrun")?;
        } else {
            self.has_heads = true;
            self.item(head, Body::Mmio, line, start)?;
        }
        Ok(true)
    }

    /// Adds an event.
    #[inline]
    fn item(
        &mut self,
        head: Head<'a>,
        body: Body<'a>,
        line: Line<'a>,
        start: usize,
    ) -> Result<(), Error> {
        self.emission.counts.data += 1;
        self.entries += 1;
        self.cpus_of_entries = match (self.cpus_of_entries, head.cpu) {
            (EntryCpus::None, Some(cpu)) => EntryCpus::One(cpu),
            (EntryCpus::One(known), Some(cpu)) if known == cpu => EntryCpus::One(cpu),
            (EntryCpus::None | EntryCpus::One(_) | EntryCpus::Several, _) => EntryCpus::Several,
        };
        if self.has_stacks {
            let before = self.waiting.iter_mut().rev();
            let mut of_cpu = before.filter(|item| item.head.cpu == head.cpu);
            if let Some(item) = of_cpu.next() {
                item.is_closed = true;
            }
            while self
                .waiting
                .front()
                .is_some_and(|item| item.is_closed || self.waiting.len() >= MAX_WAITING)
            {
                self.release_first()?;
            }
        } else {
            self.flush()?;
        }
        self.waiting.push_back(Item {
            head,
            body,
            start,
            is_closed: false,
            kernel: None,
            user: None,
            line,
        });
        Ok(())
    }

    #[inline]
    fn release_first(&mut self) -> Result<(), Error> {
        match self.waiting.pop_front() {
            Some(item) => self.emission.emit(&item),
            None => Ok(()),
        }
    }

    /// Emits all waiting events.
    #[inline]
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        for item in &self.waiting {
            self.emission.emit(item)?;
        }
        self.waiting.clear();
        Ok(())
    }

    /// Whether a line continues a text with several lines; if so, extends the text.
    fn continues(&mut self, line: Line<'a>, start: usize) -> bool {
        let Some(item) = self.waiting.back_mut() else {
            return false;
        };
        let end = start + line.text.len();
        let Some(longer) = self.text.get(item.start..end) else {
            return false;
        };
        match &mut item.body {
            Body::Payload(text) if super::shape::is_marker(text) => *text = longer,
            Body::Graph { text, .. } if text.starts_with(b"/*") && !text.ends_with(b"*/") => {
                *text = longer;
            }
            _ => return false,
        }
        true
    }

    fn header(&mut self, line: Line<'a>) -> Result<(), Error> {
        self.emission.counts.header += 1;
        self.flush()?;
        self.header_line(header::line(line.text))
    }

    fn header_line(&mut self, found: HeaderLine<'a>) -> Result<(), Error> {
        match found {
            HeaderLine::Tracer(name) => {
                self.check_entries()?;
                self.has_tracer = true;
                self.is_graph = name.ends_with(b"graph");
                self.emission.other_fact("ftrace.tracer", name)
            }
            HeaderLine::Entries {
                in_buffer,
                written,
                cpus,
            } => {
                self.stated_entries = Some(in_buffer).filter(|count| *count > 0);
                self.begin_entries(cpus);
                self.cpus(cpus)?;
                self.overwritten(in_buffer, written)
            }
            HeaderLine::Latency {
                microseconds,
                printed,
                all,
                cpus,
            } => {
                self.stated_entries = Some(printed).filter(|count| *count > 0);
                self.begin_entries(cpus);
                self.cpus(cpus)?;
                self.emission
                    .other_fact("ftrace.latency_us", microseconds.to_string().as_bytes())?;
                self.overwritten(printed, all)
            }
            HeaderLine::Release(release) => {
                let release = String::from_utf8_lossy(release);
                self.emission
                    .sink
                    .event(Event::Fact(Fact::OsRelease(&release)))
            }
            HeaderLine::Named(name, value) => self.emission.other_fact(name, value),
            HeaderLine::Cpus(count) => {
                self.emission
                    .sink
                    .event(Event::Fact(Fact::Recorder("trace-cmd")))?;
                self.cpus(Some(count))
            }
            HeaderLine::Histogram => self.histogram.begin(self.emission.sink),
            HeaderLine::Trigger(trigger) => self.emission.other_fact("ftrace.trigger", trigger),
            HeaderLine::Graph => {
                self.is_graph = true;
                Ok(())
            }
            HeaderLine::Other => Ok(()),
        }
    }

    fn begin_entries(&mut self, cpus: Option<u32>) {
        self.entries = 0;
        self.stated_cpus = cpus;
        self.cpus_of_entries = EntryCpus::None;
    }

    /// Whether the file may be one of `per_cpu`, whose header counts the entries of all CPUs (`kernel/trace/trace.c`,
    /// `print_event_info`).
    fn may_be_of_one_cpu(&self) -> bool {
        matches!(self.cpus_of_entries, EntryCpus::One(_))
            && self.stated_cpus.is_some_and(|count| count > 1)
    }

    fn cpus(&mut self, count: Option<u32>) -> Result<(), Error> {
        match count {
            Some(count) => self.emission.sink.event(Event::Fact(Fact::Cpus(count))),
            None => Ok(()),
        }
    }

    fn overwritten(&mut self, in_buffer: u64, written: u64) -> Result<(), Error> {
        match written.checked_sub(in_buffer) {
            Some(count) if count > 0 => {
                self.loss(None, None, Some(count), "overwritten before it was read")
            }
            _ => Ok(()),
        }
    }

    fn loss(
        &mut self,
        time: Option<i64>,
        cpu: Option<u32>,
        count: Option<u64>,
        reason: &str,
    ) -> Result<(), Error> {
        self.emission.sink.event(Event::Loss(Loss {
            time,
            cpu,
            event: None,
            count,
            in_all: None,
            reason,
        }))
    }

    /// Compares the number of entries stated in the header with the number read.
    fn check_entries(&mut self) -> Result<(), Error> {
        match self.stated_entries.take() {
            Some(stated) if stated > self.entries && self.may_be_of_one_cpu() => {
                let value = format!(
                    "the header counts {stated} entries of all CPUs, the text has {} of one",
                    self.entries
                );
                self.emission.other_fact("ftrace.entries", value.as_bytes())
            }
            Some(stated) if stated != self.entries => {
                let message = format!(
                    "expected {stated} entries, as in the header, found {}",
                    self.entries
                );
                self.emission
                    .problems
                    .report(Place::Whole, &message, self.emission.sink)
            }
            _ => Ok(()),
        }
    }

    fn line_of_histogram(&mut self, line: Line<'a>) -> Result<(), Error> {
        match self.histogram.line(line.text, self.emission.sink)? {
            HistLine::Data => self.emission.counts.data += 1,
            HistLine::Header => self.emission.counts.header += 1,
            HistLine::Dropped(count) => {
                self.emission.counts.loss += 1;
                self.loss(None, None, Some(count), "no room in the histogram")?;
            }
            HistLine::Wrong { stated, read } => {
                self.emission.counts.header += 1;
                let message = format!("expected {stated} rows of the histogram, found {read}");
                self.emission.problems.report(
                    Place::Line(line.number),
                    &message,
                    self.emission.sink,
                )?;
            }
            HistLine::Unknown => return self.emission.problem(line, "a row of a histogram"),
        }
        Ok(())
    }
}
