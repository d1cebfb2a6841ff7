//! Recognizes the output of SystemTap: the head of a histogram, `thread_indent`, inexact frames.

use perfquet_events::Guess;

use super::{indent, read, stack};
use crate::lines::Lines;

/// Certain with a histogram; likely with calls of `thread_indent`, and with backtraces.
pub(super) fn sniff(head: &[u8]) -> Guess {
    let is_binary = |byte: &u8| *byte < 0x20 && !byte.is_ascii_whitespace();
    if head.iter().any(is_binary) {
        return Guess::No;
    }
    let (mut has_head, mut edges, mut frames, mut lines) = (false, 0, 0, 0);
    for line in Lines::of(head) {
        if has_head && read::bar(line.text.trim_ascii()).is_some() {
            return Guess::Certain;
        }
        has_head = read::is_head(line.text);
        edges += usize::from(indent::edge(line.text).is_some());
        let is_frame = stack::frame(line.text).is_some() && !line.text.contains(&b'\t');
        frames +=
            usize::from(is_frame && (line.text.ends_with(b"(inexact)") || has_symbol(line.text)));
        lines += usize::from(!line.text.trim_ascii().is_empty());
    }
    match edges > 1 || (frames > 1 && frames * 2 >= lines) {
        true => Guess::Likely,
        false => Guess::No,
    }
}

/// ` 0x… : symbol+0x1/0x2`, or the address again.
fn has_symbol(line: &[u8]) -> bool {
    line.windows(3).any(|part| part == b" : ")
}
