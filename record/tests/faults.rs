//! Disks that fail at one operation of the recorder: what is missing is said, on stderr and in the trace.
//!
//! ```text
//! LD_PRELOAD=faults.so FAULT_DIR=… FAULT_AT=7 FAULT_KIND=5 perfquet-record …     the seventh operation on files fails with EIO
//! ```

mod room;

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_trace::store::{Directory, State};
use room::{Room, users_may_record};

/// Operations until the journal is complete, in any recording of this test, and some of those for the tables.
const OPERATIONS: usize = 20;

/// The library of faults.
fn compiled(room: &Room) -> PathBuf {
    let library = room.path("faults.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../convert/tests/programs/faults.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(compiled.is_ok_and(|status| status.success()));
    library
}

/// The events of a flight recorder are in a directory beside its file until the file is complete.
#[test]
fn a_file_of_a_flight_recorder_that_failed_leaves_its_events() {
    if !users_may_record() || !room::needs::met(&["cc"]) {
        return;
    }
    let room = Room::new();
    let library = compiled(&room);
    let mut left = 0;
    for at in 1..=OPERATIONS {
        let (file, memory) = (room.path("t.data"), room.path("t.data.ring"));
        let _ = std::fs::remove_file(&file);
        let _ = std::fs::remove_dir_all(&memory);
        let output = room
            .recorder()
            .env("LD_PRELOAD", &library)
            .env("FAULT_DIR", &file)
            .env("FAULT_AT", at.to_string())
            .env("FAULT_KIND", "5")
            .args(["--ring", "10s", "--format", "perf.data", "-e", "cpu-clock"])
            .args(["-o", &file.display().to_string()])
            .args([
                "--",
                "sh",
                "-c",
                "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done",
            ])
            .output()
            .expect("the recorder");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_named = stderr.contains(&format!("perfquet-convert {}", memory.display()));
        if !output.status.success() && !file.exists() && memory.exists() {
            left += 1;
            assert!(is_named, "operation {at}: {stderr}");
        }
    }
    assert!(left > 0);
}

#[test]
fn a_recording_that_failed_says_so_in_its_trace() {
    if !users_may_record() || !room::needs::met(&["cc"]) {
        return;
    }
    let room = Room::new();
    let library = compiled(&room);
    let mut early_ends = 0;
    for retention in [&[][..], &["--ring", "10s"]] {
        for at in 1..=OPERATIONS {
            let trace = room.path("t.pqt");
            let _ = std::fs::remove_dir_all(&trace);
            let output = room
                .recorder()
                .env("LD_PRELOAD", &library)
                .env("FAULT_DIR", &trace)
                .env("FAULT_AT", at.to_string())
                .env("FAULT_KIND", "5")
                .args(retention)
                .args(["-o", &trace.display().to_string(), "-e", "cpu-clock"])
                .args([
                    "--",
                    "sh",
                    "-c",
                    "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done",
                ])
                .output()
                .expect("the recorder");
            let stderr = String::from_utf8_lossy(&output.stderr);
            let place = format!("{retention:?}, operation {at}: {stderr}");
            if output.status.success() {
                continue;
            }
            assert_eq!(output.status.code(), Some(1), "{place}");
            assert_eq!(stderr.matches("Input/output error").count(), 1, "{place}");
            let state = Directory::open(&trace).map(|found| found.manifest().state);
            match state {
                Ok(State::Complete) => {
                    early_ends += 1;
                    assert!(stderr.contains(" events, some lost, "), "{place}");
                    let losses = room.rows("losses", &["count", "reason"]);
                    let said = "- the recording ended early".to_owned();
                    assert!(losses.contains(&said), "{place}{losses:?}");
                }
                Ok(_) => assert!(stderr.contains("hint: complete the trace"), "{place}"),
                // Nothing was recorded, or the journal has no tables so far.
                Err(_) => assert!(
                    !trace.exists() || stderr.contains("hint: complete the trace"),
                    "{place}"
                ),
            }
        }
    }
    assert!(early_ends > 6, "{early_ends}");
}
