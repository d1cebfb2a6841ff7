//! Recognizes the metadata of CTF, and archives, which may hold traces.

use perfquet_events::Guess;

use super::metadata;
use crate::tar;

/// The metadata in one of its forms, or an archive.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if metadata::is_packets(head) || metadata::is_plain(head) || metadata::is_json(head) {
        return Guess::Certain;
    }
    // Of an archive, only the first names are known.
    match tar::is_tar(head) {
        true => Guess::Likely,
        false => Guess::No,
    }
}
