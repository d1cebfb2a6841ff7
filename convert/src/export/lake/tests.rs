//! Lakes: rows and types, repeated and interrupted publishing, hostile names and links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use perfquet_events::Input;
use perfquet_import::{ImportOptions, import};
use perfquet_trace::lake::Lake;
use perfquet_trace::reopen;
use perfquet_trace::store::{Directory, FILE_NAME};

use super::files::{KILL_IN, STEPS_LEFT};
use super::{Options, Partition, Summary};

/// A directory with traces and a lake.
pub(super) struct Room {
    folder: tempfile::TempDir,
}

fn publish(
    traces: &[&Path],
    lake: &Path,
    partition: Option<&Partition>,
    retain: Option<std::time::Duration>,
    compact: bool,
) -> anyhow::Result<Summary> {
    let options = Options {
        partition,
        retain,
        compact,
        summaries: false,
    };
    super::publish(traces, lake, options)
}

impl Room {
    pub(super) fn new() -> Room {
        Room {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn lake(&self) -> PathBuf {
        self.folder.path().join("lake")
    }

    /// Imports a golden file of the readers.
    pub(super) fn trace(&self, name: &str, golden: &str) -> PathBuf {
        let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/readers/src");
        self.trace_of(name, vec![Input::open(&readers.join(golden)).unwrap()])
    }

    fn trace_of(&self, name: &str, inputs: Vec<Input>) -> PathBuf {
        let trace = self.folder.path().join(name);
        import(inputs, &trace, ImportOptions::default()).unwrap();
        trace
    }

    fn publish(&self, traces: &[&Path]) -> anyhow::Result<Summary> {
        self.publish_as(traces, "date=2026-11-22,host=h001")
    }

    fn publish_as(&self, traces: &[&Path], partition: &str) -> anyhow::Result<Summary> {
        let partition = Partition::parse(partition).unwrap();
        publish(traces, &self.lake(), Some(&partition), None, false)
    }

    /// The files of the lake below the tables, and their rows. Every file can be read.
    pub(super) fn files(&self) -> BTreeMap<String, i64> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.lake()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "parquet") {
                    let file = std::fs::File::open(&path).unwrap();
                    let metadata = ArrowReaderMetadata::load(&file, Default::default()).unwrap();
                    let name = path.strip_prefix(self.lake()).unwrap();
                    let rows = metadata.metadata().file_metadata().num_rows();
                    files.insert(name.display().to_string(), rows);
                }
            }
        }
        files
    }

    /// Rows of each table.
    pub(super) fn rows(&self) -> BTreeMap<String, i64> {
        let mut rows = BTreeMap::new();
        for (name, count) in self.files() {
            let table = name.split("/date=").next().unwrap().to_owned();
            *rows.entry(table).or_default() += count;
        }
        rows
    }
}

/// Rows of each table of traces, and one for each trace.
fn expected(traces: &[&Path]) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::from([("traces".to_owned(), traces.len() as i64)]);
    for trace in traces {
        let trace = Directory::open(trace).unwrap();
        for (name, table) in trace.tables().filter(|(_, table)| table.rows() > 0) {
            *rows.entry(name.to_owned()).or_default() += table.rows() as i64;
        }
    }
    rows
}

/// The traces that readers find in a lake; each has all rows of the trace with that name, in its types.
fn opened(lake: &Path, traces: &[&Path]) -> Vec<String> {
    let lake = Lake::open(lake).unwrap();
    let mut names = Vec::new();
    for record in lake.records().unwrap() {
        let found = lake.trace(&record).unwrap().expect("a manifest");
        let is_named = |trace: &&&Path| trace.file_stem().unwrap() == record.name.as_str();
        let trace = traces.iter().find(is_named).expect("a trace of that name");
        same_rows(&found, &Directory::open(trace).unwrap());
        names.push(record.name);
    }
    names
}

/// Lists whose items may be NULL: whether they may depends on the writer.
fn plain(array: &ArrayRef) -> ArrayRef {
    let DataType::List(item) = array.data_type() else {
        return Arc::clone(array);
    };
    let item = Arc::new(Field::new("element", item.data_type().clone(), true));
    arrow::compute::cast(array, &DataType::List(item)).unwrap()
}

/// Compares all tables.
fn same_rows(found: &Directory, trace: &Directory) {
    let names = |trace: &Directory| -> Vec<String> {
        trace.tables().map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(names(found), names(trace));
    for name in names(trace) {
        let forms = [found, trace].map(|of| {
            let forms = of.forms(&name).into_iter().filter(|form| form.rows() > 0);
            let rows = forms.map(|form| {
                let batches: Vec<_> = of.read_form(&form).unwrap().map(Result::unwrap).collect();
                let rows = arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap();
                let columns = rows
                    .schema()
                    .fields()
                    .iter()
                    .map(|f| f.name().clone())
                    .collect();
                (columns, rows.columns().iter().map(plain).collect())
            });
            rows.collect::<Vec<(Vec<String>, Vec<ArrayRef>)>>()
        });
        assert!(forms[0] == forms[1], "{name}");
        // Reads also a subset of the columns, in another order, and a range of time.
        let entry = trace.table(&name).unwrap();
        // More rows are read of a file that also has those of other parts.
        let Some((first, last)) = entry.time_range().filter(|_| entry.parts.len() == 1) else {
            continue;
        };
        let range = (first, first + (last - first) / 2);
        let some = [found, trace].map(|of| {
            let forms = of.forms(&name).into_iter().filter(|form| form.rows() > 0);
            let rows = forms.map(|form| {
                let names: Vec<&str> = form.columns.iter().rev().map(|c| c.name.as_str()).collect();
                let (rows, _) = of.read_form_between(&form, Some(&names), range).unwrap();
                let columns = |batch: RecordBatch| batch.columns().iter().map(plain).collect();
                rows.map(|batch| columns(batch.unwrap())).collect()
            });
            rows.collect::<Vec<Vec<Vec<ArrayRef>>>>()
        });
        assert!(some[0] == some[1], "{name}: some columns");
    }
}

pub(super) const PERF: &str = "perf_data/golden/user-regs.data";
pub(super) const FTRACE: &str = "trace_dat/golden/graph-events.dat";

#[test]
fn published_files_share_no_bytes_and_have_no_unsigned_type() {
    let room = Room::new();
    let inputs = [
        ("a.pqt", PERF),
        ("b.pqt", FTRACE),
        ("c.pqt", "trace_dat/golden/stacktrace.dat"),
        // Their tables open_files and counts are not in every trace.
        ("d.pqt", "perf_data/golden/open-files.data"),
        ("e.pqt", "perf_data/golden/stat.data"),
    ];
    let traces = inputs.map(|(name, golden)| room.trace(name, golden));
    let traces: Vec<&Path> = traces.iter().map(PathBuf::as_path).collect();
    let shares = |path: &Path| {
        let file = std::fs::File::open(path).unwrap();
        let metadata = ArrowReaderMetadata::load(&file, Default::default()).unwrap();
        let schema = format!("{}", metadata.schema());
        let mut shared = 0;
        for group in metadata.metadata().row_groups() {
            let mut ranges: Vec<_> = group.columns().iter().map(|c| c.byte_range()).collect();
            ranges.sort();
            shared += ranges
                .windows(2)
                .filter(|two| two[0].0 + two[0].1 > two[1].0)
                .count();
        }
        (shared, schema.contains("UInt"))
    };
    // The files of a trace do share chunks: otherwise this test would show nothing.
    let mut in_traces = 0;
    for trace in &traces {
        let trace = Directory::open(trace).unwrap();
        let tables: Vec<_> = trace.tables().map(|(name, _)| name.to_owned()).collect();
        for path in tables.iter().flat_map(|name| trace.parts(name)) {
            in_traces += shares(&path).0;
        }
    }
    assert!(in_traces > 0);
    room.publish(&traces).unwrap();
    assert_eq!(opened(&room.lake(), &traces), ["a", "b", "c", "d", "e"]);
    for name in room.files().keys() {
        assert_eq!(shares(&room.lake().join(name)), (0, false), "{name}");
    }
    assert_eq!(room.rows(), expected(&traces));
    for table in ["counts", "open_files"] {
        assert!(room.rows().contains_key(table), "{table}");
    }
}

#[test]
fn rows_have_the_values_of_the_trace_and_its_name() {
    let room = Room::new();
    let trace = room.trace("it's [a].pqt", FTRACE);
    room.publish_as(&[&trace], "date=2026-11-22").unwrap();
    let trace = Directory::open(&trace).unwrap();
    let host = "h/../ü";
    let other = room.trace("b.pqt", PERF);
    room.publish_as(&[&other], &format!("date=2026-11-23,host={host}"))
        .expect_err("the keys of a lake are those of its first trace");
    let mut ids = BTreeSet::new();
    for name in room
        .files()
        .keys()
        .filter(|name| !name.starts_with("traces/"))
    {
        let table = name.split("/date=").next().unwrap();
        let file = std::fs::File::open(room.lake().join(name)).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let lake: Vec<_> = reader
            .build()
            .unwrap()
            .map(|batch| batch.unwrap())
            .collect();
        let stored: Vec<_> = trace
            .read(table)
            .unwrap()
            .map(|batch| batch.unwrap())
            .collect();
        let lake = arrow::compute::concat_batches(&lake[0].schema(), &lake).unwrap();
        let stored = arrow::compute::concat_batches(&stored[0].schema(), &stored).unwrap();
        assert_eq!(lake.num_rows(), stored.num_rows(), "{name}");
        for (field, column) in stored.schema().fields().iter().zip(stored.columns()) {
            let published = lake.column_by_name(field.name()).unwrap();
            for row in 0..stored.num_rows() {
                use super::super::values::Cell;
                let text = |array| Cell::at(array, row).text().into_owned();
                let (a, b) = (text(column.as_ref()), text(published.as_ref()));
                let signed = a.parse::<u64>().map(|bits| bits.cast_signed().to_string());
                assert!(
                    a == b || signed.is_ok_and(|bits| bits == b) || a.contains('['),
                    "{name} {field}: {a} became {b}"
                );
            }
        }
        ids.insert(lake["trace"].as_string::<i32>().value(0).to_owned());
        // Without the key in the path, it is a column of the file.
        assert!(lake.column_by_name("host").is_some());
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert!(ids.first().unwrap().starts_with("it_s__a_-"), "{ids:?}");
}

#[test]
fn forms_of_an_event_are_those_of_the_trace() {
    let room = Room::new();
    // An event that was defined again, with other fields.
    let inputs = [(1, "first=1"), (2, "second=text other=3")].map(|(second, fields)| {
        let text = format!("# tracer: nop\n#\n a-1 [000] ..... {second}.000000: own: {fields}\n");
        Input::from_bytes(&format!("{second}.txt"), text.as_bytes()).unwrap()
    });
    let both = room.trace_of("both.pqt", inputs.into());
    let trace = Directory::open(&both).unwrap();
    let forms = trace.tables().map(|(name, _)| trace.forms(name).len());
    assert!(forms.max() > Some(1));
    room.publish(&[&both]).unwrap();
    assert_eq!(opened(&room.lake(), &[&both]), ["both"]);
}

#[test]
fn publishing_again_changes_nothing_and_symbolized_traces_are_replaced() {
    let room = Room::new();
    let a = room.trace("a.pqt", PERF);
    let b = room.trace("b.pqt", FTRACE);
    let first = room.publish(&[&a, &b]).unwrap();
    assert_eq!((first.published, first.unchanged), (2, 0));
    let files = room.files();
    let again = room.publish(&[&a, &b, &a]).unwrap();
    assert_eq!((again.published, again.unchanged), (0, 3));
    assert_eq!(room.files(), files);
    reopen::name_again(&a, Default::default()).unwrap();
    let third = room.publish(&[&a, &b]).unwrap();
    assert_eq!((third.published, third.unchanged), (1, 1));
    assert_eq!(room.files(), files);
    // A file that somebody removed is written again.
    std::fs::remove_file(room.lake().join(files.keys().next().unwrap())).unwrap();
    assert_eq!(room.publish(&[&a, &b]).unwrap().published, 1);
    // A trace that moves to another date is there once.
    room.publish_as(&[&a], "date=2026-11-23,host=h002").unwrap();
    assert_eq!(room.rows(), expected(&[&a, &b]));
    // Another recording of the same name is another trace.
    std::fs::create_dir(room.folder.path().join("other")).unwrap();
    let other = room.trace("other/a.pqt", FTRACE);
    room.publish(&[&other]).unwrap();
    assert_eq!(room.rows(), expected(&[&a, &b, &other]));
}

#[test]
fn a_change_that_stops_at_any_step_is_completed_by_the_next() {
    let room = Room::new();
    let a = room.trace("a.pqt", PERF);
    let b = room.trace("b.pqt", FTRACE);
    let mut stopped = 0;
    for steps in 0.. {
        let _ = std::fs::remove_dir_all(room.lake());
        room.publish(&[&a]).unwrap();
        let before = room.files();
        STEPS_LEFT.set(Some(steps));
        let done = room.publish(&[&b]);
        // The same trace at another place: its former files are removed.
        let done = done.and_then(|_| room.publish_as(&[&a], "date=2026-11-24,host=h002"));
        STEPS_LEFT.set(None);
        // Whatever has its name is complete, and whatever can be opened has all rows.
        let seen = room.files();
        opened(&room.lake(), &[&a, &b]);
        if steps == 0 {
            assert_eq!(seen, before);
        }
        if done.is_ok() {
            break;
        }
        stopped += 1;
        match steps % 2 {
            0 => room.publish(&[&b]).map(|_| ()).unwrap(),
            // Also if nothing is published.
            _ => {
                publish(&[], &room.lake(), None, None, false).unwrap();
                assert!(!room.lake().join("_perfquet/pending.json").exists());
                // A decided change has all of its files.
                let records = room.lake().join("_perfquet/traces");
                if std::fs::read_dir(records).unwrap().count() == 2 {
                    assert_eq!(room.rows(), expected(&[&a, &b]), "{steps} steps");
                }
            }
        }
        room.publish(&[&b]).unwrap();
        room.publish_as(&[&a], "date=2026-11-24,host=h002").unwrap();
        assert_eq!(
            room.rows(),
            expected(&[&a, &b]),
            "stopped after {steps} steps"
        );
        assert_eq!(opened(&room.lake(), &[&a, &b]), ["a", "b"]);
        let staging = room.lake().join("_perfquet/staging");
        assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
        assert!(!room.lake().join("_perfquet/pending.json").exists());
    }
    assert!(stopped > 20, "{stopped}");
}

/// Runs a test alone in another process, which may be killed. `words` are for its variable. Returns whether it ended by itself.
pub(super) fn ends_alone(test: &str, variable: &str, words: &str) -> bool {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env(variable, words)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert!(status.success() || signal == Some(9), "{status}");
    status.success()
}

/// Names the lake, the traces and the step for the process that is killed.
const KILLED: &str = "PERFQUET_TEST_KILLED_WRITER";

/// Publishes `b`, and `a` at another place, in a process that is killed before this step. Returns whether it ended before.
fn killed_writer(room: &Room, [a, b]: [&Path; 2], step: usize) -> bool {
    let words = [room.lake().as_path(), a, b].map(|path| path.display().to_string());
    let test = "export::lake::tests::a_writer_that_is_killed_before_any_operation_is_completed";
    ends_alone(test, KILLED, &format!("{step}\n{}", words.join("\n")))
}

fn write_until_killed(words: &str) {
    let words: Vec<&str> = words.lines().collect();
    let [step, lake, a, b] = words.as_slice() else {
        panic!("{words:?}");
    };
    KILL_IN.set(Some(step.parse().unwrap()));
    for (trace, host) in [(b, "h001"), (a, "h002")] {
        let partition = Partition::parse(&format!("date=2026-11-22,host={host}")).unwrap();
        publish(
            &[Path::new(trace)],
            Path::new(lake),
            Some(&partition),
            None,
            false,
        )
        .unwrap();
    }
}

#[test]
fn a_writer_that_is_killed_before_any_operation_is_completed() {
    if let Ok(words) = std::env::var(KILLED) {
        return write_until_killed(&words);
    }
    let room = Room::new();
    let a = room.trace("a.pqt", PERF);
    let b = room.trace("b.pqt", FTRACE);
    let expected = expected(&[&a, &b]);
    let mut killed = 0;
    for step in 0.. {
        let _ = std::fs::remove_dir_all(room.lake());
        room.publish(&[&a]).unwrap();
        if killed_writer(&room, [&a, &b], step) {
            break;
        }
        killed += 1;
        // Each file with a name is complete.
        for (name, rows) in room.files() {
            assert!(rows > 0, "{name}, killed before step {step}");
        }
        if step % 3 == 0 {
            // What completes it is killed, too.
            killed_writer(&room, [&a, &b], step / 3);
        }
        room.publish(&[&b]).unwrap();
        room.publish_as(&[&a], "date=2026-11-22,host=h002").unwrap();
        assert_eq!(room.rows(), expected, "killed before step {step}");
        let own = room.lake().join("_perfquet");
        assert_eq!(std::fs::read_dir(own.join("staging")).unwrap().count(), 0);
        assert!(!own.join("pending.json").exists());
    }
    assert!(killed >= 50, "{killed} steps");
}

#[test]
fn old_dates_are_removed_whole() {
    let room = Room::new();
    let a = room.trace("a.pqt", PERF);
    let b = room.trace("b.pqt", FTRACE);
    room.publish_as(&[&a], "date=2001-01-01,host=h001").unwrap();
    let future = Partition::parse("date=9000-01-01,host=h001").unwrap();
    let days = std::time::Duration::from_secs(30 * 86_400);
    let summary = publish(&[&b], &room.lake(), Some(&future), Some(days), false).unwrap();
    assert_eq!((summary.published, summary.removed), (1, 1));
    assert_eq!(room.rows(), expected(&[&b]));
    assert!(!room.lake().join("samples/date=2001-01-01").exists());
    let summary = publish(&[], &room.lake(), None, Some(days), false).unwrap();
    assert_eq!((summary.published, summary.removed), (0, 0));
}

#[test]
fn nothing_is_written_outside_of_a_lake() {
    let room = Room::new();
    let a = room.trace("a.pqt", PERF);
    let error = |room: &Room, partition: &str| {
        let error = room.publish_as(&[&a], partition).unwrap_err();
        format!("{error:#}")
    };
    // A directory with other files.
    std::fs::create_dir(room.lake()).unwrap();
    std::fs::write(room.lake().join("thesis.txt"), "keep").unwrap();
    let found = error(&room, "date=2026-11-22,host=h");
    assert!(
        found.contains("expected a lake or an empty directory"),
        "{found}"
    );
    std::fs::remove_file(room.lake().join("thesis.txt")).unwrap();
    // A host that climbs.
    room.publish_as(&[&a], "date=2026-11-22,host=../../../x")
        .unwrap();
    assert!(
        room.lake()
            .join("samples/date=2026-11-22/host=..%2F..%2F..%2Fx")
            .is_dir()
    );
    // A table that is a link.
    let outside = room.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::rename(room.lake().join("threads"), room.folder.path().join("gone")).unwrap();
    std::os::unix::fs::symlink(&outside, room.lake().join("threads")).unwrap();
    let found = error(&room, "date=2026-11-23,host=h");
    assert!(
        found.contains("expected no symbolic link in a lake"),
        "{found}"
    );
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    std::fs::remove_file(room.lake().join("threads")).unwrap();
    room.publish_as(&[&a], "date=2026-11-23,host=h").unwrap();
    assert_eq!(room.rows(), expected(&[&a]));
    // A change that somebody else wrote.
    let victim = room.folder.path().join("victim");
    std::fs::write(&victim, "keep").unwrap();
    let pending = room.lake().join("_perfquet/pending.json");
    for change in [
        r#"{"moves":[],"deletes":["../victim"],"records":[],"forget":[]}"#,
        r#"{"moves":[["../victim","samples/x"]],"deletes":[],"records":[],"forget":[]}"#,
        r#"{"moves":[],"deletes":[],"records":[],"forget":["../../../victim"]}"#,
        r#"{"moves":[],"deletes":["/etc/hostname"],"records":[],"forget":[]}"#,
    ] {
        std::fs::write(&pending, change).unwrap();
        let found = error(&room, "date=2026-11-23,host=h");
        assert!(
            found.contains("expected a path inside of the lake"),
            "{found}"
        );
        assert!(victim.exists());
    }
    std::fs::write(&pending, "{").unwrap();
    let found = error(&room, "date=2026-11-23,host=h");
    assert!(found.contains("damaged"), "{found}");
}

#[test]
fn host_and_date_are_those_of_the_recording_or_required() {
    let room = Room::new();
    let trace = room.trace("a.pqt", "folded/golden/dd.folded");
    let error = publish(&[&trace], &room.lake(), None, None, false).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("a.pqt: the date of the recording is unknown"),
        "{error}"
    );
    // 2026-11-22 23:59:59 and 100 s later.
    let manifest = trace.join(FILE_NAME);
    let text = std::fs::read_to_string(&manifest).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["facts"]["host"] = "box".into();
    json["facts"]["wall_offset"] = (20_780_i64 * 86_400_000_000_000 - 1).into();
    let write = |json: &serde_json::Value| {
        std::fs::write(&manifest, serde_json::to_vec(json).unwrap()).unwrap();
    };
    for table in json["tables"].as_object_mut().unwrap().values_mut() {
        for part in table["parts"].as_array_mut().unwrap() {
            part["time_min"] = 0.into();
            part["time_max"] = 5.into();
        }
    }
    write(&json);
    publish(&[&trace], &room.lake(), None, None, false).unwrap();
    let folder = "/date=2026-11-22/host=box/";
    assert!(
        room.files().keys().all(|name| name.contains(folder)),
        "{:?}",
        room.files()
    );
}

impl Room {
    fn compact(&self) -> anyhow::Result<Summary> {
        publish(&[], &self.lake(), None, None, true)
    }

    /// Traces of five recordings, with fields and tables that differ.
    fn five(&self) -> Vec<PathBuf> {
        let inputs = [
            ("a.pqt", PERF),
            ("b.pqt", FTRACE),
            ("c.pqt", "trace_dat/golden/events-v7.dat"),
            ("d.pqt", "trace_dat/golden/events-7.3.dat"),
            ("e.pqt", "perf_data/golden/stat.data"),
        ];
        inputs.map(|(name, golden)| self.trace(name, golden)).into()
    }
}

#[test]
fn compacted_lakes_have_the_same_rows_whatever_follows() {
    let room = Room::new();
    let traces = room.five();
    let traces: Vec<&Path> = traces.iter().map(PathBuf::as_path).collect();
    let names = ["a", "b", "c", "d", "e"];
    room.publish(&traces).unwrap();
    let before = room.files().len();
    let summary = room.compact().unwrap();
    assert_eq!(
        (summary.published, summary.unmerged, summary.busy),
        (0, 0, 0)
    );
    // One file of each table.
    let tables = room.rows().len();
    assert_eq!(room.files().len(), tables);
    let alone = before as u64 - summary.merged;
    assert_eq!(alone + summary.merged_into, tables as u64);
    assert_eq!(room.rows(), expected(&traces));
    assert_eq!(opened(&room.lake(), &traces), names);
    // Again, nothing is left to do, and nothing is published twice.
    let files = room.files();
    assert_eq!(room.compact().unwrap().merged, 0);
    let again = room.publish(&traces).unwrap();
    assert_eq!((again.published, again.unchanged), (0, 5));
    assert_eq!(room.files(), files);
    // A trace that was symbolized since leaves the common files, and so does one that moves.
    reopen::name_again(traces[0], Default::default()).unwrap();
    assert_eq!(room.publish(&traces).unwrap().published, 1);
    assert_eq!(room.rows(), expected(&traces));
    assert_eq!(opened(&room.lake(), &traces), names);
    room.publish_as(&[traces[3]], "date=2026-11-23,host=h002")
        .unwrap();
    assert_eq!(room.rows(), expected(&traces));
    assert_eq!(opened(&room.lake(), &traces), names);
    // Merged files are merged with new ones.
    assert!(room.compact().unwrap().merged > 0);
    assert_eq!(room.rows(), expected(&traces));
    assert_eq!(opened(&room.lake(), &traces), names);
    // A file that somebody removed is written again, of all traces that had rows in it.
    let common = room
        .files()
        .into_keys()
        .find(|name| name.contains("compact."));
    std::fs::remove_file(room.lake().join(common.unwrap())).unwrap();
    room.publish_as(&[traces[3]], "date=2026-11-23,host=h002")
        .unwrap();
}

#[test]
fn old_traces_leave_common_files() {
    let room = Room::new();
    let a = room.trace("a.pqt", PERF);
    let b = room.trace("b.pqt", FTRACE);
    // The date is not part of the path.
    for (trace, date) in [(&a, 0_i64), (&b, 40_000)] {
        let manifest = trace.join(FILE_NAME);
        let text = std::fs::read_to_string(&manifest).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let first = json["tables"].as_object().unwrap().values();
        let parts = first.flat_map(|table| table["parts"].as_array().unwrap().clone());
        let first = parts
            .filter_map(|part| part["time_min"].as_i64())
            .min()
            .unwrap();
        json["facts"]["wall_offset"] = (date * 86_400_000_000_000 - first).into();
        std::fs::write(&manifest, serde_json::to_vec(&json).unwrap()).unwrap();
    }
    room.publish_as(&[&a, &b], "host=h001").unwrap();
    assert!(room.compact().unwrap().merged > 0);
    let days = std::time::Duration::from_secs(30 * 86_400);
    let summary = publish(&[], &room.lake(), None, Some(days), false).unwrap();
    assert_eq!(summary.removed, 1);
    assert_eq!(opened(&room.lake(), &[&b]), ["b"]);
    let rows = |rows: BTreeMap<String, i64>| rows.values().sum::<i64>();
    assert_eq!(rows(room.rows()), rows(expected(&[&b])));
}

#[test]
fn a_compaction_that_stops_at_any_step_is_completed_by_the_next() {
    let room = Room::new();
    let traces = room.five();
    let traces: Vec<&Path> = traces[..3].iter().map(PathBuf::as_path).collect();
    let expected = expected(&traces);
    let mut stopped = 0;
    for steps in 0.. {
        let _ = std::fs::remove_dir_all(room.lake());
        room.publish(&traces).unwrap();
        STEPS_LEFT.set(Some(steps));
        let done = room.compact();
        STEPS_LEFT.set(None);
        // Each trace has all of its rows, or is not opened.
        opened(&room.lake(), &traces);
        if done.is_ok() {
            break;
        }
        stopped += 1;
        match steps % 2 {
            0 => drop(publish(&[], &room.lake(), None, None, false).unwrap()),
            _ => drop(room.publish(&traces).unwrap()),
        }
        assert_eq!(room.rows(), expected, "stopped after {steps} steps");
        assert_eq!(opened(&room.lake(), &traces), ["a", "b", "c"]);
        let staging = room.lake().join("_perfquet/staging");
        assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
    }
    assert!(stopped > 50, "{stopped}");
}

#[test]
fn a_killed_compaction_leaves_nothing_double_and_nothing_lost() {
    if let Ok(words) = std::env::var(KILLED_COMPACTION) {
        let (step, lake) = words.split_once('\n').unwrap();
        KILL_IN.set(Some(step.parse().unwrap()));
        publish(&[], Path::new(lake), None, None, true).unwrap();
        return;
    }
    let room = Room::new();
    let traces = room.five();
    let traces: Vec<&Path> = traces[..3].iter().map(PathBuf::as_path).collect();
    let expected = expected(&traces);
    let mut killed = 0;
    for step in 0.. {
        let _ = std::fs::remove_dir_all(room.lake());
        room.publish(&traces).unwrap();
        let test =
            "export::lake::tests::a_killed_compaction_leaves_nothing_double_and_nothing_lost";
        let words = format!("{step}\n{}", room.lake().display());
        let has_ended = ends_alone(test, KILLED_COMPACTION, &words);
        opened(&room.lake(), &traces);
        room.publish(&traces).unwrap();
        assert_eq!(room.rows(), expected, "killed before step {step}");
        assert_eq!(opened(&room.lake(), &traces), ["a", "b", "c"]);
        if has_ended {
            break;
        }
        killed += 1;
    }
    assert!(killed > 30, "{killed}");
}

/// Names the step and the lake for the process that is killed.
const KILLED_COMPACTION: &str = "PERFQUET_TEST_KILLED_COMPACTION";
