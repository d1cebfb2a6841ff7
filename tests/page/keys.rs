//! A report page driven by keys, and looked at in windows of several widths, in headless Chromium.

use std::path::Path;
use std::process::Command;

use perfquet_tests::{needs, root};

use super::truth::rows;
use super::{converted, output, report};

/// Keys move the selection, zoom and search; each step has the fragment of the URL after it.
#[test]
fn keys_select_zoom_and_search() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "threads.txt", threads().as_bytes());
    let page = report(directory.path(), &[&trace]);
    let steps = [
        ("type /inner", "q=inner"),
        ("press Enter", "q=inner"),
        ("press Escape", ""),
        ("focus #time canvas", ""),
        ("press ArrowRight", "t=0s..4.98ms"),
        ("press ArrowRight", "t=4.98ms..9.96ms"),
        ("press Shift+ArrowRight", "t=4.98ms..10.46ms"),
        ("press ArrowLeft", "t=0s..5.48ms"),
        ("press 0", ""),
        ("focus #tracks canvas", ""),
        ("press +", "t=24.84ms..74.56ms&span=24.85ms..74.55ms"),
        (
            "press ArrowRight",
            "t=37.26ms..86.98ms&span=37.275ms..86.975ms",
        ),
        ("press -", ""),
        ("press 0", ""),
        ("press ArrowDown", ""),
        ("press ArrowDown", ""),
        ("press Enter", "tid=12"),
        ("press Escape", ""),
        ("press Escape", ""),
        ("focus #stacks canvas", ""),
        ("press ArrowDown", ""),
        ("press ArrowDown", ""),
        ("press Enter", "zoom=2"),
        ("press Escape", "zoom=1"),
        ("press Escape", ""),
        ("press o", "view=sandwich&function=main"),
        ("press Escape", "function=main"),
        ("focus #functions tbody tr", "function=main"),
        ("press ArrowDown", "function=main"),
        ("press Enter", "view=sandwich&function=inner_write"),
    ];
    let commands: Vec<&str> = steps.iter().map(|(command, _)| *command).collect();
    let found = browsed(&page, &commands);
    let expected: Vec<String> = steps
        .iter()
        .map(|(command, fragment)| format!("{command}: {fragment}"))
        .collect();
    let told: Vec<String> = commands
        .iter()
        .zip(&found)
        .map(|(command, fragment)| format!("{command}: {fragment}"))
        .collect();
    assert_eq!(told, expected);
    // Anything else was written to the console, or requested.
    assert_eq!(found[steps.len()..], [""; 0]);
}

/// The browser's back button goes back, a step for each choice; a word that is typed is one step.
#[test]
fn back_goes_back() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "threads.txt", threads().as_bytes());
    let page = report(directory.path(), &[&trace]);
    let steps = [
        ("type /inner", "q=inner"),
        ("press Enter", "q=inner"),
        ("pause", "q=inner"),
        ("focus #functions tbody tr", "q=inner"),
        ("press Enter", "q=inner&view=sandwich&function=inner_read"),
        ("pause", "q=inner&view=sandwich&function=inner_read"),
        (
            "focus #time canvas",
            "q=inner&view=sandwich&function=inner_read",
        ),
        (
            "press ArrowRight",
            "t=0s..4.98ms&q=inner&view=sandwich&function=inner_read",
        ),
        ("back", "q=inner&view=sandwich&function=inner_read"),
        ("back", "q=inner"),
        ("back", ""),
    ];
    let commands: Vec<&str> = steps.iter().map(|(command, _)| *command).collect();
    let expected: Vec<&str> = steps.iter().map(|(_, fragment)| *fragment).collect();
    assert_eq!(browsed(&page, &commands), expected);
}

/// Nothing is wider than the window. `PERFQUET_PICTURES=DIR` keeps the pictures, for someone to look at.
#[test]
fn pages_fit_narrow_and_wide_windows_in_both_themes() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "threads.txt", threads().as_bytes());
    let long = format!(
        "main;{};b 3\nmain;{} 2\n",
        "n".repeat(4000),
        "\u{5e9}".repeat(300)
    );
    let names = converted(directory.path(), "names.folded", long.as_bytes());
    let pictures = std::env::var_os("PERFQUET_PICTURES");
    let traces: [(&str, &[&Path]); 3] = [
        ("threads", &[&trace]),
        ("names", &[&names]),
        ("two", &[&names, &trace]),
    ];
    for (name, traces) in traces {
        let page = report(directory.path(), traces);
        let mut steps = vec!["open q=main".to_owned()];
        for width in [800, 1400, 2560] {
            for theme in ["light", "dark"] {
                let picture = pictures.as_ref().map_or_else(String::new, |folder| {
                    let file = Path::new(folder).join(format!("{name}-{width}-{theme}.png"));
                    format!(" {}", file.display())
                });
                steps.push(format!("size {width} {theme}{picture}"));
            }
        }
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        let mut expected = vec!["q=main"];
        expected.extend(["overflow none"; 6]);
        assert_eq!(browsed(&page, &steps), expected, "{name}");
    }
}

/// Paper has neither buttons nor hidden rows. `PERFQUET_PICTURES=DIR` keeps the pages.
#[test]
fn paper_has_whole_tables_and_no_buttons() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = converted(directory.path(), "threads.txt", threads().as_bytes());
    let page = report(directory.path(), &[&trace]);
    let file = std::env::var_os("PERFQUET_PICTURES").map_or_else(String::new, |folder| {
        format!(" {}", Path::new(&folder).join("printed.pdf").display())
    });
    let print = format!("print{file}");
    let found = browsed(&page, &["open q=main", &print]);
    assert_eq!(
        found,
        [
            "q=main",
            "controls none; cut 0; pictures 4; hidden legends 0"
        ]
    );
}

/// What the page shows after each step, then what it wrote to the console and requested.
pub(super) fn browsed(page: &Path, steps: &[&str]) -> Vec<String> {
    let mut node = Command::new("node");
    node.arg(root().join("tests/page/browse.js"))
        .arg(page)
        .args(steps)
        .env("NODE_PATH", needs::viewers().join("node_modules"));
    output(&mut node).lines().map(str::to_owned).collect()
}

/// Counters over time have the values of SQL, of all the time and of a part of it.
#[test]
fn counters_over_time_have_the_values_of_sql() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let events: Vec<String> = (0..3_000)
        .map(|step| {
            let (time, low) = (step * 1000, step % 17 - 5);
            let high = if step == 1_500 { 4_321 } else { step % 90 };
            format!(
                "{{\"name\":\"queue\",\"ph\":\"C\",\"pid\":1,\"ts\":{time},\"args\":{{\"low\":{low},\"high\":{high}}}}}"
            )
        })
        .collect();
    let text = format!("{{\"traceEvents\":[{}]}}", events.join(","));
    let trace = converted(directory.path(), "counters.json", text.as_bytes());
    let page = report(directory.path(), &[&trace]);
    let values = |column: &str, condition: &str| {
        let sql =
            format!("SELECT min({column}), max({column}) FROM chrome.queue WHERE {condition}");
        let row = rows(&trace, &sql).remove(0);
        let (least, largest) = row.split_once(',').unwrap();
        let number: i64 = largest.parse().unwrap();
        let largest = if number >= 1000 {
            format!("{},{:03}", number / 1000, number % 1000)
        } else {
            number.to_string()
        };
        format!("queue: {column} of thread 1: {least} to {largest}")
    };
    let found = browsed(
        &page,
        &[
            "focus #courses canvas",
            "press ArrowDown",
            "text #courses .status",
            "press ArrowDown",
            "text #courses .status",
            "open t=0s..1s&span=0s..1s",
            "press ArrowDown",
            "text #courses .status",
        ],
    );
    assert_eq!(found[2], values("low", "TRUE"), "{found:?}");
    assert_eq!(found[4], values("high", "TRUE"), "{found:?}");
    assert_eq!(
        found[7],
        values("high", "since_start(time) < 1s"),
        "{found:?}"
    );
}

/// Chrome's counters with an ID are a line for each ID.
#[test]
fn counters_with_an_id_have_their_own_lines() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let events: Vec<String> = (0..200)
        .map(|step| {
            let (time, id) = (step * 1000, step % 2);
            format!(
                "{{\"name\":\"queue\",\"ph\":\"C\",\"pid\":1,\"ts\":{time},\"id\":\"q{id}\",\"args\":{{\"length\":{}}}}}",
                step % 10 + id * 100
            )
        })
        .collect();
    let text = format!("{{\"traceEvents\":[{}]}}", events.join(","));
    let trace = converted(directory.path(), "counters.json", text.as_bytes());
    let found = browsed(
        &report(directory.path(), &[&trace]),
        &[
            "focus #courses canvas",
            "press ArrowDown",
            "text #courses .status",
            "press ArrowDown",
            "text #courses .status",
        ],
    );
    assert_eq!(found[2], "queue q0 of thread 1: 0 to 8", "{found:?}");
    assert_eq!(found[4], "queue q1 of thread 1: 101 to 109", "{found:?}");
}

/// Samples and switches of two threads that wake each other, on one CPU, for 99 ms.
fn threads() -> String {
    let mut text = String::new();
    for step in 0..100u64 {
        let (tid, other) = if step % 3 == 0 { (11, 12) } else { (12, 11) };
        let time = 100.0 + step as f64 / 1000.0;
        let (name, next) = (format!("work{tid}"), format!("work{other}"));
        let inner = ["inner_read", "inner_write", "parse"][(step % 3) as usize];
        text.push_str(&format!(
            "{name} {tid} [000] {time:.6}: 1000000 cpu-clock: \n\
             \t          401200 {inner}+0x10 (/bin/work)\n\
             \t          401100 main+0x8 (/bin/work)\n\n\
             {name} {tid} [000] {:.6}: sched:sched_wakeup: comm={next} pid={other} prio=120 target_cpu=000\n\
             {name} {tid} [000] {:.6}: sched:sched_switch: prev_comm={name} prev_pid={tid} prev_prio=120 prev_state=S ==> next_comm={next} next_pid={other} next_prio=120\n",
            time + 0.0002,
            time + 0.0004
        ));
    }
    text
}
