//! Recognizes trace events: an array or an object, and an object with a phase.

use memchr::memmem;
use perfquet_events::Guess;

use crate::json::{Scanner, members};

/// Certain if the first event, or the member `traceEvents`, is in the first bytes.
pub(super) fn sniff(head: &[u8]) -> Guess {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let mut scanner = Scanner::new(head);
    match scanner.peek() {
        Some(b'{') => {
            // Other members may precede the events.
            match memmem::find(head, b"\"traceEvents\"") {
                Some(_) => Guess::Certain,
                None => Guess::No,
            }
        }
        Some(b'[') => {
            scanner.take(b'[');
            let first = scanner.value().unwrap_or_default();
            let has = |wanted: &[u8]| members(first).any(|(key, _)| key == wanted);
            match has(b"ph") && (has(b"ts") || has(b"name")) {
                true => Guess::Certain,
                false => Guess::No,
            }
        }
        _ => Guess::No,
    }
}
