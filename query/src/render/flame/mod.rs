//! Flame graphs: as an image, on the terminal, as folded stacks, and as rows.

mod layout;
mod palette;
mod svg;
mod terminal;
mod tree;

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use perfquet::unit::{DURATION, UNIT};

use self::layout::Placed;
use crate::totals;

pub(crate) use self::palette::table as colors;
pub(crate) use self::tree::{FlameTree, Kind, Label, Node};

/// Stacks with weights, and the labels of their picture.
pub(crate) struct Flame {
    pub(crate) title: String,
    /// Name of the event, aggregation or table.
    pub(crate) source: String,
    /// Event, number of samples, total with its unit.
    pub(crate) subtitle: String,
    /// Notes for the reader, one line each.
    pub(crate) notes: Vec<String>,
    pub(crate) tree: FlameTree,
    /// Unit of the weights: `ns`, or a noun in the plural.
    pub(crate) unit: String,
    /// The trace that the weights `before` are from.
    pub(crate) compared: Option<Compared>,
    pub(crate) look: Look,
}

/// How a flame graph is drawn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    /// Pixels; `None` for the width of the window.
    pub(crate) width: Option<u32>,
    /// Leaves are at the root, with their callers above.
    pub(crate) is_reversed: bool,
    /// The root is at the top.
    pub(crate) is_icicle: bool,
    /// Whether colors initially show modules instead of kinds of code.
    pub(crate) by_module: bool,
    /// Colors of time off the CPU.
    pub(crate) is_off_cpu: bool,
    /// Levels above the root; `None` for all, on a terminal [`terminal::USUAL_LEVELS`].
    pub(crate) levels: Option<u32>,
}

/// A trace that another one is compared with.
#[derive(Debug, Clone)]
pub(crate) struct Compared {
    pub(crate) name: String,
    /// Numbers of samples, of the trace and of the one before, to distinguish change from noise. `None` if weights are not
    /// those of samples.
    pub(crate) samples: Option<(u64, u64)>,
}

impl Compared {
    /// The color for shares of `now` and `before`: steps at 0.1, 0.5, 2 and 8 percentage points.
    fn step(&self, now: f64, before: f64) -> usize {
        let points = (now - before) * 100.0;
        let limits = [0.1, 0.5, 2.0, 8.0];
        let steps = limits.iter().filter(|&&limit| points.abs() >= limit);
        match (self.is_noise(now, before), points < 0.0) {
            (true, _) => palette::UNCHANGED,
            (false, true) => palette::UNCHANGED - steps.count(),
            (false, false) => palette::UNCHANGED + steps.count(),
        }
    }

    /// Whether two shares may be the same: they differ by less than 1.96 standard errors.
    fn is_noise(&self, now: f64, before: f64) -> bool {
        let Some((count, count_before)) = self.samples else {
            return false;
        };
        let (count, count_before) = (count.max(1) as f64, count_before.max(1) as f64);
        let pooled = (now * count + before * count_before) / (count + count_before);
        let variance = pooled * (1.0 - pooled) * (1.0 / count + 1.0 / count_before);
        (now - before).abs() < 1.96 * variance.max(0.0).sqrt()
    }
}

impl Flame {
    /// Draws the image.
    pub(super) fn draw(&self, out: &mut dyn Write) -> Result<()> {
        svg::draw(self, out)
    }

    /// Draws the boxes as text, `columns` wide.
    pub(super) fn write_text(
        &self,
        out: &mut dyn Write,
        columns: usize,
        is_colored: bool,
    ) -> Result<()> {
        terminal::write(self, out, columns, is_colored)
    }

    /// The step of a difference's color; `None` if nothing is compared.
    fn change(&self, placed: &Placed, root: &Placed) -> Option<usize> {
        let compared = self.compared.as_ref()?;
        let share = |weight: u128, all: u128| weight as f64 / all.max(1) as f64;
        let now = share(placed.total, root.total);
        Some(compared.step(now, share(placed.before, root.before)))
    }

    /// Writes folded stacks: `main;read 12`; of two traces, the weight before comes first, as in difffolded.pl.
    pub(super) fn write_folded(&self, out: &mut dyn Write) -> Result<()> {
        for (stack, (weight, before)) in self.tree.folded() {
            match self.compared {
                Some(_) => writeln!(out, "{stack} {before} {weight}")?,
                None => writeln!(out, "{stack} {weight}")?,
            }
        }
        Ok(())
    }

    /// Returns a row per stack.
    pub(super) fn rows(&self) -> Result<RecordBatch> {
        let stacks = self.tree.folded();
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(stacks.keys()));
        let weights = totals::unsigned(stacks.values().map(|weights| weights.0));
        let mut columns = vec![("stack", names), ("weight", weights)];
        if self.compared.is_some() {
            let before = totals::unsigned(stacks.values().map(|weights| weights.1));
            columns.insert(1, ("before", before));
        }
        let rows = RecordBatch::try_from_iter(columns)?;
        if self.unit != DURATION {
            return Ok(rows);
        }
        let schema = rows.schema();
        let fields = schema.fields().iter().enumerate().map(|(place, field)| {
            let metadata = [(UNIT.to_owned(), DURATION.to_owned())];
            let metadata = if place > 0 {
                metadata.into()
            } else {
                HashMap::new()
            };
            field.as_ref().clone().with_metadata(metadata)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(RecordBatch::try_new(schema, rows.columns().to_vec())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flame(tree: FlameTree) -> Flame {
        Flame {
            title: "a\u{1}<b>".to_owned(),
            source: "cpu-clock".to_owned(),
            subtitle: "12 samples".to_owned(),
            notes: Vec::new(),
            tree,
            unit: "samples".to_owned(),
            compared: None,
            look: Look::default(),
        }
    }

    fn image(flame: &Flame) -> String {
        let mut image = Vec::new();
        flame.draw(&mut image).unwrap();
        String::from_utf8(image).unwrap()
    }

    #[test]
    fn names_are_harmless_and_weights_exact() {
        let name = "evil<script>]]>\u{1}";
        let tree = tree::tests::tree(&[(&["a", name], 5), (&["a", "worker 13"], 7)]);
        let text = image(&flame(tree));
        assert!(!text.contains('\u{1}') && !text.contains("evil<"));
        assert!(text.contains("a\\x01&lt;b&gt;"));
        // Level, label, total, own: the root, `a` and its callees.
        assert!(
            text.contains("[0,0,12,0,1,1,12,0,2,2,5,5,2,3,7,7]"),
            "{text}"
        );
        assert_eq!(text.matches("class=\"b ").count(), 4);
    }

    #[test]
    fn images_are_never_larger_than_a_megabyte() {
        let names: Vec<String> = (0..30_000)
            .map(|number| format!("{}{number}", "f".repeat(300)))
            .collect();
        let mut tree = FlameTree::new();
        for (label, name) in names.iter().enumerate() {
            tree.labels.push(Label::new(name.clone(), Kind::Function));
            tree.nodes.push(Node {
                parent: 0,
                label: label as u32,
                own: 1 + u128::from(label as u32 % 7),
                before: 0,
            });
        }
        let text = image(&flame(tree));
        assert!(text.len() < 1_000_000, "{}", text.len());
        assert!(text.matches("class=\"b ").count() > 100);
    }

    #[test]
    fn weights_beyond_a_scripts_numbers_are_scaled() {
        let tree = tree::tests::tree(&[(&["a"], 1 << 60), (&["b"], u128::from(u64::MAX))]);
        let text = image(&flame(tree));
        assert!(text.contains("&quot;10000 samples&quot;"), "{text}");
    }

    #[test]
    fn noise_is_no_change() {
        let compared = |samples| Compared {
            name: String::new(),
            samples,
        };
        assert_eq!(compared(None).step(0.5, 0.5), 4);
        assert_eq!(compared(None).step(0.53, 0.5), 7);
        assert_eq!(compared(None).step(0.4, 0.5), 0);
        assert_eq!(compared(Some((100, 100))).step(0.53, 0.5), 4);
        assert_eq!(compared(Some((10_000, 10_000))).step(0.53, 0.5), 7);
    }
}
