//! Writes the journal in a separate thread.
//!
//! A write may wait for the disk: 0.2 s beside one compiler, seconds beside several. The thread that reads the rings
//! must not, because the kernel drops what does not fit in them.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Journal;
use crate::sys::thread;

/// Bytes that are passed on together.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes that are written at once: of those that no longer fit on the disk, none are kept.
const WRITTEN_BYTES: usize = 64 << 10;
/// Most bytes that wait for the disk; beyond, reading the rings waits, too.
const MOST_WAITING_BYTES: usize = 32 << 20;
/// Passes that end sooner after another one are one round: while processes start, there is one every 2 ms.
const LEAST_ROUND: Duration = Duration::from_millis(250);
/// Most empty buffers that are kept.
const MOST_SPARE: usize = 4;

/// A journal with a thread that writes it.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    /// Bytes that have not been passed on.
    filling: Vec<u8>,
    /// When the last round ended.
    ended_at: Instant,
    /// Whether records have been appended since.
    is_in_round: bool,
    thread: JoinHandle<(Journal, io::Result<()>)>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is more to write, or an end.
    more: Condvar,
    /// There is room again, or writing has failed.
    room: Condvar,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    bytes: usize,
    most_bytes: usize,
    spare: Vec<Vec<u8>>,
    has_failed: bool,
    is_over: bool,
}

struct Piece {
    bytes: Vec<u8>,
    /// Whether a pass over all rings ends with it.
    ends_round: bool,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(journal: Journal) -> Writer {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        // Keeps the inherited thread name: the filter that excludes the recorder matches by name.
        let thread = std::thread::spawn(move || {
            thread::make_urgent();
            let mut journal = journal;
            let written = write(&mut journal, &of_thread);
            if written.is_err() {
                of_thread.lock().has_failed = true;
                of_thread.room.notify_one();
            }
            (journal, written)
        });
        Writer {
            shared,
            filling: Vec::new(),
            ended_at: Instant::now(),
            is_in_round: false,
            thread,
        }
    }

    /// Appends bytes that are whole records, or pieces that become whole with the next. An error says that earlier bytes could
    /// not be written; which one, says [`Writer::finish`].
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.filling.extend_from_slice(bytes);
        match self.filling.len() >= PIECE_BYTES {
            true => self.pass_on(false),
            false => Ok(()),
        }
    }

    /// Ends a pass over all rings. A pass after which nothing was appended ends the round at the latest.
    pub(crate) fn end_pass(&mut self, has_drained: bool) -> io::Result<()> {
        self.is_in_round |= has_drained;
        let is_due = !has_drained || self.ended_at.elapsed() >= LEAST_ROUND;
        match self.is_in_round && is_due {
            true => self.end_round(),
            false => Ok(()),
        }
    }

    /// As [`Journal::finish_round`].
    fn end_round(&mut self) -> io::Result<()> {
        self.is_in_round = false;
        self.ended_at = Instant::now();
        self.pass_on(true)
    }

    /// Waits until all is written, and returns the journal and the first error.
    pub(crate) fn finish(mut self) -> (Journal, io::Result<()>) {
        // The thread has the error.
        let _ = match self.is_in_round {
            true => self.end_round(),
            false => self.pass_on(false),
        };
        self.shared.lock().is_over = true;
        self.shared.more.notify_one();
        let ended = self.thread.join();
        let most_bytes = self.shared.lock().most_bytes;
        log::info!("at most {} KiB waited for the disk", most_bytes >> 10);
        match ended {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn pass_on(&mut self, ends_round: bool) -> io::Result<()> {
        let queue = self.shared.lock();
        let is_full = |queue: &mut Queue| queue.bytes > MOST_WAITING_BYTES && !queue.has_failed;
        let waited = self.shared.room.wait_while(queue, is_full);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
        if queue.has_failed {
            return Err(io::Error::other("the journal could not be written"));
        }
        let next = queue.spare.pop().unwrap_or_default();
        let bytes = mem::replace(&mut self.filling, next);
        queue.bytes += bytes.len();
        queue.most_bytes = queue.most_bytes.max(queue.bytes);
        queue.pieces.push_back(Piece { bytes, ends_round });
        drop(queue);
        self.shared.more.notify_one();
        Ok(())
    }
}

impl Shared {
    /// Every change is a single step, so a panic while the lock is held leaves it valid.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next piece; `None` at the end.
    fn next(&self) -> Option<Piece> {
        let is_idle = |queue: &mut Queue| queue.pieces.is_empty() && !queue.is_over;
        let waited = self.more.wait_while(self.lock(), is_idle);
        waited
            .unwrap_or_else(PoisonError::into_inner)
            .pieces
            .pop_front()
    }

    fn is_written(&self, mut buffer: Vec<u8>) {
        let mut queue = self.lock();
        queue.bytes -= buffer.len();
        if queue.spare.len() < MOST_SPARE && buffer.capacity() <= 2 * PIECE_BYTES {
            buffer.clear();
            queue.spare.push(buffer);
        }
        drop(queue);
        self.room.notify_one();
    }
}

fn write(journal: &mut Journal, shared: &Shared) -> io::Result<()> {
    while let Some(piece) = shared.next() {
        for bytes in piece.bytes.chunks(WRITTEN_BYTES) {
            journal.append(bytes)?;
        }
        if piece.ends_round {
            journal.finish_round()?;
        }
        shared.is_written(piece.bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::Ordering;

    use super::*;

    /// A journal in a pipe, whose writes wait for a reader.
    fn slow_disk() -> (Writer, io::PipeReader) {
        let (reader, pipe) = io::pipe().unwrap();
        let journal = Journal {
            file: File::from(OwnedFd::from(pipe)),
            written: Arc::default(),
            settled: Arc::default(),
            reserve: None,
        };
        (Writer::start(journal), reader)
    }

    #[test]
    fn a_slow_disk_delays_nobody() {
        let (mut writer, mut reader) = slow_disk();
        let piece = |number: usize| vec![number as u8; 100_000];
        for number in 0..50 {
            writer.append(&piece(number)).unwrap();
        }
        writer.end_pass(true).unwrap();
        writer.end_pass(false).unwrap();
        // Nobody has read: more than fits in a pipe waits.
        assert!(writer.shared.lock().bytes > 4 << 20);
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        let (journal, written) = writer.finish();
        written.unwrap();
        let length = journal.length();
        assert_eq!(journal.settled.load(Ordering::Relaxed), length);
        drop(journal);
        let all = reading.join().unwrap();
        assert_eq!(all.len() as u64, length);
        let expected: Vec<u8> = (0..50).flat_map(piece).collect();
        assert!(all.starts_with(&expected));
    }

    #[test]
    fn what_waits_is_limited() {
        let (mut writer, mut reader) = slow_disk();
        let reading = std::thread::spawn(move || {
            let mut most = 0;
            let mut buffer = vec![0; 1 << 20];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                most = most.max(read);
            }
            most
        });
        let piece = vec![7; PIECE_BYTES];
        for _ in 0..4 * MOST_WAITING_BYTES / PIECE_BYTES {
            writer.append(&piece).unwrap();
        }
        let shared = Arc::clone(&writer.shared);
        let (journal, written) = writer.finish();
        written.unwrap();
        assert!(shared.lock().most_bytes <= MOST_WAITING_BYTES + 2 * PIECE_BYTES);
        assert_eq!(journal.length(), 4 * MOST_WAITING_BYTES as u64);
        drop(journal);
        assert!(reading.join().unwrap() > 0);
    }

    #[test]
    fn an_error_ends_the_drain() {
        let (mut writer, reader) = slow_disk();
        drop(reader);
        let failed = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            writer.append(&vec![1; PIECE_BYTES]).err()
        });
        assert!(failed.is_some());
        assert!(writer.finish().1.is_err());
    }
}
