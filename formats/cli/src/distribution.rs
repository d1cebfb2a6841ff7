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

/// One line of a drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Label of the bar.
    pub label: String,
    /// Number of values in it.
    pub count: i64,
}

/// Width of all bars together.
const WIDTH: usize = 40;

/// Returns the drawing, with its heading; every line ends with a newline.
pub fn drawn(lines: &[Line]) -> String {
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
