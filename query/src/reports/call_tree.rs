//! `calls --tree`: calls merged by path, with percentages of the total.
//!
//! ```text
//! total_percent  self_percent     total      self  count  function
//!         38.20          0.07  8.415 ms  16.00 us      1  do_fork
//!         29.87          0.07  6.580 ms  15.00 us      1    vfs_caches_init
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{
    Array, ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema};

use perfquet::unit::UNIT;

use super::paths::Paths;
use crate::render::{INDENT, SPARE, TERMINAL};
use crate::totals;

/// Limits of the printed tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pruning {
    pub(super) least_percent: f64,
    pub(super) deepest: usize,
    pub(super) lines: usize,
}

/// A line of the tree.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    name: String,
    depth: usize,
    count: u64,
    /// Sums of the known times; `None` if no call has one.
    total: Option<u128>,
    own: Option<u128>,
}

/// The tree, depth first, the longest child first.
pub(super) fn batch(paths: &Paths, pruning: Pruning) -> Result<RecordBatch> {
    let all = paths.nodes[0].weight;
    let lines = lines(paths, pruning);
    let percents = |value: fn(&Line) -> Option<u128>| -> ArrayRef {
        let percent = |time: u128| match all {
            0 => 0.0,
            all => (time as f64 / all as f64 * 1e4).round() / 1e2,
        };
        let shares = lines.iter().map(|line| value(line).map(percent));
        Arc::new(Float64Array::from_iter(shares))
    };
    let numbers = |value: fn(&Line) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(lines.iter().map(value)))
    };
    let metadata = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
    let depths = lines.iter().map(|line| line.depth as i32);
    let names = lines.iter().map(|line| &line.name);
    let duration = |name: &str, value: fn(&Line) -> Option<u128>| {
        let signed = |line| value(line).map(|time| i128::try_from(time).unwrap_or(i128::MAX));
        let values = totals::signed(lines.iter().map(signed));
        let field = Field::new(name, values.data_type().clone(), true);
        (field.with_metadata(metadata(UNIT, "ns")), values)
    };
    let spare = |field: Field, place: &str| {
        let mut metadata = field.metadata().clone();
        metadata.insert(SPARE.to_owned(), place.to_owned());
        field.with_metadata(metadata)
    };
    let own = duration("self", |line| line.own);
    let columns = vec![
        (
            Field::new("total_percent", DataType::Float64, true),
            percents(|line| line.total),
        ),
        (
            spare(Field::new("self_percent", DataType::Float64, true), "1"),
            percents(|line| line.own),
        ),
        duration("total", |line| line.total),
        (spare(own.0, "3"), own.1),
        (
            spare(Field::new("count", DataType::UInt64, false), "2"),
            numbers(|line| line.count),
        ),
        (
            Field::new("depth", DataType::Int32, false).with_metadata(metadata(TERMINAL, "hidden")),
            Arc::new(Int32Array::from_iter_values(depths)),
        ),
        (
            Field::new("function", DataType::Utf8, false).with_metadata(metadata(INDENT, "depth")),
            Arc::new(StringArray::from_iter_values(names)),
        ),
    ];
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

fn lines(paths: &Paths, pruning: Pruning) -> Vec<Line> {
    let nodes = &paths.nodes;
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().skip(1) {
        children[node.parent as usize].push(index as u32);
    }
    let name = |node: u32| paths.names[nodes[node as usize].name as usize].as_str();
    for siblings in &mut children {
        // The shortest first: they are popped from the end.
        siblings.sort_by(|&a, &b| {
            (nodes[a as usize].weight, name(b)).cmp(&(nodes[b as usize].weight, name(a)))
        });
    }
    let least = (nodes[0].weight as f64 * pruning.least_percent / 100.0).ceil() as u128;
    let mut lines = Vec::new();
    let mut pending: Vec<(u32, usize)> = children[0].iter().map(|&child| (child, 0)).collect();
    let known = |count: u64, time: u128| (count > 0).then_some(time);
    // The omitted siblings, and their weight, become one line after the last one printed.
    let mut rest: Option<(Line, u128)> = None;
    while let Some((index, depth)) = pending.pop() {
        let node = &nodes[index as usize];
        if node.weight < least || depth >= pruning.deepest {
            let (others, weight) = rest.get_or_insert_with(|| {
                let others = Line {
                    name: "[…]".to_owned(),
                    depth,
                    count: 0,
                    total: None,
                    own: None,
                };
                (others, 0)
            });
            let add = |sum: &mut Option<u128>, time: Option<u128>| {
                *sum = sum.map_or(time, |sum| Some(sum + time.unwrap_or(0)));
            };
            others.count += node.count;
            *weight += node.weight;
            add(&mut others.total, known(node.known, node.total));
            add(&mut others.own, known(node.known_own, node.own));
            let is_last = pending.last().is_none_or(|&(_, next)| next < depth);
            // If even their sum is below the limit, the line is omitted.
            let heavy = |rest: &(Line, u128)| rest.1 >= least;
            if is_last && let Some((others, _)) = rest.take().filter(heavy) {
                lines.push(others);
            }
            continue;
        }
        lines.push(Line {
            name: name(index).to_owned(),
            depth,
            count: node.count,
            // A group, such as a thread, is not a call.
            total: match node.count {
                0 => Some(node.weight),
                _ => known(node.known, node.total),
            },
            own: match node.count {
                0 => Some(0),
                _ => known(node.known_own, node.own),
            },
        });
        pending.extend(
            children[index as usize]
                .iter()
                .map(|&child| (child, depth + 1)),
        );
    }
    if pruning.lines > 0 {
        lines.truncate(pruning.lines);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::paths::Node;

    #[test]
    fn omitted_functions_are_one_line() {
        let node = |parent, name, total, own| Node {
            parent,
            name,
            count: 1,
            known: 1,
            known_own: 1,
            total,
            weight: total,
            own,
        };
        let paths = Paths {
            nodes: vec![
                node(0, 0, 1000, 0),
                node(0, 0, 900, 880),
                node(1, 1, 10, 10),
                node(1, 2, 7, 7),
                node(0, 3, 100, 100),
                node(1, 3, 3, 3),
            ],
            names: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            ..Paths::default()
        };
        let shown = |least_percent, deepest| -> Vec<String> {
            let pruning = Pruning {
                least_percent,
                deepest,
                lines: 0,
            };
            let lines = lines(&paths, pruning);
            lines
                .iter()
                .map(|line| format!("{} {} {}", line.depth, line.name, line.total.unwrap()))
                .collect()
        };
        assert_eq!(
            shown(0.0, 9),
            ["0 a 900", "1 b 10", "1 c 7", "1 d 3", "0 d 100"]
        );
        assert_eq!(shown(0.8, 9), ["0 a 900", "1 b 10", "1 […] 10", "0 d 100"]);
        assert_eq!(shown(0.0, 1), ["0 a 900", "1 […] 20", "0 d 100"]);
    }

    #[test]
    fn what_is_unknown_is_not_zero() {
        let paths = Paths {
            nodes: vec![
                Node {
                    weight: 50,
                    ..Node::default()
                },
                // Its end is missing; its callee took 30.
                Node {
                    count: 1,
                    weight: 30,
                    ..Node::default()
                },
                Node {
                    parent: 1,
                    name: 1,
                    count: 2,
                    known: 1,
                    known_own: 1,
                    total: 30,
                    own: 30,
                    weight: 30,
                },
            ],
            names: ["main", "work"].map(str::to_owned).to_vec(),
            ..Paths::default()
        };
        let pruning = Pruning {
            least_percent: 0.0,
            deepest: 9,
            lines: 0,
        };
        let lines = lines(&paths, pruning);
        let of = |line: &Line| (line.name.clone(), line.total, line.own);
        let expected = [
            ("main".to_owned(), None, None),
            ("work".to_owned(), Some(30), Some(30)),
        ];
        assert_eq!(lines.iter().map(of).collect::<Vec<_>>(), expected);
    }
}
