//! The stacks of aggregations as folded stacks, for traces of tools that aggregate stacks themselves.
//!
//! ```text
//! unix`sys_syscall;genunix`open;genunix`copen 17
//! ```
//! The layout of FlameGraph's `stackcollapse.pl` for DTrace's output: ``module`function`` without offset, C++ functions
//! without arguments, `_[i]` after inlined ones; other keys precede the root. If a key was printed several times, the
//! last value counts. A distribution counts as the number of its values.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use anyhow::Result;
use perfquet_trace::function_name::without_arguments;
use perfquet_trace::store::Directory;
use perfquet_trace::tables;

use super::batch::BatchRow;
use super::source::Source;
use super::stacks::{Place, Stacks};
use super::{Tally, printable};

/// A key of an aggregation: its name, its parts, user stack, kernel stack.
pub(super) type Key = (Option<String>, Vec<String>, Option<i32>, Option<i32>);

/// The last snapshot, and the sum in it.
pub(super) type Latest = (i32, Sum);

/// Why a row of `aggregates` is not in an export.
pub(super) const OMITTED: &str = "without a stack, of a single interval, or printed again later";

/// A sum of values: exact while all of them are integers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sum {
    Exact(i128),
    Rounded(f64),
}

impl Default for Sum {
    fn default() -> Sum {
        Sum::Exact(0)
    }
}

impl Sum {
    fn of(value: f64) -> Sum {
        match value.fract() == 0.0 && value.abs() <= (1u64 << 53) as f64 {
            true => Sum::Exact(value as i128),
            false => Sum::Rounded(value),
        }
    }

    fn as_f64(self) -> f64 {
        match self {
            Sum::Exact(sum) => sum as f64,
            Sum::Rounded(sum) => sum,
        }
    }

    /// The nearest integer of 64 bits.
    pub(super) fn rounded(self) -> i64 {
        match self {
            Sum::Exact(sum) => i64::try_from(sum.clamp(i64::MIN.into(), i64::MAX.into())),
            Sum::Rounded(sum) => Ok(sum.round() as i64),
        }
        .unwrap_or(i64::MAX)
    }
}

impl std::ops::AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        *self = match (*self, other) {
            (Sum::Exact(one), Sum::Exact(other)) => Sum::Exact(one.saturating_add(other)),
            (one, other) => Sum::Rounded(one.as_f64() + other.as_f64()),
        };
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sum::Exact(sum) => sum.fmt(out),
            Sum::Rounded(sum) => sum.fmt(out),
        }
    }
}

/// Writes the stacks of the first aggregation that has stacks. Returns false if there is none.
pub(super) fn write(source: &Source<'_>, out: &mut dyn Write, tally: &mut Tally) -> Result<bool> {
    let keys = read(source.trace)?;
    let Some(first) = keys.keys().map(|key| &key.0).min().cloned() else {
        return Ok(false);
    };
    if keys.keys().any(|key| key.0 != first) {
        log::warn!(
            "exporting only the aggregation {}: values of different aggregations do not add up",
            first.as_deref().unwrap_or("without a name")
        );
    }
    if source.is_limited() {
        tally.note(
            "aggregates are exported whole: --time and --where do not apply to them".to_owned(),
        );
    }
    let stacks = Stacks::read(source.trace)?;
    let mut lines: BTreeMap<String, Sum> = BTreeMap::new();
    let mut places = Vec::new();
    for ((_, texts, user, kernel), (_, value)) in keys.iter().filter(|(key, _)| key.0 == first) {
        let mut frames: Vec<String> = texts.iter().map(|text| part(text)).collect();
        for stack in [*user, *kernel] {
            stacks.places(stack, &mut places);
            frames.extend(places.iter().rev().map(frame));
        }
        *lines.entry(frames.join(";")).or_default() += *value;
    }
    let of_first = keys.keys().filter(|key| key.0 == first).count();
    tally.wrote("aggregate", of_first as u64);
    tally.omit(
        "aggregate",
        "of other aggregations",
        (keys.len() - of_first) as u64,
    );
    tally.omit(
        "aggregate",
        OMITTED,
        source.aggregate_rows().saturating_sub(keys.len() as u64),
    );
    for (line, value) in lines {
        writeln!(out, "{line} {value}")?;
    }
    Ok(true)
}

/// Reads the keys with a stack, and their values.
pub(super) fn read(trace: &Directory) -> Result<HashMap<Key, Latest>> {
    let counts = counts_of_distributions(trace)?;
    let mut keys: HashMap<Key, Latest> = HashMap::new();
    if trace.table(tables::aggregates::NAME).is_none() {
        return Ok(keys);
    }
    for batch in trace.read(tables::aggregates::NAME)? {
        let batch = batch?;
        for row in BatchRow::all(&batch) {
            let (user, kernel) = (row.i32("user_stack"), row.i32("kernel_stack"));
            // Rows of single intervals are parts of the totals.
            if user.is_none() && kernel.is_none() || row.i64("since").is_some() {
                continue;
            }
            let counted = row.i64("aggregate_id").and_then(|id| counts.get(&id));
            // Traces from before the column `exact_value` have only `value`.
            let exact = row.i64("exact_value").or(counted.copied());
            let exact = exact.map(|value| Sum::Exact(value.into()));
            let Some(value) = exact.or(row.f64("value").map(Sum::of)) else {
                continue;
            };
            let name = row.text("name").map(str::to_owned);
            let snapshot = row.i32("snapshot").unwrap_or(0);
            let key = (name, row.texts("keys"), user, kernel);
            let latest = keys.entry(key).or_insert((snapshot, Sum::default()));
            if snapshot > latest.0 {
                *latest = (snapshot, Sum::default());
            }
            if snapshot == latest.0 {
                latest.1 += value;
            }
        }
    }
    Ok(keys)
}

/// Reads the number of values in each distribution.
fn counts_of_distributions(trace: &Directory) -> Result<HashMap<i64, i64>> {
    let mut counts = HashMap::new();
    if trace.table(tables::buckets::NAME).is_none() {
        return Ok(counts);
    }
    for batch in trace.read(tables::buckets::NAME)? {
        let batch = batch?;
        for row in BatchRow::all(&batch) {
            let (Some(id), Some(count)) = (row.i64("aggregate_id"), row.i64("count")) else {
                continue;
            };
            let sum: &mut i64 = counts.entry(id).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    Ok(counts)
}

/// Formats a frame in DTrace's layout, without its offset.
fn frame(place: &Place<'_>) -> String {
    let address = place.address.or(place.offset);
    let name = match (place.function, address) {
        (Some(function), _) => function.to_owned(),
        (None, Some(address)) => format!("{address:#x}"),
        (None, None) => "-".to_owned(),
    };
    match place.module {
        _ if place.is_inlined => part(&name) + "_[i]",
        Some(module) => part(&format!("{module}`{}", without_arguments(&name))),
        None => part(&name),
    }
}

/// Replaces characters in a name that end a frame.
fn part(name: &str) -> String {
    printable(name).replace(';', ":")
}
