//! Several traces on one timeline: that of the first.
//!
//! ```text
//! trace  method        shift      drift      error     pairs
//! host   reference
//! perf   same clock    0 ns       0 ppm      0 ns
//! vm     events        -3.120 s   1.2 ppm    1.100 us    412      time 5 of vm is aligned(time) 5 - 3.12 s of host
//! ```
//! The times that are stored stay as they are; a [`Placement`] maps those of one trace. Traces are placed by what they say of their
//! clocks when they are opened ([`by_facts`]), or by an alignment that was written before ([`file`](mod@file)).

pub mod file;
pub mod line;

use crate::normalize::facts::BOOT;

/// Parts per billion of the largest drift: a tenth.
pub const DRIFT_MAX: i64 = 100_000_000;

/// The fact with moments on two clocks: `TIME=WALL TIME=WALL …`, both in nanoseconds.
const MOMENTS: &str = "clock.moments";

/// Clocks of readers that know no other: no two traces share them.
const NO_CLOCKS: [&str; 5] = [
    "relative",
    "trace file",
    "unknown",
    "local time of day",
    "perf trace",
];

/// Offsets to wall-clock time that differ by more belong to two boots; two boots do not begin within the same second.
pub const SAME_BOOT: i64 = 1_000_000_000;

/// How a trace was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// It is the first trace.
    Reference,
    /// Both traces have the same clock of the same boot.
    SameClock,
    /// By its clock's offset to wall-clock time.
    WallClock,
    /// trace-cmd translated its times to the clock of the other.
    TimeShift,
    /// By events that both recorded.
    Events,
    /// By messages from one to the other, in both directions.
    Messages,
    /// Both begin at the same time.
    Start,
    /// By a given shift.
    Given,
}

impl Method {
    const ALL: [Method; 8] = [
        Method::Reference,
        Method::SameClock,
        Method::WallClock,
        Method::TimeShift,
        Method::Events,
        Method::Messages,
        Method::Start,
        Method::Given,
    ];

    /// Its name: "same clock".
    pub fn name(self) -> &'static str {
        match self {
            Method::Reference => "reference",
            Method::SameClock => "same clock",
            Method::WallClock => "wall clock",
            Method::TimeShift => "time shift",
            Method::Events => "events",
            Method::Messages => "messages",
            Method::Start => "start",
            Method::Given => "given",
        }
    }

    fn of(name: &str) -> Option<Method> {
        let mut all = Method::ALL.into_iter();
        all.find(|method| method.name() == name)
    }
}

/// Where a trace stands on the timeline of the first: a linear map of its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The time of the trace that is shifted by exactly `shift`.
    pub origin: i64,
    /// Nanoseconds that are added.
    pub shift: i64,
    /// Nanoseconds that are added for each second after `origin`, in parts per billion; at most [`DRIFT_MAX`].
    pub drift: i64,
    /// How it was found.
    pub method: Method,
    /// Nanoseconds by which it may be wrong; `None` if unknown.
    pub error: Option<i64>,
    /// Number of common events, messages or moments that it is computed from.
    pub pairs: u64,
}

impl Placement {
    /// A placement without drift.
    pub fn shifted(shift: i64, method: Method, error: Option<i64>) -> Placement {
        Placement {
            origin: 0,
            shift,
            drift: 0,
            method,
            error,
            pairs: 0,
        }
    }

    /// Rows of `trace_info`: how the trace was placed, in nanoseconds. What is unknown has no row.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("align.method", self.method.name().to_owned()),
            ("align.shift", self.shift.to_string()),
        ];
        let others = [
            (
                "align.origin",
                Some(self.origin).filter(|_| self.drift != 0),
            ),
            (
                "align.drift_ppb",
                Some(self.drift).filter(|&drift| drift != 0),
            ),
            ("align.error", self.error),
        ];
        let known = others.into_iter();
        facts.extend(known.filter_map(|(name, value)| Some((name, value?.to_string()))));
        if self.pairs > 0 {
            facts.push(("align.pairs", self.pairs.to_string()));
        }
        facts
    }

    /// The place of a time of the trace on the timeline; `None` beyond 64 bits.
    pub fn place(&self, time: i64) -> Option<i64> {
        i64::try_from(self.exact(time)).ok()
    }

    fn exact(&self, time: i64) -> i128 {
        let since = i128::from(time) - i128::from(self.origin);
        // Rounded downwards, so that later times never have earlier places.
        let drifted = (since * i128::from(self.drift)).div_euclid(1_000_000_000);
        i128::from(time) + drifted + i128::from(self.shift)
    }

    /// The first time of the trace whose place is at `place` or later; `None` if there is none.
    pub fn first_at(&self, place: i64) -> Option<i64> {
        // Places do not decrease.
        let is_later = |time: i64| self.exact(time) >= i128::from(place);
        if !is_later(i64::MAX) {
            return None;
        }
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        while low < high {
            let middle = ((i128::from(low) + i128::from(high)).div_euclid(2)) as i64;
            match is_later(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Some(low)
    }
}

/// What a trace says of its clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock<'t> {
    /// Name of the trace.
    pub trace: &'t str,
    /// Facts of the trace, by name.
    pub facts: &'t [(String, String)],
    /// Offset from its times to nanoseconds since 1970 (UTC).
    pub wall_offset: Option<i64>,
    /// Time of the first event.
    pub start: Option<i64>,
}

impl Clock<'_> {
    fn fact(&self, name: &str) -> Option<&str> {
        fact(self.facts, name)
    }

    /// Whether both traces read the wall clock of one boot of one host: by the IDs of the boots where both have one, since a guest often has its
    /// host's name, else by the names of the hosts.
    pub fn has_wall_clock_of(&self, other: &Clock<'_>) -> bool {
        let same = |name: &str| Some(self.fact(name)? == other.fact(name)?);
        same(BOOT).or_else(|| same("host")).unwrap_or(false)
    }
}

/// Returns a fact by its name.
pub fn fact<'f>(facts: &'f [(String, String)], name: &str) -> Option<&'f str> {
    let found = facts.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Places a trace on the timeline of another by what both say of their clocks.
///
/// # Errors
///
/// Neither the clocks nor wall-clock time relate the two; the text has the reason.
pub fn by_facts(reference: &Clock<'_>, trace: &Clock<'_>) -> Result<Placement, String> {
    for each in [reference, trace] {
        if has_several_clocks(each) {
            return Err(format!("{}: its inputs have different clocks", each.trace));
        }
    }
    if is_same_clock(reference, trace) {
        return Ok(Placement::shifted(0, Method::SameClock, Some(0)));
    }
    if let Some(samples) = shifted_by_trace_cmd(reference, trace) {
        let placement = Placement::shifted(0, Method::TimeShift, None);
        return Ok(Placement {
            pairs: samples,
            ..placement
        });
    }
    by_wall(reference, trace)
}

/// Places a trace by wall-clock time.
///
/// # Errors
///
/// One of the two has no offset to wall-clock time.
pub fn by_wall(reference: &Clock<'_>, trace: &Clock<'_>) -> Result<Placement, String> {
    let of = |trace: &Clock<'_>| {
        Wall::of(trace).ok_or_else(|| format!("{}: its wall-clock time is unknown", trace.trace))
    };
    let (to, from) = (of(reference)?, of(trace)?);
    let too_far = || "its times are too far away".to_owned();
    let (to_offset, from_offset) = (to.offset, from.offset);
    let wall = from_offset
        .origin
        .checked_add(from_offset.value)
        .ok_or_else(too_far)?;
    // The offset of the reference depends on its time, which depends on the offset, by parts in a million.
    let mut offset = to_offset.value;
    for _ in 0..3 {
        let time = wall.checked_sub(offset).ok_or_else(too_far)?;
        offset = i64::try_from(to_offset.at(time)).map_err(|_| too_far())?;
    }
    let shift = from_offset.value.checked_sub(offset).ok_or_else(too_far)?;
    Ok(Placement {
        origin: from_offset.origin,
        shift,
        drift: (from_offset.slope - to_offset.slope).clamp(-DRIFT_MAX, DRIFT_MAX),
        method: Method::WallClock,
        // No trace contains the difference between the wall clocks of two hosts, or of two boots.
        error: from
            .error
            .zip(to.error)
            .filter(|_| trace.has_wall_clock_of(reference))
            .map(|(a, b)| a.saturating_add(b)),
        pairs: (from.moments + to.moments) as u64,
    })
}

/// Whether inputs of a trace have clocks of which one map cannot be right.
fn has_several_clocks(trace: &Clock<'_>) -> bool {
    trace.facts.iter().any(|(name, value)| {
        let Some((input, fact)) = name.split_once('.') else {
            return false;
        };
        let number = input.strip_prefix("input");
        if number.is_none_or(|number| number.parse::<u32>().is_err()) {
            return false;
        }
        match fact {
            "clock" | BOOT => true,
            "wall_offset" => match (value.parse::<i64>(), trace.wall_offset) {
                (Ok(own), Some(first)) => own.abs_diff(first) >= SAME_BOOT as u64,
                _ => true,
            },
            _ => false,
        }
    })
}

fn is_same_clock(reference: &Clock<'_>, trace: &Clock<'_>) -> bool {
    let same = |fact: &str| {
        let (first, second) = (reference.fact(fact)?, trace.fact(fact)?);
        Some(first == second)
    };
    let is_clock = |trace: &Clock<'_>| {
        let clock = trace.fact("clock");
        clock.is_some_and(|clock| !NO_CLOCKS.contains(&clock))
    };
    if !is_clock(trace) || same("clock") != Some(true) {
        return false;
    }
    match same(BOOT) {
        Some(is_same) => is_same,
        None => {
            let offsets = reference.wall_offset.zip(trace.wall_offset);
            let is_one_boot = offsets.is_some_and(|(a, b)| a.abs_diff(b) < SAME_BOOT as u64);
            same("host") == Some(true) && is_one_boot
        }
    }
}

/// The number of samples with which trace-cmd translated the times of a guest to the clock of `reference`.
fn shifted_by_trace_cmd(reference: &Clock<'_>, trace: &Clock<'_>) -> Option<u64> {
    let id = reference.fact("trace_cmd.trace_id")?;
    // "clock of 0x000000005f3a by 12 samples"
    let words = trace.fact("trace_cmd.time_shift")?;
    let (peer, samples) = words.strip_prefix("clock of ")?.split_once(" by ")?;
    (peer == id).then(|| {
        samples
            .split(' ')
            .next()
            .and_then(|count| count.parse().ok())
    })?
}

/// The offset of a trace's clock to wall-clock time.
struct Wall {
    /// By the time of the trace.
    offset: line::Line,
    /// Largest distance of a moment from the line through them; `None` if there are fewer than two.
    error: Option<i64>,
    moments: usize,
}

impl Wall {
    fn of(trace: &Clock<'_>) -> Option<Wall> {
        let moments: Vec<(i64, i64)> = trace
            .fact(MOMENTS)
            .unwrap_or_default()
            .split(' ')
            .filter_map(|moment| {
                let (time, wall) = moment.split_once('=')?;
                let (time, wall) = (time.parse::<i64>().ok()?, wall.parse::<i64>().ok()?);
                Some((time, wall.checked_sub(time)?))
            })
            .collect();
        let line = line::Line::through(&moments).filter(|_| moments.len() > 1);
        let Some(line) = line else {
            return Some(Wall {
                offset: line::Line {
                    origin: trace.start.unwrap_or(0),
                    value: trace.wall_offset?,
                    slope: 0,
                },
                error: None,
                moments: 0,
            });
        };
        let distances = moments.iter().map(|&(time, offset)| {
            i64::try_from((i128::from(offset) - line.at(time)).abs()).unwrap_or(i64::MAX)
        });
        Some(Wall {
            error: distances.max(),
            offset: line,
            moments: moments.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_facts(facts: &[(&str, &str)], wall_offset: Option<i64>) -> Clock<'static> {
        let facts = facts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let facts: Vec<_> = facts.collect();
        Clock {
            trace: "a",
            facts: facts.leak(),
            wall_offset,
            start: None,
        }
    }

    #[test]
    fn places_do_not_decrease_and_have_an_inverse() {
        let placement = Placement {
            origin: 1_000,
            shift: -50,
            drift: 333_333,
            ..Placement::shifted(0, Method::Given, None)
        };
        let mut last = i64::MIN;
        for time in -20_000..20_000 {
            let place = placement.place(time).unwrap();
            assert!(place >= last);
            last = place;
            let first = placement.first_at(place).unwrap();
            assert!(first <= time && placement.place(first) == Some(place));
            assert!(placement.place(first - 1).unwrap() < place);
        }
        let earlier = Placement::shifted(-10, Method::Given, None);
        assert_eq!(earlier.place(i64::MIN), None);
        assert_eq!(earlier.first_at(i64::MAX), None);
        assert_eq!(earlier.first_at(i64::MIN), Some(i64::MIN + 10));
        let later = Placement::shifted(10, Method::Given, None);
        assert_eq!(later.first_at(i64::MAX), Some(i64::MAX - 10));
    }

    #[test]
    fn one_boot_has_one_clock() {
        let of = |clock: &str, boot: &str, wall: Option<i64>| {
            let facts = [("host", "h"), ("clock", clock), (BOOT, boot)];
            let facts: Vec<_> = facts
                .into_iter()
                .filter(|fact| !fact.1.is_empty())
                .collect();
            of_facts(&facts, wall)
        };
        let first = of("monotonic", "b1", Some(5_000));
        let method = |other: &Clock<'_>| by_facts(&first, other).map(|placement| placement.method);
        assert_eq!(method(&of("monotonic", "b1", None)), Ok(Method::SameClock));
        assert_eq!(
            method(&of("monotonic", "", Some(900_000))),
            Ok(Method::SameClock)
        );
        assert_eq!(
            method(&of("monotonic", "b2", Some(5_000))),
            Ok(Method::WallClock)
        );
        assert_eq!(
            method(&of("boottime", "b1", Some(5_000))),
            Ok(Method::WallClock)
        );
        assert_eq!(
            method(&of("monotonic", "", Some(3 * SAME_BOOT))),
            Ok(Method::WallClock)
        );
        assert!(method(&of("monotonic", "", None)).is_err());
        assert!(by_facts(&of("relative", "", None), &of("relative", "", None)).is_err());
    }

    #[test]
    fn inputs_with_different_clocks_have_no_place() {
        let first = of_facts(&[("host", "h"), ("clock", "monotonic")], Some(0));
        let mixed = [("clock", "monotonic"), ("input2.clock", "perf")];
        assert!(by_facts(&first, &of_facts(&mixed, Some(0))).is_err());
        let later = [("clock", "monotonic"), ("input2.wall_offset", "700")];
        assert!(by_facts(&first, &of_facts(&later, Some(0))).is_ok());
    }

    #[test]
    fn moments_on_both_clocks_give_shift_and_drift() {
        // The second host's clock began 10 s later and runs 2 ppm slow.
        let second = 1_000_000_000i64;
        let moments = |offset: i64, slow: i64| {
            let each = (0..5i64).map(|number| {
                let time = number * 30 * second;
                format!("{time}={}", time + offset + slow * number * 30)
            });
            each.collect::<Vec<_>>().join(" ")
        };
        let (first, other) = (moments(1_000 * second, 0), moments(1_010 * second, 2_000));
        let first = of_facts(&[("host", "a"), (MOMENTS, &first)], None);
        let mut facts = vec![("host", "a"), (MOMENTS, other.as_str())];
        let placement = by_facts(&first, &of_facts(&facts, None)).unwrap();
        assert_eq!(
            (placement.method, placement.drift),
            (Method::WallClock, 2_000)
        );
        assert_eq!(placement.place(60 * second), Some(70 * second + 120_000));
        assert_eq!((placement.error, placement.pairs), (Some(0), 10));
        facts[0].1 = "b";
        let error = |first: &Clock<'_>, facts: &[(&str, &str)]| {
            by_facts(first, &of_facts(facts, None)).unwrap().error
        };
        assert_eq!(error(&first, &facts), None);
    }

    #[test]
    fn a_guest_with_the_name_of_its_host_has_a_wall_clock_of_its_own() {
        let of = |host: &str, boot: &str, clock: &str| {
            let moments = (MOMENTS, "0=5 30000000000=30000000005");
            of_facts(
                &[("host", host), (BOOT, boot), ("clock", clock), moments],
                None,
            )
        };
        let error = |other: &Clock<'_>| {
            let placement = by_facts(&of("vm", "b1", "monotonic"), other).unwrap();
            assert_eq!(placement.method, Method::WallClock);
            placement.error
        };
        assert_eq!(error(&of("vm", "b2", "monotonic")), None);
        assert_eq!(error(&of("c1", "b1", "boottime")), Some(0));
    }

    #[test]
    fn a_guest_is_shifted_by_trace_cmd() {
        let host = of_facts(&[("trace_cmd.trace_id", "0x000000000000abcd")], None);
        let words = "clock of 0x000000000000abcd by 12 samples";
        let placement =
            by_facts(&host, &of_facts(&[("trace_cmd.time_shift", words)], None)).unwrap();
        let found = (placement.method, placement.pairs, placement.place(7));
        assert_eq!(found, (Method::TimeShift, 12, Some(7)));
        let other = words.replace("abcd", "abce");
        assert!(by_facts(&host, &of_facts(&[("trace_cmd.time_shift", &other)], None)).is_err());
    }
}
