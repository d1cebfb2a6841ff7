//! Replacing tables of a complete trace, as when frames are symbolized later.

use std::path::Path;

use super::model::*;
use crate::store::*;

const NAME: &str = "events/test/numbers";

fn schema(name: &str) -> TableSchema {
    let numbers = column("number", ColumnType::Int64, false, Encoding::Delta);
    table(name, vec![numbers])
}

fn push_numbers(writer: &mut Writer, name: &str, numbers: std::ops::Range<i64>) {
    let id = writer.add_table(schema(name)).unwrap();
    for number in numbers {
        writer.rows(id).column(0).push_i64(number);
        writer.end_row(id).unwrap();
    }
}

fn numbers(path: &Path, name: &str) -> Vec<i64> {
    let number = |row: &Vec<Cell>| match row[..] {
        [Cell::Signed(number)] => number,
        ref other => panic!("{other:?}"),
    };
    read(path, name).iter().map(number).collect()
}

fn options() -> WriterOptions {
    WriterOptions {
        rows_per_page: 10,
        rows_per_group: 10,
        rows_per_part: 20,
        sync: false,
        ..WriterOptions::default()
    }
}

fn parts(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path.join(NAME)).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_table_is_replaced_as_a_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let mut writer = Writer::create(&path, options()).unwrap();
    push_numbers(&mut writer, NAME, 0..50);
    push_numbers(&mut writer, "events/test/others", 0..5);
    let facts = Facts {
        host: Some("box".to_owned()),
        ..Facts::default()
    };
    writer.finish(facts.clone()).unwrap();
    assert_eq!(
        parts(&path),
        ["00000.parquet", "00001.parquet", "00002.parquet"]
    );

    // Abandoned in the middle: nothing has changed.
    let mut writer = Writer::open(&path, options()).unwrap();
    push_numbers(&mut writer, NAME, 100..150);
    drop(writer);
    assert_eq!(numbers(&path, NAME), Vec::from_iter(0..50));
    assert_eq!(parts(&path).len(), 3);
    let trace = Directory::open(&path).unwrap();
    assert_eq!(trace.manifest().state, State::Complete);

    let mut writer = Writer::open(&path, options()).unwrap();
    push_numbers(&mut writer, NAME, 200..230);
    let summary = writer.finish_replacing().unwrap();
    assert_eq!(summary.rows[NAME], 30);
    assert_eq!(numbers(&path, NAME), Vec::from_iter(200..230));
    assert_eq!(numbers(&path, "events/test/others"), Vec::from_iter(0..5));
    assert_eq!(parts(&path), ["00003.parquet", "00004.parquet"]);
    let trace = Directory::open(&path).unwrap();
    assert_eq!(trace.manifest().facts, facts);
    assert_eq!(trace.manifest().state, State::Complete);
}
