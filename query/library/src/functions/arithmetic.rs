//! `+`, `-`, `*`, `<<`, `>>` of integers without wrapping, and integer `/` of totals.
//!
//! ```text
//! SELECT 9223372036854775807 + 1      error: 9223372036854775807 + 1 does not fit into 64 bits
//! SELECT 1 << 64                      error: 1 << 64: expected 0 to 63 bits
//! SELECT sum(x) / 2                   integer division: DataFusion's result would have decimals
//! ```
//! DataFusion computes integers in their own width, and wraps: `cpu * cpu` at 32 bits, `a - b` of unsigned fields at 0, and the number
//! of bits of a shift at 64.
//! These functions replace its operators during planning, and have the operators' names.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, Datum, Decimal128Array, PrimitiveArray};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, UInt64Type};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::TOTAL;
use crate::sql::times::nanoseconds;

/// Registers the operators.
pub(super) fn register(context: &SessionContext) {
    let state = context.state_ref();
    // Fails only for registries without planners; this one has them.
    let _ = state.write().register_expr_planner(Arc::new(WholeNumbers));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Plus,
    Minus,
    Times,
    /// Of totals only: division of integers does not wrap.
    Divided,
    Left,
    Right,
}

impl Operation {
    fn of(operator: &BinaryOperator) -> Option<Operation> {
        match operator {
            BinaryOperator::Plus => Some(Operation::Plus),
            BinaryOperator::Minus => Some(Operation::Minus),
            BinaryOperator::Multiply => Some(Operation::Times),
            BinaryOperator::Divide => Some(Operation::Divided),
            BinaryOperator::PGBitwiseShiftLeft => Some(Operation::Left),
            BinaryOperator::PGBitwiseShiftRight => Some(Operation::Right),
            _ => None,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Operation::Plus => "+",
            Operation::Minus => "-",
            Operation::Times => "*",
            Operation::Divided => "/",
            Operation::Left => "<<",
            Operation::Right => ">>",
        }
    }

    fn is_shift(self) -> bool {
        matches!(self, Operation::Left | Operation::Right)
    }

    /// The type of the result; `None` if DataFusion's own operator is right.
    fn kind(self, left: &DataType, right: &DataType) -> Option<DataType> {
        if self == Operation::Divided {
            let is_whole = |kind: &DataType| kind.is_integer() || is_total(kind);
            let fits = is_whole(left) && is_whole(right) && (is_total(left) || is_total(right));
            return fits.then_some(TOTAL);
        }
        if !(left.is_integer() && right.is_integer()) {
            return None;
        }
        let both_unsigned = left.is_unsigned_integer() && right.is_unsigned_integer();
        let any_wide = *left == DataType::UInt64 || *right == DataType::UInt64;
        Some(match self {
            Operation::Left | Operation::Right if *left == DataType::UInt64 => DataType::UInt64,
            Operation::Left | Operation::Right => DataType::Int64,
            // An address plus a number is an address; a difference may be negative.
            Operation::Plus | Operation::Times if both_unsigned || any_wide => DataType::UInt64,
            Operation::Minus if any_wide && !both_unsigned => DataType::UInt64,
            Operation::Plus | Operation::Times | Operation::Minus | Operation::Divided => {
                DataType::Int64
            }
        })
    }
}

fn is_total(kind: &DataType) -> bool {
    matches!(kind, DataType::Decimal128(_, 0))
}

/// Replaces operators by these functions.
#[derive(Debug)]
struct WholeNumbers;

impl ExprPlanner for WholeNumbers {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_division = expr.op == BinaryOperator::DuckIntegerDivide;
        if is_division {
            expr.op = BinaryOperator::Divide;
        }
        let Some(operation) = Operation::of(&expr.op) else {
            return Ok(PlannerResult::Original(expr));
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let right = without_interval(&mut expr.right, right, &left)?;
        let left = without_interval(&mut expr.left, left, &right)?;
        let is_whole = |kind: &DataType| kind.is_integer() || is_total(kind);
        if is_division && !(is_whole(&left) && is_whole(&right)) {
            let text = "// divides whole numbers\nhint: use floor(a / b)";
            return Err(DataFusionError::Plan(text.to_owned()));
        }
        let Some(kind) = operation.kind(&left, &right) else {
            return Ok(PlannerResult::Original(expr));
        };
        let function = ScalarUDF::from(Arithmetic {
            operation,
            kind,
            signature: Signature::user_defined(Volatility::Immutable),
        });
        Ok(PlannerResult::Planned(Expr::ScalarFunction(
            ScalarFunction::new_udf(Arc::new(function), vec![expr.left, expr.right]),
        )))
    }
}

/// Replaces an interval beside an integer, such as `time + INTERVAL '1 s'`, by its nanoseconds. Returns the type of the operand.
fn without_interval(expr: &mut Expr, kind: DataType, other: &DataType) -> Result<DataType> {
    if let Expr::Literal(value @ ScalarValue::IntervalMonthDayNano(_), _) = expr
        && other.is_integer()
        && let Some(ns) = nanoseconds(value)?
    {
        *expr = lit(ns);
        return Ok(DataType::Int64);
    }
    Ok(kind)
}

/// An operation on two integers, in 128 bits.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Arithmetic {
    operation: Operation,
    kind: DataType,
    signature: Signature,
}

impl Arithmetic {
    fn result(&self, left: i128, right: i128) -> Option<i128> {
        match self.operation {
            Operation::Plus => left.checked_add(right),
            Operation::Minus => left.checked_sub(right),
            Operation::Times => left.checked_mul(right),
            Operation::Divided => left.checked_div(right),
            Operation::Left => left.checked_mul(1_i128 << bits_of(right)?),
            Operation::Right => Some(left >> bits_of(right)?),
        }
    }

    fn failure(&self, left: i128, right: i128) -> ArrowError {
        if self.operation == Operation::Divided && right == 0 {
            return ArrowError::DivideByZero;
        }
        let sign = self.operation.sign();
        ArrowError::ComputeError(match (self.operation.is_shift(), bits_of(right)) {
            (true, None) => format!("{left} {sign} {right}: expected 0 to 63 bits"),
            (true, Some(_)) => format!("{left} {sign} {right} does not fit into 64 bits"),
            (false, _) => format!("{left} {sign} {right} {BEYOND}"),
        })
    }

    /// On two 64-bit integers.
    fn in_64_bits(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        let results = match self.operation {
            Operation::Plus => numeric::add(left, right),
            Operation::Minus => numeric::sub(left, right),
            Operation::Times => numeric::mul(left, right),
            Operation::Divided | Operation::Left | Operation::Right => numeric::div(left, right),
        };
        results.map_err(|error| match error {
            ArrowError::ArithmeticOverflow(text) => {
                let place = text.strip_prefix("Overflow happened on: ").unwrap_or(&text);
                ArrowError::ComputeError(format!("{place} {BEYOND}"))
            }
            error => error,
        })
    }

    /// On two decimals without fractions.
    fn in_128_bits(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
        match self.kind {
            DataType::Int64 => {
                self.narrow::<Int64Type>(left, right, |result| result.try_into().ok())
            }
            DataType::UInt64 => {
                self.narrow::<UInt64Type>(left, right, |result| result.try_into().ok())
            }
            _ => {
                let wide = self.narrow::<Decimal128Type>(left, right, Some)?;
                let wide: &Decimal128Array = wide.as_primitive();
                Ok(Arc::new(wide.clone().with_precision_and_scale(38, 0)?))
            }
        }
    }

    /// The results in one integer type.
    fn narrow<T: ArrowPrimitiveType>(
        &self,
        left: &ArrayRef,
        right: &ArrayRef,
        of: impl Fn(i128) -> Option<T::Native>,
    ) -> Result<ArrayRef> {
        let [left, right] = [left, right].map(|array| array.as_primitive::<Decimal128Type>());
        let results: PrimitiveArray<T> = arrow::compute::try_binary(left, right, |left, right| {
            let result = self.result(left, right).and_then(&of);
            result.ok_or_else(|| self.failure(left, right))
        })?;
        Ok(Arc::new(results))
    }
}

/// Number of bits of a shift.
fn bits_of(count: i128) -> Option<u32> {
    u32::try_from(count).ok().filter(|&count| count < 64)
}

/// Error for a result that is too large.
const BEYOND: &str = "does not fit into 64 bits\nhint: cast one operand: CAST(… AS DECIMAL(38, 0))";

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Plus => "whole_sum",
            Operation::Minus => "whole_difference",
            Operation::Times => "whole_product",
            Operation::Divided => "whole_quotient",
            Operation::Left => "whole_shift_left",
            Operation::Right => "whole_shift_right",
        }
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        Ok(args.join(&format!(" {} ", self.operation.sign())))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let args: Vec<String> = args
            .iter()
            .map(|arg| arg.schema_name().to_string())
            .collect();
        Ok(args.join(&format!(" {} ", self.operation.sign())))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, kinds: &[DataType]) -> Result<Vec<DataType>> {
        // The common case, twice as fast this way.
        let is_narrow = |kind: &DataType| kind.is_integer() && *kind != DataType::UInt64;
        let in_64_bits = self.kind == DataType::Int64
            && !self.operation.is_shift()
            && kinds.iter().all(is_narrow);
        let kind = if in_64_bits { DataType::Int64 } else { TOTAL };
        Ok(vec![kind; kinds.len()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.kind.clone())
    }

    /// A constant more or less keeps the order: results that do not fit are errors.
    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        let [left, right] = inputs else {
            return Ok(SortProperties::Unordered);
        };
        let (left, right) = (&left.sort_properties, &right.sort_properties);
        let has_constant = [left, right].contains(&&SortProperties::Singleton);
        Ok(match self.operation {
            Operation::Plus if has_constant => left.add(right),
            Operation::Minus if has_constant => left.sub(right),
            _ => SortProperties::Unordered,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            let text = format!("{}: expected two numbers", self.name());
            return Err(DataFusionError::Plan(text));
        };
        if left.data_type() == DataType::Int64 {
            return apply(left, right, |left, right| self.in_64_bits(left, right));
        }
        let is_constant = [left, right]
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let results = self.in_128_bits(&arrays[0], &arrays[1])?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?),
            false => ColumnarValue::Array(results),
        })
    }
}
