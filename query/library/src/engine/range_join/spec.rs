//! The specification of a range join, and its current rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;

use super::super::gather::Place;

pub(super) const LEFT: usize = 0;
pub(super) const RIGHT: usize = 1;
/// Both sides.
pub(super) const SIDES: [usize; 2] = [LEFT, RIGHT];

/// One side of the join.
#[derive(Debug, Clone)]
pub(super) struct Side {
    pub(super) start: Arc<dyn PhysicalExpr>,
    pub(super) end: Arc<dyn PhysicalExpr>,
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns that the result or the filter needs, as indexes of the input.
    pub(super) needed: Vec<usize>,
    /// The same columns.
    pub(super) schema: SchemaRef,
}

/// A column of a side: the side, and the index among its needed columns.
pub(super) type SideColumn = (usize, usize);

/// A condition on pairs in addition to ranges and keys.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    pub(super) expr: Arc<dyn PhysicalExpr>,
    pub(super) columns: Vec<SideColumn>,
    pub(super) schema: SchemaRef,
}

/// The specification of a join.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) kind: JoinType,
    pub(super) sides: [Side; 2],
    /// Whether a range may start exactly where one of the other side ends.
    pub(super) touching: [bool; 2],
    pub(super) null_is_key: bool,
    pub(super) filter: Option<Filter>,
    pub(super) output: Vec<SideColumn>,
    pub(super) schema: SchemaRef,
    /// The side that is swept first where starts are equal.
    pub(super) first: usize,
    pub(super) batch_size: usize,
}

impl Spec {
    /// Whether rows of a side that have matched differ from the others in the result.
    pub(super) fn tracks(&self, side: usize) -> bool {
        use JoinType::*;
        match self.kind {
            Left | LeftSemi | LeftAnti => side == LEFT,
            Right | RightSemi | RightAnti => side == RIGHT,
            Full => true,
            Inner | LeftMark | RightMark => false,
        }
    }

    /// Whether rows of a side that never match are in the result.
    pub(super) fn shows_unmatched(&self, side: usize) -> bool {
        self.tracks(side) && !self.is_semi()
    }

    pub(super) fn is_semi(&self) -> bool {
        matches!(self.kind, JoinType::LeftSemi | JoinType::RightSemi)
    }

    pub(super) fn shows_pairs(&self) -> bool {
        use JoinType::*;
        matches!(self.kind, Inner | Left | Right | Full)
    }
}

/// An open range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) place: Place,
}

/// The batch of a side that is being swept.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) block: u32,
    pub(super) starts: ScalarBuffer<i64>,
    pub(super) ends: ScalarBuffer<i64>,
    /// Rows without a start or an end match nothing.
    pub(super) valid: Option<NullBuffer>,
    pub(super) keys: Vec<u32>,
    pub(super) row: usize,
    /// Rows so far that need not stay.
    pub(super) dropped: usize,
}

/// Rows of a side with their ranges.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) columns: Vec<ArrayRef>,
    pub(super) starts: ScalarBuffer<i64>,
    pub(super) ends: ScalarBuffer<i64>,
    pub(super) valid: Option<NullBuffer>,
    pub(super) keys: Vec<u32>,
}

impl Current {
    /// Whether the current row has a range.
    #[inline]
    pub(super) fn is_valid(&self) -> bool {
        self.valid
            .as_ref()
            .is_none_or(|valid| valid.is_valid(self.row))
    }
}

/// Rows of one side that match nothing, as rows of the result.
pub(super) fn unmatched(
    spec: &Spec,
    side: usize,
    columns: &[ArrayRef],
    rows: usize,
) -> Result<RecordBatch> {
    let shown = spec.output.iter().zip(spec.schema.fields());
    let shown = shown.map(|(&(of, column), field)| match of == side {
        true => Arc::clone(&columns[column]),
        false => new_null_array(field.data_type(), rows),
    });
    batch_of(&spec.schema, shown.collect(), rows)
}

/// A batch, also without columns.
pub(super) fn batch_of(
    schema: &Arc<Schema>,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::clone(schema);
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}
