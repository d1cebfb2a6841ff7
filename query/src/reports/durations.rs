//! `durations`: number, total, self time, percentiles and distribution of calls per function.
//!
//! ```text
//! function   count     total      self      avg      min      p50      p95      p99      max  histogram  slowest_child
//! vfs_read      12  1.204 ms  88.10 us  100.3 us  12.0 us  80.1 us  410 us   512 us   512 us  ▁▃█▅▂▁     ext4_read
//! ```
//! Calls without an exit count, but have no duration; percentiles are values of the nearest rank, exact for up to
//! 100,000 calls of a function, and within 1% beyond.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arrow::array::{
    Array, ArrayRef, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use clap::{Args, ValueEnum};
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::functions::bars::Bins;
use perfquet::unit::UNIT;
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::{counted, grouped};

use super::function_stats::{self, Line};
use super::kd::{self, KdOptions};
use crate::commands::Subcommand;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::violins::{self, Violin};
use crate::render::{Answered, Form, SPARE, Section, Shape, TERMINAL};
use crate::report::{self, Report};
use crate::settings::{Output, Overwriting, Traces, Watching};
use crate::totals;

pub(super) const REPORT: Subcommand = report::subcommand::<Durations>();

/// Summarize function durations: count, total, self, percentiles, histogram
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List the functions with the longest total time
  perfquet-query durations t.pqt
  # List the slowest functions per thread name
  perfquet-query durations t.pqt --by comm --sort p99 -n 10
  # Select functions and calls
  perfquet-query durations t.pqt --where \"function like 'vfs_%' and duration > 10us\"
  # Draw the distributions
  perfquet-query durations t.pqt --svg durations.svg
  # Print the tables of kd
  perfquet-query durations boot.pqt --kd-compat -l -s l -n 15
  perfquet-query durations boot.pqt --kd-compat -c -l -i")]
pub(super) struct Durations {
    #[command(flatten)]
    traces: Traces,
    /// Group by function and these keys; comma-separated
    #[arg(long, value_enum, value_name = "KEY", value_delimiter = ',')]
    by: Vec<By>,
    /// Sort column [default: total]
    ///
    /// One of total, self, count, avg, min, max, p50, p95 and p99, descending, or function, ascending.
    #[arg(short = 's', long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Maximum number of rows; 0 for all [default: 25; with --svg, 20]
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Draw the distributions to an SVG file instead of printing rows
    #[arg(long, help_heading = "Output", value_name = "PATH", conflicts_with_all = ["kd_compat", "format"])]
    svg: Option<PathBuf>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    kd: KdOptions,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    overwriting: Overwriting,
    #[command(flatten)]
    watching: Watching,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Caller,
    Comm,
    Pid,
    Tid,
    Cpu,
    Module,
    Context,
    Trace,
}

impl By {
    fn column(self) -> &'static str {
        match self {
            By::Caller => "caller",
            By::Comm => "comm",
            By::Pid => "pid",
            By::Tid => "tid",
            By::Cpu => "cpu",
            By::Module => "module",
            By::Context => "context",
            By::Trace => "trace",
        }
    }
}

/// Sort columns, descending; `function` is ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Total,
    #[value(name = "self")]
    Own,
    Count,
    Avg,
    Min,
    Max,
    P50,
    P95,
    P99,
    Function,
}

const LINES: usize = 25;
/// More functions do not fit into one image.
const SHAPES: usize = 20;

impl Report for Durations {
    const NAME: &'static str = "durations";

    fn traces(&self) -> Vec<PathBuf> {
        self.traces.traces.clone()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        Ok(match &self.svg {
            Some(path) => Form {
                shape: Shape::Svg,
                path: Some(path.clone()),
                force: self.overwriting.force,
            },
            None => Form::rows(self.output.format),
        })
    }

    fn watch(&self) -> Option<Duration> {
        self.watching.watch
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        if self.kd.kd_compat {
            let mut text = Vec::new();
            let (limit, sort) = (self.limit, self.sort.as_deref());
            kd::run(session, &self.filters, &self.kd, limit, sort, &mut text)?;
            return Ok(Answered::new(Section::Text(text)));
        }
        let sort = self.sort()?;
        let keys = self.keys(session)?;
        let mut lines = function_stats::measure(session, &self.filters, &keys)?;
        if lines.is_empty()
            && let Some(text) = self.filters.why_nothing_fits(session, "calls", "TRUE")?
        {
            bail!(text);
        }
        let total = total(session, &lines)?;
        sort_lines(&mut lines, sort);
        let is_image = self.svg.is_some();
        let usual = if is_image { SHAPES } else { LINES };
        let limit = self.limit.unwrap_or(usual);
        if limit > 0 {
            lines.truncate(limit);
        }
        // The image does not show them.
        if !is_image && !keys.contains(&"caller") {
            function_stats::find_slowest_children(session, &self.filters, &keys, &mut lines)?;
        }
        let violins: Vec<Violin> = lines.iter().filter_map(violin).collect();
        let subtitle = total.clone();
        let summary = match is_image {
            true => {
                say!("{total}");
                counted(violins.len() as u64, "function")
            }
            false => total,
        };
        let names: Vec<&str> = session
            .traces()
            .iter()
            .map(|trace| trace.name.as_str())
            .collect();
        let durations = violins::Durations {
            title: match self.filters.words() {
                Some(words) => format!("{}: durations, {words}", names.join(", ")),
                None => format!("{}: durations", names.join(", ")),
            },
            subtitle,
            rows: rows(&lines, &keys)?,
            violins,
        };
        Ok(Answered::new(Section::Durations(durations)).with_summary(summary))
    }
}

impl Durations {
    fn sort(&self) -> Result<Sort, Misuse> {
        let Some(name) = &self.sort else {
            return Ok(Sort::Total);
        };
        Sort::from_str(name, true).map_err(|_| {
            Misuse(format!(
                "--sort {name}: expected total, self, count, avg, min, max, p50, p95, p99 or function"
            ))
        })
    }

    /// Returns the columns to group by, each once.
    fn keys(&self, session: &Session) -> Result<Vec<&'static str>, Misuse> {
        let mut keys: Vec<&str> = Vec::new();
        for key in self.by.iter().map(|by| by.column()) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        if keys.contains(&"trace") && session.traces().len() == 1 {
            return Err(Misuse(
                "--by trace: requires more than one trace".to_owned(),
            ));
        }
        Ok(keys)
    }
}

/// Returns the number and the total time of all calls; an error without any.
fn total(session: &Session, lines: &[Line]) -> Result<String> {
    let sum = |value: fn(&Line) -> i64| -> u64 {
        lines.iter().map(|line| value(line).unsigned_abs()).sum()
    };
    // Below a threshold, what a call's callees took is not recorded, and neither is the time of the call itself.
    let own = lines
        .iter()
        .filter_map(|line| line.own)
        .reduce(|sum, own| sum + own);
    let (count, known) = (sum(|line| line.count), sum(|line| line.known));
    if count == 0 {
        let all: u64 = session
            .traces()
            .iter()
            .filter_map(|trace| trace.table("calls"))
            .map(perfquet::TraceTable::rows)
            .sum();
        match all {
            0 => bail!(
                "the trace has no calls\nhint: list its contents with: perfquet-query info TRACE"
            ),
            _ => bail!("no matching calls among {}", grouped(all)),
        }
    }
    let mut functions: Vec<&str> = lines.iter().map(|line| line.function.as_str()).collect();
    functions.sort_unstable();
    functions.dedup();
    let mut text = format!(
        "{} of {}",
        counted(count, "call"),
        counted(functions.len() as u64, "function"),
    );
    if let Some(own) = own.filter(|_| known > 0) {
        text.push_str(&format!(", {} total", in_fitting_unit(own as f64)));
    }
    if known < count {
        text.push_str(&format!("; {} of unknown duration", grouped(count - known)));
    }
    Ok(text)
}

fn sort_lines(lines: &mut [Line], sort: Sort) {
    let value = |line: &Line| match sort {
        Sort::Total => Some(line.total),
        Sort::Own => line.own,
        Sort::Count => Some(line.count.into()),
        Sort::Avg => line.average().map(i128::from),
        Sort::Min => line.min.map(i128::from),
        Sort::Max => line.max.map(i128::from),
        Sort::P50 => line.percentiles[0].map(i128::from),
        Sort::P95 => line.percentiles[1].map(i128::from),
        Sort::P99 => line.percentiles[2].map(i128::from),
        Sort::Function => None,
    };
    lines.sort_by_cached_key(|line| {
        (
            std::cmp::Reverse(value(line)),
            line.function.clone(),
            line.keys.clone(),
        )
    });
}

/// Calls per power of two, without empty ones.
fn by_power(line: &Line) -> BTreeMap<i32, i64> {
    let mut counts = BTreeMap::new();
    for bar in &line.bars {
        // The mean may be rounded beyond the ends.
        let [low, high] = [line.min, line.max].map(|end| end.unwrap_or(bar.mean as i64));
        let mean = (bar.mean as i64).clamp(low.min(high), high);
        *counts.entry(Bins::Powers.of(mean)).or_default() += bar.count;
    }
    counts.retain(|_, count| *count != 0);
    counts
}

/// Columns that a narrow terminal omits, the first one first.
const SPARES: [&str; 8] = [
    "slowest_child",
    "p95",
    "min",
    "histogram",
    "unfinished",
    "avg",
    "self",
    "p99",
];

/// Metadata of a column that a narrow terminal omits.
fn spare(column: &str) -> Option<(String, String)> {
    let place = SPARES.iter().position(|spare| *spare == column)?;
    Some((SPARE.to_owned(), (place + 1).to_string()))
}

fn rows(lines: &[Line], keys: &[&str]) -> Result<RecordBatch> {
    let mut columns: Vec<(Field, ArrayRef)> = Vec::new();
    let mut add = |name: &str, kind: DataType, values: ArrayRef| {
        columns.push((Field::new(name, kind, true), values));
    };
    let functions = lines.iter().map(|line| line.function.as_str());
    add(
        "function",
        DataType::Utf8,
        Arc::new(StringArray::from_iter_values(functions)),
    );
    for (place, key) in keys.iter().enumerate() {
        let values: StringArray = lines
            .iter()
            .map(|line| line.keys[place].as_deref())
            .collect();
        add(key, DataType::Utf8, Arc::new(values));
    }
    let numbers = |value: &dyn Fn(&Line) -> Option<i64>| -> ArrayRef {
        Arc::new(lines.iter().map(value).collect::<Int64Array>())
    };
    add("count", DataType::Int64, numbers(&|line| Some(line.count)));
    let unfinished = numbers(&|line| Some(line.count - line.known));
    columns.push((
        Field::new("unfinished", DataType::Int64, true).with_metadata(HashMap::from_iter(
            metadata(TERMINAL, "optional")
                .into_iter()
                .chain(spare("unfinished")),
        )),
        unfinished,
    ));
    let known = |line: &Line| (line.known > 0).then_some(line.total);
    let durations: [(&str, ArrayRef); 8] = [
        ("total", totals::signed(lines.iter().map(known))),
        ("self", totals::signed(lines.iter().map(|line| line.own))),
        ("avg", numbers(&|line| line.average())),
        ("min", numbers(&|line| line.min)),
        ("p50", numbers(&|line| line.percentiles[0])),
        ("p95", numbers(&|line| line.percentiles[1])),
        ("p99", numbers(&|line| line.percentiles[2])),
        ("max", numbers(&|line| line.max)),
    ];
    for (name, values) in durations {
        let kind = values.data_type().clone();
        let mut of_column = metadata(UNIT, "ns");
        of_column.extend(spare(name));
        let field = Field::new(name, kind, true).with_metadata(of_column);
        columns.push((field, values));
    }
    let histograms = histograms(lines)?;
    let mut of_histogram = metadata(TERMINAL, "bars");
    of_histogram.extend(spare("histogram"));
    columns.push((
        Field::new("histogram", histograms.data_type().clone(), true).with_metadata(of_histogram),
        Arc::new(histograms),
    ));
    if !keys.contains(&"caller") {
        let slowest: StringArray = lines
            .iter()
            .map(|line| line.slowest_child.as_deref())
            .collect();
        columns.push((
            Field::new("slowest_child", DataType::Utf8, true)
                .with_metadata(spare("slowest_child").into_iter().collect()),
            Arc::new(slowest),
        ));
    }
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    let rows = RecordBatchOptions::new().with_row_count(Some(lines.len()));
    Ok(RecordBatch::try_new_with_options(
        Arc::new(Schema::new(fields)),
        arrays,
        &rows,
    )?)
}

fn metadata(key: &str, value: &str) -> HashMap<String, String> {
    HashMap::from([(key.to_owned(), value.to_owned())])
}

/// Returns the histograms as `quantize()` does: without empty bars.
fn histograms(lines: &[Line]) -> Result<ListArray> {
    let (mut lows, mut highs, mut counts, mut lengths) = (vec![], vec![], vec![], vec![]);
    for line in lines {
        let before = counts.len();
        for (bar, count) in by_power(line) {
            let (low, high) = Bins::Powers.range(bar);
            lows.push(low);
            highs.push(high);
            counts.push(count);
        }
        lengths.push(counts.len() - before);
    }
    let field = |name| Arc::new(Field::new(name, DataType::Int64, true));
    let bars = StructArray::from(vec![
        (field("low"), Arc::new(Int64Array::from(lows)) as ArrayRef),
        (field("high"), Arc::new(Int64Array::from(highs))),
        (field("count"), Arc::new(Int64Array::from(counts))),
    ]);
    let item = Arc::new(Field::new_list_field(bars.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(ListArray::try_new(item, offsets, Arc::new(bars), None)?)
}

/// Returns the shape of a function; `None` if none of its durations is known.
fn violin(line: &Line) -> Option<Violin> {
    if line.known == 0 {
        return None;
    }
    let keys: Vec<&str> = line.keys.iter().flatten().map(String::as_str).collect();
    let name = match keys.is_empty() {
        true => line.function.clone(),
        false => format!("{} ({})", line.function, keys.join(", ")),
    };
    let bars = line.bars.iter();
    Some(Violin {
        name,
        count: line.known as u64,
        total: line.total,
        bars: bars
            .map(|bar| (bar.low, bar.high, bar.count as u64))
            .collect(),
        ends: (line.min.unwrap_or(0), line.max.unwrap_or(0)),
        percentiles: line.percentiles.map(|value| value.unwrap_or(0)),
    })
}
