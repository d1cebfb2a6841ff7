//! Violin plots of durations as SVG: one shape per function, whose width is the frequency of a duration.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::{counted, grouped};

use super::drawing::{
    LogAxis, MARGIN, Page, axis_label, below_titles, escaped, percent, plot_begin,
};
use crate::text::cut;

/// Durations per function.
pub(crate) struct Durations {
    /// Names of the traces, and the condition.
    pub(crate) title: String,
    /// Number of calls and functions, total time.
    pub(crate) subtitle: String,
    /// A row per function.
    pub(crate) rows: RecordBatch,
    /// In the order of the rows, without those whose durations are unknown.
    pub(crate) violins: Vec<Violin>,
}

impl Durations {
    /// Draws a shape per function.
    pub(super) fn draw(&self, out: &mut dyn Write) -> Result<()> {
        write(out, &self.title, &self.subtitle, &self.violins)
    }
}

/// One function.
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

/// Width of the column with names, and of those with numbers.
const NAMES: f64 = 330.0;
const NUMBERS: f64 = 350.0;
/// Width of shapes before they are stretched to the plot.
const PLOT: f64 = 560.0;
const ROW: f64 = 42.0;
/// Half the height of the thickest shape.
const HALF: f64 = 16.0;
/// Pixels per step along a shape.
const STEP: f64 = 2.0;
/// So few calls have no distribution: each is a line.
const FEW: u64 = 5;
/// Columns of numbers: the distance of their right edges from that of the image.
const COLUMNS: [(f64, &str); 5] = [
    (280.0, "calls"),
    (200.0, "total"),
    (140.0, "p50"),
    (80.0, "p99"),
    (20.0, "max"),
];
/// Colors from a small to a large share of the time.
const COLORS: [&str; 6] = [
    "#7fb3d5", "#5b9bd5", "#4c8c6b", "#d8a33d", "#e07b39", "#c8443c",
];

/// Draws the functions in the order given.
fn write(out: &mut dyn Write, title: &str, subtitle: &str, violins: &[Violin]) -> Result<()> {
    let top = below_titles(0) + 34.0;
    let bottom = ROW * violins.len() as f64;
    let ends = |end: fn(&Violin) -> i64| violins.iter().map(end);
    let min = ends(|violin| violin.ends.0).min().unwrap_or(1);
    let max = ends(|violin| violin.ends.1).max().unwrap_or(1);
    let axis = LogAxis::new(min, max, 0.0, PLOT);
    let page = Page {
        width: None,
        height: top + bottom + 60.0,
        title,
        subtitle,
        notes: &[],
        style: ["", ""],
        class: "",
    };
    let mut text = page.begin();
    let _ = writeln!(
        text,
        "<text class=\"quiet small\" x=\"{MARGIN}\" y=\"{}\">dot: median; marks: p95 and p99; line: shortest to longest call; color: share of the total</text>",
        below_titles(0) + 4.0
    );
    for place in (0..violins.len()).step_by(2) {
        let _ = writeln!(
            text,
            "<rect class=\"band\" y=\"{}\" width=\"100%\" height=\"{ROW}\"/>",
            top + ROW * place as f64
        );
    }
    text.push_str(&plot_begin(NAMES, NUMBERS, top));
    grid(&mut text, &axis, bottom);
    let most = violins.iter().map(|violin| violin.total).max();
    let most = most.unwrap_or(1).max(1);
    let middle = |place: usize| ROW * (place as f64 + 0.5);
    let _ = writeln!(
        text,
        "<svg width=\"100%\" height=\"{bottom}\" viewBox=\"0 0 {PLOT} {bottom}\" preserveAspectRatio=\"none\">"
    );
    for (place, violin) in violins.iter().enumerate() {
        body(&mut text, violin, &axis, middle(place), most);
    }
    text.push_str("</svg>\n");
    for (place, violin) in violins.iter().enumerate() {
        row(&mut text, violin, &axis, middle(place));
    }
    text.push_str("</svg>\n");
    let _ = writeln!(
        text,
        "<svg class=\"plot\" x=\"100%\" y=\"{top}\" width=\"1\">"
    );
    for (left, name) in COLUMNS {
        let _ = writeln!(
            text,
            "<text class=\"quiet small\" x=\"-{left}\" y=\"-10\" text-anchor=\"end\">{name}</text>"
        );
    }
    for (place, violin) in violins.iter().enumerate() {
        numbers(&mut text, violin, middle(place) + 4.5);
    }
    text.push_str("</svg>\n");
    out.write_all(Page::end(text, "").as_bytes())?;
    Ok(())
}

fn grid(text: &mut String, axis: &LogAxis, bottom: f64) {
    let decades: Vec<_> = axis.decades().collect();
    for (index, (value, x)) in decades.iter().enumerate() {
        if index + 1 < decades.len() {
            for digit in 2..10 {
                let x = percent(axis.place(value * f64::from(digit)) / PLOT);
                let _ = writeln!(
                    text,
                    "<line class=\"fine\" x1=\"{x}%\" x2=\"{x}%\" y2=\"{bottom}\"/>"
                );
            }
        }
        let label = axis_label(*value);
        let x = percent(x / PLOT);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{x}%\" x2=\"{x}%\" y2=\"{bottom}\"/>\n<text class=\"quiet small\" x=\"{x}%\" y=\"-10\" text-anchor=\"middle\">{label}</text>\n<text class=\"quiet small\" x=\"{x}%\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            bottom + 18.0
        );
    }
}

/// The shape of a function.
fn body(text: &mut String, violin: &Violin, axis: &LogAxis, middle: f64, most: i128) {
    let share = (violin.total as f64 / most as f64).max(0.0);
    let color = COLORS[((share.sqrt() * COLORS.len() as f64) as usize).min(COLORS.len() - 1)];
    let path = match has_shape(violin) {
        true => shape(violin, axis, middle),
        false => strokes(violin, axis, middle),
    };
    let fill = match has_shape(violin) {
        true => format!("fill=\"{color}\" fill-opacity=\"0.85\" stroke-width=\"1\""),
        false => "stroke-width=\"2.5\"".to_owned(),
    };
    let _ = writeln!(
        text,
        "<path d=\"{path}\" {fill} stroke=\"{color}\" stroke-linejoin=\"round\" vector-effect=\"non-scaling-stroke\"><title>{}</title></path>",
        tooltip(violin)
    );
}

/// Whether there are enough calls of different durations for a distribution.
fn has_shape(violin: &Violin) -> bool {
    violin.count > FEW && violin.ends.0 != violin.ends.1
}

/// A line for each of few durations.
fn strokes(violin: &Violin, axis: &LogAxis, middle: f64) -> String {
    let mut path = String::new();
    for &(low, high, _) in &violin.bars {
        let ends = (violin.ends.0 as f64, violin.ends.1 as f64);
        let value = ((low as f64 + high.saturating_sub(1) as f64) / 2.0).clamp(ends.0, ends.1);
        let x = axis.place(value);
        let _ = write!(path, "M{x:.1} {}V{}", middle - 10.0, middle + 10.0);
    }
    path
}

fn tooltip(violin: &Violin) -> String {
    let duration = |ns: i64| in_fitting_unit(ns as f64);
    let [p50, p95, p99] = violin.percentiles;
    let (min, max) = violin.ends;
    format!(
        "{}\n{}, {} total\nmin {}, p50 {}, p95 {}, p99 {}, max {}",
        escaped(&violin.name),
        counted(violin.count, "call"),
        in_fitting_unit(violin.total as f64),
        duration(min),
        duration(p50),
        duration(p95),
        duration(p99),
        duration(max)
    )
}

/// Name, range and percentiles of a function.
fn row(text: &mut String, violin: &Violin, axis: &LogAxis, middle: f64) {
    let place = |value: i64| percent(axis.place(value as f64) / PLOT);
    let [p50, p95, p99] = violin.percentiles;
    let (min, max) = violin.ends;
    let _ = writeln!(
        text,
        "<g><title>{}</title>\n<text class=\"name\" x=\"-14\" y=\"{}\" text-anchor=\"end\">{}</text>",
        tooltip(violin),
        middle + 4.5,
        escaped(&cut(&violin.name, 40))
    );
    if min != max {
        let _ = writeln!(
            text,
            "<line class=\"line\" x1=\"{}%\" x2=\"{}%\" y1=\"{middle}\" y2=\"{middle}\"/>",
            place(min),
            place(max)
        );
    }
    if has_shape(violin) {
        for (value, half) in [(p95, 5.0), (p99, 8.0)] {
            let x = place(value);
            let _ = writeln!(
                text,
                "<line class=\"line\" x1=\"{x}%\" x2=\"{x}%\" y1=\"{}\" y2=\"{}\"/>",
                middle - half,
                middle + half
            );
        }
        let _ = writeln!(
            text,
            "<circle class=\"middle\" cx=\"{}%\" cy=\"{middle}\" r=\"3.6\"/>",
            place(p50)
        );
    }
    text.push_str("</g>\n");
}

fn numbers(text: &mut String, violin: &Violin, baseline: f64) {
    let [p50, _, p99] = violin.percentiles;
    let numbers = [
        grouped(violin.count),
        short(violin.total as f64),
        short(p50 as f64),
        short(p99 as f64),
        short(violin.ends.1 as f64),
    ];
    for ((left, _), number) in COLUMNS.iter().zip(numbers) {
        let _ = writeln!(
            text,
            "<text class=\"small\" x=\"-{left}\" y=\"{baseline}\" text-anchor=\"end\">{number}</text>"
        );
    }
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
            violin("a<b>", (1_000, 1_000), vec![(1_000, 1_001, 30)]),
            violin("zero", (0, 900), vec![(0, 1, 1), (896, 928, 40)]),
            violin(
                "longest",
                (10, i64::MAX),
                vec![(10, 11, 1), (1 << 62, i64::MAX, 1)],
            ),
        ];
        let mut out = Vec::new();
        write(&mut out, "t", "s", &violins).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("<path").count(), 3);
        assert!(text.contains("a&lt;b&gt;") && !text.contains("NaN") && !text.contains("d=\"\""));
        // A line for one duration, and for each of two calls; one dot for the only shape.
        let (_, text) = text.split_once("</style>").unwrap();
        let (text, _) = text.split_once("<script>").unwrap();
        assert_eq!(text.matches('V').count(), 3, "{text}");
        assert_eq!(text.matches("<circle").count(), 1);
    }
}
