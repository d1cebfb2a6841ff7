//! The traces of a page: one, or those of a timeline.
//!
//! ```text
//! host   ├──────────────────────────┤         the clock of the first is that of the page
//! guest        ├───────────┤                  the others have a place on it, each with an error
//! ```
//! Rows of a trace are read from a session of its own, so that all numbers are those of the reports of that trace.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use perfquet::align::{Method, Placement};
use perfquet::unit::in_fitting_unit;
use perfquet::{Session, Trace};
use perfquet_trace::count::counted;

use super::since::Since;

/// A trace of a page.
pub(super) struct Side<'s> {
    pub(super) session: &'s Session,
    /// Its name among the traces of the page.
    pub(super) name: &'s str,
    pub(super) since: Since,
}

/// The traces that share a time axis, by their number among all.
pub(super) struct Axis {
    pub(super) traces: Vec<usize>,
    /// First and last time.
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) is_aligned: bool,
}

impl Axis {
    /// The axis of one trace, by its own clock.
    pub(super) fn own(number: usize, (begin, end): (i64, i64)) -> Axis {
        Axis {
            traces: vec![number],
            begin,
            end,
            is_aligned: false,
        }
    }

    /// One axis for all traces with a place on the timeline of the first, and one for each of the others.
    /// `ranges` are first and last time of each, by its own clock.
    pub(super) fn all(traces: &[Trace], ranges: &[(i64, i64)]) -> Result<Vec<Axis>> {
        let (placed, others): (Vec<usize>, Vec<usize>) =
            (0..traces.len()).partition(|&number| traces[number].placement.is_some());
        let mut axis: Option<(i64, i64)> = None;
        for &number in &placed {
            let trace = &traces[number];
            let (Some(placement), (start, end)) = (trace.placement, ranges[number]) else {
                continue;
            };
            if (start, end) == (0, 0) {
                continue;
            }
            let place = |time| {
                let place = placement.place(time);
                place.with_context(|| format!("{}: its times are too far away", trace.name))
            };
            let (start, end) = (place(start)?, place(end)?);
            axis = Some(match axis {
                Some((first, last)) => (first.min(start), last.max(end)),
                None => (start, end),
            });
        }
        let (begin, end) = axis.unwrap_or((0, 0));
        let mut all = vec![Axis {
            traces: placed,
            begin,
            end,
            is_aligned: true,
        }];
        all.extend(
            others
                .into_iter()
                .map(|number| Axis::own(number, ranges[number])),
        );
        Ok(all)
    }

    pub(super) fn length(&self) -> i64 {
        self.end.saturating_sub(self.begin).max(1)
    }

    pub(super) fn since(&self) -> Since {
        match self.is_aligned {
            true => Since::aligned(self.begin),
            false => Since::own(self.begin),
        }
    }

    /// Where a trace begins on the axis, and how many nanoseconds of its own clock a second of the axis has.
    pub(super) fn place_of(&self, trace: &Trace) -> Value {
        let start = trace.time_range().map(|(start, _)| start);
        let placement = trace.placement.filter(|_| self.is_aligned);
        let place = |time: i64| match placement {
            Some(placement) => placement.place(time),
            None => Some(time),
        };
        let begin = start
            .and_then(place)
            .map(|at| at.saturating_sub(self.begin));
        let drift = placement.map_or(0, |placement| placement.drift);
        json!({"begin": begin, "drift": drift})
    }
}

/// Says where a trace stands on the timeline of the first, and how sure that is.
pub(super) fn words(reference: &str, trace: &Trace) -> String {
    let Some(placement) = trace.placement else {
        return format!("own time axis: how its clock relates to that of {reference} is not known");
    };
    if placement.method == Method::Reference {
        return "its clock is the time axis".to_owned();
    }
    let mut all = vec![format!(
        "on the time axis of {reference} by {}",
        by(&placement)
    )];
    if placement.shift != 0 {
        let sign = if placement.shift < 0 { "-" } else { "+" };
        let shift = in_fitting_unit(placement.shift.unsigned_abs() as f64);
        all.push(format!("times {sign}{shift}"));
    }
    if placement.drift != 0 {
        all.push(format!("drift {} ppm", placement.drift as f64 / 1e3));
    }
    all.push(error(&placement));
    all.join(", ")
}

fn by(placement: &Placement) -> String {
    let what = match placement.method {
        Method::Reference => "its clock",
        Method::SameClock => "the same clock",
        Method::WallClock => "wall-clock time",
        Method::TimeShift => "trace-cmd's time shift",
        Method::Events => "common events",
        Method::Messages => "messages",
        Method::Start => "the first event of each, not the same moment",
        Method::Given => "a given shift",
    };
    match (placement.method, placement.pairs) {
        (Method::Events | Method::Messages, pairs @ 1..) => {
            format!("{what} ({})", counted(pairs, "pair"))
        }
        _ => what.to_owned(),
    }
}

/// The error of a placement in words.
pub(super) fn error(placement: &Placement) -> String {
    match placement.error {
        Some(error) => format!("error {}", in_fitting_unit(error as f64)),
        None => "error not known".to_owned(),
    }
}
