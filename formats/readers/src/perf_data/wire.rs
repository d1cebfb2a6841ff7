//! Records of perfquet-record and its BPF programs in the journal: samples of `bpf-output` events named `perfquet:…`,
//! converted to events. The layout of their payloads is in [`perfquet_events::wire`].

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Short};
use perfquet_events::event::{
    Aggregate, Bucket, Call, CallFunction, Common, Context, CounterValue, Event, Fields, Function,
    KeptCode, Loss, OpenFile, PairedCall, ProcessState, Sample, Space, Stack, StackDefinition,
    Value, time_of,
};
use perfquet_events::wire::{
    AggregateRecord, CallRecord, CodeRecord, CountRecord, FilesRecord, Kind, LossRecord, PREFIX,
    PauseRecord, ProcessRecord, RateRecord, StackRecord,
};

use crate::perf_data::attr::{Attr, event_type, sample_type};
use crate::perf_data::catalog::{Catalog, Declared};
use crate::perf_data::output::Output;
use crate::perf_data::recorder::RecorderEvent;
use crate::perf_data::values::signed;

/// `PERF_COUNT_SW_BPF_OUTPUT`
const BPF_OUTPUT: u64 = 10;
/// Maximum number of bars of one distribution; DTrace has at most 65,536.
const BARS_MAX: usize = 1 << 17;

/// An invalid record.
pub(super) enum Wrong {
    Sink(Error),
    Short(Short),
    Kind(u32),
    /// A call of a function that was not declared; it was emitted nevertheless.
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

/// Parts of records that continue in the next one, and buffers reused between records.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    /// Bars of an aggregation that continues in the next record.
    bars: Vec<Bucket>,
    /// Addresses of the current stack.
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
        let is_wire = may_be_wire(&event.attr) && self.name_of(index).starts_with(PREFIX);
        if let Some(event) = self.get_mut(index) {
            event.is_wire = Some(is_wire);
        }
        is_wire
    }
}

impl Unfinished {
    /// Emits one record; the enclosing sample has its time and thread.
    pub(super) fn emit(
        &mut self,
        sample: &Sample<'_>,
        kind: u32,
        body: Cursor<'_>,
        functions: &HashMap<u32, CallFunction>,
        declared: &mut Declared,
        out: &mut Output<'_>,
    ) -> Result<(), Wrong> {
        match Kind::of_number(kind) {
            Some(Kind::Stack) => self.stack(sample, StackRecord::decode(body)?, out)?,
            Some(Kind::Aggregate) => match AggregateRecord::decode(body) {
                Ok(record) => self.aggregate(sample, record, out)?,
                Err(short) => {
                    self.bars.clear();
                    return Err(short.into());
                }
            },
            Some(Kind::Loss) => loss(sample, LossRecord::decode(body)?, out)?,
            Some(Kind::Count) => {
                let CountRecord(value) = CountRecord::decode(body)?;
                let time = sample.time;
                out.event(Event::Count(&CounterValue { time, ..value }))?;
            }
            Some(Kind::Pause) => pause(sample, PauseRecord::decode(body)?, out)?,
            Some(Kind::Rate) => rate(sample, RateRecord::decode(body)?, declared, out)?,
            Some(Kind::Process) => {
                let ProcessRecord(state) = ProcessRecord::decode(body)?;
                let time = sample.time;
                out.event(Event::Process(ProcessState { time, ..state }))?;
            }
            Some(Kind::Files) => files(sample, &FilesRecord::decode(body)?, out)?,
            Some(Kind::Code) => {
                let CodeRecord(kept) = CodeRecord::decode(body)?;
                let time = sample.time;
                out.event(Event::KeptCode(KeptCode { time, ..kept }))?;
            }
            Some(Kind::Call) => return call(sample, CallRecord::decode(body)?, functions, out),
            None => return Err(Wrong::Kind(kind)),
        }
        Ok(())
    }

    fn stack(
        &mut self,
        sample: &Sample<'_>,
        record: StackRecord<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let addresses = &mut self.addresses;
        addresses.clear();
        addresses.extend(record.addresses());
        let space = match record.is_user {
            false => Space::Kernel,
            true => Space::User,
        };
        out.event(Event::Stack(StackDefinition {
            id: record.id,
            time: sample.time,
            pid: i32::try_from(record.process).ok(),
            stack: Stack::Addresses {
                space,
                addresses,
                is_cut: record.is_cut,
                is_unwound: false,
            },
        }))
    }

    fn aggregate(
        &mut self,
        sample: &Sample<'_>,
        mut record: AggregateRecord<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        self.bars.append(&mut record.bars);
        if record.continues && self.bars.len() < BARS_MAX {
            return Ok(());
        }
        let buckets = std::mem::take(&mut self.bars);
        let stack = |id: u64| match id {
            0 => Stack::None,
            id => Stack::Id(id),
        };
        out.event(Event::Aggregate(&Aggregate {
            name: record.name,
            action: record.action,
            keys: &record.keys,
            value: record.value,
            kernel_stack: stack(record.kernel_stack),
            user_stack: stack(record.user_stack),
            snapshot: record.printing,
            since: record.since.map(time_of),
            time: sample.time,
            buckets: &buckets,
        }))
    }
}

fn loss(sample: &Sample<'_>, record: LossRecord<'_>, out: &mut Output<'_>) -> Result<(), Error> {
    out.event(Event::Loss(Loss {
        time: sample.time,
        cpu: None,
        event: None,
        count: record.count,
        in_all: None,
        reason: &String::from_utf8_lossy(record.reason),
    }))
}

fn pause(sample: &Sample<'_>, record: PauseRecord, out: &mut Output<'_>) -> Result<(), Error> {
    out.event(Event::Loss(Loss {
        time: sample.time,
        cpu: None,
        event: None,
        count: None,
        in_all: None,
        reason: record.reason(),
    }))
}

fn files(sample: &Sample<'_>, record: &FilesRecord<'_>, out: &mut Output<'_>) -> Result<(), Error> {
    let (time, pid) = (sample.time, record.pid);
    for &(fd, path) in &record.files {
        out.event(Event::OpenFile(OpenFile {
            time,
            pid,
            fd,
            path,
        }))?;
    }
    Ok(())
}

fn rate(
    sample: &Sample<'_>,
    record: RateRecord<'_>,
    declared: &mut Declared,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    let event = declared.recorder_event(RecorderEvent::SamplingRate, out)?;
    let values = [Value::Bytes(record.event), Value::UInt(record.frequency_hz)];
    out.event(Event::Sample(&Sample {
        time: sample.time,
        fields: Fields::Values(&values),
        ..Sample::of(event)
    }))
}

fn call(
    sample: &Sample<'_>,
    record: CallRecord,
    functions: &HashMap<u32, CallFunction>,
    out: &mut Output<'_>,
) -> Result<(), Wrong> {
    let function = functions.get(&record.function);
    let caller = record.caller;
    let around = caller.and_then(|caller| functions.get(&caller.function));
    let module = function.map_or("", |function| &function.module);
    let args = function.map_or(&[][..], |function| &function.arguments);
    let args: Vec<String> = args
        .iter()
        .map(|argument| {
            let register = record.arguments.get(argument.place);
            argument.text(register.copied().unwrap_or_default())
        })
        .collect();
    let args: Vec<&[u8]> = args.iter().map(|text| text.as_bytes()).collect();
    let returned = function.and_then(|function| function.returned.as_ref());
    let call = Call {
        common: Common {
            time: Some(time_of(record.entry)),
            cpu: sample.cpu,
            pid: sample.pid,
            tid: sample.tid,
            ..Common::default()
        },
        function: named(function),
        caller: named(around),
        depth: Some(record.depth),
        // User code runs in no other context.
        context: (!module.is_empty()).then_some(Context::Task),
        args: &args,
        duration: signed(record.exit.saturating_sub(record.entry)),
        retval: returned.map(|returned| returned.value(record.returned)),
        may_nest: false,
    };
    out.event(Event::PairedCall(&PairedCall {
        call,
        parent_entry: caller.and_then(|caller| signed(caller.entry)),
        inside: signed(record.inside).unwrap_or(i64::MAX),
    }))?;
    match function {
        Some(_) => Ok(()),
        None => Err(Wrong::Function(record.function)),
    }
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
