//! Output to stderr, without control sequences for the terminal.
//!
//! Names of files, threads and events come from foreign inputs; an escape in them could retitle the terminal
//! or worse. All text goes through [`plain`].

use std::io::Write;

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

/// Makes control characters visible, except for newlines, and characters that change the text direction.
pub(crate) fn plain(text: &str) -> String {
    let is_harmful = |letter: char| {
        (letter.is_control() && letter != '\n')
            || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_harmful) {
        return text.to_owned();
    }
    text.chars()
        .map(|letter| match letter {
            letter if is_harmful(letter) => letter.escape_default().to_string(),
            letter => letter.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_shown() {
        assert_eq!(plain("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\n");
        assert_eq!(plain("ä\r\u{9b}\u{202e}"), "ä\\r\\u{9b}\\u{202e}");
    }
}
