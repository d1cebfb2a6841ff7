//! Folded stacks for flame graph tools: one stack per line, root first, with its count.
//!
//! ```text
//! dd;main;[libc.so.6];read_[k];vfs_read_[k] 10101010
//! ```
//! The layout of `stackcollapse-perf.pl --all`: the comm first, `_[k]` after kernel frames, `_[i]` after inlined ones,
//! `_[j]` after JIT-compiled ones, `[module]` if the function is unknown. A count is the sum of the periods of one
//! event, the first of the trace with samples; hits of a tracepoint count 1. The two events `before` and `after` of a
//! comparison become two counts per line. Without samples, the stacks of aggregations are exported (`aggregates.rs`).

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use anyhow::Result;

use super::batch::{BatchRow, Heads, i64_at, i64_column};
use super::counted::Counted;
use super::losses::{each_loss, problems};
use super::source::Source;
use super::stacks::{Place, Stacks};
use super::weights::Weights;
use super::{Exporter, Output, Tally, aggregates, printable};

/// `--to folded`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "folded",
    about: "folded stacks with counts, for flame graph tools",
    output: Output::Text { write },
};

/// Comm (by index), user stack, kernel stack.
type Key = (Option<u32>, Option<i32>, Option<i32>);

/// Columns that are read.
const WANTED: [&str; 6] = [
    "event",
    "period",
    "comm",
    "user_stack",
    "kernel_stack",
    "time",
];

fn write(source: &Source<'_>, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let counted = Counted::choose(source);
    // Stacks aggregated by a tool are more informative than the lines printed around them.
    let is_sampled = counted.as_ref().is_some_and(|counted| counted.is_sampled);
    let has_aggregates = !is_sampled && aggregates::write(source, out, tally)?;
    match counted {
        Some(counted) if !has_aggregates => {
            counted.warn();
            rows(source, &counted, out, tally)?;
        }
        _ => {
            let rows = source.events().map(|table| source.table_rows(table));
            tally.omit("row", "of events beside aggregations", rows.sum());
        }
    }
    if !has_aggregates {
        let aggregates = source.aggregate_rows();
        tally.omit(
            "aggregate",
            "without a stack, or beside samples",
            aggregates,
        );
    }
    tally.omit("call", "folded stacks have no calls", source.call_rows());
    each_loss(source, tally, |_| Ok(()))?;
    problems(source, tally)?;
    Ok(())
}

/// Writes the stacks of the counted events.
fn rows(
    source: &Source<'_>,
    counted: &Counted,
    out: &mut dyn Write,
    tally: &mut Tally,
) -> Result<()> {
    let weights = Weights::of(source, tally)?;
    let mut comms = Comms::default();
    let mut counts: HashMap<Key, [i128; 2]> = HashMap::new();
    let (mut written, mut others, mut empty) = (0, 0, 0);
    for table in source.samples().chain(source.events()) {
        if !counted.is_of(table) {
            others += source.table_rows(table);
            continue;
        }
        for batch in source.rows(table, Some(&WANTED))? {
            let batch = batch?;
            let heads = Heads::of(&batch);
            // A tracepoint may have a field with that name.
            let periods = i64_column(&batch, "period").filter(|_| table.is_samples());
            for (index, row) in BatchRow::all(&batch).enumerate() {
                let Some(column) = counted.column(&table.name, &row) else {
                    others += 1;
                    continue;
                };
                let head = heads.row(index);
                let is_stack = head.user_stack.or(head.kernel_stack).is_some();
                // A line without a frame is nothing that flame graphs can draw; sampled, it keeps the sum right.
                if !counted.is_sampled && !is_stack && head.comm.is_none() {
                    empty += 1;
                    continue;
                }
                let comm = head.comm.map(|comm| comms.number(comm));
                let key = (comm, head.user_stack, head.kernel_stack);
                let event = row.text("event").filter(|_| table.is_samples());
                let period = weights.of_sample(event, i64_at(periods, index));
                counts.entry(key).or_default()[column] += i128::from(period);
                written += 1;
            }
        }
    }
    tally.wrote(if counted.is_sampled { "sample" } else { "hit" }, written);
    tally.omit("row", "of other events", others);
    tally.omit("hit", "without a stack or thread", empty);
    let stacks = Stacks::read(source.trace)?;
    let mut lines: BTreeMap<String, [i128; 2]> = BTreeMap::new();
    for (key, of_key) in counts {
        let line = lines.entry(line(key, &stacks, &comms)).or_default();
        for (sum, count) in line.iter_mut().zip(of_key) {
            *sum += count;
        }
    }
    for (stack, counts) in lines {
        out.write_all(stack.as_bytes())?;
        for count in counts.iter().take(counted.events.len()) {
            write!(out, " {}", decimal(*count, counted.decimals))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Formats `count` × 10^-`decimals` without trailing zeros.
fn decimal(count: i128, decimals: u32) -> String {
    let unit = 10i128.pow(decimals.min(18));
    let (whole, fraction) = (count / unit, (count % unit).unsigned_abs());
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = format!("{fraction:0width$}", width = decimals as usize);
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// Comms by index.
#[derive(Default)]
struct Comms {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Comms {
    fn number(&mut self, comm: &str) -> u32 {
        if let Some(number) = self.numbers.get(comm) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(comm.to_owned());
        self.numbers.insert(comm.to_owned(), number);
        number
    }
}

/// Formats all frames of a key, root first.
fn line((comm, user, kernel): Key, stacks: &Stacks, comms: &Comms) -> String {
    let mut frames = Vec::new();
    if let Some(comm) = comm.and_then(|comm| comms.names.get(comm as usize)) {
        frames.push(part(comm));
    }
    let mut places = Vec::new();
    for stack in [user, kernel] {
        stacks.places(stack, &mut places);
        frames.extend(places.iter().rev().map(frame));
    }
    frames.join(";")
}

/// Formats a frame with its suffix.
fn frame(place: &Place<'_>) -> String {
    let base = |module: &str| module.rsplit('/').next().unwrap_or(module).to_owned();
    let is_jit = place.module.is_some_and(is_jit);
    let name = match (place.function, place.module) {
        (Some(function), _) => part(function),
        (None, Some(module)) if !is_jit => match base(module) {
            name if name.starts_with('[') => part(&name),
            name => part(&format!("[{name}]")),
        },
        (None, _) => "[unknown]".to_owned(),
    };
    let suffix = match place {
        Place {
            is_inlined: true, ..
        } => "_[i]",
        Place {
            is_kernel: true, ..
        } => "_[k]",
        _ if is_jit => "_[j]",
        _ => "",
    };
    format!("{name}{suffix}")
}

/// Returns whether code was JIT-compiled: perf uses the file with its symbols as the module.
fn is_jit(module: &str) -> bool {
    let is_map = |module: &str| module.starts_with("/tmp/perf-") && module.ends_with(".map");
    module == "[jit]" || is_map(module)
}

/// Replaces characters in a name that end a frame.
fn part(name: &str) -> String {
    printable(name).replace(';', ":")
}
