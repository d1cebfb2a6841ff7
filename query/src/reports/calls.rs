//! `calls`: function calls one by one, indented by nesting, in the layout of function_graph.
//!
//! ```text
//! #     TIME       CPU  TASK               DURATION           SELF         FUNCTION CALLS
//!    5.000149000    3)  sh-77         # 8415.000 us |      16.000 us |  do_fork();
//!    5.000156000    3)  sh-77         # 6580.000 us |      15.000 us |    vfs_caches_init();
//! ```
//! The marks before durations are those of function_graph: `+` over 10 µs, `!` 100 µs, `#` 1 ms, `*` 10 ms, `@` 100 ms, `$` 1 s.

use std::io::Write;

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use clap::{ArgMatches, Args, ValueEnum};
use perfquet_formats::count::{counted, grouped};

use super::call_tree::{self, Pruning};
use super::paths::Paths;
use super::places::Places;
use crate::commands::{Subcommand, arguments};
use crate::failure::Misuse;
use crate::filter::Filters;
use crate::functions::in_fitting_unit;
use crate::render::text::{cut, harmless, strings};
use crate::render::{self, Format};
use crate::session::Session;
use crate::settings::{Limits, Output, Traces};

pub(super) const REPORT: Subcommand = Subcommand::new::<Calls>("calls", run);

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
    /// Print one call tree per KEY
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

fn run(matches: &ArgMatches) -> Result<()> {
    let report: Calls = arguments(matches)?;
    let session = Session::open(&report.traces.traces, &report.limits)?;
    let condition = report.filters.condition(&session)?;
    let has_calls = session
        .traces
        .iter()
        .any(|trace| trace.table("calls").is_some_and(|table| table.rows() > 0));
    if !has_calls {
        bail!("the trace has no calls\nhint: list its contents with: perfquet-query info TRACE");
    }
    match report.tree {
        true => tree(&report, &session, &condition),
        false => one_by_one(&report, &session, &condition),
    }
}

fn tree(report: &Calls, session: &Session, condition: &str) -> Result<()> {
    let key = report.by.map(|by| match by {
        By::Comm => "comm",
        By::Pid => "arrow_cast('pid ' || pid, 'Utf8View')",
        By::Tid => "arrow_cast(coalesce(comm, 'tid') || '-' || tid, 'Utf8View')",
        By::Cpu => "arrow_cast('CPU ' || cpu, 'Utf8View')",
        By::Context => "context",
        By::Trace => "trace",
    });
    if report.by == Some(By::Trace) && session.traces.len() == 1 {
        bail!(Misuse(
            "--by trace: requires more than one trace".to_owned()
        ));
    }
    let paths = Paths::query(session, condition, key)?;
    if paths.calls == 0 {
        fail_if_nothing_fits(report, session)?;
        bail!("no matching calls");
    }
    let unfinished: u64 = paths.nodes.iter().map(|node| node.unfinished).sum();
    let unseen = match unfinished {
        0 => String::new(),
        count => format!("; {} of unknown duration", grouped(count)),
    };
    say!(
        "{} on {}, {} total{unseen}",
        counted(paths.calls, "call"),
        counted(paths.nodes.len() as u64 - 1, "path"),
        in_fitting_unit(paths.nodes[0].total as f64)
    );
    let pruning = Pruning {
        least_percent: report.min_percent,
        deepest: report.max_depth,
        lines: report.limit,
    };
    let batch = call_tree::batch(&paths, pruning, report.output.format)?;
    render::batch(report.output.format, &batch)
}

const COLUMNS: &str = "time, cpu, pid, tid, comm, duration, self_time, function, module, caller, depth, call_id, parent_id, retval, args, context, entry_seen, exit_seen";

fn one_by_one(report: &Calls, session: &Session, condition: &str) -> Result<()> {
    let several = session.traces.len() > 1;
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
        .replace("{columns}", &format!("{COLUMNS}{trace}"))
        .replace("{where}", condition)
        .replace("{order}", order)
        .replace("{limit}", &limit);
    let mut answer = session.query(&sql)?;
    if report.output.format != Format::Table {
        render::answer(report.output.format, &mut answer)?;
        return Ok(());
    }
    let mut out = render::stdout();
    writeln!(
        out,
        "#     TIME        CPU  TASK                    DURATION             SELF        FUNCTION CALLS"
    )?;
    let mut count = 0;
    let mut indents = Places::for_calls(session);
    while let Some(batch) = answer.next()? {
        count += batch.num_rows() as u64;
        write_lines(session, &batch, &mut indents, &mut out)?;
    }
    out.flush()?;
    if count == 0 {
        fail_if_nothing_fits(report, session)?;
        say!("no matching calls");
    }
    Ok(())
}

/// Fails if a filter has a name or ID that no call has.
fn fail_if_nothing_fits(report: &Calls, session: &Session) -> Result<()> {
    match report.filters.why_nothing_fits(session, "calls", "TRUE")? {
        Some(text) => bail!(text),
        None => Ok(()),
    }
}

/// Maximum indentation.
const DEEPEST_SHOWN: u32 = 100;

fn write_lines(
    session: &Session,
    batch: &RecordBatch,
    indents: &mut [Places],
    out: &mut dyn Write,
) -> Result<()> {
    let text = |column: usize| strings(batch.column(column));
    let long = |column: usize| batch.column(column).as_primitive::<Int64Type>();
    let short = |column: usize| batch.column(column).as_primitive::<Int32Type>();
    let flag = |column: usize| batch.column(column).as_boolean();
    let (comms, functions, modules, contexts) = (text(4)?, text(7)?, text(8)?, text(15)?);
    let (times, durations, owns, retvals) = (long(0), long(5), long(6), long(13));
    let (cpus, tids, depths) = (short(1), short(3), short(10));
    let args = batch.column(14).as_list::<i32>();
    let (entries, exits) = (flag(16), flag(17));
    let (ids, parents) = (long(11), long(12));
    let several = session.traces.len() > 1;
    let traces = several.then(|| text(18)).transpose()?;
    for row in 0..batch.num_rows() {
        let value =
            |column: &arrow::array::Int64Array| column.is_valid(row).then(|| column.value(row));
        let number =
            |column: &arrow::array::Int32Array| column.is_valid(row).then(|| column.value(row));
        let word = |column: &arrow::array::StringViewArray| {
            column
                .is_valid(row)
                .then(|| harmless(column.value(row)).into_owned())
        };
        let time = value(times).map(seconds).unwrap_or_default();
        let cpu = number(cpus)
            .map(|cpu| format!("{cpu})"))
            .unwrap_or_default();
        let context = word(&contexts).filter(|context| context != "task");
        let task = match (word(&comms), number(tids)) {
            (Some(comm), Some(tid)) => format!("{comm}-{tid}"),
            (Some(comm), None) => comm,
            (None, Some(tid)) => tid.to_string(),
            (None, None) => context.clone().unwrap_or_default(),
        };
        let mut line = format!(
            "{time:>16}  {cpu:>4}  {:<18} {} | {} |  ",
            cut(&task, 18),
            duration(value(durations), true),
            duration(value(owns), false)
        );
        // One deeper than what is around it, where that is shown: depths of several tracers count from 0 each.
        let trace = match &traces {
            Some(names) => session.forest.trace(names.value(row)).unwrap_or(0),
            None => 0,
        };
        let around = value(parents).and_then(|parent| indents[trace].get(parent));
        let depth = around.map_or(number(depths).unwrap_or(0).max(0) as u32, |depth| depth + 1);
        indents[trace].set(ids.value(row), depth);
        line.extend(std::iter::repeat_n(
            ' ',
            2 * depth.min(DEEPEST_SHOWN) as usize,
        ));
        line.push_str(&word(&functions).unwrap_or_else(|| "[unknown]".to_owned()));
        if let Some(module) = word(&modules) {
            line.push_str(&format!(" [{module}]"));
        }
        line.push('(');
        if args.is_valid(row) {
            let words = strings(&args.value(row))?;
            let words: Vec<_> = words.iter().flatten().map(harmless).collect();
            line.push_str(&words.join(", "));
        }
        line.push_str(");");
        let mut remarks = Vec::new();
        if let Some(retval) = value(retvals) {
            remarks.push(format!("= {retval}"));
        }
        remarks.extend(context);
        if !entries.value(row) {
            remarks.push("entry not seen".to_owned());
        }
        if !exits.value(row) {
            remarks.push("exit not seen".to_owned());
        }
        if let Some(traces) = &traces {
            remarks.extend(word(traces));
        }
        if !remarks.is_empty() {
            line.push_str(&format!(" /* {} */", remarks.join(", ")));
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Nanoseconds as seconds with nine digits.
fn seconds(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Formats microseconds with three decimals, optionally with the mark of function_graph.
fn duration(ns: Option<i64>, marked: bool) -> String {
    let width = if marked { 18 } else { 16 };
    let Some(ns) = ns else {
        return " ".repeat(width);
    };
    let size = ns.unsigned_abs();
    let sign = if ns < 0 { "-" } else { "" };
    let number = format!("{sign}{}.{:03} us", size / 1000, size % 1000);
    if !marked {
        return format!("{number:>width$}");
    }
    let mark = match size {
        1_000_000_001.. => '$',
        100_000_001.. => '@',
        10_000_001.. => '*',
        1_000_001.. => '#',
        100_001.. => '!',
        10_001.. => '+',
        _ => ' ',
    };
    format!("{mark} {number:>16}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_function_graph() {
        assert_eq!(duration(Some(10_000), true).trim(), "10.000 us");
        assert!(duration(Some(10_001), true).starts_with("+ "));
        assert!(duration(Some(115_171), true).starts_with("! "));
        assert!(duration(Some(2_000_000_000), true).starts_with("$ "));
        assert_eq!(duration(None, true).len(), duration(Some(1), true).len());
        assert_eq!(duration(None, false).len(), duration(Some(1), false).len());
        assert_eq!(seconds(-1), "-0.000000001");
        assert_eq!(seconds(5_000_149_000), "5.000149000");
    }
}
