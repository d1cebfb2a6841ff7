//! The pages of one CPU → its events in their order, each with the stacks that belong to it.
//!
//! ```text
//! [page][page]…                               as they lie in the file, or
//! u32 chunks, { u32, u32, packed pages }…     unpacked one by one
//!
//! sched_switch  kernel_stack  sched_waking  …  →  sched_switch with its stack, sched_waking, …
//! ```
//! The kernel writes an event and then, as events of their own, the stacks that it was asked for. So one record is
//! read ahead: if it is a stack of the same thread in the same context, it belongs to the event at hand.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::Error;
use crate::bytes::Cursor;
use crate::event::Place;
use crate::trace_dat::clock::Clock;
use crate::trace_dat::formats::{Common, CommonFields, StackKind};
use crate::trace_dat::page::{Layout, Lost, Step, step};
use crate::trace_dat::read::Teller;
use crate::trace_dat::unpack::{CHUNK_BYTES_MAX, Unpacker};

/// Chunks that are unpacked at the same time, one of each CPU.
const CHUNKS_BYTES_MAX: usize = 256 << 20;

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
    },
}

/// What all streams of a file share.
pub(super) struct Ring {
    pub(super) layout: Layout,
    /// Reads what all payloads begin with.
    pub(super) common: CommonFields,
    /// One for all: zstd's own tables are large.
    pub(super) unpacker: RefCell<Unpacker>,
    /// Bytes of all chunks that are unpacked at the time.
    pub(super) unpacked_bytes: Cell<usize>,
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

    /// The same, with the pages packed in chunks. `rest` begins with their number and may end behind the last.
    pub(super) fn packed(mut self, mut rest: Cursor<'m>) -> Stream<'m> {
        let chunks = rest.u32().unwrap_or(0);
        self.plain = &[];
        self.source = Source::Packed { rest, chunks };
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
        let start = self.next_page;
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
        self.time = head.time;
        self.position = start.saturating_add(data).min(end);
        self.page_end = (self.position + used.min(found)).min(end);
        self.note(head.lost);
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

    /// What is missing behind the last event.
    pub(super) fn lost_at_end(&self) -> Lost {
        self.pending_loss
    }

    /// Unpacks the next chunk. `false`: there is none.
    fn next_chunk(&mut self, ring: &Ring, tell: &mut Teller<'_>) -> Result<bool, Error> {
        self.copy_current();
        let Source::Packed { rest, chunks } = &mut self.source else {
            return Ok(false);
        };
        let others = ring.unpacked_bytes.get() - self.unpacked.capacity();
        self.unpacked.clear();
        (self.next_page, self.position, self.page_end) = (0, 0, 0);
        while *chunks > 0 {
            *chunks -= 1;
            self.offset = rest.offset();
            let place = Place::Offset(self.offset);
            let chunk = match take_chunk(rest, *chunks) {
                Ok(chunk) => chunk,
                Err((message, last)) => {
                    *chunks = 0;
                    tell.problem(place, "chunk", || message)?;
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

/// Takes a chunk behind which so many `more` should follow; what is there of the last one comes with the message.
fn take_chunk<'m>(rest: &mut Cursor<'m>, more: u32) -> Result<Chunk<'m>, (String, Chunk<'m>)> {
    let (packed_bytes, bytes) = match (rest.u32(), rest.u32()) {
        (Ok(packed_bytes), Ok(bytes)) => (packed_bytes, bytes),
        (Err(short), _) | (_, Err(short)) => {
            let more = more + 1;
            let message = format!("cut short: expected {more} more chunks of pages: {short}");
            return Err((message, Chunk::default()));
        }
    };
    let found = rest.left();
    match rest.bytes(packed_bytes.into()) {
        Ok(data) => Ok(Chunk { data, bytes }),
        Err(_) => {
            let message = format!(
                "cut short: expected a chunk of {packed_bytes} bytes and {more} more, found {found} bytes"
            );
            let data = rest.rest();
            Err((message, Chunk { data, bytes }))
        }
    }
}
