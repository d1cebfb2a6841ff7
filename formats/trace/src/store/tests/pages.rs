//! Pages and dictionaries say of a part what its rows do.

use std::collections::BTreeSet;

use super::*;
use crate::store::{Root, dictionary, integers_of_rows, time_pages};

/// Writes rows with times that repeat and step back, few CPUs, and many counts. Returns their times and CPUs.
fn written(path: &Path, with_nulls: bool) -> Vec<(Option<i64>, Option<i32>)> {
    let options = WriterOptions {
        rows_per_page: 64,
        rows_per_group: 500,
        rows_per_part: 1700,
        ..WriterOptions::default()
    };
    let mut writer = Writer::create(path, options).unwrap();
    let losses = writer.add_table(tables::losses::schema()).unwrap();
    let mut rows = Vec::new();
    for row in 0..4000_i64 {
        let time = (!with_nulls || row > 9).then_some(row / 3 * 7);
        let cpu = (!with_nulls || row % 5 > 0).then_some((row % 4) as i32 * 3);
        let of_row = tables::losses::Row {
            time,
            cpu,
            event: None,
            count: Some(row),
            reason: b"ring full",
        };
        of_row.push(writer.rows(losses));
        writer.end_row(losses).unwrap();
        rows.push((time, cpu));
    }
    writer.finish(Facts::default()).unwrap();
    rows
}

#[test]
fn pages_and_dictionaries_are_those_of_the_rows() {
    for with_nulls in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pqt");
        let rows = written(&path, with_nulls);
        let trace = Directory::open(&path).unwrap();
        let parts = &trace.table("losses").unwrap().parts;
        assert!(parts.len() > 1, "{}", parts.len());
        let (mut before, mut count) = (0, 0);
        for part in parts {
            let own = &rows[before..before + part.rows as usize];
            before += part.rows as usize;
            let pages = time_pages(trace.root(), part).unwrap().expect("an index");
            let mut next = 0;
            for page in &pages {
                assert_eq!(page.first_row, next);
                next += page.rows;
                let of_page = &own[page.first_row as usize..next as usize];
                let times = || of_page.iter().filter_map(|row| row.0);
                assert_eq!(page.times, times().min().zip(times().max()));
                assert_eq!(page.nulls, page.rows - times().count() as u64);
            }
            assert_eq!(next, part.rows);
            count += pages.len();
            // Some rows, of several pages and row groups.
            let ranges = [3..5, 60..700, 700..701, part.rows - 2..part.rows];
            let mut found = Vec::new();
            integers_of_rows(trace.root(), part, "time", &ranges, |times| {
                found.extend(times.iter());
            })
            .unwrap();
            let of_ranges = ranges.iter().cloned();
            let expected = of_ranges.flat_map(|rows| &own[rows.start as usize..rows.end as usize]);
            let expected: Vec<Option<i64>> = expected.map(|row| row.0).collect();
            assert_eq!(found, expected);
            let cpus = dictionary(trace.root(), part, "cpu").unwrap();
            match with_nulls {
                true => assert_eq!(cpus, None),
                false => assert_eq!(cpus, Some(BTreeSet::from([0, 3, 6, 9]))),
            }
            // 64-bit integers, and columns that do not exist.
            assert_eq!(dictionary(trace.root(), part, "count").unwrap(), None);
            assert_eq!(dictionary(trace.root(), part, "tid").unwrap(), None);
            assert!(integers_of_rows(trace.root(), part, "reason", &ranges, |_| {}).is_err());
        }
        assert!(count > 40, "{count} pages");
    }
}

#[test]
fn damaged_parts_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    written(&path, false);
    let trace = Directory::open(&path).unwrap();
    let part = &trace.table("losses").unwrap().parts[0];
    let (file, root): (_, &Root) = (path.join(&part.file), trace.root());
    let whole = std::fs::read(&file).unwrap();
    for place in (0..whole.len()).step_by(37) {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x55;
        std::fs::write(&file, &bytes).unwrap();
        // Whatever they answer, they do not panic.
        let _ = time_pages(root, part);
        let _ = dictionary(root, part, "cpu");
        let _ = integers_of_rows(root, part, "time", &[0..70, 200..300], |_| {});
    }
}
