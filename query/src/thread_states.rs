//! The states of the view `thread_states`, as numbers in pages; their scripts have the colors.
//!
//! ```text
//! "running" → 0        "dead" → 8        NULL, and states that are not in the list → 9, "unknown"
//! ```

/// The states, by number.
pub(crate) const STATES: [&str; 10] = [
    "running",
    "runnable",
    "preempted",
    "uninterruptible",
    "interruptible",
    "stopped",
    "idle",
    "parked",
    "dead",
    "unknown",
];

/// The number of a state.
pub(crate) fn number_of(state: Option<&str>) -> usize {
    let number = STATES.iter().position(|name| Some(*name) == state);
    number.unwrap_or(STATES.len() - 1)
}
