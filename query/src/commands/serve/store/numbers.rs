//! Numbers as bytes: seven bits in each, the lowest first; the highest bit says that more follow.
//!
//! ```text
//! 300    ac 02          -2    03 (signed: 0, -1, 1, -2, … are 0, 1, 2, 3, …)
//! ```

pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, (value.wrapping_shl(1) ^ (value >> 63)).cast_unsigned());
}

/// Reads numbers; `None` where the bytes end, or are none that were written.
pub(super) struct Numbers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Numbers<'a> {
        Numbers { bytes, at: 0 }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        self.at += 1;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let (mut value, mut shift) = (u64::from(first & 0x7f), 7);
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    #[inline]
    pub(super) fn signed(&mut self) -> Option<i64> {
        let value = self.next()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// A number of things of which each has at least one byte.
    pub(super) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.next()?).ok()?;
        (count <= self.bytes.len() - self.at).then_some(count)
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.count()?;
        let found = self.bytes.get(self.at..self.at + count)?;
        self.at += count;
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let all = [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX];
        let signed = [0, -1, 1, 63, -64, -65, i64::MAX, i64::MIN];
        let mut bytes = Vec::new();
        all.iter().for_each(|&value| put(&mut bytes, value));
        signed
            .iter()
            .for_each(|&value| put_signed(&mut bytes, value));
        let mut read = Numbers::new(&bytes);
        all.iter()
            .for_each(|&value| assert_eq!(read.next(), Some(value)));
        signed
            .iter()
            .for_each(|&value| assert_eq!(read.signed(), Some(value)));
        assert_eq!(read.next(), None);
        assert_eq!(Numbers::new(&[0x80]).next(), None);
        assert_eq!(Numbers::new(&[0xff; 11]).next(), None);
        assert_eq!(Numbers::new(&[3, 1, 2]).count(), None);
        assert_eq!(Numbers::new(&[2, 1, 2]).bytes(), Some(&[1, 2][..]));
    }
}
