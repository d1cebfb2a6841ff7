//! Parts of a stack: `stack_leaf(id)`, `stack_root(id)`, `stack_depth(id)`, `stack_trim(id, from, to)`, and whether a function
//! is in it: `stack_contains(id, 'vfs_*')`.
//!
//! ```text
//! main;read;vfs_read;filemap_read      leaf filemap_read, root main, depth 4, trimmed from 'read' to 'vfs_read': read;vfs_read
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, TypeSignature};
use perfquet_cli::glob_matches;
use perfquet_trace::function_name::without_arguments;

use super::Function;
use super::stack_text::{each_stack, of_stack, of_stack_with};
use crate::stacks::{Forest, Tree};

pub(super) const STACK_LEAF: Function = Function {
    usage: "stack_leaf(stack_id)",
    about: "the innermost function of a stack",
    register: |context, forest| {
        let leaf = |tree: &Tree, stack: u32| {
            let frame = tree.frames_of_node(stack).next();
            frame.map(|frame| tree.frames.name(frame).into_owned())
        };
        context.register_udf(of_stack(
            "stack_leaf",
            DataType::Utf8,
            forest,
            move |forest, args| texts(each_stack(forest, args, leaf)?),
        ));
    },
};

pub(super) const STACK_ROOT: Function = Function {
    usage: "stack_root(stack_id)",
    about: "the outermost function of a stack",
    register: |context, forest| {
        context.register_udf(of_stack(
            "stack_root",
            DataType::Utf8,
            forest,
            |forest, args| texts(each_stack(forest, args, root)?),
        ));
    },
};

pub(super) const STACK_DEPTH: Function = Function {
    usage: "stack_depth(stack_id)",
    about: "the number of frames of a stack",
    register: |context, forest| {
        context.register_udf(of_stack(
            "stack_depth",
            DataType::Int32,
            forest,
            |forest, args| {
                let depth = |tree: &Tree, stack| names(tree, stack).len() as i32;
                Ok(Arc::new(Int32Array::from(each_stack(forest, args, depth)?)))
            },
        ));
    },
};

pub(super) const STACK_CONTAINS: Function = Function {
    usage: "stack_contains(stack_id, pattern)",
    about: "whether a function of the stack has this name; * and ? match any letters: 'vfs_*'",
    register: |context, forest| {
        let known = Matches::default();
        context.register_udf(of_stack_with(
            "stack_contains",
            DataType::Boolean,
            forest,
            vec![TypeSignature::Exact(vec![
                DataType::Int64,
                DataType::Utf8View,
            ])],
            move |forest, args| contains(forest, args, &known),
        ));
    },
};

pub(super) const STACK_TRIM: Function = Function {
    usage: "stack_trim(stack_id, from, to)",
    about: "formats the frames of a stack from one function inward to another; NULL for either keeps that end",
    register: |context, forest| {
        context.register_udf(of_stack_with(
            "stack_trim",
            DataType::Utf8,
            forest,
            vec![TypeSignature::Exact(vec![
                DataType::Int64,
                DataType::Utf8View,
                DataType::Utf8View,
            ])],
            trim,
        ));
    },
};

fn texts(values: Vec<Option<Option<String>>>) -> Result<ArrayRef> {
    let values = values.into_iter().map(Option::flatten);
    Ok(Arc::new(StringArray::from_iter(values)))
}

/// Names of the frames of a stack, leaf first.
fn names(tree: &Tree, stack: u32) -> Vec<std::borrow::Cow<'_, str>> {
    let nodes = std::iter::successors(Some(stack), |&node| Some(tree.parent(node)));
    let frames = nodes
        .take_while(|&node| node != 0)
        .flat_map(|node| tree.frames_of_node(node));
    frames.map(|frame| tree.frames.name(frame)).collect()
}

fn root(tree: &Tree, stack: u32) -> Option<String> {
    let mut nodes = std::iter::successors(Some(stack), |&node| Some(tree.parent(node)));
    let root = nodes.find(|&node| tree.parent(node) == 0)?;
    let frame = tree.frames_of_node(root).last()?;
    Some(tree.frames.name(frame).into_owned())
}

/// For a pattern, the stacks of each trace that contain it.
type Matches = Mutex<HashMap<(usize, String), Arc<Vec<bool>>>>;

/// Maximum number of patterns remembered.
const PATTERNS: usize = 16;

fn contains(forest: &Forest, args: &ScalarFunctionArgs, known: &Matches) -> Result<ArrayRef> {
    let arrays = ColumnarValue::values_to_arrays(&args.args)?;
    let ids = arrays[0].as_primitive::<Int64Type>();
    let patterns = arrays[1].as_string_view();
    let mut last: Option<(usize, &str, Arc<Vec<bool>>)> = None;
    let mut found = Vec::with_capacity(ids.len());
    for row in 0..ids.len() {
        let trace = forest.trace_of(ids.value(row));
        let Some(trace) = trace.filter(|_| ids.is_valid(row) && patterns.is_valid(row)) else {
            found.push(None);
            continue;
        };
        let pattern = patterns.value(row);
        let tree = tree_of(forest, trace)?;
        let stacks = match &last {
            Some((of, text, stacks)) if *of == trace && *text == pattern => Arc::clone(stacks),
            _ => matching(&tree, trace, pattern, known),
        };
        let node = tree.node(ids.value(row));
        found.push(node.map(|node| stacks.get(node as usize) == Some(&true)));
        last = Some((trace, pattern, stacks));
    }
    Ok(Arc::new(BooleanArray::from(found)))
}

fn tree_of(forest: &Forest, trace: usize) -> Result<Arc<Tree>> {
    let tree = forest.tree(trace);
    tree.map_err(|error| DataFusionError::External(error.into()))
}

/// For each stack, whether it contains a match.
fn matching(tree: &Tree, trace: usize, pattern: &str, known: &Matches) -> Arc<Vec<bool>> {
    let key = (trace, pattern.to_owned());
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stacks) = known.get(&key) {
        return Arc::clone(stacks);
    }
    let frames = 1..=tree.frames.len() as u32;
    let is_match = |frame: u32| is_called(&tree.frames.name(frame), pattern);
    let frames: Vec<bool> = std::iter::once(false).chain(frames.map(is_match)).collect();
    let mut stacks = vec![false];
    for node in 1..tree.len() as u32 {
        // Parents come before their children.
        let above = stacks[tree.parent(node) as usize];
        let here = || {
            tree.frames_of_node(node)
                .any(|frame| frames[frame as usize])
        };
        stacks.push(above || here());
    }
    let stacks = Arc::new(stacks);
    if known.len() >= PATTERNS {
        known.clear();
    }
    known.insert(key, Arc::clone(&stacks));
    stacks
}

/// Whether a function has this name, with or without its arguments.
fn is_called(name: &str, pattern: &str) -> bool {
    name == pattern || glob_matches(pattern, name) || glob_matches(pattern, without_arguments(name))
}

fn trim(forest: &Forest, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let arrays = ColumnarValue::values_to_arrays(&args.args)?;
    let ids = arrays[0].as_primitive::<Int64Type>();
    let bounds = [arrays[1].as_string_view(), arrays[2].as_string_view()];
    let mut found = Vec::with_capacity(ids.len());
    for row in 0..ids.len() {
        let trace = forest
            .trace_of(ids.value(row))
            .filter(|_| ids.is_valid(row));
        let Some(trace) = trace else {
            found.push(None);
            continue;
        };
        let [from, to] = bounds.map(|texts| texts.is_valid(row).then(|| texts.value(row)));
        let tree = tree_of(forest, trace)?;
        found.push(tree.node(ids.value(row)).map(|node| {
            let mut names = names(&tree, node);
            names.reverse();
            trimmed(&names, from, to)
        }));
    }
    Ok(Arc::new(StringArray::from(found)))
}

/// The frames from the outermost `from` to the innermost `to`, root first. A function that is not there cuts nothing.
fn trimmed<T: AsRef<str>>(names: &[T], from: Option<&str>, to: Option<&str>) -> String {
    let is = |pattern: &str, name: &T| is_called(name.as_ref(), pattern);
    let first = from.and_then(|from| names.iter().position(|name| is(from, name)));
    let last = to.and_then(|to| names.iter().rposition(|name| is(to, name)));
    let (first, last) = (
        first.unwrap_or(0),
        last.map_or(names.len(), |last| last + 1),
    );
    let kept: Vec<&str> = names
        .get(first..last)
        .unwrap_or_default()
        .iter()
        .map(AsRef::as_ref)
        .collect();
    kept.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_trimmed_at_both_ends() {
        let names = ["_start", "main", "f", "main", "read", "vfs_read"];
        let trim = |from, to| trimmed(&names, from, to);
        assert_eq!(trim(Some("main"), None), "main;f;main;read;vfs_read");
        assert_eq!(trim(None, Some("f")), "_start;main;f");
        assert_eq!(trim(Some("f"), Some("main")), "f;main");
        assert_eq!(trim(Some("x"), Some("y")), names.join(";"));
        assert_eq!(trim(Some("read"), Some("f")), "");
        assert_eq!(trim(Some("vfs_*"), None), "vfs_read");
    }
}
