//! Recognizes strace: most lines are calls with results, or the first is the head of the table of `-c`.

use perfquet_events::Guess;
use perfquet_events::input::HEAD_BYTES;

use super::line::{self, Body, Time};
use super::{perf_trace, summary};
use crate::lines::Lines;

/// A program may write more than strace does, but not between all of its lines.
const LEAST_SHARE: usize = 2;

/// Certain if half of the lines are of strace, and one of them is like nothing else.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if perf_trace::is_perf_trace(head) {
        return Guess::Certain;
    }
    let is_cut = head.len() >= HEAD_BYTES;
    let mut lines: Vec<&[u8]> = Lines::of(head).map(|line| line.text).collect();
    if is_cut && lines.len() > 1 {
        lines.pop();
    }
    // The data of one call may have any number of lines.
    lines.retain(|line| !line.trim_ascii().is_empty() && !line::is_dump(line));
    if (lines.iter().zip(lines.iter().skip(1)).take(3))
        .any(|(line, next)| summary::is_head(line, || next))
    {
        return Guess::Certain;
    }
    let (mut known, mut typical) = (0, 0);
    for text in &lines {
        let Some((prefix, body)) = line::parse_anywhere(text) else {
            continue;
        };
        known += 1;
        typical += usize::from(match body {
            Body::Call { result, .. } => {
                prefix.time != Time::None
                    || result.starts_with(b"-1 E")
                    || result.starts_with(b"0x")
                    || result.first().is_some_and(u8::is_ascii_digit)
            }
            Body::Unfinished { .. } | Body::Resumed { .. } | Body::Abandoned { .. } => true,
            Body::Signal(_) | Body::Exited(_) => true,
            Body::Superseded(_) | Body::Frame(_) | Body::Dump | Body::Message(_) => false,
        });
    }
    match typical > 0 && known * LEAST_SHARE >= lines.len() {
        // A single line could be a line of any program.
        true if typical > 1 || lines.len() == 1 => Guess::Certain,
        _ => Guess::No,
    }
}
