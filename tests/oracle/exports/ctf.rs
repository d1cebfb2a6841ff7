//! Compares the number of each event in CTF exports, as read by babeltrace2, with the trace.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use perfquet_tests::needs;

use super::inputs::traces;
use super::{counts, export};

#[test]
fn babeltrace_counts_each_event_as_we_do() {
    if !needs::met(&["babeltrace2"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut table = String::new();
    let mut wrong = Vec::new();
    for trace in traces() {
        let output = folder.path().join("a.ctf");
        let exported = export(&trace.path, "ctf", &output, &[]);
        let found = Command::new("babeltrace2")
            .args(["--names", "none", "--fields", "trace:hostname"])
            .arg(&output)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&found.stderr).into_owned();
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        // A trace without events has no streams.
        let is_empty =
            stderr.contains("no streams") || std::fs::read_dir(&output).unwrap().count() == 2;
        assert!(
            found.status.success() || is_empty,
            "{}: {stderr}",
            trace.name
        );
        let mut theirs: BTreeMap<String, u64> = BTreeMap::new();
        for line in text.lines() {
            // [03:04:05.000000000] (+0.5) host NAME: { cpu_id = 0 }, …
            let Some((head, _)) = line.split_once(": { ") else {
                continue;
            };
            let name = head.rsplit(") ").next().unwrap_or(head);
            let name = name.rsplit(' ').next().unwrap_or(name);
            *theirs.entry(name.to_owned()).or_default() += 1;
        }
        let mut ours: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in counts(
            &trace.path,
            "SELECT event AS name, count(*) AS n FROM samples WHERE time IS NOT NULL GROUP BY event
             UNION ALL SELECT CASE WHEN system IN ('sched', 'irq') THEN event WHEN system = '' THEN event ELSE concat(system, ':', event) END,
               CAST(sum(rows) AS BIGINT) FROM event_types WHERE table_name NOT IN ('samples', '') AND rows > 0 GROUP BY 1
             UNION ALL SELECT 'call', count(*) FROM calls WHERE time IS NOT NULL HAVING count(*) > 0",
        ) {
            // Names are read by words.
            let name = name.rsplit(' ').next().unwrap_or_default().to_owned();
            *ours.entry(name).or_default() += count;
        }
        // Rows without a timestamp are not exported. No trace has both.
        if exported.contains("rows omitted: without a timestamp") {
            ours.clear();
        }
        let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
        let _ = writeln!(
            table,
            "{:<24} {:>8} {:>14}",
            trace.name,
            ours.len(),
            format!("{}/{}", sum(&ours), sum(&theirs))
        );
        if ours != theirs {
            wrong.push(format!(
                "{}: {ours:?}, babeltrace2 {theirs:?} {stderr}",
                trace.name
            ));
        }
        let lost = counts(
            &trace.path,
            "SELECT 'n' AS name, count(*) AS n FROM losses WHERE reason NOT IN ('throttled', 'paused', 'resumed') AND reason NOT LIKE '%filter%'",
        )["n"];
        if (lost > 0) != stderr.contains("discarded") {
            wrong.push(format!(
                "{}: {lost} losses, babeltrace2: {stderr}",
                trace.name
            ));
        }
    }
    println!(
        "{:<24} {:>8} {:>14}\n{table}",
        "ours/babeltrace2", "types", "events"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
