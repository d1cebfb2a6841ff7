//! Unites the columns of several forms of a table: by name, with NULL where a form lacks a column, and in the smallest
//! type that holds the values of all forms.
//!
//! ```text
//! form 1:  time int64, a int32, b uint64        together:  time int64, a int64, b int128, c text
//! form 2:  time int64, a int64, b int32, c text
//! ```
//! The forms of an event within one trace, the traces of one query and the declarations of an older version all use
//! [`unite`], so that a table has the same columns regardless of its origin. Parts keep the types that they were
//! written with; readers convert.

use std::collections::HashMap;

use super::table::{ColumnSchema, ColumnType};

/// The columns of all `forms`, in the order in which they appear first.
pub fn unite<'a, F>(forms: F) -> Vec<ColumnSchema>
where
    F: IntoIterator<Item = &'a [ColumnSchema]>,
{
    let mut columns: Vec<(ColumnSchema, Vec<ColumnType>, usize)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut count = 0;
    for form in forms {
        count += 1;
        for column in form {
            let place = *places.entry(&column.name).or_insert(columns.len());
            match columns.get_mut(place) {
                Some((united, kinds, seen)) => {
                    united.nullable |= column.nullable;
                    if !kinds.contains(&column.kind) {
                        kinds.push(column.kind);
                    }
                    *seen += 1;
                }
                None => columns.push((column.clone(), vec![column.kind], 1)),
            }
        }
    }
    let finish = |(mut column, kinds, seen): (ColumnSchema, Vec<ColumnType>, usize)| {
        column.kind = ColumnType::holding(&kinds);
        column.nullable |= seen < count;
        column
    };
    columns.into_iter().map(finish).collect()
}

impl ColumnType {
    /// The smallest type that holds the values of all `kinds`. Text only if nothing else does.
    pub fn holding(kinds: &[ColumnType]) -> ColumnType {
        use ColumnType::*;
        let [first, others @ ..] = kinds else {
            return Text;
        };
        if others.iter().all(|kind| kind == first) {
            return *first;
        }
        let has = |kind: ColumnType| kinds.contains(&kind);
        let any = |is: fn(ColumnType) -> bool| kinds.iter().any(|&kind| is(kind));
        let all = |is: fn(ColumnType) -> bool| kinds.iter().all(|&kind| is(kind));
        if any(|kind| kind.item().is_some()) {
            // A single value becomes a list of one.
            return match () {
                () if has(Binary) => Text,
                () if has(Bits) || has(BitsList) => match all(|kind| kind.fits_into(BitsList)) {
                    true => BitsList,
                    false => TextList,
                },
                () if all(|kind| kind.fits_into(Int64List)) => Int64List,
                () if all(|kind| kind.fits_into(UInt64List)) => UInt64List,
                () => TextList,
            };
        }
        if has(Bits) && all(|kind| kind.fits_into(Bits)) {
            return Bits;
        }
        let wide_enough = [
            Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Int128, Float64, Binary,
        ];
        wide_enough
            .into_iter()
            .find(|&wide| kinds.iter().all(|kind| kind.fits_into(wide)))
            .unwrap_or(Text)
    }

    /// Whether every value of this type can be represented in `wide`. Of 64-bit integers, floating point keeps 53 bits.
    fn fits_into(self, wide: ColumnType) -> bool {
        use ColumnType::*;
        if self == wide {
            return true;
        }
        match (self, wide) {
            // By their bits.
            (kind, Bits) => kind == Bool || kind.integer_bits().is_some_and(|(_, bits)| bits <= 64),
            // Numerically valid, but no reader converts it to 128 bits.
            (Bool, Int128) => false,
            (Bool, wide) => wide.is_number() || matches!(wide, Int64List | UInt64List),
            (Int64List | UInt64List, BitsList) => true,
            (kind, BitsList) => kind.fits_into(Bits),
            (kind, Int64List) => kind.fits_into(Int64),
            (kind, UInt64List) => kind.fits_into(UInt64),
            (kind, Float64) => kind.is_number(),
            (Text, Binary) => true,
            (kind, wide) => match (kind.integer_bits(), wide.integer_bits()) {
                (Some((true, bits)), Some((true, room))) => bits <= room,
                (Some((false, bits)), Some((false, room))) => bits <= room,
                (Some((false, bits)), Some((true, room))) => bits < room,
                _ => false,
            },
        }
    }

    /// Whether values are numbers.
    pub fn is_number(self) -> bool {
        self == ColumnType::Float64 || self.integer_bits().is_some()
    }

    /// Signedness and number of bits, for integers.
    fn integer_bits(self) -> Option<(bool, u8)> {
        Some(match self {
            ColumnType::Int8 => (true, 8),
            ColumnType::Int16 => (true, 16),
            ColumnType::Int32 => (true, 32),
            ColumnType::Int64 => (true, 64),
            ColumnType::Int128 => (true, 128),
            ColumnType::UInt8 => (false, 8),
            ColumnType::UInt16 => (false, 16),
            ColumnType::UInt32 => (false, 32),
            ColumnType::UInt64 => (false, 64),
            ColumnType::Bool
            | ColumnType::Bits
            | ColumnType::Float64
            | ColumnType::Text
            | ColumnType::Binary
            | ColumnType::Int64List
            | ColumnType::UInt64List
            | ColumnType::BitsList
            | ColumnType::TextList => return None,
        })
    }

    /// Whether a value of this type changes its kind in `united`, beyond being widened: a number that became text, a
    /// 64-bit integer that became floating point.
    pub fn changes_in(self, united: ColumnType) -> bool {
        use ColumnType::*;
        match united {
            Text | TextList => !matches!(self, Text | TextList),
            Float64 => matches!(self, Int64 | UInt64),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Encoding;
    use ColumnType::*;

    fn columns(columns: &[(&str, ColumnType)]) -> Vec<ColumnSchema> {
        let column = |(name, kind): &(&str, ColumnType)| ColumnSchema {
            name: (*name).to_owned(),
            kind: *kind,
            nullable: false,
            unit: String::new(),
            doc: String::new(),
            encoding: Encoding::Plain,
        };
        columns.iter().map(column).collect()
    }

    #[test]
    fn columns_unite_by_name() {
        let forms = [
            columns(&[("time", Int64), ("a", Int32), ("b", UInt64)]),
            columns(&[("time", Int64), ("c", Text), ("b", Int32), ("a", Int64)]),
        ];
        let united = unite(forms.iter().map(Vec::as_slice));
        let found: Vec<_> = united
            .iter()
            .map(|column| (column.name.as_str(), column.kind, column.nullable))
            .collect();
        assert_eq!(
            found,
            [
                ("time", Int64, false),
                ("a", Int64, false),
                ("b", Int128, false),
                ("c", Text, true)
            ]
        );
        assert_eq!(
            unite([forms[0].as_slice()]),
            forms[0],
            "one form stays as it is"
        );
    }

    #[test]
    fn types_widen_as_little_as_needed() {
        let check = |kinds: &[ColumnType], expected| {
            let mut turned = kinds.to_vec();
            turned.reverse();
            assert_eq!(ColumnType::holding(kinds), expected, "{kinds:?}");
            assert_eq!(ColumnType::holding(&turned), expected, "{turned:?}");
        };
        check(&[Int32, Int64], Int64);
        check(&[Int32, UInt32], Int64);
        check(&[Int8, UInt8], Int16);
        check(&[UInt8, UInt64], UInt64);
        check(&[Int8, UInt64], Int128);
        check(&[Bool, Int32], Int32);
        check(&[Bool, UInt64], UInt64);
        check(&[Float64, Int64], Float64);
        check(&[Int64, Text], Text);
        check(&[Bool, Text], Text);
        check(&[Binary, Text], Binary);
        check(&[Binary, Int8], Text);
        check(&[Int32, Int64List], Int64List);
        check(&[UInt32, UInt64List], UInt64List);
        check(&[Int64List, UInt64List], TextList);
        check(&[Text, Int64List], TextList);
        check(&[Binary, Int64List], Text);
        check(&[Bool, Int64, UInt64], Float64);
        check(&[Bits, UInt64], Bits);
        check(&[Bits, Int32, Int64, Bool], Bits);
        check(&[Bits, Float64], Text);
        check(&[Bits, Text], Text);
        check(&[Bits, UInt64List], BitsList);
        check(&[BitsList, Int64List], BitsList);
        check(&[BitsList, Text], TextList);
    }
}
