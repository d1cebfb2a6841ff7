//! `stack_key(id)`: a hash of a stack's frames that is the same in every trace and on every host.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use super::Function;
use super::stack_text::{each_stack, stack_signature};
use crate::stacks::Forest;

pub(super) const FUNCTION: Function = Function {
    usage: "stack_key(stack_id [, trace])",
    about: "a number that is the same for the same stack in every trace and on every host",
    register: |context, forest| {
        context.register_udf(ScalarUDF::from(StackKey {
            signature: stack_signature(),
            forest: Arc::clone(forest),
        }));
    },
};

#[derive(Debug)]
struct StackKey {
    signature: Signature,
    forest: Arc<Forest>,
}

/// There is one function per session: two are equal if they share the forest.
impl PartialEq for StackKey {
    fn eq(&self, other: &StackKey) -> bool {
        Arc::ptr_eq(&self.forest, &other.forest)
    }
}

impl Eq for StackKey {}

impl Hash for StackKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "stack_key".hash(state);
    }
}

impl ScalarUDFImpl for StackKey {
    fn name(&self) -> &str {
        "stack_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let keys = each_stack(&self.forest, &args, |tree, node| tree.key(node) as i64)?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(keys))))
    }
}
