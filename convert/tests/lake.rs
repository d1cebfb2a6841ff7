//! Several writers of a lake at once, one of them killed: no row is there twice, none is missing. `src/export/lake/tests.rs` kills
//! a writer before each of its operations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use perfquet_trace::store::Directory;

const CONVERT: &str = env!("CARGO_BIN_EXE_perfquet-convert");

/// Traces of four recordings, with names of their own.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/readers/src");
    let inputs = [
        "perf_data/golden/user-regs.data",
        "trace_dat/golden/graph-events.dat",
        "trace_dat/golden/stacktrace.dat",
        "perf_data/golden/mono.data",
    ];
    let import = |(number, input): (usize, &str)| {
        let trace = folder.join(format!("{number}.pqt"));
        let mut command = Command::new(CONVERT);
        command.arg(readers.join(input)).arg("--no-symbols");
        let status = command.arg("-o").arg(&trace).stderr(Stdio::null()).status();
        assert!(status.expect("the converter").success(), "{input}");
        trace
    };
    (0..).zip(inputs).map(import).collect()
}

fn publish(traces: &[PathBuf], lake: &Path) -> Command {
    let mut command = Command::new(CONVERT);
    command.args(traces).args(["--to", "lake", "-o"]).arg(lake);
    command.args(["--partition", "date=2026-11-22,host=h001"]);
    command.stderr(Stdio::piped());
    command
}

fn check(writer: Child) {
    let output = writer.wait_with_output().expect("an end");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

/// Rows of each table of the lake as a whole.
fn rows_of_tables(lake: &Path) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for (path, count) in files(lake) {
        let name = path.strip_prefix(lake).expect("inside");
        let name = name.display().to_string();
        let table = name.split("/date=").next().unwrap_or_default().to_owned();
        *rows.entry(table).or_default() += count;
    }
    rows
}

/// All files of tables, with their rows. Every file with a name is complete.
fn files(lake: &Path) -> Vec<(PathBuf, i64)> {
    let mut found = Vec::new();
    let mut folders = vec![lake.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "parquet") {
                let file = std::fs::File::open(&path).expect("a file of the lake");
                let metadata = ArrowReaderMetadata::load(&file, Default::default());
                let metadata = metadata.expect("a complete file");
                let count = metadata.metadata().file_metadata().num_rows();
                found.push((path, count));
            }
        }
    }
    found
}

/// Rows of each table and trace.
fn rows(lake: &Path) -> BTreeMap<(String, String), i64> {
    let mut rows = BTreeMap::new();
    for (path, count) in files(lake) {
        let name = path.strip_prefix(lake).expect("inside");
        let name = name.display().to_string();
        let (table, file) = name.split_once("/date=").expect("a partition");
        let trace = file.rsplit('/').next().unwrap_or_default();
        let trace = trace.split('-').next().unwrap_or_default();
        let former = rows.insert((table.to_owned(), trace.to_owned()), count);
        assert_eq!(former, None, "{name} is there twice");
    }
    rows
}

fn expected(traces: &[PathBuf]) -> BTreeMap<(String, String), i64> {
    let mut rows = BTreeMap::new();
    for (number, path) in traces.iter().enumerate() {
        rows.insert(("traces".to_owned(), number.to_string()), 1);
        let trace = Directory::open(path).expect("a trace");
        for (name, table) in trace.tables().filter(|(_, table)| table.rows() > 0) {
            rows.insert((name.to_owned(), number.to_string()), table.rows() as i64);
        }
    }
    rows
}

#[test]
fn two_writers_at_once_publish_each_trace_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let traces = traces(folder.path());
    let expected = expected(&traces);
    for round in 0..5 {
        let lake = folder.path().join(format!("lake{round}"));
        let mut reversed = traces.clone();
        reversed.reverse();
        let writers = [&traces, &reversed, &traces].map(|traces| publish(traces, &lake).spawn());
        for writer in writers {
            check(writer.expect("a writer"));
        }
        assert_eq!(rows(&lake), expected);
        let staging = lake.join("_perfquet/staging");
        let left = std::fs::read_dir(staging).expect("a directory").count();
        assert_eq!(left, 0);
    }
    // A stopped writer does not hold up the others.
    let lake = folder.path().join("lake");
    let mut writer = publish(&traces, &lake).spawn().expect("a writer");
    std::thread::sleep(Duration::from_millis(20));
    writer.kill().expect("a signal");
    writer.wait().expect("an end");
    check(publish(&traces, &lake).spawn().expect("a writer"));
    assert_eq!(rows(&lake), expected);
}

#[test]
fn compactions_and_writers_at_once_keep_each_row() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let traces = traces(folder.path());
    let mut expected = BTreeMap::new();
    for ((table, _), count) in self::expected(&traces) {
        *expected.entry(table).or_default() += count;
    }
    let compact = |lake: &Path| {
        let mut command = Command::new(CONVERT);
        command.args(["--to", "lake", "--compact", "-o"]).arg(lake);
        command.stderr(Stdio::piped()).spawn().expect("a process")
    };
    for round in 0..4 {
        let lake = folder.path().join(format!("lake{round}"));
        check(publish(&traces[..2], &lake).spawn().expect("a writer"));
        let first = compact(&lake);
        let writer = publish(&traces, &lake).spawn().expect("a writer");
        let mut killed = compact(&lake);
        let second = compact(&lake);
        std::thread::sleep(Duration::from_millis(5 * round));
        killed.kill().expect("a signal");
        killed.wait().expect("an end");
        [first, writer, second].into_iter().for_each(check);
        check(publish(&traces, &lake).spawn().expect("a writer"));
        assert_eq!(rows_of_tables(&lake), expected, "round {round}");
        check(compact(&lake));
        assert_eq!(rows_of_tables(&lake), expected, "round {round}, compacted");
        let lake = perfquet_trace::lake::Lake::open(&lake).expect("a lake");
        assert_eq!(lake.records().expect("records").len(), traces.len());
    }
}

/// Exports of a trace of a lake are those of the trace that was published, byte by byte.
#[test]
fn traces_of_a_lake_are_exported_as_themselves() {
    let folder = tempfile::tempdir().expect("a directory");
    let traces = traces(folder.path());
    let lake = folder.path().join("a lake");
    let mut publish = Command::new(CONVERT);
    publish.args(&traces).args(["--to", "lake", "-q", "-o"]);
    // Hosts are those of the recordings.
    publish.arg(&lake).args(["--partition", "date=2026-11-22"]);
    check(
        publish
            .stderr(Stdio::piped())
            .spawn()
            .expect("the converter"),
    );
    let mut compact = Command::new(CONVERT);
    compact.args(["--to", "lake", "--compact", "-q", "-o"]);
    let status = compact.arg(&lake).status();
    assert!(status.expect("the converter").success());
    let exported = |input: &str, format: &str| {
        let output = folder.path().join("out");
        let _ = std::fs::remove_dir_all(&output);
        let _ = std::fs::remove_file(&output);
        let mut command = Command::new(CONVERT);
        command.args([input, "--to", format, "-o"]).arg(&output);
        let result = command.output().expect("the converter");
        let said = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(result.status.success(), "{input}: {format}: {said}");
        let mut contents: Vec<(PathBuf, Vec<u8>)> = match output.is_dir() {
            true => {
                let entries = std::fs::read_dir(&output).expect("a directory");
                let paths = entries.map(|entry| entry.expect("an entry").path());
                paths
                    .map(|path| (path.clone(), std::fs::read(&path).expect("a file")))
                    .collect()
            }
            false => vec![(output.clone(), std::fs::read(&output).expect("a file"))],
        };
        contents.sort();
        (contents, said)
    };
    for trace in &traces {
        let name = trace.file_stem().expect("a name").to_string_lossy();
        let address = format!("lake:{}?trace={name}&date=2026-11-*", lake.display());
        let trace = trace.display().to_string();
        for format in [
            "perfetto",
            "firefox",
            "pprof",
            "speedscope",
            "chrome",
            "ctf",
            "folded",
            "perf-script",
            "csv",
            "csv=exact",
        ] {
            let (expected, of_trace) = exported(&trace, format);
            let (found, of_lake) = exported(&address, format);
            assert_eq!(of_lake, of_trace, "{format}");
            assert!(found == expected, "{name}: {format} differs");
        }
    }
}

/// What cannot be exported from a lake is named, and nothing is written.
#[test]
fn inputs_that_are_no_trace_of_a_lake_are_rejected() {
    let folder = tempfile::tempdir().expect("a directory");
    let traces = traces(folder.path());
    let lake = folder.path().join("lake");
    check(publish(&traces, &lake).spawn().expect("the converter"));
    let lake = lake.display().to_string();
    let rejected = |arguments: &[&str], expected: &str| {
        let mut command = Command::new(CONVERT);
        command.args(arguments).current_dir(folder.path());
        let output = command.output().expect("the converter");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    };
    let all = format!("lake:{lake}");
    let one = format!("lake:{lake}?trace=1");
    rejected(&[&all, "--to", "folded"], "expected one trace, found 4");
    rejected(&[&one], "already traces of a lake");
    rejected(&[&one, "--symbols", "/"], "already traces of a lake");
    rejected(&[&one, "--to", "pqtz"], "expected a trace directory");
    rejected(
        &[&one, "--to", "lake", "-o", "other"],
        "expected a trace directory",
    );
    rejected(
        &[&one, "0.pqt", "--to", "folded"],
        "a lake cannot be combined with other inputs",
    );
    rejected(&[&one, "--to", "folded", "--compact"], "expected --to lake");
    rejected(&[&one, "--to", "csv", "-f", "-o", &lake], "not overwritten");
    let other = |query: &str| format!("{all}?{query}");
    rejected(
        &[&other("rack=1"), "--to", "folded"],
        "unknown key \"rack\": expected host, date or trace",
    );
    rejected(
        &[&other("host=x"), "--to", "folded"],
        "no matching traces among 4 traces; hosts: h001; dates: 2026-11-22",
    );
    rejected(
        &["lake:nowhere", "--to", "ddl=duckdb"],
        "nowhere: no such lake",
    );
    rejected(
        &["lake:", "--to", "folded"],
        "expected the directory of a lake",
    );
}
