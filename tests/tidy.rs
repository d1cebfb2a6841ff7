//! Checks of the tree: dependencies, generated files, formatting, sizes, forbidden words.
//!
//! Each check prints every violation, with the remedy.

#[path = "tidy/builds.rs"]
mod builds;
#[path = "tidy/corpus.rs"]
mod corpus;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/edges.rs"]
mod edges;
#[path = "tidy/golden.rs"]
mod golden;
#[path = "tidy/holds.rs"]
mod holds;
#[path = "tidy/programs.rs"]
mod programs;
#[path = "tidy/rooms.rs"]
mod rooms;
#[path = "tidy/sources.rs"]
mod sources;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use perfquet_tests::root;

/// Every file of the project, relative to the top: tracked by git, or to be tracked.
fn tracked() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .stderr(Stdio::null())
        .output();
    let listed = match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        // An unpacked archive has no git: use the directories of the map.
        _ => return walk(root()),
    };
    listed
        .lines()
        .map(PathBuf::from)
        .filter(|path| root().join(path).is_file())
        .collect()
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    open.push(path);
                }
            } else if let Ok(path) = path.strip_prefix(root()) {
                found.push(path.to_path_buf());
            }
        }
    }
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
