//! Flame graphs as SVG. The file contains all boxes, for viewers without scripts; the script lays them out again for the
//! width of the window, zooms and searches.
//!
//! A box is a `<rect>`; the metadata has its level, label, total and self weight, in the same order.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use perfquet_trace::count::counted;
use serde_json::json;

use super::Flame;
use super::layout::{Cutoff, Layout, Placed, layout};
use super::palette;
use super::tree::{FlameTree, Kind, Node};
use crate::render::drawing::{MARGIN, Page, USUAL_WIDTH, below_titles, escaped};
use crate::text::{cut_right, harmless, shortened};

/// Height of a level, and of the boxes in it.
const LEVEL: f64 = 18.0;
const BOX: f64 = 17.0;
const GAP: f64 = 0.7;
/// Width of a letter in a box.
const LETTER: f64 = 7.25;
/// Maximum size of the boxes. With titles and legend, an image stays below 1 MB.
const MOST_BYTES: usize = 900_000;
/// Maximum number of boxes; more are slow to lay out again.
const MOST_BOXES: usize = 9_000;
/// No box is drawn that is narrower than this part of a pixel.
const LEAST_PIXELS: f64 = 0.05;
/// Maximum length of a name; no screen is wide enough for longer ones.
const LONGEST_NAME: usize = 400;

/// Draws the image.
pub(super) fn draw(flame: &Flame, out: &mut dyn Write) -> Result<()> {
    let mut most = MOST_BOXES;
    let mut text = drawn(flame, most);
    while text.len() > MOST_BYTES && most > 100 {
        most = most * MOST_BYTES / text.len() * 9 / 10;
        text = drawn(flame, most);
    }
    out.write_all(text.as_bytes())?;
    Ok(())
}

fn drawn(flame: &Flame, most: usize) -> String {
    let width = f64::from(flame.look.width.unwrap_or(USUAL_WIDTH));
    let plot = width - 2.0 * MARGIN;
    let layout = layout(
        &flame.tree,
        Cutoff {
            least_width: LEAST_PIXELS / plot,
            most,
            levels: flame.look.levels.unwrap_or(u32::MAX),
            heaviest_first: flame.look.is_reversed,
        },
    );
    let mut notes = flame.notes.clone();
    if layout.deep > 0 {
        let boxes = counted(layout.deep as u64, "frame");
        notes.push(format!(
            "{boxes} above level {} not drawn (--depth)",
            layout.levels.saturating_sub(1)
        ));
    }
    let legend_y = below_titles(notes.len());
    let leaves = leaf_weights(flame);
    let modules = Modules::of(&flame.tree, &leaves);
    let kinds = Legend::of_kinds(&flame.tree, &leaves);
    let by_module = modules.legend();
    let lines = match flame.compared.is_some() {
        true => 2,
        false => kinds.lines.max(by_module.lines),
    };
    let top = legend_y + 30.0 + LEGEND_LINE * (lines.max(1) - 1) as f64;
    let height = top + f64::from(layout.levels) * LEVEL + 16.0;
    let [light, dark] = palette::styles(flame.look.is_off_cpu, flame.compared.is_some());
    let page = Page {
        width: flame.look.width,
        height,
        title: &flame.title,
        subtitle: &flame.subtitle,
        notes: &notes,
        style: [&light, &dark],
        class: match flame.look.by_module {
            true => "by-module",
            false => "by-kind",
        },
    };
    let mut text = page.begin();
    text.push_str(
        "<defs><pattern id=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect class=\"hatch\" width=\"7\" height=\"7\"/><line class=\"stripe\" y2=\"7\" stroke-width=\"3\"/></pattern></defs>\n",
    );
    match flame.compared.is_some() {
        true => legend_of_changes(&mut text, legend_y),
        false => {
            kinds.draw(&mut text, "kinds", legend_y);
            by_module.draw(&mut text, "modules", legend_y);
        }
    }
    let _ = writeln!(
        text,
        "<svg id=\"boxes\" class=\"plot\" data-margins=\"{}\" x=\"{MARGIN}\" y=\"{top}\" width=\"{plot}\" height=\"{}\">",
        2.0 * MARGIN,
        f64::from(layout.levels) * LEVEL
    );
    let y = |placed: &Placed| match flame.look.is_icicle {
        true => f64::from(placed.level) * LEVEL,
        false => f64::from(layout.levels - 1 - placed.level) * LEVEL,
    };
    let root = layout.boxes[0];
    for placed in &layout.boxes {
        let change = flame.change(placed, &root);
        rect(
            &mut text,
            flame,
            &modules,
            placed,
            change,
            [plot, y(placed)],
        );
    }
    text.push_str("<g id=\"names\">\n");
    for placed in &layout.boxes {
        name(&mut text, flame, placed, y(placed), plot);
    }
    text.push_str("</g>\n</svg>\n");
    Page::end(text, &data(flame, &layout))
}

fn rect(
    text: &mut String,
    flame: &Flame,
    modules: &Modules<'_>,
    placed: &Placed,
    change: Option<usize>,
    [plot, y]: [f64; 2],
) {
    let class = match placed.node {
        0 => "root".to_owned(),
        node => {
            let label = flame.tree.label(node);
            let color = match change {
                Some(step) => palette::change_class(step).to_owned(),
                None => format!(
                    "{} {}",
                    palette::kind_class(label.kind),
                    modules.class(label.module.as_deref())
                ),
            };
            match palette::shade(&label.name) {
                0 => color,
                // In a comparison, lightness represents the change.
                _ if change.is_some() => color,
                shade => format!("{color} s{shade}"),
            }
        }
    };
    // Wide boxes leave a gap to the next one.
    let width = placed.width * plot;
    let width = if width > 3.0 { width - GAP } else { width };
    let _ = writeln!(
        text,
        "<rect x=\"{:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{BOX}\" class=\"b {class}\"/>",
        placed.start * plot
    );
}

fn name(text: &mut String, flame: &Flame, placed: &Placed, y: f64, plot: f64) {
    let letters = ((placed.width * plot - 6.0) / LETTER) as usize;
    if letters < 3 {
        return;
    }
    let name = match placed.node {
        0 => "all",
        node => &flame.tree.label(node).name,
    };
    let _ = writeln!(
        text,
        "<text class=\"name words\" x=\"{:.1}\" y=\"{}\">{}</text>",
        placed.start * plot + 4.0,
        y + 12.5,
        escaped(&shortened(name, letters))
    );
}

/// The metadata for the script.
fn data(flame: &Flame, layout: &Layout) -> String {
    // Numbers of scripts are exact up to 2^53.
    let totals = flame.tree.totals()[0];
    let mut scale = 1;
    while totals.0.max(totals.1) / scale > 1 << 53 {
        scale *= 10;
    }
    let unit = match scale {
        1 => flame.unit.to_owned(),
        scale => format!("{scale} {}", flame.unit),
    };
    let mut labels = Vec::new();
    let mut places = vec![None; flame.tree.labels.len()];
    let mut boxes: Vec<u64> = Vec::new();
    for placed in &layout.boxes {
        let label = match placed.node {
            0 => 0,
            node => {
                let label = flame.tree.nodes[node as usize].label as usize;
                *places[label].get_or_insert_with(|| {
                    labels.push(&flame.tree.labels[label]);
                    labels.len()
                })
            }
        };
        boxes.extend([u64::from(placed.level), label as u64]);
        boxes.extend([placed.total, placed.own].map(|weight| (weight / scale) as u64));
        if flame.compared.is_some() {
            boxes.push((placed.before / scale) as u64);
        }
    }
    let labels: Vec<_> = labels
        .iter()
        .map(|label| {
            let module = label.module.as_deref().map(harmless);
            let location = label.location();
            let name = cut_right(&label.name, LONGEST_NAME);
            json!([
                name,
                label.kind.name(),
                module,
                location.as_deref().map(harmless)
            ])
        })
        .collect();
    json!({
        "kind": "flame",
        "unit": harmless(&unit),
        "labels": labels,
        "boxes": boxes,
        "compared": flame.compared.as_ref().map(|compared| harmless(&compared.name)),
        "before": (totals.1 / scale) as u64,
        "reversed": flame.look.is_reversed,
        "icicle": flame.look.is_icicle,
        "level": LEVEL,
        "narrow": layout.narrow + layout.deep,
    })
    .to_string()
}

/// The weight of each node as the leaf of stacks.
fn leaf_weights(flame: &Flame) -> Vec<u128> {
    let nodes = flame.tree.nodes.iter();
    if !flame.look.is_reversed {
        return nodes.map(|node| node.own).collect();
    }
    let totals = flame.tree.totals();
    let weight = |(node, total): (&Node, (u128, u128))| match node.parent {
        0 => total.0,
        _ => 0,
    };
    let mut weights: Vec<u128> = nodes.zip(totals).map(weight).collect();
    weights[0] = 0;
    weights
}

/// The heaviest modules, which have a separate color.
struct Modules<'t> {
    heaviest: Vec<(&'t str, u128)>,
    all: u128,
}

impl<'t> Modules<'t> {
    fn of(tree: &'t FlameTree, leaves: &[u128]) -> Modules<'t> {
        let mut weights: std::collections::HashMap<&str, u128> = std::collections::HashMap::new();
        let mut all = 0;
        for node in 1..tree.nodes.len() as u32 {
            let own = leaves[node as usize];
            all += own;
            if let Some(module) = &tree.label(node).module {
                *weights.entry(module).or_default() += own;
            }
        }
        let mut heaviest: Vec<(&str, u128)> = weights.into_iter().collect();
        heaviest.sort_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        heaviest.truncate(palette::OWN_MODULES);
        Modules { heaviest, all }
    }

    fn class(&self, module: Option<&str>) -> &'static str {
        let is_it = |entry: &(&str, u128)| Some(entry.0) == module;
        let place = self.heaviest.iter().position(is_it);
        palette::module_class(place.unwrap_or(palette::OWN_MODULES))
    }

    fn legend(&self) -> Legend {
        let mut entries: Vec<(&str, String, u128)> = self
            .heaviest
            .iter()
            .enumerate()
            .map(|(place, (module, weight))| {
                let name = module.rsplit('/').next().unwrap_or(module);
                let name = cut_right(name, 24).into_owned();
                (palette::module_class(place), name, *weight)
            })
            .collect();
        let rest = self.all - self.heaviest.iter().map(|entry| entry.1).sum::<u128>();
        entries.push((palette::module_class(usize::MAX), "other".to_owned(), rest));
        Legend::new(entries, self.all)
    }
}

/// Colors with their names, and their share of the weight without that of callees.
struct Legend {
    /// Color, name and share, with their places: x, and the line.
    entries: Vec<(&'static str, String, String, f64, usize)>,
    lines: usize,
}

/// Height of a line of a legend.
const LEGEND_LINE: f64 = 18.0;
/// Width of a legend, so that narrow windows show it whole.
const LEGEND_WIDTH: f64 = 860.0;

impl Legend {
    fn new(entries: Vec<(&'static str, String, u128)>, all: u128) -> Legend {
        let (mut x, mut line) = (MARGIN, 0);
        let mut placed = Vec::new();
        for (color, name, weight) in entries {
            let share = match weight {
                0 => String::new(),
                weight => format!(" {:.1}%", weight as f64 / all.max(1) as f64 * 100.0),
            };
            let width = 36.0 + 6.4 * (name.chars().count() + share.len()) as f64;
            if x + width > LEGEND_WIDTH && x > MARGIN {
                (x, line) = (MARGIN, line + 1);
            }
            placed.push((color, name, share, x, line));
            x += width;
        }
        Legend {
            lines: if placed.is_empty() { 0 } else { line + 1 },
            entries: placed,
        }
    }

    /// The kinds of code; nothing if there is only one.
    fn of_kinds(tree: &FlameTree, leaves: &[u128]) -> Legend {
        let mut weights = [0u128; Kind::ALL.len()];
        let mut are_there = [false; Kind::ALL.len()];
        for node in 1..tree.nodes.len() as u32 {
            let kind = tree.label(node).kind;
            let place = Kind::ALL.iter().position(|&other| other == kind);
            weights[place.unwrap_or_default()] += leaves[node as usize];
            are_there[place.unwrap_or_default()] = true;
        }
        let entries: Vec<(&'static str, String, u128)> = Kind::ALL
            .into_iter()
            .enumerate()
            .filter(|&(place, kind)| are_there[place] && kind != Kind::Group)
            .map(|(place, kind)| {
                let class = palette::kind_class(kind);
                (class, kind.name().to_owned(), weights[place])
            })
            .collect();
        match entries.len() {
            0 | 1 => Legend::new(Vec::new(), 0),
            _ => Legend::new(entries, weights.iter().sum()),
        }
    }

    fn draw(&self, text: &mut String, class: &str, y: f64) {
        if self.entries.is_empty() {
            return;
        }
        let _ = writeln!(text, "<g class=\"{class}\">");
        for (color, name, share, x, line) in &self.entries {
            let y = y + LEGEND_LINE * *line as f64;
            let _ = writeln!(
                text,
                "<rect class=\"{color}\" x=\"{x}\" y=\"{}\" width=\"13\" height=\"13\" rx=\"2\"/>\n<text class=\"small\" x=\"{}\" y=\"{}\">{}<tspan class=\"quiet\">{share}</tspan></text>",
                y - 4.0,
                x + 18.0,
                y + 6.5,
                escaped(name),
            );
        }
        text.push_str("</g>\n");
    }
}

/// The colors of differences; [`Compared::step`] has the limits.
fn legend_of_changes(text: &mut String, y: f64) {
    let less = "less than before";
    let mut x = MARGIN + 8.0 + 6.2 * less.len() as f64;
    let _ = writeln!(
        text,
        "<text class=\"small\" x=\"{MARGIN}\" y=\"{}\">{less}</text>",
        y + 6.5
    );
    for step in 0..palette::STEPS {
        let _ = writeln!(
            text,
            "<rect class=\"{}\" x=\"{x}\" y=\"{}\" width=\"26\" height=\"13\"/>",
            palette::change_class(step),
            y - 4.0
        );
        x += 26.0;
    }
    let _ = writeln!(
        text,
        "<text class=\"small\" x=\"{}\" y=\"{}\">more</text>\n<text class=\"small quiet\" x=\"{MARGIN}\" y=\"{}\">steps: 0.1, 0.5, 2 and 8 percentage points; gray: unchanged, or within noise (95%)</text>",
        x + 8.0,
        y + 6.5,
        y + 6.5 + LEGEND_LINE,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legends_begin_a_line_before_they_are_too_wide() {
        let name = "libLLVM.so.22.1-rust-1.9…";
        let entry = |_| ("m0", name.to_owned(), 10);
        let legend = Legend::new((0..9).map(entry).collect(), 90);
        assert_eq!(legend.lines, 3);
        let widest = legend
            .entries
            .iter()
            .map(|(.., x, _)| *x)
            .fold(0.0, f64::max);
        assert!(widest + 18.0 + 6.4 * 32.0 <= LEGEND_WIDTH, "{widest}");
        assert_eq!(Legend::new(vec![("k", "kernel".to_owned(), 1)], 1).lines, 1);
        assert_eq!(Legend::new(Vec::new(), 0).lines, 0);
    }
}
