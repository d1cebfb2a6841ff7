//! `heatmap`: an image of a value over time: time from left to right, low values at the bottom.

use std::path::PathBuf;

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use clap::{ArgMatches, Args};
use perfquet_formats::count::{counted, grouped};

use super::measured::bars_of;
use super::rows::{Asked, Rows, divided};
use crate::commands::{Subcommand, arguments};
use crate::failure::Misuse;
use crate::render::heat::{self, Heat};
use crate::render::{self, Destination};
use crate::session::Session;
use crate::settings::{Limits, Overwriting};

pub(super) const REPORT: Subcommand = Subcommand::new::<Heatmap>("heatmap", run);

/// Draw a latency heat map: the distribution of a value over time
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Draw call durations over time
  perfquet-query heatmap t.pqt -o t.svg
  # Draw the durations of one function in a time range
  perfquet-query heatmap t.pqt --where \"function = 'vfs_read'\" --time 1s..3s -o reads.svg
  # Draw a field of an event
  perfquet-query heatmap a.pqt runtime --event sched:sched_stat_runtime -o run.svg
  # Draw a value in another unit
  perfquet-query heatmap a.pqt bytes_req --event kmem:kmalloc --unit bytes -o sizes.svg")]
struct Heatmap {
    /// Trace directory, then an SQL expression [default: duration]
    #[arg(value_name = "TRACE [EXPR]", required = true)]
    words: Vec<String>,
    /// Output file [default: stdout]
    #[arg(short = 'o', long, value_name = "PATH")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwriting: Overwriting,
    /// Title of the image
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Unit of the expression: ns, or any word
    #[arg(long, value_name = "UNIT", default_value = "ns")]
    unit: String,
    /// Number of time slots, from 10 to 1000
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(10..=1000))]
    columns: u16,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    limits: Limits,
}

fn run(matches: &ArgMatches) -> Result<()> {
    let report: Heatmap = arguments(matches)?;
    if report.output.is_none() && render::is_terminal() {
        bail!(Misuse(
            "cannot write an image to a terminal\nhint: use -o PATH.svg".to_owned()
        ));
    }
    let mut out = Destination::open(report.output.as_deref(), report.overwriting.force)?;
    let (traces, expression) = divided(&report.words);
    let expression = expression.unwrap_or_else(|| "duration".to_owned());
    let session = Session::open(&traces, &report.limits)?;
    if session.traces.len() > 1 {
        bail!(Misuse(format!(
            "expected one trace, found {}: the clocks of traces differ",
            session.traces.len()
        )));
    }
    session.piece("EXPR", &expression)?;
    let rows = report.rows.asked(&session)?;
    let Some((start, end)) = range(&session, &rows, &expression)? else {
        bail!("no matching rows with a time and a value in {}", rows.name);
    };
    let slots = i64::from(report.columns);
    let width = (end.saturating_sub(start) / slots + 1).max(1);
    let sql = include_str!("heatmap.sql")
        .replace("{start}", &start.to_string())
        .replace("{width}", &width.to_string())
        .replace("{expression}", &expression)
        .replace("{table}", &rows.table)
        .replace("{where}", &rows.condition);
    let mut cells = Vec::new();
    let (mut count, mut negative) = (0, 0);
    for batch in session.collect(&sql)? {
        let places = batch.column(0).as_primitive::<Int64Type>();
        let lists = batch.column(1).as_list::<i32>();
        for row in 0..batch.num_rows() {
            for bar in bars_of(&lists.value(row)) {
                let value = bar.mean.round() as i64;
                if value < 0 {
                    negative += bar.count.unsigned_abs();
                    continue;
                }
                cells.push((places.value(row), value, bar.count.unsigned_abs()));
                count += bar.count.unsigned_abs();
            }
        }
    }
    let left_out = match negative {
        0 => String::new(),
        negative => format!("; {} below 0 omitted", grouped(negative)),
    };
    if count == 0 {
        bail!("no values of 0 or more in {}{left_out}", rows.name);
    }
    let trace = &session.traces[0];
    let begin = trace.time_range().map_or(start, |(begin, _)| begin);
    let heat = Heat {
        title: report
            .title
            .clone()
            .unwrap_or_else(|| format!("{}: {expression} of {}", trace.name, rows.name)),
        subtitle: format!("{}{left_out}", counted(count, "value")),
        unit: report.unit.clone(),
        from: start.saturating_sub(begin),
        slot: width,
        slots: report.columns,
        cells,
    };
    heat::write(&mut out, &heat)?;
    out.finish()?;
    let place = report
        .output
        .as_ref()
        .map(|path| format!(" to {}", path.display()));
    say!(
        "{}: {} drawn{}{left_out}",
        rows.name,
        counted(count, "value"),
        place.unwrap_or_default()
    );
    Ok(())
}

/// Returns the first and last time of the selected rows.
fn range(session: &Session, rows: &Asked, expression: &str) -> Result<Option<(i64, i64)>> {
    let sql = format!(
        "SELECT min(time), max(time) FROM {} WHERE {} AND ({expression}) IS NOT NULL",
        rows.table, rows.condition
    );
    for batch in session.collect(&sql)? {
        let (first, last) = (
            batch.column(0).as_primitive::<Int64Type>(),
            batch.column(1).as_primitive::<Int64Type>(),
        );
        if batch.num_rows() > 0 && first.is_valid(0) {
            return Ok(Some((first.value(0), last.value(0))));
        }
    }
    Ok(None)
}
