//! The pages of eight kinds of traces beside SQL: counters, aggregates, events, functions, calls and losses have the numbers of the
//! tables, and no page is empty.

use std::path::Path;

use perfquet_tests::{bin, needs, root};

use super::truth::rows;
use super::{between, opened, output, report, rows_of_functions, top};

/// Kinds of traces, below `formats/readers/src` or with their whole paths, with the panels that their pages have.
const KINDS: [(&str, &[&str]); 9] = [
    (
        "tests/oracle/exports/calls.data",
        &[
            "time",
            "tracks",
            "threads",
            "stacks",
            "functions",
            "durations",
            "slowest",
            "events",
        ],
    ),
    (
        "perf_data/golden/user-regs.data",
        &["time", "threads", "stacks", "functions", "events"],
    ),
    (
        "perf_data/golden/stat.data",
        &["counters", "courses", "events"],
    ),
    (
        "trace_dat/golden/graph-events.dat",
        &[
            "time",
            "tracks",
            "threads",
            "stacks",
            "functions",
            "durations",
            "slowest",
            "events",
        ],
    ),
    (
        "strace/golden/threads.strace",
        &[
            "time",
            "tracks",
            "threads",
            "stacks",
            "functions",
            "durations",
            "slowest",
            "events",
        ],
    ),
    (
        "uftrace/golden/args.tar",
        &[
            "time",
            "tracks",
            "threads",
            "stacks",
            "functions",
            "durations",
            "slowest",
            "events",
        ],
    ),
    ("dtrace/golden/distributions.out", &["aggregates"]),
    (
        "folded/golden/dd.folded",
        &["stacks", "functions", "events"],
    ),
    (
        "ftrace_text/golden/lost.trace_pipe",
        &[
            "time",
            "tracks",
            "threads",
            "stacks",
            "functions",
            "durations",
            "slowest",
            "events",
        ],
    ),
];

#[test]
fn pages_of_eight_kinds_have_the_numbers_of_sql() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (name, panels) in KINDS {
        let trace = directory.path().join("trace.pqt");
        let mut convert = std::process::Command::new(bin("perfquet-convert"));
        let input = match name.starts_with("tests/") {
            true => root().join(name),
            false => root().join("formats/readers/src").join(name),
        };
        convert.arg(input);
        output(
            convert
                .arg("-o")
                .arg(&trace)
                .args(["--no-symbols", "--force"]),
        );
        let shown = opened(&report(directory.path(), &[&trace]), "");
        let found: Vec<&str> = shown
            .split("<section id=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .filter(|panel| !["head", "bar", "findings"].contains(panel))
            .collect();
        let mut expected = panels.to_vec();
        // In the order of the page.
        expected.sort_by_key(|panel| found.iter().position(|one| one == panel));
        assert_eq!(found, expected, "{name}");
        assert!(
            !shown.contains(">The trace has no rows to show.<"),
            "{name}"
        );
        check_tables(name, &trace, &shown);
        if panels.contains(&"functions") && !panels.contains(&"durations") {
            let mut theirs = rows_of_functions(&shown);
            let mut ours = top(&trace, &[]);
            theirs.sort();
            ours.sort();
            assert_eq!(theirs.len(), ours.len(), "{name}");
            let sums = |rows: &[(String, String, String)]| -> Vec<(String, String)> {
                rows.iter()
                    .map(|row| (row.1.clone(), row.2.clone()))
                    .collect()
            };
            let (mut theirs, mut ours) = (sums(&theirs), sums(&ours));
            theirs.sort();
            ours.sort();
            assert_eq!(theirs, ours, "{name}");
        }
        let lost = rows(
            &trace,
            "SELECT CAST(sum(count) AS BIGINT) FROM losses WHERE reason <> 'filtered' HAVING count(*) > 0",
        );
        assert_eq!(
            shown.contains(">Lost: "),
            !lost.is_empty(),
            "{name}: {lost:?}"
        );
    }
}

/// Tables that hold all rows of a query, by the values of some of their columns.
fn check_tables(name: &str, trace: &Path, shown: &str) {
    for (panel, columns, sql) in [
        (
            "counters",
            &[0, 1, 2][..],
            "SELECT event, CAST(sum(count) AS BIGINT), count(DISTINCT time) FROM counts GROUP BY event",
        ),
        (
            "events",
            &[0, 1],
            "SELECT CASE system WHEN '' THEN event ELSE concat(system, ':', event) END, CAST(sum(rows) AS BIGINT) FROM event_types WHERE rows > 0 GROUP BY 1",
        ),
        (
            "aggregates",
            &[0, 1],
            "SELECT array_to_string(keys, ', '), CAST(coalesce(exact_value, (SELECT sum(count) FROM distributions AS bars WHERE bars.aggregate_id = latest_aggregates.aggregate_id)) AS BIGINT) FROM latest_aggregates",
        ),
        (
            "durations",
            &[5, 1],
            "SELECT function, count(*) FROM calls GROUP BY function",
        ),
    ] {
        let Some(table) = between(shown, &format!("<section id=\"{panel}\""), "</table>") else {
            continue;
        };
        let mut found = Vec::new();
        for row in table.split_once("<tbody>").unwrap().1.split("<tr").skip(1) {
            let values: Vec<&str> = (row.split("data-value=\"").skip(1))
                .filter_map(|rest| rest.split('"').next())
                .collect();
            let chosen: Vec<&str> = match panel {
                // The function is the last column.
                "durations" => vec![values[values.len() - 1], values[1]],
                _ => columns.iter().map(|column| values[*column]).collect(),
            };
            found.push(chosen.join(","));
        }
        found.sort();
        let expected: Vec<String> = (rows(trace, sql).iter())
            .map(|line| line.replace('"', ""))
            .collect();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "{name}: {panel}");
    }
}
