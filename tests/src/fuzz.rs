//! `cargo xtask fuzz --minutes N`: damaged inputs for every reader and whole imports, damaged traces for every report,
//! for the given time.
//!
//! The library is built to count the edges that a case covers (`tests/fuzz/instrument.sh`): a case with new coverage is
//! mutated further. LLVM's counters work on stable Rust, so neither AFL nor a nightly compiler is needed.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::{place, say};

/// Runs the fuzz program for `minutes`, in one process per CPU with its own seed. `cargo test` runs the same program
/// for some seconds, with the same seed every time.
pub fn run(minutes: u64) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    say::step(&format!(
        "damaged inputs and damaged traces, for {minutes} min in {jobs} processes"
    ));
    // Built by the ordinary compiler, before the instrumenting one is set.
    let query = place::bin("perfquet-query");
    let programs = query.parent().context("a program has a directory")?;
    let instrumented = |arguments: &[&str]| {
        // In the tests' profile, where overflows panic.
        let mut command = place::cargo_test(&["--test", "fuzz"]);
        command.args(arguments).env(
            "RUSTC_WORKSPACE_WRAPPER",
            place::root().join("tests/fuzz/instrument.sh"),
        );
        command
    };
    let built = instrumented(&["--no-run"]).status();
    ensure!(
        built.context("cannot run cargo")?.success(),
        "cannot build it"
    );
    let first = first_seed()?;
    let children: Vec<_> = (0..jobs)
        .map(|job| {
            let seed = first.wrapping_add(job);
            say::note(&format!("PERFQUET_FUZZ_SEED={seed}"));
            instrumented(&["--", "--nocapture", "--test-threads=1"])
                .env("PERFQUET_BIN_DIR", programs)
                .env("PERFQUET_FUZZ_SECONDS", (minutes * 60).to_string())
                .env("PERFQUET_FUZZ_SEED", seed.to_string())
                .spawn()
                .context("cannot run cargo")
        })
        .collect::<Result<_>>()?;
    let mut failed = 0;
    for mut child in children {
        failed += u64::from(!child.wait().context("cannot wait for cargo")?.success());
    }
    ensure!(
        failed == 0,
        "{failed} of {jobs} processes failed; each printed the seed of the failing case"
    );
    Ok(())
}

/// The seed of the first process: from the environment, or the time, so that no two runs try the same cases.
fn first_seed() -> Result<u64> {
    if let Ok(text) = std::env::var("PERFQUET_FUZZ_SEED") {
        let seed = text.parse();
        return seed
            .with_context(|| format!("PERFQUET_FUZZ_SEED: expected a number, found {text:?}"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_nanos() as u64)
}
