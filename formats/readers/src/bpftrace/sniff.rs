//! Recognizes the output of `bpftrace` by its first line and by the entries of its maps.

use perfquet_events::Guess;

use super::text;
use crate::lines::Lines;

/// Certain with bpftrace's first line; likely with maps alone.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if is_json(head) {
        return Guess::Certain;
    }
    if head
        .iter()
        .any(|byte| *byte < 0x20 && !byte.is_ascii_whitespace())
    {
        return Guess::No;
    }
    let mut has_map = false;
    for line in Lines::of(head) {
        if text::attached(line.text).is_some() {
            return Guess::Certain;
        }
        has_map |= text::begins_entry(line.text).is_some_and(|(_, after)| is_sure(after));
    }
    match has_map {
        true => Guess::Likely,
        false => Guess::No,
    }
}

/// Whether the name of a map is followed by a key, a number or the beginning of a distribution. Other text may also
/// follow `@author: name` in source code.
fn is_sure(after: &[u8]) -> bool {
    let value = after.strip_prefix(b": ").unwrap_or_default();
    let is_value = |first: &u8| first.is_ascii_digit() || b"-(".contains(first);
    after == b":" || after.starts_with(b"[") || value.first().is_some_and(is_value)
}

/// `{"type": "attached_probes", "data": {"probes": 1}}`
pub(super) fn is_json(head: &[u8]) -> bool {
    let mut lines = Lines::of(head).filter(|line| !line.text.trim_ascii().is_empty());
    let Some(first) = lines.next() else {
        return false;
    };
    let holds = |part: &[u8]| first.text.windows(part.len()).any(|window| window == part);
    first.text.starts_with(b"{\"type\":") && holds(b"\"data\":")
}
