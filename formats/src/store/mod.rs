//! The trace directory: one folder of Parquet parts per table, and a manifest that names them.

mod table;

pub use table::{ColumnSchema, ColumnType, Encoding, TableSchema};
