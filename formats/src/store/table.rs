//! What a table is.
//!
//! The declarations of the fixed tables are generated from `schemas/*.toml` into `tables.rs`; those of
//! event tables are made from the event's fields when it is declared.

/// Declaration of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSchema {
    /// Path below the trace directory: "samples", "events/sched/sched_switch".
    pub name: String,
    /// What one row is.
    pub doc: String,
    /// Its columns, in order.
    pub columns: Vec<ColumnSchema>,
    /// Names of the columns by which rows are ordered, ascending, NULL first.
    pub sort: Vec<String>,
}

/// Declaration of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSchema {
    /// Its name.
    pub name: String,
    /// Type of its values.
    pub kind: ColumnType,
    /// Whether NULL may occur.
    pub nullable: bool,
    /// "ns", "bytes", …; empty for none.
    pub unit: String,
    /// One sentence for `tables`.
    pub doc: String,
    /// How its pages are encoded.
    pub encoding: Encoding,
}

/// Types of columns. Text is UTF-8; a list has no NULL inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// `true`, `false`
    Bool,
    /// 8-bit signed.
    Int8,
    /// 16-bit signed.
    Int16,
    /// 32-bit signed.
    Int32,
    /// 64-bit signed.
    Int64,
    /// 8-bit unsigned.
    UInt8,
    /// 16-bit unsigned.
    UInt16,
    /// 32-bit unsigned.
    UInt32,
    /// 64-bit unsigned: addresses, masks, raw arguments.
    UInt64,
    /// 64-bit floating point.
    Float64,
    /// UTF-8.
    Text,
    /// Bytes.
    Binary,
    /// List of 64-bit signed integers.
    Int64List,
    /// List of 64-bit unsigned integers.
    UInt64List,
    /// List of texts.
    TextList,
}

/// How the pages of a column are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Encoding {
    /// A dictionary while it pays, else plain.
    #[default]
    Dictionary,
    /// DELTA_BINARY_PACKED: times, row ids, parents of stacks.
    Delta,
    /// Plain: values that hardly repeat.
    Plain,
}
