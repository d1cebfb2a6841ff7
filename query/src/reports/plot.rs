//! `plot`: values of a query over time, as lines, bars or points.
//!
//! ```text
//! SELECT time_bucket(100ms, time), count(*), comm FROM samples GROUP BY ALL      x, y, and a series per name
//! ```

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Schema, SchemaRef};
use clap::Args;
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::sql::scoping::Restriction;
use perfquet::stacks::strings;
use perfquet::unit::{DURATION, UNIT};
use perfquet_trace::count::{counted, grouped};

use super::row_source::divided;
use crate::commands::Subcommand;
use crate::filter::Scope;
use crate::limits::Limits;
use crate::render::plot::{MOST_SERIES, Mark, Measure, Plot, Series};
use crate::render::{Answered, Form, Section, Shape};
use crate::report::{self, Report};
use crate::settings::Image;

pub(super) const REPORT: Subcommand = report::subcommand::<PlotReport>();

/// Draw values of a query over time, as an image or on the terminal
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Draw the samples of each 100 ms on the terminal
  perfquet-query plot a.pqt 'SELECT time_bucket(100ms, time) AS time, count(*) FROM samples GROUP BY 1'
  # Draw the latencies of one system call, a color per thread name
  perfquet-query plot a.pqt --mark scatter \"SELECT time, duration, comm FROM syscalls WHERE name = 'fsync'\" -o fsync.svg
  # Draw what each CPU does
  perfquet-query plot a.pqt 'SELECT time, busy, cpu FROM cpu_utilization(50ms)' -o cpus.svg
  # Draw bars of numbers
  perfquet-query plot a.pqt --mark bar 'SELECT cpu, count(*) FROM samples GROUP BY 1'")]
struct PlotReport {
    /// Trace directory, then a query: x, y, and the name of a series
    ///
    /// The first column is a time or a number, the second one a number. Rows with the same third column are one series.
    #[arg(value_name = "TRACE QUERY", required = true)]
    words: Vec<String>,
    /// How points are drawn
    #[arg(long, help_heading = "Output", value_enum, default_value_t = Mark::Line)]
    mark: Mark,
    /// Title of the image
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    title: Option<String>,
    /// Unit of y: ns, or any word [default: that of the column]
    #[arg(long, help_heading = "Output", value_name = "UNIT")]
    unit: Option<String>,
    /// Draw with characters [default: if stdout is a terminal]
    #[arg(long, help_heading = "Output", conflicts_with_all = ["format", "output"])]
    text: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    image: Image,
    #[command(flatten)]
    limits: Limits,
}

/// Rows of a plot; more than can be seen.
const MOST_ROWS: usize = 2_000_000;

impl Report for PlotReport {
    const NAME: &'static str = "plot";

    fn traces(&self) -> Vec<PathBuf> {
        divided(&self.words).0
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        let form = self.image.form();
        let shape = match (self.text, form.shape) {
            (true, _) => Shape::Drawing,
            (_, Shape::Svg) => Shape::SvgOrDrawing,
            (_, shape) => shape,
        };
        Ok(Form { shape, ..form })
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let trace = session.only_trace()?;
        let Some(sql) = divided(&self.words).1 else {
            bail!(Misuse("expected a query after the trace\nhint: perfquet-query plot TRACE 'SELECT time, duration FROM calls'".to_owned()));
        };
        session.restrict(Restriction {
            conditions: self.scope.conditions(session)?,
            must_fit: true,
        });
        let sql = session.whole_query(&sql)?;
        let (rows, schema) = read(session, sql)?;
        let points = rows.points.len() as u64;
        if points == 0 {
            bail!("the query returns no row with two numbers");
        }
        let start = trace.time_range().filter(|&(start, end)| {
            // The first step of a view may begin before the trace, and the last one end after it.
            let slack = match schema.field(0) {
                field if field.name() == "time" && field.data_type().is_integer() => end - start,
                _ => 0,
            };
            let (first, last) = (start.saturating_sub(slack), end.saturating_add(slack));
            let is_time = |x: f64| x >= first as f64 && x <= last as f64;
            rows.is_whole && rows.points.iter().all(|(_, x, _)| is_time(*x))
        });
        let begin = start.map_or(0.0, |(start, _)| start as f64);
        let (series, omitted) = series(rows.points, begin);
        let names = [0, 1].map(|column| schema.field(column).name().clone());
        let shown = series
            .iter()
            .map(|series| series.points.len() as u64)
            .sum::<u64>();
        let values = counted(shown, "value");
        let mut subtitle = format!("{values} of {}", names[1]);
        let omitted = (omitted > 0).then(|| {
            format!(
                "{} series with the fewest values omitted",
                grouped(omitted as u64)
            )
        });
        if let Some(omitted) = &omitted {
            subtitle = format!("{subtitle}; {omitted}");
        }
        let x = match start {
            Some(_) => Measure::Duration,
            None => Measure::Number(String::new()),
        };
        let usual = format!("{}: {} over {}", trace.name, names[1], names[0]);
        let plot = Plot {
            title: self.title.clone().unwrap_or(usual),
            subtitle,
            mark: self.mark,
            measures: [x, self.measure(&schema)],
            names,
            series,
        };
        let mut answered =
            Answered::new(Section::Plot(plot)).with_summary(format!("query: {values}"));
        if rows.without > 0 {
            let rows = format!("{} without a number omitted", grouped(rows.without));
            answered = answered.with_omitted(Some(rows));
        }
        Ok(answered)
    }
}

impl PlotReport {
    fn measure(&self, schema: &Schema) -> Measure {
        let unit = schema.field(1).metadata().get(UNIT).map(String::as_str);
        match self.unit.as_deref().or(unit) {
            Some(DURATION) => Measure::Duration,
            unit => Measure::Number(unit.unwrap_or_default().to_owned()),
        }
    }
}

/// The points of a query: series, x, y.
struct Points {
    points: Vec<(String, f64, f64)>,
    /// Rows without two numbers.
    without: u64,
    /// Whether x are whole numbers.
    is_whole: bool,
}

fn read(session: &Session, sql: &str) -> Result<(Points, SchemaRef)> {
    let mut answer = session.query(sql)?;
    let schema = answer.schema();
    let kinds: Vec<&DataType> = schema
        .fields()
        .iter()
        .map(|field| field.data_type())
        .collect();
    if !(2..=3).contains(&kinds.len()) || !kinds[..2].iter().all(|kind| kind.is_numeric()) {
        bail!(Misuse(
            "expected two columns of numbers, and a third one with names of series\nhint: SELECT time, duration, comm FROM calls".to_owned()
        ));
    }
    let mut read = Points {
        points: Vec::new(),
        without: 0,
        is_whole: kinds[0].is_integer(),
    };
    while let Some(batch) = answer.next_batch()? {
        let [x, y] = [0, 1].map(|column| cast(batch.column(column), &DataType::Float64));
        let (x, y) = (x?, y?);
        let (x, y) = (
            x.as_primitive::<Float64Type>(),
            y.as_primitive::<Float64Type>(),
        );
        let names = batch.columns().get(2).map(strings).transpose()?;
        for row in 0..batch.num_rows() {
            let value = |numbers: &Float64Array| {
                let known = numbers.is_valid(row).then(|| numbers.value(row));
                known.filter(|number| number.is_finite())
            };
            let Some((x, y)) = value(x).zip(value(y)) else {
                read.without += 1;
                continue;
            };
            let name = names
                .as_ref()
                .map_or("", |names| match names.is_valid(row) {
                    true => names.value(row),
                    false => "NULL",
                });
            read.points.push((name.to_owned(), x, y));
        }
        if read.points.len() > MOST_ROWS {
            bail!(
                "the query returns more than {} rows\nhint: add them up: SELECT time_bucket(10ms, time), max(y) … GROUP BY 1",
                grouped(MOST_ROWS as u64)
            );
        }
    }
    Ok((read, schema))
}

/// The series with the most points, by name, in the order of x; and the number of the others.
fn series(points: Vec<(String, f64, f64)>, begin: f64) -> (Vec<Series>, usize) {
    let mut by_name: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, x, y) in points {
        by_name.entry(name).or_default().push((x - begin, y));
    }
    let mut all: Vec<Series> = by_name
        .into_iter()
        .map(|(name, points)| Series { name, points })
        .collect();
    let omitted = all.len().saturating_sub(MOST_SERIES);
    all.sort_by_key(|series| Reverse(series.points.len()));
    all.truncate(MOST_SERIES);
    all.sort_by(|one, other| one.name.cmp(&other.name));
    for series in &mut all {
        series
            .points
            .sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    (all, omitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_sorted_and_limited() {
        let point = |name: &str, x: f64| (name.to_owned(), x, 1.0);
        let (found, omitted) = series(vec![point("b", 7.0), point("a", 6.0), point("b", 5.0)], 5.0);
        let xs: Vec<Vec<f64>> = found
            .iter()
            .map(|series| series.points.iter().map(|point| point.0).collect())
            .collect();
        assert_eq!((xs, omitted), (vec![vec![1.0], vec![0.0, 2.0]], 0));
        let many = (0..10)
            .map(|number| point(&number.to_string(), 0.0))
            .collect();
        assert_eq!(series(many, 0.0).1, 2);
    }
}
