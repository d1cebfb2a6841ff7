//! Recognizes what `dtrace` prints by its heads, its notices and its stacks.

use super::record::Head;
use super::{cells, distribution, flow, stack, table};
use crate::Guess;
use crate::lines::{Line, Lines, signed};

/// Certain of notices and heads. What a script prints quietly may be anything: `--from dtrace` says what it is.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if structure(head).is_some() {
        return Guess::Certain;
    }
    if head
        .iter()
        .any(|byte| *byte < 0x20 && !byte.is_ascii_whitespace())
    {
        return Guess::No;
    }
    let lines: Vec<Line<'_>> = Lines::of(head).collect();
    let mut has_frame = false;
    let mut arrows = 0;
    let mut rows = 0;
    let mut is_framed = 0;
    for line in &lines {
        let text = line.text.strip_prefix(b"^C").unwrap_or(line.text);
        let is_head = Head::of(text).is_some() || flow::is_head(text);
        let columns = flow::Columns::of(text).is_some();
        if text.starts_with(b"dtrace: ") || is_head || columns || distribution::head(text).is_some()
        {
            return Guess::Certain;
        }
        if stack::is_frame(text) && text.contains(&b'`') {
            has_frame = true;
        } else if has_frame && signed(text.trim_ascii()).is_some() {
            return Guess::Certain;
        } else if let Some(flow) = flow::flow(text, false) {
            // Without a CPU, ftrace's stacks have such arrows too.
            let is_frame = flow.cpu.is_none() && text.trim_ascii_start().starts_with(b"=>");
            arrows += usize::from(!is_frame);
        } else if cells::row(text).is_some_and(|row| !row.keys.is_empty()) {
            rows += 1;
        }
        // A ruler within three lines of a framed title.
        is_framed = match table::framed(text) {
            Some(_) => 4,
            None => i32::max(is_framed - 1, 0),
        };
        if is_framed > 0 && table::is_ruler(text) {
            return Guess::Likely;
        }
    }
    let has_rows = rows >= 3 && rows * 2 >= lines.len();
    match has_frame || arrows >= 3 || has_rows {
        true => Guess::Likely,
        false => Guess::No,
    }
}

/// The forms of structured output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Structure {
    /// `{"dtrace": …`
    Json,
    /// XML with the root `dtrace`.
    Xml,
}

/// `None`: text.
pub(super) fn structure(head: &[u8]) -> Option<Structure> {
    let text = head.trim_ascii_start();
    if let Some(json) = text.strip_prefix(b"{") {
        let is_dtrace = json.trim_ascii_start().starts_with(b"\"dtrace\"");
        return is_dtrace.then_some(Structure::Json);
    }
    // The root stands behind a declaration and perhaps a comment.
    let start = text.get(..text.len().min(1024))?;
    let is_xml = text.starts_with(b"<?xml") || text.starts_with(b"<dtrace");
    let has_root = start
        .windows(8)
        .any(|part| part == b"<dtrace>" || part == b"<dtrace ");
    (is_xml && has_root).then_some(Structure::Xml)
}
