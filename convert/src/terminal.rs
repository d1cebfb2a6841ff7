//! What goes to stderr, with nothing in it that a terminal would obey.
//!
//! Names of files, threads and events come from foreign inputs; an escape in them could retitle the terminal
//! or worse. All text goes through [`plain`].

use std::io::Write;

/// The name in front of what we say.
const NAME: &str = "perfquet-convert";

/// Says one thing, after the program's name.
pub(crate) fn say(text: &str) {
    put(&format!("{NAME}: {text}"));
}

/// Says what to do next.
pub(crate) fn hint(text: &str) {
    put(&format!("hint: {text}"));
}

/// A line of stderr. If nobody reads it there is nobody to tell.
pub(crate) fn put(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", plain(text));
}

/// The text with control characters, but for line ends, made visible; so are those that change the direction of
/// writing.
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
