//! What perfquet-record's programs in the kernel, and perfquet-record itself at the end, put into its journal: samples of
//! `bpf-output` events that are called `perfquet:…`, whose payload (PERF_SAMPLE_RAW) is one of these.
//!
//! ```text
//! u32 kind, u32 0, then by kind:
//! 1 stack       u64 number, u32 process, u32 user?, u64 address…                 leaf first, to the end
//! 2 aggregate   u32 action, u32 flags, u32 printing, u32 bars, f64 value,
//!               u64 kernel stack, u64 user stack, text name, u32 keys, text key…, then the bars, each
//!               i64 low, i64 high, i64 count, u64 open (bit 0: below, 1: above)
//! 3 loss        u64 count, text reason
//! 4 call        u32 function, u32 depth, u32 function around it, u32 is there one?, u64 entry, u64 exit, u64 entry of
//!               that around it, u64 nanoseconds in others, u64 returned, u64 argument[6]
//! text: u32 bytes, the bytes
//! ```
//! A payload ends in up to seven bytes of padding. Numbers of actions are those of `ACTIONS`. Flags of an aggregate:
//! bit 0, it has a value; bit 1, more of its bars come in the next record. The writers: ebpf/src/layout.rs and stacks.h,
//! record/src/journal/told.rs.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Short};
use perfquet_events::event::{
    Action, Aggregate, Bucket, Call, CallFunction, Common, Context, Event, Function, Loss,
    PairedCall, Place, Sample, Space, Stack, ToldStack, time_of,
};

use crate::perf_data::attr::{Attr, event_type, sample_type};
use crate::perf_data::catalog::Catalog;
use crate::perf_data::emit::{Emission, signed};
use crate::perf_data::output::Output;
use crate::perf_data::record::{self, RecordHeader};
use crate::perf_data::sample;

/// `PERF_COUNT_SW_BPF_OUTPUT`
const BPF_OUTPUT: u64 = 10;
/// What the names of our own events begin with.
const SYSTEM: &str = "perfquet:";
/// Bars of one distribution that are kept together; DTrace has at most 65,536.
const BARS_MAX: usize = 1 << 17;

/// In the order of their numbers.
const ACTIONS: [Action; 9] = [
    Action::Count,
    Action::Sum,
    Action::Avg,
    Action::Min,
    Action::Max,
    Action::Stddev,
    Action::Quantize,
    Action::Lquantize,
    Action::Llquantize,
];

mod kind {
    pub(super) const STACK: u32 = 1;
    pub(super) const AGGREGATE: u32 = 2;
    pub(super) const LOSS: u32 = 3;
    pub(super) const CALL: u32 = 4;
}

mod flag {
    pub(super) const HAS_VALUE: u32 = 1;
    pub(super) const CONTINUES: u32 = 2;
}

/// What is wrong with a record.
enum Wrong {
    Sink(Error),
    Short(Short),
    Kind(u32),
    /// A call of a function whose name was not given; it was handed over.
    Function(u32),
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Wrong {
        Wrong::Sink(error)
    }
}

impl From<Short> for Wrong {
    fn from(short: Short) -> Wrong {
        Wrong::Short(short)
    }
}

/// Parts of records that go on in the next one, and memory kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    /// Bars of an aggregation that has more in the next record.
    bars: Vec<Bucket>,
    /// Of the stack at hand.
    addresses: Vec<u64>,
}

impl Catalog {
    /// Whether the samples of an event are such records.
    #[inline]
    pub(super) fn is_wire(&mut self, index: usize) -> bool {
        let Some(event) = self.get(index) else {
            return false;
        };
        if let Some(is_wire) = event.is_wire {
            return is_wire;
        }
        let is_wire = may_be_wire(&event.attr) && self.name_of(index).starts_with(SYSTEM);
        if let Some(event) = self.get_mut(index) {
            event.is_wire = Some(is_wire);
        }
        is_wire
    }
}

impl Emission<'_> {
    /// Hands over what a sample of such an event holds.
    pub(super) fn emit_wire(
        &mut self,
        catalog: &mut Catalog,
        index: usize,
        header: RecordHeader,
        record: &[u8],
        place: Place,
    ) -> Result<(), Error> {
        let event = catalog.event_of(index, &mut self.out)?;
        let mut body = record::body(record, 0, catalog.endian);
        let Some(attr) = catalog.get(index).map(|event| &event.attr) else {
            return Ok(());
        };
        let result = match sample::parse(&mut body, header.misc, attr, &mut self.lists) {
            Ok(members) => {
                let sample = Sample {
                    time: members.time.and_then(signed),
                    cpu: members.cpu,
                    pid: members.pid,
                    tid: members.tid,
                    ..Sample::of(event)
                };
                let body = Cursor::new(members.raw.unwrap_or_default(), 0, catalog.endian);
                self.wire
                    .emit(&sample, body, &catalog.functions, &mut self.out)
            }
            Err(short) => Err(short.into()),
        };
        let out = &mut self.out;
        match result {
            Ok(()) => Ok(()),
            Err(Wrong::Sink(error)) => Err(error),
            Err(Wrong::Short(short)) => out.problem(place, "short BPF record", || {
                format!("BPF record: byte {}: {short}", short.offset)
            }),
            Err(Wrong::Function(number)) => out.problem(place, "function of a BPF record", || {
                format!("BPF record: expected a declared function, found number {number}")
            }),
            Err(Wrong::Kind(kind)) => out.problem(place, "BPF record", || {
                format!("BPF record: expected one of the known kinds, found {kind}")
            }),
        }
    }
}

impl Unfinished {
    /// Hands over one record; the sample around it has its time and thread.
    fn emit(
        &mut self,
        sample: &Sample<'_>,
        mut body: Cursor<'_>,
        functions: &HashMap<u32, CallFunction>,
        out: &mut Output<'_>,
    ) -> Result<(), Wrong> {
        let kind = body.u32()?;
        body.u32()?;
        match kind {
            kind::STACK => self.stack(sample, body, out),
            kind::AGGREGATE => self.aggregate(sample, body, out),
            kind::LOSS => loss(sample, body, out),
            kind::CALL => call(sample, body, functions, out),
            kind => Err(Wrong::Kind(kind)),
        }
    }

    fn stack(
        &mut self,
        sample: &Sample<'_>,
        mut body: Cursor<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), Wrong> {
        let (id, process, is_user) = (body.u64()?, body.u32()?, body.u32()?);
        let addresses = &mut self.addresses;
        addresses.clear();
        while let Ok(address) = body.u64() {
            addresses.push(address);
        }
        let space = match is_user {
            0 => Space::Kernel,
            _ => Space::User,
        };
        out.event(Event::Stack(ToldStack {
            id,
            time: sample.time,
            pid: i32::try_from(process).ok(),
            stack: Stack::Addresses { space, addresses },
        }))?;
        Ok(())
    }

    fn aggregate(
        &mut self,
        sample: &Sample<'_>,
        body: Cursor<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), Wrong> {
        let told = match Told::read(body, &mut self.bars) {
            Ok(told) => told,
            Err(short) => {
                self.bars.clear();
                return Err(short.into());
            }
        };
        if told.flags & flag::CONTINUES != 0 && self.bars.len() < BARS_MAX {
            return Ok(());
        }
        let buckets = std::mem::take(&mut self.bars);
        let stack = |id: u64| match id {
            0 => Stack::None,
            id => Stack::Told(id),
        };
        out.event(Event::Aggregate(&Aggregate {
            name: told.name,
            action: usize::try_from(told.action)
                .ok()
                .and_then(|action| ACTIONS.get(action))
                .copied(),
            keys: &told.keys,
            value: (told.flags & flag::HAS_VALUE != 0).then_some(told.value),
            kernel_stack: stack(told.kernel_stack),
            user_stack: stack(told.user_stack),
            snapshot: told.printing,
            time: sample.time,
            buckets: &buckets,
        }))?;
        Ok(())
    }
}

fn call(
    sample: &Sample<'_>,
    mut body: Cursor<'_>,
    functions: &HashMap<u32, CallFunction>,
    out: &mut Output<'_>,
) -> Result<(), Wrong> {
    let told = ToldCall::read(&mut body)?;
    let function = functions.get(&told.function);
    let around = Some(told.parent).filter(|_| told.has_parent);
    let around = around.and_then(|number| functions.get(&number));
    let module = function.map_or("", |function| &function.module);
    let args = function.map_or(&[][..], |function| &function.arguments);
    let args: Vec<String> = args
        .iter()
        .map(|argument| {
            let register = told.arguments.get(argument.place);
            argument.text(register.copied().unwrap_or_default())
        })
        .collect();
    let args: Vec<&[u8]> = args.iter().map(|text| text.as_bytes()).collect();
    let returned = function.and_then(|function| function.returned.as_ref());
    let call = Call {
        common: Common {
            time: Some(time_of(told.entry)),
            cpu: sample.cpu,
            pid: sample.pid,
            tid: sample.tid,
            ..Common::default()
        },
        function: named(function),
        caller: named(around),
        depth: Some(told.depth),
        // User code runs in no other.
        context: (!module.is_empty()).then_some(Context::Task),
        args: &args,
        duration: signed(told.exit.saturating_sub(told.entry)),
        retval: returned.map(|returned| returned.value(told.returned)),
        may_nest: false,
    };
    let paired = PairedCall {
        call,
        parent_entry: signed(told.parent_entry).filter(|_| told.has_parent),
        inside: signed(told.inside).unwrap_or(i64::MAX),
    };
    out.event(Event::PairedCall(&paired))?;
    match function {
        Some(_) => Ok(()),
        None => Err(Wrong::Function(told.function)),
    }
}

fn loss(sample: &Sample<'_>, mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Wrong> {
    let (count, reason) = (body.u64()?, text(&mut body)?);
    out.event(Event::Loss(Loss {
        time: sample.time,
        cpu: None,
        event: None,
        count: Some(count),
        in_all: None,
        reason: &String::from_utf8_lossy(reason),
    }))?;
    Ok(())
}

fn may_be_wire(attr: &Attr) -> bool {
    attr.kind == event_type::SOFTWARE && attr.config == BPF_OUTPUT && attr.has(sample_type::RAW)
}

fn named(function: Option<&CallFunction>) -> Function<'_> {
    match function {
        None => Function::Unknown,
        Some(known) => Function::Named {
            name: known.function.as_bytes(),
            module: known.module.as_bytes(),
        },
    }
}

/// A call as its record has it.
struct ToldCall {
    function: u32,
    depth: u32,
    parent: u32,
    has_parent: bool,
    entry: u64,
    exit: u64,
    parent_entry: u64,
    inside: u64,
    returned: u64,
    arguments: [u64; 6],
}

impl ToldCall {
    fn read(body: &mut Cursor<'_>) -> Result<ToldCall, Short> {
        let (function, depth, parent) = (body.u32()?, body.u32()?, body.u32()?);
        let has_parent = body.u32()? != 0;
        let (entry, exit, parent_entry) = (body.u64()?, body.u64()?, body.u64()?);
        let (inside, returned) = (body.u64()?, body.u64()?);
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = body.u64()?;
        }
        Ok(ToldCall {
            function,
            depth,
            parent,
            has_parent,
            entry,
            exit,
            parent_entry,
            inside,
            returned,
            arguments,
        })
    }
}

/// An aggregate as its record has it; its bars are added to those of the records before.
struct Told<'a> {
    action: u32,
    flags: u32,
    printing: u32,
    value: f64,
    kernel_stack: u64,
    user_stack: u64,
    name: &'a [u8],
    keys: Vec<&'a [u8]>,
}

impl<'a> Told<'a> {
    fn read(mut body: Cursor<'a>, bars: &mut Vec<Bucket>) -> Result<Told<'a>, Short> {
        let (action, flags, printing) = (body.u32()?, body.u32()?, body.u32()?);
        let bar_count = body.u32()?;
        let value = f64::from_bits(body.u64()?);
        let (kernel_stack, user_stack) = (body.u64()?, body.u64()?);
        let name = text(&mut body)?;
        let key_count = body.u32()?;
        let mut keys = Vec::new();
        // Each takes four bytes at least, so a number from a damaged record ends with the record.
        for _ in 0..key_count {
            keys.push(text(&mut body)?);
        }
        for _ in 0..bar_count {
            let (low, high, count, open) = (body.i64()?, body.i64()?, body.i64()?, body.u64()?);
            bars.push(Bucket {
                low: (open & 1 == 0).then_some(low),
                high: (open & 2 == 0).then_some(high),
                count,
            });
        }
        Ok(Told {
            action,
            flags,
            printing,
            value,
            kernel_stack,
            user_stack,
            name,
            keys,
        })
    }
}

fn text<'a>(body: &mut Cursor<'a>) -> Result<&'a [u8], Short> {
    let bytes = body.u32()?;
    body.bytes(bytes.into())
}
