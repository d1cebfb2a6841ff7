//! Stacks merged into a tree of boxes, and conversion to folded stacks.

use std::collections::BTreeMap;

/// Kind of a box, which determines its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A program, or another key that stacks are grouped by.
    Group,
    /// The box that contains stacks without their outer frames.
    Incomplete,
    Kernel,
    /// Code of a program.
    Program,
    Library,
    /// Code inlined into the box below it.
    Inlined,
    /// Code generated at run time.
    Generated,
    /// Neither function nor module is known.
    Unknown,
    /// A function without location, from calls or folded stacks.
    Function,
}

impl Kind {
    pub(crate) const ALL: [Kind; 9] = [
        Kind::Group,
        Kind::Incomplete,
        Kind::Kernel,
        Kind::Program,
        Kind::Library,
        Kind::Inlined,
        Kind::Generated,
        Kind::Unknown,
        Kind::Function,
    ];

    /// The name in legends and tooltips.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Group => "group",
            Kind::Incomplete => "incomplete",
            Kind::Kernel => "kernel",
            Kind::Program => "program",
            Kind::Library => "library",
            Kind::Inlined => "inlined",
            Kind::Generated => "generated code",
            Kind::Unknown => "unknown",
            Kind::Function => "function",
        }
    }
}

/// Label of the boxes of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) module: Option<String>,
    /// Source file, and the first and last of its lines that were seen.
    pub(crate) source: Option<(String, Option<(i32, i32)>)>,
}

impl Label {
    /// A label of which only the name is known.
    pub(crate) fn new(name: String, kind: Kind) -> Label {
        Label {
            name,
            kind,
            module: None,
            source: None,
        }
    }

    /// `main.c:12-40`, `main.c:12`, `main.c`.
    pub(crate) fn location(&self) -> Option<String> {
        let (file, lines) = self.source.as_ref()?;
        Some(match lines {
            Some((first, last)) if first == last => format!("{file}:{first}"),
            Some((first, last)) => format!("{file}:{first}-{last}"),
            None => file.clone(),
        })
    }
}

/// A box: a frame with its callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) parent: u32,
    /// Index of the label.
    pub(crate) label: u32,
    /// Weight of the stacks that end here.
    pub(crate) own: u128,
    /// The same in the trace that this one is compared with.
    pub(crate) before: u128,
}

/// All boxes. Node 0 is the common root; every other node follows its parent.
#[derive(Debug, Clone)]
pub(crate) struct FlameTree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) labels: Vec<Label>,
}

impl FlameTree {
    /// The tree of no stacks.
    pub(crate) fn new() -> FlameTree {
        let root = Node {
            parent: 0,
            label: 0,
            own: 0,
            before: 0,
        };
        FlameTree {
            nodes: vec![root],
            labels: Vec::new(),
        }
    }

    /// The label of a node other than the root.
    pub(crate) fn label(&self, node: u32) -> &Label {
        &self.labels[self.nodes[node as usize].label as usize]
    }

    /// Weights of the nodes with all that is above them: of this trace, and of the one that it is compared with.
    pub(crate) fn totals(&self) -> Vec<(u128, u128)> {
        let own = self.nodes.iter().map(|node| (node.own, node.before));
        let mut totals: Vec<(u128, u128)> = own.collect();
        for node in (1..totals.len()).rev() {
            let (now, before) = totals[node];
            let parent = &mut totals[self.nodes[node].parent as usize];
            parent.0 += now;
            parent.1 += before;
        }
        totals
    }

    /// Folded stacks with their weights, `main;read 12`, in the order of their names: the weight, and the one before.
    pub(crate) fn folded(&self) -> BTreeMap<String, (u128, u128)> {
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for node in 1..self.nodes.len() {
            children[self.nodes[node].parent as usize].push(node as u32);
        }
        let mut stacks: BTreeMap<String, (u128, u128)> = BTreeMap::new();
        // Depth first, with the length of the path before each node.
        let mut path = String::new();
        let mut pending = vec![(0u32, 0usize)];
        while let Some((node, length)) = pending.pop() {
            path.truncate(length);
            if node != 0 {
                if length > 0 {
                    path.push(';');
                }
                path.push_str(&self.label(node).name);
            }
            let Node { own, before, .. } = self.nodes[node as usize];
            if own > 0 || before > 0 {
                let name = if path.is_empty() { NO_STACK } else { &path };
                let weights = stacks.entry(name.to_owned()).or_default();
                weights.0 += own;
                weights.1 += before;
            }
            let above = children[node as usize].iter();
            pending.extend(above.map(|&child| (child, path.len())));
        }
        stacks
    }
}

/// Name of the empty stack.
const NO_STACK: &str = "[no stack]";

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The stacks, each frame a function.
    pub(crate) fn tree(stacks: &[(&[&str], u128)]) -> FlameTree {
        let mut tree = FlameTree::new();
        for (stack, weight) in stacks {
            let mut parent = 0;
            for frame in *stack {
                let is_it = |&node: &u32| {
                    tree.nodes[node as usize].parent == parent && tree.label(node).name == **frame
                };
                let known = (1..tree.nodes.len() as u32).find(is_it);
                parent = known.unwrap_or_else(|| {
                    let label = tree.labels.len() as u32;
                    let name = (*frame).to_owned();
                    tree.labels.push(Label::new(name, Kind::Function));
                    tree.nodes.push(Node {
                        parent,
                        label,
                        own: 0,
                        before: 0,
                    });
                    tree.nodes.len() as u32 - 1
                });
            }
            tree.nodes[parent as usize].own += weight;
        }
        tree
    }

    #[test]
    fn folded_stacks_are_sorted_and_no_weight_is_lost() {
        let tree = tree(&[
            (&["main", "b"], 5),
            (&["main", "a:x"], 3),
            (&["main"], 1),
            (&["main", "b", "c"], 2),
            (&[], 4),
        ]);
        let lines: Vec<String> = tree
            .folded()
            .iter()
            .map(|(stack, (weight, _))| format!("{stack} {weight}"))
            .collect();
        assert_eq!(
            lines,
            [
                "[no stack] 4",
                "main 1",
                "main;a:x 3",
                "main;b 5",
                "main;b;c 2"
            ]
        );
        assert_eq!(tree.totals()[0], (15, 0));
    }
}
