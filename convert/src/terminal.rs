//! Output to stderr, without control sequences for the terminal.
//!
//! Names of files, threads and events come from untrusted inputs; an escape in them could retitle the terminal or
//! worse. All text goes through [`plain`].

use std::borrow::Cow;
use std::io::Write;

use perfquet_cli::escaped_where;

/// Prefix of messages.
const NAME: &str = "perfquet-convert";

/// Prints a message after the program's name.
pub(crate) fn say(text: &str) {
    put(&format!("{NAME}: {text}"));
}

/// Prints a hint.
pub(crate) fn hint(text: &str) {
    put(&format!("hint: {text}"));
}

/// Prints a line to stderr. Write errors are ignored: there is no other place to report them.
pub(crate) fn put(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", plain(text));
}

/// Prints a message of the logger.
pub(crate) fn log(is_warning: bool, text: std::fmt::Arguments<'_>) {
    match is_warning {
        true => say(&text.to_string()),
        false => put(&text.to_string()),
    }
}

/// Escapes control characters, except newlines.
fn plain(text: &str) -> Cow<'_, str> {
    escaped_where(text, |letter| letter != '\n')
}
