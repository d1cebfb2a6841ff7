//! Recognizes uftrace's directories, and the texts of its commands.

use perfquet_events::Guess;

use super::info::MAGIC;
use super::{dump, replay};

/// The file `info`, or a text.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if head.starts_with(MAGIC) || dump::is_dump(head) || replay::is_replay(head) {
        return Guess::Certain;
    }
    match replay::other_text(head) {
        // Other readers take the first numbers for threads.
        Some((replay::FLAT, _)) => Guess::Certain,
        Some(_) => Guess::Likely,
        None => Guess::No,
    }
}
