//! `findings`: the first thing to run on an unknown trace.
//!
//! ```text
//! severity  title                                     detail                          sql
//! warning   12 events are missing                     ring buffer full                SELECT * FROM losses …
//! info      The hottest function is copy_user_generic 23.1% of the samples            SELECT stack_text(user_stack), …
//! ```
//! Each finding is a query, which runs if its events were recorded; its last column is the query with which to go on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use clap::Args;
use perfquet_trace::count::counted;

use super::row_source::{has_rows, is_recorded};
use crate::commands::Subcommand;
use crate::failure::Misuse;
use crate::limits::Limits;
use crate::render::{Answered, Form, Section};
use crate::report::{self, Report};
use crate::session::Session;
use crate::settings::{Output, Traces, Watching};
use crate::text::strings;

pub(super) const REPORT: Subcommand = report::subcommand::<Findings>();

/// List what stands out: losses, hot functions, long waits, failing calls
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Get to know a trace
  perfquet-query findings a.pqt
  # Read the queries to go on with
  perfquet-query findings a.pqt --format records")]
pub(super) struct Findings {
    #[command(flatten)]
    traces: Traces,
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

/// A query with the columns severity, title, detail and sql; `{start}` is the time at which the trace begins.
struct Finding {
    source: Source,
    sql: &'static str,
    /// Number of findings that the query looks for.
    checks: u64,
}

/// Warnings first, then in this order.
const FINDINGS: &[Finding] = &[
    table("losses", include_str!("losses.sql")),
    table("problems", include_str!("problems.sql")),
    table("samples", include_str!("top_function.sql")),
    table("samples", include_str!("busiest.sql")),
    // For a CPU, and blocked.
    Finding {
        checks: 2,
        ..view("off_cpu", include_str!("longest_waits.sql"))
    },
    view("syscalls", include_str!("failing_call.sql")),
    view("locks", include_str!("contended_lock.sql")),
    view("block_io", include_str!("slow_io.sql")),
    table("calls", include_str!("slow_call.sql")),
];

const fn table(name: &'static str, sql: &'static str) -> Finding {
    let source = Source::Table(name);
    Finding {
        source,
        sql,
        checks: 1,
    }
}

const fn view(name: &'static str, sql: &'static str) -> Finding {
    let source = Source::View(name);
    Finding {
        source,
        sql,
        checks: 1,
    }
}

const COLUMNS: [&str; 4] = ["severity", "title", "detail", "sql"];

impl Report for Findings {
    const NAME: &'static str = "findings";

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
        let [trace] = session.traces.as_slice() else {
            bail!(Misuse(format!(
                "expected one trace, found {}",
                session.traces.len()
            )));
        };
        session.is_report();
        let start = trace.time_range().map_or(0, |(start, _)| start);
        let mut parts = Vec::new();
        let mut examined = 0;
        for finding in FINDINGS {
            if has_source(session, finding.source)? {
                let sql = finding.sql.replace("{start}", &start.to_string());
                let place = parts.len();
                examined += finding.checks;
                parts.push(format!("SELECT {place} AS place, * FROM (\n{sql})"));
            }
        }
        // The parts of one query run at the same time.
        let mut found: Vec<[String; 5]> = Vec::new();
        let batches = match parts.is_empty() {
            true => Vec::new(),
            false => session.collect(&parts.join("\nUNION ALL "))?,
        };
        for batch in batches {
            let columns: Result<Vec<_>> = batch.columns().iter().map(strings).collect();
            let columns = columns?;
            let text = |column: usize, row: usize| columns[column].value(row).to_owned();
            let rows = 0..batch.num_rows();
            found.extend(rows.map(|row| [0, 1, 2, 3, 4].map(|column| text(column, row))));
        }
        // In the order of the list. There are fewer than ten, so their places are ordered as texts, too.
        found.sort_by(|one, other| one[0].cmp(&other[0]));
        let mut found: Vec<[String; 4]> = found
            .into_iter()
            .map(|[_, severity, title, detail, sql]| [severity, title, detail, sql])
            .collect();
        // Stable: warnings keep their order, and so does the rest.
        found.sort_by_key(|finding| finding[0] != "warning");
        let warnings = found
            .iter()
            .filter(|finding| finding[0] == "warning")
            .count();
        let columns = COLUMNS.iter().enumerate().map(|(column, name)| {
            let texts = found.iter().map(|finding| finding[column].as_str());
            (
                *name,
                Arc::new(StringArray::from_iter_values(texts)) as ArrayRef,
            )
        });
        let rows = RecordBatch::try_from_iter(columns)?;
        let summary = format!(
            "{} and {} from {}",
            counted(warnings as u64, "warning"),
            counted((found.len() - warnings) as u64, "remark"),
            counted(examined, "check")
        );
        Ok(Answered::new(Section::Table(rows)).with_summary(summary))
    }
}

fn has_source(session: &Session, source: Source) -> Result<bool> {
    match source {
        Source::Table(name) => Ok(has_rows(session, name)),
        Source::View(name) => is_recorded(session, name),
    }
}
