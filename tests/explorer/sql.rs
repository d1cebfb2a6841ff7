//! The SQL panel: completion, charts, saved queries.

use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, needs};

use super::server::{Server, converted};
use super::{browsed, switches, visited};

/// Tables, views, columns and functions have their meaning.
#[test]
fn the_library_describes_what_sql_has() {
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    let server = Server::of(&[&trace]);
    let library = server.get("/api/library");
    let tables = library["tables"].as_array().unwrap();
    let table = |name: &str| tables.iter().find(|table| table["name"] == name).unwrap();
    for (name, column) in [
        ("samples", "tid"),
        ("sched.sched_switch", "prev_state"),
        ("thread_states", "waker_tid"),
    ] {
        let columns = table(name)["columns"].as_array().unwrap();
        let found = columns.iter().find(|found| found[0] == column).unwrap();
        assert!(!found[3].as_str().unwrap().is_empty(), "{found}");
        assert!(!table(name)["about"].as_str().unwrap().is_empty());
    }
    assert_eq!(table("cpu_utilization")["usage"], "cpu_utilization(step)");
    // Each table is one that a query finds.
    for table in tables
        .iter()
        .filter(|table| !table["usage"].as_str().unwrap().contains('('))
    {
        let name = table["name"].as_str().unwrap();
        assert_eq!(
            server.sql(&format!("SELECT count(*) FROM {name}")).0,
            200,
            "{name}"
        );
    }
    let functions = library["functions"].as_array().unwrap();
    let described = functions
        .iter()
        .find(|one| one[0].as_str().unwrap().starts_with("stack_text("))
        .unwrap();
    assert!(!described[1].as_str().unwrap().is_empty());
    assert!(functions.iter().any(|one| one[0] == "approx_distinct()"));
}

/// Words are completed, rows become charts by their columns, queries are kept; a link shows the chart.
// One function, because the steps are those of one visit.
#[test]
fn the_editor_completes_draws_and_saves() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    let server = Server::of(&[&trace]);
    let query = |sql: &str, chart: &str| format!("open tab=sql&sql={sql}&chart={chart}");
    let states =
        "SELECT state, sum(duration) AS duration FROM thread_states GROUP BY 1 ORDER BY 2 DESC";
    let times = "SELECT time, duration FROM thread_states WHERE duration < 1ms";
    let stacks =
        "SELECT concat(comm, ';<b>', state) AS stack, count(*) AS n FROM thread_states GROUP BY 1";
    let line = format!("tab=sql&sql={times}&chart=line");
    let steps = [
        ("open tab=sql".to_owned(), None),
        ("wait #sql".to_owned(), None),
        ("ready".to_owned(), None),
        // Marks all of the example, and replaces it.
        ("press Control+a".to_owned(), None),
        ("type SELECT count(*) FROM thread_st".to_owned(), None),
        (
            "text #completion".to_owned(),
            Some(
                "thread_states view States of threads: one row per period of running, waiting or sleeping.",
            ),
        ),
        ("press Tab".to_owned(), None),
        ("type  t WHERE t.wak".to_owned(), None),
        ("press ArrowDown".to_owned(), None),
        ("press Enter".to_owned(), None),
        ("type  IS NULL".to_owned(), None),
        ("press Escape".to_owned(), None),
        (
            "press Control+Enter".to_owned(),
            Some("tab=sql&sql=SELECT count(*) FROM thread_states t WHERE t.waker_tid IS NULL"),
        ),
        ("wait #answer .grid".to_owned(), None),
        ("push #save-name".to_owned(), None),
        ("type <i>mine".to_owned(), None),
        ("press Enter".to_owned(), None),
        ("text #saved".to_owned(), Some("saved queries… <i>mine")),
        ("open ".to_owned(), None),
        (query(states, "bars"), None),
        ("wait #result canvas".to_owned(), None),
        (
            "text #result".to_owned(),
            Some("table bars duration by state"),
        ),
        ("open ".to_owned(), None),
        (query(times, "heat map"), None),
        ("wait #result canvas".to_owned(), None),
        (
            "text #result".to_owned(),
            Some("table line heat map duration over time · shade: number of rows"),
        ),
        (
            "push #result .tabs button:nth-child(2)".to_owned(),
            Some(&*line),
        ),
        ("wait #result canvas".to_owned(), None),
        ("text #result .note".to_owned(), Some("over time")),
        ("open ".to_owned(), None),
        (query(stacks, "flame graph"), None),
        ("wait #result #flame canvas".to_owned(), None),
        ("size 1920 dark".to_owned(), Some("overflow 0")),
        ("size 800 light".to_owned(), Some("overflow 0")),
        // Rows that cannot be this chart are a table.
        ("open ".to_owned(), None),
        (query("SELECT comm FROM threads", "line"), None),
        ("wait #result .grid".to_owned(), None),
        ("text #saved".to_owned(), Some("saved queries… <i>mine")),
    ];
    visited(&server, &steps);
}

/// Commands of the page are those of a person: whatever is in a path, a shell reads it as a word.
#[test]
fn commands_are_quoted() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "switches.trace", &switches());
    let hostile = directory.path().join("it's $(touch injected).pqt");
    std::fs::rename(&trace, &hostile).unwrap();
    let server = Server::of(&[&hostile]);
    let steps = [
        "open tab=sql&sql=SELECT 'a' AS x, count(*) AS n FROM sched_switch",
        "wait #answer .command code",
        "text #answer .command code",
        "open tab=selection&panel=events",
        "wait #content .command code",
        "text #content .command code",
        "open tab=selection&panel=threads",
        "wait #content .command code",
        "text #content .command code",
    ];
    let found = browsed(&server.address, &steps.map(str::to_owned));
    for command in [&found[2], &found[5], &found[8]] {
        let path = std::env::join_paths([
            Path::new(&bin("perfquet-query")).parent().unwrap(),
            Path::new("/usr/bin"),
            Path::new("/bin"),
        ])
        .unwrap();
        let output = Command::new("sh")
            .args(["-c", command])
            .env("PATH", path)
            .current_dir(directory.path())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && !printed.is_empty(),
            "{command}: {output:?}"
        );
    }
    assert!(!directory.path().join("injected").exists());
}
