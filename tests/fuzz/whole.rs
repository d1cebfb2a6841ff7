//! End to end: bytes → reader → normalize → store → a trace directory, which is opened and read again.
//!
//! A written trace must be readable, with the number of rows in its manifest.

use std::path::Path;

use perfquet_events::{Format, Input};
use perfquet_import::{ImportOptions, import};
use perfquet_trace::store::{Directory, WriterOptions};
use perfquet_trace::symbols;
use tempfile::TempDir;

use crate::watch::watch;

/// Imports inputs into one trace. `None` if they were rejected.
pub(crate) fn try_import(inputs: &[(&'static Format, Vec<u8>)]) -> Result<Option<TempDir>, String> {
    let folder = tempfile::tempdir_in(scratch()).unwrap();
    let output = folder.path().join("t.pqt");
    let imported = watch(|| {
        let opened: Result<Vec<Input>, _> = inputs
            .iter()
            .map(|(_, bytes)| Input::from_bytes("fuzz", bytes))
            .collect();
        let options = ImportOptions {
            // The magic may be damaged; two formats are recognized.
            from: (inputs.len() == 1).then(|| inputs[0].0),
            symbols: symbols::Options {
                kernel: symbols::KernelSource::None,
                user: false,
                system: false,
                ..symbols::Options::default()
            },
            store: WriterOptions {
                sync: false,
                // Small limits, so that parts and groups end within these inputs.
                rows_per_page: 16,
                rows_per_group: 64,
                rows_per_part: 256,
                ..WriterOptions::default()
            },
            ..ImportOptions::default()
        };
        import(opened.ok()?, &output, options).ok()
    })?;
    let Some(report) = imported else {
        return Ok(None);
    };
    watch(|| read_all(&output))??;
    let trace = Directory::open(&output).map_err(|error| format!("cannot open: {error}"))?;
    for (table, rows) in &report.rows {
        let listed = trace.table(table).map_or(0, |table| table.rows());
        if listed != *rows {
            return Err(format!(
                "{table}: {rows} rows reported, {listed} in the manifest"
            ));
        }
    }
    Ok(Some(folder))
}

/// Reads a trace just written: no error is allowed.
fn read_all(path: &Path) -> Result<(), String> {
    let trace = Directory::open(path).map_err(|error| format!("cannot open: {error}"))?;
    for (name, table) in trace.tables() {
        let mut rows = 0;
        let batches = trace
            .read(name)
            .map_err(|error| format!("{name}: {error}"))?;
        for batch in batches {
            rows += batch
                .map_err(|error| format!("{name}: {error}"))?
                .num_rows() as u64;
        }
        if rows != table.rows() {
            return Err(format!(
                "{name}: {rows} rows, {} in the manifest",
                table.rows()
            ));
        }
    }
    Ok(())
}

/// Reads a damaged trace: errors are allowed.
pub(crate) fn try_trace(path: &Path) -> Result<(), String> {
    watch(|| {
        let Ok(trace) = Directory::open(path) else {
            return;
        };
        for (name, table) in trace.tables() {
            let _ = (
                table.rows(),
                table.bytes(),
                table.time_range(),
                table.schema(name),
            );
            let Ok(batches) = trace.read(name) else {
                continue;
            };
            for batch in batches {
                if batch.is_err() {
                    break;
                }
            }
        }
    })
}

/// A directory in memory, if the host has such a file system.
pub(crate) fn scratch() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    }
}
