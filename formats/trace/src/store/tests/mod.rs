//! The store as a whole: written data is read back.

use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;

use super::*;
use crate::tables;

mod hostile;
mod model;
mod pages;
mod replace;
mod roundtrip;

fn write(path: &Path, options: WriterOptions, rows: i64) -> Summary {
    let mut writer = Writer::create(path, options).unwrap();
    let losses = writer.add_table(tables::losses::schema()).unwrap();
    for row in 0..rows {
        let row = tables::losses::Row {
            time: Some(row),
            cpu: (row % 3 > 0).then_some(row as i32 % 4),
            event: Some(b"sched_switch"),
            count: Some(row * 2),
            reason: b"ring full",
        };
        row.push(writer.rows(losses));
        writer.end_row(losses).unwrap();
    }
    writer.finish(Facts::default()).unwrap()
}

#[test]
fn a_trace_has_every_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let summary = write(&path, WriterOptions::default(), 5);
    assert_eq!(summary.rows["losses"], 5);
    let trace = Directory::open(&path).unwrap();
    assert_eq!(trace.manifest().state, State::Complete);
    for schema in tables::all() {
        let table = trace.table(&schema.name).unwrap();
        assert_eq!(table.schema(&schema.name), schema);
        assert_eq!(trace.parts(&schema.name).len(), 1);
        let rows: usize = trace
            .read(&schema.name)
            .unwrap()
            .map(|batch| batch.unwrap().num_rows())
            .sum();
        assert_eq!(rows as u64, table.rows());
    }
    assert_eq!(trace.table("losses").unwrap().time_range(), Some((0, 4)));
    let batch = trace.read("losses").unwrap().next().unwrap().unwrap();
    let counts = batch["count"].as_primitive::<Int64Type>();
    assert_eq!(counts.values(), &[0, 2, 4, 6, 8]);
    assert_eq!(batch["cpu"].null_count(), 2);
}

#[test]
fn files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    fn check(path: &Path) {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{path:?}");
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                check(&entry.unwrap().path());
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    write(&path, WriterOptions::default(), 1);
    check(&path);
}
