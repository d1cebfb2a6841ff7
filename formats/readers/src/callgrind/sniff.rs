//! Recognizes callgrind's format by its first line, or by the events of its head and the functions below.

use perfquet_events::Guess;

use crate::lines::Lines;

/// Certain with the first line; otherwise with the names of events, and functions.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if head.starts_with(b"# callgrind format") {
        return Guess::Certain;
    }
    let (mut has_events, mut names) = (false, 0);
    for line in Lines::of(head) {
        has_events |= line.text.starts_with(b"events: ");
        names += usize::from(
            has_events && (line.text.starts_with(b"fn=") || line.text.starts_with(b"fl=")),
        );
    }
    match names > 1 {
        true => Guess::Certain,
        false => Guess::No,
    }
}
