//! Findings as paragraphs: what, details, why, and a command on one line, to be copied.
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
use crate::text::{harmless, wrapped};

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
        // The command stays on one line, however long, so that it can be copied.
        let columns = width().map_or(usize::MAX, |width| width.saturating_sub(2));
        for (row, command) in self.commands.iter().enumerate() {
            let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
            let [severity, title, detail, why, sql] = [0, 1, 2, 3, 4]
                .map(|column: usize| texts.get(column).map_or("", |text| text.value(row)));
            let label = if severity == "info" {
                "remark"
            } else {
                severity
            };
            writeln!(out, "{label}: {}", harmless(title))?;
            for text in [detail, why] {
                for line in wrapped(&harmless(text), columns) {
                    writeln!(out, "  {line}")?;
                }
            }
            let sql = quoted(&harmless(sql));
            writeln!(out, "  perfquet-query sql {} {sql}", words.join(" "))?;
        }
        Ok(out.flush()?)
    }
}

/// A word for the shell: in single quotes, or in double quotes if it has single ones.
fn quoted(word: &str) -> String {
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
        assert_eq!(quoted("--time=3s..4s"), "--time=3s..4s");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("x = 'a$b'"), "\"x = 'a\\$b'\"");
        assert_eq!(quoted(""), "''");
    }
}
