//! `calls`: function calls one by one, indented by nesting, in the layout of function_graph.
//!
//! ```text
//! #     TIME       CPU  TASK               DURATION           SELF         FUNCTION CALLS
//!    5.000149000    3)  sh-77         # 8415.000 us |      16.000 us |  do_fork();
//!    5.000156000    3)  sh-77         # 6580.000 us |      15.000 us |    vfs_caches_init();
//! ```
//! The marks before durations are those of function_graph: `+` over 10 µs, `!` 100 µs, `#` 1 ms, `*` 10 ms, `@` 100 ms, `$` 1 s.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::{counted, grouped};

use super::call_tree::{self, Pruning};
use super::paths::Paths;
use crate::commands::Subcommand;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::{self, Answered, Form, Section};
use crate::report::{self, Report};
use crate::settings::{Output, Traces};

pub(super) const REPORT: Subcommand = report::subcommand::<Calls>();

/// Print function calls in order of time, or as a call tree with percentages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Print the calls of one thread
  perfquet-query calls t.pqt --tid 1234 | less
  # Print the calls of all threads in a time range
  perfquet-query calls t.pqt --time 1.2s..1.3s
  # Print slow calls, one thread after another
  perfquet-query calls t.pqt --by-thread --where 'duration > 100us'
  # Print the call tree of all threads
  perfquet-query calls t.pqt --tree
  # Print a call tree per thread name
  perfquet-query calls t.pqt --tree --by comm --min-percent 1 --max-depth 5")]
struct Calls {
    #[command(flatten)]
    traces: Traces,
    /// Print the call tree of all threads, with percentages
    #[arg(long)]
    tree: bool,
    /// Print one call tree per KEY, with --tree
    #[arg(long, value_enum, value_name = "KEY", requires = "tree")]
    by: Option<By>,
    /// Hide functions below PERCENT of the total time
    #[arg(long, value_name = "PERCENT", requires = "tree", default_value_t = 0.1)]
    min_percent: f64,
    /// Maximum depth of the call tree
    #[arg(long, value_name = "N", requires = "tree", default_value_t = 200)]
    max_depth: usize,
    /// Print one thread after another instead of interleaving them
    #[arg(long, conflicts_with = "tree")]
    by_thread: bool,
    /// Maximum number of rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 0)]
    limit: usize,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Comm,
    Pid,
    Tid,
    Cpu,
    Context,
    Trace,
}

impl Report for Calls {
    const NAME: &'static str = "calls";

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
        if !session.has_rows("calls") {
            bail!(
                "the trace has no calls\nhint: list its contents with: perfquet-query info TRACE"
            );
        }
        match self.tree {
            true => tree(self, session),
            false => one_by_one(self, session, &self.filters.condition(session)?),
        }
    }
}

fn tree<'s>(report: &Calls, session: &'s Session) -> Result<Answered<'s>> {
    let key = report.by.map(|by| match by {
        By::Comm => "comm",
        By::Pid => "arrow_cast('pid ' || pid, 'Utf8View')",
        By::Tid => "arrow_cast(coalesce(comm, 'tid') || '-' || tid, 'Utf8View')",
        By::Cpu => "arrow_cast('CPU ' || cpu, 'Utf8View')",
        By::Context => "context",
        By::Trace => "trace",
    });
    if report.by == Some(By::Trace) && session.traces().len() == 1 {
        bail!(Misuse(
            "--by trace: requires more than one trace".to_owned()
        ));
    }
    let paths = Paths::query(session, &report.filters, key)?;
    if paths.calls == 0 {
        fail_if_nothing_fits(report, session)?;
        bail!("no matching calls");
    }
    let unfinished: u64 = paths.nodes.iter().map(|node| node.count - node.known).sum();
    let unseen = match unfinished {
        0 => String::new(),
        count => format!("; {} of unknown duration", grouped(count)),
    };
    let summary = format!(
        "{} on {}, {} total{unseen}",
        counted(paths.calls, "call"),
        counted(paths.nodes.len() as u64 - 1, "path"),
        in_fitting_unit(paths.nodes[0].weight as f64)
    );
    let pruning = Pruning {
        least_percent: report.min_percent,
        deepest: report.max_depth,
        lines: report.limit,
    };
    let batch = call_tree::batch(&paths, pruning)?;
    Ok(Answered::new(Section::Table(batch)).with_summary(summary))
}

fn one_by_one<'s>(report: &Calls, session: &'s Session, condition: &str) -> Result<Answered<'s>> {
    let several = session.traces().len() > 1;
    let trace = if several { ", trace" } else { "" };
    // Call IDs are in the order of entries.
    let order = match report.by_thread {
        true => "tid, time, call_id",
        false => "time, call_id",
    };
    let limit = match report.limit {
        0 => String::new(),
        lines => format!("LIMIT {}", i64::try_from(lines).unwrap_or(i64::MAX)),
    };
    let sql = include_str!("calls.sql")
        .replace("{columns}", &format!("{}{trace}", render::CALL_COLUMNS))
        .replace("{where}", condition)
        .replace("{order}", order)
        .replace("{limit}", &limit);
    let mut answer = session.query(&sql)?;
    if answer.is_empty()? {
        fail_if_nothing_fits(report, session)?;
    }
    let calls = render::Calls { session, answer };
    Ok(Answered::new(Section::Calls(calls)))
}

/// Fails if a filter has a name or ID that no call has.
fn fail_if_nothing_fits(report: &Calls, session: &Session) -> Result<()> {
    match report.filters.why_nothing_fits(session, "calls", "TRUE")? {
        Some(text) => bail!(text),
        None => Ok(()),
    }
}
