//! `--live`: prints the aggregates of each interval to stdout.
//!
//! ```text
//! after 2.0 s:
//! comm     count()  avg(duration)
//! dd            50       1.204 us
//! bash           2      65.132 ms
//! ```
//! Distributions are drawn as in DTrace.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Instant;

use perfquet_cli::distribution::{Line, drawn};
use perfquet_cli::escaped;
use perfquet_ebpf::layout::{Cell, NO_BAR_OF_SELF};
use perfquet_events::event::Action;

use super::aggregate_rows::{keyed, range};
use super::intervals::Cells;
use super::plan::{Output, Plan};
use crate::journal::own_records::Row;

/// Maximum number of rows in a table, and of distributions of an aggregation.
const MOST_ROWS: usize = 20;
const MOST_DRAWN: usize = 8;

/// State of the output.
pub(crate) struct Live {
    started: Instant,
    /// Text of the current interval.
    text: String,
    /// The reader has closed the output.
    is_closed: bool,
}

impl Live {
    /// Starts at the beginning of a recording.
    pub(crate) fn new() -> Live {
        Live {
            started: Instant::now(),
            text: String::new(),
            is_closed: false,
        }
    }

    /// Adds the values of one aggregation in an interval.
    pub(super) fn show(&mut self, plan: &Plan, rows: &[(&Output, Row)], cells: &Cells) {
        self.text.push_str(&text(plan, rows, cells));
    }

    /// Prints the interval, unless the reader has closed the output.
    pub(crate) fn print(&mut self) {
        let text = std::mem::take(&mut self.text);
        if self.is_closed {
            return;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let empty = if text.is_empty() { "nothing\n" } else { "" };
        let mut out = io::stdout().lock();
        let written = write!(out, "\nafter {seconds:.1} s:\n{text}{empty}");
        self.is_closed = written.and_then(|()| out.flush()).is_err();
    }
}

fn text(plan: &Plan, rows: &[(&Output, Row)], cells: &Cells) -> String {
    let mut text = String::new();
    if rows.iter().any(|(output, _)| !output.is_distribution()) {
        text.push_str(&table(plan, rows));
    }
    for output in plan
        .outputs
        .iter()
        .filter(|output| output.is_distribution())
    {
        text.push_str(&drawings(plan, output, cells));
    }
    text
}

/// Draws the distributions with the most values.
fn drawings(plan: &Plan, output: &Output, cells: &Cells) -> String {
    let counts = |bars: &BTreeMap<i32, Cell>| -> BTreeMap<i32, u64> {
        let bars = bars.iter().filter(|(bar, _)| **bar > NO_BAR_OF_SELF);
        bars.map(|(bar, cell)| (*bar, cell.count)).collect()
    };
    let mut all: Vec<_> = cells
        .iter()
        .map(|((probe, key), bars)| (keyed(&plan.keys, probe, key).keys, counts(bars)))
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    all.sort_by_key(|(_, bars)| std::cmp::Reverse(bars.values().sum::<u64>()));
    let mut text = String::new();
    for (keys, bars) in all.iter().take(MOST_DRAWN) {
        let keys: Vec<String> = keys.iter().map(|key| shown(key)).collect();
        let title = format!("{} {}", output.name, keys.join(", "));
        let drawing = drawn(&lines(plan, output, bars));
        for line in std::iter::once(title.as_str()).chain(drawing.lines()) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text + &more(all.len(), MOST_DRAWN, "distribution")
}

/// Formats one row per key, largest first. Keys that differ only in their stacks are merged.
fn table(plan: &Plan, rows: &[(&Output, Row)]) -> String {
    let outputs: Vec<&Output> = plan
        .outputs
        .iter()
        .filter(|output| !output.is_distribution())
        .filter(|output| !has_stacks(plan) || is_additive(output.action))
        .collect();
    let mut by_key: BTreeMap<&[Vec<u8>], Vec<Option<f64>>> = BTreeMap::new();
    for (output, row) in rows {
        let Some(place) = outputs.iter().position(|other| other == output) else {
            continue;
        };
        let values = by_key
            .entry(&row.keys)
            .or_insert_with(|| vec![None; outputs.len()]);
        if let (Some(sum), Some(value)) = (values.get_mut(place), row.value) {
            *sum = Some(sum.unwrap_or(0.0) + value.as_f64());
        }
    }
    let mut sorted: Vec<_> = by_key.into_iter().collect();
    let first = |values: &[Option<f64>]| values.first().copied().flatten().unwrap_or(f64::MIN);
    sorted.sort_by(|one, other| first(&other.1).total_cmp(&first(&one.1)));
    let mut cells: Vec<Vec<String>> = vec![
        plan.key_names
            .iter()
            .cloned()
            .chain(outputs.iter().map(|output| output.name.clone()))
            .collect(),
    ];
    for (keys, values) in sorted.iter().take(MOST_ROWS) {
        let values = outputs
            .iter()
            .zip(values)
            .map(|(output, value)| match value {
                Some(value) => quantity(*value, output),
                None => String::new(),
            });
        cells.push(keys.iter().map(|key| shown(key)).chain(values).collect());
    }
    aligned(&cells, plan.key_names.len()) + &more(sorted.len(), MOST_ROWS, "key")
}

fn has_stacks(plan: &Plan) -> bool {
    plan.keys.iter().any(|key| key.is_stack())
}

fn is_additive(action: Action) -> bool {
    matches!(action, Action::Count | Action::Sum)
}

/// Aligns columns with two spaces between them, the first ones to the left.
fn aligned(cells: &[Vec<String>], left: usize) -> String {
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = cells.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in cells {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column < left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn more(all: usize, shown: usize, what: &str) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        1 => format!("and 1 more {what}\n"),
        left => format!("and {left} more {what}s\n"),
    }
}

fn shown(key: &[u8]) -> String {
    escaped(&String::from_utf8_lossy(key)).into_owned()
}

fn quantity(value: f64, output: &Output) -> String {
    match output.is_time {
        true => time(value),
        false if value.fract() == 0.0 => format!("{value:.0}"),
        false => format!("{value:.1}"),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.3} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.3} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.3} us", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

/// Returns the bars, with the empty ones between them and one on each side.
fn lines(plan: &Plan, output: &Output, bars: &BTreeMap<i32, u64>) -> Vec<Line> {
    let (Some((first, _)), Some((last, _))) = (bars.first_key_value(), bars.last_key_value())
    else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for bar in first.saturating_sub(1)..=last.saturating_add(1) {
        let (low, high) = range(plan, output.action, bar.into());
        let label = match (low, high) {
            (Some(low), _) if output.is_time && low >= 0 => time(low as f64),
            (Some(low), Some(high)) if low < 0 && output.action == Action::Quantize => {
                (high - 1).to_string()
            }
            (Some(low), Some(_)) => low.to_string(),
            (Some(low), None) => format!(">= {low}"),
            (None, Some(high)) => format!("< {high}"),
            // Outside the range of values.
            (None, None) => continue,
        };
        let count = bars.get(&bar).copied().unwrap_or(0);
        lines.push(Line {
            label,
            count: count as i64,
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use perfquet_ebpf::layout::{AggSettings, NO_BAR};

    use super::super::aggregate_rows::rows;
    use super::super::intervals::Entry;
    use super::super::plan::Key;
    use super::*;

    fn output(name: &str, action: Action, is_time: bool) -> Output {
        Output {
            name: name.to_owned(),
            action,
            is_of_self: false,
            is_time,
        }
    }

    fn cells(bars: &[(&str, i32, u64, u64)]) -> Cells {
        let entry = |&(key, bar, count, sum): &(&str, i32, u64, u64)| {
            let mut word = [0; 8];
            word[..key.len()].copy_from_slice(key.as_bytes());
            Entry {
                interval: 0,
                key: (String::new(), vec![u64::from_ne_bytes(word), 0]),
                bar,
                cell: Cell {
                    count,
                    sum,
                    ..Cell::default()
                },
            }
        };
        bars.iter().map(entry).collect()
    }

    #[test]
    fn tables_and_drawings() {
        let plan = Plan {
            outputs: vec![
                output("count()", Action::Count, false),
                output("avg(duration)", Action::Avg, true),
                output("quantize(duration)", Action::Quantize, true),
            ],
            settings: AggSettings::default(),
            edges: Vec::new(),
            keys: vec![Key::Comm],
            key_names: vec!["comm".to_owned()],
        };
        let cells = cells(&[
            ("dd", NO_BAR, 50, 60_200),
            ("bash", NO_BAR, 2, 130_264_000),
            ("dd", 11, 49, 0),
            ("dd", 13, 1, 0),
        ]);
        let rows = rows(&plan, &cells);
        let expected = "\
comm  count()  avg(duration)
dd         50       1.204 us
bash        2      65.132 ms
quantize(duration) dd
           value  ------------- Distribution ------------- count
          512 ns |                                         0
        1.024 us |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@  49
        2.048 us |                                         0
        4.096 us |@                                        1
        8.192 us |                                         0
";
        assert_eq!(text(&plan, &rows, &cells), expected);
    }

    #[test]
    fn long_tables_are_cut() {
        assert_eq!(more(22, 20, "key"), "and 2 more keys\n");
        assert_eq!(
            (more(21, 20, "key"), more(3, 8, "key")),
            ("and 1 more key\n".to_owned(), String::new())
        );
    }
}
