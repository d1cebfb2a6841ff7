//! A journal whose encoded part is compressed, with the recorder killed in between.

mod room;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use perfquet_events::Input;
use perfquet_import::{ImportOptions, Unpacked, import, recover};
use room::{Running, needs, rows_of};

const MIB: u64 = 1 << 20;

fn pieces(journal: &Path) -> usize {
    let files = fs::read_dir(journal).into_iter().flatten().flatten();
    let is_piece = |name: &str| name.starts_with("packed.");
    files
        .filter(|file| file.file_name().to_str().is_some_and(is_piece))
        .count()
}

/// Returns the disk usage of the files in a directory.
fn allocated(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().flatten();
    files
        .map(|file| {
            file.metadata()
                .map_or(0, |metadata| metadata.blocks() * 512)
        })
        .sum()
}

#[test]
fn compressed_journal_is_recovered_like_a_whole_one() {
    if !needs::met(&["root", "tracefs", "perf events"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Not started by the recorder, so it continues when that is killed.
    let storm = Running::start(
        Command::new("dd")
            .args(["if=/dev/zero", "of=/dev/null", "bs=1"])
            .stderr(Stdio::null()),
    );
    let trace = folder.path().join("t.pqt");
    let mut recorder = Running::start(
        Command::new(env!("CARGO_BIN_EXE_perfquet-record"))
            .args(["-e", "syscalls:sys_enter_*", "-p"])
            .arg(storm.pid())
            .arg("-o")
            .arg(&trace)
            .stderr(Stdio::null()),
    );
    let journal = trace.join("journal");
    let deadline = Instant::now() + Duration::from_secs(300);
    let length = || fs::metadata(journal.join("perf.data")).map_or(0, |file| file.len());
    // Wait for the second piece before its hole is punched.
    while pieces(&journal) < 2 || allocated(&journal) > length() - 50 * MIB {
        assert!(Instant::now() < deadline, "{} pieces", pieces(&journal));
        assert!(recorder.0.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    drop(storm);
    let (length, taken) = (length(), allocated(&journal));
    println!("{} MiB of journal take {} MiB", length / MIB, taken / MIB);
    assert!(taken < length - 50 * MIB, "{taken} of {length} bytes");
    // The journal of a recorder that never compresses.
    let whole = folder.path().join("whole.data");
    let mut unpacked = Unpacked::open(&journal.join("perf.data")).unwrap();
    io::copy(&mut unpacked, &mut File::create(&whole).unwrap()).unwrap();
    let expected = folder.path().join("whole.pqt");
    let input = Input::open(&whole).unwrap();
    let report = import(vec![input], &expected, ImportOptions::default()).unwrap();
    assert!(report.counts.events > 500_000, "{:?}", report.counts);
    let recovered = recover(&trace, ImportOptions::default()).unwrap();
    assert_eq!(recovered.counts, report.counts);
    assert_eq!(recovered.rows, report.rows);
    let columns = ["time", "cpu", "tid", "comm", "fd", "count"];
    for table in ["read", "write"] {
        let table = format!("events/syscalls/sys_enter_{table}");
        let rows = |trace: &Path| rows_of(trace, &table, &columns);
        let (found, expected) = (rows(&trace), rows(&expected));
        assert!(!found.is_empty() && found == expected, "{table}");
    }
    // At most the truncated end.
    let problems = rows_of(&trace, "problems", &["message"]);
    assert!(problems.len() <= 1, "{problems:?}");
}
