//! The 104-byte header of a perf.data in file mode, and the sections that it refers to.
//!
//! ```text
//!  0 magic   8 u64 size   16 u64 attr_size   24 attrs {u64 offset, u64 size}   40 data   56 event_types
//! 72 u64[4] features: after the data: one {u64 offset, u64 size} for each set bit, in ascending order
//! ```
//! `size` 16 means pipe mode: the records follow immediately. Sections may be in any order: `perf inject` and
//! simpleperf order them differently from perf. tools/perf/util/header.h, `struct perf_file_header`.

use perfquet_events::bytes::{Cursor, Endian, Short};

use crate::perf_data::attr::{ATTR_BYTES_MAX, ATTR_BYTES_MIN, Attr};

/// Size field of a file in pipe mode.
pub(super) const PIPE_HEADER_BYTES: u64 = 16;
/// Minimum size of a header in file mode, that of perf before features.
const FILE_HEADER_BYTES_MIN: u64 = 72;

/// A range of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Section {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Section, Short> {
        Ok(Section {
            offset: cursor.u64()?,
            size: cursor.u64()?,
        })
    }

    /// Returns the first offset after the section.
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(self.size)
    }

    /// Returns the part of the section that exists in `file`.
    pub(super) fn of(self, file: &[u8]) -> &[u8] {
        let length = file.len() as u64;
        let start = self.offset.min(length) as usize;
        let end = self.end().min(length) as usize;
        file.get(start..end).unwrap_or_default()
    }
}

/// The header in file mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Header {
    /// Size; 16 means pipe mode, in which nothing else is set.
    pub(super) size: u64,
    pub(super) attr_size: u64,
    pub(super) attrs: Section,
    pub(super) data: Section,
    pub(super) event_types: Section,
    pub(super) features: [u64; 4],
}

impl Header {
    /// Parses the header; `bytes` begins with the magic.
    pub(super) fn parse(bytes: &[u8], endian: Endian) -> Result<Header, Short> {
        let mut cursor = Cursor::new(bytes, 0, endian);
        cursor.u64()?;
        let mut header = Header {
            size: cursor.u64()?,
            ..Header::default()
        };
        if header.is_pipe() {
            return Ok(header);
        }
        header.attr_size = cursor.u64()?;
        header.attrs = Section::read(&mut cursor)?;
        header.data = Section::read(&mut cursor)?;
        header.event_types = Section::read(&mut cursor)?;
        if header.size > FILE_HEADER_BYTES_MIN {
            for word in &mut header.features {
                *word = cursor.u64()?;
            }
            header.mend_features(endian);
        }
        Ok(header)
    }

    pub(super) fn is_pipe(&self) -> bool {
        self.size == PIPE_HEADER_BYTES
    }

    /// Corrects the features of 32-bit big-endian hosts, which write the bits as 32-bit words. Every file has HOSTNAME,
    /// and perf uses it for the same check (util/header.c, perf_file_header__read).
    fn mend_features(&mut self, endian: Endian) {
        const HOSTNAME: u64 = 1 << 3;
        let [first, ..] = self.features;
        if endian == Endian::Big && first & HOSTNAME == 0 && first >> 32 & HOSTNAME != 0 {
            for word in &mut self.features {
                *word = word.rotate_left(32);
            }
        }
    }

    /// Returns the numbers of the features listed in the header.
    pub(super) fn feature_bits(&self) -> impl Iterator<Item = u32> {
        let words = self.features.into_iter().zip(0u32..);
        words.flat_map(|(word, index)| {
            (0..64u32)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| index * 64 + bit)
        })
    }

    /// Returns the index after the data, with the position of each feature. Entries beyond the end of the file are
    /// omitted.
    pub(super) fn features(&self, file: &[u8], endian: Endian) -> Vec<(u32, Section)> {
        let start = Section {
            offset: self.data.end(),
            size: u64::MAX,
        };
        let mut cursor = Cursor::new(start.of(file), self.data.end(), endian);
        self.feature_bits()
            .map_while(|bit| Some((bit, Section::read(&mut cursor).ok()?)))
            .collect()
    }

    /// Whether the attrs are at the stated position: each one is plausible, and its IDs are inside the file.
    pub(super) fn are_plausible(&self, file: &[u8], endian: Endian) -> bool {
        let bytes = self.attrs.of(file);
        if bytes.is_empty() {
            return self.attrs.size == 0;
        }
        if !(ATTR_BYTES_MIN + 16..=ATTR_BYTES_MAX + 16).contains(&self.attr_size) {
            return false;
        }
        let length = file.len() as u64;
        bytes.chunks_exact(self.attr_size as usize).all(|entry| {
            let (attr, ids) = entry
                .split_at_checked(self.attr_size as usize - 16)
                .unwrap_or_default();
            let ids = Section::read(&mut Cursor::new(ids, 0, endian)).unwrap_or_default();
            Attr::is_plausible(attr, endian) && ids.size.is_multiple_of(8) && ids.end() <= length
        })
    }

    /// Returns the attrs with the sections of their IDs, and an error about the rest.
    pub(super) fn attrs(
        &self,
        file: &[u8],
        endian: Endian,
    ) -> (Vec<(Attr, Vec<u64>)>, Option<String>) {
        let mut attrs = Vec::new();
        let bytes = self.attrs.of(file);
        if bytes.is_empty() && self.attrs.size == 0 {
            return (attrs, None);
        }
        let attr_size = self.attr_size;
        if !(ATTR_BYTES_MIN + 16..=ATTR_BYTES_MAX + 16).contains(&attr_size) {
            let message = format!("expected attrs of 80 to 4112 bytes, found {attr_size}");
            return (attrs, Some(message));
        }
        // Each ID is in the file once; in a hostile file, every attr could refer to all of it.
        let mut ids_left = file.len() / 8;
        for entry in bytes.chunks_exact(attr_size as usize) {
            let (attr, ids) = entry
                .split_at_checked(attr_size as usize - 16)
                .unwrap_or_default();
            let mut cursor = Cursor::new(ids, 0, endian);
            let Ok(section) = Section::read(&mut cursor) else {
                continue;
            };
            let mut ids = Cursor::new(section.of(file), section.offset, endian);
            let ids: Vec<u64> = std::iter::from_fn(|| ids.u64().ok())
                .take(ids_left)
                .collect();
            ids_left -= ids.len();
            attrs.push((Attr::parse(attr, endian), ids));
        }
        let expected = self.attrs.size / attr_size;
        let missing = expected.saturating_sub(attrs.len() as u64);
        let message = (missing > 0).then(|| {
            format!(
                "expected {expected} attrs, found {} and the end of the file",
                attrs.len()
            )
        });
        (attrs, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_a_32_bit_big_endian_machine() {
        let mut header = Header {
            features: [0b1000 << 32, 0, 0, 0],
            ..Header::default()
        };
        header.mend_features(Endian::Big);
        assert_eq!(header.feature_bits().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn sections_beyond_the_file_are_truncated() {
        let section = Section {
            offset: 2,
            size: u64::MAX,
        };
        assert_eq!(section.of(b"abcd"), b"cd");
        let section = Section { offset: 9, size: 1 };
        assert_eq!(section.of(b"abcd"), b"");
    }
}
