//! Counts of `perf stat record`: STAT, one count each, and STAT_ROUND, which ends a round of them.
//!
//! ```text
//! STAT        u64 id, u32 cpu, u32 thread, u64 value, u64 enabled, u64 running
//! STAT_ROUND  u64 type (1: the last), u64 time
//! ```
//! The time of a round follows its counts, so these are stored until it ends. They are what was counted since the start,
//! by CPU and thread, and become rows of `perf.stat`. Their growth in each round, added up as `perf stat` does, becomes a
//! row of `counts` per event; with `perf stat --no-aggr`, per event and CPU. The times are those since the start.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::Cursor;
use perfquet_events::event::{Counted, CounterValue, Event, Fact, Place, Value};

use crate::perf_data::attr::{Attr, event_type};
use crate::perf_data::catalog::Catalog;
use crate::perf_data::output::{Fault, Output};
use crate::perf_data::record::Trailer;
use crate::perf_data::recorder::RecorderEvent;
use crate::perf_data::values::{emit_values, known_cpu, signed};

/// Maximum number of stored counts; beyond it they are emitted without the time of their round.
const VALUES_MAX: usize = 1 << 16;

/// Maximum number of counters whose growth is followed.
const COUNTERS_MAX: usize = 1 << 20;
/// PERF_COUNT_SW_CPU_CLOCK and TASK_CLOCK: their counts are nanoseconds.
const CLOCKS: std::ops::RangeInclusive<u64> = 0..=1;
/// `perf stat --no-aggr`; the other numbers depend on perf's version.
const AGGR_NONE: u64 = 0;

/// Counts of the current round, and what was counted before it.
#[derive(Debug, Default)]
pub(super) struct Stat {
    values: Vec<StatValue>,
    /// By ID, CPU and thread.
    former: HashMap<(u64, u32, u32), Counted>,
    /// End of the last round.
    since: u64,
    is_by_cpu: bool,
    is_begun: bool,
}

/// An event and, if they are separate, a CPU, with its growth in a round, and all that was counted.
struct Growth {
    index: usize,
    cpu: Option<u32>,
    round: Counted,
    in_all: Counted,
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
        let value = StatValue {
            id: body.u64()?,
            cpu: body.u32()?,
            thread: body.u32()?,
            value: body.u64()?,
            enabled: body.u64()?,
            running: body.u64()?,
        };
        if catalog.index_of_id(Some(value.id)).is_none() {
            out.problem(Place::Whole, "count of an unknown event", || {
                format!(
                    "expected a count of an event of this file, found ID {}; `counts` lacks it",
                    value.id
                )
            })?;
        }
        self.values.push(value);
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
        self.count(time, catalog, out)?;
        self.flush(Some((time, kind == 1)), catalog, out)?;
        Ok(())
    }

    /// Sets how perf added the counts up.
    pub(super) fn set_aggregation(&mut self, mode: u64) {
        self.is_by_cpu = mode == AGGR_NONE;
    }

    /// Emits the growth of the counts since the last round.
    fn count(&mut self, time: u64, catalog: &Catalog, out: &mut Output<'_>) -> Result<(), Error> {
        if !std::mem::replace(&mut self.is_begun, true) {
            out.fact(Fact::Clock("relative"))?;
        }
        let mut all: Vec<Growth> = Vec::new();
        let mut places: HashMap<(usize, Option<u32>), usize> = HashMap::new();
        for stat in &self.values {
            let Some(index) = catalog.index_of_id(Some(stat.id)) else {
                continue;
            };
            let value = Counted {
                value: stat.value,
                enabled: stat.enabled,
                running: stat.running,
            };
            if self.former.len() >= COUNTERS_MAX {
                return out.problem(Place::Whole, "counters", || {
                    format!("expected at most {COUNTERS_MAX} counters; `counts` lacks the rest")
                });
            }
            let key = (stat.id, stat.cpu, stat.thread);
            let former = self.former.insert(key, value).unwrap_or_default();
            let cpu = known_cpu(Some(stat.cpu)).filter(|_| self.is_by_cpu);
            let place = *places.entry((index, cpu)).or_insert_with(|| {
                all.push(Growth {
                    index,
                    cpu,
                    round: Counted::default(),
                    in_all: Counted::default(),
                });
                all.len() - 1
            });
            if let Some(growth) = all.get_mut(place) {
                growth.round = growth.round.plus(value.minus(former));
                growth.in_all = growth.in_all.plus(value);
            }
        }
        let since = std::mem::replace(&mut self.since, time);
        // The last round may repeat the one before it.
        if since > 0 && all.iter().all(|growth| growth.round == Counted::default()) {
            return Ok(());
        }
        for growth in all {
            let is_clock =
                |attr: &Attr| attr.kind == event_type::SOFTWARE && CLOCKS.contains(&attr.config);
            let is_clock = catalog
                .get(growth.index)
                .is_some_and(|event| is_clock(&event.attr));
            let is_counted = growth.in_all.enabled > 0;
            out.event(Event::Count(&CounterValue {
                since: signed(since),
                time: signed(time),
                event: catalog.name_of(growth.index).as_bytes(),
                unit: if is_clock { b"ns" } else { b"" },
                counted: is_counted.then_some(growth.round),
                cpu: growth.cpu,
                error: if is_counted { b"" } else { b"not counted" },
                ..CounterValue::default()
            }))?;
        }
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
