//! Counters as lines, marks, pins, arrows of wake-ups.

use std::process::Command;

use perfquet_tests::{bin, needs};
use serde_json::Value;

use super::server::{Server, converted};
use super::{switches, visited};

/// Counters of two processes, one with two values; the second one is negative at times.
fn counters() -> String {
    let events: Vec<String> = (0..300_i64)
        .flat_map(|step| {
            [
                format!(
                    r#"{{"ph":"C","name":"heap","pid":10,"ts":{},"args":{{"used":{},"free":3.5}}}}"#,
                    step * 1000,
                    1000 + step * 37 % 101
                ),
                format!(
                    r#"{{"ph":"C","name":"queue","pid":11,"ts":{},"args":{{"value":{}}}}}"#,
                    step * 1000 + 3,
                    step * 7 % 23 - 5
                ),
            ]
        })
        .collect();
    format!(r#"{{"traceEvents":[{}]}}"#, events.join(","))
}

/// The least, largest and last value of each step are those of SQL.
// One function, because every line is compared in the same windows.
#[test]
fn lines_have_the_values_of_sql() {
    let directory = tempfile::tempdir().unwrap();
    let chrome = converted(directory.path(), "counters.json", &counters());
    let stat = directory.path().join("stat.pqt");
    let counted = Command::new(bin("perfquet-record"))
        .args([
            "--stat",
            "task-clock,page-faults",
            "--every",
            "50ms",
            "--force",
            "-o",
        ])
        .arg(&stat)
        .args(["--", "sh", "-c", "for i in 1 2 3; do ls /; sleep 0.1; done"])
        .output()
        .unwrap();
    assert!(counted.status.success(), "{counted:?}");
    let server = Server::of(&[&chrome, &stat]);
    let traces = server.get("/api/meta")["traces"].clone();
    let mut seen = 0;
    for trace in 0..2 {
        let name = traces[trace]["name"].as_str().unwrap();
        let start: i64 = traces[trace]["start"].as_str().unwrap().parse().unwrap();
        let length = traces[trace]["length"].as_i64().unwrap();
        let all = server.get(&format!("/api/counters?trace={trace}"))["counters"].clone();
        let names: Vec<&str> = all
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        match trace {
            0 => assert_eq!(names.len(), 3, "{names:?}"),
            _ => {
                assert_eq!(names, ["page-faults", "task-clock"]);
                // The program has no events but those of its start.
                assert!(length > 300_000_000, "{length}");
            }
        }
        for (id, one) in all.as_array().unwrap().iter().enumerate() {
            let is_period = one["is_period"] == true;
            let sql = one["sql"]
                .as_str()
                .unwrap()
                .replace(" AND ", &format!(" AND trace = '{name}' AND "));
            let begin = if is_period { "since" } else { "time" };
            for step in [1_i64 << 12, 1 << 20, 1 << 26] {
                for part in 0..3 {
                    let from = (length * part / 3).div_euclid(step) * step;
                    let to = (from + step * 512).min(length.div_euclid(step) * step + step);
                    let lines = server.get(&format!(
                        "/api/counters?trace={trace}&from={from}&to={to}&step={step}&ids={id}"
                    ));
                    let mut points: Vec<Vec<f64>> =
                        serde_json::from_value(lines["rows"][0]["points"].clone()).unwrap();
                    let (from, to) = (start + from, start + to);
                    let inside = match is_period {
                        true => format!("time > {from} AND since < {to}"),
                        false => format!("time >= {from} AND time < {to}"),
                    };
                    let rows = server.rows_up_to(&format!(
                        "SELECT min({begin}) - {start} AS b, min(value) AS low, max(value) AS high, last_value(value ORDER BY time) AS last FROM ({sql}) AS v WHERE {inside} GROUP BY ({begin} - {start}) / {step} ORDER BY b"
                    ), 2000);
                    if !is_period && part > 0 {
                        let before = server.rows(&format!("SELECT time - {start}, value FROM ({sql}) AS v WHERE time < {from} ORDER BY time DESC LIMIT 1"));
                        let first = points.remove(0);
                        assert_eq!(
                            (first[0], first[4]),
                            (
                                before[0][0].as_f64().unwrap(),
                                before[0][1].as_f64().unwrap()
                            )
                        );
                    }
                    let number = |cell: &Value| {
                        cell.as_f64()
                            .or_else(|| cell.as_str()?.parse().ok())
                            .unwrap()
                    };
                    let expected: Vec<Vec<f64>> = rows
                        .iter()
                        .map(|row| row.iter().map(number).collect())
                        .collect();
                    let found: Vec<Vec<f64>> = points
                        .iter()
                        .map(|point| vec![point[0], point[2], point[3], point[4]])
                        .collect();
                    assert_eq!(found, expected, "{name} {id}, step {step}, part {part}");
                    seen += found.len();
                }
            }
        }
    }
    assert!(seen > 500, "{seen}");
    let own = server.own();
    for wrong in [
        "ids=99&from=0&to=8&step=1",
        "ids=0&from=0&to=9&step=3",
        "ids=x&from=0&to=8&step=1",
    ] {
        assert_eq!(
            server
                .request(&format!("GET /api/counters?trace=0&{wrong}"), &own, "")
                .0,
            400,
            "{wrong}"
        );
    }
}

/// Keys mark and pin, a click at a period shows who woke it; a link shows the same.
// One function, because the steps are those of one visit.
#[test]
fn marks_pins_and_wake_ups_are_in_the_address() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut text = switches();
    // Thread 10 wakes 12, which sleeps, and then runs on the other CPU.
    text.push_str("             w10-10    [000] d..2. 0.130000: sched_switch: prev_comm=w10 prev_pid=10 prev_prio=120 prev_state=R ==> next_comm=w14 next_pid=14 next_prio=120\n");
    for (time, event) in [
        (
            "0.140000",
            "sched_switch: prev_comm=w14 prev_pid=14 prev_prio=120 prev_state=S ==> next_comm=w16 next_pid=16 next_prio=120",
        ),
        (
            "0.150000",
            "sched_waking: comm=w14 pid=14 prio=120 target_cpu=000",
        ),
        (
            "0.160000",
            "sched_switch: prev_comm=w16 prev_pid=16 prev_prio=120 prev_state=R ==> next_comm=w14 next_pid=14 next_prio=120",
        ),
    ] {
        let (comm, tid) = if time == "0.140000" {
            ("w14", 14)
        } else {
            ("w16", 16)
        };
        text.push_str(&format!(
            "{comm:>16}-{tid}    [000] d..1. {time}: {event}\n"
        ));
    }
    let sched = converted(directory.path(), "switches.trace", &text);
    let counters = converted(directory.path(), "counters.json", &counters());
    let server = Server::of(&[&sched, &counters]);
    let start: i64 = server.get("/api/meta")["traces"][0]["start"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let woken = server.rows("SELECT time FROM thread_states WHERE trace = 'switches' AND tid = 14 AND state = 'runnable' AND waker_tid = 16");
    let time = woken[0][0].as_str().unwrap().parse::<i64>().unwrap() - start;
    let details = format!("open tab=details&at=states,14,{time},{}", time + 1);
    let steps = [
        ("open m=1ms,3.5ms", Some("m=1ms,3.5ms")),
        ("rows", None),
        ("text #count", None),
        ("press Escape", Some("")),
        ("press m", None),
        ("press m", None),
        ("text #count", None),
        ("open pin=thread14,cpu1,event99", None),
        ("rows", None),
        (details.as_str(), None),
        ("wait #wake", None),
        ("text #wake", None),
        ("press Escape", None),
        ("open tid=14", None),
        ("press p", Some("tid=14&pin=thread14")),
        ("press p", Some("tid=14")),
        ("open trace=1&pin=counter0,counter2", None),
        ("rows", None),
        ("size 800 light", Some("overflow 0")),
        ("size 1920 dark", Some("overflow 0")),
    ];
    let found = visited(&server, &steps);
    assert!(
        found[2].starts_with("1ms to 3.5ms: 2.500 ms · "),
        "{}",
        found[2]
    );
    assert!(
        found[6].contains(": 0 ns"),
        "both marks are in the middle: {}",
        found[6]
    );
    // Each row is counted once, wherever it is drawn.
    assert_eq!(found[8].matches("CPU 1: ").count(), 1, "{}", found[8]);
    assert_eq!(found[8].matches("(14): ").count(), 1, "{}", found[8]);
    assert!(
        found[8].find("(14): ") < found[8].find("CPU 0: "),
        "{}",
        found[8]
    );
    assert!(
        found[11].starts_with("woken by w16 (16) at "),
        "{}",
        found[11]
    );
    assert!(
        found[17].contains("heap: used of thread 10: 1,000 to 1,100;"),
        "{}",
        found[17]
    );
}
