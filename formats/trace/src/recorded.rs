//! When something was recorded: from where to where, and how that is known.
//!
//! ```text
//! recorded.ranges   1000..6000 8000..9000      the fact of a recording with a pause, on the trace's clock: 6 us
//! recorded.inputs   1000..6000 8000..9000      of inputs whose recorder does not say, from the first to the last event of each
//! ```
//! A recorder that says when it recorded knows the quiet time before the first event and after the last one. Of other traces, only the time from the first
//! to the last event is known to have been recorded: rates over it are upper bounds.

use std::collections::BTreeMap;

/// The fact with the ranges of time that were recorded: `BEGIN..END BEGIN..END …`, in nanoseconds of the trace's clock.
pub const RANGES: &str = "recorded.ranges";
/// The fact with the ranges of several inputs with time between them, if not all of their recorders said when they recorded.
pub const INPUTS: &str = "recorded.inputs";

/// How it is known when something was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownBy {
    /// The recorder said so.
    Recorder,
    /// From the first to the last event.
    Events,
}

impl KnownBy {
    /// Its words: "first to last event".
    pub fn words(self) -> &'static str {
        match self {
            KnownBy::Recorder => "recorder",
            KnownBy::Events => "first to last event",
        }
    }
}

/// When something was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// In the order of time, without overlaps; at least one.
    ranges: Vec<(i64, i64)>,
    /// How that is known.
    pub known_by: KnownBy,
}

impl Recorded {
    /// Returns when a trace was recorded, by its facts, or else by the times of its first and last event. `fact` returns a
    /// fact by name.
    pub fn of<'f>(
        fact: impl Fn(&str) -> Option<&'f str>,
        events: Option<(i64, i64)>,
    ) -> Option<Recorded> {
        for (name, known_by) in [(RANGES, KnownBy::Recorder), (INPUTS, KnownBy::Events)] {
            if let Some(ranges) = fact(name).and_then(parse) {
                return Some(Recorded { ranges, known_by });
            }
        }
        let events = events.filter(|(first, last)| first <= last)?;
        Some(Recorded {
            ranges: vec![events],
            known_by: KnownBy::Events,
        })
    }

    /// Returns when a trace was recorded, by its facts, or else by the times of its tables: their names, first and last time. `None` if no
    /// two times are known, or only those of the recorder's notes, most of which are from its start.
    pub fn of_tables<'t>(
        fact: impl Fn(&str) -> Option<&'t str>,
        tables: impl Iterator<Item = (&'t str, Option<(i64, i64)>)>,
    ) -> Option<Recorded> {
        let mut events: Option<(i64, i64)> = None;
        let mut has_others = false;
        for (name, time) in tables.filter(|(name, _)| is_of_recording(name)) {
            let Some((first, last)) = time else {
                continue;
            };
            has_others |= !is_note(name);
            events = Some(match events {
                Some(all) => (all.0.min(first), all.1.max(last)),
                None => (first, last),
            });
        }
        let recorded = Recorded::of(fact, events.filter(|_| has_others));
        recorded.filter(|recorded| recorded.length() > 0)
    }

    /// When it began.
    pub fn begin(&self) -> i64 {
        self.ranges.first().map_or(0, |range| range.0)
    }

    /// When it ended.
    pub fn end(&self) -> i64 {
        self.ranges.last().map_or(0, |range| range.1)
    }

    /// Number of times at which the recording was interrupted.
    pub fn pauses(&self) -> usize {
        self.ranges.len().saturating_sub(1)
    }

    /// Nanoseconds that were recorded, without pauses.
    pub fn length(&self) -> i64 {
        self.length_within(i64::MIN, i64::MAX)
    }

    /// Nanoseconds that were recorded between two times.
    pub fn length_within(&self, from: i64, to: i64) -> i64 {
        let lengths = clipped(&self.ranges, from, to).into_iter();
        // Without overlaps, the sum has at most 64 bits.
        let sum: i128 = lengths
            .map(|(begin, end)| i128::from(end) - i128::from(begin))
            .sum();
        i64::try_from(sum).unwrap_or(i64::MAX)
    }
}

/// Whether a table has times of what was recorded.
pub fn is_of_recording(table: &str) -> bool {
    table.starts_with("events/") || ["samples", "calls", "aggregates"].contains(&table)
}

/// Whether a table has what a recorder notes of the recording itself.
fn is_note(table: &str) -> bool {
    let mut folders = ["events/perf/", "events/perfquet/"].into_iter();
    folders.any(|folder| table.starts_with(folder))
}

/// Reads the fact; `None` if it is not one.
pub(crate) fn parse(text: &str) -> Option<Vec<(i64, i64)>> {
    let ranges: Option<Vec<(i64, i64)>> = text
        .split(' ')
        .map(|range| {
            let (begin, end) = range.split_once("..")?;
            Some((begin.parse().ok()?, end.parse().ok()?))
        })
        .collect();
    let ranges = ranges?;
    let is_ordered = ranges.iter().all(|(begin, end)| begin <= end)
        && ranges
            .iter()
            .zip(ranges.iter().skip(1))
            .all(|(one, next)| one.1 <= next.0);
    (is_ordered && !ranges.is_empty()).then_some(ranges)
}

/// Keeps the parts of ranges between two times.
fn clipped(ranges: &[(i64, i64)], from: i64, to: i64) -> Vec<(i64, i64)> {
    let parts = ranges
        .iter()
        .map(|&(begin, end)| (begin.max(from), end.min(to)));
    parts.filter(|(begin, end)| begin <= end).collect()
}

/// The fact of ranges.
pub(crate) fn printed(ranges: &[(i64, i64)]) -> String {
    let ranges: Vec<String> = ranges
        .iter()
        .map(|(begin, end)| format!("{begin}..{end}"))
        .collect();
    ranges.join(" ")
}

/// Limits the fact to what rows are kept of; removes it if `bounds` are not known.
pub(crate) fn limit(facts: &mut BTreeMap<String, String>, bounds: Option<(i64, i64)>) {
    let Some(ranges) = facts.remove(RANGES).as_deref().and_then(parse) else {
        return;
    };
    let kept = bounds.map(|(from, to)| clipped(&ranges, from, to));
    if let Some(kept) = kept.filter(|kept| !kept.is_empty()) {
        facts.insert(RANGES.to_owned(), printed(&kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str, events: Option<(i64, i64)>) -> Option<Recorded> {
        Recorded::of(|fact| (fact == name).then_some(value), events)
    }

    #[test]
    fn the_recorder_knows_quiet_time_and_pauses() {
        let recorded = of(RANGES, "1000..6000 8000..9000", Some((2000, 2010))).unwrap();
        assert_eq!(recorded.known_by, KnownBy::Recorder);
        assert_eq!((recorded.begin(), recorded.end()), (1000, 9000));
        assert_eq!((recorded.length(), recorded.pauses()), (6000, 1));
        assert_eq!(recorded.length_within(5000, 8500), 1500);
        assert_eq!(recorded.length_within(6500, 7000), 0);
    }

    #[test]
    fn without_a_valid_fact_events_tell() {
        for fact in ["", "5", "9..5", "1..5 4..9", "x..y"] {
            let recorded = of(RANGES, fact, Some((2000, 2010))).unwrap();
            assert_eq!(
                (recorded.known_by, recorded.length()),
                (KnownBy::Events, 10)
            );
        }
        assert_eq!(Recorded::of(|_| None, None), None);
        let all = format!("{}..{}", i64::MIN, i64::MAX);
        assert_eq!(of(RANGES, &all, None).unwrap().length(), i64::MAX);
    }

    #[test]
    fn time_between_inputs_was_not_recorded() {
        let recorded = of(INPUTS, "0..10 50..60", Some((0, 60))).unwrap();
        assert_eq!(
            (recorded.known_by, recorded.length()),
            (KnownBy::Events, 20)
        );
    }

    #[test]
    fn the_fact_is_limited_to_what_is_kept() {
        let limited = |bounds| {
            let mut facts = BTreeMap::from([(RANGES.to_owned(), "10..20 30..40".to_owned())]);
            limit(&mut facts, bounds);
            facts.remove(RANGES)
        };
        assert_eq!(
            limited(Some((15, i64::MAX))).as_deref(),
            Some("15..20 30..40")
        );
        assert_eq!(limited(Some((i64::MIN, 25))).as_deref(), Some("10..20"));
        assert_eq!(limited(Some((21, 29))), None);
        assert_eq!(limited(None), None);
    }
}
