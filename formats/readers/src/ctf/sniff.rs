//! Recognizes the metadata of CTF.

use perfquet_events::Guess;

use super::metadata;

/// The metadata in one of its forms.
pub(super) fn sniff(head: &[u8]) -> Guess {
    match metadata::is_packets(head) || metadata::is_plain(head) || metadata::is_json(head) {
        true => Guess::Certain,
        false => Guess::No,
    }
}
