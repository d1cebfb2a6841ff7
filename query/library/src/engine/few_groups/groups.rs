//! Groups of rows by the codes of their key columns.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::engine::codes::{Codes, Numbers};

/// The groups so far.
#[derive(Debug)]
pub(super) struct Groups {
    columns: Vec<Column>,
    /// How the codes of the columns before combine with those of each further one.
    pairs: Vec<Pairs>,
    codes: Vec<u32>,
    combined: Vec<u32>,
    count: usize,
}

/// A key column.
#[derive(Debug)]
struct Column {
    kind: DataType,
    codes: Codes,
    /// The values in the order of their codes.
    values: Vec<ArrayRef>,
}

/// Numbers of the distinct pairs of codes.
#[derive(Debug, Default)]
struct Pairs {
    numbers: Numbers,
    /// The pairs in the order of their numbers.
    found: Vec<(u32, u32)>,
}

impl Groups {
    /// Groups of these columns, of which there is at least one.
    pub(super) fn new(kinds: &[DataType]) -> Groups {
        let column = |kind: &DataType| Column {
            kind: kind.clone(),
            codes: Codes::new(kind),
            values: Vec::new(),
        };
        Groups {
            columns: kinds.iter().map(column).collect(),
            pairs: kinds.iter().skip(1).map(|_| Pairs::default()).collect(),
            codes: Vec::new(),
            combined: Vec::new(),
            count: 0,
        }
    }

    /// Number of groups: all indices are below.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Replaces `groups` by the groups of the rows.
    pub(super) fn number(&mut self, keys: &[ArrayRef], groups: &mut Vec<usize>) -> Result<()> {
        let mut new = Vec::new();
        for (place, (column, key)) in self.columns.iter_mut().zip(keys).enumerate() {
            let new_values = column.codes.number(key, &mut self.codes)?;
            if !new_values.is_empty() {
                let values = take(key, &UInt32Array::from(new_values), None)?;
                column.values.push(compact(values));
            }
            let Some(pairs) = place.checked_sub(1).map(|place| &mut self.pairs[place]) else {
                std::mem::swap(&mut self.combined, &mut self.codes);
                continue;
            };
            let rows = self.combined.iter_mut().zip(&self.codes);
            for (combined, &code) in rows {
                let pair = (u64::from(*combined) << 32 | u64::from(code)) as i64;
                let known = new.len();
                let number = pairs.numbers.number(pair, 0, &mut new);
                if new.len() > known {
                    pairs.found.push((*combined, code));
                }
                *combined = number;
            }
        }
        groups.clear();
        groups.extend(self.combined.iter().map(|&group| group as usize));
        self.count = match (self.pairs.last(), self.columns.first()) {
            (Some(pairs), _) => pairs.found.len(),
            (None, Some(column)) => column.values.iter().map(|values| values.len()).sum(),
            (None, None) => 0,
        };
        Ok(())
    }

    /// The key columns of all groups.
    pub(super) fn keys(&self) -> Result<Vec<ArrayRef>> {
        let mut groups: Vec<u32> = (0..self.count as u32).collect();
        let mut keys = Vec::new();
        for (place, column) in self.columns.iter().enumerate().rev() {
            let codes = match place.checked_sub(1) {
                Some(pair) => {
                    let found = &self.pairs[pair].found;
                    let pairs = groups.iter().map(|&group| found[group as usize]);
                    let (before, codes): (Vec<u32>, Vec<u32>) = pairs.unzip();
                    groups = before;
                    codes
                }
                None => std::mem::take(&mut groups),
            };
            let values: Vec<&dyn Array> = column.values.iter().map(AsRef::as_ref).collect();
            let values = concat(&values)?;
            keys.push(take(&values, &UInt32Array::from(codes), None)?);
        }
        keys.reverse();
        Ok(keys)
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| column.codes.bytes());
        let pairs = (self.pairs.iter())
            .map(|pairs| pairs.numbers.bytes() + 2 * pairs.found.len() * size_of::<(u32, u32)>());
        let rows = (self.codes.capacity() + self.combined.capacity()) * size_of::<u32>();
        columns.sum::<usize>() + pairs.sum::<usize>() + rows
    }

    /// Removes all groups.
    pub(super) fn clear(&mut self) {
        let kinds: Vec<DataType> = self
            .columns
            .iter()
            .map(|column| column.kind.clone())
            .collect();
        *self = Groups::new(&kinds);
    }
}

/// Texts that do not keep the buffers of the array from which they were taken.
fn compact(values: ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Utf8View => Arc::new(values.as_string_view().gc()),
        _ => values,
    }
}
