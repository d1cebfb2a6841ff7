//! `heatmap`: an image of a value over time: time from left to right, low values at the bottom.

use std::path::PathBuf;

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use clap::Args;
use perfquet_trace::count::{counted, grouped};

use super::function_stats::bars_of;
use super::row_source::{RowSource, Rows, divided};
use crate::commands::Subcommand;
use crate::failure::Misuse;
use crate::limits::Limits;
use crate::render::heat::{Cell, Heat};
use crate::render::{Answered, Form, Section};
use crate::report::{self, Report};
use crate::session::Session;
use crate::settings::Image;

pub(super) const REPORT: Subcommand = report::subcommand::<Heatmap>();

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
    /// Title of the image
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    title: Option<String>,
    /// Unit of the expression: ns, or any word
    #[arg(
        long,
        help_heading = "Output",
        value_name = "UNIT",
        default_value = "ns"
    )]
    unit: String,
    /// Number of time slots, from 10 to 1000
    #[arg(long, help_heading = "Output", value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(10..=1000))]
    columns: u16,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    image: Image,
    #[command(flatten)]
    limits: Limits,
}

impl Report for Heatmap {
    const NAME: &'static str = "heatmap";

    fn traces(&self) -> Vec<PathBuf> {
        divided(&self.words).0
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(self.image.form())
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let expression = divided(&self.words).1;
        let expression = expression.unwrap_or_else(|| "duration".to_owned());
        if session.traces.len() > 1 {
            bail!(Misuse(format!(
                "expected one trace, found {}: the clocks of traces differ",
                session.traces.len()
            )));
        }
        session.piece("EXPR", &expression)?;
        let rows = self.rows.selected(session)?;
        let Some((start, end)) = range(session, &rows, &expression)? else {
            bail!("no matching rows with a time and a value in {}", rows.name);
        };
        let slots = i64::from(self.columns);
        let width = (end.saturating_sub(start) / slots + 1).max(1);
        let sql = include_str!("heatmap.sql")
            .replace("{start}", &start.to_string())
            .replace("{width}", &width.to_string())
            .replace("{expression}", &expression)
            .replace("{table}", &rows.table)
            .replace("{where}", &rows.condition);
        let (cells, negative) = cells(&session.collect(&sql)?);
        let omitted = (negative > 0).then(|| format!("{} below 0 omitted", grouped(negative)));
        let count: u64 = cells.iter().map(|cell| cell.count).sum();
        if count == 0 {
            let negative = counted(negative, "value");
            bail!(
                "no values of 0 or more in {}; {negative} below 0",
                rows.name
            );
        }
        let trace = &session.traces[0];
        let begin = trace.time_range().map_or(start, |(begin, _)| begin);
        let title = || format!("{}: {expression} of {}", trace.name, rows.name);
        let values = counted(count, "value");
        let subtitle = match &omitted {
            Some(omitted) => format!("{values}; {omitted}"),
            None => values.clone(),
        };
        let heat = Heat {
            title: self.title.clone().unwrap_or_else(title),
            subtitle,
            unit: self.unit.clone(),
            from: start.saturating_sub(begin),
            slot: width,
            slots: self.columns,
            cells,
        };
        let summary = format!("{}: {values}", rows.name);
        Ok(Answered::new(Section::Heat(heat))
            .with_summary(summary)
            .with_omitted(omitted))
    }
}

/// Returns the cells, and the number of values below 0, which have no place on a logarithmic axis.
fn cells(batches: &[RecordBatch]) -> (Vec<Cell>, u64) {
    let mut cells = Vec::new();
    let mut negative = 0;
    for batch in batches {
        let slots = batch.column(0).as_primitive::<Int64Type>();
        let lists = batch.column(1).as_list::<i32>();
        for row in 0..batch.num_rows() {
            for bar in bars_of(&lists.value(row)) {
                let (value, count) = (bar.mean.round() as i64, bar.count.unsigned_abs());
                if value < 0 {
                    negative += count;
                    continue;
                }
                cells.push(Cell {
                    slot: slots.value(row),
                    low: bar.low,
                    high: bar.high,
                    value,
                    count,
                });
            }
        }
    }
    (cells, negative)
}

/// Returns the first and last time of the selected rows.
fn range(session: &Session, rows: &RowSource, expression: &str) -> Result<Option<(i64, i64)>> {
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
