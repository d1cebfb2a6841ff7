//! Merges the stacks that a query returns.
//!
//! ```text
//! SELECT comm, user_stack, kernel_stack, sum(duration) FROM off_cpu GROUP BY 1, 2, 3
//! ```
//! The last column is the weight; the others are, from the outermost frame inward, IDs of stacks and texts, folded (`main;read`) or
//! a single name.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Schema};

use super::labels::{Naming, clean};
use super::merge::{Incomplete, Merge, Shape};
use crate::render::flame::{FlameTree, Kind, Label};
use crate::stacks::{Forest, Tree, ids};
use crate::text::strings;

/// The stacks of a query while they are read.
pub(crate) struct RowStacks<'f> {
    forest: &'f Forest,
    merge: Merge,
    /// Trees and the labels of their frames, by trace.
    trees: HashMap<usize, (Arc<Tree>, Vec<u32>)>,
    /// Positions of stacks: by trace, the merged node below, and the node of the tree.
    known: hashbrown::HashMap<(usize, u32, u32), u32>,
    pub(crate) rows: u64,
    pub(crate) weight: u128,
    /// Rows whose weight is NULL or below 0.
    pub(crate) without_weight: u64,
}

/// A column of stacks or texts.
enum Part {
    Stack(Int64Array),
    /// With the kind of its boxes.
    Text(StringViewArray, Kind),
}

fn is_text(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

impl<'f> RowStacks<'f> {
    pub(crate) fn new(forest: &'f Forest) -> RowStacks<'f> {
        let merge = Merge::new(Shape {
            naming: Naming::Functions,
            across_builds: false,
            is_reversed: false,
            incomplete: Incomplete::Kept,
            before: None,
        });
        RowStacks {
            forest,
            merge,
            trees: HashMap::new(),
            known: hashbrown::HashMap::new(),
            rows: 0,
            weight: 0,
            without_weight: 0,
        }
    }

    /// Checks the columns of the query.
    pub(crate) fn check(schema: &Schema) -> Result<(), String> {
        let expected = "expected one or more columns of stacks or texts, then a weight, such as SELECT user_stack, kernel_stack, sum(duration)";
        let Some((weight, stacks)) = schema.fields().split_last() else {
            return Err(expected.to_owned());
        };
        let is_stack = |kind: &DataType| kind.is_integer() || is_text(kind);
        match stacks.iter().find(|field| !is_stack(field.data_type())) {
            _ if stacks.is_empty() => Err(expected.to_owned()),
            Some(other) => Err(format!("column {} is no stack: {expected}", other.name())),
            None if !weight.data_type().is_numeric() => {
                Err(format!("column {} is no weight: {expected}", weight.name()))
            }
            None => Ok(()),
        }
    }

    /// Adds rows.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let Some((weights, stacks)) = batch.columns().split_last() else {
            return Ok(());
        };
        let weights = cast(weights, &DataType::Float64)?;
        let weights = weights.as_primitive::<Float64Type>();
        let mut parts = Vec::with_capacity(stacks.len());
        for (number, column) in stacks.iter().enumerate() {
            let is_below_stacks = |column: &arrow::array::ArrayRef| column.data_type().is_integer();
            parts.push(match column.data_type().is_integer() {
                true => Part::Stack(ids(column)?),
                false => {
                    // Names before stacks are those of threads or devices, not of functions.
                    let is_group = stacks[number..].iter().any(is_below_stacks);
                    let kind = if is_group {
                        Kind::Group
                    } else {
                        Kind::Function
                    };
                    Part::Text(strings(column)?, kind)
                }
            });
        }
        for row in 0..batch.num_rows() {
            self.rows += 1;
            let weight = weights.is_valid(row).then(|| weights.value(row));
            let Some(weight) = weight.filter(|weight| *weight >= 0.0) else {
                self.without_weight += 1;
                continue;
            };
            let mut place = 0;
            for part in &parts {
                match part {
                    Part::Stack(ids) if ids.is_valid(row) => {
                        place = self.stack(place, ids.value(row))?;
                    }
                    Part::Text(texts, kind) if texts.is_valid(row) => {
                        for name in texts.value(row).split(';').filter(|name| !name.is_empty()) {
                            let label = self.merge.label(Label::new(clean(name), *kind));
                            place = self.merge.child(place, label);
                        }
                    }
                    Part::Stack(_) | Part::Text(..) => {}
                }
            }
            let weight = weight.round() as u128;
            self.weight += weight;
            self.merge.tree.nodes[place as usize].own += weight;
        }
        Ok(())
    }

    fn stack(&mut self, base: u32, id: i64) -> anyhow::Result<u32> {
        let Some(trace) = self.forest.trace_of(id) else {
            return Ok(base);
        };
        if !self.trees.contains_key(&trace) {
            let tree = self.forest.tree(trace)?;
            let labels = self.merge.labels_of_frames(&tree);
            self.trees.insert(trace, (tree, labels));
        }
        let Some((tree, labels)) = self.trees.get(&trace) else {
            return Ok(base);
        };
        let Some(stack) = tree.node(id) else {
            return Ok(base);
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
                place = self.merge.child_of_frame(place, labels[frame as usize]);
            }
            self.known.insert((trace, base, node), place);
        }
        Ok(place)
    }

    /// Returns the merged stacks.
    pub(crate) fn merged(self) -> FlameTree {
        self.merge.tree
    }
}
