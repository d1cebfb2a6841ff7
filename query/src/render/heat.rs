//! Heat maps: counts by time and by the logarithm of a value.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::grouped;

use super::drawing::{LogAxis, Page, axis_label, below_titles, escaped, percent, plot_begin};
use super::heat_colors::{HEAT, cell, cells_begin, heat_color, legend};
use crate::text::cut;

/// Data of a heat map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heat {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// Of the values; `ns` is formatted in a fitting unit.
    pub(crate) unit: String,
    /// Nanoseconds from the start of the trace to the first slot.
    pub(crate) from: i64,
    /// Nanoseconds of one slot.
    pub(crate) slot: i64,
    pub(crate) slots: u16,
    /// Several may belong to one cell of the image.
    pub(crate) cells: Vec<Cell>,
}

/// Values of a time slot that are close to each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cell {
    pub(crate) slot: i64,
    pub(crate) low: i64,
    /// Exclusive.
    pub(crate) high: i64,
    /// Their mean.
    pub(crate) value: i64,
    pub(crate) count: u64,
}

impl Heat {
    /// Draws the map.
    pub(super) fn draw(&self, out: &mut dyn Write) -> Result<()> {
        write(out, self)
    }

    /// Returns a row per time slot and range of values; times in nanoseconds from the start of the trace.
    pub(super) fn rows(&self) -> Result<RecordBatch> {
        let numbers = |value: &dyn Fn(&Cell) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(self.cells.iter().map(value)))
        };
        let slot = |number: i64| self.from.saturating_add(self.slot.saturating_mul(number));
        let counts = self.cells.iter().map(|cell| cell.count);
        Ok(RecordBatch::try_from_iter([
            ("from", numbers(&|cell| slot(cell.slot))),
            ("to", numbers(&|cell| slot(cell.slot + 1))),
            ("low", numbers(&|cell| cell.low)),
            ("high", numbers(&|cell| cell.high)),
            ("count", Arc::new(UInt64Array::from_iter_values(counts))),
        ])?)
    }
}

/// Left edge of the plot, and its distance from the right edge of the image.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const HEIGHT: f64 = 420.0;
/// Height of the strip above the map, with the total of each slot.
const STRIP: f64 = 36.0;
/// Rows per decade, if there are few decades.
const ROWS: usize = 70;

fn write(out: &mut dyn Write, heat: &Heat) -> Result<()> {
    let min = heat.cells.iter().map(|cell| cell.value).min().unwrap_or(1);
    let max = heat.cells.iter().map(|cell| cell.value).max().unwrap_or(1);
    // Distances from the bottom.
    let axis = LogAxis::new(min, max, 0.0, HEIGHT);
    let (counts, sums) = grid(heat, &axis);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let top = below_titles(0) + STRIP;
    let page = Page {
        width: None,
        height: top + HEIGHT + 80.0,
        title: &heat.title,
        subtitle: &heat.subtitle,
        notes: &[],
        style: ["", ""],
        class: "",
    };
    let mut text = page.begin();
    text.push_str(&plot_begin(LEFT, RIGHT, top));
    axes(&mut text, heat, &axis);
    strip(&mut text, heat, &sums);
    cells(&mut text, heat, &axis, &counts, most);
    text.push_str("</svg>\n");
    legend(
        &mut text,
        LEFT,
        top + HEIGHT + 56.0,
        most,
        "values per cell",
    );
    out.write_all(Page::end(text, "").as_bytes())?;
    Ok(())
}

/// Counts by slot and row, bottom row first; and by slot alone.
fn grid(heat: &Heat, axis: &LogAxis) -> (Vec<u64>, Vec<u64>) {
    let slots = usize::from(heat.slots);
    let mut counts = vec![0; slots * ROWS];
    let mut sums = vec![0; slots];
    for cell in &heat.cells {
        let slot = usize::try_from(cell.slot).unwrap_or(0).min(slots - 1);
        let row = ((axis.place(cell.value as f64) / HEIGHT * ROWS as f64) as usize).min(ROWS - 1);
        counts[row * slots + slot] += cell.count;
        sums[slot] += cell.count;
    }
    (counts, sums)
}

fn label(heat: &Heat, value: f64) -> String {
    if heat.unit == "ns" {
        return axis_label(value);
    }
    if value < 1e6 {
        grouped(value as u64)
    } else {
        format!("{value:.0e}")
    }
}

fn axes(text: &mut String, heat: &Heat, axis: &LogAxis) {
    for (value, up) in axis.decades() {
        let y = HEIGHT - up;
        let _ = writeln!(
            text,
            "<line class=\"grid\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n<text class=\"quiet small\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + 4.0,
            escaped(&label(heat, value))
        );
    }
    if heat.unit != "ns" {
        let _ = writeln!(
            text,
            "<text class=\"quiet small\" x=\"-8\" y=\"-14\" text-anchor=\"end\">{}</text>",
            escaped(&cut(&heat.unit, 12))
        );
    }
    let length = heat.slot.saturating_mul(i64::from(heat.slots)) as f64;
    let step = round_step(length / 8.0);
    let mut time = (heat.from as f64 / step).ceil() * step;
    while time <= heat.from as f64 + length {
        let x = percent((time - heat.from as f64) / length);
        let _ = writeln!(
            text,
            "<line class=\"fine\" x1=\"{x}%\" x2=\"{x}%\" y2=\"{HEIGHT}\"/>\n<text class=\"quiet small\" x=\"{x}%\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT + 18.0,
            axis_label(time)
        );
        time += step;
    }
}

/// 1, 2 or 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= least)
        .unwrap_or(10.0);
    step * power
}

/// Draws the number of values in each slot, above the map.
fn strip(text: &mut String, heat: &Heat, sums: &[u64]) {
    let most = sums.iter().copied().max().unwrap_or(1).max(1);
    let mut path = String::from("M0 1");
    for (slot, &sum) in sums.iter().enumerate() {
        let y = 1.0 - sum as f64 / most as f64;
        let _ = write!(path, "L{slot} {y:.3}L{} {y:.3}", slot + 1);
    }
    let _ = writeln!(
        text,
        "<svg y=\"{}\" width=\"100%\" height=\"{STRIP}\" viewBox=\"0 0 {} 1\" preserveAspectRatio=\"none\"><path d=\"{path}L{} 1Z\" fill=\"{}\" fill-opacity=\"0.5\"><title>values per time slot, at most {}</title></path></svg>",
        -STRIP - 6.0,
        heat.slots,
        heat.slots,
        HEAT[2],
        grouped(most)
    );
}

fn cells(text: &mut String, heat: &Heat, axis: &LogAxis, counts: &[u64], most: u64) {
    let slots = usize::from(heat.slots);
    let decades = axis.decades().count() as f64 - 1.0;
    let lowest = axis.decades().next().map_or(1.0, |(value, _)| value);
    let value = |row: usize| lowest * 10f64.powf(decades * row as f64 / ROWS as f64);
    // Below ten, rows are less than an integer high.
    let digits = |value: f64| {
        if value < 10.0 {
            format!("{value:.1}")
        } else {
            format!("{value:.0}")
        }
    };
    let shown = |value: f64| match heat.unit.as_str() {
        "ns" if value >= 10.0 => in_fitting_unit(value.round()),
        unit => format!("{} {}", digits(value), escaped(unit)),
    };
    text.push_str(&cells_begin(slots, ROWS, HEIGHT));
    for (place, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (row, slot) = (place / slots, place % slots);
        let time = heat
            .from
            .saturating_add(heat.slot.saturating_mul(slot as i64));
        let words = format!(
            "{} from {} to {} at {}",
            grouped(count),
            shown(value(row)),
            shown(value(row + 1)),
            in_fitting_unit(time as f64)
        );
        cell(text, slot, ROWS - 1 - row, heat_color(count, most), &words);
    }
    text.push_str("</svg>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_cell() {
        let heat = Heat {
            title: "a & b".to_owned(),
            subtitle: String::new(),
            unit: "ns".to_owned(),
            from: 0,
            slot: 1_000_000,
            slots: 10,
            cells: [(0, 0, 1), (9, 1_000_000, 5), (99, i64::MAX, 2), (3, -5, 1)]
                .map(|(slot, value, count)| Cell {
                    slot,
                    low: value,
                    high: value.saturating_add(1),
                    value,
                    count,
                })
                .to_vec(),
        };
        let mut out = Vec::new();
        write(&mut out, &heat).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches(" from ").count(), 4);
        assert!(text.contains("a &amp; b") && !text.contains("NaN"));
        let axis = LogAxis::new(0, i64::MAX, 0.0, HEIGHT);
        let (counts, sums) = grid(&heat, &axis);
        assert_eq!(counts.iter().sum::<u64>(), 9);
        assert_eq!(sums.iter().sum::<u64>(), 9);
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(round_step(130.0), 200.0);
        assert_eq!(round_step(1000.0), 1000.0);
        assert_eq!(round_step(6e8), 1e9);
    }
}
