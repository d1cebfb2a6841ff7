//! The values of both sides by key, run and slice, read with SQL.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};

use perfquet::Session;
use perfquet::stacks::strings;
use perfquet::stacks::{Frames, Tree};

use super::amounts::Amounts;
use super::naming;
use super::sides::{Replicated, Side};
use crate::reports::event_weight::WeightedEvent;
use crate::reports::folding::{Folded, Weighted};
use crate::reports::frame_groups::{FrameGroups, TraceGroups, by_trace};
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
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    /// Weight or duration without callees.
    pub(super) own: Amounts,
    /// Weight or duration with callees; of calls inside others of the key, those of the outer ones.
    pub(super) total: Amounts,
    /// Sum of the durations of all calls; empty of others.
    pub(super) sum: Amounts,
    /// Samples, events or calls; `None` if unknown.
    pub(super) count: Option<Amounts>,
    /// The median, 95th and 99th percentile of durations by run; a single recording has one for all slices.
    pub(super) percentiles: [Amounts; 3],
}

impl Values {
    /// No values.
    pub(super) fn zero(counts: bool) -> Values {
        Values {
            count: counts.then(Amounts::default),
            ..Values::default()
        }
    }

    /// Adds the values of another key, which becomes a part of this one.
    pub(super) fn add(&mut self, other: &Values) {
        self.own.merge(&other.own);
        self.total.merge(&other.total);
        self.sum.merge(&other.sum);
        if let (Some(mine), Some(others)) = (&mut self.count, &other.count) {
            mine.merge(others);
        }
        for (mine, other) in self.percentiles.iter_mut().zip(&other.percentiles) {
            if mine.is_empty() {
                mine.clone_from(other);
            }
        }
    }

    /// Brings all into the order of the runs.
    fn settle(&mut self) {
        self.own.settle();
        self.total.settle();
        self.sum.settle();
        if let Some(count) = &mut self.count {
            count.settle();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let counts = self.count.as_ref();
        self.total.are_zero() && self.own.are_zero() && counts.is_none_or(Amounts::are_zero)
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

impl Measured {
    fn settle(&mut self) {
        for values in self.values.iter_mut().flatten() {
            values.settle();
        }
    }
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

/// Compares stacks by function, module or as a whole; their numbers of samples, too, if they are counted.
pub(super) fn by_frame(
    session: &Session,
    sides: &[Side; 2],
    subject: &WeightedEvent,
    (by, is_counted): (Frame, bool),
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
        Frame::Stack => stacks(session, sides, &folded, is_counted, &mut measured)?,
        Frame::Function | Frame::Module => {
            groups(session, sides, &folded, (by, is_counted), &mut measured)?;
        }
    }
    Ok(measured)
}

/// Rows by run or slice of a side.
fn divided<'r>(
    side: &Side,
    folded: &Folded,
    rows: impl IntoIterator<Item = &'r Weighted>,
) -> BTreeMap<usize, Vec<&'r Weighted>> {
    let mut divided: BTreeMap<usize, Vec<&Weighted>> = BTreeMap::new();
    for row in rows {
        let key = folded.keys.get(row.key as usize).map(String::as_str);
        if let Some(number) = side.replicate(key, row.trace) {
            divided.entry(number).or_default().push(row);
        }
    }
    divided
}

fn groups(
    session: &Session,
    sides: &[Side; 2],
    folded: &[Folded],
    (by, is_counted): (Frame, bool),
    measured: &mut Measured,
) -> Result<()> {
    let mut groups = FrameGroups::new(|frames: &Frames, frame| {
        let name = match by {
            Frame::Function => label(frames, frame),
            Frame::Module | Frame::Stack => String::new(),
        };
        let module = frames.module(frame);
        (name, module.map(|path| naming::module(path).to_owned()))
    });
    let mut links = Links::default();
    let mut traces: BTreeMap<usize, [Vec<&Weighted>; 2]> = BTreeMap::new();
    for (number, folded) in folded.iter().enumerate() {
        for (trace, rows) in by_trace(&folded.rows) {
            traces.entry(trace).or_default()[number] = rows;
        }
    }
    for (trace, rows) in traces {
        let tree = session.forest().passing_tree(trace)?;
        let of_trace = groups.of_trace(&tree);
        measured.values.resize_with(groups.len(), Default::default);
        for (number, side) in sides.iter().enumerate() {
            let rows = &rows[number];
            for (replicate, rows) in divided(side, &folded[number], rows.iter().copied()) {
                if is_counted {
                    let samples = rows.iter().map(|row| Weighted {
                        weight: row.samples.into(),
                        ..**row
                    });
                    let samples: Vec<Weighted> = samples.collect();
                    for (group, samples) in of_trace.weigh(samples.iter()) {
                        let count = measured.values[group][number].count.get_or_insert_default();
                        count.add(replicate, samples.own as f64);
                    }
                }
                for (group, weight) in of_trace.weigh(rows.into_iter()) {
                    let values = &mut measured.values[group][number];
                    values.own.add(replicate, weight.own as f64);
                    values.total.add(replicate, weight.total as f64);
                    measured.weights[number][replicate] += weight.own as f64;
                }
            }
            if by == Frame::Function {
                link(&of_trace, rows, &mut links.sides[number]);
            }
        }
    }
    measured.values.resize_with(groups.len(), Default::default);
    measured.keys = groups
        .into_names()
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

/// Adds the weight of each caller's calls in a trace.
fn link(groups: &TraceGroups<'_>, rows: &[&Weighted], links: &mut HashMap<(usize, usize), f64>) {
    let tree = groups.tree;
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
            let caller = groups.of_frame(frame);
            if let Some(callee) = callee.filter(|&callee| callee != caller) {
                *links.entry((caller, callee)).or_default() += weight;
            }
            callee = Some(caller);
        }
    }
}

/// Compares whole stacks, root first: `main;read;vfs_read`.
fn stacks(
    session: &Session,
    sides: &[Side; 2],
    folded: &[Folded],
    is_counted: bool,
    measured: &mut Measured,
) -> Result<()> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (number, side) in sides.iter().enumerate() {
        for (trace, rows) in by_trace(&folded[number].rows) {
            let tree = session.forest().passing_tree(trace)?;
            let mut known: HashMap<(u32, u32), usize> = HashMap::new();
            for (replicate, rows) in divided(side, &folded[number], rows) {
                for row in rows {
                    let stack = *known.entry((row.kernel, row.user)).or_insert_with(|| {
                        let text = path(&tree, row);
                        let next = numbers.len();
                        let stack = *numbers.entry(text.clone()).or_insert(next);
                        if stack == next {
                            measured.keys.push(Key::of(text));
                            measured.values.push(Default::default());
                        }
                        stack
                    });
                    let values = &mut measured.values[stack][number];
                    values.own.add(replicate, row.weight as f64);
                    values.total.add(replicate, row.weight as f64);
                    if is_counted {
                        let count = values.count.get_or_insert_default();
                        count.add(replicate, row.samples as f64);
                    }
                    measured.weights[number][replicate] += row.weight as f64;
                }
            }
        }
    }
    measured.settle();
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
            let places = Replicated::read(session, side, batch.column(1))?;
            let (weights, counts) = (totals::read(batch.column(2))?, integers(&batch, 3)?);
            for row in 0..batch.num_rows() {
                let count = counts.value(row).max(0) as f64;
                measured.counts[number] += counts.value(row).unsigned_abs();
                let Some(replicate) = places.of(row) else {
                    continue;
                };
                let name = names.is_valid(row).then(|| names.value(row));
                let name = name.unwrap_or("[unknown]").to_owned();
                let key = add_key(&mut measured, &mut numbers, Key::of(name));
                let weight = totals::weight(&weights, row) as f64;
                let values = &mut measured.values[key][number];
                values.own.add(replicate, weight);
                values.total.add(replicate, weight);
                values.count.get_or_insert_default().add(replicate, count);
                measured.weights[number][replicate] += weight;
            }
        }
    }
    measured.settle();
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
            let places = Replicated::read(session, side, batch.column(2))?;
            let (all, known) = (integers(&batch, 3)?, integers(&batch, 4)?);
            let (total, own) = (
                totals::read(batch.column(5))?,
                totals::read(batch.column(6))?,
            );
            for (row, key) in keys.into_iter().enumerate() {
                measured.counts[number] += all.value(row).unsigned_abs();
                let Some(replicate) = places.of(row) else {
                    continue;
                };
                let key = add_key(&mut measured, &mut numbers, key);
                let values = &mut measured.values[key][number];
                let known = known.value(row).max(0) as f64;
                values.count.get_or_insert_default().add(replicate, known);
                let total = totals::weight(&total, row) as f64;
                values.total.add(replicate, total);
                values.sum.add(replicate, total);
                let own = totals::weight(&own, row) as f64;
                values.own.add(replicate, own);
                measured.weights[number][replicate] += own;
            }
        }
        measured.settle();
        if table == "calls" {
            for ((name, part), time) in nested_times(session, side, columns)? {
                let key = numbers.get(&key_of(&name));
                if let (Some(&key), Some(replicate)) = (key, replicate_of(side, &part)) {
                    let total = &mut measured.values[key][number].total;
                    total.subtract(replicate, time as f64);
                }
            }
        }
        // The percentiles of a recording are computed over all its slices.
        let sql = include_str!("call_percentiles.sql")
            .replace("{key}", key)
            .replace("{module}", module)
            .replace("{table}", table)
            .replace("{replicate}", side.run(session))
            .replace("{where}", &side.condition);
        // The percentiles of two clones do not give those of the function.
        let mut clones: HashMap<(usize, usize), Option<[Option<f64>; 3]>> = HashMap::new();
        for batch in session.collect(&sql)? {
            let keys = call_keys(&batch)?;
            let places = Replicated::of_runs(session, side, batch.column(2))?;
            let columns: Vec<_> = (3..6)
                .map(|column| cast(batch.column(column), &DataType::Float64))
                .collect::<Result<_, _>>()?;
            for (row, key) in keys.into_iter().enumerate() {
                let (Some(&key), Some(run)) = (numbers.get(&key), places.of(row)) else {
                    continue;
                };
                let mut found = [None; 3];
                for (found, column) in found.iter_mut().zip(&columns) {
                    let column = column.as_primitive::<Float64Type>();
                    *found = column.is_valid(row).then(|| column.value(row));
                }
                clones
                    .entry((key, run))
                    .and_modify(|known| *known = None)
                    .or_insert(Some(found));
            }
        }
        for ((key, run), found) in clones {
            let percentiles = &mut measured.values[key][number].percentiles;
            for (percentile, found) in percentiles.iter_mut().zip(found.unwrap_or_default()) {
                if let Some(found) = found {
                    percentile.add(run, found);
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

/// Time of calls inside other calls of the same key on that side, by the key's name, trace and slice.
fn nested_times(session: &Session, side: &Side, columns: [&str; 2]) -> Result<Nested> {
    let slice: Vec<String> = side.key().into_iter().collect();
    let calls = Recursion {
        condition: &side.condition,
        has_holes: true,
        name: &recursion::name_of(&columns),
        by_trace: true,
        parts: &slice,
    };
    let rename = |name: &str| {
        let Key { name, module, .. } = key_of(name);
        recursion::name(&[Some(&name), module.as_deref()])
    };
    recursion::nested(session, calls, &rename)
}

/// The run or slice of a part of [`nested_times`].
fn replicate_of(side: &Side, part: &[i64]) -> Option<usize> {
    let (trace, slice) = part.split_first()?;
    let slice = slice.first().map(i64::to_string);
    side.replicate(slice.as_deref(), usize::try_from(*trace).ok()?)
}

fn key_of(text: &str) -> Key {
    let mut values = recursion::values(text);
    let mut next = || values.next().flatten().map(str::to_owned);
    let (name, module) = (next(), next());
    call_key(name, module)
}

/// Returns the number of a key; a new key starts with zeros.
fn add_key(measured: &mut Measured, numbers: &mut HashMap<Key, usize>, key: Key) -> usize {
    if let Some(&known) = numbers.get(&key) {
        return known;
    }
    let number = measured.keys.len();
    measured.keys.push(key.clone());
    measured
        .values
        .push([Values::zero(true), Values::zero(true)]);
    numbers.insert(key, number);
    number
}

fn integers(batch: &RecordBatch, column: usize) -> Result<Int64Array> {
    let numbers = cast(batch.column(column), &DataType::Int64)?;
    Ok(numbers.as_primitive::<Int64Type>().clone())
}
