//! Chains of nested calls, as a tree: `main ► read ► vfs_read`.

use std::collections::HashMap;

use super::calls::{Call, Owner};
use super::lanes::Lanes;

/// Number of a chain; 0 is the empty one.
pub(super) type PathId = u32;

/// The chain that ends with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// With the callers.
    Nested(PathId),
    /// Without callers: too many calls overlap.
    Alone(PathId),
}

/// Number of a function, see [`Paths::function`].
pub(super) type FunctionId = u32;

/// The chains of all calls so far.
pub(super) struct Paths {
    /// Parent and function of each chain.
    nodes: Vec<(PathId, FunctionId)>,
    by_node: HashMap<(PathId, FunctionId), PathId>,
    /// Function and module.
    functions: Vec<(String, Option<String>)>,
    by_name: HashMap<String, HashMap<Option<String>, FunctionId>>,
    open: HashMap<Owner, (Lanes, HashMap<usize, Vec<PathId>>)>,
}

impl Paths {
    pub(super) fn new() -> Paths {
        Paths {
            nodes: vec![(0, 0)],
            by_node: HashMap::new(),
            functions: Vec::new(),
            by_name: HashMap::new(),
            open: HashMap::new(),
        }
    }

    /// Returns the chain that ends with a call. Calls come in the order of their starts.
    pub(super) fn of(&mut self, call: &Call<'_>) -> Path {
        let function = self.number(call.name(), call.module);
        let (lanes, open) = self.open.entry(call.owner()).or_default();
        // A call of unknown duration does not enclose any other.
        let end = call.end().unwrap_or(call.time);
        let Some(place) = lanes.place(call.time, end, usize::MAX) else {
            return Path::Alone(add(&mut self.nodes, &mut self.by_node, (0, function)));
        };
        let chain = open.entry(place.lane).or_default();
        chain.truncate(place.depth);
        let parent = chain.last().copied().unwrap_or(0);
        let path = add(&mut self.nodes, &mut self.by_node, (parent, function));
        chain.push(path);
        Path::Nested(path)
    }

    /// Adds the functions of a chain, innermost first.
    pub(super) fn functions_of(&self, path: PathId, functions: &mut Vec<FunctionId>) {
        let mut path = path;
        while path > 0
            && let Some((parent, function)) = self.nodes.get(path as usize)
        {
            functions.push(*function);
            path = *parent;
        }
    }

    /// Returns a function and its module.
    pub(super) fn function(&self, id: FunctionId) -> (&str, Option<&str>) {
        let function = self.functions.get(id as usize);
        function.map_or(("[unknown]", None), |(name, module)| {
            (name, module.as_deref())
        })
    }

    fn number(&mut self, name: &str, module: Option<&str>) -> FunctionId {
        let known = self.by_name.get(name);
        // Allocated only for the lookup; most functions have no module here.
        let module = module.map(str::to_owned);
        if let Some(number) = known.and_then(|modules| modules.get(&module)) {
            return *number;
        }
        let number = self.functions.len() as FunctionId;
        let modules = self.by_name.entry(name.to_owned()).or_default();
        modules.insert(module.clone(), number);
        self.functions.push((name.to_owned(), module));
        number
    }
}

fn add(
    nodes: &mut Vec<(PathId, FunctionId)>,
    by_node: &mut HashMap<(PathId, FunctionId), PathId>,
    node: (PathId, FunctionId),
) -> PathId {
    *by_node.entry(node).or_insert_with(|| {
        nodes.push(node);
        nodes.len() as PathId - 1
    })
}
