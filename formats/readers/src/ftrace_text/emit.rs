//! Parsed lines → events: samples with their payload, calls, entries and exits.

use perfquet_events::Error;
use perfquet_events::event::{
    Call, Common, Context, Enter, Event, EventId, EventKind, Fact, Flags, Function, Leave,
    NamedFrame, Sample, Sink, Space, Stack,
};
use perfquet_events::scan::{
    decimal, find, leading_decimal, prefixed_hex, rsplit_once, signed, split_once, trim, word,
};

use super::graph::{self, Content};
use super::head::Head;
use super::indent::Indents;
use super::item::{Body, Item};
use super::mmio::{self, MmioLine};
use super::shape::{Shape, shape};
use super::symbol::Symbol;
use crate::lines::{Counts, Line, LineProblems};
use crate::payload_text::{Added, FieldKind, Payloads, Style};

/// The sink, with the known payloads, problems and counts.
pub(super) struct Emission<'a, 's> {
    pub(super) sink: &'s mut dyn Sink,
    pub(super) payloads: Payloads<'a>,
    pub(super) problems: LineProblems,
    pub(super) counts: Counts,
    /// Time of the last event that has one.
    pub(super) last_time: Option<i64>,
    pub(super) indents: Indents,
    /// Whether the clock fact was reported.
    is_clock_reported: bool,
    /// Memory reused from event to event.
    args: Vec<&'a [u8]>,
    addresses: Vec<u64>,
}

impl<'a, 's> Emission<'a, 's> {
    pub(super) fn new(sink: &'s mut dyn Sink, payloads: Payloads<'a>) -> Emission<'a, 's> {
        Emission {
            sink,
            payloads,
            problems: LineProblems::default(),
            counts: Counts::default(),
            last_time: None,
            indents: Indents::default(),
            is_clock_reported: false,
            args: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Reports a line that lacks an expected part.
    #[cold]
    pub(super) fn problem(&mut self, line: Line<'a>, expected: &str) -> Result<(), Error> {
        self.counts.problem += 1;
        self.problems.line(line, expected, self.sink)
    }

    /// Reports a line that was counted as data, and turns out to be unreadable.
    #[cold]
    pub(super) fn spoiled(&mut self, line: Line<'a>, expected: &str) -> Result<(), Error> {
        self.counts.data -= 1;
        self.problem(line, expected)
    }

    pub(super) fn other_fact(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        let value = &String::from_utf8_lossy(value);
        self.sink.event(Event::Fact(Fact::Other { name, value }))
    }

    /// Emits an event that is complete.
    #[inline]
    pub(super) fn emit(&mut self, item: &Item<'a>) -> Result<(), Error> {
        self.last_time = item.head.time.or(self.last_time);
        if !self.is_clock_reported && (item.head.is_relative || !item.head.clock.is_empty()) {
            self.report_clock(&item.head)?;
        }
        match item.body {
            Body::Payload(text) => self.payload(item, text),
            Body::Graph {
                duration,
                depth,
                text,
                in_interrupt,
            } => {
                let context = in_interrupt.then_some(Context::Irq);
                self.graph(item, duration, depth, text, item.head.context().or(context))
            }
            Body::Raw(text) => match text.strip_prefix(b"# ") {
                Some(print) => {
                    let (writer, text) = word(print).unwrap_or_default();
                    self.print(item, writer, trim(text))
                }
                None => {
                    let kind = text.strip_prefix(b"type: ").unwrap_or(text);
                    let fields = [(&b"type"[..], FieldKind::Int, kind)];
                    self.fields(item, b"raw", EventKind::Tracepoint, &fields)
                }
            },
            Body::Blk(device, rest) => self.blk(item, device, rest),
            Body::Mmio => match mmio::line(item.line.text) {
                Some((_, MmioLine::Access(access))) => {
                    let (table, fields) = access.table();
                    self.fields(item, table, EventKind::Tracepoint, &fields)
                }
                Some((_, MmioLine::Mark(text))) => self.print(item, b"", text),
                Some((_, MmioLine::Lost(_))) | None => Ok(()),
            },
        }
    }

    #[cold]
    fn report_clock(&mut self, head: &Head<'a>) -> Result<(), Error> {
        self.is_clock_reported = true;
        if head.is_relative {
            return self.sink.event(Event::Fact(Fact::Clock("relative")));
        }
        self.other_fact(
            "ftrace.clock",
            b"counts something: see the column clock_value",
        )
    }

    fn payload(&mut self, item: &Item<'a>, text: &'a [u8]) -> Result<(), Error> {
        match shape(text) {
            Shape::Event(name, payload) => self.event_of(item, name, payload),
            Shape::Syscall(style, name, payload) => self.sample(item, style, name, payload),
            Shape::Function {
                callee,
                args,
                caller,
            } => self.function(item, callee, args, caller),
            Shape::Print(writer, text) => self.print(item, writer, text),
            Shape::Entry("raw_data") => self.raw_data(item, text),
            Shape::Entry("blk") => {
                let (device, rest) = word(text).unwrap_or_default();
                self.blk(item, device, rest)
            }
            Shape::Entry(name) => self.sample(item, Style::Event, name.as_bytes(), text),
            Shape::Text => self.sample(item, Style::Event, b"text", text),
        }
    }

    /// Emits a named event, which may be trace-cmd's form of a graph line.
    #[inline]
    fn event_of(
        &mut self,
        item: &Item<'a>,
        name: &'a [u8],
        payload: &'a [u8],
    ) -> Result<(), Error> {
        match name {
            b"funcgraph_entry" | b"funcgraph_exit" => {
                let entry = name == b"funcgraph_entry";
                if let Some((duration, depth, text)) = graph::trace_cmd(payload) {
                    let context = item.head.context();
                    return self.graph(item, duration, depth, text, context);
                }
                if self.raw_graph(item, entry, payload)? {
                    return Ok(());
                }
            }
            b"function" => {
                let address = |key: &[u8]| {
                    let (_, rest) = split_once(payload, key)?;
                    let end = find(rest, b' ').unwrap_or(rest.len());
                    rest.get(..end)
                };
                if let Some(callee) = address(b"ip=") {
                    let caller = address(b"parent_ip=").unwrap_or_default();
                    return self.function(item, callee, None, caller);
                }
            }
            _ => {}
        }
        let payload = match payload.strip_prefix(b"[FAILED TO PARSE] ") {
            Some(rest) => {
                let expected = "an event that trace-cmd could print";
                self.problems.line(item.line, expected, self.sink)?;
                rest
            }
            None => payload,
        };
        self.sample(item, Style::Event, name, payload)
    }

    /// Emits a sample of an event whose system follows only from its name.
    #[inline]
    fn sample(
        &mut self,
        item: &Item<'a>,
        style: Style,
        name: &'a [u8],
        payload: &'a [u8],
    ) -> Result<(), Error> {
        let slot = self.payloads.slot(style, b"", name, EventKind::Tracepoint);
        let added = added(&item.head);
        if item.kernel.is_none() && item.user.is_none() {
            let sample = sample_of(&item.head);
            return self
                .payloads
                .emit(slot, payload, &added, &sample, self.sink);
        }
        let mut addresses = std::mem::take(&mut self.addresses);
        let sample = with_stacks(sample_of(&item.head), item, &mut addresses);
        let result = self
            .payloads
            .emit(slot, payload, &added, &sample, self.sink);
        self.addresses = addresses;
        result
    }

    fn fields(
        &mut self,
        item: &Item<'a>,
        name: &'a [u8],
        kind: EventKind,
        fields: &[(&'a [u8], FieldKind, &'a [u8])],
    ) -> Result<(), Error> {
        let slot = self.payloads.slot(Style::Event, b"ftrace", name, kind);
        let mut addresses = std::mem::take(&mut self.addresses);
        let sample = with_stacks(sample_of(&item.head), item, &mut addresses);
        let added = added(&item.head);
        let result = self
            .payloads
            .emit_fields(slot, fields, &added, &sample, self.sink);
        self.addresses = addresses;
        result
    }

    /// Emits a string written to `trace_marker`.
    fn print(&mut self, item: &Item<'a>, writer: &'a [u8], text: &'a [u8]) -> Result<(), Error> {
        let fields = [
            (&b"ip"[..], FieldKind::Text, writer),
            (&b"buf"[..], FieldKind::Text, text),
        ];
        self.clock_of_marker(item, text)?;
        let mut head = item.head;
        head.pid = head.pid.or_else(|| pid_of_marker(text));
        let slot = self
            .payloads
            .slot(Style::Event, b"ftrace", b"print", EventKind::Marker);
        let mut addresses = std::mem::take(&mut self.addresses);
        let sample = with_stacks(sample_of(&head), item, &mut addresses);
        let result = self
            .payloads
            .emit_fields(slot, &fields, &added(&head), &sample, self.sink);
        self.addresses = addresses;
        result
    }

    /// `trace_event_clock_sync: realtime_ts=1448979311493`: the wall-clock time of that event, in milliseconds since
    /// 1970.
    fn clock_of_marker(&mut self, item: &Item<'a>, text: &[u8]) -> Result<(), Error> {
        let offset = text
            .strip_prefix(b"trace_event_clock_sync: realtime_ts=")
            .and_then(signed)
            .and_then(|time| time.checked_mul(1_000_000)?.checked_sub(item.head.time?));
        match offset {
            Some(offset) => self.sink.event(Event::Fact(Fact::WallOffset(offset))),
            None => Ok(()),
        }
    }

    /// `# 4030201 buf: 72 61 77`
    fn raw_data(&mut self, item: &Item<'a>, text: &'a [u8]) -> Result<(), Error> {
        let text = text.strip_prefix(b"# ").unwrap_or(text);
        let (id, buf) = split_once(text, b" buf: ").unwrap_or((text, &[]));
        let fields = [
            (&b"id"[..], FieldKind::Hex, trim(id)),
            (&b"buf"[..], FieldKind::Text, trim(buf)),
        ];
        self.fields(item, b"raw_data", EventKind::Marker, &fields)
    }

    /// `Q  WS 0 + 8 [dd]`, `C  WS 0 + 8 [0]`, `A  WS 0 + 8 <- (8,1) 456`, `m   N text`
    fn blk(&mut self, item: &Item<'a>, device: &'a [u8], rest: &'a [u8]) -> Result<(), Error> {
        let (action, rest) = word(rest).unwrap_or_default();
        let (rwbs, rest) = word(rest).unwrap_or_default();
        let rest = trim(rest);
        let (place, who) = match rest
            .strip_suffix(b"]")
            .and_then(|rest| rsplit_once(rest, b"["))
        {
            Some((place, who)) => (trim(place), who),
            None => (rest, &[][..]),
        };
        let (sector, count) = split_once(place, b" + ").unwrap_or((place, &[]));
        let is_error = action == b"C" && signed(who).is_some();
        let is_place = decimal(sector).is_some() && (count.is_empty() || decimal(count).is_some());
        let kept = |is_kept: bool, text: &'a [u8]| if is_kept { text } else { &[] };
        let fields = [
            (&b"dev"[..], FieldKind::Device, device),
            (&b"action"[..], FieldKind::Text, action),
            (&b"rwbs"[..], FieldKind::Text, rwbs),
            (&b"sector"[..], FieldKind::Int, kept(is_place, sector)),
            (&b"nr_sector"[..], FieldKind::Int, kept(is_place, count)),
            (&b"error"[..], FieldKind::Int, kept(is_error, who)),
            (&b"comm"[..], FieldKind::Text, kept(!is_error, who)),
            (&b"message"[..], FieldKind::Text, kept(!is_place, place)),
        ];
        self.fields(item, b"blk", EventKind::Tracepoint, &fields)
    }

    /// Emits a call recorded by the function tracer.
    fn function(
        &mut self,
        item: &Item<'a>,
        callee: &'a [u8],
        args: Option<&'a [u8]>,
        caller: &'a [u8],
    ) -> Result<(), Error> {
        let mut found = std::mem::take(&mut self.args);
        graph::arguments(args.unwrap_or_default(), &mut found);
        // ` (repeats: 3, last_ts: 7.889)`: this many more calls of the same pair.
        let (caller, repeats) = match split_once(caller, b" (repeats: ") {
            Some((caller, rest)) => (caller, rest.get(..find(rest, b',').unwrap_or(rest.len()))),
            None => (caller, None),
        };
        let note;
        let args: &[&[u8]] = match repeats {
            Some(count) => {
                note = [b"repeats=", count].concat();
                &[&note[..]]
            }
            None => &found,
        };
        let mut addresses = std::mem::take(&mut self.addresses);
        let stacks = with_stacks(Sample::of(EventId(0)), item, &mut addresses);
        let result = self.sink.event(Event::Call(&Call {
            common: Common {
                kernel_stack: stacks.kernel_stack,
                user_stack: stacks.user_stack,
                ..common(&item.head)
            },
            function: Symbol::new(callee).function(),
            caller: Symbol::new(caller).function(),
            depth: None,
            context: item.head.context(),
            args,
            duration: None,
            retval: None,
            may_nest: false,
        }));
        self.addresses = addresses;
        self.args = found;
        result
    }

    /// The last column of a graph.
    #[inline]
    fn graph(
        &mut self,
        item: &Item<'a>,
        duration: Option<i64>,
        depth: u32,
        text: &'a [u8],
        context: Option<Context>,
    ) -> Result<(), Error> {
        let common = common(&item.head);
        let depth = self
            .indents
            .depth((item.head.tid, item.head.cpu), depth, text);
        match graph::content(text) {
            Some(Content::Call {
                symbol,
                args,
                is_leaf,
                tail,
            }) => {
                let mut found = std::mem::take(&mut self.args);
                graph::arguments(args, &mut found);
                let function = symbol.function();
                let caller = tail
                    .caller
                    .map_or(Function::Unknown, |caller| caller.function());
                let result = if is_leaf {
                    self.sink.event(Event::Call(&Call {
                        common,
                        function,
                        caller,
                        depth,
                        context,
                        args: &found,
                        duration,
                        retval: tail.retval,
                        may_nest: false,
                    }))
                } else {
                    self.sink.event(Event::Enter(&Enter {
                        common,
                        function,
                        caller,
                        depth,
                        context,
                        args: &found,
                    }))
                };
                self.args = found;
                result
            }
            Some(Content::End(tail)) => self.sink.event(Event::Leave(&Leave {
                common,
                function: tail
                    .function
                    .map_or(Function::Unknown, |function| function.function()),
                depth,
                context,
                duration,
                retval: tail.retval,
            })),
            Some(Content::Comment(comment)) => match shape(comment) {
                // Here a marker's text comes without its writer.
                Shape::Text => self.print(item, b"", comment),
                Shape::Function {
                    args: None,
                    caller: b"",
                    ..
                } => self.print(item, b"", comment),
                _ => self.payload(item, comment),
            },
            None => self.spoiled(item.line, "a function, its end or a comment"),
        }
    }

    /// `func=0xffffffff81442060 depth=1`, `… calltime=… rettime=…` of trace-cmd report -R. Returns false for anything
    /// else.
    fn raw_graph(&mut self, item: &Item<'a>, entry: bool, payload: &[u8]) -> Result<bool, Error> {
        let value = |key: &[u8]| {
            let (_, rest) = split_once(payload, key)?;
            let end = find(rest, b' ').unwrap_or(rest.len());
            let text = rest.get(..end)?;
            prefixed_hex(text).or_else(|| decimal(text))
        };
        let Some(address) = value(b"func=") else {
            return Ok(false);
        };
        let function = Function::Address {
            space: Space::Kernel,
            address,
        };
        let depth = value(b"depth=").and_then(|depth| u32::try_from(depth).ok());
        let common = common(&item.head);
        let context = item.head.context();
        if entry {
            self.sink.event(Event::Enter(&Enter {
                common,
                function,
                depth,
                context,
                ..Enter::default()
            }))?;
        } else {
            let duration = value(b"rettime=")
                .zip(value(b"calltime="))
                .and_then(|(end, start)| i64::try_from(end.checked_sub(start)?).ok());
            self.sink.event(Event::Leave(&Leave {
                common,
                function,
                depth,
                context,
                duration,
                retval: value(b"retval=").map(u64::cast_signed),
            }))?;
        }
        Ok(true)
    }

    /// Emits a stack whose event is unknown.
    pub(super) fn emit_stack(
        &mut self,
        head: &Head<'a>,
        is_user: bool,
        frames: &[NamedFrame<'a>],
    ) -> Result<(), Error> {
        let name: &[u8] = if is_user {
            b"user_stack"
        } else {
            b"kernel_stack"
        };
        let slot = self
            .payloads
            .slot(Style::Event, b"ftrace", name, EventKind::Tracepoint);
        let mut addresses = std::mem::take(&mut self.addresses);
        let mut sample = sample_of(head);
        let (kernel, user) = if is_user {
            (None, Some(frames))
        } else {
            (Some(frames), None)
        };
        set_stacks(&mut sample, kernel, user, &mut addresses);
        let result = self
            .payloads
            .emit_fields(slot, &[], &added(head), &sample, self.sink);
        self.addresses = addresses;
        result
    }
}

#[inline]
fn common<'a>(head: &Head<'a>) -> Common<'a> {
    Common {
        time: head.time,
        cpu: head.cpu,
        pid: head.pid,
        tid: head.tid,
        comm: head.comm,
        ..Common::default()
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

#[inline]
fn added<'a>(head: &Head<'a>) -> Added<'a> {
    Added {
        columns: [(b"clock_value", head.clock), (b"buffer", head.buffer)],
        flags: Flags::from_text(head.flags),
    }
}

fn with_stacks<'v>(
    mut sample: Sample<'v>,
    item: &'v Item<'_>,
    addresses: &'v mut Vec<u64>,
) -> Sample<'v> {
    set_stacks(
        &mut sample,
        item.kernel.as_deref(),
        item.user.as_deref(),
        addresses,
    );
    sample
}

/// Frames without a name become addresses, which `--symbols` may resolve.
fn set_stacks<'v>(
    sample: &mut Sample<'v>,
    kernel: Option<&'v [NamedFrame<'_>]>,
    user: Option<&'v [NamedFrame<'_>]>,
    addresses: &'v mut Vec<u64>,
) {
    addresses.clear();
    let are_bare = |frames: &[NamedFrame<'_>]| {
        let is_bare = |frame: &NamedFrame<'_>| {
            frame.function.is_empty() && frame.module.is_empty() && frame.address.is_some()
        };
        !frames.is_empty() && frames.iter().all(is_bare)
    };
    let mut take = |frames: &[NamedFrame<'_>]| {
        addresses.extend(frames.iter().filter_map(|frame| frame.address));
        addresses.len()
    };
    let kernel_end = kernel.filter(|frames| are_bare(frames)).map(&mut take);
    let user_end = user.filter(|frames| are_bare(frames)).map(&mut take);
    let (of_kernel, of_user) = addresses
        .split_at_checked(kernel_end.unwrap_or(0))
        .unwrap_or_default();
    let stack =
        |frames: Option<&'v [NamedFrame<'_>]>, end: Option<usize>, bare, space| match (frames, end)
        {
            (None, _) => Stack::None,
            (Some(_), Some(_)) => Stack::of(space, bare),
            (Some(frames), None) => Stack::Named(frames),
        };
    sample.kernel_stack = stack(kernel, kernel_end, of_kernel, Space::Kernel);
    sample.user_stack = stack(user, user_end, of_user, Space::User);
}

/// `B|1143|name`: Android's markers contain the PID.
fn pid_of_marker(text: &[u8]) -> Option<i32> {
    let [
        b'B' | b'E' | b'S' | b'F' | b'C' | b'I' | b'N' | b'G' | b'H',
        b'|',
        rest @ ..,
    ] = text
    else {
        return None;
    };
    let (pid, after) = leading_decimal(rest)?;
    let is_whole = matches!(after.first(), None | Some(b'|'));
    is_whole.then_some(pid)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_markers() {
        assert_eq!(pid_of_marker(b"B|1143|draw"), Some(1143));
        assert_eq!(pid_of_marker(b"E|1143"), Some(1143));
        assert_eq!(pid_of_marker(b"E"), None);
        assert_eq!(pid_of_marker(b"B|x|1"), None);
    }
}
