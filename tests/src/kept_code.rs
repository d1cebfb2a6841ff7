//! A trace with code that the recorder kept, of a function that changed: record/tests/programs/kept.c.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{bin, root};

const GOLDEN: &str = "formats/readers/src/perf_data/golden/kept-code.data";
/// What the process wrote to /tmp, where the recorder found it.
const LIST: (&str, &str) = ("perf-13887.map", "7fa8c4d4f040 10 countdown\n");

/// Imports the recording into a directory.
#[must_use]
pub fn trace(directory: &Path) -> PathBuf {
    let names = directory.join("names");
    std::fs::create_dir(&names).expect("a directory");
    std::fs::write(names.join(LIST.0), LIST.1).expect("a list");
    let trace = directory.join("kept.pqt");
    let converted = Command::new(bin("perfquet-convert"))
        .arg(root().join(GOLDEN))
        .arg("--symbols")
        .arg(&names)
        .arg("-o")
        .arg(&trace)
        .output()
        .expect("the converter runs");
    let errors = String::from_utf8_lossy(&converted.stderr);
    assert!(converted.status.success(), "{errors}");
    trace
}
