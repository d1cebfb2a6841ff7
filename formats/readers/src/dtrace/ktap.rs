//! Counts by key that ktap prints (`print_hist`) under the head of DTrace's distributions.
//!
//! ```text
//!                           value ------------- Distribution ------------- count
//!                    sched_wakeup |@@                                     91950
//!                             ... |
//! ```
//! Where DTrace has a number, ktap has a key. The last line of a list that was cut has neither key nor count.

use perfquet_events::event::{Event, Loss};

use crate::distribution;

/// A line below the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row<'a> {
    /// A key and its count.
    Count(&'a [u8], i64),
    /// More keys were not printed.
    Cut,
}

/// The keys that were not printed.
pub(super) const CUT: Event<'static> = Event::Loss(Loss {
    time: None,
    cpu: None,
    event: None,
    count: None,
    in_all: None,
    reason: "list cut",
});

/// Whether a line is a count of ktap, not a bar of DTrace.
pub(super) fn is_count(line: &[u8]) -> bool {
    distribution::bar(line).is_none() && distribution::bar_parts(line).is_some()
}

/// Parses a line.
pub(super) fn row(line: &[u8]) -> Option<Row<'_>> {
    let rest = line.trim_ascii().strip_prefix(b"...");
    if rest.map(<[u8]>::trim_ascii) == Some(b"|") {
        return Some(Row::Cut);
    }
    distribution::bar_parts(line).map(|(key, count)| Row::Count(key, count))
}
