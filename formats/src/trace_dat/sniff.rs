//! Recognizes a trace.dat by the ten bytes that it shares with perf's bundle of format files, and a damaged one by what
//! follows them.

use crate::Guess;
use crate::event_format::TRACING_MAGIC;
use crate::trace_dat::head::Head;

pub(super) fn sniff(head: &[u8]) -> Guess {
    if head.starts_with(TRACING_MAGIC) {
        Guess::Certain
    } else if Head::find(head).is_some() {
        Guess::Likely
    } else {
        Guess::No
    }
}
