//! Shared parts of SVG images: styles for light and dark mode, escaping, axes of durations.

use crate::functions::in_fitting_unit;
use crate::text::harmless;

/// Colors and fonts of all images. Viewers without support for `@media` show the light ones.
pub(super) const STYLE: &str = "\
text{font:13px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}
.paper{fill:#ffffff}.title{font-size:20px;font-weight:600}.quiet{fill:#57606a}.small{font-size:11px}
.name{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:12.5px}
.grid{stroke:#d0d7de;stroke-width:1}.fine{stroke:#eaeef2;stroke-width:1}.band{fill:#f6f8fa}
.line{stroke:#57606a;stroke-width:1.2;fill:none}.middle{fill:#ffffff;stroke:#24292f;stroke-width:1.4}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}.quiet{fill:#9198a1}
.grid{stroke:#3d444d}.fine{stroke:#21262d}.band{fill:#151b23}.line{stroke:#9198a1}.middle{fill:#0d1117;stroke:#e6edf3}}
";

/// Escapes a string for SVG.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in harmless(text).chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML 1.0 cannot represent these two, escaped or not.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// Formats the end of an axis without superfluous digits: `1000` as `1 us`.
pub(super) fn axis_label(ns: f64) -> String {
    let text = in_fitting_unit(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// Values on a logarithmic scale, whole decades wide.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogAxis {
    lowest: f64,
    highest: f64,
    /// Position of the lowest value, and number of pixels up to the highest.
    pub(super) from: f64,
    pub(super) length: f64,
}

impl LogAxis {
    pub(super) fn new(min: i64, max: i64, from: f64, length: f64) -> LogAxis {
        let decade = |value: i64| (value.max(1) as f64).log10();
        let lowest = decade(min).floor();
        let highest = decade(max).ceil().max(lowest + 1.0);
        LogAxis {
            lowest,
            highest,
            from,
            length,
        }
    }

    /// Returns the position of a value; values below 1 are drawn at 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = (value.max(1.0).log10() - self.lowest) / (self.highest - self.lowest);
        self.from + share.clamp(0.0, 1.0) * self.length
    }

    /// The decades: their values and positions.
    pub(super) fn decades(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        (self.lowest as i32..=self.highest as i32).map(|decade| {
            let value = 10f64.powi(decade);
            (value, self.place(value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_text_is_escaped() {
        assert_eq!(
            escaped("a<b>&\"\u{1b}[0m\u{ffff}"),
            "a&lt;b&gt;&amp;&quot;\\x1b[0m\u{fffd}"
        );
    }

    #[test]
    fn whole_decades() {
        let axis = LogAxis::new(150, 90_000, 100.0, 300.0);
        let places: Vec<_> = axis
            .decades()
            .map(|(value, place)| (value as i64, place.round()))
            .collect();
        assert_eq!(
            places,
            [
                (100, 100.0),
                (1000, 200.0),
                (10_000, 300.0),
                (100_000, 400.0)
            ]
        );
        assert_eq!(axis.place(0.0), 100.0);
        assert_eq!(LogAxis::new(0, 0, 0.0, 10.0).decades().count(), 2);
        assert_eq!(axis_label(1000.0), "1 us");
        assert_eq!(axis_label(100.0), "100 ns");
    }
}
