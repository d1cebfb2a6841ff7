//! `hist`: distributions of any expression, in DTrace's layout of quantize, lquantize and llquantize.
//!
//! ```text
//!   vfs_read
//!            value  ------------- Distribution ------------- count    
//!              512 |                                         0        
//!             1024 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@           3        
//!             2048 |@@@@@@@@@@                               1        
//!             4096 |                                         0        
//! ```
//! Without an expression, prints stored distributions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use clap::Args;

use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::functions::bars::Bins;

use super::row_source::{Rows, divided, expressions, named};
use super::stored_aggregates;
use crate::commands::Subcommand;
use crate::limits::Limits;
use crate::render::distribution::{Distributions, Drawing, Line, titles};
use crate::render::{Answered, Form, Section};
use crate::report::{self, Report};
use crate::settings::Output;

pub(super) const REPORT: Subcommand = report::subcommand::<Hist>();

/// Print distributions of an expression, as DTrace does
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Print the durations of each function
  perfquet-query hist t.pqt duration --by function --where \"function like 'vfs_%'\"
  # Use bars of equal width
  perfquet-query hist t.pqt 'duration / 1000' --lquantize 0,1000,100
  # Use equal steps within powers of ten
  perfquet-query hist t.pqt duration --llquantize 10,3,6,10 --by comm,cpu
  # Print a field of an event
  perfquet-query hist a.pqt bytes_req --event kmem:kmalloc
  # Print the last column of a query
  perfquet-query hist a.pqt --sql 'SELECT comm, duration FROM runqueue_waits' --by comm
  # Print the distributions of a recording, or of an imported DTrace output
  perfquet-query hist d.pqt")]
struct Hist {
    /// Trace directories or patterns, such as 'runs/*.pqt'; then an SQL expression
    ///
    /// Without EXPR, prints the stored distributions.
    #[arg(value_name = "TRACE... [EXPR]", required = true)]
    words: Vec<String>,
    /// Print one distribution per KEY, a column or expression; comma-separated
    #[arg(long, value_name = "KEY")]
    by: Option<String>,
    /// Use equal steps, as lquantize() in DTrace [default: powers of two]
    #[arg(
        long,
        value_name = "LOW,HIGH[,STEP]",
        value_delimiter = ',',
        allow_hyphen_values = true,
        num_args = 1,
        conflicts_with = "llquantize"
    )]
    lquantize: Vec<i64>,
    /// Use equal steps within powers of FACTOR, as llquantize() in DTrace
    #[arg(
        long,
        value_name = "FACTOR,LOW,HIGH,STEPS",
        value_delimiter = ',',
        num_args = 1
    )]
    llquantize: Vec<i64>,
    /// Print only the N keys with the most values; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 0)]
    limit: usize,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

impl Report for Hist {
    const NAME: &'static str = "hist";

    fn traces(&self) -> Vec<PathBuf> {
        divided(&self.words).0
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(Form::rows(self.output.format))
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let of_query = self.rows.value_of_query(session)?;
        let distributions = match divided(&self.words).1.or(of_query) {
            Some(expression) => of_expression(self, session, &expression)?,
            None if session.has_rows("buckets") => {
                stored_aggregates::distributions(session, &self.rows.choice.filters)?
            }
            None => bail!(Misuse(
                "expected an expression: the trace has no stored distributions\nhint: perfquet-query hist TRACE duration --by function".to_owned()
            )),
        };
        Ok(Answered::new(Section::Distributions(distributions)))
    }
}

/// Returns the selected bars, and the SQL function that computes them.
fn bins(report: &Hist, expression: &str) -> Result<(Bins, String)> {
    let of = |bins: Result<Bins, String>, name: &str, numbers: &[i64]| match bins {
        Ok(bins) => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            Ok((
                bins,
                format!("{name}({expression}, {})", numbers.join(", ")),
            ))
        }
        Err(text) => bail!(Misuse(text)),
    };
    match (report.lquantize.as_slice(), report.llquantize.as_slice()) {
        ([], []) => Ok((Bins::Powers, format!("quantize({expression})"))),
        (&[low, high], []) => of(Bins::steps(low, high, 1), "lquantize", &[low, high]),
        (&[low, high, step], []) => of(
            Bins::steps(low, high, step),
            "lquantize",
            &[low, high, step],
        ),
        ([], &[factor, low, high, steps]) => {
            let numbers = [factor, low, high, steps];
            of(
                Bins::magnitudes(factor, low, high, steps),
                "llquantize",
                &numbers,
            )
        }
        ([], _) => bail!(Misuse(
            "--llquantize: expected FACTOR,LOW,HIGH,STEPS, such as 10,3,6,10".to_owned()
        )),
        _ => bail!(Misuse(
            "--lquantize: expected LOW,HIGH[,STEP], such as 0,1000,100".to_owned()
        )),
    }
}

/// The distribution of one key.
struct Distribution {
    /// The key as printed by DTrace.
    title: String,
    batch: usize,
    row: usize,
    counts: BTreeMap<i32, i64>,
}

impl Distribution {
    fn total(&self) -> i128 {
        self.counts.values().map(|&count| i128::from(count)).sum()
    }
}

fn of_expression(report: &Hist, session: &Session, expression: &str) -> Result<Distributions> {
    session.piece("EXPR", expression)?;
    let (bins, function) = bins(report, expression)?;
    let keys = report
        .by
        .as_deref()
        .map(expressions)
        .transpose()?
        .unwrap_or_default();
    for key in &keys {
        session.piece("--by", key)?;
    }
    let rows = report.rows.selected(session)?;
    let selected = named(&keys, &["low", "high", "count", "bars"]);
    let places: Vec<String> = (1..=keys.len()).map(|place| place.to_string()).collect();
    let group = match places.is_empty() {
        true => String::new(),
        false => format!("GROUP BY {}", places.join(", ")),
    };
    let sql = include_str!("hist.sql")
        .replace("{keys}", &selected)
        .replace("{function}", &function)
        .replace("{table}", &rows.table)
        .replace("{where}", &rows.condition)
        .replace("{expression}", expression)
        .replace("{group}", &group);
    let batches = session.collect(&sql)?;
    let mut distributions = Vec::new();
    for (index, batch) in batches.iter().enumerate() {
        distributions.extend(read(batch, index, keys.len(), &bins)?);
    }
    distributions.retain(|distribution| !distribution.counts.is_empty());
    if distributions.is_empty() {
        say!("{}: no values", rows.name);
    }
    // As in DTrace, the key with the most values comes last, next to the prompt.
    distributions.sort_by(|a, b| (a.total(), &b.title).cmp(&(b.total(), &a.title)));
    if report.limit > 0 {
        distributions.drain(..distributions.len().saturating_sub(report.limit));
    }
    Ok(Distributions {
        rows: as_rows(&batches, &distributions, keys.len(), &bins)?,
        drawings: distributions
            .into_iter()
            .map(|distribution| Drawing {
                heading: None,
                lines: lines(&distribution.counts, &bins),
                title: distribution.title,
            })
            .collect(),
    })
}

fn read(batch: &RecordBatch, index: usize, keys: usize, bins: &Bins) -> Result<Vec<Distribution>> {
    let titles = titles(&batch.columns()[..keys])?;
    let lists = batch.column(keys).as_list::<i32>();
    let mut found = Vec::new();
    for (row, title) in titles.into_iter().enumerate().take(batch.num_rows()) {
        let list = lists.value(row);
        let bars = list.as_struct();
        let number = |column: usize| bars.column(column).as_primitive::<Int64Type>();
        let (lows, highs, counts) = (number(0), number(1), number(2));
        let bar = |row: usize| {
            // An open bar has at least one end.
            let value = match lows.is_valid(row) {
                true => lows.value(row),
                false => highs.value(row).saturating_sub(1),
            };
            (bins.of(value), counts.value(row))
        };
        found.push(Distribution {
            title,
            batch: index,
            row,
            counts: (0..bars.len()).map(bar).collect(),
        });
    }
    Ok(found)
}

/// The bars with an empty one on each side, as printed by DTrace.
fn lines(counts: &BTreeMap<i32, i64>, bins: &Bins) -> Vec<Line> {
    let (lowest, highest) = bins.limits();
    let first = counts
        .keys()
        .next()
        .copied()
        .unwrap_or(0)
        .saturating_sub(1)
        .max(lowest);
    let last = counts
        .keys()
        .next_back()
        .copied()
        .unwrap_or(0)
        .saturating_add(1)
        .min(highest);
    (first..=last)
        .map(|bar| Line {
            label: bins.label(bar, first),
            count: counts.get(&bar).copied().unwrap_or(0),
        })
        .collect()
}

/// One row per bar: the keys, low, high, count.
fn as_rows(
    batches: &[RecordBatch],
    distributions: &[Distribution],
    keys: usize,
    bins: &Bins,
) -> Result<RecordBatch> {
    let mut key_rows = Vec::new();
    let (mut lows, mut highs, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for distribution in distributions {
        for (&bar, &count) in &distribution.counts {
            let (low, high) = bins.range(bar);
            key_rows.push((distribution.batch, distribution.row));
            lows.push(low);
            highs.push(high);
            counts.push(count);
        }
    }
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    if let Some(first) = batches.first() {
        for key in 0..keys {
            let arrays: Vec<&dyn Array> = batches
                .iter()
                .map(|batch| batch.column(key).as_ref())
                .collect();
            let values = arrow::compute::interleave(&arrays, &key_rows)?;
            columns.push((first.schema().field(key).name().clone(), values));
        }
    }
    columns.push(("low".to_owned(), Arc::new(Int64Array::from(lows))));
    columns.push(("high".to_owned(), Arc::new(Int64Array::from(highs))));
    columns.push(("count".to_owned(), Arc::new(Int64Array::from(counts))));
    let nullable = columns
        .into_iter()
        .map(|(name, values)| (name, values, true));
    Ok(RecordBatch::try_from_iter_with_nullable(nullable)?)
}
