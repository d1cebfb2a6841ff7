//! Recognizes a trace.dat by the ten bytes that it shares with perf's bundle of format files, and a damaged one by the
//! data after them.

use perfquet_events::Guess;

use crate::trace_dat::head::Head;
use crate::tracing_data::TRACING_MAGIC;

pub(super) fn sniff(head: &[u8]) -> Guess {
    if head.starts_with(TRACING_MAGIC) {
        Guess::Certain
    // A program may contain such numbers.
    } else if !head.starts_with(b"\x7fELF") && Head::find(head).is_some() {
        Guess::Likely
    } else {
        Guess::No
    }
}
