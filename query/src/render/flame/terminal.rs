//! Flame graphs as text: a line for each level, the root first.
//!
//! ```text
//! ▏all
//! ▏sort 61%                        ▏ls 38%
//! ▏main 60%                        ▏main 37%
//! ▏compare 41%         ▏write 12%  ▏getdents64 20%  ▏w…
//! ```

use std::io::Write;

use anyhow::Result;
use perfquet_trace::count::counted;

use super::Flame;
use super::layout::{Cutoff, Placed, layout};
use super::palette::{self, UNCHANGED};
use super::tree::Kind;
use crate::text::{columns as columns_of, shortened};

/// Levels on a terminal, if no other number is given.
const USUAL_LEVELS: u32 = 24;
/// Narrowest box with a name.
const LEAST_NAME: usize = 3;

/// Draws all boxes that are at least one column wide.
pub(super) fn write(
    flame: &Flame,
    out: &mut dyn Write,
    columns: usize,
    is_colored: bool,
) -> Result<()> {
    let columns = columns.max(20);
    let levels = flame.look.levels.unwrap_or(USUAL_LEVELS);
    let layout = layout(
        &flame.tree,
        Cutoff {
            least_width: 0.5 / columns as f64,
            most: usize::MAX,
            levels,
            heaviest_first: flame.look.is_reversed,
        },
    );
    let mut lines: Vec<Vec<&Placed>> = vec![Vec::new(); layout.levels as usize];
    for placed in &layout.boxes {
        lines[placed.level as usize].push(placed);
    }
    let root = layout.boxes[0];
    for line in &lines {
        let mut used = 0;
        let mut text = String::new();
        let mut last_color = None;
        for placed in line {
            let [from, to] = [placed.start, placed.start + placed.width]
                .map(|share| (share * columns as f64).round() as usize);
            if to <= from.max(used) {
                continue;
            }
            let from = from.max(used);
            text.extend(std::iter::repeat_n(' ', from - used));
            used = to;
            let label = named(flame, placed, &root, to - from);
            if !is_colored {
                text.push_str(&label);
                last_color = None;
                continue;
            }
            let pair = color(flame, placed, &root);
            // Neighbors of one color differ in their shade.
            let shade = usize::from(last_color == Some(pair[0]));
            last_color = Some(pair[shade]);
            // All are light: black on them is readable.
            text.push_str(&format!(
                "\x1b[48;5;{}m\x1b[38;5;16m{label}\x1b[0m",
                pair[shade]
            ));
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    if layout.deep > 0 {
        let deep = counted(layout.deep as u64, "frame");
        writeln!(
            out,
            "{deep} above level {levels} not drawn (--depth 0 for all)"
        )?;
    }
    Ok(())
}

/// A box as text, `width` columns wide.
fn named(flame: &Flame, placed: &Placed, root: &Placed, width: usize) -> String {
    let name = match placed.node {
        0 => "all",
        node => flame.tree.label(node).name.as_str(),
    };
    let mut text = String::from("▏");
    let room = width - 1;
    if room >= LEAST_NAME {
        let share = share_text(placed, root);
        match columns_of(name) + share.len() < room {
            true => text.push_str(&format!("{name}{share}")),
            false => text.push_str(&shortened(name, room)),
        }
    }
    let used = columns_of(&text);
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    text
}

/// ` 41%`; of two traces the change, ` +1.2`.
fn share_text(placed: &Placed, root: &Placed) -> String {
    let share = |weight: u128, all: u128| weight as f64 / all.max(1) as f64 * 100.0;
    let now = share(placed.total, root.total);
    match (placed.node, root.before) {
        (0, _) => String::new(),
        (_, 0) => format!(" {now:.0}%"),
        (_, before) => format!(" {:+.1}", now - share(placed.before, before)),
    }
}

/// Two shades of one of the 256 colors of terminals.
fn color(flame: &Flame, placed: &Placed, root: &Placed) -> [u8; 2] {
    if placed.node == 0 {
        return [251, 252];
    }
    if let Some(step) = flame.change(placed, root) {
        let far = step.abs_diff(UNCHANGED);
        return match step < UNCHANGED {
            _ if far == 0 => [251, 252],
            true => [[153, 152], [117, 116], [75, 74], [33, 32]][far - 1],
            false => [[223, 222], [216, 215], [209, 208], [202, 166]][far - 1],
        };
    }
    match (flame.tree.label(placed.node).kind, flame.look.is_off_cpu) {
        (Kind::Group, _) => [250, 249],
        (Kind::Incomplete, _) => [246, 247],
        (Kind::Unknown, _) => [248, 249],
        (Kind::Kernel, false) => [209, 216],
        (Kind::Program, false) => [222, 228],
        (Kind::Library, false) => [115, 151],
        (Kind::Inlined, false) => [182, 183],
        (Kind::Generated, false) => [150, 149],
        (Kind::Function, false) => [221, 215],
        (Kind::Kernel, true) => [75, 74],
        (Kind::Program, true) => [153, 152],
        (Kind::Library, true) => [116, 80],
        (Kind::Inlined, true) => [147, 146],
        (Kind::Generated, true) => [115, 114],
        (Kind::Function, true) => [111, 117],
    }
}

/// Number of the steps of change that have a color, on both sides.
const _: () = assert!(palette::STEPS == 2 * 4 + 1);

#[cfg(test)]
mod tests {
    use super::super::tree::tests::tree;
    use super::super::{Flame, Look};
    use super::*;

    #[test]
    fn boxes_fit_their_columns() {
        let flame = Flame {
            title: String::new(),
            source: String::new(),
            subtitle: String::new(),
            notes: Vec::new(),
            tree: tree(&[
                (&["main", "write"], 60),
                (&["main", "read_everything"], 30),
                (&["main", "read_everything", "deep"], 10),
            ]),
            unit: "samples".to_owned(),
            compared: None,
            look: Look {
                levels: Some(2),
                ..Look::default()
            },
        };
        let mut out = Vec::new();
        write(&flame, &mut out, 40, false).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "▏all\n▏main 100%\n▏read_everything▏write 60%\n1 frame above level 2 not drawn (--depth 0 for all)\n"
        );
    }
}
