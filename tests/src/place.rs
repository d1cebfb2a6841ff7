//! Paths: the clone, the target directory, the built programs, the traces of the oracles.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// The top of the clone.
pub fn root() -> &'static Path {
    // Every manifest is one level below the top. The compile-time path belongs to another clone if two share a target
    // directory: cargo passes the right one to the programs it runs.
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let manifest = manifest.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        manifest.parent().unwrap_or(&manifest).to_path_buf()
    })
}

/// A cargo command for this workspace, independent of the current directory.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    outside_of_cargo(&mut command);
    command
}

/// Removes the variables of the test or chore that cargo runs from a command that runs cargo again. The build script of ring asks for them:
/// if they differ from those of a cargo that a person runs, ring is built again, and all that depends on it, up to DataFusion.
pub fn outside_of_cargo(command: &mut Command) {
    for name in [
        "MANIFEST_DIR",
        "MANIFEST_LINKS",
        "PKG_NAME",
        "PKG_VERSION_MAJOR",
        "PKG_VERSION_MINOR",
        "PKG_VERSION_PATCH",
        "PKG_VERSION_PRE",
    ] {
        command.env_remove(format!("CARGO_{name}"));
    }
}

/// Selects all packages that are tested in dev. One selection in all commands: another one unifies the features of the dependencies
/// differently, and recompiles them.
pub const ALL_ELSE: &[&str] = &[
    "--workspace",
    "--exclude",
    "perfquet-query",
    "--exclude",
    "perfquet",
    "--exclude",
    "perfquet-python",
];

/// `cargo test` with these arguments, for the same packages as in `cargo xtask test`.
pub fn cargo_test(arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.arg("test").args(ALL_ELSE).args(arguments);
    command
}

/// Cargo's target directory: `target`, or as set by `CARGO_TARGET_DIR` and the configuration.
pub fn target_directory() -> &'static Path {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    TARGET.get_or_init(|| metadata_target().unwrap_or_else(|| root().join("target")))
}

fn metadata_target() -> Option<PathBuf> {
    let output = cargo()
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(PathBuf::from(metadata["target_directory"].as_str()?))
}

/// The path of what a release build makes under that name (`perfquet-query`, `examples/encode`). Builds nothing; see [`bin`].
pub fn release(name: &str) -> PathBuf {
    target_directory().join("release").join(name)
}

/// The program with that name (`perfquet-query`), built in release at the first call of a process.
///
/// `cargo test` does not build the programs of other packages. They are always taken from the release profile:
/// DataFusion is built once for the demo, the tests and the benchmarks, and each package is built separately, like in
/// the demo, because building several at once unifies their features. `PERFQUET_BIN_DIR` names a directory with
/// existing programs.
pub fn bin(name: &str) -> PathBuf {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    if let Some(directory) = std::env::var_os("PERFQUET_BIN_DIR") {
        let path = PathBuf::from(directory).join(name);
        assert!(
            path.is_file(),
            "{}: not there, though PERFQUET_BIN_DIR names its folder",
            path.display()
        );
        return path;
    }
    let mut built = BUILT
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let built = built.get_or_insert_with(HashMap::new);
    if let Some(path) = built.get(name) {
        return path.clone();
    }
    let status = cargo()
        .args(["build", "--quiet", "--release", "--package", name])
        .status()
        .expect("cargo runs, for it runs this test");
    assert!(
        status.success(),
        "cargo build --release --package {name} failed"
    );
    let path = release(name);
    built.insert(name.to_owned(), path.clone());
    path
}

/// The directories of traces for the oracles: `tests/corpus`, and that of downloaded traces if there is one.
pub fn corpora() -> Vec<PathBuf> {
    let own = root().join("tests/corpus");
    [own].into_iter().chain(foreign_corpus()).collect()
}

/// The directory of traces from other hosts and tools, which are too large for the repository: `PERFQUET_CORPUS`, or a
/// directory shared/corpus next to the clone. No test requires it; it only adds files.
pub fn foreign_corpus() -> Option<PathBuf> {
    let path = match std::env::var_os("PERFQUET_CORPUS") {
        Some(path) => PathBuf::from(path),
        None => root().join("../shared/corpus"),
    };
    path.is_dir().then_some(path)
}
