//! `ksym(address)`: the kernel's function at an address, as bpftrace's function of that name.
//!
//! ```text
//! SELECT ksym(call_site), sum(bytes_alloc) FROM kmem.kmalloc GROUP BY 1      alloc_skb 1048576
//! ```
//! Known are the functions of the trace's stacks, and those at the fields that the kernel prints as functions (`%pS`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, TypeSignature};

use super::Function;
use super::stack_text::of_stack_with;
use crate::stacks::Forest;

pub(super) const FUNCTION: Function = Function {
    usage: "ksym(address [, trace])",
    about: "the kernel's function at an address, such as call_site of kmem's events",
    register: |context, forest| {
        let forms = [DataType::UInt64, DataType::Int64].map(|address| {
            let alone = TypeSignature::Exact(vec![address.clone()]);
            [
                alone,
                TypeSignature::Exact(vec![address, DataType::Utf8View]),
            ]
        });
        let forms = forms.concat();
        context.register_udf(of_stack_with("ksym", DataType::Utf8, forest, forms, names));
    },
};

fn names(forest: &Forest, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let arrays = ColumnarValue::values_to_arrays(&args.args)?;
    let address = |row: usize| match arrays[0].data_type() {
        _ if arrays[0].is_null(row) => None,
        DataType::UInt64 => Some(arrays[0].as_primitive::<UInt64Type>().value(row)),
        // A signed field has the bits of an address.
        _ => Some(arrays[0].as_primitive::<Int64Type>().value(row) as u64),
    };
    let traces = arrays.get(1).map(|names| names.as_string_view());
    let name_in = |trace: usize, address: u64| {
        let tree = forest.tree(trace);
        let frames = &tree
            .map_err(|error| DataFusionError::External(error.into()))?
            .frames;
        let frame = frames.kernel_frame(address);
        Ok::<_, DataFusionError>(frame.and_then(|frame| frames.function(frame).map(str::to_owned)))
    };
    // A kernel is elsewhere after each boot: what two traces name differently has no name.
    let agreed = |address: u64| {
        let mut agreed: Option<String> = None;
        for trace in 0..forest.len() {
            match (name_in(trace, address)?, &agreed) {
                (Some(name), Some(other)) if name != *other => return Ok(None),
                (Some(name), None) => agreed = Some(name),
                _ => {}
            }
        }
        Ok(agreed)
    };
    let rows = 0..arrays[0].len();
    let names: Result<StringArray> = rows
        .map(|row| match (address(row), traces) {
            (None, _) => Ok(None),
            (Some(address), None) => agreed(address),
            (Some(_), Some(traces)) if traces.is_null(row) => Ok(None),
            (Some(address), Some(traces)) => match forest.trace(traces.value(row)) {
                Some(trace) => name_in(trace, address),
                None => Ok(None),
            },
        })
        .collect();
    Ok(Arc::new(names?))
}
