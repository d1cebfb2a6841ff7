//! Compares self and total of every function, as printed by `go tool pprof -top`, with `top`, for each event.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, needs, root};

use super::inputs::{Trace, trace, traces};
use super::{counts, export};
use crate::several::printed;

/// Self and total by function.
type Functions = BTreeMap<String, (u64, u64)>;

fn pprof(file: &Path, options: &[&str]) -> String {
    let output = Command::new("go")
        .args(["tool", "pprof", "-symbolize=none"])
        .args(options)
        .arg(file)
        .env("PPROF_TMPDIR", file.parent().unwrap())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", file.display());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the sample types printed by `-raw` in the line after `PeriodType` and `Samples:`.
fn types(file: &Path) -> Vec<(String, String)> {
    let raw = pprof(file, &["-raw"]);
    let mut lines = raw.lines().skip_while(|line| *line != "Samples:");
    let types = lines.nth(1).unwrap_or_default();
    let types = types.split_whitespace();
    types
        .filter_map(|word| word.trim_end_matches("[dflt]").rsplit_once('/'))
        .map(|(name, unit)| (name.to_owned(), unit.to_owned()))
        .collect()
}

/// Returns the sum of the values of each sample type, as printed by `-raw`.
pub(super) fn sums(file: &Path) -> BTreeMap<String, u64> {
    let types = types(file);
    let raw = pprof(file, &["-raw"]);
    let samples = raw.lines().skip_while(|line| *line != "Samples:").skip(2);
    let mut sums = BTreeMap::new();
    // `          1    2004008          0: 2 3`; labels follow on their own lines.
    for line in samples.take_while(|line| *line != "Locations") {
        let Some((values, _)) = line.split_once(": ") else {
            continue;
        };
        let values: Vec<i64> = values
            .split_whitespace()
            .map_while(|value| value.parse().ok())
            .collect();
        if values.len() == types.len() {
            for ((name, _), value) in types.iter().zip(values) {
                *sums.entry(name.clone()).or_default() += value.unsigned_abs();
            }
        }
    }
    sums
}

fn functions(file: &Path, index: &str, unit: &str) -> Functions {
    let index = format!("-sample_index={index}");
    let unit = format!("-unit={unit}");
    let top = pprof(
        file,
        &[
            "-top",
            "-nodecount=1000000",
            "-nodefraction=0",
            "-edgefraction=0",
            &index,
            &unit,
        ],
    );
    let rows = top
        .lines()
        .skip_while(|line| !line.contains("flat%"))
        .skip(1);
    let number = |word: &str| -> u64 {
        let digits = word.trim_end_matches(|letter: char| letter.is_alphabetic());
        digits.parse().unwrap()
    };
    let mut functions = Functions::new();
    for row in rows {
        let mut words = row.split_whitespace();
        let mut next = || words.next().unwrap_or("0");
        let (flat, _, _, total, _) = (next(), next(), next(), next(), next());
        let name: Vec<&str> = words.collect();
        let name = name.join(" ");
        let name = name
            .trim_end_matches(" (partial-inline)")
            .trim_end_matches(" (inline)");
        let function = functions.entry(name.to_owned()).or_default();
        function.0 += number(flat);
        function.1 += number(total);
    }
    functions
}

fn our_functions(trace: &Trace, event: &str) -> Functions {
    let text = printed(
        "perfquet-query",
        &[
            "top",
            &trace.path,
            "--event",
            event,
            "-n",
            "0",
            "--format",
            "json",
        ],
    );
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut functions = Functions::new();
    for row in rows.as_array().unwrap() {
        let number = |name: &str| row[name].as_u64().unwrap();
        let name = row["function"].as_str().unwrap_or("[unknown]");
        let function = functions.entry(name.to_owned()).or_default();
        function.0 += number("self");
        function.1 += number("total");
    }
    functions.retain(|_, sums| *sums != (0, 0));
    functions
}

#[test]
fn go_pprof_prints_top_as_we_do() {
    if !needs::met(&["Go with pprof"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut table = String::new();
    let mut wrong = Vec::new();
    for trace in traces() {
        let file = folder.path().join("a.pb.gz");
        export(&trace.path, "pprof", &file, &[]);
        let sampled = counts(
            &trace.path,
            "SELECT event AS name, count(*) AS n FROM samples GROUP BY event",
        );
        // pprof rejects a profile without samples.
        if sampled.is_empty() {
            continue;
        }
        for (event, unit) in types(&file) {
            if !sampled.contains_key(&event) {
                continue;
            }
            let unit = if unit == "nanoseconds" { "ns" } else { &unit };
            let (theirs, ours) = (functions(&file, &event, unit), our_functions(trace, &event));
            let sum = |functions: &Functions| functions.values().map(|(own, _)| own).sum::<u64>();
            let _ = writeln!(
                table,
                "{:<24} {event:<16} {:>10} {:>24}",
                trace.name,
                format!("{}/{}", ours.len(), theirs.len()),
                format!("{}/{}", sum(&ours), sum(&theirs)),
            );
            for (name, sums) in &ours {
                if theirs.get(name) != Some(sums) {
                    wrong.push(format!(
                        "{} {event} {name}: {sums:?}, pprof {:?}",
                        trace.name,
                        theirs.get(name)
                    ));
                }
            }
            if theirs.len() != ours.len() {
                wrong.push(format!(
                    "{} {event}: {} functions, pprof {}",
                    trace.name,
                    ours.len(),
                    theirs.len()
                ));
            }
        }
    }
    println!(
        "{:<24} {:<16} {:>10} {:>24}\n{table}",
        "ours/pprof", "event", "functions", "sum"
    );
    assert!(!table.is_empty());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn go_pprof_adds_calls_and_shows_labels() {
    if !needs::met(&["Go with pprof"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pb.gz");
    let graph = trace("graph-events.dat");
    export(&graph.path, "pprof", &file, &[]);
    let calls = counts(
        &graph.path,
        "SELECT function AS name, count(*) AS n FROM calls GROUP BY function",
    );
    let times = counts(
        &graph.path,
        "SELECT function AS name, CAST(coalesce(sum(self_time), 0) AS BIGINT) AS n FROM calls GROUP BY function",
    );
    let found = functions(&file, "calls", "count");
    let own: BTreeMap<String, u64> = found
        .iter()
        .map(|(name, sums)| (name.clone(), sums.0))
        .collect();
    assert_eq!(own, calls);
    let found = functions(&file, "self_time", "ns");
    for (name, time) in times.iter().filter(|(_, time)| **time > 0) {
        assert_eq!(found[name].0, *time, "{name}");
    }
    let tags = pprof(&file, &["-tags", "-sample_index=calls"]);
    for label in [" thread: ", " tid: ", " cpu: "] {
        assert!(tags.contains(label), "{tags}");
    }
    // All 600 nested calls are exported here.
    export(&trace("hostile.trace").path, "pprof", &file, &[]);
    let found = functions(&file, "calls", "count");
    assert_eq!(found["level 0"], (1, super::inputs::DEPTH as u64));
}

/// The type that pprof shows without `-sample_index`.
#[test]
fn the_first_type_is_what_was_recorded() {
    if !needs::met(&["Go with pprof"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pb.gz");
    for (name, expected) in [
        ("user-regs.data", "cpu-clock"),
        ("graph-events.dat", "self_time"),
        ("stacks.out", "aggregate"),
        (super::inputs::ONE_PROCESS, "sched:sched_switch"),
    ] {
        export(&trace(name).path, "pprof", &file, &[]);
        let raw = pprof(&file, &["-raw"]);
        let first = raw
            .split_whitespace()
            .find_map(|word| word.strip_suffix("[dflt]"));
        let (first, _) = first
            .unwrap_or_default()
            .rsplit_once('/')
            .unwrap_or_default();
        assert_eq!(first, expected, "{name}");
    }
}

/// Exported for [`imported_profiles_are_what_go_prints`]: calls, samples with kernel and user stacks.
const EXPORTED: [&str; 2] = ["graph-events.dat", "user-regs.data"];

/// Profiles of Go, and those that we export, come back with the values of every function.
#[test]
fn imported_profiles_are_what_go_prints() {
    if !needs::met(&["Go with pprof"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let golden = root().join("formats/readers/src/pprof/golden");
    let mut files = vec![golden.join("cpu.pb.gz"), golden.join("heap.pb.gz")];
    for name in EXPORTED {
        let file = folder.path().join(format!("{name}.pb.gz"));
        export(&trace(name).path, "pprof", &file, &[]);
        files.push(file);
    }
    let (mut compared, mut wrong) = (0, Vec::new());
    for file in files {
        let imported = Trace {
            name: file.display().to_string(),
            path: folder.path().join("a.pqt").display().to_string(),
        };
        let output = Command::new(bin("perfquet-convert"))
            .args([&file.display().to_string(), "-f", "-o", &imported.path])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", imported.name);
        for (event, unit) in types(&file) {
            let unit = if unit == "nanoseconds" { "ns" } else { &unit };
            let theirs = functions(&file, &event, unit);
            // A type without values has no rows.
            if theirs.is_empty() {
                continue;
            }
            let ours = our_functions(&imported, &event);
            compared += theirs.len();
            for (name, sums) in &theirs {
                if *sums != (0, 0) && ours.get(name) != Some(sums) {
                    let found = ours.get(name);
                    wrong.push(format!(
                        "{} {event} {name}: {found:?}, pprof {sums:?}",
                        imported.name
                    ));
                }
            }
        }
    }
    println!("{compared} functions compared");
    assert!(compared > 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
