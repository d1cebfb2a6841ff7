//! Entries that turn out to be calls when an exit comes: their rows, and the calls inside them.
//!
//! ```text
//! rec(2)                       perhaps only a probe: nothing is inside it
//!   rec(1)                     likewise
//!   rec(1) returns             both are calls; rec(1) is inside rec(2)
//! rec(2) returns
//! ```

use super::lanes::Lane;
use super::pairs::PROBE;
use super::pending::CallId;
use super::waiting::PendingRows;
use super::{Calls, Exit, Open, TextId, abandon, place_of};

/// Number of returns that the kernel awaits at once in a thread (`MAX_URETPROBE_DEPTH`). Deeper calls return unseen.
const AWAITED_RETURNS: usize = 64;

impl Calls {
    /// Exits of a class are recorded: its open calls are calls. Readers of text learn this at the first exit. Returns the number of
    /// calls that ended before, and were dropped.
    pub(super) fn prove(&mut self, class: u32) -> u64 {
        self.prove_threadless(class);
        let rows = &mut self.rows;
        self.lanes.sweep(|lane| {
            let mut system_calls = lane.iter().filter(|open| open.system_call.is_some());
            // Reported twice, by name and by number: which report has exits is known when one of them comes.
            if system_calls.nth(1).is_some() {
                return;
            }
            settle(rows, lane, |open| {
                let is_of = open.pair.is_some_and(|pair| pair.class == class);
                is_of && !open.twin.is_reported_elsewhere
            });
        });
        self.rows.take_unproven(class)
    }

    /// The return of a probed function. The first proves that entries of its probe are calls. If more calls are open than
    /// the kernel awaits returns of, nobody knows which of them returns: they end without an exit.
    pub(super) fn returns(&mut self, lane: Lane, exit: &Exit) {
        if exit.pair.is_none_or(|pair| pair.class != PROBE) {
            return;
        }
        let opens = self.lanes.of(lane);
        let Some(&open) = place_of(opens, exit).and_then(|place| opens.get(place)) else {
            return;
        };
        let rows = &mut self.rows;
        if open.is_provisional {
            self.lanes.sweep(|lane| {
                settle(rows, lane, |other| {
                    other.event == open.event && other.pair.is_some_and(|pair| pair.class == PROBE)
                });
            });
        }
        let opens = self.lanes.of(lane);
        // The kernel has one limit for all user functions of a thread. Its own functions are rarely recursive.
        let is_awaited = |other: &Open| {
            let keys = open.pair.zip(other.pair);
            let keys = keys.filter(|(_, other)| other.class == PROBE);
            keys.is_some_and(|(own, other)| {
                own.key == other.key || (own.key | other.key) >> 63 == 0
            }) && !other.is_provisional
        };
        if opens.iter().filter(|open| is_awaited(open)).count() > AWAITED_RETURNS
            && let Some(outermost) = opens.iter().position(is_awaited)
        {
            abandon(&mut self.rows, opens, outermost);
        }
    }

    /// Removes the provisional calls of an event whose exits are not recorded.
    pub(super) fn give_up(&mut self, event: u32) {
        let rows = &mut self.rows;
        self.lanes.sweep(|lane| {
            lane.retain(|open| {
                let is_kept = !open.is_provisional || open.pair.is_none() || open.event != event;
                if !is_kept {
                    rows.drop_unproven(open);
                    rows.close(open.id);
                }
                is_kept
            });
        });
    }
}

/// Turns provisional calls of a lane into calls, outermost first.
fn settle(rows: &mut PendingRows, lane: &mut [Open], is_proven: impl Fn(&Open) -> bool) {
    let has_depths = lane.iter().any(|open| open.depth.is_some());
    for open in lane.iter_mut() {
        if open.is_provisional && is_proven(open) {
            open.is_provisional = false;
            enclose(rows, open.id, open.function, has_depths);
        }
    }
}

/// Puts what began in a call since its entry inside of it.
fn enclose(rows: &mut PendingRows, id: CallId, function: Option<TextId>, has_depths: bool) {
    let Some(row) = rows.get_mut(id) else {
        return;
    };
    row.is_provisional = false;
    let lane = Lane::of(row.head.tid(), row.head.cpu());
    let (former, former_function) = (row.parent_id, row.caller);
    let (inside, are_all) = rows.after(id);
    let mut nested = are_all.then_some(0i64);
    for row in inside.filter(|row| Lane::of(row.head.tid(), row.head.cpu()) == lane) {
        row.depth = row.depth.saturating_add(u32::from(!has_depths));
        if row.parent_id != former {
            continue;
        }
        row.parent_id = Some(id);
        if row.caller.is_none() || row.caller == former_function {
            row.caller = function;
        }
        if row.is_closed && !row.is_provisional {
            nested = nested
                .zip(row.duration)
                .map(|(sum, one)| sum.saturating_add(one));
        }
    }
    if let Some(row) = rows.get_mut(id) {
        row.in_others = row
            .in_others
            .zip(nested)
            .map(|(own, more)| own.saturating_add(more));
    }
    if let Some(around) = former.and_then(|former| rows.get_mut(former)) {
        around.in_others = around
            .in_others
            .zip(nested)
            .map(|(own, less)| own.saturating_sub(less));
    }
}
