//! Dependencies between crates, as in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use perfquet_tests::{place, root};

use super::{assert_none, read, tracked};

const EVENTS: &str = "perfquet-events";
const READERS: &str = "perfquet-readers";
const TRACE: &str = "perfquet-trace";
const REMOTE: &str = "perfquet-remote";
const IMPORT: &str = "perfquet-import";
const CLI: &str = "perfquet-cli";
const VIEWS: &str = "perfquet-views";
const EBPF: &str = "perfquet-ebpf";
const LIBRARY: &str = "perfquet";

/// Each crate, and the crates of this project that it may use.
const ALLOWED: [(&str, &[&str]); 14] = [
    (EVENTS, &[]),
    (READERS, &[EVENTS]),
    (TRACE, &[EVENTS]),
    (REMOTE, &[TRACE]),
    (IMPORT, &[EVENTS, READERS, TRACE]),
    (CLI, &[]),
    (VIEWS, &[CLI]),
    (EBPF, &[]),
    (
        "perfquet-record",
        &[CLI, EVENTS, READERS, TRACE, IMPORT, EBPF],
    ),
    (
        "perfquet-convert",
        &[CLI, EVENTS, READERS, TRACE, IMPORT, VIEWS],
    ),
    // Its tests import samples of the readers.
    (LIBRARY, &[CLI, EVENTS, TRACE, REMOTE, VIEWS, IMPORT]),
    ("perfquet-query", &[CLI, EVENTS, TRACE, REMOTE, LIBRARY]),
    (
        "perfquet-python",
        &[
            CLI,
            EVENTS,
            READERS,
            TRACE,
            IMPORT,
            LIBRARY,
            "perfquet-query",
        ],
    ),
    ("perfquet-tests", &[EVENTS, READERS, TRACE, IMPORT, EBPF]),
];

#[test]
fn crates_depend_on_each_other_as_documented() {
    let allowed = BTreeMap::from(ALLOWED);
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
            .filter(|name| name.starts_with("perfquet-") || *name == LIBRARY)
        {
            if !allowed.contains(&dependency.as_str()) {
                wrong.push(format!("{package} must not depend on {dependency}"));
            }
        }
    }
    assert_none(&wrong);
}

/// From its dependencies, `query` uses only the code that opens a trace directory, what `annotate` reads beside it, and
/// functions that both sides need.
#[test]
fn query_uses_the_trace_directory_only() {
    let allowed = [
        "perfquet_trace::store",
        // Lakes opened as traces.
        "perfquet_trace::lake",
        // Those behind URLs.
        "perfquet_trace::remote",
        "perfquet_remote",
        "perfquet_trace::tables",
        // Clocks of several traces.
        "perfquet_trace::align",
        "perfquet_trace::function_name",
        "perfquet_trace::system_call",
        // When a trace was recorded.
        "perfquet_trace::recorded",
        // Which rows of `losses` are losses.
        "perfquet_trace::loss",
        // Which facts are units of events.
        "perfquet_trace::unit_fact",
        // Plurals in messages.
        "perfquet_trace::count",
        // Writing files for the user, and rejecting to.
        "perfquet_trace::output_file",
        // Code and source lines of recorded programs, and source files.
        "perfquet_trace::symbols",
        "perfquet_events::input::Map",
        "perfquet_events::Error",
        "perfquet_events::errno",
        "perfquet_events::signal",
        "perfquet_events::event::bars",
        // The meaning of `common_flags`.
        "perfquet_events::event::Flags",
        "perfquet_events::event::Context",
        "perfquet_cli",
        "perfquet_views",
        // The program's own library.
        "perfquet_query",
    ];
    let mut wrong = Vec::new();
    for path in tracked()
        .iter()
        .filter(|path| path.starts_with("query/src") || path.starts_with("query/library/src"))
    {
        for (number, line) in read(&root().join(path)).lines().enumerate() {
            let names = line.match_indices("perfquet_").map(|(at, _)| &line[at..]);
            let is_wrong = |name: &str| {
                name.contains("::") && !allowed.iter().any(|allowed| name.starts_with(allowed))
            };
            if names.into_iter().any(is_wrong) {
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

/// Readers use events, never the table formats.
#[test]
fn readers_see_neither_arrow_nor_parquet() {
    let tables = ["arrow", "parquet"];
    let mut wrong = Vec::new();
    for (package, dependencies) in dependencies() {
        let is_reader = [EVENTS, READERS].contains(&package.as_str());
        for dependency in &dependencies {
            let is_of_tables = tables.iter().any(|name| dependency.starts_with(name));
            if is_of_tables && is_reader {
                wrong.push(format!("{package} must not depend on {dependency}"));
            }
        }
    }
    assert_none(&wrong);
}

/// All crates but those in `query/`, and the client of object stores that they use, build in minutes because of this.
#[test]
fn only_query_sees_datafusion_and_tokio() {
    let mut wrong = Vec::new();
    for (package, dependencies) in dependencies() {
        for dependency in &dependencies {
            let heavy = dependency.starts_with("datafusion") || dependency == "tokio";
            if heavy && ![LIBRARY, REMOTE, "perfquet-query"].contains(&package.as_str()) {
                wrong.push(format!("{package} must not depend on {dependency}"));
            }
        }
    }
    assert_none(&wrong);
}

/// Versions are only in the root manifest, so none can occur twice.
#[test]
fn versions_occur_once() {
    let mut wrong = Vec::new();
    let is_manifest =
        |path: &PathBuf| path.ends_with("Cargo.toml") && path != Path::new("Cargo.toml");
    for path in tracked().into_iter().filter(is_manifest) {
        let manifest: toml::Table = read(&root().join(&path)).parse().unwrap();
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(section).and_then(|value| value.as_table())
            else {
                continue;
            };
            for (name, value) in dependencies {
                if value.get("workspace").and_then(|value| value.as_bool()) != Some(true) {
                    wrong.push(format!(
                        "{}: {name}: say `{name}.workspace = true`",
                        path.display()
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
