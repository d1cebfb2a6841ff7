//! The printed counts.
//!
//! ```text
//! counts of 1.003 s:
//!   task-clock        1,002.310 ms    1.00 CPUs
//!   context-switches            12   11.96 /s
//!   cycles             not counted   not supported: no hardware counters here
//! ```

use perfquet_cli::escaped;
use perfquet_events::event::Counted;
use perfquet_trace::count::grouped;

/// A printed count.
pub(super) struct Row {
    /// What it is for; empty: the whole target.
    pub(super) of: String,
    pub(super) event: String,
    pub(super) is_clock: bool,
    /// `None`: not counted.
    pub(super) counted: Option<Counted>,
    /// Why it was not counted.
    pub(super) error: String,
    /// Nanoseconds for which it was counted.
    pub(super) elapsed: u64,
}

/// Returns the lines for a period of `elapsed` nanoseconds.
pub(super) fn lines(rows: &[Row], elapsed: u64) -> Vec<String> {
    let rows: Vec<[String; 4]> = rows.iter().map(cells).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let [of, name, count] = [width(0), width(1), width(2)];
    let seconds = elapsed as f64 / 1e9;
    let mut lines = vec![format!("counts of {seconds:.3} s:")];
    lines.extend(rows.iter().map(|[key, event, value, note]| {
        let key = match of {
            0 => String::new(),
            _ => format!("{key:of$}  "),
        };
        let line = format!("  {key}{event:name$}  {value:>count$}  {note}");
        line.trim_end().to_owned()
    }));
    lines
}

fn cells(row: &Row) -> [String; 4] {
    let not_counted = |why: &str| ("not counted".to_owned(), why.to_owned());
    let scaled = row.counted.map(|counted| (counted, counted.scaled()));
    let (count, note) = match scaled {
        None => not_counted(&row.error),
        Some((_, None)) => not_counted("no counter was free while it was enabled"),
        Some((counted, Some(scaled))) => numbers(row.is_clock, scaled, counted, row.elapsed),
    };
    let shown = |text: &str| escaped(text).into_owned();
    [shown(&row.of), shown(&row.event), count, note]
}

fn numbers(is_clock: bool, scaled: u64, counted: Counted, elapsed: u64) -> (String, String) {
    let part = scaled as f64 / elapsed.max(1) as f64;
    let (count, mut note) = match is_clock {
        true => {
            let (whole, rest) = (scaled / 1_000_000, scaled / 1000 % 1000);
            (
                format!("{}.{rest:03} ms", grouped(whole)),
                format!("{part:.2} CPUs"),
            )
        }
        false => (grouped(scaled), format!("{} /s", rate(part * 1e9))),
    };
    if counted.running < counted.enabled {
        let share = counted.running as f64 * 100.0 / counted.enabled as f64;
        note.push_str(&format!(", estimated: counted {share:.0}% of the time"));
    }
    (count, note)
}

fn rate(per_second: f64) -> String {
    match per_second {
        large if large >= 1000.0 => grouped(large.round() as u64),
        small => format!("{small:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        let check = |is_clock, value, enabled, running, expected: (&str, &str)| {
            let counted = Counted {
                value,
                enabled,
                running,
            };
            let scaled = counted.scaled().unwrap();
            let (count, note) = numbers(is_clock, scaled, counted, 2_000_000_000);
            assert_eq!((count.as_str(), note.as_str()), expected);
        };
        check(true, 1_002_310_456, 9, 9, ("1,002.310 ms", "0.50 CPUs"));
        check(false, 12, 9, 9, ("12", "6.00 /s"));
        check(
            false,
            12_000,
            90,
            30,
            ("36,000", "18,000 /s, estimated: counted 33% of the time"),
        );
    }
}
