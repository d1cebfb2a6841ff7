//! Golden inputs: small, each with a line on its origin, and recognized only by their own format.

use std::path::{Path, PathBuf};

use perfquet_events::{Format, Guess, Input};
use perfquet_readers::FORMATS;
use perfquet_tests::root;

use super::{assert_none, tracked};

/// Maximum size: a golden file is the smallest input that shows the case.
const MOST_BYTES: u64 = 32 * 1024;

/// Every sniffer sees every golden file; the most certain must be its own format's, or a file of one format would be
/// read as another. A truncated or garbled file may be recognized by none, but never by another format.
#[test]
fn every_golden_file_is_recognized_by_its_own_format() {
    let mut wrong = Vec::new();
    for path in inputs() {
        let owner = folder_of_format(&path);
        let damaged = ["cut", "garbage", "empty"]
            .iter()
            .any(|word| name(&path).contains(word));
        let mut input = Input::open(&root().join(&path)).unwrap();
        input.open_archive().unwrap();
        match surest(&input) {
            Some(format) if folder(format) == owner => {}
            Some(format) => wrong.push(format!("{}: taken for {}", path.display(), format.name)),
            None if damaged => {}
            None => wrong.push(format!("{}: recognized by no format", path.display())),
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_golden_file_has_its_origin() {
    let mut wrong = Vec::new();
    for path in inputs() {
        let readme = path.parent().unwrap().join("README.md");
        let text = std::fs::read_to_string(root().join(&readme)).unwrap_or_default();
        if !text.contains(&name(&path)) {
            wrong.push(format!(
                "{}: {} needs a line: how it was made, with which tool and kernel",
                path.display(),
                readme.display()
            ));
        }
    }
    assert_none(&wrong);
}

#[test]
fn golden_files_are_small() {
    let wrong: Vec<String> = inputs()
        .iter()
        .filter_map(|path| {
            let bytes = std::fs::metadata(root().join(path)).ok()?.len();
            (bytes > MOST_BYTES)
                .then(|| format!("{}: {bytes} bytes, more than {MOST_BYTES}", path.display()))
        })
        .collect();
    assert_none(&wrong);
}

/// Every format has golden files of truncated and of foreign input.
#[test]
fn every_format_has_damaged_golden_files() {
    let inputs = inputs();
    let mut wrong = Vec::new();
    for format in FORMATS {
        for kind in ["cut", "garbage"] {
            let there = |path: &PathBuf| {
                folder_of_format(path) == folder(format) && name(path).contains(kind)
            };
            if !inputs.iter().any(there) {
                wrong.push(format!(
                    "formats/readers/src/{}/golden/{kind}.*: missing",
                    folder(format)
                ));
            }
        }
    }
    assert_none(&wrong);
}

/// The directory of a format is its name, written as a module: `perf.data` is in `perf_data`.
#[test]
fn every_format_has_its_folder() {
    let wrong: Vec<String> = FORMATS
        .iter()
        .map(|format| format!("formats/readers/src/{}/mod.rs", folder(format)))
        .filter(|path| !root().join(path).is_file())
        .collect();
    assert_none(&wrong);
}

/// Golden inputs of the formats: all files below `formats/readers/src/*/golden/` except snapshots and READMEs.
fn inputs() -> Vec<PathBuf> {
    let is_input = |path: &PathBuf| {
        let parts: Vec<_> = path.iter().collect();
        parts.len() == 6
            && path.starts_with("formats/readers/src")
            && parts[4] == "golden"
            && folder_is_a_format(path)
            && path.extension().is_none_or(|extension| extension != "snap")
            && name(path) != "README.md"
    };
    tracked().into_iter().filter(is_input).collect()
}

fn folder_is_a_format(path: &Path) -> bool {
    FORMATS
        .iter()
        .any(|format| folder(format) == folder_of_format(path))
}

fn folder_of_format(path: &Path) -> String {
    path.iter()
        .nth(3)
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn folder(format: &Format) -> String {
    format.name.replace(['.', '-', ' '], "_")
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The first of the most certain, chosen as in `import`.
fn surest(input: &Input) -> Option<&'static Format> {
    let sure = |wanted: Guess| {
        FORMATS
            .iter()
            .copied()
            .find(|format| format.guess(input).unwrap() == wanted)
    };
    sure(Guess::Certain).or_else(|| sure(Guess::Likely))
}
