//! Recognizes a log by its header or column heads, and a configuration by its keywords.

use perfquet_events::Guess;

use super::row::without_console;
use super::{config, header};
use crate::lines::Lines;

/// Lines examined: console messages may precede the log.
const LINES_MAX: usize = 60;

/// Certain for a header. An excerpt from the middle of a log looks like any table of numbers.
pub(super) fn sniff(head: &[u8]) -> Guess {
    let mut is_below_columns = false;
    for line in Lines::of(head).take(LINES_MAX) {
        let found = header::line(without_console(line.text));
        match found {
            Some(header::Line::Run(_) | header::Line::Started(..) | header::Line::Stopped(..)) => {
                return Guess::Certain;
            }
            Some(header::Line::Ruler { .. }) if is_below_columns => return Guess::Certain,
            Some(header::Line::Status(_)) if head.len() < 256 => return Guess::Certain,
            _ => {}
        }
        is_below_columns = matches!(found, Some(header::Line::Columns));
    }
    match config::is_config(head) {
        true => Guess::Likely,
        false => Guess::No,
    }
}
