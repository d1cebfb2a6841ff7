//! What an input says of its recording as a whole, compared with the others of an import.
//!
//! ```text
//! a.data   0.1 s … 0.3 s       rows of losses: paused 1 ns after 0.3 s, resumed at 4.6 s
//! b.data   4.6 s … 4.7 s
//! c.data   4.65 s … 4.8 s      none: b recorded until then
//! ```
//! Nothing is known of a time that no input recorded: states and calls end there. Files into which one recording was
//! divided continue each other.

use std::collections::BTreeMap;

use perfquet_events::Error;
use perfquet_events::event::{Place, Problem};
use perfquet_events::wire::PauseRecord;

use super::Output;
use crate::recorded::{INPUTS, RANGES, printed};
use crate::tables;

/// First and last time; the first is after the last if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    first: i64,
    last: i64,
}

impl Default for Span {
    fn default() -> Span {
        Span {
            first: i64::MAX,
            last: i64::MIN,
        }
    }
}

impl Span {
    #[inline]
    pub(crate) fn see(&mut self, time: i64) {
        self.first = self.first.min(time);
        self.last = self.last.max(time);
    }

    pub(crate) fn known(self) -> Option<(i64, i64)> {
        (self.first <= self.last).then_some((self.first, self.last))
    }

    pub(crate) fn with(self, other: Span) -> Span {
        Span {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// An input that has been read.
#[derive(Debug, Clone, Default)]
pub struct InputSummary {
    /// Its name.
    pub name: String,
    /// First and last time of its events and calls.
    pub times: Option<(i64, i64)>,
    /// Its clock; `None` if the input does not name it.
    pub clock: Option<String>,
    /// Nanoseconds since 1970 at time 0, if the input has them.
    pub wall_offset: Option<i64>,
    /// Host name.
    pub host: Option<String>,
    /// Kernel release.
    pub os_release: Option<String>,
    /// ID of the boot.
    pub boot: Option<String>,
    /// The same for all files of one recording.
    pub recording: Option<String>,
    /// When its recorder said that it recorded.
    pub recorded: Option<Vec<(i64, i64)>>,
}

impl InputSummary {
    /// From where to where it was recorded, as far as known. The last event is inside: what it ends has ended then.
    fn span(&self) -> Option<(i64, i64)> {
        let (first, last) = self.times?;
        let last = last.saturating_add(1);
        let ranges = self.recorded.as_deref().unwrap_or_default();
        let begin = ranges.first().map_or(first, |range| first.min(range.0));
        let end = ranges.last().map_or(last, |range| last.max(range.1));
        Some((begin, end))
    }
}

/// Returns the fact that says when several inputs were recorded, and its value. `None` for a single input, and for inputs without gaps
/// whose recorders do not say.
fn recorded(inputs: &[InputSummary]) -> Option<(&'static str, String)> {
    let mut with_times = inputs.iter().filter(|input| input.times.is_some());
    let is_one = with_times.clone().count() < 2;
    let name = match with_times.all(|input| input.recorded.is_some()) {
        true => RANGES,
        false => INPUTS,
    };
    let ranges = inputs.iter().flat_map(|input| match &input.recorded {
        Some(ranges) => ranges.clone(),
        None => input.times.into_iter().collect(),
    });
    let ranges = PauseRecord::joined(ranges.collect());
    (!is_one && (name == RANGES || !gaps(inputs).is_empty())).then(|| (name, printed(&ranges)))
}

/// The times that no input recorded.
fn gaps(inputs: &[InputSummary]) -> Vec<(i64, i64)> {
    let mut spans: Vec<(i64, i64)> = Vec::new();
    let mut recordings: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for input in inputs {
        let Some(times) = input.span() else { continue };
        match &input.recording {
            Some(recording) => recordings.entry(recording).or_default().push(times),
            None => spans.push(times),
        }
    }
    for files in recordings.into_values() {
        spans.extend(files.into_iter().reduce(|(first, last), file| {
            // What is between them is in a file that is not there, or nothing happened.
            (first.min(file.0), last.max(file.1))
        }));
    }
    PauseRecord::between(spans)
}

/// The longest time between two files of one recording without an event, if it is longer than both: a third may be missing.
fn suspicion(inputs: &[InputSummary]) -> Option<(i64, &str)> {
    let files = |input: &'_ InputSummary| input.recording.is_some() && input.times.is_some();
    let mut files: Vec<&InputSummary> = inputs.iter().filter(|input| files(input)).collect();
    files.sort_by_key(|input| (&input.recording, input.times));
    let mut longest = None;
    let mut former: Option<&InputSummary> = None;
    for file in files {
        let before = former.filter(|former| former.recording == file.recording);
        if let Some(((first, last), (begin, end))) = before.and_then(|it| it.times).zip(file.times)
        {
            let (one, other) = (last.saturating_sub(first), end.saturating_sub(begin));
            let between = begin.saturating_sub(last);
            if between > one.max(other) {
                longest = longest.max(Some((between, file.name.as_str())));
            }
        }
        former = Some(file);
    }
    longest
}

impl Output {
    /// What the last input said of its recording.
    pub fn summary(&mut self) -> InputSummary {
        InputSummary {
            name: self.source.clone(),
            ..std::mem::take(&mut self.summary)
        }
    }

    /// Adds a problem of the last input as a whole.
    pub fn add_problem(&mut self, problem: Problem<'_>) {
        self.problems.add(&self.source, &problem);
    }

    /// Adds the times that none of these inputs recorded to the losses, and when all were recorded to the facts.
    pub fn add_gaps(&mut self, inputs: &[InputSummary]) -> Result<(), Error> {
        if let Some((between, name)) = suspicion(inputs) {
            let message = format!(
                "no event in the {} ms before this file, which is longer than the files of the recording around them: one may be missing",
                between / 1_000_000
            );
            let problem = Problem {
                place: Place::Whole,
                count: 1,
                message: &message,
            };
            self.problems.add(name, &problem);
        }
        let recorded = recorded(inputs).filter(|_| !self.is_one_recording);
        if let Some((name, ranges)) = recorded {
            self.facts.other.insert(name.to_owned(), ranges);
        }
        let table = self.fixed.losses;
        for (begin, end) in gaps(inputs) {
            for (time, reason) in [(begin, PauseRecord::PAUSED), (end, PauseRecord::RESUMED)] {
                tables::losses::Row {
                    time: Some(time),
                    cpu: None,
                    event: None,
                    count: None,
                    reason: reason.as_bytes(),
                }
                .push(self.writer.rows(table));
                self.writer.end_row(table)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(inputs: &[(i64, i64, &str)]) -> Vec<(i64, i64)> {
        let inputs: Vec<InputSummary> = inputs
            .iter()
            .map(|&(first, last, recording)| InputSummary {
                times: Some((first, last)),
                recording: (!recording.is_empty()).then(|| recording.to_owned()),
                ..InputSummary::default()
            })
            .collect();
        gaps(&inputs)
    }

    #[test]
    fn times_that_no_input_recorded() {
        assert_eq!(found(&[(0, 10, ""), (50, 60, "")]), [(11, 50)]);
        assert_eq!(found(&[(50, 60, ""), (0, 10, ""), (5, 49, "")]), []);
        assert_eq!(found(&[(50, 60, ""), (0, 10, ""), (5, 47, "")]), [(48, 50)]);
        assert_eq!(found(&[(0, 100, ""), (5, 10, ""), (50, 60, "")]), []);
        assert_eq!(found(&[(0, 10, ""), (10, 20, "")]), []);
        assert_eq!(found(&[(0, 10, ""), (11, 20, "")]), []);
        assert_eq!(
            gaps(&[InputSummary::default(), InputSummary::default()]),
            []
        );
    }

    #[test]
    fn what_several_inputs_recorded() {
        let input = |times, recorded: Option<(i64, i64)>| InputSummary {
            times: Some(times),
            recorded: recorded.map(|range| vec![range]),
            ..InputSummary::default()
        };
        let (quiet, plain) = (input((5, 9), Some((0, 20))), input((50, 60), None));
        let later = input((50, 60), Some((40, 70)));
        let fact = |inputs: &[&InputSummary]| {
            let inputs: Vec<InputSummary> = inputs.iter().map(|input| (*input).clone()).collect();
            recorded(&inputs)
        };
        assert_eq!(
            fact(&[&later, &quiet]),
            Some((RANGES, "0..20 40..70".to_owned()))
        );
        assert_eq!(
            fact(&[&quiet, &plain]),
            Some((INPUTS, "0..20 50..60".to_owned()))
        );
        assert_eq!(fact(&[&plain, &plain]), None);
        assert_eq!(fact(&[&quiet]), None);
        assert_eq!(gaps(&[quiet, plain]), [(20, 50)]);
    }

    #[test]
    fn files_of_one_recording_continue_each_other() {
        assert_eq!(
            found(&[(0, 100, "a"), (101, 200, "a"), (203, 300, "a")]),
            []
        );
        assert_eq!(found(&[(0, 100, "a"), (102, 200, "b")]), [(101, 102)]);
        // The one between them may be missing.
        let inputs = [(0, 100), (101, 200), (403, 500)].map(|times| InputSummary {
            name: times.0.to_string(),
            times: Some(times),
            recording: Some("a".to_owned()),
            ..InputSummary::default()
        });
        assert_eq!(suspicion(&inputs), Some((203, "403")));
        assert_eq!(suspicion(&inputs[..2]), None);
    }
}
