//! Lines → samples: a head, and the frames below it.

use hashbrown::HashMap;
use perfquet_events::event::{
    Branch, Event, EventId, EventKind, EventType, Fact, NamedFrame, Place, Sample, Sink, Space,
    Stack,
};
use perfquet_events::scan::{decimal, rsplit_once, split_once, trim, word};
use perfquet_events::{Error, Input};

use super::frame;
use super::head::{self, Head};
use super::known::KnownFrames;
use super::record;
use crate::lines::{Counts, Line, LineProblems, Lines, Meter, quoted};
use crate::payload_text::{Added, Payloads, Style};

/// Size of the part that is read twice, to learn the types of columns.
const LEARN_BYTES: usize = 1 << 20;
/// More frames than any stack that perf records.
const MAX_FRAMES: usize = 1 << 16;
/// Maximum number of counters: a hostile file may name any number.
const MAX_COUNTERS: usize = 4096;
/// Longer than any line of perf; those with branches are the longest.
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
    let beginning = text.get(..LEARN_BYTES).unwrap_or(text);
    let end = beginning.iter().rposition(|&byte| byte == b'\n');
    let beginning = end
        .and_then(|end| beginning.get(..=end))
        .unwrap_or(beginning);
    let mut learning = Session::new(&mut silent, Payloads::learn());
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
    let mut payloads = learning.payloads;
    payloads.learned();
    let mut session = Session::new(sink, payloads);
    session.read_all(text, || map.release())?;
    session.finish(input.damage())
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
    counters: HashMap<&'a [u8], EventId>,
    /// Whether the open sample has more frames than are kept.
    is_cut: bool,
    /// Whether an empty line separates the head from its frames.
    is_parted: bool,
}

impl<'a, 's> Session<'a, 's> {
    fn new(sink: &'s mut dyn Sink, payloads: Payloads<'a>) -> Session<'a, 's> {
        Session {
            sink,
            payloads,
            problems: LineProblems::default(),
            counts: Counts::default(),
            open: None,
            known_frames: KnownFrames::default(),
            frames: Vec::new(),
            branches: Vec::new(),
            counters: HashMap::new(),
            is_cut: false,
            is_parted: false,
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
        self.end_sample()
    }

    fn finish(mut self, damage: Option<&str>) -> Result<(), Error> {
        if let Some(damage) = damage {
            self.problems.report(Place::Whole, damage, self.sink)?;
        }
        self.counts.report("perf_script.lines", self.sink)?;
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
        if let Some(head) = head::with_time(text) {
            self.end_sample()?;
            if head.rest.starts_with(b"PERF_RECORD_") {
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
        if self.frame(text) {
            return Ok(());
        }
        if trim(text).is_empty() {
            self.counts.blank += 1;
            return self.blank();
        }
        if self.open.is_some() && is_source(text) {
            self.counts.data += 1;
            return Ok(());
        }
        if text.starts_with(b"[ perf record:") || text.starts_with(b"Warning:") {
            self.counts.header += 1;
            return Ok(());
        }
        // An unindented line, which is at least a name.
        let is_indented = matches!(text.first(), Some(b' ' | b'\t'));
        let is_text = text
            .iter()
            .all(|byte| *byte >= b' ' && *byte < 0x7f || *byte >= 0x80);
        match head::without_time(text).filter(|_| !is_indented && is_text) {
            Some(head) => {
                self.end_sample()?;
                self.counts.data += 1;
                self.begin(head, line);
                Ok(())
            }
            None => {
                self.counts.problem += 1;
                let expected = "a sample (comm tid time: event), or a frame of its stack";
                self.problems.line(line, expected, self.sink)
            }
        }
    }

    fn begin(&mut self, head: Head<'a>, line: Line<'a>) {
        self.open = Some((head, line));
        (self.is_parted, self.is_cut) = (false, false);
        self.frames.clear();
    }

    /// Ends a sample that has frames; a sample without frames may get them after the empty line.
    fn blank(&mut self) -> Result<(), Error> {
        if self.frames.is_empty() && self.open.is_some() && !self.is_parted {
            self.is_parted = true;
            return Ok(());
        }
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
        if head.time.is_none() && head.event.is_empty() && self.frames.is_empty() {
            self.counts.data -= 1;
            self.counts.problem += 1;
            let expected = "a sample (comm tid time: event), or a frame of its stack";
            return self.problems.line(line, expected, self.sink);
        }
        if self.is_cut {
            let expected = "at most 65536 frames below";
            self.problems.line(line, expected, self.sink)?;
        }
        let tracepoint = tracepoint(head.event);
        self.branches.clear();
        let mut sample = sample_of(&head);
        if tracepoint.is_some() {
            if self.frames.is_empty()
                && let Some((payload, frame)) = frame::after_payload(head.rest)
            {
                head.rest = payload;
                self.frames.push(frame);
            }
        } else if !head.rest.is_empty() {
            sample.addr = self.place(head.rest, line)?;
        }
        // Take the frames out of the session during the call, so that both can be used.
        let frames = std::mem::take(&mut self.frames);
        let branches = std::mem::take(&mut self.branches);
        let result = self.emit(&head, tracepoint, with_stacks(sample, &frames, &branches));
        self.frames = frames;
        self.frames.clear();
        self.branches = branches;
        result
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
                .slot(Style::Event, system, name, kind_of(system, name));
            // A period of 1 carries no information.
            let period = match head.period {
                Some(1) => b"",
                _ => head.period_text,
            };
            let added = Added {
                columns: [(b"sample_period", period), (b"", b"")],
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

    /// Parses the part after a counter's name: `[addr] ip symbol (module)`, or branches. Returns the data address.
    fn place(&mut self, rest: &'a [u8], line: Line<'a>) -> Result<Option<u64>, Error> {
        let mut addr = None;
        let mut text = rest;
        let is_hex = |word: &[u8]| perfquet_events::scan::bare_hex(word);
        if let Some((first, after)) = word(text)
            && let (Some(address), Some((second, _))) = (is_hex(first), word(after))
            && is_hex(second).is_some()
            && second.len() > 4
        {
            addr = Some(address);
            text = after;
        }
        let words = text
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty());
        self.branches.extend(words.filter_map(frame::branch));
        if !self.branches.is_empty() {
            return Ok(addr);
        }
        match frame::frame(text)
            .map(|frame| frame.frame)
            .filter(|_| self.frames.is_empty())
        {
            Some(frame) => self.frames.push(frame),
            None if self.frames.is_empty() => {
                let expected = "address, symbol and module after the event";
                self.problems.line(line, expected, self.sink)?;
            }
            None => {}
        }
        Ok(addr)
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
        if is_full && let Some(id) = self.counters.get(name) {
            return Ok(*id);
        }
        let text = String::from_utf8_lossy(name).into_owned();
        let base = text.split(':').next().unwrap_or_default();
        let kind = match SOFTWARE.contains(&base) {
            true => EventKind::Software,
            false => EventKind::Counter,
        };
        let declared = EventType {
            system: match kind {
                EventKind::Software => "software".into(),
                _ if HARDWARE.contains(&base) => "hardware".into(),
                _ => String::new(),
            },
            kind,
            name: if text.is_empty() {
                "samples".into()
            } else {
                text
            },
            ..EventType::default()
        };
        let id = self.payloads.declare(&declared, self.sink)?;
        self.counters.insert(name, id);
        Ok(id)
    }
}

/// The kernel's software events (`tools/perf/util/parse-events.c`).
const SOFTWARE: &[&str] = &[
    "cpu-clock",
    "task-clock",
    "page-faults",
    "faults",
    "minor-faults",
    "major-faults",
    "context-switches",
    "cs",
    "cpu-migrations",
    "migrations",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];
const HARDWARE: &[&str] = &[
    "cycles",
    "cpu-cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-instructions",
    "branch-misses",
    "bus-cycles",
    "ref-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
];

/// System and name of a tracepoint or probe. `None` for a counter, where letters after a colon are modifiers.
#[inline]
fn tracepoint(event: &[u8]) -> Option<(&[u8], &[u8])> {
    let (system, name) = split_once(event, b":")?;
    let is_modifier = |byte: &u8| b"ukhHGpPSDIWeb".contains(byte);
    let is_probe = system.starts_with(b"probe") || system.starts_with(b"sdt_");
    let is_name = !name.is_empty() && (is_probe || !name.iter().all(is_modifier));
    let is_word = |text: &[u8]| {
        text.iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.@".contains(byte))
    };
    // Modifiers of a tracepoint: `sched:sched_switch:u`.
    let name = match rsplit_once(name, b":") {
        Some((name, modifiers)) if modifiers.iter().all(is_modifier) => name,
        _ => name,
    };
    (is_name && !system.is_empty() && is_word(system)).then_some((system, name))
}

fn kind_of(system: &[u8], name: &[u8]) -> EventKind {
    let at_return = perfquet_events::scan::find_text(name, b"__return").is_some();
    match (system, at_return) {
        (b"probe", false) => EventKind::Kprobe,
        (b"probe", true) => EventKind::Kretprobe,
        _ if system.starts_with(b"sdt_") => EventKind::Usdt,
        (_, false) if system.starts_with(b"probe_") => EventKind::Uprobe,
        (_, true) if system.starts_with(b"probe_") => EventKind::Uretprobe,
        _ => EventKind::Tracepoint,
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

/// `  file.c:12`: the source location of a frame.
fn is_source(text: &[u8]) -> bool {
    let parts = rsplit_once(trim(text), b":");
    matches!(text.first(), Some(b' ' | b'\t'))
        && parts.is_some_and(|(file, line)| !file.is_empty() && decimal(line).is_some())
}
