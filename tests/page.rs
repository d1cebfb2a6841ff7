//! The scripts of pictures and of the report page: they are TypeScript, and their bundles are committed, so that building
//! perfquet needs no npm.

use std::path::Path;
use std::process::{Command, Stdio};

use perfquet_tests::{needs, root, skip};

const PAGE: &str = "query/page";

/// Bundles are compared with what `npm run build` makes of their sources, and the sources are checked for types.
#[test]
fn bundles_are_what_the_sources_build() {
    if !needs::met(&["npm"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page");
    copy(&root().join(PAGE), &page);
    let committed = files(&page.join("dist"));
    std::fs::remove_dir_all(page.join("dist")).unwrap();
    let installed = npm(
        &page,
        &["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
    );
    if let Err(error) = installed {
        // Everything else about the lock file is an error of ours.
        assert!(
            [
                "ENOTFOUND",
                "EAI_AGAIN",
                "ECONNREFUSED",
                "ETIMEDOUT",
                "ECONNRESET"
            ]
            .iter()
            .any(|code| error.contains(code)),
            "{error}"
        );
        skip("needs npm's registry");
        return;
    }
    npm(&page, &["run", "check"]).unwrap();
    npm(&page, &["run", "build"]).unwrap();
    let built = files(&page.join("dist"));
    for (name, content) in &built {
        let same = committed.iter().find(|(other, _)| other == name);
        assert!(
            same.is_some_and(|(_, other)| other == content),
            "{PAGE}/dist/{name} is stale: run `npm ci && npm run build` in {PAGE}"
        );
    }
    assert_eq!(built.len(), committed.len(), "{PAGE}/dist has other files");
}

fn npm(directory: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("npm")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "npm {}: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Copies a directory without what npm has installed in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() == "node_modules" => {}
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Names and contents of a directory's files, in order.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}
