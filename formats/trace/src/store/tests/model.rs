//! Tables as plain values: written through the store, read back through parquet's own reader.

use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};

use crate::store::*;

/// A value, or NULL.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Truth(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(Vec<u8>),
    SignedList(Vec<i64>),
    UnsignedList(Vec<u64>),
    TextList(Vec<Vec<u8>>),
}

pub(super) const KINDS: [ColumnType; 17] = [
    ColumnType::Bool,
    ColumnType::Int8,
    ColumnType::Int16,
    ColumnType::Int32,
    ColumnType::Int64,
    ColumnType::UInt8,
    ColumnType::UInt16,
    ColumnType::UInt32,
    ColumnType::UInt64,
    ColumnType::Bits,
    ColumnType::Float64,
    ColumnType::Text,
    ColumnType::Binary,
    ColumnType::Int64List,
    ColumnType::UInt64List,
    ColumnType::BitsList,
    ColumnType::TextList,
];

pub(super) fn column(
    name: &str,
    kind: ColumnType,
    nullable: bool,
    encoding: Encoding,
) -> ColumnSchema {
    ColumnSchema {
        name: name.to_owned(),
        kind,
        nullable,
        unit: String::new(),
        doc: "Of a test.".to_owned(),
        encoding,
    }
}

pub(super) fn table(name: &str, columns: Vec<ColumnSchema>) -> TableSchema {
    TableSchema {
        name: name.to_owned(),
        doc: "Of a test.".to_owned(),
        columns,
        sort: Vec::new(),
    }
}

pub(super) fn push(column: &mut Column, cell: &Cell) {
    match cell {
        Cell::Null => column.push_null(),
        Cell::Truth(value) => column.push_bool(*value),
        Cell::Signed(value) => column.push_i64(*value),
        Cell::Unsigned(value) => column.push_u64(*value),
        Cell::Float(value) => column.push_f64(*value),
        Cell::Text(value) => column.push_bytes(value),
        Cell::SignedList(values) => column.push_i64_list(values),
        Cell::UnsignedList(values) => column.push_u64_list(values),
        Cell::TextList(values) => column.push_text_list(values.iter().map(Vec::as_slice)),
    }
}

/// Rows that become columns on the encoder's thread.
#[derive(Debug)]
struct Later(Vec<Vec<Cell>>);

impl Fill for Later {
    fn fill(self: Box<Self>, rows: &mut Rows) -> usize {
        for row in &self.0 {
            for (column, cell) in rows.columns_mut().iter_mut().zip(row) {
                push(column, cell);
            }
        }
        self.0.len()
    }
}

/// Writes a trace with one table in addition to the fixed ones.
pub(super) fn write(path: &Path, options: WriterOptions, schema: TableSchema, rows: &[Vec<Cell>]) {
    write_mixed(path, options, schema, rows, &[rows.len()]);
}

/// Writes the rows alternately as columns and as rows that become columns later, in pieces of these sizes.
pub(super) fn write_mixed(
    path: &Path,
    options: WriterOptions,
    schema: TableSchema,
    mut rows: &[Vec<Cell>],
    pieces: &[usize],
) {
    let mut writer = Writer::create(path, options).unwrap();
    let id = writer.add_table(schema).unwrap();
    for (turn, &length) in pieces.iter().cycle().enumerate() {
        if rows.is_empty() {
            break;
        }
        let (piece, rest) = rows.split_at(length.min(rows.len()));
        rows = rest;
        if turn % 2 == 1 {
            writer
                .fill(id, Box::new(Later(piece.to_vec())), 8 * length)
                .unwrap();
            continue;
        }
        for row in piece {
            for (column, cell) in writer.rows(id).columns_mut().iter_mut().zip(row) {
                push(column, cell);
            }
            writer.end_row(id).unwrap();
        }
    }
    writer.finish(Facts::default()).unwrap();
}

/// All rows of a table.
pub(super) fn read(path: &Path, name: &str) -> Vec<Vec<Cell>> {
    let trace = Directory::open(path).unwrap();
    let mut rows = Vec::new();
    for batch in trace.read(name).unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            rows.push(
                batch
                    .columns()
                    .iter()
                    .map(|array| cell(array, row))
                    .collect(),
            );
        }
    }
    rows
}

fn cell(array: &ArrayRef, row: usize) -> Cell {
    if array.is_null(row) {
        return Cell::Null;
    }
    let value = array.slice(row, 1);
    let signed = || cast(&value, &DataType::Int64).unwrap();
    let unsigned = || cast(&value, &DataType::UInt64).unwrap();
    match array.data_type() {
        DataType::Boolean => Cell::Truth(value.as_boolean().value(0)),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Cell::Signed(signed().as_primitive::<Int64Type>().value(0))
        }
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            Cell::Unsigned(unsigned().as_primitive::<UInt64Type>().value(0))
        }
        DataType::Float64 => Cell::Float(value.as_primitive::<Float64Type>().value(0)),
        DataType::Utf8 => Cell::Text(value.as_string::<i32>().value(0).into()),
        DataType::Binary => Cell::Text(value.as_binary::<i32>().value(0).into()),
        DataType::List(item) => {
            let items = value.as_list::<i32>().value(0);
            match item.data_type() {
                DataType::Int64 => {
                    Cell::SignedList(items.as_primitive::<Int64Type>().values().to_vec())
                }
                DataType::UInt64 => {
                    Cell::UnsignedList(items.as_primitive::<UInt64Type>().values().to_vec())
                }
                DataType::Utf8 => {
                    let texts = items.as_string::<i32>();
                    Cell::TextList((0..texts.len()).map(|at| texts.value(at).into()).collect())
                }
                other => panic!("a list of {other}"),
            }
        }
        other => panic!("a column of {other}"),
    }
}

/// Writes the rows and expects to read the same.
pub(super) fn check(options: &WriterOptions, columns: Vec<ColumnSchema>, rows: &[Vec<Cell>]) {
    check_mixed(options, columns, rows, &[rows.len().max(1)]);
}

/// The same, in pieces.
pub(super) fn check_mixed(
    options: &WriterOptions,
    columns: Vec<ColumnSchema>,
    rows: &[Vec<Cell>],
    pieces: &[usize],
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let options = WriterOptions {
        sync: false,
        ..options.clone()
    };
    write_mixed(
        &path,
        options,
        table("events/test/table", columns),
        rows,
        pieces,
    );
    let found = read(&path, "events/test/table");
    assert_eq!(found.len(), rows.len());
    for (index, (found, row)) in found.iter().zip(rows).enumerate() {
        // NaN is not equal to itself.
        let same = found == row || format!("{found:?}") == format!("{row:?}");
        assert!(same, "row {index}: expected {row:?}, found {found:?}");
    }
}
