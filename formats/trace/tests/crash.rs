//! A writer killed at any moment: complete parts stay complete and readable.
//!
//! The writer is this test program, started again with an environment variable that names the trace.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use perfquet_events::Error;
use perfquet_trace::store::{Directory, Facts, Manifest, State, Writer, WriterOptions};
use perfquet_trace::tables;

const TRACE: &str = "PERFQUET_TEST_TRACE";

fn options() -> WriterOptions {
    WriterOptions {
        adopt: true,
        rows_per_page: 500,
        rows_per_group: 1000,
        rows_per_part: 2000,
        ..WriterOptions::default()
    }
}

/// Writes rows numbered from 0, until `count` or an error.
fn write_rows(path: &Path, count: i64) -> Result<(), Error> {
    let mut writer = Writer::create(path, options())?;
    let samples = writer.add_table(tables::samples::schema())?;
    let losses = writer.add_table(tables::losses::schema())?;
    for number in 0..count {
        let time = Some(number);
        let noise = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let row = tables::samples::Row {
            time,
            event: b"cycles",
            ip: Some(noise),
            addr: Some(noise.rotate_left(17)),
            ..Default::default()
        };
        row.push(writer.rows(samples));
        writer.end_row(samples)?;
        if number % 10 == 0 {
            let row = tables::losses::Row {
                time,
                reason: b"ring full",
                ..Default::default()
            };
            row.push(writer.rows(losses));
            writer.end_row(losses)?;
        }
    }
    writer.finish(Facts::default())?;
    Ok(())
}

/// Not a test by itself: the writer that `a_killed_writer_leaves_whole_parts` starts and kills.
#[test]
fn child_writes_for_ever() {
    if let Some(path) = std::env::var_os(TRACE) {
        write_rows(Path::new(&path), i64::MAX).unwrap();
    }
}

fn start_child(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_writes_for_ever"])
        .env(TRACE, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Checks that every part in the manifest is complete, and that the rows of a table have no gap. Returns their number.
fn check_whole(path: &Path) -> i64 {
    let trace = match Directory::open(path) {
        Ok(trace) => trace,
        // The writer was killed before the first manifest.
        Err(_) if !path.join("manifest.json").exists() => return 0,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(trace.manifest().state, State::Recording);
    let mut expected = 0;
    for (index, part) in trace
        .table("samples")
        .iter()
        .flat_map(|table| &table.parts)
        .enumerate()
    {
        assert_eq!(part.file, format!("samples/{index:05}.parquet"));
        let range = (part.time_min.unwrap(), part.time_max.unwrap());
        assert_eq!(range, (expected, expected + part.rows as i64 - 1));
        assert!(part.sorted);
        expected += part.rows as i64;
    }
    let mut next = 0;
    for batch in trace.read("samples").unwrap() {
        for &time in batch.unwrap()["time"].as_primitive::<Int64Type>().values() {
            assert_eq!(time, next);
            next += 1;
        }
    }
    assert_eq!(next, expected);
    expected
}

#[test]
fn a_killed_writer_leaves_whole_parts() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    std::fs::create_dir(&path).unwrap();
    std::fs::create_dir(path.join("journal")).unwrap();
    std::fs::write(path.join("journal/perf.data"), "raw").unwrap();
    let mut most = 0;
    // Each writer adopts the files of the previous one. The pauses cover the start, the first parts and many parts; the
    // exact moments are random.
    for round in 0..20u64 {
        let mut child = start_child(&path);
        std::thread::sleep(Duration::from_millis(7 + round * round * 9));
        child.kill().unwrap();
        child.wait().unwrap();
        most = most.max(check_whole(&path));
        if round >= 12 && most > 0 {
            break;
        }
    }
    assert!(most > 0, "no writer completed its first part");
    write_rows(&path, 3000).unwrap();
    let trace = Directory::open(&path).unwrap();
    assert_eq!(trace.manifest().state, State::Complete);
    assert_eq!(trace.table("samples").unwrap().rows(), 3000);
    assert_eq!(trace.table("losses").unwrap().rows(), 300);
    assert_eq!(
        std::fs::read_to_string(path.join("journal/perf.data")).unwrap(),
        "raw"
    );
    assert_eq!(unnamed_files(&path, trace.manifest()), Vec::<String>::new());
}

/// Files in the directories of tables that the manifest does not list.
fn unnamed_files(path: &Path, manifest: &Manifest) -> Vec<String> {
    let mut unnamed = Vec::new();
    for table in manifest.tables.values() {
        let Ok(entries) = std::fs::read_dir(path.join(&table.folder)) else {
            continue;
        };
        for entry in entries {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let file = format!("{}/{name}", table.folder);
            if !table.parts.iter().any(|part| part.file == file) {
                unnamed.push(file);
            }
        }
    }
    unnamed
}

/// A child of another test inherits all open files, including locks, until it calls exec.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn live_writer_is_not_mistaken_for_a_killed_one() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let writer = Writer::create(&path, options()).unwrap();
    let refused = Writer::create(&path, options()).unwrap_err().to_string();
    assert!(
        refused.contains("another process is writing it"),
        "{refused}"
    );
    assert!(refused.contains("hint: "), "{refused}");
    drop(writer);
    write_rows(&path, 10).unwrap();
    assert!(matches!(write_rows(&path, 10), Err(Error::Exists { .. })));
}

/// Not a test by itself: runs with a file system of 2 MB mounted in a private namespace.
#[test]
fn child_fills_the_disk() {
    let Some(folder) = std::env::var_os("PERFQUET_TEST_SMALL_DISK") else {
        return;
    };
    let path = Path::new(&folder).join("a.pqt");
    let error = write_rows(&path, 10_000_000).unwrap_err();
    let Error::Io {
        path: place,
        source,
    } = &error
    else {
        panic!("expected an error of the system, found {error}");
    };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull, "{error}");
    assert!(place.starts_with(&path), "{error}");
    let kept = check_whole(&path);
    assert!(kept >= 2000, "{kept} rows");
    println!("kept {kept} rows");
}

#[test]
fn full_disk_is_an_error_and_keeps_complete_parts() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // The mount is private to one process and disappears with it.
    let script =
        "mount -t tmpfs -o size=2m tmpfs \"$PERFQUET_TEST_SMALL_DISK\" || exit 77; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_fills_the_disk", "--nocapture"])
        .env("PERFQUET_TEST_SMALL_DISK", folder.path())
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) && !is_unshare_refusal(&output.stderr) => {
            output
        }
        _ => {
            println!("skipped: needs a private mount namespace");
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("kept "),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn is_unshare_refusal(stderr: &[u8]) -> bool {
    String::from_utf8_lossy(stderr).starts_with("unshare:")
}
