//! What the reports over views share: options, keys, order, totals.
//!
//! ```text
//! SELECT {keys}count(*) AS calls, … FROM syscalls WHERE {where} {group}
//! ```
//! All groups are read, so that the closing line counts them; a report has few. The first column of numbers is that of the rows, and
//! the last one of the SQL is the distribution of the durations, as `quantize` returns it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{
    SortColumn, SortOptions, cast, concat_batches, lexsort_to_indices, take_record_batch,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use clap::Args;
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::unit::in_fitting_unit;
use perfquet_cli::{nearest, suggestion};
use perfquet_trace::count::{counted, grouped};

use super::row_source::{expressions, named};
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::{Answered, Form, Section, TERMINAL, with_spares};
use crate::settings::{Output, Traces, Watching};

/// Options of a report over a view.
#[derive(Debug, Args)]
pub(super) struct SummaryOptions {
    #[command(flatten)]
    pub(super) traces: Traces,
    /// Group by these columns or expressions of the view
    #[arg(long, value_name = "KEY,…")]
    by: Option<String>,
    /// Sort column: a value, descending, or a key [default: total]
    #[arg(short = 's', long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Maximum number of rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25)]
    limit: usize,
    #[command(flatten)]
    pub(super) filters: Filters,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    watching: Watching,
    #[command(flatten)]
    pub(super) limits: Limits,
}

/// A report over a view.
pub(super) struct Summary {
    pub(super) view: &'static str,
    /// The query, with `{keys}`, `{where}` and `{group}`. Its columns after the keys are values; the first one is a count.
    pub(super) sql: &'static str,
    /// Keys without `--by`.
    pub(super) keys: &'static [&'static str],
    /// Noun for the counted rows, in the singular.
    pub(super) noun: &'static str,
}

/// Makes the options of a report over a view the report.
macro_rules! summary_report {
    ($report:ident, $name:literal, $summary:expr) => {
        impl crate::report::Report for $report {
            const NAME: &'static str = $name;

            fn traces(&self) -> Vec<std::path::PathBuf> {
                self.options.paths()
            }

            fn limits(&self) -> &crate::limits::Limits {
                &self.options.limits
            }

            fn form(&self) -> anyhow::Result<crate::render::Form> {
                Ok(self.options.form())
            }

            fn watch(&self) -> Option<std::time::Duration> {
                self.options.watch()
            }

            fn answer<'s>(
                &self,
                session: &'s perfquet::Session,
            ) -> anyhow::Result<crate::render::Answered<'s>> {
                self.options.answer(session, &$summary)
            }
        }
    };
}

pub(super) use summary_report;

impl SummaryOptions {
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.traces.traces.clone()
    }

    pub(super) fn form(&self) -> Form {
        Form::rows(self.output.format)
    }

    pub(super) fn watch(&self) -> Option<Duration> {
        self.watching.watch
    }

    /// Answers with the rows of a report.
    pub(super) fn answer<'s>(
        &self,
        session: &'s Session,
        summary: &Summary,
    ) -> Result<Answered<'s>> {
        let condition = self.filters.condition(session)?;
        let keys = self.keys(session, summary)?;
        let values = value_names(summary.sql);
        let selected = named(&keys, &values);
        let places: Vec<String> = (1..=keys.len()).map(|place| place.to_string()).collect();
        let sql = summary
            .sql
            .replace("{keys}", &selected)
            .replace("{where}", &condition)
            .replace("{group}", &format!("GROUP BY {}", places.join(", ")));
        let sql = match keys.iter().any(|key| key == OWNER) {
            true => sql.replace("\nFROM locks\n", &with_owners(session.traces().len() > 1)),
            false => sql,
        };
        let mut answer = session.query(&sql)?;
        let schema = answer.schema();
        let mut batches = Vec::new();
        while let Some(batch) = answer.next_batch()? {
            batches.push(batch);
        }
        let all = concat_batches(&schema, &batches)?;
        if all.num_rows() == 0 {
            if let Some(text) = self
                .filters
                .why_nothing_fits(session, summary.view, "TRUE")?
            {
                bail!(text);
            }
            match self.filters.are_given() {
                true => bail!("no matching {}", plural(summary.noun)),
                false => bail!("the trace has no {}", plural(summary.noun)),
            }
        }
        let names: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let rows = self.sorted(&all, &names, keys.len())?;
        let totals = totals(&all, keys.len(), summary.noun)?;
        let rows = for_people(&rows, self.sort.as_deref().unwrap_or("total"))?;
        Ok(Answered::new(Section::Table(rows)).with_summary(totals))
    }

    fn keys(&self, session: &Session, summary: &Summary) -> Result<Vec<String>> {
        let Some(by) = &self.by else {
            let mut keys: Vec<String> = summary.keys.iter().map(|&key| key.to_owned()).collect();
            if session.traces().len() > 1 {
                keys.push("trace".to_owned());
            }
            return Ok(keys);
        };
        let mut keys = Vec::new();
        for key in expressions(by)? {
            // What people call the columns.
            let columns: &[&str] = match key.as_str() {
                "thread" => &["comm", "tid"],
                "process" => &["pid"],
                "owner" if summary.view == "locks" => &[OWNER, "owner_tid"],
                _ => {
                    session.piece("--by", &key)?;
                    keys.push(key);
                    continue;
                }
            };
            keys.extend(columns.iter().map(|&column| column.to_owned()));
        }
        Ok(keys)
    }

    /// The first rows in the order of `--sort`.
    fn sorted(&self, rows: &RecordBatch, names: &[String], keys: usize) -> Result<RecordBatch> {
        let column = self.sort.as_deref().unwrap_or("total");
        let Some(place) = names.iter().position(|name| name == column) else {
            let known = names.iter().map(String::as_str);
            let near = nearest(column, known);
            let hint = match near.is_empty() {
                true => String::new(),
                false => format!("\nhint: {}", suggestion(&near)),
            };
            bail!(Misuse(format!(
                "--sort {column}: expected one of {}{hint}",
                names.join(", ")
            )));
        };
        if rows.column(place).data_type().is_nested() {
            bail!(Misuse(format!("--sort {column}: cannot be sorted by")));
        }
        let by = |place: usize| SortColumn {
            values: Arc::clone(rows.column(place)),
            options: Some(SortOptions {
                descending: place >= keys,
                nulls_first: false,
            }),
        };
        let mut order = vec![by(place)];
        order.extend((0..keys).filter(|&key| key != place).map(by));
        let limit = (self.limit > 0).then_some(self.limit);
        let order = lexsort_to_indices(&order, limit)?;
        Ok(take_record_batch(rows, &order)?)
    }
}

/// The key with the name of the thread that held a lock.
const OWNER: &str = "owner_comm";

/// The locks with the names of their owners: the last one that a thread had.
fn with_owners(several: bool) -> String {
    let (trace, same) = match several {
        true => ("trace, ", " AND t.trace = l.trace"),
        false => ("", ""),
    };
    format!(
        "\nFROM (SELECT l.*, t.comm AS {OWNER} FROM locks AS l LEFT JOIN (SELECT {trace}tid, max(comm) AS comm FROM threads GROUP BY {trace}tid) AS t ON t.tid = l.owner_tid{same}) AS locks\n"
    )
}

/// The names of the values that a query selects after its keys.
fn value_names(sql: &str) -> Vec<&str> {
    let from = sql.find("\nFROM").unwrap_or(sql.len());
    let pieces = sql[..from].split(" AS ").skip(1);
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let names = pieces.map(|piece| {
        piece
            .split(|letter| !is_part(letter))
            .next()
            .unwrap_or_default()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The number of rows, and the sum of `total`.
fn totals(rows: &RecordBatch, keys: usize, noun: &str) -> Result<String> {
    let sum = |column: &ArrayRef| -> Result<f64> {
        let numbers = cast(column, &DataType::Float64)?;
        Ok(numbers.as_primitive::<Float64Type>().iter().flatten().sum())
    };
    let counts = cast(rows.column(keys), &DataType::Int64)?;
    let count: i64 = counts.as_primitive::<Int64Type>().iter().flatten().sum();
    let mut text = counted(count.unsigned_abs(), noun);
    let column = |name: &str| rows.column_by_name(name);
    if let Some(errors) = column("errors") {
        let errors = sum(errors)? as u64;
        if errors > 0 {
            text.push_str(&format!(", {}", counted(errors, "error")));
        }
    }
    if let Some(total) = column("total") {
        text.push_str(&format!(", {} total", in_fitting_unit(sum(total)?)));
    }
    if let Some(unknown) = column("unknown") {
        let unknown = sum(unknown)? as u64;
        if unknown > 0 {
            text.push_str(&format!("; {} of unknown duration", grouped(unknown)));
        }
    }
    Ok(text)
}

/// "wait" → "waits".
fn plural(noun: &str) -> String {
    counted(2_u64, noun).trim_start_matches("2 ").to_owned()
}

/// Columns that a narrow terminal omits, the first one first.
const SPARES: [&str; 11] = [
    "unknown",
    "avg",
    "histogram",
    "p99",
    "slept",
    "queued",
    "errors",
    "max",
    "bytes",
    "total",
    "waits",
];

/// Marks the columns that a terminal draws, or omits if they are empty or if it is narrow; it keeps the one sorted by.
fn for_people(rows: &RecordBatch, sorted_by: &str) -> Result<RecordBatch> {
    let schema = rows.schema();
    let fields = schema.fields().iter().map(|field| {
        let drawn = match field.name().as_str() {
            "histogram" if field.data_type().is_nested() => "bars",
            "errors" | "unknown" | "comm_count" | "error" => "optional",
            _ => return field.as_ref().clone(),
        };
        let mut metadata: HashMap<String, String> = field.metadata().clone();
        metadata.insert(TERMINAL.to_owned(), drawn.to_owned());
        field.as_ref().clone().with_metadata(metadata)
    });
    let fields: Vec<Field> = fields.collect();
    let spares: Vec<&str> = SPARES
        .into_iter()
        .filter(|&spare| spare != sorted_by)
        .collect();
    Ok(RecordBatch::try_new(
        with_spares(&Schema::new(fields), &spares),
        rows.columns().to_vec(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query() {
        let sql = "-- Calls AS such.\nSELECT {keys}count(*) AS calls,\n  CAST(avg(x) AS BIGINT) AS avg\nFROM t";
        assert!(value_names(sql).contains(&"calls"));
        assert!(value_names(sql).contains(&"avg"));
    }
}
