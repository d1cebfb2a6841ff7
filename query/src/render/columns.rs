//! Numbers of a page: columns of bytes that compress well, next to its JSON.
//!
//! ```text
//! 1000, 1003, 1004, 1010  ─►  1000, 3, 1, 6  ─►  e8 03 01 06 | 03 00 00 00
//!                             differences        low bytes   | high bytes
//! ```
//! A column is a row of numbers of 1 to 8 bytes: first the lowest byte of each, then the next one. Bytes of equal weight
//! resemble each other, and those of digits do not: stacks of a page take half as much as in JSON.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};

/// Numbers up to this one are exact in a script.
const EXACT: u64 = 1 << 53;
/// The numbers are differences from the one before.
const DIFFERENCES: u8 = 1;
/// The numbers have signs: 0, -1, 1, -2 are 0, 1, 2, 3.
const SIGNED: u8 = 2;

/// The columns of a page, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    bytes: Vec<u8>,
}

impl Columns {
    /// Adds a column; returns where the script finds it: first byte, count, bytes of a number, form.
    pub(crate) fn add<N: TryInto<i64>>(&mut self, numbers: impl IntoIterator<Item = N>) -> Value {
        let numbers: Vec<i64> = numbers
            .into_iter()
            .map(|number| number.try_into().unwrap_or(i64::MAX))
            .collect();
        let plain = Column::of(&numbers, 0);
        let shorter = differences(&numbers).map(|numbers| Column::of(&numbers, DIFFERENCES));
        let column = match shorter {
            Some(shorter) if shorter.packed() < plain.packed() => shorter,
            _ => plain,
        };
        let begin = self.bytes.len();
        self.bytes.extend(&column.bytes);
        json!([begin, numbers.len(), column.width, column.form])
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Differences from the number before; none if a script could not add them up.
fn differences(numbers: &[i64]) -> Option<Vec<i64>> {
    let mut last = 0;
    numbers
        .iter()
        .map(|&number| {
            let difference = number.checked_sub(std::mem::replace(&mut last, number));
            difference.filter(|difference| difference.unsigned_abs() < EXACT / 2)
        })
        .collect()
}

struct Column {
    bytes: Vec<u8>,
    width: usize,
    form: u8,
}

impl Column {
    fn of(numbers: &[i64], form: u8) -> Column {
        let is_signed = numbers.iter().any(|&number| number < 0);
        let unsigned = |number: i64| match is_signed {
            true => (number.wrapping_shl(1) ^ (number >> 63)) as u64,
            false => number as u64,
        };
        let most = numbers.iter().map(|&number| unsigned(number)).max();
        let bits = u64::BITS - most.unwrap_or(0).leading_zeros();
        let width = bits.div_ceil(8).max(1) as usize;
        let mut bytes = Vec::with_capacity(width * numbers.len());
        for place in 0..width {
            let byte = |&number: &i64| (unsigned(number) >> (8 * place)) as u8;
            bytes.extend(numbers.iter().map(byte));
        }
        let form = form | if is_signed { SIGNED } else { 0 };
        Column { bytes, width, form }
    }

    /// Its size when compressed, about.
    fn packed(&self) -> usize {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        match packed.write_all(&self.bytes).and_then(|()| packed.finish()) {
            Ok(packed) => packed.len(),
            Err(_) => usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of a column, as the script reads them.
    fn read(columns: &Columns, place: &Value) -> Vec<i64> {
        let place: Vec<usize> = serde_json::from_value(place.clone()).unwrap();
        let [begin, count, width, form] = place[..] else {
            panic!("{place:?}")
        };
        let mut last = 0;
        let number = |index: usize| {
            let byte = |place: usize| {
                u64::from(columns.bytes[begin + place * count + index]) << (8 * place)
            };
            let bits: u64 = (0..width).map(byte).sum();
            let number = match form & usize::from(SIGNED) {
                0 => bits as i64,
                _ => (bits >> 1) as i64 ^ -((bits & 1) as i64),
            };
            last = number + if form & 1 == 0 { 0 } else { last };
            last
        };
        (0..count).map(number).collect()
    }

    #[test]
    fn columns_are_read_as_they_were_written() {
        let mut columns = Columns::default();
        let rising: Vec<i64> = (0..1000).map(|number| number * 1001 - 7).collect();
        let all = [
            vec![],
            vec![0],
            vec![-1, 0, -1],
            vec![255, 256, 65_535, 65_536, 1 << 53],
            vec![i64::MIN, i64::MAX, 0, -1],
            rising,
        ];
        let places: Vec<Value> = all.iter().map(|one| columns.add(one.clone())).collect();
        for (numbers, place) in all.iter().zip(&places) {
            assert_eq!(&read(&columns, place), numbers);
        }
        assert_eq!(places[5][3], u64::from(DIFFERENCES | SIGNED));
        assert_eq!(places[2], json!([1, 3, 1, SIGNED]));
    }
}
