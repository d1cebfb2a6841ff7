//! The trace directory: one folder of Parquet parts per table, and a manifest that names them.
//!
//! ```text
//! Writer::create ─► rows(table) ─► end_row ─► … ─► finish        Directory::open ─► manifest, parts, rows
//!   columns (column, intern)  ──batches──►  encoder thread (encoder, part)  ──►  NAME.pqt/TABLE/00000.parquet
//! ```

mod column;
mod directory;
mod encode;
mod encoder;
mod files;
mod intern;
mod manifest;
mod order;
mod part;
mod place;
mod shape;
mod short;
mod table;
mod writer;

#[cfg(test)]
mod tests;

pub use column::{Column, Rows};
pub use directory::Directory;
pub use manifest::{
    Column as ColumnEntry, FILE_NAME, Facts, Manifest, Part, Source, State, Summary,
    Table as TableEntry, VERSION,
};
pub use place::{JOURNAL, set_aside};
pub use table::{ColumnSchema, ColumnType, Encoding, TableSchema};
pub use writer::{TableId, Writer, WriterOptions};
