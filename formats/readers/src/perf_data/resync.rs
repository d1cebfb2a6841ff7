//! Distinguishes records from damage, and finds the next record after damage.
//!
//! ```text
//! 09 00 00 00 02 00 60 00 …  09 00 00 00 …   a record: where it ends, another one begins
//! 09 00 00 00 02 00 60 00 …  00 00 09 00 …   a byte of it is lost, or what follows is damaged
//! ```
//! A record is accepted if its header is one that perf, simpleperf or the kernel write, if another header follows it,
//! and if its time is close to those around it. Otherwise, the next three plausible headers in a row are searched, at
//! every byte, because a lost byte shifts everything after it. Close to the end, fewer headers are enough. A single one
//! occurs by chance in stack copies and counts.
//!
//! A record that overlaps the three headers has lost a byte; one that ends a few bytes before them has gained one. Both
//! are dropped, because their members are shifted.

use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::scan::find_text;

use crate::perf_data::catalog::Catalog;
use crate::perf_data::record::{self, HEADER_BYTES, RecordHeader, Trailer, extra_bytes, kind};
use crate::perf_data::sample::{Lists, Members, parse};

/// Number of headers in a row that are accepted.
const CHAIN: usize = 3;
/// Number of bytes of a stream searched at once.
const SEARCH_BYTES: usize = 1 << 20;
/// Number of records examined to decide which of two times is wrong.
const WITNESSES: usize = 8;
/// Maximum gap in a recording that needs no confirmation: a day.
const NEAR: u64 = 86_400_000_000_000;
/// Maximum gap if no record follows that could confirm it: a hundred days.
const FAR: u64 = 100 * NEAR;
/// Maximum distance at which a part of the file is repeated.
const REPEATED_MAX: usize = 1 << 16;
/// Minimum number of repeated bytes: those of a record with its time.
const REPEATED_MIN: usize = 40;
/// Above the number of CPUs of any kernel (CONFIG_NR_CPUS, at most 8192).
const CPUS_MAX: u32 = 1 << 16;
/// Above the number of threads of any kernel (PID_MAX_LIMIT, 2^22), with room for other systems.
const TIDS_MAX: i32 = 1 << 30;

/// Classification of bytes.
pub(super) enum Look {
    /// A record.
    Record(Found),
    /// Damage.
    Skip(Damage),
    /// Unknown until this many bytes are available.
    More(usize),
}

/// A record found in the examined bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) header: RecordHeader,
    pub(super) time: Option<u64>,
    /// Number of bytes that follow the record without being included in its size.
    pub(super) extra_bytes: u64,
}

/// Bytes that are not a record.
pub(super) struct Damage {
    /// Number of bytes, up to the next record or the end of the available ones.
    pub(super) bytes: usize,
    pub(super) message: String,
}

impl Damage {
    /// Also skips the records after the damage that precede it, too: a part of the file is there twice, and the damage is
    /// where both meet. `at` is its offset in `data`.
    pub(super) fn skip_repeated(&mut self, data: &[u8], at: usize) {
        let next = at.saturating_add(self.bytes);
        let from = at.saturating_sub(REPEATED_MAX);
        let (Some(before), Some(after)) = (data.get(from..at), data.get(next..)) else {
            return;
        };
        let Some(first) = after.get(..REPEATED_MIN) else {
            return;
        };
        let (mut start, mut compared) = (0, 0);
        while compared < 64
            && let Some(rest) = before.get(start..)
            && let Some(found) = find_text(rest, first)
        {
            compared += 1;
            let repeated = rest.get(found..).unwrap_or_default();
            if after.starts_with(repeated) {
                self.bytes += repeated.len();
                self.message += &format!(", {} of which are there twice", repeated.len());
                return;
            }
            start += found + 1;
        }
    }
}

/// The last search, so that several damages before one record do not repeat it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Search {
    from: u64,
    /// `None` if there is nothing up to `until`.
    found: Option<u64>,
    until: u64,
}

/// State derived from the records of a source so far.
#[derive(Debug, Default)]
pub(super) struct Framing {
    /// Time of an accepted record, which others must be close to.
    near: Option<u64>,
    /// The last search past damage.
    search: Search,
    /// The header after the last examined record, with its position.
    ahead: Option<(u64, RecordHeader)>,
}

impl Framing {
    /// Starts another source.
    pub(super) fn begin(&mut self) {
        self.search = Search::default();
        self.ahead = None;
    }

    /// Classifies the start of `bytes`. `position` is their position in the source; `is_all`: no more bytes follow.
    #[inline]
    pub(super) fn look(
        &mut self,
        catalog: &Catalog,
        bytes: &[u8],
        position: u64,
        is_all: bool,
    ) -> Look {
        let endian = catalog.endian;
        let header = match self.ahead.take() {
            Some((ahead, header)) if ahead == position => Some(header),
            _ => plausible(bytes, endian),
        };
        let Some(header) = header else {
            return self.look_closer(catalog, bytes, position, is_all);
        };
        let Some(record) = bytes.get(..header.size) else {
            return match is_all {
                true => self.look_closer(catalog, bytes, position, is_all),
                false => Look::More(header.size),
            };
        };
        let extra_bytes = extra_bytes(header, record, endian);
        let end = end_of(header, extra_bytes);
        let after = bytes.get(end..);
        let is_followed = match after {
            Some(after) if after.len() >= HEADER_BYTES => {
                let next = plausible(after, endian);
                self.ahead = next.map(|header| (position + end as u64, header));
                next.is_some()
            }
            // The end of a round is accepted at once, because readers wait for it during the recording.
            _ if header.kind == kind::FINISHED_ROUND => true,
            _ if is_all => after.is_some(),
            _ if end > SEARCH_BYTES => true,
            _ => return Look::More(end + HEADER_BYTES),
        };
        let time = catalog.time_of(header, record);
        if is_followed && self.is_near(time) {
            return Look::Record(Found {
                header,
                time,
                extra_bytes,
            });
        }
        self.look_closer(catalog, bytes, position, is_all)
    }

    /// Whether a record's time needs no further check; it then becomes the reference.
    #[inline]
    fn is_near(&mut self, time: Option<u64>) -> bool {
        match (time, self.near) {
            (None | Some(0 | u64::MAX), _) => true,
            (Some(time), Some(near)) if time.abs_diff(near) < NEAR => {
                self.near = Some(time);
                true
            }
            _ => false,
        }
    }

    /// Whether a time is near the last one, which makes it the one that others are compared with.
    #[inline]
    pub(super) fn continues(&mut self, time: u64) -> bool {
        let is_near = self.near.is_some_and(|near| time.abs_diff(near) < NEAR);
        let is_time = !matches!(time, 0 | u64::MAX);
        if is_near && is_time {
            self.near = Some(time);
        }
        is_near && is_time
    }

    #[cold]
    fn look_closer(
        &mut self,
        catalog: &Catalog,
        bytes: &[u8],
        position: u64,
        is_all: bool,
    ) -> Look {
        let endian = catalog.endian;
        let whole =
            possible(bytes, endian).and_then(|header| Some((header, bytes.get(..header.size)?)));
        let Some((header, record)) = whole else {
            return self.skip(catalog, bytes, position, is_all, 1);
        };
        let extra_bytes = extra_bytes(header, record, endian);
        let end = end_of(header, extra_bytes);
        let after = bytes.get(end..);
        let time = catalog.time_of(header, record);
        let found = Found {
            header,
            time,
            extra_bytes,
        };
        if let Some(after) = after
            && is_chain(after, endian, |bytes| possible(bytes, endian))
        {
            if self.is_near(time) || self.is_witnessed(catalog, time, after) {
                return Look::Record(found);
            }
            // A damaged size may cover other records.
            let inside = bytes.get(..end).unwrap_or(bytes);
            let next = (HEADER_BYTES..inside.len()).find(|&offset| {
                let rest = bytes.get(offset..).unwrap_or_default();
                plausible(rest, endian).is_some() && is_record_chain(catalog, rest)
            });
            let end = next.unwrap_or(end);
            return Look::Skip(Damage {
                bytes: end,
                message: format!(
                    "expected a record of about the same time, found {}; skipped {end} bytes",
                    time.unwrap_or(0)
                ),
            });
        }
        if !is_all && bytes.len() < SEARCH_BYTES {
            // Mostly only the next records are missing, of a recording that goes on.
            let more = (2 * bytes.len()).max(end + HEADER_BYTES);
            return Look::More(more.min(SEARCH_BYTES));
        }
        let next = self.next_chain(catalog, bytes, position, HEADER_BYTES);
        if after.is_none() && next.is_none() && extra_bytes > 0 {
            // Truncated: the available part is read.
            return Look::Record(found);
        }
        let is_inside = next.is_some_and(|next| next < end.saturating_add(HEADER_BYTES));
        if is_inside || after.is_none() || !self.is_sound(catalog, header, record, time) {
            return self.skip(catalog, bytes, position, is_all, HEADER_BYTES);
        }
        Look::Record(found)
    }

    /// Finds the next record.
    fn skip(
        &mut self,
        catalog: &Catalog,
        bytes: &[u8],
        position: u64,
        is_all: bool,
        from: usize,
    ) -> Look {
        if !is_all && bytes.len() < SEARCH_BYTES {
            return Look::More(SEARCH_BYTES);
        }
        let found = match RecordHeader::parse(bytes, catalog.endian) {
            None => "expected a record, found fewer bytes than its header has".to_owned(),
            Some(header) if header.size > bytes.len() && is_all => format!(
                "expected {} bytes of a record of type {}, found {} and the end",
                header.size,
                header.kind,
                bytes.len()
            ),
            Some(header) => format!(
                "expected a record, found type {} and size {}",
                header.kind, header.size
            ),
        };
        let (bytes, rest) = match self.next_chain(catalog, bytes, position, from) {
            Some(next) => (
                next,
                "skipped".to_owned() + &format!(" {next} bytes to the next record"),
            ),
            None if is_all => (
                bytes.len(),
                format!("the last {} bytes not read", bytes.len()),
            ),
            // A chain may begin in the last part, so that part is searched again.
            None => (
                SEARCH_BYTES / 2,
                format!("skipped {} bytes", SEARCH_BYTES / 2),
            ),
        };
        let message = format!("{found}; {rest}");
        Look::Skip(Damage { bytes, message })
    }

    /// Returns the offset in `bytes` of the first three plausible headers in a row, not before `from`.
    fn next_chain(
        &mut self,
        catalog: &Catalog,
        bytes: &[u8],
        position: u64,
        from: usize,
    ) -> Option<usize> {
        let start = position + from as u64;
        let end = position + bytes.len() as u64;
        let known = self.search;
        if known.from <= start
            && known
                .found
                .is_some_and(|found| found >= start && found < end)
        {
            return known.found.map(|found| (found - position) as usize);
        }
        // A part that was searched without success is skipped, except for a chain that may begin at its end.
        let from = match known.found {
            None if known.from <= start && known.until <= end => {
                let searched = known.until.saturating_sub(SEARCH_BYTES as u64 / 2);
                from.max(searched.saturating_sub(position) as usize)
            }
            _ => from,
        };
        let found = (from..bytes.len()).find(|&offset| {
            let bytes = bytes.get(offset..).unwrap_or_default();
            plausible(bytes, catalog.endian).is_some() && is_record_chain(catalog, bytes)
        });
        self.search = Search {
            from: start,
            found: found.map(|found| position + found as u64),
            until: end,
        };
        found
    }

    /// Whether the following records have times close to this one, or none that contradict it.
    fn is_witnessed(&mut self, catalog: &Catalog, time: Option<u64>, mut after: &[u8]) -> bool {
        let Some(time) = time else { return true };
        let mut others = Vec::new();
        for _ in 0..WITNESSES {
            let Some(header) = plausible(after, catalog.endian) else {
                break;
            };
            let Some(record) = after.get(..header.size) else {
                break;
            };
            if let Some(other) = catalog.time_of(header, record)
                && !matches!(other, 0 | u64::MAX)
            {
                others.push(other);
            }
            let end = end_of(header, extra_bytes(header, record, catalog.endian));
            after = after.get(end..).unwrap_or_default();
        }
        let is_one_near = others.iter().any(|other| other.abs_diff(time) < NEAR);
        let against = others
            .iter()
            .chain(&self.near)
            .zip(others.iter().skip(1).chain(&self.near))
            .any(|(one, other)| one.abs_diff(*other) < NEAR);
        let is_believed = match others.is_empty() {
            true => self.near.is_none_or(|near| time.abs_diff(near) < FAR),
            false => is_one_near || !against,
        };
        if is_believed {
            self.near = Some(time);
        }
        is_believed
    }

    /// Whether the members of a record next to damage are complete and plausible.
    fn is_sound(
        &self,
        catalog: &Catalog,
        header: RecordHeader,
        record: &[u8],
        time: Option<u64>,
    ) -> bool {
        if header.kind > kind::KERNEL_LAST {
            return true;
        }
        let is_timely = match (time, self.near) {
            (Some(time), Some(near)) if !matches!(time, 0 | u64::MAX) => time.abs_diff(near) < NEAR,
            _ => true,
        };
        let index = catalog.index_of(header, record);
        let Some(event) = index.and_then(|index| catalog.get(index)) else {
            return catalog.is_empty() && is_timely;
        };
        if header.kind == kind::SAMPLE {
            let mut body = record::body(record, 0, catalog.endian);
            let parsed = parse(&mut body, header.misc, &event.attr, &mut Lists::default());
            return is_timely && parsed.is_ok_and(|members| body.is_empty() && is_sane(&members));
        }
        let split = catalog.split(header, record, 0, Some(event));
        is_timely && split.is_ok_and(|(_, trailer)| is_sane_trailer(&trailer))
    }
}

/// Whether three records in a row begin here whose IDs belong to known events.
fn is_record_chain(catalog: &Catalog, bytes: &[u8]) -> bool {
    is_chain(bytes, catalog.endian, |bytes| {
        let header = plausible(bytes, catalog.endian)?;
        if header.kind == kind::SAMPLE
            && let Some(record) = bytes.get(..header.size)
            && !catalog.is_empty()
        {
            catalog.index_of(header, record)?;
        }
        Some(header)
    })
}

/// Returns the end of a record including the data that follows it.
fn end_of(header: RecordHeader, extra: u64) -> usize {
    header
        .size
        .saturating_add(usize::try_from(extra).unwrap_or(usize::MAX))
}

/// Whether CPU and thread of a sample are plausible.
pub(super) fn is_sane(members: &Members<'_>) -> bool {
    is_sane_place(members.cpu, members.pid, members.tid)
}

/// Whether CPU and thread of a trailer are plausible.
pub(super) fn is_sane_trailer(trailer: &Trailer) -> bool {
    is_sane_place(trailer.cpu, trailer.pid, trailer.tid)
}

/// The same of these members.
#[inline]
pub(super) fn is_sane_place(cpu: Option<u32>, pid: Option<i32>, tid: Option<i32>) -> bool {
    let is_thread = |tid: i32| (-1..TIDS_MAX).contains(&tid);
    cpu.is_none_or(|cpu| cpu < CPUS_MAX || cpu == u32::MAX)
        && pid.is_none_or(is_thread)
        && tid.is_none_or(is_thread)
}

fn is_chain(
    mut bytes: &[u8],
    endian: Endian,
    header_at: impl Fn(&[u8]) -> Option<RecordHeader>,
) -> bool {
    for taken in 0..CHAIN {
        if bytes.is_empty() {
            return true;
        }
        let Some(header) = header_at(bytes) else {
            return false;
        };
        let mut body = Cursor::new(bytes.get(HEADER_BYTES..).unwrap_or_default(), 0, endian);
        let extra = match header.kind {
            kind::AUXTRACE => body.u64().unwrap_or(0),
            // simpleperf writes the data inside the record, perf after it.
            kind::TRACING_DATA if header.size <= HEADER_BYTES + 8 => {
                body.u32().map_or(0, u64::from)
            }
            _ => 0,
        };
        let Some(after) = bytes.get(end_of(header, extra)..) else {
            // Truncated by the end of the file.
            return taken >= CHAIN - 1;
        };
        bytes = after;
    }
    true
}

/// Returns the header at the start, if it is plausible for perf or simpleperf.
#[inline]
pub(super) fn plausible(bytes: &[u8], endian: Endian) -> Option<RecordHeader> {
    let header = RecordHeader::parse(bytes, endian)?;
    let is_known = match header.kind {
        1..=kind::KERNEL_LAST => header.size.is_multiple_of(8) && header.misc & 0x0ff8 == 0,
        // Compressed data has any length; old versions of perf did not pad all records.
        kind::HEADER_ATTR..=kind::TOOL_LAST => {
            (header.size.is_multiple_of(4) || header.kind == kind::COMPRESSED)
                && header.misc & 0x0ff8 == 0
        }
        kind::KERNEL_SYMBOL..=kind::DEBUG => header.size < 1 << 24,
        _ => false,
    };
    let is_empty_allowed = matches!(
        header.kind,
        kind::FINISHED_ROUND | kind::FINISHED_INIT | kind::SPLIT_END
    );
    let least = if is_empty_allowed { HEADER_BYTES } else { 12 };
    (is_known && header.size >= least).then_some(header)
}

/// Returns the header at the start, if a later kernel or perf could have written it.
fn possible(bytes: &[u8], endian: Endian) -> Option<RecordHeader> {
    plausible(bytes, endian).or_else(|| {
        let header = RecordHeader::parse(bytes, endian)?;
        (matches!(header.kind, 1..=255) && header.size >= HEADER_BYTES).then_some(header)
    })
}

/// Whether three plausible records in a row begin here.
pub(super) fn is_plausible_chain(bytes: &[u8], endian: Endian) -> bool {
    is_chain(bytes, endian, |bytes| plausible(bytes, endian))
}

/// Offset of the first three plausible records in a row.
pub(super) fn chain_in(bytes: &[u8], endian: Endian) -> Option<usize> {
    (0..bytes.len()).find(|&offset| {
        let bytes = bytes.get(offset..).unwrap_or_default();
        plausible(bytes, endian).is_some() && is_plausible_chain(bytes, endian)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, size: u8) -> Vec<u8> {
        let mut bytes = vec![0; size.into()];
        bytes[0] = kind;
        bytes[6] = size;
        bytes
    }

    #[test]
    fn three_headers_in_a_row_are_accepted() {
        let mut bytes = vec![0xff; 27];
        bytes.extend(record(9, 16)); // by chance: no record follows
        bytes.extend([0xff; 16]);
        for _ in 0..3 {
            bytes.extend(record(9, 40));
        }
        bytes.extend([0xff; 8]);
        assert_eq!(chain_in(&bytes, Endian::Little), Some(59));
    }

    #[test]
    fn fewer_headers_are_accepted_at_the_end() {
        let mut bytes = vec![0; 32];
        bytes.extend(record(68, 8));
        assert_eq!(chain_in(&bytes, Endian::Little), Some(32));
        bytes.push(1);
        assert_eq!(chain_in(&bytes, Endian::Little), None);
    }

    #[test]
    fn records_of_later_perfs_are_accepted() {
        let header = |kind, size| possible(&record(kind, size), Endian::Little).is_some();
        assert!(header(9, 40) && header(90, 24) && header(30, 16));
        assert!(!header(0, 16));
        let mut short = record(9, 16);
        short[6] = 4;
        assert!(possible(&short, Endian::Little).is_none());
    }
}
