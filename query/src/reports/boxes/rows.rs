//! The boxes of the stacks that a query returns.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};

use perfquet::stacks::{Boxes, Forest, RowStacks, StackColumns, Tree};

use super::labels::{Naming, clean};
use super::merge::{Incomplete, Merge, Shape};
use crate::render::flame::{FlameTree, Kind, Label};

/// The stacks of a query while they are read.
pub(crate) struct QueryStacks<'f> {
    stacks: RowStacks<'f, Merge>,
    pub(crate) rows: u64,
    pub(crate) weight: u128,
    /// Rows whose weight is NULL or below 0.
    pub(crate) without_weight: u64,
}

impl<'f> QueryStacks<'f> {
    pub(crate) fn new(forest: &'f Forest) -> QueryStacks<'f> {
        let merge = Merge::new(Shape {
            naming: Naming::Functions,
            across_builds: false,
            is_reversed: false,
            incomplete: Incomplete::Kept,
            before: None,
        });
        QueryStacks {
            stacks: RowStacks::new(forest, merge),
            rows: 0,
            weight: 0,
            without_weight: 0,
        }
    }

    /// Adds rows, whose last column is the weight.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let Some((weights, columns)) = batch.columns().split_last() else {
            return Ok(());
        };
        let weights = cast(weights, &DataType::Float64)?;
        let weights = weights.as_primitive::<Float64Type>();
        let columns = StackColumns::read(columns)?;
        for row in 0..batch.num_rows() {
            self.rows += 1;
            let weight = weights.is_valid(row).then(|| weights.value(row));
            let Some(weight) = weight.filter(|weight| *weight >= 0.0) else {
                self.without_weight += 1;
                continue;
            };
            let place = self.stacks.place(&columns, row)?;
            let weight = weight.round() as u128;
            self.weight += weight;
            self.stacks.boxes.tree.nodes[place as usize].own += weight;
        }
        Ok(())
    }

    /// Returns the merged stacks.
    pub(crate) fn merged(self) -> FlameTree {
        self.stacks.boxes.tree
    }
}

impl Boxes for Merge {
    fn labels(&mut self, tree: &Tree) -> Vec<u32> {
        self.labels_of_frames(tree)
    }

    fn frame(&mut self, below: u32, label: u32) -> u32 {
        self.child_of_frame(below, label)
    }

    fn name(&mut self, below: u32, name: &str, is_group: bool) -> u32 {
        let kind = match is_group {
            true => Kind::Group,
            false => Kind::Function,
        };
        let label = self.label(Label::new(clean(name), kind));
        self.child(below, label)
    }
}
