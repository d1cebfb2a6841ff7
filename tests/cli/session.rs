//! One page: its commands, run one after the other in one directory.

use std::path::Path;

use perfquet_tests::session::{Comparison, Part, directive, parts, shell};
use perfquet_tests::{needs, root, skip};

/// The result of a page.
pub(crate) struct Outcome {
    /// Per differing command: place, expected and found output.
    pub(crate) wrong: Vec<String>,
    /// The page with the actual output in place of the differing one.
    pub(crate) updated: String,
}

/// Runs all blocks of the page.
pub(crate) fn run(text: &str, name: &str) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let mut outcome = Outcome {
        wrong: Vec::new(),
        updated: String::new(),
    };
    let mut needed: Vec<&str> = Vec::new();
    let mut comparison = Comparison::Exact;
    for part in parts(text) {
        let block = match part {
            Part::Block(block) => block,
            Part::Line(line) => {
                outcome.updated += line;
                outcome.updated.push('\n');
                if let Some(words) = directive(line, "with") {
                    place_input(words, directory.path());
                } else if let Some(words) = directive(line, "needs") {
                    needed.push(words);
                } else if directive(line, "varies").is_some() {
                    comparison = Comparison::Kind;
                }
                continue;
            }
        };
        let missing = needed.drain(..).find_map(needs::missing);
        let mut lines = block.text();
        if let (Some(reason), "console") = (&missing, block.info) {
            skip(&format!("{name}:{}: {reason}", block.line_number));
        } else if block.info == "console" {
            lines.clear();
            for step in block.steps() {
                let (status, output) = shell::run(&step.command, directory.path());
                let (text, wrong) = step.compare(name, status, &output, comparison);
                lines += &text;
                outcome.wrong.extend(wrong);
            }
        }
        comparison = Comparison::Exact;
        outcome.updated += &block.around(&lines);
    }
    outcome
}

/// `PATH as NAME`, or `PATH` under its own name.
fn place_input(words: &str, directory: &Path) {
    let (path, name) = match words.split_once(" as ") {
        Some((path, name)) => (path, name.to_owned()),
        None => (
            words,
            Path::new(words)
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned(),
        ),
    };
    let path = root().join(path);
    std::fs::copy(&path, directory.join(name))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
