//! Stored aggregates, from the tables `aggregates` and `buckets`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Float64Type, Int64Type};

use perfquet::Session;
use perfquet::functions::bars::Bins;
use perfquet::stacks::ids;
use perfquet::stacks::strings;
use perfquet_trace::unit_fact::OFF_CPU;

use super::boxes::clean;
use super::event_weight::EventChoice;
use super::folding::{Folded, Weighted};
use crate::filter::Filters;
use crate::render::distribution::{Distributions, Drawing, Line, titles};
use crate::text::harmless;

/// One bar: low, high (exclusive), count.
type Bucket = (Option<i64>, Option<i64>, i64);

/// How to find values of a part of a recording.
pub(super) const OF_INTERVALS: &str = "hint: their totals are of the whole recording; values of intervals (--every): perfquet-query sql TRACE \"SELECT name, keys, since, time, value FROM aggregates WHERE since IS NOT NULL\"";

/// The latest printing of each key, in the order of the output.
pub(super) fn query(session: &Session, condition: &str) -> Result<Option<RecordBatch>> {
    let (column, key) = trace_column(session);
    let sql = format!(
        "SELECT aggregate_id, name, action, keys, value, kernel_stack, user_stack, exact_value{column} FROM latest_aggregates WHERE {condition} ORDER BY {key}aggregate_id"
    );
    let batches = session.collect(&sql)?;
    let Some(first) = batches.first() else {
        return Ok(None);
    };
    Ok(Some(concat_batches(&first.schema(), &batches)?))
}

/// The column of the trace, to be selected and to be sorted by, if several are opened.
fn trace_column(session: &Session) -> (&'static str, &'static str) {
    match session.traces().len() {
        0 | 1 => ("", ""),
        _ => (", trace", "trace, "),
    }
}

/// Separator of a key's parts in [`Folded::keys`]; each part becomes a box.
pub(super) const PARTS: char = '\u{1f}';

/// Whether to show stored aggregates: the trace has no samples, and no event was selected.
pub(super) fn are_what_there_is(session: &Session, choice: &EventChoice) -> bool {
    let has = |table| session.has_rows(table);
    choice.event.is_none() && !has("samples") && has("stacks") && has("aggregates")
}

/// The aggregation that `perfquet-record --profile` makes.
const PROFILE: &str = "profile";

/// An aggregation with stacks.
#[derive(Debug, Default)]
pub(super) struct Summed {
    pub(super) name: Option<String>,
    pub(super) action: Option<String>,
    pub(super) folded: Folded,
}

impl Summed {
    /// The unit of the values: `ns`, `events`, or the expression that was summed up.
    pub(super) fn unit(&self) -> String {
        match (self.name.as_deref(), self.action.as_deref()) {
            (Some(OFF_CPU), _) => "ns".to_owned(),
            (Some(name), Some("sum")) => {
                let inner = name
                    .strip_prefix("sum(")
                    .and_then(|name| name.split(')').next());
                harmless(inner.unwrap_or("events")).into_owned()
            }
            _ => "events".to_owned(),
        }
    }

    pub(super) fn is_off_cpu(&self) -> bool {
        self.name.as_deref() == Some(OFF_CPU)
    }

    /// The boxes below the stacks of a key. Processes of one name are one box, and a key without a value is none.
    pub(super) fn levels(&self, key: u32) -> Vec<String> {
        let key = self
            .folded
            .keys
            .get(key as usize)
            .map_or("", String::as_str);
        let parts: Vec<&str> = key.split(PARTS).collect();
        let parts: Vec<String> = match (self.name.as_deref(), parts.as_slice()) {
            (Some(OFF_CPU), [comm, _pid, state, ""]) => {
                vec![(*comm).to_owned(), (*state).to_owned()]
            }
            (Some(OFF_CPU), [comm, _pid, state, waker]) => {
                vec![
                    (*comm).to_owned(),
                    (*state).to_owned(),
                    format!("woken by {waker}"),
                ]
            }
            (Some(PROFILE), [comm, _pid]) => vec![(*comm).to_owned()],
            (_, parts) => parts.iter().map(|&part| part.to_owned()).collect(),
        };
        let parts = parts.iter().filter(|part| !part.is_empty());
        parts.map(|part| clean(part)).collect()
    }
}

/// Returns weighted stacks for `top` and flame graphs, of the first aggregation with stacks: values of
/// different aggregations do not add up, nor do averages and extremes. Other keys become the bottom frames. Its keys without a stack are
/// part of the whole; of aggregations without a name (DTrace), they may be those of another one.
pub(super) fn stacks(session: &Session, condition: &str) -> Result<Summed> {
    let condition =
        format!("value > 0 AND (action IS NULL OR action IN ('count', 'sum')) AND {condition}");
    let mut folded = Folded::default();
    let Some(rows) = query(session, &condition)? else {
        return Ok(Summed::default());
    };
    let names = strings(rows.column(1))?;
    let (kernel, user) = (ids(rows.column(5))?, ids(rows.column(6))?);
    let name_of = |row: usize| names.is_valid(row).then(|| names.value(row));
    let has_stack = |row: &usize| kernel.is_valid(*row) || user.is_valid(*row);
    let of_stacks: BTreeSet<_> = (0..rows.num_rows())
        .filter(has_stack)
        .map(name_of)
        .collect();
    let Some(&first) = of_stacks.first() else {
        return Ok(Summed::default());
    };
    let has_name = first.is_some_and(|name| !name.is_empty());
    if of_stacks.len() > 1 {
        say!(
            "using only the aggregation {}: values of different aggregations do not add up",
            first.map_or("without a name".into(), harmless)
        );
    }
    let traces = traces(session, &rows)?;
    let keys = rows.column(3).as_list::<i32>();
    let values = rows.column(4).as_primitive::<Float64Type>();
    let exact = rows.column(7).as_primitive::<Int64Type>();
    let mut known: HashMap<String, u32> = HashMap::new();
    for (row, &trace) in traces.iter().enumerate() {
        if name_of(row) != first || !(has_name || has_stack(&row)) {
            continue;
        }
        let words = strings(&keys.value(row))?;
        let words: Vec<&str> = words.iter().flatten().collect();
        let next = known.len() as u32;
        let key = *known.entry(words.join(&PARTS.to_string())).or_insert(next);
        if key == next {
            folded.keys.push(words.join(&PARTS.to_string()));
        }
        let tree = session.forest().tree(trace)?;
        let node = |stacks: &arrow::array::Int64Array| match stacks.is_valid(row) {
            true => tree.node(stacks.value(row)).unwrap_or_default(),
            false => 0,
        };
        let weight = match exact.is_valid(row) {
            true => u128::try_from(exact.value(row)).unwrap_or_default(),
            false => values.value(row) as u128,
        };
        folded.weight += weight;
        folded.samples += u64::from(has_stack(&row));
        folded.rows.push(Weighted {
            trace,
            kernel: node(&kernel),
            user: node(&user),
            key,
            weight,
            samples: 1,
        });
    }
    let actions = strings(rows.column(2))?;
    let of_first = (0..rows.num_rows())
        .find(|&row| name_of(row) == first)
        .filter(|&row| actions.is_valid(row));
    Ok(Summed {
        name: first.map(str::to_owned),
        action: of_first.map(|row| actions.value(row).to_owned()),
        folded,
    })
}

/// Returns the stored distributions.
pub(super) fn distributions(session: &Session, filters: &Filters) -> Result<Distributions> {
    let condition = filters.condition(session)?;
    let rows = distribution_rows(session, &condition)?;
    let Some(aggregates) = query(session, &condition)? else {
        say!("no matching distributions");
        return Ok(Distributions {
            rows,
            drawings: Vec::new(),
        });
    };
    let buckets = buckets(session)?;
    let (names, actions) = (
        strings(aggregates.column(1))?,
        strings(aggregates.column(2))?,
    );
    let ids = aggregates.column(0).as_primitive::<Int64Type>();
    let traces = traces(session, &aggregates)?;
    let mut drawings = Vec::new();
    let mut last = None;
    for (row, &trace) in traces.iter().enumerate() {
        let Some(bars) = buckets.get(&(trace, ids.value(row))) else {
            continue;
        };
        let name = (trace, names.is_valid(row).then(|| names.value(row)));
        let is_new = last.replace(name) != Some(name);
        let action = if actions.is_valid(row) {
            actions.value(row)
        } else {
            ""
        };
        drawings.push(Drawing {
            heading: name
                .1
                .filter(|_| is_new)
                .map(|name| harmless(name).into_owned()),
            title: title(session, trace, &aggregates, row)?,
            lines: lines(bars, action),
        });
    }
    Ok(Distributions { rows, drawings })
}

/// Returns a row per bar. Of several traces, each row names its trace.
fn distribution_rows(session: &Session, condition: &str) -> Result<RecordBatch> {
    let key = trace_column(session).1;
    let sql = format!(
        "SELECT {key}aggregate_id, name, action, keys, low, high, count FROM distributions WHERE {condition} ORDER BY {key}aggregate_id, low NULLS FIRST"
    );
    let mut answer = session.query(&sql)?;
    let mut batches = Vec::new();
    while let Some(batch) = answer.next_batch()? {
        batches.push(batch);
    }
    Ok(concat_batches(&answer.schema(), &batches)?)
}

/// Keys and stacks as printed by DTrace.
fn title(session: &Session, trace: usize, aggregates: &RecordBatch, row: usize) -> Result<String> {
    let keys = aggregates.column(3).as_list::<i32>();
    let mut title = String::new();
    let keys = strings(&keys.value(row))?;
    for key in keys.iter().flatten() {
        let one: arrow::array::ArrayRef =
            std::sync::Arc::new(arrow::array::StringArray::from(vec![key]));
        title.push_str(&titles(&[one])?.concat());
    }
    for stacks in [5, 6] {
        let stacks = ids(aggregates.column(stacks))?;
        if stacks.is_valid(row) {
            let tree = session.forest().tree(trace)?;
            if let Some(node) = tree.node(stacks.value(row)) {
                title.push_str(&format!("\n  {}", harmless(&tree.folded(node))));
            }
        }
    }
    Ok(title)
}

/// The index of each row's trace.
pub(super) fn traces(session: &Session, aggregates: &RecordBatch) -> Result<Vec<usize>> {
    let Some(names) = aggregates.column_by_name("trace") else {
        return Ok(vec![0; aggregates.num_rows()]);
    };
    let names = strings(names)?;
    let trace = |name: Option<&str>| {
        name.and_then(|name| session.forest().trace(name))
            .unwrap_or(0)
    };
    Ok(names.iter().map(trace).collect())
}

/// The bars of each aggregate, in the order of the values.
fn buckets(session: &Session) -> Result<HashMap<(usize, i64), Vec<Bucket>>> {
    let trace = trace_column(session).0;
    // NULL sorts first: bars open below.
    let sql =
        format!("SELECT aggregate_id, low, high, count{trace} FROM buckets ORDER BY low, high");
    let mut found: HashMap<(usize, i64), Vec<Bucket>> = HashMap::new();
    for batch in session.collect(&sql)? {
        let traces = traces(session, &batch)?;
        let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let (ids, lows, highs, counts) = (number(0), number(1), number(2), number(3));
        for (row, &trace) in traces.iter().enumerate() {
            let end = |ends: &arrow::array::Int64Array| ends.is_valid(row).then(|| ends.value(row));
            let bars = found.entry((trace, ids.value(row))).or_default();
            bars.push((end(lows), end(highs), counts.value(row)));
        }
    }
    Ok(found)
}

/// Returns the bars as printed by DTrace, including the empty ones in between and one on each side if possible.
fn lines(bars: &[Bucket], action: &str) -> Vec<Line> {
    let is_known = !action.is_empty();
    let action = if is_known {
        action
    } else {
        likely_action(bars)
    };
    let mut all = bars.to_vec();
    let steps = bars
        .iter()
        .filter_map(|&(low, high, _)| high?.checked_sub(low?));
    let step = steps.filter(|&step| step > 0).min();
    // The bar that begins, or ends, where another ends or begins.
    let next = |edge: i64, up: bool| -> Option<Bucket> {
        let (low, high) = match (action, step) {
            ("lquantize", Some(step)) if up => (Some(edge), edge.checked_add(step)),
            ("lquantize", Some(step)) => (edge.checked_sub(step), Some(edge)),
            ("lquantize" | "llquantize", _) => return None,
            _ => {
                let bar = Bins::Powers.of(if up { edge } else { edge.checked_sub(1)? });
                Bins::Powers.range(bar)
            }
        };
        Some((low, high, 0))
    };
    let mut places: BTreeMap<Option<i64>, usize> = BTreeMap::new();
    for (place, bar) in bars.iter().enumerate() {
        places.insert(bar.0, place);
    }
    /// More empty bars than this between two others show that the distribution is of another kind.
    const MOST: usize = 4096;
    // If the kind of bars is guessed, show only the printed ones.
    for pair in bars.windows(2).filter(|_| is_known) {
        let (Some(mut edge), Some(end)) = (pair[0].1, pair[1].0) else {
            continue;
        };
        let mut between = Vec::new();
        while edge < end && between.len() < MOST {
            match next(edge, true) {
                Some(bar) if bar.0 == Some(edge) && bar.1.is_some_and(|high| high <= end) => {
                    between.push(bar);
                    edge = bar.1.unwrap_or(end);
                }
                _ => break,
            }
        }
        if edge == end {
            all.extend(between);
        }
    }
    if let (Some(first), Some(last), true) = (bars.first(), bars.last(), is_known) {
        let below = first
            .0
            .filter(|_| first.2 != 0)
            .and_then(|low| next(low, false));
        all.extend(below);
        let above = last
            .1
            .filter(|_| last.2 != 0)
            .and_then(|high| next(high, true));
        all.extend(above);
    }
    all.sort_by_key(|bar| (bar.0.is_some(), bar.0, bar.1.is_none(), bar.1));
    all.iter()
        .map(|&(low, high, count)| Line {
            label: label(low, high, action),
            count,
        })
        .collect()
}

/// Guesses the function of the bars if it is unknown: powers of two, equal width, or neither.
fn likely_action(bars: &[Bucket]) -> &'static str {
    let is_power = |&(low, high, _): &Bucket| {
        let value = low.or(high.and_then(|high| high.checked_sub(1)));
        value.is_some_and(|value| Bins::Powers.range(Bins::Powers.of(value)) == (low, high))
    };
    if bars.iter().all(is_power) {
        return "quantize";
    }
    // llquantize mirrors its bars, with `<= -16` at one end and `>= 16` at the other.
    if let (Some((None, Some(high), _)), Some((Some(low), None, _))) = (bars.first(), bars.last())
        && high.checked_sub(1) == low.checked_neg()
    {
        return "llquantize";
    }
    let mut widths = bars
        .iter()
        .filter_map(|&(low, high, _)| high?.checked_sub(low?));
    let first = widths.next();
    if widths.all(|width| Some(width) == first) {
        return "lquantize";
    }
    "llquantize"
}

/// The label that DTrace prints for a bar.
fn label(low: Option<i64>, high: Option<i64>, action: &str) -> String {
    let is_linear = action == "lquantize";
    match (low, high) {
        (None, Some(high)) if is_linear => format!("< {high}"),
        (None, Some(high)) if action == "llquantize" && high <= 0 => format!("<= {}", high - 1),
        (None, Some(high)) if action == "llquantize" => format!("< {high}"),
        (None, Some(high)) => (high - 1).to_string(),
        (Some(low), None) if is_linear || action == "llquantize" => format!(">= {low}"),
        (Some(low), None) => low.to_string(),
        // Negative bars of quantize and llquantize are labeled with the end nearer to 0.
        (Some(low), Some(high)) if !is_linear && low < 0 && high <= 0 => (high - 1).to_string(),
        (Some(low), Some(high)) if !is_linear && low < 0 && high > 1 => format!("abs() < {high}"),
        (Some(low), Some(_)) => low.to_string(),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bars: &[Bucket], action: &str, expected: &[(&str, i64)]) {
        let found = lines(bars, action);
        let found: Vec<_> = found
            .iter()
            .map(|line| (line.label.as_str(), line.count))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn empty_bars_are_added() {
        let powers = [(Some(1), Some(2), 3), (Some(8), Some(16), 1)];
        check(
            &powers,
            "quantize",
            &[("0", 0), ("1", 3), ("2", 0), ("4", 0), ("8", 1), ("16", 0)],
        );
        let negative = [(Some(-3), Some(-1), 1), (Some(0), Some(1), 2)];
        check(
            &negative,
            "quantize",
            &[("-4", 0), ("-2", 1), ("-1", 0), ("0", 2), ("1", 0)],
        );
        let steps = [
            (None, Some(0), 1),
            (Some(0), Some(10), 2),
            (Some(30), Some(40), 1),
        ];
        check(
            &steps,
            "lquantize",
            &[
                ("< 0", 1),
                ("0", 2),
                ("10", 0),
                ("20", 0),
                ("30", 1),
                ("40", 0),
            ],
        );
    }

    #[test]
    fn the_action_shows_in_the_bars() {
        let steps = [
            (Some(-100), Some(0), 0),
            (Some(0), Some(100), 1),
            (Some(100), Some(200), 0),
        ];
        check(&steps, "", &[("-100", 0), ("0", 1), ("100", 0)]);
        let powers = [
            (Some(-3), Some(-1), 0),
            (Some(-1), Some(0), 1),
            (Some(0), Some(1), 0),
        ];
        check(&powers, "", &[("-2", 0), ("-1", 1), ("0", 0)]);
        let magnitudes = [
            (None, Some(-15), 1),
            (Some(-15), Some(-11), 2),
            (Some(0), Some(1), 1),
        ];
        check(&magnitudes, "", &[("<= -16", 1), ("-12", 2), ("0", 1)]);
        let mirrored = [
            (None, Some(-1), 1),
            (Some(-1), Some(0), 0),
            (Some(2), None, 1),
        ];
        check(&mirrored, "", &[("<= -2", 1), ("-1", 0), (">= 2", 1)]);
    }

    #[test]
    fn printed_bars_are_kept() {
        let printed = [
            (Some(0), Some(1), 0),
            (Some(1), Some(2), 5),
            (Some(2), Some(4), 0),
        ];
        check(&printed, "quantize", &[("0", 0), ("1", 5), ("2", 0)]);
        let open = [(Some(100), Some(200), 1), (Some(1000), None, 2)];
        check(&open, "llquantize", &[("100", 1), (">= 1000", 2)]);
    }
}
