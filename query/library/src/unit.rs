//! Units of columns, in the metadata of their fields, and durations as text.

use std::collections::HashMap;

use perfquet_views::TIMES;

/// Key in a field's metadata: the unit of its values. Tables for people have [`DURATION`] as `1.234 ms`, [`SHARE`] as `12.3%`;
/// addresses and masks are written in hexadecimal, in CSV and JSON too.
pub const UNIT: &str = "unit";

/// Unit of durations, in nanoseconds.
pub const DURATION: &str = "ns";

/// Unit of times on the trace's clock, in nanoseconds too. They stay numbers, to be copied into a condition.
pub const TIME: &str = "time";

/// Unit of `since_start`.
pub const SECONDS: &str = "s";

/// Unit of parts of a whole, from 0 to 1.
pub const SHARE: &str = "share";

/// Units whose values are written in hexadecimal.
const HEXADECIMAL: [&str; 2] = ["address", "mask"];

/// Whether values of this unit are written in hexadecimal.
pub fn is_hexadecimal(unit: &str) -> bool {
    HEXADECIMAL.contains(&unit)
}

/// Returns the metadata of a table's column with this unit, if its values are written in another form in some format.
pub fn metadata(column: &str, unit: &str) -> HashMap<String, String> {
    let unit = match unit {
        DURATION if TIMES.contains(&column) => TIME,
        DURATION | SHARE => unit,
        unit if is_hexadecimal(unit) => unit,
        _ => return HashMap::new(),
    };
    HashMap::from([(UNIT.to_owned(), unit.to_owned())])
}

/// `1234567` as `1.235 ms`.
pub fn in_fitting_unit(ns: f64) -> String {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let shown = |unit: f64| (ns / unit * 1e3).round() / 1e3;
    let (name, unit) = units
        .into_iter()
        .find(|(_, unit)| shown(*unit).abs() < 1000.0)
        .unwrap_or(units[3]);
    if unit == 1.0 && ns.fract() == 0.0 {
        // A sum of nothing is -0.0.
        format!("{} {name}", ns + 0.0)
    } else {
        format!("{:.3} {name}", ns / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_in_nanoseconds_is_a_time_or_a_duration() {
        for table in perfquet_trace::tables::declared() {
            for column in table
                .columns
                .iter()
                .filter(|column| column.unit == DURATION)
            {
                let is_time = metadata(&column.name, &column.unit)[UNIT] == TIME;
                let durations = [
                    "duration",
                    "self_time",
                    "total_duration",
                    "enabled",
                    "running",
                ];
                let is_duration = durations.contains(&column.name.as_str());
                assert_ne!(is_time, is_duration, "{}.{}", table.name, column.name);
            }
        }
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        for (ns, expected) in [
            (0.0, "0 ns"),
            (999.0, "999 ns"),
            (1000.0, "1.000 us"),
            (1_234_567.0, "1.235 ms"),
            (999_999.9, "1.000 ms"),
            (-1_500.0, "-1.500 us"),
            (61e9, "61.000 s"),
            (2e15, "2000000.000 s"),
            (0.5, "0.500 ns"),
        ] {
            assert_eq!(in_fitting_unit(ns), expected);
        }
    }
}
