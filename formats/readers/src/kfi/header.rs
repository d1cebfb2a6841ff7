//! The part before the rows: triggers, filters, counters.
//!
//! ```text
//! Kernel Instrumentation Run ID 0
//! Logging started at 6785045 usec by entry to function start_kernel
//! Logging stopped at 8423650 usec by log full
//! Filters:
//!         500 usecs minimum execution time
//! Execution time filter count = 896348
//! Entries not found = 24
//! Number of entries after filters = 1757
//! ```

use crate::lines::unsigned;

/// A line of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A run begins: its number.
    Run(&'a str),
    /// The start trigger and its time in microseconds.
    Started(u64, &'a str),
    /// The stop trigger and its time in microseconds.
    Stopped(u64, &'a str),
    /// A filter: its keyword in the configuration, its value.
    Filter(&'static str, &'a str),
    /// Number of calls dropped by a filter: the filter, the reason for `losses`, the count.
    Filtered(&'static str, &'static str, u64),
    /// Number of calls dropped by all filters.
    FilteredInAll(u64),
    /// Number of exits whose entry is not in the log.
    NotFound(u64),
    /// Number of rows that follow.
    Entries(u64),
    /// No run exists, or it is unfinished.
    Status(&'a str),
    /// The names of the columns.
    Columns,
    /// The ruler under them.
    Ruler {
        /// Whether the gaps are those of 2.4 and of the console dump.
        is_dump: bool,
    },
    /// A title without information.
    Title,
}

/// Parses a header line; `None` if it is not one.
pub(super) fn line(text: &[u8]) -> Option<Line<'_>> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if text.starts_with("--------") {
        let is_dump = text.starts_with("--------   ");
        return Some(Line::Ruler { is_dump });
    }
    if let Some(id) = text.strip_prefix("Kernel Instrumentation Run ID ") {
        return Some(Line::Run(id));
    }
    if let Some((mark, by)) = trigger(text, "Logging started at ") {
        return Some(Line::Started(mark, by));
    }
    if let Some((mark, by)) = trigger(text, "Logging stopped at ") {
        return Some(Line::Stopped(mark, by));
    }
    if is_columns(text) {
        return Some(Line::Columns);
    }
    match text {
        "Filters:" | "Filter Counters:" | "function list" => return Some(Line::Title),
        "No logging run registered" | "Logging not yet triggered" | "Logging is running" => {
            return Some(Line::Status(text));
        }
        "no functions in interrupt context" => return Some(Line::Filter("noints", "true")),
        "no functions NOT in interrupt context" => return Some(Line::Filter("onlyints", "true")),
        _ => {}
    }
    filter(text).or_else(|| counter(text))
}

/// `Logging started at 12 usec by …`
fn trigger<'a>(text: &'a str, start: &str) -> Option<(u64, &'a str)> {
    let (mark, by) = text.strip_prefix(start)?.split_once(" usec by ")?;
    Some((unsigned(mark.as_bytes())?, by.trim()))
}

/// ` Entry    Delta     PID        Function                        Caller`
fn is_columns(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    ["Entry", "Delta", "PID", "Function"]
        .iter()
        .all(|name| words.next() == Some(name))
}

fn filter(text: &str) -> Option<Line<'_>> {
    const ENDS: [(&str, &str); 3] = [
        (" usecs minimum execution time", "mintime"),
        (" usecs maximum execution time", "maxtime"),
        ("-entry function list", "funclist"),
    ];
    let of = |(end, name): &(&str, &'static str)| {
        let value = text.strip_suffix(end)?;
        unsigned(value.as_bytes())?;
        Some(Line::Filter(name, value))
    };
    ENDS.iter().find_map(of)
}

fn counter(text: &str) -> Option<Line<'_>> {
    let (name, count) = text.split_once(" = ")?;
    let count = unsigned(count.trim().as_bytes())?;
    Some(match name {
        "Execution time filter count" => {
            Line::Filtered("execution_time", "filtered by execution time", count)
        }
        "No Interrupt functions filter count" => {
            Line::Filtered("noints", "filtered: in interrupts", count)
        }
        "Only Interrupt functions filter count" => {
            Line::Filtered("onlyints", "filtered: not in interrupts", count)
        }
        "Function List filter count" => Line::Filtered("funclist", "filtered by function", count),
        "Total entries filtered" => Line::FilteredInAll(count),
        "Entries not found" => Line::NotFound(count),
        "Number of entries after filters" => Line::Entries(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<Line<'_>>) {
        assert_eq!(line(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn lines() {
        check("Kernel Instrumentation Run ID 3", Some(Line::Run("3")));
        check(
            "Logging started at 12 usec by entry to function f   ",
            Some(Line::Started(12, "entry to function f")),
        );
        check(
            "Logging stopped at 13 usec by log full",
            Some(Line::Stopped(13, "log full")),
        );
        check("Logging stopped at x usec by log full", None);
        check(
            "\t500 usecs minimum execution time",
            Some(Line::Filter("mintime", "500")),
        );
        check(
            "\t3-entry function list",
            Some(Line::Filter("funclist", "3")),
        );
        check(
            "\tno functions NOT in interrupt context",
            Some(Line::Filter("onlyints", "true")),
        );
        check("Entries not found = 5", Some(Line::NotFound(5)));
        check("Entries not found = -5", None);
        check(
            " Entry      Delta      PID            Function                    Called At",
            Some(Line::Columns),
        );
        check(
            "-------- -------- -----",
            Some(Line::Ruler { is_dump: false }),
        );
        check(
            "--------   --------   ---",
            Some(Line::Ruler { is_dump: true }),
        );
        check("All times are in microseconds.", None);
    }
}
