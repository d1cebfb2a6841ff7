//! `say!` prints a message to stderr, as `eprintln!` would, but a closed pipe (`2>&1 | head -1`, `2>&-`) does no harm, control
//! characters are escaped, and lines fit the terminal.

use std::io::IsTerminal;

use perfquet_cli::terminal;

use crate::text::{columns, wrapped};

/// A message on stderr.
macro_rules! say {
    ($($word:tt)*) => {
        $crate::message::put(format_args!($($word)*))
    };
}

/// Prints the message of `say!`.
pub(crate) fn put(text: std::fmt::Arguments<'_>) {
    let Some(width) = width() else {
        return terminal::say(text);
    };
    let text = text.to_string();
    let lines: Vec<String> = text.split('\n').map(|line| fitted(line, width)).collect();
    terminal::say(lines.join("\n"));
}

/// Columns of the terminal on stderr; `None` without one.
fn width() -> Option<usize> {
    let stderr = std::io::stderr();
    if !stderr.is_terminal() {
        return None;
    }
    let given = std::env::var("COLUMNS").ok();
    let given = given.and_then(|text| text.parse().ok());
    given.or_else(|| terminal_size::terminal_size_of(stderr).map(|(width, _)| width.0.into()))
}

/// A line on several lines of a terminal. Quoted SQL and hints, which may be commands to copy, stay as they are.
fn fitted(line: &str, width: usize) -> String {
    if line.starts_with(' ') || line.starts_with("hint: ") || columns(line) <= width {
        return line.to_owned();
    }
    let lines = wrapped(line, width.saturating_sub(2));
    lines.join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_fit_the_terminal_and_hints_can_be_copied() {
        let note = "cycles; other events: sched:sched_switch (--event)";
        assert_eq!(
            fitted(note, 30),
            "cycles; other events:\n  sched:sched_switch (--event)"
        );
        let hint = "hint: use perfquet-query agg TRACE";
        assert_eq!(fitted(hint, 20), hint);
        assert_eq!(fitted("  SELECT 1 + 1", 5), "  SELECT 1 + 1");
    }
}
