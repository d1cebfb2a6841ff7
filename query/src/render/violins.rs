//! Violin plots of durations as SVG: one shape per function, whose width is the frequency of a duration.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use perfquet_trace::count::{counted, grouped};

use super::drawing::{LogAxis, STYLE, axis_label, escaped};
use crate::functions::in_fitting_unit;
use crate::text::cut;

/// Durations per function.
pub(crate) struct Durations {
    /// Names of the traces.
    pub(crate) title: String,
    /// A row per function.
    pub(crate) rows: RecordBatch,
    /// In the order of the rows, without those whose durations are unknown.
    pub(crate) violins: Vec<Violin>,
}

impl Durations {
    /// Draws a shape per function.
    pub(super) fn draw(&self, out: &mut dyn Write) -> Result<()> {
        write(out, &self.title, &self.violins)
    }
}

/// The shape of one function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Violin {
    pub(crate) name: String,
    pub(crate) count: u64,
    /// Total time of all calls in nanoseconds.
    pub(crate) total: i128,
    /// Low end, high end, calls; in the order of the values.
    pub(crate) bars: Vec<(i64, i64, u64)>,
    /// The shortest and the longest call.
    pub(crate) ends: (i64, i64),
    /// 50th, 95th and 99th percentile.
    pub(crate) percentiles: [i64; 3],
}

const WIDTH: f64 = 1240.0;
const NAMES: f64 = 330.0;
const PLOT: f64 = 560.0;
const TOP: f64 = 96.0;
const ROW: f64 = 42.0;
/// Half the height of the thickest shape.
const HALF: f64 = 16.0;
/// Pixels per step along a shape.
const STEP: f64 = 2.0;
/// Right edges of the number columns.
const COLUMNS: [(f64, &str); 5] = [
    (970.0, "calls"),
    (1050.0, "total"),
    (1110.0, "p50"),
    (1170.0, "p99"),
    (1230.0, "max"),
];
/// Colors from a small to a large share of the time.
const COLORS: [&str; 6] = [
    "#7fb3d5", "#5b9bd5", "#4c8c6b", "#d8a33d", "#e07b39", "#c8443c",
];

/// Draws the functions in the order given.
fn write(out: &mut dyn Write, title: &str, violins: &[Violin]) -> Result<()> {
    let height = TOP + ROW * violins.len() as f64 + 46.0;
    let min = violins
        .iter()
        .map(|violin| violin.ends.0)
        .min()
        .unwrap_or(1);
    let max = violins
        .iter()
        .map(|violin| violin.ends.1)
        .max()
        .unwrap_or(1);
    let axis = LogAxis::new(min, max, NAMES, PLOT);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
    );
    let _ = writeln!(
        text,
        "<text class=\"title\" x=\"20\" y=\"36\">Function durations</text>\n<text class=\"quiet\" x=\"20\" y=\"58\">{}; dot: median, marks: p95 and p99, line: shortest to longest call</text>",
        escaped(&cut(title, 60))
    );
    for (place, _) in violins
        .iter()
        .enumerate()
        .filter(|(place, _)| place % 2 == 0)
    {
        let top = TOP + ROW * place as f64;
        let _ = writeln!(
            text,
            "<rect class=\"band\" x=\"0\" y=\"{top}\" width=\"{WIDTH}\" height=\"{ROW}\"/>"
        );
    }
    grid(&mut text, &axis, TOP, height - 40.0);
    for (right, name) in COLUMNS {
        let _ = writeln!(
            text,
            "<text class=\"quiet small\" x=\"{right}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            TOP - 10.0
        );
    }
    let most = violins
        .iter()
        .map(|violin| violin.total)
        .max()
        .unwrap_or(1)
        .max(1);
    for (place, violin) in violins.iter().enumerate() {
        let middle = TOP + ROW * (place as f64 + 0.5);
        row(&mut text, violin, &axis, middle, most);
    }
    text.push_str("</svg>\n");
    out.write_all(text.as_bytes())?;
    Ok(())
}

fn grid(text: &mut String, axis: &LogAxis, top: f64, bottom: f64) {
    let decades: Vec<_> = axis.decades().collect();
    for (index, (value, x)) in decades.iter().enumerate() {
        if index + 1 < decades.len() {
            for digit in 2..10 {
                let x = axis.place(value * f64::from(digit));
                let _ = writeln!(
                    text,
                    "<line class=\"fine\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>"
                );
            }
        }
        let label = axis_label(*value);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\n<text class=\"quiet small\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\n<text class=\"quiet small\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            top - 10.0,
            bottom + 18.0
        );
    }
}

fn row(text: &mut String, violin: &Violin, axis: &LogAxis, middle: f64, most: i128) {
    let share = violin.total as f64 / most as f64;
    let color =
        COLORS[((share.max(0.0).sqrt() * COLORS.len() as f64) as usize).min(COLORS.len() - 1)];
    let baseline = middle + 4.5;
    let duration = |ns: i64| in_fitting_unit(ns as f64);
    let [p50, p95, p99] = violin.percentiles;
    let (min, max) = violin.ends;
    let _ = writeln!(
        text,
        "<g><title>{}\n{}, {} total\nmin {}, p50 {}, p95 {}, p99 {}, max {}</title>",
        escaped(&violin.name),
        counted(violin.count, "call"),
        in_fitting_unit(violin.total as f64),
        duration(min),
        duration(p50),
        duration(p95),
        duration(p99),
        duration(max)
    );
    let _ = writeln!(
        text,
        "<text class=\"name\" x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>",
        NAMES - 14.0,
        escaped(&cut(&violin.name, 40))
    );
    let (from, to) = (axis.place(min as f64), axis.place(max as f64));
    let _ = writeln!(
        text,
        "<line class=\"line\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>\n<path d=\"{}\" fill=\"{color}\" fill-opacity=\"0.85\" stroke=\"{color}\" stroke-width=\"1\" stroke-linejoin=\"round\"/>",
        shape(violin, axis, middle)
    );
    for (value, half) in [(p95, 5.0), (p99, 8.0)] {
        let x = axis.place(value as f64);
        let _ = writeln!(
            text,
            "<line class=\"line\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>",
            middle - half,
            middle + half
        );
    }
    let _ = writeln!(
        text,
        "<circle class=\"middle\" cx=\"{:.1}\" cy=\"{middle}\" r=\"3.6\"/>",
        axis.place(p50 as f64)
    );
    let numbers = [
        grouped(violin.count),
        short(violin.total as f64),
        short(p50 as f64),
        short(p99 as f64),
        short(max as f64),
    ];
    for ((right, _), number) in COLUMNS.iter().zip(numbers) {
        let _ = writeln!(
            text,
            "<text class=\"small\" x=\"{right}\" y=\"{baseline}\" text-anchor=\"end\">{number}</text>"
        );
    }
    text.push_str("</g>\n");
}

/// A duration with three digits: `1.23 ms`.
fn short(ns: f64) -> String {
    let text = in_fitting_unit(ns);
    let Some((number, unit)) = text.split_once(' ') else {
        return text;
    };
    match number.parse::<f64>() {
        Ok(value) if number.contains('.') => {
            let digits = match value.abs() {
                100.0.. => 0,
                10.0.. => 1,
                _ => 2,
            };
            format!("{value:.digits$} {unit}")
        }
        _ => text,
    }
}

/// The outline: the number of calls at each position of the axis, slightly smoothed, mirrored.
fn shape(violin: &Violin, axis: &LogAxis, middle: f64) -> String {
    let steps = (axis.length / STEP) as usize + 1;
    let mut density = vec![0f64; steps];
    let place = |value: i64| (axis.place(value as f64) - axis.from) / STEP;
    for &(low, high, count) in &violin.bars {
        let (from, to) = (
            place(low.max(violin.ends.0)),
            place(high.min(violin.ends.1.saturating_add(1))),
        );
        let (first, last) = (from as usize, (to as usize).min(steps - 1));
        let span = (last.max(first) - first + 1) as f64;
        for cell in &mut density[first.min(steps - 1)..=last.max(first.min(steps - 1))] {
            *cell += count as f64 / span;
        }
    }
    let smooth = smoothed(&density);
    let highest = smooth
        .iter()
        .copied()
        .fold(0.0, f64::max)
        .max(f64::MIN_POSITIVE);
    let seen: Vec<(f64, f64)> = smooth
        .iter()
        .enumerate()
        // A sixth of a pixel is invisible.
        .filter(|(_, density)| **density / highest * HALF > 0.15)
        .map(|(step, density)| (axis.from + step as f64 * STEP, density / highest * HALF))
        .collect();
    let mut path = String::new();
    // Gaps divide the shape, so each piece is closed separately.
    for piece in seen.chunk_by(|a, b| b.0 - a.0 < STEP * 1.5) {
        let _ = write!(path, "M{:.1} {middle}", piece[0].0 - STEP);
        for (x, half) in piece {
            let _ = write!(path, "L{x:.1} {:.1}", middle - half);
        }
        let _ = write!(path, "L{:.1} {middle}", piece[piece.len() - 1].0 + STEP);
        for (x, half) in piece.iter().rev() {
            let _ = write!(path, "L{x:.1} {:.1}", middle + half);
        }
        path.push('Z');
    }
    path
}

/// Weights of the neighbors: a bell about six pixels wide.
fn smoothed(density: &[f64]) -> Vec<f64> {
    const BELL: [f64; 9] = [0.03, 0.07, 0.12, 0.18, 0.2, 0.18, 0.12, 0.07, 0.03];
    let reach = BELL.len() / 2;
    (0..density.len())
        .map(|step| {
            let near = BELL.iter().enumerate().filter_map(|(index, weight)| {
                let at = (step + index).checked_sub(reach)?;
                Some(density.get(at)? * weight)
            });
            near.sum()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_its_shape() {
        let violin = |name: &str, ends: (i64, i64), bars: Vec<(i64, i64, u64)>| Violin {
            name: name.to_owned(),
            count: bars.iter().map(|bar| bar.2).sum(),
            total: 5_000,
            bars,
            ends,
            percentiles: [ends.0, ends.1, ends.1],
        };
        let violins = [
            violin("a<b>", (1_000, 1_000), vec![(1_000, 1_001, 3)]),
            violin("zero", (0, 900), vec![(0, 1, 1), (896, 928, 4)]),
            violin(
                "longest",
                (10, i64::MAX),
                vec![(10, 11, 1), (1 << 62, i64::MAX, 1)],
            ),
        ];
        let mut out = Vec::new();
        write(&mut out, "t", &violins).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("<path").count(), 3);
        assert!(text.contains("a&lt;b&gt;") && !text.contains("NaN") && !text.contains("d=\"\""));
    }
}
