//! `hash(x, …)`: a number for a value, for samples of threads or calls; `bit_count(x)`: the number of set bits.
//!
//! ```text
//! SELECT * FROM calls WHERE hash(call_id) % 100 = 0       one call of a hundred, the same ones each time
//! SELECT bit_count(cpumask) FROM e                        CPUs of a mask
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::hash_utils::{QualityRandomState, create_hashes};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use super::Function;

pub(super) const HASH: Function = Function {
    usage: "hash(x, …)",
    about: "number for a value, such as hash(call_id) % 100 = 0 for a sample; differs from that of other engines",
    register: |context, _| {
        context.register_udf(ScalarUDF::from(OfValues {
            is_hash: true,
            signature: Signature::variadic_any(Volatility::Immutable),
        }));
    },
};

pub(super) const BIT_COUNT: Function = Function {
    usage: "bit_count(x)",
    about: "number of set bits of an integer",
    register: |context, _| {
        context.register_udf(ScalarUDF::from(OfValues {
            is_hash: false,
            signature: Signature::any(1, Volatility::Immutable),
        }));
    },
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfValues {
    is_hash: bool,
    signature: Signature,
}

impl ScalarUDFImpl for OfValues {
    fn name(&self) -> &str {
        match self.is_hash {
            true => "hash",
            false => "bit_count",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, kinds: &[DataType]) -> Result<DataType> {
        if !self.is_hash && !kinds.iter().all(DataType::is_integer) {
            return Err(DataFusionError::Plan(
                "Function 'bit_count' failed to match any signature".to_owned(),
            ));
        }
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = (args.args.iter()).all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|arg| arg.to_array(rows));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        let numbers = match self.is_hash {
            true => hashes(&arrays, rows)?,
            false => bit_counts(&arrays)?,
        };
        let numbers: ArrayRef = Arc::new(numbers);
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?),
            false => ColumnarValue::Array(numbers),
        })
    }
}

/// Hashes of rows, with a fixed seed: the same in every run.
fn hashes(arrays: &[ArrayRef], rows: usize) -> Result<UInt64Array> {
    let mut hashes = vec![0; rows];
    create_hashes(arrays, &QualityRandomState::with_seed(0), &mut hashes)?;
    Ok(hashes.into())
}

fn bit_counts(arrays: &[ArrayRef]) -> Result<UInt64Array> {
    let Some(array) = arrays.first() else {
        let text = "bit_count: expected an integer";
        return Err(DataFusionError::Plan(text.to_owned()));
    };
    if *array.data_type() == DataType::UInt64 {
        let bits = array.as_primitive::<UInt64Type>();
        return Ok(bits.unary(|bits| u64::from(bits.count_ones())));
    }
    // Of a negative number, the bits of its own width.
    let width = array.data_type().primitive_width().unwrap_or(8) * 8;
    let mask = u64::MAX >> (64 - width);
    let wide = cast(array, &DataType::Int64)?;
    let bits = wide.as_primitive::<Int64Type>();
    Ok(bits.unary(|bits| u64::from((bits as u64 & mask).count_ones())))
}
