//! Samples of threads, one by one.

use std::borrow::Cow;

use super::tables::member;
use crate::json::{Elements, decimal, elements, inside, integer, text};

/// A thread with its samples and markers.
#[derive(Debug)]
pub(super) struct Thread<'a> {
    pub(super) object: &'a [u8],
    pub(super) name: Cow<'a, [u8]>,
    pub(super) process: Cow<'a, [u8]>,
    pub(super) is_main: bool,
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    /// Index of its tables.
    pub(super) tables: usize,
    /// Index of its event.
    pub(super) event: u32,
    pub(super) weights: Weights,
    pub(super) samples: Samples<'a>,
}

/// What weights are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weights {
    /// Milliseconds.
    Time,
    Samples,
    Bytes,
}

/// The columns of samples.
#[derive(Debug)]
pub(super) struct Samples<'a> {
    stacks: Elements<'a>,
    times: Elements<'a>,
    weights: Option<Elements<'a>>,
    has_deltas: bool,
    /// Of the last sample, in picoseconds.
    time_ps: i64,
}

/// A sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    /// JSON of the index.
    pub(super) stack: &'a [u8],
    pub(super) time: Option<i64>,
    /// Of null, a sample counts as one.
    pub(super) weight: Option<&'a [u8]>,
}

impl<'a> Thread<'a> {
    pub(super) fn of(object: &'a [u8], tables: usize) -> Thread<'a> {
        let of = |name: &[u8]| member(&[object], name);
        let id = |value: &[u8]| {
            // Firefox appends to IDs that occur twice: "100-1".
            let digits = inside(value).unwrap_or(value);
            let end = digits.iter().position(|byte| !byte.is_ascii_digit());
            integer(digits.get(..end.unwrap_or(digits.len()))?)
                .and_then(|id| i32::try_from(id).ok())
        };
        let samples = of(b"samples");
        // Our exports have the IDs that are known, if one is not, and a name in brackets for none.
        let (mut pid, mut tid, mut name) = (id(of(b"pid")), id(of(b"tid")), text(of(b"name")));
        let ours = of(b"perfquet");
        if !ours.is_empty() {
            pid = id(member(&[ours], b"pid"));
            tid = id(member(&[ours], b"tid"));
            if &*name == b"[unknown]" {
                name = Cow::default();
            }
        }
        Thread {
            object,
            name,
            process: match of(b"processName") {
                b"null" => Cow::default(),
                name => text(name),
            },
            is_main: of(b"isMainThread") == b"true",
            pid,
            tid,
            tables,
            event: 0,
            weights: match inside(member(&[samples], b"weightType")) {
                Some(b"tracing-ms") => Weights::Time,
                Some(b"bytes") => Weights::Bytes,
                _ => Weights::Samples,
            },
            samples: Samples::of(samples),
        }
    }
}

impl<'a> Samples<'a> {
    /// The columns of a table of samples or allocations.
    pub(super) fn of(object: &'a [u8]) -> Samples<'a> {
        let of = |name: &[u8]| member(&[object], name);
        let (times, deltas) = (of(b"time"), of(b"timeDeltas"));
        // In old versions, allocations have their sizes as durations.
        let weights = match of(b"weight") {
            b"" => of(b"duration"),
            weights => weights,
        };
        Samples {
            stacks: elements(of(b"stack")),
            has_deltas: times.is_empty(),
            times: elements(if times.is_empty() { deltas } else { times }),
            weights: weights.starts_with(b"[").then(|| elements(weights)),
            time_ps: 0,
        }
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        let stack = self.stacks.next()?;
        let found = self.times.next().and_then(|value| decimal(value, 9));
        let time_ps = match self.has_deltas {
            true => found.and_then(|delta| self.time_ps.checked_add(delta)),
            false => found,
        };
        self.time_ps = time_ps.unwrap_or(self.time_ps);
        Some(Row {
            stack,
            time: time_ps.map(nanoseconds),
            weight: self
                .weights
                .as_mut()
                .map(|weights| weights.next().unwrap_or(b"null")),
        })
    }
}

/// The nearest nanosecond.
pub(super) fn nanoseconds(picoseconds: i64) -> i64 {
    picoseconds.saturating_add(500).div_euclid(1000)
}
