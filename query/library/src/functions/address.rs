//! `address(x)`: a number as an address, `0xffffffff81000000`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::Function;

pub(super) const FUNCTION: Function = Function {
    usage: "address(x)",
    about: "formats a number as an address: 0xffffffff81000000",
    register: |context, _| context.register_udf(ScalarUDF::from(Address::new())),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Address {
    signature: Signature,
}

impl Address {
    fn new() -> Address {
        let one = |kind| TypeSignature::Exact(vec![kind]);
        let signature = Signature::one_of(
            vec![one(DataType::UInt64), one(DataType::Int64)],
            Volatility::Immutable,
        );
        Address { signature }
    }
}

impl ScalarUDFImpl for Address {
    fn name(&self) -> &str {
        "address"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = &ColumnarValue::values_to_arrays(&args.args)?[0];
        let text = |address: u64| format!("{address:#x}");
        let texts: StringArray = match values.data_type() {
            DataType::UInt64 => {
                let values = values.as_primitive::<UInt64Type>();
                values.iter().map(|value| value.map(text)).collect()
            }
            // A signed field that contains an address: use its bits.
            _ => {
                let values = values.as_primitive::<Int64Type>();
                values
                    .iter()
                    .map(|value| value.map(|bits| text(bits as u64)))
                    .collect()
            }
        };
        Ok(ColumnarValue::Array(Arc::new(texts) as ArrayRef))
    }
}
