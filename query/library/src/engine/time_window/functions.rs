//! The window functions that need no sort by key, and what their plans say about them.
//!
//! ```text
//! lead(x, n, default), lag(x, n, default) [IGNORE NULLS for lag], row_number()
//! first_value(x)                          any frame from the first row to this one or beyond
//! last_value(x) IGNORE NULLS              ROWS from the first one to this one; without IGNORE NULLS it is x
//! sum(x), count(x), min(x), max(x)        ROWS or RANGE from the first one to this one, of 64-bit integers
//! ```

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::error::Result;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;
use datafusion::scalar::ScalarValue;

use super::super::integers::Integers;
use super::super::keys::Keys;
use super::running::Aggregate;

/// A function of the rows of one key in the order of time. `arg`: the index of its argument.
#[derive(Debug, Clone)]
pub(super) enum Function {
    /// The n-th row before, of those that count.
    Lag {
        arg: usize,
        n: usize,
        default: ArrayRef,
        skips_nulls: bool,
    },
    /// The n-th row after.
    Lead {
        arg: usize,
        n: usize,
        default: ArrayRef,
    },
    RowNumber,
    /// The first row, of those that count.
    First {
        arg: usize,
        skips_nulls: bool,
    },
    /// The latest row that is not NULL, up to this one.
    Latest {
        arg: usize,
    },
    /// This row.
    Same {
        arg: usize,
    },
    /// All rows up to this one; `with_peers`: and those of the same time.
    Running {
        arg: usize,
        aggregate: Aggregate,
        with_peers: bool,
    },
}

/// A column of the result.
#[derive(Debug, Clone)]
pub(super) struct WindowColumn {
    pub(super) function: Function,
    /// Index of its keys.
    pub(super) keying: usize,
    pub(super) field: FieldRef,
    /// DataFusion's expression of this column.
    pub(super) original: Arc<dyn WindowExpr>,
}

/// All columns of an operator, with their shared keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Windows {
    pub(super) args: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) keyings: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    pub(super) columns: Vec<WindowColumn>,
}

/// Maximum offset. Larger ones are rare, and every row would wait for this many rows of its key.
const MOST_OFFSET: i64 = 64;

impl Windows {
    /// Adds a window expression over `input`; `false` if it is of another kind. `is_reversed`: rows come in the opposite
    /// of its order.
    pub(super) fn add(
        &mut self,
        expr: &Arc<dyn WindowExpr>,
        input: &Schema,
        is_reversed: bool,
    ) -> Result<bool> {
        for key in expr.partition_by() {
            if !Keys::hold(&key.data_type(input)?) {
                return Ok(false);
            }
        }
        let Some(function) = self.function(expr, input, is_reversed)? else {
            return Ok(false);
        };
        let is_same = |keys: &Vec<Arc<dyn PhysicalExpr>>| keys.as_slice() == expr.partition_by();
        let keying = self.keyings.iter().position(is_same).unwrap_or_else(|| {
            self.keyings.push(expr.partition_by().to_vec());
            self.keyings.len() - 1
        });
        self.columns.push(WindowColumn {
            function,
            keying,
            field: expr.field()?,
            original: Arc::clone(expr),
        });
        Ok(self.has_one_lead())
    }

    /// Whether all rows of the result wait for one other row at most.
    fn has_one_lead(&self) -> bool {
        let mut leads = self
            .columns
            .iter()
            .filter_map(|column| match column.function {
                Function::Lead { n, .. } => Some((column.keying, n)),
                _ => None,
            });
        let first = leads.next();
        leads.all(|lead| Some(lead) == first)
    }

    fn arg(&mut self, expr: &Arc<dyn PhysicalExpr>) -> usize {
        let known = self.args.iter().position(|arg| arg == expr);
        known.unwrap_or_else(|| {
            self.args.push(Arc::clone(expr));
            self.args.len() - 1
        })
    }

    fn function(
        &mut self,
        expr: &Arc<dyn WindowExpr>,
        input: &Schema,
        is_reversed: bool,
    ) -> Result<Option<Function>> {
        if let Some(plain) = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>() {
            return match is_reversed {
                true => Ok(None),
                false => self.running(plain, input),
            };
        }
        let Some(standard) = expr.as_any().downcast_ref::<StandardWindowExpr>() else {
            return Ok(None);
        };
        let call = standard.get_standard_func_expr();
        let Some(call) = call.as_any().downcast_ref::<WindowUDFExpr>() else {
            return Ok(None);
        };
        let (name, args) = (call.fun().name(), call.args());
        // The flag has no getter, but it is the last member; a test fails if that changes.
        let skips_nulls = format!("{call:?}").ends_with("ignore_nulls: true }");
        let frame = expr.get_window_frame();
        let shift = match (name, is_reversed) {
            ("lead", false) | ("lag", true) => 1,
            ("lag", false) | ("lead", true) => -1,
            ("row_number", false) => return Ok(Some(Function::RowNumber)),
            ("first_value", false) if begins_at_the_first_row(frame) => {
                let ends_here = is_up_to_this_row(frame);
                let arg = self.arg(&args[0]);
                return Ok(
                    (!skips_nulls || ends_here).then_some(Function::First { arg, skips_nulls })
                );
            }
            ("last_value", false) if is_up_to_this_row(frame) => {
                let arg = self.arg(&args[0]);
                return Ok(Some(match skips_nulls {
                    true => Function::Latest { arg },
                    false => Function::Same { arg },
                }));
            }
            _ => return Ok(None),
        };
        let kind = args[0].data_type(input)?;
        let offset = match args.get(1).map(|offset| offset.downcast_ref::<Literal>()) {
            None => Some(1),
            Some(literal) => literal.and_then(|literal| match literal.value() {
                ScalarValue::Int64(Some(offset)) => Some(*offset),
                _ => None,
            }),
        };
        let default = match args.get(2).map(|default| default.downcast_ref::<Literal>()) {
            None => Some(ScalarValue::Null),
            Some(literal) => literal.map(|literal| literal.value().clone()),
        };
        let (Some(offset), Some(default)) = (offset, default) else {
            return Ok(None);
        };
        if kind == DataType::Null || offset.checked_abs().is_none_or(|n| n > MOST_OFFSET) {
            return Ok(None);
        }
        let default = match default.is_null() {
            true => ScalarValue::try_from(&kind)?,
            false => default.cast_to(&kind)?,
        };
        let default = default.to_array_of_size(1)?;
        let offset = offset * shift;
        let n = offset.unsigned_abs() as usize;
        if skips_nulls && offset >= 0 {
            return Ok(None);
        }
        if offset == 0 {
            let arg = self.arg(&args[0]);
            return Ok(Some(Function::Same { arg }));
        }
        let arg = self.arg(&args[0]);
        Ok(Some(match offset < 0 {
            true => Function::Lag {
                arg,
                n,
                default,
                skips_nulls,
            },
            false => Function::Lead { arg, n, default },
        }))
    }

    /// An aggregate of all rows up to this one.
    fn running(
        &mut self,
        expr: &PlainAggregateWindowExpr,
        input: &Schema,
    ) -> Result<Option<Function>> {
        let call = expr.get_aggregate_expr();
        let frame = expr.get_window_frame();
        let with_peers = match frame.units {
            WindowFrameUnits::Rows => false,
            WindowFrameUnits::Range => true,
            WindowFrameUnits::Groups => return Ok(None),
        };
        let is_up_to_here =
            is_unbounded(&frame.start_bound) && frame.end_bound == WindowFrameBound::CurrentRow;
        // The filter has no getter, but it is the last member; a test fails if that changes.
        let is_filtered = !format!("{expr:?}").ends_with("filter: None }");
        if !is_up_to_here || is_filtered || call.is_distinct() || !call.order_bys().is_empty() {
            return Ok(None);
        }
        if with_peers && !is_one_time(expr.order_by(), input)? {
            return Ok(None);
        }
        let args = call.expressions();
        let [arg] = args.as_slice() else {
            return Ok(None);
        };
        let Some(aggregate) = Aggregate::of(call.fun().name(), &arg.data_type(input)?) else {
            return Ok(None);
        };
        if call.field().data_type() != &aggregate.result() {
            return Ok(None);
        }
        let arg = self.arg(arg);
        Ok(Some(Function::Running {
            arg,
            aggregate,
            with_peers,
        }))
    }

    /// Whether rows wait for others of the same time.
    pub(super) fn have_peers(&self) -> bool {
        self.columns.iter().any(|column| {
            matches!(
                column.function,
                Function::Running {
                    with_peers: true,
                    ..
                }
            )
        })
    }

    /// Whether DataFusion is slower, though it needs no sort either: it updates aggregates row by row.
    pub(super) fn are_faster_without_keys(&self) -> bool {
        let is_running =
            |column: &WindowColumn| matches!(column.function, Function::Running { .. });
        self.columns.iter().all(is_running)
    }

    /// The offset and keys of the rows to wait for, if any.
    pub(super) fn lead(&self) -> Option<(usize, usize)> {
        self.columns
            .iter()
            .find_map(|column| match column.function {
                Function::Lead { n, .. } => Some((column.keying, n)),
                _ => None,
            })
    }
}

/// Whether the frame has the first row, and this one or later ones.
fn begins_at_the_first_row(frame: &WindowFrame) -> bool {
    let reaches = match &frame.end_bound {
        WindowFrameBound::CurrentRow | WindowFrameBound::Following(_) => true,
        WindowFrameBound::Preceding(_) => false,
    };
    is_unbounded(&frame.start_bound) && reaches
}

/// Whether the frame has all rows up to this one, and no equal ones.
fn is_up_to_this_row(frame: &WindowFrame) -> bool {
    frame.units == WindowFrameUnits::Rows
        && is_unbounded(&frame.start_bound)
        && frame.end_bound == WindowFrameBound::CurrentRow
}

/// Whether rows are equal in this order if one integer is.
fn is_one_time(order: &[PhysicalSortExpr], input: &Schema) -> Result<bool> {
    let [key] = order else {
        return Ok(false);
    };
    let kind = key.expr.data_type(input)?;
    let is_exact = Integers::hold(&kind) && !kind.is_floating();
    Ok(is_exact && !key.options.descending && key.options.nulls_first)
}

fn is_unbounded(start: &WindowFrameBound) -> bool {
    matches!(start, WindowFrameBound::Preceding(rows) if rows.is_null())
}
