//! Places the boxes of a flame graph: level, start and width as shares of the picture.

use super::tree::{FlameTree, Kind};

/// A box with its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Placed {
    /// 0 is the common root.
    pub(super) node: u32,
    /// Levels from the root.
    pub(super) level: u32,
    /// Left edge and width, of 1.
    pub(super) start: f64,
    pub(super) width: f64,
    pub(super) total: u128,
    pub(super) own: u128,
    /// Total in the trace that this one is compared with.
    pub(super) before: u128,
}

/// The boxes to draw.
#[derive(Debug)]
pub(super) struct Layout {
    /// Depth first: every box follows the one below it.
    pub(super) boxes: Vec<Placed>,
    /// Number of levels, with the root's.
    pub(super) levels: u32,
    /// Number of boxes that are too narrow or too deep to draw.
    pub(super) narrow: usize,
    pub(super) deep: usize,
}

/// Limits of the drawing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cutoff {
    /// Minimum width of a box.
    pub(super) least_width: f64,
    /// Maximum number of boxes; the widest are drawn.
    pub(super) most: usize,
    /// Maximum number of levels above the root.
    pub(super) levels: u32,
    /// Whether siblings are sorted by weight.
    pub(super) heaviest_first: bool,
}

/// Places all boxes that are wide enough. The heaviest groups come first, functions in the order of their names.
pub(super) fn layout(tree: &FlameTree, cutoff: Cutoff) -> Layout {
    let totals = tree.totals();
    let (all, all_before) = totals[0];
    let share = |weight: u128, all: u128| match all {
        0 => 0.0,
        all => weight as f64 / all as f64,
    };
    // In a comparison, the width is the mean of both shares, so that frames of only one trace are visible.
    let width = |node: usize| match (all, all_before) {
        (_, 0) => share(totals[node].0, all),
        (0, _) => share(totals[node].1, all_before),
        _ => (share(totals[node].0, all) + share(totals[node].1, all_before)) / 2.0,
    };
    let mut layout = Layout {
        boxes: Vec::new(),
        levels: 0,
        narrow: 0,
        deep: 0,
    };
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); tree.nodes.len()];
    // A caller is at least as wide as its callees and precedes them.
    let mut ranking: Vec<(f64, usize)> = (1..tree.nodes.len())
        .map(|node| (width(node), node))
        .filter(|&(width, _)| width > 0.0)
        .collect();
    let candidates = ranking.len();
    ranking.retain(|&(width, _)| width >= cutoff.least_width);
    if ranking.len() > cutoff.most {
        ranking.select_nth_unstable_by(cutoff.most, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranking.truncate(cutoff.most);
    }
    layout.narrow = candidates - ranking.len();
    for (_, node) in ranking {
        children[tree.nodes[node].parent as usize].push(node as u32);
    }
    for above in &mut children {
        let order = |&node: &u32| order(tree, &totals, node, cutoff.heaviest_first);
        above.sort_by(|a, b| order(a).cmp(&order(b)));
    }
    let mut pending = vec![(0u32, 0u32, 0.0)];
    while let Some((node, level, start)) = pending.pop() {
        layout.levels = layout.levels.max(level + 1);
        layout.boxes.push(Placed {
            node,
            level,
            start,
            width: width(node as usize),
            total: totals[node as usize].0,
            own: tree.nodes[node as usize].own,
            before: totals[node as usize].1,
        });
        let above = &children[node as usize];
        if level == cutoff.levels {
            layout.deep += above.len();
            continue;
        }
        let mut next = start;
        let first = pending.len();
        for &child in above {
            pending.push((child, level + 1, next));
            next += width(child as usize);
        }
        pending[first..].reverse();
    }
    layout
}

/// The order of siblings.
fn order<'t>(
    tree: &'t FlameTree,
    totals: &[(u128, u128)],
    node: u32,
    heaviest_first: bool,
) -> (u8, std::cmp::Reverse<u128>, &'t str, u32) {
    let label = tree.label(node);
    let (rank, weight) = match label.kind {
        Kind::Group => (0, totals[node as usize].0),
        _ if heaviest_first => (1, totals[node as usize].0),
        Kind::Incomplete => (2, 0),
        _ => (1, 0),
    };
    (rank, std::cmp::Reverse(weight), &label.name, node)
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::tree;
    use super::*;

    #[test]
    fn boxes_lie_on_their_callers() {
        let tree = tree(&[
            (&["main", "write"], 60),
            (&["main", "read"], 30),
            (&["main"], 9),
            (&["main", "read", "deep"], 1),
        ]);
        let cutoff = Cutoff {
            least_width: 0.02,
            most: 100,
            levels: 9,
            heaviest_first: false,
        };
        let found = layout(&tree, cutoff);
        let places: Vec<(&str, u32, f64, f64)> = found.boxes[1..]
            .iter()
            .map(|placed| {
                let name = tree.label(placed.node).name.as_str();
                (name, placed.level, placed.start, placed.width)
            })
            .collect();
        assert_eq!(
            places,
            [
                ("main", 1, 0.0, 1.0),
                ("read", 2, 0.0, 0.31),
                ("write", 2, 0.31, 0.6)
            ]
        );
        assert_eq!((found.levels, found.narrow, found.deep), (3, 1, 0));
        let found = layout(
            &tree,
            Cutoff {
                levels: 1,
                ..cutoff
            },
        );
        assert_eq!((found.levels, found.boxes.len(), found.deep), (2, 2, 2));
    }
}
