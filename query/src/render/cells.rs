//! Values as people read them: durations in a fitting unit, shares in percent.

use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use perfquet::unit::in_fitting_unit;
use perfquet::unit::{DURATION, SHARE, UNIT};

use crate::text::{Texts, harmless};

/// Separator of columns.
pub(super) const GAP: &str = "  ";

/// The cells of all rows, as people read them.
pub(super) fn cells(batch: &RecordBatch, schema: &SchemaRef) -> Result<Vec<Vec<String>>> {
    let texts = Texts::of_columns(batch.columns())?;
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let mut cells = Vec::with_capacity(texts.len());
        for (text, field) in texts.iter().zip(schema.fields()) {
            let mut cell = String::new();
            text.write(row, &mut cell)?;
            if field.name().ends_with("percent")
                && let Ok(value) = cell.parse::<f64>()
            {
                cell = format!("{value:.2}");
            }
            let unit = field.metadata().get(UNIT).map(String::as_str);
            if let (Some(DURATION | SHARE), Ok(value)) = (unit, cell.parse::<f64>()) {
                cell = match unit {
                    Some(SHARE) => format!("{:.1}%", value * 100.0),
                    _ => in_fitting_unit(value),
                };
            }
            cells.push(match harmless(&cell) {
                std::borrow::Cow::Borrowed(_) => cell,
                std::borrow::Cow::Owned(safe) => safe,
            });
        }
        rows.push(cells);
    }
    Ok(rows)
}
