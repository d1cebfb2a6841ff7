//! Texts in other encodings than ASCII and UTF-8, as Windows' programs write them.
//!
//! ```text
//! ef bb bf 23 20          UTF-8 with a byte order mark, which is no part of the text
//! ff fe 23 00 20 00       UTF-16, low bytes first        fe ff 00 23 00 20       high bytes first
//! ```

use std::io::{self, BufRead, Read};

use crate::bytes::Endian;

/// Mark of UTF-8.
pub(super) const UTF8_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// The order of the bytes of a text in UTF-16, from its mark and the first character, which is ASCII in all traces.
pub(super) fn utf16(head: &[u8]) -> Option<Endian> {
    let is_ascii = |byte: &u8| (b' '..0x7f).contains(byte) || byte.is_ascii_whitespace();
    match head {
        [0xff, 0xfe, ascii, 0, ..] if is_ascii(ascii) => Some(Endian::Little),
        [0xfe, 0xff, 0, ascii, ..] if is_ascii(ascii) => Some(Endian::Big),
        _ => None,
    }
}

/// Turns UTF-16 into UTF-8. Halves of characters become U+FFFD.
pub(super) struct Utf16<R> {
    reader: R,
    endian: Endian,
    /// The first half of a character, whose second half comes next.
    half: Option<u16>,
    decoded: Vec<u8>,
    /// Number of bytes of `decoded` that were read.
    read: usize,
}

impl<R: BufRead> Utf16<R> {
    /// Begins after the mark.
    pub(super) fn new(reader: R, endian: Endian) -> Utf16<R> {
        Utf16 {
            reader,
            endian,
            half: None,
            decoded: Vec::new(),
            read: 0,
        }
    }

    /// Decodes the bytes of the reader's buffer; nothing remains at the end.
    fn decode(&mut self) -> io::Result<()> {
        self.decoded.clear();
        self.read = 0;
        while self.decoded.is_empty() {
            let mut unit = [0; 2];
            let bytes = self.reader.fill_buf()?;
            let count = match bytes.len() {
                0 => return self.end(),
                // The buffer ends inside a unit.
                1 => {
                    let (first, second) = unit.split_at_mut(1);
                    self.reader.read_exact(first)?;
                    if self.reader.read(second)? == 0 {
                        self.push(0xfffd);
                        return Ok(());
                    }
                    self.unit(unit);
                    continue;
                }
                length => length & !1,
            };
            let whole = bytes.get(..count).unwrap_or_default();
            let units: Vec<[u8; 2]> = whole.as_chunks::<2>().0.to_vec();
            self.reader.consume(count);
            for unit in units {
                self.unit(unit);
            }
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if self.half.take().is_some() {
            self.push(0xfffd);
        }
        Ok(())
    }

    fn unit(&mut self, bytes: [u8; 2]) {
        let unit = self.endian.u16(bytes);
        let is_first = (0xd800..0xdc00).contains(&unit);
        let is_second = (0xdc00..0xe000).contains(&unit);
        match self.half.take() {
            Some(first) if is_second => {
                let high = u32::from(first - 0xd800) << 10;
                self.push(0x1_0000 + high + u32::from(unit - 0xdc00));
                return;
            }
            Some(_) => self.push(0xfffd),
            None => {}
        }
        match (is_first, is_second) {
            (true, _) => self.half = Some(unit),
            (_, true) => self.push(0xfffd),
            _ => self.push(u32::from(unit)),
        }
    }

    fn push(&mut self, code: u32) {
        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        let mut buffer = [0; 4];
        let text = character.encode_utf8(&mut buffer);
        self.decoded.extend_from_slice(text.as_bytes());
    }
}

impl<R: BufRead> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.decoded.len() {
            self.decode()?;
        }
        let rest = self.decoded.get(self.read..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(from), Some(to)) = (rest.get(..count), buffer.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters() {
        let check = |units: &[u16], expected: &str| {
            let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            // Buffers of every size, so that they end inside units and characters.
            for size in 1..bytes.len().max(2) {
                let reader = io::BufReader::with_capacity(size, &bytes[..]);
                let mut text = String::new();
                let mut utf16 = Utf16::new(reader, Endian::Little);
                utf16.read_to_string(&mut text).unwrap();
                assert_eq!(text, expected, "{size}");
            }
        };
        let units: Vec<u16> = "# ü 😀\n".encode_utf16().collect();
        check(&units, "# ü 😀\n");
        check(&[], "");
        check(&[0xd83d], "\u{fffd}");
        check(&[0xd83d, 0x61, 0xde00], "\u{fffd}a\u{fffd}");
    }

    #[test]
    fn marks() {
        assert_eq!(utf16(&[0xff, 0xfe, b'#', 0]), Some(Endian::Little));
        assert_eq!(utf16(&[0xfe, 0xff, 0, b'#']), Some(Endian::Big));
        assert_eq!(utf16(&[0xff, 0xfe, 0, 0]), None);
        assert_eq!(utf16(&[0xff, 0xfe]), None);
        assert_eq!(utf16(b"# "), None);
    }
}
