//! The draining thread, which moves records from the kernel's rings to the journal.
//!
//! The thread uses fixed memory, decodes nothing, and wakes up rarely: when a ring is a quarter full, and every 250 ms,
//! so that quiet rings reach the file. Each pass drains all rings; FINISHED_ROUND follows. Another thread writes the
//! file, because a write may wait for the disk longer than a ring lasts.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::added_records::AddedRecords;
use crate::flight::Buffer;
use crate::journal::header;
use crate::journal::own_records::OwnRecords;
use crate::journal::{Journal, Writer};
use crate::mapped_files::BuildIds;
use crate::periods::Periods;
use crate::recorded::Recorded;
use crate::recording::{Recording, Rings};
use crate::sieve::Sieve;
use crate::sys::clock;
use crate::sys::ring::Ring;
use crate::sys::thread;
use crate::sys::wait::{Bell, Waiter};
use crate::trigger::Gate;
use crate::user_stacks::{Counts, First, UserStacks};

/// Data that fills less than a quarter of a ring is written to the file after this time.
const LONGEST: Duration = Duration::from_millis(250);

/// Memory for records with their user stacks that is kept between passes.
const SCRATCH_BYTES: usize = 1 << 20;

/// Writes the bytes that are kept.
type Write<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// Destination of the rings' bytes while they are drained.
enum Destination {
    Journal(Writer),
    Flight(Box<Buffer>),
}

/// Destination of the rings' bytes.
pub(crate) enum Sink {
    /// To a file, unchanged.
    Journal(Journal),
    /// To memory that drops its oldest contents.
    Flight(Box<Buffer>),
}

/// Result of a drain: the sink, the status, and the counts of unwound user stacks.
pub(crate) type Drained = (Sink, io::Result<()>, Option<Counts>);

/// A running drain.
pub(crate) struct Drain {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    thread: JoinHandle<Drained>,
}

#[derive(Default)]
struct Shared {
    is_stopping: AtomicBool,
    /// Ended before it was stopped: the disk is full.
    has_failed: AtomicBool,
    /// A moment that a caller wants to be between two passes.
    marking: Mutex<Marking>,
    /// What existed at the start, once it is known.
    existing: Mutex<Option<Existing>>,
    /// Where the recording begins, once it is known.
    beginning: Mutex<Option<Beginning>>,
    /// Records of others, to be written with the next pass.
    added: AddedRecords,
    /// When it was on.
    recorded: Recorded,
}

/// What existed at the start.
struct Existing {
    /// Records of threads and mappings.
    records: Vec<u8>,
    /// Notified once stacks can be unwound with these mappings.
    are_known: Sender<()>,
}

/// Where the recording begins.
pub(crate) struct Beginning {
    /// Records about the recording.
    pub(crate) records: Vec<u8>,
    /// Records from before this time are dropped.
    pub(crate) time: u64,
    /// What is loaded before programs count, and the command that waits.
    pub(crate) first: Option<(First, Option<i32>)>,
}

/// The start of a pause, its end, or the end of the recording; at one time for all events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// The recording ends.
    End,
    /// The recording pauses.
    Pause,
    /// The recording starts, or resumes after a pause.
    Resume,
}

/// State of a [`Mark`].
#[derive(Default)]
enum Marking {
    #[default]
    Running,
    /// A caller waits for the moment between two passes.
    Requested(Mark, Sender<u64>),
    /// The thread has ended.
    Over,
}

impl Drain {
    /// Starts the thread. The recording began then.
    pub(crate) fn start(
        recording: &Recording,
        rings: Rings,
        mut sink: Sink,
        (gate, began): (Gate, u64),
        stacks: Option<UserStacks>,
        build_ids: BuildIds,
        periods: Option<Arc<Mutex<Periods>>>,
    ) -> Result<Drain> {
        let waiter = Waiter::new().context("cannot wait for the kernel's rings")?;
        for event in recording.wakers() {
            waiter.add_ring(event).context("cannot wait for a ring")?;
        }
        let bell = waiter.bell();
        let shared = Arc::new(Shared::default());
        let mut sieve = Sieve::of(recording, rings.events.len(), began);
        if recording.starts_paused {
            sieve.pause_at(0);
        }
        if let Sink::Flight(kept) = &mut sink {
            kept.follow(shared.recorded.clone(), header::any_id(recording));
        }
        if let Some(periods) = periods {
            sieve.correct(periods);
        }
        let worker = Worker {
            sieve,
            own_id: recording.own_id,
            has_resumed: !recording.starts_paused,
            rings,
            sink: Destination::of(sink),
            gate,
            stacks,
            build_ids,
            scratch: Vec::new(),
            read_at: 0,
            waiter,
            shared: Arc::clone(&shared),
        };
        // Keeps the inherited thread name: the filter that excludes the recorder matches by name.
        let thread = std::thread::spawn(move || {
            thread::make_urgent();
            worker.run()
        });
        Ok(Drain {
            shared,
            bell,
            thread,
        })
    }

    /// Passes the records of threads and mappings that existed at the start, and waits until stacks can be walked with them.
    pub(crate) fn set_existing(&self, records: Vec<u8>) {
        const LOOKS: Duration = Duration::from_millis(50);
        let (are_known, known) = channel();
        *lock(&self.shared.existing) = Some(Existing { records, are_known });
        self.bell.ring();
        while known.recv_timeout(LOOKS) == Err(RecvTimeoutError::Timeout) {
            // The disk is full.
            if self.thread.is_finished() {
                return;
            }
        }
    }

    /// Begins to write records. Until then, only rings that are half full are drained.
    pub(crate) fn begin(&self, beginning: Beginning) {
        *lock(&self.shared.beginning) = Some(beginning);
        self.bell.ring();
    }

    /// Ends the recording at one moment for all events: records that events write later, while they are stopped one by
    /// one, are dropped. Waits for the moment between two passes; otherwise one ring would be read up to a later time
    /// than the next. Returns that moment, the last time of the recording.
    pub(crate) fn end(&self) -> u64 {
        self.mark(Mark::End)
    }

    /// Pauses the recording at one moment for all events, before they are disabled one by one. Returns that moment.
    pub(crate) fn pause(&self) -> u64 {
        self.mark(Mark::Pause)
    }

    /// Begins the recording, or goes on after a pause, at one moment for all events, after they have been enabled. Returns that
    /// moment.
    pub(crate) fn resume(&self) -> u64 {
        self.mark(Mark::Resume)
    }

    fn mark(&self, mark: Mark) -> u64 {
        let (set, is_set) = channel();
        match &mut *lock(&self.shared.marking) {
            Marking::Over => return clock::monotonic(),
            marking => *marking = Marking::Requested(mark, set),
        }
        self.bell.ring();
        // An error is an answer too: the thread has ended.
        is_set.recv().unwrap_or_else(|_| clock::monotonic())
    }

    /// Notes when the recording is on.
    pub(crate) fn recorded(&self) -> &Recorded {
        &self.shared.recorded
    }

    /// Adds records after what the rings hold now.
    pub(crate) fn add(&self, records: Vec<u8>) {
        self.shared.added.add(&records);
        self.bell.ring();
    }

    /// Returns what another thread adds records to.
    pub(crate) fn added(&self) -> AddedRecords {
        self.shared.added.clone()
    }

    /// Makes the thread look at the rings now.
    pub(crate) fn wake(&self) {
        self.bell.ring();
    }

    /// Whether the thread has failed. [`Drain::finish`] returns the error.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }

    /// Drains the rings and ends the thread. The events must be stopped. A journal is whole
    /// even if the drain could not go on.
    pub(crate) fn finish(self) -> Drained {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.bell.ring();
        match self.thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

struct Worker {
    sieve: Sieve,
    /// ID of the records of pauses and counts.
    own_id: Option<u64>,
    /// Whether the recording has begun: before, there is no pause to record.
    has_resumed: bool,
    rings: Rings,
    sink: Destination,
    gate: Gate,
    stacks: Option<UserStacks>,
    build_ids: BuildIds,
    /// Buffer for records with their user stacks.
    scratch: Vec<u8>,
    /// When the rings were last read: what was written before is known.
    read_at: u64,
    waiter: Waiter,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(mut self) -> Drained {
        let drained = self.drain_until_stopped();
        let (sink, ended) = self.sink.finish(drained);
        let counts = self.stacks.take().map(UserStacks::finish);
        *lock(&self.shared.marking) = Marking::Over;
        if ended.is_err() {
            self.shared.has_failed.store(true, Ordering::Release);
        }
        (sink, ended, counts)
    }

    fn drain_until_stopped(&mut self) -> io::Result<()> {
        self.begin()?;
        loop {
            // Read this before the pass, so that everything in the rings when it was set is drained.
            let is_stopping = self.shared.is_stopping.load(Ordering::Acquire);
            let added = self.shared.added.take();
            let drained = self.pass(is_stopping)? + self.pass_stacks(!is_stopping)?;
            let sink = &mut self.sink;
            let late = self
                .build_ids
                .release(is_stopping, &mut |bytes| sink.side_band(bytes))?;
            self.sink.add(&added)?;
            self.sink.end_pass(drained + late + added.len() as u64)?;
            if is_stopping {
                return Ok(());
            }
            let of_stacks = self.stacks.as_ref().and_then(UserStacks::soonest);
            let soonest = of_stacks.into_iter().chain(self.build_ids.soonest()).min();
            self.waiter.wait(soonest.unwrap_or(LONGEST));
        }
    }

    /// Waits for the records of the initial state, so that they precede the events. During a burst, overfull rings are
    /// drained without ending a round: readers hold those events back until the first round ends, after the records of
    /// the initial state.
    fn begin(&mut self) -> io::Result<()> {
        let mut records = Vec::new();
        loop {
            if let Some(existing) = lock(&self.shared.existing).take() {
                records = existing.records;
                if let Some(stacks) = &mut self.stacks {
                    stacks.side_band(&records);
                    stacks.apply_existing();
                }
                self.build_ids.set_existing(&mut records);
                // Whoever waits may have gone.
                let _ = existing.are_known.send(());
            }
            if let Some(begun) = lock(&self.shared.beginning).take() {
                self.gate.open_at(begun.time);
                if let (Some(stacks), Some((first, command))) = (&mut self.stacks, begun.first) {
                    stacks.load_first(first, command);
                }
                records.extend(begun.records);
                return self.sink.side_band(&records);
            }
            if self.rings.iter().any(Ring::is_half_full) {
                self.pass(false)?;
            }
            if self.shared.is_stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            self.waiter.wait(LONGEST / 10);
        }
    }

    /// Drains all rings once. Events stay in their rings while too many wait for their stacks, unless these are the last.
    fn pass(&mut self, are_last: bool) -> io::Result<u64> {
        let marking = std::mem::take(&mut *lock(&self.shared.marking));
        if let Marking::Requested(mark, set) = marking {
            let time = clock::monotonic();
            self.set_mark(mark, time)?;
            let _ = set.send(time);
        }
        let mut stacks = self.stacks.take();
        let drained = match are_last || stacks.as_ref().is_none_or(UserStacks::has_room) {
            true => self.read(stacks.as_mut()),
            false => self.read_side_band(stacks.as_mut()),
        };
        self.stacks = stacks;
        drained
    }

    /// Moves the records of the side-band to the sink.
    fn read_side_band(&mut self, mut stacks: Option<&mut UserStacks>) -> io::Result<u64> {
        let mut drained = 0;
        for ring in &mut self.rings.side_band {
            let (sieve, build_ids) = (&mut self.sieve, &mut self.build_ids);
            drained += self.sink.take_side_band(ring, |piece, write| {
                sieve.look(piece);
                if let Some(stacks) = &mut stacks {
                    stacks.side_band(piece);
                }
                build_ids.take(piece, write)
            })?;
        }
        Ok(drained)
    }

    /// Moves the records of all rings to the sink, or to the stage that completes their stacks.
    fn read(&mut self, mut stacks: Option<&mut UserStacks>) -> io::Result<u64> {
        // What a pass over stacks reads is due in the next one, even if that has no room to read more.
        self.read_at = clock::monotonic();
        let of_side_band = self.read_side_band(stacks.as_deref_mut())?;
        let mut drained = of_side_band;
        let until = self.gate.look(&mut self.rings.events);
        for (index, (ring, until)) in self.rings.events.iter_mut().zip(until).enumerate() {
            let sieve = &mut self.sieve;
            drained += self
                .sink
                .take_events(ring, until, |piece, write| match &mut stacks {
                    None => sieve.sift(index, piece, write),
                    Some(stacks) => sieve.sift(index, piece, &mut |bytes| {
                        stacks.events(index, bytes);
                        Ok(())
                    }),
                })?;
        }
        self.sieve.end_pass();
        if let Some(stacks) = stacks {
            stacks.rings_were_read(drained - of_side_band);
        }
        Ok(drained)
    }

    fn set_mark(&mut self, mark: Mark, time: u64) -> io::Result<()> {
        let is_resumed = match mark {
            Mark::End => {
                self.sieve.end_at(time);
                self.shared.recorded.end(time);
                return Ok(());
            }
            Mark::Pause => {
                self.sieve.pause_at(time);
                self.shared.recorded.end(time);
                false
            }
            Mark::Resume => {
                self.sieve.resume_at(time);
                self.shared.recorded.begin(time);
                true
            }
        };
        if let Some(id) = self.own_id
            && self.has_resumed
        {
            let mut records = OwnRecords::new(id, time, 0);
            records.pause(is_resumed);
            self.sink.put_events(&records.into_bytes())?;
        }
        self.has_resumed |= is_resumed;
        Ok(())
    }

    /// Writes the records whose user stacks are known now; at the end all of them. Rings that are half full meanwhile are
    /// read.
    fn pass_stacks(&mut self, goes_on: bool) -> io::Result<u64> {
        let Some(mut stacks) = self.stacks.take() else {
            return Ok(0);
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let mut drained = Ok(0);
        let now = goes_on.then_some(self.read_at);
        stacks.pass(now, &mut scratch, &mut |stacks| {
            if let Ok(bytes) = &mut drained
                && goes_on
                && stacks.has_room()
                && self.rings.events.iter().any(Ring::is_half_full)
            {
                match self.read(Some(stacks)) {
                    Ok(more) => *bytes += more,
                    failed => drained = failed,
                }
            }
        });
        self.stacks = Some(stacks);
        let written = self.sink.put_events(&scratch);
        let bytes = scratch.len() as u64;
        scratch.shrink_to(SCRATCH_BYTES);
        self.scratch = scratch;
        written?;
        Ok(bytes + drained?)
    }
}

impl Destination {
    fn of(sink: Sink) -> Destination {
        match sink {
            Sink::Journal(journal) => Destination::Journal(Writer::start(journal)),
            Sink::Flight(kept) => Destination::Flight(kept),
        }
    }

    /// Waits until everything is written. A journal that could not be written (a full disk) ends with a whole record, and
    /// all before it counts. The files of a flight recorder have whole records only.
    fn finish(self, drained: io::Result<()>) -> (Sink, io::Result<()>) {
        match self {
            Destination::Journal(writer) => {
                let (mut journal, written) = writer.finish();
                // What the writer says is the cause of what the drain says.
                let ended = written.and(drained).or_else(|error| {
                    journal.cut()?;
                    Err(error)
                });
                (Sink::Journal(journal), ended)
            }
            Destination::Flight(kept) => (Sink::Flight(kept), drained),
        }
    }

    /// Whole records about processes.
    fn side_band(&mut self, records: &[u8]) -> io::Result<()> {
        match self {
            Destination::Journal(journal) => journal.append(records),
            Destination::Flight(kept) => {
                kept.side_band(records);
                Ok(())
            }
        }
    }

    fn add(&mut self, records: &[u8]) -> io::Result<()> {
        match self {
            Destination::Journal(journal) => journal.append(records),
            // A flight recorder cannot be combined with aggregation, so there are no such records.
            Destination::Flight(_) => Ok(()),
        }
    }

    /// Passes on the records of a side-band ring that `sift` keeps.
    fn take_side_band(
        &mut self,
        ring: &mut Ring,
        sift: impl FnMut(&[u8], Write<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        let until = ring.head();
        self.take(ring, until, Buffer::side_band, sift)
    }

    /// Passes on the part of each piece that `sift` keeps.
    fn take_events(
        &mut self,
        ring: &mut Ring,
        until: u64,
        sift: impl FnMut(&[u8], Write<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        self.take(ring, until, Buffer::events, sift)
    }

    fn take(
        &mut self,
        ring: &mut Ring,
        until: u64,
        keep: fn(&mut Buffer, &[u8]),
        mut sift: impl FnMut(&[u8], Write<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        match self {
            Destination::Journal(journal) => ring.drain_to(until, |piece| {
                sift(piece, &mut |bytes| journal.append(bytes))
            }),
            Destination::Flight(kept) => ring.drain_to(until, |piece| {
                sift(piece, &mut |bytes| {
                    keep(kept, bytes);
                    Ok(())
                })
            }),
        }
    }

    /// Records of events that are whole.
    fn put_events(&mut self, records: &[u8]) -> io::Result<()> {
        match self {
            Destination::Journal(journal) => journal.append(records),
            Destination::Flight(kept) => {
                kept.events(records);
                Ok(())
            }
        }
    }

    fn end_pass(&mut self, drained: u64) -> io::Result<()> {
        match self {
            Destination::Journal(journal) => journal.end_pass(drained > 0),
            Destination::Flight(kept) => kept.end_pass(),
        }
    }
}

/// The value is replaced in one step, so a panic while the lock is held leaves it valid.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
