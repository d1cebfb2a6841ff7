//! Recognizes perf script's text by perf's header or by heads of samples.

use perfquet_events::Guess;

use super::layout::{Layout, is_frame_alone};
use super::location::location;
use super::{frame, head};
use crate::lines::Lines;

/// Number of lines examined.
const LINES: usize = 40;

/// Certain with perf's header or with a head followed by frames; otherwise likely.
pub(super) fn sniff(text: &[u8]) -> Guess {
    if text.contains(&0) {
        return Guess::No;
    }
    let lines: Vec<&[u8]> = Lines::of(text).take(LINES).map(|line| line.text).collect();
    if is_report(text) {
        return Guess::No;
    }
    let is_header = |line: &&[u8]| line.starts_with(b"# captured on");
    if lines.iter().any(is_header) {
        return Guess::Certain;
    }
    let is_head = |line: &[u8]| {
        head::with_time(line).is_some_and(|head| {
            !head.event.is_empty()
                || head.rest.is_empty()
                || head.rest.starts_with(b"PERF_RECORD_")
                || location(head.rest, false).has_frame_alone()
        })
    };
    let heads = lines.iter().filter(|line| is_head(line)).count();
    let others = |is_frame: fn(&[u8]) -> bool| {
        let is_other = |line: &&&[u8]| {
            !is_head(line) && !is_frame(line) && !line.is_empty() && !line.starts_with(b"#")
        };
        lines.iter().filter(is_other).count()
    };
    // Below heads with times, every line that can be a frame is one.
    let is_any_frame =
        |line: &[u8]| is_frame(line) || line.starts_with(b"\t") && frame::frame(line).is_some();
    if heads > 0 && heads >= others(is_any_frame) {
        return Guess::Likely;
    }
    // Heads without times: unindented lines with frames below.
    let starts_sample = lines.windows(2).filter(|pair| match pair {
        [first, second] => {
            let is_indented = matches!(first.first(), Some(b' ' | b'\t'));
            let is_comment = matches!(first.first(), Some(b'#' | b'@'));
            // Only numbers are right-aligned.
            let is_number = |head: &head::Head<'_>| head.comm.is_none() && head.rest.is_empty();
            head::without_time(first).is_some_and(|head| !is_indented || is_number(&head))
                && !is_comment
                && is_frame(second)
        }
        _ => false,
    });
    let frames = lines.iter().filter(|line| is_frame(line)).count();
    let samples = starts_sample.count();
    // Frames alone: `-F ip,sym`.
    let is_stack = |line: &[u8]| {
        is_frame_alone(line) && (is_frame(line) || is_column(line)) || line.is_empty()
    };
    let has_frames = frames > 0 || lines.iter().any(|line| is_column(line));
    if has_frames && matches!(Layout::of(text), Layout::NoHeads { .. }) && others(is_stack) == 0 {
        return Guess::Likely;
    }
    // Samples in one line, without times and stacks. Rows of a table of numbers end with an address, too.
    let is_sample = |line: &[u8]| {
        let is_number = |byte: &u8| byte.is_ascii_digit() || b" -.".contains(byte);
        let is_name = |comm: &[u8]| !comm.iter().all(is_number);
        let head = head::without_time(line).filter(|head| {
            (head.tid.is_some() || head.period.is_some()) && head.comm.is_none_or(is_name)
        });
        head::location_start(line).is_some()
            && head.is_some_and(|head| location(head.rest, false).has_frame_alone())
    };
    let mut contents = lines
        .iter()
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    if contents.next().is_some_and(|line| is_sample(line)) && contents.all(|line| is_sample(line)) {
        return Guess::Likely;
    }
    // Other tools also indent numbers and names below a title.
    if samples > 0 && samples + frames >= others(is_frame) {
        Guess::Likely
    } else {
        Guess::No
    }
}

/// perf report prints the same header, followed by totals instead of events.
pub fn is_report(text: &[u8]) -> bool {
    const STARTS: [&[u8]; 3] = [b"# Samples: ", b"# Total Lost Samples: ", b"# Overhead"];
    Lines::of(text).any(|line| STARTS.iter().any(|start| line.text.starts_with(start)))
}

/// ` %16lx symbol`, of samples without stacks and heads.
fn is_column(line: &[u8]) -> bool {
    let (address, rest) = line.split_at_checked(17).unwrap_or((line, &[]));
    let is_symbol = matches!(rest, [b' ', symbol, ..] if *symbol != b' ');
    let value = perfquet_events::scan::bare_hex(address.trim_ascii_start());
    address.starts_with(b" ") && is_symbol && value.is_some_and(|value| value > 0xfff)
}

/// An indented address with a symbol: rows of other formats have numbers alone. Pasted text may have lost its
/// indentation.
fn is_frame(line: &[u8]) -> bool {
    let is_indented = matches!(line.first(), Some(b' ' | b'\t'));
    let is_long = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count()
        >= 8;
    (is_indented || is_long)
        && frame::frame(line).is_some_and(|printed| {
            let frame = printed.frame;
            let is_symbol = frame
                .function
                .first()
                .is_some_and(|byte| !byte.is_ascii_digit() && *byte != b'-');
            let is_sure = line.starts_with(b"\t") || !frame.module.is_empty();
            frame.address.is_some_and(|address| address > 0xfff)
                && (is_symbol && is_sure || !frame.module.is_empty())
        })
}
