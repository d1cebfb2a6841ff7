//! Parts read by DuckDB and pyarrow: rows, sums, bounds and hashes must be as expected.
//!
//! The test writes a trace with every type of column, NULLs and values at the limits of their types; a Python program
//! reads it with both engines and prints one line per column, which must equal the expected line.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use perfquet_tests::needs;
use perfquet_trace::store::{
    ColumnSchema, ColumnType, Encoding, Facts, Rows, TableSchema, Writer, WriterOptions,
};
use perfquet_trace::tables;

const READER: &str = include_str!("store.py");

/// Rows of the table with every type: more than a page and a row group.
const ROWS: usize = 30_000;

const KINDS: [ColumnType; 17] = [
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

/// Compared per column: rows, NULLs, and of its numbers (the length of a string, each item of a list) count, sum,
/// minimum and maximum.
#[derive(Default)]
struct Facets {
    rows: u64,
    nulls: u64,
    count: u64,
    sum: i128,
    low: Option<i128>,
    high: Option<i128>,
    /// Of strings, bytewise.
    first: Option<Vec<u8>>,
    last: Option<Vec<u8>>,
}

impl Facets {
    fn number(&mut self, value: i128) {
        self.count += 1;
        self.sum += value;
        self.low = Some(self.low.map_or(value, |low| low.min(value)));
        self.high = Some(self.high.map_or(value, |high| high.max(value)));
    }

    fn text(&mut self, value: &[u8]) {
        self.number(value.len() as i128);
        if self.first.as_deref().is_none_or(|first| value < first) {
            self.first = Some(value.to_vec());
        }
        if self.last.as_deref().is_none_or(|last| value > last) {
            self.last = Some(value.to_vec());
        }
    }

    fn line(&self, name: &str) -> String {
        let number = |value: Option<i128>| value.map_or("-".to_owned(), |value| value.to_string());
        let hex = |value: &Option<Vec<u8>>| match value {
            Some(value) => value.iter().fold(String::from("x"), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }),
            None => "-".to_owned(),
        };
        format!(
            "{name} rows={} nulls={} count={} sum={} low={} high={} first={} last={}",
            self.rows,
            self.nulls,
            self.count,
            self.sum,
            number(self.low),
            number(self.high),
            hex(&self.first),
            hex(&self.last),
        )
    }
}

fn column(kind: ColumnType, nullable: bool, encoding: Encoding) -> ColumnSchema {
    let name = kind.as_str().replace(['<', '>'], "_");
    ColumnSchema {
        name: format!("{name}_{nullable}_{encoding:?}").to_lowercase(),
        kind,
        nullable,
        unit: String::new(),
        doc: "Of a test.".to_owned(),
        encoding,
    }
}

/// Scattered bits, sometimes few distinct ones; sometimes the limits of the type.
fn bits(row: usize, column: usize) -> u64 {
    let noise = ((row * 31 + column) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match row % 11 {
        0 => u64::MAX,
        1 => 1 << 63,
        2 => i64::MAX as u64,
        3 => 0,
        // In the second half, too many distinct values for a dictionary.
        _ if row > ROWS / 2 => noise,
        _ => noise >> 58,
    }
}

/// Pushes a value of the column's type, and records it.
fn push(rows: &mut Rows, index: usize, schema: &ColumnSchema, row: usize, facets: &mut Facets) {
    let target = rows.column(index);
    facets.rows += 1;
    let bits = bits(row, index);
    if schema.nullable && row % 7 == index % 7 {
        facets.nulls += 1;
        return target.push_null();
    }
    let text = |bits: u64| format!("näme {:x}", bits % 5000);
    let mut signed = |target: &mut perfquet_trace::store::Column, value: i64| {
        facets.number(value.into());
        target.push_i64(value);
    };
    match schema.kind {
        ColumnType::Bool => {
            facets.number((bits & 1).into());
            target.push_bool(bits & 1 == 1);
        }
        ColumnType::Int8 => signed(target, i64::from(bits as i8)),
        ColumnType::Int16 => signed(target, i64::from(bits as i16)),
        ColumnType::Int32 => signed(target, i64::from(bits as i32)),
        ColumnType::Int64 | ColumnType::Int128 => signed(target, bits as i64),
        ColumnType::UInt8 | ColumnType::UInt16 | ColumnType::UInt32 | ColumnType::UInt64 => {
            let value = match schema.kind {
                ColumnType::UInt8 => u64::from(bits as u8),
                ColumnType::UInt16 => u64::from(bits as u16),
                ColumnType::UInt32 => u64::from(bits as u32),
                _ => bits,
            };
            facets.number(value.into());
            target.push_u64(value);
        }
        ColumnType::Bits => {
            // Others read them signed.
            facets.number((bits as i64).into());
            target.push_u64(bits);
        }
        ColumnType::Float64 => {
            // Integers, so that sums do not depend on their order.
            let value = (bits >> 40) as i64 - 5;
            facets.number(value.into());
            target.push_f64(value as f64);
        }
        ColumnType::Text | ColumnType::Binary => {
            facets.text(text(bits).as_bytes());
            target.push_bytes(text(bits).as_bytes());
        }
        ColumnType::Int64List => {
            let items = vec![bits as i64; row % 4];
            items.iter().for_each(|&item| facets.number(item.into()));
            target.push_i64_list(&items);
        }
        ColumnType::UInt64List => {
            let items = vec![bits; row % 4];
            items.iter().for_each(|&item| facets.number(item.into()));
            target.push_u64_list(&items);
        }
        ColumnType::BitsList => {
            let items = vec![bits; row % 4];
            let numbers = items.iter().map(|&item| item as i64);
            numbers.for_each(|item| facets.number(item.into()));
            target.push_u64_list(&items);
        }
        ColumnType::TextList => {
            let items: Vec<String> = (0..row % 4)
                .map(|at| text(bits.rotate_left(at as u32)))
                .collect();
            items.iter().for_each(|item| facets.text(item.as_bytes()));
            target.push_text_list(items.iter().map(|item| item.as_bytes()));
        }
    }
}

/// Writes a trace; returns the expected lines.
fn write(path: &Path) -> Vec<String> {
    let mut columns = Vec::new();
    for kind in KINDS {
        for nullable in [false, true] {
            for encoding in [Encoding::Dictionary, Encoding::Delta, Encoding::Plain] {
                columns.push(column(kind, nullable, encoding));
            }
        }
    }
    let schema = TableSchema {
        name: "events/test/every_type".to_owned(),
        doc: "Of a test.".to_owned(),
        columns,
        sort: Vec::new(),
    };
    let options = WriterOptions {
        rows_per_page: 4096,
        rows_per_group: 1 << 14,
        sync: false,
        ..Default::default()
    };
    let mut writer = Writer::create(path, options).unwrap();
    let table = writer.add_table(schema.clone()).unwrap();
    let mut facets: Vec<Facets> = schema.columns.iter().map(|_| Facets::default()).collect();
    for row in 0..ROWS {
        let rows = writer.rows(table);
        for (index, (column, facets)) in schema.columns.iter().zip(&mut facets).enumerate() {
            push(rows, index, column, row, facets);
        }
        writer.end_row(table).unwrap();
    }
    writer.finish(Facts::default()).unwrap();
    let mut lines = Vec::new();
    for (column, facets) in schema.columns.iter().zip(&facets) {
        lines.push(facets.line(&format!("every_type.{}", column.name)));
    }
    // The fixed tables exist and are empty.
    for table in tables::all() {
        for column in &table.columns {
            lines.push(Facets::default().line(&format!("{}.{}", table.name, column.name)));
        }
    }
    lines.sort();
    lines
}

fn check(module: &str) {
    let name = if module == "duckdb" { "DuckDB" } else { module };
    if !needs::met(&[&format!("{name} for Python")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pqt");
    let expected = write(&path);
    let output = Command::new("python3")
        .args(["-c", READER, module])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<&str> = text.lines().collect();
    found.sort_unstable();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "{module}");
    }
    assert_eq!(found.len(), expected.len(), "{module}: columns");
}

#[test]
fn duckdb_reads_every_table() {
    check("duckdb");
}

#[test]
fn pyarrow_reads_every_table() {
    check("pyarrow");
}
