//! Rows of `calls` that wait for their end, and for those entered before them.

use std::collections::VecDeque;

use hashbrown::HashMap;
use perfquet_events::Error;

use super::super::output::Output;
use super::super::selected::Selected;
use super::Open;
use super::batch::CallNames;
use super::keep::Keep;
use super::ordered::OrderedRows;
use super::pairs::{DECLARED, MARKER, PROBE};
use super::pending::{CallId, Extra, Pending, bytes_of};

/// Maximum number of rows that wait for an open one (about 25 MiB). Then the open row is set aside, and written late.
const WAITING: usize = 1 << 17;
/// Number of closed rows that are written together.
const AT_ONCE: usize = 256;
/// Maximum number of rows set aside; then the first is written without its end.
const ASIDE: usize = 1 << 17;

/// Maximum number of rows scanned at each thread switch: more are rarely between two switches, and hostile files have
/// many.
const LOOKED_THROUGH: usize = 1 << 14;

/// Maximum size of arguments recorded by probes, in waiting rows, in bytes.
const FETCHED_BYTES: usize = 128 << 20;

/// The rows that [`PendingRows::write`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Those that have ended, up to the first that has not.
    Front,
    /// All that have ended.
    Ended,
    All,
}

/// The rows, in the order of their entries.
pub(super) struct PendingRows {
    /// ID of the first row in `waiting`.
    first: i64,
    waiting: VecDeque<Pending>,
    /// Calls still open when later ones were written.
    aside: HashMap<CallId, Pending>,
    /// The calls set aside, oldest first; closed ones are removed lazily.
    aside_order: VecDeque<CallId>,
    /// Calls set aside that have been closed.
    late: Vec<(CallId, Pending)>,
    ordered: OrderedRows,
    /// Number of rows whose exit was given up.
    pub(super) given_up: u64,
    /// Size of the arguments recorded by probes, in all waiting rows.
    fetched_bytes: usize,
    /// Rows closed since the last were written.
    closed: usize,
    pub(super) keep: Keep,
    /// Entries that were dropped since no exit of their class had been seen.
    unproven: HashMap<u32, u64>,
}

impl PendingRows {
    pub(super) fn starting_at(first: i64) -> PendingRows {
        PendingRows {
            first,
            waiting: VecDeque::new(),
            aside: HashMap::new(),
            aside_order: VecDeque::new(),
            late: Vec::new(),
            ordered: OrderedRows::default(),
            given_up: 0,
            fetched_bytes: 0,
            closed: 0,
            keep: Keep::default(),
            unproven: HashMap::new(),
        }
    }

    pub(super) fn next_id(&self) -> i64 {
        self.first + self.waiting.len() as i64
    }

    pub(super) fn add(&mut self, row: Pending) -> CallId {
        let id = CallId(self.next_id());
        self.fetched_bytes += row.fetched_bytes();
        self.waiting.push_back(row);
        id
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Pending> {
        match usize::try_from(id.0 - self.first) {
            Ok(place) => self.waiting.get_mut(place),
            Err(_) => self.aside.get_mut(&id),
        }
    }

    /// The rows after an open call, as far as scanned.
    pub(super) fn since(&mut self, id: CallId) -> impl Iterator<Item = &mut Pending> {
        let from = usize::try_from(id.0 - self.first).unwrap_or(0);
        self.waiting.iter_mut().skip(from).take(LOOKED_THROUGH)
    }

    /// The rows after a call, as far as scanned, and whether these are all.
    pub(super) fn after(&mut self, id: CallId) -> (impl Iterator<Item = &mut Pending>, bool) {
        let from = usize::try_from(id.0 - self.first).map(|place| place + 1);
        let are_all = from.is_ok_and(|from| self.waiting.len() - from <= LOOKED_THROUGH);
        let rows = self.waiting.iter_mut().skip(from.unwrap_or(0));
        (rows.take(LOOKED_THROUGH), are_all)
    }

    /// Replaces an awaited call.
    pub(super) fn replace(&mut self, id: CallId, row: Pending) {
        self.fetched_bytes += row.fetched_bytes();
        if let Some(place) = self.get_mut(id) {
            let former = std::mem::replace(place, row);
            self.fetched_bytes -= former.fetched_bytes();
        }
    }

    /// Adds arguments recorded at a call's end.
    pub(super) fn fetch(&mut self, id: CallId, mut more: Vec<Box<[u8]>>) {
        if more.is_empty() {
            return;
        }
        let bytes = bytes_of(&more);
        if let Some(row) = self.get_mut(id) {
            let extra = row.extra.get_or_insert_with(Box::<Extra>::default);
            extra.fetched.append(&mut more);
            self.fetched_bytes += bytes;
        }
    }

    /// Whether more rows wait than may.
    #[inline]
    pub(super) fn is_too_much(&self) -> bool {
        self.fetched_bytes > FETCHED_BYTES
    }

    /// Whether a call in its current state matches the selection.
    pub(super) fn is_selected(&mut self, id: CallId) -> bool {
        let row = match usize::try_from(id.0 - self.first) {
            Ok(place) => self.waiting.get(place),
            Err(_) => self.aside.get(&id),
        };
        row.is_some_and(|row| self.keep.would_hold(row))
    }

    /// Adds time that a call spent in a call inside it; `None` if unknown.
    pub(super) fn add_child(&mut self, parent: Option<CallId>, duration: Option<i64>) {
        if let Some(row) = parent.and_then(|parent| self.get_mut(parent)) {
            row.in_others = match (row.in_others, duration) {
                (Some(sum), Some(duration)) => sum.checked_add(duration),
                _ => None,
            };
        }
    }

    /// Marks a call as final.
    pub(super) fn close(&mut self, id: CallId) {
        if id.0 >= self.first {
            if let Some(row) = self.get_mut(id) {
                row.is_closed = true;
                self.closed += 1;
            }
        } else if let Some(row) = self.aside.remove(&id) {
            self.late.push((id, row));
        }
    }

    /// Counts a call that ends before it is known whether exits of its kind are recorded: it becomes no row.
    pub(super) fn drop_unproven(&mut self, open: &Open) {
        let class = open.pair.map(|pair| pair.class);
        let class = class.filter(|class| ![PROBE, MARKER, DECLARED].contains(class));
        if let Some(class) = class
            && open.is_provisional
            && !open.twin.is_reported_elsewhere
        {
            *self.unproven.entry(class).or_default() += 1;
        }
    }

    /// Takes the number of calls of a class that were dropped in this way.
    pub(super) fn take_unproven(&mut self, class: u32) -> u64 {
        self.unproven.remove(&class).unwrap_or_default()
    }

    /// The enclosing call, as far as it is a row or will be one.
    fn parent_of(&self, id: CallId, row: &Pending, selected: &Selected) -> Option<CallId> {
        let parent = self.keep.parent_of(row.parent_id)?;
        if let Ok(place) = usize::try_from(parent.0 - self.first) {
            // It is reported later, if at all.
            let will_be_row = |row: &Pending| !row.is_provisional && self.keep.would_hold(row);
            let has_row = self.waiting.get(place).is_some_and(will_be_row);
            let rows = parent.0.abs_diff(id.0).saturating_add(1);
            return (has_row && selected.has_room(rows)).then_some(parent);
        }
        match self.aside.get(&parent) {
            // Its duration is not known yet.
            Some(row) if row.is_provisional || self.keep.is_limited() => None,
            _ => Some(parent),
        }
    }

    /// Passes all rows that are not written to `change`.
    pub(super) fn each(&mut self, mut change: impl FnMut(&mut Pending)) {
        self.waiting.iter_mut().for_each(&mut change);
        self.aside.values_mut().for_each(&mut change);
        self.late.iter_mut().for_each(|(_, row)| change(row));
        self.ordered.each_late(change);
    }

    /// Passes the rows that were written on, with the names at their time.
    pub(super) fn hand_over(
        &mut self,
        names: &CallNames,
        output: &mut Output,
    ) -> Result<(), Error> {
        self.ordered.hand_over(names, output)
    }

    /// Sets aside a row that is still open, so that later rows need not wait for it.
    fn set_aside(&mut self, id: CallId, row: Pending) {
        self.aside.insert(id, row);
        self.aside_order.push_back(id);
        if self.aside_order.len() > 2 * ASIDE {
            let aside = &self.aside;
            self.aside_order.retain(|id| aside.contains_key(id));
        }
    }

    /// Returns the call that has waited longest, if too many are set aside.
    fn take_overdue(&mut self) -> Option<(CallId, Pending)> {
        while self.aside.len() > ASIDE {
            let oldest = self.aside_order.pop_front()?;
            if let Some(overdue) = self.aside.remove_entry(&oldest) {
                self.given_up += 1;
                return Some(overdue);
            }
        }
        None
    }

    /// Whether enough rows wait to be written: some hundreds, or one if a limit counts rows.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        let is_worth_it = self.closed >= AT_ONCE || self.closed > 0 && self.keep.is_limited();
        !self.late.is_empty()
            || self.waiting.len() >= WAITING
            || is_worth_it && self.waiting.front().is_some_and(|row| row.is_closed)
    }

    /// Writes rows. Open calls before them are set aside.
    pub(super) fn write(
        &mut self,
        names: &CallNames,
        output: &mut Output,
        selected: &mut Selected,
        extent: Extent,
    ) -> Result<(), Error> {
        let all = extent == Extent::All;
        self.closed = 0;
        let mut written_bytes = 0;
        let mut ordered = std::mem::take(&mut self.ordered);
        let mut push = |keep: &mut Keep, selected: &mut Selected, id, row: Pending, next| {
            written_bytes += row.fetched_bytes();
            match is_row(keep, selected, &row) {
                true => ordered.write((id, row), names, output),
                false => {
                    keep.went(id, row.parent_id, next);
                    Ok(())
                }
            }
        };
        let next = self.next_id();
        // Several may close at once, from tables in random order.
        let mut late = std::mem::take(&mut self.late);
        late.sort_unstable_by_key(|(id, _)| *id);
        for (id, mut row) in late {
            row.parent_id = self.parent_of(id, &row, selected);
            push(&mut self.keep, selected, id, row, next)?;
        }
        if all {
            let mut aside: Vec<_> = self.aside.drain().collect();
            aside.sort_by_key(|(id, _)| *id);
            for (id, mut row) in aside {
                row.parent_id = self.parent_of(id, &row, selected);
                push(&mut self.keep, selected, id, row, next)?;
            }
            self.aside_order.clear();
        }
        while let Some(row) = self.waiting.front() {
            let waits = !row.is_closed && !all;
            if waits && extent == Extent::Front && self.waiting.len() < WAITING {
                break;
            }
            let Some(mut row) = self.waiting.pop_front() else {
                break;
            };
            let id = CallId(self.first);
            self.first += 1;
            if waits {
                self.set_aside(id, row);
            } else {
                row.parent_id = self.parent_of(id, &row, selected);
                push(&mut self.keep, selected, id, row, next)?;
            }
            while let Some((id, mut row)) = self.take_overdue() {
                row.parent_id = self.parent_of(id, &row, selected);
                push(&mut self.keep, selected, id, row, next)?;
            }
        }
        if all {
            ordered.finish(names, output)?;
        }
        self.ordered = ordered;
        self.fetched_bytes -= written_bytes;
        self.keep.forget(self.first);
        Ok(())
    }
}

/// Whether a call becomes a row.
fn is_row(keep: &mut Keep, selected: &mut Selected, row: &Pending) -> bool {
    !row.is_provisional
        && keep.holds(row)
        && (!(row.is_wanted || keep.counts_all) || selected.take_room())
}

#[cfg(test)]
mod tests {
    use super::super::Entry;
    use super::*;
    use perfquet_events::event::Selection;

    #[test]
    fn no_row_is_inside_a_call_that_may_be_dropped() {
        let mut rows = PendingRows::starting_at(1);
        let around = CallId(rows.first);
        rows.set_aside(around, Pending::of(Entry::default(), None, 0));
        rows.first += 1;
        let inside = Pending::of(Entry::default(), Some(around), 1);
        let parent = |rows: &PendingRows| rows.parent_of(CallId(2), &inside, &Selected::default());
        assert_eq!(parent(&rows), Some(around));
        rows.keep.select(&Selection {
            max_duration: Some(5),
            ..Selection::default()
        });
        assert_eq!(parent(&rows), None);
    }

    #[test]
    fn waiting_arguments_are_counted() {
        let mut rows = PendingRows::starting_at(0);
        let fetched = || vec![Box::from(&b"count=1"[..])];
        let id = rows.add(Pending::of(Entry::default(), None, 0));
        assert_eq!(rows.fetched_bytes, 0);
        rows.fetch(id, fetched());
        let of_one = rows.fetched_bytes;
        assert!(of_one > 0);
        let entry = Entry {
            extra: Extra::of(Box::default(), fetched()),
            ..Entry::default()
        };
        rows.replace(id, Pending::of(entry.clone(), None, 0));
        assert_eq!(rows.fetched_bytes, of_one);
        rows.add(Pending::of(entry, None, 0));
        assert_eq!(rows.fetched_bytes, 2 * of_one);
    }

    #[test]
    fn open_calls_are_given_up_only_above_the_limit() {
        let mut rows = PendingRows::starting_at(0);
        let row = Pending::of(Entry::default(), None, 0);
        let set_aside = |rows: &mut PendingRows| {
            let id = CallId(rows.first);
            rows.first += 1;
            rows.set_aside(id, row.clone());
            id
        };
        let oldest = set_aside(&mut rows);
        for _ in 0..3 * ASIDE {
            let id = set_aside(&mut rows);
            assert!(rows.take_overdue().is_none());
            rows.close(id);
            rows.late.clear();
        }
        assert!(rows.get_mut(oldest).is_some());
        assert!(rows.aside_order.len() <= 2 * ASIDE);
        for _ in 0..ASIDE {
            set_aside(&mut rows);
        }
        assert_eq!(rows.take_overdue().map(|(id, _)| id), Some(oldest));
        assert!(rows.take_overdue().is_none());
        assert_eq!(rows.given_up, 1);
    }
}
