//! Threads without events in view have no rows of their own.

use perfquet_tests::needs;
use perfquet_tests::random::Random;

use super::server::{Server, converted};
use super::{calls, index, switches, visited};

/// Which threads have events in a window is what SQL says, at every length and with ends that are times of events.
#[test]
fn active_threads_are_those_of_sql() {
    let directory = tempfile::tempdir().unwrap();
    let sched = converted(
        directory.path(),
        "switches.trace",
        &index::switches(7, 6_000),
    );
    let graph = converted(directory.path(), "calls.trace", &calls());
    let server = Server::of(&[&sched, &graph]);
    let meta = server.get("/api/meta");
    let mut random = Random(5);
    let (mut seen, mut quiet) = (0, 0);
    for (trace, name) in [(0, "switches"), (1, "calls")] {
        let of = &meta["traces"][trace];
        let start: i64 = of["start"].as_str().unwrap().parse().unwrap();
        let length = of["length"].as_i64().unwrap();
        for round in 0..60 {
            let from = random.below(length as u64) as i64 / 1000 * 1000;
            let to = from + [1, 1000, 100_000, 3_000_000][round % 4];
            let (a, b) = (start + from, start + to);
            let sql = match trace {
                0 => format!(
                    "SELECT DISTINCT tid FROM thread_states WHERE trace = '{name}' AND time < {b} AND (time >= {a} OR time + duration > {a} \
                     AND coalesce(state, 'unknown') IN ('running', 'runnable', 'preempted', 'uninterruptible', 'unknown')) ORDER BY tid"
                ),
                _ => format!(
                    "SELECT DISTINCT coalesce(tid, -1) FROM calls WHERE trace = '{name}' AND time < {b} AND (time >= {a} OR time + duration > {a})"
                ),
            };
            let expected = server.rows(&sql);
            let expected: Vec<i64> = (expected.iter())
                .map(|row| row[0].as_i64().unwrap())
                .collect();
            let found = server.get(&format!("/api/active?trace={trace}&from={from}&to={to}"));
            let found: Vec<i64> = serde_json::from_value(found["tids"].clone()).unwrap();
            assert_eq!(found, expected, "{name}: {from} to {to}");
            seen += found.len();
            quiet += usize::from(trace == 0 && found.len() < 12);
        }
    }
    assert!(seen > 300 && quiet > 10, "{seen}, {quiet}");
    let own = server.own();
    for wrong in ["from=5&to=5", "from=x&to=6", "from=0"] {
        let line = format!("GET /api/active?trace=0&{wrong}");
        assert_eq!(server.request(&line, &own, "").0, 400, "{wrong}");
    }
}

/// Threads that sleep all the time are behind a line that opens them; a filter finds them, and selected ones stay.
#[test]
fn quiet_threads_are_behind_a_line() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sleepers: String = [70, 72]
        .map(|tid| {
            format!(
                "w{tid}-{tid} [000] d..2. 99.9000{tid}: sched_switch: prev_comm=w{tid} prev_pid={tid} prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n"
            )
        })
        .concat();
    let text = switches().replacen("nop\n#\n", &format!("nop\n#\n{sleepers}"), 1);
    let trace = converted(directory.path(), "switches.trace", &text);
    let server = Server::of(&[&trace]);
    let part = "t=110ms..120ms";
    let steps = [
        (format!("open {part}"), Some(part.to_owned())),
        ("rows".to_owned(), None),
        ("click 60 340".to_owned(), Some(part.to_owned())),
        ("rows".to_owned(), None),
        ("click 60 340".to_owned(), Some(part.to_owned())),
        (format!("open {part}&q=w7"), None),
        ("rows".to_owned(), None),
        (format!("open {part}&tid=72"), None),
        ("rows".to_owned(), None),
        ("size 1000 dark".to_owned(), Some("overflow 0".to_owned())),
    ];
    let found = visited(&server, &steps);
    let line = "; 2 threads without events in view";
    assert!(found[1].ends_with(line), "{}", found[1]);
    assert!(!found[1].contains("w70"), "{}", found[1]);
    assert!(
        found[3].ends_with(&format!("{line}; w70 (70): 0 periods; w72 (72): 0 periods")),
        "{}",
        found[3]
    );
    assert!(
        found[6].ends_with("w70 (70): 0 periods; w72 (72): 0 periods"),
        "{}",
        found[6]
    );
    assert!(
        found[8].ends_with("w72 (72): 0 periods; 1 thread without events in view"),
        "{}",
        found[8]
    );
}
