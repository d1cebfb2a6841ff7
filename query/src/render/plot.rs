//! Plots: values over time or over numbers, as lines, bars or points; as an image, and with characters of 2 x 4 dots.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use clap::ValueEnum;

use super::drawing::{Page, axis_label, below_titles, escaped, percent, plot_begin};
use crate::text::{columns, cut, harmless};

/// How the points of a series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mark {
    /// Connected points
    Line,
    /// Bars from 0
    Bar,
    /// Points
    Scatter,
}

/// What an axis measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Nanoseconds, in a fitting unit.
    Duration,
    /// Numbers, with a unit or without.
    Number(String),
}

/// A named sequence of points, in the order of x.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Data of a plot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) mark: Mark,
    /// Names of the columns.
    pub(crate) names: [String; 2],
    pub(crate) measures: [Measure; 2],
    pub(crate) series: Vec<Series>,
}

/// Colors of series, for light and dark backgrounds alike, and their numbers on terminals.
const COLORS: [(&str, u8); 8] = [
    ("#3b7dd8", 4),
    ("#d9722e", 3),
    ("#2f9e6e", 2),
    ("#b653a8", 5),
    ("#c4443c", 1),
    ("#7d6bd0", 6),
    ("#8a7a2a", 7),
    ("#6b7785", 8),
];

/// Series that a plot shows.
pub(crate) const MOST_SERIES: usize = COLORS.len();

const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const HEIGHT: f64 = 420.0;
/// Places from left to right among which points of an image differ.
const STEPS: usize = 1200;

/// The range of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, with_zero: bool) -> Axis {
        let start = if with_zero {
            (0.0, 0.0)
        } else {
            (f64::INFINITY, f64::NEG_INFINITY)
        };
        let (low, high) = values.fold(start, |(low, high), value| {
            (value.min(low), value.max(high))
        });
        match low < high {
            true => Axis { low, high },
            // One value: in the middle.
            false => Axis {
                low: low.min(f64::MAX) - 0.5,
                high: low.min(f64::MAX) + 0.5,
            },
        }
    }

    /// From 0 at the low end to 1 at the high end.
    fn share(self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Round values, some `count` of them.
    fn ticks(self, count: f64) -> Vec<f64> {
        let least = (self.high - self.low) / count;
        let power = 10f64.powf(least.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = step
            .into_iter()
            .find(|step| *step >= least)
            .unwrap_or(least);
        let first = (self.low / step).ceil();
        let ticks = (0..64).map(|tick| (first + f64::from(tick)) * step);
        ticks
            .take_while(|tick| *tick <= self.high + step * 1e-9)
            .collect()
    }
}

impl Measure {
    fn label(&self, value: f64) -> String {
        match self {
            Measure::Duration if value < 0.0 => format!("-{}", axis_label(-value)),
            Measure::Duration => axis_label(value),
            Measure::Number(_) if value == 0.0 => "0".to_owned(),
            Measure::Number(_) if !(1e-3..1e7).contains(&value.abs()) => format!("{value:.1e}"),
            Measure::Number(_) => {
                let text = format!("{value:.3}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
        }
    }
}

impl Plot {
    fn axes(&self) -> (Axis, Axis) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Axis::of(points().map(|(x, _)| *x), false);
        // Bars begin at 0, and lines show how much more one value is than another.
        let y = Axis::of(points().map(|(_, y)| *y), self.mark != Mark::Scatter);
        (x, y)
    }

    /// Returns a row per point.
    pub(super) fn rows(&self) -> Result<RecordBatch> {
        let points = || {
            self.series
                .iter()
                .flat_map(|series| series.points.iter().map(move |point| (point, &series.name)))
        };
        let number = |of: fn(&(f64, f64)) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(
                points().map(|(point, _)| of(point)),
            ))
        };
        // `from_iter_values` would demand an iterator of known length.
        let names: StringArray = points().map(|(_, name)| Some(name)).collect();
        Ok(RecordBatch::try_from_iter([
            (self.names[0].as_str(), number(|point| point.0)),
            (self.names[1].as_str(), number(|point| point.1)),
            ("series", Arc::new(names) as ArrayRef),
        ])?)
    }

    /// Draws the plot as an image.
    pub(super) fn draw(&self, out: &mut dyn Write) -> Result<()> {
        let (x, y) = self.axes();
        let is_named = self.series.len() > 1;
        let top = below_titles(0) + 16.0;
        let page = Page {
            width: None,
            height: top + HEIGHT + if is_named { 70.0 } else { 46.0 },
            title: &self.title,
            subtitle: &self.subtitle,
            notes: &[],
            style: [
                ".series{fill:none;stroke-width:1.6;vector-effect:non-scaling-stroke}",
                "",
            ],
            class: "",
        };
        let mut text = page.begin();
        text.push_str(&plot_begin(LEFT, RIGHT, top));
        self.grid(&mut text, x, y);
        let _ = writeln!(
            text,
            "<svg width=\"100%\" height=\"{HEIGHT}\" viewBox=\"0 0 {STEPS} {HEIGHT}\" preserveAspectRatio=\"none\">"
        );
        for (series, (color, _)) in self.series.iter().zip(COLORS) {
            let path = self.path(&series.points, x, y);
            let _ = writeln!(
                text,
                "<path class=\"series\" stroke=\"{color}\" stroke-linecap=\"round\" d=\"{path}\"><title>{}</title></path>",
                escaped(&series.name)
            );
        }
        text.push_str("</svg>\n</svg>\n");
        if is_named {
            let mut left = LEFT;
            for (series, (color, _)) in self.series.iter().zip(COLORS) {
                let name = cut(&series.name, 24);
                let _ = writeln!(
                    text,
                    "<rect x=\"{left}\" y=\"{0}\" width=\"12\" height=\"12\" fill=\"{color}\"/><text class=\"small\" x=\"{1}\" y=\"{2}\">{3}</text>",
                    top + HEIGHT + 36.0,
                    left + 17.0,
                    top + HEIGHT + 46.0,
                    escaped(&name)
                );
                left += 34.0 + 6.6 * columns(&name) as f64;
            }
        }
        out.write_all(Page::end(text, "").as_bytes())?;
        Ok(())
    }

    fn grid(&self, text: &mut String, x: Axis, y: Axis) {
        for tick in y.ticks(8.0) {
            let up = (1.0 - y.share(tick)) * HEIGHT;
            let _ = writeln!(
                text,
                "<line class=\"grid\" x2=\"100%\" y1=\"{up:.1}\" y2=\"{up:.1}\"/>\n<text class=\"quiet small\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                up + 4.0,
                escaped(&self.measures[1].label(tick))
            );
        }
        for tick in x.ticks(8.0) {
            let left = percent(x.share(tick));
            let _ = writeln!(
                text,
                "<line class=\"fine\" x1=\"{left}%\" x2=\"{left}%\" y2=\"{HEIGHT}\"/>\n<text class=\"quiet small\" x=\"{left}%\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                HEIGHT + 18.0,
                escaped(&self.measures[0].label(tick))
            );
        }
        let mut name = self.names[1].clone();
        if let Measure::Number(unit) = &self.measures[1]
            && !unit.is_empty()
        {
            name = format!("{name}, {unit}");
        }
        let _ = writeln!(
            text,
            "<text class=\"quiet small\" x=\"-8\" y=\"-10\" text-anchor=\"start\">{}</text>",
            escaped(&cut(&name, 40))
        );
    }

    /// The path of a series. Its size depends on the image, not on the number of points.
    fn path(&self, points: &[(f64, f64)], x: Axis, y: Axis) -> String {
        let place = |&(left, up): &(f64, f64)| {
            let left = (x.share(left) * STEPS as f64).round() as i64;
            (left, ((1.0 - y.share(up)) * HEIGHT).round() as i64)
        };
        let places = points.iter().map(place);
        let mut path = String::new();
        if self.mark == Mark::Scatter {
            let mut drawn = HashSet::new();
            for (left, up) in places.filter(|&place| drawn.insert(place)) {
                let _ = write!(path, "M{left} {up}h.01");
            }
            return path;
        }
        let zero = ((1.0 - y.share(0.0)) * HEIGHT).round();
        for (number, (left, up)) in turns(places).into_iter().enumerate() {
            let _ = match self.mark {
                Mark::Line if number > 0 => write!(path, "L{left} {up}"),
                Mark::Line => write!(path, "M{left} {up}h.01"),
                Mark::Bar | Mark::Scatter => write!(path, "M{left} {zero}V{up}"),
            };
        }
        path
    }

    /// Draws the plot with characters.
    pub(super) fn write_text(
        &self,
        out: &mut dyn Write,
        width: usize,
        is_colored: bool,
    ) -> Result<()> {
        let (x, y) = self.axes();
        let labels: Vec<(usize, String)> = y
            .ticks(4.0)
            .into_iter()
            .map(|tick| {
                (
                    ((1.0 - y.share(tick)) * (LINES - 1) as f64).round() as usize,
                    self.measures[1].label(tick),
                )
            })
            .collect();
        let margin = labels
            .iter()
            .map(|(_, label)| columns(label))
            .max()
            .unwrap_or(0)
            + 1;
        let canvas_width = width.saturating_sub(margin + 1).max(10);
        let mut canvas = Canvas::new(canvas_width);
        for (place, series) in self.series.iter().enumerate() {
            self.dots(&mut canvas, place, &series.points, x, y);
        }
        writeln!(out, "{}", harmless(&cut(&self.title, width)))?;
        for line in 0..LINES {
            let label = labels.iter().find(|(at, _)| *at == line);
            let label = label.map_or("", |(_, label)| label.as_str());
            let padding = " ".repeat(margin - 1 - columns(label));
            writeln!(out, "{padding}{label} │{}", canvas.line(line, is_colored))?;
        }
        let mut axis = String::new();
        for tick in x.ticks((canvas_width as f64 / 14.0).clamp(1.0, 8.0)) {
            let label = self.measures[0].label(tick);
            let at = (x.share(tick) * (canvas_width - 1) as f64).round() as usize;
            // A label at the right border ends there.
            let at = at.min(canvas_width.saturating_sub(columns(&label)));
            if columns(&axis) <= at {
                axis.push_str(&" ".repeat(at - columns(&axis)));
                axis.push_str(&label);
                axis.push(' ');
            }
        }
        writeln!(out, "{}{}", " ".repeat(margin + 1), axis.trim_end())?;
        if self.series.len() > 1 {
            let names =
                self.series
                    .iter()
                    .zip(COLORS)
                    .map(|(series, (_, color))| match is_colored {
                        true => format!("\x1b[38;5;{color}m■\x1b[0m {}", harmless(&series.name)),
                        false => harmless(&series.name).into_owned(),
                    });
            writeln!(out, "{}", names.collect::<Vec<_>>().join("  "))?;
        }
        Ok(out.flush()?)
    }

    fn dots(&self, canvas: &mut Canvas, series: usize, points: &[(f64, f64)], x: Axis, y: Axis) {
        let place = |(left, up): (f64, f64)| {
            let left = (x.share(left) * (canvas_dots(canvas) - 1) as f64).round() as i64;
            let up = ((1.0 - y.share(up)) * (LINES * 4 - 1) as f64).round() as i64;
            (left, up)
        };
        let places: Vec<(i64, i64)> = points.iter().map(|&point| place(point)).collect();
        let zero = place((x.low, 0.0)).1;
        match self.mark {
            Mark::Scatter => places.iter().for_each(|&dot| canvas.set(dot, series)),
            Mark::Bar => {
                for &(left, up) in &places {
                    (up.min(zero)..=up.max(zero)).for_each(|up| canvas.set((left, up), series));
                }
            }
            Mark::Line => {
                places
                    .iter()
                    .take(1)
                    .for_each(|&dot| canvas.set(dot, series));
                for pair in places.windows(2) {
                    let (from, to) = (pair[0], pair[1]);
                    let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
                    for step in 0..=steps {
                        let between = |from: i64, to: i64| from + (to - from) * step / steps;
                        canvas.set((between(from.0, to.0), between(from.1, to.1)), series);
                    }
                }
            }
        }
    }
}

/// Of the places in each column, those that a line through all of them needs: the first, the extremes and the last.
fn turns(places: impl Iterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let mut kept: Vec<(i64, i64)> = Vec::new();
    let mut column: Option<(i64, [i64; 4])> = None;
    let mut keep = |(left, ups): (i64, [i64; 4])| {
        for up in ups {
            if kept.last() != Some(&(left, up)) {
                kept.push((left, up));
            }
        }
    };
    for (left, up) in places {
        column = match column {
            Some((same, [first, low, high, _])) if same == left => {
                Some((left, [first, low.min(up), high.max(up), up]))
            }
            before => {
                before.into_iter().for_each(&mut keep);
                Some((left, [up; 4]))
            }
        };
    }
    column.into_iter().for_each(&mut keep);
    kept
}

/// Lines of a plot of characters.
const LINES: usize = 16;

/// Characters of 2 x 4 dots, each with the series drawn there last.
struct Canvas {
    width: usize,
    cells: Vec<(u8, usize)>,
}

fn canvas_dots(canvas: &Canvas) -> usize {
    canvas.width * 2
}

impl Canvas {
    fn new(width: usize) -> Canvas {
        Canvas {
            width,
            cells: vec![(0, 0); width * LINES],
        }
    }

    fn set(&mut self, (left, up): (i64, i64), series: usize) {
        // Bits of the dots in U+2800 and the following characters.
        const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        let (Ok(left), Ok(up)) = (usize::try_from(left), usize::try_from(up)) else {
            return;
        };
        let place = up / 4 * self.width + left / 2;
        if left / 2 < self.width
            && let Some(cell) = self.cells.get_mut(place)
        {
            *cell = (cell.0 | DOTS[left % 2][up % 4], series);
        }
    }

    fn line(&self, line: usize, is_colored: bool) -> String {
        let cells = &self.cells[line * self.width..(line + 1) * self.width];
        let mut text = String::new();
        for &(dots, series) in cells {
            let letter = match dots {
                0 => ' ',
                dots => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '),
            };
            match COLORS.get(series).filter(|_| is_colored && dots > 0) {
                Some((_, color)) => {
                    let _ = write!(text, "\x1b[38;5;{color}m{letter}\x1b[0m");
                }
                None => text.push(letter),
            }
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(mark: Mark, points: &[(f64, f64)]) -> Plot {
        Plot {
            title: "a & b".to_owned(),
            subtitle: String::new(),
            mark,
            names: ["time".to_owned(), "n".to_owned()],
            measures: [Measure::Duration, Measure::Number(String::new())],
            series: vec![Series {
                name: "n".to_owned(),
                points: points.to_vec(),
            }],
        }
    }

    #[test]
    fn ticks_are_round() {
        let axis = Axis {
            low: 3.0,
            high: 47.0,
        };
        assert_eq!(axis.ticks(5.0), [10.0, 20.0, 30.0, 40.0]);
        let one = Axis::of([5.0].into_iter(), false);
        assert_eq!((one.low, one.high, one.share(5.0)), (4.5, 5.5, 0.5));
    }

    #[test]
    fn dots_are_where_the_values_are() {
        let mut out = Vec::new();
        let points = [(0.0, 0.0), (1e9, 10.0)];
        plot(Mark::Line, &points)
            .write_text(&mut out, 34, false)
            .unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2 + LINES);
        assert!(
            lines[1].starts_with("10 │") && lines[1].ends_with('⠊'),
            "{text}"
        );
        assert!(lines[LINES].starts_with(" 0 │⡔"), "{text}");
        assert!(
            lines[1 + LINES].contains("0 ns") && lines[1 + LINES].contains("1 s"),
            "{text}"
        );
    }

    #[test]
    fn a_column_keeps_its_extremes() {
        let places = [(0, 5), (0, 9), (0, 1), (0, 5), (1, 2), (1, 2)];
        assert_eq!(
            turns(places.into_iter()),
            [(0, 5), (0, 1), (0, 9), (0, 5), (1, 2)]
        );
    }

    #[test]
    fn images_have_every_series() {
        for mark in [Mark::Line, Mark::Bar, Mark::Scatter] {
            let mut out = Vec::new();
            plot(mark, &[(0.0, 1.0), (1.0, -3.0), (2.0, 5.0)])
                .draw(&mut out)
                .unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(
                text.contains("a &amp; b")
                    && text.contains("<path class=\"series\"")
                    && !text.contains("NaN")
            );
        }
    }
}
