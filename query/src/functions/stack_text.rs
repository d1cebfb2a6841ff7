//! `stack_text(id)`: a stack as folded text, root first, `main;read;vfs_read`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::Function;
use crate::stacks::{Forest, Tree};

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
        let signature = stack_signature();
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
        let texts = each_stack(&self.forest, &args, |tree, node| tree.folded(node))?;
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(texts))))
    }
}

/// The answer for the stack of each row, `f(stack_id [, trace])`; `None` for NULL and unknown stacks.
pub(super) fn each_stack<T: Clone>(
    forest: &Forest,
    args: &ScalarFunctionArgs,
    answer: impl Fn(&Tree, u32) -> T,
) -> Result<Vec<Option<T>>> {
    let arrays = ColumnarValue::values_to_arrays(&args.args)?;
    let ids = arrays[0].as_primitive::<Int64Type>();
    let names = arrays.get(1).map(|names| names.as_string_view());
    let mut answers = Vec::with_capacity(ids.len());
    // A stack occurs in many rows.
    let mut known: HashMap<(usize, i64), Option<T>> = HashMap::new();
    for row in 0..ids.len() {
        let trace = match names {
            Some(names) if names.is_null(row) => None,
            Some(names) => forest.trace(names.value(row)),
            None => forest.trace_of(ids.value(row)),
        };
        let Some(trace) = trace.filter(|_| ids.is_valid(row)) else {
            answers.push(None);
            continue;
        };
        let id = ids.value(row);
        let found = match known.entry((trace, id)) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let tree = forest
                    .tree(trace)
                    .map_err(|error| DataFusionError::External(error.into()))?;
                place.insert(tree.node(id).map(|node| answer(&tree, node)))
            }
        };
        answers.push(found.clone());
    }
    Ok(answers)
}

/// Arguments: a stack ID, and optionally the trace's name.
pub(super) fn stack_signature() -> Signature {
    let one_or_two = vec![
        TypeSignature::Exact(vec![DataType::Int64]),
        TypeSignature::Exact(vec![DataType::Int64, DataType::Utf8View]),
    ];
    Signature::one_of(one_or_two, Volatility::Immutable)
}
