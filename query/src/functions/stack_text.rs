//! `stack_text(id)`: a stack as folded text, root first, `main;read;vfs_read`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::Function;
use crate::stacks::Forest;

pub(super) const FUNCTION: Function = Function {
    usage: "stack_text(stack_id [, trace])",
    about: "formats a stack, root first: main;read;vfs_read",
    register: |context, forest| {
        context.register_udf(ScalarUDF::from(StackText::new(Arc::clone(forest))));
    },
};

#[derive(Debug)]
struct StackText {
    signature: Signature,
    forest: Arc<Forest>,
}

/// There is one function per session: two are equal if they share the forest.
impl PartialEq for StackText {
    fn eq(&self, other: &StackText) -> bool {
        Arc::ptr_eq(&self.forest, &other.forest)
    }
}

impl Eq for StackText {}

impl Hash for StackText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "stack_text".hash(state);
    }
}

impl StackText {
    fn new(forest: Arc<Forest>) -> StackText {
        let one_or_two = vec![
            TypeSignature::Exact(vec![DataType::Int64]),
            TypeSignature::Exact(vec![DataType::Int64, DataType::Utf8View]),
        ];
        let signature = Signature::one_of(one_or_two, Volatility::Immutable);
        StackText { signature, forest }
    }
}

impl ScalarUDFImpl for StackText {
    fn name(&self) -> &str {
        "stack_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let ids = arrays[0].as_primitive::<Int64Type>();
        let names = arrays.get(1).map(|names| names.as_string_view());
        let mut texts = StringBuilder::new();
        // A stack occurs in many rows.
        let mut known: HashMap<(usize, i64), Option<String>> = HashMap::new();
        for row in 0..ids.len() {
            let trace = match names {
                Some(names) if names.is_null(row) => None,
                Some(names) => self.forest.trace(names.value(row)),
                None => self.forest.trace_of(ids.value(row)),
            };
            let Some(trace) = trace.filter(|_| ids.is_valid(row)) else {
                texts.append_null();
                continue;
            };
            let id = ids.value(row);
            let text = match known.entry((trace, id)) {
                Entry::Occupied(text) => text.into_mut(),
                Entry::Vacant(place) => {
                    let tree = self
                        .forest
                        .tree(trace)
                        .map_err(|error| DataFusionError::External(error.into()))?;
                    place.insert(tree.node(id).map(|node| tree.folded(node)))
                }
            };
            texts.append_option(text.as_deref());
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish()) as ArrayRef))
    }
}
