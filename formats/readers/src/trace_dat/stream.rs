//! The pages of one CPU → its events in order, each with its stacks.
//!
//! ```text
//! [page][page]…                               as stored in the file, or
//! u32 chunks, { u32, u32, packed pages }…     unpacked one by one
//!
//! sched_switch  kernel_stack  sched_waking  …  →  sched_switch with its stack, sched_waking, …
//! ```
//! The kernel writes an event and then, as separate events, its stacks. So the stream reads one record ahead: a stack
//! of the same thread in the same context belongs to the current event.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::event::Place;

use crate::trace_dat::budget::{Budget, either_way};
use crate::trace_dat::clock::Clock;
use crate::trace_dat::formats::{Common, CommonFields, KnownIds, StackKind};
use crate::trace_dat::page::{Layout, Lost, Step, sound_bytes, step};
use crate::trace_dat::regions::DRIFT_MAX;
use crate::trace_dat::reporter::Reporter;
use crate::trace_dat::unpack::{CHUNK_BYTES_MAX, Packing, Unpacker, is_packed_by};

/// The size of a chunk's pages is a multiple of this.
const PAGE_UNIT: u32 = 64;
/// Maximum size of the chunks unpacked at the same time, one per CPU.
const CHUNKS_BYTES_MAX: usize = 256 << 20;

/// Size of a chunk's head.
const CHUNK_HEAD_BYTES: u64 = 8;
/// The number of chunks is unknown.
const UNCOUNTED: u32 = u32::MAX;
/// Bytes that a CPU's chunks may have beyond the stated size: the word that counts them, and a shift.
const END_BYTES: u64 = 12;
/// Bytes searched for the next chunk of packed pages.
const CHUNK_SEARCHED: usize = 4 << 20;

/// A byte range of a record, in the current pages or in a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: usize,
    /// Less than a page.
    length: u32,
    copied: bool,
}

/// An event of the ring buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// The ring buffer's timestamp.
    pub(super) stamp: u64,
    pub(super) common: Common,
    pub(super) payload: Span,
    /// Events lost before it.
    pub(super) lost: Lost,
}

/// An event with its stacks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) record: Record,
    /// The time, or the sort key that replaces it.
    pub(super) key: i64,
    pub(super) kernel_stack: Option<Span>,
    pub(super) user_stack: Option<Span>,
}

/// The source of the pages.
enum Source<'m> {
    Plain,
    /// Chunks not unpacked yet.
    Packed {
        rest: Cursor<'m>,
        chunks: u32,
        /// Offset of another CPU's chunks.
        end: u64,
    },
}

/// Shared state of all streams of a file.
pub(super) struct Ring {
    pub(super) layout: Layout,
    /// Reads the common fields of all payloads.
    pub(super) common: CommonFields,
    /// The events that exist: others are damage.
    pub(super) known: KnownIds,
    /// Shared, because zstd's own tables are large.
    pub(super) unpacker: RefCell<Unpacker>,
    /// Limits the search for pages in damaged files.
    pub(super) budget: Budget,
    /// Total size of the chunks currently unpacked.
    pub(super) unpacked_bytes: Cell<usize>,
}

impl Ring {
    /// Whether a payload can be that of an event.
    #[inline]
    pub(super) fn is_known(&self, payload: &[u8]) -> bool {
        // Above any TID the kernel assigns (PID_MAX_LIMIT, 2^22).
        const TIDS_MAX: i32 = 1 << 23;
        self.common
            .read(payload)
            .is_some_and(|common| self.known.has(common.id) && (-1..TIDS_MAX).contains(&common.tid))
    }
}

/// The current pages, and the position in them.
struct Pages<'m> {
    /// The pages: a part of the map, or unpacked.
    plain: &'m [u8],
    unpacked: Vec<u8>,
    /// Offset in the file of the pages, or of their chunk.
    offset: u64,
    /// Offset of the page after this one.
    next: usize,
    /// The rest of this page.
    position: usize,
    end: usize,
}

/// The events of one CPU.
pub(super) struct Stream<'m> {
    /// Name of the buffer; empty for the top-level one.
    pub(super) buffer_name: Rc<[u8]>,
    pub(super) cpu: Option<u32>,
    pub(super) clock: Clock,
    /// Number of events lost, as counted in the pages.
    pub(super) lost: u64,
    /// Number of events read.
    pub(super) events: u64,
    page_size: usize,
    /// Distance by which the pages of the next CPU are moved against these.
    drift: i64,
    source: Source<'m>,
    pages: Pages<'m>,
    time: u64,
    /// Loss to report with the next event.
    pending_loss: Lost,
    pub(super) current: Option<Event>,
    ahead: Option<Record>,
    copies: Vec<u8>,
}

impl<'m> Stream<'m> {
    /// A stream of the events in `bytes`, which are at `offset` in their file.
    pub(super) fn new(
        buffer_name: Rc<[u8]>,
        cpu: Option<u32>,
        clock: Clock,
        page_size: usize,
        bytes: &'m [u8],
        offset: u64,
    ) -> Stream<'m> {
        Stream {
            buffer_name,
            cpu,
            clock,
            lost: 0,
            events: 0,
            page_size,
            drift: 0,
            source: Source::Plain,
            pages: Pages {
                plain: bytes,
                unpacked: Vec::new(),
                offset,
                next: 0,
                position: 0,
                end: 0,
            },
            time: 0,
            pending_loss: Lost::Nothing,
            current: None,
            ahead: None,
            copies: Vec::new(),
        }
    }

    /// Bytes of the pages up to the next one.
    pub(super) fn bytes_read(&self) -> u64 {
        self.pages.next as u64
    }

    /// The same stream, in a file where bytes of these pages are lost or duplicated.
    pub(super) fn drifting(self, drift: i64) -> Stream<'m> {
        Stream { drift, ..self }
    }

    /// A stream of pages packed into chunks. `rest` begins with their number and may end after the last. `size` is the
    /// size stated in the file, which in some versions omits a part.
    pub(super) fn packed(
        mut self,
        mut rest: Cursor<'m>,
        size: u64,
        packing: Packing,
    ) -> Stream<'m> {
        let end = rest.offset().saturating_add(size).saturating_add(END_BYTES);
        // The number of chunks may be damaged: then they are counted by searching.
        let most = size / CHUNK_HEAD_BYTES;
        let chunks = match rest.u32() {
            Ok(0) if most > 0 => UNCOUNTED,
            Ok(chunks) if u64::from(chunks) <= most || is_chunk(rest, packing) => chunks,
            Ok(_) => UNCOUNTED,
            Err(_) => 0,
        };
        self.pages.plain = &[];
        self.source = Source::Packed { rest, chunks, end };
        self
    }

    /// The bytes of a span.
    #[inline]
    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        let from = match (span.copied, &self.source) {
            (true, _) => &self.copies,
            (false, Source::Plain) => self.pages.plain,
            (false, Source::Packed { .. }) => &self.pages.unpacked[..],
        };
        let rest = from.get(span.start..).unwrap_or_default();
        rest.get(..span.length as usize).unwrap_or_default()
    }

    /// Moves to the next event and its stacks, in `current`.
    #[inline]
    pub(super) fn advance(
        &mut self,
        ring: &Ring,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Error> {
        self.current = None;
        self.copies.clear();
        let record = match self.ahead.take() {
            Some(record) => record,
            None => match self.next(ring, reporter)? {
                Some(record) => record,
                None => return Ok(()),
            },
        };
        self.current = Some(Event {
            record,
            key: self.clock.key(record.stamp, self.cpu.unwrap_or(u32::MAX)),
            kernel_stack: None,
            user_stack: None,
        });
        while let Some(following) = self.next(ring, reporter)? {
            let Some(event) = &mut self.current else {
                break;
            };
            let belongs = following.lost == Lost::Nothing && following.common.is_of(&record.common);
            let slot = match ring.common.stack_kind(following.common.id) {
                Some(StackKind::Kernel) if belongs => &mut event.kernel_stack,
                Some(StackKind::User) if belongs => &mut event.user_stack,
                _ => {
                    self.ahead = Some(following);
                    break;
                }
            };
            if slot.is_some() {
                self.ahead = Some(following);
                break;
            }
            *slot = Some(following.payload);
        }
        Ok(())
    }

    /// Takes the next record from the pages.
    #[inline]
    fn next(&mut self, ring: &Ring, reporter: &mut Reporter<'_>) -> Result<Option<Record>, Error> {
        loop {
            if self.pages.position >= self.pages.end {
                if !self.turn_page(ring, reporter)? {
                    return Ok(None);
                }
                continue;
            }
            let window = match self.source {
                Source::Plain => self.pages.plain,
                Source::Packed { .. } => &self.pages.unpacked[..],
            };
            let data = window
                .get(self.pages.position..self.pages.end)
                .unwrap_or_default();
            let mut data = Cursor::new(
                data,
                self.pages.offset + self.pages.position as u64,
                ring.layout.endian,
            );
            let taken = step(&mut data, self.time);
            let end = self.pages.end - data.rest().len();
            match taken {
                Ok(Step::Event(time, payload)) => {
                    self.time = time;
                    self.pages.position = end;
                    let Some(common) = ring.common.read(payload) else {
                        let found = payload.len();
                        reporter.problem(self.place(), "event", || {
                            format!("event: expected a type and a thread, found {found} bytes")
                        })?;
                        continue;
                    };
                    self.events += 1;
                    return Ok(Some(Record {
                        stamp: time,
                        common,
                        payload: Span {
                            start: end - payload.len(),
                            length: payload.len() as u32,
                            copied: false,
                        },
                        lost: std::mem::take(&mut self.pending_loss),
                    }));
                }
                Ok(Step::Time(time)) => {
                    self.time = time;
                    self.pages.position = end;
                }
                Ok(Step::End) => self.pages.position = self.pages.end,
                Err(message) => {
                    reporter.problem(self.place(), "event", || message)?;
                    self.pages.position = self.pages.end;
                }
            }
        }
    }

    #[cold]
    fn place(&self) -> Place {
        match self.source {
            Source::Plain => Place::Offset(self.pages.offset + self.pages.position as u64),
            Source::Packed { .. } => Place::Offset(self.pages.offset),
        }
    }

    /// The place of an offset: that of its chunk, if the pages are compressed.
    fn place_at(&self, offset: u64) -> Place {
        match self.source {
            Source::Plain => Place::Offset(offset),
            Source::Packed { .. } => Place::Offset(self.pages.offset),
        }
    }

    /// Moves to the next page. Returns `false` if there is none.
    fn turn_page(&mut self, ring: &Ring, reporter: &mut Reporter<'_>) -> Result<bool, Error> {
        let window_length = match self.source {
            Source::Plain => self.pages.plain.len(),
            Source::Packed { .. } => self.pages.unpacked.len(),
        };
        if self.pages.next >= window_length {
            return self.next_chunk(ring, reporter);
        }
        let window = match self.source {
            Source::Plain => self.pages.plain,
            Source::Packed { .. } => &self.pages.unpacked[..],
        };
        let search = (self.drift, &ring.budget);
        let shift = ring
            .layout
            .shift(window, self.pages.next, self.page_size, search, |payload| {
                ring.is_known(payload)
            });
        let start = self.pages.next.saturating_add_signed(shift as isize);
        if shift != 0 {
            // The distance is that of the pages from now on.
            self.drift = 0;
            let place = Place::Offset(self.pages.offset + self.pages.next as u64);
            reporter.problem(place, "page", || {
                format!("expected a page, found it {shift} bytes further on")
            })?;
        }
        let end = start.saturating_add(self.page_size).min(window_length);
        self.pages.next = end;
        self.pages.position = end;
        self.pages.end = end;
        reporter.progress((end - start) as u64)?;
        let window = match self.source {
            Source::Plain => self.pages.plain,
            Source::Packed { .. } => &self.pages.unpacked[..],
        };
        let page = window.get(start..end).unwrap_or_default();
        let offset = self.pages.offset + start as u64;
        let place = self.place_at(offset);
        let head = match ring.layout.head(page, offset, self.page_size as u64) {
            Ok(head) => head,
            Err(message) => {
                reporter.problem(place, "page", || message)?;
                return Ok(true);
            }
        };
        let data = ring.layout.data_start() as usize;
        let used = head.used as usize;
        let is_repeated = is_repeated(window, (start, end), data + used)
            && clock_runs(page, data..data + used, head.time, ring.layout.endian);
        if is_repeated {
            return reporter
                .problem(place, "page", || {
                    "page: the next one begins with the same events; this one is not read".into()
                })
                .map(|()| true);
        }
        let found = page.len().saturating_sub(data);
        if used > found {
            reporter.problem(place, "page", || {
                format!("cut short: expected {used} bytes of events, found {found}")
            })?;
        }
        // The kernel stamps a page with the time of its first event.
        if head.time == 0 && used == 0 {
            reporter.problem(place, "page", || {
                "page: expected the time of its first event, found zeros".into()
            })?;
            self.note(Lost::Some);
            return Ok(true);
        }
        self.time = head.time;
        self.pages.position = start.saturating_add(data).min(end);
        self.pages.end = (self.pages.position + used.min(found)).min(end);
        let events = window
            .get(self.pages.position..self.pages.end)
            .unwrap_or_default();
        let next = window.get(end..).unwrap_or_default();
        let next = ring.layout.head(next, 0, self.page_size as u64).ok();
        let sound = sound_bytes(
            events,
            head.time,
            ring.layout.endian,
            next.map(|head| head.time),
            |payload| ring.is_known(payload),
        );
        let left = events.len() - sound;
        self.note(head.lost);
        if left > 0 {
            let place = self.place_at(offset + (data + sound) as u64);
            reporter.problem(place, "event", || {
                format!("page: expected an event, found other bytes; the last {left} bytes of its events are not read")
            })?;
            self.pages.end = self.pages.position + sound;
            self.note(Lost::Some);
        }
        Ok(true)
    }

    fn note(&mut self, lost: Lost) {
        if let Lost::Count(count) = lost {
            self.lost = self.lost.saturating_add(count);
        }
        self.pending_loss = match (self.pending_loss, lost) {
            (known, Lost::Nothing) => known,
            (Lost::Count(known), Lost::Count(count)) => Lost::Count(known.saturating_add(count)),
            (Lost::Count(known), Lost::Some) => Lost::Count(known),
            (_, lost) => lost,
        };
    }

    /// The loss after the last event.
    pub(super) fn lost_at_end(&self) -> Lost {
        self.pending_loss
    }

    /// Unpacks the next chunk. Returns `false` if there is none.
    fn next_chunk(&mut self, ring: &Ring, reporter: &mut Reporter<'_>) -> Result<bool, Error> {
        self.copy_current();
        let Source::Packed { rest, chunks, end } = &mut self.source else {
            return Ok(false);
        };
        let others = ring.unpacked_bytes.get() - self.pages.unpacked.capacity();
        self.pages.unpacked.clear();
        (self.pages.next, self.pages.position, self.pages.end) = (0, 0, 0);
        while *chunks > 0 {
            *chunks -= 1;
            self.pages.offset = rest.offset();
            let place = Place::Offset(self.pages.offset);
            let packing = ring.unpacker.borrow().packing();
            if let Some(skipped) = skip_to_chunk(rest, *end, packing) {
                reporter.problem(place, "chunk", || {
                    format!("expected a chunk of pages, found the next one after {skipped} bytes")
                })?;
                self.pages.offset = rest.offset();
                *chunks = UNCOUNTED;
            }
            if *chunks > UNCOUNTED / 2
                && rest.offset() + CHUNK_HEAD_BYTES > end.saturating_sub(END_BYTES)
            {
                break;
            }
            let place = Place::Offset(self.pages.offset);
            let chunk = match take_chunk(rest, *chunks, packing) {
                Ok(chunk) => chunk,
                Err((message, last)) => {
                    reporter.problem(place, "chunk", || message)?;
                    // Another chunk may begin inside this false one.
                    let mut after = *rest;
                    if skip_to_chunk(&mut after, *end, packing).is_some() {
                        *rest = after;
                    } else {
                        *chunks = 0;
                    }
                    last
                }
            };
            let room = CHUNKS_BYTES_MAX
                .saturating_sub(others)
                .min(CHUNK_BYTES_MAX as usize);
            if chunk.bytes as usize > room {
                reporter.problem(place, "chunk", || {
                    format!(
                        "expected a chunk of at most {room} bytes, found {}",
                        chunk.bytes
                    )
                })?;
                continue;
            }
            let bytes = u64::from(chunk.bytes);
            let mut unpacker = ring.unpacker.borrow_mut();
            if let Err(message) = unpacker.unpack(chunk.data, bytes, &mut self.pages.unpacked) {
                reporter.problem(place, "chunk", || format!("chunk of pages: {message}"))?;
            }
            if !self.pages.unpacked.is_empty() {
                ring.unpacked_bytes
                    .set(others + self.pages.unpacked.capacity());
                return Ok(true);
            }
        }
        self.pages.unpacked = Vec::new();
        ring.unpacked_bytes.set(others);
        Ok(false)
    }

    /// Copies the bytes of the current event before its pages are released.
    #[cold]
    fn copy_current(&mut self) {
        let Some(mut event) = self.current else {
            return;
        };
        let mut copies = std::mem::take(&mut self.copies);
        let spans = [
            Some(&mut event.record.payload),
            event.kernel_stack.as_mut(),
            event.user_stack.as_mut(),
        ];
        for span in spans.into_iter().flatten() {
            if !span.copied {
                let start = copies.len();
                copies.extend_from_slice(self.bytes(*span));
                *span = Span {
                    start,
                    length: span.length,
                    copied: true,
                };
            }
        }
        self.copies = copies;
        self.current = Some(event);
    }
}

/// Bytes of two consecutive pages that are compared.
const COMPARED: usize = 96;

/// Whether the next page begins with the same bytes: a part of the file is there twice, and this page has a piece of
/// another one.
fn is_repeated(window: &[u8], (start, end): (usize, usize), used: usize) -> bool {
    let length = used.min(COMPARED);
    let here = window.get(start..start.saturating_add(length));
    let next = window.get(end..end.saturating_add(length));
    here.is_some() && here == next
}

/// Whether the time changes within the compared bytes: then no other page can have the same times and events. It does not early in a
/// boot, when all times are 0, and with a coarse clock.
fn clock_runs(page: &[u8], events: Range<usize>, time: u64, endian: Endian) -> bool {
    let events = events.start..events.end.min(COMPARED);
    let mut events = Cursor::new(page.get(events).unwrap_or_default(), 0, endian);
    let mut is_first = true;
    loop {
        match step(&mut events, time) {
            Ok(Step::Event(at, _) | Step::Time(at)) if at == time => is_first = false,
            Ok(Step::Event(..) | Step::Time(_)) => return true,
            // The last event may extend beyond the compared bytes, and so may the first one, if it is large.
            Ok(Step::End) | Err(_) => return is_first && time > 0,
        }
    }
}

/// A chunk of packed pages.
#[derive(Clone, Copy, Default)]
struct Chunk<'m> {
    data: &'m [u8],
    /// Size after unpacking.
    bytes: u32,
}

/// Whether a chunk begins here: plausible sizes, followed by the magic of the compression.
fn is_chunk(mut cursor: Cursor<'_>, packing: Packing) -> bool {
    let (Ok(packed_bytes), Ok(bytes)) = (cursor.u32(), cursor.u32()) else {
        return false;
    };
    if matches!(packing, Packing::None | Packing::Other) {
        return true;
    }
    is_packed_by(cursor.rest(), packing)
        && packed_bytes > 0
        && bytes > 0
        && bytes.is_multiple_of(PAGE_UNIT)
        && u64::from(bytes) <= CHUNK_BYTES_MAX
}

/// Whether the number of chunks, and then a chunk, is at this offset.
pub(super) fn are_chunks(
    bytes: &[u8],
    start: Option<u64>,
    endian: Endian,
    packing: Packing,
) -> bool {
    let first = start.and_then(|start| usize::try_from(start.checked_add(4)?).ok());
    let rest = first.and_then(|first| bytes.get(first..));
    rest.is_some_and(|rest| is_chunk(Cursor::new(rest, 0, endian), packing))
}

/// Distance from `start` to the number of chunks expected there: 0, unless bytes are lost or duplicated. It is below `room`: what is
/// further away may belong to another CPU.
pub(super) fn shift_of_chunks(
    bytes: &[u8],
    start: u64,
    (endian, packing): (Endian, Packing),
    (room, budget): (u64, &Budget),
) -> i64 {
    /// What has this size could be a chunk by chance.
    const NEAR_MAX: i64 = 8;
    const COUNT_MAX: u32 = 1 << 20;
    let is_there = |shift: i64| are_chunks(bytes, start.checked_add_signed(shift), endian, packing);
    if is_there(0) {
        return 0;
    }
    let near = either_way(1..=NEAR_MAX);
    if let Some(near) = near.into_iter().find(|&shift| is_there(shift)) {
        return near;
    }
    if matches!(packing, Packing::None | Packing::Other) {
        return 0;
    }
    // Their number is possible, and another chunk follows the first one, unless it is the only one.
    let is_whole = |shift: i64| {
        let start = start.checked_add_signed(shift);
        let rest = start.and_then(|start| bytes.get(usize::try_from(start).ok()?..));
        let Some(mut rest) = rest.map(|rest| Cursor::new(rest, 0, endian)) else {
            return false;
        };
        let count = rest.u32().unwrap_or(0);
        let packed_bytes = rest.u32().unwrap_or(0);
        let is_possible = (1..=COUNT_MAX).contains(&count);
        let after = rest.u32().and_then(|_| rest.bytes(packed_bytes.into()));
        is_possible && after.is_ok() && (count == 1 || is_chunk(rest, packing))
    };
    let room = i64::try_from(room).unwrap_or(DRIFT_MAX).min(DRIFT_MAX);
    let far = either_way(NEAR_MAX + 1..room);
    far.into_iter()
        .take_while(|_| budget.take(16))
        .find(|&shift| is_there(shift) && is_whole(shift))
        .unwrap_or(0)
}

/// Moves to the next chunk if none begins here, and returns the number of bytes skipped. Returns `None` if one begins
/// here, if there is none, or at the end of the file.
fn skip_to_chunk(rest: &mut Cursor<'_>, end: u64, packing: Packing) -> Option<i64> {
    if rest.left() < 8 || is_chunk(*rest, packing) {
        return None;
    }
    let bytes = rest.rest();
    let endian = rest.endian();
    let searched = end.saturating_sub(rest.offset());
    let searched = bytes.len().min(CHUNK_SEARCHED).min(searched as usize);
    let skipped = (1..searched).find(|&skipped| {
        let rest = bytes.get(skipped..).unwrap_or_default();
        is_chunk(Cursor::new(rest, 0, endian), packing)
    })?;
    rest.bytes(skipped as u64).ok()?;
    Some(skipped as i64)
}

/// Takes a chunk that this many `more` should follow. The available part of the last chunk comes with the message.
///
/// If the next chunk begins inside this one, or a few bytes after it, a byte was lost or duplicated: a search finds the
/// chunk.
fn take_chunk<'m>(
    rest: &mut Cursor<'m>,
    more: u32,
    packing: Packing,
) -> Result<Chunk<'m>, (String, Chunk<'m>)> {
    let (packed_bytes, bytes) = match (rest.u32(), rest.u32()) {
        (Ok(packed_bytes), Ok(bytes)) => (packed_bytes, bytes),
        (Err(short), _) | (_, Err(short)) => {
            let more = more + 1;
            let message = format!("cut short: expected {more} more chunks of pages: {short}");
            return Err((message, Chunk::default()));
        }
    };
    let found = rest.left();
    let start = *rest;
    match rest.bytes(packed_bytes.into()) {
        Ok(data) => {
            // A lost byte: the next chunk begins before this one ends.
            let mut before = start;
            if more > 0
                && rest.left() >= 8
                && !is_chunk(*rest, packing)
                && before
                    .bytes(u64::from(packed_bytes).saturating_sub(DRIFT_MAX as u64))
                    .is_ok()
                && let Some(_) = skip_to_chunk(&mut before, rest.offset() + 1, packing)
                && before.offset() <= rest.offset()
            {
                *rest = before;
            }
            Ok(Chunk { data, bytes })
        }
        Err(_) => {
            let message = format!(
                "cut short: expected a chunk of {packed_bytes} bytes and {more} more, found {found} bytes"
            );
            let data = rest.rest();
            Err((message, Chunk { data, bytes }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_with_equal_times_are_not_repeated() {
        let page = |deltas: &[u32]| -> Vec<u8> {
            let events = deltas.iter().map(|delta| delta << 5 | 1);
            let words = events.flat_map(|head| [head, 7]);
            words.flat_map(u32::to_le_bytes).collect()
        };
        let runs = |deltas: &[u32], time| {
            let page = page(deltas);
            clock_runs(&page, 0..page.len(), time, Endian::Little)
        };
        assert!(runs(&[0, 3, 0], 5));
        assert!(!runs(&[0, 0, 0], 5));
        assert!(!runs(&[0; 40], 0));
        // An event of 28 words does not end within the compared bytes.
        let large = [28_u32.to_le_bytes(), [0; 4]].concat();
        assert!(clock_runs(&large, 0..120, 5, Endian::Little));
        assert!(!clock_runs(&large, 0..120, 0, Endian::Little));
    }
}
