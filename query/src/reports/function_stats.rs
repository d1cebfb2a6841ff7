//! Statistics per function from `calls`: count, total, self, extremes, percentiles, slowest child.

use std::collections::HashMap;

use anyhow::{Context, Result};
use arrow::array::{Array, AsArray, Decimal128Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{Float64Type, Int64Type};

use perfquet::Session;
use perfquet::sql::names::literal;
use perfquet::stacks::strings;

use super::recursion::{self, Nested, Recursion};
use crate::call_values::CallValues;
use crate::filter::Filters;
use crate::text::Texts;
use crate::totals;

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
    /// Values of the keys other than the function; `None` is NULL.
    pub(super) keys: Vec<Option<String>>,
    pub(super) function: String,
    pub(super) count: i64,
    /// Number of calls with a known duration.
    pub(super) known: i64,
    /// Wall time: of calls inside other calls of the line, the outer ones.
    pub(super) total: i128,
    /// Sum of the known durations.
    pub(super) sum: i128,
    pub(super) own: Option<i128>,
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
    /// In the order of the values.
    pub(super) bars: Vec<Bar>,
    /// Durations that 50, 95 and 99% of the calls do not exceed.
    pub(super) percentiles: [Option<i64>; 3],
    pub(super) slowest_child: Option<String>,
}

impl Line {
    /// Mean of the known durations.
    pub(super) fn average(&self) -> Option<i64> {
        let known = i128::from(self.known);
        // Half of the divisor is added to round. A mean is never larger than its values.
        let mean = (self.sum * 2 + known).div_euclid((known * 2).max(1));
        (known > 0).then(|| i64::try_from(mean).unwrap_or(i64::MAX))
    }
}

/// A line by its keys and function.
type Key = (Vec<Option<String>>, String);

/// Computes statistics of all calls that match `filters`, grouped by `keys` (columns) and function.
pub(super) fn measure(session: &Session, filters: &Filters, keys: &[&str]) -> Result<Vec<Line>> {
    let condition = filters.condition(session)?;
    let columns: String = keys.iter().map(|key| format!("{key}, ")).collect();
    let sql = include_str!("durations.sql")
        .replace("{keys}", &columns)
        .replace("{where}", &condition);
    let mut lines: Vec<Line> = Vec::new();
    for batch in session.collect(&sql)? {
        lines.extend(read(&batch, keys.len())?);
    }
    let nested = nested_times(session, filters, keys, &condition)?;
    if !nested.is_empty() {
        for line in &mut lines {
            let time = nested.get(&(line_name(line), Vec::new()));
            let time = time.map_or(0, |&time| i128::try_from(time).unwrap_or(i128::MAX));
            line.total -= time;
        }
    }
    Ok(lines)
}

/// Time of calls inside other calls of the same line, by [`line_name`].
fn nested_times(
    session: &Session,
    filters: &Filters,
    keys: &[&str],
    condition: &str,
) -> Result<Nested> {
    const FUNCTION: &str = "coalesce(function, '[unknown]')";
    let name = match keys {
        [] => FUNCTION.to_owned(),
        keys => recursion::name_of(&[keys, &[FUNCTION]].concat()),
    };
    let calls = Recursion {
        condition,
        has_holes: filters.may_divide_calls(),
        name: &name,
        by_trace: false,
        parts: &[],
    };
    recursion::nested(session, calls, &str::to_owned)
}

/// The name of a line's calls, as [`nested_times`] has it.
fn line_name(line: &Line) -> String {
    let keys = line.keys.iter().map(Option::as_deref);
    let values: Vec<_> = keys.chain([Some(line.function.as_str())]).collect();
    recursion::name(&values)
}

/// Maximum number of lines listed in the query for their children.
const NAMED: usize = 200;

/// Finds the child of each line with the longest time, by the calls actually inside: the name of the caller may be a
/// function that is not in the trace. This is a separate query, for the printed lines only.
pub(super) fn find_slowest_children(
    session: &Session,
    filters: &Filters,
    keys: &[&str],
    lines: &mut [Line],
) -> Result<()> {
    let mut names: Vec<String> = lines.iter().map(|line| literal(&line.function)).collect();
    names.sort_unstable();
    names.dedup();
    let mut condition = filters.condition(session)?;
    if names.len() <= NAMED {
        let names = names.join(", ");
        condition = format!("coalesce(function, '[unknown]') IN ({names}) AND {condition}");
    }
    let nested = nested_children(session, keys, lines, &condition)?;
    let children = match keys.is_empty() {
        true => Children::by_number(session, &condition, &nested)?,
        false => Children::by_join(session, &condition, keys, &nested)?,
    };
    for line in lines {
        line.slowest_child = children.slowest(&line.keys, &line.function);
    }
    Ok(())
}

/// Time of calls from a function inside other calls of the same pair: of f, g in f → g → f → g counts once. Only recursive functions have
/// such callees.
fn nested_children(
    session: &Session,
    keys: &[&str],
    lines: &[Line],
    condition: &str,
) -> Result<Nested> {
    let recursive = lines.iter().filter(|line| line.total != line.sum);
    let mut names: Vec<String> = recursive.map(|line| literal(&line.function)).collect();
    if names.is_empty() {
        return Ok(Nested::new());
    }
    names.sort_unstable();
    names.dedup();
    let callers = match names.len() {
        ..=NAMED => format!("caller IN ({}) AND ", names.join(", ")),
        _ => String::new(),
    };
    let condition = format!("{callers}parent_id IN (SELECT call_id FROM calls WHERE {condition})");
    let pair = ["caller", "coalesce(function, '[unknown]')"];
    let calls = Recursion {
        condition: &condition,
        has_holes: true,
        name: &recursion::name_of(&[keys, &pair].concat()),
        by_trace: false,
        parts: &[],
    };
    recursion::nested(session, calls, &str::to_owned)
}

/// The rows of a batch of durations.sql.
fn read(batch: &RecordBatch, keys: usize) -> Result<Vec<Line>> {
    let texts = key_texts(batch, keys)?;
    let named = |name: &str| {
        batch
            .column_by_name(name)
            .with_context(|| format!("durations.sql: expected the column {name}"))
    };
    let functions = strings(named("function")?)?;
    let numbers = |name: &str| Ok::<_, anyhow::Error>(named(name)?.as_primitive::<Int64Type>());
    let (count, known) = (numbers("count")?, numbers("known")?);
    let (total, own) = (
        totals::read(named("total")?)?,
        totals::read(named("self")?)?,
    );
    let (min, max) = (numbers("min")?, numbers("max")?);
    let bars = named("bars")?.as_list::<i32>();
    let percentiles = named("percentiles")?.as_list::<i32>();
    let mut lines = Vec::with_capacity(batch.num_rows());
    for (row, keys) in texts.into_iter().enumerate() {
        let number = |column: &Int64Array| column.is_valid(row).then(|| column.value(row));
        let sum = |column: &Decimal128Array| column.is_valid(row).then(|| column.value(row));
        lines.push(Line {
            keys,
            function: functions.value(row).to_owned(),
            count: count.value(row),
            known: known.value(row),
            total: sum(&total).unwrap_or(0),
            sum: sum(&total).unwrap_or(0),
            own: sum(&own),
            min: number(min),
            max: number(max),
            bars: bars_of(&bars.value(row)),
            percentiles: percentiles_of(&percentiles.value(row)),
            slowest_child: None,
        });
    }
    Ok(lines)
}

/// The values of the first `keys` columns as strings, row by row.
fn key_texts(batch: &RecordBatch, keys: usize) -> Result<Vec<Vec<Option<String>>>> {
    let texts = Texts::of_columns(&batch.columns()[..keys])?;
    let row = |row: usize| {
        let cell = |text: &Texts<'_>| {
            let mut cell = String::new();
            Ok(text.write(row, &mut cell)?.then_some(cell))
        };
        texts.iter().map(cell).collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

fn percentiles_of(list: &dyn Array) -> [Option<i64>; 3] {
    let values = list.as_primitive::<Int64Type>();
    [0, 1, 2]
        .map(|place| (place < values.len() && values.is_valid(place)).then(|| values.value(place)))
}

/// The bars in one value of `histogram(x)`.
pub(super) fn bars_of(list: &dyn Array) -> Vec<Bar> {
    let bars = list.as_struct();
    let number = |column: usize| bars.column(column).as_primitive::<Int64Type>();
    let (low, high, count) = (number(0), number(1), number(2));
    let mean = bars.column(3).as_primitive::<Float64Type>();
    let end = |ends: &Int64Array, row: usize, open: i64| match ends.is_valid(row) {
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

/// By keys and function: the child with the longest time, and that time.
#[derive(Debug, Default)]
struct Children(HashMap<Key, (String, i128)>);

impl Children {
    /// The rows of a query: keys, function, child, total.
    fn query(session: &Session, sql: &str, keys: usize, nested: &Nested) -> Result<Children> {
        let mut children = Children::default();
        for batch in session.collect(sql)? {
            let texts = key_texts(&batch, keys)?;
            let (functions, names) = (
                strings(batch.column(keys))?,
                strings(batch.column(keys + 1))?,
            );
            let totals = totals::read(batch.column(keys + 2))?;
            for (row, keys) in texts.into_iter().enumerate() {
                if names.is_valid(row) && totals.is_valid(row) {
                    let caller = (keys, functions.value(row).to_owned());
                    children.add(nested, caller, names.value(row), totals.value(row));
                }
            }
        }
        Ok(children)
    }

    fn by_join(
        session: &Session,
        condition: &str,
        keys: &[&str],
        nested: &Nested,
    ) -> Result<Children> {
        let several = session.traces().len() > 1;
        let columns: String = keys.iter().map(|key| format!("p.{key}, ")).collect();
        let mut picked: String = keys.iter().map(|key| format!("{key}, ")).collect();
        if several && !keys.contains(&"trace") {
            picked.push_str("trace, ");
        }
        let same_trace = if several {
            " AND c.trace = p.trace"
        } else {
            ""
        };
        let sql = include_str!("children_of_picked.sql")
            .replace("{keys}", &columns)
            .replace("{picked}", &picked)
            .replace("{where}", condition)
            .replace("{same_trace}", same_trace);
        Children::query(session, &sql, keys.len(), nested)
    }

    /// Joins calls through an array indexed by call ID, which takes a third of the time; IDs have few gaps.
    fn by_number(session: &Session, condition: &str, nested: &Nested) -> Result<Children> {
        let several = session.traces().len() > 1;
        let trace = if several { "trace, " } else { "" };
        let mut functions = Numbers::default();
        let mut places = CallValues::for_calls(session);
        let sql = format!(
            "SELECT {trace}coalesce(function, '[unknown]'), call_id FROM calls WHERE {condition}"
        );
        let mut answer = session.query(&sql)?;
        while let Some(batch) = answer.next_batch()? {
            let (of_trace, names, ids) = columns(session, &batch, several)?;
            for row in 0..batch.num_rows() {
                let function = functions.of(names.value(row));
                places[of_trace(row)].set(ids.value(row), function);
            }
        }
        let mut children = Numbers::default();
        let mut totals: HashMap<(u32, u32), i128> = HashMap::new();
        let sql = format!(
            "SELECT {trace}coalesce(function, '[unknown]'), parent_id, duration FROM calls"
        );
        let mut answer = session.query(&sql)?;
        while let Some(batch) = answer.next_batch()? {
            let (of_trace, names, parents) = columns(session, &batch, several)?;
            let durations = batch
                .column(batch.num_columns() - 1)
                .as_primitive::<Int64Type>();
            // Skip NULL here: a condition in the query would cost a third of its time.
            let is_known = |row: &usize| parents.is_valid(*row) && durations.is_valid(*row);
            for row in (0..batch.num_rows()).filter(is_known) {
                let Some(function) = places[of_trace(row)].get(parents.value(row)) else {
                    continue;
                };
                let child = children.of(names.value(row));
                *totals.entry((function, child)).or_default() += i128::from(durations.value(row));
            }
        }
        let mut found = Children::default();
        for ((function, child), total) in totals {
            let caller = (Vec::new(), functions.names[function as usize].clone());
            found.add(nested, caller, &children.names[child as usize], total);
        }
        Ok(found)
    }

    /// Adds a callee other than the function itself. Among equals, the first by name counts.
    fn add(&mut self, nested: &Nested, caller: Key, child: &str, total: i128) {
        let (keys, function) = &caller;
        if child == function {
            return;
        }
        let total = match nested.is_empty() {
            true => total,
            false => {
                let pair = [Some(function.as_str()), Some(child)];
                let keys = keys.iter().map(Option::as_deref);
                let name = recursion::name(&keys.chain(pair).collect::<Vec<_>>());
                let time = nested.get(&(name, Vec::new()));
                total - time.map_or(0, |&time| i128::try_from(time).unwrap_or(i128::MAX))
            }
        };
        let slowest = self
            .0
            .entry(caller)
            .or_insert_with(|| (child.to_owned(), total));
        if total > slowest.1 || total == slowest.1 && child < slowest.0.as_str() {
            *slowest = (child.to_owned(), total);
        }
    }

    fn slowest(&self, keys: &[Option<String>], function: &str) -> Option<String> {
        let slowest = self.0.get(&(keys.to_vec(), function.to_owned()))?;
        Some(slowest.0.clone())
    }
}

/// IDs for names.
#[derive(Default)]
struct Numbers {
    names: Vec<String>,
    ids: hashbrown::HashMap<String, u32>,
}

impl Numbers {
    fn of(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }
}

/// The trace of each row, its function, and its call or the enclosing one.
fn columns<'a>(
    session: &'a Session,
    batch: &'a RecordBatch,
    several: bool,
) -> Result<(
    impl Fn(usize) -> usize + 'a,
    StringViewArray,
    &'a Int64Array,
)> {
    let traces = several.then(|| strings(batch.column(0))).transpose()?;
    let of_trace = move |row: usize| match &traces {
        Some(names) => session.forest().trace(names.value(row)).unwrap_or(0),
        None => 0,
    };
    let first = usize::from(several);
    let numbers = batch.column(first + 1).as_primitive::<Int64Type>();
    Ok((of_trace, strings(batch.column(first))?, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_child_is_the_one_with_the_most_time() {
        let mut children = Children::default();
        let caller = || (vec![Some("0".to_owned())], "f".to_owned());
        for (child, total) in [("b", 5), ("c", 9), ("a", 9), ("d", 1), ("f", 20)] {
            children.add(&Nested::new(), caller(), child, total);
        }
        let (keys, function) = caller();
        assert_eq!(children.slowest(&keys, &function).as_deref(), Some("a"));
        assert_eq!(children.slowest(&[], "f"), None);
    }
}
