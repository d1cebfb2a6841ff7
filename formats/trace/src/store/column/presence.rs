//! Which rows of a column have a value: nothing while all have one or none, then a bit for each.

use std::ops::Range;

/// Which rows have a value.
#[derive(Debug, Default)]
pub(in crate::store) struct Presence {
    rows: usize,
    nulls: usize,
    /// One bit per row, 1 for a value; empty while all rows are values or all are NULL.
    bits: Vec<u64>,
}

impl Presence {
    /// Number of rows, with a value or without.
    pub(in crate::store) fn rows(&self) -> usize {
        self.rows
    }

    /// Number of rows without a value.
    pub(in crate::store) fn nulls(&self) -> usize {
        self.nulls
    }

    /// The bits if values and NULLs are mixed.
    pub(in crate::store) fn bits(&self) -> Option<&[u64]> {
        (self.nulls > 0 && self.nulls < self.rows).then_some(&self.bits[..])
    }

    /// Whether this row has a value.
    pub(in crate::store) fn has(&self, row: usize) -> bool {
        match self.bits.get(row / 64) {
            Some(word) => word >> (row % 64) & 1 == 1,
            None => self.nulls == 0,
        }
    }

    /// The presence of these rows alone.
    pub(in crate::store) fn slice(&self, rows: Range<usize>) -> Presence {
        let mut slice = Presence::default();
        for row in rows {
            if self.has(row) {
                slice.value();
            } else {
                slice.null();
            }
        }
        slice
    }

    #[inline]
    pub(super) fn value(&mut self) {
        if self.nulls > 0 {
            self.mixed(true);
        }
        self.rows += 1;
    }

    #[inline]
    pub(super) fn null(&mut self) {
        if self.nulls < self.rows {
            self.mixed(false);
        }
        self.rows += 1;
        self.nulls += 1;
    }

    /// Takes the memory of bits over that are not needed any more.
    pub(super) fn reuse(&mut self, spare: Presence) {
        if self.bits.is_empty() {
            self.bits = spare.bits;
            self.bits.clear();
        }
    }

    /// Appends the rows of another column.
    pub(super) fn absorb(&mut self, other: &Presence) {
        match (other.nulls, other.rows) {
            (0, rows) => self.values(rows),
            (nulls, rows) if nulls == rows => self.absent(rows),
            (_, rows) => self.extend((0..rows).map(|row| other.has(row))),
        }
    }

    /// Appends rows that all have a value.
    pub(super) fn values(&mut self, count: usize) {
        if self.nulls == 0 {
            self.rows += count;
        } else {
            self.append(true, count);
        }
    }

    /// Appends rows without a value.
    pub(super) fn absent(&mut self, count: usize) {
        if self.nulls == self.rows {
            self.rows += count;
        } else {
            self.append(false, count);
        }
        self.nulls += count;
    }

    /// Appends rows of which some have a value and some do not.
    pub(super) fn extend(&mut self, present: impl Iterator<Item = bool>) {
        if self.bits.is_empty() {
            self.fill();
        }
        for has_value in present {
            let bit = self.rows % 64;
            if bit == 0 {
                self.bits.push(0);
            }
            if let Some(last) = self.bits.last_mut() {
                *last |= u64::from(has_value) << bit;
            }
            self.rows += 1;
            self.nulls += usize::from(!has_value);
        }
    }

    /// Appends equal bits.
    fn append(&mut self, value: bool, count: usize) {
        if count == 0 {
            return;
        }
        if self.bits.is_empty() {
            self.fill();
        }
        let word = if value { u64::MAX } else { 0 };
        let (first, bit) = (self.rows / 64, self.rows % 64);
        self.rows += count;
        self.bits.resize(self.rows.div_ceil(64), word);
        // The part of the first word before `bit` belongs to earlier rows.
        if value
            && bit > 0
            && let Some(first) = self.bits.get_mut(first)
        {
            *first |= word << bit;
        }
        if let (Some(last), bits @ 1..) = (self.bits.last_mut(), self.rows % 64) {
            *last &= (1 << bits) - 1;
        }
    }

    /// Sets the bit of the next row; first creates the bits of earlier rows if they were uniform.
    #[inline]
    fn mixed(&mut self, value: bool) {
        if self.bits.is_empty() {
            self.fill();
        }
        let (word, bit) = (self.rows / 64, self.rows % 64);
        if bit == 0 && self.bits.len() == word {
            self.bits.push(0);
        }
        if let Some(word) = self.bits.get_mut(word) {
            *word |= u64::from(value) << bit;
        }
    }

    #[cold]
    fn fill(&mut self) {
        let all = if self.nulls == 0 { u64::MAX } else { 0 };
        self.bits.resize(self.rows.div_ceil(64), all);
        // The bits of later rows are 0.
        if let (Some(last), bits @ 1..) = (self.bits.last_mut(), self.rows % 64) {
            *last &= (1 << bits) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn many_rows_at_once_are_as_one_by_one(
            pieces in prop::collection::vec((0..4u8, 0..150usize), 0..8),
        ) {
            let (mut one_by_one, mut at_once) = (Presence::default(), Presence::default());
            let mut expected = Vec::new();
            for (kind, count) in pieces {
                let rows: Vec<bool> = match kind {
                    0 => vec![true; count],
                    1 => vec![false; count],
                    // Not uniform, as `extend` requires.
                    _ => (0..count + 2).map(|row| row == 0 || row % 7 == 3).collect(),
                };
                for &has_value in &rows {
                    match has_value {
                        true => one_by_one.value(),
                        false => one_by_one.null(),
                    }
                }
                match kind {
                    0 => at_once.values(count),
                    1 => at_once.absent(count),
                    _ => at_once.extend(rows.iter().copied()),
                }
                expected.extend(rows);
            }
            for presence in [&one_by_one, &at_once] {
                prop_assert_eq!(presence.rows(), expected.len());
                prop_assert_eq!(presence.nulls(), expected.iter().filter(|has| !**has).count());
                for (row, has_value) in expected.iter().enumerate() {
                    prop_assert_eq!(presence.has(row), *has_value, "{}", row);
                }
            }
            prop_assert_eq!(one_by_one.bits(), at_once.bits());
        }
    }
}
