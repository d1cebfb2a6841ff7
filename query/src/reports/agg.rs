//! `agg`: count, sum, mean, extremes and standard deviation of any expression, by keys.
//!
//! ```text
//! comm  count    sum    avg  min   max  stddev
//! dd      512  90112  176.0    8  4096   512.3
//! ```
//! Without an expression, rows are counted; without keys too, stored aggregates are listed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray};
use arrow::compute::{SortOptions, sort, sort_to_indices, take};
use arrow::datatypes::{DataType, Field, Float64Type, Schema};
use clap::{Args, ValueEnum};

use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::stacks::ids;
use perfquet::stacks::strings;
use perfquet_trace::count::counted;

use super::row_source::{Rows, divided, expressions, named};
use super::stored_aggregates;
use crate::commands::Subcommand;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::{Answered, Form, Section, TERMINAL, with_spares};
use crate::report::{self, Report};
use crate::settings::Output;

pub(super) const REPORT: Subcommand = report::subcommand::<Agg>();

/// Aggregate an expression by keys: count, sum, avg, min, max, stddev
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Aggregate call durations by function and CPU
  perfquet-query agg t.pqt duration --by function,cpu -n 20
  # Aggregate a field of an event
  perfquet-query agg a.pqt bytes_req --event kmem:kmalloc --by comm --sort sum
  # Aggregate the last column of a query
  perfquet-query agg a.pqt --sql 'SELECT comm, reason, duration FROM off_cpu' --by comm,reason
  # Count events
  perfquet-query agg a.pqt --event sched:sched_switch --by next_comm
  # Aggregate a column of another table
  perfquet-query agg a.pqt --from losses 'count' --by reason
  # List the aggregates of a recording, or of an imported DTrace output
  perfquet-query agg d.pqt")]
struct Agg {
    /// Trace directories or patterns, such as 'runs/*.pqt'; then an SQL expression
    ///
    /// Without EXPR, counts rows. Without EXPR and --by, lists the stored aggregates.
    #[arg(value_name = "TRACE... [EXPR]", required = true)]
    words: Vec<String>,
    /// Group by these columns or expressions; comma-separated
    #[arg(long, value_name = "KEY")]
    by: Option<String>,
    /// Sort column, descending; min and key ascending [default: sum; count without EXPR]
    #[arg(short = 's', long, value_enum)]
    sort: Option<Sort>,
    /// Maximum number of rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 0)]
    limit: usize,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    Stddev,
    Key,
}

impl Report for Agg {
    const NAME: &'static str = "agg";

    fn traces(&self) -> Vec<PathBuf> {
        divided(&self.words).0
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(Form::rows(self.output.format))
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let (_, expression) = divided(&self.words);
        let expression = match expression {
            None => self.rows.value_of_query(session)?,
            given => given,
        };
        let asks = expression.is_some() || self.by.is_some();
        if !asks && session.has_rows("aggregates") {
            let batch = imported_values(session, &self.rows.choice.filters)?;
            let rows = batch.num_rows();
            if self.limit == 0 || self.limit >= rows {
                return Ok(Answered::new(Section::Table(batch)));
            }
            let all = counted(rows as u64, "aggregate");
            let summary = format!("the largest {} of {all}", self.limit);
            let shown = Section::Table(largest(&batch, self.limit)?);
            return Ok(Answered::new(shown).with_summary(summary));
        }
        let keys = self.by.as_deref().map(expressions).transpose()?;
        let keys = keys.unwrap_or_default();
        if expression.is_none() && !matches!(self.sort, None | Some(Sort::Count | Sort::Key)) {
            bail!(Misuse(
                "--sort: requires EXPR, except for count and key".to_owned()
            ));
        }
        let rows = self.rows.selected(session)?;
        for key in &keys {
            session.piece("--by", key)?;
        }
        if let Some(expression) = &expression {
            session.piece("EXPR", expression)?;
        }
        let sql = sql(self, &keys, expression.as_deref())
            .replace("{table}", &rows.table)
            .replace("{where}", &rows.condition);
        let answer = session.query(&sql)?;
        let schema = with_spares(&answer.schema(), &["stddev", "min", "max", "avg"]);
        let answer = answer.with_schema(schema);
        Ok(Answered::new(Section::Stream(answer)))
    }
}

/// Returns the query, with placeholders for the table and the condition.
fn sql(report: &Agg, keys: &[String], expression: Option<&str>) -> String {
    let selected = named(keys, &["count", "sum", "avg", "min", "max", "stddev"]);
    let values = match expression {
        Some(x) => format!(
            "count({x}) AS count, sum({x}) AS sum, avg({x}) AS avg, min({x}) AS min, max({x}) AS max, stddev_pop({x}) AS stddev"
        ),
        None => "count(*) AS count".to_owned(),
    };
    let places: Vec<String> = (1..=keys.len()).map(|place| place.to_string()).collect();
    let group = match places.is_empty() {
        true => String::new(),
        false => format!("GROUP BY {}", places.join(", ")),
    };
    let usual = if expression.is_some() {
        Sort::Sum
    } else {
        Sort::Count
    };
    let mut sort = vec![
        match report.sort.unwrap_or(usual) {
            Sort::Count => "count DESC NULLS LAST",
            Sort::Sum => "sum DESC NULLS LAST",
            Sort::Avg => "avg DESC NULLS LAST",
            Sort::Min => "min NULLS LAST",
            Sort::Max => "max DESC NULLS LAST",
            Sort::Stddev => "stddev DESC NULLS LAST",
            Sort::Key => "1",
        }
        .to_owned(),
    ];
    sort.extend(places);
    let limit = match report.limit {
        0 => String::new(),
        lines => format!("LIMIT {}", i64::try_from(lines).unwrap_or(i64::MAX)),
    };
    include_str!("agg.sql")
        .replace("{keys}", &selected)
        .replace("{values}", &values)
        .replace("{group}", &group)
        .replace("{sort}", &sort.join(", "))
        .replace("{limit}", &limit)
}

/// The stored aggregates with the largest values, in their order.
fn largest(batch: &RecordBatch, count: usize) -> Result<RecordBatch> {
    let values = batch.column_by_name("value").context("no values")?;
    let descending = SortOptions {
        descending: true,
        nulls_first: false,
    };
    let places = sort_to_indices(values, Some(descending), Some(count))?;
    let in_order = sort(&places, None)?;
    let columns = batch
        .columns()
        .iter()
        .map(|column| take(column, &in_order, None));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

/// Returns stored aggregates.
fn imported_values(session: &Session, filters: &Filters) -> Result<RecordBatch> {
    let condition = format!("value IS NOT NULL AND {}", filters.condition(session)?);
    let Some(rows) = stored_aggregates::query(session, &condition)? else {
        if filters.are_given() {
            bail!(
                "no matching aggregates\n{}",
                stored_aggregates::OF_INTERVALS
            );
        }
        bail!("the trace has only distributions\nhint: perfquet-query hist TRACE");
    };
    let traces = stored_aggregates::traces(session, &rows)?;
    let lists = rows.column(3).as_list::<i32>();
    let mut keys = Vec::with_capacity(rows.num_rows());
    for (row, &trace) in traces.iter().enumerate() {
        let words = strings(&lists.value(row))?;
        let mut words: Vec<String> = words.iter().flatten().map(str::to_owned).collect();
        for stacks in [5, 6] {
            let stacks = ids(rows.column(stacks))?;
            if stacks.is_valid(row) {
                let tree = session.forest().tree(trace)?;
                let node = tree.node(stacks.value(row));
                words.extend(node.map(|node| tree.folded(node)));
            }
        }
        keys.push(words.join(", "));
    }
    let values = rows.column(4).as_primitive::<Float64Type>();
    let is_whole = values
        .iter()
        .flatten()
        .all(|value| value.fract() == 0.0 && value.abs() < 9e15);
    let exact = rows.column(7);
    // Counts are printed as integers. Traces of earlier versions have no exact values.
    let values: ArrayRef = match (exact.null_count() == 0, is_whole) {
        (true, _) => exact.clone(),
        (false, true) => arrow::compute::cast(values, &DataType::Int64)?,
        (false, false) => Arc::new(values.iter().collect::<Float64Array>()),
    };
    let keys: ArrayRef = Arc::new(StringArray::from(keys));
    let mut columns = vec![
        ("name", rows.column(1).clone()),
        ("action", rows.column(2).clone()),
        ("keys", keys),
        ("value", values),
    ];
    if let Some(trace) = rows.column_by_name("trace") {
        columns.push(("trace", trace.clone()));
    }
    let optional = HashMap::from([(TERMINAL.to_owned(), "optional".to_owned())]);
    let column = |(name, values): (&str, ArrayRef)| {
        let field = Field::new(name, values.data_type().clone(), true);
        (field.with_metadata(optional.clone()), values)
    };
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().map(column).unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}
