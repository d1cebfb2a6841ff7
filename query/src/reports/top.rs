//! `top`: the hottest functions, modules, thread names or events.
//!
//! ```text
//! self_percent  total_percent  self  total  function   module
//!        41.20          41.20   412    412  memcpy     /usr/lib/libc.so.6
//!         0.10          98.70     1    987  main       /usr/bin/dd
//! ```
//! *self* is the weight of the function itself, *total* includes its callees; recursion is counted once. Samples
//! of counters are weighted by period. A trace without samples may have stacks that are already aggregated.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{Field, Int64Type, Schema};
use clap::{Args, ValueEnum};
use perfquet::Session;
use perfquet::stacks::strings;
use perfquet::stacks::{Forest, Frames};
use perfquet::unit::in_fitting_unit;
use perfquet::unit::{DURATION, UNIT};
use perfquet_trace::count::{counted, grouped};

use super::event_weight::{EventChoice, WeightedEvent};
use super::folding::Folded;
use super::frame_groups::{FrameGroups, GroupName, GroupWeight, by_trace};
use super::stored_aggregates;
use crate::commands::Subcommand;
use crate::limits::Limits;
use crate::render::{Answered, Form, Section, with_spares};
use crate::report::{self, Report};
use crate::settings::{Output, Traces, Watching};
use crate::text::harmless;
use crate::totals;

pub(super) const REPORT: Subcommand = report::subcommand::<Top>();

/// List the hottest functions, modules, threads or events
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List the functions with the most samples
  perfquet-query top a.pqt
  # List the modules of one program
  perfquet-query top a.pqt --by module --comm dd
  # Include callees, in a time range
  perfquet-query top a.pqt --sort total -n 10 --time 1s..2s
  # List the threads that block most often
  perfquet-query top a.pqt --by comm --event sched:sched_switch --where 'prev_state = 1'
  # Count all events
  perfquet-query top a.pqt --by event
  # Write all functions to a CSV file
  perfquet-query top a.pqt --format csv -n 0 > all.csv")]
struct Top {
    #[command(flatten)]
    traces: Traces,
    /// Group by KEY
    #[arg(long, value_enum, value_name = "KEY", default_value_t = By::Function)]
    by: By,
    /// Sort order
    #[arg(long, value_enum, default_value_t = Sort::SelfWeight)]
    sort: Sort,
    /// Maximum number of rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25)]
    limit: usize,
    #[command(flatten)]
    choice: EventChoice,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    watching: Watching,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Function,
    Module,
    Comm,
    Thread,
    Process,
    Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Weight of the function itself
    #[value(name = "self")]
    SelfWeight,
    /// Weight of the function and its callees
    Total,
}

impl Report for Top {
    const NAME: &'static str = "top";

    fn traces(&self) -> Vec<PathBuf> {
        self.traces.traces.clone()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(Form::rows(self.output.format))
    }

    fn watch(&self) -> Option<Duration> {
        self.watching.watch
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let condition = self.choice.filters.condition(session)?;
        let (summary, batch) = match self.by {
            By::Function | By::Module => by_frame(self, session, &condition)?,
            By::Comm => {
                let subject = self.choice.subject(session)?;
                by_column(self, session, &subject, "comm", &condition)?
            }
            By::Thread => {
                let subject = self.choice.subject(session)?;
                let key = "concat(coalesce(comm, '[unknown]'), ' (', CAST(tid AS TEXT), ')')";
                by_expression(self, session, &subject, ("thread", key), &condition)?
            }
            By::Process => {
                let subject = self.choice.subject(session)?;
                let key = "CAST(pid AS TEXT)";
                let (summary, batch) =
                    by_expression(self, session, &subject, ("process", key), &condition)?;
                (summary, with_process_names(session, &batch)?)
            }
            By::Event => {
                let subject = self.choice.event_or_every(session)?;
                by_column(self, session, &subject, "event", &condition)?
            }
        };
        if batch.num_rows() == 0 {
            self.choice.fail_if_nothing_fits(session)?;
        }
        Ok(Answered::new(Section::Table(batch)).with_summary(summary))
    }
}

fn by_column(
    top: &Top,
    session: &Session,
    subject: &WeightedEvent,
    column: &'static str,
    condition: &str,
) -> Result<(String, RecordBatch)> {
    by_expression(top, session, subject, (column, column), condition)
}

/// Groups by an expression; `column` is its name.
fn by_expression(
    top: &Top,
    session: &Session,
    subject: &WeightedEvent,
    (column, key): (&'static str, &str),
    condition: &str,
) -> Result<(String, RecordBatch)> {
    let sql = subject
        .fill(include_str!("top.sql"), condition)
        .replace("{key}", key);
    let (mut keys, mut weights, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    for batch in session.collect(&sql)? {
        let names = strings(batch.column(0))?;
        keys.extend(
            names
                .iter()
                .map(|name| name.unwrap_or("[unknown]").to_owned()),
        );
        let totals = totals::read(batch.column(1))?;
        weights.extend((0..batch.num_rows()).map(|row| totals::weight(&totals, row)));
        let counts = batch.column(2).as_primitive::<Int64Type>().values();
        samples.extend(counts.iter().map(|&n| n.max(0) as u64));
    }
    let all: u128 = weights.iter().sum();
    let summary = total(session, subject, all, samples.iter().sum())?;
    let shown = if top.limit == 0 {
        keys.len()
    } else {
        top.limit.min(keys.len())
    };
    let percents = weights[..shown].iter().map(|&weight| percent(weight, all));
    let columns: [(&str, ArrayRef, bool); 4] = [
        (
            "self_percent",
            Arc::new(Float64Array::from_iter_values(percents)),
            false,
        ),
        (
            "self",
            totals::unsigned(weights[..shown].iter().copied()),
            false,
        ),
        (
            "samples",
            Arc::new(UInt64Array::from(samples[..shown].to_vec())),
            false,
        ),
        (
            column,
            Arc::new(StringArray::from(keys[..shown].to_vec())),
            false,
        ),
    ];
    Ok((summary, batch(columns, subject.unit, "")?))
}

/// The rows with the names of processes beside their PIDs in the last column: those of their main threads.
fn with_process_names(session: &Session, rows: &RecordBatch) -> Result<RecordBatch> {
    let mut names = HashMap::new();
    let sql = "SELECT CAST(pid AS TEXT), max(comm) FROM threads WHERE pid = tid AND comm IS NOT NULL GROUP BY pid";
    if session.has_rows("threads") {
        for batch in session.collect(sql)? {
            let (pids, comms) = (strings(batch.column(0))?, strings(batch.column(1))?);
            let pairs = pids.iter().zip(comms.iter());
            names.extend(pairs.filter_map(|(pid, comm)| Some((pid?.to_owned(), comm?.to_owned()))));
        }
    }
    let last = rows.num_columns() - 1;
    let pids = strings(rows.column(last))?;
    let named = pids.iter().map(
        |pid| match pid.and_then(|pid| Some((pid, names.get(pid)?))) {
            Some((pid, name)) => Some(format!("{name} ({pid})")),
            None => pid.map(str::to_owned),
        },
    );
    let mut columns = rows.columns().to_vec();
    columns[last] = Arc::new(named.collect::<StringArray>());
    Ok(RecordBatch::try_new(rows.schema(), columns)?)
}

/// Returns the total that the percentages refer to.
fn total(session: &Session, subject: &WeightedEvent, weight: u128, samples: u64) -> Result<String> {
    let (name, amount) = (&subject.name, amount(weight, subject.unit));
    let about = match subject.is_estimated(session)? {
        true => "about ",
        false => "",
    };
    Ok(match weight == u128::from(samples) {
        true => format!("{name}: {amount}"),
        false => format!("{name}: {}, {about}{amount}", counted(samples, "sample")),
    })
}

/// A weight with its unit: `1 event`, `10.020 ms`.
fn amount(weight: u128, unit: &str) -> String {
    match unit {
        "events" => counted(weight, "event"),
        "samples" => counted(weight, "sample"),
        DURATION => in_fitting_unit(weight as f64),
        unit => format!("{} {unit}", grouped(weight)),
    }
}

/// Returns the percentage of `all`, rounded to two decimals.
fn percent(part: u128, all: u128) -> f64 {
    if all == 0 {
        0.0
    } else {
        (part as f64 / all as f64 * 1e4).round() / 1e2
    }
}

fn by_frame(top: &Top, session: &Session, condition: &str) -> Result<(String, RecordBatch)> {
    let (summary, folded, unit) = match stored_aggregates::are_what_there_is(session, &top.choice) {
        true => aggregated(session, condition)?,
        false => {
            let subject = top.choice.subject(session)?;
            let folded = Folded::query(session, &subject, condition, None)?;
            let summary = total(session, &subject, folded.weight, folded.samples)?;
            (summary, folded, subject.unit.to_string())
        }
    };
    let mut lines = lines(session.forest(), &folded, top.by)?;
    lines.sort_by(|a, b| {
        let by_weight = match top.sort {
            Sort::SelfWeight => (b.weight.own, b.weight.total).cmp(&(a.weight.own, a.weight.total)),
            Sort::Total => (b.weight.total, b.weight.own).cmp(&(a.weight.total, a.weight.own)),
        };
        by_weight.then_with(|| a.name.cmp(&b.name))
    });
    if top.limit > 0 {
        lines.truncate(top.limit);
    }
    let numbers = |value: fn(&Line) -> u128| totals::unsigned(lines.iter().map(value));
    let percents = |value: fn(&Line) -> u128| {
        let values = lines.iter().map(|line| percent(value(line), folded.weight));
        Arc::new(Float64Array::from_iter_values(values)) as ArrayRef
    };
    let modules: StringArray = lines
        .iter()
        .map(|line| line.name.module.as_deref())
        .collect();
    let mut columns = vec![
        ("self_percent", percents(|line| line.weight.own), false),
        ("total_percent", percents(|line| line.weight.total), false),
        ("self", numbers(|line| line.weight.own), false),
        ("total", numbers(|line| line.weight.total), false),
    ];
    if top.by == By::Function {
        let functions = StringArray::from_iter_values(lines.iter().map(|line| &line.name.function));
        columns.push(("function", Arc::new(functions), false));
    }
    columns.push(("module", Arc::new(modules), true));
    let other_percent = match top.sort {
        Sort::SelfWeight => "total_percent",
        Sort::Total => "self_percent",
    };
    Ok((summary, batch(columns, &unit, other_percent)?))
}

/// Returns the rows; weights in nanoseconds are durations. `other_percent`: the column that does not order them, which is more easily
/// missed than the module.
fn batch(
    columns: impl IntoIterator<Item = (&'static str, ArrayRef, bool)>,
    unit: &str,
    other_percent: &str,
) -> Result<RecordBatch> {
    let columns = columns.into_iter().map(|(name, values, nullable)| {
        let field = Field::new(name, values.data_type().clone(), nullable);
        let is_weight = matches!(name, "self" | "total");
        let metadata = match is_weight && unit == DURATION {
            true => HashMap::from([(UNIT.to_owned(), DURATION.to_owned())]),
            false => HashMap::new(),
        };
        (field.with_metadata(metadata), values)
    });
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.unzip();
    let schema = with_spares(
        &Schema::new(fields),
        &["total", "self", "samples", other_percent, "module"],
    );
    Ok(RecordBatch::try_new(schema, arrays)?)
}

/// Returns stacks that are already aggregated, their summary and unit.
fn aggregated(session: &Session, condition: &str) -> Result<(String, Folded, String)> {
    let summed = stored_aggregates::stacks(session, condition)?;
    if summed.folded.weight == 0 {
        bail!(
            "no matching aggregates with stacks\n{}",
            stored_aggregates::OF_INTERVALS
        );
    }
    let unit = summed.unit();
    let name = summed
        .name
        .as_deref()
        .map_or("aggregation".into(), harmless);
    let weight = amount(summed.folded.weight, &unit);
    let stacks = counted(summed.folded.samples, "stack");
    let summary = format!("{name}: {weight} in {stacks}");
    Ok((summary, summed.folded, unit.to_string()))
}

/// A function or module with its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    name: GroupName,
    weight: GroupWeight,
}

/// Sums all trees by function or module.
fn lines(forest: &Forest, folded: &Folded, by: By) -> Result<Vec<Line>> {
    let mut groups = FrameGroups::new(|frames: &Frames, frame| {
        let function = match by {
            By::Function => frames.name(frame).into_owned(),
            By::Module | By::Comm | By::Thread | By::Process | By::Event => String::new(),
        };
        (function, frames.module(frame).map(str::to_owned))
    });
    let mut weights: Vec<GroupWeight> = Vec::new();
    for (trace, rows) in by_trace(&folded.rows) {
        let tree = forest.passing_tree(trace)?;
        let of_trace = groups.of_trace(&tree);
        weights.resize(groups.len(), GroupWeight::default());
        for (group, weight) in of_trace.weigh(rows.into_iter()) {
            weights[group].own += weight.own;
            weights[group].total += weight.total;
        }
    }
    let lines = groups.into_names().into_iter().zip(weights);
    Ok(lines
        .filter(|(_, weight)| weight.total > 0)
        .map(|(name, weight)| Line { name, weight })
        .collect())
}
