//! Counts of `perf stat record`: STAT, one count each, and STAT_ROUND, which ends a round of them.
//!
//! ```text
//! STAT        u64 id, u32 cpu, u32 thread, u64 value, u64 enabled, u64 running
//! STAT_ROUND  u64 type (1: the last), u64 time
//! ```
//! The time of a round follows its counts, so these are stored until it ends.

use perfquet_events::Error;
use perfquet_events::bytes::Cursor;
use perfquet_events::event::Value;

use crate::perf_data::catalog::Catalog;
use crate::perf_data::output::{Fault, Output};
use crate::perf_data::record::Trailer;
use crate::perf_data::recorder::RecorderEvent;
use crate::perf_data::values::{emit_values, signed};

/// Maximum number of stored counts; beyond it they are emitted without the time of their round.
const VALUES_MAX: usize = 1 << 16;

/// Counts of the current round.
#[derive(Debug, Default)]
pub(super) struct Stat {
    values: Vec<StatValue>,
}

/// One count.
#[derive(Debug, Clone, Copy)]
struct StatValue {
    id: u64,
    cpu: u32,
    thread: u32,
    value: u64,
    enabled: u64,
    running: u64,
}

impl Stat {
    /// Stores a STAT.
    pub(super) fn add(
        &mut self,
        mut body: Cursor<'_>,
        catalog: &mut Catalog,
        out: &mut Output<'_>,
    ) -> Result<(), Fault> {
        self.values.push(StatValue {
            id: body.u64()?,
            cpu: body.u32()?,
            thread: body.u32()?,
            value: body.u64()?,
            enabled: body.u64()?,
            running: body.u64()?,
        });
        if self.values.len() >= VALUES_MAX {
            self.flush(None, catalog, out)?;
        }
        Ok(())
    }

    /// Handles a STAT_ROUND.
    pub(super) fn end_round(
        &mut self,
        mut body: Cursor<'_>,
        catalog: &mut Catalog,
        out: &mut Output<'_>,
    ) -> Result<(), Fault> {
        let (kind, time) = (body.u64()?, body.u64()?);
        self.flush(Some((time, kind == 1)), catalog, out)?;
        Ok(())
    }

    /// Emits the counts of a round, with its time, and whether it is the last one, if known.
    pub(super) fn flush(
        &mut self,
        round: Option<(u64, bool)>,
        catalog: &mut Catalog,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let int = |word: u64| signed(word).map_or(Value::Null, Value::Int);
        for stat in std::mem::take(&mut self.values) {
            let name = catalog.name_of_id(Some(stat.id));
            let values = [
                Value::Bytes(name.as_bytes()),
                int(stat.thread.into()),
                Value::UInt(stat.value),
                int(stat.enabled),
                int(stat.running),
                round.map_or(Value::Null, |(time, _)| int(time)),
                round.map_or(Value::Null, |(_, is_final)| Value::Bool(is_final)),
            ];
            let trailer = Trailer {
                cpu: Some(stat.cpu),
                ..Trailer::default()
            };
            let declared = &mut catalog.declared;
            emit_values(RecorderEvent::Stat, &trailer, &values, declared, out)?;
        }
        Ok(())
    }
}
