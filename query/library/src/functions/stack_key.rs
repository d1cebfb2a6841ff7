//! `stack_key(id)`: a hash of a stack's frames that is the same in every trace and on every host.

use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::datatypes::DataType;

use super::Function;
use super::stack_text::{each_stack, of_stack};

pub(super) const FUNCTION: Function = Function {
    usage: "stack_key(stack_id [, trace])",
    about: "a number that is the same for the same stack in every trace and on every host",
    register: |context, forest| {
        context.register_udf(of_stack(
            "stack_key",
            DataType::Int64,
            forest,
            |forest, args| {
                let keys = each_stack(forest, args, |tree, node| tree.key(node) as i64)?;
                Ok(Arc::new(Int64Array::from(keys)))
            },
        ));
    },
};
