//! The manifest of a trace in a lake: that of the trace, but its parts are rows of files of the lake.
//!
//! ```text
//! trace   samples: 00000.parquet (90 rows), 00001.parquet (10 rows)
//! lake    samples: rows 0–89 and 90–99 of samples/date=2026-11-22/host=h001/perf-1f….parquet
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use perfquet_trace::lake::SUMMARIES;
use perfquet_trace::store::{
    Manifest, Part, PartColumn, PartRange, TableEntry, TableSchema, folder_of,
};

use super::files::step;
use super::partition::Place;

/// A table whose rows were written.
pub(super) struct PublishedTable {
    pub(super) name: String,
    /// Below the lake.
    pub(super) path: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// Columns with another name in the file: that in the trace, that in the file.
    pub(super) renamed: Vec<(String, String)>,
}

/// Fact about tables that the lake lacks.
const OMITTED: &str = "lake.omitted_tables";
/// Fact about the date in the path, by which SQL groups traces.
const DATE: &str = "lake.date";
/// Fact about the host of the recording, if `--partition` gives another one.
const RECORDED_HOST: &str = "lake.recorded_host";

/// Describes the trace as it is published.
pub(super) fn manifest(
    trace: &Manifest,
    place: &Place,
    published: &[PublishedTable],
    omitted: &[String],
) -> Manifest {
    let mut manifest = trace.clone();
    if manifest.facts.host != place.host {
        let host = std::mem::replace(&mut manifest.facts.host, place.host.clone());
        let other = host.map(|host| (RECORDED_HOST.to_owned(), host));
        manifest.facts.other.extend(other);
    }
    manifest.facts.other.remove(DATE);
    let date = place.date.clone();
    let date = date.map(|date| (DATE.to_owned(), date));
    manifest.facts.other.extend(date);
    if !omitted.is_empty() {
        let names = omitted.join(", ");
        manifest.facts.other.insert(OMITTED.to_owned(), names);
    }
    manifest.tables.retain(|name, _| !omitted.contains(name));
    for (name, table) in &mut manifest.tables {
        table.folder = folder_of(name);
        match published.iter().find(|published| published.name == *name) {
            Some(published) => place_parts(table, published),
            None => table.parts.clear(),
        }
    }
    manifest
}

/// Adds the summaries of a trace.
pub(super) fn add_summaries(manifest: &mut Manifest, tables: Vec<(TableSchema, PublishedTable)>) {
    let facts = &mut manifest.facts.other;
    facts.insert(SUMMARIES.to_owned(), "true".to_owned());
    for (schema, published) in tables {
        let mut table = TableEntry::new(&schema);
        table.parts.push(Part {
            file: published.path,
            rows: published.rows,
            bytes: published.bytes,
            sorted: true,
            range: Some(PartRange {
                first_row: 0,
                file_rows: published.rows,
                file_bytes: published.bytes,
            }),
            ..Part::default()
        });
        manifest.tables.insert(schema.name, table);
    }
}

/// Gives each part its rows in the file: forms follow each other, and the parts of each.
fn place_parts(table: &mut TableEntry, published: &PublishedTable) {
    let mut places = HashMap::new();
    let mut next = 0;
    for part in table.forms().into_iter().flatten() {
        places.insert(part.file.clone(), next);
        next += part.rows;
    }
    let columns: Vec<PartColumn> = table
        .columns
        .iter()
        .map(|column| PartColumn {
            name: column.name.clone(),
            kind: column.kind,
            stored: None,
        })
        .collect();
    table.parts.retain(|part| part.rows > 0);
    for part in &mut table.parts {
        part.range = Some(PartRange {
            first_row: places[&part.file],
            file_rows: published.rows,
            file_bytes: published.bytes,
        });
        part.bytes = share(published, part);
        part.file.clone_from(&published.path);
        if !published.renamed.is_empty() {
            if part.columns.is_empty() {
                part.columns.clone_from(&columns);
            }
            for own in &mut part.columns {
                let renamed = published.renamed.iter().find(|(name, _)| *name == own.name);
                own.stored = renamed.map(|(_, stored)| stored.clone());
            }
        }
    }
}

/// The share of a part of the bytes of its file.
fn share(published: &PublishedTable, part: &Part) -> u64 {
    let bytes = u128::from(published.bytes) * u128::from(part.rows);
    let share = bytes / u128::from(published.rows.max(1));
    u64::try_from(share).unwrap_or(published.bytes)
}

/// Writes a manifest to a new file, and syncs it. Returns its size.
pub(super) fn write(manifest: &Manifest, path: &Path) -> Result<u64> {
    step()?;
    let failed = || format!("cannot write {}", path.display());
    let text = serde_json::to_vec(manifest)?;
    let mut file = File::create_new(path).with_context(failed)?;
    file.write_all(&text).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    Ok(text.len() as u64)
}
