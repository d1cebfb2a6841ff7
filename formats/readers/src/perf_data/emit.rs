//! Emission of ordered records as events: threads, mappings and losses. Samples are in `emit_sample.rs`, records that
//! are event types themselves in `emit_recorder.rs`.

use std::cell::Cell;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::Cursor;
use perfquet_events::event::{Event, Exit, Fork, KernelSymbol, Loss, Place, Sink, time_of};
use perfquet_events::wire;

use crate::perf_data::catalog::Catalog;
use crate::perf_data::entry::Step;
use crate::perf_data::execs::Execs;
use crate::perf_data::losses::Losses;
use crate::perf_data::output::{Fault, Output, Undecoded, missing};
use crate::perf_data::record::{
    HEADER_BYTES, MISC_BIT_15, RecordHeader, Trailer, comm, kind, mapping, task,
};
use crate::perf_data::resync::is_sane_trailer;
use crate::perf_data::sample::{self, Lists};
use crate::perf_data::stat::Stat;
use crate::perf_data::values::{known_cpu, when};
use crate::perf_data::wire::Unfinished;

/// Maximum number of records that wait for a pending user stack.
const HELD_MAX: u64 = 1 << 20;

/// The output, and data that is not complete yet.
pub(super) struct Emission<'s> {
    pub(super) out: Output<'s>,
    /// Lists of the current sample.
    pub(super) lists: Lists,
    /// User stacks received after their samples, by TID and cookie.
    pub(super) deferred: HashMap<(i32, u64), Vec<u64>>,
    /// Whether samples may wait for their user stack.
    pub(super) may_hold: bool,
    pub(super) wire: Unfinished,
    pub(super) losses: Losses,
    pub(super) stat: Stat,
    pub(super) undecoded: Undecoded,
    pub(super) execs: Execs,
}

impl<'s> Emission<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink) -> Emission<'s> {
        Emission {
            out: Output::new(sink),
            lists: Lists::default(),
            deferred: HashMap::new(),
            may_hold: true,
            wire: Unfinished::default(),
            losses: Losses::default(),
            stat: Stat::default(),
            undecoded: Undecoded::default(),
            execs: Execs::default(),
        }
    }

    /// Begins a flush, for which this many records wait. `is_last`: no more records will come that one of them could
    /// wait for.
    pub(super) fn begin_flush(&mut self, waiting: u64, is_last: bool) {
        self.may_hold = !is_last && waiting <= HELD_MAX;
    }

    /// Emits a kernel record as events.
    #[inline]
    pub(super) fn emit(
        &mut self,
        catalog: &mut Catalog,
        header: RecordHeader,
        record: &[u8],
        place: Place,
    ) -> Result<Step, Error> {
        if header.kind == kind::SAMPLE {
            if self.emit_usual(catalog, header, record)? {
                return Ok(Step::Done);
            }
            return self.emit_sample(catalog, header, record, place);
        }
        if header.kind == 0 || header.kind > kind::KERNEL_LAST {
            self.undecoded.add_record(header.kind);
            return Ok(Step::Done);
        }
        let index = catalog.index_of(header, record).unwrap_or(0);
        let split = catalog.split(header, record, HEADER_BYTES as u64, catalog.get(index));
        let result = match split {
            Ok((_, trailer)) if !is_sane_trailer(&trailer) => {
                let (cpu, tid) = (trailer.cpu.unwrap_or(0), trailer.tid.unwrap_or(0));
                self.out.problem(place, "damaged record", || {
                    format!(
                        "record of type {}: expected a CPU and a thread, found CPU {cpu} and thread {tid}",
                        header.kind
                    )
                })?;
                return Ok(Step::Done);
            }
            Ok((body, trailer)) => self.emit_other(catalog, header, body, &trailer),
            Err(short) => Err(short.into()),
        };
        if let Some(short) = missing(result)? {
            self.out.problem(place, "short record", || {
                format!(
                    "record of type {}: byte {}: {short}",
                    header.kind, short.offset
                )
            })?;
        }
        Ok(Step::Done)
    }

    fn emit_other(
        &mut self,
        catalog: &mut Catalog,
        header: RecordHeader,
        mut body: Cursor<'_>,
        trailer: &Trailer,
    ) -> Result<(), Fault> {
        let time = when(trailer);
        match header.kind {
            kind::MMAP | kind::MMAP2 => {
                let mut mapping = mapping(header, &mut body, catalog.has_build_ids())?;
                mapping.time = time;
                self.execs.mapped(mapping.pid);
                self.out.event(Event::Mapping(mapping))?;
            }
            kind::COMM => {
                let mut comm = comm(header, &mut body)?;
                comm.time = time;
                if comm.exec && catalog.has_mappings() {
                    self.execs.exec(comm.pid.unwrap_or(comm.tid), comm.comm);
                }
                self.out.event(Event::Comm(comm))?;
            }
            kind::FORK | kind::EXIT => {
                let (mut fork, own_time) = task(&mut body)?;
                fork.time = time.or_else(|| (own_time != 0).then_some(time_of(own_time)));
                let is_first = fork.pid == fork.tid;
                if is_first && header.kind == kind::FORK {
                    self.execs.begins(fork.pid);
                }
                self.out.event(match header.kind {
                    kind::FORK => Event::Fork(fork),
                    // The process goes on.
                    _ if is_first && self.execs.is_of_events(fork.pid) => return Ok(()),
                    _ => Event::Exit(exit_of(fork)),
                })?;
            }
            kind::LOST => {
                let (id, count) = (body.u64()?, body.u64()?);
                let lost = (Some(id), count);
                self.losses
                    .lost_in_ring(lost, time, trailer, catalog, &mut self.out)?;
            }
            kind::LOST_SAMPLES => self.lost_samples(catalog, header, body, trailer)?,
            kind::KSYMBOL => {
                let (start, length) = (body.u64()?, body.u32()?);
                body.u16()?;
                let flags = body.u16()?;
                self.out.event(Event::KernelSymbol(KernelSymbol {
                    time,
                    start,
                    length: length.into(),
                    name: body.text_to_nul(),
                    gone: flags & 1 != 0,
                }))?;
            }
            kind::CALLCHAIN_DEFERRED => {
                let cookie = body.u64()?;
                let key = (trailer.tid.unwrap_or(-1), cookie);
                self.deferred.remove(&key);
            }
            _ => self.emit_recorder_event(catalog, header, body, trailer)?,
        }
        Ok(())
    }

    fn lost_samples(
        &mut self,
        catalog: &mut Catalog,
        header: RecordHeader,
        mut body: Cursor<'_>,
        trailer: &Trailer,
    ) -> Result<(), Fault> {
        let count = body.u64()?;
        let time = when(trailer);
        let event = catalog.event_of_id(trailer.id, &mut self.out)?;
        let reason = match header.misc & MISC_BIT_15 != 0 {
            true => "dropped by a BPF filter",
            false if is_counted_at_the_end(trailer) => {
                self.losses.lost_in_all(event, count, time, trailer);
                return Ok(());
            }
            false => "samples lost by the kernel",
        };
        self.out.event(Event::Loss(Loss {
            time,
            cpu: known_cpu(trailer.cpu),
            event,
            count: Some(count),
            in_all: None,
            reason,
        }))?;
        Ok(())
    }

    /// Stores a user stack until the samples that wait for it are emitted.
    pub(super) fn keep_deferred(
        &mut self,
        catalog: &Catalog,
        header: RecordHeader,
        record: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        let body_offset = offset + HEADER_BYTES as u64;
        let split = catalog.split(header, record, body_offset, catalog.get(0));
        let read = split.and_then(|(mut body, trailer)| {
            let (cookie, addresses) = sample::read_deferred(&mut body)?;
            Ok(((trailer.tid.unwrap_or(-1), cookie), addresses))
        });
        match read {
            Ok((key, addresses)) => {
                self.deferred.insert(key, addresses);
                Ok(())
            }
            Err(short) => self.out.short("deferred user stack", short),
        }
    }

    /// Ends the input: emits the remaining records, declares the events without samples, reports counts.
    pub(super) fn finish(&mut self, catalog: &mut Catalog, late: u64) -> Result<(), Error> {
        let out = &mut self.out;
        self.stat.flush(None, catalog, out)?;
        for index in 0..catalog.len() {
            // The recorder's records are of no event of the kernel.
            if catalog.name_of(index) != wire::RECORDER {
                catalog.event_of(index, out)?;
            }
        }
        report_unsampled(catalog, out)?;
        std::mem::take(&mut self.losses).finish(catalog.is_switched, out)?;
        std::mem::take(&mut self.undecoded).finish(out)?;
        std::mem::take(&mut self.execs).finish(out)?;
        if late > 0 {
            let message = "records came later than perf's rounds allow, after newer ones: \
                           rows are out of order there, and calls may lack their entry or exit";
            out.total(late, message)?;
        }
        out.finish()
    }
}

/// Reports hits of tracepoints of which perf recorded a rate only (`perf record -F`): views of switches and calls would take the rest for
/// all.
fn report_unsampled(catalog: &Catalog, out: &mut Output<'_>) -> Result<(), Error> {
    for event in catalog.iter() {
        let count = event.unsampled.as_ref().map_or(0, Cell::get);
        if count > 0 {
            out.event(Event::Loss(Loss {
                time: None,
                cpu: None,
                event: event.id,
                count: Some(count),
                in_all: None,
                reason: "sampled at a rate: not every hit was recorded",
            }))?;
        }
    }
    Ok(())
}

/// Whether a LOST_SAMPLES record is from the recorder, not from the kernel: perf writes it without a time,
/// perfquet-record without a process.
fn is_counted_at_the_end(trailer: &Trailer) -> bool {
    trailer.pid == Some(-1) || trailer.time.is_none_or(|time| time == 0)
}

fn exit_of(task: Fork) -> Exit {
    Exit {
        time: task.time,
        pid: Some(task.pid),
        tid: task.tid,
        code: None,
    }
}
