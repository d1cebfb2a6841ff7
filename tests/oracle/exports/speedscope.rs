//! Checks that speedscope loads every export, and that its weights add up to those of `top`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use perfquet_tests::{needs, root};
use serde_json::Value;

use super::inputs::traces;
use super::{WEIGHTS, counts, export};

#[test]
fn speedscope_loads_what_it_gets() {
    if !needs::met(&["speedscope with Chromium"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> = Vec::new();
    for (number, trace) in traces().iter().enumerate() {
        let file = folder.path().join(format!("{number}.speedscope.json"));
        export(&trace.path, "speedscope", &file, &[]);
        files.push(file);
    }
    let output = Command::new("node")
        .arg(root().join("tests/oracle/exports/speedscope.js"))
        .args(&files)
        .env("NODE_PATH", needs::viewers().join("node_modules"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, vec!["loaded"; files.len()], "{files:?}");
}

/// Checks sums and indices, which speedscope does not check.
#[test]
fn speedscopes_profiles_have_our_sums_and_indices_in_range() {
    let folder = tempfile::tempdir().unwrap();
    for trace in traces() {
        let file = folder.path().join("a.speedscope.json");
        export(&trace.path, "speedscope", &file, &[]);
        let profile: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let frames = profile["shared"]["frames"].as_array().unwrap().len() as u64;
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let mut calls = 0;
        for profile in profile["profiles"].as_array().unwrap() {
            let name = profile["name"].as_str().unwrap();
            if profile["type"] == "evented" {
                let mut open = Vec::new();
                let mut last = i64::MIN;
                for event in profile["events"].as_array().unwrap() {
                    let (frame, at) = (
                        event["frame"].as_u64().unwrap(),
                        event["at"].as_i64().unwrap(),
                    );
                    assert!(frame < frames && at >= last, "{name}: {event}");
                    last = at;
                    match event["type"].as_str() {
                        Some("O") => open.push(frame),
                        _ => assert_eq!(open.pop(), Some(frame), "{name}"),
                    }
                    calls += u64::from(event["type"] == "O");
                }
                assert!(open.is_empty(), "{name}");
                continue;
            }
            let samples = profile["samples"].as_array().unwrap();
            let weights = profile["weights"].as_array().unwrap();
            assert_eq!(samples.len(), weights.len());
            for frame in samples.iter().flat_map(|sample| sample.as_array().unwrap()) {
                assert!(frame.as_u64().unwrap() < frames, "{name}");
            }
            let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
            assert_eq!(profile["endValue"].as_u64(), Some(sum), "{name}");
            let (event, _) = name.rsplit_once(": ").unwrap_or((name, ""));
            *sums.entry(event.to_owned()).or_default() += sum;
        }
        let ours = counts(&trace.path, WEIGHTS);
        for (event, sum) in ours {
            assert_eq!(sums.get(&event), Some(&sum), "{} {event}", trace.name);
        }
        let ours = counts(
            &trace.path,
            "SELECT 'calls' AS name, count(*) AS n FROM calls WHERE time IS NOT NULL",
        )["calls"];
        assert_eq!(calls, ours, "{}", trace.name);
    }
}

/// Calls and samples that we export come back: the sums of every event by thread and of every function.
#[test]
fn exported_speedscopes_come_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["graph-events.dat", "user-regs.data", "switch-events.data"] {
        let file = folder.path().join(format!("{name}.speedscope.json"));
        let imported = folder
            .path()
            .join(format!("{name}.pqt"))
            .display()
            .to_string();
        let original = super::inputs::trace(name);
        export(&original.path, "speedscope", &file, &[]);
        crate::several::printed(
            "perfquet-convert",
            &[&file.display().to_string(), "-o", &imported],
        );
        for sql in [
            "SELECT concat(event, ' ', coalesce(tid, -1)) AS name, CAST(sum(coalesce(period, 1)) AS BIGINT) AS n FROM samples WHERE event LIKE 'c%' GROUP BY 1",
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
