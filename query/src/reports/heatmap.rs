//! `heatmap`: how a latency changes over time, as a picture: time from left to right, short below and long above.

use std::path::PathBuf;

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use clap::{ArgMatches, Args};

use super::measured::bars_of;
use super::rows::{Asked, Rows, divided};
use crate::commands::{Subcommand, arguments};
use crate::failure::Misuse;
use crate::render::heat::{self, Heat};
use crate::render::text::grouped;
use crate::render::{self, Destination};
use crate::session::Session;
use crate::settings::{Limits, Overwriting};

pub(super) const REPORT: Subcommand = Subcommand::new::<Heatmap>("heatmap", run);

/// Draw latency over time: the darker or brighter, the more calls
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquet-query heatmap t.pqt -o t.svg
  perfquet-query heatmap t.pqt --where \"function = 'vfs_read'\" --time 1s..3s -o reads.svg
  perfquet-query heatmap a.pqt runtime --event sched:sched_stat_runtime -o run.svg
  perfquet-query heatmap a.pqt bytes_req --event kmem:kmalloc --unit bytes -o sizes.svg")]
struct Heatmap {
    /// Trace directory; then an expression in SQL, duration if not given
    #[arg(value_name = "TRACE [EXPRESSION]", required = true)]
    words: Vec<String>,
    /// File to write; stdout if not given
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwriting: Overwriting,
    /// Title of the picture
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// What the expression counts: ns, or any word
    #[arg(long, value_name = "UNIT", default_value = "ns")]
    unit: String,
    /// Slots of time
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
            "a picture is not for a terminal\nhint: -o FILE.svg".to_owned()
        ));
    }
    let mut out = Destination::open(report.output.as_deref(), report.overwriting.force)?;
    let (traces, expression) = divided(&report.words);
    let expression = expression.unwrap_or_else(|| "duration".to_owned());
    let session = Session::open(&traces, &report.limits)?;
    if session.traces.len() > 1 {
        bail!(Misuse(
            "a heat map is drawn of one trace: their clocks differ".to_owned()
        ));
    }
    session.piece("the expression", &expression)?;
    let rows = report.rows.asked(&session)?;
    let Some((start, end)) = range(&session, &rows, &expression)? else {
        bail!(
            "nothing to draw: no row of {} has a time and a value",
            rows.name
        );
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
        negative => format!("; {} below 0 are not drawn", grouped(negative)),
    };
    if count == 0 {
        bail!(
            "nothing to draw: no value of {} is 0 or more{left_out}",
            rows.name
        );
    }
    let trace = &session.traces[0];
    let begin = trace.time_range().map_or(start, |(begin, _)| begin);
    let heat = Heat {
        title: report
            .title
            .clone()
            .unwrap_or_else(|| format!("{}: {expression} of {}", trace.name, rows.name)),
        subtitle: format!("{} values{left_out}", grouped(count)),
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
        "{}: {} values drawn{}{left_out}",
        rows.name,
        grouped(count),
        place.unwrap_or_default()
    );
    Ok(())
}

/// The first and the last time of the rows that count.
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
