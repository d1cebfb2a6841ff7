//! Locates the parts of a file in file mode, even if its header, its list of events or its index is damaged.
//!
//! ```text
//! header   ids   attrs   records …   index {offset, size}[n]   TRACING_DATA  BUILD_ID  …  EVENT_DESC  …
//! ```
//! The header is used if it leads to valid data. Otherwise, records are recognized by three plausible headers in a row,
//! the index by entries that follow each other without a gap, and the events are read from the feature EVENT_DESC,
//! which has a copy of all of them. A lost or duplicated byte shifts everything after it, so each part is also searched
//! some bytes before and after its stated position.

use perfquet_events::bytes::{Cursor, Endian, Short, before_nul};

use crate::perf_data::attr::{ATTR_BYTES_MAX, ATTR_BYTES_MIN, Attr};
use crate::perf_data::features::{BUILD_ID, EVENT_DESC, TRACING_DATA};
use crate::perf_data::header::{Header, Section};
use crate::perf_data::record::{HEADER_BYTES, RecordHeader, kind};
use crate::perf_data::resync::{chain_in, is_plausible_chain, plausible};

/// Maximum number of bytes by which a part may be shifted.
const SHIFT_MAX: i64 = 8;
/// The same for the index, whose entries are unmistakable, and for the features, by the end of the file.
const INDEX_SHIFT_MAX: i64 = 1 << 16;
/// Bytes searched for the records before their stated position.
const DATA_SHIFT_MAX: u64 = 1 << 16;
/// Bits of features that a header has.
const FEATURES_MAX: u64 = 256;
/// Number of records at the start of a pipe that must include those describing its events.
const PIPE_RECORDS: usize = 16;
/// Minimum offset of the first section.
const HEADER_END: u64 = 72;
/// Number of bytes searched for events (IDs and attrs) between header and records.
const ATTRS_SEARCHED: usize = 1 << 20;

/// Positions of all parts.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) header: Header,
    pub(super) attrs: Vec<(Attr, Vec<u64>)>,
    pub(super) features: Vec<(u32, Section)>,
    /// Whether the end of the records was found by iterating over them.
    is_end_measured: bool,
    /// Deviations from the header, with their offsets.
    pub(super) damages: Vec<(u64, String)>,
}

impl Head {
    /// The first offset after all sections; `None` if the header does not tell.
    pub(super) fn end(&self) -> Option<u64> {
        let header = &self.header;
        let is_told = header.data.size > 0 && !self.is_end_measured && self.damages.is_empty();
        let index = header.data.end() + 16 * self.features.len() as u64;
        let sections = [header.attrs, header.data, header.event_types];
        let features = self.features.iter().map(|(_, section)| *section);
        let ends = sections.into_iter().chain(features).map(Section::end);
        is_told.then(|| ends.fold(index.max(header.size), u64::max))
    }

    /// Examines a file with this header; `None` if the header is invalid.
    pub(super) fn find(header: Option<Header>, file: &[u8], endian: Endian) -> Head {
        let mut head = Head {
            header: header.unwrap_or_default(),
            ..Head::default()
        };
        let is_believed = header.is_some_and(|header| header.size >= HEADER_END);
        head.find_data(is_believed, file, endian);
        if !is_believed && tells_of_itself(file, head.header.data, endian) {
            return head;
        }
        head.find_features(file, endian);
        head.find_attrs(is_believed, file, endian);
        head
    }

    fn find_data(&mut self, is_believed: bool, file: &[u8], endian: Endian) {
        let stated = self.header.data;
        let length = file.len() as u64;
        let is_there = |offset: u64| {
            let rest = usize::try_from(offset).ok().and_then(|at| file.get(at..));
            rest.is_some_and(|rest| !rest.is_empty() && is_plausible_chain(rest, endian))
        };
        // No records, or the file ends before them.
        if is_believed && (stated.size == 0 && stated.offset <= length || stated.offset == length) {
            return;
        }
        if is_believed && is_there(stated.offset) && stated.end() <= length + SHIFT_MAX as u64 {
            return;
        }
        let before = || {
            // Bytes between the header and the records are lost.
            let from = stated.offset.saturating_sub(DATA_SHIFT_MAX).max(HEADER_END);
            let bytes = part(file, from);
            let rest = usize::try_from(stated.offset.checked_sub(from)?).ok();
            let skipped = chain_in(bytes.get(..rest? + 64).unwrap_or(bytes), endian)?;
            let found = from + skipped as u64;
            (found < stated.offset && is_there(found)).then_some(found)
        };
        let near = shifts()
            .filter_map(|shift| stated.offset.checked_add_signed(shift))
            .find(|&offset| is_there(offset))
            .or_else(|| before().filter(|_| !is_there(stated.offset)))
            .filter(|_| is_believed);
        let start = near.or_else(|| {
            // In a pipe, the records start after 16 bytes; how many of these are left is unknown.
            let begin = if is_believed { HEADER_END } else { 0 }.min(length) as usize;
            let rest = file.get(begin..).unwrap_or_default();
            Some((begin + chain_in(rest, endian)?) as u64)
        });
        let Some(start) = start else {
            return;
        };
        let is_far = start.abs_diff(stated.offset) > SHIFT_MAX as u64;
        if is_believed && near.is_none() && is_far && stated.end() <= length {
            // The first records are damaged, but the header is not.
            return;
        }
        if start == stated.offset && is_believed {
            // The file is truncated, which is reported at the end of the records.
            return;
        }
        self.is_end_measured = near.is_none() || stated.end() > length + SHIFT_MAX as u64;
        let end = match self.is_end_measured {
            true => end_of_records(file, start, endian),
            false => stated.end(),
        };
        self.damages.push((
            40,
            format!(
                "expected records at {:#x}, found them at {start:#x}; the header or the data after it is damaged",
                stated.offset
            ),
        ));
        self.header.data = Section {
            offset: start,
            size: end.saturating_sub(start),
        };
    }

    /// Finds the index after the records, and with it their real end.
    fn find_features(&mut self, file: &[u8], endian: Endian) {
        let end = self.header.data.end();
        if self.header.data.size == 0 {
            return;
        }
        let stated = self.header.features(file, endian);
        let bits: Vec<u32> = self.header.feature_bits().collect();
        let found = self.index(file, endian);
        let Some((shift, sections)) = found else {
            // Some tools write the sections in another order.
            self.features = stated;
            return;
        };
        if shift != 0 && !self.is_end_measured {
            self.damages.push((
                end,
                format!("expected the index of features, found it {shift} bytes later"),
            ));
            self.header.data.size = self.header.data.size.saturating_add_signed(shift);
        }
        let sections = without_reserved(file, sections, &bits, shift, endian);
        let sections = settle(file, sections, &bits, shift, endian);
        // Shifted bytes of the header are other bits.
        let are_those = self.damages.is_empty() || {
            let known = recognize(file, sections.clone(), endian);
            let mut sure = known.iter().filter(|(bit, _)| *bit != BUILD_ID);
            let listed: Vec<_> = bits.iter().copied().zip(sections.iter().copied()).collect();
            sure.all(|one| listed.contains(one))
        };
        self.features = match bits.len() == sections.len() && are_those {
            true => bits.into_iter().zip(sections).collect(),
            // In another order, or with a gap.
            false if shift == 0 && !self.is_end_measured && sections.len() < bits.len() => stated,
            false => {
                self.damages.push((
                    HEADER_END,
                    format!(
                        "expected {} features, found {}; reading those that can be recognized",
                        bits.len(),
                        sections.len()
                    ),
                ));
                recognize(file, sections, endian)
            }
        };
    }

    /// Finds the index near the end of the records: the distance by which it is moved, and its entries.
    fn index(&self, file: &[u8], endian: Endian) -> Option<(i64, Vec<Section>)> {
        let end = self.header.data.end();
        let far = || (SHIFT_MAX + 1..=INDEX_SHIFT_MAX).flat_map(|shift| [-shift, shift]);
        let candidates = || {
            let all = std::iter::once(0).chain(shifts()).chain(far());
            all.filter_map(|shift| {
                let (place, written) = match self.is_end_measured {
                    true => (end, end.checked_add_signed(-shift)?),
                    false => (end.checked_add_signed(shift)?, end),
                };
                Some((shift, index_at(file, place, written, endian)?))
            })
        };
        // Of a header that is lost, nothing but the end of the file distinguishes distances that differ by an entry.
        let ending = self.is_end_measured.then(candidates);
        let ending = ending
            .and_then(|mut all| all.find(|(shift, sections)| ends_there(file, sections, *shift)));
        ending.or_else(|| {
            candidates().find(|(shift, sections)| {
                shift.abs() <= SHIFT_MAX || ends_there(file, sections, *shift)
            })
        })
    }

    fn find_attrs(&mut self, is_believed: bool, file: &[u8], endian: Endian) {
        let (attrs, damage) = self.header.attrs(file, endian);
        let is_whole = is_believed && damage.is_none() && self.header.are_plausible(file, endian);
        if is_whole || self.header.data.size == 0 && is_believed && !attrs.is_empty() {
            self.attrs = attrs;
        } else {
            self.damages.push((
                self.header.attrs.offset,
                damage.unwrap_or_else(|| "expected events, found other bytes".into()),
            ));
            let described = self.described(file, endian);
            let found = match described.is_empty() {
                true => self
                    .shifted(file, endian)
                    .or_else(|| self.searched(file, endian)),
                false => Some(described),
            };
            self.attrs = found.unwrap_or(attrs);
        }
    }

    /// Returns the events described by EVENT_DESC.
    fn described(&self, file: &[u8], endian: Endian) -> Vec<(Attr, Vec<u64>)> {
        let section = self.features.iter().find(|(bit, _)| *bit == EVENT_DESC);
        let Some((_, section)) = section else {
            return Vec::new();
        };
        descriptions(Cursor::new(section.of(file), section.offset, endian)).unwrap_or_default()
    }

    /// Finds the events some bytes from their stated position.
    fn shifted(&self, file: &[u8], endian: Endian) -> Option<Vec<(Attr, Vec<u64>)>> {
        shifts().find_map(|shift| {
            let mut header = self.header;
            header.attrs.offset = header.attrs.offset.checked_add_signed(shift)?;
            let is_there = header.attrs.size > 0 && header.are_plausible(file, endian);
            is_there.then(|| header.attrs(file, endian).0)
        })
    }

    /// Searches for events between the header and the records.
    fn searched(&self, file: &[u8], endian: Endian) -> Option<Vec<(Attr, Vec<u64>)>> {
        let end = self.header.data.offset.min(file.len() as u64) as usize;
        let begin = end.saturating_sub(ATTRS_SEARCHED).max(HEADER_END as usize);
        (begin..end).find_map(|offset| {
            let rest = file.get(offset..end)?;
            let mut cursor = Cursor::new(rest, offset as u64, endian);
            let (kind, size) = (cursor.u32().ok()?, cursor.u32().ok()?);
            // Types beyond those of any PMU, and zeros, occur by chance.
            if kind > 1 << 10 || size == 0 || !Attr::is_plausible(rest, endian) {
                return None;
            }
            let header = Header {
                size: self.header.size,
                attr_size: u64::from(size) + 16,
                attrs: Section {
                    offset: offset as u64,
                    size: (end - offset) as u64 / (u64::from(size) + 16) * (u64::from(size) + 16),
                },
                ..self.header
            };
            let is_there = header.attrs.size > 0 && header.are_plausible(file, endian);
            is_there.then(|| header.attrs(file, endian).0)
        })
    }
}

/// Whether records are those of a pipe, which include its events and features.
fn tells_of_itself(file: &[u8], data: Section, endian: Endian) -> bool {
    let mut rest = part(file, data.offset);
    for _ in 0..PIPE_RECORDS {
        let Some(header) = plausible(rest, endian) else {
            return false;
        };
        if matches!(header.kind, kind::HEADER_ATTR | kind::HEADER_FEATURE) {
            return true;
        }
        rest = rest.get(header.size..).unwrap_or_default();
    }
    false
}

/// 1, -1, 2, -2, …
fn shifts() -> impl Iterator<Item = i64> {
    (1..=SHIFT_MAX).flat_map(|shift| [shift, -shift])
}

fn part(file: &[u8], offset: u64) -> &[u8] {
    let rest = usize::try_from(offset).ok().and_then(|at| file.get(at..));
    rest.unwrap_or_default()
}

/// Returns the end of the records that begin at `start`.
fn end_of_records(file: &[u8], start: u64, endian: Endian) -> u64 {
    let mut offset = start;
    loop {
        let rest = part(file, offset);
        let Some(header) = plausible(rest, endian).filter(|header| header.size <= rest.len())
        else {
            // Damaged records may be followed by others, but then by three in a row.
            match chain_in(rest, endian) {
                Some(skipped) if skipped > 0 => {
                    offset += skipped as u64;
                    continue;
                }
                _ => return offset,
            }
        };
        offset += header.size as u64;
        if header.kind == kind::AUXTRACE {
            let mut body = Cursor::new(rest.get(HEADER_BYTES..).unwrap_or_default(), 0, endian);
            offset = offset.saturating_add(body.u64().unwrap_or(0));
        }
    }
}

/// Returns the entries of an index at `place`, if there is one. Entries have offsets from when the index was written,
/// relative to `end`: each section begins where the previous one ends, the first one after the index.
fn index_at(file: &[u8], place: u64, end: u64, endian: Endian) -> Option<Vec<Section>> {
    let mut cursor = Cursor::new(part(file, place), place, endian);
    let first = Section::read(&mut cursor).ok()?;
    // perf reserves space for features that it may not write.
    let bytes = first.offset.checked_sub(end)?;
    let most = bytes / 16;
    if !bytes.is_multiple_of(16) || !(1..=FEATURES_MAX).contains(&most) {
        return None;
    }
    let mut sections = vec![first];
    while (sections.len() as u64) < most {
        let section = Section::read(&mut cursor).ok()?;
        let before = sections.last().copied().unwrap_or_default();
        if section.offset != before.end() {
            break;
        }
        sections.push(section);
    }
    (most == 1 || sections.len() > 1).then_some(sections)
}

/// Whether the last section of an index, moved by `shift`, ends the file.
fn ends_there(file: &[u8], sections: &[Section], shift: i64) -> bool {
    let last = sections.last().copied().unwrap_or_default();
    let end = last.end().checked_add_signed(shift);
    sections.len() > 1 && end.is_some_and(|end| end.abs_diff(file.len() as u64) < 8)
}

/// Drops entries without a feature. perf reserves an entry for each feature that it tries to write. If the last one
/// fails, its entry keeps the offset, with the size 0 (tools/perf/util/header.c, `do_write_feat`).
fn without_reserved(
    file: &[u8],
    mut sections: Vec<Section>,
    bits: &[u32],
    shift: i64,
    endian: Endian,
) -> Vec<Section> {
    let surplus = sections.get(bits.len()..).unwrap_or_default();
    if bits.is_empty() || surplus.is_empty() || surplus.iter().any(|section| section.size > 0) {
        return sections;
    }
    // One bit fewer in a damaged header would shift all features.
    let are_those = sections.iter().zip(bits).all(|(section, bit)| {
        let section = Section {
            offset: section.offset.saturating_add_signed(shift),
            size: section.size,
        };
        shift != 0 || is_feature(*bit, section.of(file), endian)
    });
    if are_those {
        sections.truncate(bits.len());
    }
    sections
}

/// Adjusts the sections to their real positions: shifted by `shift`, and by one more or less, or as the end of the file,
/// from a damage between them on.
fn settle(
    file: &[u8],
    sections: Vec<Section>,
    bits: &[u32],
    shift: i64,
    endian: Endian,
) -> Vec<Section> {
    let mut shift = shift;
    // The features end the file.
    let length = file.len() as u64;
    let drift = sections
        .last()
        .map_or(0, |last| length.wrapping_sub(last.end()) as i64);
    let drift = Some(drift).filter(|drift| (-INDEX_SHIFT_MAX..=INDEX_SHIFT_MAX).contains(drift));
    let moved = |section: Section, shift: i64| Section {
        offset: section.offset.saturating_add_signed(shift),
        size: section.size,
    };
    let bits = bits
        .iter()
        .copied()
        .map(Some)
        .chain(std::iter::repeat(None));
    let mut settled = Vec::new();
    for (section, bit) in sections.into_iter().zip(bits) {
        let is_it = |shift: i64| {
            bit.is_some_and(|bit| is_feature(bit, moved(section, shift).of(file), endian))
        };
        if !is_it(shift)
            && let Some(other) = [shift - 1, shift + 1]
                .into_iter()
                .chain(drift)
                .find(|&other| is_it(other))
        {
            shift = other;
        }
        settled.push(moved(section, shift));
    }
    settled
}

/// Whether bytes are plausible as this feature.
fn is_feature(bit: u32, bytes: &[u8], endian: Endian) -> bool {
    let mut cursor = Cursor::new(bytes, 0, endian);
    match bit {
        TRACING_DATA => bytes.starts_with(crate::tracing_data::TRACING_MAGIC),
        BUILD_ID => is_build_id(bytes, endian),
        EVENT_DESC => descriptions(cursor).is_ok(),
        // A string: its length, padded to 64 bytes.
        3..=6 | 8 | 9 => cursor
            .u32()
            .is_ok_and(|length| u64::from(length) == cursor.left()),
        _ => true,
    }
}

fn is_build_id(bytes: &[u8], endian: Endian) -> bool {
    RecordHeader::parse(bytes, endian).is_some_and(|header| {
        matches!(header.kind, 0 | kind::BUILD_ID)
            && (36..=bytes.len().min(8192)).contains(&header.size)
            && header.size.is_multiple_of(4)
    })
}

/// Identifies features by their content.
fn recognize(file: &[u8], sections: Vec<Section>, endian: Endian) -> Vec<(u32, Section)> {
    let known = [TRACING_DATA, EVENT_DESC, BUILD_ID];
    let recognized = sections.into_iter().filter_map(|section| {
        let bytes = section.of(file);
        let is_it = |bit: &&u32| !bytes.is_empty() && is_feature(**bit, bytes, endian);
        Some((*known.iter().find(is_it)?, section))
    });
    recognized.collect()
}

/// EVENT_DESC: `u32 n, u32 attr_size; {attr[attr_size], u32 n_ids, string name, u64 ids[n_ids]}[n]`. An error for
/// anything else.
fn descriptions(mut body: Cursor<'_>) -> Result<Vec<(Attr, Vec<u64>)>, Short> {
    let other = Short {
        offset: body.offset(),
        wanted: 0,
        left: body.left(),
    };
    let (count, attr_size) = (body.u32()?, u64::from(body.u32()?));
    if count == 0 || !(ATTR_BYTES_MIN..=ATTR_BYTES_MAX).contains(&attr_size) {
        return Err(other);
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let attr = body.bytes(attr_size)?;
        if !Attr::is_plausible(attr, body.endian()) {
            return Err(other);
        }
        let id_count = u64::from(body.u32()?);
        let name = body.u32()?;
        // Lists of CPUs have the same form, with other bytes in place of the name.
        let name = before_nul(body.bytes(name.into())?);
        if name.is_empty() || name.iter().any(u8::is_ascii_control) {
            return Err(other);
        }
        let mut ids = body.part(id_count.saturating_mul(8))?;
        let ids = std::iter::from_fn(|| ids.u64().ok()).collect();
        all.push((Attr::parse(attr, body.endian()), ids));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/perf_data/golden");
        std::fs::read(std::path::Path::new(folder).join(name)).unwrap()
    }

    fn ids(file: &[u8]) -> Vec<Vec<u64>> {
        let header = file
            .starts_with(b"PERFILE2")
            .then(|| Header::parse(file, Endian::Little));
        let header = header.and_then(Result::ok);
        let attrs = Head::find(header, file, Endian::Little).attrs;
        attrs.into_iter().map(|(_, ids)| ids).collect()
    }

    #[test]
    fn events_are_found_without_the_front_of_the_file() {
        for name in [
            "mono.data",
            "group.data",
            "switch-events.data",
            "user-regs.data",
        ] {
            let whole = golden(name);
            let expected = ids(&whole);
            for size in [1, 9, 64, 120] {
                let mut lost = whole.clone();
                lost.drain(..size);
                assert_eq!(ids(&lost), expected, "{name}: {size} bytes lost");
                let mut doubled = whole[..size].to_vec();
                doubled.extend(&whole);
                assert_eq!(ids(&doubled), expected, "{name}: {size} bytes doubled");
            }
        }
    }
}
