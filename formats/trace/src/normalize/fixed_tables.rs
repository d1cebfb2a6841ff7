//! The tables that every trace has.

use perfquet_events::Error;

use crate::store::{TableId, TableSchema, Writer};

/// The tables that every trace has and that are written here.
#[derive(Clone, Copy)]
pub(crate) struct FixedTables {
    pub(crate) samples: TableId,
    pub(crate) stacks: TableId,
    pub(crate) frames: TableId,
    pub(crate) threads: TableId,
    pub(crate) mappings: TableId,
    pub(crate) calls: TableId,
    pub(crate) aggregates: TableId,
    pub(crate) buckets: TableId,
    pub(crate) losses: TableId,
    pub(crate) problems: TableId,
    pub(crate) event_types: TableId,
    /// Only if events were counted.
    pub(crate) counts: Option<TableId>,
    /// Only if open files were recorded.
    pub(crate) open_files: Option<TableId>,
    /// Only if code was kept.
    pub(crate) code: Option<TableId>,
}

/// Returns a table that a trace has only if there are rows for it; adds it for the first one.
pub(super) fn added(
    table: &mut Option<TableId>,
    writer: &mut Writer,
    schema: fn() -> TableSchema,
) -> Result<TableId, Error> {
    match *table {
        Some(table) => Ok(table),
        None => Ok(*table.insert(writer.add_table(schema())?)),
    }
}
