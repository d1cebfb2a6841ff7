//! What keeps the tree tidy: who may depend on whom, generated files, formatting, sizes, words that must not stay.
//!
//! Each check prints every place it does not like, and what to do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use perfquet_tests::{place, root};

/// `ebpf ← record → formats ← convert`, `formats ← query`, `tests → all`: nothing else.
#[test]
fn crates_depend_on_each_other_only_as_drawn() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("perfquet-formats", &[][..]),
        ("perfquet-ebpf", &[]),
        ("perfquet-record", &["perfquet-formats", "perfquet-ebpf"]),
        ("perfquet-convert", &["perfquet-formats"]),
        ("perfquet-query", &["perfquet-formats"]),
        ("perfquet-tests", &["perfquet-formats", "perfquet-ebpf"]),
    ]);
    let mut wrong = Vec::new();
    for (package, dependencies) in dependencies() {
        let Some(&allowed) = allowed.get(package.as_str()) else {
            wrong.push(format!(
                "{package}: a crate that ARCHITECTURE.md does not know"
            ));
            continue;
        };
        for dependency in dependencies
            .iter()
            .filter(|name| name.starts_with("perfquet-"))
        {
            if !allowed.contains(&dependency.as_str()) {
                wrong.push(format!("{package} must not depend on {dependency}"));
            }
        }
    }
    assert_none(&wrong);
}

/// Everything but `query` builds in minutes because of this.
#[test]
fn only_query_sees_datafusion_and_tokio() {
    let mut wrong = Vec::new();
    for (package, dependencies) in dependencies() {
        for dependency in &dependencies {
            let heavy = dependency.starts_with("datafusion") || dependency == "tokio";
            if heavy && package != "perfquet-query" {
                wrong.push(format!("{package} must not depend on {dependency}"));
            }
        }
    }
    assert_none(&wrong);
}

/// No version stands outside the root manifest, so none can stand twice.
#[test]
fn versions_stand_once() {
    let mut wrong = Vec::new();
    for member in ["formats", "record", "convert", "query", "ebpf", "tests"] {
        let path = root().join(member).join("Cargo.toml");
        let manifest: toml::Table = read(&path).parse().unwrap();
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(section).and_then(|value| value.as_table())
            else {
                continue;
            };
            for (name, value) in dependencies {
                if value.get("workspace").and_then(|value| value.as_bool()) != Some(true) {
                    wrong.push(format!(
                        "{member}/Cargo.toml: {name}: say `{name}.workspace = true`"
                    ));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn code_is_formatted() {
    let output = place::cargo()
        .args(["fmt", "--all", "--check", "--", "-l"])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("rustup component add") => {
            perfquet_tests::skip("needs rustfmt (rustup component add rustfmt)");
        }
        Ok(output) => panic!(
            "run `cargo fmt --all`; it would change:\n{}",
            String::from_utf8_lossy(&output.stdout)
        ),
        Err(error) => panic!("cannot run cargo: {error}"),
    }
}

/// The sources of the repository, by `git ls-files` where there is git, else by walking.
fn sources(extension: &str) -> Vec<PathBuf> {
    tracked()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

/// Every file of the project, relative to the top: what git tracks or would track.
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
        // An unpacked archive has no git: the folders of the map serve.
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

/// Direct dependencies of each member, of every kind.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = place::cargo()
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let listed = |package: &serde_json::Value| {
        package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .map(name)
            .collect()
    };
    packages
        .iter()
        .map(|package| (name(package), listed(package)))
        .collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
