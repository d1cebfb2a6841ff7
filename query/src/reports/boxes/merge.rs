//! Merges the stacks of all traces into one tree of boxes.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use perfquet::stacks::{Forest, Tree, Walk};
use perfquet::{Session, Trace};
use perfquet_trace::count::grouped;

use super::labels::{self, Naming};
use super::roots;
use crate::render::flame::{FlameTree, Kind, Label, Node};
use crate::reports::diff::naming;
use crate::reports::folding::{Folded, Weighted};

/// Name of the box that contains incomplete stacks.
const INCOMPLETE: &str = "[incomplete stacks]";

/// How stacks become boxes.
#[derive(Debug, Clone, Copy)]
pub(in crate::reports) struct Shape {
    pub(in crate::reports) naming: Naming,
    /// Whether functions match by names that are the same in every build.
    pub(in crate::reports) across_builds: bool,
    /// Whether the leaf is at the root, followed by its callers, and then the groups.
    pub(in crate::reports) is_reversed: bool,
    /// How stacks that do not reach the root of their thread are drawn.
    pub(in crate::reports) incomplete: Incomplete,
    /// Index of the trace that is compared with.
    pub(in crate::reports) before: Option<usize>,
}

/// Treatment of incomplete stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reports) enum Incomplete {
    /// Drawn in place.
    Kept,
    /// In a separate box. Stacks by frame pointers are not marked, so each is examined.
    Gathered,
    /// In a separate box. The stacks were unwound, and incomplete ones are marked (`stacks.cut`).
    GatheredOfUnwound,
}

impl Incomplete {
    /// Returns how to judge the stacks of a table.
    pub(in crate::reports) fn of(session: &Session, table: &str) -> Incomplete {
        match table == "samples" && session.traces().iter().all(is_unwound) {
            true => Incomplete::GatheredOfUnwound,
            false => Incomplete::Gathered,
        }
    }

    /// How to record whole stacks in a table.
    pub(in crate::reports) fn hint(self, table: &str) -> &'static str {
        match (self, table) {
            (Incomplete::GatheredOfUnwound, _) => {
                "the code there has no unwind information, or the copy of the stack ends"
            }
            (_, "samples") => "for whole stacks, record with perfquet-record -g as root",
            _ => "for whole stacks, record with perfquet-record --call-graph dwarf",
        }
    }
}

/// Whether the recorder unwound the samples of a trace: then it knows which stacks are cut.
fn is_unwound(trace: &Trace) -> bool {
    let command = trace.fact("command_line");
    let Some(command) = command.filter(|command| command.contains("perfquet-record")) else {
        return false;
    };
    let words = || command.split_whitespace().take_while(|&word| word != "--");
    match words()
        .skip_while(|word| !word.starts_with("--call-graph"))
        .last()
    {
        Some(_) => words().any(|word| word.contains("dwarf") || word.contains("auto")),
        None => words().any(|word| word.starts_with("-g")),
    }
}

/// Returns how many of `all` stacks lack their outer frames, and how to record whole ones.
pub(in crate::reports) fn note_of_incomplete(
    incomplete: u64,
    all: u64,
    hint: &str,
) -> Option<String> {
    let share = incomplete as f64 / all.max(1) as f64 * 100.0;
    (incomplete > 0).then(|| {
        format!(
            "{} of {} stacks ({}%) lack their outer frames; {hint}",
            grouped(incomplete),
            grouped(all),
            match share {
                ..0.5 => "<1".to_owned(),
                _ => format!("{share:.0}"),
            }
        )
    })
}

/// A tree of boxes while it grows.
pub(in crate::reports) struct Merge {
    pub(in crate::reports) tree: FlameTree,
    /// Samples with incomplete stacks.
    pub(in crate::reports) incomplete: u64,
    /// The node of each row, by its index.
    pub(in crate::reports) leaves: Vec<u32>,
    shape: Shape,
    children: hashbrown::HashMap<(u32, u32), u32>,
    label_ids: HashMap<(String, Kind, Option<String>), u32, ahash::RandomState>,
    /// Labels of frames with an unknown function.
    unnamed: HashSet<u32>,
}

impl Merge {
    /// The boxes of no stacks.
    pub(in crate::reports) fn new(shape: Shape) -> Merge {
        Merge {
            tree: FlameTree::new(),
            incomplete: 0,
            leaves: Vec::new(),
            shape,
            children: hashbrown::HashMap::new(),
            label_ids: HashMap::default(),
            unnamed: HashSet::new(),
        }
    }

    /// Adds all rows. `groups` are the names of the boxes below each row's stacks.
    pub(in crate::reports) fn add(
        &mut self,
        forest: &Forest,
        folded: &Folded,
        groups: &[Vec<String>],
    ) -> Result<()> {
        self.leaves = vec![0; folded.rows.len()];
        let mut of_trace: Vec<Vec<usize>> = vec![Vec::new(); forest.len()];
        for (index, row) in folded.rows.iter().enumerate() {
            of_trace[row.trace].push(index);
        }
        for (trace, indices) in of_trace.into_iter().enumerate() {
            if indices.is_empty() {
                continue;
            }
            let tree = forest.passing_tree(trace)?;
            let rows = || indices.iter().map(|&index| &folded.rows[index]);
            let mut stacks = Stacks {
                labels: self.labels_of_frames(&tree),
                whole: match self.shape.incomplete {
                    Incomplete::Kept => vec![true; tree.len()],
                    _ if !has_stacks(&tree, rows()) => vec![true; tree.len()],
                    how => roots::whole(&tree, how == Incomplete::GatheredOfUnwound),
                },
                tree: &tree,
                walk: Walk::default(),
            };
            for (&index, row) in indices.iter().zip(rows()) {
                let names = groups.get(index).map_or(&[][..], Vec::as_slice);
                let leaf = match self.shape.is_reversed {
                    true => self.add_reversed(&mut stacks, row, names),
                    false => self.add_row(&mut stacks, row, names),
                };
                self.leaves[index] = leaf;
                let node = &mut self.tree.nodes[leaf as usize];
                match self.shape.before == Some(trace) {
                    true => node.before += row.weight,
                    false => node.own += row.weight,
                }
            }
        }
        Ok(())
    }

    fn add_row(&mut self, stacks: &mut Stacks<'_>, row: &Weighted, names: &[String]) -> u32 {
        let mut base = self.group(0, names);
        let is_whole = stacks.whole[row.user as usize];
        if !is_whole {
            self.incomplete += row.samples;
            let label = self.label(Label::new(INCOMPLETE.to_owned(), Kind::Incomplete));
            base = self.child(base, label);
        }
        let user = stacks.place(self, base, row.user, !is_whole);
        stacks.place(self, user, row.kernel, false)
    }

    /// Adds a row's callers after its leaf; every stack needs a separate path.
    fn add_reversed(&mut self, stacks: &mut Stacks<'_>, row: &Weighted, names: &[String]) -> u32 {
        if !stacks.whole[row.user as usize] {
            self.incomplete += row.samples;
        }
        let mut place = 0;
        for stack in [row.kernel, row.user] {
            let mut node = stack;
            while node != 0 {
                for frame in stacks.tree.frames_of_node(node) {
                    let label = stacks.labels[frame as usize];
                    place = self.child_of_frame(place, label);
                }
                node = stacks.tree.parent(node);
            }
        }
        self.group(place, names)
    }

    fn group(&mut self, base: u32, names: &[String]) -> u32 {
        names.iter().fold(base, |base, name| {
            let label = self.label(Label::new(name.clone(), Kind::Group));
            self.child(base, label)
        })
    }

    /// The index of a label, which merges those of the same function.
    pub(super) fn label(&mut self, mut label: Label) -> u32 {
        let mut module = label.module.clone();
        if self.shape.across_builds {
            label.name = naming::function(&label.name).to_owned();
            module = module.map(|module| naming::module(&module).to_owned());
        }
        let next = self.tree.labels.len() as u32;
        let key = (label.name.clone(), label.kind, module);
        let id = *self.label_ids.entry(key).or_insert(next);
        if id == next {
            self.tree.labels.push(label);
        }
        id
    }

    pub(super) fn child(&mut self, parent: u32, label: u32) -> u32 {
        let nodes = &mut self.tree.nodes;
        *self.children.entry((parent, label)).or_insert_with(|| {
            nodes.push(Node {
                parent,
                label,
                own: 0,
                before: 0,
            });
            nodes.len() as u32 - 1
        })
    }

    /// Like [`Merge::child`], but merges consecutive unnamed frames into one.
    pub(super) fn child_of_frame(&mut self, parent: u32, label: u32) -> u32 {
        let is_same = parent != 0 && self.tree.nodes[parent as usize].label == label;
        if is_same && self.unnamed.contains(&label) {
            return parent;
        }
        self.child(parent, label)
    }

    /// The label of each frame, by frame ID.
    pub(super) fn labels_of_frames(&mut self, tree: &Tree) -> Vec<u32> {
        let (of_frame, labels) = labels::of_frames(tree, self.shape.naming);
        let merges_unnamed = self.shape.naming == Naming::Functions;
        let ids: Vec<u32> = labels.into_iter().map(|label| self.label(label)).collect();
        let mut frames = vec![0];
        for frame in 1..=tree.frames.len() as u32 {
            let id = ids[of_frame[frame as usize] as usize];
            if tree.frames.function(frame).is_none() && merges_unnamed {
                self.unnamed.insert(id);
            }
            frames.push(id);
        }
        frames
    }
}

/// Whether any user stack has a caller: if all of them are instructions alone, no stacks were recorded.
fn has_stacks<'r>(tree: &Tree, mut rows: impl Iterator<Item = &'r Weighted>) -> bool {
    rows.any(|row| row.user != 0 && tree.parent(row.user) != 0)
}

/// Positions of one tree's stacks among the merged ones.
struct Stacks<'a> {
    tree: &'a Tree,
    /// By frame ID.
    labels: Vec<u32>,
    whole: Vec<bool>,
    walk: Walk,
}

impl Stacks<'_> {
    /// Returns the merged node of `stack` under `base`. Drops outermost frames without any name if the stack is cut off
    /// there: they have no information, and keep similar stacks from merging.
    fn place(&mut self, merge: &mut Merge, base: u32, stack: u32, is_cut_off: bool) -> u32 {
        let (frames, labels) = (&self.tree.frames, &self.labels);
        self.walk.place(self.tree, base, stack, |below, frame| {
            let is_nothing = frames.function(frame).is_none() && frames.module(frame).is_none();
            if is_cut_off && below == base && is_nothing {
                return below;
            }
            merge.child_of_frame(below, labels[frame as usize])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn towers_without_names_are_one_box() {
        let mut merge = Merge::new(Shape {
            naming: Naming::Functions,
            across_builds: false,
            is_reversed: false,
            incomplete: Incomplete::Kept,
            before: None,
        });
        let mut label = |name: &str| merge.label(Label::new(name.to_owned(), Kind::Function));
        let (main, unknown) = (label("main"), label("[unknown]"));
        merge.unnamed.insert(unknown);
        let mut node = 0;
        for label in [main, unknown, unknown, unknown, main, main, unknown] {
            node = merge.child_of_frame(node, label);
        }
        let nodes = std::iter::successors(Some(node), |&node| {
            Some(merge.tree.nodes[node as usize].parent).filter(|&parent| parent != 0)
        });
        let names: Vec<&str> = nodes
            .map(|node| merge.tree.label(node).name.as_str())
            .collect();
        assert_eq!(names, ["[unknown]", "main", "main", "[unknown]", "main"]);
    }
}
