//! Other recordings on the same host.

mod room;

use std::process::{Command, Stdio};

use room::{Room, may_record, needs};

/// `perf record` aborts if the kernel marks its records of mappings as having build IDs that another session requested.
#[test]
fn perf_records_beside_the_recorder() {
    if !may_record() || !needs::met(&["perf"]) {
        return;
    }
    let room = Room::new();
    let mut recorder = room.recorder();
    recorder
        .args([
            "--force",
            "-o",
            "t.pqt",
            "-a",
            "-e",
            "cpu-clock",
            "-F",
            "19",
            "-q",
        ])
        .stdin(Stdio::null());
    let mut recorder = recorder.spawn().expect("the recorder runs");
    let journal = room.path("t.pqt/journal/perf.data");
    while std::fs::metadata(&journal).is_ok_and(|found| found.len() < 20_000) || !journal.exists() {
        assert!(recorder.try_wait().expect("a child").is_none());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut outcomes = Vec::new();
    for _ in 0..10 {
        let output = Command::new("perf")
            .args(["record", "-q", "-e", "cpu-clock", "-o"])
            .arg(room.path("perf.data"))
            .args(["--", "ls", "/"])
            .output()
            .expect("perf runs");
        outcomes.push(output.status.code());
    }
    let ended = Command::new("kill")
        .args(["-INT", &recorder.id().to_string()])
        .status();
    assert!(ended.is_ok_and(|status| status.success()));
    assert!(recorder.wait().is_ok_and(|status| status.success()));
    assert_eq!(outcomes, [Some(0); 10]);
    // Files that were mapped during the recording have build IDs all the same.
    let rows = room.rows("mappings", &["time", "path", "build_id"]);
    let is_ls = |row: &&String| row.contains("/ls ") && !row.starts_with('-');
    let of_ls: Vec<&String> = rows.iter().filter(is_ls).collect();
    assert!(!of_ls.is_empty(), "{} mappings", rows.len());
    assert!(of_ls.iter().all(|row| !row.ends_with(" -")), "{of_ls:?}");
}
