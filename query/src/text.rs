//! Formats values, and escapes control characters for terminals.

use std::borrow::Cow;

use anyhow::Result;
use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use perfquet_cli::{escaped, escaped_where};

/// Format of values in tables and in CSV.
fn options() -> FormatOptions<'static> {
    FormatOptions::new()
        .with_null("")
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.9f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.9fZ"))
}

/// The values of a column as strings.
pub(crate) struct Texts<'a> {
    /// Includes the NULLs of types without a null buffer, such as the column of a bare `NULL`.
    nulls: Option<NullBuffer>,
    formatter: ArrayFormatter<'a>,
}

impl<'a> Texts<'a> {
    pub(crate) fn new(column: &'a dyn Array) -> Result<Texts<'a>> {
        // The options hold no reference into the column, so a static one serves all.
        static OPTIONS: std::sync::OnceLock<FormatOptions<'static>> = std::sync::OnceLock::new();
        let formatter = ArrayFormatter::try_new(column, OPTIONS.get_or_init(options))?;
        let nulls = column.logical_nulls();
        Ok(Texts { nulls, formatter })
    }

    /// One for each of these columns.
    pub(crate) fn of_columns(columns: &'a [ArrayRef]) -> Result<Vec<Texts<'a>>> {
        let texts = columns.iter().map(|column| Texts::new(column));
        texts.collect()
    }

    /// Appends the value of a row to `into`; returns false for NULL.
    pub(crate) fn write(&self, row: usize, into: &mut String) -> Result<bool> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(false);
        }
        self.formatter.value(row).write(into)?;
        Ok(true)
    }
}

/// Whether the values are numbers, which are right-aligned.
pub(crate) fn is_number(kind: &DataType) -> bool {
    kind.is_numeric()
}

/// Returns the text with control characters escaped: `\x1b[31m` cannot color the terminal, nor do worse.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text)
}

/// As [`harmless`], for a cell of a file that may be shown on a terminal later: newlines and tabs are part of the text.
pub(crate) fn harmless_cell(text: &str) -> Cow<'_, str> {
    escaped_where(text, |letter| !matches!(letter, '\n' | '\t'))
}

/// As [`harmless`], but lines stay lines: for messages of several lines.
pub(crate) fn harmless_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(harmless).collect();
    lines.join("\n")
}

/// Width of a string on a terminal, in columns. Wide characters (Chinese, Japanese, Korean, most symbols) take two.
pub(crate) fn columns(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.chars().map(letter_columns).sum()
}

fn letter_columns(letter: char) -> usize {
    match letter as u32 {
        0x300..=0x36f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Shortens a string to `width` columns. Cuts in the middle, because both ends matter: `core::iter…::fold`.
pub(crate) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    if width == 0 {
        return Cow::Borrowed("");
    }
    let room = width - 1;
    let letters: Vec<char> = text.chars().collect();
    let taken = |letters: &mut dyn Iterator<Item = &char>, room: usize| {
        let mut used = 0;
        letters
            .take_while(|&&letter| {
                used += letter_columns(letter);
                used <= room
            })
            .count()
    };
    let front = taken(&mut letters.iter(), room - room / 2);
    let back = taken(&mut letters.iter().rev(), room / 2);
    let short = letters[..front]
        .iter()
        .chain(&['…'])
        .chain(&letters[letters.len() - back..]);
    Cow::Owned(short.collect())
}

/// Shortens a path to `width` columns, within its directories if the name of the file fits: `/usr/li…/libc.so.6`.
pub(crate) fn cut_path(path: &str, width: usize) -> Cow<'_, str> {
    let name = path.rfind('/').map_or(path, |slash| &path[slash..]);
    let room = width.saturating_sub(1 + columns(name));
    if columns(path) <= width || columns(name) + 1 > width {
        return cut(path, width);
    }
    let mut used = 0;
    let front = path.chars().take_while(|&letter| {
        used += letter_columns(letter);
        used <= room
    });
    Cow::Owned(format!("{}…{name}", front.collect::<String>()))
}

/// Shortens a string to `width` columns at its end: `__x64_sys_exe…`.
pub(crate) fn cut_right(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    let mut short = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += letter_columns(letter);
        if used > width {
            break;
        }
        short.push(letter);
    }
    if width > 0 {
        short.push('…');
    }
    Cow::Owned(short)
}

/// Shortens the name of a function to `width` columns. Of a path, the last part remains, since many functions share its beginning:
/// `…::execute_query`.
pub(crate) fn shortened(name: &str, width: usize) -> Cow<'_, str> {
    if columns(name) <= width {
        return Cow::Borrowed(name);
    }
    let separators = separators(name);
    let Some(&last) = separators.last().filter(|&&at| at > 0) else {
        return cut_right(name, width);
    };
    // As many modules as there is room for.
    let fits = |&&at: &&usize| columns(&name[at..]) < width;
    if let Some(&at) = separators.iter().filter(|&&at| at > 0).find(fits) {
        return Cow::Owned(format!("…{}", &name[at..]));
    }
    cut_right(&name[last + 2..], width)
}

/// The own name of a function: without the modules in front of it, and without the functions that a comparison added to it.
pub(crate) fn shortest(name: &str) -> &str {
    let start = separators(name).into_iter().rfind(|&at| at > 0);
    let own = &name[start.unwrap_or(0)..];
    own.find(" (with ").map_or(own, |end| &own[..end])
}

/// [`shortest`] without the separator in front of it, as people type it.
pub(crate) fn own_name(name: &str) -> &str {
    let shortest = shortest(name);
    shortest.strip_prefix("::").unwrap_or(shortest)
}

/// [`shortened`] with the name's indentation, which is cut before the own name of the function.
pub(crate) fn indented_name(name: &str, width: usize) -> Cow<'_, str> {
    let start = name.len() - name.trim_start_matches(' ').len();
    let function = &name[start..];
    if start == 0 || columns(name) <= width {
        return shortened(name, width);
    }
    // One column for the mark of missing modules.
    let own = columns(shortest(function)) + usize::from(shortest(function).len() < function.len());
    let indentation = start.min(width.saturating_sub(own));
    let function = shortened(function, width - indentation);
    Cow::Owned(match (indentation < start, indentation) {
        (true, 0) => function.into_owned(),
        (true, room) => format!("…{}{function}", " ".repeat(room - 1)),
        (false, room) => format!("{}{function}", " ".repeat(room)),
    })
}

/// The lines of a text, broken between words where possible.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(2);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for letter in word.chars() {
            // A word that is wider than a line.
            if columns(&line) + letter_columns(letter) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(letter);
        }
    }
    lines.push(line);
    lines
}

/// Places of the `::` between the parts of a name, outside of brackets. A closure is part of its function's name.
fn separators(name: &str) -> Vec<usize> {
    let bytes = name.as_bytes();
    let (mut depth, mut found) = (0i32, Vec::new());
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b'}' | b']' => depth -= 1,
            b':' if depth == 0
                && bytes.get(at + 1) == Some(&b':')
                && bytes.get(at + 2).is_some_and(|&next| next != b'{') =>
            {
                found.push(at);
            }
            _ => {}
        }
    }
    found
}

/// Formats bytes in a fitting unit: `1.2 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A word for the shell: in single quotes, or in double quotes if it has single ones.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-=,:+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.contains('\'') {
        return format!("'{word}'");
    }
    let mut text = String::from("\"");
    for letter in word.chars() {
        if "\"\\$`".contains(letter) {
            text.push('\\');
        }
        text.push(letter);
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_the_shell() {
        assert_eq!(shell_word("--time=3s..4s"), "--time=3s..4s");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("x = 'a$b'"), "\"x = 'a\\$b'\"");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn names_are_shortened_from_the_front() {
        let name = "rustc_query_impl::plumbing::execute_query";
        assert_eq!(shortened(name, 60), name);
        assert_eq!(shortened(name, 30), "…::plumbing::execute_query");
        assert_eq!(shortened(name, 20), "…::execute_query");
        assert_eq!(shortened(name, 13), "execute_query");
        assert_eq!(shortened(name, 8), "execute…");
        assert_eq!(shortened("a_long_name_of_c", 8), "a_long_…");
        let method = "<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend::{closure#0}";
        assert_eq!(shortened(method, 30), "…::extend::{closure#0}");
        assert_eq!(shortened("ns::operator->(int)::run", 9), "…::run");
    }

    #[test]
    fn own_names_of_functions() {
        assert_eq!(shortest("a::b::run"), "::run");
        assert_eq!(shortest("vfs_read"), "vfs_read");
        assert_eq!(shortest("find (with a::b, c)"), "find");
        assert_eq!(indented_name("    a::b::run", 11), "    …::run");
        assert_eq!(indented_name("    a::b::run", 20), "    a::b::run");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("one two", 7), ["one two"]);
        assert_eq!(
            wrapped("a longest_word b", 6),
            ["a", "longes", "t_word", "b"]
        );
        assert_eq!(wrapped("", 6), [""]);
        assert_eq!(wrapped("漢字漢", 4), ["漢字", "漢"]);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            harmless("evil\x1b[31m\u{9b}\n\u{202e}x"),
            "evil\\x1b[31m\\x9b\\n\\u{202e}x"
        );
        assert!(matches!(harmless("plain é 漢"), Cow::Borrowed(_)));
        assert_eq!(
            harmless_cell("a\n\tb\r\x1b]0;x\x07"),
            "a\n\tb\\r\\x1b]0;x\\x07"
        );
    }

    #[test]
    fn cut_in_the_middle() {
        assert_eq!(cut("abcdefghij", 10), "abcdefghij");
        assert_eq!(cut("abcdefghij", 5), "ab…ij");
        assert_eq!(cut("abcdefghij", 1), "…");
        assert_eq!(cut("abc", 0), "");
        assert!(columns(&cut("漢字漢字漢字", 7)) <= 7);
        assert!(columns(&cut("漢字漢字漢字", 6)) <= 6);
    }

    #[test]
    fn indentation_is_cut_before_names() {
        let deep = "                vfs_read";
        assert_eq!(indented_name(deep, 24), deep);
        assert_eq!(indented_name(deep, 20), "…           vfs_read");
        assert_eq!(indented_name(deep, 9), "…vfs_read");
        assert_eq!(indented_name(deep, 8), "vfs_read");
        assert_eq!(indented_name(deep, 5), "vfs_…");
        assert_eq!(indented_name("    a::b::read", 12), "    …::read");
        assert_eq!(indented_name("    a::b::read", 9), "… …::read");
    }

    #[test]
    fn cut_at_the_end() {
        assert_eq!(cut_right("abcde", 5), "abcde");
        assert_eq!(cut_right("abcde", 4), "abc…");
        assert_eq!(cut_right("漢字漢字", 4), "漢…");
        assert_eq!(cut_right("abc", 1), "…");
        assert_eq!(cut_right("abc", 0), "");
    }

    #[test]
    fn numbers() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1_048_575), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }
}
