//! Edges without a thread.

use super::*;

#[track_caller]
fn check_with_problems(script: &str, expected: &[&str], problems: &[&str]) {
    let mut trace = Trace::new();
    trace.input("test", |sink| play(sink, script));
    let rows = trace.finish();
    assert_eq!(rows_of(&rows, &[]), expected);
    assert_eq!(rows.of("problems", &["count", "message"]), problems);
}

#[test]
fn calls_without_a_thread_are_not_paired() {
    let problems = [
        "2 calls without a thread: no exit and no call around them is known to be theirs",
        "2 exits without a thread: the calls that they end are unknown",
    ];
    // Two threads: which exit is whose is unknown, also on one CPU, where one may wait while the other runs.
    for cpu in ["", "cpu=1"] {
        check_with_problems(
            &format!(
                "> 10 a {cpu}
                 > 20 b {cpu}
                 < 30 a {cpu}
                 < 40 b {cpu}"
            ),
            &["a - - 0 10 - - no exit", "b - - 0 20 - - no exit"],
            &problems,
        );
    }
    // Complete calls have their durations, but nothing is known to be inside another.
    check_with_problems(
        "= 10 a dur=100
         = 20 b dur=30
         = 30 c by=d
         = 40 e dur=5 leaf",
        &[
            "a - - 0 10 100 -",
            "b - - 0 20 30 -",
            "c d - 0 30 - - no exit",
            "e - - 0 40 5 5",
        ],
        &["3 calls without a thread: no exit and no call around them is known to be theirs"],
    );
}

#[test]
fn a_depth_or_a_thread_tells_calls_apart() {
    let rows = ["a - - 0 10 30 10", "b a 1 1 20 20 20"];
    for lane in ["tid=5", "cpu=1 depth="] {
        let [outer, inner] = [0, 1].map(|depth| match lane.strip_suffix('=') {
            Some(_) => format!("{lane}{depth}"),
            None => lane.to_owned(),
        });
        check_with_problems(
            &format!("> 10 a {outer}\n> 20 b {inner}\n< 40 b {inner}\n< 40 a {outer}"),
            &rows,
            &[],
        );
    }
}

#[test]
fn switches_tell_the_calls_of_a_cpu_apart() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        let switches = EventType {
            has_switches: true,
            ..event_type("sched", "sched_switch", &[])
        };
        sink.event(Event::Type(&switches)).unwrap();
        play(
            sink,
            "> 10 a cpu=0
             s cpu=0 5 6
             > 20 b cpu=0
             s cpu=0 6 5
             < 30 a cpu=0
             s cpu=0 5 6
             < 40 b cpu=0",
        );
    });
    assert_eq!(
        rows_of(&trace.finish(), &["tid"]),
        ["a - - 0 10 20 20 5", "b - - 0 20 20 20 6"]
    );
}

#[test]
fn entries_by_number_without_a_thread_are_calls_once_an_exit_comes() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        for of_type in [
            event_type("raw_syscalls", "sys_enter", &["id"]),
            event_type("raw_syscalls", "sys_exit", &["id", "ret"]),
        ] {
            sink.event(Event::Type(&of_type)).unwrap();
        }
        for (event, time, values) in [(0, 10, &[1, 0][..]), (0, 20, &[1, 0]), (1, 30, &[1, 7])] {
            let values: Vec<Value<'_>> = values.iter().map(|value| Value::Int(*value)).collect();
            let sample = Sample {
                time: Some(time),
                cpu: Some(0),
                fields: Fields::Values(&values),
                ..Sample::of(EventId(event))
            };
            sink.event(Event::Sample(&sample)).unwrap();
        }
    });
    assert_eq!(
        rows_of(&trace.finish(), &["retval"]),
        [
            "syscall:1 - - 0 10 - - - no exit",
            "syscall:1 - - 0 20 - - - no exit"
        ]
    );
}
