//! `critical-path`: what a thread's time depended on: its own work, that of the threads it waited for, waits.
//!
//! ```text
//! share  total     parts  comm         tid    state            why                  depth
//! 61.0%  1.220 s     412  postgres     812    running                                   0
//! 22.4%  448.1 ms     96  postgres     812    uninterruptible  folio_wait_bit           0
//! 10.2%  204.0 ms     61  kworker/1:2  9021   running                                   1
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use arrow::compute::concat_batches;
use clap::Args;

use perfquet::Session;

use crate::commands::Subcommand;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::{Answered, Form, Section, with_display, with_spares};
use crate::report::{self, Report};
use crate::settings::{Output, Traces};

pub(super) const REPORT: Subcommand = report::subcommand::<CriticalPath>();

/// Show what a thread's time depended on: itself, other threads, devices
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Summarize the whole recording for one thread
  perfquet-query critical-path a.pqt --tid 812
  # List the parts of one interval in their order
  perfquet-query critical-path a.pqt --tid 812 --time 1.2s..1.25s --parts")]
struct CriticalPath {
    #[command(flatten)]
    traces: Traces,
    /// Thread whose time is explained
    #[arg(long, value_name = "TID")]
    tid: i32,
    /// Time range from the start of the trace, such as 1.2s..1.5s [default: all]
    #[arg(long, value_name = "RANGE")]
    time: Option<String>,
    /// List the parts in their order instead of adding them up
    #[arg(long)]
    parts: bool,
    /// Maximum number of rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25)]
    limit: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

impl Report for CriticalPath {
    const NAME: &'static str = "critical-path";

    fn traces(&self) -> Vec<PathBuf> {
        self.traces.traces.clone()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(Form::rows(self.output.format))
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let trace = session.only_trace()?;
        let filters = Filters::of(None, self.time.clone());
        // Reports a wrong range.
        filters.time_condition(session)?;
        session.is_report();
        let (start, end) = trace.time_range().unwrap_or_default();
        let bounds = filters.time_bounds(start);
        let [from, to] = match bounds {
            Some((from, to)) => [from.max(start), to.min(end)].map(|time| time.to_string()),
            None => ["NULL", "NULL"].map(str::to_owned),
        };
        let sql = match self.parts {
            true => include_str!("critical_path_parts.sql"),
            false => include_str!("critical_path.sql"),
        };
        let limit = match self.limit {
            0 => String::new(),
            rows => format!("LIMIT {rows}"),
        };
        let sql = sql
            .replace("{tid}", &self.tid.to_string())
            .replace("{from}", &from)
            .replace("{to}", &to)
            .replace("{start}", &start.to_string())
            .replace("{limit}", &limit);
        let spares = ["parts", "depth", "interrupt", "waker_comm"];
        let mut answer = session.query(&sql)?;
        let mut schema = with_spares(&answer.schema(), &spares);
        if self.limit == 0 {
            // Rows without an end: whether a column is empty is not known before the last one.
            return Ok(Answered::new(Section::Stream(answer.with_schema(schema))));
        }
        // Without stacks or interrupts, these are empty.
        for column in ["ended_by", "why", "waker_comm", "interrupt"] {
            schema = with_display(&schema, column, "optional");
        }
        answer = answer.with_schema(Arc::clone(&schema));
        let mut batches = Vec::new();
        while let Some(batch) = answer.next()? {
            batches.push(batch);
        }
        let rows = concat_batches(&schema, &batches)?;
        Ok(Answered::new(Section::Table(rows)))
    }
}
