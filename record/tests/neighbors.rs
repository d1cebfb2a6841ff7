//! Other recordings on the same host.

mod room;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use room::{Room, Running, may_record, needs, peak_kib};

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
    room.wait_for_journal(&mut recorder, 20_000);
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

/// Reading all processes takes a while. Stacks that are recorded meanwhile cannot be walked: all would be copied, and kept.
#[test]
fn many_processes_cost_little_memory_at_the_start() {
    const PROCESSES: &str = "3000";
    const MOST_KIB: u64 = 160 << 10;
    if !may_record() {
        return;
    }
    let room = Room::new();
    let (Some(sleepers), Some(deep)) = (
        room.compile("sleepers.c", &["-O2"]),
        room.compile("deep.c", &["-O2", "-fomit-frame-pointer"]),
    ) else {
        return;
    };
    let mut sleepers = Command::new(sleepers);
    let mut sleepers = Running::start(sleepers.arg(PROCESSES).stdout(Stdio::piped()));
    let mut line = String::new();
    let output = sleepers.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let busy = [(); 2].map(|()| {
        let mut deep = Command::new(&deep);
        Running::start(deep.args(["400", "100000000"]))
    });
    let mut recorder = room.fast_recorder();
    recorder.args(["--force", "-o", "t.pqt", "-a", "-g", "-F", "4000"]);
    recorder.args(["-e", "cpu-clock", "-v", "--", "sleep", "0.5"]);
    let mut recorder = recorder
        .stderr(Stdio::piped())
        .spawn()
        .expect("the recorder runs");
    let mut peak = 0;
    while recorder.try_wait().expect("a child").is_none() {
        peak = peak_kib(recorder.id()).unwrap_or(0).max(peak);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (status, text) = room::ended(recorder.wait_with_output().expect("its output"));
    drop(busy);
    eprintln!("{peak} KiB; {text}");
    assert_eq!(status, Some(0), "{text}");
    assert!(peak <= MOST_KIB, "{peak} KiB: {text}");
    assert!(text.contains(" 0 lost"), "{text}");
}
