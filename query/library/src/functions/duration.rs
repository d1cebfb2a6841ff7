//! `duration(ns)`: nanoseconds as text in the unit that fits, `1.234 ms`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::Function;
use crate::unit::in_fitting_unit;

pub(super) const FUNCTION: Function = Function {
    usage: "duration(ns)",
    about: "formats nanoseconds in a fitting unit: 1.234 ms",
    register: |context, _| context.register_udf(ScalarUDF::from(Duration::new())),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Duration {
    signature: Signature,
}

impl Duration {
    fn new() -> Duration {
        let one = |kind| TypeSignature::Exact(vec![kind]);
        // Totals are decimals; the text is rounded to four digits anyway.
        let signature = Signature::one_of(
            vec![one(DataType::Int64), one(DataType::Float64)],
            Volatility::Immutable,
        );
        Duration { signature }
    }
}

impl ScalarUDFImpl for Duration {
    fn name(&self) -> &str {
        "duration"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = &ColumnarValue::values_to_arrays(&args.args)?[0];
        let texts: StringArray = match values.data_type() {
            DataType::Float64 => {
                let values = values.as_primitive::<Float64Type>();
                values
                    .iter()
                    .map(|value| value.map(in_fitting_unit))
                    .collect()
            }
            _ => {
                let values = values.as_primitive::<Int64Type>();
                values
                    .iter()
                    .map(|value| value.map(|ns| in_fitting_unit(ns as f64)))
                    .collect()
            }
        };
        Ok(ColumnarValue::Array(Arc::new(texts) as ArrayRef))
    }
}
