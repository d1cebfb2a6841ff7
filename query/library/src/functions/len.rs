//! `len(x)`: characters of a string, or values of a list, as in DuckDB.
//!
//! ```text
//! SELECT len(comm), len([1, 2, 3]) FROM threads      2   3
//! ```
//! The engine has a function for each, and chooses by the type once that is known.

use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::unicode::character_length;
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::Function;

pub(super) const FUNCTION: Function = Function {
    usage: "len(x)",
    about: "characters of a string, or values of a list",
    register: |context, _| {
        context.register_udf(ScalarUDF::from(Len {
            signature: Signature::any(1, Volatility::Immutable),
        }));
    },
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Len {
    signature: Signature,
}

impl ScalarUDFImpl for Len {
    fn name(&self) -> &str {
        "len"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        match kinds {
            [DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)] => {
                Ok(DataType::UInt64)
            }
            [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View] => {
                character_length().return_type(kinds)
            }
            _ => Err(DataFusionError::Plan(
                "Function 'len' failed to match any signature".to_owned(),
            )),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.arg_fields.first().map(|field| field.data_type()) {
            Some(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
                character_length().invoke_with_args(args)
            }
            _ => array_length_udf().invoke_with_args(args),
        }
    }
}
