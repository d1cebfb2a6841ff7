//! What the sides of a comparison cover: length, CPUs and sampling rate.
//!
//! ```text
//! cpu-clock: 9,970 samples before, 3,960 after
//! the sides differ: 10.000 s and 40.000 s; 2 and 4 CPUs; 997 Hz and 99 Hz
//! ```
//! Sums over recordings of different length are not comparable, unless each is the run of a command, whose work is fixed.

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use perfquet::sql::names::literal;
use perfquet::{Session, Trace};
use perfquet_trace::recorded::KnownBy;

use super::sides::Side;
use crate::filter::of_traces;

/// Sides whose lengths differ by less are as long as each other.
const TOLERANCE: f64 = 0.05;

/// What a side covers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Extent {
    /// Mean length of a run; 0 if it is unknown.
    seconds: f64,
    /// How that is known.
    known_by: Option<KnownBy>,
    /// CPUs of the host; `None` if unknown, or if they differ between runs.
    cpus: Option<u64>,
    /// Sampling rate or period of the compared event, if it is sampled.
    sampling: Option<String>,
    length: Length,
}

/// Where the length of a side comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Length {
    /// Somebody chose it.
    Chosen,
    /// From the work of a command: a difference is a result of the comparison.
    OfCommand,
    #[default]
    Unknown,
}

/// Returns what each side covers. `event` is the compared one, if there is one.
pub(super) fn of(session: &Session, sides: &[Side; 2], event: Option<&str>) -> Result<[Extent; 2]> {
    let mut found = [Extent::default(), Extent::default()];
    for (extent, side) in found.iter_mut().zip(sides) {
        let traces = side.traces.iter().map(|&trace| &session.traces()[trace]);
        let cpus = traces
            .clone()
            .map(|trace| trace.fact("cpus").and_then(|cpus| cpus.parse().ok()));
        *extent = Extent {
            seconds: side.length(),
            known_by: side.known_by,
            cpus: common(cpus).flatten(),
            sampling: match event {
                Some(event) => sampling(session, side, event)?,
                None => None,
            },
            length: match side.is_part {
                true => Length::Chosen,
                false => common(traces.map(length_of)).unwrap_or_default(),
            },
        };
    }
    Ok(found)
}

/// Returns the value that all have; `None` if they differ.
fn common<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// Whether a recording lasted as long as somebody wanted, or as long as a command ran. Only our recorder says so.
fn length_of(trace: &Trace) -> Length {
    match (trace.fact("scope"), trace.fact("command_line")) {
        (Some("command"), _) => Length::OfCommand,
        (Some(_), Some(line)) if line.contains(" -- ") => Length::OfCommand,
        (Some(_), Some(_)) => Length::Chosen,
        _ => Length::Unknown,
    }
}

/// Returns how often an event was sampled, the same in all traces of the side.
fn sampling(session: &Session, side: &Side, event: &str) -> Result<Option<String>> {
    let names = side
        .traces
        .iter()
        .map(|&trace| session.traces()[trace].name.as_str());
    let traces = of_traces(session, names);
    let sql = format!(
        "SELECT DISTINCT frequency, period FROM event_types WHERE {traces} AND rows > 0 \
         AND {} IN (event, system || ':' || event)",
        literal(event)
    );
    let mut rates = Vec::new();
    for batch in session.collect(&sql)? {
        let [frequencies, periods] =
            [0, 1].map(|column| batch.column(column).as_primitive::<Int64Type>().clone());
        for row in 0..batch.num_rows() {
            rates.push(match (frequencies.is_valid(row), periods.is_valid(row)) {
                (true, _) => Some(format!("{} Hz", frequencies.value(row))),
                (false, true) => Some(format!("period {}", periods.value(row))),
                (false, false) => None,
            });
        }
    }
    Ok(common(rates.into_iter()).flatten())
}

/// Whether the sums of the sides mislead: each side is as long as somebody chose, and they differ.
pub(super) fn need_rates(extents: &[Extent; 2]) -> bool {
    differ_in_length(extents) && extents.iter().all(|extent| extent.length == Length::Chosen)
}

/// Whether the lengths differ, other than by the work of commands.
fn differ_in_length([before, after]: &[Extent; 2]) -> bool {
    if before.length == Length::OfCommand && after.length == Length::OfCommand {
        return false;
    }
    let [short, long] = match before.seconds < after.seconds {
        true => [before.seconds, after.seconds],
        false => [after.seconds, before.seconds],
    };
    short > 0.0 && long > short * (1.0 + TOLERANCE)
}

/// Describes both sides, if they differ: `the sides differ: 10.000 s and 40.000 s; 2 and 4 CPUs; 997 Hz`.
pub(super) fn summary(extents: &[Extent; 2]) -> Option<String> {
    let [before, after] = extents;
    let is_alike = before.cpus == after.cpus && before.sampling == after.sampling;
    if is_alike && !differ_in_length(extents) {
        return None;
    }
    let mut parts = Vec::new();
    let is_long = |extent: &Extent| extent.seconds > 0.0;
    if is_long(before) || is_long(after) {
        let by_events = [before, after].map(|extent| extent.known_by == Some(KnownBy::Events));
        let known = match by_events {
            [false, false] => "",
            [true, true] => " from first to last event",
            [true, false] => " (the first from first to last event)",
            [false, true] => " (the second from first to last event)",
        };
        parts.push(format!("{} and {}{known}", seconds(before), seconds(after)));
    }
    let both = |values: [Option<String>; 2], unit: &str| match values {
        [None, None] => None,
        [before, after] if before == after => before.map(|value| format!("{value}{unit}")),
        values => {
            let [before, after] = values.map(|value| value.unwrap_or("unknown".to_owned()));
            Some(format!("{before} and {after}{unit}"))
        }
    };
    let cpus = [before, after].map(|extent| extent.cpus.map(|cpus| cpus.to_string()));
    let unit = match (before.cpus, after.cpus) {
        (Some(1), Some(1)) => " CPU",
        _ => " CPUs",
    };
    parts.extend(both(cpus, unit));
    parts.extend(both(
        [before, after].map(|extent| extent.sampling.clone()),
        "",
    ));
    Some(format!("the sides differ: {}", parts.join("; ")))
}

fn seconds(extent: &Extent) -> String {
    match extent.seconds > 0.0 {
        true => format!("{:.3} s", extent.seconds),
        false => "unknown".to_owned(),
    }
}

/// Says what values per second are divided by: `per second of 10.000 s recorded before, 9.998 s from first to last event after`.
pub(super) fn divisors([before, after]: &[Extent; 2]) -> String {
    let known = |extent: &Extent| match extent.known_by {
        Some(KnownBy::Recorder) => "recorded",
        Some(KnownBy::Events) => "from first to last event",
        None => "",
    };
    let side = |extent: &Extent| format!("{} {}", seconds(extent), known(extent));
    let (one, other) = (side(before), side(after));
    match one == other {
        true => format!("per second of {one}"),
        false => format!("per second of {one} before, {other} after"),
    }
}

/// Says how to compare sides whose sums mislead, unless the user has chosen how.
pub(super) fn hint(
    extents: &[Extent; 2],
    has_choice: bool,
    per: Option<&str>,
) -> Option<&'static str> {
    let [before, after] = extents;
    let differ_in_cpus = before
        .cpus
        .zip(after.cpus)
        .is_some_and(|(one, other)| one != other);
    match (has_choice, per) {
        (true, _) => None,
        (false, _) if differ_in_cpus => {
            Some("--per total compares shares, also of hosts with different numbers of CPUs")
        }
        (false, None) if differ_in_length(extents) => {
            Some("--per second compares rates, --per total shares")
        }
        (false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(seconds: f64, cpus: u64, rate: &str, length: Length) -> Extent {
        Extent {
            seconds,
            cpus: Some(cpus),
            known_by: Some(KnownBy::Recorder),
            sampling: Some(rate.to_owned()),
            length,
        }
    }

    #[test]
    fn sides_of_different_extent_are_described_and_compared_by_rates() {
        let sides = [
            extent(10.0, 2, "997 Hz", Length::Chosen),
            extent(40.0, 4, "99 Hz", Length::Chosen),
        ];
        assert_eq!(
            summary(&sides).as_deref(),
            Some("the sides differ: 10.000 s and 40.000 s; 2 and 4 CPUs; 997 Hz and 99 Hz")
        );
        assert!(need_rates(&sides));
        let text = hint(&sides, false, Some("second"));
        assert!(text.is_some_and(|text| text.contains("--per total")));
        let unknown = [
            extent(10.0, 2, "997 Hz", Length::Unknown),
            extent(40.0, 2, "997 Hz", Length::Chosen),
        ];
        assert_eq!(
            summary(&unknown).as_deref(),
            Some("the sides differ: 10.000 s and 40.000 s; 2 CPUs; 997 Hz")
        );
        assert!(!need_rates(&unknown));
        let text = hint(&unknown, false, None);
        assert!(text.is_some_and(|text| text.contains("--per second")));
        assert_eq!(hint(&unknown, true, None), None);
    }

    #[test]
    fn the_lengths_that_rates_are_of_are_named() {
        let mut sides = [10.0, 10.0].map(|length| extent(length, 2, "", Length::Chosen));
        assert_eq!(divisors(&sides), "per second of 10.000 s recorded");
        sides[1].known_by = Some(KnownBy::Events);
        sides[1].seconds = 20.0;
        assert_eq!(
            summary(&sides).as_deref(),
            Some(
                "the sides differ: 10.000 s and 20.000 s (the second from first to last event); 2 CPUs; "
            )
        );
        sides[1].seconds = 10.0;
        assert_eq!(
            divisors(&sides),
            "per second of 10.000 s recorded before, 10.000 s from first to last event after"
        );
    }

    #[test]
    fn runs_of_a_command_are_compared_as_a_whole() {
        let sides = [
            extent(10.0, 2, "997 Hz", Length::OfCommand),
            extent(40.0, 2, "997 Hz", Length::OfCommand),
        ];
        assert_eq!(summary(&sides), None);
        assert!(!need_rates(&sides) && hint(&sides, false, None).is_none());
        let equal = [
            extent(10.0, 2, "", Length::Chosen),
            extent(10.4, 2, "", Length::Chosen),
        ];
        assert_eq!(summary(&equal), None);
        assert!(!need_rates(&equal) && hint(&equal, false, None).is_none());
    }
}
