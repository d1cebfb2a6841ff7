//! `--start-on` and `--stop-on`: a recording that begins and ends with something that happens.
//!
//! ```text
//! --start-on entry:do_sys_openat2      p:pq_…/do_sys_openat2 do_sys_openat2       its first hit begins the trace
//! --stop-on exit:./prog:work           r:pq_…/work__return /…/prog:0x1189         its first one after that ends it
//! --stop-on time:5s                    five seconds after the beginning
//! ```
//! The first of several triggers that fires decides. Encoding cuts the trace at the time stamps of the hits, however
//! late the recorder notices them, so the only cost is that of the events until then. [`Gate`] is the drain's part:
//! before the start, only the contents of the rings at the time of the trigger reach the journal.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use perfquet_cli::quantity::duration;
use perfquet_events::event::{Purpose, Selection};

use crate::failure::{Failure, misuse};
use crate::journal::record::kind;
use crate::probe::definition::{Definition, Definitions};
use crate::probe::{self, Kind, Probe, call, kprobe, uprobe};
use crate::recording::{Recording, Track};
use crate::sys::clock;
use crate::sys::ring::{Head, Ring};

/// Margin before a start time, for events that the encoding cuts exactly.
const EARLIER_NS: u64 = 1_000_000_000;

/// Start and stop triggers.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TriggerOptions {
    /// Start the trace at entry:FUNC, exit:FUNC or time:TIME; repeatable
    ///
    /// FUNC is a kernel function or OBJECT:FUNC. The first trigger that fires starts the trace.
    #[arg(long, value_name = "TRIGGER", value_parser = trigger)]
    start_on: Vec<Trigger>,
    /// Stop the trace at entry:FUNC, exit:FUNC or time:TIME; repeatable
    ///
    /// TIME counts from the start of the trace. The first trigger that fires stops it.
    #[arg(long, value_name = "TRIGGER", value_parser = trigger)]
    stop_on: Vec<Trigger>,
}

/// Condition that starts or stops the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trigger {
    /// A call of a function.
    Call {
        /// The option's value.
        text: String,
        /// FUNC or OBJECT:FUNC
        function: String,
        /// Whether the trigger is the return.
        at_return: bool,
    },
    /// After this time.
    Time(Duration),
}

/// `entry:FUNC`, `exit:OBJECT:FUNC`, `time:5s`.
fn trigger(text: &str) -> Result<Trigger, String> {
    let expected = || "expected entry:FUNC, exit:FUNC or time:TIME".to_owned();
    let (word, rest) = text.split_once(':').ok_or_else(expected)?;
    match word {
        "entry" | "exit" if !rest.trim().is_empty() => Ok(Trigger::Call {
            text: text.to_owned(),
            function: rest.trim().to_owned(),
            at_return: word == "exit",
        }),
        "time" => Ok(Trigger::Time(duration(rest)?)),
        _ => Err(expected()),
    }
}

/// The shortest of the times, in nanoseconds.
fn time_of(triggers: &[Trigger]) -> Option<i64> {
    let times = triggers.iter().filter_map(|trigger| match trigger {
        Trigger::Time(time) => Some(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)),
        Trigger::Call { .. } => None,
    });
    times.min()
}

impl TriggerOptions {
    /// Whether there is any.
    pub(crate) fn is_requested(&self) -> bool {
        !self.start_on.is_empty() || !self.stop_on.is_empty()
    }

    /// Adds triggers written in the same way.
    pub(crate) fn add(
        &mut self,
        start_on: Option<&str>,
        stop_on: Option<&str>,
    ) -> Result<(), Failure> {
        for (text, list) in [(start_on, &mut self.start_on), (stop_on, &mut self.stop_on)] {
            if let Some(text) = text {
                list.push(trigger(text).map_err(|error| misuse(format!("{text}: {error}")))?);
            }
        }
        Ok(())
    }

    /// Adds the selection known before the recording starts; fails for contradictions.
    pub(crate) fn add_to(&self, selection: &mut Selection) -> Result<(), Failure> {
        if let Some(both) = self
            .start_on
            .iter()
            .find(|start| matches!(start, Trigger::Call { .. }) && self.stop_on.contains(start))
            && let Trigger::Call { text, .. } = both
        {
            return Err(misuse(format!(
                "{text}: starts and stops the trace at the same time"
            ))
            .hint("use entry:FUNC to start and exit:FUNC to stop with the same call"));
        }
        let has_calls = self
            .start_on
            .iter()
            .any(|start| matches!(start, Trigger::Call { .. }));
        let start_after = time_of(&self.start_on);
        if has_calls && start_after.is_some() {
            return Err(misuse(
                "--start-on: expected a function or a time, found both",
            ));
        }
        selection.waits = has_calls;
        selection.stop_after = time_of(&self.stop_on);
        Ok(())
    }

    /// Reports triggers that did not fire.
    pub(crate) fn complain(&self, selection: &Selection, seen: &Seen) {
        let texts = |triggers: &[Trigger]| {
            let texts = triggers.iter().filter_map(|trigger| match trigger {
                Trigger::Call { text, .. } => Some(text.as_str()),
                Trigger::Time(_) => None,
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        if selection.waits && !seen.has_started() {
            let texts = texts(&self.start_on);
            log::warn!("--start-on {texts}: it did not fire, so the trace has no events");
            return;
        }
        let texts = texts(&self.stop_on);
        if !texts.is_empty() && !seen.is_over(selection) {
            log::warn!("--stop-on {texts}: it did not fire before the recording ended");
        }
    }

    /// Returns the probes of the triggers.
    pub(crate) fn probes(
        &self,
        definitions: &mut Option<Definitions>,
    ) -> Result<Vec<Probe>, Failure> {
        let mut probes = Vec::new();
        let starts = self.start_on.iter().map(|trigger| (trigger, true));
        let stops = self.stop_on.iter().map(|trigger| (trigger, false));
        for (trigger, is_start) in starts.chain(stops) {
            let Trigger::Call {
                text,
                function,
                at_return,
            } = trigger
            else {
                continue;
            };
            let purpose = match is_start {
                true => Purpose::Start(text.clone()),
                false => Purpose::Stop(text.clone()),
            };
            let found = match probe::is_of_program(function) {
                true => uprobe::definitions(function, *at_return)?,
                false => kprobe::definitions(function, *at_return)?,
            };
            let found: Vec<Definition> = found
                .into_iter()
                .map(|definition| Definition {
                    system: definition.system.replacen("probe", "trigger", 1),
                    ..definition
                })
                .collect();
            let defined = Definitions::of(definitions)?.define_all(&found)?;
            let triggers = defined.into_iter();
            probes.extend(triggers.map(|probe| call::with_purpose(probe, purpose.clone())));
        }
        Ok(probes)
    }

    /// Returns the selection of a recording that started then; `None` if the journal's head already contains it.
    pub(crate) fn begun(&self, selection: &Selection, began: u64) -> Option<Selection> {
        let start_after = time_of(&self.start_on);
        if selection.waits || (start_after.is_none() && selection.stop_after.is_none()) {
            return None;
        }
        let began = i64::try_from(began).ok()?;
        Some(Selection {
            begin: began.checked_add(start_after.unwrap_or(0)),
            ..selection.clone()
        })
    }
}

/// The gate's progress, for observers.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Time of the first trigger; 0 if none fired yet.
    started_at: AtomicU64,
    /// Time of the last trigger that could end it.
    stopped_at: AtomicU64,
}

impl Seen {
    /// Whether the trace has an end.
    pub(crate) fn is_over(&self, selection: &Selection) -> bool {
        if self.has_stopped(selection) {
            return true;
        }
        let after = selection
            .stop_after
            .and_then(|after| u64::try_from(after).ok());
        let end = self
            .begin(selection)
            .zip(after)
            .map(|(start, after)| start.saturating_add(after));
        end.is_some_and(|end| clock::monotonic() >= end)
    }

    /// Returns the start of the trace, as far as it is known.
    fn begin(&self, selection: &Selection) -> Option<u64> {
        match self.started_at.load(Ordering::Acquire) {
            0 => selection.begin.and_then(|begin| u64::try_from(begin).ok()),
            time => Some(time),
        }
    }

    /// Whether a stop trigger has fired after the start of the trace.
    pub(crate) fn has_stopped(&self, selection: &Selection) -> bool {
        if selection.waits && !self.has_started() {
            return false;
        }
        let started_at = self.begin(selection).unwrap_or(0);
        let stopped_at = self.stopped_at.load(Ordering::Acquire);
        stopped_at != 0 && stopped_at >= started_at
    }

    /// Whether a trigger that begins the trace has fired.
    pub(crate) fn has_started(&self) -> bool {
        self.started_at.load(Ordering::Acquire) != 0
    }
}

/// Decides which records the drain passes on.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    starts: HashSet<u64>,
    stops: HashSet<u64>,
    is_open: bool,
    opens_at: u64,
    seen: Arc<Seen>,
    /// Position in each ring up to which it was scanned.
    looked: Vec<u64>,
}

impl Gate {
    /// Creates a gate that waits for the triggers of a recording; it is open if there are none.
    pub(crate) fn of(recording: &Recording, selection: &Selection) -> Gate {
        let ids = |is_it: fn(&Purpose) -> bool| {
            let tracks = recording.tracks.iter();
            let triggers = tracks.filter(|track| purpose_of(track).is_some_and(is_it));
            triggers
                .flat_map(|track| track.events.iter().map(|opened| opened.id))
                .collect()
        };
        Gate {
            starts: ids(|purpose| matches!(purpose, Purpose::Start(_))),
            stops: ids(|purpose| matches!(purpose, Purpose::Stop(_))),
            is_open: !selection.waits,
            opens_at: 0,
            seen: Arc::default(),
            looked: Vec::new(),
        }
    }

    /// Returns the progress, for observers.
    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    /// Drops everything before this time.
    pub(crate) fn open_at(&mut self, begin: u64) {
        self.opens_at = begin.saturating_sub(EARLIER_NS);
    }

    /// Scans the new records in the rings for triggers. Returns the positions up to which the rings may be drained.
    /// Records from before the start are dropped here, except those since the last scan: a hit that is being written on
    /// another CPU may be older.
    pub(crate) fn look(&mut self, rings: &mut [Ring]) -> Vec<u64> {
        self.looked.resize(rings.len(), 0);
        let before = self.looked.clone();
        for (ring, looked) in rings.iter().zip(&mut self.looked) {
            *looked = match self.is_open && self.stops.is_empty() {
                true => ring.head(),
                false => {
                    let (starts, stops, seen) = (&self.starts, &self.stops, &self.seen);
                    ring.look((*looked).max(ring.tail()), |head| {
                        note(starts, stops, seen, head)
                    })
                }
            };
        }
        self.is_open |= self.seen.has_started() && !self.starts.is_empty();
        if self.is_open && clock::monotonic() >= self.opens_at {
            return self.looked.clone();
        }
        for (ring, until) in rings.iter_mut().zip(&before) {
            ring.discard(*until);
        }
        rings.iter().map(Ring::tail).collect()
    }
}

fn note(starts: &HashSet<u64>, stops: &HashSet<u64>, seen: &Seen, head: Head) {
    if head.kind != kind::SAMPLE {
        return;
    }
    // Rings are scanned one by one, so the earliest hit decides.
    if starts.contains(&head.id) {
        let first = seen.started_at.load(Ordering::Relaxed);
        if first == 0 || head.time < first {
            seen.started_at.store(head.time.max(1), Ordering::Release);
        }
    }
    if stops.contains(&head.id) {
        seen.stopped_at.fetch_max(head.time, Ordering::AcqRel);
    }
}

/// Returns the purpose of a track's hits, unless they are plain rows.
pub(crate) fn purpose_of(track: &Track) -> Option<&Purpose> {
    match &track.probe.kind {
        Kind::Tracepoint(tracepoint) => Some(&tracepoint.purpose),
        Kind::Sampled | Kind::Output { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(start: &[&str], stop: &[&str]) -> TriggerOptions {
        let all = |texts: &[&str]| texts.iter().map(|text| trigger(text).unwrap()).collect();
        TriggerOptions {
            start_on: all(start),
            stop_on: all(stop),
        }
    }

    #[test]
    fn words() {
        let function = |text| match trigger(text) {
            Ok(Trigger::Call {
                function,
                at_return,
                ..
            }) => format!("{function} {at_return}"),
            other => format!("{other:?}"),
        };
        assert_eq!(function("entry:vfs_read"), "vfs_read false");
        assert_eq!(function("exit:./prog:work"), "./prog:work true");
        assert_eq!(
            trigger("time:5s"),
            Ok(Trigger::Time(Duration::from_secs(5)))
        );
        for wrong in ["vfs_read", "entry:", "enter:f", "time:soon"] {
            assert!(trigger(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn selection_in_the_journal() {
        let mut selection = Selection::default();
        let timed = options(&["time:1us"], &["time:5us", "time:2us", "exit:f"]);
        timed.add_to(&mut selection).unwrap();
        assert!(!selection.waits);
        let begun = timed.begun(&selection, 10).unwrap();
        assert_eq!((begun.begin, begun.stop_after), (Some(1010), Some(2000)));
        let called = options(&["entry:f"], &["exit:f", "time:1s"]);
        called.add_to(&mut selection).unwrap();
        assert!(selection.waits && called.begun(&selection, 10).is_none());
        for (start, stop) in [
            (&["entry:f"][..], &["entry:f"][..]),
            (&["entry:f", "time:1s"], &[]),
        ] {
            assert!(options(start, stop).add_to(&mut selection).is_err());
        }
        assert!(options(&[], &[]).begun(&Selection::default(), 10).is_none());
    }

    #[test]
    fn the_end_follows_the_beginning() {
        let (starts, stops) = (HashSet::from([1]), HashSet::from([2]));
        let seen = Seen::default();
        let hit = |id, time| {
            let head = Head {
                kind: kind::SAMPLE,
                id,
                time,
            };
            note(&starts, &stops, &seen, head);
        };
        hit(2, 5);
        hit(1, 10);
        hit(1, 9);
        hit(2, 8);
        let selection = Selection {
            waits: true,
            ..Selection::default()
        };
        assert!(seen.has_started() && !seen.is_over(&selection));
        assert_eq!(seen.started_at.load(Ordering::Relaxed), 9);
        hit(2, 11);
        assert!(seen.is_over(&selection));
    }
}
