//! Refuses inputs that cannot be one trace: those of other clocks, hosts and boots.
//!
//! ```text
//! a.data (monotonic), strace.txt (realtime)       refused: one counts from the boot, the other from 1970
//! a.data (host h1), b.data (host h2)              refused: thread 7 of h1 is not that of h2
//! a.txt (unknown), b.txt (unknown)                one trace, if both are of one format, or their times may be of one clock
//! ```
//! A trace has one clock, one offset to the time of day, and threads of one kernel.

use perfquet_events::Error;
use perfquet_events::event::{Place, Problem};
use perfquet_trace::align::SAME_BOOT;
use perfquet_trace::normalize::{InputSummary, Output};

/// 1998-07-09 in nanoseconds since 1970, longer than any system has been up.
const TIME_OF_DAY: i64 = 900_000_000_000_000_000;

/// An input that has been read.
struct Known {
    format: &'static str,
    summary: InputSummary,
}

/// The inputs of one import.
#[derive(Default)]
pub(crate) struct Inputs(Vec<Known>);

impl Inputs {
    /// Adds an input, if it can be in one trace with those before.
    pub(crate) fn add(&mut self, format: &'static str, output: &mut Output) -> Result<(), Error> {
        let added = Known {
            format,
            summary: output.summary(),
        };
        if output.is_one_recording {
            return Ok(());
        }
        for known in &self.0 {
            if let Some(reason) = apart(known, &added) {
                return Err(Error::Apart {
                    input: added.summary.name,
                    other: known.summary.name.clone(),
                    reason,
                });
            }
        }
        let doubts = self.0.iter().find_map(|known| doubts(known, &added));
        if let Some(message) = doubts {
            output.add_problem(Problem {
                place: Place::Whole,
                count: 1,
                message: &message,
            });
        }
        self.0.push(added);
        Ok(())
    }

    /// What the inputs say of their recordings.
    pub(crate) fn summaries(&self) -> Vec<InputSummary> {
        self.0.iter().map(|known| known.summary.clone()).collect()
    }
}

/// The clock of an input, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock<'a> {
    Unknown,
    /// Begins with the input.
    Relative,
    Named(&'a str),
}

impl Clock<'_> {
    fn of(summary: &InputSummary) -> Clock<'_> {
        match summary.clock.as_deref() {
            None | Some("unknown" | "trace file" | "perf trace" | "kfi" | "cycles") => {
                Clock::Unknown
            }
            Some("relative" | "kfi-relative") => Clock::Relative,
            // Read at lower cost or with an alarm: the same times.
            Some(name) => {
                let name = name.strip_suffix("_coarse").unwrap_or(name);
                Clock::Named(name.strip_suffix("_alarm").unwrap_or(name))
            }
        }
    }

    fn words(self) -> String {
        match self {
            Clock::Unknown => "an unknown clock".to_owned(),
            Clock::Relative => "a clock that begins with it".to_owned(),
            Clock::Named(name) => format!("the clock {name}"),
        }
    }
}

/// Why two inputs cannot be one trace.
fn apart(known: &Known, added: &Known) -> Option<String> {
    let (one, other) = (&known.summary, &added.summary);
    let differ = |one: &Option<String>, other: &Option<String>, what: &str| {
        let (one, other) = (one.as_ref()?, other.as_ref()?);
        (one != other).then(|| format!("expected {what} {one}, found {other}"))
    };
    let system = differ(&one.host, &other.host, "host")
        .or_else(|| differ(&one.os_release, &other.os_release, "kernel"))
        .or_else(|| differ(&one.boot, &other.boot, "boot"));
    if system.is_some() {
        return system;
    }
    // Without times, there is no clock.
    let (times, added_times) = (one.times?, other.times?);
    let (clock, added_clock) = (Clock::of(one), Clock::of(other));
    let is_one = match (clock, added_clock) {
        (Clock::Named(clock), Clock::Named(added)) => clock == added,
        (Clock::Relative, Clock::Relative) => known.format == added.format,
        (Clock::Relative, _) | (_, Clock::Relative) => false,
        (Clock::Unknown, _) | (_, Clock::Unknown) => {
            is_time_of_day(clock, times) == is_time_of_day(added_clock, added_times)
        }
    };
    if !is_one {
        return Some(format!(
            "expected {}, found {}",
            clock.words(),
            match added_clock == clock {
                true => "times that cannot be of the same one".to_owned(),
                false => added_clock.words(),
            }
        ));
    }
    let offsets = one.wall_offset.zip(other.wall_offset);
    let distance = offsets.map(|(one, other)| one.abs_diff(other));
    distance
        .filter(|distance| *distance >= SAME_BOOT.unsigned_abs())
        .map(|distance| {
            format!(
                "its clock is {} s off that time of day: recorded after another boot, or after the time was set",
                distance / 1_000_000_000
            )
        })
}

/// Says what may be wrong with two inputs in one trace.
fn doubts(known: &Known, added: &Known) -> Option<String> {
    let (one, other) = (&known.summary, &added.summary);
    one.times.and(other.times)?;
    match (Clock::of(one), Clock::of(other)) {
        (Clock::Relative, Clock::Relative) => Some(
            "its times begin with it: when it was recorded after the inputs before is unknown"
                .to_owned(),
        ),
        (one, other) if one == Clock::Unknown || other == Clock::Unknown => {
            (one != other || known.format != added.format).then(|| {
                format!(
                    "whether its clock is that of {} is unknown: their times may not fit together",
                    known.summary.name
                )
            })
        }
        _ => None,
    }
}

fn is_time_of_day(clock: Clock<'_>, (first, _): (i64, i64)) -> bool {
    match clock {
        Clock::Named(name) => matches!(name, "realtime" | "tai"),
        Clock::Unknown | Clock::Relative => first >= TIME_OF_DAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(format: &'static str, clock: &str, first: i64) -> Known {
        Known {
            format,
            summary: InputSummary {
                name: "x".to_owned(),
                times: Some((first, first + 10)),
                clock: (!clock.is_empty()).then(|| clock.to_owned()),
                ..InputSummary::default()
            },
        }
    }

    #[test]
    fn clocks() {
        let now = 2 * TIME_OF_DAY;
        let check = |one: Known, other: Known| {
            let (reason, doubts) = (apart(&one, &other), doubts(&one, &other));
            (reason.is_some(), doubts.is_some())
        };
        let (one, apart, doubtful) = ((false, false), (true, false), (false, true));
        for (known, added, expected) in [
            (("p", "monotonic", 5), ("u", "monotonic", 90), one),
            (("p", "monotonic", 5), ("u", "monotonic_coarse", 90), one),
            (("p", "monotonic", 5), ("p", "sched_clock", 9), apart),
            (("p", "monotonic", 5), ("s", "realtime", now), apart),
            (("s", "relative", 0), ("t", "relative", 0), (true, true)),
            (("s", "relative", 0), ("s", "relative", 0), doubtful),
            (("s", "relative", 0), ("s", "realtime", now), apart),
            (("t", "", 0), ("t", "", 7), one),
            (("t", "", 0), ("t", "", now), apart),
            (("t", "", now), ("t", "", now), one),
            (("t", "", 0), ("c", "trace file", 7), doubtful),
            (("t", "", now), ("s", "realtime", now), doubtful),
            (("t", "", 5), ("s", "realtime", now), (true, true)),
            (("t", "", 5), ("p", "sched_clock", 7), doubtful),
        ] {
            let of = |(format, clock, first)| input(format, clock, first);
            assert_eq!(check(of(known), of(added)), expected, "{known:?} {added:?}");
        }
        // Without times.
        let mut stacks = input("f", "", 0);
        stacks.summary.times = None;
        assert_eq!(check(stacks, input("s", "realtime", now)), one);
    }

    #[test]
    fn systems() {
        let of = |host: &str, kernel: &str, offset| {
            let mut input = input("p", "monotonic", 5);
            input.summary.host = Some(host.to_owned());
            input.summary.os_release = Some(kernel.to_owned());
            input.summary.wall_offset = offset;
            input
        };
        let reason = |one, other| apart(&one, &other).unwrap_or_default();
        assert_eq!(
            reason(of("a", "6.1", None), of("b", "6.1", None)),
            "expected host a, found b"
        );
        assert_eq!(
            reason(of("a", "6.1", None), of("a", "6.12", None)),
            "expected kernel 6.1, found 6.12"
        );
        assert_eq!(
            reason(of("a", "6.1", Some(5)), of("a", "6.1", Some(90))),
            ""
        );
        assert!(
            reason(of("a", "6.1", Some(5)), of("a", "6.1", Some(7 * SAME_BOOT)))
                .contains("6 s off")
        );
    }
}
