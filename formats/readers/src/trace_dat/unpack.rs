//! Sections and chunks compressed with zlib or zstd.
//!
//! ```text
//! section  u32 packed bytes, u32 unpacked bytes, data
//! pages    u32 chunks, { u32 packed bytes, u32 unpacked bytes, data }
//! ```

use std::borrow::Cow;
use std::io::Read;

use perfquet_events::bytes::{Cursor, Endian, Short};

/// Limit for all compressed sections of a file: the format files of a whole kernel have 8 MB, its kallsyms 20.
const SECTION_BYTES_MAX: u64 = 96 << 20;
/// A chunk has ten ring buffer pages of at most 64 KiB; larger sub-buffers are possible.
pub(super) const CHUNK_BYTES_MAX: u64 = 16 << 20;

/// The compression of a file's sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Zlib,
    Zstd,
    /// An unknown compression.
    Other,
}

impl Packing {
    pub(super) fn named(name: &[u8]) -> Packing {
        match name {
            b"none" | b"" => Packing::None,
            b"zlib" => Packing::Zlib,
            b"zstd" => Packing::Zstd,
            _ => Packing::Other,
        }
    }
}

/// Whether the data begins with the magic of this compression.
pub(super) fn is_packed_by(data: &[u8], packing: Packing) -> bool {
    match packing {
        Packing::Zstd => data.starts_with(b"\x28\xb5\x2f\xfd"),
        // RFC 1950: the first two bytes are a multiple of 31.
        Packing::Zlib => Cursor::new(data, 0, Endian::Big)
            .u16()
            .is_ok_and(|head| head >> 8 == 0x78 && head.is_multiple_of(31)),
        Packing::None | Packing::Other => false,
    }
}

/// A decompressor that reuses zstd's context.
pub(super) struct Unpacker {
    packing: Packing,
    /// Total size of the sections so far.
    sections_bytes: u64,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    pub(super) fn new(packing: Packing) -> Unpacker {
        Unpacker {
            packing,
            sections_bytes: 0,
            zstd: None,
        }
    }

    /// The compression of the chunks.
    pub(super) fn packing(&self) -> Packing {
        self.packing
    }

    /// The body of a section. With a message, if it is damaged; then the body is the part before the damage.
    pub(super) fn section<'m>(
        &mut self,
        mut body: Cursor<'m>,
        packed: bool,
    ) -> (Cow<'m, [u8]>, Option<String>) {
        let room = SECTION_BYTES_MAX.saturating_sub(self.sections_bytes);
        if !packed {
            return (Cow::Borrowed(body.rest()), None);
        }
        let sizes = (|| Ok::<_, Short>((body.u32()?, body.u32()?)))();
        let (packed_bytes, bytes) = match sizes {
            Ok(sizes) => sizes,
            Err(short) => return (Cow::default(), Some(short.to_string())),
        };
        if u64::from(bytes) > room {
            let message = format!("expected at most {room} decompressed bytes, found {bytes}");
            return (Cow::default(), Some(message));
        }
        self.sections_bytes += u64::from(bytes);
        let found = body.left();
        let cut = found < u64::from(packed_bytes);
        let data = match body.bytes(packed_bytes.into()) {
            Ok(data) => data,
            Err(_) => body.rest(),
        };
        let mut unpacked = Vec::new();
        let mut damage = self.unpack(data, bytes.into(), &mut unpacked).err();
        if cut {
            damage = Some(format!(
                "expected {packed_bytes} compressed bytes, found {found}"
            ));
        }
        (Cow::Owned(unpacked), damage)
    }

    /// Unpacks `data` into `bytes` bytes; on an error, `out` has the part before it.
    pub(super) fn unpack(
        &mut self,
        data: &[u8],
        bytes: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        out.clear();
        let result = match self.packing {
            Packing::Zlib => flate2::bufread::ZlibDecoder::new(data)
                .take(bytes)
                .read_to_end(out)
                .map_err(|error| error.to_string()),
            Packing::Zstd => self.unpack_zstd(data, bytes, out),
            Packing::None | Packing::Other => {
                Err("compressed by something other than zlib and zstd".to_owned())
            }
        };
        match result {
            Err(error) => Err(format!(
                "decompression stopped after {} of {bytes} bytes: {error}",
                out.len()
            )),
            Ok(_) if (out.len() as u64) < bytes => Err(format!(
                "expected {bytes} decompressed bytes, found {}",
                out.len()
            )),
            Ok(_) => Ok(()),
        }
    }

    fn unpack_zstd(&mut self, data: &[u8], bytes: u64, out: &mut Vec<u8>) -> Result<usize, String> {
        let text = |error: std::io::Error| error.to_string();
        // One call per chunk keeps zstd's tables between chunks.
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(zstd::bulk::Decompressor::new().map_err(text)?),
        };
        let room = usize::try_from(bytes).map_err(|error| error.to_string())?;
        out.reserve_exact(room);
        if let Ok(count) = zstd.decompress_to_buffer(data, out)
            && count as u64 <= bytes
        {
            return Ok(count);
        }
        // Damaged or longer than stated: decompress in small steps, to keep the part before the damage.
        out.clear();
        let mut decoder = zstd::stream::read::Decoder::with_buffer(data).map_err(text)?;
        decoder.window_log_max(27).map_err(text)?;
        decoder.take(bytes).read_to_end(out).map_err(text)
    }
}

/// Walks through `u32 count, { u32 packed bytes, u32 bytes, data }`.
pub(super) fn chunks(
    mut cursor: Cursor<'_>,
    mut take: impl FnMut(&[u8], u64) -> Result<(), String>,
) -> Result<(), String> {
    let text = |short: Short| short.to_string();
    for _ in 0..cursor.u32().map_err(text)? {
        let (packed_bytes, bytes) = (cursor.u32().map_err(text)?, cursor.u32().map_err(text)?);
        if u64::from(bytes) > CHUNK_BYTES_MAX {
            return Err(format!(
                "expected a chunk of at most {CHUNK_BYTES_MAX} bytes, found {bytes}"
            ));
        }
        take(
            cursor.bytes(packed_bytes.into()).map_err(text)?,
            bytes.into(),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed_section(packing: Packing, plain: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let data = match packing {
            Packing::Zstd => zstd::encode_all(plain, 1).unwrap(),
            _ => {
                let level = flate2::Compression::fast();
                let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), level);
                packer.write_all(plain).unwrap();
                packer.finish().unwrap()
            }
        };
        let mut bytes = (data.len() as u32).to_le_bytes().to_vec();
        bytes.extend((plain.len() as u32).to_le_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn decompresses_up_to_the_damage() {
        let plain: Vec<u8> = (0..50_000u32)
            .flat_map(|n| (n * 7919).to_le_bytes())
            .collect();
        for packing in [Packing::Zlib, Packing::Zstd] {
            let bytes = packed_section(packing, &plain);
            let mut unpacker = Unpacker::new(packing);
            let cursor = Cursor::new(&bytes, 0, Endian::Little);
            let (unpacked, damage) = unpacker.section(cursor, true);
            assert_eq!((&unpacked[..], damage), (&plain[..], None));
            let cursor = Cursor::new(&bytes[..bytes.len() * 9 / 10], 0, Endian::Little);
            let (unpacked, damage) = unpacker.section(cursor, true);
            assert!(plain.starts_with(&unpacked) && !unpacked.is_empty());
            assert!(damage.unwrap().starts_with("expected"));
        }
    }

    #[test]
    fn declared_size_of_gigabytes_is_rejected() {
        let bytes = [8, 0, 0, 0, 255, 255, 255, 255, 1, 2, 3, 4, 5, 6, 7, 8];
        let cursor = Cursor::new(&bytes, 0, Endian::Little);
        let (unpacked, damage) = Unpacker::new(Packing::Zstd).section(cursor, true);
        assert!(unpacked.is_empty() && damage.is_some());
    }
}
