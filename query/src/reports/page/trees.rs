//! The tree of stacks in a page: in the order in which it is drawn, caller before callee.
//!
//! ```text
//! main ─┬─ parse ── next     levels left before each   0 0 0 2 0
//!       └─ write ── next     callee of its caller      new new new new known as 1
//!                            new ones                  main parse next write next
//! ```
//! A function calls few others, so a small number identifies most frames: the position among the callees of the caller's function that
//! have occurred so far. A page of distinct stacks needs 3 bits a frame instead of 10.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{Value, json};

use crate::render::columns::Columns;
use crate::render::flame::{FlameTree, Kind, Label};

/// Longer names are cut.
const LONGEST_NAME: usize = 4000;

/// Names of functions, modules and files, which the parts of a page share.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: Vec<String>,
    indexes: HashMap<String, usize>,
}

impl Names {
    pub(super) fn of(&mut self, name: &str) -> usize {
        let name = crate::text::cut_right(name, LONGEST_NAME);
        if let Some(&index) = self.indexes.get(name.as_ref()) {
            return index;
        }
        self.all.push(name.clone().into_owned());
        self.indexes.insert(name.into_owned(), self.all.len() - 1);
        self.all.len() - 1
    }

    pub(super) fn json(&self) -> Value {
        json!(self.all)
    }
}

/// A tree for the page, and the place of each of its nodes there.
pub(super) fn packed(
    tree: &FlameTree,
    names: &mut Names,
    columns: &mut Columns,
) -> (Value, Vec<u32>) {
    let (labels, ranks) = ranked(tree);
    let order = drawing_order(tree, &ranks);
    let mut places = vec![0u32; tree.nodes.len()];
    for (place, &(node, _)) in order.iter().enumerate() {
        places[node as usize] = place as u32;
    }
    let mut left = Vec::with_capacity(order.len());
    let mut callee = Vec::with_capacity(order.len());
    let mut new = Vec::new();
    let mut known: HashMap<(u32, u32), u32> = HashMap::new();
    let mut counts: HashMap<u32, u32> = HashMap::new();
    let mut last = 0;
    for &(node, depth) in order.iter().skip(1) {
        left.push(last + 1 - depth);
        last = depth;
        let parent = tree.nodes[node as usize].parent;
        let caller = match parent {
            0 => u32::MAX,
            parent => ranks[tree.nodes[parent as usize].label as usize],
        };
        let label = ranks[tree.nodes[node as usize].label as usize];
        match known.get(&(caller, label)) {
            Some(&place) => callee.push(place),
            None => {
                let count = counts.entry(caller).or_default();
                *count += 1;
                known.insert((caller, label), *count);
                callee.push(0);
                new.push(label);
            }
        }
    }
    let mut optional = |name: Option<String>| name.map_or(0, |name| names.of(&name) + 1);
    let modules: Vec<usize> = labels
        .iter()
        .map(|label| optional(label.module.clone()))
        .collect();
    let sources: Vec<usize> = labels
        .iter()
        .map(|label| optional(label.location()))
        .collect();
    let functions: Vec<usize> = labels.iter().map(|label| names.of(&label.name)).collect();
    let kinds = labels
        .iter()
        .map(|label| Kind::ALL.iter().position(|&kind| kind == label.kind))
        .map(Option::unwrap_or_default);
    let json = json!({
        "labels": {
            "name": columns.add(functions),
            "kind": columns.add(kinds),
            "module": columns.add(modules),
            "source": columns.add(sources),
        },
        "left": columns.add(left),
        "callee": columns.add(callee),
        "new": columns.add(new),
    });
    (json, places)
}

/// The labels that nodes have, by name, and the rank of each of the tree's labels among them.
fn ranked(tree: &FlameTree) -> (Vec<&Label>, Vec<u32>) {
    let mut is_used = vec![false; tree.labels.len()];
    for node in tree.nodes.iter().skip(1) {
        is_used[node.label as usize] = true;
    }
    let mut used: Vec<usize> = (0..is_used.len()).filter(|&label| is_used[label]).collect();
    used.sort_by(|&a, &b| tree.labels[a].name.cmp(&tree.labels[b].name));
    let mut ranks = vec![0; tree.labels.len()];
    for (rank, &label) in used.iter().enumerate() {
        ranks[label] = rank as u32;
    }
    let labels = used.into_iter().map(|label| &tree.labels[label]).collect();
    (labels, ranks)
}

/// Nodes and their depths, caller before callee. Callees are in the order of their names, groups in the order of their weights.
fn drawing_order(tree: &FlameTree, ranks: &[u32]) -> Vec<(u32, u32)> {
    let totals = tree.totals();
    let key = |node: u32| {
        let label = tree.nodes[node as usize].label as usize;
        let is_group = tree.labels[label].kind == Kind::Group;
        let weight = if is_group { totals[node as usize].0 } else { 0 };
        (!is_group, Reverse(weight), ranks[label], node)
    };
    let mut siblings: Vec<u32> = (1..tree.nodes.len() as u32).collect();
    // In descending order: the stack below pops the last one first.
    siblings.sort_unstable_by_key(|&node| Reverse((tree.nodes[node as usize].parent, key(node))));
    let mut starts = vec![0usize; tree.nodes.len() + 1];
    for &node in &siblings {
        starts[tree.nodes[node as usize].parent as usize] += 1;
    }
    // Parents are in descending order.
    let mut end = 0;
    for start in starts.iter_mut().rev() {
        end += *start;
        *start = end;
    }
    let mut order = Vec::with_capacity(tree.nodes.len());
    let mut pending = vec![(0u32, 0u32)];
    while let Some((node, depth)) = pending.pop() {
        order.push((node, depth));
        let (begin, end) = (starts[node as usize + 1], starts[node as usize]);
        let callees = siblings[begin..end].iter();
        pending.extend(callees.map(|&callee| (callee, depth + 1)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::flame::Node;

    fn tree(nodes: &[(u32, &str, Kind, u128)]) -> FlameTree {
        let mut tree = FlameTree::new();
        for &(parent, name, kind, own) in nodes {
            let label = tree.labels.iter().position(|label| label.name == name);
            let label = label.unwrap_or_else(|| {
                tree.labels.push(Label::new(name.to_owned(), kind));
                tree.labels.len() - 1
            });
            tree.nodes.push(Node {
                parent,
                label: label as u32,
                own,
                before: 0,
            });
        }
        tree
    }

    #[test]
    fn nodes_are_in_the_order_in_which_they_are_drawn() {
        let (group, function) = (Kind::Group, Kind::Function);
        let tree = tree(&[
            (0, "light", group, 1),
            (0, "heavy", group, 1),
            (2, "write", function, 1),
            (2, "main", function, 1),
            (4, "read", function, 1),
            (1, "main", function, 1),
            (3, "read", function, 1),
        ]);
        let (_, ranks) = ranked(&tree);
        let order = drawing_order(&tree, &ranks);
        let expected = [
            (0, 0),
            (2, 1),
            (4, 2),
            (5, 3),
            (3, 2),
            (7, 3),
            (1, 1),
            (6, 2),
        ];
        assert_eq!(order, expected);
        let (_, places) = packed(&tree, &mut Names::default(), &mut Columns::default());
        assert_eq!(places, [0, 6, 1, 4, 2, 3, 7, 5]);
    }

    #[test]
    fn names_are_kept_once() {
        let mut names = Names::default();
        assert_eq!(names.of("a"), 0);
        assert_eq!(names.of("b"), 1);
        assert_eq!(names.of("a"), 0);
        let long = "x".repeat(LONGEST_NAME + 1);
        assert_eq!(names.of(&long), names.of(&format!("{long}y")));
        assert_eq!(names.json()[2].as_str().unwrap().chars().count(), 4000);
    }
}
