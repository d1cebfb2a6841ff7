//! A cargo project outside of the workspace uses the crates: the tables in its own DataFusion context, reports, and imports.
//!
//! It is `library/main.rs` with a manifest of path dependencies. The shared target directory and the profile of the workspace let
//! it use DataFusion as built for the query tool: building it again is a failure, since users of several of our crates would wait twice.

use std::fmt::Write as _;

use perfquet_tests::{bin, cargo, root, target_directory};

/// Our crates that the project compiles, for itself: its paths are others.
const OURS: [&str; 9] = [
    "perfquet",
    "perfquet-cli",
    "perfquet-events",
    "perfquet-import",
    "perfquet-query",
    "perfquet-readers",
    "perfquet-remote",
    "perfquet-trace",
    "perfquet-views",
];

/// The profile of the workspace, which decides whether dependencies are built again. Our own crates are not optimized.
fn profile(workspace: &str) -> String {
    let (_, profile) = workspace
        .split_once("[profile.release]\n")
        .expect("the workspace has a release profile");
    let mut text = String::from("[profile.release]\n");
    let mut is_ours = false;
    for line in profile.lines() {
        if line.starts_with('[') {
            is_ours = line.starts_with("[profile.release.package.perfquet");
        }
        if !is_ours {
            writeln!(text, "{line}").unwrap();
        }
    }
    for name in OURS {
        writeln!(text, "[profile.release.package.{name}]\nopt-level = 0").unwrap();
    }
    text
}

#[test]
fn a_project_outside_of_the_workspace_queries_traces() {
    // DataFusion, with the features of the query tool.
    bin("perfquet-query");
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("outside");
    std::fs::create_dir_all(project.join("src")).unwrap();
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let clone = root().display();
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         anyhow = \"1\"\n\
         datafusion = {{ version = \"55\", default-features = false }}\n\
         perfquet = {{ path = \"{clone}/query/library\" }}\n\
         perfquet-import = {{ path = \"{clone}/formats/import\" }}\n\
         perfquet-query = {{ path = \"{clone}/query\" }}\n\
         tokio = {{ version = \"1\", default-features = false, features = [\"rt-multi-thread\"] }}\n\n{}",
        profile(&workspace)
    );
    std::fs::write(project.join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    std::fs::copy(
        root().join("tests/library/main.rs"),
        project.join("src/main.rs"),
    )
    .unwrap();
    let golden = root().join("formats/readers/src");
    let output = cargo()
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", target_directory())
        .env_remove("RUST_BACKTRACE")
        .args(["run", "--release", "--offline", "--color=never", "--"])
        .arg(golden.join("trace_dat/golden/graph-events.dat"))
        .arg(golden.join("perf_data/golden/mono.data"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stderr}");
    let compiled = stderr.lines().map(str::trim);
    let again: Vec<&str> = compiled
        .filter(|line| line.starts_with("Compiling"))
        .filter(|line| {
            ["datafusion", "arrow", "parquet v"]
                .iter()
                .any(|name| line.contains(name))
        })
        .collect();
    assert!(again.is_empty(), "built a second time: {again:#?}");
    let path = root().join("tests/library/expected.txt");
    if std::env::var_os("PERFQUET_UPDATE").is_some() {
        std::fs::write(&path, stdout.as_bytes()).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert_eq!(stdout, expected, "{stderr}");
}
