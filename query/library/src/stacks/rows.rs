//! The stacks of a query's rows, merged into boxes.
//!
//! ```text
//! SELECT comm, user_stack, kernel_stack, sum(duration) FROM off_cpu GROUP BY 1, 2, 3
//! ```
//! The last column is the weight; the others are, from the outermost frame inward, IDs of stacks and texts, folded (`main;read`) or
//! a single name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Array, ArrayRef, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, Schema};

use super::{Forest, Tree, Walk, ids};
use crate::stacks::strings;

/// A tree of boxes, which grows with the stacks of rows. Box 0 is the common root.
pub trait Boxes {
    /// Returns the label of each frame, by its ID.
    fn labels(&mut self, tree: &Tree) -> Vec<u32>;

    /// Returns the box of a frame on top of another box.
    fn frame(&mut self, below: u32, label: u32) -> u32;

    /// Returns the box of a name on top of another box. Names before stacks are groups: threads or devices, not functions.
    fn name(&mut self, below: u32, name: &str, is_group: bool) -> u32;
}

/// Columns of stacks and texts.
pub struct StackColumns(Vec<Column>);

enum Column {
    Stacks(Int64Array),
    Texts {
        names: StringViewArray,
        are_groups: bool,
    },
}

impl StackColumns {
    /// Checks that the last column can be a weight, and the others stacks or texts.
    pub fn check(schema: &Schema) -> Result<(), String> {
        let expected = "expected columns of stacks or texts, then a weight";
        let Some((weight, stacks)) = schema.fields().split_last() else {
            return Err(expected.to_owned());
        };
        let is_stack = |kind: &DataType| kind.is_integer() || kind.is_string();
        match stacks.iter().find(|field| !is_stack(field.data_type())) {
            Some(other) => Err(format!("column {} is no stack: {expected}", other.name())),
            None if stacks.is_empty() => Err(expected.to_owned()),
            None if !weight.data_type().is_numeric() => {
                Err(format!("column {} is no weight: {expected}", weight.name()))
            }
            None => Ok(()),
        }
    }

    /// Reads all columns but that of the weight.
    pub fn read(columns: &[ArrayRef]) -> Result<StackColumns> {
        let is_stack = |column: &ArrayRef| column.data_type().is_integer();
        let last_stack = columns.iter().rposition(is_stack);
        let read = |(number, column): (usize, &ArrayRef)| {
            Ok(match is_stack(column) {
                true => Column::Stacks(ids(column)?),
                false => Column::Texts {
                    names: strings(column)?,
                    are_groups: last_stack.is_some_and(|last| number < last),
                },
            })
        };
        let columns = columns.iter().enumerate().map(read);
        Ok(StackColumns(columns.collect::<Result<_>>()?))
    }
}

/// Boxes, and the places of stacks among them.
#[derive(Debug)]
pub struct RowStacks<'f, B> {
    forest: &'f Forest,
    pub boxes: B,
    traces: HashMap<usize, TraceStacks>,
}

/// The stacks of one trace.
#[derive(Debug)]
struct TraceStacks {
    tree: Arc<Tree>,
    /// By frame ID.
    labels: Vec<u32>,
    walk: Walk,
}

impl<'f, B: Boxes> RowStacks<'f, B> {
    pub fn new(forest: &'f Forest, boxes: B) -> RowStacks<'f, B> {
        RowStacks {
            forest,
            boxes,
            traces: HashMap::new(),
        }
    }

    /// Returns the box of a row's innermost frame; the root if it has neither stacks nor names.
    pub fn place(&mut self, columns: &StackColumns, row: usize) -> Result<u32> {
        let mut place = 0;
        for column in &columns.0 {
            match column {
                Column::Stacks(ids) if ids.is_valid(row) => {
                    place = self.stack(place, ids.value(row))?;
                }
                Column::Texts { names, are_groups } if names.is_valid(row) => {
                    for name in names.value(row).split(';').filter(|name| !name.is_empty()) {
                        place = self.boxes.name(place, name, *are_groups);
                    }
                }
                Column::Stacks(_) | Column::Texts { .. } => {}
            }
        }
        Ok(place)
    }

    fn stack(&mut self, base: u32, id: i64) -> Result<u32> {
        let Some(trace) = self.forest.trace_of(id) else {
            return Ok(base);
        };
        let boxes = &mut self.boxes;
        let stacks = match self.traces.entry(trace) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let tree = self.forest.tree(trace)?;
                let labels = boxes.labels(&tree);
                new.insert(TraceStacks {
                    tree,
                    labels,
                    walk: Walk::default(),
                })
            }
        };
        let Some(node) = stacks.tree.node(id) else {
            return Ok(base);
        };
        let labels = &stacks.labels;
        let child = |below, frame: u32| boxes.frame(below, labels[frame as usize]);
        Ok(stacks.walk.place(&stacks.tree, base, node, child))
    }

    /// Size in bytes of the labels and places of stacks, without the boxes.
    pub fn bytes(&self) -> usize {
        let stacks = self.traces.values();
        stacks
            .map(|stacks| stacks.walk.bytes() + stacks.labels.len() * size_of::<u32>())
            .sum()
    }
}
