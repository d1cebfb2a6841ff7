//! Checks that CSV and Arrow files have the rows of the tables, and that `--where` selects the same rows as SQL.

use std::process::Command;

use perfquet_tests::needs;

use super::inputs::traces;
use super::{counts, export, reported_count};
use crate::several::printed;

#[test]
fn a_condition_selects_what_sql_selects() {
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for trace in traces() {
        for (table, condition) in [
            ("samples", "cpu = 0"),
            ("samples", "comm LIKE '%d%' AND NOT cpu = 1"),
            ("samples", "pid IN (0, 1, 220) OR tid > 250"),
            (
                "samples",
                "period BETWEEN 1 AND 2000000 AND user_stack IS NOT NULL",
            ),
            ("samples", "kernel_stack IS NULL OR comm ILIKE 'D_'"),
            ("calls", "duration > 50us"),
            ("calls", "duration IS NULL OR NOT exit_seen"),
            (
                "calls",
                "function NOT IN ('vfs_write', 'x') AND self_time < duration",
            ),
            ("sched_switch", "prev_pid = 0 OR next_comm >= 'r'"),
        ] {
            // SQL has no durations with units.
            let sql = condition.replace("50us", "50000");
            let question = format!("SELECT 'n' AS name, count(*) AS n FROM {table} WHERE {sql}");
            let arguments = ["sql", &trace.path, &question, "--format", "json"];
            let answered = Command::new(perfquet_tests::bin("perfquet-query"))
                .args(arguments)
                .output()
                .unwrap();
            if !answered.status.success() {
                continue; // The trace has no such table.
            }
            let ours = counts(&trace.path, &question)["n"];
            let events = match table {
                "samples" => "",
                table => table,
            };
            let output = folder.path().join("where.csv");
            let mut options = vec!["--where", condition];
            if !events.is_empty() {
                options.extend(["--event", events]);
            }
            export(&trace.path, "csv", &output, &options);
            let file = std::fs::read_dir(&output)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .find(|path| {
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    name == format!("{table}.csv") || name.ends_with(&format!(".{table}.csv"))
                });
            let rows = file.map_or(0, |file| {
                records(&std::fs::read_to_string(file).unwrap()) - 1
            });
            assert_eq!(
                rows as u64, ours,
                "{}: {table} WHERE {condition}",
                trace.name
            );
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

/// Counts the records of a CSV file, whose cells may have newlines inside of quotes.
fn records(text: &str) -> usize {
    let mut is_quoted = false;
    let ends = text.bytes().filter(|byte| {
        is_quoted ^= *byte == b'"';
        *byte == b'\n' && !is_quoted
    });
    ends.count()
}

const READER: &str = "
import sys, os, csv, pyarrow.ipc
for folder in sys.argv[1:]:
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith('.arrow'):
            print(name[:-6], pyarrow.ipc.open_file(path).read_all().num_rows)
        elif name.endswith('.csv'):
            print(name[:-4], sum(1 for _ in csv.reader(open(path, newline=''))) - 1)
";

#[test]
fn pyarrow_and_pythons_csv_read_every_table() {
    if !needs::met(&["pyarrow for Python"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for trace in traces() {
        let (csv, arrow) = (folder.path().join("a.csv"), folder.path().join("a.arrow"));
        let stderr = export(&trace.path, "csv", &csv, &[]);
        export(&trace.path, "arrow", &arrow, &[]);
        let read = |folder: &std::path::Path| {
            let output = Command::new("python3")
                .args(["-c", READER])
                .arg(folder)
                .output()
                .unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {stderr}", trace.name);
            String::from_utf8(output.stdout).unwrap()
        };
        let (from_csv, from_arrow) = (read(&csv), read(&arrow));
        assert_eq!(from_csv, from_arrow, "{}", trace.name);
        let rows = from_csv
            .lines()
            .filter_map(|line| line.split_once(' ')?.1.parse::<u64>().ok());
        assert_eq!(
            rows.sum::<u64>(),
            reported_count(&stderr, "row"),
            "{}: {stderr}",
            trace.name
        );
    }
}

#[test]
fn perf_script_text_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for trace in traces() {
        let text = folder.path().join("again.txt");
        let stderr = export(&trace.path, "perf-script", &text, &[]);
        // The layout of perf script requires threads and timestamps, and names without quotes.
        let untimed =
            "SELECT 'n' AS name, count(*) AS n FROM samples WHERE tid IS NULL OR time IS NULL";
        if reported_count(&stderr, "event") == 0
            || trace.name == "hostile.trace"
            || counts(&trace.path, untimed)["n"] > 0
        {
            continue;
        }
        let again = folder.path().join("again.pqt").display().to_string();
        let text = text.display().to_string();
        printed(
            "perfquet-convert",
            &[
                &text,
                "--from",
                "perf-script",
                "--no-symbols",
                "-f",
                "-o",
                &again,
            ],
        );
        let questions = [
            "SELECT concat(system, ':', event) AS name, CAST(sum(rows) AS BIGINT) AS n FROM event_types
             WHERE table_name NOT IN ('samples', '') AND kind <> 'recorder' AND rows > 0 GROUP BY 1",
            "SELECT event AS name, count(*) AS n FROM samples GROUP BY event",
            "SELECT concat(coalesce(comm, ''), ' ', tid) AS name, count(*) AS n FROM samples GROUP BY 1",
            "SELECT event AS name, CAST(sum(period) AS BIGINT) AS n FROM samples GROUP BY event",
            "SELECT CAST(time AS TEXT) AS name, count(*) AS n FROM samples WHERE time IS NOT NULL GROUP BY 1",
        ];
        for question in questions {
            let (ours, theirs) = (counts(&trace.path, question), counts(&again, question));
            assert_eq!(ours, theirs, "{}: {question}", trace.name);
            compared += ours.len();
        }
    }
    assert!(compared > 100, "{compared}");
}
