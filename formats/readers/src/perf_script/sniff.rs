//! Recognizes perf script's text by perf's header or by heads of samples.

use perfquet_events::Guess;

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
            !head.event.is_empty() || head.rest.is_empty() || head.rest.starts_with(b"PERF_RECORD_")
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
            head::without_time(first).is_some()
                && first
                    .first()
                    .is_some_and(|byte| !matches!(byte, b' ' | b'\t' | b'#' | b'@'))
                && is_frame(second)
        }
        _ => false,
    });
    let frames = lines.iter().filter(|line| is_frame(line)).count();
    let samples = starts_sample.count();
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
