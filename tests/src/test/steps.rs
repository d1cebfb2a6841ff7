//! The cargo commands of a run.
//!
//! ```text
//! record/tests/stacks.rs    recordings: one test at a time, since they record the whole system
//! tests/vm.rs               recordings: its machines use all CPUs
//! tests/oracle.rs           all else: a test per CPU, at most four
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::place::{self, ALL_ELSE};

/// One cargo command of the run.
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Builds what later steps run.
    Build,
    /// A libtest run; its output is counted.
    Tests,
    /// Requires a component of the toolchain that may be missing.
    Lints,
}

/// The packages with DataFusion, as in the demo.
const QUERY: &[&str] = &["--release", "-p", "perfquet", "-p", "perfquet-query"];

/// Folders with the tests of the packages in [`ALL_ELSE`].
const TESTS: &[&str] = &[
    "convert/tests",
    "formats/import/tests",
    "formats/readers/tests",
    "formats/trace/tests",
    "record/tests",
    "tests",
];
/// Of these, the folder of recordings; and tests elsewhere that need all CPUs.
const RECORDINGS: &str = "record/tests";
const ALONE: &[&str] = &["vm"];

/// Tests at one time need memory, mostly for browsers.
const THREADS_MAX: usize = 4;

/// Returns all steps, in order.
pub(super) fn all() -> Result<Vec<Step>> {
    let (recordings, others) = targets(place::root())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = format!("--test-threads={}", threads.min(THREADS_MAX));
    let of = |title, kind, parts: &[&[&str]]| Step {
        title,
        arguments: parts.concat().iter().map(|&part| part.to_owned()).collect(),
        kind,
    };
    let build = |title, package| {
        of(
            title,
            Kind::Build,
            &[&["build", "--release", "-p", package]],
        )
    };
    let tests = |title, packages: &[&str], targets: &[String], threads: Option<&str>| {
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let threads: Vec<&str> = threads.into_iter().collect();
        let test = &["test", "--no-fail-fast"];
        let options = &["--", "--show-output"];
        let parts: &[&[&str]] = &[test, packages, &targets, options, &threads];
        of(title, Kind::Tests, parts)
    };
    let lints = |title, packages| {
        let parts: &[&[&str]] = &[&["clippy", "--quiet"], packages, &["--all-targets"]];
        of(title, Kind::Lints, parts)
    };
    Ok(vec![
        build("recorder in release", "perfquet-record"),
        build("converter in release", "perfquet-convert"),
        build(
            "query tool in release (the first time: about twenty minutes of CPU for DataFusion)",
            "perfquet-query",
        ),
        tests("query tool", QUERY, &[], None),
        tests(
            "all else but recordings (dev: an overflow is an error)",
            ALL_ELSE,
            &others,
            Some(&threads),
        ),
        tests("examples in docs", ALL_ELSE, &["--doc".to_owned()], None),
        tests(
            "recordings and virtual machines, one by one",
            ALL_ELSE,
            &recordings,
            Some("--test-threads=1"),
        ),
        // As the tests: in dev, DataFusion would be checked once more.
        lints("clippy of the query tool", QUERY),
        lints("clippy of all else", ALL_ELSE),
    ])
}

/// Returns what selects the recordings' tests and all others. A file whose name another package has, too, counts as one of the
/// recordings': cargo selects by name.
fn targets(root: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let mut recordings = names(&root.join(RECORDINGS))?;
    recordings.extend(ALONE.iter().map(|&name| name.to_owned()));
    let mut others = BTreeSet::new();
    for folder in TESTS {
        others.extend(names(&root.join(folder))?);
    }
    let others = others.difference(&recordings);
    let select = |name: &String| ["--test".to_owned(), name.clone()];
    let units = ["--lib", "--bins", "--examples"].map(str::to_owned);
    Ok((
        recordings.iter().flat_map(select).collect(),
        units.into_iter().chain(others.flat_map(select)).collect(),
    ))
}

/// The names of the tests in a folder.
fn names(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_of_the_workspace_is_in_one_step() {
        let metadata = place::cargo()
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .unwrap();
        let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap().iter();
        let names: BTreeSet<&str> = packages
            .filter(|package| !ALL_ELSE.contains(&package["name"].as_str().unwrap()))
            .flat_map(|package| package["targets"].as_array().unwrap())
            .filter(|target| target["kind"][0] == "test")
            .map(|target| target["name"].as_str().unwrap())
            .collect();
        let (recordings, others) = targets(place::root()).unwrap();
        let selected: Vec<&str> = recordings
            .iter()
            .chain(&others)
            .filter(|part| !part.starts_with("--"))
            .map(String::as_str)
            .collect();
        assert!(names.len() > 40);
        assert_eq!(selected.iter().copied().collect::<BTreeSet<_>>(), names);
        assert_eq!(selected.len(), names.len(), "one is in two steps");
        for name in ["stacks", "faults", "vm"] {
            assert!(recordings.contains(&name.to_owned()), "{name}");
        }
        assert!(others.contains(&"oracle".to_owned()));
    }
}
