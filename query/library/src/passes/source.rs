//! The tables that a pass reads, each in the order of time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, StringViewArray,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Int64Type, Schema, UInt64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::{Column as Name, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, lit, try_cast};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::scalar::ScalarValue;
use futures::StreamExt;

use super::TRACE;

/// A table, and the columns that a pass needs of it.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Schema and name: `sched.sched_switch`; fixed tables have no schema.
    pub(crate) schema: Option<String>,
    pub(crate) table: String,
    /// Column with the time of a row; empty if rows have none.
    pub(crate) time: &'static str,
    /// Whether rows without a time come first; otherwise they are skipped.
    pub(crate) keeps_unknown_times: bool,
    pub(crate) columns: Vec<Input>,
    /// Rows to read; all if `None`.
    pub(crate) condition: Option<Expr>,
    /// Columns that must have one of some values.
    values: Vec<(Input, BTreeSet<i64>)>,
    /// Times of the rows to read.
    times: Times,
    /// Reads this instead of a table of the catalog.
    pub(crate) provider: Option<Arc<dyn TableProvider>>,
}

/// A column of a source.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    /// The first of these names that the table has; NULL if it has none.
    names: Vec<String>,
    kind: Kind,
}

/// A range of times; `None` if it has no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) first: Option<i64>,
    pub(crate) last: Option<i64>,
}

impl Times {
    #[inline]
    pub(crate) fn contains(self, time: i64) -> bool {
        self.first.is_none_or(|first| time >= first) && self.last.is_none_or(|last| time <= last)
    }

    /// Conditions on the column of times.
    fn conditions(self, time: &Expr) -> impl Iterator<Item = Expr> {
        let first = self.first.map(|first| time.clone().gt_eq(lit(first)));
        let last = self.last.map(|last| time.clone().lt_eq(lit(last)));
        first.into_iter().chain(last)
    }
}

/// How a column is read, whatever its type in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Integers; addresses as bit patterns.
    Integer,
    Text,
    /// Integers or strings, as the table has them.
    Code,
    /// Strings; integers are NULL.
    String,
    Flag,
    Integers,
    Texts,
}

impl Source {
    /// The table of an event, given as `sched:sched_switch`.
    pub(crate) fn event(name: &str, columns: Vec<Input>) -> Source {
        let (system, event) = name.split_once(':').unwrap_or(("", name));
        Source {
            schema: Some(system.to_owned()),
            table: event.to_owned(),
            time: "time",
            keeps_unknown_times: false,
            columns,
            condition: None,
            values: Vec::new(),
            times: Times::default(),
            provider: None,
        }
    }

    /// A table of every trace.
    pub(crate) fn fixed(name: &str, time: &'static str, columns: Vec<Input>) -> Source {
        Source {
            schema: None,
            table: name.to_owned(),
            time,
            keeps_unknown_times: false,
            columns,
            condition: None,
            values: Vec::new(),
            times: Times::default(),
            provider: None,
        }
    }

    /// No rows.
    pub(crate) fn none() -> Source {
        Source::event("none:none", Vec::new())
    }

    /// The facts of a trace, name and value, before everything else.
    pub(crate) fn facts() -> Source {
        let columns = vec![Input::text(&["name"]), Input::text(&["value"])];
        Source::fixed("trace_info", "", columns).with_unknown_times()
    }

    /// The rows of a table that the session does not know, such as that of another pass.
    pub(super) fn provided(
        name: &'static str,
        provider: Arc<dyn TableProvider>,
        columns: Vec<Input>,
    ) -> Source {
        Source {
            provider: Some(provider),
            ..Source::fixed(name, "time", columns)
        }
    }

    pub(crate) fn with_condition(self, condition: Expr) -> Source {
        let condition = Some(condition);
        Source { condition, ..self }
    }

    /// Reads only rows whose column has one of these values.
    pub(crate) fn with_values(mut self, column: Input, values: BTreeSet<i64>) -> Source {
        self.values.push((column, values));
        self
    }

    /// Reads only rows of these times.
    pub(crate) fn within(self, times: Times) -> Source {
        Source { times, ..self }
    }

    /// Rows without a time come first, with the time [`BEFORE`].
    pub(crate) fn with_unknown_times(self) -> Source {
        Source {
            keeps_unknown_times: true,
            ..self
        }
    }

    /// Plans the rows of one trace, in the order of time, and estimates their number; `None` if there is no such table.
    pub(super) async fn plan(
        &self,
        state: &SessionState,
        trace: Option<&str>,
    ) -> Result<Option<(Arc<dyn ExecutionPlan>, Option<usize>)>> {
        let Some(table) = self.table(state).await? else {
            return Ok(None);
        };
        let fields = table.schema();
        let statistics = table.statistics();
        let count = statistics.and_then(|known| known.num_rows.get_value().copied());
        if count == Some(0) {
            return Ok(None);
        }
        let time = match self.time {
            "" => lit(ScalarValue::Null),
            name => column(name),
        };
        let mut columns = vec![cast(time.clone(), DataType::Int64).alias("time")];
        for (number, input) in self.columns.iter().enumerate() {
            // Several inputs may be the same column.
            columns.push(input.read(&fields).alias(format!("input {number}")));
        }
        let scan = provider_as_source(table);
        let mut plan = LogicalPlanBuilder::scan(TableReference::bare("source"), scan, None)?;
        if let Some(trace) = trace {
            let trace = ScalarValue::Utf8View(Some(trace.to_owned()));
            plan = plan.filter(column(TRACE).eq(lit(trace)))?;
        }
        if let Some(condition) = &self.condition {
            plan = plan.filter(condition.clone())?;
        }
        for (input, values) in &self.values {
            let values = values.iter().map(|&value| lit(value)).collect();
            plan = plan.filter(input.read(&fields).in_list(values, false))?;
        }
        if !self.time.is_empty() {
            for bound in self.times.conditions(&time) {
                plan = plan.filter(bound)?;
            }
            plan = plan.sort([time.sort(true, true)])?;
        }
        let plan = plan.project(columns)?.build()?;
        Ok(Some((state.create_physical_plan(&plan).await?, count)))
    }
}

/// `sched_waking WHERE arg_pid IN (7)`: the table, and which of its rows are read for the requested ones.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut conditions = Vec::new();
        for (input, values) in &self.values {
            let values: Vec<String> = values.iter().map(i64::to_string).collect();
            conditions.push(format!(
                "{} IN ({})",
                input.names.join(" or "),
                values.join(", ")
            ));
        }
        conditions.extend(self.times.first.map(|first| format!("time >= {first}")));
        conditions.extend(self.times.last.map(|last| format!("time <= {last}")));
        f.write_str(&self.table)?;
        match conditions.as_slice() {
            [] => Ok(()),
            conditions => write!(f, " WHERE {}", conditions.join(" AND ")),
        }
    }
}

impl Source {
    async fn table(&self, state: &SessionState) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(provider) = &self.provider {
            return Ok(Some(Arc::clone(provider)));
        }
        let options = &state.config_options().catalog;
        let catalog = state.catalog_list().catalog(&options.default_catalog);
        let schema = self.schema.as_deref().unwrap_or(&options.default_schema);
        match catalog.and_then(|catalog| catalog.schema(schema)) {
            Some(schema) => schema.table(&self.table).await,
            None => Ok(None),
        }
    }
}

/// A column by its name as written.
pub(crate) fn column(name: &str) -> Expr {
    Expr::Column(Name::new_unqualified(name))
}

impl Input {
    fn new(names: &[&str], kind: Kind) -> Input {
        Input {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            kind,
        }
    }

    /// A column of integers. Strings of digits are read as such.
    pub(crate) fn integer(names: &[&str]) -> Input {
        Input::new(names, Kind::Integer)
    }

    pub(crate) fn text(names: &[&str]) -> Input {
        Input::new(names, Kind::Text)
    }

    /// A column that holds integers in some traces and strings in others.
    pub(crate) fn code(names: &[&str]) -> Input {
        Input::new(names, Kind::Code)
    }

    /// The first of these columns that holds strings.
    pub(crate) fn string(names: &[&str]) -> Input {
        Input::new(names, Kind::String)
    }

    pub(crate) fn flag(names: &[&str]) -> Input {
        Input::new(names, Kind::Flag)
    }

    pub(crate) fn integers(names: &[&str]) -> Input {
        Input::new(names, Kind::Integers)
    }

    pub(crate) fn texts(names: &[&str]) -> Input {
        Input::new(names, Kind::Texts)
    }

    /// The column if it is wanted, otherwise one without values.
    pub(crate) fn if_wanted(self, is_wanted: bool) -> Input {
        match is_wanted {
            true => self,
            false => Input::new(&[], self.kind),
        }
    }

    /// The name and type of the column in a table, if it has one.
    fn find<'s>(&'s self, fields: &'s Schema) -> Option<(&'s str, &'s DataType)> {
        self.names.iter().find_map(|name| {
            let kind = fields.field_with_name(name).ok()?.data_type();
            let is_string = matches!(kind, DataType::Utf8View | DataType::Utf8);
            (self.kind != Kind::String || is_string).then_some((name.as_str(), kind))
        })
    }

    /// Whether a table has the column.
    pub(crate) fn is_in(&self, fields: &Schema) -> bool {
        self.find(fields).is_some()
    }

    fn read(&self, fields: &Schema) -> Expr {
        let Some((name, kind)) = self.find(fields) else {
            return lit(ScalarValue::Null);
        };
        let value = column(name);
        let list =
            |item| DataType::List(Arc::new(arrow::datatypes::Field::new("item", item, true)));
        match (self.kind, kind) {
            (Kind::Integer, DataType::Int64) | (Kind::Flag, DataType::Boolean) => value,
            // The bits of an address, whose sign does not matter.
            (Kind::Integer, DataType::UInt64) => value,
            (Kind::Integer, _) => try_cast(value, DataType::Int64),
            (Kind::Code, kind) if kind.is_integer() => cast(value, DataType::Int64),
            (Kind::Text | Kind::Code | Kind::String, DataType::Utf8View) => value,
            (Kind::Text | Kind::Code | Kind::String, _) => cast(value, DataType::Utf8View),
            (Kind::Flag, _) => try_cast(value, DataType::Boolean),
            (Kind::Integers, DataType::List(item)) if *item.data_type() == DataType::UInt64 => {
                value
            }
            (Kind::Texts, _) => cast(value, list(DataType::Utf8View)),
            (Kind::Integers, _) => try_cast(value, list(DataType::Int64)),
        }
    }
}

/// Time of rows without one.
pub(crate) const BEFORE: i64 = i64::MIN;

/// Which values are NULL; `None` if no one is.
type Nulls = Option<NullBuffer>;

#[inline]
fn is_null(nulls: &Nulls, row: usize) -> bool {
    nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
}

/// Values of a column in the current rows.
#[derive(Debug)]
pub(crate) enum Column {
    Missing,
    Integer(ScalarBuffer<i64>, Nulls),
    Text(StringViewArray, Nulls),
    Flag(BooleanArray),
    List(ListArray),
    /// Lists, and the items of all of them.
    Integers(ListArray, ScalarBuffer<i64>),
}

/// One row of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) time: i64,
    columns: &'a [Column],
    row: usize,
}

impl<'a> Row<'a> {
    /// The integer in a column; `None` for NULL.
    #[inline]
    pub(crate) fn integer(&self, column: usize) -> Option<i64> {
        match self.columns.get(column) {
            Some(Column::Integer(values, nulls)) if !is_null(nulls, self.row) => {
                values.get(self.row).copied()
            }
            _ => None,
        }
    }

    /// A process, thread or CPU.
    #[inline]
    pub(crate) fn id(&self, column: usize) -> Option<i32> {
        i32::try_from(self.integer(column)?).ok()
    }

    #[inline]
    pub(crate) fn text(&self, column: usize) -> Option<&'a str> {
        match self.columns.get(column) {
            Some(Column::Text(values, nulls)) if !is_null(nulls, self.row) => {
                Some(values.value(self.row))
            }
            _ => None,
        }
    }

    pub(crate) fn flag(&self, column: usize) -> Option<bool> {
        match self.columns.get(column) {
            Some(Column::Flag(values)) if values.is_valid(self.row) => Some(values.value(self.row)),
            _ => None,
        }
    }

    /// The integers of a list.
    #[inline]
    pub(crate) fn integers(&self, column: usize) -> Option<&'a [i64]> {
        match self.columns.get(column) {
            Some(Column::Integers(lists, items)) if lists.is_valid(self.row) => {
                let ends = lists.value_offsets();
                let (begin, end) = (ends.get(self.row)?, ends.get(self.row + 1)?);
                items.get(*begin as usize..*end as usize)
            }
            _ => None,
        }
    }

    /// The items of a list.
    pub(crate) fn list(&self, column: usize) -> Option<ArrayRef> {
        match self.columns.get(column) {
            Some(Column::List(values)) if values.is_valid(self.row) => Some(values.value(self.row)),
            _ => None,
        }
    }
}

/// A position in the rows of a source.
pub(super) struct Cursor {
    stream: SendableRecordBatchStream,
    times: ScalarBuffer<i64>,
    unknown_times: Nulls,
    columns: Vec<Column>,
    row: usize,
    keeps_unknown_times: bool,
    is_done: bool,
}

impl Cursor {
    pub(super) fn new(stream: SendableRecordBatchStream, source: &Source) -> Cursor {
        Cursor {
            stream,
            times: ScalarBuffer::from(Vec::new()),
            unknown_times: None,
            columns: Vec::new(),
            row: 0,
            keeps_unknown_times: source.keeps_unknown_times,
            is_done: false,
        }
    }

    /// Reads more rows if there are none left.
    pub(super) async fn fill(&mut self) -> Result<()> {
        loop {
            self.skip_unknown_times();
            if self.row < self.times.len() || self.is_done {
                return Ok(());
            }
            match self.stream.next().await.transpose()? {
                Some(batch) => self.read(&batch)?,
                None => self.is_done = true,
            }
        }
    }

    fn read(&mut self, batch: &RecordBatch) -> Result<()> {
        self.row = 0;
        let times = batch.column(0).as_primitive::<Int64Type>();
        self.times = times.values().clone();
        self.unknown_times = nulls_of(times);
        self.columns = batch.columns()[1..]
            .iter()
            .map(values)
            .collect::<Result<_>>()?;
        Ok(())
    }

    fn skip_unknown_times(&mut self) {
        if self.keeps_unknown_times || self.unknown_times.is_none() {
            return;
        }
        while self.row < self.times.len() && is_null(&self.unknown_times, self.row) {
            self.row += 1;
        }
    }

    /// Time of the current row; `None` after the last row that was read.
    #[inline]
    pub(super) fn time(&self) -> Option<i64> {
        let time = *self.times.get(self.row)?;
        match is_null(&self.unknown_times, self.row) {
            true => Some(BEFORE),
            false => Some(time),
        }
    }

    #[inline]
    pub(super) fn row(&self, time: i64) -> Row<'_> {
        Row {
            time,
            columns: &self.columns,
            row: self.row,
        }
    }

    #[inline]
    pub(super) fn advance(&mut self) {
        self.row += 1;
        self.skip_unknown_times();
    }
}

fn nulls_of(column: &dyn Array) -> Nulls {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    nulls.cloned()
}

fn integers(column: &dyn Array) -> Column {
    let values = column.as_primitive::<Int64Type>().values().clone();
    Column::Integer(values, nulls_of(column))
}

fn values(column: &ArrayRef) -> Result<Column> {
    Ok(match column.data_type() {
        DataType::Null => Column::Missing,
        DataType::Int64 => integers(column),
        DataType::UInt64 => {
            let bits = column.as_primitive::<UInt64Type>();
            let signed = bits.values().inner().clone();
            Column::Integer(signed.into(), nulls_of(column))
        }
        kind if kind.is_integer() => integers(&arrow::compute::cast(column, &DataType::Int64)?),
        DataType::Utf8View => Column::Text(column.as_string_view().clone(), nulls_of(column)),
        DataType::Boolean => Column::Flag(column.as_boolean().clone()),
        DataType::List(_) => {
            let lists = column.as_list::<i32>().clone();
            match integers_of(lists.values()) {
                Some(items) => Column::Integers(lists, items),
                None => Column::List(lists),
            }
        }
        other => {
            let text = format!("a pass cannot read a column of type {other}");
            return Err(DataFusionError::Internal(text));
        }
    })
}

/// Integers; addresses as bit patterns.
fn integers_of(items: &ArrayRef) -> Option<ScalarBuffer<i64>> {
    match items.data_type() {
        DataType::Int64 => Some(items.as_primitive::<Int64Type>().values().clone()),
        DataType::UInt64 => {
            let bits = items.as_primitive::<UInt64Type>();
            Some(bits.values().inner().clone().into())
        }
        _ => None,
    }
}
