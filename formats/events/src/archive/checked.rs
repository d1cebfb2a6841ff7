//! Checks the size and the checksum of a file of an archive while it is read.

use std::io::{self, Read};

use super::Check;

/// A reader that fails at the end of a file that is not the archive's.
pub(super) struct Checked<R> {
    reader: R,
    expected: Option<Check>,
    crc: flate2::Crc,
    read: u64,
}

impl<R: Read> Checked<R> {
    pub(super) fn new(reader: R, expected: Option<Check>) -> Checked<R> {
        Checked {
            reader,
            expected,
            crc: flate2::Crc::new(),
            read: 0,
        }
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(expected) = self.expected else {
            return self.reader.read(buffer);
        };
        let damaged = |message| Err(io::Error::new(io::ErrorKind::InvalidData, message));
        let left = expected.size_bytes - self.read.min(expected.size_bytes);
        if left == 0 {
            // One byte more would be a bomb, or damage.
            let mut one = [0];
            return match self.reader.read(&mut one) {
                Ok(0) if self.crc.sum() == expected.crc => Ok(0),
                Ok(0) => damaged("its checksum is not that of the archive".to_owned()),
                Ok(_) => damaged(format!(
                    "expected {} bytes by the archive, found more",
                    expected.size_bytes
                )),
                Err(error) => Err(error),
            };
        }
        let room = usize::try_from(left).unwrap_or(usize::MAX);
        let length = buffer.len().min(room);
        let count = match buffer.get_mut(..length) {
            Some(buffer) => self.reader.read(buffer)?,
            None => 0,
        };
        if count == 0 && length > 0 {
            return damaged(format!(
                "expected {} bytes by the archive, found {}",
                expected.size_bytes, self.read
            ));
        }
        self.crc.update(buffer.get(..count).unwrap_or_default());
        self.read += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_checksum() {
        let read = |bytes: &[u8], size_bytes, crc| {
            let mut out = Vec::new();
            let expected = Some(Check { size_bytes, crc });
            let mut reader = Checked::new(bytes, expected);
            let result = reader
                .read_to_end(&mut out)
                .map_err(|error| error.to_string());
            (out.len(), result.err())
        };
        // `printf 'perfquet' | gzip -lv`
        let mut crc = flate2::Crc::new();
        crc.update(b"perfquet");
        let crc = crc.sum();
        assert_eq!(read(b"perfquet", 8, crc), (8, None));
        let wrong = |found| Some(String::from(found));
        assert_eq!(
            read(b"perfquex", 8, crc),
            (8, wrong("its checksum is not that of the archive"))
        );
        assert_eq!(
            read(b"perfquet and more", 8, crc),
            (8, wrong("expected 8 bytes by the archive, found more"))
        );
        assert_eq!(
            read(b"perf", 8, crc),
            (4, wrong("expected 8 bytes by the archive, found 4"))
        );
    }
}
