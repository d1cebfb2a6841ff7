//! The two sides of a comparison: traces, repeated runs, or two parts of one trace.
//!
//! ```text
//! diff 'old-*.pqt' 'new-*.pqt'                         runs against runs
//! diff a.pqt b.pqt                                     one recording each, in slices of time
//! diff a.pqt --before-time ..5s --after-time 5s..      two parts of one trace
//! ```

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use clap::Args;

use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::stacks::strings;
use perfquet_trace::recorded::KnownBy;

use super::statistic::{Recordings, Replicates};
use crate::filter::{Filters, of_traces};

/// Number of slices of a recording without repetitions: enough for a distribution, with some samples in each.
const SLICES: i64 = 64;

/// Names of the sides, in rows and messages.
pub(super) const SIDES: [&str; 2] = ["before", "after"];

/// Options that select the two sides.
#[derive(Debug, Clone, Args)]
pub(super) struct SideOptions {
    /// Baseline: a trace, or a quoted pattern of repeated runs
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Trace, or quoted pattern of repeated runs, to compare with it [default: BEFORE]
    #[arg(value_name = "AFTER")]
    after: Option<PathBuf>,
    /// Further paths, from a pattern that the shell has expanded.
    #[arg(hide = true)]
    more: Vec<PathBuf>,
    /// Time range of BEFORE, from its start
    #[arg(long, help_heading = "Sides", value_name = "RANGE")]
    before_time: Option<String>,
    /// Time range of AFTER, from its start
    #[arg(long, help_heading = "Sides", value_name = "RANGE")]
    after_time: Option<String>,
    /// SQL condition for the rows of BEFORE
    #[arg(long, help_heading = "Sides", value_name = "EXPR")]
    before_where: Option<String>,
    /// SQL condition for the rows of AFTER
    #[arg(long, help_heading = "Sides", value_name = "EXPR")]
    after_where: Option<String>,
}

impl SideOptions {
    /// Rejects options that compare a trace with itself by mistake.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(first) = self.more.first() {
            bail!(Misuse(format!(
                "{}: expected one trace or pattern per side\nhint: quote the patterns: perfquet-query diff 'old-*.pqt' 'new-*.pqt'",
                first.display()
            )));
        }
        let divides = [
            &self.before_time,
            &self.after_time,
            &self.before_where,
            &self.after_where,
        ];
        if self.after.is_none() && divides.iter().all(|option| option.is_none()) {
            bail!(Misuse(
                "expected two traces, or conditions that divide one\nhint: perfquet-query diff BEFORE AFTER, or use --before-time and --after-time"
                    .to_owned()
            ));
        }
        Ok(())
    }

    /// Returns the path or pattern of each side.
    pub(super) fn patterns(&self) -> [&PathBuf; 2] {
        [&self.before, self.after.as_ref().unwrap_or(&self.before)]
    }

    /// Returns every trace to open, each once.
    pub(super) fn traces(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = Vec::new();
        let mut known = HashSet::new();
        for pattern in self.patterns() {
            // Opening it reports the error.
            let found = perfquet::matching(pattern).unwrap_or_else(|_| vec![pattern.clone()]);
            paths.extend(found.into_iter().filter(|path| known.insert(place(path))));
        }
        paths
    }

    /// Returns both sides. `filters` apply to both.
    pub(super) fn sides(&self, session: &Session, filters: &Filters) -> Result<[Side; 2]> {
        let common = filters.condition(session)?;
        let own = [
            Filters::of(self.before_where.clone(), self.before_time.clone()),
            Filters::of(self.after_where.clone(), self.after_time.clone()),
        ];
        let mut sides = Vec::new();
        let opened = session.traces().iter();
        let opened: Vec<PathBuf> = opened.map(|trace| place(&trace.path)).collect();
        for (pattern, own) in self.patterns().into_iter().zip(&own) {
            let paths = perfquet::matching(pattern)?;
            let paths: HashSet<PathBuf> = paths.iter().map(|path| place(path)).collect();
            let is_of_side = |index: &usize| paths.contains(&opened[*index]);
            let traces: Vec<usize> = (0..opened.len()).filter(is_of_side).collect();
            let names = traces
                .iter()
                .map(|&index| session.traces()[index].name.as_str());
            let scope = [
                own.time_condition(session)?,
                filters.time_condition(session)?,
                of_traces(session, names),
            ]
            .join(" AND ");
            sides.push(Side {
                condition: format!("{scope} AND {common} AND {}", own.condition(session)?),
                seconds: traces
                    .iter()
                    .map(|&index| seconds(session, index, [own, filters]))
                    .collect(),
                known_by: known_by(session, &traces),
                is_part: own.time_bounds(0).is_some(),
                scope,
                runs: runs(&traces),
                traces,
                slices: None,
                is_empty: false,
            });
        }
        <[Side; 2]>::try_from(sides).map_err(|_| anyhow::anyhow!("expected two sides"))
    }
}

/// What two paths of a trace have in common.
fn place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The number of the run of each trace.
fn runs(traces: &[usize]) -> HashMap<usize, usize> {
    let runs = traces.iter().enumerate();
    runs.map(|(run, &trace)| (trace, run)).collect()
}

/// Returns how long a trace, or its selected range, was recorded; 0 if that is unknown.
fn seconds(session: &Session, trace: usize, filters: [&Filters; 2]) -> f64 {
    let trace = &session.traces()[trace];
    let Some(recorded) = trace.recorded() else {
        return 0.0;
    };
    // Ranges count from the first event.
    let start = trace
        .time_range()
        .map_or(recorded.begin(), |(start, _)| start);
    let (mut from, mut to) = (i64::MIN, i64::MAX);
    for (first, last) in filters
        .iter()
        .filter_map(|filters| filters.time_bounds(start))
    {
        from = from.max(first);
        to = to.min(last);
    }
    recorded.length_within(from, to) as f64 / 1e9
}

/// How the lengths of traces are known; `None` if one is unknown.
fn known_by(session: &Session, traces: &[usize]) -> Option<KnownBy> {
    let each = traces.iter().map(|&trace| {
        let recorded = session.traces()[trace].recorded();
        recorded.map(|recorded| recorded.known_by)
    });
    let each: Option<Vec<KnownBy>> = each.collect();
    each.map(|each| match each.contains(&KnownBy::Events) {
        true => KnownBy::Events,
        false => KnownBy::Recorder,
    })
}

/// The run or slice of each row of a batch.
pub(super) struct Replicated(Vec<Option<usize>>);

impl Replicated {
    /// Reads a column of [`Side::number`].
    pub(super) fn read(session: &Session, side: &Side, column: &ArrayRef) -> Result<Replicated> {
        match side.slices {
            Some(_) => Replicated::numbers(column, side.len()),
            None => Replicated::of_runs(session, side, column),
        }
    }

    /// Reads a column of [`Side::run`].
    pub(super) fn of_runs(session: &Session, side: &Side, column: &ArrayRef) -> Result<Replicated> {
        if session.traces().len() == 1 {
            return Replicated::numbers(column, side.traces.len());
        }
        let names = strings(column)?;
        let run = |name: Option<&str>| {
            let trace = session.forest().trace(name?)?;
            side.runs.get(&trace).copied()
        };
        Ok(Replicated(names.iter().map(run).collect()))
    }

    fn numbers(column: &ArrayRef, count: usize) -> Result<Replicated> {
        let numbers = cast(column, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>().iter();
        let place = |number: Option<i64>| {
            let place = usize::try_from(number?).ok()?;
            (place < count).then_some(place)
        };
        Ok(Replicated(numbers.map(place).collect()))
    }

    /// The run or slice of a row; `None` if it is outside of all.
    pub(super) fn of(&self, row: usize) -> Option<usize> {
        self.0.get(row).copied().flatten()
    }
}

/// One side of a comparison.
#[derive(Debug, Clone)]
pub(super) struct Side {
    /// SQL condition of its traces and time range.
    pub(super) scope: String,
    /// SQL condition of its rows: the scope and all other filters.
    pub(super) condition: String,
    /// Trace index of each run.
    pub(super) traces: Vec<usize>,
    /// Number of the run by trace index.
    runs: HashMap<usize, usize>,
    /// Length of each run.
    seconds: Vec<f64>,
    /// How these are known; `None` if one is unknown.
    pub(super) known_by: Option<KnownBy>,
    /// Whether a range of time was selected for this side alone.
    pub(super) is_part: bool,
    /// Time slices of a side without repetitions.
    slices: Option<Slices>,
    /// Whether no row of it matches.
    is_empty: bool,
}

/// Equal slices of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slices {
    start: i64,
    width: i64,
}

/// Returns why sides without repetitions are not divided into slices of time; `None` if they are.
pub(super) fn undivided(sides: &[Side; 2]) -> Option<String> {
    let (side, name) = sides
        .iter()
        .zip(SIDES)
        .find(|(side, _)| side.slices.is_none())?;
    Some(match side.is_empty {
        true => format!("no matching rows {name}"),
        false => format!("the rows {name} have no timestamps"),
    })
}

/// Returns how the sides are replicated.
pub(super) fn replicates(sides: &[Side; 2]) -> Replicates {
    let [before, after] = sides;
    if before.traces.len() != 1 || after.traces.len() != 1 {
        return Replicates::Runs;
    }
    Replicates::Slices(match before.traces == after.traces {
        true => Recordings::Same,
        false => Recordings::Two,
    })
}

impl Side {
    /// Returns this side with its traces and time range, without other filters.
    pub(super) fn in_scope(&self) -> Side {
        Side {
            condition: self.scope.clone(),
            ..self.clone()
        }
    }

    /// Divides the matching rows into time slices, if they have timestamps.
    pub(super) fn slice(&mut self, session: &Session, table: &str, condition: &str) -> Result<()> {
        let sql = format!(
            "SELECT min(time), max(time), count(*) FROM {table} WHERE {condition} AND {}",
            self.condition
        );
        for batch in session.collect(&sql)? {
            let [first, last, rows] =
                [0, 1, 2].map(|column| batch.column(column).as_primitive::<Int64Type>().clone());
            if batch.num_rows() != 1 {
                continue;
            }
            self.is_empty = rows.value(0) == 0;
            if first.is_valid(0) && last.is_valid(0) {
                let (start, end) = (first.value(0), last.value(0));
                let width = end.saturating_sub(start) / SLICES + 1;
                self.slices = Some(Slices { start, width });
            }
        }
        Ok(())
    }

    /// Number of runs or slices.
    pub(super) fn len(&self) -> usize {
        match self.slices {
            Some(_) => SLICES as usize,
            None => self.traces.len(),
        }
    }

    /// Returns SQL for a string that [`Side::replicate`] parses; `None` if the trace alone determines the run.
    pub(super) fn key(&self) -> Option<String> {
        self.slices.map(|Slices { start, width }| {
            format!("arrow_cast((time - {start}) / {width}, 'Utf8View')")
        })
    }

    /// Returns SQL that [`Replicated::read`] turns into the run or slice of a row on this side.
    pub(super) fn number(&self, session: &Session) -> String {
        match self.slices {
            Some(Slices { start, width }) => format!("(time - {start}) / {width}"),
            None => self.run(session).to_owned(),
        }
    }

    /// Returns SQL that [`Replicated::of_runs`] turns into the run of a row on this side.
    pub(super) fn run(&self, session: &Session) -> &'static str {
        match session.traces().len() {
            1 => "0",
            _ => "trace",
        }
    }

    /// Returns the run or slice of a row with this key in this trace.
    pub(super) fn replicate(&self, key: Option<&str>, trace: usize) -> Option<usize> {
        let number = match self.slices {
            Some(_) => key?.parse().ok()?,
            None => *self.runs.get(&trace)?,
        };
        (number < self.len()).then_some(number)
    }

    /// Returns the mean length of a run in seconds, 0 if it is unknown.
    pub(super) fn length(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len().max(1) as f64
    }

    /// Returns the length of each run or slice in seconds.
    pub(super) fn seconds(&self) -> Vec<f64> {
        match self.slices {
            Some(_) => vec![self.seconds.iter().sum::<f64>() / SLICES as f64; SLICES as usize],
            None => self.seconds.clone(),
        }
    }
}
