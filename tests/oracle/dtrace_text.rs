//! Output of dtrace, generated here: stacks with counts, and distributions in the layout of `dt_consume.c`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Stacks, innermost frame first, with their counts, as printed by `@[stack()] = count()` at the end.
pub(crate) fn stacks(stacks: &[(Vec<&str>, u64)]) -> String {
    let mut text = "CPU     ID                    FUNCTION:NAME\n  0  64091                        :tick-60s \n".to_owned();
    for (frames, count) in stacks {
        text.push('\n');
        for frame in frames {
            let _ = write!(text, "\n              {frame}");
        }
        let _ = write!(text, "\n{count:>17}");
    }
    text.push('\n');
    text
}

/// The same stacks as folded by `stackcollapse.pl`: outermost first, without offsets, sorted.
pub(crate) fn folded(stacks: &[(Vec<&str>, u64)]) -> Vec<String> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (frames, count) in stacks {
        let names: Vec<&str> = frames
            .iter()
            .rev()
            .map(|frame| frame.rsplit_once('+').map_or(*frame, |(name, _)| name))
            .collect();
        *sums.entry(names.join(";")).or_default() += count;
    }
    sums.iter()
        .map(|(stack, count)| format!("{stack} {count}"))
        .collect()
}

/// `@[key] = quantize(value)`: powers of two, with an empty bar before and after.
pub(crate) fn quantize(key: &str, values: &[i64]) -> String {
    let bucket = |value: i64| match value {
        0 => 0,
        value if value < 0 => -(1i64 << (63 - value.unsigned_abs().leading_zeros())),
        value => 1i64 << (63 - value.leading_zeros()),
    };
    let mut bounds: Vec<i64> = (0..62).rev().map(|power| -(1i64 << power)).collect();
    bounds.push(0);
    bounds.extend((0..62).map(|power| 1i64 << power));
    let counts = |bound: &i64| {
        values
            .iter()
            .filter(|value| bucket(**value) == *bound)
            .count()
    };
    let used: Vec<usize> = (0..bounds.len())
        .filter(|&at| counts(&bounds[at]) > 0)
        .collect();
    let (first, last) = (used[0] - 1, used[used.len() - 1] + 1);
    let lines = (first..=last).map(|at| (bounds[at].to_string(), counts(&bounds[at])));
    drawing(key, &lines.collect::<Vec<_>>())
}

/// `@[key] = lquantize(value, low, high, step)`.
pub(crate) fn lquantize(key: &str, values: &[i64], low: i64, high: i64, step: i64) -> String {
    let mut lines = vec![(
        format!("< {low}"),
        values.iter().filter(|value| **value < low).count(),
    )];
    for bound in (low..high).step_by(step as usize) {
        let is_inside = |value: &&i64| (bound..bound + step).contains(*value);
        lines.push((bound.to_string(), values.iter().filter(is_inside).count()));
    }
    lines.push((
        format!(">= {high}"),
        values.iter().filter(|value| **value >= high).count(),
    ));
    let first = lines
        .iter()
        .position(|(_, count)| *count > 0)
        .expect("a value");
    let last = lines
        .iter()
        .rposition(|(_, count)| *count > 0)
        .expect("a value");
    let shown = first.saturating_sub(1)..=(last + 1).min(lines.len() - 1);
    drawing(key, &lines[shown])
}

/// Forty marks in total: each bar is rounded to the nearest.
fn drawing(key: &str, lines: &[(String, usize)]) -> String {
    let total: usize = lines.iter().map(|(_, count)| count).sum();
    let mut text = format!(
        "  {key:<50}\n           value  ------------- Distribution ------------- count    \n"
    );
    for (bound, count) in lines {
        let marks = (*count as f64 * 40.0 / total as f64 + 0.5) as usize;
        let _ = writeln!(text, "{bound:>16} |{:<40} {count:<9}", "@".repeat(marks));
    }
    text + "\n"
}
