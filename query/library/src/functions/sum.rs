//! `sum(x)` without overflow: the sum of integers is a decimal of 38 digits.
//!
//! ```text
//! SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) AS v(x)      9223372036854775808
//! ```
//! DataFusion's own `sum` uses 64 bits, and wraps.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Int64Type, UInt64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

use super::Function;
use super::integer_sum::{self, DistinctSum, GroupSums, TERM, TOTAL};

pub(super) const FUNCTION: Function = Function {
    usage: "sum(x)",
    about: "sum of x; a decimal for integers, so it never wraps",
    register: |context, _| context.register_udaf(AggregateUDF::from(Sum::new())),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    built_in: Arc<AggregateUDF>,
    signature: Signature,
}

impl Sum {
    fn new() -> Sum {
        Sum {
            built_in: sum_udaf(),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, kinds: &[DataType]) -> Result<Vec<DataType>> {
        use DataType as T;
        let wrong =
            || DataFusionError::Plan("Function 'sum' failed to match any signature".to_owned());
        let [kind] = kinds else {
            return Err(wrong());
        };
        let kind = match kind {
            T::Dictionary(_, kind) => kind.as_ref(),
            kind => kind,
        };
        Ok(vec![match kind {
            kind if kind.is_unsigned_integer() => T::UInt64,
            kind if kind.is_signed_integer() => T::Int64,
            T::Null => TERM,
            T::Float16 | T::Float32 | T::Float64 => T::Float64,
            T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => {
                kind.clone()
            }
            T::Duration(_) | T::Interval(_) => kind.clone(),
            _ => return Err(wrong()),
        }])
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        match kinds {
            // Narrow ones, too: the widened type is planned again, and its sum must have the same type.
            [kind] if kind.is_integer() => Ok(TOTAL),
            _ => self.built_in.return_type(kinds),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(match (integers(&args), args.is_distinct) {
            (None, _) => self.built_in.accumulator(args)?,
            (Some(_), true) => Box::new(DistinctSum(self.built_in.accumulator(args)?)),
            (Some(Integers::Signed), false) => Box::new(integer_sum::Sum::<Int64Type>::new()),
            (Some(Integers::Unsigned), false) => Box::new(integer_sum::Sum::<UInt64Type>::new()),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.built_in.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.built_in.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match integers(&args) {
            None => self.built_in.create_groups_accumulator(args)?,
            Some(Integers::Signed) => Box::new(GroupSums::<Int64Type>::new()),
            Some(Integers::Unsigned) => Box::new(GroupSums::<UInt64Type>::new()),
        })
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => Err(DataFusionError::NotImplemented(
                "sum(DISTINCT x) over a sliding window is not supported".to_owned(),
            )),
            false if integers(&args).is_some() => self.accumulator(args),
            false => self.built_in.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// Types of integers that are summed.
#[derive(Debug, Clone, Copy)]
enum Integers {
    Signed,
    Unsigned,
}

/// Which integers an aggregate sums; `None` if others.
fn integers(args: &AccumulatorArgs<'_>) -> Option<Integers> {
    match args.expr_fields.first()?.data_type() {
        DataType::Int64 => Some(Integers::Signed),
        DataType::UInt64 => Some(Integers::Unsigned),
        _ => None,
    }
}
