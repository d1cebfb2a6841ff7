//! Names of tables: which parts of which traces a name in SQL stands for.
//!
//! ```text
//! samples, stacks, …       the fixed tables, those of several traces one after the other
//! sched.sched_switch       an event table, by system and name
//! sched_switch             the same, where only one system has an event of that name
//! events, trace_info       views
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, MemTable, MemoryCatalogProvider, SchemaProvider, TableProvider,
};
use datafusion::error::{DataFusionError, Result};
use datafusion::scalar::ScalarValue;
use perfquet_formats::store::{ColumnSchema, ColumnType};

use crate::table::{PartFile, PartsTable, constant_column};
use crate::trace::{Trace, TraceTable};

/// Name of the catalog; nobody needs to write it.
pub(crate) const CATALOG: &str = "perfquet";
/// Schema of the fixed tables, the views and the unique events.
pub(crate) const MAIN: &str = "main";
/// Schema of what the views are made of.
pub(crate) const PARTS: &str = "parts_of_views";

/// All text is read as views into the pages. DataFusion 55 groups views column by column, dictionary arrays only
/// through its row format: 10 M rows by comm took 0.2 s of CPU as views, 0.8 s as dictionaries (the cast included).
const TEXT: DataType = DataType::Utf8View;

/// The columns that the view `events` takes from every event table.
const COMMON: &[&str] = &[
    "time",
    "cpu",
    "pid",
    "tid",
    "comm",
    "kernel_stack",
    "user_stack",
];

/// Makes the catalog of all tables of `traces`.
pub(crate) fn catalog(traces: &[Trace]) -> Result<Arc<dyn CatalogProvider>> {
    let catalog = MemoryCatalogProvider::new();
    let main = Arc::new(Tables::default());
    let mut schemas: BTreeMap<String, Arc<Tables>> = BTreeMap::new();
    let mut systems_of_event: BTreeMap<&str, u32> = BTreeMap::new();
    let by_name = by_name(traces);
    for (name, tables) in &by_name {
        let provider: Arc<dyn TableProvider> = Arc::new(parts_table(traces, tables));
        match event_name(name) {
            Some((system, event)) => {
                schemas
                    .entry(system.to_owned())
                    .or_default()
                    .add(event, provider);
                *systems_of_event.entry(event).or_default() += 1;
            }
            None => main.add(name, provider),
        }
    }
    for name in by_name.keys() {
        let Some((system, event)) = event_name(name) else {
            continue;
        };
        let taken = main.table_exist(event) || VIEWS.contains(&event);
        if systems_of_event.get(event) == Some(&1)
            && !taken
            && let Some(provider) = schemas.get(system).and_then(|schema| schema.get(event))
        {
            main.add(event, provider);
        }
    }
    main.add("trace_info", Arc::new(trace_info(traces)?));
    let parts = Tables::default();
    parts.add("event_rows", Arc::new(event_rows(traces)));
    parts.add("sample_rows", Arc::new(sample_rows(traces)));
    catalog.register_schema(PARTS, Arc::new(parts))?;
    for (name, schema) in schemas {
        // A system that bears the name of the main schema: its events are found there only where unique.
        if name != MAIN && name != PARTS {
            catalog.register_schema(&name, schema)?;
        }
    }
    catalog.register_schema(MAIN, main)?;
    Ok(Arc::new(catalog))
}

/// Views that session.rs adds.
const VIEWS: &[&str] = &["events", "trace_info"];

/// System and event of a table below `events/`.
pub(crate) fn event_name(table: &str) -> Option<(&str, &str)> {
    table.strip_prefix("events/")?.split_once('/')
}

type SameTable<'a> = Vec<(usize, &'a TraceTable)>;

/// Tables of all traces by name, each with the number of its trace.
fn by_name(traces: &[Trace]) -> BTreeMap<&str, SameTable<'_>> {
    let mut tables: BTreeMap<&str, SameTable<'_>> = BTreeMap::new();
    for (number, trace) in traces.iter().enumerate() {
        for table in &trace.tables {
            tables
                .entry(&table.schema.name)
                .or_default()
                .push((number, table));
        }
    }
    tables
}

fn parts_table(traces: &[Trace], tables: &SameTable<'_>) -> PartsTable {
    let mut columns: Vec<Field> = Vec::new();
    for (_, table) in tables {
        for column in &table.schema.columns {
            merge(&mut columns, column);
        }
    }
    // A column that one of the traces lacks is NULL there.
    for column in &mut columns {
        let everywhere = tables.iter().all(|(_, table)| {
            table
                .schema
                .columns
                .iter()
                .any(|other| other.name == *column.name())
        });
        if !everywhere {
            *column = column.clone().with_nullable(true);
        }
    }
    let several = traces.len() > 1;
    let constants = if several {
        vec![constant_column("trace", TEXT)]
    } else {
        Vec::new()
    };
    let runs = tables.iter().map(|&(number, table)| {
        let constants = if several {
            vec![text(&traces[number].name)]
        } else {
            Vec::new()
        };
        run(table, constants)
    });
    let first = &tables[0].1.schema;
    let sorted = tables
        .iter()
        .all(|(_, table)| table.schema.sort == first.sort && is_sorted(table));
    let sort = if sorted {
        first.sort.clone()
    } else {
        Vec::new()
    };
    PartsTable::new(
        Arc::new(Schema::new(columns)),
        constants,
        runs.collect(),
        sort,
    )
}

fn is_sorted(table: &TraceTable) -> bool {
    table.parts.iter().all(|part| part.sorted)
}

fn run(table: &TraceTable, constants: Vec<ScalarValue>) -> Vec<PartFile> {
    let parts = table.parts.iter().filter(|part| part.rows > 0);
    parts
        .map(|part| PartFile {
            path: part.path.clone(),
            rows: part.rows,
            time: part.time,
            constants: constants.clone(),
        })
        .collect()
}

/// Adds a column, or widens the type of the one that another trace has under its name.
fn merge(columns: &mut Vec<Field>, column: &ColumnSchema) {
    let new = Field::new(&column.name, arrow_type(column.kind), column.nullable);
    let Some(old) = columns.iter_mut().find(|old| *old.name() == column.name) else {
        columns.push(new);
        return;
    };
    let kind = wider(old.data_type(), new.data_type());
    *old = Field::new(&column.name, kind, old.is_nullable() || new.is_nullable());
}

/// The smallest type that holds the values of both.
fn wider(a: &DataType, b: &DataType) -> DataType {
    use DataType::{Float64, Int16, Int32, Int64, UInt64};
    let integer = a.is_integer() && b.is_integer();
    match (a, b) {
        (a, b) if a == b => a.clone(),
        (UInt64, b) if b.is_unsigned_integer() => UInt64,
        (a, UInt64) if a.is_unsigned_integer() => UInt64,
        // Signed in one kernel, unsigned 64 bits in another: only text holds both without loss.
        (UInt64, _) | (_, UInt64) if integer => TEXT,
        _ if integer => {
            let signed_bytes = |kind: &DataType| {
                let bytes = kind.primitive_width().unwrap_or(8);
                if kind.is_unsigned_integer() {
                    bytes * 2
                } else {
                    bytes
                }
            };
            let unsigned = a.is_unsigned_integer() && b.is_unsigned_integer();
            match (unsigned, signed_bytes(a).max(signed_bytes(b))) {
                (true, _) => {
                    if a.primitive_width() >= b.primitive_width() {
                        a.clone()
                    } else {
                        b.clone()
                    }
                }
                (false, 0..=2) => Int16,
                (false, 3..=4) => Int32,
                (false, _) => Int64,
            }
        }
        (a, b) if a.is_numeric() && b.is_numeric() => Float64,
        _ => TEXT,
    }
}

/// How a column is read.
pub(crate) fn arrow_type(kind: ColumnType) -> DataType {
    // Items are never NULL, but not every writer of lists says so.
    let list = |item| DataType::List(Arc::new(Field::new("element", item, true)));
    match kind {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Int8 => DataType::Int8,
        ColumnType::Int16 => DataType::Int16,
        ColumnType::Int32 => DataType::Int32,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::UInt8 => DataType::UInt8,
        ColumnType::UInt16 => DataType::UInt16,
        ColumnType::UInt32 => DataType::UInt32,
        ColumnType::UInt64 => DataType::UInt64,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Text => TEXT,
        ColumnType::Binary => DataType::BinaryView,
        ColumnType::Int64List => list(DataType::Int64),
        ColumnType::UInt64List => list(DataType::UInt64),
        ColumnType::TextList => list(TEXT),
    }
}

fn text(value: &str) -> ScalarValue {
    ScalarValue::Utf8View(Some(value.to_owned()))
}

/// The common columns of every event table, and which event it is.
fn event_rows(traces: &[Trace]) -> PartsTable {
    let unique: BTreeMap<&str, usize> = {
        let mut count = BTreeMap::new();
        for name in by_name(traces).keys() {
            if let Some((_, event)) = event_name(name) {
                *count.entry(event).or_default() += 1;
            }
        }
        count
    };
    let mut runs = Vec::new();
    let mut sorted = true;
    for trace in traces {
        for table in trace.tables.iter().filter(|table| table.is_event()) {
            sorted &= is_sorted(table)
                && table
                    .schema
                    .sort
                    .first()
                    .is_some_and(|first| first == "time");
            let Some((system, event)) = event_name(&table.schema.name) else {
                continue;
            };
            let name = match unique.get(event) {
                Some(1) => event.to_owned(),
                _ => format!("{system}.{event}"),
            };
            let mut constants = trace_constants(trace);
            constants.push(text(&name));
            runs.push(run(table, constants));
        }
    }
    let mut constants = trace_columns();
    constants.push(constant_column("event", TEXT));
    PartsTable::new(common_columns(&[]), constants, runs, by_time(sorted))
}

/// The common columns of all samples.
fn sample_rows(traces: &[Trace]) -> PartsTable {
    let runs = traces
        .iter()
        .filter_map(|trace| Some(run(trace.table("samples")?, trace_constants(trace))));
    let columns = common_columns(&["event"]);
    let sorted = traces
        .iter()
        .filter_map(|trace| trace.table("samples"))
        .all(is_sorted);
    PartsTable::new(columns, trace_columns(), runs.collect(), by_time(sorted))
}

fn by_time(sorted: bool) -> Vec<String> {
    if sorted {
        vec!["time".to_owned()]
    } else {
        Vec::new()
    }
}

fn trace_columns() -> Vec<FieldRef> {
    vec![
        constant_column("trace", TEXT),
        constant_column("wall_offset", DataType::Int64),
    ]
}

fn trace_constants(trace: &Trace) -> Vec<ScalarValue> {
    vec![text(&trace.name), ScalarValue::Int64(trace.wall_offset)]
}

fn common_columns(more: &[&str]) -> SchemaRef {
    let columns = COMMON.iter().chain(more).map(|&name| {
        let kind = match name {
            "time" => DataType::Int64,
            "comm" | "event" => TEXT,
            _ => DataType::Int32,
        };
        Field::new(name, kind, true)
    });
    Arc::new(Schema::new(columns.collect::<Vec<_>>()))
}

/// The facts of the manifests as rows.
fn trace_info(traces: &[Trace]) -> Result<MemTable> {
    let mut rows: Vec<(&str, String, String)> = Vec::new();
    for trace in traces {
        rows.push((&trace.name, "path".into(), trace.path.display().to_string()));
        rows.push((&trace.name, "state".into(), trace.state.clone()));
        if let Some((start, end)) = trace.time_range() {
            rows.push((&trace.name, "start".into(), start.to_string()));
            rows.push((&trace.name, "end".into(), end.to_string()));
        }
        for (name, value) in &trace.facts {
            rows.push((&trace.name, name.clone(), value.clone()));
        }
    }
    let column = |values: Vec<&str>| Arc::new(StringViewArray::from(values)) as ArrayRef;
    let mut fields = vec![
        Field::new("name", TEXT, false),
        Field::new("value", TEXT, false),
    ];
    let mut columns = vec![
        column(rows.iter().map(|row| row.1.as_str()).collect()),
        column(rows.iter().map(|row| row.2.as_str()).collect()),
    ];
    if traces.len() > 1 {
        fields.push(Field::new("trace", TEXT, false));
        columns.push(column(rows.iter().map(|row| row.0).collect()));
    }
    let schema = Arc::new(Schema::new(Fields::from(fields)));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    MemTable::try_new(schema, vec![vec![batch]])
}

/// The tables of one schema. A name that is not found as written is looked for without regard to case: SQL
/// turns `Setjmp` into `setjmp` unless it is quoted.
#[derive(Debug, Default)]
struct Tables(Mutex<BTreeMap<String, Arc<dyn TableProvider>>>);

impl Tables {
    fn add(&self, name: &str, table: Arc<dyn TableProvider>) {
        self.lock().insert(name.to_owned(), table);
    }

    fn get(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let tables = self.lock();
        let same = || {
            tables
                .iter()
                .find(|(other, _)| other.eq_ignore_ascii_case(name))
                .map(|(_, table)| table)
        };
        tables.get(name).or_else(same).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<dyn TableProvider>>> {
        // Nothing can panic between two changes of the map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        Ok(self.get(name))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.lock().insert(name, table))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.lock().remove(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}
