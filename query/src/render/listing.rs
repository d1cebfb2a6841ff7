//! Instructions and source lines with their percentages, and with arrows for jumps.
//!
//! ```text
//!    1.20   11a0  ╭► cmp     %eax,-0x4(%rbp)
//!   45.30   11a3  │  imul    %rdx,%rax
//!   12.00   11a7  ╰─ jb     11a0
//! ```

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::bars::is_unicode;
use super::{is_colored, width};
use crate::text::{columns, cut_right, harmless};

/// Arrows beside each other; the longest jumps have none if there are more.
const LANES: usize = 4;
/// Lines that an arrow may pass: the ends of longer ones are not on the screen together.
const LONGEST: usize = 200;
/// Shares, in percent, from which on a percentage is red or green, as in perf.
const HOT: f64 = 5.0;
const WARM: f64 = 0.5;
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Columns of a percentage.
const PERCENT: usize = 8;

/// Functions with their instructions or lines.
pub(crate) struct Listing {
    pub(crate) rows: RecordBatch,
    pub(crate) functions: Vec<ListedFunction>,
}

/// A function, line by line.
pub(crate) struct ListedFunction {
    pub(crate) heading: Vec<String>,
    /// Names of the columns of percentages.
    pub(crate) events: Vec<String>,
    pub(crate) lines: Vec<ListedLine>,
}

/// A line of a listing.
pub(crate) enum ListedLine {
    /// A file, or a function that is inlined here.
    Heading(String),
    Source {
        number: Option<u32>,
        /// Per event; empty if they are those of instructions.
        percents: Vec<f64>,
        text: String,
    },
    Instruction {
        address: u64,
        percents: Vec<f64>,
        text: String,
        /// Address where a jump leads.
        jump: Option<u64>,
    },
    /// Omitted instructions.
    Gap { percents: Vec<f64>, text: String },
}

impl Listing {
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<()> {
        let paint = Paint {
            is_colored: is_colored(),
            is_unicode: is_unicode(),
            width: width(),
        };
        for (index, function) in self.functions.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            for line in text(function, &paint) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(out.flush()?)
    }
}

struct Paint {
    is_colored: bool,
    is_unicode: bool,
    width: Option<usize>,
}

impl Paint {
    fn painted(&self, color: &str, text: &str) -> String {
        match self.is_colored && !text.is_empty() {
            true => format!("{color}{text}{PLAIN}"),
            false => text.to_owned(),
        }
    }

    /// Percentages; those of nothing are blank.
    fn percents(&self, percents: &[f64], count: usize) -> String {
        let percent = |index: usize| {
            let percent = percents.get(index).copied().unwrap_or(0.0);
            let text = match percent > 0.0 {
                true => format!("{percent:>PERCENT$.2}"),
                false => " ".repeat(PERCENT),
            };
            match percent {
                HOT.. => self.painted(RED, &text),
                WARM.. => self.painted(GREEN, &text),
                _ => text,
            }
        };
        (0..count).map(percent).collect()
    }

    fn cut<'t>(&self, text: &'t str, used: usize) -> std::borrow::Cow<'t, str> {
        match self.width {
            Some(width) => cut_right(text, width.saturating_sub(used).max(8)),
            None => text.into(),
        }
    }
}

/// The lines of a function for a page, each with the percentage of the first event.
pub(crate) fn shaded_lines(function: &ListedFunction) -> Vec<(Option<f64>, String)> {
    let paint = Paint {
        is_colored: false,
        is_unicode: true,
        width: None,
    };
    let text = text(function, &paint);
    let share = |line: &ListedLine| match line {
        ListedLine::Heading(_) => None,
        ListedLine::Source { percents, .. }
        | ListedLine::Instruction { percents, .. }
        | ListedLine::Gap { percents, .. } => percents.first().copied(),
    };
    let shares = function.lines.iter().map(share);
    // What is above the lines has none.
    let head = text.len().saturating_sub(function.lines.len());
    let shares = std::iter::repeat_n(None, head).chain(shares);
    let shares = shares.map(|share| share.filter(|share| *share > 0.0));
    let rounded = shares.map(|share| share.map(|share| (share * 100.0).round() / 100.0));
    rounded.zip(text).collect()
}

/// The text of a function, line by line.
fn text(function: &ListedFunction, paint: &Paint) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, line) in function.heading.iter().enumerate() {
        let line = harmless(line);
        let line = paint.cut(&line, 0);
        lines.push(match index {
            0 => paint.painted(BOLD, &line),
            _ => line.into_owned(),
        });
    }
    let count = function.events.len();
    if count > 1 {
        // Names of events may be wider than their percentages.
        let names = function.events.iter().map(|event| {
            let event = harmless(event);
            format!("{:>PERCENT$}", cut_right(&event, PERCENT - 1))
        });
        lines.push(names.collect());
    }
    let addresses = function.lines.iter().map(|line| match line {
        ListedLine::Instruction { address, .. } => format!("{address:x}").len(),
        ListedLine::Source { number, .. } => number.map_or(0, |number| number.to_string().len()),
        ListedLine::Heading(_) | ListedLine::Gap { .. } => 0,
    });
    let place = addresses.max().unwrap_or(0).max(4) + 2;
    let arrows = arrows(&function.lines, paint.is_unicode);
    let lanes = arrows.iter().map(|arrow| columns(arrow)).max().unwrap_or(0);
    let used = PERCENT * count + place;
    for (line, arrow) in function.lines.iter().zip(&arrows) {
        let line = match line {
            ListedLine::Heading(text) => {
                let text = harmless(text);
                let text = paint.cut(&text, used + 1);
                let text = paint.painted(DIM, &text);
                format!("{:used$} {text}", "")
            }
            ListedLine::Source {
                number,
                percents,
                text,
            } => {
                let text = harmless(text);
                let shift = if percents.is_empty() { lanes + 1 } else { 1 };
                let text = paint.cut(&text, used + shift);
                let is_beside = percents.is_empty();
                let text = match is_beside {
                    true => paint.painted(DIM, &text),
                    false => text.into_owned(),
                };
                let number = number.map(|number| number.to_string()).unwrap_or_default();
                let arrow = if is_beside { arrow.as_str() } else { "" };
                let pad = " ".repeat(shift - 1 - columns(arrow).min(shift - 1));
                let percents = paint.percents(percents, count);
                format!("{percents}{number:>place$} {arrow}{pad}{text}")
            }
            ListedLine::Instruction {
                address,
                percents,
                text,
                ..
            } => {
                let percents = paint.percents(percents, count);
                let text = harmless(text);
                let text = paint.cut(&text, used + 1 + lanes);
                let pad = " ".repeat(lanes - columns(arrow));
                let address = format!("{address:x}");
                format!("{percents}{address:>place$} {arrow}{pad}{text}")
            }
            ListedLine::Gap { percents, text } => {
                let percents = paint.percents(percents, count);
                let pad = " ".repeat(lanes - columns(arrow));
                let text = paint.painted(DIM, text);
                format!("{percents}{:>place$} {arrow}{pad}{text}", "…")
            }
        };
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// A jump between two lines.
#[derive(Debug, Clone, Copy)]
struct Jump {
    from: usize,
    to: usize,
}

impl Jump {
    fn first(self) -> usize {
        self.from.min(self.to)
    }

    fn last(self) -> usize {
        self.from.max(self.to)
    }
}

/// The arrows of each line: lanes beside each other, those of short jumps at the right.
fn arrows(lines: &[ListedLine], unicode: bool) -> Vec<String> {
    let addresses: HashMap<u64, usize> = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| match line {
            ListedLine::Instruction { address, .. } => Some((*address, at)),
            _ => None,
        })
        .collect();
    let mut jumps: Vec<Jump> = lines
        .iter()
        .enumerate()
        .filter_map(|(from, line)| match line {
            ListedLine::Instruction {
                jump: Some(jump), ..
            } => Some(Jump {
                from,
                to: *addresses.get(jump)?,
            }),
            _ => None,
        })
        .filter(|jump| jump.last() - jump.first() <= LONGEST)
        .collect();
    jumps.sort_by_key(|jump| (jump.last() - jump.first(), jump.from));
    // For each lane and line, the jump that passes there.
    let mut lanes: Vec<Vec<Option<Jump>>> = Vec::new();
    let mut is_target = vec![false; lines.len()];
    for jump in jumps {
        let passed = jump.first()..=jump.last();
        let is_free = |lane: &Vec<Option<Jump>>| lane[passed.clone()].iter().all(Option::is_none);
        let lane = lanes.iter().position(is_free).unwrap_or(lanes.len());
        if lane == lanes.len() {
            if lane == LANES {
                continue;
            }
            lanes.push(vec![None; lines.len()]);
        }
        lanes[lane][passed].fill(Some(jump));
        is_target[jump.to] = true;
    }
    // Top, bottom, side, line, head.
    let [top, bottom, side, dash, head] = match unicode {
        true => ['╭', '╰', '│', '─', '►'],
        false => ['+', '+', '|', '-', '>'],
    };
    let width = if lanes.is_empty() { 0 } else { lanes.len() + 2 };
    let drawn = (0..lines.len()).map(|line| {
        let mut letters = vec![' '; width];
        // From the left: an end's line crosses the lanes of shorter jumps.
        for (lane, passing) in lanes.iter().enumerate().rev() {
            let column = lanes.len() - 1 - lane;
            let Some(jump) = passing[line] else {
                continue;
            };
            if line != jump.from && line != jump.to {
                if letters[column] == ' ' {
                    letters[column] = side;
                }
                continue;
            }
            letters[column] = match line == jump.first() {
                true if jump.first() != jump.last() => top,
                true => dash,
                false => bottom,
            };
            letters[column + 1..=lanes.len()].fill(dash);
        }
        // Where jumps end, the head is drawn last.
        if is_target[line] {
            letters[lanes.len()] = head;
        }
        letters.into_iter().collect()
    });
    drawn.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(address: u64, percent: f64, jump: Option<u64>) -> ListedLine {
        ListedLine::Instruction {
            address,
            percents: vec![percent],
            text: "jmp".to_owned(),
            jump,
        }
    }

    #[test]
    fn arrows_of_nested_jumps() {
        let lines = [
            instruction(0, 0.0, Some(4)),
            instruction(1, 0.0, None),
            instruction(2, 0.0, Some(1)),
            instruction(3, 0.0, None),
            instruction(4, 0.0, Some(0x100)),
        ];
        let drawn = arrows(&lines, true);
        assert_eq!(drawn, ["╭── ", "│╭► ", "│╰─ ", "│   ", "╰─► "]);
        assert_eq!(arrows(&lines, false)[1], "|+> ");
        assert_eq!(arrows(&lines[..2], true), ["", ""]);
        // Every instruction jumps to the next one but two: quickly drawn, however many there are.
        let many: Vec<ListedLine> = (0..300_000)
            .map(|at| instruction(at, 0.0, Some(at + 3)))
            .collect();
        assert_eq!(arrows(&many, true)[1000].chars().count(), LANES + 2);
    }

    #[test]
    fn listing_fits_the_terminal() {
        let function = ListedFunction {
            heading: vec!["f: 12.00% of cpu-clock, 3 samples".to_owned()],
            events: vec!["cpu-clock".to_owned()],
            lines: vec![
                ListedLine::Heading("/src/a.c".to_owned()),
                ListedLine::Source {
                    number: Some(12),
                    percents: Vec::new(),
                    text: "while (x\x1b[2J) {".to_owned(),
                },
                instruction(0x1189, 75.0, None),
                instruction(0x118b, 0.0, Some(0x1189)),
                ListedLine::Gap {
                    percents: vec![25.0],
                    text: "3 more instructions".to_owned(),
                },
            ],
        };
        let paint = Paint {
            is_colored: false,
            is_unicode: true,
            width: Some(40),
        };
        assert_eq!(
            text(&function, &paint),
            [
                "f: 12.00% of cpu-clock, 3 samples",
                "               /src/a.c",
                "            12    while (x\\x1b[2J) {",
                "   75.00  1189 ╭► jmp",
                "          118b ╰─ jmp",
                "   25.00     …    3 more instructions",
            ]
        );
    }
}
