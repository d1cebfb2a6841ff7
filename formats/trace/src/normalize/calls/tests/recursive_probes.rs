//! Functions that call themselves, measured by probes at their entry and return.

use super::*;

const ENTRY: u32 = 0;
const RETURN: u32 = 1;

fn types() -> [EventType; 4] {
    [
        event_type("probe_p", "rec", &["__probe_ip"]),
        event_type(
            "probe_p",
            "rec__return",
            &["__probe_func", "__probe_ret_ip", "arg1"],
        ),
        event_type("raw_syscalls", "sys_enter", &["id"]),
        event_type("raw_syscalls", "sys_exit", &["id", "ret"]),
    ]
}

#[test]
fn each_entry_has_its_return() {
    check_pairs(
        &types(),
        &[
            (ENTRY, 10, 5, &[0x1159]),
            (ENTRY, 20, 5, &[0x1159]),
            (ENTRY, 30, 5, &[0x1159]),
            (RETURN, 40, 5, &[0x1159, 0x1180, 0]),
            (RETURN, 51, 5, &[0x1159, 0x1180, 1]),
            (RETURN, 62, 5, &[0x1159, 0x1246, 2]),
            (ENTRY, 70, 5, &[0x1159]),
            (RETURN, 75, 5, &[0x1159, 0x1246, 0]),
        ],
        &[
            "rec - - 0 10 52 21 task 2",
            "rec rec 1 1 20 31 21 task 1",
            "rec rec 2 2 30 10 10 task 0",
            "rec - - 0 70 5 5 task 0",
        ],
    );
}

#[test]
fn calls_before_the_first_return_are_inside_of_the_open_ones() {
    check_pairs(
        &types(),
        &[
            (ENTRY, 10, 5, &[0x1159]),
            (2, 12, 5, &[0]),
            (3, 15, 5, &[0, 7]),
            (ENTRY, 20, 5, &[0x1159]),
            (ENTRY, 22, 6, &[0x1159]),
            (RETURN, 40, 5, &[0x1159, 0x1180, 0]),
            (RETURN, 50, 5, &[0x1159, 0x1246, 1]),
        ],
        &[
            "rec - - 0 10 40 17 task 1",
            "syscall:0 rec 1 1 12 3 3 task 7",
            "rec rec 1 1 20 20 20 task 0",
            "rec - - 0 22 - - task - no exit",
        ],
    );
}

#[test]
fn entries_without_any_return_are_forgotten() {
    let [entry, ..] = types();
    let other = event_type("probe_p", "other", &["__probe_ip"]);
    let other_return = event_type("probe_p", "other__return", &["__probe_func"]);
    let mut hits: Vec<(u32, i64, i32, &[i64])> = Vec::new();
    for time in 0..2000 {
        hits.push((ENTRY, time, 5, &[0x1159]));
    }
    hits.push((1, 3000, 5, &[0x2000]));
    hits.push((2, 3005, 5, &[0x2000]));
    check_pairs(
        &[entry, other, other_return],
        &hits,
        &["other - - 0 3000 5 5 task -"],
    );
}

#[test]
fn returns_that_the_kernel_does_not_await_are_not_guessed() {
    let mut hits: Vec<(u32, i64, i32, &[i64])> = Vec::new();
    for time in 0..70 {
        hits.push((ENTRY, time, 5, &[0x1159]));
    }
    for time in 100..164 {
        hits.push((RETURN, time, 5, &[0x1159, 0x1180, 1]));
    }
    // The next recursion is known again.
    hits.push((ENTRY, 200, 5, &[0x1159]));
    hits.push((RETURN, 208, 5, &[0x1159, 0x1246, 1]));
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        for declared in &types() {
            sink.event(Event::Type(declared)).unwrap();
        }
        hits.iter().for_each(|&found| hit(sink, found));
    });
    let rows = rows_of(&trace.finish(), &[]);
    let with = |end: &str| rows.iter().filter(|row| row.ends_with(end)).count();
    assert_eq!((with("no exit"), with("no entry")), (70, 64));
    assert_eq!(rows.last().unwrap(), "rec - - 0 200 8 8");
}
