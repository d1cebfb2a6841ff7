//! Table function `stack_frames()`: every frame of every stack, leaf first.
//!
//! ```text
//! stack_id | position | frame_id | recursion | function | module | …
//!        3 |        0 |        7 |         0 | vfs_read | [kernel]
//!        3 |        1 |        2 |         0 | main     | /bin/dd
//! SELECT f.function, count(*) FROM samples s JOIN stack_frames() f ON f.stack_id = s.user_stack GROUP BY 1
//! ```
//! Each frame occurs once per stack. Two addresses in one function are two frames: `WHERE recursion = 0` counts the
//! function once. With an ID, `stack_frames(3)`, only that stack. Rows are generated on demand.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringViewArray, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

use super::Function;
use crate::engine::{Leaf, LeafExec};
use crate::stacks::{Forest, Frames, Seen, Tree};

pub(super) const FUNCTION: Function = Function {
    usage: "stack_frames([stack_id])",
    about: "table of all frames of all stacks, leaf first: JOIN stack_frames() f ON f.stack_id = user_stack",
    register: |context, forest| {
        let function = StackFrames {
            forest: Arc::clone(forest),
        };
        context.register_udtf("stack_frames", Arc::new(function));
    },
};

#[derive(Debug)]
struct StackFrames {
    forest: Arc<Forest>,
}

impl TableFunctionImpl for StackFrames {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let only = match args.exprs() {
            [] => None,
            [Expr::Literal(value, _)] => {
                let id = value.cast_to(&DataType::Int64)?.to_array()?;
                let id = id.as_primitive::<Int64Type>();
                Some(if id.is_valid(0) {
                    vec![id.value(0)]
                } else {
                    Vec::new()
                })
            }
            _ => {
                let text = "stack_frames: expected no argument or one stack_id\nhint: for the stacks of a column, use JOIN stack_frames() f ON f.stack_id = user_stack";
                return Err(DataFusionError::Plan(text.to_owned()));
            }
        };
        // The same type as in the tables.
        let id = match self.forest.len() {
            1 => DataType::Int32,
            _ => DataType::Int64,
        };
        let mut fields = vec![
            Field::new("stack_id", id.clone(), false),
            Field::new("position", DataType::Int32, false),
            Field::new("frame_id", id, false),
            Field::new("recursion", DataType::Int32, false),
        ];
        fields.extend(Frames::columns());
        if self.forest.len() > 1 {
            fields.push(Field::new("trace", DataType::Utf8View, false));
        }
        let schema = Arc::new(Schema::new(fields));
        let forest = Arc::clone(&self.forest);
        Ok(Arc::new(FramesTable {
            forest,
            schema,
            only,
        }))
    }
}

#[derive(Debug)]
struct FramesTable {
    forest: Arc<Forest>,
    schema: SchemaRef,
    /// IDs given as argument.
    only: Option<Vec<i64>>,
}

#[async_trait]
impl TableProvider for FramesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match wanted_ids(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut only: Option<HashSet<i64>> =
            self.only.as_ref().map(|ids| ids.iter().copied().collect());
        for wanted in filters.iter().filter_map(wanted_ids) {
            match &mut only {
                Some(only) => only.retain(|id| wanted.contains(id)),
                None => only = Some(wanted.into_iter().collect()),
            }
        }
        let mut pieces = Vec::new();
        for trace in 0..self.forest.len() {
            let tree = self
                .forest
                .tree(trace)
                .map_err(|error| DataFusionError::External(error.into()))?;
            let stacks: Vec<u32> = match &only {
                Some(only) => only
                    .iter()
                    .filter_map(|&id| tree.node(id))
                    .filter(|&node| node != 0)
                    .collect(),
                None => (1..tree.len() as u32).collect(),
            };
            let per_piece = stacks
                .len()
                .div_ceil(state.config().target_partitions())
                .max(4096);
            for stacks in stacks.chunks(per_piece) {
                let name = self.forest.name(trace).to_owned();
                pieces.push(Piece {
                    tree: Arc::clone(&tree),
                    name,
                    stacks: stacks.to_vec(),
                });
            }
        }
        if pieces.is_empty() {
            let tree = self
                .forest
                .tree(0)
                .map_err(|error| DataFusionError::External(error.into()))?;
            pieces.push(Piece {
                tree,
                name: String::new(),
                stacks: Vec::new(),
            });
        }
        let all = || (0..self.schema.fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(all);
        let projected = Arc::new(self.schema.project(&projection)?);
        let partitions = pieces.len();
        let scan = FramesScan {
            schema: Arc::clone(&self.schema),
            projection,
            pieces,
        };
        let equivalences = EquivalenceProperties::new(projected);
        Ok(LeafExec::plan(scan, equivalences, partitions))
    }
}

/// The IDs in `stack_id = 3` or `stack_id IN (3, 5)`.
fn wanted_ids(filter: &Expr) -> Option<Vec<i64>> {
    let is_id = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == "stack_id");
    let number = |expr: &Expr| match expr {
        Expr::Literal(value, _) => {
            let value = value.cast_to(&DataType::Int64).ok()?.to_array().ok()?;
            let value = value.as_primitive::<Int64Type>();
            value.is_valid(0).then(|| value.value(0))
        }
        _ => None,
    };
    match filter {
        Expr::BinaryExpr(binary) if binary.op == Operator::Eq => {
            if is_id(&binary.left) {
                Some(vec![number(&binary.right)?])
            } else if is_id(&binary.right) {
                Some(vec![number(&binary.left)?])
            } else {
                None
            }
        }
        Expr::InList(list) if !list.negated && is_id(&list.expr) => {
            list.list.iter().map(number).collect()
        }
        _ => None,
    }
}

/// Stacks expanded by one thread.
#[derive(Debug, Clone)]
struct Piece {
    tree: Arc<Tree>,
    name: String,
    stacks: Vec<u32>,
}

#[derive(Debug)]
struct FramesScan {
    schema: SchemaRef,
    projection: Vec<usize>,
    pieces: Vec<Piece>,
}

impl FramesScan {
    fn stack_count(&self, partition: Option<usize>) -> usize {
        let pieces = match partition {
            Some(index) => &self.pieces[index..=index],
            None => &self.pieces[..],
        };
        pieces.iter().map(|piece| piece.stacks.len()).sum()
    }
}

impl Leaf for FramesScan {
    const NAME: &'static str = "FramesScan";
    const EMISSION: EmissionType = EmissionType::Incremental;

    fn describe(&self, _: &SchemaRef, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stacks={}", self.stack_count(None))
    }

    fn row_count(&self, partition: Option<usize>) -> Precision<usize> {
        // Frames per stack are not counted in advance.
        const GUESS: usize = 16;
        Precision::Inexact(self.stack_count(partition) * GUESS)
    }

    fn rows(
        &self,
        partition: usize,
        schema: SchemaRef,
        _: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let piece = &self.pieces[partition];
        let frames = piece.tree.frames.len() + 1;
        let batches = Batches {
            schema: Arc::clone(&self.schema),
            projection: self.projection.clone(),
            seen: Seen::new(frames),
            piece: piece.clone(),
            next: 0,
            recursion: Recursion::new(frames),
        };
        let stream = futures::stream::iter(batches);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

/// Expands a range of stacks, a few thousand rows at a time.
struct Batches {
    schema: SchemaRef,
    projection: Vec<usize>,
    piece: Piece,
    next: usize,
    seen: Seen,
    recursion: Recursion,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        const ROWS: usize = 8192;
        if self.next == self.piece.stacks.len() {
            return None;
        }
        let tree = Arc::clone(&self.piece.tree);
        let (mut stack_ids, mut positions, mut frame_ids, mut recursions) =
            (vec![], vec![], vec![], vec![]);
        let mut frames = Vec::new();
        while let Some(&stack) = self.piece.stacks.get(self.next) {
            tree.frames_of_stack(stack, &mut self.seen, &mut frames);
            self.recursion.seen.forget();
            for (position, &frame) in frames.iter().enumerate() {
                stack_ids.push(stack as i32);
                positions.push(position as i32);
                frame_ids.push(frame as i32);
                recursions.push(self.recursion.count(tree.frames.same_function(frame)));
            }
            self.next += 1;
            if stack_ids.len() >= ROWS {
                break;
            }
        }
        Some(self.batch(stack_ids, positions, frame_ids, recursions))
    }
}

impl Batches {
    fn batch(
        &self,
        stack_ids: Vec<i32>,
        positions: Vec<i32>,
        frame_ids: Vec<i32>,
        recursions: Vec<i32>,
    ) -> Result<RecordBatch> {
        let rows: UInt32Array = frame_ids.iter().map(|&frame| frame as u32 - 1).collect();
        let count = rows.len();
        // Only the requested name columns are gathered.
        let own = 4;
        let all = &self.piece.tree.frames.batch;
        let number = |values: &Vec<i32>| Arc::new(Int32Array::from(values.clone())) as ArrayRef;
        let id = |column: usize, values: &Vec<i32>| match self.schema.field(column).data_type() {
            DataType::Int32 => number(values),
            _ => {
                let offset = self.piece.tree.id_offset;
                let ids = values.iter().map(|&value| offset + i64::from(value));
                Arc::new(ids.collect::<Int64Array>()) as ArrayRef
            }
        };
        let column = |column: usize| match column {
            0 => Ok(id(0, &stack_ids)),
            1 => Ok(number(&positions)),
            2 => Ok(id(2, &frame_ids)),
            3 => Ok(number(&recursions)),
            column if column < own + all.num_columns() => {
                take(all.column(column - own), &rows, None)
            }
            _ => {
                let names = std::iter::repeat_n(Some(&self.piece.name), count);
                Ok(Arc::new(names.collect::<StringViewArray>()) as ArrayRef)
            }
        };
        let columns: Result<Vec<ArrayRef>, _> =
            self.projection.iter().map(|&at| column(at)).collect();
        let schema = Arc::new(self.schema.project(&self.projection)?);
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(
            schema, columns?, &options,
        )?)
    }
}

/// Counts the occurrences of a function on the way from the leaf.
struct Recursion {
    seen: Seen,
    counts: Vec<i32>,
}

impl Recursion {
    fn new(frames: usize) -> Recursion {
        Recursion {
            seen: Seen::new(frames),
            counts: vec![0; frames],
        }
    }

    fn count(&mut self, function: u32) -> i32 {
        let count = &mut self.counts[function as usize];
        *count = if self.seen.is_new(function) {
            0
        } else {
            *count + 1
        };
        *count
    }
}
