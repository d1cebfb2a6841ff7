//! Generates `formats/trace/src/tables.rs` from `schemas/*.toml`: the only place where a column is declared.
//!
//! ```toml
//! name = "losses"
//! doc = "Events known to be missing."
//! sort = ["time"]
//! [[column]]
//! name = "count"
//! type = "int64"
//! nullable = true
//! doc = "Number of lost events; NULL if unknown."
//! ```
//! `common = true` prepends the columns of common.toml. Each table becomes a module with its name, its
//! schema and a `Row` with a `push` method.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::root;

/// The file written by [`run`].
pub const OUTPUT: &str = "formats/trace/src/tables.rs";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    doc: String,
    sort: Vec<String>,
    #[serde(default)]
    common: bool,
    /// The table exists only in traces that have rows for it.
    #[serde(default)]
    optional: bool,
    #[serde(default, rename = "column")]
    columns: Vec<Column>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Column {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    doc: String,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    nullable: bool,
    /// Row IDs, of this table or another, which restart in every trace.
    #[serde(default)]
    id: bool,
    encoding: Option<String>,
    /// Name in traces of version 1.
    was: Option<String>,
}

/// `cargo xtask schemas`.
pub fn run() -> Result<()> {
    let path = root().join(OUTPUT);
    std::fs::write(&path, generate(root())?)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The text of `formats/trace/src/tables.rs`, formatted by rustfmt.
pub fn generate(root: &Path) -> Result<String> {
    let tables = read_all(&root.join("schemas"))?;
    let mut text = String::from(HEAD);
    let common = tables
        .iter()
        .find(|table| table.name == "common")
        .context("schemas/common.toml is missing")?;
    for table in &tables {
        check(table, common)?;
        write_table(&mut text, table, common)?;
    }
    write_all(&mut text, &tables)?;
    format(&text)
}

fn read_all(folder: &Path) -> Result<Vec<Table>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path)?;
        let table: Table = toml::from_str(&text)?;
        ensure!(
            path.file_stem().is_some_and(|stem| *stem == *table.name),
            "the table {} is in a file with another name",
            table.name
        );
        Ok(table)
    };
    let place = |path: &PathBuf| format!("cannot read {}", path.display());
    paths
        .iter()
        .map(|path| read(path).with_context(|| place(path)))
        .collect()
}

fn check(table: &Table, common: &Table) -> Result<()> {
    let columns = columns(table, common);
    for (index, column) in columns.iter().enumerate() {
        let place = || format!("schemas/{}.toml: column {}", table.name, column.name);
        column_type(&column.kind).with_context(place)?;
        encoding(column).with_context(place)?;
        // Names that look like IDs, but do not refer to rows.
        let foreign = ["build_id", "stream_id"].contains(&column.name.as_str());
        let is_id = column.name.ends_with("_id") && !foreign || column.doc.contains("an id into");
        ensure!(
            column.id || !is_id,
            "{}: `id = true` is missing: several traces opened together would share these numbers",
            place()
        );
        ensure!(
            columns[..index]
                .iter()
                .all(|other| other.name != column.name),
            "{}: declared twice",
            place()
        );
    }
    for sort in &table.sort {
        ensure!(
            columns.iter().any(|column| column.name == *sort),
            "schemas/{}.toml: sort names the column {sort}, which it does not have",
            table.name
        );
    }
    Ok(())
}

/// All columns of a table, the common ones first.
fn columns(table: &Table, common: &Table) -> Vec<Column> {
    let front: &[Column] = if table.common { &common.columns } else { &[] };
    front.iter().chain(&table.columns).cloned().collect()
}

fn write_table(text: &mut String, table: &Table, common: &Table) -> Result<()> {
    let columns = columns(table, common);
    writeln!(text, "/// {}", rustdoc(&table.doc))?;
    writeln!(text, "pub mod {} {{", table.name)?;
    writeln!(text, "use super::*;\n")?;
    if table.name == "common" {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        writeln!(text, "/// Names of the columns, in order.")?;
        writeln!(
            text,
            "pub const NAMES: [&str; {}] = {names:?};\n",
            names.len()
        )?;
        writeln!(text, "/// The columns, in order.")?;
        writeln!(
            text,
            "pub fn columns() -> Vec<ColumnSchema> {{\n{}\n}}",
            column_list(&columns)?
        )?;
    } else {
        writeln!(text, "/// Name of the table.")?;
        writeln!(text, "pub const NAME: &str = {:?};\n", table.name)?;
        writeln!(text, "/// Declaration of the table.")?;
        writeln!(text, "pub fn schema() -> TableSchema {{\nTableSchema {{")?;
        writeln!(text, "name: NAME.to_owned(),")?;
        writeln!(text, "doc: {:?}.to_owned(),", table.doc)?;
        if table.common {
            writeln!(
                text,
                "columns: [common::columns(), {}].concat(),",
                column_list(&table.columns)?
            )?;
        } else {
            writeln!(text, "columns: {},", column_list(&columns)?)?;
        }
        let sort: Vec<String> = table
            .sort
            .iter()
            .map(|name| format!("{name:?}.to_owned()"))
            .collect();
        writeln!(text, "sort: vec![{}],\n}}\n}}", sort.join(", "))?;
    }
    write_row(text, table, &columns)?;
    writeln!(text, "}}\n")?;
    Ok(())
}

fn column_list(columns: &[Column]) -> Result<String> {
    let mut text = String::from("vec![");
    for column in columns {
        write!(
            text,
            "column({:?}, {}, {}, {:?}, {}, {:?}),",
            column.name,
            column_type(&column.kind)?.0,
            column.nullable,
            column.unit,
            encoding(column)?,
            column.doc
        )?;
    }
    text.push(']');
    Ok(text)
}

/// A description as a doc comment: brackets are no links.
fn rustdoc(text: &str) -> String {
    text.replace('[', "\\[").replace(']', "\\]")
}

/// `Row`, with its `push`: column by column, in order.
fn write_row(text: &mut String, table: &Table, columns: &[Column]) -> Result<()> {
    let borrows = columns
        .iter()
        .any(|column| rust_type(column).is_ok_and(|kind| kind.contains("'a")));
    let (declared, used) = if borrows { ("<'a>", "<'_>") } else { ("", "") };
    writeln!(text, "\n/// A row to be written.")?;
    writeln!(text, "#[derive(Debug, Clone, Copy, Default)]")?;
    writeln!(text, "pub struct Row{declared} {{")?;
    for column in columns {
        writeln!(text, "/// {}", rustdoc(&column.doc))?;
        writeln!(text, "pub {}: {},", column.name, rust_type(column)?)?;
    }
    // `to_`: a column may have the name of any other variable in the function.
    let names: Vec<String> = columns
        .iter()
        .map(|column| format!("to_{}", column.name))
        .collect();
    let names = names.join(", ");
    let (place, bound) = if table.name == "common" {
        let place = "Pushes the values to the first columns of an event table.";
        let bound = format!(
            "let Some(([{names}], _)) = rows.columns_mut().split_first_chunk_mut::<{}>()",
            columns.len()
        );
        (place, bound)
    } else {
        let place =
            "Pushes the values to the columns of this table; `Writer::end_row` ends the row.";
        (place, format!("let [{names}] = rows.columns_mut()"))
    };
    writeln!(text, "}}\n\nimpl Row{used} {{")?;
    writeln!(text, "/// {place}\n#[inline]")?;
    writeln!(text, "pub fn push(&self, rows: &mut Rows) {{")?;
    writeln!(text, "{bound} else {{")?;
    writeln!(
        text,
        "debug_assert!(false, \"rows of another table than {}\");\nreturn;\n}};",
        table.name
    )?;
    for column in columns {
        let (_, push) = column_type(&column.kind)?;
        let name = &column.name;
        let value = |place: &str| push.replace("VALUE", place);
        if column.nullable {
            writeln!(text, "match self.{name} {{")?;
            writeln!(text, "Some(value) => to_{name}.{},", value("value"))?;
            writeln!(text, "None => to_{name}.push_null(),\n}}")?;
        } else {
            writeln!(text, "to_{name}.{};", value(&format!("self.{name}")))?;
        }
    }
    writeln!(text, "}}\n}}")?;
    Ok(())
}

fn write_all(text: &mut String, tables: &[Table]) -> Result<()> {
    writeln!(text, "/// The tables that every trace has.")?;
    writeln!(text, "pub fn all() -> Vec<TableSchema> {{\nvec![")?;
    let fixed = tables.iter().filter(|table| table.name != "common");
    for table in fixed.clone().filter(|table| !table.optional) {
        writeln!(text, "{}::schema(),", table.name)?;
    }
    writeln!(text, "]\n}}\n")?;
    writeln!(
        text,
        "/// The tables with declared columns: those that every trace has, and those of traces with rows for them."
    )?;
    writeln!(text, "pub fn declared() -> Vec<TableSchema> {{")?;
    writeln!(text, "let mut tables = all();\ntables.extend([")?;
    for table in fixed.filter(|table| table.optional) {
        writeln!(text, "{}::schema(),", table.name)?;
    }
    writeln!(text, "]);\ntables\n}}\n")?;
    write_ids(text, tables)?;
    write_former_names(text, tables)
}

/// The columns with IDs.
fn write_ids(text: &mut String, tables: &[Table]) -> Result<()> {
    writeln!(
        text,
        "/// The columns of a table that hold row IDs, of this or another table. IDs restart in every trace."
    )?;
    writeln!(
        text,
        "pub fn ids(table: &str) -> &'static [&'static str] {{"
    )?;
    writeln!(text, "match table {{")?;
    let common = tables.iter().find(|table| table.name == "common");
    let common = common.map_or(&[][..], |table| &table.columns);
    for table in tables {
        let front = if table.common { common } else { &[] };
        let ids = front
            .iter()
            .chain(&table.columns)
            .filter(|column| column.id);
        let ids: Vec<String> = ids.map(|column| format!("{:?}", column.name)).collect();
        let pattern = match table.name.as_str() {
            "common" => "event if event.starts_with(\"events/\")".to_owned(),
            name => format!("{name}::NAME"),
        };
        if !ids.is_empty() {
            writeln!(text, "{pattern} => &[{}],", ids.join(", "))?;
        }
    }
    writeln!(text, "_ => &[],\n}}\n}}")?;
    Ok(())
}

/// The columns with another name in traces of version 1.
fn write_former_names(text: &mut String, tables: &[Table]) -> Result<()> {
    writeln!(
        text,
        "/// The columns of a table that had another name in version 1 of the format: that name and today's."
    )?;
    writeln!(
        text,
        "pub fn former_names(table: &str) -> &'static [(&'static str, &'static str)] {{"
    )?;
    writeln!(text, "match table {{")?;
    for table in tables {
        let renamed = table.columns.iter().filter_map(|column| {
            let was = column.was.as_ref()?;
            Some(format!("({was:?}, {:?})", column.name))
        });
        let renamed: Vec<String> = renamed.collect();
        if !renamed.is_empty() {
            writeln!(text, "{}::NAME => &[{}],", table.name, renamed.join(", "))?;
        }
    }
    writeln!(text, "_ => &[],\n}}\n}}")?;
    Ok(())
}

/// The variant of `ColumnType`, and the call that pushes VALUE to such a column.
fn column_type(kind: &str) -> Result<(&'static str, &'static str)> {
    Ok(match kind {
        "bool" => ("ColumnType::Bool", "push_bool(VALUE)"),
        "int8" => ("ColumnType::Int8", "push_i64(i64::from(VALUE))"),
        "int16" => ("ColumnType::Int16", "push_i64(i64::from(VALUE))"),
        "int32" => ("ColumnType::Int32", "push_i64(i64::from(VALUE))"),
        "int64" => ("ColumnType::Int64", "push_i64(VALUE)"),
        "uint8" => ("ColumnType::UInt8", "push_u64(u64::from(VALUE))"),
        "uint16" => ("ColumnType::UInt16", "push_u64(u64::from(VALUE))"),
        "uint32" => ("ColumnType::UInt32", "push_u64(u64::from(VALUE))"),
        "uint64" => ("ColumnType::UInt64", "push_u64(VALUE)"),
        "bits" => ("ColumnType::Bits", "push_u64(VALUE)"),
        "float64" => ("ColumnType::Float64", "push_f64(VALUE)"),
        "text" => ("ColumnType::Text", "push_bytes(VALUE)"),
        "binary" => ("ColumnType::Binary", "push_bytes(VALUE)"),
        "list<int64>" => ("ColumnType::Int64List", "push_i64_list(VALUE)"),
        "list<uint64>" => ("ColumnType::UInt64List", "push_u64_list(VALUE)"),
        "list<bits>" => ("ColumnType::BitsList", "push_u64_list(VALUE)"),
        "list<text>" => (
            "ColumnType::TextList",
            "push_text_list(VALUE.iter().copied())",
        ),
        _ => bail!("{kind:?} is no type; one is int64, uint64, float64, text, list<text>, …"),
    })
}

fn encoding(column: &Column) -> Result<&'static str> {
    Ok(match column.encoding.as_deref() {
        None | Some("dictionary") => "Encoding::Dictionary",
        Some("delta") => "Encoding::Delta",
        Some("plain") => "Encoding::Plain",
        Some(other) => bail!("{other:?} is no encoding; one is dictionary, delta or plain"),
    })
}

fn rust_type(column: &Column) -> Result<String> {
    let kind = match column.kind.as_str() {
        "bool" => "bool",
        "int8" => "i8",
        "int16" => "i16",
        "int32" => "i32",
        "int64" => "i64",
        "uint8" => "u8",
        "uint16" => "u16",
        "uint32" => "u32",
        "uint64" | "bits" => "u64",
        "float64" => "f64",
        "text" | "binary" => "&'a [u8]",
        "list<int64>" => "&'a [i64]",
        "list<uint64>" | "list<bits>" => "&'a [u64]",
        "list<text>" => "&'a [&'a [u8]]",
        other => bail!("{other:?} is no type"),
    };
    Ok(if column.nullable {
        format!("Option<{kind}>")
    } else {
        kind.to_owned()
    })
}

/// Runs the text through rustfmt, so that the file passes `cargo fmt --check`.
fn format(text: &str) -> Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run rustfmt (hint: rustup component add rustfmt)")?;
    // Dropped after writing, so that rustfmt sees the end.
    let mut input = rustfmt.stdin.take().context("rustfmt has no input")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    let output = rustfmt.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

const HEAD: &str = r#"//! Generated from schemas/*.toml by cargo xtask schemas: the fixed tables, their columns and their rows.
//!
//! ```text
//! losses::Row { time: Some(5), count: Some(2), reason: b"ring full", ..Default::default() }.push(writer.rows(losses));
//! ```
//! Strings are raw bytes; the store replaces invalid UTF-8.

use crate::store::{ColumnSchema, ColumnType, Encoding, Rows, TableSchema};

fn column(
    name: &str,
    kind: ColumnType,
    nullable: bool,
    unit: &str,
    encoding: Encoding,
    doc: &str,
) -> ColumnSchema {
    ColumnSchema {
        name: name.to_owned(),
        kind,
        nullable,
        unit: unit.to_owned(),
        doc: doc.to_owned(),
        encoding,
    }
}

"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn check_refused(toml: &str, expected: &str) {
        let table: Table = toml::from_str(toml).unwrap();
        let common = Table {
            name: "common".to_owned(),
            doc: String::new(),
            sort: Vec::new(),
            common: false,
            optional: false,
            columns: Vec::new(),
        };
        let refused = check(&table, &common).unwrap_err();
        assert!(format!("{refused:#}").contains(expected), "{refused:#}");
    }

    #[test]
    fn rejects_invalid_declarations() {
        let head = "name = 'x'\ndoc = ''\nsort = ['a']\n";
        let column = |rest: &str| format!("{head}[[column]]\nname = 'a'\ndoc = ''\n{rest}\n");
        check_refused(&column("type = 'int128'"), "\"int128\" is no type");
        check_refused(
            &column("type = 'text'\nencoding = 'zigzag'"),
            "\"zigzag\" is no encoding",
        );
        check_refused(head, "sort names the column a");
        let twice = column("type = 'text'\n[[column]]\nname = 'a'\ndoc = ''\ntype = 'text'");
        check_refused(&twice, "declared twice");
    }

    #[test]
    fn committed_file_is_fresh() {
        let root = root();
        let committed = std::fs::read_to_string(root.join(OUTPUT)).unwrap();
        assert!(
            committed == generate(root).unwrap(),
            "{OUTPUT} is stale; hint: cargo xtask schemas"
        );
    }
}
