//! Recognizes the output of bcc's tools: the head of a histogram and a bar, titles of a known tool, stacks with threads.

use perfquet_events::Guess;
use perfquet_events::input::HEAD_BYTES;

use super::{histogram, stack, tool};
use crate::lines::{Line, Lines, signed, words};
use crate::value_table::ValueTable;

/// Certain with a histogram; likely with a list of a known tool, and with stacks and their values.
pub(super) fn sniff(head: &[u8]) -> Guess {
    let is_binary = |byte: &u8| *byte < 0x20 && !byte.is_ascii_whitespace();
    if head.iter().any(is_binary) || head.starts_with(b"{") {
        return Guess::No;
    }
    let mut lines: Vec<Line<'_>> = Lines::of(head).collect();
    if head.len() >= HEAD_BYTES {
        lines.pop();
    }
    let mut guess = Guess::No;
    for pair in lines.windows(2) {
        let [line, next] = pair else { continue };
        if histogram::head(line.text).is_some() && histogram::bar(next.text).is_some() {
            return Guess::Certain;
        }
        let is_list =
            is_list(line.text) && words(next.text).count() >= words(line.text).count() - 1;
        let is_stack = line.text.trim_ascii_start().starts_with(b"- ")
            && stack::thread(line.text, usize::MAX).is_some()
            && signed(next.text.trim_ascii()).is_some();
        if is_list
            || is_stack
            || is_sum(line.text, next.text)
            || is_allocation(line.text, next.text)
        {
            guess = Guess::Likely;
        }
    }
    match guess {
        Guess::No if has_stacks(head) => Guess::Likely,
        guess => guess,
    }
}

/// Whether half of the lines are stacks of names with a value, as stackcount prints them, and there are several.
fn has_stacks(head: &[u8]) -> bool {
    let mut rest = Lines::of(head);
    let (mut stacks, mut inside, mut lines) = (0, 0, 0);
    loop {
        let here = rest.clone();
        let Some(line) = rest.next() else {
            break;
        };
        lines += u64::from(!line.text.trim_ascii().is_empty());
        let mut ahead = here;
        let found = line
            .text
            .starts_with(b"  ")
            .then(|| stack::valued(&mut ahead))
            .flatten();
        if let Some(found) = found.filter(|found| found.frames.len() > 1 && found.has_names()) {
            stacks += 1;
            inside += found.lines;
            lines += found.lines - 1;
            rest = ahead;
        }
    }
    stacks > 1 && inside * 2 >= lines
}

fn is_list(line: &[u8]) -> bool {
    tool::of_titles(line).is_some_and(|name| name != "table")
}

/// Titles that bcc's tools have, and a row.
fn is_sum(line: &[u8], next: &[u8]) -> bool {
    const FIRST: [&[u8]; 4] = [b"FUNC", b"SYSCALL", b"SOFTIRQ", b"HARDIRQ"];
    let first = words(line).next().unwrap_or_default();
    let is_argdist = words(line).eq([&b"COUNT"[..], b"EVENT"]);
    let has_row = |table: ValueTable<'_>| table.row(next).is_some();
    (FIRST.contains(&first) || is_argdist) && ValueTable::of(line).is_some_and(has_row)
}

/// memleak's allocations with a stack.
fn is_allocation(line: &[u8], next: &[u8]) -> bool {
    stack::allocations(line).is_some() && (next.starts_with(b"\t") || next.starts_with(b"  "))
}
