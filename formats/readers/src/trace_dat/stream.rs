//! The pages of one CPU → its events in their order, each with the stacks that belong to it.
//!
//! ```text
//! [page][page]…                               as they lie in the file, or
//! u32 chunks, { u32, u32, packed pages }…     unpacked one by one
//!
//! sched_switch  kernel_stack  sched_waking  …  →  sched_switch with its stack, sched_waking, …
//! ```
//! The kernel writes an event and then, as events of their own, the stacks requested of it. So one record is
//! read ahead: if it is a stack of the same thread in the same context, it belongs to the event at hand.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::event::Place;

use crate::trace_dat::clock::Clock;
use crate::trace_dat::formats::{Common, CommonFields, KnownIds, StackKind};
use crate::trace_dat::page::{Layout, Lost, Step, sound_bytes, step};
use crate::trace_dat::read::Teller;
use crate::trace_dat::unpack::{CHUNK_BYTES_MAX, Packing, Unpacker, is_packed_by};

/// Chunks that are unpacked at the same time, one of each CPU.
const CHUNKS_BYTES_MAX: usize = 256 << 20;

/// What a chunk begins with: its sizes.
const CHUNK_HEAD_BYTES: u64 = 8;
/// As many chunks as there are.
const UNCOUNTED: u32 = u32::MAX;
/// Bytes that the chunks of a CPU may take beyond the size that is told: the word that counts them, and a shift.
const END_BYTES: u64 = SHIFT_MAX + 4;
/// Bytes that are searched for the next chunk of packed pages.
const CHUNK_SEARCHED: usize = 4 << 20;
/// Bytes that a chunk may begin before its place.
const SHIFT_MAX: u64 = 8;

/// Where bytes of a record are: in the pages at hand, or in a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: usize,
    /// Shorter than a page.
    length: u32,
    copied: bool,
}

/// An event of the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// As the ring has it.
    pub(super) stamp: u64,
    pub(super) common: Common,
    pub(super) payload: Span,
    /// What is missing before it.
    pub(super) lost: Lost,
}

/// An event with what belongs to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) record: Record,
    /// Its time, or what stands in for one.
    pub(super) key: i64,
    pub(super) kernel_stack: Option<Span>,
    pub(super) user_stack: Option<Span>,
}

/// Where the pages come from.
enum Source<'m> {
    Plain,
    /// Chunks that are still to be unpacked.
    Packed {
        rest: Cursor<'m>,
        chunks: u32,
        /// Chunks of another CPU begin here.
        end: u64,
    },
}

/// What all streams of a file share.
pub(super) struct Ring {
    pub(super) layout: Layout,
    /// Reads what all payloads begin with.
    pub(super) common: CommonFields,
    /// Which events there are: others are damage.
    pub(super) known: KnownIds,
    /// One for all: zstd's own tables are large.
    pub(super) unpacker: RefCell<Unpacker>,
    /// Bytes of all chunks that are unpacked at the time.
    pub(super) unpacked_bytes: Cell<usize>,
}

impl Ring {
    /// Whether a payload can be an event's.
    #[inline]
    pub(super) fn is_known(&self, payload: &[u8]) -> bool {
        // More threads than any kernel numbers (PID_MAX_LIMIT, 2^22).
        const TIDS_MAX: i32 = 1 << 23;
        self.common
            .read(payload)
            .is_some_and(|common| self.known.has(common.id) && (-1..TIDS_MAX).contains(&common.tid))
    }
}

/// The events of one CPU.
pub(super) struct Stream<'m> {
    /// Name of its buffer; empty for the top one.
    pub(super) buffer_name: Rc<[u8]>,
    pub(super) cpu: Option<u32>,
    pub(super) clock: Clock,
    /// Events lost, as counted by the pages.
    pub(super) lost: u64,
    /// Events read.
    pub(super) events: u64,
    page_size: usize,
    source: Source<'m>,
    /// Pages at hand: a part of the map, or unpacked.
    plain: &'m [u8],
    unpacked: Vec<u8>,
    /// Offset in the file of the pages at hand; of the chunk, for unpacked ones.
    offset: u64,
    /// In the pages at hand: where the next page begins, what is left of this one.
    next_page: usize,
    position: usize,
    page_end: usize,
    time: u64,
    /// Tell this with the next event.
    pending_loss: Lost,
    pub(super) current: Option<Event>,
    ahead: Option<Record>,
    copies: Vec<u8>,
}

impl<'m> Stream<'m> {
    /// The events in `bytes`, which lie at `offset` of their file.
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
            source: Source::Plain,
            plain: bytes,
            unpacked: Vec::new(),
            offset,
            next_page: 0,
            position: 0,
            page_end: 0,
            time: 0,
            pending_loss: Lost::Nothing,
            current: None,
            ahead: None,
            copies: Vec::new(),
        }
    }

    /// The same, with the pages packed in chunks. `rest` begins with their number and may end after the last.
    /// `size` is what the file says of them, which is not the whole of it in all versions.
    pub(super) fn packed(
        mut self,
        mut rest: Cursor<'m>,
        size: u64,
        packing: Packing,
    ) -> Stream<'m> {
        let end = rest.offset().saturating_add(size).saturating_add(END_BYTES);
        // The number of chunks may be damaged: then they are counted by finding them.
        let most = size / CHUNK_HEAD_BYTES;
        let chunks = match rest.u32() {
            Ok(0) if most > 0 => UNCOUNTED,
            Ok(chunks) if u64::from(chunks) <= most || is_chunk(rest, packing) => chunks,
            Ok(_) => UNCOUNTED,
            Err(_) => 0,
        };
        self.plain = &[];
        self.source = Source::Packed { rest, chunks, end };
        self
    }

    /// The bytes of a span.
    #[inline]
    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        let from = match (span.copied, &self.source) {
            (true, _) => &self.copies,
            (false, Source::Plain) => self.plain,
            (false, Source::Packed { .. }) => &self.unpacked[..],
        };
        let rest = from.get(span.start..).unwrap_or_default();
        rest.get(..span.length as usize).unwrap_or_default()
    }

    /// Puts the next event with its stacks into `current`.
    #[inline]
    pub(super) fn advance(&mut self, ring: &Ring, tell: &mut Teller<'_>) -> Result<(), Error> {
        self.current = None;
        self.copies.clear();
        let record = match self.ahead.take() {
            Some(record) => record,
            None => match self.next(ring, tell)? {
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
        while let Some(following) = self.next(ring, tell)? {
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

    /// Takes the next record out of the pages.
    #[inline]
    fn next(&mut self, ring: &Ring, tell: &mut Teller<'_>) -> Result<Option<Record>, Error> {
        loop {
            if self.position >= self.page_end {
                if !self.turn_page(ring, tell)? {
                    return Ok(None);
                }
                continue;
            }
            let window = match self.source {
                Source::Plain => self.plain,
                Source::Packed { .. } => &self.unpacked[..],
            };
            let data = window.get(self.position..self.page_end).unwrap_or_default();
            let mut data =
                Cursor::new(data, self.offset + self.position as u64, ring.layout.endian);
            let taken = step(&mut data, self.time);
            let end = self.page_end - data.rest().len();
            match taken {
                Ok(Step::Event(time, payload)) => {
                    self.time = time;
                    self.position = end;
                    let Some(common) = ring.common.read(payload) else {
                        let found = payload.len();
                        tell.problem(self.place(), "event", || {
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
                    self.position = end;
                }
                Ok(Step::End) => self.position = self.page_end,
                Err(message) => {
                    tell.problem(self.place(), "event", || message)?;
                    self.position = self.page_end;
                }
            }
        }
    }

    #[cold]
    fn place(&self) -> Place {
        match self.source {
            Source::Plain => Place::Offset(self.offset + self.position as u64),
            Source::Packed { .. } => Place::Offset(self.offset),
        }
    }

    /// Goes to the next page. `false`: there is none.
    fn turn_page(&mut self, ring: &Ring, tell: &mut Teller<'_>) -> Result<bool, Error> {
        let window_length = match self.source {
            Source::Plain => self.plain.len(),
            Source::Packed { .. } => self.unpacked.len(),
        };
        if self.next_page >= window_length {
            return self.next_chunk(ring, tell);
        }
        let window = match self.source {
            Source::Plain => self.plain,
            Source::Packed { .. } => &self.unpacked[..],
        };
        let shift = ring
            .layout
            .shift(window, self.next_page, self.page_size, |payload| {
                ring.is_known(payload)
            });
        let start = self.next_page.saturating_add_signed(shift as isize);
        if shift != 0 {
            let place = Place::Offset(self.offset + self.next_page as u64);
            tell.problem(place, "page", || {
                format!("expected a page, found it {shift} bytes further on")
            })?;
        }
        let end = start.saturating_add(self.page_size).min(window_length);
        self.next_page = end;
        self.position = end;
        self.page_end = end;
        tell.progress((end - start) as u64)?;
        let window = match self.source {
            Source::Plain => self.plain,
            Source::Packed { .. } => &self.unpacked[..],
        };
        let page = window.get(start..end).unwrap_or_default();
        let offset = self.offset + start as u64;
        let place = match self.source {
            Source::Plain => Place::Offset(offset),
            Source::Packed { .. } => Place::Offset(self.offset),
        };
        let head = match ring.layout.head(page, offset, self.page_size as u64) {
            Ok(head) => head,
            Err(message) => {
                tell.problem(place, "page", || message)?;
                return Ok(true);
            }
        };
        let data = ring.layout.data_start() as usize;
        let used = head.used as usize;
        let found = page.len().saturating_sub(data);
        if used > found {
            tell.problem(place, "page", || {
                format!("cut short: expected {used} bytes of events, found {found}")
            })?;
        }
        // The kernel stamps a page with its first event.
        if head.time == 0 && used == 0 {
            tell.problem(place, "page", || {
                "page: expected the time of its first event, found zeros".into()
            })?;
            self.note(Lost::Some);
            return Ok(true);
        }
        self.time = head.time;
        self.position = start.saturating_add(data).min(end);
        self.page_end = (self.position + used.min(found)).min(end);
        let events = window.get(self.position..self.page_end).unwrap_or_default();
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
            let place = match self.source {
                Source::Plain => Place::Offset(offset + (data + sound) as u64),
                Source::Packed { .. } => Place::Offset(self.offset),
            };
            tell.problem(place, "event", || {
                format!("page: expected an event, found other bytes; the last {left} bytes of its events are not read")
            })?;
            self.page_end = self.position + sound;
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

    /// What is missing after the last event.
    pub(super) fn lost_at_end(&self) -> Lost {
        self.pending_loss
    }

    /// Unpacks the next chunk. `false`: there is none.
    fn next_chunk(&mut self, ring: &Ring, tell: &mut Teller<'_>) -> Result<bool, Error> {
        self.copy_current();
        let Source::Packed { rest, chunks, end } = &mut self.source else {
            return Ok(false);
        };
        let others = ring.unpacked_bytes.get() - self.unpacked.capacity();
        self.unpacked.clear();
        (self.next_page, self.position, self.page_end) = (0, 0, 0);
        while *chunks > 0 {
            *chunks -= 1;
            self.offset = rest.offset();
            let place = Place::Offset(self.offset);
            let packing = ring.unpacker.borrow().packing();
            if let Some(skipped) = skip_to_chunk(rest, *end, packing) {
                tell.problem(place, "chunk", || {
                    format!("expected a chunk of pages, found the next one after {skipped} bytes")
                })?;
                self.offset = rest.offset();
                *chunks = UNCOUNTED;
            }
            if *chunks > UNCOUNTED / 2
                && rest.offset() + CHUNK_HEAD_BYTES > end.saturating_sub(END_BYTES)
            {
                break;
            }
            let place = Place::Offset(self.offset);
            let chunk = match take_chunk(rest, *chunks, packing) {
                Ok(chunk) => chunk,
                Err((message, last)) => {
                    tell.problem(place, "chunk", || message)?;
                    // Another may follow inside of what this one seemed to be.
                    let mut behind = *rest;
                    if skip_to_chunk(&mut behind, *end, packing).is_some() {
                        *rest = behind;
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
                tell.problem(place, "chunk", || {
                    format!(
                        "expected a chunk of at most {room} bytes, found {}",
                        chunk.bytes
                    )
                })?;
                continue;
            }
            let bytes = u64::from(chunk.bytes);
            let mut unpacker = ring.unpacker.borrow_mut();
            if let Err(message) = unpacker.unpack(chunk.data, bytes, &mut self.unpacked) {
                tell.problem(place, "chunk", || format!("chunk of pages: {message}"))?;
            }
            if !self.unpacked.is_empty() {
                ring.unpacked_bytes.set(others + self.unpacked.capacity());
                return Ok(true);
            }
        }
        self.unpacked = Vec::new();
        ring.unpacked_bytes.set(others);
        Ok(false)
    }

    /// Keeps the bytes of the event at hand when its pages go.
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

/// A chunk of packed pages.
#[derive(Clone, Copy, Default)]
struct Chunk<'m> {
    data: &'m [u8],
    /// Unpacked.
    bytes: u32,
}

/// Whether a chunk begins here: sizes that can be, and the packer's magic after them.
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
        && u64::from(bytes) <= CHUNK_BYTES_MAX
}

/// How far from `start` the number of chunks is that should be there: 0, unless a byte is lost or doubled.
pub(super) fn shift_of_chunks(bytes: &[u8], start: usize, endian: Endian, packing: Packing) -> i64 {
    let is_there = |shift: i64| {
        let first = (start as u64 + 4).checked_add_signed(shift);
        let rest = first.and_then(|first| bytes.get(first as usize..));
        rest.is_some_and(|rest| is_chunk(Cursor::new(rest, 0, endian), packing))
    };
    if is_there(0) {
        return 0;
    }
    let shifts = (1..=SHIFT_MAX as i64).flat_map(|shift| [-shift, shift]);
    shifts
        .into_iter()
        .find(|&shift| is_there(shift))
        .unwrap_or(0)
}

/// Goes to the next chunk if none begins here, and says how many bytes that were; `None`: one begins here, or there is
/// none at all, or the file ends.
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

/// Takes a chunk after which so many `more` should follow; what is there of the last one comes with the message.
///
/// Where the next one begins inside of this one, or some bytes after it, a byte is lost or doubled: the search finds it.
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
                    .bytes(u64::from(packed_bytes).saturating_sub(SHIFT_MAX))
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
