//! Recognizes the output of SystemTap: the head of a histogram, `thread_indent`, inexact frames, the tables of function times.

use perfquet_events::Guess;

use super::{indent, read, stack};
use crate::lines::Lines;
use crate::value_table::ValueTable;

/// Values of a table of function times, and those among them with a unit: fewer may be any program's.
const TABLE: (usize, usize) = (4, 2);
/// Its rows.
const ROWS: usize = 2;

/// Certain with a histogram; likely with calls of `thread_indent`, with backtraces, and with a table of function times.
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
    match edges > 1 || (frames > 1 && frames * 2 >= lines) || has_times(head) {
        true => Guess::Likely,
        false => Guess::No,
    }
}

/// Whether a line has titles such as `System Call  Count  Total ns  Avg ns  Min ns  Max ns`, with rows below.
fn has_times(head: &[u8]) -> bool {
    let mut lines = Lines::of(head);
    while let Some(line) = lines.next() {
        let Some(table) = ValueTable::of(line.text)
            .filter(|table| table.values.len() >= TABLE.0 && table.units() >= TABLE.1)
        else {
            continue;
        };
        let below = lines.clone().map(|line| line.text);
        let mut rows = below
            .filter(|text| !text.trim_ascii().is_empty())
            .take(ROWS);
        let is_row = |text: &[u8]| {
            table
                .row(text)
                .is_some_and(|(keys, _)| !keys.contains(&&b""[..]))
        };
        if rows.by_ref().filter(|text| is_row(text)).count() == ROWS {
            return true;
        }
    }
    false
}

/// Whether a text shows the command of its output: `# stap pfaults.stp`, `$ ./tcp_trace.stp 10`.
pub(super) fn has_command(head: &[u8]) -> bool {
    Lines::of(head).any(|line| {
        let command = line.text.split_first().and_then(|(prompt, rest)| {
            matches!(prompt, b'#' | b'$' | b'%')
                .then_some(rest)?
                .strip_prefix(b" ")
        });
        let word = command.and_then(|command| {
            command
                .trim_ascii_start()
                .split(|&byte| byte == b' ')
                .next()
        });
        word.is_some_and(|word| word == b"stap" || word.ends_with(b".stp"))
    })
}

/// ` 0x… : symbol+0x1/0x2`, or the address again.
fn has_symbol(line: &[u8]) -> bool {
    line.windows(3).any(|part| part == b" : ")
}
