//! `diff`: what changed between two traces, two sets of runs, or two parts of one trace, and whether it is significant.
//!
//! ```text
//!    change  change_percent     before      after      p  significant  function  module
//! +1.204 s          +100.1    1.202 s    2.406 s  0.000         true  hash      prog
//!  +4.0 ms            +0.6   702.0 ms   706.0 ms  0.981        false  vfs_read  [kernel.kallsyms]
//! ```
//! Functions match by name and module, not by address (`naming.rs`, `matching.rs`). Significance comes from repeated runs,
//! or from slices of time if each side is one recording (`significance.rs`, `bootstrap.rs`).

mod amounts;
mod bootstrap;
mod extents;
mod matching;
mod measured;
pub(super) mod naming;
mod permutation;
mod same_files;
mod sides;
mod significance;
mod statistic;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use clap::{Args, ValueEnum};
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::unit::UNIT;
use perfquet_trace::count::{counted, grouped};

use self::amounts::Amounts;
use self::extents::Extent;
use self::matching::United;
use self::measured::{Frame, Measured};
use self::permutation::RUNS_MIN;
use self::sides::{SIDES, Side, SideOptions};
use self::significance::Tested;
use self::statistic::{LEVEL, Replicates, Series};
use super::event_weight::{EventChoice, WeightedEvent};
use crate::commands::Subcommand;
use crate::limits::Limits;
use crate::render::{Answered, Form, SPARE, Section, TERMINAL};
use crate::report::{self, Report};
use crate::settings::Output;

pub(super) const REPORT: Subcommand = report::subcommand::<Diff>();

/// Compare two traces, sets of runs, or parts of a trace, with significance
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List the functions whose time changed
  perfquet-query diff old.pqt new.pqt
  # Compare ten runs with ten
  perfquet-query diff 'old-*.pqt' 'new-*.pqt'
  # Compare the first five seconds with the rest
  perfquet-query diff a.pqt --before-time ..5s --after-time 5s..
  # Compare two CPUs by thread name
  perfquet-query diff a.pqt --before-where 'cpu = 0' --after-where 'cpu = 1' --by comm
  # Compare durations of calls
  perfquet-query diff old.pqt new.pqt --calls --metric p99
  # Compare CPU time per request
  perfquet-query diff old.pqt new.pqt --per app:request")]
pub(super) struct Diff {
    #[command(flatten)]
    sides: SideOptions,
    /// Compare by KEY
    #[arg(long, value_enum, value_name = "KEY", default_value_t = By::Function)]
    by: By,
    /// Value to compare
    #[arg(long, value_enum, value_name = "METRIC", default_value_t = Metric::Own)]
    metric: Metric,
    /// Divide by runs, by seconds, by the total, or by the number of EVENTs
    ///
    /// `run` gives the values of a whole run, averaged over repeated runs, which suits programs with a fixed amount of work. `second`
    /// suits recordings of different length, `total` gives shares in percent (also for hosts with different numbers of CPUs), an event
    /// such as app:request gives the cost per occurrence. [default: second if the sides differ in length by more than 5% and neither
    /// is the run of a command; run otherwise]
    #[arg(long, value_name = "run|second|total|EVENT")]
    per: Option<String>,
    /// Compare durations of calls [default: if there are no samples]
    #[arg(long, conflicts_with = "event")]
    calls: bool,
    /// Maximum number of rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25)]
    limit: usize,
    #[command(flatten)]
    choice: EventChoice,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Function and module
    Function,
    Module,
    /// Whole stack
    Stack,
    /// Thread name
    Comm,
    /// Process ID
    Pid,
    /// CPU
    Cpu,
    /// Event
    Event,
    /// System call
    Syscall,
}

impl By {
    /// Returns the SQL column.
    fn column(self) -> &'static str {
        match self {
            By::Function => "function",
            By::Module => "module",
            By::Stack => "stack",
            By::Comm => "comm",
            By::Pid => "pid",
            By::Cpu => "cpu",
            By::Event => "event",
            By::Syscall => "syscall",
        }
    }
}

/// Values of `--per` that are not events.
const RUN: &str = "run";
const SECOND: &str = "second";
const TOTAL: &str = "total";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Metric {
    /// Weight of the function itself; self time of calls
    #[value(name = "self")]
    Own,
    /// Weight of the function and its callees; duration of calls
    Total,
    /// Number of calls, or of events by a column
    Count,
    /// Average duration of calls
    Avg,
    /// Median duration of calls
    P50,
    /// 95th percentile of durations
    P95,
    /// 99th percentile of durations
    P99,
}

impl Metric {
    /// Returns whether this metric exists for calls only.
    fn is_of_calls(self) -> bool {
        matches!(self, Metric::Avg | Metric::P50 | Metric::P95 | Metric::P99)
    }

    /// Returns the index among the measured percentiles.
    fn percentile(self) -> Option<usize> {
        match self {
            Metric::P50 => Some(0),
            Metric::P95 => Some(1),
            Metric::P99 => Some(2),
            Metric::Own | Metric::Total | Metric::Count | Metric::Avg => None,
        }
    }
}

impl Report for Diff {
    const NAME: &'static str = "diff";

    fn traces(&self) -> Vec<PathBuf> {
        self.sides.traces()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        self.sides.check()?;
        if self.per.as_deref().is_some_and(|per| per != RUN) && self.metric.is_of_calls() {
            bail!(Misuse(
                "--per: expected a metric that is a sum: self, total or count".to_owned()
            ));
        }
        Ok(Form::rows(self.output.format))
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let mut sides = self.sides.sides(session, &self.choice.filters)?;
        let replicates = sides::replicates(&sides);
        let source = self.source(session)?;
        let (table, condition) = source.rows();
        if matches!(replicates, Replicates::Slices(_)) {
            for side in &mut sides {
                side.slice(session, table, condition)?;
            }
        }
        let mut measured = source.measure(self, session, &sides)?;
        if measured.counts == [0, 0] {
            self.choice.fail_if_nothing_fits(session)?;
            bail!("no matching rows on either side");
        }
        let united = matching::unite(&mut measured, &same_files::of(session, &sides)?);
        let extents = extents::of(session, &sides, source.event())?;
        let per = self.per(&extents);
        let divisors = denominators(per, session, &sides, &measured)?;
        let lines = self.lines(&measured, replicates, &divisors, &sides);
        say!("{}", source.summary(&measured, &sides));
        if let Some(text) = extents::summary(&extents) {
            say!("{text}");
        }
        if per == Some(SECOND) {
            say!("{}", extents::divisors(&extents));
        }
        let rates = (self.per.is_none() && per == Some(SECOND)).then_some(
            "values per second, since the sides differ in length; --per run for those of whole runs",
        );
        let hint = extents::hint(
            &extents,
            self.per.is_some() || self.metric.is_of_calls(),
            per,
        );
        for note in [rates, hint].into_iter().flatten() {
            say!("{note}");
        }
        if let Some(note) = united_note(united) {
            say!("{note}");
        }
        let summary = match rates {
            Some(_) => format!("values per second; {}", lines.summary),
            None => lines.summary.clone(),
        };
        let batch = self.rows(&measured, lines, (replicates, per), source.unit())?;
        Ok(Answered::new(Section::Table(batch)).with_summary(summary))
    }
}

/// The source of the compared rows.
enum Source {
    Event(WeightedEvent),
    Calls,
    Syscalls,
}

/// System calls with the columns of calls. The kernel's own name of an unknown one is its number.
const SYSCALLS: &str = "(SELECT *, coalesce(name, CAST(nr AS TEXT)) AS syscall, duration AS self_time FROM syscalls) AS calls";

impl Source {
    /// Returns the table and the condition of its rows.
    fn rows(&self) -> (&str, &str) {
        match self {
            Source::Event(event) => (&event.table, &event.condition),
            Source::Calls => ("calls", "TRUE"),
            Source::Syscalls => (SYSCALLS, "TRUE"),
        }
    }

    fn measure(&self, diff: &Diff, session: &Session, sides: &[Side; 2]) -> Result<Measured> {
        let by_frame = |event, frame| {
            let is_counted = diff.metric == Metric::Count;
            measured::by_frame(session, sides, event, (frame, is_counted))
        };
        match (self, diff.by) {
            (Source::Event(event), By::Function) => by_frame(event, Frame::Function),
            (Source::Event(event), By::Module) => by_frame(event, Frame::Module),
            (Source::Event(event), By::Stack) => by_frame(event, Frame::Stack),
            (Source::Event(event), by) => measured::by_column(session, sides, event, by.column()),
            (Source::Calls, By::Function) => {
                measured::by_call(session, sides, "calls", ["function", "module"])
            }
            (Source::Syscalls, _) => {
                measured::by_call(session, sides, SYSCALLS, ["syscall", "CAST(NULL AS TEXT)"])
            }
            (Source::Calls, by) => {
                let key = format!("CAST({} AS TEXT)", by.column());
                measured::by_call(session, sides, "calls", [&key, "CAST(NULL AS TEXT)"])
            }
        }
    }

    /// Returns the event, if the rows are those of one.
    fn event(&self) -> Option<&str> {
        match self {
            Source::Event(event) => Some(&event.name),
            Source::Calls | Source::Syscalls => None,
        }
    }

    /// Returns the unit of the weights.
    fn unit(&self) -> &'static str {
        match self {
            Source::Event(event) => event.unit,
            Source::Calls | Source::Syscalls => "ns",
        }
    }

    /// Summarizes the comparison: `cpu-clock: 1,417 samples before, 1,502 after, in 10 and 10 runs`.
    fn summary(&self, measured: &Measured, sides: &[Side; 2]) -> String {
        let (name, noun) = match self {
            Source::Event(event) => (event.name.as_str(), "sample"),
            Source::Calls => ("calls", "call"),
            Source::Syscalls => ("syscalls", "system call"),
        };
        let [before, after] = measured.counts;
        let runs = sides.each_ref().map(|side| side.traces.len());
        let runs = match runs {
            [1, 1] => String::new(),
            [before, after] => format!(
                ", in {} and {}",
                grouped(before as u64),
                counted(after as u64, "run")
            ),
        };
        format!(
            "{name}: {} before, {} after{runs}",
            counted(before, noun),
            grouped(after)
        )
    }
}

fn united_note(united: United) -> Option<String> {
    let count = |count: usize, text: &str| (count > 0).then(|| format!("{count} {text}"));
    let parts: Vec<String> = [
        count(united.modules, "matched across modules"),
        count(united.renamed, "renamed"),
        count(united.inlined, "inlined"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!parts.is_empty()).then(|| format!("functions with another name: {}", parts.join(", ")))
}

/// Rows before they are formatted as columns.
struct Lines {
    /// Index of the key, in the order of the result.
    order: Vec<usize>,
    /// The value of each side and the p-value, by key.
    values: Vec<[Option<f64>; 2]>,
    p: Vec<Option<f64>>,
    /// Sum of the metric of each side, for shares.
    totals: [f64; 2],
    summary: String,
}

/// Maximum number of tested values, by weight.
const TESTED: usize = 1_000;

impl Diff {
    fn source(&self, session: &Session) -> Result<Source> {
        let is_of_calls = self.calls || self.metric.is_of_calls();
        let has_only_calls = self.choice.event.is_none()
            && !session.has_rows("samples")
            && session.has_rows("calls");
        if self.by == By::Syscall {
            if self.choice.event.is_some() {
                bail!(Misuse(
                    "--by syscall: system calls are not compared by event".to_owned()
                ));
            }
            // Reports missing events as such.
            session.table("syscalls")?;
            return Ok(Source::Syscalls);
        }
        if self.by == By::Event && !is_of_calls {
            return Ok(Source::Event(self.choice.event_or_every(session)?));
        }
        if !is_of_calls && !has_only_calls {
            return Ok(Source::Event(self.choice.subject(session)?));
        }
        if matches!(self.by, By::Stack | By::Event) {
            bail!(Misuse(format!(
                "--by {}: calls are compared by function, module, comm, pid or cpu",
                self.by.column()
            )));
        }
        Ok(Source::Calls)
    }

    /// Returns what values are divided by; `None` if they are those of whole runs.
    fn per<'a>(&'a self, extents: &[Extent; 2]) -> Option<&'a str> {
        match self.per.as_deref() {
            Some(RUN) => None,
            None if self.metric.is_of_calls() || !extents::need_rates(extents) => None,
            None => Some(SECOND),
            Some(per) => Some(per),
        }
    }

    fn lines(
        &self,
        measured: &Measured,
        replicates: Replicates,
        per: &[Arc<[f64]>; 2],
        sides: &[Side; 2],
    ) -> Lines {
        // Those of all keys do not fit into memory if there are thousands of runs.
        let pair = |key: usize| [0, 1].map(|side| series(self.metric, measured, key, side, per));
        let values: Vec<[Option<f64>; 2]> = (0..measured.keys.len())
            .map(|key| pair(key).each_ref().map(|side| side.value(replicates)))
            .collect();
        let totals = [0, 1].map(|side| match self.metric {
            // Totals include each other: their shares are of the total weight of the side.
            Metric::Total if measured.sample_weight.is_some() => Series {
                numerators: measured.weights[side].clone(),
                denominators: Arc::clone(&per[side]),
                counting_variance: 0.0,
            }
            .value(replicates)
            .unwrap_or(0.0),
            _ => values.iter().filter_map(|value| value[side]).sum(),
        });
        let weight = |key: usize| values[key].iter().flatten().copied().fold(0.0, f64::max);
        // A function that only calls others has no self weight.
        let weighty: Vec<usize> = (0..values.len()).filter(|&key| weight(key) > 0.0).collect();
        let mut heaviest = weighty.clone();
        heaviest.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)).then(a.cmp(&b)));
        heaviest.truncate(TESTED);
        let tested: Vec<[Series; 2]> = heaviest.iter().map(|&key| pair(key)).collect();
        let found = self.tested(&tested, replicates, sides);
        let mut p = vec![None; values.len()];
        if let Ok(found) = &found {
            for (&key, &value) in heaviest.iter().zip(&found.p) {
                p[key] = value;
            }
        }
        let change = |key: usize| {
            let [before, after] = values[key].map(|value| value.unwrap_or(0.0));
            after - before
        };
        let untested = weighty.len() - heaviest.len();
        let mut order = weighty;
        order.sort_by(|&a, &b| {
            let is_significant = |key: usize| p[key].is_some_and(|p| p < LEVEL);
            is_significant(b)
                .cmp(&is_significant(a))
                .then(change(b).abs().total_cmp(&change(a).abs()))
                .then_with(|| measured.keys[a].cmp(&measured.keys[b]))
        });
        let significant = p.iter().flatten().filter(|&&p| p < LEVEL).count();
        let summary = match found {
            Err(why) => format!("significance: not tested: {why}"),
            Ok(found) => {
                let untested = match untested {
                    0 => String::new(),
                    count => format!(", {} lighter ones not tested", grouped(count as u64)),
                };
                format!(
                    "{} of {} significant (family-wise error rate {:.0}%{untested}); {}",
                    grouped(significant as u64),
                    counted(tested.len() as u64, "change"),
                    LEVEL * 100.0,
                    method(replicates, sides, found.between_runs)
                )
            }
        };
        Lines {
            order,
            values,
            p,
            totals,
            summary,
        }
    }

    /// Returns the p-value of each pair, or why the comparison is not tested.
    fn tested(
        &self,
        pairs: &[[Series; 2]],
        replicates: Replicates,
        sides: &[Side; 2],
    ) -> Result<Tested, String> {
        if matches!(replicates, Replicates::Slices(_)) {
            if self.metric.percentile().is_some() {
                return Err("percentiles need repeated runs".to_owned());
            }
            if let Some(why) = sides::undivided(sides) {
                return Err(why);
            }
        }
        significance::test(pairs, replicates).ok_or_else(|| {
            format!(
                "{} and {} runs are too few, record at least {RUNS_MIN} for each side",
                sides[0].traces.len(),
                sides[1].traces.len()
            )
        })
    }

    fn rows(
        &self,
        measured: &Measured,
        lines: Lines,
        (replicates, per): (Replicates, Option<&str>),
        unit: &str,
    ) -> Result<RecordBatch> {
        let mut order = lines.order;
        if self.limit > 0 {
            order.truncate(self.limit);
        }
        let is_total = per == Some(TOTAL);
        let mut table = Columns::default();
        let unit_of = |metric: Metric| match metric {
            Metric::Count => "",
            _ if is_total => "",
            _ => unit,
        };
        let own_unit = unit_of(self.metric);
        let of_key = |value: &dyn Fn(usize) -> Option<f64>| -> Vec<Option<f64>> {
            order.iter().map(|&key| value(key)).collect()
        };
        let side = |side: usize| of_key(&|key| lines.values[key][side]);
        let change = |key: usize| {
            let [before, after] = lines.values[key];
            match (before, after) {
                (None, None) => None,
                _ => Some(after.unwrap_or(0.0) - before.unwrap_or(0.0)),
            }
        };
        let whole = per.is_none();
        table.numbers("change", own_unit, whole, of_key(&change));
        let percent = of_key(&|key| {
            let before = lines.values[key][0].filter(|&before| before > 0.0)?;
            Some((change(key)? / before * 1e4).round() / 1e2)
        });
        table.add("change_percent", DataType::Float64, "", floats(percent));
        table.numbers("before", own_unit, whole, side(0));
        table.numbers("after", own_unit, whole, side(1));
        if matches!(self.metric, Metric::Own | Metric::Total | Metric::Count) && !is_total {
            for (number, name) in ["before_percent", "after_percent"].into_iter().enumerate() {
                let total = lines.totals[number];
                let shares = of_key(&|key| {
                    let value = lines.values[key][number].filter(|_| total > 0.0)?;
                    Some((value / total * 1e4).round() / 1e2)
                });
                table.add(name, DataType::Float64, "", floats(shares));
            }
        }
        let p = of_key(&|key| lines.p[key].map(|p| (p * 1e4).round() / 1e4));
        table.add("p", DataType::Float64, "", floats(p));
        let significant: BooleanArray = order
            .iter()
            .map(|&key| lines.p[key].map(|p| p < LEVEL))
            .collect();
        table.add("significant", DataType::Boolean, "", Arc::new(significant));
        let names = order.iter().map(|&key| measured.keys[key].name.as_str());
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
        table.add(self.by.column(), DataType::Utf8, "", names);
        if self.by == By::Function {
            let modules: StringArray = order
                .iter()
                .map(|&key| measured.keys[key].module.as_deref())
                .collect();
            table.add("module", DataType::Utf8, "", Arc::new(modules));
        }
        table.hidden = true;
        for (name, metric) in [
            ("self", Metric::Own),
            ("total", Metric::Total),
            ("count", Metric::Count),
            ("avg", Metric::Avg),
            ("p50", Metric::P50),
            ("p95", Metric::P95),
            ("p99", Metric::P99),
        ] {
            let has_it = match metric {
                Metric::Own | Metric::Total => true,
                Metric::Count => measured
                    .values
                    .iter()
                    .any(|values| values[0].count.is_some()),
                _ => measured.sample_weight.is_none(),
            };
            if !has_it || metric == self.metric {
                continue;
            }
            for (number, side) in SIDES.into_iter().enumerate() {
                let whole = [0, 1].map(|side| whole_run(replicates, measured.weights[side].len()));
                let values =
                    of_key(&|key| series(metric, measured, key, number, &whole).value(replicates));
                table.numbers(&format!("{name}_{side}"), unit_of(metric), true, values);
            }
        }
        table.batch(order.len())
    }
}

/// Returns the divisors of each side's values, by run or slice.
fn denominators(
    per: Option<&str>,
    session: &Session,
    sides: &[Side; 2],
    measured: &Measured,
) -> Result<[Arc<[f64]>; 2]> {
    let mut found: [Arc<[f64]>; 2] = Default::default();
    for (number, side) in sides.iter().enumerate() {
        found[number] = match per {
            None => whole_run(sides::replicates(sides), side.len()),
            Some(SECOND) => side.seconds().into(),
            Some(TOTAL) => {
                let weights = measured.weights[number].iter();
                weights.map(|weight| weight / 100.0).collect()
            }
            Some(event) => occurrences(session, side, event)?.into(),
        };
        if let Some(per) = per.filter(|_| found[number].iter().sum::<f64>() <= 0.0) {
            let side = SIDES[number];
            match per {
                SECOND => {
                    bail!("--per second: how long the side {side:?} was recorded is not known")
                }
                _ => bail!("--per {per}: no such event on the side {side:?}"),
            }
        }
    }
    Ok(found)
}

/// Returns divisors that turn sums into values of a whole run.
fn whole_run(replicates: Replicates, count: usize) -> Arc<[f64]> {
    match replicates {
        Replicates::Runs => vec![1.0; count].into(),
        // The slices add up to the recording.
        Replicates::Slices(_) => vec![1.0 / count.max(1) as f64; count].into(),
    }
}

/// Returns the metric of a key on one side; sums are divided by `per`.
fn series(
    metric: Metric,
    measured: &Measured,
    key: usize,
    side: usize,
    per: &[Arc<[f64]>; 2],
) -> Series {
    let values = &measured.values[key][side];
    let runs = per[side].len();
    let sum = |numerators: &Amounts, variance: f64| Series {
        numerators: numerators.dense(runs),
        denominators: Arc::clone(&per[side]),
        counting_variance: variance,
    };
    let counts = values.count.clone().unwrap_or_default();
    let each = |numbers: &Amounts| {
        let count = counts.sum().max(1.0);
        measured.sample_weight.unwrap_or(numbers.sum() / count)
    };
    if let Some(percentile) = metric.percentile() {
        let known = &values.percentiles[percentile];
        let mut denominators = vec![0.0; runs];
        for (run, _) in known.known() {
            denominators[run] = 1.0;
        }
        return Series {
            numerators: known.dense(runs),
            denominators: denominators.into(),
            counting_variance: 0.0,
        };
    }
    match metric {
        Metric::Own => sum(&values.own, each(&values.own)),
        Metric::Total => sum(&values.total, each(&values.total)),
        Metric::Count => sum(&counts, 1.0),
        // Durations of a function vary less than the times between independent events: assume a tenth of their mean.
        _ => Series {
            numerators: values.sum.dense(runs),
            denominators: counts.dense(runs).into(),
            counting_variance: each(&values.sum) / 100.0,
        },
    }
}

/// Returns the number of an event's occurrences by run or slice.
fn occurrences(session: &Session, side: &Side, event: &str) -> Result<Vec<f64>> {
    let choice = EventChoice::of(event);
    let subject = choice.subject(session)?;
    let measured = measured::by_column(
        session,
        &[side.in_scope(), side.in_scope()],
        &WeightedEvent {
            weight: "1",
            ..subject
        },
        "1",
    )?;
    let [counts, _] = measured.weights;
    Ok(counts)
}

/// Describes the method of the significance test.
fn method(replicates: Replicates, sides: &[Side; 2], between_runs: Option<f64>) -> String {
    match replicates {
        Replicates::Runs => format!(
            "permutation test of {} and {} runs",
            grouped(sides[0].traces.len() as u64),
            grouped(sides[1].traces.len() as u64)
        ),
        Replicates::Slices(_) => {
            let slices = sides[0].len();
            let between_runs = between_runs.map(|variation| {
                format!(
                    ", assuming {:.0}% variation between runs",
                    variation * 100.0
                )
            });
            format!(
                "block bootstrap over {slices} time slices{}",
                between_runs.unwrap_or_default()
            )
        }
    }
}

fn floats(values: Vec<Option<f64>>) -> ArrayRef {
    Arc::new(Float64Array::from(values))
}

/// Columns that a narrow terminal omits, the first one first.
const SPARES: [&str; 6] = [
    "before_percent",
    "significant",
    "after_percent",
    "module",
    "before",
    "after",
];

/// Columns of the result.
#[derive(Default)]
struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
    /// Whether terminals hide the columns that follow.
    hidden: bool,
}

impl Columns {
    fn add(&mut self, name: &str, kind: DataType, unit: &str, values: ArrayRef) {
        let mut metadata = HashMap::new();
        if !unit.is_empty() {
            metadata.insert(UNIT.to_owned(), unit.to_owned());
        }
        if self.hidden {
            metadata.insert(TERMINAL.to_owned(), "hidden".to_owned());
        }
        if let Some(place) = SPARES.iter().position(|spare| *spare == name) {
            metadata.insert(SPARE.to_owned(), (place + 1).to_string());
        }
        self.fields
            .push(Field::new(name, kind, true).with_metadata(metadata));
        self.arrays.push(values);
    }

    /// Adds a column of numbers: integers if `whole` allows rounding, or if all of them are integers.
    fn numbers(&mut self, name: &str, unit: &str, whole: bool, values: Vec<Option<f64>>) {
        let is_whole = whole
            || values
                .iter()
                .flatten()
                .all(|value| value.fract() == 0.0 && value.abs() < 9e15);
        match is_whole {
            true => {
                let rounded = values
                    .iter()
                    .map(|value| value.map(|value| value.round() as i64));
                let rounded: Int64Array = rounded.collect();
                self.add(name, DataType::Int64, unit, Arc::new(rounded));
            }
            false => self.add(name, DataType::Float64, unit, floats(values)),
        }
    }

    fn batch(self, rows: usize) -> Result<RecordBatch> {
        let schema = Arc::new(Schema::new(self.fields));
        let rows = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            schema,
            self.arrays,
            &rows,
        )?)
    }
}
