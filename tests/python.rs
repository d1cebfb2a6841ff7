//! The Python package: its wheel is built by maturin, installed into an empty environment and among other packages, and its own
//! tests run there.
//!
//! The shared target directory and the features of the query tool let it use DataFusion as built for that.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use perfquet_tests::{bin, needs, outside_of_cargo, root, target_directory};

/// PyPI's limit of a file is 100 MB; perfquet's is that of a wheel of DataFusion.
const WHEEL_BYTES_MAX: u64 = 50_000_000;

fn run(command: &mut Command) -> Output {
    let output = command.env_remove("RUST_BACKTRACE").output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Builds the wheel.
fn wheel(folder: &Path) -> PathBuf {
    let mut build = Command::new("python3");
    outside_of_cargo(&mut build);
    let output = run(build
        .args([
            "-m",
            "maturin",
            "build",
            "--release",
            "--offline",
            "--locked",
        ])
        .args([
            "--auditwheel",
            "check",
            "--color",
            "never",
            "--manifest-path",
        ])
        .arg(root().join("query/python/Cargo.toml"))
        .arg("--out")
        .arg(folder)
        .env("CARGO_TARGET_DIR", target_directory()));
    let said = String::from_utf8_lossy(&output.stderr);
    let compiled = said.lines().filter(|line| line.contains("Compiling data"));
    let again: Vec<&str> = compiled.collect();
    assert!(again.is_empty(), "dependencies built again: {again:?}");
    let mut files = std::fs::read_dir(folder).unwrap();
    let wheel = files.next().unwrap().unwrap().path();
    let name = wheel.file_name().unwrap().to_string_lossy().into_owned();
    let is_for_all = name.starts_with("perfquet-") && name.contains("-cp310-abi3-manylinux_");
    assert!(is_for_all, "{name}");
    wheel
}

#[test]
fn the_wheel_is_small_works_alone_and_passes_its_tests() {
    if !needs::met(&["maturin and pytest for Python"]) {
        return;
    }
    let query = bin("perfquet-query");
    let folder = tempfile::tempdir().unwrap();
    let wheel = wheel(&folder.path().join("wheels"));
    let bytes = std::fs::metadata(&wheel).unwrap().len();
    println!(
        "table: wheel of the Python package | {} MB",
        bytes / 1_000_000
    );
    assert!(bytes <= WHEEL_BYTES_MAX, "{bytes} bytes");

    // Alone: no other package, no network.
    let empty = folder.path().join("empty");
    run(Command::new("python3").args(["-m", "venv"]).arg(&empty));
    let python = empty.join("bin/python");
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--no-index"])
        .arg(&wheel));
    let golden = root().join("formats/readers/src/perf_data/golden/mono.data");
    let output = run(Command::new(&python)
        .args(["-W", "ignore", "-c"])
        .arg(
            "import sys, perfquet\n\
             trace = perfquet.read(sys.argv[1], symbols=[])\n\
             assert trace.flamegraph().svg\n\
             print(trace.sql('SELECT count(*) AS n FROM samples').scalar())",
        )
        .arg(&golden)
        .current_dir(folder.path()));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.trim().parse::<u64>().is_ok_and(|count| count > 0),
        "{said}"
    );

    // Beside pandas, Polars, Arrow and DuckDB, if they are there.
    let beside = folder.path().join("beside");
    run(Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--target",
        ])
        .arg(&beside)
        .arg(&wheel));
    let output = run(Command::new("python3")
        .args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-rs",
            "--color=no",
        ])
        .arg(root().join("query/python/tests"))
        .current_dir(folder.path())
        .env("PYTHONPATH", &beside)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PERFQUET_QUERY", query));
    println!("{}", String::from_utf8_lossy(&output.stdout));
}
