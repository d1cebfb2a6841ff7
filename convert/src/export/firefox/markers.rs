//! Markers: events and calls, with a schema for each event type.
//!
//! ```text
//! {"type":"sched:sched_wakeup","arg_comm":"dd","arg_pid":220,"prio":120}
//! ```

use perfquet_trace::store::{ColumnSchema, ColumnType};

use super::super::batch::{BatchRow, COMMON, column};
use super::super::json::{text, write_text};
use super::super::source::{RowTable, Source};
use super::super::values::Cell;

/// Type of the markers of calls.
pub(super) const CALL: &str = "Call";
/// Type of the markers of losses.
pub(super) const LOSS: &str = "Loss";

/// Returns the `markerSchema` of a profile as JSON.
pub(super) fn schemas(source: &Source<'_>) -> String {
    let mut schemas = vec![
        schema(
            CALL,
            "{marker.data.args}",
            &[
                ("args", "string"),
                ("retval", "string"),
                ("self_time", "nanoseconds"),
                ("module", "string"),
                ("note", "string"),
            ],
        ),
        schema(
            LOSS,
            "{marker.data.reason}",
            &[
                ("count", "integer"),
                ("event", "string"),
                ("reason", "string"),
                ("cpu", "integer"),
            ],
        ),
    ];
    let mut known: Vec<String> = Vec::new();
    for table in source.events() {
        let name = source.event_name(table);
        // All forms of an event share one schema with all columns.
        if known.contains(&name) {
            continue;
        }
        let forms = source.events().filter(|other| other.name == table.name);
        let mut fields: Vec<(&str, &str)> = Vec::new();
        for column in forms.flat_map(|form| form.columns.iter().skip(*COMMON)) {
            if !fields.iter().any(|(name, _)| *name == column.name) {
                fields.push((&column.name, format_of(column)));
            }
        }
        schemas.push(schema(&name, "", &fields));
        known.push(name);
    }
    format!("[{}]", schemas.join(","))
}

fn schema(name: &str, label: &str, fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(key, format)| {
            let key = text(key);
            format!("{{\"key\":{key},\"label\":{key},\"format\":\"{format}\"}}")
        })
        .collect();
    let label = match label {
        "" => String::new(),
        label => format!(
            ",\"tableLabel\":{0},\"tooltipLabel\":\"{{marker.name}}\"",
            text(label)
        ),
    };
    format!(
        "{{\"name\":{},\"display\":[\"marker-chart\",\"marker-table\"]{label},\"fields\":[{}]}}",
        text(name),
        fields.join(",")
    )
}

/// Returns the display format of a column. The profiler's numbers are floating-point, so 64-bit numbers are written as
/// text.
fn format_of(column: &ColumnSchema) -> &'static str {
    match (column.kind, column.unit.as_str()) {
        (ColumnType::Int64, "ns") => "nanoseconds",
        (
            ColumnType::Int8
            | ColumnType::Int16
            | ColumnType::Int32
            | ColumnType::UInt8
            | ColumnType::UInt16
            | ColumnType::UInt32,
            _,
        ) => "integer",
        (ColumnType::Float64, _) => "decimal",
        _ => "string",
    }
}

/// Returns the fields of an event for `data`.
pub(super) fn event_data(name: &str, table: &RowTable<'_>, row: &BatchRow<'_>) -> Vec<u8> {
    let mut data = b"{\"type\":".to_vec();
    write_text(&mut data, name);
    for declared in table.columns.iter().skip(*COMMON) {
        let Some(column) = column(row.batch, &declared.name) else {
            continue;
        };
        let value = Cell::at(column, row.row);
        if value == Cell::Null {
            continue;
        }
        data.push(b',');
        write_text(&mut data, &declared.name);
        data.push(b':');
        let is_text = format_of(declared) == "string";
        let is_address = matches!(declared.unit.as_str(), "address" | "mask");
        match value {
            Cell::UInt(number) if is_address => {
                data.extend_from_slice(format!("\"{number:#x}\"").as_bytes());
            }
            Cell::Int(_) | Cell::UInt(_) if !is_text => {
                data.extend_from_slice(value.text().as_bytes());
            }
            Cell::Float(number) if number.is_finite() && !is_text => {
                data.extend_from_slice(value.text().as_bytes());
            }
            other => write_text(&mut data, &other.text()),
        }
    }
    data
}
