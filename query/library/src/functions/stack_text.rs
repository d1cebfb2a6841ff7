//! `stack_text(id)`: a stack as folded text, root first, `main;read;vfs_read`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
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
        context.register_udf(of_stack(
            "stack_text",
            DataType::Utf8,
            forest,
            |forest, args| {
                let texts = each_stack(forest, args, |tree, node| tree.folded(node))?;
                Ok(Arc::new(StringArray::from(texts)))
            },
        ));
    },
};

/// Computes the answers to a batch of rows.
type Answer = dyn Fn(&Forest, &ScalarFunctionArgs) -> Result<ArrayRef> + Send + Sync;

/// A function of stacks: `name(stack_id [, trace])`.
struct OfStack {
    name: &'static str,
    kind: DataType,
    signature: Signature,
    forest: Arc<Forest>,
    answer: Box<Answer>,
}

impl std::fmt::Debug for OfStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A function of stacks whose answers have the type `kind`.
pub(super) fn of_stack(
    name: &'static str,
    kind: DataType,
    forest: &Arc<Forest>,
    answer: impl Fn(&Forest, &ScalarFunctionArgs) -> Result<ArrayRef> + Send + Sync + 'static,
) -> ScalarUDF {
    let one_or_two = vec![
        TypeSignature::Exact(vec![DataType::Int64]),
        TypeSignature::Exact(vec![DataType::Int64, DataType::Utf8View]),
    ];
    of_stack_with(name, kind, forest, one_or_two, answer)
}

/// A function of stacks with other arguments.
pub(super) fn of_stack_with(
    name: &'static str,
    kind: DataType,
    forest: &Arc<Forest>,
    arguments: Vec<TypeSignature>,
    answer: impl Fn(&Forest, &ScalarFunctionArgs) -> Result<ArrayRef> + Send + Sync + 'static,
) -> ScalarUDF {
    ScalarUDF::from(OfStack {
        name,
        kind,
        signature: Signature::one_of(arguments, Volatility::Immutable),
        forest: Arc::clone(forest),
        answer: Box::new(answer),
    })
}

/// There is one function of a name per session: two are equal if they share the forest.
impl PartialEq for OfStack {
    fn eq(&self, other: &OfStack) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.forest, &other.forest)
    }
}

impl Eq for OfStack {}

impl Hash for OfStack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for OfStack {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.kind.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        (self.answer)(&self.forest, &args).map(ColumnarValue::Array)
    }
}

/// Returns `f(stack_id [, trace])` for the stack of each row; `None` for NULL and unknown stacks.
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
