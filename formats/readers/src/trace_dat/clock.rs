//! Units of the ring buffer's timestamps, and their conversion to nanoseconds on the trace's clock.
//!
//! ```text
//! local, global, perf, mono, mono_raw, boot, tai   nanoseconds
//! x86-tsc, tsc2nsec with an option TSC2NSEC        cycles * mult >> shift
//! uptime                                           ticks of 10 ms (USER_HZ)
//! counter, x86-tsc, ppc-tb, …                      unit unknown: no time
//! ```
//! Source: `trace_clocks` in kernel/trace/trace.c. A guest's file has samples of the difference to its host's clock.
//! trace-cmd first corrects each timestamp by them (`timestamp_host_sync`), then adds the OFFSET.

use std::rc::Rc;

use perfquet_events::event::TIME_BEYOND;

use crate::trace_dat::options::{Options, Shift, TimeShift, Tsc};

/// Nanoseconds per tick: the kernel reports ticks to user space at 100 Hz, whatever its own rate.
const TICK_NANOSECONDS: u64 = 10_000_000;
/// The offset changes linearly between two samples.
const INTERPOLATE: u32 = 1;

/// The clock of one buffer.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    unit: Unit,
    offset: i64,
    shift: Option<Rc<TimeShift>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Nanoseconds,
    Ticks,
    Cycles(Tsc),
    Unknown,
}

impl Clock {
    /// Returns the clock named `name` in a file with these options.
    pub(super) fn new(name: &[u8], options: &Options<'_>) -> Clock {
        let tsc = options.tsc.filter(|tsc| tsc.mult != 0);
        Clock {
            unit: match (name, tsc) {
                (b"x86-tsc" | b"tsc2nsec", Some(tsc)) => Unit::Cycles(tsc),
                (b"local" | b"global" | b"perf" | b"boot" | b"tai", _) => Unit::Nanoseconds,
                (b"mono" | b"mono_raw", _) => Unit::Nanoseconds,
                // No clock given: the default clock of a ring buffer.
                (b"", _) => Unit::Nanoseconds,
                (b"uptime", _) => Unit::Ticks,
                _ => Unit::Unknown,
            },
            offset: options.offset,
            shift: options.time_shift.clone(),
        }
    }

    /// Whether timestamps of this clock are times.
    pub(super) fn has_time(&self) -> bool {
        self.unit != Unit::Unknown
    }

    /// Nanoseconds, or the raw count if the unit is unknown: the sort key of events.
    #[inline]
    pub(super) fn key(&self, stamp: u64, cpu: u32) -> i64 {
        let stamp = match &self.shift {
            None => stamp,
            Some(shift) => shifted(stamp, shift, cpu),
        };
        let time = match self.unit {
            Unit::Nanoseconds | Unit::Unknown => stamp,
            Unit::Ticks => stamp.saturating_mul(TICK_NANOSECONDS),
            Unit::Cycles(tsc) => {
                let product = u128::from(stamp) * u128::from(tsc.mult);
                (product >> tsc.shift.min(127)).min(u64::MAX.into()) as u64
            }
        };
        i64::try_from(i128::from(time) + i128::from(self.offset)).unwrap_or(TIME_BEYOND)
    }
}

/// Converts a guest's timestamp to its host's clock.
#[cold]
fn shifted(stamp: u64, shift: &TimeShift, cpu: u32) -> u64 {
    let samples = usize::try_from(cpu)
        .ok()
        .and_then(|cpu| shift.cpus.get(cpu));
    let Some(samples) = samples else {
        return stamp;
    };
    let (first, second) = match samples.as_slice() {
        [] => return stamp,
        [only] => return stamp.wrapping_add_signed(only.offset),
        [first, second] => (first, second),
        samples => {
            // Before the first and after the last sample, the nearest two apply.
            let after = samples.partition_point(|sample| sample.time <= stamp);
            let at = after.clamp(1, samples.len() - 1);
            match (samples.get(at - 1), samples.get(at)) {
                (Some(first), Some(second)) => (first, second),
                _ => return stamp,
            }
        }
    };
    corrected(stamp, shift.flags, first, second)
}

fn corrected(stamp: u64, flags: u32, first: &Shift, second: &Shift) -> u64 {
    let mut offset = i128::from(first.offset);
    let span = i128::from(second.time) - i128::from(first.time);
    if flags & INTERPOLATE != 0 && span != 0 {
        let into = i128::from(stamp) - i128::from(first.time);
        let change = into * (i128::from(second.offset) - i128::from(first.offset));
        offset += (change + span / 2) / span;
    }
    let scaled = u128::from(stamp) * u128::from(first.scaling);
    let scaled = scaled >> first.fraction.min(127);
    // Both are far below the limits of i128.
    u64::try_from(scaled as i128 + offset).unwrap_or(0)
}

/// The clock's name in the manifest.
pub(super) fn name_of(clock: &[u8]) -> &'static str {
    match clock {
        b"mono" => "monotonic",
        b"mono_raw" => "monotonic_raw",
        b"boot" => "boottime",
        b"tai" => "tai",
        b"local" | b"global" | b"perf" | b"" => "sched_clock",
        b"uptime" => "uptime",
        b"tsc2nsec" => "tsc",
        b"x86-tsc" => "tsc",
        b"counter" => "counter",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &[u8], options: &Options<'_>, stamp: u64, expected: Option<i64>) {
        let clock = Clock::new(name, options);
        let time = clock.has_time().then(|| clock.key(stamp, 1));
        assert_eq!(time, expected);
    }

    #[test]
    fn units() {
        let mut options = Options::default();
        check(b"local", &options, 5, Some(5));
        check(b"", &options, 5, Some(5));
        check(b"uptime", &options, 5133, Some(51_330_000_000));
        check(b"counter", &options, 5, None);
        check(b"x86-tsc", &options, 5, None);
        check(b"ppc-tb", &options, 5, None);
        options.offset = -3;
        options.tsc = Some(Tsc {
            mult: 0x8000_0863,
            shift: 31,
            offset: 0,
        });
        check(b"x86-tsc", &options, 46_661_845_982, Some(46_661_892_630));
        check(b"mono", &options, 46_661_845_982, Some(46_661_845_979));
        check(b"x86-tsc", &options, u64::MAX, Some(TIME_BEYOND));
        check(b"mono", &options, 1 << 63, Some(i64::MAX - 2));
        check(b"mono", &options, (1 << 63) + 3, Some(TIME_BEYOND));
    }

    #[test]
    fn guests() {
        let sample = |time, offset| Shift {
            time,
            offset,
            scaling: 1,
            fraction: 0,
        };
        let mut shift = TimeShift {
            peer: 0,
            flags: 0,
            cpus: vec![
                vec![],
                vec![sample(100, 10), sample(200, 20), sample(300, -40)],
            ],
        };
        let at = |stamp, shift: &TimeShift| shifted(stamp, shift, 1);
        // As in trace-cmd: before the first sample, its offset; after the last, the offset of the second to last.
        assert_eq!(
            [50, 100, 150, 200, 900].map(|stamp| at(stamp, &shift)),
            [60, 110, 160, 220, 920]
        );
        shift.flags = INTERPOLATE;
        assert_eq!(
            [100, 150, 250, 300].map(|stamp| at(stamp, &shift)),
            [110, 165, 241, 261]
        );
        assert_eq!(shifted(7, &shift, 0), 7);
        assert_eq!(shifted(7, &shift, 9), 7);
        shift.cpus[1].truncate(1);
        assert_eq!(at(5, &shift), 15);
    }
}
