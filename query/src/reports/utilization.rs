//! `utilization`: how CPUs, threads or programs spent their time, and when.
//!
//! ```text
//! cpu   busy   user  kernel   irq  softirq   idle  covered  timeline
//!   0  81.2%  70.1%    9.0%  0.6%     1.5%  18.8%    99.9%  ▁▃█████▇▇▅▁
//! ```
//! The timeline has one letter per step, from 0 to 100% busy; in the output of values, a step in which nothing is known of a CPU is NULL.
//! `covered` is the share of the selected time that is known.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Float64Builder, Int64Array, ListBuilder, RecordBatch,
    StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use clap::{Args, ValueEnum};
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::stacks::strings;
use perfquet::unit::in_fitting_unit;
use perfquet::unit::{SHARE, UNIT};
use perfquet_cli::quantity::nanoseconds;
use perfquet_trace::count::{counted, grouped};

use crate::commands::Subcommand;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::{Answered, Form, Section, TERMINAL, with_spares};
use crate::report::{self, Report};
use crate::settings::{Output, Traces, Watching};
use crate::text::harmless;

pub(super) const REPORT: Subcommand = report::subcommand::<Utilization>();

/// Show how CPUs or threads spend their time, with a timeline
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Show the CPUs
  perfquet-query utilization a.pqt
  # Show the busiest threads in steps of 10 ms
  perfquet-query utilization a.pqt --by thread --step 10ms
  # Show one program in a time range
  perfquet-query utilization a.pqt --by thread --comm dd --time 1s..2s")]
struct Utilization {
    #[command(flatten)]
    traces: Traces,
    /// Group by KEY
    #[arg(long, value_enum, value_name = "KEY", default_value_t = By::Cpu)]
    by: By,
    /// Length of a step, such as 10ms [default: a 40th of the time range]
    #[arg(long, value_name = "TIME", value_parser = step)]
    step: Option<i64>,
    /// Maximum number of rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25)]
    limit: usize,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    watching: Watching,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Cpu,
    Thread,
    /// Thread name
    Comm,
}

fn step(text: &str) -> Result<i64, String> {
    match nanoseconds(text) {
        Some(ns) if ns > 0 => Ok(ns),
        _ => Err("expected a time such as 10ms".to_owned()),
    }
}

/// Steps of the timeline, if `--step` is not given.
const STEPS: i64 = 40;

/// Steps of a timeline, at most: each line has a number for each.
const MOST_STEPS: i64 = 100_000;

/// Steps of a timeline on a terminal, at most.
const LETTERS: usize = 100;

impl By {
    fn view(self) -> &'static str {
        match self {
            By::Cpu => "cpu_utilization",
            By::Thread | By::Comm => "thread_utilization",
        }
    }

    fn keys(self) -> &'static [&'static str] {
        match self {
            By::Cpu => &["cpu"],
            By::Thread => &["comm", "pid", "tid"],
            By::Comm => &["comm"],
        }
    }

    /// The shares, the one of the timeline first.
    fn shares(self) -> &'static [&'static str] {
        match self {
            By::Cpu => &["busy", "user", "kernel", "irq", "softirq", "idle"],
            By::Thread | By::Comm => &["busy", "waiting", "blocked"],
        }
    }
}

impl Report for Utilization {
    const NAME: &'static str = "utilization";

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
        let trace = session.only_trace()?;
        let (start, end) = trace.time_range().unwrap_or_default();
        let end = end.max(last_exit(session)?.unwrap_or(end));
        let (from, to) = self.filters.time_bounds(start).unwrap_or((start, end));
        let (from, to) = (from.max(start), to.min(end));
        let length = to.saturating_sub(from);
        let step = self.step.unwrap_or_else(|| {
            // Rounded up; otherwise, the remainder would be another step.
            (length / STEPS + i64::from(length % STEPS > 0)).max(1)
        });
        if length / step > MOST_STEPS {
            bail!(Misuse(format!(
                "--step: {} would be too many, at most {} are shown\nhint: use a step of at least {}ns, or select less with --time",
                counted((length / step).unsigned_abs(), "step"),
                grouped(MOST_STEPS.unsigned_abs()),
                length / MOST_STEPS + 1,
            )));
        }
        let condition = self.filters.condition(session)?;
        let (keys, shares) = (self.by.keys(), self.by.shares());
        let covered = if self.by == By::Cpu { "covered" } else { "1.0" };
        // The view has steps at multiples of their length, of which a part of the time may have parts; here, they begin with it.
        let view = self.by.view();
        let steps = match session.is_recorded(view)? {
            true => format!("pass_{view}({step}, {from}, {to})"),
            false => format!("{view}({step})"),
        };
        let sql = format!(
            "SELECT {}, {}, {covered} AS covered, (time - {from}) / {step} AS step FROM {steps} WHERE {condition} ORDER BY time",
            keys.join(", "),
            shares.join(", "),
        );
        let mut lines = Lines::new(shares.len());
        lines.steps = (length > 0).then(|| {
            let last = (length - 1) / step;
            (0..=last, length as f64 / step as f64)
        });
        for batch in session.collect(&sql)? {
            lines.add(&batch, keys.len())?;
        }
        if lines.by_key.is_empty() {
            match self
                .filters
                .why_nothing_fits(session, "thread_states", "TRUE")?
            {
                Some(text) => bail!(text),
                None => bail!("no matching rows"),
            }
        }
        let summary = format!(
            "{} of {}",
            counted(lines.range().count() as u64, "step"),
            in_fitting_unit(step as f64)
        );
        let rows = lines.rows(self.by, self.limit)?;
        if lines.is_of_threads() {
            say!(
                "some threads were recorded: covered and the timeline are their time; how long CPUs ran others or were idle is unknown"
            );
        }
        if self.by == By::Cpu && lines.has_kernel() {
            say!("{}", kernel_note(session, &self.filters)?);
        }
        Ok(Answered::new(Section::Table(rows)).with_summary(summary))
    }
}

/// The time of the last exit of a thread: what others do then may last until it, though it is no event.
fn last_exit(session: &Session) -> Result<Option<i64>> {
    let mut last = None;
    for batch in session.collect("SELECT CAST(max(end_time) AS BIGINT) FROM threads")? {
        let times = batch.column(0).as_primitive::<Int64Type>();
        last = last.max(times.iter().flatten().max());
    }
    Ok(last)
}

/// A CPU or a thread.
#[derive(Debug, Default)]
struct Line {
    /// Sum over the steps of share × covered; `None` if the share is NULL.
    sums: Vec<Option<f64>>,
    covered: f64,
    /// By step.
    busy: BTreeMap<i64, f64>,
}

/// All lines by their keys.
struct Lines {
    shares: usize,
    by_key: BTreeMap<Vec<String>, Line>,
    first: i64,
    last: i64,
    /// The steps that every line has, and how much of them is in the trace.
    steps: Option<(RangeInclusive<i64>, f64)>,
}

impl Lines {
    fn new(shares: usize) -> Lines {
        Lines {
            shares,
            by_key: BTreeMap::new(),
            first: i64::MAX,
            last: i64::MIN,
            steps: None,
        }
    }

    /// The steps of the timeline.
    fn range(&self) -> RangeInclusive<i64> {
        match &self.steps {
            Some((steps, _)) => *steps.start().min(&self.first)..=*steps.end().max(&self.last),
            None => self.first..=self.last,
        }
    }

    fn add(&mut self, batch: &RecordBatch, keys: usize) -> Result<()> {
        let texts: Result<Vec<_>> = batch.columns()[..keys]
            .iter()
            .map(|column| strings(&cast(column, &DataType::Utf8View)?))
            .collect();
        let texts = texts?;
        let numbers = |column: usize| cast(batch.column(column), &DataType::Float64);
        let values: Result<Vec<ArrayRef>, _> =
            (keys..keys + self.shares + 1).map(numbers).collect();
        let values = values?;
        let steps = cast(batch.column(keys + self.shares + 1), &DataType::Int64)?;
        let steps = steps.as_primitive::<Int64Type>();
        let value = |column: usize, row: usize| -> Option<f64> {
            let column = values[column].as_primitive::<Float64Type>();
            column.is_valid(row).then(|| column.value(row))
        };
        for row in 0..batch.num_rows() {
            let key = texts.iter().map(|text| match text.is_valid(row) {
                true => text.value(row).to_owned(),
                false => String::new(),
            });
            let line = self.by_key.entry(key.collect()).or_default();
            line.sums.resize(self.shares, None);
            let covered = value(self.shares, row).unwrap_or_default();
            line.covered += covered;
            for (number, sum) in line.sums.iter_mut().enumerate() {
                if let Some(share) = value(number, row) {
                    *sum = Some(sum.unwrap_or_default() + share * covered);
                }
            }
            let step = steps.value(row);
            // Where some threads only were recorded, what is covered is their time.
            *line.busy.entry(step).or_default() += value(0, row).unwrap_or(1.0) * covered;
            self.first = self.first.min(step);
            self.last = self.last.max(step);
        }
        Ok(())
    }

    /// Whether it is unknown how busy a CPU is.
    fn is_of_threads(&self) -> bool {
        self.by_key.values().any(|line| line.sums[0].is_none())
    }

    /// Whether the kernel's share is known.
    fn has_kernel(&self) -> bool {
        let mut lines = self.by_key.values();
        lines.any(|line| line.sums.get(KERNEL).is_some_and(Option::is_some))
    }

    /// CPUs in their order; threads with the busiest first.
    fn rows(&self, by: By, limit: usize) -> Result<RecordBatch> {
        let range = self.range();
        let steps = match &self.steps {
            Some((_, steps)) => *steps,
            None => range.clone().count() as f64,
        };
        // A CPU's shares are those of the time that is known; a thread is there all the time.
        let whole = |line: &Line| match by {
            By::Cpu => line.covered,
            By::Thread | By::Comm => steps,
        };
        let mut lines: Vec<(&Vec<String>, &Line)> = self.by_key.iter().collect();
        match by {
            By::Cpu => lines.sort_by_key(|(key, _)| key[0].parse::<i64>().unwrap_or_default()),
            By::Thread | By::Comm => lines.sort_by(|a, b| {
                b.1.sums[0]
                    .unwrap_or_default()
                    .total_cmp(&a.1.sums[0].unwrap_or_default())
            }),
        }
        if limit > 0 {
            lines.truncate(limit);
        }
        let mut columns: Vec<(Field, ArrayRef)> = Vec::new();
        for (number, name) in by.keys().iter().enumerate() {
            let texts = lines
                .iter()
                .map(|(key, _)| Some(key[number].as_str()).filter(|text| !text.is_empty()));
            let (kind, values): (DataType, ArrayRef) = match *name {
                "comm" => (DataType::Utf8, Arc::new(texts.collect::<StringArray>())),
                _ => {
                    let numbers = texts.map(|text| text.and_then(|text| text.parse().ok()));
                    (DataType::Int64, Arc::new(numbers.collect::<Int64Array>()))
                }
            };
            columns.push((Field::new(*name, kind, true), values));
        }
        let share = |name: &str, values: Float64Array| -> (Field, ArrayRef) {
            let mut metadata = HashMap::from([(UNIT.to_owned(), SHARE.to_owned())]);
            if values.null_count() == values.len() {
                metadata.insert(TERMINAL.to_owned(), "optional".to_owned());
            }
            (
                Field::new(name, DataType::Float64, true).with_metadata(metadata),
                Arc::new(values),
            )
        };
        for (number, name) in by.shares().iter().enumerate() {
            let of = |(_, line): &(&Vec<String>, &Line)| {
                let sum = line.sums[number].filter(|_| whole(line) > 0.0);
                sum.map(|sum| sum / whole(line))
            };
            columns.push(share(name, lines.iter().map(of).collect()));
        }
        if by == By::Cpu {
            let of = |(_, line): &(&Vec<String>, &Line)| Some(line.covered / steps);
            columns.push(share("covered", lines.iter().map(of).collect()));
        }
        // What a CPU did in a step without a row is not known; a thread slept.
        let is_known = by != By::Cpu || self.is_of_threads();
        let absent = is_known.then_some(0.0);
        // The last step may be shorter.
        let whole_steps = (range.clone().count() as f64 - 1.0).max(0.0);
        let of_step = |step: i64| match step == *range.end() && steps > whole_steps {
            true => steps - whole_steps,
            false => 1.0,
        };
        let mut timelines = ListBuilder::new(Float64Builder::new());
        for (_, line) in &lines {
            for step in range.clone() {
                let busy = line.busy.get(&step).map(|busy| busy / of_step(step));
                timelines.values().append_option(busy.or(absent));
            }
            timelines.append(true);
        }
        let timelines = timelines.finish();
        let drawn = if range.count() <= LETTERS {
            "shares"
        } else {
            "hidden"
        };
        let metadata = HashMap::from([(TERMINAL.to_owned(), drawn.to_owned())]);
        let field = Field::new("timeline", timelines.data_type().clone(), true);
        columns.push((field.with_metadata(metadata), Arc::new(timelines)));
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
        let schema = with_spares(&Schema::new(fields), &SPARES);
        Ok(RecordBatch::try_new(schema, arrays)?)
    }
}

/// Place of the kernel's share among those of a CPU.
const KERNEL: usize = 2;

/// Says that the kernel's share is a lower bound, and what samples say, if there are any: those of a thread with the instruction
/// pointer in the kernel.
fn kernel_note(session: &Session, filters: &Filters) -> Result<String> {
    let note = "kernel: at least, since page faults and other exceptions count as user";
    if !session.has_rows("samples") {
        return Ok(format!("{note}; samples tell them apart: -e cpu-clock"));
    }
    // A condition on the view need not fit samples.
    let scope = filters.scope().conditions(session)?.into_iter();
    let mut scope: Vec<String> = scope.map(|(_, condition)| condition).collect();
    scope.push("TRUE".to_owned());
    let sql = format!(
        "SELECT event, count(*) AS samples, count(*) FILTER (WHERE kernel_stack IS NOT NULL OR ip >= 9223372036854775808) AS kernel
         FROM samples WHERE tid <> 0 AND {} GROUP BY event ORDER BY samples DESC LIMIT 1",
        scope.join(" AND ")
    );
    for batch in session.collect(&sql)? {
        if batch.num_rows() == 1 {
            let event = strings(batch.column(0))?;
            let [samples, kernel] =
                [1, 2].map(|column| batch.column(column).as_primitive::<Int64Type>().value(0));
            return Ok(format!(
                "{note}; {:.1}% of {} of {} in threads are in the kernel",
                kernel as f64 * 100.0 / samples.max(1) as f64,
                counted(samples.unsigned_abs(), "sample"),
                harmless(event.value(0))
            ));
        }
    }
    Ok(note.to_owned())
}

/// Columns that a narrow terminal omits, the first one first.
const SPARES: [&str; 5] = ["covered", "idle", "softirq", "irq", "runnable"];
