//! The flame graph of a selection: the tree of the stacks that `flamegraph` prints.
//!
//! ```text
//! main;parse;next 3     node    0  1    2     3      parents precede their callees
//! main;write 2          parent  -  0    1     1
//!                       name    -  main parse write
//! ```
//! A picture has a few thousand boxes: of a larger tree, the heaviest nodes are sent, and the share of the others is known from their callers.

use std::collections::HashMap;

use anyhow::{Result, bail};
use perfquet::failure::Misuse;
use perfquet::stacks::strings;
use perfquet::unit::{DURATION, UNIT};
use serde_json::{Value, json};

use super::engine::{Found, Limit, at, integers};
use super::http::{Peer, Request};
use super::panels::{self, Words};
use super::{Served, Server};
use crate::text::cut_right;

/// Nodes of a picture.
const MOST_NODES: usize = 20_000;
/// Levels of a picture; deeper frames are not drawn.
const MOST_LEVELS: usize = 500;
const LONGEST_NAME: usize = 2000;

/// Answers `from`, `to` and `ids`, and what the stacks are of: `event`, or `of=off_cpu`.
pub(super) fn answer(
    server: &Server,
    served: &Served,
    request: &Request,
    peer: &Peer<'_>,
) -> Result<Value> {
    let mut report = vec!["flamegraph".to_owned()];
    match request.parameter("of").as_deref() {
        None | Some("") => {}
        Some("off_cpu") => report.push("--from=off_cpu".to_owned()),
        Some(_) => bail!(Misuse("of: expected off_cpu, or nothing".to_owned())),
    }
    if let Some(event) = request.parameter("event").filter(|event| !event.is_empty()) {
        report.push(format!("--event={event}"));
    }
    let words = Words::of(served, request, &report, &[])?;
    let limit = Limit::COMMAND;
    let output = panels::found(server, &words, limit, peer)?;
    let Some(found) = output.found else {
        return Ok(json!({ "command": words.shown, "error": output.notes }));
    };
    let tree = Tree::of(&found)?;
    let mut answer = tree.json();
    answer["command"] = json!(words.shown);
    answer["notes"] = json!(output.notes);
    answer["unit"] = json!(unit(&found));
    answer["is_cut"] = json!(found.is_cut);
    Ok(answer)
}

/// The unit of the weights: `ns`, or none.
fn unit(found: &Found) -> &'static str {
    let fields = found.columns.fields();
    let unit = fields.last().and_then(|field| field.metadata().get(UNIT));
    match unit.map(String::as_str) {
        Some(DURATION) => "ns",
        _ => "",
    }
}

#[derive(Debug, Default)]
struct Node {
    parent: u32,
    name: u32,
    own: i64,
    total: i64,
}

/// Stacks that share their beginnings. The first node is the root.
#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
    names: Vec<String>,
}

impl Tree {
    /// The tree of rows of folded stacks and their weights.
    fn of(found: &Found) -> Result<Tree> {
        let mut tree = Tree {
            nodes: vec![Node::default()],
            names: Vec::new(),
        };
        let mut names: HashMap<String, u32> = HashMap::new();
        let mut children: HashMap<(u32, u32), u32> = HashMap::new();
        for batch in &found.batches {
            if batch.num_columns() != 2 {
                bail!("flamegraph: expected stacks and weights");
            }
            let (stacks, weights) = (strings(batch.column(0))?, integers(batch, 1)?);
            for (row, stack) in stacks.iter().enumerate() {
                let weight = at(&weights, row).unwrap_or(0).max(0);
                let mut node = 0;
                let frames = stack.unwrap_or_default().split(';');
                for frame in frames.filter(|frame| !frame.is_empty()).take(MOST_LEVELS) {
                    let frame = cut_right(frame, LONGEST_NAME);
                    let name = match names.get(frame.as_ref()) {
                        Some(&known) => known,
                        None => {
                            let name = u32::try_from(tree.names.len())?;
                            tree.names.push(frame.clone().into_owned());
                            names.insert(frame.into_owned(), name);
                            name
                        }
                    };
                    let next = u32::try_from(tree.nodes.len())?;
                    node = *children.entry((node, name)).or_insert_with(|| {
                        tree.nodes.push(Node {
                            parent: node,
                            name,
                            ..Node::default()
                        });
                        next
                    });
                }
                let own = &mut tree.nodes[node as usize].own;
                *own = own.saturating_add(weight);
            }
        }
        for index in (0..tree.nodes.len()).rev() {
            let total = tree.nodes[index]
                .own
                .saturating_add(tree.nodes[index].total);
            tree.nodes[index].total = total;
            if index > 0 {
                let parent = tree.nodes[index].parent as usize;
                let sum = &mut tree.nodes[parent].total;
                *sum = sum.saturating_add(total);
            }
        }
        Ok(tree)
    }

    /// Whether each node is sent: the heaviest ones, and of equal ones the first. Callers weigh no less than their callees and
    /// precede them, so that none is without its caller.
    fn sent(&self) -> Vec<bool> {
        let mut totals: Vec<i64> = self.nodes.iter().map(|node| node.total).collect();
        if totals.len() <= MOST_NODES {
            return vec![true; totals.len()];
        }
        totals.sort_unstable_by(|a, b| b.cmp(a));
        let least = totals[MOST_NODES - 1];
        let mut equal = MOST_NODES - totals.partition_point(|&total| total > least);
        let is_sent = |node: &Node| {
            let is_equal = node.total == least && equal > 0;
            equal -= usize::from(is_equal);
            node.total > least || is_equal
        };
        self.nodes.iter().map(is_sent).collect()
    }

    fn json(&self) -> Value {
        let sent = self.sent();
        let mut places = vec![0_u32; self.nodes.len()];
        let mut name_places: HashMap<u32, usize> = HashMap::new();
        let (mut names, mut parents) = (Vec::new(), Vec::new());
        let (mut labels, mut own, mut total) = (Vec::new(), Vec::new(), Vec::new());
        let mut omitted = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            if !sent[index] {
                omitted += 1;
                continue;
            }
            places[index] = parents.len() as u32;
            if index == 0 {
                labels.push(-1);
            } else {
                let place = *name_places.entry(node.name).or_insert_with(|| {
                    names.push(self.names[node.name as usize].as_str());
                    names.len() - 1
                });
                labels.push(i64::try_from(place).unwrap_or(-1));
            }
            parents.push(places[node.parent as usize]);
            own.push(node.own);
            total.push(node.total);
        }
        json!({ "names": names, "parent": parents, "label": labels, "own": own, "total": total, "omitted": omitted })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

    use super::*;

    fn found(stacks: Vec<&str>, weights: Vec<i64>) -> Found {
        let batch = RecordBatch::try_from_iter([
            ("stack", Arc::new(StringArray::from(stacks)) as ArrayRef),
            ("weight", Arc::new(Int64Array::from(weights)) as ArrayRef),
        ])
        .unwrap();
        Found {
            columns: batch.schema(),
            units: Vec::new(),
            batches: vec![batch],
            is_cut: false,
        }
    }

    #[test]
    fn stacks_share_their_beginnings() {
        let stacks = vec!["main;parse;next", "main;write", "main", ""];
        let tree = Tree::of(&found(stacks, vec![3, 2, 1, 5])).unwrap();
        assert_eq!(
            tree.json(),
            json!({
                "names": ["main", "parse", "next", "write"],
                "parent": [0, 0, 1, 2, 1], "label": [-1, 0, 1, 2, 3],
                "own": [5, 1, 0, 3, 2], "total": [11, 6, 3, 3, 2], "omitted": 0,
            })
        );
    }

    #[test]
    fn the_heaviest_nodes_are_sent_with_their_callers() {
        let many: Vec<String> = (0..30_000).map(|leaf| format!("main;leaf{leaf}")).collect();
        let weights: Vec<i64> = (0..30_000).collect();
        let stacks = many.iter().map(String::as_str).collect();
        let tree = Tree::of(&found(stacks, weights)).unwrap().json();
        let parents = tree["parent"].as_array().unwrap();
        assert_eq!(parents.len(), MOST_NODES);
        assert_eq!(tree["omitted"], 30_002 - parents.len());
        assert_eq!(tree["total"][1], tree["total"][0]);
        // Of equal ones, too.
        let many: Vec<String> = (0..30_000).map(|root| format!("root{root};leaf")).collect();
        let stacks = many.iter().map(String::as_str).collect();
        let tree = Tree::of(&found(stacks, vec![5; 30_000])).unwrap().json();
        assert_eq!(tree["total"].as_array().unwrap().len(), MOST_NODES);
        assert_eq!(tree["total"][0], 150_000);
        let deep = "f;".repeat(3000);
        let tree = Tree::of(&found(vec![deep.as_str()], vec![1])).unwrap();
        assert_eq!(tree.nodes.len(), MOST_LEVELS + 1);
    }
}
