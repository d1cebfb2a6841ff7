//! Clocks of packets → the clock of the trace, by the snapshots.
//!
//! ```text
//! snapshot    BOOTTIME 5000    MONOTONIC 4000    clock 64 (of the sequence, incremental) 4000
//! packet      clock 64, timestamp 7       4007 on clock 64, 5007 on the clock of the trace
//! ```

use std::collections::hash_map::Entry;

use perfquet_events::event::time_of;

use crate::protobuf::{Message, Value};

/// Readings of all clocks that are kept.
const READINGS_MAX: usize = 1 << 22;

const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;
/// Clocks of a sequence.
const OF_SEQUENCE: std::ops::RangeInclusive<u64> = 64..=127;

/// Sequence (0: all) and ID of a clock.
type Key = (u64, u64);

#[derive(Debug)]
pub(super) struct Clocks {
    trace: u64,
    is_begun: bool,
    /// Readings of a clock, and of the trace's clock at the same moment.
    readings: std::collections::HashMap<Key, Vec<(i64, i64)>>,
    count: usize,
    units: std::collections::HashMap<Key, Unit>,
    pub(super) wall_offset: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Unit {
    nanoseconds: u64,
    is_incremental: bool,
    last: u64,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    id: u64,
    time: i64,
}

impl Default for Clocks {
    fn default() -> Clocks {
        Clocks {
            trace: BOOTTIME,
            is_begun: false,
            readings: Default::default(),
            count: 0,
            units: Default::default(),
            wall_offset: None,
        }
    }
}

fn key(sequence: u64, id: u64) -> Key {
    match OF_SEQUENCE.contains(&id) {
        true => (sequence, id),
        false => (0, id),
    }
}

impl Clocks {
    /// The name of the trace's clock.
    pub(super) fn name(&self) -> &'static str {
        match self.trace {
            REALTIME | 2 => "realtime",
            3 | 4 => "monotonic",
            5 => "monotonic_raw",
            BOOTTIME => "boottime",
            _ => "trace file",
        }
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace
    }

    /// Takes the readings of a snapshot.
    pub(super) fn snapshot(&mut self, sequence: u64, body: &[u8]) {
        let mut found = Vec::new();
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Bytes(clock)) => found.extend(self.reading(sequence, clock)),
                (2, Value::Number(primary)) if !self.is_begun && primary != 0 => {
                    self.trace = primary;
                }
                _ => {}
            }
        }
        self.is_begun = true;
        let own = found.iter().find(|reading| reading.id == self.trace);
        let others = || {
            found
                .iter()
                .find_map(|reading| self.look_up(key(sequence, reading.id), reading.time))
        };
        let Some(now) = own.map(|reading| reading.time).or_else(others) else {
            return;
        };
        for Reading { id, time } in found {
            if id == REALTIME && self.wall_offset.is_none() {
                self.wall_offset = time.checked_sub(now);
            }
            let readings = self.readings.entry(key(sequence, id)).or_default();
            let is_later = readings.last().is_none_or(|last| last.0 < time);
            if is_later && self.count < READINGS_MAX {
                self.count += 1;
                readings.push((time, now));
            }
        }
    }

    fn reading(&mut self, sequence: u64, clock: &[u8]) -> Option<Reading> {
        let (mut id, mut time, mut is_incremental, mut nanoseconds) = (None, None, false, 1);
        for field in Message::new(clock, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (1, Value::Number(value)) => id = Some(value),
                (2, Value::Number(value)) => time = Some(value),
                (3, Value::Number(value)) => is_incremental = value != 0,
                (4, Value::Number(value)) => nanoseconds = value.max(1),
                _ => {}
            }
        }
        let (id, last) = (id?, time?);
        if is_incremental || nanoseconds != 1 {
            let unit = Unit {
                nanoseconds,
                is_incremental,
                last,
            };
            match self.units.entry(key(sequence, id)) {
                Entry::Occupied(mut known) => *known.get_mut() = unit,
                Entry::Vacant(place) if self.count < READINGS_MAX => {
                    self.count += 1;
                    place.insert(unit);
                }
                Entry::Vacant(_) => {}
            }
        }
        Some(Reading {
            id,
            time: time_of(last.saturating_mul(nanoseconds)),
        })
    }

    /// A time of a packet on the trace's clock; `None` if no snapshot relates the clocks.
    pub(super) fn time(&mut self, sequence: u64, id: u64, time: u64) -> Option<i64> {
        let key = key(sequence, id);
        let time = match self.units.get_mut(&key) {
            Some(unit) => {
                if unit.is_incremental {
                    unit.last = unit.last.wrapping_add(time);
                } else {
                    unit.last = time;
                }
                unit.last.saturating_mul(unit.nanoseconds)
            }
            None => time,
        };
        match id == self.trace {
            true => Some(time_of(time)),
            false => self.look_up(key, time_of(time)),
        }
    }

    fn look_up(&self, key: Key, time: i64) -> Option<i64> {
        if key.1 == self.trace {
            return Some(time);
        }
        let readings = self.readings.get(&key)?;
        let next = readings.partition_point(|reading| reading.0 <= time);
        let (then, trace) = readings.get(next.saturating_sub(1))?;
        trace.checked_add(time.checked_sub(*then)?)
    }
}
