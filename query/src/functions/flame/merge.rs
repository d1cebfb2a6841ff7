//! Merges the stacks of rows by function, from the root.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};

use crate::stacks::{Forest, Tree, ids};
use crate::text::strings;

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

/// Merged stacks while rows are added.
#[derive(Debug)]
pub(super) struct Merging<'f> {
    forest: &'f Forest,
    /// Without the common root.
    pub(super) nodes: Vec<Node>,
    children: hashbrown::HashMap<(u32, u32), u32>,
    labels: Vec<Label>,
    label_of: HashMap<Label, u32>,
    /// Trees and the labels of their frames, by trace.
    trees: HashMap<usize, (Arc<Tree>, Vec<Option<u32>>)>,
    /// Positions of stacks: by trace, the merged node below, and the node of the tree.
    known: hashbrown::HashMap<(usize, u32, u32), u32>,
    text_bytes: usize,
}

/// A column of stacks or texts.
enum Part {
    Stack(Int64Array),
    Text(StringViewArray),
}

impl<'f> Merging<'f> {
    pub(super) fn new(forest: &'f Forest) -> Merging<'f> {
        Merging {
            forest,
            nodes: Vec::new(),
            children: hashbrown::HashMap::new(),
            labels: Vec::new(),
            label_of: HashMap::new(),
            trees: HashMap::new(),
            known: hashbrown::HashMap::new(),
            text_bytes: 0,
        }
    }

    /// Adds rows, whose last column is the weight. Rows without a weight add nothing.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let Some((weights, stacks)) = batch.columns().split_last() else {
            return Ok(());
        };
        let weights = Weights::of(weights)?;
        let mut parts = Vec::with_capacity(stacks.len());
        for column in stacks {
            parts.push(match column.data_type().is_integer() {
                true => Part::Stack(ids(column)?),
                false => Part::Text(strings(column)?),
            });
        }
        for row in 0..batch.num_rows() {
            let Some(weight) = weights.at(row) else {
                continue;
            };
            let mut place = 0;
            for part in &parts {
                match part {
                    Part::Stack(ids) if ids.is_valid(row) => {
                        place = self.stack(place, ids.value(row))?;
                    }
                    Part::Text(texts) if texts.is_valid(row) => {
                        for name in texts.value(row).split(';').filter(|name| !name.is_empty()) {
                            let label = self.label(name, None);
                            place = self.child(place, label);
                        }
                    }
                    Part::Stack(_) | Part::Text(_) => {}
                }
            }
            if place == 0 {
                let label = self.label(NO_STACK, None);
                place = self.child(0, label);
            }
            self.nodes[place as usize - 1].own += weight;
        }
        Ok(())
    }

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

    /// The node of a function below another node.
    fn child(&mut self, parent: u32, label: u32) -> u32 {
        let next = self.nodes.len() as u32 + 1;
        let place = *self.children.entry((parent, label)).or_insert(next);
        if place == next {
            let depth = match parent {
                0 => 1,
                parent => self.nodes[parent as usize - 1].depth.saturating_add(1),
            };
            self.nodes.push(Node {
                parent,
                depth,
                label,
                own: Weight::default(),
            });
        }
        place
    }

    /// The node of a stack on top of `base`.
    fn stack(&mut self, base: u32, id: i64) -> Result<u32> {
        let Some(trace) = self.forest.trace_of(id) else {
            return Ok(base);
        };
        let (tree, mut labels) = match self.trees.remove(&trace) {
            Some(known) => known,
            None => {
                let tree = self.forest.tree(trace)?;
                let labels = vec![None; tree.frames.len() + 1];
                (tree, labels)
            }
        };
        let place = self.stack_of_tree((trace, base), &tree, &mut labels, id);
        self.trees.insert(trace, (tree, labels));
        Ok(place)
    }

    fn stack_of_tree(
        &mut self,
        (trace, base): (usize, u32),
        tree: &Tree,
        labels: &mut [Option<u32>],
        id: i64,
    ) -> u32 {
        let Some(stack) = tree.node(id) else {
            return base;
        };
        // Down to a known node, then up again.
        let mut path = Vec::new();
        let (mut node, mut place) = (stack, base);
        while node != 0 {
            if let Some(&known) = self.known.get(&(trace, base, node)) {
                place = known;
                break;
            }
            path.push(node);
            node = tree.parent(node);
        }
        let mut frames = Vec::new();
        for &node in path.iter().rev() {
            frames.clear();
            frames.extend(tree.frames_of_node(node));
            for &frame in frames.iter().rev() {
                let label = labels[frame as usize].unwrap_or_else(|| {
                    let name = tree.frames.name(frame);
                    self.label(&name, tree.frames.module(frame))
                });
                labels[frame as usize] = Some(label);
                place = self.child(place, label);
            }
            self.known.insert((trace, base, node), place);
        }
        place
    }

    /// Numbers the nodes depth first, callees by name: the numbers do not depend on the order of the rows, which differs between
    /// runs. Ends the merging.
    pub(super) fn sort(&mut self) {
        let mut callees = vec![Vec::new(); self.nodes.len() + 1];
        for (place, node) in (1u32..).zip(&self.nodes) {
            callees[node.parent as usize].push(place);
        }
        let label = |place: &u32| &self.labels[self.nodes[*place as usize - 1].label as usize];
        for callees in &mut callees {
            // The next one is taken from the end.
            callees.sort_by(|a, b| label(b).cmp(label(a)));
        }
        let mut sorted: Vec<Node> = Vec::with_capacity(self.nodes.len());
        let mut waiting: Vec<(u32, u32)> = callees[0].iter().map(|&place| (place, 0)).collect();
        while let Some((place, parent)) = waiting.pop() {
            let node = &self.nodes[place as usize - 1];
            sorted.push(Node { parent, ..*node });
            let number = sorted.len() as u32;
            waiting.extend(
                callees[place as usize]
                    .iter()
                    .map(|&callee| (callee, number)),
            );
        }
        self.nodes = sorted;
        self.children.clear();
        self.known.clear();
    }

    /// Function and module of a node.
    pub(super) fn names(&self, node: &Node) -> (&str, Option<&str>) {
        let (name, module) = &self.labels[node.label as usize];
        (name, module.as_deref())
    }

    /// Weights of the nodes with all that is above them.
    pub(super) fn totals(&self) -> Vec<Weight> {
        let mut totals: Vec<Weight> = self.nodes.iter().map(|node| node.own).collect();
        for place in (0..totals.len()).rev() {
            let parent = self.nodes[place].parent;
            if parent != 0 {
                let weight = totals[place];
                totals[parent as usize - 1] += weight;
            }
        }
        totals
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.children.capacity() * 16
            + self.known.capacity() * 32
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
