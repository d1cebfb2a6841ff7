//! Profiles → samples and calls.

use std::borrow::Cow;

use perfquet_events::event::{
    Context, Event, EventId, EventKind, EventType, Fact, NamedFrame, Place, Progress, Sample, Sink,
};
use perfquet_events::{Error, Input};

use super::calls::{Calls, Thread};
use super::frames::{Frame, frames};
use crate::json::{Scanner, decimal, elements, integer, members, text};
use crate::lines::{quoted, unsigned};
use crate::printout::Stacks;
use crate::problems::Problems;
use crate::thread_numbers::FIRST;

/// Far more frames than any stack has.
const STACK_MAX: usize = 1 << 16;
/// Profiles of one file, and events of different names.
const PROFILES_MAX: usize = 1 << 16;
const EVENTS_MAX: usize = 1 << 10;
/// More decimals would take too many digits from the largest weight.
const DECIMALS_MAX: u32 = 9;
const PROGRESS_SAMPLES: u64 = 1 << 14;

/// Reads all profiles.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let file = File::of(&map);
    if file.profiles.is_empty() {
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Offset(file.cut.unwrap_or(0)),
            message: format!("expected profiles of speedscope, found {}", quoted(&map)),
        });
    }
    let (frames, dropped) = frames(file.shared, file.is_ours());
    let mut reader = Reader {
        file: &file,
        whole: &map,
        frames: &frames,
        events: Vec::new(),
        threads: Vec::new(),
        next: FIRST,
        calls: Calls::default(),
        stack: Vec::new(),
        problems: Problems::default(),
    };
    reader.facts(sink)?;
    if dropped > 0 {
        let message = || format!("{dropped} frames beyond 4194304");
        reader
            .problems
            .report(sink, Place::Whole, "frames", message)?;
    }
    for profile in &file.profiles {
        reader.profile(profile, sink)?;
    }
    if reader.next > FIRST {
        sink.event(Event::Fact(Fact::Other {
            name: "speedscope.threads_numbered",
            value: &format!(
                "{} from {FIRST} on: evented profiles have no thread ID",
                reader.next - FIRST
            ),
        }))?;
    }
    reader.calls.emit(&frames, &reader.threads, sink)?;
    if let Some(offset) = file.cut {
        let message = || "cut short: the text ends inside of a member".to_owned();
        reader
            .problems
            .report(sink, Place::Offset(offset), "cut", message)?;
    }
    if file.dropped > 0 {
        let message = || format!("{} profiles beyond {PROFILES_MAX}", file.dropped);
        reader
            .problems
            .report(sink, Place::Whole, "profiles", message)?;
    }
    reader.problems.finish(sink)
}

/// The members of a file.
#[derive(Debug, Default)]
struct File<'a> {
    exporter: Cow<'a, [u8]>,
    name: Cow<'a, [u8]>,
    shared: &'a [u8],
    profiles: Vec<Profile<'a>>,
    dropped: u64,
    /// Where the text ends too early.
    cut: Option<u64>,
}

/// The members of a profile.
#[derive(Debug, Default, Clone)]
struct Profile<'a> {
    kind: &'a [u8],
    name: Cow<'a, [u8]>,
    unit: Cow<'a, [u8]>,
    samples: &'a [u8],
    weights: &'a [u8],
    events: &'a [u8],
    ours: Members<'a>,
}

/// The members of a profile that `--to speedscope` adds to those of the format.
#[derive(Debug, Default, Clone)]
struct Members<'a> {
    event: Option<Cow<'a, [u8]>>,
    comm: Option<Cow<'a, [u8]>>,
    pid: Option<i32>,
    tid: Option<i32>,
    cpu: Option<u32>,
    context: Option<Context>,
}

impl<'a> Members<'a> {
    fn member(&mut self, key: &[u8], value: &'a [u8]) {
        let id = || integer(value).and_then(|id| i32::try_from(id).ok());
        match key {
            b"event" => self.event = Some(text(value)),
            b"comm" => self.comm = Some(text(value)),
            b"pid" => self.pid = id(),
            b"tid" => self.tid = id(),
            b"cpu" => self.cpu = integer(value).and_then(|cpu| u32::try_from(cpu).ok()),
            b"context" => {
                self.context = match value {
                    b"\"irq\"" => Some(Context::Irq),
                    b"\"softirq\"" => Some(Context::Softirq),
                    b"\"nmi\"" => Some(Context::Nmi),
                    _ => None,
                }
            }
            _ => {}
        }
    }

    /// Whether the profile has any: exports of earlier versions have none.
    fn is_any(&self) -> bool {
        self.event.is_some() || self.comm.is_some() || self.tid.is_some() || self.cpu.is_some()
    }
}

impl<'a> File<'a> {
    fn of(bytes: &'a [u8]) -> File<'a> {
        let mut file = File::default();
        let mut scanner = Scanner::new(bytes);
        scanner.take(b'{');
        while let Some(key) = scanner.next_key() {
            if key == b"profiles" && scanner.peek() == Some(b'[') {
                file.profiles(&mut scanner);
                continue;
            }
            let start = scanner.place;
            let Some(value) = scanner.value() else {
                file.cut = file.cut.or(Some(start as u64));
                return file;
            };
            match key {
                b"exporter" => file.exporter = text(value),
                b"name" => file.name = text(value),
                b"shared" => file.shared = value,
                _ => {}
            }
        }
        if !scanner.take(b'}') {
            file.cut = file.cut.or(Some(scanner.place as u64));
        }
        file
    }

    fn profiles(&mut self, scanner: &mut Scanner<'a>) {
        scanner.take(b'[');
        while !scanner.take(b']') {
            scanner.take(b',');
            let start = scanner.place;
            let Some(object) = scanner.value() else {
                self.cut = Some(start as u64);
                return;
            };
            match self.profiles.len() < PROFILES_MAX {
                true => self.profiles.push(Profile::of(object)),
                false => self.dropped += 1,
            }
        }
    }

    fn is_ours(&self) -> bool {
        self.exporter.starts_with(b"perfquet@")
    }
}

impl<'a> Profile<'a> {
    fn of(object: &'a [u8]) -> Profile<'a> {
        let mut profile = Profile::default();
        for (key, value) in members(object) {
            match key {
                b"type" => profile.kind = crate::json::inside(value).unwrap_or_default(),
                b"name" => profile.name = text(value),
                b"unit" => profile.unit = text(value),
                b"samples" => profile.samples = value,
                b"weights" => profile.weights = value,
                b"events" => profile.events = value,
                other => profile.ours.member(other, value),
            }
        }
        profile
    }

    /// The event and the thread of the profile; those that we exported are in members, or, by earlier versions, in the name.
    fn owner(&self, is_ours: bool) -> (Option<Cow<'_, [u8]>>, Thread<'_>) {
        let ours = &self.ours;
        let has_times = self.decimals().is_some();
        if is_ours && ours.is_any() {
            let thread = Thread {
                comm: Cow::Borrowed(ours.comm.as_deref().unwrap_or_default()),
                pid: ours.pid,
                tid: ours.tid,
                cpu: ours.cpu,
                context: ours.context,
                has_times,
                is_in_order: false,
            };
            return (ours.event.as_deref().map(Cow::Borrowed), thread);
        }
        let name: &[u8] = &self.name;
        let (event, comm, tid) = match parts(name).filter(|_| is_ours) {
            Some((event, comm, tid)) => (Some(Cow::Borrowed(event)), comm, Some(tid)),
            // Calls of unknown threads.
            None if is_ours && self.kind == b"evented" => (None, &b""[..], None),
            None => (None, name, None),
        };
        let thread = Thread {
            comm: Cow::Borrowed(comm),
            tid,
            has_times,
            is_in_order: !is_ours,
            ..Thread::default()
        };
        (event, thread)
    }

    /// Decimals that make nanoseconds of the unit; `None` if it is not one of time.
    fn decimals(&self) -> Option<u32> {
        match &*self.unit {
            b"nanoseconds" => Some(0),
            b"microseconds" => Some(3),
            b"milliseconds" => Some(6),
            b"seconds" => Some(9),
            _ => None,
        }
    }
}

struct Reader<'f, 'a> {
    file: &'f File<'a>,
    whole: &'a [u8],
    frames: &'f [Frame<'a>],
    /// Names of the declared events.
    events: Vec<String>,
    threads: Vec<Thread<'f>>,
    /// Number of the next thread.
    next: i32,
    calls: Calls,
    stack: Vec<NamedFrame<'f>>,
    problems: Problems,
}

/// Event, name and thread ID in the name of a profile that we exported: `cycles: dd (220)`.
fn parts(name: &[u8]) -> Option<(&[u8], &[u8], i32)> {
    let inner = name.strip_suffix(b")")?;
    let open = inner.iter().rposition(|&byte| byte == b'(')?;
    let tid = i32::try_from(unsigned(inner.get(open + 1..)?)?).ok()?;
    let inner = inner.get(..open)?.strip_suffix(b" ")?;
    // Events of tracepoints have a colon without a blank.
    let colon = inner.windows(2).position(|two| two == b": ")?;
    Some((inner.get(..colon)?, inner.get(colon + 2..)?, tid))
}

impl<'f, 'a> Reader<'f, 'a> {
    fn facts(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        sink.event(Event::Fact(Fact::Clock("trace file")))?;
        for (name, value) in [
            ("speedscope.exporter", &self.file.exporter),
            ("speedscope.name", &self.file.name),
        ] {
            let value = &*String::from_utf8_lossy(value);
            if !value.is_empty() {
                sink.event(Event::Fact(Fact::Other { name, value }))?;
            }
        }
        Ok(())
    }

    /// Offset of a part of the text.
    fn place(&self, part: &[u8]) -> Place {
        let offset = part.as_ptr().addr().checked_sub(self.whole.as_ptr().addr());
        offset.map_or(Place::Whole, |offset| Place::Offset(offset as u64))
    }

    fn profile(&mut self, profile: &'f Profile<'a>, sink: &mut dyn Sink) -> Result<(), Error> {
        let (event, mut thread) = profile.owner(self.file.is_ours());
        match profile.kind {
            b"sampled" => self.sampled(profile, event.as_deref(), &thread, sink),
            b"evented" => {
                // Calls nest within their thread, which needs a number.
                if thread.is_in_order {
                    thread.tid = Some(self.next);
                    self.next = self.next.saturating_add(1);
                }
                self.threads.push(thread);
                self.evented(profile, sink)
            }
            kind => {
                let message = || {
                    format!(
                        "expected \"sampled\" or \"evented\", found {}",
                        quoted(kind)
                    )
                };
                self.problems
                    .report(sink, self.place(kind), "type", message)
            }
        }
    }

    /// The event of a sampled profile, and the decimals of its weights.
    fn event(
        &mut self,
        profile: &Profile<'_>,
        event: Option<&[u8]>,
        sink: &mut dyn Sink,
    ) -> Result<(EventId, u32), Error> {
        let decimals = profile.decimals().unwrap_or_else(|| {
            let decimals = |weight: &[u8]| weight.iter().rev().position(|&byte| byte == b'.');
            let most = elements(profile.weights).filter_map(decimals).max();
            most.and_then(|most| u32::try_from(most).ok())
                .unwrap_or(0)
                .min(DECIMALS_MAX)
        });
        let mut name = match (event, &*profile.unit) {
            (Some(event), _) => String::from_utf8_lossy(event).into_owned(),
            (None, b"bytes") => "bytes".to_owned(),
            (None, _) if profile.decimals().is_some() => "time".to_owned(),
            (None, _) => "weight".to_owned(),
        };
        if profile.decimals().is_none() && decimals > 0 {
            name += &format!("/{}", 10u64.pow(decimals));
        }
        let known = self.events.iter().position(|other| *other == name);
        let place = match known {
            Some(place) => place,
            // All others share the last event.
            None if self.events.len() >= EVENTS_MAX => {
                let last = self.events.len() - 1;
                self.problems.report(sink, Place::Whole, "unit", || {
                    format!("expected at most {EVENTS_MAX} units, found {name:?}: counted as the last one")
                })?;
                last
            }
            None => {
                sink.event(Event::Type(&EventType {
                    system: "speedscope".into(),
                    name: name.clone(),
                    kind: EventKind::Counter,
                    ..EventType::default()
                }))?;
                let unit = match profile.decimals() {
                    Some(_) => Some("nanoseconds"),
                    None => (&*profile.unit == b"bytes").then_some("bytes"),
                };
                if let Some(unit) = unit {
                    sink.event(Event::Fact(Fact::Other {
                        name: &format!("speedscope.unit.{name}"),
                        value: unit,
                    }))?;
                }
                self.events.push(name);
                self.events.len() - 1
            }
        };
        Ok((EventId(u32::try_from(place).unwrap_or(0)), decimals))
    }

    fn sampled(
        &mut self,
        profile: &'f Profile<'a>,
        event: Option<&[u8]>,
        thread: &Thread<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (event, decimals) = self.event(profile, event, sink)?;
        let mut weights = elements(profile.weights);
        let mut samples = elements(profile.samples);
        let mut count = 0u64;
        while let Some(stack) = samples.next() {
            self.stack(stack, sink)?;
            let weight = weights.next();
            let period = weight.and_then(|weight| u64::try_from(decimal(weight, decimals)?).ok());
            if period.is_none() {
                let found = weight.map_or("none".to_owned(), quoted);
                let message = || format!("expected a weight of at least 0, found {found}");
                self.problems
                    .report(sink, self.place(stack), "weight", message)?;
            }
            let stacks = Stacks::of(&self.stack);
            sink.event(Event::Sample(&Sample {
                comm: thread.comm(),
                pid: thread.pid,
                tid: thread.tid,
                cpu: thread.cpu,
                period,
                kernel_stack: stacks.kernel(),
                user_stack: stacks.user(),
                ..Sample::of(event)
            }))?;
            count += 1;
            if count.is_multiple_of(PROGRESS_SAMPLES) {
                let (done, total) = (samples.place() as u64, Some(profile.samples.len() as u64));
                sink.event(Event::Progress(Progress { done, total }))?;
            }
        }
        let rest = weights.count();
        if rest > 0 {
            let message = || format!("{rest} weights without a sample");
            self.problems
                .report(sink, self.place(profile.weights), "weight", message)?;
        }
        Ok(())
    }

    /// Fills the stack, leaf first, from indices of frames, root first.
    fn stack(&mut self, indices: &[u8], sink: &mut dyn Sink) -> Result<(), Error> {
        self.stack.clear();
        let (mut unknown, mut is_long) = (None, false);
        for index in elements(indices) {
            if self.stack.len() >= STACK_MAX {
                is_long = true;
                break;
            }
            let frame = self
                .frame(index)
                .and_then(|index| self.frames.get(index as usize));
            unknown = unknown.or(frame.is_none().then_some(index));
            self.stack.push(frame.map(Frame::named).unwrap_or_default());
        }
        self.stack.reverse();
        if let Some(index) = unknown {
            let message = || format!("expected the index of a frame, found {}", quoted(index));
            self.problems
                .report(sink, self.place(index), "frame", message)?;
        }
        if is_long {
            let message = || format!("a stack has more than {STACK_MAX} frames");
            self.problems
                .report(sink, self.place(indices), "stack", message)?;
        }
        Ok(())
    }

    /// The index of a frame.
    fn frame(&self, value: &[u8]) -> Option<u32> {
        unsigned(value).and_then(|index| u32::try_from(index).ok())
    }

    fn evented(&mut self, profile: &'f Profile<'a>, sink: &mut dyn Sink) -> Result<(), Error> {
        let decimals = profile.decimals().unwrap_or(0);
        let number = |threads: &[Thread<'_>]| u32::try_from(threads.len() - 1).unwrap_or(u32::MAX);
        let mut thread = number(&self.threads);
        if profile.decimals().is_none() {
            let message = || {
                format!(
                    "the unit {} is none of time: calls without times",
                    quoted(&profile.unit)
                )
            };
            self.problems
                .report(sink, self.place(profile.events), "unit", message)?;
        }
        let mut order = 0;
        for event in elements(profile.events) {
            let (mut kind, mut frame, mut at, mut depth) = (&b""[..], None, None, None);
            for (key, value) in members(event) {
                match key {
                    b"type" => kind = value,
                    b"frame" => frame = integer(value).and_then(|frame| u32::try_from(frame).ok()),
                    b"at" => at = decimal(value, decimals),
                    b"call_depth" => {
                        depth = integer(value).and_then(|depth| u32::try_from(depth).ok());
                    }
                    b"comm" if self.file.is_ours() => {
                        let of_profile = self.threads.last().cloned().unwrap_or_default();
                        self.threads.push(Thread {
                            comm: text(value),
                            ..of_profile
                        });
                        thread = number(&self.threads);
                    }
                    _ => {}
                }
            }
            // Without times, the order counts.
            order += 1;
            let at = match profile.decimals() {
                Some(_) => at,
                None => Some(order),
            };
            let is_read = match (kind, frame, at) {
                (b"\"O\"", Some(frame), Some(at)) => {
                    self.calls.enter(frame, at, thread, depth);
                    (frame as usize) < self.frames.len()
                }
                (b"\"C\"", Some(frame), Some(at)) => self.calls.leave(frame, at),
                _ => false,
            };
            if !is_read {
                let message = || {
                    format!(
                        "expected an event of an open call or a known frame, found {}",
                        quoted(event)
                    )
                };
                self.problems
                    .report(sink, self.place(event), "event", message)?;
            }
        }
        self.calls.end();
        Ok(())
    }
}
