//! `cargo xtask shapes`: functions of more than 100 lines, and structs of more than 15 fields.
//!
//! ```text
//! 144 lines  formats/readers/src/ctf/json.rs:153  class
//!            One function, because each arm is a class of the format
//!  28 fields formats/events/src/event/mod.rs:316  Sample
//! ```
//! Each is to be split by what it knows; otherwise the comment above it says why not, in a sentence that begins with
//! "One function, because" or "One struct, because". The tidy tests fail without that sentence.
//!
//! The sources are formatted, so that an item ends at the first line that is its indentation and a brace.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::root;

/// A function of more lines is to be split.
const MOST_LINES: usize = 100;
/// A struct of more fields is to be split.
const MOST_FIELDS: usize = 15;
/// Not split yet: state of readers and of the recorder, and steps of a few long functions. The tidy tests let no other join them, and
/// those that are split are to leave the list.
const NOT_SPLIT: &[(&str, &str)] = &[
    ("formats/events/src/input/mod.rs", "Input"),
    ("formats/readers/src/callgrind/read.rs", "Reader"),
    ("formats/readers/src/ftrace_text/read.rs", "Session"),
    ("formats/readers/src/perf_script/read.rs", "Session"),
    ("formats/readers/src/perfetto/packets.rs", "Contents"),
    ("formats/trace/src/normalize/calls/edges.rs", "function_of"),
    ("formats/trace/src/normalize/calls/edges.rs", "pair"),
    ("formats/trace/src/normalize/calls/pending.rs", "Pending"),
    ("formats/trace/src/normalize/output.rs", "Output"),
    ("formats/trace/src/normalize/samples.rs", "sample"),
    ("query/library/src/passes/system_calls.rs", "call"),
    ("query/library/src/passes/system_calls.rs", "plan"),
    ("record/src/user_stacks/mod.rs", "UserStacks"),
];
/// Generated code.
const GENERATED: &str = "formats/trace/src/tables.rs";

/// A large function or struct.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// The file, relative to the top.
    pub path: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// Number of lines or fields.
    pub size: usize,
    /// Function or struct.
    pub kind: Kind,
    /// The sentence that says why it is not split.
    pub reason: Option<String>,
}

/// The kind of a large item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of more than 100 lines.
    Function,
    /// Of more than 15 fields.
    Struct,
}

impl Kind {
    /// The beginning of the sentence that says why it is not split.
    pub fn begin(self) -> &'static str {
        match self {
            Kind::Function => "One function, because",
            Kind::Struct => "One struct, because",
        }
    }
}

impl Shape {
    /// Whether it is known, and not split yet.
    pub fn is_not_split(&self) -> bool {
        NOT_SPLIT.contains(&(&*self.path.to_string_lossy(), &*self.name))
    }
}

/// Returns those of the list that are no longer large, or say why they are.
pub fn split(all: &[Shape]) -> Vec<String> {
    let is_there = |(path, name): &(&str, &str)| {
        let is_it = |shape: &&Shape| shape.path == Path::new(path) && shape.name == *name;
        all.iter()
            .find(is_it)
            .is_some_and(|shape| shape.reason.is_none())
    };
    let gone = NOT_SPLIT.iter().filter(|known| !is_there(known));
    gone.map(|(path, name)| format!("{path}: {name} is split: remove it from tests/src/shapes.rs"))
        .collect()
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.kind {
            Kind::Function => "lines ",
            Kind::Struct => "fields",
        };
        let (size, path) = (self.size, self.path.display());
        write!(f, "{size:3} {unit} {path}:{}  {}", self.line, self.name)
    }
}

/// Prints all of them, the largest first.
pub fn run() -> Result<()> {
    let output = std::process::Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.rs",
        ])
        .current_dir(root())
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        bail!("git: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut all = of(listed.lines().map(PathBuf::from));
    all.sort_by_key(|shape| (shape.kind == Kind::Struct, std::cmp::Reverse(shape.size)));
    for shape in &all {
        println!("{shape}");
        let reason = match shape.is_not_split() {
            true => Some("not split yet"),
            false => shape.reason.as_deref(),
        };
        if let Some(reason) = reason {
            println!("           {reason}");
        }
    }
    Ok(())
}

/// Returns the large functions and structs of these files, relative to the top.
pub fn of(paths: impl Iterator<Item = PathBuf>) -> Vec<Shape> {
    paths
        .filter(|path| path != Path::new(GENERATED))
        .filter_map(|path| Some((std::fs::read_to_string(root().join(&path)).ok()?, path)))
        .flat_map(|(text, path)| in_text(&text, &path))
        .collect()
}

fn in_text(text: &str, path: &Path) -> Vec<Shape> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((kind, name)) = item(line) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let ends = |line: &&str| {
            let (before, rest) = line.split_at_checked(indent).unwrap_or((line, ""));
            // A declaration without a body ends with a semicolon.
            before.trim().is_empty()
                && (rest == "}" || rest.starts_with([')', '}']) && rest.ends_with(';'))
        };
        // On one line: `fn id(&self) -> u64;`, `struct Id(u64);`.
        let is_one_line = line.ends_with([';', '}']);
        let length = match is_one_line {
            true => 0,
            false => lines[index + 1..].iter().position(ends).unwrap_or(0),
        };
        let body = &lines[index + 1..index + 1 + length];
        let (size, most) = match kind {
            Kind::Function => (length + 2, MOST_LINES),
            Kind::Struct => (
                body.iter()
                    .filter(|line| is_field(line, indent + 4))
                    .count(),
                MOST_FIELDS,
            ),
        };
        if size > most {
            found.push(Shape {
                path: path.to_owned(),
                line: index + 1,
                name: name.to_owned(),
                size,
                kind,
                reason: reason(&lines[..index], kind),
            });
        }
    }
    found
}

/// Returns the function or struct that a line begins.
fn item(line: &str) -> Option<(Kind, &str)> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(scope) => scope.split_once(") ")?.1,
            None => after.strip_prefix(' ')?,
        };
    }
    for word in ["default ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let (kind, rest) = match rest.strip_prefix("fn ") {
        Some(rest) => (Kind::Function, rest),
        None => (Kind::Struct, rest.strip_prefix("struct ")?),
    };
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let name = &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())];
    (!name.is_empty()).then_some((kind, name))
}

/// Whether a line declares a field, at this indentation.
fn is_field(line: &str, indent: usize) -> bool {
    let rest = line.trim_start();
    if line.len() - rest.len() != indent {
        return false;
    }
    let name = match rest.strip_prefix("pub(") {
        Some(scope) => scope.split_once(") ").map_or("", |(_, rest)| rest),
        None => rest.strip_prefix("pub ").unwrap_or(rest),
    };
    let name = name.strip_prefix("r#").unwrap_or(name);
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let end = name.find(|letter| !is_part(letter)).unwrap_or(name.len());
    end > 0 && name[end..].starts_with(": ")
}

/// Returns the sentence in the comment and attributes above an item that says why it is not split.
fn reason(before: &[&str], kind: Kind) -> Option<String> {
    let mut above = Vec::new();
    let mut is_in_attribute = false;
    for line in before.iter().rev().map(|line| line.trim_start()) {
        let is_begin = line.starts_with("#[");
        is_in_attribute = !is_begin && (is_in_attribute || line.ends_with(")]"));
        if !is_begin && !is_in_attribute && !line.starts_with("//") {
            break;
        }
        above.push(line);
    }
    above.reverse();
    let words = above.iter().flat_map(|line| {
        let text = line.trim_start_matches('/');
        text.split_whitespace()
    });
    let text = words.collect::<Vec<_>>().join(" ");
    let start = text.find(kind.begin())?;
    let sentence = &text[start..];
    Some(sentence[..sentence.find(". ").unwrap_or(sentence.len())].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_items_are_found_with_their_reasons() {
        let fields = "    pub(crate) a: u8,\n".repeat(15);
        let steps = "        step();\n".repeat(98);
        let text = format!(
            "/// Small.\nstruct Small {{\n{fields}}}\n\n/// Large. One struct, because it\n/// is one line. More.\n#[derive(Debug)]\n#[command(after_help = \"a\n  b\")]\n\
             pub struct Large<'a> {{\n{fields}    /// Last.\n    pub b: &'a str,\n}}\n\nimpl Large {{\n    fn declared(\n        &self,\n    ) -> u8;\n    \
             pub(crate) const fn fits() {{\n{steps}    }}\n\n    /// Does it.\n    fn long(&self) {{\n        let x = |y| {{\n        }};\n{steps}    }}\n}}\n"
        );
        let found = in_text(&text, Path::new("a.rs"));
        let shown: Vec<(&str, usize, Option<&str>)> = found
            .iter()
            .map(|shape| (shape.name.as_str(), shape.size, shape.reason.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("Large", 16, Some("One struct, because it is one line")),
                ("long", 102, None)
            ]
        );
    }
}
