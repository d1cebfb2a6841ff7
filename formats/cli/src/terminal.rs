//! What the programs say on stderr: messages, which `--quiet` silences, and errors.
//!
//! Names of files, threads and events come from untrusted inputs and from other users' processes; an escape sequence in
//! them could retitle the terminal or worse, so control characters are escaped. Errors of writing are ignored: a closed or
//! broken stderr must not end a program, and there is no other place to report them.

use std::error::Error;
use std::fmt::{Arguments, Display};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::escaped_where;

/// Maximum number of messages that wait; later ones are dropped and counted.
const MOST_HELD: usize = 1000;

static PROGRAM: OnceLock<&'static str> = OnceLock::new();
static IS_QUIET: AtomicBool = AtomicBool::new(false);
static IS_MUTED: AtomicBool = AtomicBool::new(false);
/// Messages that wait while a display takes the terminal.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

#[derive(Default)]
struct Held {
    text: String,
    messages: usize,
}

/// Sets the name that precedes errors and warnings.
pub fn set_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

/// Prints nothing but errors from now on.
pub fn set_quiet(is_quiet: bool) {
    IS_QUIET.store(is_quiet, Ordering::Relaxed);
}

/// Whether only errors are printed.
pub fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Computes a part without its messages, which are those of other parts or repeated elsewhere.
pub fn muted<T>(part: impl FnOnce() -> T) -> T {
    IS_MUTED.store(true, Ordering::Relaxed);
    let answer = part();
    IS_MUTED.store(false, Ordering::Relaxed);
    answer
}

/// Prints a message, unless the program is quiet.
pub fn say(text: impl Display) {
    if !is_quiet() && !IS_MUTED.load(Ordering::Relaxed) {
        put(text);
    }
}

/// Joins an error and its causes, without what was said before and without error numbers, which repeat the words before them:
/// `a.data: No such file or directory (os error 2)`.
pub fn sentence<'a>(causes: impl IntoIterator<Item = &'a (dyn Error + 'static)>) -> String {
    let mut sentence = String::new();
    for cause in causes {
        let cause = without_numbers(&cause.to_string());
        if sentence.contains(&cause) {
            continue;
        }
        if !sentence.is_empty() {
            sentence.push_str(": ");
        }
        sentence.push_str(&cause);
    }
    sentence
}

/// Drops the error numbers.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, after)) if number.parse::<i32>().is_ok() => rest.push_str(after),
            _ => rest.extend([" (os error ", part]),
        }
    }
    rest
}

/// Prints an error after the program's name, and what to do about it.
pub fn fail(error: impl Display, hints: impl IntoIterator<Item = impl Display>) {
    put(format_args!("{}: {error}", program()));
    for hint in hints {
        put(format_args!("hint: {hint}"));
    }
}

/// Prints a message of the logger.
pub fn log(is_warning: bool, text: Arguments<'_>) {
    match is_warning {
        true => say(format_args!("{}: {text}", program())),
        false => say(format_args!("  {text}")),
    }
}

/// Prints lines to stdout. Its end does not end the program.
pub fn print(lines: &[String]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all((lines.join("\n") + "\n").as_bytes());
    let _ = out.flush();
}

/// Keeps messages and errors until [`release_messages`], because a display takes the whole terminal.
pub fn hold_messages() {
    held().get_or_insert_default();
}

/// Prints what waited.
pub fn release_messages() {
    let Some(mut held) = held().take() else {
        return;
    };
    match held.messages.saturating_sub(MOST_HELD) {
        0 => {}
        1 => held.text += &format!("{}: 1 more message\n", program()),
        dropped => held.text += &format!("{}: {dropped} more messages\n", program()),
    }
    let _ = std::io::stderr().lock().write_all(held.text.as_bytes());
}

/// Takes what waits, for a program that reports messages in its own way; later messages wait again.
pub fn take_messages() -> Vec<String> {
    let text = held().as_mut().map(std::mem::take).unwrap_or_default();
    let dropped = text.messages.saturating_sub(MOST_HELD);
    let lines = text.text.lines().map(str::to_owned);
    let dropped = (dropped > 0).then(|| format!("{dropped} further messages"));
    lines.chain(dropped).collect()
}

fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("perfquet")
}

fn put(text: impl Display) {
    // In one write, because a recorded command writes to stderr, too.
    let line = format!("{text}\n");
    let line = escaped_where(&line, |letter| letter != '\n');
    if let Some(held) = &mut *held() {
        held.messages += 1;
        if held.messages <= MOST_HELD {
            held.text.push_str(&line);
        }
        return;
    }
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Whole lines, even if their last holder panicked.
fn held() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_printed_once_and_without_numbers() {
        let missing = std::io::Error::from_raw_os_error(2);
        let outer = std::io::Error::other(format!("cannot read a (os error x): {missing}"));
        let causes: [&(dyn Error + 'static); 2] = [&outer, &missing];
        assert_eq!(
            sentence(causes),
            "cannot read a (os error x): No such file or directory"
        );
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        hold_messages();
        set_quiet(true);
        say("not printed");
        fail("no file \u{1b}]0;title\u{7}", ["look\u{9b}here"]);
        let text = held().take().expect("they are held").text;
        let expected = "perfquet: no file \\x1b]0;title\\x07\nhint: look\\x9bhere\n";
        assert_eq!(text, expected);
        set_quiet(false);
    }
}
