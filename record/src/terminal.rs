//! Output to stderr. Write errors are ignored: a closed or broken stderr must not end the recording, and least of all
//! the recorded command.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Prints nothing but errors from now on.
pub(crate) fn set_quiet(is_quiet: bool) {
    IS_QUIET.store(is_quiet, Ordering::Relaxed);
}

/// Whether only errors are printed.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// A message: a line of stderr, unless the recorder is quiet.
pub(crate) fn say(text: impl Display) {
    if !is_quiet() {
        complain(text);
    }
}

/// Lines of stdout. Its end does not end the recording.
pub(crate) fn print(lines: &[String]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all((lines.join("\n") + "\n").as_bytes());
    let _ = out.flush();
}

/// An error: a line of stderr.
pub(crate) fn complain(text: impl Display) {
    // In one write, because the command writes to stderr too.
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
