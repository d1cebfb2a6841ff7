//! The trace directory: one subdirectory of Parquet parts per table, and a manifest that lists them.
//!
//! ```text
//! Writer::create ─► rows(table) ─► end_row ─► … ─► finish        Directory::open ─► manifest, parts, rows
//!   columns (column, intern)  ──batches──►  encoder thread (encoder, part)  ──►  NAME.pqt/TABLE/00000.parquet
//! ```

mod about;
mod archive;
mod check;
mod chunks;
mod column;
mod directory;
mod encode;
mod encoder;
mod files;
mod fill;
mod intern;
mod job;
mod logical;
mod manifest;
mod names;
mod order;
mod pages;
mod panics;
mod part;
mod part_file;
mod place;
mod published;
mod shape;
mod short;
mod table;
mod unite;
mod writer;

#[cfg(test)]
mod tests;

pub use archive::{ARCHIVE_ENDING, Archive};
pub use chunks::check_chunks;
pub use column::{Column, Rows};
pub use directory::{Directory, Form, PartRows, Root, part_path, read_part};
pub use files::folder_of;
pub use fill::Fill;
pub use job::WriterOptions;
pub use logical::{stored_name, unsigned, with_items};
pub use manifest::{
    Column as ColumnEntry, FILE_NAME, Facts, JOURNAL, Manifest, Part, PartColumn, PartRange,
    Source, State, Summary, Table as TableEntry, VERSION,
};
pub(crate) use names::Names;
pub use pages::{TimePage, dictionary, integers_of_rows, time_pages};
pub use panics::{reader_panic, watch_readers};
pub use part_file::{PartFile, PartReader};
pub use place::{
    complete_overwriting, earlier_trace, put_back, remove_set_aside, remove_trace, set_aside,
    set_file_aside,
};
pub use published::is_published_as_bits;
pub use table::{ColumnSchema, ColumnType, Encoding, TableSchema};
pub use unite::unite;
pub use writer::{TableId, Writer};
