//! The values of both sides by key, run and slice, read with SQL.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};

use perfquet::Session;
use perfquet::stacks::strings;
use perfquet::stacks::{Frames, Tree};

use super::naming;
use super::sides::Side;
use crate::reports::event_weight::WeightedEvent;
use crate::reports::folding::{Folded, Weighted};
use crate::reports::frame_groups::FrameGroups;
use crate::reports::recursion::{self, Nested, Recursion};
use crate::totals;

/// A compared item: a function with its module, or a single string.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) module: Option<String>,
    pub(super) is_kernel: bool,
}

impl Key {
    fn of(name: String) -> Key {
        Key {
            name,
            module: None,
            is_kernel: false,
        }
    }
}

/// A key's values on one side, by run or slice.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Values {
    /// Weight or duration without callees.
    pub(super) own: Vec<f64>,
    /// Weight or duration with callees; of calls inside others of the key, those of the outer ones.
    pub(super) total: Vec<f64>,
    /// Sum of the durations of all calls; empty of others.
    pub(super) sum: Vec<f64>,
    /// Samples, events or calls; empty if unknown.
    pub(super) count: Vec<f64>,
    /// The median, 95th and 99th percentile of durations by run; a single recording has one for all slices.
    pub(super) percentiles: [Vec<Option<f64>>; 3],
}

impl Values {
    /// Zeros for this number of runs or slices.
    pub(super) fn zero(len: usize, counts: bool) -> Values {
        Values {
            own: vec![0.0; len],
            total: vec![0.0; len],
            sum: vec![0.0; if counts { len } else { 0 }],
            count: vec![0.0; if counts { len } else { 0 }],
            percentiles: Default::default(),
        }
    }

    /// Adds the values of another key, which becomes a part of this one.
    pub(super) fn add(&mut self, other: &Values) {
        let pairs = [
            (&mut self.own, &other.own),
            (&mut self.total, &other.total),
            (&mut self.sum, &other.sum),
            (&mut self.count, &other.count),
        ];
        for (mine, others) in pairs {
            for (mine, other) in mine.iter_mut().zip(others) {
                *mine += other;
            }
        }
        for (mine, other) in self.percentiles.iter_mut().zip(&other.percentiles) {
            if mine.is_empty() {
                mine.clone_from(other);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.total
            .iter()
            .chain(&self.own)
            .chain(&self.count)
            .all(|&value| value == 0.0)
    }
}

/// The values of all keys.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) keys: Vec<Key>,
    /// By key and side.
    pub(super) values: Vec<[Values; 2]>,
    /// Weight of one sample; `None` if each key's average is used.
    pub(super) sample_weight: Option<f64>,
    /// Samples, events or calls of each side.
    pub(super) counts: [u64; 2],
    /// Weight of each side by run or slice.
    pub(super) weights: [Vec<f64>; 2],
    /// Callers and callees by key and side, to find renamed functions.
    pub(super) links: Option<Links>,
}

/// Pairs (caller, callee) of keys with the callee's weight there, by side.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) sides: [HashMap<(usize, usize), f64>; 2],
}

/// The unit by which stacks are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    Function,
    Module,
    Stack,
}

/// Compares stacks by function, module or as a whole.
pub(super) fn by_frame(
    session: &Session,
    sides: &[Side; 2],
    subject: &WeightedEvent,
    by: Frame,
) -> Result<Measured> {
    let mut measured = Measured::default();
    let folded: Vec<Folded> = sides
        .iter()
        .map(|side| Folded::query(session, subject, &side.condition, side.key().as_deref()))
        .collect::<Result<_>>()?;
    let (weight, samples) = folded.iter().fold((0, 0), |(weight, samples), side| {
        (weight + side.weight, samples + side.samples)
    });
    measured.sample_weight = Some(weight as f64 / samples.max(1) as f64);
    for (number, side) in sides.iter().enumerate() {
        measured.counts[number] = folded[number].samples;
        measured.weights[number] = vec![0.0; side.len()];
    }
    match by {
        Frame::Stack => stacks(session, sides, &folded, &mut measured)?,
        Frame::Function | Frame::Module => groups(session, sides, &folded, by, &mut measured)?,
    }
    Ok(measured)
}

/// Returns the rows of each run or slice.
fn divided(side: &Side, folded: &Folded) -> Vec<Vec<Weighted>> {
    let mut divided = vec![Vec::new(); side.len()];
    for row in &folded.rows {
        let key = folded.keys.get(row.key as usize).map(String::as_str);
        if let Some(number) = side.replicate(key, row.trace) {
            divided[number].push(*row);
        }
    }
    divided
}

fn groups(
    session: &Session,
    sides: &[Side; 2],
    folded: &[Folded],
    by: Frame,
    measured: &mut Measured,
) -> Result<()> {
    let groups = FrameGroups::of(session.forest(), |frames, frame| {
        let name = match by {
            Frame::Function => label(frames, frame),
            Frame::Module | Frame::Stack => String::new(),
        };
        (
            name,
            frames
                .module(frame)
                .map(|path| naming::module(path).to_owned()),
        )
    })?;
    let mut links = Links::default();
    let zero = sides.each_ref().map(|side| Values::zero(side.len(), false));
    let mut values: Vec<[Values; 2]> = vec![zero; groups.names.len()];
    for (number, side) in sides.iter().enumerate() {
        for (replicate, rows) in divided(side, &folded[number]).iter().enumerate() {
            let weights = groups.weigh(session.forest(), rows.iter())?;
            for (values, weight) in values.iter_mut().zip(weights) {
                values[number].own[replicate] = weight.own as f64;
                values[number].total[replicate] = weight.total as f64;
                measured.weights[number][replicate] += weight.own as f64;
            }
        }
        if by == Frame::Function {
            link(session, &groups, &folded[number], &mut links.sides[number])?;
        }
    }
    measured.keys = groups
        .names
        .into_iter()
        .map(|name| Key {
            // A module is named by itself.
            name: match by {
                Frame::Module => name.module.clone().unwrap_or(name.function),
                Frame::Function | Frame::Stack => name.function,
            },
            module: match by {
                Frame::Module => None,
                Frame::Function | Frame::Stack => name.module,
            },
            is_kernel: name.is_kernel,
        })
        .collect();
    measured.values = values;
    measured.links = (by == Frame::Function).then_some(links);
    Ok(())
}

/// Returns the name of a frame without compiler suffixes.
fn label(frames: &Frames, frame: u32) -> String {
    match frames.function(frame) {
        Some(function) => naming::function(function).to_owned(),
        None => frames.name(frame).into_owned(),
    }
}

/// Adds the weight of each caller's calls.
fn link(
    session: &Session,
    groups: &FrameGroups,
    folded: &Folded,
    links: &mut HashMap<(usize, usize), f64>,
) -> Result<()> {
    for trace in 0..session.forest().len() {
        let rows = folded.rows.iter().filter(|row| row.trace == trace);
        let tree = session.forest().tree(trace)?;
        let mut of_node = vec![0.0; tree.len()];
        for row in rows {
            of_node[row.kernel as usize] += row.weight as f64;
            of_node[row.user as usize] += row.weight as f64;
        }
        for node in (1..tree.len() as u32).rev() {
            let weight = of_node[node as usize];
            if weight == 0.0 {
                continue;
            }
            let parent = tree.parent(node);
            of_node[parent as usize] += weight;
            let frames = tree
                .frames_of_node(node)
                .chain(tree.frames_of_node(parent).take(1));
            let mut callee = None;
            for frame in frames {
                let caller = groups.of_frame(trace, frame);
                if let Some(callee) = callee.filter(|&callee| callee != caller) {
                    *links.entry((caller, callee)).or_default() += weight;
                }
                callee = Some(caller);
            }
        }
    }
    Ok(())
}

/// Compares whole stacks, root first: `main;read;vfs_read`.
fn stacks(
    session: &Session,
    sides: &[Side; 2],
    folded: &[Folded],
    measured: &mut Measured,
) -> Result<()> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let zero = sides.each_ref().map(|side| Values::zero(side.len(), false));
    for (number, side) in sides.iter().enumerate() {
        let mut known: HashMap<(usize, u32, u32), usize> = HashMap::new();
        for (replicate, rows) in divided(side, &folded[number]).iter().enumerate() {
            for row in rows {
                let place = (row.trace, row.kernel, row.user);
                let stack = match known.get(&place) {
                    Some(&stack) => stack,
                    None => {
                        let tree = session.forest().tree(row.trace)?;
                        let text = path(&tree, row);
                        let next = numbers.len();
                        let stack = *numbers.entry(text.clone()).or_insert(next);
                        if stack == next {
                            measured.keys.push(Key::of(text));
                            measured.values.push(zero.clone());
                        }
                        known.insert(place, stack);
                        stack
                    }
                };
                let values = &mut measured.values[stack][number];
                values.own[replicate] += row.weight as f64;
                values.total[replicate] += row.weight as f64;
                measured.weights[number][replicate] += row.weight as f64;
            }
        }
    }
    Ok(())
}

fn path(tree: &Tree, row: &Weighted) -> String {
    let mut names = Vec::new();
    for leaf in [row.kernel, row.user] {
        let mut node = leaf;
        while node != 0 {
            names.extend(
                tree.frames_of_node(node)
                    .map(|frame| label(&tree.frames, frame)),
            );
            node = tree.parent(node);
        }
    }
    if names.is_empty() {
        return "[no stack]".to_owned();
    }
    names.reverse();
    names.join(";")
}

/// Compares events by a column.
pub(super) fn by_column(
    session: &Session,
    sides: &[Side; 2],
    subject: &WeightedEvent,
    column: &str,
) -> Result<Measured> {
    let mut measured = Measured::default();
    let mut numbers = HashMap::new();
    for (number, side) in sides.iter().enumerate() {
        measured.weights[number] = vec![0.0; side.len()];
        let replicate = side.number(session);
        let sql = subject
            .fill(include_str!("by_column.sql"), &side.condition)
            .replace("{key}", column)
            .replace("{replicate}", &replicate);
        for batch in session.collect(&sql)? {
            let names = strings(batch.column(0))?;
            let places = integers(&batch, 1)?;
            let (weights, counts) = (totals::read(batch.column(2))?, integers(&batch, 3)?);
            for row in 0..batch.num_rows() {
                let count = counts.value(row).max(0) as f64;
                measured.counts[number] += counts.value(row).unsigned_abs();
                let Some(replicate) = place(&places, row, side) else {
                    continue;
                };
                let name = names.is_valid(row).then(|| names.value(row));
                let name = name.unwrap_or("[unknown]").to_owned();
                let key = add_key(&mut measured, &mut numbers, sides, Key::of(name));
                let weight = totals::weight(&weights, row) as f64;
                let values = &mut measured.values[key][number];
                values.own[replicate] += weight;
                values.total[replicate] += weight;
                values.count[replicate] += count;
                measured.weights[number][replicate] += weight;
            }
        }
    }
    let weight: f64 = measured.weights.iter().flatten().sum();
    let count: u64 = measured.counts.iter().sum();
    measured.sample_weight = Some(weight / count.max(1) as f64);
    Ok(measured)
}

/// Compares calls in a table by two columns: the key, and its module or NULL.
pub(super) fn by_call(
    session: &Session,
    sides: &[Side; 2],
    table: &str,
    columns: [&str; 2],
) -> Result<Measured> {
    let [key, module] = columns;
    let mut measured = Measured::default();
    let mut numbers = HashMap::new();
    for (number, side) in sides.iter().enumerate() {
        measured.weights[number] = vec![0.0; side.len()];
        let sql = include_str!("calls.sql")
            .replace("{key}", key)
            .replace("{module}", module)
            .replace("{table}", table)
            .replace("{replicate}", &side.number(session))
            .replace("{where}", &side.condition);
        for batch in session.collect(&sql)? {
            let keys = call_keys(&batch)?;
            let places = integers(&batch, 2)?;
            let (all, known) = (integers(&batch, 3)?, integers(&batch, 4)?);
            let (total, own) = (
                totals::read(batch.column(5))?,
                totals::read(batch.column(6))?,
            );
            for (row, key) in keys.into_iter().enumerate() {
                measured.counts[number] += all.value(row).unsigned_abs();
                let Some(replicate) = place(&places, row, side) else {
                    continue;
                };
                let key = add_key(&mut measured, &mut numbers, sides, key);
                let values = &mut measured.values[key][number];
                values.count[replicate] += known.value(row).max(0) as f64;
                let total = totals::weight(&total, row) as f64;
                values.total[replicate] += total;
                values.sum[replicate] += total;
                let own = totals::weight(&own, row) as f64;
                values.own[replicate] += own;
                measured.weights[number][replicate] += own;
            }
        }
        if table == "calls" {
            let nested = nested_times(session, side, columns)?;
            for ((name, part), time) in nested {
                let replicate = part.first().and_then(|&part| usize::try_from(part).ok());
                let key = numbers.get(&key_of(&name));
                if let (Some(&key), Some(replicate)) = (key, replicate)
                    && let Some(total) = measured.values[key][number].total.get_mut(replicate)
                {
                    *total = (*total - time as f64).max(0.0);
                }
            }
        }
        // The percentiles of a recording are computed over all its slices.
        let sql = include_str!("call_percentiles.sql")
            .replace("{key}", key)
            .replace("{module}", module)
            .replace("{table}", table)
            .replace("{replicate}", &side.run(session))
            .replace("{where}", &side.condition);
        // The percentiles of two clones do not give those of the function.
        let mut clones: HashMap<(usize, usize), u32> = HashMap::new();
        for batch in session.collect(&sql)? {
            let keys = call_keys(&batch)?;
            let places = integers(&batch, 2)?;
            for (row, key) in keys.into_iter().enumerate() {
                let (Some(&key), run) = (numbers.get(&key), places.value(row) as usize) else {
                    continue;
                };
                let clones = clones.entry((key, run)).or_default();
                *clones += 1;
                for percentile in 0..3 {
                    let column = cast(batch.column(3 + percentile), &DataType::Float64)?;
                    let column = column.as_primitive::<Float64Type>();
                    let values = &mut measured.values[key][number].percentiles[percentile];
                    values.resize(side.traces.len(), None);
                    if let Some(value) = values.get_mut(run) {
                        let is_known = *clones == 1 && column.is_valid(row);
                        *value = is_known.then(|| column.value(row));
                    }
                }
            }
        }
    }
    Ok(measured)
}

fn call_keys(batch: &RecordBatch) -> Result<Vec<Key>> {
    let (names, modules) = (strings(batch.column(0))?, strings(batch.column(1))?);
    let text = |texts: &StringViewArray, row: usize| {
        texts.is_valid(row).then(|| texts.value(row).to_owned())
    };
    let key = |row: usize| call_key(text(&names, row), text(&modules, row));
    Ok((0..batch.num_rows()).map(key).collect())
}

fn call_key(name: Option<String>, module: Option<String>) -> Key {
    Key {
        name: match name {
            Some(name) => naming::function(&name).to_owned(),
            None => "[unknown]".to_owned(),
        },
        module: module.map(|module| naming::module(&module).to_owned()),
        is_kernel: false,
    }
}

/// Time of calls inside other calls of the same key on that side, by the key's name and run or slice.
fn nested_times(session: &Session, side: &Side, [key, module]: [&str; 2]) -> Result<Nested> {
    let text = |sql: &str| format!("coalesce(CAST({sql} AS TEXT), '{NO_VALUE}')");
    let name = format!(
        "arrow_cast(concat({}, '{SEPARATOR}', {}), 'Utf8View')",
        text(key),
        text(module)
    );
    let calls = Recursion {
        condition: &side.condition,
        has_holes: true,
        name: &name,
        parts: &[side.number(session)],
    };
    let rename = |name: &str| {
        let Key { name, module, .. } = key_of(name);
        let module = module.unwrap_or_else(|| NO_VALUE.to_string());
        format!("{name}{SEPARATOR}{module}")
    };
    recursion::nested(session, calls, &rename)
}

/// Separates function and module.
const SEPARATOR: char = '\u{1f}';
const NO_VALUE: char = '\u{1}';

fn key_of(text: &str) -> Key {
    let (name, module) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    let value = |text: &str| (text != NO_VALUE.to_string()).then(|| text.to_owned());
    call_key(value(name), value(module))
}

/// Returns the number of a key; a new key starts with zeros.
fn add_key(
    measured: &mut Measured,
    numbers: &mut HashMap<Key, usize>,
    sides: &[Side; 2],
    key: Key,
) -> usize {
    let next = measured.keys.len();
    let number = *numbers.entry(key.clone()).or_insert(next);
    if number == next {
        measured.keys.push(key);
        let zero = sides.each_ref().map(|side| Values::zero(side.len(), true));
        measured.values.push(zero);
    }
    number
}

fn integers(batch: &RecordBatch, column: usize) -> Result<Int64Array> {
    let numbers = cast(batch.column(column), &DataType::Int64)?;
    Ok(numbers.as_primitive::<Int64Type>().clone())
}

fn place(places: &Int64Array, row: usize, side: &Side) -> Option<usize> {
    let place = places.is_valid(row).then(|| places.value(row))?;
    usize::try_from(place)
        .ok()
        .filter(|&place| place < side.len())
}
