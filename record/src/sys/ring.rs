//! The ring that the kernel writes records into: a control page, then 2^n pages of data
//! (`include/uapi/linux/perf_event.h`, struct perf_event_mmap_page).

#![expect(unsafe_code, reason = "memory shared with the kernel")]

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::perf_event::{Event, abi};

/// Handed out at once. The kernel gets its space back after each piece, not only after a whole ring.
const PIECE_BYTES: u64 = 1 << 20;

/// The head of a record. ID, thread and time are valid for samples only, and rely on the order that all recorded events
/// use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// Type of the record.
    pub(crate) kind: u32,
    /// ID of the event.
    pub(crate) id: u64,
    /// Time in nanoseconds.
    pub(crate) time: u64,
}

/// The ring of one CPU.
#[derive(Debug)]
pub(crate) struct Ring {
    page: NonNull<abi::perf_event_mmap_page>,
    mapped_bytes: usize,
    data: *const u8,
    data_bytes: u64,
    /// Copy of `data_tail`, which only this process writes.
    tail: u64,
}

// SAFETY: the mapping belongs to this value alone; which thread reads it does not matter.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `event`; `data_bytes` is a power of two of at least a page.
    pub(crate) fn map(event: &Event, data_bytes: usize) -> io::Result<Ring> {
        let page_bytes = page_bytes();
        let mapped_bytes = data_bytes + page_bytes;
        // SAFETY: creates a mapping at an address chosen by the kernel; nothing else is affected.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(address.cast()).ok_or(io::ErrorKind::Other)?;
        // SAFETY: the data follows the control page, inside the mapping.
        let data = unsafe { address.cast::<u8>().add(page_bytes) };
        Ok(Ring {
            page,
            mapped_bytes,
            data,
            data_bytes: data_bytes as u64,
            tail: 0,
        })
    }

    /// Bytes that wait to be drained.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.head().wrapping_sub(self.tail)
    }

    /// Bytes of the whole ring.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Whether more than half of the ring waits to be drained.
    pub(crate) fn is_half_full(&self) -> bool {
        self.pending_bytes() > self.data_bytes / 2
    }

    /// Returns the position up to which the ring was drained.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Passes the heads of the records from `from`, where a record begins, to the newest; the records stay. Returns the
    /// end of what was passed.
    pub(crate) fn look(&self, from: u64, mut show: impl FnMut(Head)) -> u64 {
        let head = self.head();
        let mut at = from;
        while head.wrapping_sub(at).wrapping_sub(8) < self.data_bytes {
            let first = self.word(at);
            let bytes = (first >> 48) & !7;
            if bytes < 8 || bytes > head.wrapping_sub(at) {
                break; // no record of the kernel's
            }
            let word = |place: u64| match place + 8 <= bytes {
                true => self.word(at.wrapping_add(place)),
                false => 0,
            };
            show(Head {
                kind: first as u32,
                id: word(8),
                time: word(24),
            });
            at = at.wrapping_add(bytes);
        }
        head
    }

    /// Drops everything before `until`.
    pub(crate) fn discard(&mut self, until: u64) {
        if until.wrapping_sub(self.tail) <= self.pending_bytes() {
            self.tail = until;
            self.release();
        }
    }

    /// Eight bytes that wait to be drained. Records lie at multiples of eight, so they do not wrap.
    fn word(&self, at: u64) -> u64 {
        let place = (at % self.data_bytes) & !7;
        // SAFETY: 8 bytes inside the data, aligned as the mapping is; the kernel does not write between tail and head.
        unsafe { self.data.add(place as usize).cast::<u64>().read() }
    }

    /// Returns a copy of the undrained bytes, which stay.
    pub(crate) fn pending(&self) -> Vec<u8> {
        let count = self.pending_bytes().min(self.data_bytes);
        let at = self.tail % self.data_bytes;
        let first = count.min(self.data_bytes - at);
        // SAFETY: both pieces are inside the data, and the kernel does not write between tail and head.
        let pieces = unsafe {
            [
                std::slice::from_raw_parts(self.data.add(at as usize), first as usize),
                std::slice::from_raw_parts(self.data, (count - first) as usize),
            ]
        };
        pieces.concat()
    }

    /// Passes on the undrained bytes up to a position where a record ends, in pieces that together are whole records,
    /// and frees their space. After an error of `write`, the rest stays.
    pub(crate) fn drain_to(
        &mut self,
        until: u64,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let pending = match until.wrapping_sub(self.tail) {
            pending if pending <= self.pending_bytes() => pending,
            _ => 0,
        };
        let mut left = pending;
        while left > 0 {
            let at = self.tail % self.data_bytes;
            let count = left.min(self.data_bytes - at).min(PIECE_BYTES);
            // SAFETY: `at + count` is inside the data. The kernel does not write between tail and head: a writable
            // mapping is not in overwrite mode.
            let piece =
                unsafe { std::slice::from_raw_parts(self.data.add(at as usize), count as usize) };
            write(piece)?;
            left -= count;
            self.tail = self.tail.wrapping_add(count);
            self.release();
        }
        Ok(pending)
    }

    /// Returns the position up to which the kernel has written.
    pub(crate) fn head(&self) -> u64 {
        // SAFETY: `data_head` is inside the mapping, which lives as long as `self`; only the kernel writes it.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_head) };
        head.load(Ordering::Acquire)
    }

    /// Release ordering: the kernel may overwrite only bytes that have been read.
    fn release(&self) {
        // SAFETY: as for the head; only this process writes `data_tail`.
        let tail = unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_tail) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `map`, unmapped once.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// Bytes of a page.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
