//! Recognizes the output of `dtrace` by its column heads, notices and stacks.

use perfquet_events::Guess;
use perfquet_events::scan::split_once;

use super::record::Head;
use super::{cells, flow, stack};
use crate::columns as table;
use crate::distribution;
use crate::lines::{Line, Lines, signed};

/// Certain for notices and column heads. Output that a script prints with `-q` may have any form and needs `--from
/// dtrace`.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if structure(head).is_some() {
        return Guess::Certain;
    }
    let is_binary = head
        .iter()
        .any(|byte| *byte < 0x20 && !byte.is_ascii_whitespace());
    if is_binary || is_json(head) {
        return Guess::No;
    }
    let lines: Vec<Line<'_>> = Lines::of(head).collect();
    let mut frames = 0;
    let mut entries = 0;
    let mut returns = 0;
    let mut rows = 0;
    let mut hits = 0;
    let mut is_framed = 0;
    for line in &lines {
        let text = line.text.strip_prefix(b"^C").unwrap_or(line.text);
        let is_head = Head::of(text).is_some() || flow::is_head(text);
        let columns = flow::Columns::of(text).is_some();
        if text.starts_with(b"dtrace: ") || is_head || columns || distribution::head(text).is_some()
        {
            return Guess::Certain;
        }
        // Without column heads: `%3d %6d %32s`.
        hits += usize::from(Head::USUAL.hit(text).is_some());
        if is_named_frame(text) {
            frames += 1;
        } else if frames > 0 && signed(text.trim_ascii()).is_some() {
            return Guess::Certain;
        } else if let Some(flow) = flow::flow(text, false) {
            // Stacks of ftrace have such arrows too, but no CPU.
            let is_frame = flow.cpu.is_none() && text.trim_ascii_start().starts_with(b"=>");
            entries += usize::from(!is_frame && flow.edge == flow::Edge::Enter);
            returns += usize::from(flow.edge == flow::Edge::Leave);
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
    // A few such lines among many may be quoted from another source.
    let has_stack = frames > 0 && frames * 8 >= lines.len();
    let has_flow = entries > 0 && returns > 0 && entries + returns >= 3;
    let contents = lines
        .iter()
        .filter(|line| !line.text.trim_ascii().is_empty());
    let has_hits = hits > 0 && hits * 2 >= contents.count();
    match has_stack || has_flow || has_rows || has_hits {
        true => Guess::Likely,
        false => Guess::No,
    }
}

/// Whether a line is indented and consists of a module, a backtick and a function. Shells and markup use backticks too.
fn is_named_frame(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let Some((module, symbol)) = split_once(text, b"`") else {
        return false;
    };
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_module = module.first().is_some_and(is_name)
        && module
            .iter()
            .all(|byte| is_name(byte) || b".-+:@/".contains(byte));
    let is_symbol = symbol.first().is_some_and(|byte| is_name(byte) || b".~$<".contains(byte))
        && !symbol.contains(&b'`')
        // A C++ function has its parameters.
        && (!symbol.contains(&b' ') || symbol.contains(&b'('));
    stack::is_frame(line) && is_module && is_symbol
}

/// Whether the text is JSON of another tool, whose strings may contain anything.
fn is_json(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    let inner = text.strip_prefix(b"{").or_else(|| text.strip_prefix(b"["));
    inner.is_some_and(|inner| matches!(inner.trim_ascii_start().first(), Some(b'"' | b'{' | b'[')))
}

/// The forms of structured output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Structure {
    /// `{"dtrace": …`
    Json,
    /// XML with the root `dtrace`.
    Xml,
}

/// The form of structured output; `None` for text.
pub(super) fn structure(head: &[u8]) -> Option<Structure> {
    let text = head.trim_ascii_start();
    if let Some(json) = text.strip_prefix(b"{") {
        let is_dtrace = json.trim_ascii_start().starts_with(b"\"dtrace\"");
        return is_dtrace.then_some(Structure::Json);
    }
    // The root follows a declaration and an optional comment.
    let start = text.get(..text.len().min(1024))?;
    let is_xml = text.starts_with(b"<?xml") || text.starts_with(b"<dtrace");
    let has_root = start
        .windows(8)
        .any(|part| part == b"<dtrace>" || part == b"<dtrace ");
    (is_xml && has_root).then_some(Structure::Xml)
}
