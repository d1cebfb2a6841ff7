//! The result of a benchmark: Markdown tables and budgets, printed and written to `docs/dev/benchmarks.md`.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::machine;
use crate::place;

/// Text that grows during the benchmark.
pub(super) struct Report {
    text: String,
}

impl Report {
    /// An empty report that begins with the host.
    pub(super) fn new(rounds: usize) -> Report {
        Report {
            text: format!(
                "{}. Medians of {rounds} rounds in alternation.\n",
                machine::describe()
            ),
        }
    }

    /// A scenario and its description.
    pub(super) fn scenario(&mut self, title: &str, about: &str) {
        let _ = write!(self.text, "\n### {title}\n\n{about}\n");
    }

    /// A table; the first row is the heading.
    pub(super) fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) {
        let _ = write!(
            self.text,
            "\n| {} |\n|{}\n",
            heading.join(" | "),
            " --- |".repeat(heading.len())
        );
        for row in rows {
            let _ = writeln!(self.text, "| {} |", row.join(" | "));
        }
        self.text.push('\n');
    }

    /// A budget: kept if the value does not exceed it. A missed one is reported like a kept one.
    pub(super) fn budget(&mut self, what: &str, value: f64, most: f64) {
        let kept = if value <= most { "kept" } else { "**missed**" };
        let _ = writeln!(
            self.text,
            "- {what}: {value:.3}, budget ≤ {most:.3}: {kept}"
        );
    }

    /// A remark.
    pub(super) fn note(&mut self, text: &str) {
        let _ = writeln!(self.text, "- {text}");
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the section with that name in the document; the text around it stays.
    pub(super) fn write_into_docs(&self, name: &str) -> Result<()> {
        let path = place::root().join("docs/dev/benchmarks.md");
        let old = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let new = replace_section(&old, name, &self.text).with_context(|| {
            format!(
                "{}: no section <!-- bench: {name} --> … <!-- end: {name} -->",
                path.display()
            )
        })?;
        std::fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn replace_section(document: &str, name: &str, text: &str) -> Option<String> {
    let start = format!("<!-- bench: {name} -->\n");
    let end = format!("<!-- end: {name} -->");
    let (before, rest) = document.split_once(&start)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{start}{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_section_changes() {
        let document = "# B\n<!-- bench: a -->\nold\n<!-- end: a -->\ntext\n<!-- bench: b -->\n<!-- end: b -->\n";
        let changed = replace_section(document, "a", "new\n").unwrap();
        assert_eq!(changed, document.replace("old", "new"));
        assert!(replace_section(document, "c", "").is_none());
    }
}
