//! Self and total weight of functions or modules, summed over stack trees.
//!
//! ```text
//! main;read;vfs_read 3, main;read 1     →     vfs_read: self 3, total 3; read: 1, 4; main: 0, 4
//! ```
//! *self* is the weight of stacks that end in the group, *total* that of stacks that contain it: recursion counts once.
//! Kernel and user code never share a group, so a pair of stacks counts once in each. Traces are visited one after the other, so that the trees of
//! thousands are never in memory together.

use std::collections::HashMap;

use perfquet::stacks::{Frames, Tree};

use super::folding::Weighted;

/// Name of a group in kernel or user space.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupName {
    pub(super) function: String,
    pub(super) module: Option<String>,
    pub(super) is_kernel: bool,
}

/// Weight of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct GroupWeight {
    pub(super) own: u128,
    pub(super) total: u128,
}

/// The groups of all traces that have been visited.
#[derive(Debug)]
pub(super) struct FrameGroups<N> {
    numbers: Numbers,
    /// The function and module of a frame, by which it is grouped.
    naming: N,
    /// Group of rows without a stack.
    stackless: usize,
}

impl<N: Fn(&Frames, u32) -> (String, Option<String>)> FrameGroups<N> {
    /// Groups frames by the function and module that `naming` gives them.
    pub(super) fn new(naming: N) -> FrameGroups<N> {
        let mut numbers = Numbers::default();
        let stackless = numbers.of(GroupName {
            function: "[no stack]".to_owned(),
            module: None,
            is_kernel: false,
        });
        FrameGroups {
            numbers,
            naming,
            stackless,
        }
    }

    /// Groups the frames of a trace.
    pub(super) fn of_trace<'t>(&mut self, tree: &'t Tree) -> TraceGroups<'t> {
        let frames = &tree.frames;
        let mut groups = vec![self.stackless];
        let mut local: HashMap<usize, u32> = HashMap::new();
        let mut of_function: HashMap<u32, u32> = HashMap::new();
        let mut of_frame = vec![0];
        for frame in 1..=frames.len() as u32 {
            let same = frames.same_function(frame);
            let group = *of_function.entry(same).or_insert_with(|| {
                let (function, module) = (self.naming)(frames, frame);
                let number = self.numbers.of(GroupName {
                    function,
                    module,
                    is_kernel: frames.is_kernel(frame),
                });
                *local.entry(number).or_insert_with(|| {
                    groups.push(number);
                    groups.len() as u32 - 1
                })
            });
            of_frame.push(group);
        }
        TraceGroups {
            tree,
            of_frame,
            groups,
        }
    }

    /// Number of groups so far.
    pub(super) fn len(&self) -> usize {
        self.numbers.names.len()
    }

    /// The names of all groups, by number.
    pub(super) fn into_names(self) -> Vec<GroupName> {
        self.numbers.names
    }
}

/// The groups of one trace.
#[derive(Debug)]
pub(super) struct TraceGroups<'t> {
    pub(super) tree: &'t Tree,
    /// Index in `groups` by frame ID.
    of_frame: Vec<u32>,
    /// Numbers of the groups; the first is that of rows without a stack.
    groups: Vec<usize>,
}

impl TraceGroups<'_> {
    /// The group of a frame.
    pub(super) fn of_frame(&self, frame: u32) -> usize {
        self.groups[self.of_frame[frame as usize] as usize]
    }

    /// Returns the weight of every group in rows of this trace, without groups that have none.
    pub(super) fn weigh<'r>(
        &self,
        rows: impl Iterator<Item = &'r Weighted>,
    ) -> impl Iterator<Item = (usize, GroupWeight)> {
        let mut weights = vec![GroupWeight::default(); self.groups.len()];
        let mut of_node = vec![0; self.tree.len()];
        for row in rows {
            of_node[row.kernel as usize] += row.weight;
            of_node[row.user as usize] += row.weight;
            let leaf = match row.kernel {
                0 => row.user,
                kernel => kernel,
            };
            match self.tree.frames_of_node(leaf).next() {
                Some(frame) => {
                    weights[self.of_frame[frame as usize] as usize].own += row.weight;
                }
                None => {
                    weights[0].own += row.weight;
                    weights[0].total += row.weight;
                }
            }
        }
        of_node[0] = 0;
        self.add_totals(of_node, &mut weights);
        let weights = weights.into_iter().enumerate();
        let weights = weights.filter(|(_, weight)| *weight != GroupWeight::default());
        weights.map(|(group, weight)| (self.groups[group], weight))
    }

    /// Adds the weight of each subtree to the group of its root, unless the group occurs again further up.
    fn add_totals(&self, mut of_node: Vec<u128>, weights: &mut [GroupWeight]) {
        let tree = self.tree;
        // Children follow their parents: in reverse order, every subtree is complete when it is added.
        for node in (1..tree.len() as u32).rev() {
            let weight = of_node[node as usize];
            of_node[tree.parent(node) as usize] += weight;
        }
        let children = Children::of(tree, &of_node);
        let mut on_path = vec![0u32; self.groups.len()];
        // Depth first; a node is visited again when its subtree is done.
        let mut pending: Vec<(u32, bool)> = children.of_node(0).map(|node| (node, false)).collect();
        while let Some((node, done)) = pending.pop() {
            let groups = tree
                .frames_of_node(node)
                .map(|frame| self.of_frame[frame as usize] as usize);
            if done {
                groups.for_each(|group| on_path[group] -= 1);
                continue;
            }
            for group in groups {
                if on_path[group] == 0 {
                    weights[group].total += of_node[node as usize];
                }
                on_path[group] += 1;
            }
            pending.push((node, true));
            pending.extend(children.of_node(node).map(|child| (child, false)));
        }
    }
}

/// Rows by trace, in the order of the traces and of the rows.
pub(super) fn by_trace(rows: &[Weighted]) -> Vec<(usize, Vec<&Weighted>)> {
    let mut sorted: Vec<&Weighted> = rows.iter().collect();
    sorted.sort_by_key(|row| row.trace);
    let traces = sorted.chunk_by(|a, b| a.trace == b.trace);
    let traces = traces.filter_map(|rows| Some((rows.first()?.trace, rows.to_vec())));
    traces.collect()
}

/// Numbers of group names, in order of appearance.
#[derive(Debug, Default)]
struct Numbers {
    names: Vec<GroupName>,
    known: HashMap<GroupName, usize>,
}

impl Numbers {
    fn of(&mut self, name: GroupName) -> usize {
        if let Some(&number) = self.known.get(&name) {
            return number;
        }
        let number = self.names.len();
        self.names.push(name.clone());
        self.known.insert(name, number);
        number
    }
}

/// The children of every node with a weight.
struct Children {
    /// Index in `nodes` where the children of each node begin.
    starts: Vec<u32>,
    nodes: Vec<u32>,
}

impl Children {
    fn of(tree: &Tree, weights: &[u128]) -> Children {
        let heavy = || (1..tree.len() as u32).filter(|&node| weights[node as usize] > 0);
        let mut starts = vec![0u32; tree.len() + 1];
        for node in heavy() {
            starts[tree.parent(node) as usize + 1] += 1;
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        let mut next = starts.clone();
        let mut nodes = vec![0; starts[tree.len()] as usize];
        for node in heavy() {
            let place = &mut next[tree.parent(node) as usize];
            nodes[*place as usize] = node;
            *place += 1;
        }
        Children { starts, nodes }
    }

    fn of_node(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let range = self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize;
        self.nodes[range].iter().copied()
    }
}
