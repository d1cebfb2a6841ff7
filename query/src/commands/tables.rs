//! `tables`: lists tables and describes their columns.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Schema};
use clap::{ArgMatches, Args};
use perfquet::failure::Misuse;
use perfquet::sql::names::quoted;
use perfquet::tables::catalog;
use perfquet::{Session, Trace, TraceTable, VIEWS, View, ViewColumn};
use perfquet_trace::store::{ColumnSchema, TableSchema};

use super::{Subcommand, arguments};
use perfquet_cli::{nearest, suggestion};

use crate::limits::Limits;
use crate::render::{self, with_display, with_spares};
use crate::settings::Output;

pub(super) const COMMAND: Subcommand = Subcommand::new::<Tables>("tables", run);

/// List the tables of a trace, or describe the columns of a table
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List all tables with their number of rows
  perfquet-query tables a.pqt
  # Describe the columns of an event table
  perfquet-query tables a.pqt sched_switch
  # List the standard tables of every trace
  perfquet-query tables
  # Describe the columns of a standard table
  perfquet-query tables samples")]
struct Tables {
    /// Trace directory, then a table [default: the standard tables]
    #[arg(value_name = "[TRACE] [TABLE]", num_args = 0..=2)]
    words: Vec<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

fn run(matches: &ArgMatches) -> Result<()> {
    let tables: Tables = arguments(matches)?;
    let format = tables.output.format;
    match tables.words.as_slice() {
        [] => render::batch(format, &fixed_tables()?),
        [table] if !looks_like_trace(table) => render::batch(format, &known_table(table)?),
        [trace] => {
            let session = Session::open(&[PathBuf::from(trace)], &tables.limits.options())?;
            render::batch(format, &list(&session)?)
        }
        [_, table, ..] if looks_like_trace(table) => bail!(Misuse(
            "expected TRACE and TABLE, found two traces\nhint: for several traces, use: perfquet-query sql TRACE...".to_owned()
        )),
        [trace, table, ..] => {
            let session = Session::open(&[PathBuf::from(trace)], &tables.limits.options())?;
            render::batch(format, &describe(&session, table)?)
        }
    }
}

fn looks_like_trace(word: &str) -> bool {
    word.contains(['/', '*', '?']) || word.ends_with(".pqt") || std::path::Path::new(word).exists()
}

/// Returns the declarations of the tables in every trace.
fn fixed() -> Vec<TableSchema> {
    perfquet_trace::tables::all()
}

/// The tables of every trace, and the views.
fn fixed_tables() -> Result<RecordBatch> {
    let tables = fixed();
    let tables = tables
        .iter()
        .map(|table| (table.name.clone(), table.doc.clone()));
    let views = VIEWS
        .iter()
        .map(|view| (view.usage(), view.about().to_owned()));
    let rows: Vec<(String, String)> = tables.chain(views).collect();
    described(RecordBatch::try_from_iter([
        ("table", text(rows.iter().map(|row| row.0.clone()))),
        ("doc", text(rows.iter().map(|row| row.1.clone()))),
    ])?)
}

/// Describes a table or view without a trace.
fn known_table(name: &str) -> Result<RecordBatch> {
    if let Some(view) = VIEWS.iter().find(|view| view.name == name) {
        return view_columns(Some(view), None);
    }
    let tables = fixed();
    if let Some(table) = tables.iter().find(|table| table.name == name) {
        return columns(table);
    }
    let views = VIEWS.iter().map(|view| view.name.as_str());
    let names: Vec<&str> = (tables.iter().map(|table| table.name.as_str()))
        .chain(views)
        .collect();
    let near = nearest(name, names);
    let hint = if near.is_empty() {
        "list them with: perfquet-query tables".to_owned()
    } else {
        suggestion(&near)
    };
    bail!("no standard table {name}\nhint: {hint}; for event tables: perfquet-query tables TRACE")
}

/// Lists the tables of all opened traces, then the views whose events were recorded.
pub(crate) fn list(session: &Session) -> Result<RecordBatch> {
    let mut names = std::collections::BTreeMap::new();
    for trace in session.traces().iter() {
        for table in &trace.tables {
            let entry = names
                .entry(&table.schema.name)
                .or_insert((&table.schema, 0, 0));
            entry.1 += table.rows();
            entry.2 += table.bytes();
        }
    }
    let mut rows: Vec<(String, Option<u64>, Option<u64>, String)> = names
        .into_values()
        .map(|(schema, rows, bytes)| {
            (
                sql_name(&schema.name),
                Some(rows),
                Some(bytes),
                schema.doc.clone(),
            )
        })
        .collect();
    let (mut available, mut other) = (Vec::new(), Vec::new());
    for view in session.views() {
        match session.has_events_of(view)? {
            true => available.push(view),
            false => other.push(view),
        }
    }
    if !other.is_empty() {
        let other: Vec<&str> = other.iter().map(|view| view.name.as_str()).collect();
        say!(
            "views of events that were not recorded: {}",
            other.join(", ")
        );
    }
    for view in available {
        rows.push((view.usage(), None, None, view.about().to_owned()));
    }
    rows.push((
        "trace_info".to_owned(),
        None,
        None,
        "Facts from the manifest, one per row.".to_owned(),
    ));
    let numbers = |values: Vec<Option<u64>>| Arc::new(UInt64Array::from(values)) as ArrayRef;
    described(RecordBatch::try_from_iter_with_nullable([
        ("table", text(rows.iter().map(|row| row.0.clone())), false),
        (
            "rows",
            numbers(rows.iter().map(|row| row.1).collect()),
            true,
        ),
        (
            "bytes",
            numbers(rows.iter().map(|row| row.2).collect()),
            true,
        ),
        ("doc", text(rows.iter().map(|row| row.3.clone())), false),
    ])?)
}

/// Returns the SQL name of a table: `sched.sched_switch` for `events/sched/sched_switch`.
fn sql_name(table: &str) -> String {
    match catalog::event_name(table) {
        Some((system, event)) => format!("{}.{}", quoted(system), quoted(event)),
        None => quoted(table),
    }
}

/// Describes the columns of a table or view, given by its SQL name.
pub(crate) fn describe(session: &Session, name: &str) -> Result<RecordBatch> {
    // Tables first: their columns have units and descriptions.
    if let Some(schema) = declared(session.traces(), name) {
        return columns(&schema);
    }
    let plain = name.replace('"', "");
    let view = session.views().iter().find(|view| view.name == plain);
    let view = view.map(AsRef::as_ref);
    match view {
        Some(called) if !called.arguments().is_empty() => view_columns(view, None),
        _ => view_columns(view, Some(&session.table(name)?.schema())),
    }
}

/// Describes a view by the head of its file, and by its columns if it is planned.
fn view_columns(view: Option<&View>, schema: Option<&Schema>) -> Result<RecordBatch> {
    let known = view.map(View::columns).unwrap_or_default();
    let arguments = view.map(View::arguments).unwrap_or_default();
    let mut rows: Vec<(ViewColumn, String)> = Vec::new();
    for argument in arguments {
        let doc = format!("Argument: {}", argument.doc);
        rows.push((
            ViewColumn {
                doc,
                ..argument.clone()
            },
            String::new(),
        ));
    }
    match schema {
        Some(schema) => {
            for field in schema.fields() {
                let described = known.iter().find(|column| column.name == *field.name());
                let plain = || ViewColumn {
                    name: field.name().clone(),
                    unit: String::new(),
                    doc: match field.name().as_str() {
                        "trace" => "Name of the trace.".to_owned(),
                        _ => String::new(),
                    },
                };
                let column = described.cloned().unwrap_or_else(plain);
                rows.push((column, arrow_name(field.data_type())));
            }
        }
        None => rows.extend(known.iter().map(|column| (column.clone(), String::new()))),
    }
    // Times are in nanoseconds, too; the name of the column marks them as times.
    let unit = |unit: &str| if unit == "time" { "ns" } else { unit }.to_owned();
    described(RecordBatch::try_from_iter([
        (
            "column",
            text(rows.iter().map(|(column, _)| column.name.clone())),
        ),
        ("type", text(rows.iter().map(|(_, kind)| kind.clone()))),
        (
            "unit",
            text(rows.iter().map(|(column, _)| unit(&column.unit))),
        ),
        (
            "doc",
            text(rows.iter().map(|(column, _)| column.doc.clone())),
        ),
    ])?)
}

/// As in schemas/*.toml.
fn arrow_name(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "bool".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary".to_owned(),
        DataType::List(item) => format!("list<{}>", arrow_name(item.data_type())),
        DataType::Decimal128(..) => "int128".to_owned(),
        DataType::Timestamp(..) => "timestamp".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

fn declared(traces: &[Trace], name: &str) -> Option<TableSchema> {
    let plain = name.replace('"', "");
    let tables = || {
        traces
            .iter()
            .flat_map(|trace| &trace.tables)
            .map(|table| table.schema.as_ref())
    };
    let full = |table: &&TableSchema| match catalog::event_name(&table.name) {
        Some((system, event)) => format!("{system}.{event}") == plain,
        None => table.name == plain,
    };
    let found = tables().find(full).or_else(|| {
        let mut short: Vec<_> = tables()
            .filter(|table| {
                catalog::event_name(&table.name).is_some_and(|(_, event)| event == plain)
            })
            .collect();
        short.dedup_by_key(|table| &table.name);
        (short.len() == 1).then(|| short[0])
    })?;
    let same: Vec<&TraceTable> = traces
        .iter()
        .filter_map(|trace| trace.table(&found.name))
        .collect();
    Some(TableSchema {
        columns: catalog::united_columns(&found.name, same.into_iter()),
        ..found.clone()
    })
}

fn columns(schema: &TableSchema) -> Result<RecordBatch> {
    let all = &schema.columns;
    let nullable: BooleanArray = all.iter().map(|column| Some(column.nullable)).collect();
    described(RecordBatch::try_from_iter([
        ("column", text(all.iter().map(|column| column.name.clone()))),
        ("type", text(all.iter().map(type_name))),
        ("unit", text(all.iter().map(|column| column.unit.clone()))),
        ("nullable", Arc::new(nullable) as ArrayRef),
        ("doc", text(all.iter().map(|column| column.doc.clone()))),
    ])?)
}

/// Marks what a narrow terminal omits, and the descriptions, which get more lines.
fn described(rows: RecordBatch) -> Result<RecordBatch> {
    let schema = with_spares(&rows.schema(), &["nullable", "bytes", "rows", "unit"]);
    let schema = with_display(&schema, "doc", "wrapped");
    Ok(RecordBatch::try_new(schema, rows.columns().to_vec())?)
}

/// As in schemas/*.toml.
fn type_name(column: &ColumnSchema) -> String {
    use perfquet_trace::store::ColumnType as T;
    match column.kind {
        T::Bool => "bool",
        T::Int8 => "int8",
        T::Int16 => "int16",
        T::Int32 => "int32",
        T::Int64 => "int64",
        T::UInt8 => "uint8",
        T::UInt16 => "uint16",
        T::UInt32 => "uint32",
        T::UInt64 | T::Bits => "uint64",
        T::Int128 => "int128",
        T::Float64 => "float64",
        T::Text => "text",
        T::Binary => "binary",
        T::Int64List => "list<int64>",
        T::UInt64List | T::BitsList => "list<uint64>",
        T::TextList => "list<text>",
    }
    .to_owned()
}

fn text(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}
