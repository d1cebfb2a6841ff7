//! Records → events.

use hashbrown::{HashMap, HashSet};
use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian, before_nul};
use perfquet_events::event::{
    self, Call, Comm, Common as CallCommon, Enter, Event, EventId, Fields, Flags,
    Function as NamedFunction, Id, Leave, Loss, Op, Place, Sample, Space, Stack, Stacks, Value,
};

use crate::trace_dat::declare::{
    Entry, Exit, Extras, Function, Kind, Print, Special, StackFields, Types,
};
use crate::trace_dat::formats::number;
use crate::trace_dat::kallsyms::Kallsyms;
use crate::trace_dat::page::Lost;
use crate::trace_dat::printk::Printk;
use crate::trace_dat::reporter::{OVERRUN, Reporter};
use crate::trace_dat::stream::{Event as Hit, Span, Stream};

/// Maximum number of threads that are remembered.
const THREADS_MAX: usize = 1 << 20;
/// Slots of the cache in front of a hash table.
const RECENT: usize = 256;

/// Threads with a known name.
pub(super) struct Named {
    all: HashSet<i32>,
    /// Those of the last events, at the slot of their low bits.
    recent: Box<[Option<i32>; RECENT]>,
}

impl Named {
    pub(super) fn new(all: HashSet<i32>) -> Named {
        Named {
            all,
            recent: Box::new([None; RECENT]),
        }
    }

    /// Adds a thread; `false`: it is known, or there are too many.
    #[inline]
    fn insert(&mut self, tid: i32) -> bool {
        let slot = self.recent.get_mut(tid as usize % RECENT);
        let Some(slot) = slot.filter(|slot| **slot != Some(tid)) else {
            return false;
        };
        *slot = Some(tid);
        self.all.len() < THREADS_MAX && self.all.insert(tid)
    }
}

/// Turns the records of all streams into events.
pub(super) struct Emitter<'s> {
    pub(super) types: Types<'s>,
    pub(super) kallsyms: Kallsyms<'s>,
    pub(super) printk: Printk<'s>,
    pub(super) endian: Endian,
    pub(super) long_size: u8,
    pub(super) kernel_stacks: StackFields,
    pub(super) user_stacks: StackFields,
    /// Threads with a known name.
    pub(super) named: Named,
    /// Functions that did not fit on a thread's return stack, as last reported.
    pub(super) overruns: HashMap<i32, u64>,
    pub(super) scratch: Option<Box<Scratch>>,
}

/// Buffers reused for every event.
#[derive(Default)]
pub(super) struct Scratch {
    kernel: Vec<u64>,
    user: Vec<u64>,
    text: Vec<u8>,
    lists: Lists,
}

/// Time, thread, CPU and stacks of an event.
#[derive(Clone, Copy)]
struct Where<'a> {
    /// Values of the columns besides the event's own.
    flags: Option<Flags>,
    extras: [Option<Value<'a>>; 2],
    time: Option<i64>,
    cpu: Option<u32>,
    hit: &'a Hit,
    pid: Option<i32>,
    kernel: Stack<'a>,
    user: Stack<'a>,
}

impl<'a> Where<'a> {
    #[inline]
    fn of(stream: &Stream<'_>, hit: &'a Hit, time: Option<i64>) -> Where<'a> {
        Where {
            flags: None,
            extras: [None; 2],
            time,
            cpu: stream.cpu,
            hit,
            pid: hit.record.common.pid,
            kernel: Stack::None,
            user: Stack::None,
        }
    }

    fn common(&self) -> CallCommon<'a> {
        CallCommon {
            time: self.time,
            cpu: self.cpu,
            pid: self.pid,
            tid: Some(self.hit.record.common.tid),
            comm: None,
            kernel_stack: self.kernel,
            user_stack: self.user,
        }
    }

    #[inline]
    fn sample(&self, event: EventId, fields: Fields<'a>) -> Sample<'a> {
        Sample {
            time: self.time,
            cpu: self.cpu,
            pid: self.pid,
            tid: Some(self.hit.record.common.tid),
            kernel_stack: self.kernel,
            user_stack: self.user,
            fields,
            ..Sample::of(event)
        }
    }

    /// Emits the event with its payload.
    #[inline]
    fn emit_payload(
        &self,
        event: EventId,
        fields: Fields<'a>,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let (Some(time), Fields::Raw(payload)) = (self.time, fields) else {
            return reporter
                .sink
                .event(Event::Sample(&self.sample(event, fields)));
        };
        let is_stack = |stack: &Stack<'_>| !matches!(stack, Stack::None);
        let stacks = Stacks {
            kernel: self.kernel,
            user: self.user,
        };
        reporter.sink.hit(&event::Hit {
            event,
            cpu: Id::of_cpu(self.cpu),
            pid: self.pid.into(),
            tid: Id::of(self.hit.record.common.tid),
            time,
            stacks: (is_stack(&self.kernel) || is_stack(&self.user)).then_some(stacks),
            space: Space::Unknown,
            ip: None,
            period: None,
            payload: Some(payload),
        })
    }

    /// Emits the event with its values.
    fn emit(
        &self,
        event: EventId,
        mut values: Vec<Value<'a>>,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        if let Some(flags) = self.flags {
            let bytes = [flags.bits, flags.preempt_count];
            values.extend(bytes.map(|byte| Value::UInt(byte.into())));
        }
        values.extend(self.extras.iter().flatten());
        let sample = Sample {
            fields: match values.as_slice() {
                [] => Fields::None,
                values => Fields::Values(values),
            },
            ..self.sample(event, Fields::None)
        };
        reporter.sink.event(Event::Sample(&sample))
    }
}

/// Elements of the arrays of one event.
#[derive(Default)]
struct Lists {
    signed: Vec<Vec<i64>>,
    unsigned: Vec<Vec<u64>>,
}

impl Lists {
    /// Decodes the arrays into one list of each kind per field; most stay empty.
    fn take(&mut self, ops: &[Op], payload: &[u8]) {
        self.signed.resize_with(ops.len(), Vec::new);
        self.unsigned.resize_with(ops.len(), Vec::new);
        let lists = self.signed.iter_mut().zip(&mut self.unsigned);
        for (op, (signed, unsigned)) in ops.iter().zip(lists) {
            signed.clear();
            unsigned.clear();
            if let Value::Array(list) = op.decode(payload) {
                match op.is_signed() {
                    true => signed.extend(list.signed()),
                    false => unsigned.extend(list.unsigned()),
                }
            }
        }
    }

    /// The values of all fields.
    fn values<'v>(&'v self, ops: &[Op], payload: &'v [u8]) -> Vec<Value<'v>> {
        let lists = self.signed.iter().zip(&self.unsigned);
        let value = |(op, (signed, unsigned)): (&Op, (&'v Vec<i64>, &'v Vec<u64>))| match op
            .decode(payload)
        {
            Value::Array(_) => match op.is_signed() {
                true => Value::IntList(signed),
                false => Value::UIntList(unsigned),
            },
            value => value,
        };
        ops.iter().zip(lists).map(value).collect()
    }
}

/// The event's buffer, and its clock's count if that has no unit.
fn extras<'a>(extras: Extras, stream: &'a Stream<'_>, hit: &Hit) -> [Option<Value<'a>>; 2] {
    let buffer = match &stream.buffer_name[..] {
        b"" => Value::Null,
        name => Value::Bytes(name),
    };
    let stamp = match stream.clock.has_time() {
        true => Value::Null,
        false => Value::UInt(hit.record.stamp),
    };
    [
        extras.buffer.then_some(buffer),
        extras.clock_value.then_some(stamp),
    ]
}

/// The name of the function at an address.
fn name_at<'k>(kallsyms: &Kallsyms<'k>, address: Option<u64>) -> Value<'k> {
    let found = address.and_then(|address| kallsyms.at(address));
    found.map_or(Value::Null, |found| Value::Bytes(found.name))
}

impl Emitter<'_> {
    /// Emits the stream's current event.
    #[inline]
    pub(super) fn emit(
        &mut self,
        stream: &Stream<'_>,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let Some(hit) = &stream.current else {
            return Ok(());
        };
        let time = stream.clock.has_time().then_some(hit.key);
        if hit.record.lost != Lost::Nothing {
            self.lost(time, stream.cpu, hit.record.lost, reporter)?;
        }
        let payload = stream.bytes(hit.record.payload);
        let kind = self
            .types
            .kind(hit.record.common.id, Place::Whole, reporter)?;
        let (kernel, user) = (hit.kernel_stack, hit.user_stack);
        if let (Kind::Plain(event), None, None) = (kind, kernel, user) {
            let at = Where::of(stream, hit, time);
            return at.emit_payload(event, self.types.fields(event, payload), reporter);
        }
        let mut scratch = self.scratch.take().unwrap_or_default();
        let result = self.emit_as(kind, stream, hit, time, payload, &mut scratch, reporter);
        self.scratch = Some(scratch);
        result
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one event")]
    #[inline]
    fn emit_as(
        &mut self,
        kind: Kind,
        stream: &Stream<'_>,
        hit: &Hit,
        time: Option<i64>,
        payload: &[u8],
        scratch: &mut Scratch,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let mut at = Where::of(stream, hit, time);
        at.flags = self.types.has_flags().then_some(hit.record.common.flags);
        if self.types.extras.any() {
            at.extras = extras(self.types.extras, stream, hit);
        }
        let special = match kind {
            Kind::New | Kind::Plain(_) => None,
            Kind::Special(index) => self.types.special(index),
        };
        let (kernel, user) = match special.as_deref() {
            Some(Special::KernelStack(_)) => (Some(hit.record.payload), hit.user_stack),
            Some(Special::UserStack(_)) => (hit.kernel_stack, Some(hit.record.payload)),
            _ => (hit.kernel_stack, hit.user_stack),
        };
        if kernel.is_some() || user.is_some() {
            let pid = self.stacks(stream, kernel, user, scratch);
            at.pid = at.pid.or(pid);
            at.kernel = stack(Space::Kernel, kernel, &scratch.kernel);
            at.user = stack(Space::User, user, &scratch.user);
        }
        let special = match (special.as_deref(), kind) {
            (Some(special), _) => special,
            (None, Kind::Plain(event)) => {
                return at.emit_payload(event, self.types.fields(event, payload), reporter);
            }
            (None, Kind::New | Kind::Special(_)) => return Ok(()),
        };
        match *special {
            Special::Sched(event, names) => {
                self.name(names.first, time, payload, reporter)?;
                if let Some(second) = names.second {
                    self.name(second, time, payload, reporter)?;
                }
                at.emit_payload(event, self.types.fields(event, payload), reporter)
            }
            Special::Decoded(event, names) => {
                if let Some(names) = names {
                    self.name(names.first, time, payload, reporter)?;
                    if let Some(second) = names.second {
                        self.name(second, time, payload, reporter)?;
                    }
                }
                let ops = self.types.own_ops(event);
                scratch.lists.take(ops, payload);
                let values = scratch.lists.values(ops, payload);
                at.emit(event, values, reporter)
            }
            Special::KernelStack(event) | Special::UserStack(event) => {
                at.emit(event, Vec::new(), reporter)
            }
            Special::Function(ref function) => self.function(function, at, payload, reporter),
            Special::Enter(ref entry) => self.enter(entry, at, payload, reporter),
            Special::Leave(ref exit) => self.leave(exit, at, payload, reporter),
            Special::Print(event, print) => {
                let text = payload.get(print.start as usize..);
                let text = text.map_or(Value::Null, |text| Value::Bytes(line(before_nul(text))));
                let ip = number(&print.ip, payload);
                at.emit(
                    event,
                    vec![value(ip), text, name_at(&self.kallsyms, ip)],
                    reporter,
                )
            }
            Special::BinaryPrint(event, print) => {
                self.binary_print(event, print, at, payload, &mut scratch.text, reporter)
            }
            Special::PutString(event, print) => {
                let address = print.address.and_then(|op| number(&op, payload));
                let text = address.and_then(|address| self.printk.plain(address));
                let known = text.is_some();
                let text = text.map_or(Value::Null, |text| Value::Bytes(line(text)));
                let ip = number(&print.ip, payload);
                at.emit(
                    event,
                    vec![value(ip), text, name_at(&self.kallsyms, ip)],
                    reporter,
                )?;
                unknown_text(known, address, reporter)
            }
        }
    }

    /// Takes a thread's name from an event if no earlier record had it, as `trace-cmd report` does.
    #[inline]
    fn name(
        &mut self,
        (tid, comm): (Op, Op),
        time: Option<i64>,
        payload: &[u8],
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let Some(tid) = number(&tid, payload).map(|tid| tid as i32) else {
            return Ok(());
        };
        if !self.named.insert(tid) {
            return Ok(());
        }
        let Value::Bytes(comm) = comm.decode(payload) else {
            return Ok(());
        };
        reporter.sink.event(Event::Comm(Comm {
            time,
            pid: None,
            tid,
            comm,
            exec: false,
        }))
    }

    /// Fills the lists of addresses. Returns the process of the user stack.
    #[cold]
    fn stacks(
        &self,
        stream: &Stream<'_>,
        kernel: Option<Span>,
        user: Option<Span>,
        scratch: &mut Scratch,
    ) -> Option<i32> {
        if let Some(span) = kernel {
            let payload = stream.bytes(span);
            self.addresses(&self.kernel_stacks, payload, &mut scratch.kernel);
        }
        let payload = stream.bytes(user?);
        self.addresses(&self.user_stacks, payload, &mut scratch.user);
        // The kernel fills unused entries of its eight with zeros.
        let used = scratch.user.iter().position(|&address| address == 0);
        scratch.user.truncate(used.unwrap_or(usize::MAX));
        let tgid = self.user_stacks.tgid.and_then(|op| number(&op, payload));
        tgid.map(|tgid| tgid as i32)
    }

    fn addresses(&self, fields: &StackFields, payload: &[u8], out: &mut Vec<u64>) {
        out.clear();
        let start = fields.callers.unwrap_or(u32::MAX) as usize;
        let callers = payload.get(start..).unwrap_or_default();
        let mut cursor = Cursor::new(callers, 0, self.endian);
        let count = fields.count.and_then(|op| number(&op, payload));
        let count = count.map_or(usize::MAX, |count| {
            usize::try_from(count).unwrap_or(usize::MAX)
        });
        // Kernels before 2.6.34 end a shorter stack with all bits set.
        let (last, long) = (u64::MAX, self.long_size);
        while out.len() < count {
            let address = match long {
                4 => cursor.u32().map(|address| match address {
                    u32::MAX => last,
                    address => address.into(),
                }),
                _ => cursor.u64(),
            };
            match address {
                Ok(address) if address != last => out.push(address),
                _ => break,
            }
        }
    }

    /// The function at an address given in an event.
    #[inline]
    fn at(&self, address: Option<u64>) -> NamedFunction<'_> {
        match address {
            None | Some(0) => NamedFunction::Unknown,
            Some(address) => match self.kallsyms.at(address) {
                Some(found) => NamedFunction::Named {
                    name: found.name,
                    module: found.module,
                },
                None => NamedFunction::Address {
                    space: Space::Kernel,
                    address,
                },
            },
        }
    }

    fn function(
        &self,
        fields: &Function,
        at: Where<'_>,
        payload: &[u8],
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let texts = arguments(fields.args, payload, 0);
        let args: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let parent = fields.parent.and_then(|op| number(&op, payload));
        reporter.sink.event(Event::Call(&Call {
            common: at.common(),
            function: self.at(number(&fields.ip, payload)),
            caller: self.at(parent),
            depth: None,
            context: Some(at.hit.record.common.context()),
            args: &args,
            duration: None,
            retval: None,
            may_nest: false,
        }))
    }

    fn enter(
        &self,
        fields: &Entry,
        at: Where<'_>,
        payload: &[u8],
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let skipped = usize::from(fields.first_arg_is_retaddr);
        let texts = arguments(fields.args, payload, skipped);
        let args: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let mut caller = fields.retaddr.and_then(|op| number(&op, payload));
        if fields.first_arg_is_retaddr
            && let Some(Value::Array(list)) = fields.args.map(|op| op.decode(payload))
        {
            caller = list.unsigned().next();
        }
        reporter.sink.event(Event::Enter(&Enter {
            common: at.common(),
            function: self.at(number(&fields.func, payload)),
            caller: self.at(caller),
            depth: fields.depth.and_then(|op| depth(op, payload)),
            context: Some(at.hit.record.common.context()),
            args: &args,
        }))
    }

    fn leave(
        &mut self,
        fields: &Exit,
        at: Where<'_>,
        payload: &[u8],
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let get = |op: Option<Op>| op.and_then(|op| number(&op, payload));
        let duration = match (get(fields.calltime), get(fields.rettime)) {
            (Some(from), Some(to)) => to.checked_sub(from).and_then(|span| span.try_into().ok()),
            _ => None,
        };
        let overrun = get(fields.overrun).unwrap_or(0);
        if overrun > 0 {
            self.overrun(overrun, at, reporter)?;
        }
        reporter.sink.event(Event::Leave(&Leave {
            common: at.common(),
            function: self.at(number(&fields.func, payload)),
            depth: fields.depth.and_then(|op| depth(op, payload)),
            context: Some(at.hit.record.common.context()),
            duration,
            retval: get(fields.retval).map(|value| value as i64),
        }))
    }

    /// Reports that a thread had more open functions than its return stack has entries; the kernel counts the omitted
    /// ones.
    #[cold]
    fn overrun(
        &mut self,
        count: u64,
        at: Where<'_>,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        if self.overruns.len() > THREADS_MAX {
            self.overruns.clear();
        }
        let known = self.overruns.insert(at.hit.record.common.tid, count);
        match count.saturating_sub(known.unwrap_or(0)) {
            0 => Ok(()),
            fresh => reporter.sink.event(Event::Loss(Loss {
                time: at.time,
                cpu: at.cpu,
                event: None,
                count: Some(fresh),
                in_all: None,
                reason: "return stack full",
            })),
        }
    }

    fn binary_print(
        &mut self,
        event: EventId,
        print: Print,
        at: Where<'_>,
        payload: &[u8],
        text: &mut Vec<u8>,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        text.clear();
        let address = print.address.and_then(|op| number(&op, payload));
        let arguments = payload.get(print.start as usize..).unwrap_or_default();
        let kallsyms = &self.kallsyms;
        let names = |address: u64| {
            let found = kallsyms.at(address)?;
            Some((String::from_utf8_lossy(found.name).into_owned(), 0))
        };
        let printk = &mut self.printk;
        let known = address.is_some_and(|address| printk.print(address, arguments, &names, text));
        let format = address.and_then(|address| printk.plain(address));
        let ip = number(&print.ip, payload);
        let values = vec![
            value(ip),
            format.map_or(Value::Null, |format| Value::Bytes(line(format))),
            match known {
                true => Value::Bytes(line(text)),
                false => Value::Null,
            },
            name_at(kallsyms, ip),
        ];
        at.emit(event, values, reporter)?;
        unknown_text(known, address, reporter)
    }

    /// Reports the events lost before an event.
    #[cold]
    pub(super) fn lost(
        &self,
        time: Option<i64>,
        cpu: Option<u32>,
        lost: Lost,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        let count = match lost {
            Lost::Nothing | Lost::Count(0) => return Ok(()),
            Lost::Some => None,
            Lost::Count(count) => Some(count),
        };
        reporter.sink.event(Event::Loss(Loss {
            time,
            cpu,
            event: None,
            count,
            in_all: None,
            reason: OVERRUN,
        }))
    }
}

fn stack(space: Space, span: Option<Span>, addresses: &[u64]) -> Stack<'_> {
    match span {
        None => Stack::None,
        Some(_) => Stack::of(space, addresses),
    }
}

/// Reports a format or string missing from `printk_formats`.
#[inline]
fn unknown_text(
    known: bool,
    address: Option<u64>,
    reporter: &mut Reporter<'_>,
) -> Result<(), Error> {
    if known {
        return Ok(());
    }
    reporter.problem(Place::Whole, "printk", || {
        let address = address.unwrap_or(0);
        format!("expected the text at {address:#x} among the printk formats, found none")
    })
}

fn value(number: Option<u64>) -> Value<'static> {
    number.map_or(Value::Null, Value::UInt)
}

/// The string without its final newline.
fn line(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

fn depth(op: Op, payload: &[u8]) -> Option<u32> {
    number(&op, payload)?.try_into().ok()
}

/// Registers with arguments. The event does not give the number of the function's parameters.
#[inline]
fn arguments(args: Option<Op>, payload: &[u8], skipped: usize) -> Vec<String> {
    let Some(Value::Array(list)) = args.map(|op| op.decode(payload)) else {
        return Vec::new();
    };
    let numbered = list.unsigned().skip(skipped).enumerate();
    numbered
        .map(|(index, value)| format!("arg{}={value:#x}", index + 1))
        .collect()
}
