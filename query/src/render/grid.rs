//! Events by time, as a grid: a column is a second, a row is a fiftieth of it, from the bottom upwards. The grid shows which
//! 20 ms were busy, and periodic work. The idea is FlameScope's (Netflix).
//!
//! ```text
//! 980 ms ▏░░▒░
//!  …     ▏░█░░      the long stretch without samples is idle; the line across all columns comes once a second
//!   0 ms ▏▒▒▒▒
//!          0 s  1 s  …
//! ```

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use perfquet::unit::in_fitting_unit;
use perfquet_trace::count::grouped;

use super::drawing::{Page, axis_label, below_titles, percent, plot_begin};
use super::heat_colors::{cell, cells_begin, heat_color, legend};

/// Data of a grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// Nanoseconds of a column, a multiple of [`ROWS`].
    pub(crate) column: i64,
    /// Number of events by their place, columns from left to right, rows of a column upwards; places from the start of
    /// the trace, without empty ones.
    pub(crate) counts: Vec<(i64, u64)>,
}

/// Rows of a column.
pub(crate) const ROWS: i64 = 50;

const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const ROW_HEIGHT: f64 = 8.0;
/// Columns are no wider than this at the usual width, so that a very short trace looks like one; from 10 ms on, no column is empty.
const LEAST_COLUMNS: i64 = 10;

impl Grid {
    /// Returns the length of a column for a trace of this length, such that there are from 10 to 600 where possible.
    pub(crate) fn fitting_column(length: i64) -> i64 {
        const SECOND: i64 = 1_000_000_000;
        let columns = [
            SECOND,
            10 * SECOND,
            60 * SECOND,
            600 * SECOND,
            3600 * SECOND,
        ];
        match length {
            ..100_000_000 => SECOND / 1000,
            100_000_000..1_000_000_000 => SECOND / 100,
            1_000_000_000..10_000_000_000 => SECOND / 10,
            length => {
                let fits = |&column: &i64| length / column < 600;
                columns.into_iter().find(fits).unwrap_or(columns[4])
            }
        }
    }

    /// Draws the grid.
    pub(super) fn draw(&self, out: &mut dyn Write) -> Result<()> {
        let height = ROWS as f64 * ROW_HEIGHT;
        let top = below_titles(0);
        let page = Page {
            width: None,
            height: top + height + 80.0,
            title: &self.title,
            subtitle: &self.subtitle,
            notes: &[],
            style: ["", ""],
            class: "",
        };
        let last = self.counts.iter().map(|(place, _)| place / ROWS).max();
        let columns = (last.unwrap_or(0) + 1).max(LEAST_COLUMNS);
        let most = self.counts.iter().map(|&(_, count)| count).max();
        let most = most.unwrap_or(1).max(1);
        let mut text = page.begin();
        text.push_str(&plot_begin(LEFT, RIGHT, top));
        let _ = writeln!(
            text,
            "<rect class=\"band\" width=\"100%\" height=\"{height}\"/>"
        );
        self.axes(&mut text, columns, height);
        text.push_str(&cells_begin(columns as usize, ROWS as usize, height));
        let row_length = self.column / ROWS;
        for &(place, count) in &self.counts {
            let (column, row) = (place / ROWS, place % ROWS);
            let from = in_fitting_unit(place.saturating_mul(row_length) as f64);
            let words = format!("{} at {from}", grouped(count));
            let row = (ROWS - 1 - row) as usize;
            cell(
                &mut text,
                column as usize,
                row,
                heat_color(count, most),
                &words,
            );
        }
        text.push_str("</svg>\n</svg>\n");
        let what = format!("events in {}", axis_label(row_length as f64));
        legend(&mut text, LEFT, top + height + 56.0, most, &what);
        out.write_all(Page::end(text, "").as_bytes())?;
        Ok(())
    }

    fn axes(&self, text: &mut String, columns: i64, height: f64) {
        for fifth in 0..=5 {
            let y = height - height / 5.0 * f64::from(fifth);
            let time = self.column as f64 / 5.0 * f64::from(fifth);
            let _ = writeln!(
                text,
                "<line class=\"grid\" x1=\"-4\" x2=\"0\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n<text class=\"quiet small\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                y + 4.0,
                axis_label(time)
            );
        }
        let step = [1, 2, 5, 10, 20, 50, 100, 200, 500]
            .into_iter()
            .find(|step| columns / step <= 12)
            .unwrap_or(1000);
        for column in (0..columns).step_by(step as usize) {
            let x = percent(column as f64 / columns as f64);
            let _ = writeln!(
                text,
                "<text class=\"quiet small\" x=\"{x}%\" y=\"{}\">{}</text>",
                height + 18.0,
                axis_label((column * self.column) as f64)
            );
        }
    }

    /// Returns a row per place that has events; times in nanoseconds from the start of the trace.
    pub(super) fn rows(&self) -> Result<RecordBatch> {
        let length = self.column / ROWS;
        let times = |shift: i64| -> ArrayRef {
            let places = self.counts.iter().map(|(place, _)| place + shift);
            Arc::new(Int64Array::from_iter_values(
                places.map(|place| place.saturating_mul(length)),
            ))
        };
        let counts = self.counts.iter().map(|&(_, count)| count);
        Ok(RecordBatch::try_from_iter([
            ("from", times(0)),
            ("to", times(1)),
            (
                "count",
                Arc::new(UInt64Array::from_iter_values(counts)) as ArrayRef,
            ),
        ])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_the_length() {
        let second = 1_000_000_000;
        assert_eq!(Grid::fitting_column(5 * second), second / 10);
        assert_eq!(Grid::fitting_column(50 * second), second);
        assert_eq!(Grid::fitting_column(3600 * second), 10 * second);
        assert_eq!(Grid::fitting_column(i64::MAX), 3600 * second);
        assert_eq!(Grid::fitting_column(0), second / 1000);
    }

    #[test]
    fn the_first_event_is_at_the_bottom_left() {
        let grid = Grid {
            title: String::new(),
            subtitle: String::new(),
            column: 1_000_000_000,
            counts: vec![(0, 3), (51, 1)],
        };
        let mut out = Vec::new();
        grid.draw(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("<rect x=\"0\" y=\"49\""));
        assert!(text.contains("<rect x=\"1\" y=\"48\""));
        assert!(text.contains("1 at 1.020 s"), "{text}");
    }
}
