//! The Parquet schema of a table, as other programs see it.
//!
//! ```text
//! uint16 → required int32 id (INTEGER(16, false))        text → optional binary comm (STRING)
//! list<text> → optional group keys (LIST) { repeated group list { required binary element (STRING); } }
//! ```

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};

use super::table::{ColumnSchema, ColumnType, TableSchema};

/// The schema of a table's files.
pub(super) fn describe(schema: &TableSchema) -> Result<SchemaDescPtr> {
    let fields = schema.columns.iter().map(field).collect::<Result<_>>()?;
    let root = Type::group_type_builder("schema")
        .with_fields(fields)
        .build()?;
    Ok(Arc::new(SchemaDescriptor::new(Arc::new(root))))
}

fn field(column: &ColumnSchema) -> Result<TypePtr> {
    let repetition = if column.nullable {
        Repetition::OPTIONAL
    } else {
        Repetition::REQUIRED
    };
    let Some(item) = column.kind.item() else {
        return value(&column.name, column.kind, repetition);
    };
    let element = value("element", item, Repetition::REQUIRED)?;
    let list = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element])
        .build()?;
    let outer = Type::group_type_builder(&column.name)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(list)])
        .build()?;
    Ok(Arc::new(outer))
}

fn value(name: &str, kind: ColumnType, repetition: Repetition) -> Result<TypePtr> {
    if kind == ColumnType::Int128 {
        return Err(ParquetError::General(format!(
            "column {name}: expected a type that parts have, found int128"
        )));
    }
    let logical = match kind {
        ColumnType::Int8 => Some(LogicalType::integer(8, true)),
        ColumnType::Int16 => Some(LogicalType::integer(16, true)),
        ColumnType::UInt8 => Some(LogicalType::integer(8, false)),
        ColumnType::UInt16 => Some(LogicalType::integer(16, false)),
        ColumnType::UInt32 => Some(LogicalType::integer(32, false)),
        ColumnType::UInt64 => Some(LogicalType::integer(64, false)),
        ColumnType::Text => Some(LogicalType::String),
        // Parquet's own integers are signed and have 32 and 64 bits.
        _ => None,
    };
    let built = Type::primitive_type_builder(name, physical(kind))
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(built))
}

/// Parquet's physical type for a value of this type, or for an item of such a list.
pub(super) fn physical(kind: ColumnType) -> PhysicalType {
    match kind {
        ColumnType::Bool => PhysicalType::BOOLEAN,
        ColumnType::Int8
        | ColumnType::Int16
        | ColumnType::Int32
        | ColumnType::UInt8
        | ColumnType::UInt16
        | ColumnType::UInt32 => PhysicalType::INT32,
        ColumnType::Int64
        | ColumnType::UInt64
        | ColumnType::Bits
        | ColumnType::Int128
        | ColumnType::Int64List
        | ColumnType::UInt64List
        | ColumnType::BitsList => PhysicalType::INT64,
        ColumnType::Float64 => PhysicalType::DOUBLE,
        ColumnType::Text | ColumnType::Binary | ColumnType::TextList => PhysicalType::BYTE_ARRAY,
    }
}
