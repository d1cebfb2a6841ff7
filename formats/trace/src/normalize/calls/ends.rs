//! Which open calls end before another one begins.
//!
//! ```text
//! A 0..9, B 1..19            B is not inside of A
//! A 0..9, B 1..?, C 20..30   A has ended, so B has, too
//! sys_read 0.., B 1..        the next system call ends sys_read, and B only if exits of system calls are recorded
//! ```

use super::pairs::{DECLARED, MARKER, PROBE};
use super::waiting::PendingRows;
use super::{End, Entry, Open, SLACK_NS, abandon, system_calls};

/// Closes calls that cannot enclose one that begins now.
pub(super) fn end_before(rows: &mut PendingRows, opens: &mut Vec<Open>, entry: &Entry) {
    let place = match (entry.depth, entry.pair) {
        (Some(depth), _) => opens
            .iter()
            .position(|open| open.depth.is_some_and(|other| other >= depth)),
        // Functions and sections may be recursive.
        (None, Some(pair)) if [MARKER, DECLARED, PROBE].contains(&pair.class) => None,
        // System calls and interrupts are not: the exit of the first was missed.
        (None, Some(pair)) => opens.iter().position(|open| open.pair == Some(pair)),
        (None, None) => None,
    };
    let place = place.or_else(|| system_calls::missed(opens, entry));
    let is_over = |open: &Open| open.twin.is_over && entry.system_call.is_some();
    let place = place.or_else(|| opens.iter().position(is_over));
    if let Some(place) = place {
        // Exits of system calls may not be recorded at all: then the calls after it are not inside it.
        let is_alone = |open: &Open| open.is_provisional && open.system_call.is_some();
        if opens.get(place).is_some_and(is_alone) {
            let open = opens.remove(place);
            rows.drop_unproven(&open);
            rows.close(open.id);
        } else {
            abandon(rows, opens, place);
        }
    }
    // Close complete calls that have ended, but not a recorded caller that is just ending (times have microseconds).
    let Some(time) = entry.head.time() else {
        return;
    };
    while let Some(place) = over(opens, entry, time) {
        abandon(rows, opens, place);
    }
}

/// The open calls, without complete ones that have ended: an exit after them is not inside.
pub(super) fn without_ended<'o>(
    rows: &mut PendingRows,
    opens: &'o mut Vec<Open>,
    time: Option<i64>,
) -> &'o mut Vec<Open> {
    let has_ended =
        |open: &Open| matches!((open.end, time), (End::At(end), Some(time)) if end <= time);
    while opens.last().is_some_and(has_ended) {
        abandon(rows, opens, opens.len() - 1);
    }
    opens
}

/// How much of a call is inside of the one around it. With a recorded depth or caller, all of it: only its time is rounded.
pub(super) fn inside(around: Option<&Open>, entry: &Entry, duration: Option<i64>) -> Option<i64> {
    let is_nested = entry.depth.is_some() || entry.caller.is_some();
    match (around.map(|open| open.end), entry.head.time()) {
        (Some(End::At(end)), Some(time)) if !is_nested => {
            duration.map(|lasts| lasts.min(end.saturating_sub(time).max(0)))
        }
        _ => duration,
    }
}

/// The index of the innermost complete call, if it has ended; of the call around it, if its own end is unknown.
fn over(opens: &[Open], entry: &Entry, time: i64) -> Option<usize> {
    let is_caller = |open: &Open| open.function.is_some() && open.function == entry.caller;
    let ended = |open: &Open| match open.end {
        End::At(end) => end < time || (end == time && !is_caller(open)),
        End::Unknown | End::ByLeave => false,
    };
    let (place, last) = opens.iter().enumerate().next_back()?;
    if last.end != End::Unknown {
        return ended(last).then_some(place);
    }
    // Without its end, only the caller's name identifies it.
    if !is_caller(last) && opens.iter().any(is_caller) {
        return Some(place);
    }
    let around = opens.iter().rposition(|open| open.end != End::Unknown)?;
    opens.get(around).is_some_and(ended).then_some(around)
}

/// The number of open calls that may enclose one that begins now: a complete call is not inside of one that it outlives, except
/// of its recorded caller.
pub(super) fn enclosing(opens: &[Open], entry: &Entry, duration: Option<i64>) -> usize {
    let Some((time, duration)) = entry.head.time().zip(duration) else {
        return opens.len();
    };
    let end = time.saturating_add(duration);
    let may_enclose = |open: &Open| match open.end {
        End::At(other) => {
            let is_caller = open.function.is_some() && open.function == entry.caller;
            is_caller || other.saturating_add(SLACK_NS) >= end
        }
        End::ByLeave | End::Unknown => true,
    };
    opens
        .iter()
        .rposition(may_enclose)
        .map_or(0, |place| place + 1)
}

/// Closes complete calls that a longer one outlives: it takes an unknown part of their time.
pub(super) fn outlive(
    rows: &mut PendingRows,
    opens: &mut Vec<Open>,
    entry: &Entry,
    duration: Option<i64>,
) {
    let Some((time, duration)) = entry.head.time().zip(duration) else {
        return;
    };
    let end = time.saturating_add(duration);
    let enclosing = enclosing(opens, entry, Some(duration));
    for open in opens.iter().skip(enclosing.saturating_sub(1)) {
        // The recorded caller, too.
        if matches!(open.end, End::At(other) if time < other && other.saturating_add(SLACK_NS) < end)
            && let Some(row) = rows.get_mut(open.id)
        {
            row.in_others = None;
        }
    }
    abandon(rows, opens, enclosing);
}
