//! Recognizes ftrace's text by the header of the kernel or of trace-cmd, by heads of events, or by typical lines.

use perfquet_events::Guess;

use super::{dump, graph, head, header, hist, mmio, page};
use crate::lines::Lines;

/// Number of lines examined.
const LINES: usize = 40;

/// Certain with a header or heads, likely with other lines.
pub(super) fn sniff(text: &[u8]) -> Guess {
    if page::is_page(text) || dump::announced(text).is_some() {
        return Guess::Certain;
    }
    if text.contains(&0) && !text.starts_with(b"#") && !text.starts_with(b" ") {
        return Guess::No;
    }
    if Lines::of(text)
        .next()
        .is_some_and(|line| is_babeltrace(line.text))
    {
        return Guess::No;
    }
    let mut heads = 0;
    let mut normal_heads = 0;
    let (mut has_cpus, mut has_version) = (false, false);
    let mut others = 0;
    for (index, line) in Lines::of(text).take(LINES).enumerate() {
        let text = line.text;
        if text.starts_with(b"#") {
            match header::line(text) {
                header::HeaderLine::Tracer(_)
                | header::HeaderLine::Entries { .. }
                | header::HeaderLine::Histogram => return Guess::Certain,
                _ => continue,
            }
        }
        if index < 10 {
            // Configurations and scripts have one of both.
            has_cpus |= matches!(header::of_tool(text), Some(header::HeaderLine::Cpus(_)));
            has_version |= is_version(text);
            if has_cpus && has_version {
                return Guess::Certain;
            }
        }
        if head::normal(text).is_some() {
            normal_heads += 1;
            heads += 1;
        } else if is_other(text) {
            heads += 1;
        } else if !is_part(text) {
            others += 1;
        }
    }
    // `comm-tid [cpu] time:` is unique to ftrace; the stacks below may look like those of other tools.
    if (normal_heads >= 2 || has_cpus && heads >= 1) && heads >= others {
        Guess::Certain
    } else if ((heads >= 1 || has_cpus) && heads >= others) || dump::is_log(text) {
        Guess::Likely
    } else {
        Guess::No
    }
}

/// Whether trace-cmd printed the version of a file: `version = 6`.
fn is_version(line: &[u8]) -> bool {
    let version = line.strip_prefix(b"version = ");
    version.is_some_and(|version| matches!(version.trim_ascii(), [b'0', b'.', ..] | [b'1'..=b'9']))
}

/// Whether the line is an event of CTF as babeltrace prints it: `[time] (+delta) host name: { cpu_id = 0 }, { … }`.
fn is_babeltrace(text: &[u8]) -> bool {
    let is_time = |byte: &u8| byte.is_ascii_digit() || b":.- ".contains(byte);
    let rest = text
        .strip_prefix(b"[")
        .and_then(|text| perfquet_events::scan::split_once(text, b"] "));
    rest.is_some_and(|(time, event)| {
        let is_event = perfquet_events::scan::find_text(event, b": { ").is_some();
        time.iter().all(is_time) && is_event && event.ends_with(b"}")
    })
}

/// Whether the line is an event in another form.
fn is_other(text: &[u8]) -> bool {
    is_graph(text)
        || header::loss(text).is_some()
        || head::latency(text).is_some()
        || head::verbose(text).is_some()
        || head::raw(text).is_some()
        || head::blk_classic(text).is_some()
        || mmio::line(text).is_some()
        || hist::is_row(text)
}

/// Whether the line is unmistakably of a graph: a duration or nothing, a bar, and a function after it.
fn is_graph(text: &[u8]) -> bool {
    match graph::line(text, false) {
        Some(graph::GraphLine::Function { text, .. }) => graph::content(text).is_some(),
        Some(graph::GraphLine::Interrupt { .. } | graph::GraphLine::Switch { .. }) => true,
        None => false,
    }
}

/// Whether the line is blank, a stack frame, or a message of a tool.
fn is_part(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    text.is_empty()
        || text.starts_with(b"=>")
        || header::of_tool(text).is_some()
        || mmio::fact(text).is_some()
}
