//! Shared parts of SVG images: page, title, styles for light and dark mode, escaping, axes of durations.
//!
//! Images are 1,200 pixels wide. Opened directly, [`SCRIPT`] resizes them to the width of the window, including their plots,
//! in which x is in percent. Without scripts, as in `<img>`, they are scaled.

use std::fmt::Write as _;

use perfquet::unit::in_fitting_unit;

use crate::text::{cut, harmless};

/// Width in pixels of an image that is embedded or has no script.
pub(super) const USUAL_WIDTH: u32 = 1200;
/// Distance of titles from the left edge.
pub(super) const MARGIN: f64 = 20.0;

/// Colors and fonts of all images. Viewers without support for `@media` show the light ones.
const STYLE: &str = "\
svg{background:#fff}text{font:13px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}
.title{font-size:20px;font-weight:600}.quiet{fill:#57606a}.small{font-size:11px}.hint{fill:#9a4a12}
.name{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}
.grid{stroke:#d0d7de;stroke-width:1}.fine{stroke:#eaeef2;stroke-width:1}.band{fill:#f6f8fa}
.line{stroke:#57606a;stroke-width:1.2;fill:none}.middle{fill:#fff;stroke:#24292f;stroke-width:1.4}
.tip{fill:#fff;stroke:#8c959f}.plot{overflow:visible}.button{cursor:pointer}
";
const DARK_STYLE: &str = "\
svg{background:#0d1117}text{fill:#e6edf3}.quiet{fill:#9198a1}.hint{fill:#e8a06a}
.grid{stroke:#3d444d}.fine{stroke:#21262d}.band{fill:#151b23}.line{stroke:#9198a1}.middle{fill:#0d1117;stroke:#e6edf3}
.tip{fill:#1c2128;stroke:#6e7681}
";

/// Resizes an image to its window, draws tooltips, zooms and searches flame graphs. Built from
/// `query/page/src/picture.ts`.
const SCRIPT: &str = include_str!("../../page/dist/picture.js");

/// The page of an image, and the text above the drawing.
pub(super) struct Page<'a> {
    /// Pixels; `None` for the width of the window.
    pub(super) width: Option<u32>,
    pub(super) height: f64,
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
    /// Notes for the reader, one line each.
    pub(super) notes: &'a [String],
    /// Styles of this kind of image, for light and dark mode.
    pub(super) style: [&'a str; 2],
    /// Classes of the root, which choose among styles.
    pub(super) class: &'a str,
}

/// Position of the first line below the titles, if they have this many notes.
pub(super) fn below_titles(notes: usize) -> f64 {
    78.0 + 20.0 * notes as f64
}

impl Page<'_> {
    /// Begins the image: everything above the drawing.
    pub(super) fn begin(&self) -> String {
        let (width, height) = (self.width.unwrap_or(USUAL_WIDTH), self.height);
        let [light, dark] = self.style;
        let fixed = if self.width.is_some() {
            " data-fixed=\"1\""
        } else {
            ""
        };
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" class=\"{}\"{fixed}>\n<style>:root{{color-scheme:light dark}}{STYLE}{light}@media (prefers-color-scheme:dark){{{DARK_STYLE}{dark}}}</style>\n",
            self.class
        );
        // Some 10 pixels a letter.
        let room = width as usize / 11;
        let _ = writeln!(
            text,
            "<text class=\"title\" x=\"{MARGIN}\" y=\"36\">{}</text>\n<text class=\"quiet\" x=\"{MARGIN}\" y=\"60\">{}</text>",
            escaped(&cut(self.title, room)),
            escaped(self.subtitle)
        );
        for (place, note) in self.notes.iter().enumerate() {
            let _ = writeln!(
                text,
                "<text class=\"hint\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
                below_titles(place) + 2.0,
                escaped(note)
            );
        }
        text
    }

    /// Ends the image. `data` is what the script needs to know, as JSON; empty if it is a plain image.
    pub(super) fn end(mut text: String, data: &str) -> String {
        if !data.is_empty() {
            let _ = writeln!(text, "<metadata id=\"data\">{}</metadata>", markup(data));
        }
        let _ = writeln!(
            text,
            "<script><![CDATA[\n{}\n]]></script>\n</svg>",
            SCRIPT.trim_end()
        );
        text
    }
}

/// Begins a plot that ends `right` pixels from the right edge; inside, x is in percent. (Widths by `calc` would need no
/// script, but Chromium ignores them in styles of inner images, and Firefox in attributes.)
pub(super) fn plot_begin(left: f64, right: f64, top: f64) -> String {
    let width = f64::from(USUAL_WIDTH) - left - right;
    format!(
        "<svg class=\"plot\" x=\"{left}\" y=\"{top}\" width=\"{width}\" data-margins=\"{}\">\n",
        left + right
    )
}

/// A share in percent, without superfluous digits.
pub(super) fn percent(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Escapes a string for SVG; control characters become visible.
pub(super) fn escaped(text: &str) -> String {
    markup(&harmless(text))
}

/// Escapes the characters of XML's own syntax, and those that it cannot represent.
fn markup(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
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
pub(crate) fn axis_label(ns: f64) -> String {
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
