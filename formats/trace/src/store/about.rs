//! Key-value metadata of a part: a file that left its trace keeps its units.
//!
//! ```text
//! perfquet.version 2          perfquet.trace boot      perfquet.table samples
//! perfquet.clock monotonic    perfquet.wall_offset 1790000000000000000    perfquet.host box
//! perfquet.unit.time ns       perfquet.description.time "Time of the event on the trace's clock; NULL if unknown."
//! ```
//! Unknown values have no key; no value is empty.

use std::path::Path;

use parquet::file::metadata::KeyValue;

use super::manifest::{Facts, VERSION};
use super::table::TableSchema;

/// The metadata of a part of the trace `root`.
pub(super) fn key_values(root: &Path, facts: &Facts, schema: &TableSchema) -> Vec<KeyValue> {
    let mut pairs = Vec::new();
    let mut add = |key: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let key = format!("perfquet.{key}");
            pairs.push(KeyValue::new(key, Some(value.to_owned())));
        }
    };
    let trace = root.file_name().map(|name| name.to_string_lossy());
    let trace = trace.as_deref().unwrap_or_default();
    add("version", Some(&VERSION.to_string()));
    add("trace", Some(trace.strip_suffix(".pqt").unwrap_or(trace)));
    add("table", Some(&schema.name));
    add("clock", facts.clock.as_deref());
    let wall_offset = facts.wall_offset.map(|offset| offset.to_string());
    add("wall_offset", wall_offset.as_deref());
    add("host", facts.host.as_deref());
    for column in &schema.columns {
        add(&format!("unit.{}", column.name), Some(&column.unit));
        add(&format!("description.{}", column.name), Some(&column.doc));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables;

    #[test]
    fn metadata_has_known_values_only() {
        let facts = Facts {
            clock: Some("monotonic".to_owned()),
            host: Some(String::new()),
            ..Facts::default()
        };
        let pairs = key_values(
            Path::new("/tmp/boot.pqt"),
            &facts,
            &tables::losses::schema(),
        );
        let value = |key: &str| {
            let pair = pairs.iter().find(|pair| pair.key == key)?;
            pair.value.as_deref()
        };
        assert_eq!(value("perfquet.trace"), Some("boot"));
        assert_eq!(value("perfquet.table"), Some("losses"));
        assert_eq!(value("perfquet.clock"), Some("monotonic"));
        assert_eq!(value("perfquet.unit.time"), Some("ns"));
        assert!(value("perfquet.description.count").is_some());
        assert_eq!(
            (value("perfquet.host"), value("perfquet.wall_offset")),
            (None, None)
        );
        assert!(
            pairs
                .iter()
                .all(|pair| pair.value.as_ref().is_some_and(|value| !value.is_empty()))
        );
    }
}
