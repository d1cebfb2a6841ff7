//! Merges the stacks of rows by function, from the root.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};

use crate::stacks::{Boxes, RowStacks, StackColumns, Tree};

/// The function of rows without a stack.
const NO_STACK: &str = "[no stack]";

/// A function below its callers. Each node follows its parent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// 0 is the common root.
    pub(super) parent: u32,
    pub(super) depth: i32,
    /// Index of the label.
    label: u32,
    /// Weight of the stacks that end here.
    pub(super) own: Weight,
}

/// A sum of integers or of floating-point numbers; the other is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Weight {
    pub(super) integer: i128,
    pub(super) float: f64,
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        self.integer = self.integer.saturating_add(other.integer);
        self.float += other.float;
    }
}

type Label = (String, Option<String>);

/// Functions below their callers, while rows are added.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Without the common root.
    pub(super) all: Vec<Node>,
    children: hashbrown::HashMap<(u32, u32), u32>,
    labels: Vec<Label>,
    label_of: HashMap<Label, u32>,
    text_bytes: usize,
}

/// Adds rows, whose last column is the weight. Rows without a weight add nothing.
pub(super) fn add(stacks: &mut RowStacks<'_, Nodes>, batch: &RecordBatch) -> Result<()> {
    let Some((weights, columns)) = batch.columns().split_last() else {
        return Ok(());
    };
    let weights = Weights::of(weights)?;
    let columns = StackColumns::read(columns)?;
    for row in 0..batch.num_rows() {
        let Some(weight) = weights.at(row) else {
            continue;
        };
        let place = match stacks.place(&columns, row)? {
            0 => stacks.boxes.name(0, NO_STACK, false),
            place => place,
        };
        stacks.boxes.all[place as usize - 1].own += weight;
    }
    Ok(())
}

impl Boxes for Nodes {
    fn labels(&mut self, tree: &Tree) -> Vec<u32> {
        let frames = &tree.frames;
        let mut labels = vec![0];
        for frame in 1..=frames.len() as u32 {
            let first = frames.same_function(frame);
            labels.push(match first < frame {
                true => labels[first as usize],
                false => self.label(&frames.name(frame), frames.module(frame)),
            });
        }
        labels
    }

    fn frame(&mut self, below: u32, label: u32) -> u32 {
        let next = self.all.len() as u32 + 1;
        let place = *self.children.entry((below, label)).or_insert(next);
        if place == next {
            let depth = match below {
                0 => 1,
                below => self.all[below as usize - 1].depth.saturating_add(1),
            };
            self.all.push(Node {
                parent: below,
                depth,
                label,
                own: Weight::default(),
            });
        }
        place
    }

    fn name(&mut self, below: u32, name: &str, _: bool) -> u32 {
        let label = self.label(name, None);
        self.frame(below, label)
    }
}

impl Nodes {
    fn label(&mut self, name: &str, module: Option<&str>) -> u32 {
        let label = (name.to_owned(), module.map(str::to_owned));
        if let Some(&known) = self.label_of.get(&label) {
            return known;
        }
        let next = self.labels.len() as u32;
        self.text_bytes += 2 * (name.len() + module.map_or(0, str::len));
        self.labels.push(label.clone());
        self.label_of.insert(label, next);
        next
    }

    /// Numbers the nodes depth first, callees by name: the numbers do not depend on the order of the rows, which differs between
    /// runs. Ends the merging.
    pub(super) fn sort(&mut self) {
        let mut callees = vec![Vec::new(); self.all.len() + 1];
        for (place, node) in (1u32..).zip(&self.all) {
            callees[node.parent as usize].push(place);
        }
        let label = |place: &u32| &self.labels[self.all[*place as usize - 1].label as usize];
        for callees in &mut callees {
            // The next one is taken from the end.
            callees.sort_by(|a, b| label(b).cmp(label(a)));
        }
        let mut sorted: Vec<Node> = Vec::with_capacity(self.all.len());
        let mut waiting: Vec<(u32, u32)> = callees[0].iter().map(|&place| (place, 0)).collect();
        while let Some((place, parent)) = waiting.pop() {
            let node = &self.all[place as usize - 1];
            sorted.push(Node { parent, ..*node });
            let number = sorted.len() as u32;
            waiting.extend(
                callees[place as usize]
                    .iter()
                    .map(|&callee| (callee, number)),
            );
        }
        self.all = sorted;
        self.children.clear();
    }

    /// Function and module of a node.
    pub(super) fn names(&self, node: &Node) -> (&str, Option<&str>) {
        let (name, module) = &self.labels[node.label as usize];
        (name, module.as_deref())
    }

    /// Weights of the nodes with all that is above them.
    pub(super) fn totals(&self) -> Vec<Weight> {
        let mut totals: Vec<Weight> = self.all.iter().map(|node| node.own).collect();
        for place in (0..totals.len()).rev() {
            let parent = self.all[place].parent;
            if parent != 0 {
                let weight = totals[place];
                totals[parent as usize - 1] += weight;
            }
        }
        totals
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Node>()
            + self.children.capacity() * 16
            + self.labels.capacity() * 2 * size_of::<Label>()
            + self.text_bytes
    }
}

/// A column of weights.
enum Weights {
    Integers(arrow::array::Decimal128Array),
    Floats(arrow::array::Float64Array),
}

impl Weights {
    fn of(column: &ArrayRef) -> Result<Weights> {
        Ok(match is_exact(column.data_type()) {
            true => {
                let column = cast(column, &DataType::Decimal128(38, 0))?;
                Weights::Integers(column.as_primitive::<Decimal128Type>().clone())
            }
            false => {
                let column = cast(column, &DataType::Float64)?;
                Weights::Floats(column.as_primitive::<Float64Type>().clone())
            }
        })
    }

    fn at(&self, row: usize) -> Option<Weight> {
        match self {
            Weights::Integers(values) => values.is_valid(row).then(|| Weight {
                integer: values.value(row),
                float: 0.0,
            }),
            Weights::Floats(values) => values.is_valid(row).then(|| Weight {
                integer: 0,
                float: values.value(row),
            }),
        }
    }
}

/// Whether sums of values of this type are integers.
pub(super) fn is_exact(kind: &DataType) -> bool {
    match kind {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale == 0,
        kind => kind.is_integer(),
    }
}
