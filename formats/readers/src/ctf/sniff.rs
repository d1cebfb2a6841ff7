//! Recognizes the metadata of CTF, and the text of babeltrace.

use perfquet_events::Guess;

use super::{metadata, text};

/// The metadata in one of its forms, or a text.
pub(super) fn sniff(head: &[u8]) -> Guess {
    let is_metadata =
        metadata::is_packets(head) || metadata::is_plain(head) || metadata::is_json(head);
    match is_metadata || text::is_text(head) || text::is_details(head) {
        true => Guess::Certain,
        false => Guess::No,
    }
}
