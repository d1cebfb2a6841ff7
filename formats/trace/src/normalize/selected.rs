//! Applies the recorder's selection: triggers, contexts, maximum number of rows.
//!
//! Events come in time order, so a trigger's hit separates earlier from later events, however late the recorder noticed
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perfquet_events::event::{Fact, Fields, Purpose, Selection, span};

/// The current phase of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Within,
    Before,
    After,
}

/// The selection.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    selection: Selection,
    /// Whether there is a selection; otherwise everything is kept without checks.
    is_active: bool,
    state: State,
    begin: Option<i64>,
    end: Option<i64>,
    /// Number of counted rows, for the recorder's limit.
    kept: Arc<AtomicU64>,
    rows: u64,
    elsewhere: u64,
    start_triggers: Vec<String>,
    stop_triggers: Vec<String>,
    started_by: Option<String>,
    stopped_by: Option<String>,
}

impl Selected {
    /// Creates a selection that reports the number of counted rows to `kept`.
    pub(crate) fn reporting_to(kept: Option<Arc<AtomicU64>>) -> Selected {
        Selected {
            kept: kept.unwrap_or_default(),
            ..Selected::default()
        }
    }

    /// Prepares for the next input of the same recording: the time is kept, the order is reset.
    pub(crate) fn continued(mut self) -> Selected {
        if self.state == State::After {
            self.state = State::Within;
        }
        self.elsewhere = 0;
        self
    }

    /// The current selection.
    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Sets the recorder's selection.
    pub(crate) fn select(&mut self, selection: &Selection) {
        self.is_active = *selection != Selection::default();
        if self.started_by.is_none() {
            self.begin = selection.begin;
            self.state = match selection.waits {
                true => State::Before,
                false => State::Within,
            };
        }
        self.selection = selection.clone();
        self.set_end();
    }

    fn set_end(&mut self) {
        let (begin, after) = (self.begin, self.selection.stop_after);
        self.end = begin.and_then(|begin| begin.checked_add(after?));
    }

    /// Whether everything is kept.
    #[inline]
    pub(crate) fn holds_everything(&self) -> bool {
        !self.is_active
    }

    /// Registers a declared event, which may be a trigger.
    pub(crate) fn declare(&mut self, purpose: &Purpose) {
        match purpose {
            Purpose::Start(text) => self.start_triggers.push(text.clone()),
            Purpose::Stop(text) => self.stop_triggers.push(text.clone()),
            Purpose::Rows | Purpose::RowsOnly | Purpose::Edge(_) => {}
        }
        self.is_active |= matches!(purpose, Purpose::Start(_) | Purpose::Stop(_));
    }

    /// Handles a trigger's hit. Returns `false` if the event is not a trigger.
    pub(crate) fn trigger(&mut self, purpose: &Purpose, time: Option<i64>, who: &str) -> bool {
        match (purpose, self.state) {
            (Purpose::Rows | Purpose::RowsOnly | Purpose::Edge(_), _) => return false,
            (Purpose::Start(text), State::Before) => {
                self.state = State::Within;
                self.begin = time;
                self.started_by = Some(format!("{text}{who}"));
                self.set_end();
            }
            (Purpose::Stop(text), State::Within) if self.holds(time) => {
                self.state = State::After;
                self.end = time;
                self.stopped_by = Some(format!("{text}{who}"));
            }
            (Purpose::Start(_) | Purpose::Stop(_), _) => {}
        }
        true
    }

    /// Whether an event at this time is selected.
    #[inline]
    pub(crate) fn holds(&mut self, time: Option<i64>) -> bool {
        !self.is_active || self.is_within(time)
    }

    fn is_within(&mut self, time: Option<i64>) -> bool {
        let Some(time) = time else {
            return self.state == State::Within;
        };
        if self.state == State::Within && self.end.is_some_and(|end| time >= end) {
            self.state = State::After;
        }
        self.state == State::Within && self.begin.is_none_or(|begin| time >= begin)
    }

    /// Whether an interval is selected as a whole.
    pub(crate) fn holds_all(&mut self, start: Option<i64>, end: Option<i64>) -> bool {
        let begin = self.begin;
        self.holds(end) && (start.is_none() || begin.is_none() || start >= begin)
    }

    /// Whether a hit becomes a row: its context is selected, and the limit is not reached. Counts it.
    #[inline]
    pub(crate) fn holds_hit(&mut self, fields: Fields<'_>) -> bool {
        !self.is_active || self.has_place(fields)
    }

    fn has_place(&mut self, fields: Fields<'_>) -> bool {
        if let (Some(contexts), Some(context)) = (self.selection.contexts, fields.context())
            && !contexts.has(context)
        {
            self.elsewhere += 1;
            return false;
        }
        let has_room = self.take_room();
        if has_room && self.selection.max_events.is_some() {
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Reserves one of the remaining rows; returns false if none is left.
    pub(crate) fn take_room(&mut self) -> bool {
        let Some(most) = self.selection.max_events else {
            return true;
        };
        let has_room = self.rows < most;
        self.rows += u64::from(has_room);
        has_room
    }

    /// Whether this many more rows are allowed.
    pub(crate) fn has_room(&self, rows: u64) -> bool {
        let most = self.selection.max_events;
        most.is_none_or(|most| rows <= most.saturating_sub(self.rows))
    }

    /// Reports a call to the recorder, before it is known to be among the first.
    pub(crate) fn call_ended(&self) {
        if self.selection.max_events.is_some() {
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The first and the last time from which events are kept; `None` if that depends on more than times.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        let most = self.selection.max_events;
        let is_full = most.is_some_and(|most| self.rows >= most);
        let has_started = !self.selection.waits || self.started_by.is_some();
        let bounds = (self.begin.unwrap_or(i64::MIN), self.end.unwrap_or(i64::MAX));
        (has_started && !is_full).then_some(bounds)
    }

    /// Number of hits in other contexts.
    pub(crate) fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// The facts for the manifest.
    pub(crate) fn facts(&self, mut add: impl FnMut(Fact<'_>)) {
        let mut add = |name, value: &str| add(Fact::Other { name, value });
        if !self.is_active {
            return;
        }
        let text = self.selection.text();
        if !text.is_empty() {
            add("record.selection", &text);
        }
        if self.selection.waits {
            add("record.start_on", &self.start_triggers.join(" "));
            match (&self.started_by, self.begin) {
                (Some(by), Some(time)) => {
                    add("record.started_by", by);
                    add("record.started_at", &time.to_string());
                }
                _ => add("record.started_by", "no trigger fired"),
            }
        }
        let after = self.selection.stop_after;
        let mut stops = self.stop_triggers.clone();
        stops.extend(after.map(|after| format!("time:{}", span(after))));
        if !stops.is_empty() {
            add("record.stop_on", &stops.join(" "));
            match (&self.stopped_by, self.end, self.state) {
                (Some(by), Some(time), _) => {
                    add("record.stopped_by", by);
                    add("record.stopped_at", &time.to_string());
                }
                (None, Some(time), State::After) => {
                    add("record.stopped_by", "time");
                    add("record.stopped_at", &time.to_string());
                }
                _ => add("record.stopped_by", "the recording ended first"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(selected: &mut Selected, times: std::ops::Range<i64>) -> Vec<i64> {
        times.filter(|&time| selected.holds(Some(time))).collect()
    }

    #[test]
    fn from_the_first_start_trigger_to_the_next_stop_trigger() {
        let mut selected = Selected::default();
        selected.select(&Selection {
            waits: true,
            ..Selection::default()
        });
        let (start, stop) = (
            Purpose::Start("entry:f".to_owned()),
            Purpose::Stop("exit:f".to_owned()),
        );
        selected.declare(&start);
        selected.declare(&stop);
        assert!(held(&mut selected, 0..10).is_empty());
        assert!(selected.trigger(&stop, Some(10), ""));
        assert!(selected.trigger(&start, Some(11), " by dd"));
        assert!(!selected.trigger(&Purpose::Rows, Some(12), ""));
        assert_eq!(held(&mut selected, 10..14), [11, 12, 13]);
        selected.trigger(&start, Some(14), "");
        assert_eq!(held(&mut selected, 13..15), [13, 14]);
        selected.trigger(&stop, Some(15), "");
        assert!(held(&mut selected, 15..20).is_empty());
        let mut facts = Vec::new();
        selected.facts(|fact| {
            if let Fact::Other { name, value } = fact {
                facts.push(format!("{name}={value}"));
            }
        });
        assert!(
            facts.contains(&"record.started_by=entry:f by dd".to_owned()),
            "{facts:?}"
        );
        assert!(
            facts.contains(&"record.stopped_at=15".to_owned()),
            "{facts:?}"
        );
    }

    #[test]
    fn stop_after_counts_from_the_start_trigger() {
        let mut selected = Selected::default();
        selected.select(&Selection {
            begin: Some(5),
            stop_after: Some(3),
            ..Selection::default()
        });
        assert_eq!(held(&mut selected, 0..20), [5, 6, 7]);
    }

    #[test]
    fn the_number_of_rows_is_limited() {
        let kept = Arc::new(AtomicU64::new(0));
        let mut selected = Selected::reporting_to(Some(Arc::clone(&kept)));
        assert!(selected.holds_hit(Fields::None));
        selected.select(&Selection {
            max_events: Some(2),
            ..Selection::default()
        });
        let hits: Vec<bool> = (0..3).map(|_| selected.holds_hit(Fields::None)).collect();
        assert_eq!(hits, [true, true, false]);
        assert_eq!(kept.load(Ordering::Relaxed), 2);
    }
}
