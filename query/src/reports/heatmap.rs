//! `heatmap`: an image of a value over time: time from left to right, low values at the bottom. Events without a value, or
//! with the same one everywhere, are drawn by time alone: a column for each second, 20 ms to a row.

use std::path::PathBuf;

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use clap::Args;
use perfquet::Session;
use perfquet::stacks::strings;
use perfquet_trace::count::{counted, grouped};

use super::function_stats::bars_of;
use super::row_source::{RowSource, Rows, divided};
use crate::commands::Subcommand;
use crate::limits::Limits;
use crate::render::axis_label;
use crate::render::grid::{Grid, ROWS};
use crate::render::heat::{Cell, Heat};
use crate::render::{Answered, Form, Section};
use crate::report::{self, Report};
use crate::settings::Image;

pub(super) const REPORT: Subcommand = report::subcommand::<Heatmap>();

/// Draw a heat map: the distribution of a value, or of events, over time
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Draw call durations over time
  perfquet-query heatmap t.pqt -o t.svg
  # Draw the durations of one function in a time range
  perfquet-query heatmap t.pqt --where \"function = 'vfs_read'\" --time 1s..3s -o reads.svg
  # Draw the samples: which 20 ms of which second were busy
  perfquet-query heatmap a.pqt -o a.svg
  # Draw a field of an event
  perfquet-query heatmap a.pqt runtime --event sched:sched_stat_runtime -o run.svg
  # Draw a value of a query, with its time
  perfquet-query heatmap a.pqt --sql \"SELECT time, duration FROM block_io WHERE op = 'write'\" -o writes.svg
  # Draw a value in another unit
  perfquet-query heatmap a.pqt bytes_req --event kmem:kmalloc --unit bytes -o sizes.svg")]
struct Heatmap {
    /// Trace directory, then an SQL expression [default: duration, if there is one]
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
        session.only_trace()?;
        let expression = divided(&self.words).1;
        let expression = match expression {
            None => self.rows.value_of_query(session)?,
            given => given,
        };
        if let Some(expression) = &expression {
            session.piece("EXPR", expression)?;
        }
        let rows = self.rows.selected(session)?;
        let expression = match expression {
            Some(expression) => expression,
            None if has_duration(session, &rows.table)? => "duration".to_owned(),
            None => return self.grid(session, &rows, None),
        };
        let Some(range) = range(session, &rows, &expression)? else {
            bail!("no matching rows with a time and a value in {}", rows.name);
        };
        if let (Some(value), true) = (range.only_value, divided(&self.words).1.is_some()) {
            let note = format!("{expression} is {value} everywhere");
            return self.grid(session, &rows, Some(note));
        }
        let (start, end) = (range.start, range.end);
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
        let trace = &session.traces()[0];
        let begin = trace.time_range().map_or(start, |(begin, _)| begin);
        let what = format!("{expression} of {}", rows.name);
        let values = counted(count, "value");
        let subtitle = match &omitted {
            Some(omitted) => format!("{values}; {omitted}"),
            None => values.clone(),
        };
        let heat = Heat {
            title: self.title(session, &what),
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
    sort(&mut cells);
    (cells, negative)
}

/// In the order of time and value: the engine's groups have none.
fn sort(cells: &mut [Cell]) {
    cells.sort_by_key(|cell| (cell.slot, cell.low, cell.value));
}

/// First and last time of the selected rows.
struct Range {
    start: i64,
    end: i64,
    /// The value, if all rows have the same.
    only_value: Option<String>,
}

/// Whether a table has durations.
fn has_duration(session: &Session, table: &str) -> Result<bool> {
    let schema = session.table(table)?.schema();
    Ok(schema.field_with_name("duration").is_ok())
}

fn range(session: &Session, rows: &RowSource, expression: &str) -> Result<Option<Range>> {
    let sql = format!(
        "SELECT min(time), max(time), CAST(min({expression}) AS VARCHAR), min({expression}) = max({expression}) FROM {} WHERE {} AND ({expression}) IS NOT NULL",
        rows.table, rows.condition
    );
    for batch in session.collect(&sql)? {
        let time = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        if batch.num_rows() > 0 && time(0).is_valid(0) {
            let is_only = batch.column(3).as_boolean();
            let value = strings(batch.column(2))?;
            return Ok(Some(Range {
                start: time(0).value(0),
                end: time(1).value(0),
                only_value: (is_only.is_valid(0) && is_only.value(0))
                    .then(|| value.value(0).to_owned()),
            }));
        }
    }
    Ok(None)
}

impl Heatmap {
    /// The title; the condition is part of it.
    fn title(&self, session: &Session, what: &str) -> String {
        let usual = || {
            let condition = self.rows.choice.filters.words();
            let condition = condition.map_or_else(String::new, |words| format!(", {words}"));
            format!("{}: {what}{condition}", session.traces()[0].name)
        };
        self.title.clone().unwrap_or_else(usual)
    }

    /// The rows by time alone.
    fn grid<'s>(
        &self,
        session: &'s Session,
        rows: &RowSource,
        note: Option<String>,
    ) -> Result<Answered<'s>> {
        let Some((begin, end)) = session.traces()[0].time_range() else {
            bail!("no matching rows with a time in {}", rows.name);
        };
        let column = Grid::fitting_column(end.saturating_sub(begin));
        let sql = format!(
            "SELECT (time - {begin}) / {} AS place, count(*) FROM {} WHERE {} AND time >= {begin} GROUP BY 1 ORDER BY 1",
            column / ROWS,
            rows.table,
            rows.condition
        );
        let mut counts = Vec::new();
        for batch in session.collect(&sql)? {
            let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
            let (places, numbers) = (number(0).values(), number(1).values());
            let pairs = places.iter().zip(numbers);
            counts.extend(pairs.map(|(&place, &count)| (place, count.unsigned_abs())));
        }
        let count: u64 = counts.iter().map(|(_, count)| count).sum();
        if count == 0 {
            self.rows.choice.fail_if_nothing_fits(session)?;
            bail!("no matching rows with a time in {}", rows.name);
        }
        let events = counted(count, "event");
        let row = axis_label((column / ROWS) as f64);
        let mut subtitle = format!(
            "{events}; column: {}, from the bottom upwards; row: {row}",
            axis_label(column as f64)
        );
        if let Some(note) = &note {
            subtitle = format!("{subtitle}; {note}");
        }
        let grid = Grid {
            title: self.title(session, &format!("{} over time", rows.name)),
            subtitle,
            column,
            counts,
        };
        let summary = format!("{}: {events}", rows.name);
        Ok(Answered::new(Section::Grid(grid))
            .with_summary(summary)
            .with_omitted(note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_in_the_order_of_time_and_value() {
        let cell = |slot: i64, low: i64| Cell {
            slot,
            low,
            high: low + 1,
            value: low,
            count: 1,
        };
        let mut cells = vec![cell(2, 1), cell(0, 9), cell(1, 5), cell(0, 3)];
        sort(&mut cells);
        assert_eq!(cells, [cell(0, 3), cell(0, 9), cell(1, 5), cell(2, 1)]);
    }
}
