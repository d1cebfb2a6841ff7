//! Exits declared after the first entries: readers of text find types as they read.

use super::*;

/// Hits of types that are declared when they first occur.
#[track_caller]
fn check(types: &[EventType], hits: &[(u32, i64, i32, &[i64])], expected: &[&str]) {
    assert!(problems_of(types, hits, expected).is_empty());
}

/// Checks the rows; returns the problems.
#[track_caller]
fn problems_of(
    types: &[EventType],
    hits: &[(u32, i64, i32, &[i64])],
    expected: &[&str],
) -> Vec<String> {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        let mut declared = 0;
        for &found in hits {
            for new in types.iter().take(found.0 as usize + 1).skip(declared) {
                sink.event(Event::Type(new)).unwrap();
                declared += 1;
            }
            hit(sink, found);
        }
    });
    let trace = trace.finish();
    assert_eq!(rows_of(&trace, &["context", "retval"]), expected);
    trace.of("problems", &["count", "message"])
}

/// A filter held back the exits of the first calls.
#[test]
fn entries_long_before_the_first_exit_are_counted() {
    let by_number = [
        event_type("raw_syscalls", "sys_enter", &["id"]),
        event_type("raw_syscalls", "sys_exit", &["id", "ret"]),
    ];
    let kept = [(0, 200, 13, &[1][..]), (1, 201, 13, &[1, 5])];
    // After some entries without an exit, none is expected.
    for (before, dropped, expected) in [
        (2, 2, "syscall:1 - - 0 200 1 1 task 5"),
        (100, 101, "syscall:1 - - 0 201 - - task 5 no entry"),
    ] {
        let hits: Vec<_> = (0..before)
            .map(|time| (0, time, 13, &[0][..]))
            .chain(kept)
            .collect();
        let problems = problems_of(&by_number, &hits, &[expected]);
        assert_eq!(
            problems,
            [format!(
                "{dropped} an entry before the first exit in the input: it was not known that exits are recorded"
            )]
        );
    }
}

#[test]
fn a_call_open_at_the_first_exit_is_kept() {
    let by_number = [
        event_type("raw_syscalls", "sys_enter", &["id"]),
        event_type("raw_syscalls", "sys_exit", &["id", "ret"]),
    ];
    check(
        &by_number,
        &[(0, 2, 13, &[1]), (0, 3, 14, &[0]), (1, 5, 14, &[0, 5])],
        &[
            "syscall:1 - - 0 2 - - task - no exit",
            "syscall:0 - - 0 3 2 2 task 5",
        ],
    );
    // Without any exit, entries are no calls.
    check(&by_number, &[(0, 2, 13, &[1]), (0, 3, 14, &[0])], &[]);
    // The exit of another system call says nothing.
    let by_name = [
        event_type("syscalls", "sys_enter_read", &["fd"]),
        event_type("syscalls", "sys_enter_write", &["fd"]),
        event_type("syscalls", "sys_exit_write", &["ret"]),
    ];
    check(
        &by_name,
        &[(0, 2, 13, &[1]), (1, 3, 14, &[0]), (2, 5, 14, &[5])],
        &["sys_write - - 0 3 2 2 task 5"],
    );
}

#[test]
fn a_system_call_reported_twice_before_the_first_exit_is_one_call() {
    let types = [
        event_type("raw_syscalls", "sys_enter", &["id"]),
        event_type("syscalls", "sys_enter_read", &["fd"]),
        event_type("syscalls", "sys_exit_read", &["ret"]),
    ];
    check(
        &types,
        &[
            (0, 10, 5, &[0]),
            (1, 11, 5, &[3]),
            (0, 20, 6, &[0]),
            (1, 21, 6, &[3]),
            (2, 30, 6, &[7]),
        ],
        &["sys_read - - 0 21 9 9 task 7"],
    );
}
