//! Shell sessions in Markdown, run and compared: `cli/*.md`, the README and the pages of `docs/`, so that their output stays
//! correct.
//!
//! ````text
//! <!-- with: formats/readers/src/folded/golden/small.folded as stacks.folded -->
//! <!-- needs: perf events -->
//! ```console
//! $ perfquet-convert stacks.folded -o f.pqt
//! f.pqt: [..] samples
//! $ perfquet-query top missing.pqt
//! ? 1
//! perfquet-query: missing.pqt: [..]
//! ```
//! ````
//! Every file is one session in an empty directory; `with` copies a file of the repository there. `needs`, also several
//! of them, apply to the next block, which is reported as skipped if the host lacks one. `[..]` matches any text in a
//! line, a line `...` any lines, `? N` the exit status. `PERFQUET_UPDATE=1` writes the actual output into the file for
//! review; `PERFQUET_SESSION=NAME` runs one file alone. A block below `<!-- varies: REASON -->` shows the output of one
//! host at one time: its commands must end as shown, and print tables with the headings shown, or no table if none is
//! shown. Columns that reports print only if they have values, such as "errors", may be missing or added.

#[path = "cli/questions.rs"]
mod questions;
#[path = "cli/session.rs"]
mod session;

use std::path::{Path, PathBuf};

use perfquet_tests::root;

#[test]
fn pages_show_the_actual_output() {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root().join("tests/cli"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .filter(|path| is_wanted(path))
        .collect();
    pages.sort();
    let wrong: Vec<String> = pages.iter().flat_map(|page| run_page(page)).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Whether `PERFQUET_SESSION`, if set, names this page.
fn is_wanted(page: &Path) -> bool {
    std::env::var("PERFQUET_SESSION").is_ok_and(|wanted| page.file_stem() == Some(wanted.as_ref()))
        || std::env::var_os("PERFQUET_SESSION").is_none()
}

#[test]
fn readme_shows_the_actual_output() {
    let wrong = run_page(&root().join("README.md"));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Pages with commands that do not run here, and why.
const NOT_RUN: [(&str, &str); 2] = [
    (
        "annotate",
        "its output differs with every compiler; oracle/annotate.rs compares it with perf",
    ),
    (
        "questions",
        "its recordings are made once; cli/questions.rs runs its queries",
    ),
];

#[test]
fn manual_shows_the_actual_output() {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .filter(|path| is_wanted(path) && has_session(path))
        .collect();
    pages.sort();
    let wrong: Vec<String> = pages.iter().flat_map(|page| run_page(page)).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn has_session(page: &Path) -> bool {
    let is_run = |name: &str| NOT_RUN.iter().all(|(other, _)| *other != name);
    let name = page.file_stem().and_then(|name| name.to_str());
    name.is_some_and(is_run)
        && std::fs::read_to_string(page).is_ok_and(|text| text.contains("\n```console\n"))
}

/// Runs the session of a page; returns the differences as text.
fn run_page(page: &Path) -> Vec<String> {
    let text =
        std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let name = page
        .strip_prefix(root())
        .unwrap_or(page)
        .display()
        .to_string();
    let update = std::env::var_os("PERFQUET_UPDATE").is_some();
    let outcome = session::run(&text, &name);
    if update && outcome.updated != text {
        std::fs::write(page, &outcome.updated).unwrap();
    }
    outcome.wrong
}
