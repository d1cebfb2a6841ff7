//! Buffers the rows of a table: one vector per column.
//!
//! ```text
//! let rows = writer.rows(table);
//! if let [time, comm] = rows.columns_mut() { time.push_i64(5); comm.push_bytes(b"bash"); }
//! writer.end_row(table)?;
//! ```
//! NULL takes no space among the values, as in a Parquet page; a bit set records which rows are NULL, once values and
//! NULLs are mixed. Integers of up to 32 bits take 4 bytes, others 8, a string 4 plus its entry among the distinct
//! ones. A push costs a few ns: it allocates nothing, and hashes only a string that differs from the last.

mod absorb;
mod bulk;
mod presence;

use std::str;

use super::intern::{Handed, Interner};
use super::table::{ColumnType, TableSchema};

use absorb::Foreign;
pub(super) use presence::Presence;

/// Rows of a table that were not passed to the encoder yet.
#[derive(Debug)]
pub struct Rows {
    columns: Vec<Column>,
    count: usize,
    /// Memory of a row without its strings and lists.
    row_bytes: usize,
    /// Columns whose values vary in size.
    varying: Vec<usize>,
    /// Strings of batches that were added, by column.
    foreign: Vec<Foreign>,
}

/// Rows on their way to the encoder.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) count: usize,
    pub(super) columns: Vec<Values>,
}

impl Rows {
    pub(super) fn new(schema: &TableSchema) -> Rows {
        let columns: Vec<Column> = schema
            .columns
            .iter()
            .map(|column| Column::new(column.kind, column.nullable))
            .collect();
        let varying = columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.varies())
            .map(|(index, _)| index)
            .collect();
        Rows {
            row_bytes: columns.iter().map(Column::value_bytes).sum(),
            columns,
            count: 0,
            varying,
            foreign: Vec::new(),
        }
    }

    /// The columns, in the schema's order. Each row pushes exactly one value or NULL to each.
    #[inline]
    pub fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    /// One column, by its index in the schema.
    ///
    /// # Panics
    /// If the schema has fewer columns.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the schema is the caller's own")]
    pub fn column(&mut self, index: usize) -> &mut Column {
        &mut self.columns[index]
    }

    /// Rows ended since the last batch.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Counts a row; returns the memory that it took.
    #[inline]
    pub(super) fn end_row(&mut self) -> usize {
        self.end_rows(1)
    }

    /// Counts rows; returns the memory that they took.
    #[inline]
    pub(super) fn end_rows(&mut self, count: usize) -> usize {
        self.count += count;
        debug_assert!(
            self.columns.iter().all(|c| c.len() == self.count),
            "a column has too few or too many values: {:?}",
            self.columns.iter().map(Column::len).collect::<Vec<_>>()
        );
        let mut bytes = self.row_bytes * count;
        for &index in &self.varying {
            if let Some(column) = self.columns.get_mut(index) {
                bytes += std::mem::take(&mut column.grown);
            }
        }
        bytes
    }

    /// Removes and returns the rows; with `forget`, removes the distinct strings too. `Err` is the index of a column
    /// that does not have one value per row.
    pub(super) fn take(&mut self, forget: bool) -> Result<Batch, usize> {
        let count = self.count;
        if let Some(wrong) = self.columns.iter().position(|c| c.len() != count) {
            return Err(wrong);
        }
        self.count = 0;
        let columns: Vec<Values> = self
            .columns
            .iter_mut()
            .map(|column| column.take(forget))
            .collect();
        for (foreign, values) in self.foreign.iter_mut().zip(&columns) {
            if values.texts().is_some_and(|texts| texts.ends) {
                foreign.forget_ids();
            }
        }
        Ok(Batch { count, columns })
    }

    /// Takes the vectors of rows that were written, for the next rows: memory that is new to a process costs more than
    /// the values in it. Without any, makes room for as many rows as before.
    pub(super) fn reuse(&mut self, spare: Option<Batch>, rows: usize) {
        match spare {
            Some(batch) => {
                for (column, values) in self.columns.iter_mut().zip(batch.columns) {
                    column.reuse(values);
                }
            }
            None if rows >= MANY => self.reserve(rows),
            None => {}
        }
    }

    /// Reserves memory for this many more rows.
    pub(super) fn reserve(&mut self, rows: usize) {
        self.columns
            .iter_mut()
            .for_each(|column| column.reserve(rows));
    }

    /// Memory that the table retains after its rows were taken: the distinct strings.
    pub(super) fn kept_bytes(&self) -> usize {
        self.columns.iter().map(Column::kept_bytes).sum()
    }
}

/// The values of one column, without NULLs.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) presence: Presence,
    pub(super) data: Data,
}

impl Values {
    /// The strings that came with the values; `None` for columns without strings.
    pub(super) fn texts(&self) -> Option<&Handed> {
        match &self.data {
            Data::Text(data) | Data::TextList { items: data, .. } => Some(&data.texts),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Data {
    /// Integers of up to 32 bits (signed ones extended to 32), and booleans.
    Narrow(Vec<u32>),
    /// 64-bit integers.
    Wide(Vec<u64>),
    /// Floating point.
    Float(Vec<f64>),
    /// IDs of strings or of binary values.
    Text(TextData),
    /// Lists: the number of items in each, and all items.
    WideList { lengths: Vec<u32>, items: Vec<u64> },
    /// Lists of strings.
    TextList { lengths: Vec<u32>, items: TextData },
}

#[derive(Debug)]
pub(super) struct TextData {
    pub(super) keys: Vec<u32>,
    pub(super) texts: Handed,
}

/// The values of one column that were not passed to the encoder yet.
#[derive(Debug)]
pub struct Column {
    kind: ColumnType,
    nullable: bool,
    presence: Presence,
    values: Buffer,
    /// The range of integers that fit.
    low: i64,
    high: u64,
    /// Memory allocated since the row began, besides `row_bytes`.
    grown: usize,
}

#[derive(Debug)]
enum Buffer {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
    Float(Vec<f64>),
    Text(Vec<u32>, Box<Interner>),
    WideList(Vec<u32>, Vec<u64>),
    TextList(Vec<u32>, Vec<u32>, Box<Interner>),
}

impl Column {
    fn new(kind: ColumnType, nullable: bool) -> Column {
        use ColumnType::*;
        let (low, high) = match kind {
            Bool => (0, 1),
            Int8 => (i64::from(i8::MIN), i8::MAX as u64),
            Int16 => (i64::from(i16::MIN), i16::MAX as u64),
            Int32 => (i64::from(i32::MIN), i32::MAX as u64),
            // No part has the type int128 (shape.rs rejects it).
            Int64 | Int128 | Int64List => (i64::MIN, i64::MAX as u64),
            UInt8 => (0, u64::from(u8::MAX)),
            UInt16 => (0, u64::from(u16::MAX)),
            UInt32 => (0, u64::from(u32::MAX)),
            UInt64 | UInt64List => (0, u64::MAX),
            Float64 | Bits | BitsList => (i64::MIN, u64::MAX),
            // No integer fits.
            Text | Binary | TextList => (i64::MAX, 0),
        };
        let values = match kind {
            Bool | Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 => Buffer::Narrow(Vec::new()),
            Int64 | UInt64 | Bits | Int128 => Buffer::Wide(Vec::new()),
            Float64 => Buffer::Float(Vec::new()),
            Text | Binary => Buffer::Text(Vec::new(), Box::default()),
            Int64List | UInt64List | BitsList => Buffer::WideList(Vec::new(), Vec::new()),
            TextList => Buffer::TextList(Vec::new(), Vec::new(), Box::default()),
        };
        Column {
            kind,
            nullable,
            presence: Presence::default(),
            values,
            low,
            high,
            grown: 0,
        }
    }

    /// Pushes NULL. A column that is not nullable gets zero, or an empty string or list.
    #[inline]
    pub fn push_null(&mut self) {
        if self.nullable {
            self.presence.null();
        } else {
            self.push_zero();
        }
    }

    /// Pushes a boolean.
    #[inline]
    pub fn push_bool(&mut self, value: bool) {
        self.push_u64(u64::from(value));
    }

    /// Pushes an integer. One that does not fit becomes NULL, or the nearest that fits if the column is not nullable.
    #[inline]
    pub fn push_i64(&mut self, value: i64) {
        if value < self.low || (value >= 0 && value as u64 > self.high) {
            return self.push_misfit(value >= 0);
        }
        match &mut self.values {
            Buffer::Narrow(values) => values.push(value as u32),
            Buffer::Wide(values) => values.push(value as u64),
            Buffer::Float(values) => values.push(value as f64),
            _ => return self.push_misfit(false),
        }
        self.presence.value();
    }

    /// Pushes an unsigned integer. One that does not fit becomes NULL, or the nearest that fits if the column is not
    /// nullable.
    #[inline]
    pub fn push_u64(&mut self, value: u64) {
        if value > self.high {
            return self.push_misfit(true);
        }
        match &mut self.values {
            Buffer::Narrow(values) => values.push(value as u32),
            Buffer::Wide(values) => values.push(value),
            Buffer::Float(values) => values.push(value as f64),
            _ => return self.push_misfit(false),
        }
        self.presence.value();
    }

    /// Pushes a floating-point number.
    #[inline]
    pub fn push_f64(&mut self, value: f64) {
        match &mut self.values {
            Buffer::Float(values) => values.push(value),
            _ => return self.push_misfit(value >= 0.0),
        }
        self.presence.value();
    }

    /// Pushes a string or a binary value. In a string, invalid UTF-8 becomes U+FFFD.
    #[inline]
    pub fn push_bytes(&mut self, value: &[u8]) {
        let Buffer::Text(keys, interner) = &mut self.values else {
            return self.push_misfit(false);
        };
        let (key, grown) = if self.kind == ColumnType::Binary {
            interner.intern(value)
        } else {
            intern_text(interner, value)
        };
        keys.push(key);
        self.grown += grown;
        self.presence.value();
    }

    /// Pushes a list of integers.
    pub fn push_i64_list(&mut self, values: &[i64]) {
        let low = self.low;
        self.push_wide_list(
            values.len(),
            values.iter().map(|&value| value.max(low) as u64),
        );
    }

    /// Pushes a list of unsigned integers. In a list of signed ones, an integer that does not fit becomes the nearest
    /// that fits.
    pub fn push_u64_list(&mut self, values: &[u64]) {
        let high = self.high;
        self.push_wide_list(values.len(), values.iter().map(|&value| value.min(high)));
    }

    fn push_wide_list(&mut self, count: usize, values: impl Iterator<Item = u64>) {
        let Buffer::WideList(lengths, items) = &mut self.values else {
            return self.push_misfit(false);
        };
        lengths.push(count as u32);
        items.extend(values);
        self.grown += size_of::<u64>() * count;
        self.presence.value();
    }

    /// Pushes a list of strings.
    pub fn push_text_list<'a>(&mut self, values: impl Iterator<Item = &'a [u8]>) {
        let Buffer::TextList(lengths, items, interner) = &mut self.values else {
            return self.push_misfit(false);
        };
        let before = items.len();
        for value in values {
            let (key, grown) = intern_text(interner, value);
            items.push(key);
            self.grown += grown + size_of::<u32>();
        }
        lengths.push((items.len() - before) as u32);
        self.presence.value();
    }

    /// Handles a value of another type, or out of the type's range.
    #[cold]
    fn push_misfit(&mut self, above: bool) {
        if self.nullable {
            return self.presence.null();
        }
        let nearest = if above { self.high } else { self.low as u64 };
        match &mut self.values {
            Buffer::Narrow(values) => values.push(nearest as u32),
            Buffer::Wide(values) => values.push(nearest),
            _ => return self.push_zero(),
        }
        self.presence.value();
    }

    #[cold]
    fn push_zero(&mut self) {
        match &mut self.values {
            Buffer::Narrow(values) => values.push(0),
            Buffer::Wide(values) => values.push(0),
            Buffer::Float(values) => values.push(0.0),
            Buffer::Text(keys, interner) => {
                let (key, grown) = interner.intern(b"");
                keys.push(key);
                self.grown += grown;
            }
            Buffer::WideList(lengths, _) | Buffer::TextList(lengths, _, _) => lengths.push(0),
        }
        self.presence.value();
    }

    fn len(&self) -> usize {
        self.presence.rows()
    }

    fn varies(&self) -> bool {
        matches!(
            self.values,
            Buffer::Text(..) | Buffer::WideList(..) | Buffer::TextList(..)
        )
    }

    fn value_bytes(&self) -> usize {
        match self.values {
            Buffer::Wide(_) | Buffer::Float(_) => 8,
            _ => 4,
        }
    }

    fn kept_bytes(&self) -> usize {
        match &self.values {
            Buffer::Text(_, interner) | Buffer::TextList(_, _, interner) => interner.bytes(),
            _ => 0,
        }
    }

    fn take(&mut self, forget: bool) -> Values {
        let take_text = |keys: &mut Vec<u32>, interner: &mut Interner| TextData {
            keys: std::mem::take(keys),
            texts: interner.hand_over(forget),
        };
        let data = match &mut self.values {
            Buffer::Narrow(values) => Data::Narrow(std::mem::take(values)),
            Buffer::Wide(values) => Data::Wide(std::mem::take(values)),
            Buffer::Float(values) => Data::Float(std::mem::take(values)),
            Buffer::Text(keys, interner) => Data::Text(take_text(keys, interner)),
            Buffer::WideList(lengths, items) => Data::WideList {
                lengths: std::mem::take(lengths),
                items: std::mem::take(items),
            },
            Buffer::TextList(lengths, items, interner) => Data::TextList {
                lengths: std::mem::take(lengths),
                items: take_text(items, interner),
            },
        };
        Values {
            presence: std::mem::take(&mut self.presence),
            data,
        }
    }

    /// Takes vectors over that are not needed any more.
    fn reuse(&mut self, spare: Values) {
        match (&mut self.values, spare.data) {
            (Buffer::Narrow(own), Data::Narrow(spare)) => replace_if_empty(own, spare),
            (Buffer::Wide(own), Data::Wide(spare)) => replace_if_empty(own, spare),
            (Buffer::Float(own), Data::Float(spare)) => replace_if_empty(own, spare),
            (Buffer::Text(own, _), Data::Text(spare)) => replace_if_empty(own, spare.keys),
            (Buffer::WideList(own, own_items), Data::WideList { lengths, items }) => {
                replace_if_empty(own, lengths);
                replace_if_empty(own_items, items);
            }
            (Buffer::TextList(own, own_items, _), Data::TextList { lengths, items }) => {
                replace_if_empty(own, lengths);
                replace_if_empty(own_items, items.keys);
            }
            // Of another column.
            _ => {}
        }
        self.presence.reuse(spare.presence);
    }

    /// Reserves memory for the values of this many rows, since growing would copy them.
    fn reserve(&mut self, rows: usize) {
        match &mut self.values {
            Buffer::Narrow(values) | Buffer::Text(values, _) => values.reserve(rows),
            Buffer::Wide(values) => values.reserve(rows),
            Buffer::Float(values) => values.reserve(rows),
            Buffer::WideList(lengths, items) => {
                let mean = items.len() / lengths.len().max(1);
                lengths.reserve(rows);
                items.reserve((mean * rows).min(ITEMS_MAX));
            }
            Buffer::TextList(lengths, _, _) => lengths.reserve(rows),
        }
    }
}

/// Rows of a table that is worth keeping its memory.
pub(super) const MANY: usize = 1 << 15;
/// Most items of lists for which room is made before they come.
const ITEMS_MAX: usize = 1 << 20;

fn replace_if_empty<T>(own: &mut Vec<T>, mut spare: Vec<T>) {
    if own.is_empty() {
        spare.clear();
        *own = spare;
    }
}

/// A string is validated when it is new; one with an ID is valid.
#[inline]
fn intern_text(interner: &mut Interner, text: &[u8]) -> (u32, usize) {
    match interner.recent(text) {
        Some(number) => (number, 0),
        None => intern_other_text(interner, text),
    }
}

fn intern_other_text(interner: &mut Interner, text: &[u8]) -> (u32, usize) {
    if text.is_ascii() {
        return interner.intern(text);
    }
    match interner.find(text) {
        Some(number) => (number, 0),
        None if str::from_utf8(text).is_ok() => interner.intern(text),
        None => interner.intern(String::from_utf8_lossy(text).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: ColumnType, nullable: bool) -> Column {
        Column::new(kind, nullable)
    }

    #[test]
    fn presence_mixes_late() {
        let mut column = column(ColumnType::Int32, true);
        for row in 0..200 {
            if row < 70 || row == 130 {
                column.push_null();
            } else {
                column.push_i64(row);
            }
        }
        let taken = column.take(false);
        assert_eq!((taken.presence.rows(), taken.presence.nulls()), (200, 71));
        for row in 0..200 {
            assert_eq!(taken.presence.has(row), row >= 70 && row != 130, "{row}");
        }
        assert_eq!(taken.presence.bits().unwrap().len(), 4);
        assert_eq!(column.len(), 0);
    }

    #[test]
    fn values_that_do_not_fit_become_null_or_nearest() {
        let mut nullable = column(ColumnType::Int8, true);
        nullable.push_i64(128);
        nullable.push_u64(u64::MAX);
        nullable.push_bytes(b"text");
        nullable.push_i64(-128);
        let taken = nullable.take(false);
        assert_eq!(taken.presence.nulls(), 3);
        assert!(matches!(taken.data, Data::Narrow(values) if values == [-128i32 as u32]));

        let mut required = column(ColumnType::UInt16, false);
        required.push_i64(-1);
        required.push_u64(70_000);
        required.push_null();
        assert!(
            matches!(required.take(false).data, Data::Narrow(values) if values == [0, 65_535, 0])
        );

        let mut wide = column(ColumnType::Int64, false);
        wide.push_u64(u64::MAX);
        wide.push_i64(i64::MIN);
        assert!(
            matches!(wide.take(false).data, Data::Wide(values) if values == [i64::MAX as u64, i64::MIN as u64])
        );
    }

    #[test]
    fn text_is_utf8() {
        let mut text = column(ColumnType::Text, false);
        for value in [&b"a\xff"[..], "a\u{fffd}".as_bytes(), b"a\xff", b""] {
            text.push_bytes(value);
        }
        let Data::Text(data) = text.take(false).data else {
            panic!("no text");
        };
        assert_eq!(data.keys, [0, 0, 0, 1]);
        assert_eq!(data.texts.fresh.get(0), "a\u{fffd}".as_bytes());
        let mut binary = column(ColumnType::Binary, false);
        binary.push_bytes(b"a\xff");
        let Data::Text(data) = binary.take(false).data else {
            panic!("no binary");
        };
        assert_eq!(data.texts.fresh.get(0), b"a\xff");
    }
}
