//! Rows of `losses` that lose nothing.
//!
//! ```text
//! ring full                            7 events are lost
//! throttled, paused, resumed           fewer events were recorded: the kernel throttled an event that came too often, or on request
//! filtered: calls shorter than 6ns     a filter was requested
//! ```

/// Reasons of rows after which fewer events were recorded, but none is lost.
pub const LESS_RECORDED: [&str; 3] = ["throttled", "paused", "resumed"];
/// The reasons of rows for which a filter was requested contain this word.
pub const FILTER: &str = "filter";

/// Whether a row with this reason is of events that are lost.
///
/// ```
/// use perfquet_trace::loss::is_lost;
///
/// assert!(is_lost("ring full") && is_lost(""));
/// assert!(!is_lost("paused") && !is_lost("filtered: calls shorter than 6ns"));
/// ```
pub fn is_lost(reason: &str) -> bool {
    !LESS_RECORDED.contains(&reason) && !reason.contains(FILTER)
}
