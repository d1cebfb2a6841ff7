//! Declarations of tables and columns.
//!
//! The declarations of the fixed tables are generated from `schemas/*.toml` into `tables.rs`; those of event tables are
//! built from the event's fields when it is declared.

use serde::{Deserialize, Serialize};

/// Declaration of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableSchema {
    /// Path below the trace directory: "samples", "events/sched/sched_switch".
    pub name: String,
    /// Description of one row.
    pub doc: String,
    /// Its columns, in order.
    pub columns: Vec<ColumnSchema>,
    /// Names of the columns by which rows are ordered, ascending, NULL first.
    pub sort: Vec<String>,
}

/// Declaration of a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// Encoding of its pages.
    pub encoding: Encoding,
}

/// Types of columns. Text is UTF-8; a list has no NULL inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// 64-bit unsigned: raw arguments of events.
    UInt64,
    /// 64 bits: an address, a mask, an ID. Files contain a signed integer, because Spark, Delta and Iceberg have no
    /// unsigned type and kernel addresses begin at 2^63; this crate's readers return them as unsigned.
    Bits,
    /// Any 64-bit integer, signed or not. Only a table whose parts have [`ColumnType::Int64`] and
    /// [`ColumnType::UInt64`] under one name has this type: no part is written with it.
    Int128,
    /// 64-bit floating point.
    Float64,
    /// UTF-8.
    Text,
    /// Bytes.
    Binary,
    /// List of 64-bit signed integers.
    #[serde(rename = "list<int64>")]
    Int64List,
    /// List of 64-bit unsigned integers.
    #[serde(rename = "list<uint64>")]
    UInt64List,
    /// List of [`ColumnType::Bits`].
    #[serde(rename = "list<bits>")]
    BitsList,
    /// List of strings.
    #[serde(rename = "list<text>")]
    TextList,
}

/// Encoding of a column's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// A dictionary while that is smaller, otherwise plain.
    #[default]
    Dictionary,
    /// DELTA_BINARY_PACKED: times, row IDs, parents of stacks.
    Delta,
    /// Plain: values that rarely repeat.
    Plain,
}

impl ColumnType {
    /// As in `schemas/*.toml` and the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            ColumnType::Bool => "bool",
            ColumnType::Int8 => "int8",
            ColumnType::Int16 => "int16",
            ColumnType::Int32 => "int32",
            ColumnType::Int64 => "int64",
            ColumnType::UInt8 => "uint8",
            ColumnType::UInt16 => "uint16",
            ColumnType::UInt32 => "uint32",
            ColumnType::UInt64 => "uint64",
            ColumnType::Bits => "bits",
            ColumnType::Int128 => "int128",
            ColumnType::Float64 => "float64",
            ColumnType::Text => "text",
            ColumnType::Binary => "binary",
            ColumnType::Int64List => "list<int64>",
            ColumnType::UInt64List => "list<uint64>",
            ColumnType::BitsList => "list<bits>",
            ColumnType::TextList => "list<text>",
        }
    }

    /// Type of a list's items; `None` if this is not a list.
    pub fn item(self) -> Option<ColumnType> {
        match self {
            ColumnType::Int64List => Some(ColumnType::Int64),
            ColumnType::UInt64List => Some(ColumnType::UInt64),
            ColumnType::BitsList => Some(ColumnType::Bits),
            ColumnType::TextList => Some(ColumnType::Text),
            _ => None,
        }
    }

    /// The type in which readers return values: unsigned where files hold bits.
    pub fn as_read(self) -> ColumnType {
        match self {
            ColumnType::Bits => ColumnType::UInt64,
            ColumnType::BitsList => ColumnType::UInt64List,
            other => other,
        }
    }
}
