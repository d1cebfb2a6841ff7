//! PERF_RECORD_COMPRESSED and COMPRESSED2: records packed by zstd.
//!
//! One zstd stream runs over all such records of a data file; it is flushed at the end of each, never
//! reset and mostly never closed. Records may be cut anywhere inside. COMPRESSED2 (perf 6.16) tells how many
//! bytes are data, because it pads them to 8.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// Unpacked bytes per step: what a hostile stream can make us hold at once, beside zstd's own window.
const STEP_BYTES: usize = 128 << 10;
/// Largest window of zstd's default: 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;

/// The stream of one data file.
pub(super) struct Unpacker {
    decoder: Decoder<'static>,
    /// Unpacked bytes that no whole record has been taken from yet.
    pending: Vec<u8>,
    /// Damaged: nothing behind can be unpacked.
    pub(super) is_broken: bool,
}

impl Unpacker {
    pub(super) fn new() -> std::io::Result<Unpacker> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(zstd::stream::raw::DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        Ok(Unpacker {
            decoder,
            pending: Vec::new(),
            is_broken: false,
        })
    }

    /// Unpacks the data of one record. `take` gets all bytes that are there and says how many it used, being
    /// called after each step. An error of zstd breaks the stream.
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

    /// Takes the bytes that are left: nothing follows them.
    pub(super) fn take_pending(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_runs_over_all_records() {
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
        assert_eq!(unpacker.take_pending().len(), plain.len() % 24);
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
