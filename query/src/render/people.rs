//! Formats a table for reading: bars instead of lists, indented names, no empty columns.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Int64Type, Schema, SchemaRef};

use perfquet::functions::bars::Bins;
use perfquet::stacks::strings;
use perfquet::unit::in_fitting_unit;

use super::bars::{bars, is_unicode, shares};

/// Key in a field's metadata with the display of the column. `optional`: only if a value is neither NULL nor 0;
/// `hidden`: never; `bars`: a list of `low`, `high` and `count` in powers of two, as one letter per power; `shares`: a list of values
/// from 0 to 1, as one letter each; `wrapped`: a description, on several lines where a terminal is narrow.
pub(crate) const TERMINAL: &str = "terminal";
/// Key in a field's metadata of a column that a narrow terminal omits: its place in the order, from 1.
pub(crate) const SPARE: &str = "spare";
/// Key in a field's metadata with the column whose value gives the indentation of names.
pub(crate) const INDENT: &str = "indent";

/// Marks the columns that a narrow terminal omits, the first one first.
pub(crate) fn with_spares(schema: &Schema, spares: &[&str]) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let mut metadata = field.metadata().clone();
        if let Some(place) = spares.iter().position(|spare| spare == field.name()) {
            metadata.insert(SPARE.to_owned(), (place + 1).to_string());
        }
        field.as_ref().clone().with_metadata(metadata)
    });
    let fields: Vec<Field> = fields.collect();
    Arc::new(Schema::new(fields))
}

/// Marks a column that a terminal shows in its own way; [`TERMINAL`] lists the ways.
pub(crate) fn with_display(schema: &Schema, column: &str, display: &str) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let mut metadata = field.metadata().clone();
        if field.name() == column {
            metadata.insert(TERMINAL.to_owned(), display.to_owned());
        }
        field.as_ref().clone().with_metadata(metadata)
    });
    let fields: Vec<Field> = fields.collect();
    Arc::new(Schema::new(fields))
}

/// Returns the table for people.
pub(super) fn shaped(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let mut columns: Vec<(Field, ArrayRef)> = Vec::new();
    for (field, values) in schema.fields().iter().zip(batch.columns()) {
        let terminal = field.metadata().get(TERMINAL).map(String::as_str);
        let indent = field.metadata().get(INDENT);
        let depths = indent.and_then(|depth| batch.column_by_name(depth));
        let values = match (terminal, depths) {
            (Some("hidden"), _) => continue,
            (Some("optional"), _) if is_empty(values)? => continue,
            (Some("bars"), _) => match histograms(field.name(), values) {
                Some(drawn) => drawn,
                None => continue,
            },
            (Some("shares"), _) => timelines(values),
            (_, Some(depths)) => indented(values, depths)?,
            _ => Arc::clone(values),
        };
        let field = field.as_ref().clone();
        columns.push((field.with_data_type(values.data_type().clone()), values));
    }
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

fn is_empty(values: &ArrayRef) -> Result<bool> {
    if values.null_count() == values.len() {
        return Ok(true);
    }
    if !values.data_type().is_numeric() {
        return Ok(false);
    }
    let numbers = cast(values, &DataType::Float64)?;
    let numbers = numbers.as_primitive::<Float64Type>();
    Ok(numbers.iter().flatten().all(|number| number == 0.0))
}

fn indented(names: &ArrayRef, depths: &ArrayRef) -> Result<ArrayRef> {
    let (names, depths) = (strings(names)?, depths.as_primitive::<Int32Type>());
    let lines = names.iter().zip(depths).map(|(name, depth)| {
        let depth = depth.map_or(0, |depth| depth.max(0) as usize);
        name.map(|name| format!("{}{name}", "  ".repeat(depth)))
    });
    Ok(Arc::new(lines.collect::<StringArray>()))
}

/// Draws the lists on one scale, and adds the scale to the heading; `None` if all are empty.
fn histograms(name: &str, lists: &ArrayRef) -> Option<ArrayRef> {
    let lists = lists.as_list::<i32>();
    let rows: Vec<Vec<(i32, u64)>> = (0..lists.len())
        .map(|row| powers(&lists.value(row)))
        .collect();
    let used = || rows.iter().flatten().map(|&(bar, _)| bar);
    let (lowest, highest) = (used().min()?, used().max()?);
    let unicode = is_unicode();
    let drawn = rows.iter().map(|row| {
        let mut counts = vec![0; (highest - lowest) as usize + 1];
        for &(bar, count) in row {
            counts[(bar - lowest) as usize] += count;
        }
        bars(&counts, unicode)
    });
    let drawn = StringArray::from_iter_values(drawn);
    let end = |bar: i32| Bins::Powers.range(bar).0.unwrap_or(0) as f64;
    say!(
        "{name}: {} to {}; each column doubles",
        in_fitting_unit(end(lowest)),
        in_fitting_unit(end(highest + 1))
    );
    Some(Arc::new(drawn))
}

/// Draws lists of shares from 0 to 1.
fn timelines(lists: &ArrayRef) -> ArrayRef {
    let lists = lists.as_list::<i32>();
    let unicode = is_unicode();
    let drawn = (0..lists.len()).map(|row| {
        let values = lists.value(row);
        let values = values.as_primitive::<Float64Type>();
        let values: Vec<f64> = values.iter().map(Option::unwrap_or_default).collect();
        shares(&values, unicode)
    });
    Arc::new(StringArray::from_iter_values(drawn))
}

/// The power of two and the count of each bar.
fn powers(list: &dyn Array) -> Vec<(i32, u64)> {
    let list = list.as_struct();
    let number = |column: usize| list.column(column).as_primitive::<Int64Type>();
    let (lows, counts) = (number(0), number(2));
    (0..list.len())
        .map(|row| {
            // The lowest power has no low end.
            let low = if lows.is_valid(row) {
                lows.value(row)
            } else {
                i64::MIN
            };
            (Bins::Powers.of(low), counts.value(row).unsigned_abs())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    use arrow::array::{Int32Array, Int64Array};

    fn field(name: &str, kind: DataType, key: &str, value: &str) -> Field {
        let metadata = HashMap::from([(key.to_owned(), value.to_owned())]);
        Field::new(name, kind, true).with_metadata(metadata)
    }

    #[test]
    fn names_are_indented_and_empty_columns_hidden() {
        let schema = Schema::new(vec![
            field("depth", DataType::Int32, TERMINAL, "hidden"),
            field("lost", DataType::Int64, TERMINAL, "optional"),
            field("function", DataType::Utf8, INDENT, "depth"),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![0, 2])),
            Arc::new(Int64Array::from(vec![None, Some(0)])),
            Arc::new(StringArray::from(vec!["a", "b"])),
        ];
        let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
        let shaped = shaped(&batch).unwrap();
        assert_eq!(shaped.num_columns(), 1);
        let names: Vec<_> = shaped
            .column(0)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect();
        assert_eq!(names, ["a", "    b"]);
    }

    #[test]
    fn distributions_without_values_are_hidden() {
        let bar = ["low", "high", "count"].map(|name| Field::new(name, DataType::Int64, true));
        let item = Field::new("item", DataType::Struct(bar.to_vec().into()), true);
        let lists: ArrayRef = Arc::new(arrow::array::ListArray::new_null(Arc::new(item), 2));
        let schema = Schema::new(vec![
            field("function", DataType::Utf8, INDENT, "depth"),
            field("histogram", lists.data_type().clone(), TERMINAL, "bars"),
        ]);
        let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let batch = RecordBatch::try_new(Arc::new(schema), vec![names, lists]).unwrap();
        let shaped = shaped(&batch).unwrap();
        assert_eq!(shaped.num_columns(), 1);
    }
}
