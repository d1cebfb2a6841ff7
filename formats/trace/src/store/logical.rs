//! From columns as files hold them to columns as readers see them.
//!
//! ```text
//! version 2   start_address int64 -9223372034707292160    ─►  start_address uint64 18446742074002259456
//! version 1   start         uint64                        ─►  start_address uint64
//! ```
//! Parts are never rewritten: those of version 1 have former names, and unsigned integers where later ones have bits.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, ListArray, RecordBatch, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::manifest::Manifest;
use super::table::{ColumnSchema, ColumnType};
use crate::tables;

/// Gives the columns of a manifest of version 1 their names and types of today.
pub(super) fn upgrade(manifest: &mut Manifest) {
    if manifest.version > 1 {
        return;
    }
    for (name, table) in &mut manifest.tables {
        let renamed = tables::former_names(name);
        let rename = |column: &mut String| {
            if let Some((_, today)) = renamed.iter().find(|(former, _)| former == column) {
                *column = (*today).to_owned();
            }
        };
        table.sort.iter_mut().for_each(rename);
        let declared = tables::declared()
            .into_iter()
            .find(|table| table.name == *name);
        let declared = declared.map_or_else(Vec::new, |schema| schema.columns);
        let retype = |column: &str, kind: &mut ColumnType| {
            let declared = declared.iter().find(|declared| declared.name == column);
            if let Some(declared) = declared.filter(|declared| declared.kind.as_read() == *kind) {
                *kind = declared.kind;
            }
        };
        for column in &mut table.columns {
            rename(&mut column.name);
            retype(&column.name, &mut column.kind);
        }
        for column in table.parts.iter_mut().flat_map(|part| &mut part.columns) {
            rename(&mut column.name);
            retype(&column.name, &mut column.kind);
        }
    }
}

/// Returns the name of a column of `table` in a file with this schema: the current one, unless only the former one
/// exists.
pub fn stored_name<'n>(table: &str, column: &'n str, file: &Schema) -> &'n str {
    let is_there = |name: &str| file.index_of(name).is_ok();
    let former = tables::former_names(table);
    match former.iter().find(|(_, today)| *today == column) {
        Some((former, _)) if !is_there(column) && is_there(former) => former,
        _ => column,
    }
}

/// The rows of a part of `table` with these columns, as readers see them.
pub(super) fn as_read(
    table: &str,
    columns: &[ColumnSchema],
    batch: &RecordBatch,
) -> Result<RecordBatch, ArrowError> {
    let file = batch.schema_ref();
    let mut arrays = batch.columns().to_vec();
    let mut fields: Vec<Field> = file
        .fields()
        .iter()
        .map(|field| (**field).clone())
        .collect();
    for column in columns {
        let Ok(index) = file.index_of(stored_name(table, &column.name, file)) else {
            continue;
        };
        let (Some(array), Some(field)) = (arrays.get_mut(index), fields.get_mut(index)) else {
            continue;
        };
        field.set_name(column.name.clone());
        if column.kind != column.kind.as_read() {
            *array = unsigned(array);
            field.set_data_type(array.data_type().clone());
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

/// Reinterprets 64-bit integers, or lists of them, as unsigned; other types are unchanged.
pub fn unsigned(array: &ArrayRef) -> ArrayRef {
    if let Some(values) = array.as_primitive_opt::<Int64Type>() {
        let bits = values.values().inner().clone();
        return Arc::new(UInt64Array::new(bits.into(), values.nulls().cloned()));
    }
    let Some(lists) = array.as_list_opt::<i32>() else {
        return Arc::clone(array);
    };
    Arc::new(with_items(lists, unsigned(lists.values())))
}

/// Returns the same lists with other items, one for each.
///
/// # Panics
/// If there are fewer items.
pub fn with_items(lists: &ListArray, items: ArrayRef) -> ListArray {
    let kind = items.data_type().clone();
    let field = match lists.data_type() {
        DataType::List(item) => item.as_ref().clone().with_data_type(kind),
        _ => Field::new("element", kind, true),
    };
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    ListArray::new(Arc::new(field), offsets, items, nulls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use arrow_array::types::UInt64Type;

    #[test]
    fn bits_are_unsigned_and_former_names_are_todays() {
        let columns = tables::mappings::schema().columns;
        let read = |name: &str, array: ArrayRef| {
            let field = Field::new(name, array.data_type().clone(), true);
            let schema = Arc::new(Schema::new(vec![field]));
            let batch = RecordBatch::try_new(schema, vec![array]).unwrap();
            as_read("mappings", &columns, &batch).unwrap()
        };
        let address = 0xffff_ffff_8100_0000_u64;
        let version_2 = read(
            "end_address",
            Arc::new(Int64Array::from(vec![address as i64])),
        );
        let version_1 = read("end", Arc::new(UInt64Array::from(vec![address])));
        assert_eq!(version_1, version_2);
        let column = version_2["end_address"].as_primitive::<UInt64Type>();
        assert_eq!(column.value(0), address);
    }

    #[test]
    fn lists_keep_their_nulls() {
        let lists = [Some(vec![Some(-1), Some(2)]), None, Some(vec![])];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let read = unsigned(&lists);
        let read = read.as_list::<i32>();
        assert_eq!(
            read.value(0).as_primitive::<UInt64Type>().values(),
            &[u64::MAX, 2]
        );
        assert!(read.is_null(1));
        assert_eq!(read.value_length(2), 0);
    }
}
