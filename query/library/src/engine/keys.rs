//! Numbers the distinct keys of rows, so that operators index their state by key.
//!
//! ```text
//! (cpu, comm)   (0, cat) (1, dd) (0, cat) (NULL, cat)   →   0 1 0 NONE      NONE: NULL equals nothing
//! ```

use std::mem::size_of;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::error::Result;
use hashbrown::HashMap;

use super::integers::Integers;

/// The number of a row whose key equals nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// The distinct keys so far.
#[derive(Debug)]
pub(crate) struct Keys {
    kind: Kind,
    /// Whether NULL equals NULL.
    null_is_key: bool,
    count: u32,
    bytes: usize,
}

#[derive(Debug)]
enum Kind {
    /// All rows have the same key.
    One,
    Integers {
        numbers: HashMap<i64, u32>,
        null: Option<u32>,
    },
    Rows {
        converter: RowConverter,
        numbers: HashMap<Box<[u8]>, u32>,
    },
}

impl Keys {
    /// Whether columns of this type are compared as DataFusion compares them.
    pub(crate) fn hold(kind: &DataType) -> bool {
        !kind.is_floating()
            && RowConverter::supports_fields(&[SortField::new(kind.clone())])
            && !matches!(kind, DataType::Dictionary(_, _))
    }

    pub(crate) fn new(kinds: &[DataType], null_is_key: bool) -> Result<Keys> {
        let kind = match kinds {
            [] => Kind::One,
            [one] if Integers::hold(one) => Kind::Integers {
                numbers: HashMap::new(),
                null: None,
            },
            several => Kind::Rows {
                converter: RowConverter::new(
                    several.iter().cloned().map(SortField::new).collect(),
                )?,
                numbers: HashMap::new(),
            },
        };
        Ok(Keys {
            kind,
            null_is_key,
            count: 0,
            bytes: 0,
        })
    }

    /// Number of distinct keys: all numbers are below.
    pub(crate) fn count(&self) -> usize {
        match self.kind {
            Kind::One => 1,
            _ => self.count as usize,
        }
    }

    /// Memory of the keys in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The numbers of the keys of `rows` rows.
    pub(crate) fn number(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
        let Keys {
            kind,
            null_is_key,
            count,
            bytes,
        } = self;
        let mut next = |size: usize| {
            let number = *count;
            *count += 1;
            *bytes += size;
            number
        };
        match kind {
            Kind::One => Ok(vec![0; rows]),
            Kind::Integers { numbers, null } => {
                let keys = Integers::of(&columns[0])?;
                let mut last: Option<(i64, u32)> = None;
                let number = |row: usize| {
                    if keys.is_null(row) {
                        return match null_is_key {
                            true => *null.get_or_insert_with(|| next(0)),
                            false => NONE,
                        };
                    }
                    let key = keys.values[row];
                    // Consecutive rows often have the same key, which saves a lookup.
                    match last {
                        Some((before, number)) if before == key => number,
                        _ => {
                            let number = *numbers
                                .entry(key)
                                .or_insert_with(|| next(2 * size_of::<(i64, u32)>()));
                            last = Some((key, number));
                            number
                        }
                    }
                };
                Ok((0..rows).map(number).collect())
            }
            Kind::Rows { converter, numbers } => {
                let keys = converter.convert_columns(columns)?;
                let mut nulls = None;
                if !*null_is_key {
                    for column in columns {
                        nulls = NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref());
                    }
                }
                let number = |row: usize| {
                    if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                        return NONE;
                    }
                    let key = keys.row(row);
                    match numbers.get(key.as_ref()) {
                        Some(&number) => number,
                        None => {
                            let key: Box<[u8]> = key.as_ref().into();
                            let number = next(key.len() + 2 * size_of::<(Box<[u8]>, u32)>());
                            numbers.insert(key, number);
                            number
                        }
                    }
                };
                Ok((0..rows).map(number).collect())
            }
        }
    }

    /// Removes keys and renumbers the others. Returns the new number of each old one; [`NONE`] if removed.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut renumbered = vec![NONE; self.count()];
        let (mut count, mut bytes) = (0, 0);
        let mut stays = |number: &mut u32, size: usize| {
            let former = *number;
            if !keep(former) {
                return false;
            }
            *number = count;
            renumbered[former as usize] = count;
            count += 1;
            bytes += size;
            true
        };
        match &mut self.kind {
            Kind::One => return vec![0],
            Kind::Integers { numbers, null } => {
                numbers.retain(|_, number| stays(number, 2 * size_of::<(i64, u32)>()));
                numbers.shrink_to_fit();
                *null = null.and_then(|mut number| stays(&mut number, 0).then_some(number));
            }
            Kind::Rows { numbers, .. } => {
                numbers.retain(|key, number| {
                    stays(number, key.len() + 2 * size_of::<(Box<[u8]>, u32)>())
                });
                numbers.shrink_to_fit();
            }
        }
        (self.count, self.bytes) = (count, bytes);
        renumbered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringViewArray};
    use std::sync::Arc;

    fn check(columns: &[ArrayRef], null_is_key: bool, expected: &[u32]) {
        let kinds: Vec<DataType> = columns.iter().map(|c| c.data_type().clone()).collect();
        assert!(kinds.iter().all(Keys::hold));
        let mut keys = Keys::new(&kinds, null_is_key).unwrap();
        for _ in 0..2 {
            assert_eq!(keys.number(columns, expected.len()).unwrap(), expected);
        }
        let distinct: std::collections::HashSet<_> =
            expected.iter().filter(|&&n| n != NONE).collect();
        assert_eq!(keys.count(), distinct.len());
    }

    #[test]
    fn equal_keys_have_one_number() {
        let cpus: ArrayRef = Arc::new(Int32Array::from(vec![
            Some(7),
            None,
            Some(-7),
            Some(7),
            None,
        ]));
        let comms: ArrayRef = Arc::new(StringViewArray::from(vec![
            Some("a"),
            Some("a"),
            Some("a longer string than fits"),
            Some("a"),
            None,
        ]));
        check(&[], false, &[0, 0, 0]);
        check(&[Arc::clone(&cpus)], false, &[0, NONE, 1, 0, NONE]);
        check(&[Arc::clone(&cpus)], true, &[0, 1, 2, 0, 1]);
        check(&[Arc::clone(&comms)], false, &[0, 0, 1, 0, NONE]);
        check(
            &[Arc::clone(&cpus), Arc::clone(&comms)],
            false,
            &[0, NONE, 1, 0, NONE],
        );
        check(&[cpus, comms], true, &[0, 1, 2, 0, 3]);
    }

    #[test]
    fn forgotten_keys_get_new_numbers() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
        let mut keys = Keys::new(&[DataType::Int32], false).unwrap();
        keys.number(&[Arc::clone(&column)], 4).unwrap();
        let renumbered = keys.retain(|number| number % 2 == 1);
        assert_eq!(
            (renumbered[0], renumbered[2], keys.count()),
            (NONE, NONE, 2)
        );
        let again = keys.number(&[column], 4).unwrap();
        assert_eq!((again[1], again[3]), (renumbered[1], renumbered[3]));
        let mut sorted = again;
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3]);
    }
}
