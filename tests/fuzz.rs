//! Damaged inputs for every reader, damaged traces for every report: golden files with bytes changed, removed,
//! duplicated, moved between files.
//!
//! ```text
//! bytes ─► reader                                               every case
//! bytes ─► reader ─► normalize ─► store ─► open ─► every row    every case; one or two inputs, also of two formats
//!                                          └─► reports          some of them
//! manifest, parts with bytes changed ─► open ─► every row, reports
//! ```
//! They may reject an input, and may find nothing in it; they may not panic, hang, or take more memory than the input
//! and their own limits account for. `PERFQUET_FUZZ_SECONDS` is the duration (set by `cargo xtask fuzz`); without it, a
//! fixed number of cases is tried, the same in every run. A failing case is written to a file, and the seed is printed.
//! If the library counts its edges, cases with new coverage are mutated further and, if `PERFQUET_FUZZ_KEEP` names a
//! directory, kept there.

#[path = "fuzz/coverage.rs"]
mod coverage;
#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/query.rs"]
mod query;
#[path = "fuzz/reader.rs"]
mod reader;
#[path = "fuzz/watch.rs"]
mod watch;
#[path = "fuzz/whole.rs"]
mod whole;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coverage::Coverage;
use mutate::{Random, mutate, seeds};
use perfquet_events::Format;
use perfquet_readers::FORMATS;

/// Rounds over all formats, without a duration.
const READER_ROUNDS: u64 = 250;
const WHOLE_ROUNDS: u64 = 24;
const TRACE_ROUNDS: u64 = 60;
/// One of this many cases is passed to the reports.
const ASKED: usize = 100;
/// Longer inputs are not mutated further: they take the time of many short ones.
const KEPT_BYTES_MAX: usize = 96 << 10;
/// Maximum number of cases with new coverage kept per format.
const KEPT_MAX: usize = 4000;

/// The end of the run: after a time, or after a number of rounds.
struct Until {
    end: Option<Instant>,
    rounds: u64,
}

impl Until {
    fn new(rounds: u64, share: f64) -> Until {
        let seconds = std::env::var("PERFQUET_FUZZ_SECONDS");
        let seconds = seconds.map(|text| text.parse::<f64>().expect("a number of seconds"));
        Until {
            end: seconds
                .ok()
                .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds * share)),
            rounds,
        }
    }

    fn goes_on(&mut self) -> bool {
        self.rounds = self.rounds.saturating_sub(1);
        self.end.map_or(self.rounds > 0, |end| Instant::now() < end)
    }
}

fn random() -> Random {
    let seed = std::env::var("PERFQUET_FUZZ_SEED");
    Random(seed.map_or(0x9e37_79b9_7f4a_7c15, |text| {
        text.parse().expect("a number")
    }))
}

/// Formats with their seed inputs.
fn pools() -> Vec<(&'static Format, Vec<Vec<u8>>)> {
    let pools: Vec<_> = FORMATS
        .iter()
        .map(|format| (*format, seeds(format)))
        .filter(|(_, seeds)| !seeds.is_empty())
        .collect();
    assert!(!pools.is_empty());
    pools
}

fn scratch_file(case: u64, name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("perfquet-fuzz-{case}{name}"))
}

/// Writes failing cases to files, and prints their paths.
fn fail(case: u64, reason: &str, inputs: &[(&'static Format, Vec<u8>)]) -> ! {
    let mut places = Vec::new();
    for (index, (format, bytes)) in inputs.iter().enumerate() {
        let path = scratch_file(case, &format!("-{index}"));
        std::fs::write(&path, bytes).unwrap();
        places.push(format!("{} {}", format.name, path.display()));
    }
    panic!(
        "{reason}; inputs {}; PERFQUET_FUZZ_SEED={case}",
        places.join(", ")
    );
}

#[test]
fn no_reader_fails_on_damaged_input() {
    let pools = pools();
    let mut until = Until::new(READER_ROUNDS, 0.2);
    let mut random = random();
    let mut count = 0u64;
    while until.goes_on() {
        for (format, seeds) in &pools {
            let case = random.0;
            let mut bytes = seeds[random.below(seeds.len())].clone();
            mutate(&mut bytes, seeds, &mut random);
            count += 1;
            if let Err(reason) = reader::try_reader(format, &bytes) {
                fail(case, &reason, &[(*format, bytes)]);
            }
        }
    }
    println!("{count} damaged inputs, {} formats", pools.len());
}

#[test]
fn damaged_inputs_cause_no_failure() {
    let mut pools = pools();
    let mut until = Until::new(WHOLE_ROUNDS, 0.7);
    let mut random = random();
    let mut coverage = Coverage::new();
    let keep = std::env::var_os("PERFQUET_FUZZ_KEEP").map(PathBuf::from);
    let program = perfquet_tests::bin("perfquet-query");
    let converter = perfquet_tests::bin("perfquet-convert");
    let (mut count, mut reported, mut kept) = (0u64, 0u64, 0u64);
    while until.goes_on() {
        for index in 0..pools.len() {
            let case = random.0;
            let mut inputs = vec![damaged(&pools, index, &mut random)];
            if random.below(4) == 0 {
                let other = random.below(pools.len());
                inputs.push(damaged(&pools, other, &mut random));
            }
            count += 1;
            let trace = match whole::try_import(&inputs) {
                Ok(trace) => trace,
                Err(reason) => fail(case, &reason, &inputs),
            };
            if coverage.take() {
                kept += 1;
                for (format, bytes) in &inputs {
                    keep_case(&mut pools, format, bytes, keep.as_deref(), case);
                }
            }
            if let Some(trace) = trace
                && random.below(ASKED) == 0
            {
                reported += 1;
                let path = trace.path().join("t.pqt");
                let exported = query::try_exports(&converter, &path);
                if let Err(reason) = exported.and_then(|()| query::try_queries(&program, &path)) {
                    fail(case, &reason, &inputs);
                }
            }
        }
    }
    println!("{count} imports of damaged inputs, {reported} of them passed to reports");
    if coverage.is_there() {
        println!("{} edges, {kept} cases that went new ways", coverage.edges);
    }
}

fn damaged(
    pools: &[(&'static Format, Vec<Vec<u8>>)],
    index: usize,
    random: &mut Random,
) -> (&'static Format, Vec<u8>) {
    let (format, pool) = &pools[index];
    let mut bytes = pool[random.below(pool.len())].clone();
    mutate(&mut bytes, pool, random);
    (*format, bytes)
}

fn keep_case(
    pools: &mut [(&'static Format, Vec<Vec<u8>>)],
    format: &Format,
    bytes: &[u8],
    keep: Option<&Path>,
    case: u64,
) {
    if bytes.len() > KEPT_BYTES_MAX {
        return;
    }
    let pool = pools
        .iter_mut()
        .find(|(other, _)| other.name == format.name);
    if let Some((_, pool)) = pool
        && pool.len() < KEPT_MAX
    {
        pool.push(bytes.to_vec());
    }
    if let Some(keep) = keep {
        let folder = keep.join(format.name.replace(['.', '-', ' '], "_"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{case:016x}")), bytes).unwrap();
    }
}

/// Traces of undamaged golden files, whose manifests and parts are damaged.
#[test]
fn damaged_traces_cause_no_failure() {
    let pools = pools();
    let mut until = Until::new(TRACE_ROUNDS, 0.1);
    let mut random = random();
    let program = perfquet_tests::bin("perfquet-query");
    let converter = perfquet_tests::bin("perfquet-convert");
    let traces: Vec<_> = pools
        .iter()
        .filter_map(|(format, seeds)| {
            let imported = whole::try_import(&[(*format, seeds[0].clone())]);
            imported.unwrap_or_else(|reason| panic!("{}: {reason}", format.name))
        })
        .collect();
    assert!(!traces.is_empty());
    let (mut count, mut reported) = (0u64, 0u64);
    while until.goes_on() {
        let case = random.0;
        let original = &traces[random.below(traces.len())];
        let folder = tempfile::tempdir_in(whole::scratch()).unwrap();
        let path = folder.path().join("t.pqt");
        copy(&original.path().join("t.pqt"), &path);
        let files = files_of(&path);
        // Half of the damage is in the manifest, which has all offsets.
        let file = match random.below(2) {
            0 => path.join("manifest.json"),
            _ => files[random.below(files.len())].clone(),
        };
        let mut bytes = std::fs::read(&file).unwrap();
        match file.ends_with("manifest.json") && random.below(4) != 0 {
            true => mutate::mutate_json(&mut bytes, &mut random),
            false => mutate(&mut bytes, &pools[0].1, &mut random),
        }
        std::fs::write(&file, bytes).unwrap();
        count += 1;
        let mut result = whole::try_trace(&path);
        if result.is_ok() && random.below(ASKED / 5) == 0 {
            reported += 1;
            result = query::try_exports(&converter, &path)
                .and_then(|()| query::try_queries(&program, &path));
        }
        if let Err(reason) = result {
            let kept = scratch_file(case, ".pqt");
            copy(&path, &kept);
            panic!(
                "{reason}; trace {}; PERFQUET_FUZZ_SEED={case}",
                kept.display()
            );
        }
    }
    println!("{count} damaged traces, {reported} of them passed to reports");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn files_of(path: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_of(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}
