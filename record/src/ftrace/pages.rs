//! The drain of function tracing: copies whole pages of each CPU's ring to a separate file.
//!
//! A read of `trace_pipe_raw` removes a page from the kernel's ring; a partial page is returned as far as it is filled.
//! Nothing is decoded. One thread serves several CPUs with one buffer each, so memory is fixed. The thread polls four
//! times a second on a quiet host, and a hundred times in a storm.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::HEAD;
use super::buffer::Buffer;
use crate::sys::ring::page_bytes;
use crate::sys::tracefs::Tracefs;
use crate::sys::wait::{Bell, Waiter};

/// Data that fills less than a quarter of a ring is written to the file after this time.
const QUIET: Duration = Duration::from_millis(250);
/// Polling interval after a pass that found many events.
const STORM: Duration = Duration::from_millis(10);
/// Number of bytes in one pass that count as a storm.
const STORM_BYTES: u64 = 1 << 20;
const CPUS_PER_THREAD: usize = 4;
const WRITE_BYTES: usize = 256 << 10;
/// Maximum number of bytes read from one CPU before the next one.
const TURN_BYTES: u64 = 32 << 20;

/// The draining threads.
pub(super) struct Pages {
    shared: Arc<Shared>,
    threads: Vec<(Arc<Bell>, JoinHandle<io::Result<()>>)>,
}

#[derive(Default)]
struct Shared {
    is_stopping: AtomicBool,
    has_failed: AtomicBool,
    drained: AtomicU64,
}

impl Pages {
    /// Starts draining the pages of these CPUs into files in `journal`.
    pub(super) fn start(
        tracefs: &Tracefs,
        buffer: &Buffer,
        cpus: &[u32],
        journal: &Path,
    ) -> io::Result<Pages> {
        let shared = Arc::new(Shared::default());
        let page_bytes = bytes_of_a_page(tracefs, buffer);
        let mut workers = Vec::new();
        for cpus in cpus.chunks(CPUS_PER_THREAD) {
            let waiter = Waiter::new()?;
            let rings = cpus
                .iter()
                .map(|&cpu| Ring::open(buffer, cpu, journal))
                .collect::<io::Result<Vec<Ring>>>()?;
            for ring in &rings {
                waiter.add_file(&ring.pages)?;
            }
            workers.push(Worker {
                rings,
                waiter,
                page_bytes,
                bytes: vec![0; WRITE_BYTES.next_multiple_of(page_bytes)],
                shared: Arc::clone(&shared),
            });
        }
        let threads = workers
            .into_iter()
            .map(|worker| {
                let bell = worker.waiter.bell();
                // Keeps the inherited thread name: the filters that exclude the recorder match by name.
                (bell, std::thread::spawn(move || worker.run()))
            })
            .collect();
        Ok(Pages { shared, threads })
    }

    /// Bytes in the files.
    pub(super) fn drained_bytes(&self) -> u64 {
        self.shared.drained.load(Ordering::Relaxed)
    }

    /// Whether a thread cannot go on.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }

    /// Drains the rest, which no longer grows once tracing is off, and ends the threads.
    pub(super) fn finish(self) -> io::Result<()> {
        self.shared.is_stopping.store(true, Ordering::Release);
        let mut result = Ok(());
        for (bell, thread) in self.threads {
            bell.ring();
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(error) => result = error,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    }
}

/// The ring of a CPU and its file.
struct Ring {
    pages: File,
    file: File,
    written: u64,
}

impl Ring {
    fn open(buffer: &Buffer, cpu: u32, journal: &Path) -> io::Result<Ring> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(journal.join(name(cpu)))?;
        Ok(Ring {
            pages: buffer.open_pages(cpu)?,
            file,
            written: 0,
        })
    }

    /// Reads pages until there are none, or the maximum is reached.
    fn drain(&mut self, bytes: &mut [u8], page_bytes: usize) -> io::Result<u64> {
        let mut drained = 0;
        loop {
            let (count, is_empty) = self.take(bytes, page_bytes)?;
            self.append(&bytes[..count])?;
            drained += count as u64;
            if is_empty || drained >= TURN_BYTES {
                return Ok(drained);
            }
        }
    }

    /// Fills `bytes` with pages, as far as there are any.
    fn take(&mut self, bytes: &mut [u8], page_bytes: usize) -> io::Result<(usize, bool)> {
        let mut count = 0;
        while count + page_bytes <= bytes.len() {
            match self.pages.read(&mut bytes[count..count + page_bytes]) {
                Ok(0) => return Ok((count, true)),
                // Pad a partial page with zeros, so that the next page begins at the expected offset.
                Ok(read) => {
                    bytes[count + read..count + page_bytes].fill(0);
                    count += page_bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((count, true));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((count, false))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.written += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // On a full disk, keep only whole pages.
                self.file.set_len(self.written)?;
                Err(error)
            }
        }
    }
}

struct Worker {
    rings: Vec<Ring>,
    waiter: Waiter,
    page_bytes: usize,
    bytes: Vec<u8>,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(mut self) -> io::Result<()> {
        let ended = self.drain_until_stopped();
        if ended.is_err() {
            self.shared.has_failed.store(true, Ordering::Release);
        }
        ended
    }

    fn drain_until_stopped(&mut self) -> io::Result<()> {
        loop {
            // Read this before the pass, so that everything in the rings when it was set is drained.
            let is_stopping = self.shared.is_stopping.load(Ordering::Acquire);
            let mut drained = 0;
            for ring in &mut self.rings {
                drained += ring.drain(&mut self.bytes, self.page_bytes)?;
            }
            self.shared.drained.fetch_add(drained, Ordering::Relaxed);
            if is_stopping && drained < TURN_BYTES {
                return Ok(());
            }
            self.waiter.wait(match drained {
                ..STORM_BYTES => QUIET,
                _ => STORM,
            });
        }
    }
}

/// The file with the pages of a CPU.
pub(super) fn name(cpu: u32) -> String {
    format!(".{HEAD}.cpu{cpu}")
}

/// Returns the size of a page with its head, as described by `header_page`; since Linux 6.8 it may be larger than the
/// host's pages.
fn bytes_of_a_page(tracefs: &Tracefs, buffer: &Buffer) -> usize {
    const LARGEST: usize = 1 << 20;
    let text = buffer.page_file(tracefs, "events/header_page");
    let text = String::from_utf8_lossy(&text);
    let number = |line: &str, key: &str| -> Option<usize> {
        let mut parts = line.split(';').map(str::trim);
        parts.find_map(|part| part.strip_prefix(key)?.parse().ok())
    };
    let data = text.lines().find(|line| line.contains(" data;"));
    data.and_then(|line| Some(number(line, "offset:")? + number(line, "size:")?))
        .filter(|bytes| (64..=LARGEST).contains(bytes))
        .unwrap_or_else(page_bytes)
}
