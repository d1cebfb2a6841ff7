//! Applies the recorder's selection to calls: duration, context, limit.

use std::collections::VecDeque;

use hashbrown::HashMap;
use perfquet_events::event::{Selection, span};

use super::pending::{CallId, Pending};

/// The selection, and counts of excluded calls.
#[derive(Debug, Default)]
pub(super) struct Keep {
    selection: Selection,
    /// Whether all calls were requested, not only marked ones.
    pub(super) counts_all: bool,
    too_short: u64,
    too_long: u64,
    untimed: u64,
    elsewhere: u64,
    /// Calls without a row, with the calls around them, which become the parents of calls inside.
    gone: HashMap<CallId, Option<CallId>>,
    /// The same calls in order of their removal, each with the ID from which on no call is inside it.
    going: VecDeque<(CallId, i64)>,
}

impl Keep {
    pub(super) fn select(&mut self, selection: &Selection) {
        self.selection = selection.clone();
    }

    /// Whether a call matches the selection.
    pub(super) fn would_hold(&self, row: &Pending) -> bool {
        self.refusal(row).is_none()
    }

    /// Whether recorded calls may be excluded.
    pub(super) fn is_limited(&self) -> bool {
        let selection = &self.selection;
        selection.min_duration.is_some()
            || selection.max_duration.is_some()
            || selection.contexts.is_some()
            || selection.max_events.is_some()
    }

    /// Whether a call becomes a row; counts it if not.
    pub(super) fn holds(&mut self, row: &Pending) -> bool {
        match self.refusal(row) {
            None => return true,
            Some(Refusal::Elsewhere) => self.elsewhere += 1,
            Some(Refusal::Untimed) => self.untimed += 1,
            Some(Refusal::Short) => self.too_short += 1,
            Some(Refusal::Long) => self.too_long += 1,
        }
        false
    }

    fn refusal(&self, row: &Pending) -> Option<Refusal> {
        let selection = &self.selection;
        if let (Some(contexts), Some(context)) = (selection.contexts, row.context)
            && !contexts.has(context)
        {
            return Some(Refusal::Elsewhere);
        }
        if selection.min_duration.is_none() && selection.max_duration.is_none() {
            return None;
        }
        let Some(duration) = row.duration else {
            return Some(Refusal::Untimed);
        };
        if selection.min_duration.is_some_and(|least| duration < least) {
            return Some(Refusal::Short);
        }
        let is_long = selection.max_duration.is_some_and(|most| duration > most);
        is_long.then_some(Refusal::Long)
    }

    /// Removes a call; calls numbered from `next` on are not inside it.
    pub(super) fn went(&mut self, id: CallId, parent: Option<CallId>, next: i64) {
        self.gone.insert(id, parent);
        self.going.push_back((id, next));
    }

    /// The innermost enclosing call with a row, beginning with `parent`.
    pub(super) fn parent_of(&self, parent: Option<CallId>) -> Option<CallId> {
        let mut parent = parent;
        if self.gone.is_empty() {
            return parent;
        }
        while let Some(id) = parent
            && let Some(around) = self.gone.get(&id)
        {
            parent = *around;
        }
        parent
    }

    /// Forgets removed calls without any remaining calls inside; calls up to `first` are written.
    pub(super) fn forget(&mut self, first: i64) {
        while let Some((id, _)) = self.going.front().filter(|(_, next)| *next <= first) {
            self.gone.remove(id);
            self.going.pop_front();
        }
    }

    /// Returns the number of excluded calls per reason.
    pub(super) fn left_out(&self) -> Vec<(u64, String)> {
        let shown = |limit: Option<i64>| span(limit.unwrap_or_default());
        let (least, most) = (
            shown(self.selection.min_duration),
            shown(self.selection.max_duration),
        );
        let all = [
            (
                self.too_short,
                format!("filtered: calls shorter than {least}"),
            ),
            (self.too_long, format!("filtered: calls longer than {most}")),
            (
                self.untimed,
                "filtered: calls of unknown duration".to_owned(),
            ),
            (
                self.elsewhere,
                "filtered: calls in another context".to_owned(),
            ),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).collect()
    }
}

/// The reason for excluding a call.
enum Refusal {
    Elsewhere,
    Untimed,
    Short,
    Long,
}
