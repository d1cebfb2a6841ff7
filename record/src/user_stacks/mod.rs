//! User stacks, between the rings and the journal: copied stack memory is unwound, and walks recorded by a program in
//! the kernel are joined with their samples. The journal has call chains in either case, with 8 bytes per frame.
//!
//! ```text
//! ring   sample { …, callchain: kernel, registers, 32 KiB of stack }                 →  sample { …, callchain: kernel, user }
//! ring   perfquet:walk { addresses }, sample { …, callchain: kernel }                 →  sample { …, callchain: kernel, user }
//! ring   perfquet:walk { registers, 32 KiB of stack }, sample { …, callchain: kernel } →  sample { …, callchain: kernel, user }
//! ring   perfquet:walk { registers, 36 KiB of stack }, perfquet:walk { 32 KiB more }, …, sample { … }                →  the same
//! ```
//! A walk directly precedes its sample in the ring of the CPU, because both are written by one hit. If one of them was
//! lost, the kernel writes a LOST record before the next record. A user stack whose outer frames are missing ends with
//! a second PERF_CONTEXT_USER.
//!
//! Programs that aggregate by stack walk it in the same way; where a table or list is missing, they follow frame pointers and
//! ask for it by a record of their own ([`RECORD_MISS`]).
//!
//! With `--call-graph auto,check`, a copy precedes each walk, and the frames of the two are compared ([`check`]).
//!
//! Stacks are unwound with the address spaces as of each sample: records of all rings are sorted by time, and the
//! newest records wait until the mappings up to their time have been read.

mod builder;
mod caches;
mod check;
mod counts;
mod first;
mod held;
mod hotspot;
mod interpreters;
mod renewal;
mod sample;
mod spaces;
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use perfquet_ebpf::walk_tables::WalkEnd;
use perfquet_ebpf::walker::{
    CopyRoom, RECORD_COPY, RECORD_MISS, RECORD_PIECE, RECORD_PYTHON, RECORD_RUBY, RECORD_V8,
    RECORD_WALK,
};
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_trace::symbols::limits::WAITING_BYTES_MAX;
use perfquet_trace::symbols::{Roots, Unwound};

use crate::bpf::OWN_RECORDS;
use crate::journal::record::{self, kind};
use crate::recording::{Recording, Track, WALK};
use crate::sieve::Stitcher;
use crate::sys::ring::Ring;
use held::Held;
use interpreters::Interpreters;
use renewal::Renewal;
use sample::{Layout, Rewriter, WalkHead};
use spaces::Spaces;
use tables::Tables;

pub(crate) use counts::Counts;
pub(crate) use first::First;
pub(crate) use tables::{Walking, load};

/// Maximum time until the record of a mapping is visible in its ring.
const SETTLED_NS: u64 = 1_000_000;
/// Time between passes. A new process is walked from the pass after its first sample on; until then its samples are copied.
const WHILE_WALKING: Duration = Duration::from_millis(50);
/// While processes start and map files.
const WHILE_CHANGING: Duration = Duration::from_millis(10);
const WHILE_COPYING: Duration = Duration::from_millis(2);
/// Time after the start in which a command maps its files, whose list must soon be complete.
const STARTING: Duration = Duration::from_millis(300);
/// Divisors: shares of a ring for copies, and for the further records of deep stacks, until the ring is read.
const COPIES_PART: u64 = 2;
const PIECES_PART: u64 = 4;
/// Most walks of a ring that wait for their samples; a lost sample leaves one until its loss is read.
const MOST_PENDING: usize = 64;
/// Larger buffers are shrunk after a burst.
const KEPT_BYTES: usize = 1 << 20;
/// Records of a pass, mostly: room for so many is allocated at once.
const RECORDS: usize = 1 << 8;
/// Copies that are unwound before the rings are looked at again: the first one through a file reads its rules.
const COPIES_AT_ONCE: u64 = 1;

/// The stage between the rings and the journal.
pub(crate) struct UserStacks {
    /// All events, by identifier: a few, of which every record has one.
    events: BTreeMap<u64, RingEvent>,
    walk_ids: Vec<u64>,
    /// Events whose records may be requests of aggregating programs.
    own_ids: Vec<u64>,
    rings: Vec<RingState>,
    side_band: Stitcher,
    /// Side-band records that are newer than the samples so far, with their times.
    waiting: Vec<(u64, Vec<u8>)>,
    spaces: Spaces,
    tables: Option<Tables>,
    rewriter: Rewriter,
    /// `None` if stacks have no interpreted functions.
    interpreters: Option<Interpreters>,
    deepest: usize,
    counts: Counts,
    /// Whether address spaces changed, as seen by the last pass.
    has_changes: bool,
    /// Whether stacks were copied that could not be walked, as seen by the last pass.
    has_copies: bool,
    renewal: Renewal,
    /// A copy with its pieces, allocated once.
    copy: Vec<u8>,
    /// Who waits for what is loaded first.
    loading: Option<Sender<()>>,
    /// When the start is over.
    starting_until: Option<Instant>,
}

/// An event whose samples are in the rings.
#[derive(Clone, Copy)]
struct RingEvent {
    /// Whether an address precedes the thread.
    has_ip: bool,
    /// `None` if its samples stay as they are.
    layout: Option<Layout>,
    /// Offset of the number of addresses in the call chain, if its samples have one at a fixed offset.
    chain_at: Option<usize>,
}

/// The records of a ring that have not been written.
#[derive(Default)]
struct RingState {
    stitcher: Stitcher,
    /// Whole records.
    bytes: Vec<u8>,
    /// Walks whose samples have not been read, with their threads, latest last: rarely more than one.
    pending: Vec<(i32, Held)>,
    /// Interpreted frames of walks that have not been read, by thread.
    interpreted: HashMap<i32, Vec<u8>>,
}

/// A record that can be written: during a burst, there are hundreds of thousands.
struct Due {
    time: u64,
    ring: u32,
    /// In the bytes of the ring.
    start: u32,
    end: u32,
    /// Index of what is joined with it; past the end if nothing is.
    joined: u32,
    /// Where the addresses of the sample before it are, which may have interrupted it; empty if it has none.
    before: (u32, u32),
}

/// What is joined with a sample.
#[derive(Default)]
struct Joined {
    /// The sample's walk.
    walk: Option<Held>,
    /// The interpreted frames recorded with it.
    interpreted: Option<Vec<u8>>,
    /// A copy of the walked stack, to check the walk.
    check: Option<Held>,
}

const NOTHING: u32 = u32::MAX;

impl UserStacks {
    /// Creates the stage for a recording; `None` if no event's user stacks are walked or copied.
    pub(crate) fn of(
        recording: &Recording,
        rings: &[Ring],
        walking: Option<Walking>,
        roots: &Roots,
        has_interpreters: bool,
    ) -> Option<UserStacks> {
        let tracks = recording.of_threads().chain(&recording.outputs);
        let events: BTreeMap<u64, RingEvent> = tracks
            .flat_map(|track| {
                let event = RingEvent {
                    has_ip: track.has_ip(),
                    layout: Layout::of(track),
                    chain_at: sample::chain_at(track.attr.sample_type),
                };
                track.events.iter().map(move |opened| (opened.id, event))
            })
            .collect();
        if walking.is_none() && events.values().all(|event| event.layout.is_none()) {
            return None;
        }
        let walk = recording.output(WALK);
        let ids_of = |track: Option<&Track>| -> Vec<u64> {
            let opened = track.iter().flat_map(|track| &track.events);
            opened.map(|opened| opened.id).collect()
        };
        let first = walk.and_then(|track| track.events.first());
        let interpreters = first
            .filter(|_| has_interpreters)
            .map(|opened| Interpreters::new(opened.id));
        let ring_bytes = rings.iter().map(Ring::size_bytes).min().unwrap_or(0);
        let room = CopyRoom {
            copies: ring_bytes / COPIES_PART,
            pieces: ring_bytes / PIECES_PART,
        };
        Some(UserStacks {
            events,
            walk_ids: ids_of(walk),
            own_ids: ids_of(recording.output(OWN_RECORDS)),
            rings: rings.iter().map(|_| RingState::default()).collect(),
            side_band: Stitcher::default(),
            waiting: Vec::new(),
            spaces: Spaces::new(roots),
            tables: walking.map(|walking| Tables::start(walking, room)),
            rewriter: Rewriter::default(),
            interpreters,
            deepest: recording.deepest.map_or(usize::MAX, usize::from),
            counts: Counts::default(),
            has_changes: false,
            has_copies: false,
            renewal: Renewal::new(room),
            copy: Vec::new(),
            loading: None,
            starting_until: None,
        })
    }

    /// Applies the records of what exists, which have been added.
    pub(crate) fn apply_existing(&mut self) {
        let (existing, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(time, _)| *time == 0);
        self.waiting = later;
        let existing: Vec<(u64, Vec<u8>)> = existing;
        for (_, record) in &existing {
            self.apply(record);
        }
    }

    /// Loads tables and lists of processes that exist and of a command that waits. The command starts when they are loaded.
    pub(crate) fn load_first(&mut self, first: First, command: Option<i32>) {
        let Some(tables) = &mut self.tables else {
            return;
        };
        for file in first.files {
            let number = self
                .spaces
                .add_file(&file.path, file.identity, file.generation);
            tables.load_file(number);
        }
        for pid in first.pids {
            tables.load(pid, &mut self.spaces);
        }
        if let Some(pid) = command {
            tables.expect(pid);
        }
        self.loading = Some(first.loaded);
    }

    /// Tells who waits that what is loaded first is there.
    fn tell_loaded(&mut self) {
        let are_building = self.tables.as_ref().is_some_and(Tables::are_building);
        if let Some(loading) = self.loading.take_if(|_| !are_building) {
            self.starting_until = Instant::now().checked_add(STARTING);
            // Whoever has waited too long has gone.
            let _ = loading.send(());
        }
    }

    /// Adds a chunk of the side-band, or of the records of the initial state.
    pub(crate) fn side_band(&mut self, piece: &[u8]) {
        let waiting = &mut self.waiting;
        self.side_band.feed(piece, |record| {
            if let Some(time) = spaces::time_of(record) {
                waiting.push((time, record.to_vec()));
            }
        });
    }

    /// Adds a chunk of a ring of events.
    pub(crate) fn events(&mut self, ring: usize, piece: &[u8]) {
        if let Some(state) = self.rings.get_mut(ring) {
            let bytes = &mut state.bytes;
            let events = &self.events;
            state.stitcher.feed(piece, |record| {
                // The kernel reserves room for the longest copy; most stacks are shorter.
                let is_shortened = Endian::Little.u32_at(record, 0) == Some(kind::SAMPLE)
                    && record::sample_id(record)
                        .and_then(|id| events.get(&id)?.layout)
                        .filter(Layout::has_copies)
                        .is_some_and(|layout| sample::put_filled(record, &layout, bytes));
                if !is_shortened {
                    bytes.extend_from_slice(record);
                }
            });
        }
    }

    /// Returns the time until the next pass. Earlier tables and lists mean fewer copies.
    pub(crate) fn soonest(&self) -> Option<Duration> {
        let tables = self.tables.as_ref()?;
        let is_starting = self.starting_until.is_some_and(|end| Instant::now() < end);
        Some(
            match self.has_copies || tables.is_waiting() || is_starting {
                true => WHILE_COPYING,
                false if self.has_changes => WHILE_CHANGING,
                false => WHILE_WALKING,
            },
        )
    }

    /// Logs the results, and returns the counts.
    pub(crate) fn finish(mut self) -> Counts {
        if let Some(interpreters) = self.interpreters {
            self.counts.interpreted = interpreters.counts;
            self.counts.javascript = interpreters.javascript;
        }
        if let Some(tables) = &mut self.tables {
            self.counts.generated = tables.take_generated();
        }
        if let Some(tables) = &self.tables {
            for end in WalkEnd::ALL {
                let count = tables.ended(Some(end));
                match end {
                    WalkEnd::NoTable | WalkEnd::NoList => self.counts.by_frame_pointers += count,
                    _ => self.counts.aggregated.add_many(unwound(end), count),
                }
            }
            self.counts.by_frame_pointers += tables.ended(None);
        }
        log::info!("user stacks {}", self.counts.text());
        for (module, reason) in self.spaces.missing() {
            log::info!("stacks through {module} may be cut: {reason}");
        }
        if let Some(tables) = self.tables {
            tables.finish();
        }
        self.counts
    }

    /// Allows more copies, after the rings were read.
    pub(crate) fn rings_were_read(&mut self, bytes: u64) {
        let waiting = self.waiting_bytes();
        if let Some(tables) = &mut self.tables
            && let Some(room) = self.renewal.after(bytes, waiting, self.rings.len())
        {
            tables.renew_copy_room(room);
        }
    }

    /// Returns whether more records can be read while others wait.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting_bytes() < WAITING_BYTES_MAX
    }

    fn waiting_bytes(&self) -> u64 {
        self.rings
            .iter()
            .map(|state| state.bytes.len() as u64)
            .sum()
    }

    /// Appends the records that can be written to `out`. All records before `now` have been read from the rings.
    ///
    /// Unwinding copies can take longer than a ring lasts, on a slow or busy host, or while the files of many programs
    /// are read for the first time: `refill` is called in between, to read the rings. What it reads waits for the next
    /// pass.
    pub(crate) fn pass(
        &mut self,
        now: Option<u64>,
        out: &mut Vec<u8>,
        refill: &mut dyn FnMut(&mut UserStacks),
    ) {
        let limit = now.map_or(u64::MAX, |now| now.saturating_sub(SETTLED_NS));
        self.has_copies = false;
        self.has_changes = !self.waiting.is_empty();
        let (mut due, joined) = self.due(limit);
        due.sort_by_key(|record| record.time);
        self.waiting.sort_by_key(|(time, _)| *time);
        let mut side_band = std::mem::take(&mut self.waiting).into_iter().peekable();
        let mut refill_at = self.copies() + COPIES_AT_ONCE;
        for record in &due {
            while let Some((_, bytes)) = side_band.next_if(|(time, _)| *time <= record.time) {
                self.apply(&bytes);
            }
            self.write(record, joined.get(record.joined as usize), out);
            if self.copies() >= refill_at {
                refill(self);
                refill_at = self.copies() + COPIES_AT_ONCE;
            }
        }
        for (time, bytes) in side_band {
            match time <= limit {
                true => self.apply(&bytes),
                false => self.waiting.push((time, bytes)),
            }
        }
        let mut ends = vec![0u32; self.rings.len()];
        for record in &due {
            let end = &mut ends[record.ring as usize];
            *end = record.end.max(*end);
        }
        for (state, end) in self.rings.iter_mut().zip(ends) {
            let bytes = &mut state.bytes;
            for (_, held) in &mut state.pending {
                held.keep(bytes);
            }
            bytes.drain(..end as usize);
            if bytes.capacity() > KEPT_BYTES && bytes.len() < KEPT_BYTES {
                bytes.shrink_to(KEPT_BYTES);
            }
        }
        if let Some(tables) = &mut self.tables {
            tables.publish(&mut self.spaces, self.interpreters.as_mut(), limit);
        }
        self.tell_loaded();
    }

    /// Number of copies unwound so far.
    fn copies(&self) -> u64 {
        self.counts.copied.complete + self.counts.copied.cut() + self.counts.checks.all()
    }

    fn apply(&mut self, record: &[u8]) {
        let changed = self.spaces.apply(record);
        let is_mapping = Endian::Little.u32_at(record, 0) == Some(kind::MMAP2);
        if let (Some(pid), Some(interpreters)) = (changed, &mut self.interpreters) {
            match is_mapping {
                true => interpreters.retry(pid),
                false => interpreters.forget(pid),
            }
        }
        if let (Some(pid), Some(tables)) = (changed, &mut self.tables) {
            if !is_mapping {
                tables.forget(pid);
            }
            tables.changed(pid);
        }
    }

    /// Returns the records of all rings up to a time, and what is joined with them. A record without a timestamp has that of the
    /// previous record.
    fn due(&mut self, limit: u64) -> (Vec<Due>, Vec<Joined>) {
        // Less than 4 GiB are read from the rings.
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let mut due = Vec::with_capacity(RECORDS);
        let mut all_joined = Vec::with_capacity(RECORDS);
        for (ring, state) in self.rings.iter_mut().enumerate() {
            let mut start = 0;
            let mut time = 0;
            let mut before = (0, 0);
            while let Some(record) = state.bytes.get(start..)
                && let Some(size) = crate::sieve::size_of_record(record)
                && let Some(record) = record.get(..size)
            {
                let end = start + size;
                let head = Head::of(record, &self.events);
                time = head.time.map_or(time, |own| own.max(time));
                if time > limit {
                    break;
                }
                let mut joined = Joined::default();
                match head.kind {
                    kind::LOST => {
                        state.pending.clear();
                        state.interpreted.clear();
                    }
                    kind::SAMPLE if self.walk_ids.contains(&head.id) => {
                        let payload = record.get(WALK_PAYLOAD..).unwrap_or_default();
                        let range = (end - payload.len(), end);
                        match Endian::Little.u32_at(payload, 0) {
                            Some(RECORD_PYTHON | RECORD_RUBY | RECORD_V8) => {
                                state.interpreted.insert(head.tid, payload.to_vec());
                            }
                            Some(RECORD_PIECE) => {
                                let mut walks = state.pending.iter_mut().rev();
                                if let Some((_, copy)) = walks.find(|(tid, _)| *tid == head.tid) {
                                    copy.add(range);
                                }
                            }
                            kind => {
                                let is_copy = kind == Some(RECORD_COPY);
                                self.has_copies |= is_copy;
                                self.renewal.look(is_without_copy(payload));
                                if state.pending.len() >= MOST_PENDING {
                                    state.pending.remove(0);
                                }
                                state.pending.push((head.tid, Held::new(range)));
                            }
                        }
                        // The walk is joined with its sample, and not written itself.
                        due.push(Due {
                            time,
                            ring: number(ring),
                            start: number(end),
                            end: number(end),
                            joined: NOTHING,
                            before: (0, 0),
                        });
                        start = end;
                        continue;
                    }
                    kind::SAMPLE if head.layout.is_some_and(|layout| layout.is_walked) => {
                        joined.interpreted = state.interpreted.remove(&head.tid);
                        let (pending, bytes) = (&mut state.pending, &state.bytes);
                        joined.walk =
                            last_walk(pending, bytes, head.tid, &[RECORD_WALK, RECORD_COPY]);
                        if joined.walk.as_ref().and_then(|walk| walk.kind(bytes))
                            == Some(RECORD_WALK)
                        {
                            joined.check = last_walk(pending, bytes, head.tid, &[RECORD_COPY]);
                        }
                    }
                    _ => {}
                }
                let has_joined = joined.walk.is_some() || joined.interpreted.is_some();
                due.push(Due {
                    time,
                    ring: number(ring),
                    start: number(start),
                    end: number(end),
                    joined: match has_joined {
                        true => number(all_joined.len()),
                        false => NOTHING,
                    },
                    before,
                });
                if has_joined {
                    all_joined.push(joined);
                }
                before = head
                    .addresses_in(record)
                    .map(|(from, to)| (number(start + from), number(start + to)))
                    .unwrap_or_default();
                start = end;
            }
        }
        (due, all_joined)
    }

    fn write(&mut self, due: &Due, joined: Option<&Joined>, out: &mut Vec<u8>) {
        let Some(state) = self.rings.get(due.ring as usize) else {
            return;
        };
        let Some(record) = state.bytes.get(due.start as usize..due.end as usize) else {
            return;
        };
        if record.is_empty() {
            return;
        }
        let head = Head::of(record, &self.events);
        let Some(layout) = &head.layout else {
            let is_own = head.kind == kind::SAMPLE && self.own_ids.contains(&head.id);
            match Miss::read(record).filter(|_| is_own) {
                Some(miss) => {
                    self.has_copies = true;
                    if let Some(tables) = &mut self.tables {
                        tables.want(miss.pid, miss.end, miss.place, &self.spaces);
                    }
                }
                None => out.extend_from_slice(record),
            }
            return;
        };
        let rewriter = &mut self.rewriter;
        let (from, to) = due.before;
        let before = state.bytes.get(from as usize..to as usize);
        let before = before.filter(|_| to > 0);
        let Some(parts) = sample::parts(record, layout, before) else {
            // The reader counts it as lost.
            out.extend_from_slice(record);
            return;
        };
        if layout.is_followed {
            return match parts.outermost(record) {
                Some((address, is_innermost))
                    if !self.spaces.is_at_root(parts.pid, address, is_innermost) =>
                {
                    self.counts.followed_cut += 1;
                    sample::put_marked(record, &parts, out);
                }
                outermost => {
                    self.counts.followed_whole += u64::from(outermost.is_some());
                    out.extend_from_slice(record);
                }
            };
        }
        self.counts.overwritten += u64::from(parts.is_overwritten);
        rewriter.addresses.clear();
        let mut unwound = None;
        if let Some(walk) = joined.and_then(|joined| joined.walk.as_ref()) {
            unwound = take_walk(
                walk.whole(&state.bytes, &mut self.copy),
                parts.pid,
                &mut rewriter.addresses,
                &mut self.spaces,
                (self.tables.as_mut(), &mut self.counts),
            );
            let check = joined.and_then(|joined| joined.check.as_ref());
            if let (Some(copy), Some(unwound)) = (check, unwound) {
                let walk = (rewriter.addresses.as_slice(), unwound == Unwound::Complete);
                let checks = &mut self.counts.checks;
                let copy = copy.whole(&state.bytes, &mut self.copy);
                checks.compare(walk, copy, parts.pid, &mut self.spaces);
            }
        } else if let Some((registers, memory)) = &parts.copy {
            let addresses = &mut rewriter.addresses;
            let result = self
                .spaces
                .unwind(parts.pid, &registers.get(), memory, addresses);
            self.counts.copied.add(result);
            unwound = Some(result);
        }
        let interpreted = joined.and_then(|joined| joined.interpreted.as_ref());
        if let (Some(frames), Some(interpreters)) = (interpreted, &mut self.interpreters) {
            let is_complete = unwound == Some(Unwound::Complete);
            let stack = &mut rewriter.addresses;
            interpreters.merge((parts.pid, due.time), frames, stack, is_complete, out);
        }
        let is_too_deep = rewriter.addresses.len() > self.deepest;
        rewriter.addresses.truncate(self.deepest);
        let is_cut = is_too_deep || unwound.is_some_and(|result| result != Unwound::Complete);
        rewriter.write(record, &parts, is_cut, out);
    }
}

/// Takes the latest walk of a thread, if it has one of these kinds.
fn last_walk(
    pending: &mut Vec<(i32, Held)>,
    bytes: &[u8],
    tid: i32,
    kinds: &[u32],
) -> Option<Held> {
    let place = pending.iter().rposition(|(of, _)| *of == tid)?;
    let kind = pending.get(place)?.1.kind(bytes)?;
    kinds.contains(&kind).then(|| pending.remove(place).1)
}

/// What an aggregating program has missed.
struct Miss {
    pid: i32,
    end: WalkEnd,
    /// The file and the address, as in a [`WalkHead`].
    place: (u32, u64),
}

impl Miss {
    /// Reads a sample of an aggregating program; `None` if it is another record.
    fn read(record: &[u8]) -> Option<Miss> {
        let mut cursor = Cursor::new(record.get(WALK_PAYLOAD..)?, 0, Endian::Little);
        let head = WalkHead::read(&mut cursor).filter(|head| head.kind == RECORD_MISS)?;
        Some(Miss {
            // In place of a number of frames.
            pid: head.count.try_into().ok()?,
            end: WalkEnd::of(head.end)?,
            place: (head.file, head.at),
        })
    }
}

/// Bytes of a walk's sample before its payload: header, id, pid and tid, time, cpu, size.
const WALK_PAYLOAD: usize = 8 + 8 + 8 + 8 + 8 + 4;

/// Reads the addresses of a walk, or unwinds the copy that was recorded instead.
fn take_walk(
    walk: &[u8],
    pid: i32,
    addresses: &mut Vec<u64>,
    spaces: &mut Spaces,
    (mut tables, counts): (Option<&mut Tables>, &mut Counts),
) -> Option<Unwound> {
    let mut cursor = Cursor::new(walk, 0, Endian::Little);
    let head = WalkHead::read(&mut cursor)?;
    let end = WalkEnd::of(head.end)?;
    match head.kind {
        RECORD_WALK => {
            for _ in 0..head.count {
                addresses.push(cursor.u64().ok()?);
            }
            let unwound = unwound(end);
            match end {
                WalkEnd::NoTable | WalkEnd::NoList => {
                    counts.not_copied += 1;
                    if let Some(tables) = &mut tables {
                        tables.want(pid, end, (head.file, head.at), spaces);
                    }
                }
                _ => counts.walked.add(unwound),
            }
            if let (Unwound::NoRule | Unwound::Lost, Some(tables)) = (unwound, tables) {
                tables.missed_code(pid);
            }
            Some(unwound)
        }
        RECORD_COPY => {
            let copy = sample::copy_of_walk(&mut cursor, head.count)?;
            let registers = copy.registers();
            let unwound = spaces.unwind_parts(pid, &registers, copy.memory, addresses);
            if let Some(tables) = tables {
                tables.want(pid, end, (head.file, head.at), spaces);
            }
            counts.copied.add(unwound);
            Some(unwound)
        }
        _ => None,
    }
}

/// Whether a walk lacked a table or list, and there was no room for a copy.
fn is_without_copy(walk: &[u8]) -> bool {
    WalkHead::read(&mut Cursor::new(walk, 0, Endian::Little))
        .filter(|head| head.kind == RECORD_WALK)
        .and_then(|head| WalkEnd::of(head.end))
        .is_some_and(|end| matches!(end, WalkEnd::NoTable | WalkEnd::NoList))
}

/// The result of a walk.
fn unwound(end: WalkEnd) -> Unwound {
    match end {
        WalkEnd::Root => Unwound::Complete,
        WalkEnd::Memory => Unwound::MemoryEnded,
        WalkEnd::NoRule => Unwound::NoRule,
        WalkEnd::Deep => Unwound::TooDeep,
        WalkEnd::Unsupported => Unwound::Unsupported,
        WalkEnd::Lost | WalkEnd::NoTable | WalkEnd::NoList => Unwound::Lost,
    }
}

/// The members of a record that are read without parsing all of it.
struct Head {
    kind: u32,
    id: u64,
    tid: i32,
    time: Option<u64>,
    /// How to rewrite it; `None` for samples that stay as they are, and other records.
    layout: Option<Layout>,
    /// As in [`RingEvent`].
    chain_at: Option<usize>,
}

impl Head {
    fn of(record: &[u8], events: &BTreeMap<u64, RingEvent>) -> Head {
        let kind = Endian::Little.u32_at(record, 0).unwrap_or(0);
        let id = record::sample_id(record).filter(|_| kind == kind::SAMPLE);
        let event = id.and_then(|id| events.get(&id));
        // Without `has_ip`, a TID would become a time far in the future, and no later record of the ring would be due.
        let has_ip = event.is_some_and(|event| event.has_ip);
        let (tid, time) = match kind {
            kind::SAMPLE => record::sample_tid_and_time(record, has_ip).unzip(),
            _ => (None, record::trailer_time(record)),
        };
        Head {
            kind,
            id: id.unwrap_or(0),
            tid: tid.unwrap_or(0),
            time,
            layout: event.and_then(|event| event.layout),
            chain_at: event.and_then(|event| event.chain_at),
        }
    }

    /// Where the addresses of its call chain begin and end.
    fn addresses_in(&self, record: &[u8]) -> Option<(usize, usize)> {
        let at = self.chain_at?;
        let count = usize::try_from(Endian::Little.u64_at(record, at)?).ok()?;
        let end = count.checked_mul(8)?.checked_add(at + 8)?;
        (end <= record.len()).then_some((at + 8, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_and_time_of_every_sample_are_found() {
        // header, id, [ip], pid and tid, time, cpu
        let sample = |id: u64, ip: Option<u64>| {
            let words = [u64::from(kind::SAMPLE), id].into_iter().chain(ip);
            let words = words.chain([7 | 8 << 32, 1234, 0]);
            words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
        };
        let event = |has_ip| RingEvent {
            has_ip,
            layout: None,
            chain_at: None,
        };
        let events = BTreeMap::from([(1, event(false)), (2, event(true))]);
        for (id, ip) in [(1, None), (2, Some(0xffff_ffff_8100_0000))] {
            let head = Head::of(&sample(id, ip), &events);
            assert_eq!((head.id, head.tid, head.time), (id, 8, Some(1234)));
        }
    }
}
