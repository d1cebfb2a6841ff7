//! Appends many values at once: checks that depend only on the column are made once per batch instead of once per
//! value.

use super::{Buffer, Column, intern_text};
use crate::store::names::Names;

impl Column {
    /// Appends `count` NULLs.
    pub(crate) fn push_nulls(&mut self, count: usize) {
        if self.nullable {
            self.presence.absent(count);
        } else {
            (0..count).for_each(|_| self.push_null());
        }
    }

    /// Appends signed integers of at most `bits` bits.
    #[inline]
    pub(crate) fn extend_i64(&mut self, bits: u32, values: impl ExactSizeIterator<Item = i64>) {
        let high = i64::MAX >> (64 - bits);
        let fits = self.low < -high && self.high >= high as u64;
        let count = values.len();
        match &mut self.values {
            Buffer::Narrow(own) if fits => own.extend(values.map(|value| value as u32)),
            Buffer::Wide(own) if fits => own.extend(values.map(|value| value as u64)),
            _ => return values.for_each(|value| self.push_i64(value)),
        }
        self.presence.values(count);
    }

    /// Appends unsigned integers of at most `bits` bits.
    #[inline]
    pub(crate) fn extend_u64(&mut self, bits: u32, values: impl ExactSizeIterator<Item = u64>) {
        let fits = self.high >= u64::MAX >> (64 - bits);
        let count = values.len();
        match &mut self.values {
            Buffer::Narrow(own) if fits => own.extend(values.map(|value| value as u32)),
            Buffer::Wide(own) if fits => own.extend(values),
            _ => return values.for_each(|value| self.push_u64(value)),
        }
        self.presence.values(count);
    }

    /// Appends signed integers of at most `bits` bits, or NULL.
    #[inline]
    pub(crate) fn extend_some(
        &mut self,
        bits: u32,
        values: impl ExactSizeIterator<Item = Option<i64>> + Clone,
    ) {
        let count = values.len();
        match values.clone().filter(Option::is_none).count() {
            0 => self.extend_i64(bits, values.map(Option::unwrap_or_default)),
            nulls if nulls == count => self.push_nulls(count),
            _ => self.extend_mixed(bits, values),
        }
    }

    fn extend_mixed(
        &mut self,
        bits: u32,
        values: impl ExactSizeIterator<Item = Option<i64>> + Clone,
    ) {
        let high = i64::MAX >> (64 - bits);
        let fits = self.nullable && self.low < -high && self.high >= high as u64;
        match &mut self.values {
            Buffer::Narrow(own) if fits => {
                own.extend(values.clone().flatten().map(|value| value as u32));
            }
            Buffer::Wide(own) if fits => {
                own.extend(values.clone().flatten().map(|value| value as u64));
            }
            _ => {
                return values.for_each(|value| match value {
                    Some(value) => self.push_i64(value),
                    None => self.push_null(),
                });
            }
        }
        self.presence.extend(values.map(|value| value.is_some()));
    }

    /// Appends lists of `length` 64-bit integers each.
    pub(crate) fn extend_lists(
        &mut self,
        length: usize,
        lists: impl ExactSizeIterator<Item = impl Iterator<Item = u64>>,
        is_signed: bool,
    ) {
        let fits = match is_signed {
            true => self.low == i64::MIN,
            false => self.high == u64::MAX,
        };
        let count = lists.len();
        match &mut self.values {
            Buffer::WideList(lengths, items) if fits => {
                lengths.extend(std::iter::repeat_n(length as u32, count));
                items.reserve(length * count);
                lists.for_each(|list| items.extend(list));
                self.grown += size_of::<u64>() * length * count;
                self.presence.values(count);
            }
            _ => lists.for_each(|list| {
                let list: Vec<u64> = list.collect();
                match is_signed {
                    true => {
                        let list: Vec<i64> = list.iter().map(|&item| item as i64).collect();
                        self.push_i64_list(&list);
                    }
                    false => self.push_u64_list(&list),
                }
            }),
        }
    }

    /// Appends strings by their IDs in `names`, or NULL.
    pub(crate) fn extend_named(
        &mut self,
        names: &Names,
        ids: impl ExactSizeIterator<Item = Option<u32>> + Clone,
    ) {
        let count = ids.len();
        let nulls = ids.clone().filter(Option::is_none).count();
        if nulls == count {
            return self.push_nulls(count);
        }
        let Buffer::Text(keys, interner) = &mut self.values else {
            return self.push_nulls(count);
        };
        if nulls > 0 && !self.nullable {
            for id in ids {
                match id {
                    Some(id) => names.with(id, |text| self.push_bytes(text)),
                    None => self.push_null(),
                }
            }
            return;
        }
        interner.name_by(names.number());
        keys.reserve(count - nulls);
        for id in ids.clone().flatten() {
            let key = match interner.named(id) {
                Some(key) => key,
                None => names.with(id, |text| {
                    let (key, grown) = intern_text(interner, text);
                    self.grown += grown + interner.set_named(id, key);
                    key
                }),
            };
            keys.push(key);
        }
        match nulls {
            0 => self.presence.values(count),
            _ => self.presence.extend(ids.map(|id| id.is_some())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::ColumnType;

    const KINDS: [ColumnType; 11] = [
        ColumnType::Bool,
        ColumnType::Int8,
        ColumnType::Int16,
        ColumnType::Int32,
        ColumnType::Int64,
        ColumnType::UInt8,
        ColumnType::UInt32,
        ColumnType::UInt64,
        ColumnType::Bits,
        ColumnType::Float64,
        ColumnType::Text,
    ];

    /// Checks that two columns are equal.
    fn check(mut bulk: Column, mut single: Column) -> Result<(), TestCaseError> {
        let (bulk, single) = (bulk.take(false), single.take(false));
        prop_assert_eq!(format!("{:?}", bulk.data), format!("{:?}", single.data));
        let presence = |values: &super::super::Values| {
            let rows = 0..values.presence.rows();
            rows.map(|row| values.presence.has(row)).collect::<Vec<_>>()
        };
        prop_assert_eq!(presence(&bulk), presence(&single));
        Ok(())
    }

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![
            -3..3i64,
            -200..200i64,
            any::<i32>().prop_map(i64::from),
            any::<i64>()
        ]
    }

    proptest! {
        #[test]
        fn as_one_by_one(
            kind in prop::sample::select(&KINDS[..]),
            nullable in any::<bool>(),
            width in prop::sample::select(&[8u32, 16, 32, 64][..]),
            pieces in prop::collection::vec(
                prop::collection::vec(prop_oneof![1 => Just(None), 3 => number().prop_map(Some)], 0..70),
                0..5,
            ),
        ) {
            let (mut bulk, mut single) = (Column::new(kind, nullable), Column::new(kind, nullable));
            for (turn, piece) in pieces.iter().enumerate() {
                let shift = 64 - width;
                let signed = piece.iter().map(|value| value.map(|value| value << shift >> shift));
                let values = signed.clone().map(Option::unwrap_or_default).collect::<Vec<_>>();
                let unsigned = values.iter().map(|&value| (value as u64) << shift >> shift);
                match turn % 4 {
                    0 => {
                        bulk.extend_some(width, signed.clone());
                        signed.for_each(|value| match value {
                            Some(value) => single.push_i64(value),
                            None => single.push_null(),
                        });
                    }
                    1 => {
                        bulk.extend_i64(width, values.iter().copied());
                        values.iter().for_each(|&value| single.push_i64(value));
                    }
                    2 => {
                        bulk.extend_u64(width, unsigned.clone());
                        unsigned.for_each(|value| single.push_u64(value));
                    }
                    _ => {
                        bulk.push_nulls(piece.len());
                        piece.iter().for_each(|_| single.push_null());
                    }
                }
            }
            check(bulk, single)?;
        }

        #[test]
        fn lists_as_one_by_one(
            kind in prop::sample::select(&[ColumnType::Int64List, ColumnType::UInt64List, ColumnType::BitsList, ColumnType::Int64][..]),
            is_signed in any::<bool>(),
            length in 0..4usize,
            count in 0..5u64,
        ) {
            let (mut bulk, mut single) = (Column::new(kind, true), Column::new(kind, true));
            let list = |row: u64| vec![row.wrapping_sub(2); length];
            bulk.extend_lists(length, (0..count as usize).map(|row| list(row as u64).into_iter()), is_signed);
            for row in 0..count {
                match is_signed {
                    true => single.push_i64_list(&list(row).iter().map(|&item| item as i64).collect::<Vec<_>>()),
                    false => single.push_u64_list(&list(row)),
                }
            }
            check(bulk, single)?;
        }

        #[test]
        fn names_as_strings(
            nullable in any::<bool>(),
            pieces in prop::collection::vec(prop::collection::vec(prop::option::of(0..6u32), 0..40), 0..5),
        ) {
            let texts: [&[u8]; 6] = [b"", b"bash", b"a\xff", b"bash", "\u{fffd}".as_bytes(), b"dd"];
            let mut bulk = Column::new(ColumnType::Text, nullable);
            let mut single = Column::new(ColumnType::Text, nullable);
            let mut names = Names::default();
            for (turn, piece) in pieces.iter().enumerate() {
                // Other names have other IDs.
                if turn % 2 == 0 {
                    names = Names::default();
                    (0..6).for_each(|id| names.push(texts[(id + turn) % 6]));
                }
                bulk.extend_named(&names, piece.iter().copied());
                for id in piece {
                    match id {
                        Some(id) => names.with(*id, |text| single.push_bytes(text)),
                        None => single.push_null(),
                    }
                }
            }
            check(bulk, single)?;
        }
    }
}
