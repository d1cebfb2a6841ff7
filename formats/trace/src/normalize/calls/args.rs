//! Arguments of a call recorded by probes, as `name=value`.

use perfquet_events::event::{Array, EventType, Field, FieldType, Fields, Flags, Value};

/// A field recorded with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arg {
    place: usize,
    name: String,
    /// As printed by the kernel: `x64` in a definition.
    is_hexadecimal: bool,
    is_signed: bool,
}

/// Returns the fields requested by the user: all but the kernel's own and `other`.
pub(super) fn of(event: &EventType, other: Option<usize>) -> Vec<Arg> {
    let print = event.print_format.as_deref().unwrap_or_default();
    let fields = event.fields.iter().enumerate();
    fields
        .filter(|(place, field)| Some(*place) != other && !is_of_kernel(field))
        .map(|(place, field)| Arg {
            place,
            name: field.name.clone(),
            is_hexadecimal: print.contains(&format!("{}=0x%", field.name)),
            is_signed: matches!(field.kind, FieldType::Int(_) | FieldType::IntList(_)),
        })
        .collect()
}

fn is_of_kernel(field: &Field) -> bool {
    field.name.starts_with("__probe_") || Flags::has_field(&field.name)
}

/// Whether a field is one integer.
pub(super) fn is_number(event: &EventType, place: usize) -> bool {
    let field = event.fields.get(place);
    field.is_some_and(|field| matches!(field.kind, FieldType::Int(_) | FieldType::UInt(_)))
}

/// The arguments of a hit, as strings.
pub(super) fn fetched(args: &[Arg], fields: Fields<'_>) -> Vec<Box<[u8]>> {
    args.iter()
        .map(|arg| {
            let mut text = arg.name.clone().into_bytes();
            text.push(b'=');
            arg.add(&mut text, fields.value(arg.place));
            text.into_boxed_slice()
        })
        .collect()
}

impl Arg {
    fn add(&self, text: &mut Vec<u8>, value: Value<'_>) {
        match value {
            Value::Null | Value::IntList(_) | Value::UIntList(_) | Value::TextList(_) => {
                text.push(b'?')
            }
            Value::Bool(value) => text.extend(value.to_string().bytes()),
            Value::Int(value) => text.extend(value.to_string().bytes()),
            Value::UInt(value) => self.add_unsigned(text, value),
            Value::Float(value) => text.extend(value.to_string().bytes()),
            Value::Bytes(value) => {
                text.push(b'"');
                text.extend(value);
                text.push(b'"');
            }
            Value::Array(array) => self.add_list(text, array),
        }
    }

    fn add_unsigned(&self, text: &mut Vec<u8>, value: u64) {
        text.extend(match self.is_hexadecimal {
            true => format!("{value:#x}").into_bytes(),
            false => value.to_string().into_bytes(),
        });
    }

    fn add_list(&self, text: &mut Vec<u8>, array: Array<'_>) {
        text.push(b'{');
        let start = text.len();
        let separate = |text: &mut Vec<u8>| {
            if text.len() > start {
                text.push(b',');
            }
        };
        if self.is_signed {
            for value in array.signed() {
                separate(text);
                text.extend(value.to_string().bytes());
            }
        } else {
            for value in array.unsigned() {
                separate(text);
                self.add_unsigned(text, value);
            }
        }
        text.push(b'}');
    }
}
