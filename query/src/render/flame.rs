//! Flame graphs as SVG, by inferno (CDDL-1.0, a port of Brendan Gregg's flamegraph.pl).

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Options};

use crate::text::harmless;
use crate::totals;

/// Default width of an image in pixels.
const USUAL_WIDTH: u32 = 1200;
/// Narrower boxes are not drawn.
const NARROWEST_PIXELS: f64 = 0.1;

/// Stacks with weights, and the labels of their image.
pub(crate) struct Flame {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) stacks: Merged,
    /// Sum of all weights.
    pub(crate) weight: u128,
    /// Unit of the weights.
    pub(crate) unit: &'static str,
    /// Width of the image in pixels.
    pub(crate) width: Option<u32>,
}

impl Flame {
    /// Draws the image, without frames too narrow to see.
    pub(super) fn draw(&self, out: &mut dyn Write) -> Result<()> {
        let pixels = self.width.unwrap_or(USUAL_WIDTH);
        let least = (self.weight as f64 * NARROWEST_PIXELS / f64::from(pixels)) as u128;
        let scale = scale(self.weight);
        let stacks = self.stacks.clone().scaled(scale).folded(least / scale);
        let unit = match scale {
            1 => self.unit.to_owned(),
            scale => format!("{scale} {}", self.unit),
        };
        self.write_svg(out, &stacks, &unit)
    }

    fn write_svg(&self, out: &mut dyn Write, stacks: &[(String, u128)], unit: &str) -> Result<()> {
        let mut options = Options::default();
        options.title = harmless(&self.title).into_owned();
        options.subtitle = Some(harmless(&self.subtitle).into_owned());
        options.count_name = harmless(unit).into_owned();
        options.colors = Palette::Multi(MultiPalette::Java);
        options.image_width = self.width.map(|width| width as usize);
        options.min_width = NARROWEST_PIXELS / f64::from(self.width.unwrap_or(USUAL_WIDTH)) * 100.0;
        // The same trace gives the same image.
        options.hash = true;
        let lines: Vec<String> = stacks.iter().map(line_with_one_count).collect();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)?;
        Ok(())
    }

    /// Writes folded stacks: `main;read 12`.
    pub(super) fn write_folded(&self, out: &mut dyn Write) -> Result<()> {
        for (stack, weight) in self.stacks.clone().folded(1) {
            writeln!(out, "{} {weight}", plain(&stack))?;
        }
        Ok(())
    }

    /// Returns a row per stack.
    pub(super) fn rows(&self) -> Result<RecordBatch> {
        let stacks = self.stacks.clone().folded(1);
        let names = StringArray::from_iter_values(stacks.iter().map(|(stack, _)| plain(stack)));
        let weights = totals::unsigned(stacks.iter().map(|&(_, weight)| weight));
        let names: ArrayRef = Arc::new(names);
        Ok(RecordBatch::try_from_iter([
            ("stack", names),
            ("weight", weights),
        ])?)
    }
}

/// A stack without the suffixes that color kernel functions.
fn plain(stack: &str) -> String {
    stack.replace(KERNEL, "")
}

/// Suffix of the names of kernel functions, which inferno colors.
pub(crate) const KERNEL: &str = "_[k]";

/// Returns the power of ten that scales the weights down to 63 bits.
fn scale(weight: u128) -> u128 {
    let mut scale = 1;
    while weight / scale > i64::MAX as u128 {
        scale *= 10;
    }
    scale
}

/// All stacks merged by frame names. Node 0 is the common root.
#[derive(Debug, Clone)]
pub(crate) struct Merged {
    pub(crate) nodes: Vec<Node>,
    pub(crate) names: Vec<String>,
}

/// A frame with its callers.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) parent: u32,
    /// Index of the name; those that end in `_[k]` are kernel functions.
    pub(crate) name: u32,
    /// Weight of the stacks that end here.
    pub(crate) own: u128,
}

impl Merged {
    /// Divides the weights by `scale`.
    fn scaled(mut self, scale: u128) -> Merged {
        if scale > 1 {
            self.nodes.iter_mut().for_each(|node| node.own /= scale);
        }
        self
    }

    /// Returns folded stacks with their weights, in the order of their names. Nodes that weigh less than `least` are added
    /// to their callers.
    fn folded(mut self, least: u128) -> Vec<(String, u128)> {
        let mut totals: Vec<u128> = self.nodes.iter().map(|node| node.own).collect();
        for node in (1..self.nodes.len()).rev() {
            let parent = self.nodes[node].parent as usize;
            totals[parent] += totals[node];
            if totals[node] < least {
                self.nodes[parent].own += totals[node];
            }
        }
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for node in (1..self.nodes.len()).filter(|&node| totals[node] >= least) {
            children[self.nodes[node].parent as usize].push(node as u32);
        }
        for siblings in &mut children {
            siblings.sort_by(|&a, &b| self.name_of(b).cmp(self.name_of(a)));
        }
        let mut stacks = Vec::new();
        // Depth first, with the length of the path before each node.
        let mut path = String::new();
        let mut pending = vec![(0u32, 0usize)];
        while let Some((node, length)) = pending.pop() {
            path.truncate(length);
            if node != 0 {
                if length > 0 {
                    path.push(';');
                }
                path.push_str(self.name_of(node));
            }
            let own = self.nodes[node as usize].own;
            if own > 0 {
                let name = if path.is_empty() { "[no stack]" } else { &path };
                stacks.push((name.to_owned(), own));
            }
            pending.extend(
                children[node as usize]
                    .iter()
                    .map(|&child| (child, path.len())),
            );
        }
        stacks
    }

    pub(crate) fn name_of(&self, node: u32) -> &str {
        &self.names[self.nodes[node as usize].name as usize]
    }
}

/// A folded stack with its weight. inferno reads two numbers at the end of a line as a difference: if a name ends with
/// a number, the blank before it becomes a no-break space.
fn line_with_one_count((stack, weight): &(String, u128)) -> String {
    match stack.rsplit_once(' ') {
        Some((stack, last)) if last.parse::<f64>().is_ok() => {
            format!("{stack}\u{a0}{last} {weight}")
        }
        _ => format!("{stack} {weight}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_end_in_a_number() {
        let line = |stack: &str| line_with_one_count(&(stack.to_owned(), 5));
        assert_eq!(line("a;worker 12"), "a;worker\u{a0}12 5");
        assert_eq!(line("a;f(int, int)"), "a;f(int, int) 5");
        assert_eq!(line("a"), "a 5");
        let flame = Flame {
            title: "a\u{1}".to_owned(),
            subtitle: String::new(),
            stacks: merged(&[(&["a", "worker 12"], 5), (&["a", "worker 13"], 7)]),
            weight: 12,
            unit: "samples",
            width: None,
        };
        let mut image = Vec::new();
        flame.draw(&mut image).unwrap();
        let text = String::from_utf8(image).unwrap();
        assert!(
            text.contains("worker\u{a0}12 (5 samples, 41.67%)"),
            "{text}"
        );
        assert!(!text.contains('\u{1}') && text.contains("a\\x01"));
    }

    /// The stacks, each with a separate node for every frame.
    fn merged(stacks: &[(&[&str], u128)]) -> Merged {
        let node = |parent: usize, name: usize, own: u128| Node {
            parent: parent as u32,
            name: name as u32,
            own,
        };
        let mut merged = Merged {
            nodes: vec![node(0, 0, 0)],
            names: Vec::new(),
        };
        for (stack, weight) in stacks {
            let mut parent = 0;
            for frame in *stack {
                let known = (1..merged.nodes.len()).find(|&child| {
                    let child = &merged.nodes[child];
                    child.parent as usize == parent && merged.names[child.name as usize] == **frame
                });
                parent = known.unwrap_or_else(|| {
                    merged.nodes.push(node(parent, merged.names.len(), 0));
                    merged.names.push((*frame).to_owned());
                    merged.nodes.len() - 1
                });
            }
            merged.nodes[parent].own += weight;
        }
        merged
    }

    #[test]
    fn stacks_are_sorted_and_no_weight_is_lost() {
        let stacks: &[(&[&str], u128)] = &[
            (&["main", "b"], 5),
            (&["main", "a:x"], 3),
            (&["main"], 1),
            (&["main", "b", "c"], 2),
            (&[], 4),
        ];
        let folded = |least| {
            let folded = merged(stacks).folded(least);
            let lines = folded
                .iter()
                .map(|(stack, weight)| format!("{stack} {weight}"));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(
            folded(1),
            [
                "[no stack] 4",
                "main 1",
                "main;a:x 3",
                "main;b 5",
                "main;b;c 2"
            ]
        );
        // Narrow frames are added to their callers.
        assert_eq!(folded(4), ["[no stack] 4", "main 4", "main;b 7"]);
    }
}
