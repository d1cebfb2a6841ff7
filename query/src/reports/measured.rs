//! What `calls` tells of each function: count, total, self, extremes, percentiles, the child that took longest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use anyhow::{Context, Result};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};

use crate::filter::Filters;
use crate::render::text::{Texts, strings};
use crate::session::Session;

/// One bar of the fine distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bar {
    pub(super) low: i64,
    pub(super) high: i64,
    pub(super) count: i64,
    pub(super) mean: f64,
}

/// A function, or a part of its calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Line {
    /// Values of the keys beside the function; `None` is NULL.
    pub(super) keys: Vec<Option<String>>,
    pub(super) function: String,
    pub(super) count: i64,
    /// Calls whose duration is known.
    pub(super) known: i64,
    pub(super) total: i64,
    pub(super) own: Option<i64>,
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
    /// In the order of the values.
    pub(super) bars: Vec<Bar>,
    pub(super) slowest_child: Option<String>,
}

impl Line {
    /// Mean of the known durations.
    pub(super) fn average(&self) -> Option<i64> {
        (self.known > 0).then(|| (self.total as f64 / self.known as f64).round() as i64)
    }

    /// The value that the share `q` of the calls does not exceed (nearest rank). Where a bar holds several
    /// values it is their mean, at most 3 % off.
    pub(super) fn percentile(&self, q: f64) -> Option<i64> {
        let rank = ((q * self.known as f64).ceil() as i64).max(1);
        let mut seen = 0;
        let bar = self.bars.iter().find(|bar| {
            seen += bar.count;
            seen >= rank
        })?;
        let (min, max) = (self.min?, self.max?);
        Some((bar.mean.round() as i64).clamp(min, max.max(min)))
    }

    fn add(&mut self, other: Line) {
        let least = |a: Option<i64>, b: Option<i64>| a.into_iter().chain(b).min();
        self.count += other.count;
        self.known += other.known;
        self.total = self.total.saturating_add(other.total);
        self.own = match (self.own, other.own) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.min = least(self.min, other.min);
        self.max = self.max.max(other.max);
        self.bars.extend(other.bars);
    }

    /// Sorts the bars and adds up those of the same range.
    fn settle(&mut self) {
        self.bars.sort_by_key(|bar| bar.low);
        let mut settled: Vec<Bar> = Vec::with_capacity(self.bars.len());
        for bar in self.bars.drain(..) {
            match settled.last_mut() {
                Some(last) if last.low == bar.low => {
                    let count = last.count + bar.count;
                    let sum = last.mean * last.count as f64 + bar.mean * bar.count as f64;
                    last.mean = sum / count as f64;
                    last.count = count;
                }
                _ => settled.push(bar),
            }
        }
        self.bars = settled;
    }
}

/// A line by its keys and function.
type Key = (Vec<Option<String>>, String);

/// Measures all calls that `filters` let through, divided by `keys` (columns) beside the function.
pub(super) fn measure(session: &Session, filters: &Filters, keys: &[&str]) -> Result<Vec<Line>> {
    let condition = filters.condition(session)?;
    let by_caller = keys.contains(&"caller");
    // The caller is there anyhow.
    let asked: Vec<&str> = keys
        .iter()
        .copied()
        .filter(|&key| key != "caller")
        .collect();
    let columns: String = asked.iter().map(|key| format!("{key}, ")).collect();
    let sql = include_str!("durations.sql")
        .replace("{keys}", &columns)
        .replace("{where}", &condition);
    let mut lines: Vec<Line> = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut children = Children::default();
    for batch in session.collect(&sql)? {
        for (mut line, caller) in cells(&batch, asked.len())? {
            if !by_caller && let Some(caller) = &caller {
                children.add(
                    (line.keys.clone(), caller.clone()),
                    &line.function,
                    line.total,
                );
            }
            if by_caller {
                let place = keys.iter().position(|&key| key == "caller").unwrap_or(0);
                line.keys.insert(place, caller);
            }
            match places.entry((line.keys.clone(), line.function.clone())) {
                Entry::Occupied(place) => lines[*place.get()].add(line),
                Entry::Vacant(place) => {
                    place.insert(lines.len());
                    lines.push(line);
                }
            }
        }
    }
    // A condition may be true of a call and not of what it called.
    if filters.has_condition() && !by_caller {
        children = children_of_picked(session, &condition, &asked)?;
    }
    for line in &mut lines {
        line.settle();
        line.slowest_child = children.slowest(&line.keys, &line.function);
    }
    Ok(lines)
}

/// The rows of a batch of durations.sql, each with its caller.
fn cells(batch: &RecordBatch, keys: usize) -> Result<Vec<(Line, Option<String>)>> {
    let texts: Result<Vec<_>> = batch.columns()[..keys]
        .iter()
        .map(|column| Texts::new(column))
        .collect();
    let texts = texts?;
    let named = |name: &str| {
        batch
            .column_by_name(name)
            .with_context(|| format!("durations.sql: expected the column {name}"))
    };
    let (functions, callers) = (strings(named("function")?)?, strings(named("caller")?)?);
    let numbers = |name: &str| Ok::<_, anyhow::Error>(named(name)?.as_primitive::<Int64Type>());
    let [count, known, total, own, min, max] =
        ["count", "known", "total", "self", "min", "max"].map(numbers);
    let (count, known, total, own, min, max) = (count?, known?, total?, own?, min?, max?);
    let bars = named("bars")?.as_list::<i32>();
    let mut cells = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let mut key_texts = Vec::with_capacity(keys + 1);
        for text in &texts {
            let mut cell = String::new();
            key_texts.push(text.write(row, &mut cell)?.then_some(cell));
        }
        let number =
            |column: &arrow::array::Int64Array| column.is_valid(row).then(|| column.value(row));
        let line = Line {
            keys: key_texts,
            function: functions.value(row).to_owned(),
            count: count.value(row),
            known: known.value(row),
            total: number(total).unwrap_or(0),
            own: number(own),
            min: number(min),
            max: number(max),
            bars: bars_of(&bars.value(row)),
            slowest_child: None,
        };
        let caller = callers.is_valid(row).then(|| callers.value(row).to_owned());
        cells.push((line, caller));
    }
    Ok(cells)
}

/// The bars in one value of `histogram(x)`.
pub(super) fn bars_of(list: &dyn Array) -> Vec<Bar> {
    let bars = list.as_struct();
    let number = |column: usize| bars.column(column).as_primitive::<Int64Type>();
    let (low, high, count) = (number(0), number(1), number(2));
    let mean = bars.column(3).as_primitive::<Float64Type>();
    let end = |ends: &arrow::array::Int64Array, row: usize, open: i64| match ends.is_valid(row) {
        true => ends.value(row),
        false => open,
    };
    (0..bars.len())
        .map(|row| Bar {
            low: end(low, row, i64::MIN),
            high: end(high, row, i64::MAX),
            count: count.value(row),
            mean: mean.value(row),
        })
        .collect()
}

/// How long the functions took that others called.
#[derive(Debug, Default)]
struct Children(HashMap<Key, HashMap<String, i64>>);

impl Children {
    fn add(&mut self, caller: Key, child: &str, total: i64) {
        let children = self.0.entry(caller).or_default();
        let sum = children.entry(child.to_owned()).or_default();
        *sum = sum.saturating_add(total);
    }

    /// Of a caller, the function that took longest; by name among equals.
    fn slowest(&self, keys: &[Option<String>], function: &str) -> Option<String> {
        let children = self.0.get(&(keys.to_vec(), function.to_owned()))?;
        let slowest = children.iter().max_by(|a, b| (a.1, b.0).cmp(&(b.1, a.0)))?;
        Some(slowest.0.clone())
    }
}

fn children_of_picked(session: &Session, condition: &str, keys: &[&str]) -> Result<Children> {
    let several = session.traces.len() > 1;
    let columns: String = keys.iter().map(|key| format!("p.{key}, ")).collect();
    let mut picked: String = keys.iter().map(|key| format!("{key}, ")).collect();
    if several && !keys.contains(&"trace") {
        picked.push_str("trace, ");
    }
    let sql = include_str!("children.sql")
        .replace("{keys}", &columns)
        .replace("{picked}", &picked)
        .replace("{where}", condition)
        .replace(
            "{same_trace}",
            if several {
                " AND c.trace = p.trace"
            } else {
                ""
            },
        );
    let mut children = Children::default();
    for batch in session.collect(&sql)? {
        let texts: Result<Vec<_>> = batch.columns()[..keys.len()]
            .iter()
            .map(|column| Texts::new(column))
            .collect();
        let texts = texts?;
        let functions = strings(batch.column(keys.len()))?;
        let names = strings(batch.column(keys.len() + 1))?;
        let totals = batch.column(keys.len() + 2).as_primitive::<Int64Type>();
        for row in (0..batch.num_rows()).filter(|&row| names.is_valid(row)) {
            let mut key_texts = Vec::with_capacity(keys.len());
            for text in &texts {
                let mut cell = String::new();
                key_texts.push(text.write(row, &mut cell)?.then_some(cell));
            }
            let total = if totals.is_valid(row) {
                totals.value(row)
            } else {
                0
            };
            let caller = (key_texts, functions.value(row).to_owned());
            children.add(caller, names.value(row), total);
        }
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: &[(i64, i64)]) -> Line {
        let mut line = Line {
            known: values.iter().map(|value| value.1).sum(),
            min: values.iter().map(|value| value.0).min(),
            max: values.iter().map(|value| value.0).max(),
            bars: values
                .iter()
                .map(|&(value, count)| Bar {
                    low: value,
                    high: value + 1,
                    count,
                    mean: value as f64,
                })
                .collect(),
            ..Line::default()
        };
        line.settle();
        line
    }

    #[test]
    fn percentiles_are_values_of_the_nearest_rank() {
        let hundred: Vec<(i64, i64)> = (1..=100).map(|value| (value, 1)).collect();
        let hundred = line(&hundred);
        let of = |line: &Line| [0.0, 0.5, 0.95, 0.99, 1.0].map(|q| line.percentile(q));
        assert_eq!(of(&hundred), [1, 50, 95, 99, 100].map(Some));
        assert_eq!(of(&line(&[(7, 1)])), [Some(7); 5]);
        assert_eq!(of(&line(&[(2, 1), (9, 1)])), [2, 2, 9, 9, 9].map(Some));
        assert_eq!(of(&line(&[])), [None; 5]);
    }

    #[test]
    fn bars_of_the_same_range_are_added_up() {
        let mut both = line(&[(5, 1), (3, 2)]);
        both.add(line(&[(5, 3), (8, 1)]));
        both.settle();
        let counts: Vec<_> = both.bars.iter().map(|bar| (bar.low, bar.count)).collect();
        assert_eq!(counts, [(3, 2), (5, 4), (8, 1)]);
        assert_eq!((both.min, both.max, both.known), (Some(3), Some(8), 7));
    }
}
