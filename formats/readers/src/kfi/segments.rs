//! Restarts of an `autorepeat` run: entries count from the latest start, so they jump back.
//!
//! ```text
//!     9120       40      19  sys_read          0x10008094
//!        0       31      19  sys_read          0x10008094     a new segment
//! ```
//! On several CPUs, neighboring rows may go back slightly in time. A new segment goes back further, and begins with a
//! call that no open call has made.

use std::collections::VecDeque;

use super::header;
use super::row::{Row, without_console};
use crate::lines::Lines;

/// Maximum time difference of neighboring rows on several CPUs, in microseconds.
const JUMP_MIN: u64 = 1000;
/// Maximum number of rows searched for the caller of a row that went back.
const RECENT_MAX: usize = 256;

/// The segments of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segments {
    pub(super) count: u64,
    /// The first line of the last segment; 0 if there is only one.
    pub(super) last_line: u64,
}

/// Scans the rows from here to the end of the run.
pub(super) fn look(lines: &Lines<'_>) -> Segments {
    let mut segments = Segments {
        count: 1,
        last_line: 0,
    };
    let mut watch = Watch::default();
    for line in lines.clone() {
        let text = line.text;
        let Some(row) = Row::of(text).or_else(|| Row::of(without_console(text))) else {
            let text = without_console(text);
            if matches!(header::line(text), Some(header::Line::Run(_))) {
                break;
            }
            continue;
        };
        if watch.starts_anew(&row) {
            segments.count += 1;
            segments.last_line = line.number;
        }
    }
    segments
}

/// The rows so far, which determine whether the next one begins a segment.
#[derive(Default)]
pub(super) struct Watch<'a> {
    recent: VecDeque<Row<'a>>,
}

impl<'a> Watch<'a> {
    /// Whether a segment begins with this row.
    pub(super) fn starts_anew(&mut self, row: &Row<'a>) -> bool {
        let is_new = match self.recent.back() {
            Some(previous) => {
                row.entry.saturating_add(JUMP_MIN) < previous.entry && !self.has_open_caller(row)
            }
            None => false,
        };
        if is_new {
            self.recent.clear();
        } else if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(*row);
        is_new
    }

    fn has_open_caller(&self, row: &Row<'_>) -> bool {
        let end = row.caller.iter().position(|&byte| byte == b'+');
        let caller = end.and_then(|end| row.caller.get(..end));
        caller.is_some_and(|caller| {
            self.recent.iter().any(|open| {
                let end = open.duration().map(|took| open.entry.saturating_add(took));
                open.function == caller
                    && open.entry <= row.entry
                    && end.is_none_or(|end| end >= row.entry)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, count: u64, last_line: u64) {
        let expected = Segments { count, last_line };
        assert_eq!(look(&Lines::of(text.as_bytes())), expected);
    }

    #[test]
    fn segments() {
        check("", 1, 0);
        check("0 9 1 f g+0x1\n5000 9 1 f g+0x1\n4500 1 1 h x+0x1\n", 1, 0);
        check("0 9 1 f g+0x1\n5000 9 1 f g+0x1\n0 1 1 f g+0x1\n", 2, 3);
        check(
            "0 9 1 f g+0x1\n5000 9 1 f g+0x1\n0 1 1 f g+0x1\n9 9 1 f x\n2000 1 1 f x\n\n1 1 1 f g\n",
            3,
            7,
        );
        // The caller was open then: the row comes from another CPU with a different clock.
        check(
            "0 9000 1 f g+0x1\n5000 9 1 f g+0x1\n100 1 1 h f+0x1\n",
            1,
            0,
        );
        check(
            "0 9 1 f g+0x1\n5000 9 1 f g+0x1\nKernel Instrumentation Run ID 1\n0 1 1 f g+0x1\n",
            1,
            0,
        );
    }
}
