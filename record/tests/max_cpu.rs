//! `--max-cpu`: fewer samples with the right weights, and a row for each change.

mod room;

use std::process::{Command, Stdio};

use room::{Room, Running, may_record};

/// A process that is always on a CPU.
fn busy() -> Running {
    let mut command = Command::new("sh");
    let command = command.args(["-c", "while :; do :; done"]);
    Running::start(command.stdout(Stdio::null()))
}

#[test]
fn rates_are_lowered_and_weights_stay_right() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let _busy = busy();
    let arguments = [
        "-a",
        "-e",
        "cpu-clock",
        "-F",
        "4999",
        "-g",
        "--max-cpu",
        "0.1%",
        "--duration",
        "12s",
    ];
    let stderr = room.record(&arguments);
    assert!(
        stderr.contains("--max-cpu 0.1%: sampling was lowered"),
        "{stderr}"
    );
    let changes = room.rows("events/perf/sampling_rate", &["time", "event", "frequency"]);
    assert!(!changes.is_empty());
    let changes: Vec<(u64, u64)> = changes
        .iter()
        .map(|row| match &row.split(' ').collect::<Vec<_>>()[..] {
            [time, "cpu-clock", hz] => (time.parse().expect("a time"), hz.parse().expect("Hz")),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(changes[0].1 < 4999, "{changes:?}");
    // Each sample has the period of the rate in force. A change takes effect event by event, after its time.
    let mut samples_by_change = vec![0; changes.len() + 1];
    for row in room.rows("samples", &["time", "period"]) {
        let (time, period) = row.split_once(' ').expect("two values");
        let time: u64 = time.parse().expect("a time");
        let period: u64 = period.parse().expect("a period");
        let past = changes.iter().filter(|(since, _)| *since <= time).count();
        let hz = |past: usize| past.checked_sub(1).map_or(4999, |index| changes[index].1);
        let is_now = period == 1_000_000_000 / hz(past);
        let is_before = past > 0
            && time < changes[past - 1].0 + 500_000_000
            && period == 1_000_000_000 / hz(past - 1);
        assert!(is_now || is_before, "{row} after {changes:?}");
        samples_by_change[past] += 1;
    }
    assert!(samples_by_change[0] > 100, "{samples_by_change:?}");
    assert!(
        samples_by_change[1..].iter().sum::<u64>() > 0,
        "{samples_by_change:?}"
    );
}

#[test]
fn what_cannot_be_lowered_is_said() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let run = |arguments: &[&str]| {
        let (status, stderr) = room.run(arguments);
        (status, stderr)
    };
    let limit = ["--max-cpu", "1%"];
    let with = |more: &[&'static str]| [&limit, more].concat();
    let (status, stderr) = run(&with(&[
        "-a",
        "-e",
        "sched:sched_switch",
        "--duration",
        "100ms",
    ]));
    assert_eq!(status, Some(0), "{stderr}");
    assert!(
        stderr.contains("no event has a frequency that could be lowered"),
        "{stderr}"
    );
    for (options, expected) in [
        (&["--", "true"][..], "requires a recording of the system"),
        (&["-a", "--ring", "5s"], "cannot be combined with --ring"),
        (
            &["-a", "--format", "perf.data"],
            "cannot be combined with --format perf.data",
        ),
        (
            &["-a", "--max-cpu", "0%"],
            "expected a percentage of one CPU above 0",
        ),
    ] {
        let (status, stderr) = run(&with(options));
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{expected:?} in {stderr}");
    }
}
