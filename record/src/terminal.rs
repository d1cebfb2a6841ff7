//! What goes to stderr. If nobody reads it, there is nobody to tell: a closed or broken stderr ends nothing, least of all
//! the command that is recorded.

use std::fmt::Display;
use std::io::Write;

/// A line of stderr.
pub(crate) fn say(text: impl Display) {
    // In one piece: the command writes there, too.
    let line = format!("{text}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Prints a message of the logger.
pub(crate) fn log(is_warning: bool, text: std::fmt::Arguments<'_>) {
    match is_warning {
        true => say(format_args!("perfquet-record: {text}")),
        false => say(format_args!("  {text}")),
    }
}
