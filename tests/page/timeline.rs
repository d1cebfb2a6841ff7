//! Report pages of several traces on one time axis, beside what SQL says of `aligned(time)`.

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, needs};

use super::truth::{rows, waits};
use super::{between, converted, opened, output, switches};

/// `b` was recorded on a clock 3 s behind and begins 50 ms later; nothing relates the clock of `c` to theirs. The page has every state
/// at its place on the clock of `a`, and `c` on an axis of its own.
#[test]
fn states_of_two_traces_are_on_one_time_axis() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (page, aligned) = timeline(directory.path());
    for (fragment, from, to) in [
        ("", 0, i64::from(u32::MAX)),
        ("t=40ms..90ms", 40_000_000, 90_000_000),
        (
            "t=60ms..80ms&span=60.1ms..71.234567ms",
            60_100_000,
            71_234_567,
        ),
    ] {
        let shown = opened(&page, fragment);
        let line = "on the time axis of a by a given shift, times +3.000 s, error not known";
        assert!(
            shown.contains(line),
            "{:?}",
            between(&shown, "class=\"placement\">", "</section>")
        );
        let found = times_in(&shown);
        let inside = format!(
            "greatest(0, least(aligned(time) + duration, start + {to}) - greatest(aligned(time), start + {from}))"
        );
        let of =
            |states: &str| format!("coalesce(sum({inside}) FILTER (WHERE state IN ({states})), 0)");
        let sql = format!(
            "SELECT concat(trace, ': ', comm, ' (', tid, ')') AS thread, {}, {}, {}, {}, {} FROM thread_states, \
             (SELECT min(aligned(time)) AS start FROM sched.sched_switch WHERE trace = 'a') WHERE duration IS NOT NULL AND tid > 0 AND trace IN ('a', 'b') GROUP BY 1",
            of("'running'"),
            of("'runnable', 'preempted'"),
            of("'uninterruptible'"),
            of("'interruptible'"),
            of("'stopped', 'idle', 'parked', 'dead'")
        );
        let mut expected = rows(&aligned, &sql);
        expected.retain(|line| !line.ends_with(",0,0,0,0,0"));
        assert!(expected.iter().any(|line| line.starts_with("b: ")));
        let found: Vec<String> = (found.into_iter())
            .filter(|line| !line.contains("swapper"))
            .collect();
        assert_eq!(found, expected, "{fragment}");
    }
}

/// A command shows the selection in the time of its trace, and an axis of its own has the trace alone.
#[test]
fn commands_have_the_time_of_their_trace() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (page, _) = timeline(directory.path());
    let shown = opened(&page, "t=60ms..80ms&event=b%3A%20off-CPU%20time");
    let threads = between(&shown, "<section id=\"threads\"", "</section>").unwrap();
    assert!(threads.contains("b.pqt --time 10ms..30ms"), "{threads}");
    assert!(!threads.contains("a.pqt"), "{threads}");
    // Without a trace, a command for each: `a` ends before this time.
    let tracks = between(&shown, "<section id=\"tracks\"", "</section>").unwrap();
    assert!(tracks.contains("a.pqt --by thread --time 60ms..80ms; "));
    let selected = opened(&page, "tid=1:11");
    let tracks = between(&selected, "<section id=\"tracks\"", "</section>").unwrap();
    assert!(tracks.contains("b.pqt --by thread --tid 11<"), "{tracks}");
    let other = opened(&page, "axis=1");
    let head = between(&other, "<section id=\"head\"", "</section>").unwrap();
    assert!(
        head.contains("own time axis: how its clock relates to that of a is not known"),
        "{head}"
    );
    let found = times_in(&other);
    assert!(!found.is_empty() && found.iter().all(|line| line.starts_with("work")));
}

/// Two clocks that sample one of two CPUs all the time, on an axis of four seconds: the share is that of each trace's own second.
#[test]
fn shares_of_cpus_are_of_the_own_length() {
    if !needs::met(&["chromium"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sampled = |name: &str, begin: i64| {
        let mut text = String::from("# ========\n# nrcpus online : 2\n# ========\n#\n");
        for sample in 0..=100 {
            let (second, part) = (begin + sample / 100, sample % 100);
            text.push_str(&format!(
                "work 7/7 [000] {second}.{:06}: 10000000 cpu-clock:\n\t401 next+0x1 (/bin/a)\n\n",
                part * 10_000
            ));
        }
        converted(directory.path(), &format!("{name}.txt"), text.as_bytes());
    };
    sampled("a", 100);
    sampled("b", 103);
    let aligned = directory.path().join("ab.align.json");
    let text = r#"{"perfquet_alignment": 1, "traces": [{"trace": "a.pqt", "method": "reference", "error": 0}, {"trace": "b.pqt", "method": "given", "shift": 0}]}"#;
    std::fs::write(&aligned, text).unwrap();
    let page = directory.path().join("page.html");
    let mut query = Command::new(bin("perfquet-query"));
    query.arg("report").arg(&aligned).arg("--timeline");
    output(query.arg("-o").arg(&page));
    let shown = opened(&page, "");
    let head = between(&shown, "<section id=\"head\"", "</section>").unwrap();
    let shares = head.matches("of 2 CPUs").count();
    let right = head.matches(", 50.50% of 2 CPUs").count();
    assert_eq!((shares, right), (2, 2), "{head}");
    // Of half of a trace, its length is half of it: 51 samples.
    let mut query = Command::new(bin("perfquet-query"));
    query
        .arg("report")
        .arg(directory.path().join("a.pqt"))
        .args(["--time", "..505ms"]);
    output(query.arg("--force").arg("-o").arg(&page));
    let shown = opened(&page, "");
    let head = between(&shown, "<section id=\"head\"", "</section>").unwrap();
    assert!(head.contains(", 50.50% of 2 CPUs"), "{head}");
}

/// Without the option, two traces are compared, and more are refused with what to do.
#[test]
fn three_traces_need_the_option() {
    let directory = tempfile::tempdir().unwrap();
    let text = waits();
    let traces = ["a", "b", "c"].map(|name| {
        let file = format!("{name}.trace");
        converted(directory.path(), &file, text.as_bytes())
    });
    let mut query = Command::new(bin("perfquet-query"));
    let output = query.arg("report").args(&traces).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("hint: --timeline shows"), "{errors}");
}

/// The page of three traces, and their alignment.
fn timeline(directory: &Path) -> (PathBuf, PathBuf) {
    let text = waits();
    converted(directory, "a.trace", text.as_bytes());
    converted(directory, "b.trace", later(&text, -2_950_000).as_bytes());
    converted(directory, "c.trace", switches().as_bytes());
    let aligned = directory.join("abc.align.json");
    let mut query = Command::new(bin("perfquet-query"));
    query.current_dir(directory).arg("align");
    query.args(["a.pqt", "b.pqt", "c.pqt"]);
    output(
        query
            .args(["--shift", "b=3s", "--by", "events", "-o"])
            .arg(&aligned),
    );
    let page = directory.join("page.html");
    let mut query = Command::new(bin("perfquet-query"));
    query.arg("report").arg(&aligned).arg("--timeline");
    output(query.arg("--force").arg("-o").arg(&page));
    (page, aligned)
}

/// The text of ftrace with later times.
fn later(text: &str, us: i64) -> String {
    let line = |line: &str| match line.split_once(" d..2. ") {
        Some((head, rest)) => {
            let (time, rest) = rest.split_once(": ").unwrap();
            let (seconds, part) = time.split_once('.').unwrap();
            let time = seconds.parse::<i64>().unwrap() * 1_000_000 + part.parse::<i64>().unwrap();
            let time = time + us;
            let (seconds, part) = (time / 1_000_000, time % 1_000_000);
            format!("{head} d..2. {seconds}.{part:06}: {rest}\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Thread and times by state of the table of tracks.
fn times_in(shown: &str) -> Vec<String> {
    let table = between(shown, "<section id=\"tracks\"", "</table>").unwrap();
    let body = table.split_once("<tbody>").unwrap().1;
    let mut found: Vec<String> = (body.split("<tr").skip(1))
        .map(|row| {
            let values = row.split("data-value=\"").skip(1);
            let values: Vec<&str> = values.map(|rest| rest.split('"').next().unwrap()).collect();
            format!("{},{}", values[5], values[..5].join(","))
        })
        .collect();
    found.sort();
    found
}
