//! Rows of one event type: the mapping from hits to columns is computed once per type.

use std::sync::Arc;

use perfquet_events::Error;
use perfquet_events::event::{
    EventKind, EventType, FieldType, Fields, Hit, Loss, Purpose, Sample, Space, Value,
};
use perfquet_events::event_format::print::PrintFormat;

use super::calls::Role;
use super::columns::printed_words;
use super::event_tables::Target;
use super::fields::{Lists, push_field};
use super::frames::Frames;
use super::heads::Head;
use super::hits::Decoder;
use super::kernel_texts::KernelTexts;
use super::life::Life;
use super::mappings::{Mappings, space_of_ip};
use super::output::{Output, TypeRow};
use super::sample_rows::SampleRow;
use crate::store::{Column, Names, Rows, TableId};
use crate::tables;

/// State of an event type.
pub(crate) struct Plan {
    event: EventType,
    /// Strings of fields that are addresses of kernel strings: their columns are text, but the fields are numbers.
    texts: Option<KernelTexts>,
    /// The fields that the kernel prints as functions, such as `call_site`: addresses of code.
    code: Vec<usize>,
    /// Where its rows go; made at the first hit.
    target: Option<Target>,
    way: Way,
    rows: u64,
    lost: Option<u64>,
    /// Role of the event in calls.
    pub(crate) role: Option<Role>,
    /// The stack of the last sample that had only an IP; most often the next one has the same.
    pub(crate) last_ip: Option<LastIp>,
    lists: Lists,
}

/// An IP, the version of the map in which it was looked up, and its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastIp {
    pub(crate) ip: u64,
    pub(crate) space: Space,
    pub(crate) generation: u64,
    /// Which tree the stack is in.
    pub(crate) epoch: u32,
    pub(crate) stack: u32,
}

impl LastIp {
    /// Whether this is the stack of an address in the kernel.
    #[inline]
    pub(crate) fn is_kernels(
        &self,
        ip: u64,
        space: Space,
        epoch: u32,
        mappings: &Mappings,
    ) -> bool {
        ip == self.ip
            && space == Space::Kernel
            && self.space == Space::Kernel
            && epoch == self.epoch
            && mappings.of(None, Space::Kernel).generation == self.generation
    }
}

/// The way of an event's usual hits.
#[derive(Debug, Clone)]
enum Way {
    /// Not known before the first.
    Unknown,
    /// They are handled as samples.
    Long,
    /// To `samples`, under the name with this ID.
    Samples(u32),
    /// To a separate table, through this decoder.
    Table(TableId, Arc<Decoder>),
}

impl Plan {
    pub(crate) fn new(event: &EventType, role: Option<Role>, texts: &KernelTexts) -> Plan {
        let kernel_texts = texts.fields(event);
        let mut event = event.clone();
        for &place in &kernel_texts {
            if let Some(field) = event.fields.get_mut(place) {
                field.kind = FieldType::Text;
            }
        }
        Plan {
            role,
            code: printed_words(&event, PrintFormat::code),
            event,
            texts: (!kernel_texts.is_empty()).then(|| texts.clone()),
            target: None,
            way: Way::Unknown,
            rows: 0,
            lost: None,
            last_ip: None,
            lists: Lists::default(),
        }
    }

    /// Name of the event, without its system.
    pub(crate) fn name(&self) -> &str {
        &self.event.name
    }

    /// Returns the purpose of the hits.
    #[inline]
    pub(crate) fn purpose(&self) -> &Purpose {
        &self.event.purpose
    }

    /// Whether the user requested the event; the recorder's own events are always kept.
    #[inline]
    pub(crate) fn is_asked_for(&self) -> bool {
        self.event.kind != EventKind::Recorder
    }

    /// Counts a hit without a row.
    pub(crate) fn count(&mut self) {
        self.rows += 1;
    }

    /// The event, as `samples.event` and `losses.event` have it.
    pub(crate) fn event_name(&self) -> String {
        full_name(&self.event)
    }

    /// Whether each thread has its own counters.
    pub(crate) fn is_inherited(&self) -> bool {
        self.event.is_inherited
    }

    pub(crate) fn lost(&mut self, loss: &Loss<'_>) {
        let count = loss.in_all.or(loss.count).unwrap_or(0);
        self.lost = Some(self.lost.unwrap_or(0).saturating_add(count));
    }

    /// Whether rows go to `samples`.
    #[inline]
    pub(crate) fn is_sampled(&self) -> bool {
        self.event.kind.is_sampled()
    }

    /// Pushes a row of `samples`.
    pub(crate) fn push_sample(
        &mut self,
        output: &mut Output,
        common: &tables::common::Row<'_>,
        sample: &Sample<'_>,
        period: Option<i64>,
    ) -> Result<(), Error> {
        self.rows += 1;
        output.counts.events += 1;
        let table = output.fixed.samples;
        output.hand_over_hits(table)?;
        push_sample(
            output.writer.rows(table),
            &self.event.name,
            common,
            sample,
            period,
        );
        output.writer.end_row(table)
    }

    /// Pushes a row of the event's own table. Returns false if it has none.
    #[inline]
    pub(crate) fn push_hit(
        &mut self,
        output: &mut Output,
        common: &tables::common::Row<'_>,
        sample: &Sample<'_>,
        period: Option<i64>,
    ) -> Result<bool, Error> {
        if self.lacks_period(period.map(|period| period as u64)) {
            self.add_period();
        }
        let target = match &self.target {
            Some(target) => target,
            None => match output.target(&self.event, self.event.extras)? {
                Some(target) => self.target.insert(target),
                None => return Ok(false),
            },
        };
        self.rows += 1;
        output.counts.events += 1;
        output.counts.of_recorder += u64::from(self.event.kind == EventKind::Recorder);
        output.hand_over_hits(target.id)?;
        let rows = output.writer.rows(target.id);
        common.push(rows);
        let columns = rows.columns_mut();
        let (_, columns) = columns.split_at_mut(tables::common::NAMES.len().min(columns.len()));
        let (fields, extras) = columns.split_at_mut(self.event.fields.len().min(columns.len()));
        let texts = self.texts.as_ref();
        let places = self.event.fields.iter().zip(fields);
        // A loop over `Fields::value` costs 90 more instructions per event of 7 fields.
        match sample.fields {
            Fields::Raw(payload) => {
                for (op, (field, column)) in payload.plan.ops().iter().zip(places) {
                    push_field(
                        op.decode(payload.bytes),
                        field,
                        texts,
                        &mut self.lists,
                        column,
                    );
                }
            }
            Fields::Values(values) => {
                let values = values.iter().chain(std::iter::repeat(&Value::Null));
                for (value, (field, column)) in values.zip(places) {
                    push_field(*value, field, texts, &mut self.lists, column);
                }
            }
            Fields::None => places.for_each(|(_, column)| column.push_null()),
        }
        push_extras(target, extras, sample, period);
        output.writer.end_row(target.id)?;
        Ok(true)
    }

    /// Whether a hit can be passed on without being decoded. The first one decides: all others have the same members.
    #[inline]
    pub(crate) fn is_usual(&mut self, output: &mut Output, hit: &Hit<'_>) -> Result<bool, Error> {
        if self.lacks_period(hit.period) {
            self.add_period();
        }
        if matches!(self.way, Way::Unknown) {
            self.way = self.way_of(output, hit)?;
        }
        Ok(!matches!(self.way, Way::Long))
    }

    /// Whether a hit counts for another number of events than one, and the table has no column for it.
    #[inline]
    fn lacks_period(&self, period: Option<u64>) -> bool {
        !matches!(period, None | Some(1))
            && !self.event.extras.period
            && !self.event.kind.is_sampled()
    }

    /// Adds the column. The settings of an event do not always tell: `perf inject -s` makes the time for which a task slept
    /// the period of its switch.
    #[cold]
    fn add_period(&mut self) {
        self.event.extras.period = true;
        self.target = None;
        self.way = Way::Unknown;
    }

    #[cold]
    fn way_of(&mut self, output: &mut Output, hit: &Hit<'_>) -> Result<Way, Error> {
        let is_row = self.event.purpose.has_rows();
        if !is_row || self.event.kind == EventKind::Recorder {
            return Ok(Way::Long);
        }
        if self.is_sampled() {
            let name = output.event_names.intern(self.event.name.as_bytes());
            return Ok(Way::Samples(name.0));
        }
        let ops = hit.payload.map_or(&[][..], |payload| payload.plan.ops());
        if ops.len() != self.event.fields.len() {
            return Ok(Way::Long);
        }
        if self.target.is_none() {
            self.target = output.target(&self.event, self.event.extras)?;
        }
        let Some(target) = &self.target else {
            return Ok(Way::Long);
        };
        let fields = &self.event.fields;
        let decoder = Decoder::new(ops, fields, self.texts.as_ref(), target.extras);
        Ok(Way::Table(
            target.id,
            output.hits.decoder(target.id, decoder),
        ))
    }

    /// Adds a usual hit to `samples` or the event's own table.
    #[inline]
    pub(crate) fn push_usual(
        &mut self,
        output: &mut Output,
        comms: &Names,
        head: Head,
        hit: &Hit<'_>,
    ) -> Result<(), Error> {
        let period = hit.period.map(|period| period as i64);
        self.rows += 1;
        output.counts.events += 1;
        match &self.way {
            Way::Table(table, decoder) => {
                let payload = hit.payload.map_or(&[][..], |payload| payload.bytes);
                output.push_hit((*table, decoder), comms, head, payload, period)
            }
            Way::Samples(event) => {
                let row = SampleRow {
                    head,
                    event: *event,
                    period,
                    ip: hit.ip,
                };
                output.push_sample_row(row, comms)
            }
            Way::Unknown | Way::Long => Ok(()),
        }
    }

    /// Adds frames for the fields that are addresses of code, so that they get names. Returns whether there are such fields.
    #[inline]
    pub(crate) fn see_code(&self, fields: Fields<'_>, life: &Life, frames: &mut Frames) -> bool {
        for &field in &self.code {
            if let Value::UInt(address) = fields.value(field)
                && space_of_ip(address, Space::Unknown) == Space::Kernel
            {
                let map = life.mappings.of(None, Space::Kernel);
                frames.at(address, false, Space::Kernel, map, &life.modules);
            }
        }
        !self.code.is_empty()
    }

    /// Ends the input: counts the rows, and creates the table of an event without hits.
    pub(crate) fn finish(mut self, output: &mut Output) -> Result<(), Error> {
        let target = match self.target.take() {
            Some(target) => Some(target),
            None if !self.event.purpose.has_rows() => None,
            None => output.target(&self.event, self.event.extras)?,
        };
        output.add_type(TypeRow {
            event: self.event,
            target,
            rows: self.rows,
            lost: self.lost,
        });
        Ok(())
    }
}

/// "sched:sched_switch"; counters go by their name alone.
pub(super) fn full_name(event: &EventType) -> String {
    if event.kind.is_sampled() || event.system.is_empty() {
        event.name.clone()
    } else {
        format!("{}:{}", event.system, event.name)
    }
}

/// In the order of `columns::event_schema`.
#[inline]
fn push_extras(target: &Target, columns: &mut [Column], sample: &Sample<'_>, period: Option<i64>) {
    if columns.is_empty() {
        return;
    }
    let has = target.extras;
    let mut columns = columns.iter_mut();
    if has.period
        && let Some(column) = columns.next()
    {
        match period {
            Some(period) => column.push_i64(period),
            None => column.push_null(),
        }
    }
    let others = [
        (has.addr, sample.addr),
        (has.weight, sample.weight),
        (has.data_src, sample.data_src),
        (has.phys_addr, sample.phys_addr),
        (has.cgroup, sample.cgroup),
    ];
    for (value, column) in others.iter().filter(|(has, _)| *has).zip(columns) {
        match value.1 {
            Some(value) => column.push_u64(value),
            None => column.push_null(),
        }
    }
}

fn push_sample(
    rows: &mut Rows,
    event: &str,
    common: &tables::common::Row<'_>,
    sample: &Sample<'_>,
    period: Option<i64>,
) {
    let size = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
    let mut from = Vec::new();
    let mut to = Vec::new();
    let mut flags = Vec::new();
    for branch in sample.branches {
        from.push(branch.from);
        to.push(branch.to);
        flags.push(branch.flags);
    }
    let has_branches = !sample.branches.is_empty();
    tables::samples::Row {
        time: common.time,
        cpu: common.cpu,
        pid: common.pid,
        tid: common.tid,
        comm: common.comm,
        kernel_stack: common.kernel_stack,
        user_stack: common.user_stack,
        event: event.as_bytes(),
        period,
        ip: sample.ip,
        addr: sample.addr,
        weight: sample.weight,
        data_src: sample.data_src,
        transaction: sample.transaction,
        phys_addr: sample.phys_addr,
        cgroup: sample.cgroup,
        data_page_size: size(sample.data_page_size),
        code_page_size: size(sample.code_page_size),
        stream_id: sample.stream_id,
        branch_from: has_branches.then_some(&from),
        branch_to: has_branches.then_some(&to),
        branch_flags: has_branches.then_some(&flags),
        branch_hw_index: sample.branch_hw_index,
        branch_counters: (!sample.branch_counters.is_empty()).then_some(sample.branch_counters),
        user_regs: sample.user_registers.map(|registers| registers.values),
        user_regs_mask: sample.user_registers.map(|registers| registers.mask),
        interrupt_regs: sample.interrupt_registers.map(|registers| registers.values),
        interrupt_regs_mask: sample.interrupt_registers.map(|registers| registers.mask),
    }
    .push(rows);
}

#[cfg(test)]
mod tests {
    use perfquet_events::event::*;

    use super::super::tests::{Trace, at, send, tracepoint};

    /// `perf inject -s` makes the time for which a task slept the period of its switch.
    #[test]
    fn a_period_that_the_settings_do_not_tell_has_a_column() {
        let mut trace = Trace::new();
        trace.input("a", |sink| {
            send(sink, Event::Type(&tracepoint()));
            for (time, period) in [
                (10, None),
                (20, Some(1)),
                (30, Some(3_980_042)),
                (40, Some(1)),
            ] {
                let sample = Sample {
                    period,
                    ..at(0, time, 3)
                };
                send(sink, Event::Sample(&sample));
            }
        });
        let mut rows = trace
            .finish()
            .of("events/sched/sched_wakeup", &["time", "sample_period"]);
        rows.sort();
        assert_eq!(rows, ["10 -", "20 -", "30 3980042", "40 1"]);
    }
}
