//! `findings`: the first thing to run on an unknown trace.
//!
//! ```text
//! warning: hit (77) waited 1.900 s for a CPU, 63% of the time
//!   it ran for 100.000 ms; its longest wait: 300.000 ms from 1.2 s on, CPU 0
//!   There is more to run than the CPUs can run, or priorities and affinities keep this thread from running
//!   perfquet-query sql a.pqt 'SELECT …'
//! ```
//! Each finding is a query, which runs if its events were recorded; its last column is the query with which to go on. Its thresholds
//! relate to the length of the trace: what is not worth a minute of a person is no finding. Warnings are what a healthy system
//! does not do; remarks are where its time goes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use clap::Args;
use perfquet::sql::scoping::Restriction;
use perfquet::stacks::strings;
use perfquet::{Session, Trace, TraceTable};
use perfquet_trace::count::counted;

use crate::commands::Subcommand;
use crate::filter::Scope;
use crate::limits::Limits;
use crate::render::{Answered, Form, Notes, Section};
use crate::report::{self, Report};
use crate::settings::{Output, Traces, Watching};

pub(super) const REPORT: Subcommand = report::subcommand::<Findings>();

/// List what stands out: losses, hot functions, long waits, failing calls
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Get to know a trace
  perfquet-query findings a.pqt
  # What stands out in one second of one program
  perfquet-query findings a.pqt --time 3s..4s --comm postgres
  # Only the queries to go on with
  perfquet-query findings a.pqt --format csv")]
struct Findings {
    #[command(flatten)]
    traces: Traces,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    watching: Watching,
    #[command(flatten)]
    limits: Limits,
}

/// What a finding reads.
#[derive(Debug, Clone, Copy)]
enum Source {
    Table(&'static str),
    View(&'static str),
}

/// A query with the columns severity, title, detail, why and sql. [`Interval::fill`] lists what stands in braces.
struct Check {
    source: Source,
    sql: &'static str,
    /// Number of findings that the query looks for. If there are several, its first column, rank, moves them in the order.
    count: u64,
}

/// Warnings first, then in this order: what makes other answers wrong, then causes before their effects.
const CHECKS: &[Check] = &[
    table("losses", include_str!("losses.sql")),
    table("problems", include_str!("problems.sql")),
    view("locks", include_str!("contended_lock.sql")),
    // Starved threads before locks, blocked ones here, and busy ones before hot functions.
    Check {
        count: 4,
        ..view("off_cpu", include_str!("threads.sql"))
    },
    view("block_io", include_str!("slow_io.sql")),
    table("calls", include_str!("failing_call.sql")),
    view("page_faults", include_str!("page_faults.sql")),
    table("calls", include_str!("slow_period.sql")),
    table("samples", include_str!("hot_function.sql")),
];

const fn table(name: &'static str, sql: &'static str) -> Check {
    let source = Source::Table(name);
    Check {
        source,
        sql,
        count: 1,
    }
}

const fn view(name: &'static str, sql: &'static str) -> Check {
    let source = Source::View(name);
    Check {
        source,
        sql,
        count: 1,
    }
}

/// The columns of the answer.
const COLUMNS: [&str; 5] = ["severity", "title", "detail", "why", "sql"];

/// What stands out.
pub(super) struct Found {
    /// In the order of [`COLUMNS`].
    pub(super) rows: Vec<[String; 5]>,
    /// Number of checks whose events were recorded.
    pub(super) checks: u64,
}

impl Report for Findings {
    const NAME: &'static str = "findings";
    const SHOWS_LOSSES: bool = true;

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
        let found = find(session, &self.scope)?;
        let warnings = found.rows.iter().filter(|row| row[0] == "warning").count();
        let columns = COLUMNS.iter().enumerate().map(|(column, name)| {
            let texts = found.rows.iter().map(|row| row[column].as_str());
            let texts = StringArray::from_iter_values(texts);
            (*name, Arc::new(texts) as ArrayRef)
        });
        let rows = RecordBatch::try_from_iter(columns)?;
        let summary = format!(
            "{} and {} from {}",
            counted(warnings as u64, "warning"),
            counted((found.rows.len() - warnings) as u64, "remark"),
            counted(found.checks, "check")
        );
        let trace = session.only_trace()?.path.display().to_string();
        let mut commands = Vec::new();
        for row in &found.rows {
            let mut command = vec![trace.clone()];
            command.extend(self.fitting(session, &row[4])?);
            commands.push(command);
        }
        let section = Section::Notes(Notes { rows, commands });
        Ok(Answered::new(section).with_summary(summary))
    }
}

impl Findings {
    /// Returns the options of the scope that fit a table of `sql`: the others would be errors.
    fn fitting(&self, session: &Session, sql: &str) -> Result<Vec<String>> {
        let arguments = self.scope.arguments();
        let mut fitting = Vec::new();
        for (column, condition) in self.scope.conditions(session)? {
            session.restrict(Restriction {
                conditions: vec![(column, condition)],
                must_fit: true,
            });
            if session.query(sql).is_ok() {
                let option = format!("--{column}=");
                fitting.extend(
                    arguments
                        .iter()
                        .filter(|text| text.starts_with(&option))
                        .cloned(),
                );
            }
            session.restrict(Restriction::default());
        }
        Ok(fitting)
    }
}

/// Returns what stands out in the only trace, within a scope.
pub(super) fn find(session: &Session, scope: &Scope) -> Result<Found> {
    let trace = session.only_trace()?;
    let interval = Interval::new(session, trace, scope)?;
    session.restrict(Restriction {
        conditions: scope.conditions(session)?,
        must_fit: false,
    });
    let mut parts = Vec::new();
    let mut checks = 0;
    for (index, check) in CHECKS.iter().enumerate() {
        if !has_source(session, check.source)? {
            continue;
        }
        let sql = interval.fill(check.sql);
        let place = index * 10;
        parts.push(match check.count {
            1 => format!("SELECT {place} AS place, * FROM (\n{sql})"),
            _ => format!("SELECT {place} + rank AS place, * EXCLUDE (rank) FROM (\n{sql})"),
        });
        checks += check.count;
    }
    // The parts of one query run at the same time.
    let mut found: Vec<(String, [String; 5])> = Vec::new();
    let batches = match parts.is_empty() {
        true => Ok(Vec::new()),
        false => session.collect(&parts.join("\nUNION ALL ")),
    };
    // Also after a failure: a page goes on without findings.
    session.restrict(Restriction::default());
    let batches = batches?;
    for batch in batches {
        let columns: Result<Vec<_>> = batch.columns().iter().map(strings).collect();
        let columns = columns?;
        let text = |column: usize, row: usize| columns[column].value(row).to_owned();
        let rows = 0..batch.num_rows();
        found.extend(rows.map(|row| {
            (
                text(0, row),
                [1, 2, 3, 4, 5].map(|column| text(column, row)),
            )
        }));
    }
    // By severity, then in the order of the list.
    found.sort_by_key(|(place, row)| (row[0] != "warning", place.parse().unwrap_or(u64::MAX)));
    let rows = found.into_iter().map(|(_, row)| row).collect();
    Ok(Found { rows, checks })
}

/// The interval that is examined, and what else the queries depend on.
struct Interval {
    from: i64,
    to: i64,
    /// How long was recorded, also before the first event and after the last one.
    recorded: i64,
    events: u64,
    /// The condition that a row is of none of the recorder's threads.
    is_not_recorder: String,
    threads: Vec<String>,
    has_syscalls: bool,
}

/// Names of programs that record.
const RECORDERS: &str = "'perfquet-record', 'perf', 'trace-cmd'";

impl Interval {
    fn new(session: &Session, trace: &Trace, scope: &Scope) -> Result<Interval> {
        let (start, end) = trace.time_range().unwrap_or((0, 0));
        let (from, to) = scope.time_bounds(start).unwrap_or((start, end));
        let events = trace
            .tables
            .iter()
            .filter(|table| table.is_event() || table.schema.name == "samples");
        let mut recorders = Vec::new();
        if session.has_rows("threads") {
            let sql = format!(
                "SELECT DISTINCT CAST(pid AS TEXT) FROM threads WHERE comm IN ({RECORDERS}) AND pid > 0"
            );
            for batch in session.collect(&sql)? {
                recorders.extend(
                    strings(batch.column(0))?
                        .iter()
                        .flatten()
                        .map(str::to_owned),
                );
            }
        }
        let mut is_not_recorder = format!("coalesce(comm, '') NOT IN ({RECORDERS})");
        if !recorders.is_empty() {
            is_not_recorder.push_str(&format!(
                " AND coalesce(pid, -1) NOT IN ({})",
                recorders.join(", ")
            ));
        }
        let conditions = scope.conditions(session)?.into_iter();
        let threads = conditions.filter(|(column, _)| ["pid", "tid", "comm"].contains(column));
        Ok(Interval {
            from: from.max(start),
            to: to.min(end),
            recorded: length_within(trace, scope.time_bounds(start)),
            events: events.map(TraceTable::rows).sum(),
            is_not_recorder,
            threads: threads.map(|(_, condition)| condition).collect(),
            has_syscalls: session.is_recorded("syscalls")?,
        })
    }

    /// Replaces what stands in braces.
    fn fill(&self, sql: &str) -> String {
        let length = self.to.saturating_sub(self.from).max(1);
        // A second, or a fifth of a short trace.
        let slot = (length / 5).clamp(1, 1_000_000_000);
        let mut threads = self.threads.clone();
        threads.push(self.is_not_recorder.clone());
        let threads = format!("({})", threads.join(" AND "));
        let futexes = match self.has_syscalls {
            true => include_str!("futex_locks.sql"),
            false => "SELECT CAST(NULL AS INT) AS tid, CAST(NULL AS BIGINT) AS time WHERE FALSE",
        };
        let mut filled = sql.replace("{futexes}", futexes);
        let numbers = [
            ("{from}", self.from),
            ("{to}", self.to),
            ("{length}", length),
            ("{recorded}", self.recorded.max(1)),
            ("{slot}", slot),
        ];
        for (name, number) in numbers {
            filled = filled.replace(name, &number.to_string());
        }
        filled
            .replace("{events}", &self.events.to_string())
            .replace("{threads}", &threads)
    }
}

/// How long a trace was recorded, within bounds if there are any.
fn length_within(trace: &Trace, bounds: Option<(i64, i64)>) -> i64 {
    let (from, to) = bounds.unwrap_or((i64::MIN, i64::MAX));
    let recorded = trace.recorded();
    recorded.map_or(0, |recorded| recorded.length_within(from, to))
}

fn has_source(session: &Session, source: Source) -> Result<bool> {
    match source {
        Source::Table(name) => Ok(session.has_rows(name)),
        Source::View(name) => session.is_recorded(name),
    }
}
