//! `cargo xtask bench`: perfquet and its peers in alternation, on this host; medians and ratios, never a bare time.
//!
//! Each benchmark writes its section of `docs/dev/benchmarks.md`: a description of the host, a table per scenario, and each
//! budget with its result.

mod encode;
mod formats;
mod import;
mod machine;
mod measure;
mod probe_effect;
mod programs;
mod queries;
mod record;
mod report;
mod significance;
mod size;
mod traces;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::{place, say};
use report::Report;
pub(crate) use traces::storm;

/// A benchmark: its name on the command line, and its comparison.
struct Benchmark {
    name: &'static str,
    about: &'static str,
    run: fn(&Setting) -> Result<Report>,
}

const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "record",
        about: "recording, against perf record",
        run: record::run,
    },
    Benchmark {
        name: "probe-effect",
        about: "overhead in the recorded program, against perf, bpftrace and trace-cmd",
        run: probe_effect::run,
    },
    Benchmark {
        name: "programs",
        about: "in-kernel aggregation, against bpftrace",
        run: programs::run,
    },
    Benchmark {
        name: "import",
        about: "import of perf.data, against perf script and perf report",
        run: import::run,
    },
    Benchmark {
        name: "formats",
        about: "import of trace.dat against trace-cmd report, and of text formats",
        run: formats::run,
    },
    Benchmark {
        name: "encode",
        about: "encoding alone, against a tuned ArrowWriter",
        run: encode::run,
    },
    Benchmark {
        name: "size",
        about: "bytes per event, against perf.data and zstd -3",
        run: size::run,
    },
    Benchmark {
        name: "queries",
        about: "SQL over 10 M rows, against DuckDB on the same Parquet",
        run: queries::run,
    },
];

/// Settings of every benchmark.
struct Setting {
    /// Number of alternating runs of each contestant.
    rounds: usize,
    /// Scratch space.
    directory: PathBuf,
}

/// Runs the benchmarks with these names, or all.
pub fn run(arguments: &[&str]) -> Result<()> {
    if let ["--help" | "-h"] = arguments {
        print!("{}", usage());
        return Ok(());
    }
    let (names, rounds) = parse(arguments)?;
    let directory = place::target_directory().join("bench");
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    for name in ["perfquet-record", "perfquet-convert", "perfquet-query"] {
        say::step(&format!("building {name} in release"));
        place::bin(name);
    }
    let setting = Setting { rounds, directory };
    let mut skipped = Vec::new();
    for benchmark in BENCHMARKS
        .iter()
        .filter(|benchmark| names.is_empty() || names.contains(&benchmark.name))
    {
        say::step(&format!(
            "{}: {} ({rounds} rounds)",
            benchmark.name, benchmark.about
        ));
        match (benchmark.run)(&setting) {
            Ok(report) => {
                print!("{}", report.text());
                report.write_into_docs(benchmark.name)?;
            }
            Err(error) if error.is::<Skipped>() => {
                skipped.push(format!("{}: {error}", benchmark.name))
            }
            Err(error) => return Err(error.context(format!("benchmark {}", benchmark.name))),
        }
    }
    for line in &skipped {
        println!("skipped: {line}");
    }
    Ok(())
}

fn usage() -> String {
    let rows = BENCHMARKS
        .iter()
        .map(|benchmark| format!("  {:<14}{}\n", benchmark.name, benchmark.about));
    let rows: String = rows.collect();
    format!("usage: cargo xtask bench [--rounds N] [NAME]...\n\n{rows}")
}

fn parse<'a>(arguments: &[&'a str]) -> Result<(Vec<&'a str>, usize)> {
    let mut names = Vec::new();
    let mut rounds = 5;
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        if argument == "--rounds" {
            let number = rest
                .next()
                .and_then(|number| number.parse().ok())
                .filter(|&number| number > 0);
            rounds = number.context("--rounds: expected a number above 0")?;
        } else if BENCHMARKS
            .iter()
            .any(|benchmark| benchmark.name == argument)
        {
            names.push(argument);
        } else {
            let known: Vec<&str> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
            bail!(
                "no such benchmark: {argument}\nhint: there are {}; and --rounds N",
                known.join(", ")
            );
        }
    }
    Ok((names, rounds))
}

/// A benchmark whose peer is missing here.
#[derive(Debug)]
struct Skipped(String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// An error that skips the benchmark if the host lacks any of these.
fn require(needs: &[&str]) -> Result<()> {
    match needs.iter().find_map(|need| crate::needs::missing(need)) {
        None => Ok(()),
        Some(reason) => Err(Skipped(reason).into()),
    }
}
