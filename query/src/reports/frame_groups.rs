//! Self and total weight of functions or modules, summed over stack trees.
//!
//! ```text
//! main;read;vfs_read 3, main;read 1     →     vfs_read: self 3, total 3; read: 1, 4; main: 0, 4
//! ```
//! *self* is the weight of stacks that end in the group, *total* that of stacks that contain it: recursion counts once.
//! Kernel and user code never share a group, so a pair of stacks counts once in each.

use std::collections::HashMap;

use anyhow::Result;

use perfquet::stacks::{Forest, Frames, Tree};

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

/// The group of every frame of all traces.
#[derive(Debug)]
pub(super) struct FrameGroups {
    pub(super) names: Vec<GroupName>,
    /// Group by trace and frame ID.
    of_frame: Vec<Vec<usize>>,
    /// Group of rows without a stack.
    stackless: usize,
}

impl FrameGroups {
    /// Groups frames by the function and module that `naming` gives them.
    pub(super) fn of(
        forest: &Forest,
        naming: impl Fn(&Frames, u32) -> (String, Option<String>),
    ) -> Result<FrameGroups> {
        let mut numbers = Numbers::default();
        let stackless = numbers.of(GroupName {
            function: "[no stack]".to_owned(),
            module: None,
            is_kernel: false,
        });
        let mut of_frame = Vec::new();
        for trace in 0..forest.len() {
            let tree = forest.tree(trace)?;
            let frames = &tree.frames;
            let mut of_function: HashMap<u32, usize> = HashMap::new();
            let mut groups = vec![0];
            for frame in 1..=frames.len() as u32 {
                let same = frames.same_function(frame);
                let group = *of_function.entry(same).or_insert_with(|| {
                    let (function, module) = naming(frames, frame);
                    let is_kernel = frames.is_kernel(frame);
                    numbers.of(GroupName {
                        function,
                        module,
                        is_kernel,
                    })
                });
                groups.push(group);
            }
            of_frame.push(groups);
        }
        Ok(FrameGroups {
            names: numbers.names,
            of_frame,
            stackless,
        })
    }

    /// The group of a frame.
    pub(super) fn of_frame(&self, trace: usize, frame: u32) -> usize {
        self.of_frame[trace][frame as usize]
    }

    /// Returns the weight of every group in the given rows, in the order of `names`.
    pub(super) fn weigh<'r>(
        &self,
        forest: &Forest,
        rows: impl Iterator<Item = &'r Weighted> + Clone,
    ) -> Result<Vec<GroupWeight>> {
        let mut weights = vec![GroupWeight::default(); self.names.len()];
        for trace in 0..forest.len() {
            let mut of_trace = rows.clone().filter(|row| row.trace == trace).peekable();
            if of_trace.peek().is_none() {
                continue;
            }
            let tree = forest.tree(trace)?;
            let mut of_node = vec![0; tree.len()];
            for row in of_trace {
                of_node[row.kernel as usize] += row.weight;
                of_node[row.user as usize] += row.weight;
                let leaf = match row.kernel {
                    0 => row.user,
                    kernel => kernel,
                };
                match tree.frames_of_node(leaf).next() {
                    Some(frame) => weights[self.of_frame(trace, frame)].own += row.weight,
                    None => {
                        weights[self.stackless].own += row.weight;
                        weights[self.stackless].total += row.weight;
                    }
                }
            }
            of_node[0] = 0;
            self.add_totals(trace, &tree, of_node, &mut weights);
        }
        Ok(weights)
    }

    /// Adds the weight of each subtree to the group of its root, unless the group occurs again further up.
    fn add_totals(
        &self,
        trace: usize,
        tree: &Tree,
        mut of_node: Vec<u128>,
        weights: &mut [GroupWeight],
    ) {
        // Children follow their parents: in reverse order, every subtree is complete when it is added.
        for node in (1..tree.len() as u32).rev() {
            let weight = of_node[node as usize];
            of_node[tree.parent(node) as usize] += weight;
        }
        let children = Children::of(tree, &of_node);
        let mut on_path = vec![0u32; self.names.len()];
        // Depth first; a node is visited again when its subtree is done.
        let mut pending: Vec<(u32, bool)> = children.of_node(0).map(|node| (node, false)).collect();
        while let Some((node, done)) = pending.pop() {
            let groups = tree
                .frames_of_node(node)
                .map(|frame| self.of_frame(trace, frame));
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

/// Numbers of group names, in order of appearance.
#[derive(Debug, Default)]
struct Numbers {
    names: Vec<GroupName>,
    known: HashMap<GroupName, usize>,
}

impl Numbers {
    fn of(&mut self, name: GroupName) -> usize {
        let next = self.names.len();
        let number = *self.known.entry(name.clone()).or_insert(next);
        if number == next {
            self.names.push(name);
        }
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
