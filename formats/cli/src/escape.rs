//! Escapes for control characters, so that a name in a trace cannot color, retitle or reorder a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns the text with control characters and marks of text direction as escapes: `\x1b[31m`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_where(text, |_| true)
}

/// Escapes like [`escaped`], but only the characters selected by `is_escaped`.
pub fn escaped_where(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harmful = |letter: char| is_harmful(letter) && is_escaped(letter);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            letter if !harmful(letter) => safe.push(letter),
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            letter if (letter as u32) < 0x100 => {
                let _ = write!(safe, "\\x{:02x}", letter as u32);
            }
            letter => {
                let _ = write!(safe, "\\u{{{:x}}}", letter as u32);
            }
        }
    }
    Cow::Owned(safe)
}

/// C0 and C1 controls (some terminals take U+009B for ESC [), and the marks that change the direction of text.
fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            escaped("evil\x1b[31m\u{9b}\n\u{202e}x"),
            "evil\\x1b[31m\\x9b\\n\\u{202e}x"
        );
        assert!(matches!(escaped("plain é 漢"), Cow::Borrowed(_)));
        let without_lines = |text| escaped_where(text, |letter| letter != '\n').into_owned();
        assert_eq!(without_lines("a\nb\rc"), "a\nb\\rc");
    }
}
