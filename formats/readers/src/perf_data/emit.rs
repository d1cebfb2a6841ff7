//! Records of the kernel → events.

use perfquet_events::Error;
use perfquet_events::bytes::Short;
use perfquet_events::event::{
    Event, EventId, Exit, Fields, Fork, KernelSymbol, Loss, Payload, Place, ReadValue, Sample,
    Value, time_of,
};

use crate::perf_data::order::{Location, Step};
use crate::perf_data::read::Session;
use crate::perf_data::record::{
    MISC_BIT_13, MISC_BIT_14, MISC_BIT_15, RecordHeader, Trailer, comm, kind, mapping, task,
};
use crate::perf_data::recorder::{NAMESPACES, RecorderEvent};
use crate::perf_data::resync::{is_sane, is_sane_trailer};
use crate::perf_data::sample::{self, space_of};

/// Records that may wait for one user stack that is still to come.
const HELD_MAX: u64 = 1 << 20;

pub(super) fn signed(time: u64) -> Option<i64> {
    i64::try_from(time).ok()
}

/// Time of what is no sample: what perf made up at the start has 0.
fn when(trailer: &Trailer) -> Option<i64> {
    let known = trailer.time.filter(|&time| !matches!(time, 0 | u64::MAX));
    known.map(time_of)
}

/// An id, where -1 stands for none.
pub(super) fn known_cpu(cpu: Option<u32>) -> Option<u32> {
    cpu.filter(|&cpu| cpu != u32::MAX)
}

impl Session<'_, '_> {
    /// Hands over a record that leaves the queue.
    #[inline]
    pub(super) fn emit_from(&mut self, record: &[u8], location: Location) -> Result<Step, Error> {
        self.touch(record.len() as u64);
        match RecordHeader::parse(record, self.endian) {
            Some(header) => self.emit(header, record, Place::Offset(location.offset())),
            None => Ok(Step::Done),
        }
    }

    /// Hands over a kernel's record as events.
    #[inline]
    pub(super) fn emit(
        &mut self,
        header: RecordHeader,
        record: &[u8],
        place: Place,
    ) -> Result<Step, Error> {
        if header.kind == kind::SAMPLE {
            return self.emit_sample(header, record, place);
        }
        if header.kind == 0 || header.kind > kind::KERNEL_LAST {
            self.count_unknown(header.kind);
            return Ok(Step::Done);
        }
        let attr = self.attr_of(header, record).unwrap_or(0);
        let record = self.written(record);
        let split = Trailer::split(
            record.get(8..).unwrap_or_default(),
            8,
            self.endian,
            self.attrs.get(attr),
        );
        let result = match split {
            Ok((_, trailer)) if !is_sane_trailer(&trailer) => {
                let (cpu, tid) = (trailer.cpu.unwrap_or(0), trailer.tid.unwrap_or(0));
                self.problem(place, "damaged record", || {
                    format!(
                        "record of type {}: expected a CPU and a thread, found CPU {cpu} and thread {tid}",
                        header.kind
                    )
                })?;
                return Ok(Step::Done);
            }
            Ok((body, trailer)) => self.emit_other(header, body, &trailer)?,
            Err(short) => Err(short),
        };
        if let Err(short) = result {
            self.problem(place, "short record", || {
                format!(
                    "record of type {}: byte {}: {short}",
                    header.kind, short.offset
                )
            })?;
        }
        Ok(Step::Done)
    }

    fn emit_sample(
        &mut self,
        header: RecordHeader,
        record: &[u8],
        place: Place,
    ) -> Result<Step, Error> {
        let Some(index) = self.attr_of(header, record) else {
            self.problem(place, "sample of an unknown event", || {
                "expected a sample of an event of this file, found an unknown ID".into()
            })?;
            return Ok(Step::Done);
        };
        if self.is_own(index) {
            self.emit_own(index, header, record, place)?;
            return Ok(Step::Done);
        }
        let event = self.event_of(index)?;
        let mut body = self.body(record, 0);
        let Some(attr) = self.attrs.get(index) else {
            return Ok(Step::Done);
        };
        let members = match sample::parse(&mut body, header.misc, attr, &mut self.lists) {
            Ok(members) => members,
            Err(short) => {
                self.problem(place, "short sample", || {
                    format!("sample: byte {}: {short}", short.offset)
                })?;
                return Ok(Step::Done);
            }
        };
        if !attr.is_filled(body.is_empty()) || !is_sane(&members) {
            let (cpu, tid, left) = (members.cpu, members.tid, body.left());
            self.problem(place, "damaged sample", || {
                format!(
                    "expected a sample with a CPU and a thread, found CPU {} and thread {}, and {left} bytes after it",
                    cpu.unwrap_or(0),
                    tid.unwrap_or(0)
                )
            })?;
            return Ok(Step::Done);
        }
        let fixed_period = (!attr.freq() && attr.sample_period > 0).then_some(attr.sample_period);
        if attr.branch_sample_type & sample::BRANCH_CALL_STACK != 0 {
            let ip = members
                .ip
                .filter(|_| space_of(header.misc) == perfquet_events::event::Space::User);
            self.lists.set_user_stack_of_calls(ip);
        }
        if let Some(cookie) = members.deferred {
            match self.deferred.get(&(members.tid.unwrap_or(-1), cookie)) {
                Some(addresses) => self.lists.set_user_stack(addresses),
                None if self.is_ending || self.waiting > HELD_MAX => {
                    self.undecoded.deferred_missing += 1;
                }
                None => return Ok(Step::Hold),
            }
        }
        if members.aux_bytes > 0 {
            self.undecoded.samples_with_aux += 1;
            self.undecoded.aux_bytes += members.aux_bytes;
        }
        if !self.lists.read.is_empty() {
            self.name_read_values()?;
        }
        let lists = &self.lists;
        let plan = self.attrs.get(index).map(|attr| &attr.plan);
        let payload = |(bytes, plan)| Fields::Raw(Payload { bytes, plan });
        let sample = Sample {
            event,
            time: members.time.map(time_of),
            cpu: known_cpu(members.cpu),
            pid: members.pid,
            tid: members.tid,
            comm: None,
            kernel_stack: lists.kernel_stack(),
            user_stack: lists.user_stack(),
            space: space_of(header.misc),
            ip: members.ip,
            period: members.period.or(fixed_period),
            addr: members.addr,
            weight: members.weight,
            data_src: members.data_src,
            transaction: members.transaction,
            phys_addr: members.phys_addr,
            cgroup: members.cgroup,
            data_page_size: members.data_page_size,
            code_page_size: members.code_page_size,
            stream_id: members.stream_id,
            branches: &lists.branches,
            branch_hw_index: members.branch_hw_index,
            branch_counters: &lists.branch_counters,
            user_registers: lists.user_registers(),
            interrupt_registers: lists.interrupt_registers(),
            user_memory: members.user_memory,
            read: &lists.read,
            fields: members.raw.zip(plan).map_or(Fields::None, payload),
        };
        self.sink.event(Event::Sample(&sample))?;
        Ok(Step::Done)
    }

    /// Finds the events of the counters that were read.
    fn name_read_values(&mut self) -> Result<(), Error> {
        for place in 0..self.lists.read.len() {
            let id = self.lists.read.get(place).and_then(|value| value.id);
            let event = match id.and_then(|id| self.attr_of_id(Some(id))) {
                Some(index) => Some(self.event_of(index)?),
                None => {
                    if id.is_some() {
                        self.problem(Place::Whole, "counter of an unknown event", || {
                            "expected a counter of an event of this file, found an unknown ID"
                                .into()
                        })?;
                    }
                    None
                }
            };
            if let Some(value) = self.lists.read.get_mut(place) {
                value.event = event;
            }
        }
        Ok(())
    }

    /// The outer error is the sink's, the inner one the record's.
    fn emit_other(
        &mut self,
        header: RecordHeader,
        mut body: perfquet_events::bytes::Cursor<'_>,
        trailer: &Trailer,
    ) -> Result<Result<(), Short>, Error> {
        let time = when(trailer);
        macro_rules! take {
            ($expression:expr) => {
                match $expression {
                    Ok(value) => value,
                    Err(short) => return Ok(Err(short)),
                }
            };
        }
        match header.kind {
            kind::MMAP | kind::MMAP2 => {
                let mut mapping = take!(mapping(header, &mut body));
                mapping.time = time;
                self.sink.event(Event::Mapping(mapping))?;
            }
            kind::COMM => {
                let mut comm = take!(comm(header, &mut body));
                comm.time = time;
                self.sink.event(Event::Comm(comm))?;
            }
            kind::FORK | kind::EXIT => {
                let (mut fork, own_time) = take!(task(&mut body));
                fork.time = time.or_else(|| (own_time != 0).then_some(time_of(own_time)));
                self.sink.event(match header.kind {
                    kind::FORK => Event::Fork(fork),
                    _ => Event::Exit(exit_of(fork)),
                })?;
            }
            kind::LOST => {
                let (id, count) = (take!(body.u64()), take!(body.u64()));
                self.lost_in_ring(Some(id), count, time, trailer)?;
            }
            kind::LOST_SAMPLES => {
                let count = take!(body.u64());
                let reason = match header.misc & MISC_BIT_15 != 0 {
                    true => "dropped by a BPF filter",
                    false if is_counted_at_the_end(trailer) => {
                        self.lost_in_all(count, time, trailer)?;
                        return Ok(Ok(()));
                    }
                    false => "samples lost by the kernel",
                };
                let event = self.event_of_id(trailer.id)?;
                self.sink.event(Event::Loss(Loss {
                    time,
                    cpu: known_cpu(trailer.cpu),
                    event,
                    count: Some(count),
                    in_all: None,
                    reason,
                }))?;
            }
            kind::KSYMBOL => {
                let (start, length) = (take!(body.u64()), take!(body.u32()));
                take!(body.u16());
                let flags = take!(body.u16());
                self.sink.event(Event::KernelSymbol(KernelSymbol {
                    time,
                    start,
                    length: length.into(),
                    name: body.text_to_nul(),
                    gone: flags & 1 != 0,
                }))?;
            }
            kind::CALLCHAIN_DEFERRED => {
                let cookie = take!(body.u64());
                let key = (trailer.tid.unwrap_or(-1), cookie);
                self.deferred.remove(&key);
            }
            _ => return self.emit_recorder_event(header, body, trailer),
        }
        Ok(Ok(()))
    }

    /// Records that are event types of their own.
    fn emit_recorder_event(
        &mut self,
        header: RecordHeader,
        mut body: perfquet_events::bytes::Cursor<'_>,
        trailer: &Trailer,
    ) -> Result<Result<(), Short>, Error> {
        macro_rules! take {
            ($expression:expr) => {
                match $expression {
                    Ok(value) => value,
                    Err(short) => return Ok(Err(short)),
                }
            };
        }
        let mut trailer = *trailer;
        let (event, values): (_, &[Value<'_>]) = match header.kind {
            kind::READ => {
                trailer.pid = Some(take!(body.i32()));
                trailer.tid = Some(take!(body.i32()));
                return self.emit_read(body, &trailer);
            }
            kind::THROTTLE | kind::UNTHROTTLE => {
                let own_time = take!(body.u64());
                let (id, stream_id) = (take!(body.u64()), take!(body.u64()));
                trailer.time = trailer.time.or(Some(own_time));
                let name = self.name_of_id(Some(id))?;
                let event = match header.kind {
                    kind::THROTTLE => RecorderEvent::Throttle,
                    _ => RecorderEvent::Unthrottle,
                };
                if header.kind == kind::THROTTLE {
                    let event = self.event_of_id(Some(id))?;
                    self.sink.event(Event::Loss(Loss {
                        time: when(&trailer),
                        cpu: known_cpu(trailer.cpu),
                        event,
                        count: None,
                        in_all: None,
                        reason: "throttled",
                    }))?;
                }
                let values = [Value::Bytes(name.as_bytes()), Value::UInt(stream_id)];
                self.emit_values(event, &trailer, &values)?;
                return Ok(Ok(()));
            }
            kind::SWITCH => (RecorderEvent::Switch, &switch_values(header.misc, None)),
            kind::SWITCH_CPU_WIDE => {
                let other = (take!(body.i32()), take!(body.i32()));
                let values = switch_values(header.misc, Some(other));
                (RecorderEvent::Switch, &{ values })
            }
            kind::NAMESPACES => {
                trailer.pid = Some(take!(body.i32()));
                trailer.tid = Some(take!(body.i32()));
                let count = take!(body.u64());
                let mut values = [Value::Null; 2 * NAMESPACES.len()];
                for slot in values.iter_mut().take(count.saturating_mul(2) as usize) {
                    *slot = Value::UInt(take!(body.u64()));
                }
                (RecorderEvent::Namespaces, &{ values })
            }
            kind::CGROUP => {
                let id = take!(body.u64());
                let path = body.text_to_nul();
                (
                    RecorderEvent::Cgroup,
                    &[Value::UInt(id), Value::Bytes(path)],
                )
            }
            kind::BPF_EVENT => {
                let (action, flags) = (take!(body.u16()), take!(body.u16()));
                let (id, tag) = (take!(body.u32()), take!(body.bytes(8)));
                let action = match action {
                    1 => Value::Bytes(b"load"),
                    2 => Value::Bytes(b"unload"),
                    _ => Value::Null,
                };
                let (id, flags) = (Value::UInt(id.into()), Value::UInt(flags.into()));
                (
                    RecorderEvent::BpfEvent,
                    &[action, id, flags, Value::Bytes(tag)],
                )
            }
            kind::TEXT_POKE => {
                let addr = take!(body.u64());
                let (old, new) = (take!(body.u16()), take!(body.u16()));
                let old = Value::Bytes(take!(body.bytes(old.into())));
                let new = Value::Bytes(take!(body.bytes(new.into())));
                (RecorderEvent::TextPoke, &[Value::UInt(addr), old, new])
            }
            kind::AUX => {
                let words = [take!(body.u64()), take!(body.u64()), take!(body.u64())];
                (RecorderEvent::Aux, &words.map(Value::UInt))
            }
            kind::ITRACE_START => {
                trailer.pid = Some(take!(body.i32()));
                trailer.tid = Some(take!(body.i32()));
                (RecorderEvent::ItraceStart, &[])
            }
            kind::AUX_OUTPUT_HW_ID => {
                let id = take!(body.u64());
                (RecorderEvent::AuxOutputHwId, &[Value::UInt(id)])
            }
            unknown => {
                self.count_unknown(unknown);
                return Ok(Ok(()));
            }
        };
        self.emit_values(event, &trailer, values)?;
        Ok(Ok(()))
    }

    /// PERF_RECORD_READ: final counts of a thread (`perf record -s`).
    fn emit_read(
        &mut self,
        mut body: perfquet_events::bytes::Cursor<'_>,
        trailer: &Trailer,
    ) -> Result<Result<(), Short>, Error> {
        let index = self.attr_of_id(trailer.id).unwrap_or(0);
        let format = self.attrs.get(index).map_or(0, |attr| attr.read_format);
        let mut values: Vec<ReadValue> = Vec::new();
        let times = match sample::read_counters(&mut body, format, trailer.id, &mut values) {
            Ok(times) => times,
            Err(short) => return Ok(Err(short)),
        };
        let optional = |word: Option<u64>| word.and_then(signed).map_or(Value::Null, Value::Int);
        for value in values {
            let name = self.name_of_id(value.id)?;
            let row = [
                Value::Bytes(name.as_bytes()),
                Value::UInt(value.value),
                optional(times.enabled),
                optional(times.running),
                optional(value.lost),
            ];
            self.emit_values(RecorderEvent::Read, trailer, &row)?;
        }
        Ok(Ok(()))
    }

    /// Hands over one of perf's own events.
    pub(super) fn emit_values(
        &mut self,
        event: RecorderEvent,
        trailer: &Trailer,
        values: &[Value<'_>],
    ) -> Result<(), Error> {
        let id = self.recorder_event(event)?;
        let sample = Sample {
            time: when(trailer),
            cpu: known_cpu(trailer.cpu),
            pid: trailer.pid,
            tid: trailer.tid,
            fields: Fields::Values(values),
            ..Sample::of(id)
        };
        self.sink.event(Event::Sample(&sample))
    }

    pub(super) fn event_of_id(&mut self, id: Option<u64>) -> Result<Option<EventId>, Error> {
        match self.attr_of_id(id) {
            Some(index) => self.event_of(index).map(Some),
            None => Ok(None),
        }
    }

    /// Keeps a user stack until the samples that wait for it are handed over.
    pub(super) fn keep_deferred(&mut self, record: &[u8], offset: u64) -> Result<(), Error> {
        let attr = self.attrs.first();
        let body = record.get(8..).unwrap_or_default();
        let read =
            Trailer::split(body, offset + 8, self.endian, attr).and_then(|(mut body, trailer)| {
                let (cookie, addresses) = sample::read_deferred(&mut body)?;
                Ok((trailer.tid.unwrap_or(-1), cookie, addresses))
            });
        match read {
            Ok((tid, cookie, addresses)) => {
                self.deferred.insert((tid, cookie), addresses);
                Ok(())
            }
            Err(short) => self.short("deferred user stack", short),
        }
    }
}

/// LOST_SAMPLES of the recorder, not of the kernel: perf gives it no time, perfquet-record no process.
fn is_counted_at_the_end(trailer: &Trailer) -> bool {
    trailer.pid == Some(-1) || trailer.time.is_none_or(|time| time == 0)
}

fn exit_of(task: Fork) -> Exit {
    Exit {
        time: task.time,
        pid: task.pid,
        tid: task.tid,
        code: None,
    }
}

fn switch_values(misc: u16, other: Option<(i32, i32)>) -> [Value<'static>; 4] {
    let [pid, tid] = match other {
        Some((pid, tid)) => [Value::Int(pid.into()), Value::Int(tid.into())],
        None => [Value::Null; 2],
    };
    [
        Value::Bool(misc & MISC_BIT_13 != 0),
        Value::Bool(misc & MISC_BIT_14 != 0),
        pid,
        tid,
    ]
}
