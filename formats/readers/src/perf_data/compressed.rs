//! PERF_RECORD_COMPRESSED and COMPRESSED2: records compressed with zstd.
//!
//! One zstd stream spans all such records of a data file. It is flushed at the end of each, never reset, and usually
//! never closed. Records may be split anywhere. COMPRESSED2 (perf 6.16) has the number of data bytes, because it is
//! padded to 8.

use perfquet_events::Error;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// Start of a zstd stream (RFC 8878).
const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";

/// Number of bytes decompressed per step: the maximum that a hostile stream occupies in addition to zstd's window.
const STEP_BYTES: usize = 128 << 10;
/// Largest window of zstd's default settings: 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;

/// The compressed records of one data file after another.
pub(super) struct Packed {
    /// The current stream; `None` if none has begun, or while it is in use.
    unpacker: Option<Unpacker>,
    /// Whether records are missing that later compressed ones refer to.
    is_broken: bool,
    /// Number of decompressed bytes so far, separate from file offsets.
    pub(super) position: u64,
}

impl Default for Packed {
    fn default() -> Packed {
        Packed {
            unpacker: None,
            is_broken: false,
            position: 1 << 63,
        }
    }
}

impl Packed {
    /// Takes the stream for a record that begins with these bytes; `None` if it is damaged before this record.
    pub(super) fn begin(&mut self, packed: &[u8]) -> Result<Option<Unpacker>, Error> {
        // A new stream does not refer to anything before it.
        if packed.starts_with(ZSTD_MAGIC)
            && (self.is_broken || self.unpacker.as_ref().is_some_and(|old| old.is_broken))
        {
            self.unpacker = None;
            self.is_broken = false;
        }
        let unpacker = match self.unpacker.take() {
            Some(unpacker) => unpacker,
            None => Unpacker::new().map_err(Error::io("zstd"))?,
        };
        if unpacker.is_broken || self.is_broken {
            self.unpacker = Some(unpacker);
            return Ok(None);
        }
        Ok(Some(unpacker))
    }

    /// Returns the stream after a record.
    pub(super) fn end(&mut self, mut unpacker: Unpacker) {
        unpacker.is_broken |= self.is_broken;
        self.unpacker = Some(unpacker);
    }

    /// Marks records as missing. Later compressed records refer to them, so decompressing those would produce wrong
    /// data.
    pub(super) fn interrupt(&mut self) {
        if let Some(unpacker) = &mut self.unpacker {
            unpacker.is_broken = true;
        }
        self.is_broken = true;
    }

    /// Ends the data file and its stream; returns the bytes that form no record.
    pub(super) fn finish_file(&mut self) -> Option<Vec<u8>> {
        self.unpacker.take().map(|unpacker| unpacker.pending)
    }
}

/// The stream of one data file.
pub(super) struct Unpacker {
    decoder: Decoder<'static>,
    /// Decompressed bytes that do not form a whole record yet.
    pending: Vec<u8>,
    /// Whether the stream is damaged; nothing after the damage can be decompressed.
    is_broken: bool,
}

impl Unpacker {
    fn new() -> std::io::Result<Unpacker> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(zstd::stream::raw::DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        Ok(Unpacker {
            decoder,
            pending: Vec::new(),
            is_broken: false,
        })
    }

    /// Decompresses the data of one record. `take` is called after each step with all available bytes, and returns the
    /// number of bytes used. An error of zstd breaks the stream.
    pub(super) fn unpack<E: From<std::io::Error>>(
        &mut self,
        packed: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let mut input = InBuffer::around(packed);
        loop {
            let filled = self.pending.len();
            self.pending.resize(filled + STEP_BYTES, 0);
            let room = self.pending.get_mut(filled..).unwrap_or_default();
            let mut output = OutBuffer::around(room);
            let read_before = input.pos();
            let result = self.decoder.run(&mut input, &mut output);
            let written = output.pos();
            self.pending.truncate(filled + written);
            if let Err(error) = result {
                self.is_broken = true;
                return Err(error.into());
            }
            let used = take(&self.pending)?;
            self.pending.drain(..used.min(self.pending.len()));
            let is_full = written == STEP_BYTES;
            if !is_full && (input.pos() >= packed.len() || input.pos() == read_before) {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_spans_all_records() {
        let plain: Vec<u8> = (0..400_000u32)
            .flat_map(|n| (n / 7).to_le_bytes())
            .collect();
        let packed = zstd::encode_all(&plain[..], 3).unwrap();
        let mut unpacker = Unpacker::new().unwrap();
        let mut unpacked = Vec::new();
        for part in packed.chunks(1000) {
            unpacker
                .unpack::<std::io::Error>(part, |bytes| {
                    let used = bytes.len() / 24 * 24;
                    unpacked.extend_from_slice(&bytes[..used]);
                    Ok(used)
                })
                .unwrap();
        }
        assert_eq!(unpacker.pending.len(), plain.len() % 24);
        assert_eq!(unpacked, plain[..plain.len() / 24 * 24]);
    }

    #[test]
    fn damage_is_an_error() {
        let mut unpacker = Unpacker::new().unwrap();
        let result = unpacker.unpack::<std::io::Error>(b"no zstd at all", |_| Ok(0));
        assert!(result.is_err());
        assert!(unpacker.is_broken);
    }
}
