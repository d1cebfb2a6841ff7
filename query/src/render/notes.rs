//! Findings as paragraphs: what, details, why, and a command to be copied; on a terminal, on lines that the shell joins.
//!
//! ```text
//! warning: hit (77) waited 1.900 s for a CPU, 63% of the time
//!   it ran for 100.000 ms; its longest wait: 300.000 ms from 1.2 s on, CPU 0
//!   There is more to run than the CPUs can run, or priorities and affinities keep this thread from running
//!   perfquet-query sql a.pqt 'SELECT …'
//! ```

use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;

use perfquet::stacks::strings;

use super::width;
use crate::text::{columns, harmless, shell_word, wrapped};

/// Rows with the columns severity, title, detail, why and sql.
pub(crate) struct Notes {
    pub(crate) rows: RecordBatch,
    /// The arguments of `perfquet-query sql` before the SQL of each row.
    pub(crate) commands: Vec<Vec<String>>,
}

impl Notes {
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<()> {
        let columns: Result<Vec<_>> = self.rows.columns().iter().map(strings).collect();
        let texts = columns?;
        let width = width().unwrap_or(usize::MAX);
        let columns = width.saturating_sub(2);
        for (row, command) in self.commands.iter().enumerate() {
            let [severity, title, detail, why, sql] = [0, 1, 2, 3, 4]
                .map(|column: usize| texts.get(column).map_or("", |text| text.value(row)));
            let label = if severity == "info" {
                "remark"
            } else {
                severity
            };
            let title = format!("{label}: {}", harmless(title));
            for (number, line) in wrapped(&title, columns).iter().enumerate() {
                let indent = if number == 0 { "" } else { "    " };
                writeln!(out, "{indent}{line}")?;
            }
            for text in [detail, why] {
                for line in wrapped(&harmless(text), columns) {
                    writeln!(out, "  {line}")?;
                }
            }
            for line in command_lines(command, &harmless(sql), width) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(out.flush()?)
    }
}

/// The command on lines of at most `width` columns, which a shell reads as one command: they end with a backslash, or within the quotes
/// around the SQL, between its words. Longer words stay whole.
fn command_lines(command: &[String], sql: &str, width: usize) -> Vec<String> {
    let quoted_sql = shell_word(sql);
    let words = ["perfquet-query", "sql"].into_iter().map(str::to_owned);
    let words: Vec<String> = words
        .chain(command.iter().map(|word| shell_word(word)))
        .collect();
    let pieces = pieces(&quoted_sql);
    let mut lines = Vec::new();
    let mut line = String::from(" ");
    let all = words.iter().map(String::as_str).chain(pieces);
    for (number, word) in all.enumerate() {
        // Of the backslash before the SQL begins, and its space.
        let (end, room) = match number <= words.len() {
            true => (" \\", 2),
            false => ("", 0),
        };
        let is_first = line.trim().is_empty();
        if !is_first && columns(&line) + 1 + columns(word) + room > width {
            lines.push(std::mem::replace(&mut line, "   ".to_owned()) + end);
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Divides SQL in shell quotes at spaces outside of its own literals and names.
fn pieces(quoted: &str) -> Vec<&str> {
    // Either the shell's quotes are single ones and the SQL has none, or the shell's are double ones, and those of the SQL follow a backslash.
    let shell = quoted.chars().next().filter(|&quote| "'\"".contains(quote));
    let mut open = None;
    let mut last = ' ';
    let (mut begin, mut found) = (0, Vec::new());
    for (place, letter) in quoted.char_indices() {
        let is_quote = "'\"".contains(letter) && (Some(letter) != shell || last == '\\');
        match open {
            None if is_quote => open = Some(letter),
            Some(quote) if quote == letter && is_quote => open = None,
            None if letter == ' ' => {
                found.push(&quoted[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
        last = letter;
    }
    found.push(&quoted[begin..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_on_several_lines_stay_the_same_command() {
        let lines = |sql: &str, width: usize| {
            let command = ["a.pqt", "--time=3s..4s"].map(str::to_owned);
            command_lines(&command, sql, width)
        };
        let sql = "SELECT a FROM calls WHERE f = 'two  words' AND \"g h\" > 1";
        assert_eq!(lines(sql, usize::MAX).len(), 1);
        for width in [20, 40, 60] {
            let lines = lines(sql, width);
            let widest = lines.iter().map(|line| columns(line)).max();
            assert!(
                widest.is_some_and(|widest| widest <= width.max(28)),
                "{lines:?}"
            );
            let text = format!("set -f; printf '%s|' {}", lines.join("\n"));
            let output = std::process::Command::new("sh")
                .arg("-c")
                .arg(text)
                .output();
            let words = String::from_utf8(output.unwrap().stdout).unwrap();
            let words: Vec<&str> = words.split('|').collect();
            assert_eq!(
                words[..4],
                ["perfquet-query", "sql", "a.pqt", "--time=3s..4s"]
            );
            let read = words[4].replace("\n    ", " ");
            assert_eq!(read, sql, "at {width}");
        }
        assert_eq!(
            lines("SELECT 1", 30),
            [
                "  perfquet-query sql a.pqt \\",
                "    --time=3s..4s 'SELECT 1'"
            ]
        );
    }
}
