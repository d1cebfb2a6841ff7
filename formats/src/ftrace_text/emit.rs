//! What a line says → events: samples with their payload, calls, edges of calls.

use super::graph::{self, Content};
use super::head::Head;
use super::read::{Body, Item, Session};
use super::symbol::Symbol;
use crate::Error;
use crate::event::{
    Call, Common, Context, Enter, Event, EventId, EventKind, Fact, Function, Leave, NamedFrame,
    Sample, Space, Stack,
};
use crate::lines::Line;
use crate::payload_text::{Added, FieldKind, Style};
use crate::scan::{
    decimal, find, find_text, leading_decimal, prefixed_hex, rfind_text, rsplit_once, signed,
    split_once, trim, word,
};

/// A payload by its shape.
enum Shape<'a> {
    /// `name: payload`
    Event(&'a [u8], &'a [u8]),
    /// `sys_write(…)`, `sys_write -> 0x1`
    Syscall(Style, &'a [u8], &'a [u8]),
    /// `callee <-caller`
    Function {
        callee: &'a [u8],
        args: Option<&'a [u8]>,
        caller: &'a [u8],
    },
    /// Written by hand: who wrote it, and what.
    Print(&'a [u8], &'a [u8]),
    /// One of ftrace's own entries that has no name in the text.
    Entry(&'static str),
    /// Anything else.
    Text,
}

/// Whether a line without a head may be an event.
pub(super) fn is_payload(text: &[u8]) -> bool {
    !matches!(shape(trim(text)), Shape::Text)
}

/// Whether a text may go on in the next line: those written by hand do.
pub(super) fn is_marker(payload: &[u8]) -> bool {
    [
        &b"tracing_mark_write"[..],
        b"print:",
        b"bprint:",
        b"bputs:",
        b"0:",
    ]
    .iter()
    .any(|name| payload.starts_with(name))
        // What a pointer of a system call points to, as trace-cmd prints what it cannot print.
        || (find_text(payload, b"[FAILED TO PARSE]").is_some()
            && find_text(payload, b"_val=").is_some())
}

/// What kind of payload it is.
#[inline]
fn shape(text: &[u8]) -> Shape<'_> {
    let length = text
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$'))
        .count();
    let Some((name, rest)) = text.split_at_checked(length) else {
        return Shape::Text;
    };
    let is_number = name.iter().all(u8::is_ascii_digit);
    match rest.first() {
        Some(b':') if !is_number => {
            let payload = rest.get(1..).unwrap_or_default();
            match payload.first() {
                Some(b' ' | b'\t') | None => event(name, trim(payload)),
                Some(_) => Shape::Text,
            }
        }
        Some(b'(') if !is_number => with_arguments(name, rest, text),
        _ if name.is_empty() || is_number => numbers(text),
        Some(b' ') if rest.starts_with(b" -> ") => Shape::Syscall(
            Style::SyscallExit,
            name,
            trim(rest.get(4..).unwrap_or_default()),
        ),
        None => Shape::Function {
            callee: name,
            args: None,
            caller: b"",
        },
        _ => place(text),
    }
}

/// Some names are those of ftrace's own entries, as trace-cmd prints them.
#[inline]
fn event<'a>(name: &'a [u8], payload: &'a [u8]) -> Shape<'a> {
    match name {
        b"tracing_mark_write" => Shape::Print(name, payload),
        b"print" | b"bprint" | b"bputs" => {
            let (writer, text) = split_once(payload, b": ").unwrap_or((&[], payload));
            Shape::Print(writer, text)
        }
        b"function" if find_text(payload, b"ip=").is_none() => {
            let (callee, caller) = split_once(payload, b" <-- ").unwrap_or((payload, &[]));
            Shape::Function {
                callee,
                args: None,
                caller,
            }
        }
        _ => Shape::Event(name, payload),
    }
}

/// `name(…)`: a system call, or a function with its arguments.
fn with_arguments<'a>(name: &'a [u8], rest: &'a [u8], text: &'a [u8]) -> Shape<'a> {
    if let Some(close) = rfind_text(text, b") <-") {
        return Shape::Function {
            callee: name,
            args: text.get(name.len() + 1..close),
            caller: text.get(close + 4..).unwrap_or_default(),
        };
    }
    if name.starts_with(b"sys_") || name.starts_with(b"compat_sys_") {
        return Shape::Syscall(Style::SyscallEnter, name, trim(rest));
    }
    match rest
        .strip_prefix(b"(")
        .and_then(|rest| rest.strip_suffix(b")"))
    {
        Some(args) => Shape::Function {
            callee: name,
            args: Some(args),
            caller: b"",
        },
        None => Shape::Text,
    }
}

/// `f <-g`, `f+0x4/0x370 <-g+…`, `f <ffffffff81442060> <-g <…>`, `f [module] <-g`; `tracing_mark_write+… <…>: text`
fn place(text: &[u8]) -> Shape<'_> {
    if let Some((callee, caller)) = split_once(text, b" <-") {
        return Shape::Function {
            callee,
            args: None,
            caller,
        };
    }
    if let Some((writer, payload)) = split_once(text, b": ")
        && writer.starts_with(b"tracing_mark_write")
    {
        return Shape::Print(Symbol::new(writer).name, payload);
    }
    if is_place(text) {
        return Shape::Function {
            callee: text,
            args: None,
            caller: b"",
        };
    }
    Shape::Text
}

/// A name with an offset, an address or a module, and nothing else.
fn is_place(text: &[u8]) -> bool {
    let symbol = Symbol::new(text);
    !symbol.name.contains(&b' ')
        && (symbol.offset.is_some() || symbol.address.is_some() || !symbol.module.is_empty())
}

/// What begins with a number, `#` or something else that is no name.
fn numbers(text: &[u8]) -> Shape<'_> {
    let has = |mark: &[u8]| find_text(text, mark).is_some();
    match text.first() {
        Some(b'#') if has(b"inner/outer(us):") => Shape::Entry("hwlat"),
        Some(b'#') if has(b" timer_latency ") => Shape::Entry("timerlat"),
        Some(b'#') if has(b" buf: ") => Shape::Entry("raw_data"),
        Some(b'0'..=b'9') => {
            let Some((_, rest)) = leading_decimal(text) else {
                return Shape::Text;
            };
            match rest.first() {
                None => Shape::Function {
                    callee: text,
                    args: None,
                    caller: b"",
                },
                Some(b':') if rest.starts_with(b": ") => {
                    Shape::Print(b"", trim(rest.get(2..).unwrap_or_default()))
                }
                Some(b':') if has(b" ==> [") => Shape::Entry("context_switch"),
                Some(b':') if has(b" + [") => Shape::Entry("wakeup"),
                Some(b',') => Shape::Entry("blk"),
                Some(b' ') if is_osnoise(text) => Shape::Entry("osnoise"),
                _ => Shape::Text,
            }
        }
        Some(b'[') if find_text(text, b" <-").is_some() => place(text),
        _ => Shape::Text,
    }
}

/// Nine numbers, the third with a point.
fn is_osnoise(text: &[u8]) -> bool {
    let mut words = text
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty());
    let are_numbers = words
        .by_ref()
        .take(9)
        .filter(|word| {
            word.iter()
                .all(|byte| byte.is_ascii_digit() || *byte == b'.')
        })
        .count();
    are_numbers == 9 && words.next().is_none()
}

impl<'a> Session<'a, '_> {
    /// Hands over an event that has all that belongs to it.
    #[inline]
    pub(super) fn emit(&mut self, item: &Item<'a>) -> Result<(), Error> {
        if !self.told_clock && (item.head.is_relative || !item.head.clock.is_empty()) {
            self.tell_clock(&item.head)?;
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
        }
    }

    #[cold]
    fn tell_clock(&mut self, head: &Head<'a>) -> Result<(), Error> {
        self.told_clock = true;
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

    /// A named event, which may be trace-cmd's print of a graph.
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

    /// A sample of an event whose system is known by its name only.
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

    /// Text written into the trace by hand.
    fn print(&mut self, item: &Item<'a>, writer: &'a [u8], text: &'a [u8]) -> Result<(), Error> {
        let fields = [
            (&b"function"[..], FieldKind::Text, writer),
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

    /// `trace_event_clock_sync: realtime_ts=1448979311493`: milliseconds since 1970 at that moment.
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

    /// A call that the function tracer saw.
    fn function(
        &mut self,
        item: &Item<'a>,
        callee: &'a [u8],
        args: Option<&'a [u8]>,
        caller: &'a [u8],
    ) -> Result<(), Error> {
        let mut found = std::mem::take(&mut self.args);
        graph::arguments(args.unwrap_or_default(), &mut found);
        // ` (repeats: 3, last_ts: 7.889)`: as many more of the same.
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
                        depth: Some(depth),
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
                        depth: Some(depth),
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
                depth: Some(depth),
                context,
                duration,
                retval: tail.retval,
            })),
            Some(Content::Comment(comment)) => match shape(comment) {
                // A text written by hand stands here without who wrote it.
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

    /// `func=0xffffffff81442060 depth=1`, `… calltime=… rettime=…` of trace-cmd report -R; false: it is something else.
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

    /// A stack whose event is not known.
    pub(super) fn emit_stack(
        &mut self,
        head: &Head<'a>,
        is_user: bool,
        frames: &[NamedFrame<'a>],
        _line: Line<'a>,
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

/// Frames without any name are addresses, which the user's symbols may name.
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
            (Some(_), Some(_)) => Stack::Addresses {
                space,
                addresses: bare,
            },
            (Some(frames), None) => Stack::Named(frames),
        };
    sample.kernel_stack = stack(kernel, kernel_end, of_kernel, Space::Kernel);
    sample.user_stack = stack(user, user_end, of_user, Space::User);
}

/// `B|1143|name`: Android's markers name the process.
fn pid_of_marker(text: &[u8]) -> Option<i32> {
    let [
        b'B' | b'E' | b'S' | b'F' | b'C' | b'I' | b'N' | b'G' | b'H',
        b'|',
        rest @ ..,
    ] = text
    else {
        return None;
    };
    let (pid, behind) = leading_decimal(rest)?;
    let is_whole = matches!(behind.first(), None | Some(b'|'));
    is_whole.then_some(pid)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match shape(text.as_bytes()) {
            Shape::Event(name, payload) => format!("event {}|{}", show(name), show(payload)),
            Shape::Syscall(style, name, payload) => {
                format!("{style:?} {}|{}", show(name), show(payload))
            }
            Shape::Function {
                callee,
                args,
                caller,
            } => {
                format!(
                    "call {}|{:?}|{}",
                    show(callee),
                    args.map(show),
                    show(caller)
                )
            }
            Shape::Print(writer, text) => format!("print {}|{}", show(writer), show(text)),
            Shape::Entry(name) => format!("entry {name}"),
            Shape::Text => "text".into(),
        }
    }

    #[test]
    fn shapes() {
        let check = |text: &str, expected: &str| assert_eq!(name(text), expected);
        check("sched_switch: a=1", "event sched_switch|a=1");
        check("sched_switch:          a=1", "event sched_switch|a=1");
        check("empty:", "event empty|");
        check("sys_write(fd: 1)", "SyscallEnter sys_write|(fd: 1)");
        check("sys_write -> 0x2", "SyscallExit sys_write|0x2");
        check("vfs_read <-ksys_read", "call vfs_read|None|ksys_read");
        check("f(a=1, b=(2)) <-g", "call f|Some(\"a=1, b=(2)\")|g");
        check("schedule", "call schedule|None|");
        check("schedule()", "call schedule|Some(\"\")|");
        check(
            "f+0x4/0x9 <ffff> <-g+0x1/0x2 <eeee>",
            "call f+0x4/0x9 <ffff>|None|g+0x1/0x2 <eeee>",
        );
        check("f [ext4] <-g", "call f [ext4]|None|g");
        check(
            "function:             vfs_read <-- ksys_read",
            "call vfs_read|None|ksys_read",
        );
        check("tracing_mark_write: a: b", "print tracing_mark_write|a: b");
        check(
            "tracing_mark_write+0x8a/0x170 <ffffffff8149ab1a>: a: b",
            "print tracing_mark_write|a: b",
        );
        check("print:                f: a: b", "print f|a: b");
        check("0: hello", "print |hello");
        check("0", "call 0|None|");
        check(
            "#1     inner/outer(us):  210/4149  ts:1.5 count:24",
            "entry hwlat",
        );
        check(
            "#1     context    irq timer_latency    351613 ns",
            "entry timerlat",
        );
        check("# 4030201 buf: 72 61", "entry raw_data");
        check(
            "   205:120:R   + [001]      31:  0:R a".trim(),
            "entry wakeup",
        );
        check(
            "205:120:R ==> [001]      31:  0:R a",
            "entry context_switch",
        );
        check("254,0    Q  WS 0 + 8 [dd]", "entry blk");
        check(
            "12380       9222  25.50888    4757      9      0      2      0      3",
            "entry osnoise",
        );
        check("some words", "text");
        check("", "text");
    }

    #[test]
    fn processes_of_markers() {
        assert_eq!(pid_of_marker(b"B|1143|draw"), Some(1143));
        assert_eq!(pid_of_marker(b"E|1143"), Some(1143));
        assert_eq!(pid_of_marker(b"E"), None);
        assert_eq!(pid_of_marker(b"B|x|1"), None);
    }
}
