//! Pages of the kernel's ring buffer, and the events in them.
//!
//! ```text
//! u64 time   long commit   data…                    at the offsets in header_page
//! commit     bits 0–26: bytes of data used; bit 31: events were lost before this page; bit 30: their number follows
//!            the data, as a long
//! event      u32 head: 5 bits length or kind, 27 bits time since the event before
//!   0        u32 length (these four bytes included), payload
//!   1 … 28   payload of four times as many bytes
//!   29       padding: to the end of the page if the time is 0; else u32 length to skip
//!   30       u32: time since the event before, bits 27 and up
//!   31       u32: timestamp, bits 27 to 58; the upper five are those of the preceding timestamp
//! ```
//! On a big-endian host, the five bits are the upper ones. Source: include/linux/ring_buffer.h, `enum
//! ring_buffer_type`.

use std::ops::Range;

use perfquet_events::bytes::{Cursor, Endian, Short};

use crate::trace_dat::budget::{Budget, either_way};

const USED_MASK: u64 = (1 << 27) - 1;
const LOST: u64 = 1 << 31;
const LOST_COUNT_STORED: u64 = 1 << 30;
/// Bits that an absolute timestamp lacks.
const TIME_HIGH: u64 = 0xf8 << 56;

/// The layout of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) endian: Endian,
    time: u64,
    commit: u64,
    /// Size of the kernel's `long`.
    pub(super) long_size: u8,
    data: u64,
    /// Size of a page in bytes as stated by the kernel, head included; 0 if not given.
    pub(super) page_size: u64,
}

impl Layout {
    /// Parses `header_page`; missing values default to those of all kernels so far.
    pub(super) fn parse(header_page: &[u8], endian: Endian, long_size: u8) -> Layout {
        let mut layout = Layout {
            endian,
            time: 0,
            commit: 8,
            long_size,
            data: 8 + u64::from(long_size),
            page_size: 0,
        };
        let text = String::from_utf8_lossy(header_page);
        for line in text.lines() {
            let Some((name, offset, size)) = field(line) else {
                continue;
            };
            match name {
                "timestamp" => layout.time = offset,
                "commit" => {
                    layout.commit = offset;
                    layout.long_size = if size == 4 { 4 } else { 8 };
                    layout.data = offset + size;
                }
                "data" => {
                    layout.data = offset;
                    layout.page_size = offset.saturating_add(size);
                }
                _ => {}
            }
        }
        layout
    }

    /// Bytes before the data.
    pub(super) fn data_start(&self) -> u64 {
        self.data
    }

    /// Parses the head of the page at the start of `page`. `size` is that of a whole page.
    pub(super) fn head(&self, page: &[u8], offset: u64, size: u64) -> Result<Head, String> {
        let at = |place: u64| {
            let rest = usize::try_from(place)
                .ok()
                .and_then(|place| page.get(place..));
            Cursor::new(rest.unwrap_or_default(), offset + place, self.endian)
        };
        let long = |mut cursor: Cursor<'_>| match self.long_size {
            4 => cursor.u32().map(u64::from),
            _ => cursor.u64(),
        };
        let text = |short: Short| format!("page: {short}");
        let time = at(self.time).u64().map_err(text)?;
        let mut commit = long(at(self.commit)).map_err(text)?;
        // The kernel adds its flag (1 << 31), an int, to a long, which sets all higher bits too (ring_buffer.c).
        if commit & LOST != 0 && commit >> 32 == u64::from(u32::MAX) {
            commit &= u64::from(u32::MAX);
        }
        if commit & !(USED_MASK | LOST | LOST_COUNT_STORED) != 0 {
            return Err(format!(
                "page: expected the bytes it uses, found {commit:#x}"
            ));
        }
        let used = commit & USED_MASK;
        let room = size.saturating_sub(self.data);
        if used > room {
            return Err(format!(
                "page: expected at most {room} bytes of events, found {used}"
            ));
        }
        let lost = match commit & (LOST | LOST_COUNT_STORED) {
            LOST => Lost::Some,
            flags if flags & LOST != 0 => match long(at(self.data + used)) {
                Ok(count) => Lost::Count(count),
                Err(_) => Lost::Some,
            },
            _ => Lost::Nothing,
        };
        Ok(Head { time, used, lost })
    }
}

/// `field: local_t commit; offset:8; size:8; signed:1;`, with tabs between.
fn field(line: &str) -> Option<(&str, u64, u64)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';');
    let name = parts.next()?.rsplit([' ', '\t']).next()?;
    let (mut offset, mut size) = (None, None);
    for part in parts {
        if let Some((key, value)) = part.trim().split_once(':') {
            match key {
                // Larger than any page: a hostile number must not overflow a sum.
                "offset" => offset = value.parse().ok().filter(|&value: &u64| value < 1 << 32),
                "size" => size = value.parse().ok().filter(|&value: &u64| value < 1 << 32),
                _ => {}
            }
        }
    }
    Some((name, offset?, size?))
}

/// Head of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) time: u64,
    /// Bytes of events.
    pub(super) used: u64,
    pub(super) lost: Lost,
}

/// Number of events lost before a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Lost {
    #[default]
    Nothing,
    /// Some; the number is not given.
    Some,
    /// This many.
    Count(u64),
}

/// The next item in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// An event, with its timestamp.
    Event(u64, &'a [u8]),
    /// A time advance, or skipped bytes.
    Time(u64),
    /// The rest of the page is empty.
    End,
}

/// Parses the next item of a page, after an event with the timestamp `time`.
#[inline(always)]
pub(super) fn step<'a>(data: &mut Cursor<'a>, time: u64) -> Result<Step<'a>, String> {
    let head = data.u32().map_err(cut)?;
    let (kind, delta) = match data.endian() {
        Endian::Little => (head & 31, head >> 5),
        Endian::Big => (head >> 27, head & ((1 << 27) - 1)),
    };
    let delta = u64::from(delta);
    let after = time.wrapping_add(delta);
    match kind {
        1..=28 => {
            let payload = data.bytes(u64::from(kind) * 4).map_err(cut)?;
            Ok(Step::Event(after, payload))
        }
        0 => {
            let length = u64::from(data.u32().map_err(cut)?);
            if length < 4 {
                return Err(format!(
                    "event: expected a length of 4 or more, found {length}"
                ));
            }
            let payload = data.bytes((length - 4).next_multiple_of(4)).map_err(cut)?;
            Ok(Step::Event(after, payload))
        }
        29 if delta == 0 => Ok(Step::End),
        29 => {
            // The length includes its own four bytes.
            let length = u64::from(data.u32().map_err(cut)?);
            data.bytes(length.saturating_sub(4)).map_err(cut)?;
            Ok(Step::Time(after))
        }
        30 => {
            let high = u64::from(data.u32().map_err(cut)?) << 27;
            Ok(Step::Time(time.wrapping_add(high + delta)))
        }
        _ => {
            let high = u64::from(data.u32().map_err(cut)?) << 27;
            Ok(Step::Time((high + delta) | time & TIME_HIGH))
        }
    }
}

/// Distance of a page from its expected offset, in bytes, up to which a valid page alone is believed.
const SHIFT_MAX: i64 = 8;
/// Maximum plausible gap between two pages: a hundred days.
const GAP_MAX: u64 = 8_640_000_000_000_000;

/// Number of readable bytes in a page's events: all of them, or those before the damage. Times are relative to the
/// preceding event, so no event after the damage has a known time. The last event before the damage is dropped too,
/// since it may have lost a byte.
///
/// `is_known` returns whether the file describes a payload. An unknown payload is accepted if the events fill the page
/// and their times lead up to `next_time`, that of the next page.
pub(super) fn sound_bytes(
    data: &[u8],
    time: u64,
    endian: Endian,
    next_time: Option<u64>,
    is_known: impl Fn(&[u8]) -> bool,
) -> usize {
    let mut cursor = Cursor::new(data, 0, endian);
    let (mut now, mut before) = (time, 0);
    // Readable bytes if the unknown event turns out to be damage.
    let mut unknown = None;
    while !cursor.is_empty() {
        let here = data.len() - cursor.rest().len();
        match step(&mut cursor, now) {
            Ok(Step::Event(at, payload)) if at.abs_diff(time) < GAP_MAX => {
                if unknown.is_none() && !is_known(payload) {
                    unknown = Some(before);
                }
                now = at;
            }
            Ok(Step::Time(at)) if at.abs_diff(time) < GAP_MAX => now = at,
            Ok(Step::End) => break,
            _ => return unknown.unwrap_or(before),
        }
        before = here;
    }
    match (unknown, next_time) {
        (None, _) => data.len(),
        (Some(_), Some(next)) if now <= next => data.len(),
        (Some(before), _) => before,
    }
}

impl Layout {
    /// Whether a page may begin here: its head and its events are valid.
    pub(super) fn is_page(&self, page: &[u8], size: u64, is_known: impl Fn(&[u8]) -> bool) -> bool {
        let Ok(head) = self.head(page, 0, size) else {
            return false;
        };
        let data = page.get(self.data as usize..).unwrap_or_default();
        let data = data.get(..head.used as usize).unwrap_or(data);
        let sound = sound_bytes(data, head.time, self.endian, None, is_known);
        head.used > 0 && head.time > 0 && sound == data.len()
    }

    /// Distance from `start` to the page expected there: 0, unless bytes are lost or duplicated. `drift` is the distance
    /// by which the file's end has moved.
    pub(super) fn shift(
        &self,
        bytes: &[u8],
        start: usize,
        size: usize,
        (drift, budget): (i64, &Budget),
        is_known: impl Fn(&[u8]) -> bool,
    ) -> i64 {
        let is_there = |shift: i64| {
            let start = (start as u64).checked_add_signed(shift);
            let rest = start.and_then(|start| bytes.get(start as usize..));
            let page = rest.map(|rest| rest.get(..size).unwrap_or(rest));
            page.is_some_and(|page| self.is_page(page, size as u64, &is_known))
        };
        if is_there(0) {
            return 0;
        }
        let whole = size as i64;
        if drift != 0 && drift > -whole && is_there(drift) {
            return drift;
        }
        let near = either_way(1..=SHIFT_MAX);
        if let Some(near) = near.into_iter().find(|&shift| is_there(shift)) {
            return near;
        }
        // Damaged where it is: the next one is in its place.
        if bytes.len() <= start.saturating_add(size) || is_there(whole) {
            return 0;
        }
        // Anywhere up to the next page, if another follows it.
        let is_followed = |shift: i64| {
            let end = (start as u64).checked_add_signed(shift + whole);
            end.is_none_or(|end| end >= bytes.len() as u64) || is_there(shift + whole)
        };
        let far = either_way(SHIFT_MAX + 1..whole);
        let is_head = |shift: i64| {
            let start = (start as u64).checked_add_signed(shift);
            let page = start.and_then(|start| bytes.get(start as usize..));
            let head = page.and_then(|page| self.head(page, 0, size as u64).ok());
            head.is_some_and(|head| head.used > 0 && head.time > 0 && budget.take(head.used))
        };
        let found = far
            .into_iter()
            .find(|&shift| is_head(shift) && is_there(shift) && is_followed(shift));
        found.unwrap_or(0)
    }
}

/// The time of the last event of a page; `None` if it is damaged.
pub(super) fn end_time(page: &[u8], size: usize, layout: &Layout) -> Option<u64> {
    let head = layout.head(page, 0, size as u64).ok()?;
    let data = page.get(layout.data_start() as usize..)?;
    let data = data.get(..head.used as usize).unwrap_or(data);
    let mut data = Cursor::new(data, 0, layout.endian);
    let mut last = head.time;
    while !data.is_empty() {
        match step(&mut data, last) {
            Ok(Step::Event(time, _) | Step::Time(time)) => last = time,
            Ok(Step::End) => break,
            Err(_) => return None,
        }
    }
    Some(last)
}

/// Splits a sequence of pages where time goes back: there the pages of another CPU begin.
pub(super) fn runs(
    bytes: &[u8],
    page_size: usize,
    layout: &Layout,
    budget: &Budget,
    is_known: impl Fn(&[u8]) -> bool,
) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let (mut start, mut last, mut next) = (0, 0, 0);
    while next < bytes.len() {
        let shift = layout.shift(bytes, next, page_size, (0, budget), &is_known);
        let here = next.saturating_add_signed(shift as isize);
        next = here.saturating_add(page_size.max(1));
        let page = bytes.get(here..).unwrap_or_default();
        let page = page.get(..page_size).unwrap_or(page);
        let Ok(head) = layout.head(page, 0, page_size as u64) else {
            continue;
        };
        if head.time < last && here > start {
            runs.push(start..here);
            start = here;
        }
        last = end_time(page, page_size, layout).unwrap_or(head.time);
    }
    if start < bytes.len() {
        runs.push(start..bytes.len());
    }
    runs
}

#[cold]
fn cut(short: Short) -> String {
    format!("event: {short}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_64: &[u8] = b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    #[test]
    fn layouts() {
        let layout = Layout::parse(HEADER_64, Endian::Little, 4);
        assert_eq!(
            (layout.long_size, layout.data, layout.page_size),
            (8, 16, 4096)
        );
        let text =
            String::from_utf8_lossy(HEADER_64).replace("offset:8;\tsize:8", "offset:8;\tsize:4");
        let text = text.replace("offset:16;\tsize:4080", "offset:12;\tsize:4084");
        let layout = Layout::parse(text.as_bytes(), Endian::Big, 8);
        assert_eq!(
            (layout.long_size, layout.data, layout.page_size),
            (4, 12, 4096)
        );
        let layout = Layout::parse(
            b"field: x data; offset:99999999999; size:1;",
            Endian::Little,
            8,
        );
        assert_eq!((layout.data, layout.page_size), (16, 0));
    }

    #[test]
    fn heads() {
        let layout = Layout::parse(HEADER_64, Endian::Little, 8);
        let head = |commit: u64| {
            let mut page = 7u64.to_le_bytes().to_vec();
            page.extend(commit.to_le_bytes());
            page.extend([1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
            layout.head(&page, 0, 4096)
        };
        let lost = |commit| head(commit).map(|head| (head.used, head.lost));
        assert_eq!(lost(4), Ok((4, Lost::Nothing)));
        assert_eq!(lost(4 | LOST), Ok((4, Lost::Some)));
        let sign = 0xffff_ffff << 32;
        assert_eq!(lost(4 | LOST | sign), Ok((4, Lost::Some)));
        assert!(lost(4 | sign).is_err());
        assert_eq!(lost(4 | LOST | LOST_COUNT_STORED), Ok((4, Lost::Count(9))));
        // Truncated before the count.
        assert_eq!(lost(12 | LOST | LOST_COUNT_STORED), Ok((12, Lost::Some)));
        assert!(head(4081).is_err());
        assert!(layout.head(&[0; 15], 0, 4096).is_err());
    }

    fn words(words: &[u32], endian: Endian) -> Vec<u8> {
        let bytes = |word: &u32| match endian {
            Endian::Little => word.to_le_bytes(),
            Endian::Big => word.to_be_bytes(),
        };
        words.iter().flat_map(bytes).collect()
    }

    fn all(bytes: &[u8], endian: Endian) -> Vec<(u64, usize)> {
        let mut data = Cursor::new(bytes, 0, endian);
        let mut time = 1 << 60;
        let mut events = Vec::new();
        while !data.is_empty() {
            match step(&mut data, time).unwrap() {
                Step::Event(at, payload) => {
                    events.push((at - (1 << 60), payload.len()));
                    time = at;
                }
                Step::Time(at) => time = at,
                Step::End => break,
            }
        }
        events
    }

    #[test]
    fn all_kinds_in_both_orders() {
        for endian in [Endian::Little, Endian::Big] {
            let head = |kind: u32, delta: u32| match endian {
                Endian::Little => kind | delta << 5,
                Endian::Big => kind << 27 | delta,
            };
            let bytes = words(
                &[
                    head(1, 5),
                    0, // 5: four bytes
                    head(0, 1),
                    9,
                    0,
                    0, // 6: five bytes, as eight
                    head(30, 2),
                    1, // + 2 + 2^27
                    head(2, 0),
                    0,
                    0, // eight bytes
                    head(29, 3),
                    8,
                    0, // discarded; its time still advances
                    head(1, 0),
                    0,
                    head(31, 40),
                    2, // absolute: 40 + 2^28
                    head(1, 1),
                    0,
                    head(29, 0),
                    0,
                    0,
                    0,
                ],
                endian,
            );
            let extended = (1 << 27) + 8;
            let expected = [
                (5, 4),
                (6, 8),
                (extended, 8),
                (extended + 3, 4),
                ((1 << 28) + 41, 4),
            ];
            assert_eq!(all(&bytes, endian), expected);
        }
    }

    #[test]
    fn short_events_are_errors() {
        for bytes in [
            &[1, 0, 0, 0][..],
            &[0, 0, 0, 0, 3, 0, 0, 0],
            &[30, 0, 0, 0, 1],
        ] {
            let mut data = Cursor::new(bytes, 0, Endian::Little);
            step(&mut data, 0).unwrap_err();
        }
    }
}
