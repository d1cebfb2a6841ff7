//! Recognizes gcov by its first line, and `.gcda`, which it refuses.

use perfquet_events::Guess;

use super::read::{DATA, line};
use crate::lines::Lines;

/// Certain with the source; likely with many lines of its form.
pub(super) fn sniff(head: &[u8]) -> Guess {
    // A version of four characters follows: `B22*`.
    let is_data = DATA.iter().any(|magic| head.starts_with(magic))
        && head
            .get(4..8)
            .is_some_and(|version| version.contains(&b'*'));
    let first = Lines::of(head).next().map_or(&b""[..], |first| first.text);
    if is_data
        || line(first).is_some_and(|(_, number, text)| number == 0 && text.starts_with(b"Source:"))
    {
        return Guess::Certain;
    }
    let (mut known, mut all) = (0, 0);
    for text in Lines::of(head).map(|line| line.text) {
        all += 1;
        // gcov prints `%9s:%5u:`; times have such colons, too.
        let is_aligned = text.get(9) == Some(&b':') && text.get(15) == Some(&b':');
        known += usize::from(is_aligned && line(text).is_some());
    }
    match known > 3 && known * 2 > all {
        true => Guess::Likely,
        false => Guess::No,
    }
}
