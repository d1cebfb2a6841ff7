//! System calls by their tracepoints: entries and exits, of which filters keep only some.
//!
//! The tests need root and tracefs, and report a missing requirement.

mod room;

use room::{Room, may_record};

/// Every entry is a call, also before the first exit that the filter keeps.
#[test]
fn entries_are_calls_although_their_exits_are_filtered() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let filter = format!("id == {}", libc::SYS_write);
    room.record(&[
        "-e",
        "raw_syscalls:sys_enter",
        "-e",
        "raw_syscalls:sys_exit",
        "--filter",
        &filter,
        "--",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "count=3",
        "status=none",
    ]);
    let entries = room.rows("events/raw_syscalls/sys_enter", &["id"]);
    let exits = room.rows("events/raw_syscalls/sys_exit", &["id"]);
    let calls = room.rows("calls", &["function", "entry_seen", "exit_seen"]);
    let writes = calls.iter().filter(|row| *row == "sys_write true true");
    assert_eq!((writes.count(), exits.len()), (3, 3), "{calls:?}");
    let others = calls.iter().filter(|row| row.ends_with(" true false"));
    assert_eq!(others.count(), entries.len() - 3, "{calls:?}");
    assert!(room.rows("problems", &["message"]).is_empty());
}
