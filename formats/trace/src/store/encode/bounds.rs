//! Minimum and maximum of a page and of a chunk: readers skip pages without matches.
//!
//! Unsigned values are compared unsigned and stored in the bytes of the signed type: kernel addresses are above 2^63,
//! and DataFusion fails an assertion if the order is not the column's own. Bounds of long strings are shortened: a
//! lower minimum and a higher maximum are valid too.

use parquet::data_type::ByteArray;
use parquet::file::statistics::{Statistics, ValueStatistics};

use crate::store::table::ColumnType;

/// Longer strings are shortened in bounds.
const LONGEST: usize = 64;

/// Minimum and maximum.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::store) enum Bounds {
    /// No value, or no comparable one (NaN).
    #[default]
    None,
    /// Of signed integers.
    Signed(i64, i64),
    /// Of unsigned integers, and booleans.
    Unsigned(u64, u64),
    /// Of floating-point numbers.
    Float(f64, f64),
    /// Of strings and binary values.
    Text(Vec<u8>, Vec<u8>),
}

impl Bounds {
    /// Of the bits of 32-bit integers.
    pub(super) fn narrow(values: &[u32], signed: bool) -> Bounds {
        if values.is_empty() {
            return Bounds::None;
        }
        if signed {
            let start = (i32::MAX, i32::MIN);
            let (low, high) = values.iter().fold(start, |(low, high), &value| {
                (low.min(value as i32), high.max(value as i32))
            });
            Bounds::Signed(i64::from(low), i64::from(high))
        } else {
            let start = (u32::MAX, 0);
            let (low, high) = values.iter().fold(start, |(low, high), &value| {
                (low.min(value), high.max(value))
            });
            Bounds::Unsigned(u64::from(low), u64::from(high))
        }
    }

    /// Of the bits of 64-bit integers.
    pub(super) fn wide(values: &[u64], signed: bool) -> Bounds {
        if values.is_empty() {
            return Bounds::None;
        }
        if signed {
            let start = (i64::MAX, i64::MIN);
            let (low, high) = values.iter().fold(start, |(low, high), &value| {
                (low.min(value as i64), high.max(value as i64))
            });
            Bounds::Signed(low, high)
        } else {
            let start = (u64::MAX, 0);
            let (low, high) = values.iter().fold(start, |(low, high), &value| {
                (low.min(value), high.max(value))
            });
            Bounds::Unsigned(low, high)
        }
    }

    /// Of floating-point numbers, without NaN. Zeros are widened to −0 and +0: they compare equal, but some readers
    /// distinguish them.
    pub(super) fn float(values: &[f64]) -> Bounds {
        let mut numbers = values.iter().copied().filter(|value| !value.is_nan());
        let Some(first) = numbers.next() else {
            return Bounds::None;
        };
        let (low, high) = numbers.fold((first, first), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let low = if low == 0.0 { -0.0 } else { low };
        let high = if high == 0.0 { 0.0 } else { high };
        Bounds::Float(low, high)
    }

    /// Bounds of strings.
    pub(super) fn text<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Bounds {
        let Some(first) = values.next() else {
            return Bounds::None;
        };
        let (low, high) = values.fold((first, first), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        Bounds::Text(low.to_vec(), high.to_vec())
    }

    /// Widens the bounds by those of another page.
    pub(in crate::store) fn widen(&mut self, other: &Bounds) {
        match (&mut *self, other) {
            (_, Bounds::None) => {}
            (Bounds::Signed(low, high), &Bounds::Signed(other_low, other_high)) => {
                *low = other_low.min(*low);
                *high = other_high.max(*high);
            }
            (Bounds::Unsigned(low, high), &Bounds::Unsigned(other_low, other_high)) => {
                *low = other_low.min(*low);
                *high = other_high.max(*high);
            }
            (Bounds::Float(low, high), &Bounds::Float(other_low, other_high)) => {
                *low = other_low.min(*low);
                *high = other_high.max(*high);
            }
            (Bounds::Text(low, high), Bounds::Text(other_low, other_high)) => {
                if other_low < low {
                    low.clone_from(other_low);
                }
                if other_high > high {
                    high.clone_from(other_high);
                }
            }
            _ => self.clone_from(other),
        }
    }

    /// Minimum and span, in the bits of integers; the full span if integers have no order.
    pub(super) fn span(&self) -> (u64, u64) {
        match *self {
            Bounds::Signed(low, high) => (low as u64, high.wrapping_sub(low) as u64),
            Bounds::Unsigned(low, high) => (low, high - low),
            Bounds::None | Bounds::Float(..) | Bounds::Text(..) => (0, u64::MAX),
        }
    }

    /// Whether the next page's bounds are not below these, for the order of a column index.
    pub(super) fn precede(&self, next: &Bounds) -> bool {
        match (self, next) {
            (Bounds::Signed(low, high), Bounds::Signed(next_low, next_high)) => {
                low <= next_low && high <= next_high
            }
            (Bounds::Unsigned(low, high), Bounds::Unsigned(next_low, next_high)) => {
                low <= next_low && high <= next_high
            }
            _ => false,
        }
    }

    /// The bytes for a column index; `None` if there are no bounds.
    pub(super) fn bytes(&self, kind: ColumnType) -> Option<(Vec<u8>, Vec<u8>)> {
        let integer = |value: u64| match kind {
            ColumnType::Bool => vec![value as u8],
            ColumnType::Int8
            | ColumnType::Int16
            | ColumnType::Int32
            | ColumnType::UInt8
            | ColumnType::UInt16
            | ColumnType::UInt32 => (value as u32).to_le_bytes().to_vec(),
            _ => value.to_le_bytes().to_vec(),
        };
        match self {
            Bounds::None => None,
            &Bounds::Signed(low, high) => Some((integer(low as u64), integer(high as u64))),
            &Bounds::Unsigned(low, high) => Some((integer(low), integer(high))),
            Bounds::Float(low, high) => {
                Some((low.to_le_bytes().to_vec(), high.to_le_bytes().to_vec()))
            }
            Bounds::Text(low, high) => {
                let utf8 = kind != ColumnType::Binary;
                Some((cut_low(low, utf8).to_vec(), cut_high(high, utf8)))
            }
        }
    }

    /// The statistics of a chunk.
    pub(super) fn statistics(&self, kind: ColumnType, nulls: u64) -> Statistics {
        let nulls = Some(nulls);
        let is_narrow = matches!(
            kind,
            ColumnType::Int8
                | ColumnType::Int16
                | ColumnType::Int32
                | ColumnType::UInt8
                | ColumnType::UInt16
                | ColumnType::UInt32
        );
        let (low, high) = match *self {
            Bounds::Signed(low, high) => (Some(low), Some(high)),
            Bounds::Unsigned(low, high) => (Some(low as i64), Some(high as i64)),
            _ => (None, None),
        };
        match kind {
            ColumnType::Bool => {
                let truth = |value: i64| value != 0;
                Statistics::boolean(low.map(truth), high.map(truth), None, nulls, false)
            }
            _ if is_narrow => {
                let cut = |value: i64| value as i32;
                Statistics::int32(low.map(cut), high.map(cut), None, nulls, false)
            }
            ColumnType::Float64 => {
                let (low, high) = match *self {
                    Bounds::Float(low, high) => (Some(low), Some(high)),
                    _ => (None, None),
                };
                Statistics::double(low, high, None, nulls, false)
            }
            ColumnType::Text | ColumnType::Binary | ColumnType::TextList => {
                let whole = match self {
                    Bounds::Text(low, high) => [low.len(), high.len()].map(|l| l <= LONGEST),
                    _ => [true; 2],
                };
                let (low, high) = self.bytes(kind).unzip();
                let statistics = ValueStatistics::new(
                    low.map(ByteArray::from),
                    high.map(ByteArray::from),
                    None,
                    nulls,
                    false,
                );
                let [low_whole, high_whole] = whole;
                Statistics::ByteArray(
                    statistics
                        .with_min_is_exact(low_whole)
                        .with_max_is_exact(high_whole),
                )
            }
            _ => Statistics::int64(low, high, None, nulls, false),
        }
    }
}

/// A short string not above this one.
fn cut_low(text: &[u8], utf8: bool) -> &[u8] {
    let Some(front) = text.get(..LONGEST).filter(|_| text.len() > LONGEST) else {
        return text;
    };
    let mut length = LONGEST;
    // Not within a character.
    while utf8 && length > 0 && text.get(length).is_some_and(|byte| byte & 0xc0 == 0x80) {
        length -= 1;
    }
    front.get(..length).unwrap_or(front)
}

/// A string above this one, shortened if possible.
fn cut_high(text: &[u8], utf8: bool) -> Vec<u8> {
    if text.len() <= LONGEST {
        return text.to_vec();
    }
    let mut front = cut_low(text, utf8).to_vec();
    // The last byte that can be increased: in UTF-8 only an ASCII character, so that the result stays valid.
    let limit = if utf8 { 0x7f } else { 0xff };
    while let Some(last) = front.pop() {
        if last < limit {
            front.push(last + 1);
            return front;
        }
    }
    text.to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unsigned_are_compared_unsigned() {
        let bounds = Bounds::wide(&[5, u64::MAX, 0xffff_8000_0000_0000], false);
        assert_eq!(bounds, Bounds::Unsigned(5, u64::MAX));
        assert_eq!(
            bounds.statistics(ColumnType::UInt64, 0).max_bytes_opt(),
            Some(&[0xff; 8][..])
        );
        assert_eq!(Bounds::wide(&[5, u64::MAX], true), Bounds::Signed(-1, 5));
    }

    #[test]
    fn floats_without_order() {
        assert_eq!(Bounds::float(&[f64::NAN]), Bounds::None);
        let Bounds::Float(low, high) = Bounds::float(&[0.0, f64::NAN, -0.0]) else {
            panic!("no bounds");
        };
        assert!(low.is_sign_negative() && high.is_sign_positive());
    }

    proptest! {
        #[test]
        fn cut_bounds_still_bound(text in "[a-z~\u{7f}üß€😀]{0,40}", times in 1..6usize) {
            let text = text.repeat(times);
            let text = text.as_bytes();
            let low = cut_low(text, true);
            let high = cut_high(text, true);
            prop_assert!(low <= text && high.as_slice() >= text);
            prop_assert!(low.len() <= LONGEST);
            prop_assert!(str::from_utf8(low).is_ok() && str::from_utf8(&high).is_ok());
            prop_assert!(cut_low(text, false) <= text && cut_high(text, false).as_slice() >= text);
        }
    }
}
