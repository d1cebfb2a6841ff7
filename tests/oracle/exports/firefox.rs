//! Compares samples, markers and functions, as counted by the Firefox Profiler's command line, with the trace.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use perfquet_tests::needs;
use serde_json::Value;

use super::inputs::traces;
use super::{WEIGHTS, counts, export, reported_count};

/// A session of profiler-cli, which keeps a daemon.
struct Session<'a> {
    folder: &'a Path,
}

impl Session<'_> {
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new(needs::viewers().join("node_modules/.bin/profiler-cli"))
            .args(arguments)
            .env("PROFILER_CLI_SESSION_DIR", self.folder)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Loads a profile. On a loaded host the command gives up before its daemon is ready.
    fn load(&self, file: &Path) {
        let (is_loaded, stderr) = self.run(&["load", &file.display().to_string()]);
        assert!(
            is_loaded || stderr.contains("did not become ready"),
            "{stderr}"
        );
        for _ in 0..200 {
            if self.run(&["thread", "list"]).0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        panic!("{}: not loaded: {stderr}", file.display());
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--json"]].concat();
        let (is_ok, text) = self.run(&arguments);
        assert!(is_ok, "{arguments:?}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.run(&["stop", "--all"]);
    }
}

#[test]
fn the_firefox_profiler_counts_as_we_do() {
    if !needs::met(&["the Firefox Profiler's command line"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let session = Session {
        folder: folder.path(),
    };
    let mut table = String::new();
    let mut wrong = Vec::new();
    for trace in traces() {
        let file = folder.path().join("a.firefox.json.gz");
        let stderr = export(&trace.path, "firefox", &file, &[]);
        session.load(&file);
        let threads = session.json(&["thread", "list"]);
        let threads = threads["threads"].as_array().unwrap();
        let markers: u64 = threads
            .iter()
            .map(|thread| thread["markerCount"].as_u64().unwrap_or(0))
            .sum();
        let ours = reported_count(&stderr, "event")
            + reported_count(&stderr, "call")
            + reported_count(&stderr, "loss record");
        let mut functions: BTreeMap<String, f64> = BTreeMap::new();
        for (index, thread) in read(&file)["threads"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            if thread["samples"]["length"] == 0 {
                continue;
            }
            let handle = format!("t-{index}");
            let found = session.json(&[
                "thread",
                "functions",
                "--thread",
                &handle,
                "--limit",
                "0",
                "--include-idle",
            ]);
            for function in found["functions"].as_array().unwrap() {
                let name = function["name"].as_str().unwrap().to_owned();
                *functions.entry(name).or_default() += function["selfSamples"].as_f64().unwrap();
            }
        }
        session.run(&["stop", "--all"]);
        let weight: f64 = functions.values().sum();
        let samples = reported_count(&stderr, "sample");
        let _ = writeln!(
            table,
            "{:<24} {:>12} {:>8} {:>16}",
            trace.name,
            format!("{ours}/{markers}"),
            functions.len(),
            weight
        );
        if markers != ours {
            wrong.push(format!(
                "{}: {ours} markers, the profiler {markers}",
                trace.name
            ));
        }
        if (samples == 0) != functions.is_empty() {
            wrong.push(format!(
                "{}: {samples} samples, functions {functions:?}",
                trace.name
            ));
        }
    }
    println!(
        "{:<24} {:>12} {:>8} {:>16}\n{table}",
        "ours/profiler", "markers", "functions", "weight"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks lengths, indices and order, which the profiler does not check.
#[test]
fn firefox_profiles_are_consistent_and_have_our_sums() {
    let folder = tempfile::tempdir().unwrap();
    for trace in traces() {
        let file = folder.path().join("a.firefox.json.gz");
        let stderr = export(&trace.path, "firefox", &file, &[]);
        let profile = read(&file);
        let shared = &profile["shared"];
        for name in [
            "stackTable",
            "frameTable",
            "funcTable",
            "resourceTable",
            "sources",
        ] {
            check_lengths(&shared[name]);
        }
        let length = |name: &str| shared[name]["length"].as_u64().unwrap();
        let all_below = |values: &Value, bound: u64| {
            let values = values.as_array().unwrap();
            values
                .iter()
                .filter_map(Value::as_u64)
                .all(|value| value < bound)
        };
        assert!(all_below(
            &shared["stackTable"]["frame"],
            length("frameTable")
        ));
        assert!(all_below(
            &shared["frameTable"]["func"],
            length("funcTable")
        ));
        let strings = shared["stringArray"].as_array().unwrap().len() as u64;
        assert!(all_below(&shared["funcTable"]["name"], strings));
        let prefixes = shared["stackTable"]["prefix"].as_array().unwrap();
        for (index, prefix) in prefixes.iter().enumerate() {
            assert!(prefix.as_u64().is_none_or(|prefix| prefix < index as u64));
        }
        let (mut samples, mut weight) = (0, 0);
        for thread in profile["threads"].as_array().unwrap() {
            check_lengths(&thread["samples"]);
            check_lengths(&thread["markers"]);
            assert!(all_below(&thread["samples"]["stack"], length("stackTable")));
            assert!(all_below(&thread["markers"]["name"], strings));
            let times = thread["samples"]["time"].as_array().unwrap();
            assert!(times.is_sorted_by_key(|time| time.as_f64().unwrap()));
            samples += thread["samples"]["length"].as_u64().unwrap();
            weight += weight_of(&thread["samples"]);
        }
        let omitted = stderr.lines().filter(|line| line.contains("omitted:"));
        let omitted: u64 = omitted.map(|line| reported_count(line, "sample")).sum();
        let ours = counts(
            &trace.path,
            "SELECT 'n' AS name, count(*) AS n FROM samples",
        )["n"];
        assert_eq!(samples, ours - omitted, "{}", trace.name);
        if omitted == 0 {
            let sum = format!("SELECT 'n' AS name, coalesce(sum(n), 0) AS n FROM ({WEIGHTS})");
            assert_eq!(weight, counts(&trace.path, &sum)["n"], "{}", trace.name);
        }
    }
}

/// Returns the sum of the weights of a thread: periods, in ns for clocks.
fn weight_of(samples: &Value) -> u64 {
    let scale = match samples["weightType"].as_str().unwrap() {
        "tracing-ms" => 1e6,
        _ => 1.0,
    };
    let weights = samples["weight"].as_array().unwrap().iter();
    weights
        .map(|weight| (weight.as_f64().unwrap() * scale).round() as u64)
        .sum()
}

fn read(file: &Path) -> Value {
    let mut text = String::new();
    let file = std::fs::File::open(file).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

fn check_lengths(table: &Value) {
    let length = table["length"].as_u64().unwrap() as usize;
    for (name, column) in table.as_object().unwrap() {
        if let Some(column) = column.as_array() {
            assert_eq!(column.len(), length, "{name}");
        }
    }
}

/// Samples and calls that we export come back with their times: sums of every event by thread and of every function.
#[test]
fn exported_firefox_profiles_come_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["graph-events.dat", "user-regs.data", "stacktrace.dat"] {
        let file = folder.path().join(format!("{name}.json.gz"));
        let imported = folder
            .path()
            .join(format!("{name}.pqt"))
            .display()
            .to_string();
        let original = super::inputs::trace(name);
        export(&original.path, "firefox", &file, &[]);
        crate::several::printed(
            "perfquet-convert",
            &[&file.display().to_string(), "-o", &imported],
        );
        for sql in [
            "SELECT concat(event, ' ', coalesce(tid, -1), ' ', coalesce(pid, -1)) AS name, CAST(sum(period) + max(time) - min(time) AS BIGINT) AS n FROM samples WHERE period > 0 GROUP BY 1",
            "SELECT concat(function, ' ', coalesce(tid, -1)) AS name, CAST(count(*) * 1000000000 + sum(duration) AS BIGINT) AS n FROM calls WHERE duration IS NOT NULL AND entry_seen GROUP BY 1",
        ] {
            assert_eq!(
                counts(&original.path, sql),
                counts(&imported, sql),
                "{name}: {sql}"
            );
        }
    }
}
