//! Who may depend on whom, as ARCHITECTURE.md draws it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use perfquet_tests::{place, root};

use super::{assert_none, read, tracked};

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

/// Readers and queries share only the trace directory.
#[test]
fn query_sees_no_reader() {
    let allowed = [
        "store",
        "tables",
        "event::bars",
        "folded::without_arguments",
        // Plurals in messages.
        "count",
        // How a file is written for the user, and why it is not.
        "output_file",
        "Error",
    ];
    let mut wrong = Vec::new();
    for path in tracked()
        .iter()
        .filter(|path| path.starts_with("query/src"))
    {
        for (number, line) in read(&root().join(path)).lines().enumerate() {
            let Some((_, used)) = line.split_once("perfquet_formats::") else {
                continue;
            };
            if !allowed.iter().any(|allowed| used.starts_with(allowed)) {
                wrong.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
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
