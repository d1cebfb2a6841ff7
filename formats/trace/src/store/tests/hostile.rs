//! Foreign traces: invalid manifests and parts.

use std::path::Path;

use serde_json::{Value, json};

use super::*;

fn manifest(path: &Path) -> Value {
    let text = std::fs::read(path.join(FILE_NAME)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn refusal(path: &Path, manifest: &Value) -> String {
    std::fs::write(path.join(FILE_NAME), manifest.to_string()).unwrap();
    match Directory::open(path) {
        Ok(_) => panic!("opened: {manifest}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn invalid_manifests_are_rejected_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    write(&path, WriterOptions::default(), 5);
    let whole = manifest(&path);
    let check = |pointer: &str, value: Value, expected: &str| {
        let mut changed = whole.clone();
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        match changed.pointer_mut(parent).unwrap() {
            Value::Object(members) => {
                members.insert(last.to_owned(), value);
            }
            Value::Array(items) => match last.parse::<usize>() {
                Ok(index) => items[index] = value,
                Err(_) => items.push(value),
            },
            other => panic!("{other}"),
        }
        let refused = refusal(&path, &changed);
        assert!(refused.contains(expected), "{pointer}: {refused}");
    };
    let part = "/tables/losses/parts/0";
    let same = whole.pointer(part).unwrap().clone();
    for outside in ["../../etc/passwd", "/etc/passwd", "losses/../x", "", "."] {
        check(&format!("{part}/file"), json!(outside), "inside the trace");
        check("/tables/losses/folder", json!(outside), "inside the trace");
    }
    check(
        &format!("{part}/file"),
        json!("journal/perf.data"),
        "inside the trace",
    );
    check(
        &format!("{part}/file"),
        json!("calls/00000.parquet"),
        "expected it in",
    );
    check(
        &format!("{part}/time_max"),
        json!(-1),
        "first time before the last",
    );
    check(
        &format!("{part}/time_max"),
        Value::Null,
        "a first and a last time",
    );
    check(
        &format!("{part}/rows"),
        json!(u64::MAX),
        "at most 2^48 rows",
    );
    check(&format!("{part}/rows"), json!(-1), "expected a manifest");
    check("/tables/losses/parts/-", same, "found it twice");
    check(
        "/tables/losses/columns",
        json!([]),
        "expected columns, found none",
    );
    check("/tables/losses/sort", json!(["x"]), "sorted by");
    check("/tables/losses/folder", json!("calls"), "its own directory");
    let column = |name: &str, kind: &str| json!({ "name": name, "type": kind });
    let columns = "/tables/losses/columns/-";
    check(columns, column("time", "int64"), "two columns are named");
    check(columns, column("a b", "int64"), "letters, digits");
    check(columns, column("x", "int65"), "expected a manifest");
    check(
        "/tables/losses/columns/0",
        column("time", "text"),
        "expected int64, found text",
    );
    let own = |columns: Value| (format!("{part}/columns"), columns);
    for (columns, expected) in [
        (json!([column("x", "int64")]), "not in its table"),
        (
            json!([column("time", "text")]),
            "a type that fits into int64",
        ),
        (
            json!([column("time", "int128")]),
            "a type that fits into int64",
        ),
        (
            json!([column("cpu", "int8"), column("cpu", "int8")]),
            "two columns",
        ),
    ] {
        let (pointer, columns) = own(columns);
        check(&pointer, columns, expected);
    }
    check("/version", json!(3), "a newer perfquet");
    check("/state", json!("finished"), "expected a manifest");
    check(
        "/tables/a\u{1b}b",
        whole["tables"]["calls"].clone(),
        "expected a name",
    );
}

#[test]
fn a_manifest_that_is_not_a_regular_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    write(&path, WriterOptions::default(), 5);
    let manifest = path.join(FILE_NAME);
    let kept = folder.path().join("kept");
    std::fs::rename(&manifest, &kept).unwrap();
    for target in ["/dev/zero", kept.to_str().unwrap()] {
        std::os::unix::fs::symlink(target, &manifest).unwrap();
        let refused = Directory::open(&path).unwrap_err().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        std::fs::remove_file(&manifest).unwrap();
    }
    std::fs::create_dir(&manifest).unwrap();
    assert!(Directory::open(&path).is_err());
}

#[test]
fn invalid_parts_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    write(&path, WriterOptions::default(), 5);
    let part = path.join("losses/00000.parquet");
    let kept = folder.path().join("kept.parquet");
    std::fs::copy(&part, &kept).unwrap();
    let refusal = || match Directory::open(&path).unwrap().read("losses") {
        Ok(_) => panic!("read"),
        Err(error) => error.to_string(),
    };
    std::fs::remove_file(&part).unwrap();
    assert!(refusal().contains("No such file"), "{}", refusal());
    std::os::unix::fs::symlink(&kept, &part).unwrap();
    assert!(refusal().contains("found a symbolic link"), "{}", refusal());
    std::fs::remove_file(&part).unwrap();
    std::fs::write(&part, "PAR1").unwrap();
    assert!(refusal().contains("as in the manifest"), "{}", refusal());
    let size = std::fs::metadata(&kept).unwrap().len() as usize;
    std::fs::write(&part, vec![7; size]).unwrap();
    assert!(
        refusal().contains("expected a Parquet file"),
        "{}",
        refusal()
    );
    std::fs::remove_file(&part).unwrap();
    std::fs::remove_dir(path.join("losses")).unwrap();
    std::os::unix::fs::symlink(folder.path(), path.join("losses")).unwrap();
    std::fs::copy(&kept, folder.path().join("00000.parquet")).unwrap();
    assert!(refusal().contains("found a symbolic link"), "{}", refusal());
}

/// The parquet crate panics on negative offsets.
#[test]
fn chunks_outside_the_file_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    write(&path, WriterOptions::default(), 5);
    let part = path.join("losses/00000.parquet");
    let valid = directory::part_reader(&part, PartFile::open(&part).unwrap()).unwrap();
    let valid = valid.metadata().as_ref().clone();
    let bytes = std::fs::metadata(&part).unwrap().len();
    assert_eq!(check_chunks(&valid, bytes), Ok(()));
    for (offset, length) in [(-5, 10), (4, -10), (4, bytes as i64), (i64::MAX, i64::MAX)] {
        let mut group = valid.row_group(0).clone().into_builder();
        for chunk in group.take_columns() {
            let changed = chunk
                .into_builder()
                .set_dictionary_page_offset(Some(offset));
            let changed = changed.set_total_compressed_size(length);
            group = group.add_column_metadata(changed.build().unwrap());
        }
        let groups = vec![group.build().unwrap()];
        let damaged = valid.clone().into_builder().set_row_groups(groups).build();
        let message = check_chunks(&damaged, bytes).unwrap_err();
        assert!(message.contains("expected it inside"), "{message}");
    }
}

/// A write that fails, as on a full disk: no temporary file is left.
#[test]
fn a_failed_write_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let mut writer = Writer::create(&path, WriterOptions::default()).unwrap();
    let losses = writer.add_table(tables::losses::schema()).unwrap();
    let samples = writer.add_table(tables::samples::schema()).unwrap();
    for id in [losses, samples] {
        let rows = writer.rows(id);
        rows.columns_mut().iter_mut().for_each(Column::push_null);
        writer.end_row(id).unwrap();
    }
    // A directory has the name of a part, so renaming the part fails after its bytes are written.
    std::fs::create_dir_all(path.join("losses/00000.parquet/x")).unwrap();
    assert!(writer.finish(Facts::default()).is_err());
    let mut left = Vec::new();
    for table in std::fs::read_dir(&path).unwrap() {
        let table = table.unwrap().path();
        if table.is_dir() {
            let parts = std::fs::read_dir(table).unwrap();
            left.extend(parts.map(|part| part.unwrap().file_name().into_string().unwrap()));
        }
    }
    assert!(left.iter().all(|name| !name.ends_with(".tmp")), "{left:?}");
    let manifest = Directory::open(&path).unwrap().manifest().clone();
    assert_eq!(manifest.state, State::Recording);
    assert_eq!(
        manifest.tables["samples"].rows(),
        1,
        "the other part counts"
    );
}

/// The parquet crate panics if a page has fewer definition levels than declared (found by fuzzing).
#[test]
fn panic_of_the_parquet_reader_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    write(&path, WriterOptions::default(), 5);
    let damaged = include_bytes!("levels.parquet");
    std::fs::write(path.join("threads/00000.parquet"), damaged).unwrap();
    let mut changed = manifest(&path);
    changed["tables"]["threads"]["parts"][0]["bytes"] = json!(damaged.len());
    let text = serde_json::to_vec(&changed).unwrap();
    std::fs::write(path.join(FILE_NAME), text).unwrap();
    let trace = Directory::open(&path).unwrap();
    let mut rows = trace.read("threads").unwrap();
    let error = rows.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("out of bounds"), "{error}");
    assert!(rows.next().is_none());
}
