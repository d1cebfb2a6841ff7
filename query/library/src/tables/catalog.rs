//! Names of tables: maps SQL names to parts of traces.
//!
//! ```text
//! samples, stacks, …       the fixed tables, those of several traces one after the other
//! sched.sched_switch       an event table, by system and name
//! sched_switch             the same, if only one system has an event of that name
//! events, trace_info       views
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, MemTable, MemoryCatalogProvider, SchemaProvider, TableProvider,
};
use datafusion::common::{Column, TableReference};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, lit, when};
use datafusion::scalar::ScalarValue;
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::lake::SUMMARIES;
use perfquet_trace::store::{ColumnSchema, ColumnType, unite};
use perfquet_trace::tables;

use crate::align::Placement;
use crate::published::Published;
use crate::tables::part_runs::PartFile;
use crate::tables::parts::{Change, PartsTable, constant_column};
use crate::tables::stored_columns::StoredColumns;
use crate::trace::{Trace, TraceTable};
use crate::unit;

/// Name of the catalog; never needed in queries.
pub(crate) const CATALOG: &str = "perfquet";
/// Schema of the fixed tables, the views and the unique events.
pub(crate) const MAIN: &str = "main";
/// Schema of the tables used by views.
pub(crate) const PARTS: &str = "parts_of_views";

/// All strings are read as views into the pages. DataFusion 55 groups views column by column, dictionary arrays only
/// through its row format: 10 M rows by comm took 0.2 s of CPU as views, 0.8 s as dictionaries (the cast included).
const TEXT: DataType = DataType::Utf8View;

/// Builds the catalog of all tables of `traces`.
///
/// `is_view` returns whether a name is that of a view: then an event of the same name needs its system.
pub(crate) fn catalog(
    traces: &[Trace],
    is_view: impl Fn(&str) -> bool,
) -> Result<Arc<dyn CatalogProvider>> {
    let catalog = MemoryCatalogProvider::new();
    let main = Arc::new(Tables::default());
    let mut schemas: BTreeMap<String, Arc<Tables>> = BTreeMap::new();
    let mut systems_of_event: BTreeMap<&str, u32> = BTreeMap::new();
    let by_name = by_name(traces);
    for (name, tables) in &by_name {
        let table = parts_table(traces, name, tables);
        let provider = with_ids(traces, name, table, tables::ids(name))?;
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
        let taken = main.table_exist(event) || event == TRACE_INFO || is_view(event);
        if systems_of_event.get(event) == Some(&1)
            && !taken
            && let Some(provider) = schemas.get(system).and_then(|schema| schema.get(event))
        {
            main.add(event, provider);
        }
    }
    main.add(TRACE_INFO, Arc::new(trace_info(traces)?));
    let parts = Tables::default();
    let stacks = tables::ids(tables::samples::NAME);
    for (name, table) in [
        ("event_rows", event_rows(traces)),
        ("sample_rows", sample_rows(traces)),
    ] {
        parts.add(name, with_ids(traces, name, table, stacks)?);
    }
    catalog.register_schema(PARTS, Arc::new(parts))?;
    for (name, schema) in schemas {
        // A system with the name of the main schema: its events are only available there, if unique.
        if name != MAIN && name != PARTS {
            catalog.register_schema(&name, schema)?;
        }
    }
    catalog.register_schema(MAIN, main)?;
    Ok(Arc::new(catalog))
}

/// The table of facts from the manifest.
const TRACE_INFO: &str = "trace_info";

/// System and event of a table below `events/`.
pub fn event_name(table: &str) -> Option<(&str, &str)> {
    table.strip_prefix("events/")?.split_once('/')
}

type SameTable<'a> = Vec<(usize, &'a TraceTable)>;

/// Tables of all traces by name, each with the index of its trace. The fixed tables are included even if no trace has
/// written them yet.
fn by_name(traces: &[Trace]) -> BTreeMap<String, SameTable<'_>> {
    let fixed = tables::all().into_iter();
    let mut tables: BTreeMap<String, SameTable<'_>> =
        fixed.map(|schema| (schema.name, Vec::new())).collect();
    for (number, trace) in traces.iter().enumerate() {
        for table in &trace.tables {
            let same = tables.entry(table.schema.name.clone()).or_default();
            same.push((number, table));
        }
    }
    tables
}

fn parts_table(traces: &[Trace], name: &str, tables: &SameTable<'_>) -> PartsTable {
    let columns = united_columns(name, tables.iter().map(|&(_, table)| table));
    let several = traces.len() > 1;
    let constants = match several {
        true => vec![constant_column(TRACE, TEXT), id_offset_column()],
        false => Vec::new(),
    };
    let forms = tables.iter().flat_map(|(_, table)| &table.forms);
    let forms: HashMap<_, _> = forms.map(|form| (Arc::as_ptr(form), form)).collect();
    let bits = forms
        .values()
        .flat_map(|form| form.iter())
        .filter(|column| column.kind != column.kind.as_read());
    let mut stored = Storage::new(name, bits.map(|column| column.name.clone()).collect());
    let runs = tables.iter().flat_map(|&(number, table)| {
        let trace = &traces[number];
        let constants = match several {
            true => vec![text(&trace.name), ScalarValue::Int64(Some(trace.id_offset))],
            false => Vec::new(),
        };
        runs(trace, table, &constants, &mut stored)
    });
    let runs: Vec<_> = runs.collect();
    let sort = match tables.first() {
        Some((_, first)) if tables.iter().all(|(_, table)| is_sorted_as(table, first)) => {
            first.schema.sort.clone()
        }
        _ => Vec::new(),
    };
    let mut changes = changes(traces, name, tables, &columns);
    changes.extend(without_summaries(traces, name));
    let fields = columns.iter().map(|column| {
        Field::new(&column.name, arrow_type(column.kind), column.nullable)
            .with_metadata(unit::metadata(&column.name, &column.unit))
    });
    PartsTable::new(
        Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        constants,
        runs,
        sort,
    )
    .with_changes(changes)
}

/// The columns of a table in all traces together: those of this version for a fixed table, and those of the parts.
pub fn united_columns<'t>(
    name: &str,
    tables: impl Iterator<Item = &'t TraceTable>,
) -> Vec<ColumnSchema> {
    let declared = tables::all().into_iter().find(|schema| schema.name == name);
    let mut forms: Vec<&[ColumnSchema]> = Vec::new();
    forms.extend(declared.iter().map(|schema| schema.columns.as_slice()));
    // Most traces of many share their declarations.
    let mut seen = HashSet::new();
    for table in tables {
        if seen.insert(Arc::as_ptr(&table.schema).cast::<()>()) {
            forms.push(&table.schema.columns);
        }
        let new = |form: &&Arc<Vec<ColumnSchema>>| seen.insert(Arc::as_ptr(form).cast());
        forms.extend(table.forms.iter().filter(new).map(|form| form.as_slice()));
    }
    unite(forms)
}

/// Returns notes for columns that are read with another type than in one of the traces.
fn changes(
    traces: &[Trace],
    name: &str,
    tables: &SameTable<'_>,
    columns: &[ColumnSchema],
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut seen = HashSet::new();
    let new = |&&(_, table): &&(usize, &TraceTable)| seen.insert(Arc::as_ptr(&table.schema));
    let tables: Vec<(usize, &TraceTable)> = tables.iter().filter(new).copied().collect();
    for column in columns {
        let mut kinds: Vec<(&str, &str)> = Vec::new();
        let mut is_changed = false;
        for &(number, table) in &tables {
            let same = |other: &&ColumnSchema| other.name == column.name;
            if let Some(other) = table.schema.columns.iter().find(same) {
                is_changed |= other.kind.changes_in(column.kind);
                if kinds.iter().all(|(kind, _)| *kind != other.kind.as_str()) {
                    kinds.push((other.kind.as_str(), &traces[number].name));
                }
            }
        }
        if is_changed {
            let kinds: Vec<String> = kinds
                .iter()
                .map(|(kind, trace)| format!("{kind} in {trace}"))
                .collect();
            let message = format!(
                "{}: column {} is {}; read as {}",
                name.trim_start_matches("events/").replace('/', "."),
                column.name,
                kinds.join(", "),
                column.kind.as_str()
            );
            changes.push(Change::new(&column.name, message));
        }
    }
    changes
}

/// Returns a note if a table is a summary that some of the traces lack: it is then not of all of them. A trace that has summaries may have no rows in
/// this one.
fn without_summaries(traces: &[Trace], name: &str) -> Option<Change> {
    if !name.starts_with(SUMMARIES_BEGIN) {
        return None;
    }
    let lacks = |trace: &&Trace| trace.fact(SUMMARIES).is_none();
    let (count, all) = (traces.iter().filter(lacks).count(), traces.len());
    let message = format!(
        "{name}: {} of {} without summaries: their rows are missing here\nhint: publish them again with: perfquet-convert TRACE... --to lake --summaries",
        grouped(count as u64),
        counted(all as u64, "trace"),
    );
    (count > 0).then(|| Change::new("", message))
}

/// Begins the names of the tables that `--summaries` writes.
const SUMMARIES_BEGIN: &str = "summary_";

/// Offset added to the IDs of each trace.
fn id_offset_column() -> FieldRef {
    constant_column(ID_OFFSET, DataType::Int64)
}

/// Constant columns. Their names contain a space, so they cannot collide with other columns.
const ID_OFFSET: &str = "id offset";
const TRACE: &str = "trace name";

/// `table` with IDs unique across traces: an offset is added to those of all traces but the first. A condition on an ID
/// still selects the right part, since the offset is a constant.
fn with_ids(
    traces: &[Trace],
    name: &str,
    table: PartsTable,
    ids: &[&str],
) -> Result<Arc<dyn TableProvider>> {
    let table: Arc<dyn TableProvider> = Arc::new(table);
    if traces.len() < 2 {
        return Ok(table);
    }
    let schema = table.schema();
    let rows = TableReference::bare(name.replace('/', "."));
    let plain = |name: &str| Expr::Column(Column::new_unqualified(name));
    let is_named = schema.index_of(TRACE).is_ok();
    let columns = schema
        .fields()
        .iter()
        .filter(|field| field.name() != ID_OFFSET);
    let columns = columns.map(|field| {
        let column = plain(field.name());
        if field.name() == TRACE {
            return Ok(column.alias("trace"));
        }
        if is_named && field.name().eq_ignore_ascii_case("trace") {
            return Ok(column.alias("arg_trace"));
        }
        if !ids.contains(&field.name().as_str()) || !field.data_type().is_integer() {
            return Ok(column);
        }
        let id = cast(column, DataType::Int64);
        // 0 is the empty stack, and the parent of a root.
        let unique =
            when(id.clone().gt(lit(0_i64)), id.clone() + plain(ID_OFFSET)).otherwise(id)?;
        Ok(unique.alias(field.name()))
    });
    let columns: Vec<Expr> = columns.collect::<Result<_>>()?;
    let plan = LogicalPlanBuilder::scan(rows, provider_as_source(table), None)?
        .project(columns)?
        .build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

fn is_sorted_as(table: &TraceTable, first: &TraceTable) -> bool {
    table.schema.sort == first.schema.sort && is_sorted(table)
}

fn is_sorted(table: &TraceTable) -> bool {
    table.parts.iter().all(|part| part.entry.sorted)
}

/// How the columns of a table are stored, each way once.
struct Storage {
    ordinary: Arc<StoredColumns>,
    published: HashMap<*const Published, Arc<StoredColumns>>,
}

impl Storage {
    fn new(table: &str, bits: HashSet<String>) -> Storage {
        Storage {
            ordinary: Arc::new(StoredColumns {
                table: table.to_owned(),
                bits,
                published: None,
            }),
            published: HashMap::new(),
        }
    }

    fn of(&mut self, table: &TraceTable, form: usize) -> Arc<StoredColumns> {
        let Some(published) = table.published.get(form) else {
            return Arc::clone(&self.ordinary);
        };
        let known = self.published.entry(Arc::as_ptr(published));
        let stored = known.or_insert_with(|| {
            Arc::new(StoredColumns {
                published: Some(Arc::clone(published)),
                ..self.ordinary.as_ref().clone()
            })
        });
        Arc::clone(stored)
    }
}

/// The parts of each form follow each other in time.
fn runs(
    trace: &Trace,
    table: &TraceTable,
    constants: &[ScalarValue],
    stored: &mut Storage,
) -> Vec<Vec<PartFile>> {
    let mut runs = vec![Vec::new(); table.forms.len()];
    let threads = trace.table(tables::threads::NAME);
    let threads = threads.map_or(0, TraceTable::rows);
    for part in table.parts.iter().filter(|part| part.entry.rows > 0) {
        runs[part.form].push(PartFile {
            trace: trace.root.clone(),
            entry: part.entry.clone(),
            constants: constants.to_vec(),
            threads,
            stored: stored.of(table, part.form),
        });
    }
    runs
}

/// How a column is read.
pub(crate) fn arrow_type(kind: ColumnType) -> DataType {
    // Items are never NULL, but not every writer of lists declares that.
    let list = |item| DataType::List(Arc::new(Field::new("element", item, true)));
    match kind.as_read() {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Int8 => DataType::Int8,
        ColumnType::Int16 => DataType::Int16,
        ColumnType::Int32 => DataType::Int32,
        ColumnType::Int64 => DataType::Int64,
        ColumnType::UInt8 => DataType::UInt8,
        ColumnType::UInt16 => DataType::UInt16,
        ColumnType::UInt32 => DataType::UInt32,
        ColumnType::UInt64 | ColumnType::Bits => DataType::UInt64,
        // Twenty digits represent every 64-bit integer.
        ColumnType::Int128 => DataType::Decimal128(20, 0),
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Text => TEXT,
        ColumnType::Binary => DataType::BinaryView,
        ColumnType::Int64List => list(DataType::Int64),
        ColumnType::UInt64List | ColumnType::BitsList => list(DataType::UInt64),
        ColumnType::TextList => list(TEXT),
    }
}

fn text(value: &str) -> ScalarValue {
    ScalarValue::Utf8View(Some(value.to_owned()))
}

/// The common columns of every event table, with the name of the event.
fn event_rows(traces: &[Trace]) -> PartsTable {
    let unique: BTreeMap<String, usize> = {
        let mut count = BTreeMap::new();
        for name in by_name(traces).keys() {
            if let Some((_, event)) = event_name(name) {
                *count.entry(event.to_owned()).or_default() += 1;
            }
        }
        count
    };
    let mut runs = Vec::new();
    let mut stored = Storage::new("", HashSet::new());
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
            runs.extend(self::runs(trace, table, &constants, &mut stored));
        }
    }
    let mut constants = trace_columns();
    constants.push(constant_column("event", TEXT));
    PartsTable::new(common_columns(&[]), constants, runs, by_time(sorted))
}

/// The common columns of all samples.
fn sample_rows(traces: &[Trace]) -> PartsTable {
    let mut stored = Storage::new("", HashSet::new());
    let runs = traces.iter().flat_map(|trace| {
        let table = trace.table("samples");
        table.map_or_else(Vec::new, |table| {
            runs(trace, table, &trace_constants(trace), &mut stored)
        })
    });
    let runs: Vec<_> = runs.collect();
    let columns = common_columns(&["event"]);
    let sorted = traces
        .iter()
        .filter_map(|trace| trace.table("samples"))
        .all(is_sorted);
    PartsTable::new(columns, trace_columns(), runs, by_time(sorted))
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
        id_offset_column(),
    ]
}

fn trace_constants(trace: &Trace) -> Vec<ScalarValue> {
    vec![
        text(&trace.name),
        ScalarValue::Int64(trace.wall_offset),
        ScalarValue::Int64(Some(trace.id_offset)),
    ]
}

/// The columns that the view `events` takes from every event table, and `more`.
fn common_columns(more: &[&str]) -> SchemaRef {
    let columns = tables::common::NAMES.iter().chain(more).map(|&name| {
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
        if let Some(recorded) = trace.recorded() {
            let known_by = recorded.known_by.words().to_owned();
            rows.push((&trace.name, "length".into(), recorded.length().to_string()));
            rows.push((&trace.name, "length.known_by".into(), known_by));
        }
        for (name, value) in &trace.facts {
            rows.push((&trace.name, name.clone(), value.clone()));
        }
        if traces.len() > 1 {
            let placed = trace.placement.iter().flat_map(Placement::facts);
            rows.extend(placed.map(|(name, value)| (trace.name.as_str(), name.to_owned(), value)));
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

/// The tables of one schema. A name not found as written is looked up ignoring case: SQL turns `Setjmp` into `setjmp`
/// unless it is quoted.
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
        // The map is consistent even if a thread panicked: no change can panic halfway.
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
