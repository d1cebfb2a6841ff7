//! Recognizes a trace.dat by the ten bytes that it shares with perf's bundle of format files.

use crate::Guess;
use crate::event_format::TRACING_MAGIC;

pub(super) fn sniff(head: &[u8]) -> Guess {
    if head.starts_with(TRACING_MAGIC) {
        Guess::Certain
    } else {
        Guess::No
    }
}
