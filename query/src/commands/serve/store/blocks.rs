//! The periods of a track, in blocks of 2,048: totals of each block are in memory, its periods are bytes.
//!
//! ```text
//! block    n, its n different values; for each period: place of the value and two flags, [time since the last end], [length]
//! ```
//! Most periods begin where the one before ends, so that a period takes three or four bytes. Where a window contains a whole block, its
//! sums are used, and no period is read.

use super::numbers::{Numbers, put, put_signed};

/// Periods per block. The totals of the blocks of 10^9 events take some tens of megabytes.
pub(super) const BLOCK: usize = 2048;
/// Classes of values: the lowest bits of a value.
pub(crate) const CLASSES: usize = 16;

/// A period of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) begin: i64,
    /// -1 if it is unknown.
    pub(crate) length: i64,
    pub(crate) value: u32,
}

impl Period {
    /// Its end; one of unknown length is an instant, of the least length that there is.
    #[inline]
    pub(crate) fn end(&self) -> i64 {
        self.begin
            .saturating_add(if self.length < 0 { 1 } else { self.length })
    }
}

/// What a block has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// Begin of its first period, and of its last one.
    pub(crate) begin: i64,
    pub(super) last: i64,
    /// The latest end of its periods.
    pub(crate) end: i64,
    pub(super) count: u32,
    /// Number of the chunk with its bytes, and their place in it.
    pub(super) chunk: u32,
    pub(super) offset: u32,
    /// The place of its first sum.
    pub(super) sums: u32,
}

/// The periods of a class in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) class: u8,
    pub(crate) count: u32,
    pub(crate) time: i64,
}

/// Different values of a block, in the order of their first use. A CPU runs hundreds of threads.
struct Values {
    all: Vec<u32>,
    /// By the hash of a value, its place and 1; 0 if there is none.
    places: [u16; 4 * BLOCK],
}

impl Default for Values {
    fn default() -> Values {
        Values {
            all: Vec::new(),
            places: [0; 4 * BLOCK],
        }
    }
}

impl Values {
    #[inline]
    fn place(&mut self, value: u32) -> usize {
        let mut slot = (value.wrapping_mul(0x9e37_79b1) >> 16) as usize % self.places.len();
        loop {
            match usize::from(self.places[slot]) {
                0 => break,
                place if self.all[place - 1] == value => return place - 1,
                _ => slot = (slot + 1) % self.places.len(),
            }
        }
        self.all.push(value);
        self.places[slot] = self.all.len() as u16;
        self.all.len() - 1
    }
}

/// Encodes sorted periods. Returns the block, whose place is not known yet, and adds the sums of its classes.
pub(super) fn encode(periods: &[Period], out: &mut Vec<u8>, sums: &mut Vec<Sum>) -> Block {
    let (first, last) = (periods[0], periods[periods.len() - 1]);
    let mut block = Block {
        begin: first.begin,
        last: last.begin,
        end: first.end(),
        count: periods.len() as u32,
        chunk: 0,
        offset: 0,
        sums: sums.len() as u32,
    };
    let mut values = Values::default();
    let mut places = Vec::with_capacity(periods.len());
    let mut by_class = [(0_u32, 0_i64); CLASSES];
    for period in periods {
        places.push(values.place(period.value));
        let sum = &mut by_class[period.value as usize % CLASSES];
        sum.0 += 1;
        sum.1 = sum.1.saturating_add(period.end() - period.begin);
        block.end = block.end.max(period.end());
    }
    put(out, values.all.len() as u64);
    values.all.iter().for_each(|&value| put(out, value.into()));
    let mut end = first.begin;
    for (period, place) in periods.iter().zip(places) {
        let (has_gap, is_open) = (period.begin != end, period.length < 0);
        put(
            out,
            (place as u64) << 2 | u64::from(is_open) << 1 | u64::from(has_gap),
        );
        if has_gap {
            put_signed(out, period.begin.wrapping_sub(end));
        }
        if !is_open {
            put(out, period.length.cast_unsigned());
        }
        end = period.end();
    }
    let classes = by_class.into_iter().enumerate();
    sums.extend(
        classes
            .filter(|(_, (count, _))| *count > 0)
            .map(|(class, (count, time))| Sum {
                class: class as u8,
                count,
                time,
            }),
    );
    block
}

/// Calls `visit` with the periods of a block, in order. `None` if the bytes are none of a block.
#[inline]
pub(super) fn decode(bytes: &[u8], block: &Block, mut visit: impl FnMut(Period)) -> Option<()> {
    let mut numbers = Numbers::new(bytes);
    let count = numbers.count().filter(|&count| count <= BLOCK)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(u32::try_from(numbers.next()?).ok()?);
    }
    let mut end = block.begin;
    for _ in 0..block.count {
        let head = numbers.next()?;
        let value = *values.get((head >> 2) as usize)?;
        let begin = match head & 1 {
            0 => end,
            _ => end.checked_add(numbers.signed()?)?,
        };
        let length = match head & 2 {
            0 => i64::try_from(numbers.next()?).ok()?,
            _ => -1,
        };
        let period = Period {
            begin,
            length,
            value,
        };
        end = period.end();
        visit(period);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_as_they_were_written() {
        let of = |(begin, length, value)| Period {
            begin,
            length,
            value,
        };
        let periods: Vec<Period> = [
            (-5, 5, 3),
            (0, 0, 1 << 31),
            (0, 10, 3),
            (10, -1, 4),
            (11, 7, 3),
            (1 << 50, 1 << 60, 19),
            (1 << 50, 1, 0),
        ]
        .map(of)
        .to_vec();
        let (mut bytes, mut sums) = (Vec::new(), Vec::new());
        let block = encode(&periods, &mut bytes, &mut sums);
        let mut found = Vec::new();
        decode(&bytes, &block, |period| found.push(period)).unwrap();
        assert_eq!(found, periods);
        assert_eq!(
            (block.begin, block.last, block.count),
            (-5, 1 << 50, periods.len() as u32)
        );
        assert_eq!(block.end, (1 << 50) + (1 << 60));
        let of_class = sums.iter().find(|sum| sum.class == 3).unwrap();
        assert_eq!((of_class.count, of_class.time), (4, 22 + (1 << 60)));
        // Whatever the bytes are, there is an end.
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], &block, |_| {}).is_none());
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                let _ = decode(&bytes, &block, |_| {});
            }
        }
    }
}
