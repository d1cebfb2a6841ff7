//! Output to stderr. Write errors are ignored: a closed or broken stderr must not end the recording, and least of all
//! the recorded command.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use perfquet_trace::count::counted;

/// Maximum number of messages that wait; later ones are dropped and counted.
const MOST_HELD: usize = 1000;

static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// Messages that wait while a display takes the terminal.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

#[derive(Default)]
struct Held {
    text: String,
    messages: usize,
}

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
    if let Some(held) = &mut *held() {
        held.messages += 1;
        if held.messages <= MOST_HELD {
            held.text.push_str(&line);
        }
        return;
    }
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Keeps messages until [`release_messages`], because a display takes the whole terminal.
pub(crate) fn hold_messages() {
    held().get_or_insert_default();
}

/// Prints the messages that waited.
pub(crate) fn release_messages() {
    let Some(mut held) = held().take() else {
        return;
    };
    let dropped = held.messages.saturating_sub(MOST_HELD);
    if dropped > 0 {
        held.text += &format!(
            "perfquet-record: {} more\n",
            counted(dropped as u64, "message")
        );
    }
    let _ = std::io::stderr().lock().write_all(held.text.as_bytes());
}

/// Whole lines, even if their last holder panicked.
fn held() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a message of the logger.
pub(crate) fn log(is_warning: bool, text: std::fmt::Arguments<'_>) {
    match is_warning {
        true => say(format_args!("perfquet-record: {text}")),
        false => say(format_args!("  {text}")),
    }
}
