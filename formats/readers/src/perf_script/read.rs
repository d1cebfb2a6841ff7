//! Lines → samples: a head, and the frames below it.

use hashbrown::HashMap;
use perfquet_events::event::{
    Branch, Event, EventId, EventKind, Fact, Loss, NamedFrame, Place, Sample, Sink, Space, Stack,
};
use perfquet_events::scan::{
    bare_hex, decimal, leading_decimal, rsplit_once, split_once, trim, word,
};
use perfquet_events::{Error, Input};

use super::deltas::Deltas;
use super::head::{self, Head};
use super::known::KnownFrames;
use super::layout::Layout;
use super::location::{self, location};
use super::messages::{Message, message};
use super::registers::Groups;
use super::{frame, kind, record};
use crate::lines::{Counts, Line, LineProblems, Lines, Meter, quoted, words};
use crate::payload_text::{Added, Payloads, Style};
use crate::problems::report_totals;

/// Size of the part that is read twice, to learn the types of columns.
const LEARN_BYTES: usize = 1 << 20;
/// More frames than any stack that perf records.
const MAX_FRAMES: usize = 1 << 16;
/// Maximum number of counters: a hostile file may name any number.
const MAX_COUNTERS: usize = 4096;
/// Longer than any line of perf; those with branches are the longest.
const MAX_LINE_BYTES: usize = 1 << 20;
const SAMPLE: &str = "a sample (comm tid time: event), or a frame of its stack";
const DELTAS: &str = "expected times, found differences (--deltatime): they were added up from 0, each rounded \
                      down to a microsecond";
/// Pages of the input are released after this many bytes.
const RELEASE_BYTES: u64 = 64 << 20;

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let text: &[u8] = &map;
    let mut silent = Silent;
    let beginning = text.get(..LEARN_BYTES).unwrap_or(text);
    let end = beginning.iter().rposition(|&byte| byte == b'\n');
    let beginning = end
        .and_then(|end| beginning.get(..=end))
        .unwrap_or(beginning);
    let layout = Layout::of(beginning);
    let mut learning = Session::new(&mut silent, Payloads::learn(), layout);
    learning.read_all(beginning, || ())?;
    if learning.counts.data + learning.counts.header == 0 && learning.counts.problem > 0 {
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Line(1),
            message: format!(
                "expected samples of perf script (comm tid time: event), found {}",
                quoted(text)
            ),
        });
    }
    let is_relative = learning.deltas.is_relative();
    let (has_addr, deltas) = (learning.has_addr, learning.deltas.learned());
    let mut payloads = learning.payloads;
    payloads.learned();
    let mut session = Session::new(sink, payloads, layout);
    (session.has_addr, session.deltas) = (has_addr, deltas);
    if is_relative {
        session.sink.event(Event::Fact(Fact::Clock("relative")))?;
    }
    session.read_all(text, || map.release())?;
    session.finish()
}

/// Discards all events.
struct Silent;

impl Sink for Silent {
    fn event(&mut self, _: Event<'_>) -> Result<(), Error> {
        Ok(())
    }
}

struct Session<'a, 's> {
    sink: &'s mut dyn Sink,
    payloads: Payloads<'a>,
    problems: LineProblems,
    counts: Counts,
    /// The sample whose frames are being read.
    open: Option<(Head<'a>, Line<'a>)>,
    known_frames: KnownFrames<'a>,
    frames: Vec<NamedFrame<'a>>,
    branches: Vec<Branch>,
    registers: Groups,
    /// Lines below the open sample's frames with its registers, branches and instructions.
    tails: Vec<&'a [u8]>,
    counters: HashMap<&'a [u8], EventId>,
    layout: Layout,
    deltas: Deltas,
    /// Whether the first of several numbers is an address on some line.
    has_addr: bool,
    /// Whether a problem about fields that cannot be stored was reported.
    has_lost_fields: bool,
    /// Number of samples whose counters have lost their names, at the limit.
    unnamed: u64,
    /// Whether the open sample has more frames than are kept.
    is_cut: bool,
    /// Whether an empty line separates the head from its frames.
    is_parted: bool,
    /// Whether empty lines end stacks.
    has_ends: bool,
}

impl<'a, 's> Session<'a, 's> {
    fn new(sink: &'s mut dyn Sink, payloads: Payloads<'a>, layout: Layout) -> Session<'a, 's> {
        Session {
            sink,
            payloads,
            problems: LineProblems::default(),
            counts: Counts::default(),
            open: None,
            known_frames: KnownFrames::default(),
            frames: Vec::new(),
            branches: Vec::new(),
            registers: Groups::default(),
            tails: Vec::new(),
            counters: HashMap::new(),
            layout,
            deltas: Deltas::default(),
            has_addr: false,
            has_lost_fields: false,
            unnamed: 0,
            is_cut: false,
            is_parted: false,
            has_ends: false,
        }
    }

    fn read_all(&mut self, text: &'a [u8], release: impl Fn()) -> Result<(), Error> {
        let mut lines = Lines::of(text);
        let mut meter = Meter::default();
        let mut released = 0;
        loop {
            let progress = lines.progress();
            let Some(line) = lines.next() else {
                break;
            };
            self.line(line)?;
            meter.report(progress, self.sink)?;
            if progress.done - released >= RELEASE_BYTES {
                released = progress.done;
                release();
            }
        }
        // Of a line without an end, the format reports that.
        let is_cut = self.has_ends && self.has_frames() && text.ends_with(b"\n");
        if let (true, Some((_, line))) = (is_cut, self.open) {
            let message = "expected an empty line after the last stack: it may be cut off";
            self.problems
                .report(Place::Line(line.number), message, self.sink)?;
        }
        self.end_sample()
    }

    fn finish(self) -> Result<(), Error> {
        self.counts.report("perf_script.lines", self.sink)?;
        self.payloads.report_unnamed(self.sink)?;
        let message = format!(
            "samples of more than {MAX_COUNTERS} counters: their names are lost, they are further_events"
        );
        report_totals(self.sink, [(self.unnamed, message)])?;
        self.problems.finish(self.sink)
    }

    #[inline]
    fn line(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text;
        if text.len() > MAX_LINE_BYTES {
            self.counts.problem += 1;
            let expected = "a line of at most a megabyte";
            return self.problems.line(line, expected, self.sink);
        }
        match text.first() {
            None => {
                self.counts.blank += 1;
                return self.blank();
            }
            Some(b'#') => {
                self.counts.header += 1;
                return self.header(text);
            }
            _ => {}
        }
        // perf begins frames with a tab; in the first column, a comm like `dd` could be an address too.
        if text.first() == Some(&b'\t') && self.frame(text) {
            return Ok(());
        }
        if let Some(mut head) = self.layout.head_of(text) {
            self.end_sample()?;
            let is_record = head.rest.starts_with(b"PERF_RECORD_");
            if self.deltas.absolute(&mut head.time, !is_record) {
                self.problems
                    .report(Place::Line(line.number), DELTAS, self.sink)?;
            }
            if is_record {
                return self.record(&head);
            }
            self.counts.data += 1;
            self.begin(head, line);
            return Ok(());
        }
        self.other(line)
    }

    /// Parses a frame of the open sample. Returns false if the line is not one.
    #[inline]
    fn frame(&mut self, text: &'a [u8]) -> bool {
        if self.open.is_none() {
            return false;
        }
        let Some(frame) = self.known_frames.of(text) else {
            return false;
        };
        self.counts.data += 1;
        self.is_cut |= self.frames.len() >= MAX_FRAMES;
        if !self.is_cut {
            self.frames.push(frame);
        }
        true
    }

    #[cold]
    fn other(&mut self, line: Line<'a>) -> Result<(), Error> {
        let text = line.text;
        if trim(text).is_empty() {
            self.counts.blank += 1;
            return self.blank();
        }
        // An empty line may precede the source of a sample.
        if is_source_code(text) || self.open.is_some() && self.is_tail(text) {
            self.counts.data += 1;
            return Ok(());
        }
        // A comm may look like an address: `dd 12`, `  16258   7fea89f8921a main`.
        let is_frame = is_frame(text);
        if is_frame && head::location_start(text).is_none() && self.frame(text) {
            return Ok(());
        }
        if self.layout.is_head_without_time(text, self.has_frames()) {
            return self.head_without_time(line);
        }
        if is_frame && self.frame(text) {
            return Ok(());
        }
        if self.layout.is_headless() && frame::frame(text).is_some() {
            return self.headless(line);
        }
        match message(text) {
            Some(Message::Note) => {
                self.counts.header += 1;
                Ok(())
            }
            Some(Message::Loss) => {
                self.counts.loss += 1;
                self.sink.event(Event::Loss(Loss {
                    time: None,
                    cpu: None,
                    event: None,
                    count: None,
                    in_all: None,
                    reason: "ring full",
                }))
            }
            None => {
                self.counts.problem += 1;
                self.problems.line(line, SAMPLE, self.sink)
            }
        }
    }

    fn has_frames(&self) -> bool {
        self.open.is_some() && !self.frames.is_empty()
    }

    /// Whether a line belongs to the open sample without being a frame: source, registers, branches, instructions.
    fn is_tail(&mut self, text: &'a [u8]) -> bool {
        if is_source(text, self.has_frames()) {
            return true;
        }
        let is_number = || self.has_frames() && is_number_below(text);
        let is_tail = word(text).is_some_and(|(first, _)| location::is_tail(first));
        if is_tail || is_number() {
            // A sample has at most one line of each kind.
            if self.tails.len() < 8 {
                self.tails.push(text);
            }
            return true;
        }
        false
    }

    fn head_without_time(&mut self, line: Line<'a>) -> Result<(), Error> {
        match head::without_time(line.text) {
            Some(head) => {
                self.end_sample()?;
                self.counts.data += 1;
                self.begin(head, line);
                Ok(())
            }
            None => {
                self.counts.problem += 1;
                self.problems.line(line, SAMPLE, self.sink)
            }
        }
    }

    /// A frame without a head (`-F ip,sym`): the first of a stack, or a sample in one line.
    fn headless(&mut self, line: Line<'a>) -> Result<(), Error> {
        let mut head = Head::default();
        if self.layout.is_one_line() {
            head.rest = trim(line.text);
            self.begin(head, line);
            self.counts.data += 1;
            return self.end_sample();
        }
        self.begin(head, line);
        self.frame(line.text);
        Ok(())
    }

    fn begin(&mut self, head: Head<'a>, line: Line<'a>) {
        self.open = Some((head, line));
        (self.is_parted, self.is_cut) = (false, false);
        self.frames.clear();
        self.tails.clear();
    }

    /// Ends a sample that has frames; a sample without frames may get them after the empty line.
    fn blank(&mut self) -> Result<(), Error> {
        if self.frames.is_empty() && self.open.is_some() && !self.is_parted {
            self.is_parted = true;
            return Ok(());
        }
        self.has_ends |= self.has_frames();
        self.end_sample()
    }

    /// `# hostname : x`
    fn header(&mut self, text: &[u8]) -> Result<(), Error> {
        let text = String::from_utf8_lossy(text);
        let Some((name, value)) = text.trim_start_matches('#').split_once(" : ") else {
            return Ok(());
        };
        let value = value.trim();
        let fact = match name.trim() {
            "hostname" => Fact::Host(value),
            "os release" => Fact::OsRelease(value),
            "arch" => Fact::Architecture(value),
            "cpudesc" => Fact::CpuModel(value),
            "cmdline" => Fact::CommandLine(value),
            "perf version" => {
                let recorder = format!("perf {value}");
                return self.sink.event(Event::Fact(Fact::Recorder(&recorder)));
            }
            "nrcpus online" => match value.parse() {
                Ok(count) => Fact::Cpus(count),
                Err(_) => return Ok(()),
            },
            "total memory" => {
                let kib: Option<u64> = value.strip_suffix(" kB").and_then(|kib| kib.parse().ok());
                match kib.and_then(|kib| kib.checked_mul(1024)) {
                    Some(bytes) => Fact::MemoryBytes(bytes),
                    None => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        self.sink.event(Event::Fact(fact))
    }

    /// Handles one of perf's own records.
    fn record(&mut self, head: &Head<'a>) -> Result<(), Error> {
        match record::event(head.rest, head.time, head.cpu) {
            Some(event) => {
                match event {
                    Event::Loss(_) => self.counts.loss += 1,
                    _ => self.counts.data += 1,
                }
                self.sink.event(event)
            }
            None => {
                self.counts.data += 1;
                let text = head.rest.get(b"PERF_RECORD_".len()..).unwrap_or_default();
                let end = text
                    .iter()
                    .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
                    .unwrap_or(text.len());
                let (name, payload) = text.split_at_checked(end).unwrap_or((text, &[]));
                let slot = self
                    .payloads
                    .slot(Style::Event, b"perf", name, EventKind::Recorder);
                let sample = sample_of(head);
                let added = Added::default();
                self.payloads
                    .emit(slot, trim(payload), &added, &sample, self.sink)
            }
        }
    }

    /// Emits the open sample.
    #[inline]
    fn end_sample(&mut self) -> Result<(), Error> {
        match self.open.take() {
            Some((head, line)) => self.sample(head, line),
            None => Ok(()),
        }
    }

    fn sample(&mut self, mut head: Head<'a>, line: Line<'a>) -> Result<(), Error> {
        // A comm alone is a head only if frames follow.
        let is_alone = head.event.is_empty() && head.rest.is_empty();
        if head.time.is_none() && is_alone && self.frames.is_empty() {
            self.counts.data -= 1;
            self.counts.problem += 1;
            return self.problems.line(line, SAMPLE, self.sink);
        }
        self.layout.confirm(&head);
        if self.is_cut {
            let expected = "at most 65536 frames below";
            self.problems.line(line, expected, self.sink)?;
        }
        let tracepoint = kind::tracepoint(head.event);
        self.branches.clear();
        self.registers.clear();
        let mut sample = sample_of(&head);
        if tracepoint.is_some() {
            head.rest = self.payload(head.rest, line)?;
        } else if !head.rest.is_empty() {
            self.place(head.rest, line, &mut sample)?;
        }
        self.tails(line, &mut sample)?;
        // Take the frames out of the session during the call, so that both can be used.
        let frames = std::mem::take(&mut self.frames);
        let branches = std::mem::take(&mut self.branches);
        let registers = std::mem::take(&mut self.registers);
        let mut sample = with_stacks(sample, &frames, &branches);
        (sample.interrupt_registers, sample.user_registers) = registers.both(sample.ip);
        let is_unclear = sample.interrupt_registers.is_none() && sample.user_registers.is_none();
        if is_unclear && !registers.is_empty() {
            self.lost_fields(line)?;
        }
        let result = self.emit(&head, tracepoint, sample);
        self.frames = frames;
        self.frames.clear();
        self.branches = branches;
        self.registers = registers;
        result
    }

    /// Splits registers and a frame off a tracepoint's payload.
    fn payload(&mut self, mut rest: &'a [u8], line: Line<'a>) -> Result<&'a [u8], Error> {
        if let Some((payload, registers)) = split_once(rest, b" ABI:") {
            let registers = rest
                .get(rest.len() - registers.len() - 4..)
                .unwrap_or_default();
            self.tail(registers, line)?;
            rest = trim(payload);
        }
        if self.frames.is_empty()
            && let Some((payload, frame)) = frame::after_payload(rest)
        {
            rest = payload;
            self.frames.push(frame);
        }
        Ok(rest)
    }

    fn emit(
        &mut self,
        head: &Head<'a>,
        tracepoint: Option<(&'a [u8], &'a [u8])>,
        sample: Sample<'_>,
    ) -> Result<(), Error> {
        if let Some((system, name)) = tracepoint {
            let slot = self
                .payloads
                .slot(Style::Event, system, name, kind::kind_of(system, name));
            // A period of 1 carries no information.
            let period = match head.period {
                Some(1) => b"",
                _ => head.period_text,
            };
            let added = Added {
                columns: [(b"sample_period", period), (b"", b"")],
                flags: None,
            };
            return self
                .payloads
                .emit(slot, head.rest, &added, &sample, self.sink);
        }
        let event = self.counter(head.event)?;
        self.sink.event(Event::Sample(&Sample {
            event,
            period: head.period,
            ..sample
        }))
    }

    /// Parses the part after a counter's name.
    fn place(
        &mut self,
        rest: &'a [u8],
        line: Line<'a>,
        sample: &mut Sample<'a>,
    ) -> Result<(), Error> {
        let place = location(rest, self.has_addr);
        self.has_addr |= place.has_address;
        sample.addr = place.addr;
        sample.data_src = place.data_src;
        sample.weight = place.weight;
        sample.phys_addr = place.phys_addr;
        sample.data_page_size = place.data_page_size;
        sample.code_page_size = place.code_page_size;
        self.tail(place.tail, line)?;
        if self.frames.is_empty() {
            self.frames.extend(place.frame);
        }
        let is_empty = place.frame.is_none() && place.tail.is_empty();
        if !place.unread.is_empty() || is_empty && self.frames.is_empty() {
            let expected = "address, symbol and module after the event";
            self.problems.line(line, expected, self.sink)?;
        }
        Ok(())
    }

    /// Parses the lines below the frames.
    fn tails(&mut self, line: Line<'a>, sample: &mut Sample<'a>) -> Result<(), Error> {
        for place in 0..self.tails.len() {
            let text = self.tails.get(place).copied().unwrap_or_default();
            match word(text).map(|(first, _)| (first, bare_hex(first))) {
                Some((_, Some(address))) => sample.phys_addr = Some(address),
                _ => self.tail(text, line)?,
            }
        }
        Ok(())
    }

    /// Parses branches and registers.
    fn tail(&mut self, text: &'a [u8], line: Line<'a>) -> Result<(), Error> {
        let is_branch = |word: &&[u8]| location::is_branch(word);
        let printed = words(text).filter(is_branch).count();
        let before = self.branches.len();
        self.branches.extend(words(text).filter_map(frame::branch));
        let is_read = self.branches.len() - before == printed;
        let is_known = !text.contains(&b':') || self.registers.add(text);
        match is_read && is_known {
            true => Ok(()),
            false => self.lost_fields(line),
        }
    }

    /// Reports, once, that fields cannot be stored.
    fn lost_fields(&mut self, line: Line<'a>) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_lost_fields, true) {
            return Ok(());
        }
        let expected = "branches as addresses, registers of x86 or arm64 with the instruction pointer \
                        (reported once)";
        self.problems.line(line, expected, self.sink)
    }

    fn counter(&mut self, event: &'a [u8]) -> Result<EventId, Error> {
        if let Some(id) = self.counters.get(event) {
            return Ok(*id);
        }
        let is_full = self.counters.len() >= MAX_COUNTERS;
        let name = if is_full {
            &b"further_events"[..]
        } else {
            event
        };
        self.unnamed += u64::from(is_full);
        if is_full && let Some(id) = self.counters.get(name) {
            return Ok(*id);
        }
        let text = String::from_utf8_lossy(name).into_owned();
        let declared = kind::counter(text);
        let id = self.payloads.declare(&declared, self.sink)?;
        self.counters.insert(name, id);
        Ok(id)
    }
}

#[inline]
fn sample_of<'a>(head: &Head<'a>) -> Sample<'a> {
    Sample {
        time: head.time,
        cpu: head.cpu,
        pid: head.pid,
        tid: head.tid,
        comm: head.comm,
        ..Sample::of(EventId(0))
    }
}

/// Splits a chain: the kernel's frames are the leaves. A kernel frame followed by user frames keeps its position.
#[inline]
fn with_stacks<'v>(
    sample: Sample<'v>,
    frames: &'v [NamedFrame<'v>],
    branches: &'v [Branch],
) -> Sample<'v> {
    let is_kernel = |frame: &&NamedFrame<'_>| frame.space == Space::Kernel;
    let kernel = frames.iter().take_while(is_kernel).count();
    let (kernel, user) = frames.split_at_checked(kernel).unwrap_or_default();
    let stack = |frames: &'v [NamedFrame<'v>]| match frames {
        [] => Stack::None,
        frames => Stack::Named(frames),
    };
    let leaf = frames.first();
    Sample {
        kernel_stack: stack(kernel),
        user_stack: stack(user),
        ip: leaf.and_then(|frame| frame.address),
        space: leaf.map_or(Space::Unknown, |frame| frame.space),
        branches,
        ..sample
    }
}

/// `|7        text`, of `-F +srccode`.
fn is_source_code(text: &[u8]) -> bool {
    let number = text.strip_prefix(b"|").and_then(leading_decimal);
    number.is_some_and(|(_, rest)| rest.first() == Some(&b' '))
}

/// The source of a frame: `  file.c:12`, `  function+4`, `  ld-2.29.so[11634]` (`-F +srcline`).
fn is_source(text: &[u8], is_below_frame: bool) -> bool {
    let is_indented = matches!(text.first(), Some(b' ' | b'\t'));
    let is_second = text.starts_with(b"  ") && !matches!(text.get(2), Some(b' ' | b'\t'));
    let parts = rsplit_once(trim(text), b":");
    let is_line = parts.is_some_and(|(file, line)| !file.is_empty() && decimal(line).is_some());
    is_indented && is_line
        || is_below_frame && is_second && text.iter().skip(2).all(|byte| *byte != b' ')
}

/// Whether a line can be a frame: pasted text may have lost its indentation, and then long addresses tell.
fn is_frame(text: &[u8]) -> bool {
    let is_indented = matches!(text.first(), Some(b' ' | b'\t'));
    is_indented || word(text).is_some_and(|(address, _)| address.len() >= 6)
}

/// A physical address below frames, which begin with a tab.
fn is_number_below(text: &[u8]) -> bool {
    let mut all = words(text);
    let is_address = all.next().and_then(bare_hex).is_some();
    text.starts_with(b"  ") && text.len() >= 16 && is_address && all.next().is_none()
}
