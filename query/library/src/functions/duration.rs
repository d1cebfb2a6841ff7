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

/// `1234567` as `1.235 ms`.
pub fn in_fitting_unit(ns: f64) -> String {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let shown = |unit: f64| (ns / unit * 1e3).round() / 1e3;
    let (name, unit) = units
        .into_iter()
        .find(|(_, unit)| shown(*unit).abs() < 1000.0)
        .unwrap_or(units[3]);
    if unit == 1.0 && ns.fract() == 0.0 {
        format!("{ns} {name}")
    } else {
        format!("{:.3} {name}", ns / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (ns, expected) in [
            (0.0, "0 ns"),
            (999.0, "999 ns"),
            (1000.0, "1.000 us"),
            (1_234_567.0, "1.235 ms"),
            (999_999.9, "1.000 ms"),
            (-1_500.0, "-1.500 us"),
            (61e9, "61.000 s"),
            (2e15, "2000000.000 s"),
            (0.5, "0.500 ns"),
        ] {
            assert_eq!(in_fitting_unit(ns), expected);
        }
    }
}
