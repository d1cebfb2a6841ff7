//! What a report page says, beside what SQL and other reports say of the same trace.

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, needs};

use super::{between, converted, opened, output, report};

/// Waits of two threads on one CPU, from 100 us to many slots: the page's sums of any selection are those of the view.
#[test]
fn off_cpu_time_of_a_selection_is_that_of_the_view() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "waits.trace", waits().as_bytes());
    let page = report(directory.path(), &[&trace]);
    for (fragment, from, to) in [
        ("", 0, i64::from(u32::MAX)),
        ("t=1ms..3ms", 1_000_000, 3_000_000),
        ("t=20ms..60ms", 20_000_000, 60_000_000),
        ("t=2ms..170ms", 2_000_000, 170_000_000),
    ] {
        let shown = opened(&page, fragment);
        let table = between(&shown, "<section id=\"threads\"", "</table>").unwrap();
        let mut found = Vec::new();
        for row in table.split_once("<tbody>").unwrap().1.split("<tr").skip(1) {
            let values: Vec<&str> = (row.split("data-value=\"").skip(1))
                .map(|rest| rest.split('"').next().unwrap())
                .collect();
            let weight: f64 = values[0].parse().unwrap();
            found.push(format!("{},{}", values[3], weight.round()));
        }
        found.sort();
        let sql = format!(
            "SELECT concat(comm, ' (', tid, ')') AS thread, \
             sum(greatest(0, least(time + duration, start + {to}) - greatest(time, start + {from}))) AS time \
             FROM off_cpu, (SELECT min(time) AS start FROM sched.sched_switch) WHERE duration IS NOT NULL GROUP BY 1 ORDER BY 1"
        );
        let mut expected = rows(&trace, &sql);
        expected.retain(|line| !line.ends_with(",0"));
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{fragment}");
        // The whole of the time is above all stacks, too.
        let all: u64 = (found.iter())
            .map(|line| line.rsplit(',').next().unwrap().parse::<u64>().unwrap())
            .sum();
        let functions = between(&shown, "<section id=\"functions\"", "</table>").unwrap();
        let first = between(functions, "<tbody>", "</td>").unwrap();
        let own: f64 = between(first, "data-value=\"", "\"")
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(own.round() as u64, all, "{fragment}");
    }
    let shown = opened(&page, "view=top-down");
    let tree = between(&shown, "class=\"tree\"", "class=\"status\"").unwrap();
    for state in ["blocked", "preempted"] {
        assert!(tree.contains(&format!("title=\"{state}\"")), "{tree}");
    }
    // The tabs are what makes sense: no count of switches beside the time off the CPU.
    let tabs = between(&shown, "aria-label=\"Event\"", "</div>").unwrap();
    assert!(tabs.contains("off-CPU time"), "{tabs}");
    assert!(!tabs.contains("sched_switch"), "{tabs}");
}

/// A line of function_graph, at this number of microseconds after the first line.
fn graph_line(time: u64, words: &str) -> String {
    let (seconds, rest) = (100 + time / 1_000_000, time % 1_000_000);
    format!("  {seconds}.{rest:06} |   0)   work-77    | {words}\n")
}

/// The trace of such lines.
fn graph(directory: &Path, lines: &str) -> PathBuf {
    let head = "# tracer: function_graph\n#\n#     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS\n";
    converted(
        directory,
        "graph.trace",
        format!("{head}{lines}").as_bytes(),
    )
}

/// Calls within calls last as long as the trace: at most as many are in progress as there are levels, whatever the sum of durations.
#[test]
fn rates_are_possible_ones() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut text = graph_line(0, "               |  outer() {");
    for step in 0..50 {
        text += &graph_line(1 + step * 2000, "               |    middle() {");
        text += &graph_line(2 + step * 2000, "! 1990.000 us  |      inner();");
        text += &graph_line(1995 + step * 2000, "! 1994.000 us  |    }");
    }
    text += &graph_line(100_000, "# 100000.0 us  |  }");
    let trace = graph(directory.path(), &text);
    let shown = opened(&report(directory.path(), &[&trace]), "");
    let most = between(&shown, "Weight over time, up to ", ". Drag");
    assert_eq!(most, Some("3 calls at a time"));
    // The thread is in calls for 100 ms, as long as the trace: its 101 calls last 299 ms together.
    for (fragment, expected) in [("", 100_000_000), ("t=20ms..60ms", 40_000_000)] {
        let shown = opened(&report(directory.path(), &[&trace]), fragment);
        let threads = between(&shown, "<section id=\"threads\"", "</table>").unwrap();
        let weight = between(threads, "data-value=\"", "\"").unwrap();
        assert_eq!(weight, expected.to_string(), "{fragment}");
    }
}

/// A call without an end is a call: it counts in a part of the time, too, and its unknown self time is not 0.
#[test]
fn calls_without_an_end_are_counted() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut text = graph_line(0, "               |  endless() {");
    for step in 1..50 {
        text += &graph_line(step * 2000, "! 500.000 us  |    inner();");
    }
    let trace = graph(directory.path(), &text);
    let page = report(directory.path(), &[&trace]);
    for (fragment, inner) in [("", 49), ("t=0ms..20ms", 9)] {
        let shown = opened(&page, fragment);
        let durations = between(&shown, "<section id=\"durations\"", "</table>").unwrap();
        for (function, count) in [("inner", inner), ("endless", 1)] {
            let rows = durations.split("<tr").skip(2);
            let mut rows = rows.filter(|row| row.contains(&format!("data-value=\"{function}\"")));
            let mut values = rows.next().unwrap().split("data-value=\"");
            let found = values.nth(2).unwrap();
            let found = found.split('"').next().unwrap();
            assert_eq!(found, count.to_string(), "{fragment}: {function}");
        }
        let functions = between(&shown, "<section id=\"functions\"", "</table>").unwrap();
        let row = functions.split("<tr").find(|row| row.contains("endless"));
        assert!(row.unwrap().contains(">unknown<"), "{functions}");
    }
}

/// A page with many calls has longer slots for them: the rows of its grid are as long, and its head counts the calls of all functions.
#[test]
fn rows_of_many_calls_are_as_long_as_their_slots() {
    const CALLS: u64 = 250_000;
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let line = |call| graph_line(call * 40, &format!("+ 30.000 us   |  f{}();", call % 70));
    let text: String = (0..CALLS).map(line).collect();
    let trace = graph(directory.path(), &text);
    let shown = opened(&report(directory.path(), &[&trace]), "");
    assert!(
        shown.contains("250,000 calls"),
        "{:?}",
        shown.find(" calls")
    );
    // 25 calls begin in each millisecond, of 70 functions.
    let head = "calls of the 60 functions with the longest total; column: 100 ms";
    assert!(shown.contains(head), "{head}");
    let row = between(&shown, "from the bottom upwards; row: ", " ms").unwrap();
    let row: u64 = row.parse().unwrap();
    assert!(row > 2 && 100 % row == 0, "{row}");
    let legend = shown.split(&format!(" calls in {row} ms")).next().unwrap();
    let most: String = (legend.rsplit('>').next().unwrap().chars())
        .filter(char::is_ascii_digit)
        .collect();
    let most: u64 = most.parse().unwrap();
    assert!((20 * row..=23 * row).contains(&most), "{most} in {row} ms");
}

/// An idle CPU is sampled, too: its samples are neither use, nor the busiest time, nor the hottest thread or function.
#[test]
fn idle_cpus_are_not_in_use() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for step in 0..1000u64 {
        let (comm, tid, function) = match step % 10 {
            0 => ("work", 11, "busy_part"),
            1 => ("other", 12, "other_part"),
            _ => ("swapper", 0, "default_idle"),
        };
        text.push_str(&format!(
            "{comm} {tid} [000] {:.6}: 1000000 cpu-clock: \n\t ffffffff81401200 {function}+0x10 ([kernel.kallsyms])\n\n",
            100.0 + step as f64 / 1000.0
        ));
    }
    let trace = converted(directory.path(), "idle.txt", text.as_bytes());
    let shown = opened(&report(directory.path(), &[&trace]), "");
    let line = between(&shown, "<p class=\"summary\">", "</p>").unwrap();
    for words in [
        "200.000 ms of cpu-clock",
        "in 200 samples",
        "beside 800.000 ms of idle CPUs",
        "_part (50.00%)",
    ] {
        assert!(line.contains(words), "{line}");
    }
    let findings = between(&shown, "<section id=\"findings\"", "</section>").unwrap();
    assert!(findings.contains("_part"), "{findings}");
    assert!(
        !findings.contains("idle") && !findings.contains("swapper"),
        "{findings}"
    );
}

/// The comparison page has the numbers and the significance of `diff`, of samples, of threads and of calls.
#[test]
fn changes_are_those_of_diff() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let samples = |slow: u64| {
        let mut text = String::new();
        for step in 0..600u64 {
            let name = if step % 10 < slow {
                "slow_part"
            } else {
                "fast_part"
            };
            text.push_str(&format!(
                "work 11 [000] {:.6}: 1000000 cpu-clock: \n\t 401200 {name}+0x10 (/bin/work)\n\t 401100 main+0x8 (/bin/work)\n\n",
                100.0 + step as f64 / 1000.0
            ));
        }
        text
    };
    let before = converted(directory.path(), "before.txt", samples(2).as_bytes());
    let after = converted(directory.path(), "after.txt", samples(6).as_bytes());
    let shown = opened(&report(directory.path(), &[&before, &after]), "");
    let expected = compared(&before, &after, &[], "function");
    assert_eq!(changes(&shown), expected);
    assert!(
        expected.iter().any(|line| line.contains("true")),
        "{expected:?}"
    );
    // Calls alone have no stacks to compare, but durations.
    let calls = |micros: u64| {
        let mut text = "# tracer: function_graph\n#\n".to_owned();
        for step in 0..200 {
            text.push_str(&format!(
                " 0)   {}.{}00 us    |  work();\n",
                micros + step % 3,
                step % 10
            ));
        }
        text
    };
    let before = converted(directory.path(), "short.trace", calls(2).as_bytes());
    let after = converted(directory.path(), "long.trace", calls(7).as_bytes());
    let shown = opened(&report(directory.path(), &[&before, &after]), "");
    assert_eq!(
        changes(&shown),
        compared(&before, &after, &["--calls"], "function")
    );
}

/// Names, values before and after, and whether the change is significant, of `diff`.
fn compared(before: &Path, after: &Path, options: &[&str], key: &str) -> Vec<String> {
    let mut diff = Command::new(bin("perfquet-query"));
    let text = output(
        diff.arg("diff")
            .args([before, after])
            .args(["-n", "0", "--format", "json"])
            .args(options),
    );
    let rows: Vec<serde_json::Value> = match serde_json::from_str(&text) {
        Ok(serde_json::Value::Array(rows)) => rows,
        _ => text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    };
    let line = |row: &serde_json::Value| {
        let significant = row["significant"].as_bool().unwrap_or(false);
        format!(
            "{} {} {} {significant}",
            row[key].as_str().unwrap(),
            row["before"],
            row["after"]
        )
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.sort();
    lines
}

/// The same, of the table in a page.
fn changes(shown: &str) -> Vec<String> {
    let table = between(shown, "<section id=\"changes\"", "</table>").unwrap();
    let mut lines: Vec<String> = (table.split_once("<tbody>").unwrap().1.split("<tr").skip(1))
        .map(|row| {
            let values: Vec<&str> = (row.split("data-value=\"").skip(1))
                .map(|rest| rest.split('"').next().unwrap())
                .collect();
            let value = |text: &str| {
                if text.is_empty() {
                    "null".to_owned()
                } else {
                    text.to_owned()
                }
            };
            let significant = values[5] == "1";
            format!(
                "{} {} {} {significant}",
                values[6],
                value(values[2]),
                value(values[3])
            )
        })
        .collect();
    lines.sort();
    lines
}

/// Rows of a query as CSV, without the header.
pub(super) fn rows(trace: &Path, sql: &str) -> Vec<String> {
    let mut query = Command::new(bin("perfquet-query"));
    let text = output(
        query
            .arg("sql")
            .arg(trace)
            .arg(sql)
            .args(["--format", "csv"]),
    );
    let mut lines: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Switches of two threads on one CPU, with waits of very different lengths in several states.
pub(super) fn waits() -> String {
    let mut text = "# tracer: nop\n#\n".to_owned();
    let mut time = 100_000_000u64;
    let names = ["swapper/0", "one", "two"];
    let mut current = 0usize;
    for step in 0..60u64 {
        time += 150 + [40, 900, 7_300, 31_000][(step % 4) as usize] * (1 + step % 3) / 3;
        let next = [1, 2, 0, 2, 1, 0][(step % 6) as usize];
        if next == current {
            continue;
        }
        let state = if current == 0 {
            "R"
        } else {
            ["S", "D", "R"][(step % 3) as usize]
        };
        text.push_str(&format!(
            "{:>16}-{} [000] d..2. {}.{:06}: sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={state} ==> next_comm={} next_pid={} next_prio=120\n",
            if current == 0 { "<idle>" } else { names[current] },
            [0, 11, 12][current],
            time / 1_000_000,
            time % 1_000_000,
            names[current],
            [0, 11, 12][current],
            names[next],
            [0, 11, 12][next]
        ));
        current = next;
    }
    text
}
