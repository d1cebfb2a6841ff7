//! One value of an event's field → its column.

use perfquet_events::event::{Array, Field, FieldType, Value};

use super::kernel_texts::KernelTexts;
use crate::store::Column;

/// Buffers for the elements of arrays.
#[derive(Default)]
pub(super) struct Lists {
    signed: Vec<i64>,
    unsigned: Vec<u64>,
}

/// Always inlined: the loops over fields spend most of their time here.
#[inline(always)]
pub(super) fn push_field(
    value: Value<'_>,
    field: &Field,
    texts: Option<&KernelTexts>,
    lists: &mut Lists,
    column: &mut Column,
) {
    match (value, texts) {
        (Value::UInt(address), Some(texts)) if field.kind == FieldType::Text => {
            column.push_bytes(&texts.at(address));
        }
        (Value::Null, _) => column.push_null(),
        (Value::Bool(value), _) => column.push_bool(value),
        (Value::Int(value), _) => column.push_i64(value),
        (Value::UInt(value), _) => column.push_u64(value),
        (Value::Float(value), _) => column.push_f64(value),
        (Value::Bytes(value), _) => column.push_bytes(value),
        (Value::IntList(values), _) => column.push_i64_list(values),
        (Value::UIntList(values), _) => column.push_u64_list(values),
        (Value::TextList(values), _) => column.push_text_list(values.iter().copied()),
        (Value::Array(array), _) => {
            let signed = matches!(field.kind, FieldType::IntList(_));
            lists.push(array, signed, column);
        }
    }
}

impl Lists {
    fn push(&mut self, array: Array<'_>, signed: bool, column: &mut Column) {
        if signed {
            self.signed.clear();
            self.signed.extend(array.signed());
            column.push_i64_list(&self.signed);
        } else {
            self.unsigned.clear();
            self.unsigned.extend(array.unsigned());
            column.push_u64_list(&self.unsigned);
        }
    }
}
