//! Cells of maps whose color is a count, and their legend.

use std::fmt::Write as _;

use perfquet_trace::count::grouped;

/// Colors from few to many: light to dark blue, violet, warm red, distinct on light and dark backgrounds.
pub(super) const HEAT: [&str; 10] = [
    "#9ecae1", "#6baed6", "#4292c6", "#3f6fb5", "#5a4fa2", "#86409a", "#b23a86", "#d84a5b",
    "#ee7b3a", "#fbc02d",
];

/// Returns the color of a count, on a logarithmic scale: one call among thousands stays visible.
pub(super) fn heat_color(count: u64, most: u64) -> &'static str {
    let share = (count as f64).ln() / (most as f64).ln().max(f64::MIN_POSITIVE);
    HEAT[((share * HEAT.len() as f64) as usize).min(HEAT.len() - 1)]
}

/// Begins a map of cells as wide as the plot: cells are 1 wide and 1 high.
pub(super) fn cells_begin(columns: usize, rows: usize, height: f64) -> String {
    format!(
        "<svg width=\"100%\" height=\"{height}\" viewBox=\"0 0 {columns} {rows}\" preserveAspectRatio=\"none\" shape-rendering=\"crispEdges\">\n"
    )
}

/// A cell; `words` are escaped already.
pub(super) fn cell(text: &mut String, column: usize, row: usize, color: &str, words: &str) {
    let _ = writeln!(
        text,
        "<rect x=\"{column}\" y=\"{row}\" width=\"1\" height=\"1\" fill=\"{color}\"><title>{words}</title></rect>"
    );
}

/// The colors from 1 to the highest count.
pub(super) fn legend(text: &mut String, x: f64, y: f64, most: u64, what: &str) {
    for (place, color) in HEAT.iter().enumerate() {
        let _ = writeln!(
            text,
            "<rect x=\"{}\" y=\"{}\" width=\"26\" height=\"12\" fill=\"{color}\"/>",
            x + 26.0 * place as f64,
            y - 11.0
        );
    }
    let _ = writeln!(
        text,
        "<text class=\"quiet small\" x=\"{}\" y=\"{y}\" text-anchor=\"end\">1</text>\n<text class=\"quiet small\" x=\"{}\" y=\"{y}\">{} {what}</text>",
        x - 8.0,
        x + 26.0 * HEAT.len() as f64 + 8.0,
        grouped(most)
    );
}
