//! Rows of any query as JSON for a grid: columns with their kinds, and cells.
//!
//! ```text
//! {"columns":[{"name":"time","kind":"time"},{"name":"comm","kind":"text"}],"rows":[["1764363600123456789","dd"]],"is_cut":false}
//! ```
//! Integers beyond 2^53 are strings, since scripts cannot read them as numbers; so are all times.

use anyhow::Result;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, UInt64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use perfquet::stacks::strings;
use perfquet::unit::{DURATION, SHARE, TIME, UNIT, is_hexadecimal};
use serde_json::{Number, Value, json};

use super::engine::Found;

/// Bytes of cells.
const MOST_BYTES: usize = 32 << 20;
/// Integers up to here are numbers of a script.
const MOST_EXACT: u64 = 1 << 53;

/// Writes columns and rows.
pub(super) fn json(found: &Found) -> Result<Value> {
    let Found {
        columns: schema,
        units,
        batches,
        is_cut,
    } = found;
    let fields = schema.fields().iter().enumerate();
    let kinds: Vec<Kind> = fields
        .map(|(index, field)| Kind::of(field, units.get(index).and_then(Option::as_deref)))
        .collect();
    let columns = schema.fields().iter().zip(&kinds);
    let columns: Vec<Value> = columns
        .map(|(field, kind)| json!({ "name": field.name(), "kind": kind.name() }))
        .collect();
    let (mut rows, mut bytes, mut is_cut) = (Vec::new(), 0, *is_cut);
    for batch in batches {
        let cells: Vec<Cells> = (batch.columns().iter().zip(&kinds))
            .map(|(column, kind)| Cells::of(column, *kind))
            .collect::<Result<_>>()?;
        for row in 0..batch.num_rows() {
            let cells: Vec<Value> = cells.iter().map(|column| column.at(row)).collect();
            let size = cells.iter().map(|cell| cell.as_str().map_or(8, str::len));
            bytes += size.sum::<usize>();
            if bytes > MOST_BYTES {
                is_cut = true;
                break;
            }
            rows.push(Value::Array(cells));
        }
    }
    Ok(json!({ "columns": columns, "rows": rows, "is_cut": is_cut }))
}

/// How the page writes and sorts a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    Duration,
    Share,
    Address,
    Number,
    Flag,
    Text,
}

impl Kind {
    fn of(field: &Field, unit: Option<&str>) -> Kind {
        let own = field.metadata().get(UNIT).map(String::as_str);
        let kind = field.data_type();
        // Results of other processes have no units of times.
        let is_time = unit == Some(TIME) || (unit.is_none() && field.name() == "time");
        match own.or(unit) {
            _ if *kind == DataType::Boolean => Kind::Flag,
            _ if !kind.is_numeric() => Kind::Text,
            _ if is_time && *kind == DataType::Int64 => Kind::Time,
            Some(DURATION) => Kind::Duration,
            Some(SHARE) => Kind::Share,
            Some(unit) if is_hexadecimal(unit) => Kind::Address,
            _ => Kind::Number,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Time => "time",
            Kind::Duration => "duration",
            Kind::Share => "share",
            Kind::Address | Kind::Flag | Kind::Text => "text",
            Kind::Number => "number",
        }
    }
}

/// A column of a batch, ready to be read.
enum Cells {
    Integers(ArrayRef, Kind),
    Unsigned(ArrayRef, Kind),
    Floats(ArrayRef),
    Flags(ArrayRef),
    Texts(Vec<Option<String>>),
}

impl Cells {
    fn of(column: &ArrayRef, kind: Kind) -> Result<Cells> {
        let data_type = column.data_type();
        Ok(match data_type {
            DataType::Boolean => Cells::Flags(column.clone()),
            _ if data_type.is_signed_integer() => {
                Cells::Integers(cast(column, &DataType::Int64)?, kind)
            }
            _ if data_type.is_unsigned_integer() => {
                Cells::Unsigned(cast(column, &DataType::UInt64)?, kind)
            }
            _ if data_type.is_floating() => Cells::Floats(cast(column, &DataType::Float64)?),
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Dictionary(..) => {
                let texts = strings(column)?;
                Cells::Texts(texts.iter().map(|text| text.map(str::to_owned)).collect())
            }
            _ => {
                let options = FormatOptions::new();
                let formatter = ArrayFormatter::try_new(column, &options)?;
                let text = |row| {
                    column
                        .is_valid(row)
                        .then(|| formatter.value(row).to_string())
                };
                Cells::Texts((0..column.len()).map(text).collect())
            }
        })
    }

    fn at(&self, row: usize) -> Value {
        let column = match self {
            Cells::Integers(column, _) | Cells::Unsigned(column, _) => column,
            Cells::Floats(column) | Cells::Flags(column) => column,
            Cells::Texts(texts) => return json!(texts[row]),
        };
        if column.is_null(row) {
            return Value::Null;
        }
        match self {
            Cells::Integers(column, kind) => {
                let value = column.as_primitive::<Int64Type>().value(row);
                match kind {
                    Kind::Time => json!(value.to_string()),
                    Kind::Address => json!(format!("{value:#x}")),
                    _ if value.unsigned_abs() > MOST_EXACT => json!(value.to_string()),
                    _ => json!(value),
                }
            }
            Cells::Unsigned(column, kind) => {
                let value = column.as_primitive::<UInt64Type>().value(row);
                match kind {
                    Kind::Address => json!(format!("{value:#x}")),
                    _ if value > MOST_EXACT => json!(value.to_string()),
                    _ => json!(value),
                }
            }
            Cells::Floats(column) => {
                let value = column.as_primitive::<Float64Type>().value(row);
                Number::from_f64(value).map_or_else(|| json!(value.to_string()), Value::Number)
            }
            Cells::Flags(column) => json!(column.as_boolean().value(row)),
            Cells::Texts(texts) => json!(texts[row]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, UInt64Array,
    };
    use arrow::datatypes::{Int32Type, Schema};

    use super::*;

    #[test]
    fn cells_are_exact() {
        let columns: [(&str, ArrayRef); 6] = [
            (
                "time",
                Arc::new(Int64Array::from(vec![Some(1 << 60), None])),
            ),
            ("count", Arc::new(Int64Array::from(vec![-5, i64::MIN]))),
            ("mask", Arc::new(UInt64Array::from(vec![7, u64::MAX]))),
            ("share", Arc::new(Float64Array::from(vec![0.5, f64::NAN]))),
            ("flag", Arc::new(BooleanArray::from(vec![true, false]))),
            ("name", Arc::new(StringArray::from(vec![Some("<b>"), None]))),
        ];
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
            Some(vec![Some(1), Some(2)]),
            None,
        ]);
        let mut fields: Vec<Field> = (columns.iter())
            .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
            .collect();
        fields.push(Field::new("list", list.data_type().clone(), true));
        let mut arrays: Vec<ArrayRef> = columns.into_iter().map(|(_, column)| column).collect();
        arrays.push(Arc::new(list));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
        let found = Found {
            columns: schema,
            units: Vec::new(),
            batches: vec![batch],
            is_cut: false,
        };
        let found = json(&found).unwrap();
        assert_eq!(
            found["rows"],
            json!([
                ["1152921504606846976", -5, 7, 0.5, true, "<b>", "[1, 2]"],
                [
                    null,
                    "-9223372036854775808",
                    "18446744073709551615",
                    "NaN",
                    false,
                    null,
                    null
                ]
            ])
        );
        assert_eq!(found["columns"][0]["kind"], "time");
        assert_eq!(found["columns"][1]["kind"], "number");
    }
}
