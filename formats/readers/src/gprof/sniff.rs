//! Recognizes gprof by the titles of its tables, and gmon.out, which it refuses.

use perfquet_events::Guess;

use super::read::{GMON, Head, head};
use crate::lines::Lines;

/// Certain with titles.
pub(super) fn sniff(start: &[u8]) -> Guess {
    let is_text =
        Lines::of(start).any(|line| matches!(head(line.text), Some(Head::Flat | Head::Graph)));
    match is_text || start.starts_with(GMON) {
        true => Guess::Certain,
        false => Guess::No,
    }
}
