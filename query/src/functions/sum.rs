//! `sum(x)` without overflow: integers are summed as decimals of 38 digits.
//!
//! ```text
//! SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) AS v(x)      9223372036854775808
//! ```
//! DataFusion's own `sum` uses 64 bits, and wraps.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

use super::Function;

pub(super) const FUNCTION: Function = Function {
    usage: "sum(x)",
    about: "sum of x; a decimal for integers, so it never wraps",
    register: |context, _| context.register_udaf(AggregateUDF::from(Sum::new())),
};

/// Type of integer totals.
pub(crate) const TOTAL: DataType = DataType::Decimal128(38, 0);

/// Type to which integers are cast before adding: `sum` adds ten digits to these 28.
const TERM: DataType = DataType::Decimal128(28, 0);

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
            // Includes narrow ones: the widened type is planned again, and its sum must have the same type.
            kind if kind.is_integer() => TERM,
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
        self.built_in.return_type(kinds)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.built_in.accumulator(args)
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
        self.built_in.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        self.built_in.create_sliding_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
