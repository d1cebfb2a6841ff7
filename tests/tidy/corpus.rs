//! The traces of the oracles: few, small, and each with a line on its origin.

use std::path::{Path, PathBuf};

use perfquet_tests::root;

use super::{assert_none, read, tracked};

const MOST_BYTES: u64 = 256 << 10;
const MOST_BYTES_IN_ALL: u64 = 4 << 20;

/// Files next to traces, explained once in `tests/corpus/README.md`.
const BESIDE: [&str; 5] = ["script", "dump", "report", "part", "md"];

#[test]
fn the_corpus_is_small() {
    let mut wrong = Vec::new();
    let mut all = 0;
    for path in corpus() {
        let bytes = std::fs::metadata(root().join(&path)).unwrap().len();
        all += bytes;
        if bytes > MOST_BYTES {
            wrong.push(format!(
                "{}: {bytes} bytes, more than {MOST_BYTES}",
                path.display()
            ));
        }
    }
    if all > MOST_BYTES_IN_ALL {
        wrong.push(format!(
            "tests/corpus: {all} bytes, more than {MOST_BYTES_IN_ALL}"
        ));
    }
    assert_none(&wrong);
}

/// Every trace can be recorded again.
#[test]
fn every_trace_of_the_corpus_has_its_origin() {
    let top = read(&root().join("tests/corpus/README.md"));
    let mut wrong = Vec::new();
    for path in corpus() {
        let folder = path.parent().unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_beside = path
            .extension()
            .is_some_and(|ending| BESIDE.iter().any(|of| ending == *of));
        let is_ours = ["record", "programs"]
            .iter()
            .any(|own| folder.ends_with(own));
        if is_beside || is_ours {
            continue;
        }
        let list =
            std::fs::read_to_string(root().join(folder).join("README.md")).unwrap_or_default();
        let is_listed = list.contains(&format!("| {name} |")) || top.contains(&format!("`{name}`"));
        if !is_listed {
            wrong.push(format!(
                "{}: its folder's README.md needs a line: how it was made",
                path.display()
            ));
        }
    }
    assert_none(&wrong);
}

fn corpus() -> Vec<PathBuf> {
    let mut files = tracked();
    files.retain(|path| path.starts_with(Path::new("tests/corpus")));
    assert!(files.len() > 100, "{} files", files.len());
    files
}
