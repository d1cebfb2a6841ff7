//! Distributions in DTrace's layout, to the column (libdtrace, dt_print_quantline).
//!
//! ```text
//!            value  ------------- Distribution ------------- count    
//!              512 |                                         0        
//!             1024 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@           3        
//!             2048 |@@@@@@@@@@                               1        
//!             4096 |                                         0        
//! ```
//! Counts below zero (DTrace has them from negative increments) grow to the left of the line.

use crate::text::{Texts, harmless, is_number};
use std::io::Write;

use anyhow::Result;
use arrow::array::{ArrayRef, RecordBatch};

/// Distributions, one after another.
pub(crate) struct Distributions {
    /// A row per bar: the keys, `low`, `high` and `count`.
    pub(crate) rows: RecordBatch,
    pub(crate) drawings: Vec<Drawing>,
}

/// A distribution to draw.
pub(crate) struct Drawing {
    /// Printed before the first distribution of an aggregation.
    pub(crate) heading: Option<String>,
    /// The key as printed by DTrace.
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

impl Distributions {
    /// Prints all distributions, each after an empty line.
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<()> {
        for drawing in &self.drawings {
            if let Some(heading) = &drawing.heading {
                writeln!(out, "\n{heading}")?;
            }
            let drawn = drawn(&drawing.lines);
            writeln!(out, "\n{}\n{}", drawing.title, drawn.trim_end_matches('\n'))?;
        }
        Ok(())
    }
}

/// One line of a drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) count: i64,
}

/// Width of all bars together.
const WIDTH: usize = 40;

/// The drawing, with its heading; every line ends with a newline.
fn drawn(lines: &[Line]) -> String {
    let ruler = "------------- Distribution -------------";
    let mut text = format!("{:>16} {ruler:>41} {:<9}\n", "value", "count");
    let total: f64 = lines.iter().map(|line| (line.count as f64).abs()).sum();
    let positives = lines.iter().any(|line| line.count > 0);
    let negatives = lines.iter().any(|line| line.count < 0);
    for line in lines {
        let bar = bar(line.count, total, positives, negatives);
        text.push_str(&format!("{:>16} {bar} {:<9}\n", line.label, line.count));
    }
    text
}

fn bar(count: i64, total: f64, positives: bool, negatives: bool) -> String {
    let width = if positives && negatives {
        WIDTH / 2
    } else {
        WIDTH
    };
    let length = match total {
        0.0 => 0,
        total => ((count as f64).abs() * width as f64 / total + 0.5) as usize,
    };
    let ats = "@".repeat(length);
    match (positives, negatives) {
        (_, false) => format!("|{ats:<width$}"),
        (false, true) => format!("{ats:>width$}|"),
        (true, true) if count <= 0 => format!("{ats:>width$}|{:width$}", ""),
        (true, true) => format!("{:width$}|{ats:<width$}", ""),
    }
}

/// Keys as libdtrace prints them: text in 50 columns, numbers in 16.
pub(crate) fn titles(keys: &[ArrayRef]) -> Result<Vec<String>> {
    let rows = keys.first().map_or(1, |key| key.len());
    let mut titles = vec![String::new(); rows];
    for key in keys {
        let texts = Texts::new(key)?;
        for (row, title) in titles.iter_mut().enumerate() {
            let mut cell = String::new();
            if !texts.write(row, &mut cell)? {
                cell.push_str("NULL");
            }
            let cell = harmless(&cell);
            title.push_str(&match is_number(key.data_type()) {
                true => format!(" {cell:>16}"),
                false => format!("  {cell:<50}"),
            });
        }
    }
    Ok(titles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counts: &[(&str, i64)], expected: &[&str]) {
        let lines: Vec<Line> = counts
            .iter()
            .map(|&(label, count)| Line {
                label: label.to_owned(),
                count,
            })
            .collect();
        let text = drawn(&lines);
        assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), expected);
    }

    /// The lines are from DTrace's own tests.
    #[test]
    fn bars_are_drawn_like_dtraces() {
        check(
            &[("0", 0), ("1", 123), ("2", 247), ("4", 0)],
            &[
                "               0 |                                         0        ",
                "               1 |@@@@@@@@@@@@@                            123      ",
                "               2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@              247      ",
                "               4 |                                         0        ",
            ],
        );
        check(
            &[("0", 0), ("1", -123), ("2", 0)],
            &[
                "               0                                         | 0        ",
                "               1 @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@| -123     ",
                "               2                                         | 0        ",
            ],
        );
        check(
            &[("-1", -123), ("0", -123), ("1", 246), ("2", 0)],
            &[
                "              -1                @@@@@|                     -123     ",
                "               0                @@@@@|                     -123     ",
                "               1                     |@@@@@@@@@@           246      ",
                "               2                     |                     0        ",
            ],
        );
        check(
            &[("-1", 0), ("0", 0), ("1", 0)],
            &[
                "              -1 |                                         0        ",
                "               0 |                                         0        ",
                "               1 |                                         0        ",
            ],
        );
    }

    #[test]
    fn heading_has_the_width_of_dtraces() {
        assert_eq!(
            drawn(&[]),
            "           value  ------------- Distribution ------------- count    \n"
        );
    }
}
