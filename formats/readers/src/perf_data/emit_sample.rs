//! Emission of samples as events.

use perfquet_events::Error;
use perfquet_events::event::{
    Event, EventId, Fields, Loss, Payload, Place, ReadValue, Sample, Space, time_of,
};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::emit::Emission;
use crate::perf_data::entry::Step;
use crate::perf_data::output::Output;
use crate::perf_data::record::{self, RecordHeader};
use crate::perf_data::resync::is_sane;
use crate::perf_data::sample::{self, BRANCH_CALL_STACK, Lists, Members, space_of};
use crate::perf_data::values::known_cpu;

impl Emission<'_> {
    /// Emits a sample, or returns that it has to wait for its user stack.
    pub(super) fn emit_sample(
        &mut self,
        catalog: &mut Catalog,
        header: RecordHeader,
        record: &[u8],
        place: Place,
    ) -> Result<Step, Error> {
        let Some(index) = catalog.index_of(header, record) else {
            self.out.problem(place, "sample of an unknown event", || {
                "expected a sample of an event of this file, found an unknown ID".into()
            })?;
            return Ok(Step::Done);
        };
        if catalog.is_wire(index) {
            self.emit_wire(catalog, index, header, record, place)?;
            return Ok(Step::Done);
        }
        let event_id = catalog.event_of(index, &mut self.out)?;
        let mut body = record::body(record, 0, catalog.endian);
        let Some(event) = catalog.get(index) else {
            return Ok(Step::Done);
        };
        let attr = &event.attr;
        let lists = &mut self.lists;
        let members = match sample::parse(&mut body, header.misc, attr, lists) {
            Ok(members) => members,
            Err(short) => {
                self.out.problem(place, "short sample", || {
                    format!("sample: byte {}: {short}", short.offset)
                })?;
                let mut body = record::body(record, 0, catalog.endian);
                let head = sample::parse_head(&mut body, attr).ok();
                self.emit_unreadable(Some(event_id), head)?;
                return Ok(Step::Done);
            }
        };
        if !event.is_filled(body.is_empty()) || !is_sane(&members) {
            let (cpu, tid, left) = (members.cpu, members.tid, body.left());
            self.out.problem(place, "damaged sample", || {
                format!(
                    "expected a sample with a CPU and a thread, found CPU {} and thread {}, and {left} bytes after it",
                    cpu.unwrap_or(0),
                    tid.unwrap_or(0)
                )
            })?;
            return Ok(Step::Done);
        }
        let fixed_period = attr.fixed_period();
        if attr.branch_sample_type & BRANCH_CALL_STACK != 0 {
            let ip = members.ip.filter(|_| space_of(header.misc) == Space::User);
            lists.set_user_stack_of_calls(ip);
        }
        if let Some(cookie) = members.deferred {
            match self.deferred.get(&(members.tid.unwrap_or(-1), cookie)) {
                Some(addresses) => lists.set_user_stack(addresses),
                None if !self.may_hold => self.undecoded.deferred_missing += 1,
                None => return Ok(Step::Hold),
            }
        }
        if members.aux_bytes > 0 {
            self.undecoded.add_aux_sample(members.aux_bytes);
        }
        if !lists.read.is_empty() {
            name_read_values(&mut lists.read, catalog, &mut self.out)?;
        }
        let lists = &self.lists;
        let period = members.period.or(fixed_period);
        let event = catalog.get(index);
        if let Some(event) = event {
            event.add_unsampled(period);
        }
        let plan = event.map(|event| &event.plan);
        let payload = |(bytes, plan)| Fields::Raw(Payload { bytes, plan });
        let fields = members.raw.zip(plan).map_or(Fields::None, payload);
        let sample = Sample {
            event: event_id,
            space: space_of(header.misc),
            period,
            fields,
            ..row_of(&members, lists)
        };
        self.out.event(Event::Sample(&sample))?;
        Ok(Step::Done)
    }
}

/// Returns the members of a record that become columns as they are.
fn row_of<'a>(members: &Members<'a>, lists: &'a Lists) -> Sample<'a> {
    Sample {
        time: members.time.map(time_of),
        cpu: known_cpu(members.cpu),
        pid: members.pid,
        tid: members.tid,
        comm: None,
        kernel_stack: lists.kernel_stack(),
        user_stack: lists.user_stack(),
        ip: members.ip,
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
        ..Sample::of(EventId(0))
    }
}

impl Emission<'_> {
    /// Emits a sample of which only the first members can be read: it is lost, at this time, in this thread.
    fn emit_unreadable(
        &mut self,
        event: Option<EventId>,
        head: Option<Members<'_>>,
    ) -> Result<(), Error> {
        let Some(head) = head.filter(is_sane) else {
            return Ok(());
        };
        let reason = match head.tid {
            Some(tid) => format!("unreadable record of thread {tid}"),
            None => "unreadable record".to_owned(),
        };
        self.out.event(Event::Loss(Loss {
            time: head.time.map(time_of),
            cpu: known_cpu(head.cpu),
            event,
            count: Some(1),
            in_all: None,
            reason: &reason,
        }))
    }
}

/// Finds the events of the counters that were read.
fn name_read_values(
    values: &mut [ReadValue],
    catalog: &mut Catalog,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    for value in values {
        let Some(id) = value.id else {
            value.event = None;
            continue;
        };
        value.event = catalog.event_of_id(Some(id), out)?;
        if value.event.is_none() {
            out.problem(Place::Whole, "counter of an unknown event", || {
                "expected a counter of an event of this file, found an unknown ID".into()
            })?;
        }
    }
    Ok(())
}
