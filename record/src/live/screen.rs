//! Where a display goes: a whole terminal, which is restored at the end, or text, one block per interval.

use std::io::{self, IsTerminal, Write};

use terminal_size::{Height, Width, terminal_size};

use super::paint::Line;
use perfquet_cli::terminal;

/// The alternate screen; the cursor is hidden, long lines are not wrapped.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The screen of a display.
pub(super) struct Screen {
    form: Form,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The whole terminal.
    Full {
        has_colors: bool,
    },
    Text,
}

impl Screen {
    /// Takes the whole terminal if stdout is one and no command writes to it. Messages wait until it is restored.
    pub(super) fn open(has_command: bool) -> Screen {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb" || name.is_empty());
        let is_full = io::stdout().is_terminal() && !has_command && !is_dumb;
        let form = match is_full {
            // <https://no-color.org>
            true => Form::Full {
                has_colors: !is_set("NO_COLOR"),
            },
            false => Form::Text,
        };
        if is_full {
            terminal::hold_messages();
            // A terminal that was closed ends the recording by a signal.
            let _ = write(ENTER);
        }
        Screen {
            form,
            is_closed: false,
        }
    }

    /// Whether the display takes the whole terminal.
    pub(super) fn is_full(&self) -> bool {
        self.form != Form::Text
    }

    /// Columns and lines; `None` if nothing is to be shortened.
    pub(super) fn size(&self) -> Option<(usize, usize)> {
        if !self.is_full() {
            return None;
        }
        let (Width(width), Height(height)) = terminal_size().unwrap_or((Width(80), Height(24)));
        Some((width.into(), height.into()))
    }

    /// Shows the lines in place of the last ones, or below them. Returns whether they can be read.
    pub(super) fn show(&mut self, lines: &[Line]) -> bool {
        if self.is_closed {
            return true;
        }
        write(&text(lines, self.form)).is_ok()
    }

    /// Restores the terminal, and prints the messages that waited.
    pub(super) fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) || !self.is_full() {
            return;
        }
        let _ = write(LEAVE);
        terminal::release_messages();
    }
}

fn text(lines: &[Line], form: Form) -> String {
    let mut text = String::new();
    match form {
        Form::Full { has_colors } => {
            text.push_str(HOME);
            for (index, line) in lines.iter().enumerate() {
                // The last line has no end, which would scroll.
                if index > 0 {
                    text.push_str("\r\n");
                }
                match line.is_head && has_colors {
                    true => text.extend([BOLD, &line.text, PLAIN]),
                    false => text.push_str(&line.text),
                }
                text.push_str(REST_OF_LINE);
            }
            text.push_str(REST_OF_SCREEN);
        }
        Form::Text => {
            text.push('\n');
            for line in lines {
                text.extend([&line.text, "\n"]);
            }
        }
    }
    text
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_gets_escapes() {
        let line = |text: &str, is_head| Line {
            text: text.to_owned(),
            is_head,
        };
        let lines = [line("after 1.0 s", false), line("now", true)];
        let check = |form, expected: &str| assert_eq!(text(&lines, form), expected);
        check(Form::Text, "\nafter 1.0 s\nnow\n");
        check(
            Form::Full { has_colors: true },
            "\x1b[Hafter 1.0 s\x1b[K\r\n\x1b[1mnow\x1b[0m\x1b[K\x1b[J",
        );
        check(
            Form::Full { has_colors: false },
            "\x1b[Hafter 1.0 s\x1b[K\r\nnow\x1b[K\x1b[J",
        );
    }
}
