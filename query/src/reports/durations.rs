//! `durations`: number, total, self time, percentiles and distribution of calls per function.
//!
//! ```text
//! function   count     total      self      avg      min      p50      p95      p99      max  histogram  slowest_child
//! vfs_read      12  1.204 ms  88.10 us  100.3 us  12.0 us  80.1 us  410 us   512 us   512 us  ▁▃█▅▂▁     ext4_read
//! ```
//! Calls without an exit count, but have no duration; percentiles are values of the nearest rank, exact for up to
//! 100,000 calls of a function, and within 1% beyond.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::{
    ArrayRef, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use clap::{ArgMatches, Args, ValueEnum};
use perfquet_formats::count::{counted, grouped};

use super::kd::{self, KdOptions};
use super::measured::{self, Line};
use super::totals;
use crate::bins::Bins;
use crate::commands::{Subcommand, arguments};
use crate::failure::Misuse;
use crate::filter::Filters;
use crate::functions::in_fitting_unit;
use crate::render::bars::{bars, is_unicode};
use crate::render::violins::{self, Violin};
use crate::render::{self, Destination, Format, UNIT};
use crate::session::Session;
use crate::settings::{Limits, Output, Overwriting, Traces};

pub(super) const REPORT: Subcommand = Subcommand::new::<Durations>("durations", run);

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
struct Durations {
    #[command(flatten)]
    traces: Traces,
    /// Group by these keys too
    #[arg(long, value_enum, value_name = "KEY,…", value_delimiter = ',')]
    by: Vec<By>,
    /// Sort column [default: total]
    ///
    /// One of total, self, count, avg, min, max, p50, p95 and p99, descending, or function, ascending.
    #[arg(short = 's', long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Maximum number of rows; 0 for all [default: 25; with --svg, 20]
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Draw the distributions as an SVG file instead
    #[arg(long, value_name = "PATH", conflicts_with_all = ["kd_compat", "format"])]
    svg: Option<PathBuf>,
    #[command(flatten)]
    overwriting: Overwriting,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    kd: KdOptions,
    #[command(flatten)]
    output: Output,
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
const PICTURES: usize = 20;

fn run(matches: &ArgMatches) -> Result<()> {
    let report: Durations = arguments(matches)?;
    let picture = report.svg.as_deref();
    let picture = picture.map(|path| Destination::open(Some(path), report.overwriting.force));
    let picture = picture.transpose()?;
    let session = Session::open(&report.traces.traces, &report.limits)?;
    if report.kd.kd_compat {
        let mut out = render::stdout();
        kd::run(
            &session,
            &report.filters,
            &report.kd,
            report.limit,
            report.sort.as_deref(),
            &mut out,
        )?;
        return Ok(out.flush()?);
    }
    let sort = match &report.sort {
        None => Sort::Total,
        Some(name) => Sort::from_str(name, true).map_err(|_| {
            Misuse(format!(
                "--sort {name}: expected total, self, count, avg, min, max, p50, p95, p99 or function"
            ))
        })?,
    };
    let mut keys: Vec<&str> = Vec::new();
    for key in report.by.iter().map(|by| by.column()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.contains(&"trace") && session.traces.len() == 1 {
        bail!(Misuse(
            "--by trace: requires more than one trace".to_owned()
        ));
    }
    let mut lines = measured::measure(&session, &report.filters, &keys)?;
    if lines.is_empty()
        && let Some(text) = report.filters.why_nothing_fits(&session, "calls", "TRUE")?
    {
        bail!(text);
    }
    say_total(&session, &lines)?;
    sort_lines(&mut lines, sort);
    let usual = if report.svg.is_some() {
        PICTURES
    } else {
        LINES
    };
    let limit = report.limit.unwrap_or(usual);
    if limit > 0 {
        lines.truncate(limit);
    }
    if let (Some(path), Some(picture)) = (&report.svg, picture) {
        return draw(picture, path, &session, &lines);
    }
    if !keys.contains(&"caller") {
        measured::find_slowest_children(&session, &report.filters, &keys, &mut lines)?;
    }
    let batch = as_batch(&lines, &keys, report.output.format)?;
    render::batch(report.output.format, &batch)
}

fn say_total(session: &Session, lines: &[Line]) -> Result<()> {
    let sum = |value: fn(&Line) -> i64| -> u64 {
        lines.iter().map(|line| value(line).unsigned_abs()).sum()
    };
    let own: i128 = lines.iter().filter_map(|line| line.own).sum();
    let (count, known) = (sum(|line| line.count), sum(|line| line.known));
    if count == 0 {
        let all: u64 = session
            .traces
            .iter()
            .filter_map(|trace| trace.table("calls"))
            .map(crate::trace::TraceTable::rows)
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
    if known > 0 {
        text.push_str(&format!(", {} total", in_fitting_unit(own as f64)));
    }
    if known < count {
        text.push_str(&format!("; {} of unknown duration", grouped(count - known)));
    }
    say!("{text}");
    Ok(())
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

/// The range of powers of two that the bars of all lines span.
fn powers(lines: &[Line]) -> (i32, i32) {
    let of = |value: Option<i64>| value.map(|value| Bins::Powers.of(value));
    let lowest = lines.iter().filter_map(|line| of(line.min)).min();
    let highest = lines.iter().filter_map(|line| of(line.max)).max();
    (lowest.unwrap_or(0), highest.unwrap_or(0))
}

/// How many calls fell into each power of two from `lowest` to `highest`.
fn by_power(line: &Line, lowest: i32, highest: i32) -> Vec<u64> {
    let mut counts = vec![0u64; (highest - lowest) as usize + 1];
    for bar in &line.bars {
        let place = Bins::Powers.of(bar.mean as i64).clamp(lowest, highest) - lowest;
        counts[place as usize] += bar.count.unsigned_abs();
    }
    counts
}

fn as_batch(lines: &[Line], keys: &[&str], format: Format) -> Result<RecordBatch> {
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
    let is_table = format == Format::Table;
    if !is_table || lines.iter().any(|line| line.known < line.count) {
        let unseen = numbers(&|line| Some(line.count - line.known));
        add("unfinished", DataType::Int64, unseen);
    }
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
    let unit = std::collections::HashMap::from([(UNIT.to_owned(), "ns".to_owned())]);
    for (name, values) in durations {
        let kind = arrow::array::Array::data_type(&values).clone();
        let field = Field::new(name, kind, true).with_metadata(unit.clone());
        columns.push((field, values));
    }
    let (lowest, highest) = powers(lines);
    if is_table {
        let unicode = is_unicode();
        let drawn = lines
            .iter()
            .map(|line| bars(&by_power(line, lowest, highest), unicode));
        let drawn: ArrayRef = Arc::new(StringArray::from_iter_values(drawn));
        columns.push((Field::new("histogram", DataType::Utf8, true), drawn));
        let end = |bar: i32| Bins::Powers.range(bar).0.unwrap_or(0) as f64;
        say!(
            "histogram: {} to {}; each column doubles",
            in_fitting_unit(end(lowest)),
            in_fitting_unit(end(highest + 1))
        );
    } else {
        let list = histogram_lists(lines, lowest, highest)?;
        columns.push((
            Field::new(
                "histogram",
                arrow::array::Array::data_type(&list).clone(),
                true,
            ),
            Arc::new(list),
        ));
    }
    if !keys.contains(&"caller") {
        let slowest: StringArray = lines
            .iter()
            .map(|line| line.slowest_child.as_deref())
            .collect();
        columns.push((
            Field::new("slowest_child", DataType::Utf8, true),
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

/// The histograms as `quantize` gives them: without the empty bars.
fn histogram_lists(lines: &[Line], lowest: i32, highest: i32) -> Result<ListArray> {
    let (mut lows, mut highs, mut counts, mut lengths) = (vec![], vec![], vec![], vec![]);
    for line in lines {
        let before = counts.len();
        for (place, count) in by_power(line, lowest, highest).into_iter().enumerate() {
            if count > 0 {
                let (low, high) = Bins::Powers.range(lowest + place as i32);
                lows.push(low);
                highs.push(high);
                counts.push(count as i64);
            }
        }
        lengths.push(counts.len() - before);
    }
    let field = |name| Arc::new(Field::new(name, DataType::Int64, true));
    let bars = StructArray::from(vec![
        (field("low"), Arc::new(Int64Array::from(lows)) as ArrayRef),
        (field("high"), Arc::new(Int64Array::from(highs))),
        (field("count"), Arc::new(Int64Array::from(counts))),
    ]);
    let item = Field::new_list_field(arrow::array::Array::data_type(&bars).clone(), true);
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(ListArray::try_new(
        Arc::new(item),
        offsets,
        Arc::new(bars),
        None,
    )?)
}

fn draw(mut out: Destination, path: &Path, session: &Session, lines: &[Line]) -> Result<()> {
    let violins: Vec<Violin> = lines
        .iter()
        .filter(|line| line.known > 0)
        .map(|line| {
            let keys: Vec<&str> = line.keys.iter().flatten().map(String::as_str).collect();
            let name = match keys.is_empty() {
                true => line.function.clone(),
                false => format!("{} ({})", line.function, keys.join(", ")),
            };
            Violin {
                name,
                count: line.known as u64,
                total: line.total,
                bars: line
                    .bars
                    .iter()
                    .map(|bar| (bar.low, bar.high, bar.count as u64))
                    .collect(),
                ends: (line.min.unwrap_or(0), line.max.unwrap_or(0)),
                percentiles: line.percentiles.map(|value| value.unwrap_or(0)),
            }
        })
        .collect();
    let names: Vec<&str> = session
        .traces
        .iter()
        .map(|trace| trace.name.as_str())
        .collect();
    violins::write(&mut out, &names.join(", "), &violins)?;
    out.finish()?;
    say!(
        "{} drawn to {}",
        counted(violins.len() as u64, "function"),
        path.display()
    );
    Ok(())
}
