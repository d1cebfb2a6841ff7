//! System calls by number: their names, and edges without a number.

use super::*;

fn types() -> [EventType; 2] {
    [
        event_type("raw_syscalls", "sys_enter", &["id"]),
        event_type("raw_syscalls", "sys_exit", &["id", "ret"]),
    ]
}

#[track_caller]
fn check(architecture: Option<&str>, hits: &[(u32, i64, i32, &[i64])], expected: &[&str]) {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        for declared in types() {
            sink.event(Event::Type(&declared)).unwrap();
        }
        if let Some(name) = architecture {
            sink.event(Event::Fact(Fact::Architecture(name))).unwrap();
        }
        hits.iter().for_each(|&found| hit(sink, found));
    });
    let rows = rows_of(&trace.finish(), &["context", "retval"]);
    assert_eq!(rows, expected);
}

#[test]
fn calls_have_the_names_of_the_architecture() {
    let hits: [(u32, i64, i32, &[i64]); 4] = [
        (0, 10, 5, &[202]),
        (1, 20, 5, &[202, 0]),
        (0, 30, 5, &[9999]),
        (1, 40, 5, &[9999, -38]),
    ];
    let unknown = "syscall:9999 - - 0 30 10 10 task -38";
    for (architecture, name) in [
        (Some("x86_64"), "sys_futex"),
        (Some("aarch64"), "sys_accept"),
        (Some("vax"), "syscall:202"),
        (None, "syscall:202"),
    ] {
        let first = format!("{name} - - 0 10 10 10 task 0");
        check(architecture, &hits, &[&first, unknown]);
    }
}

/// The kernel names some events otherwise than programs name the call.
#[test]
fn calls_have_one_name_by_event_and_by_number() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        let named = [
            event_type("syscalls", "sys_enter_newfstat", &["fd"]),
            event_type("syscalls", "sys_exit_newfstat", &["ret"]),
        ];
        for declared in types().into_iter().chain(named) {
            sink.event(Event::Type(&declared)).unwrap();
        }
        sink.event(Event::Fact(Fact::Architecture("x86_64")))
            .unwrap();
        hit(sink, (0, 10, 5, &[5]));
        hit(sink, (1, 20, 5, &[5, 0]));
        hit(sink, (2, 30, 6, &[3]));
        hit(sink, (3, 40, 6, &[0]));
    });
    let rows = rows_of(&trace.finish(), &["retval"]);
    let expected = ["sys_fstat - - 0 10 10 10 0", "sys_fstat - - 0 30 10 10 0"];
    assert_eq!(rows, expected);
}

/// Names change with the architecture, which may come after the first calls.
#[test]
fn the_architecture_may_come_late() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        for declared in types() {
            sink.event(Event::Type(&declared)).unwrap();
        }
        hit(sink, (0, 10, 5, &[202]));
        hit(sink, (1, 20, 5, &[202, 0]));
        sink.event(Event::Fact(Fact::Architecture("x86_64")))
            .unwrap();
        hit(sink, (0, 30, 5, &[202]));
        hit(sink, (1, 40, 5, &[202, 0]));
    });
    let rows = rows_of(&trace.finish(), &["context", "retval"]);
    let expected = [
        "syscall:202 - - 0 10 10 10 task 0",
        "sys_futex - - 0 30 10 10 task 0",
    ];
    assert_eq!(rows, expected);
}

/// rt_sigreturn, and uretprobe's own call on x86: the registers at the exit are those of the interrupted code.
#[test]
fn an_exit_without_a_number_ends_the_open_call() {
    check(
        Some("x86_64"),
        &[
            (0, 10, 5, &[15]),
            (1, 20, 5, &[-1, 7]),
            (0, 30, 5, &[335]),
            (1, 40, 5, &[-1, 3]),
            (0, 50, 5, &[0]),
            (1, 60, 5, &[0, 8]),
            // Its entry was before the recording.
            (1, 70, 6, &[-1, 0]),
            // The exit was missed: a thread makes one call at a time.
            (0, 80, 7, &[1]),
            (0, 90, 7, &[39]),
            (1, 95, 7, &[39, 7]),
            // Open at the end.
            (0, 99, 8, &[230]),
        ],
        &[
            "sys_rt_sigreturn - - 0 10 10 10 task -",
            "sys_uretprobe - - 0 30 10 10 task -",
            "sys_read - - 0 50 10 10 task 8",
            "sys_write - - 0 80 - - task - no exit",
            "sys_getpid - - 0 90 5 5 task 7",
            "sys_clock_nanosleep - - 0 99 - - task - no exit",
        ],
    );
}

#[test]
fn the_child_of_clone_made_no_call() {
    check(
        Some("x86_64"),
        &[
            (0, 10, 5, &[56]),
            (1, 15, 6, &[56, 0]),
            (1, 20, 5, &[56, 6]),
            (1, 25, 7, &[435, 0]),
            // Of a call before the recording.
            (1, 30, 8, &[56, 9]),
            (1, 35, 8, &[0, 0]),
        ],
        &[
            "sys_clone - - 0 10 10 10 task 6",
            "sys_clone - - 0 30 - - task 9 no entry",
            "sys_read - - 0 35 - - task 0 no entry",
        ],
    );
    // By name.
    let by_name = [
        event_type("syscalls", "sys_enter_clone3", &["uargs"]),
        event_type("syscalls", "sys_exit_clone3", &["ret"]),
    ];
    check_pairs(
        &by_name,
        &[(0, 10, 5, &[1]), (1, 12, 6, &[0]), (1, 20, 5, &[6])],
        &["sys_clone3 - - 0 10 10 10 task 6"],
    );
}

/// Texts have numbers and no architecture, so the parent decides: it is in the call, or has returned from it.
#[test]
fn the_child_of_a_numbered_clone_made_no_call() {
    check(
        None,
        &[
            (0, 10, 5, &[56]),
            (0, 11, 4, &[202]),
            (1, 15, 6, &[56, 0]),
            (1, 20, 5, &[56, 6]),
            (0, 30, 5, &[220]),
            // The number in the parent's container.
            (1, 31, 5, &[220, 2]),
            (1, 33, 7, &[220, 0]),
            // No parent, and no call that returns twice.
            (1, 35, 8, &[56, 0]),
            (1, 36, 9, &[202, 0]),
        ],
        &[
            "syscall:56 - - 0 10 10 10 task 6",
            "syscall:202 - - 0 11 - - task - no exit",
            "syscall:220 - - 0 30 1 1 task 2",
            "syscall:56 - - 0 35 - - task 0 no entry",
            "syscall:202 - - 0 36 - - task 0 no entry",
        ],
    );
}

/// The return of a function is reported inside the system call that reports it, which is no part of the function.
#[test]
fn the_call_that_reports_a_return_is_not_inside_the_function() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        let probes = [
            event_type("probe_a", "op", &["__probe_ip"]),
            event_type("probe_a", "op__return", &["__probe_func", "__probe_ret_ip"]),
        ];
        for declared in types().into_iter().chain(probes) {
            sink.event(Event::Type(&declared)).unwrap();
        }
        sink.event(Event::Fact(Fact::Architecture("x86_64")))
            .unwrap();
        let hits: [(u32, i64, i32, &[i64]); 13] = [
            (2, 10, 5, &[77]),
            (0, 11, 5, &[1]),
            (1, 13, 5, &[1, 0]),
            (0, 20, 5, &[335]),
            (3, 21, 5, &[77, 99]),
            // Some kernels report no exit.
            (2, 30, 5, &[77]),
            (0, 32, 5, &[1]),
            (1, 34, 5, &[1, 0]),
            (0, 38, 5, &[335]),
            (3, 40, 5, &[77, 99]),
            (1, 42, 5, &[-1, 3]),
            (0, 50, 5, &[0]),
            (1, 51, 5, &[0, 0]),
        ];
        hits.into_iter().for_each(|found| hit(sink, found));
    });
    let expected = [
        "op - - 0 10 11 9 -",
        "sys_write op 1 1 11 2 2 0",
        "sys_uretprobe - - 0 20 - - - no exit",
        "op - - 0 30 10 8 -",
        "sys_write op 4 1 32 2 2 0",
        "sys_uretprobe - - 0 38 - - - no exit",
        "sys_read - - 0 50 1 1 0",
    ];
    assert_eq!(rows_of(&trace.finish(), &["retval"]), expected);
}

/// Without exits of system calls, their entries end no call of a function.
#[test]
fn entries_without_exits_leave_functions_open() {
    for event in ["raw_syscalls:sys_enter", "syscalls:sys_enter_read"] {
        let mut trace = Trace::new();
        trace.input("test", |sink| {
            let (system, name) = event.split_once(':').unwrap();
            let probes = [
                event_type(system, name, &["id"]),
                event_type("probe_a", "op", &["__probe_ip"]),
                event_type("probe_a", "op__return", &["__probe_func", "__probe_ret_ip"]),
            ];
            for declared in probes {
                sink.event(Event::Type(&declared)).unwrap();
            }
            for call in 0..100 {
                let start = 100 * call;
                let hits: [(u32, i64, i32, &[i64]); 5] = [
                    (0, start, 5, &[1]),
                    (1, start + 10, 5, &[77]),
                    (0, start + 20, 5, &[0]),
                    (0, start + 30, 5, &[335]),
                    (2, start + 40, 5, &[77, 99]),
                ];
                hits.into_iter().for_each(|found| hit(sink, found));
            }
        });
        let expected: Vec<String> = (0..100)
            .map(|call| format!("op - - 0 {} 30 30 -", 100 * call + 10))
            .collect();
        assert_eq!(rows_of(&trace.finish(), &["retval"]), expected, "{event}");
    }
}
