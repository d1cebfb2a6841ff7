//! Memory-mapped files, and detection of files truncated while being read.
//!
//! ```text
//! a.data: 8 MiB, mapped      another program: truncate -s 1M a.data      bytes from 1 MiB on: SIGBUS
//! ```
//! If a mapped file is truncated, an access to a missing page raises SIGBUS, which kills the program. The handler here
//! maps zeros there instead and records it. A reader checks [`Map::cut`] at the end; if it is set, the bytes read are
//! not those of the file. Reading with `read()` instead would cost 3 to 5% of an import.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use memmap2::{Mmap, UncheckedAdvice};

/// A file mapped for reading.
#[derive(Debug)]
pub struct Map {
    bytes: Mmap,
    file: File,
    /// Entry for the handler; `None` if there are more maps than entries.
    guard: Option<&'static Guard>,
}

impl Deref for Map {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Map {
    /// Maps a whole file.
    #[expect(unsafe_code, reason = "only a mapping reads a file without copying")]
    pub fn of(file: File) -> io::Result<Map> {
        install_handler();
        // SAFETY: the map is only read. If another process truncates the file, a read raises SIGBUS, and the handler
        // maps zeros; other memory stays unreachable.
        let bytes = unsafe { Mmap::map(&file)? };
        let guard = Guard::of(&bytes);
        Ok(Map { bytes, file, guard })
    }

    /// Maps a file whose path comes from an input. Accepts only regular files: opening a pipe would wait for a writer,
    /// and opening a device can have side effects.
    pub fn foreign(path: &Path) -> io::Result<Map> {
        let file = super::open_regular(path)?;
        if file.metadata()?.len() == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "empty"));
        }
        Map::of(file)
    }

    /// Describes what happened to the file since it was mapped, as the end of a sentence.
    pub fn cut(&self) -> Option<String> {
        let had = self.bytes.len() as u64;
        match self.file.metadata() {
            // A truncation within the last page raises no SIGBUS, but reads as zeros.
            Ok(now) if now.len() < had => Some(format!(
                "was truncated from {had} to {} bytes while being read",
                now.len()
            )),
            _ => self.guard.and_then(Guard::missing).map(|offset| {
                format!("cannot be read from byte {offset} on: truncated, or a disk error")
            }),
        }
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Releases the pages; a later access reads them from the file again.
    #[expect(
        unsafe_code,
        reason = "memmap2 marks this advice unsafe, because it clears private maps"
    )]
    pub fn release(&self) {
        // SAFETY: this is a shared map of a file and only read, so a released page reads the same bytes from the file
        // again.
        let result = unsafe { self.bytes.unchecked_advise(UncheckedAdvice::DontNeed) };
        // A failure only costs memory.
        if let Err(error) = result {
            log::debug!("cannot release mapped pages: {error}");
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // Before the address range can be reused.
        if let Some(guard) = self.guard {
            guard.leave();
        }
    }
}

/// Maximum number of maps that the handler knows. A directory has a file per recording thread, symbolization a file per
/// module.
const GUARDS: usize = 4096;
/// No page is missing.
const NOTHING: usize = usize::MAX;

/// Addresses of a map, readable by the handler at any time.
#[derive(Debug)]
struct Guard {
    /// 0: free.
    start: AtomicUsize,
    /// 0: not yet set.
    end: AtomicUsize,
    /// Offset of the first missing page.
    missing: AtomicUsize,
}

static ALL: [Guard; GUARDS] = [const {
    Guard {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        missing: AtomicUsize::new(NOTHING),
    }
}; GUARDS];

impl Guard {
    /// Registers the addresses of `bytes`.
    fn of(bytes: &[u8]) -> Option<&'static Guard> {
        let range = bytes.as_ptr_range();
        let take = |guard: &&Guard| {
            let swap = guard.start.compare_exchange(
                0,
                range.start.addr(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            swap.is_ok()
        };
        let guard = ALL.iter().find(take)?;
        guard.missing.store(NOTHING, Ordering::Relaxed);
        guard.end.store(range.end.addr(), Ordering::Release);
        Some(guard)
    }

    fn leave(&self) {
        self.end.store(0, Ordering::Release);
        self.start.store(0, Ordering::Release);
    }

    fn missing(&self) -> Option<usize> {
        let missing = self.missing.load(Ordering::Acquire);
        (missing != NOTHING).then_some(missing)
    }

    /// Returns the range from the page of a missing address to the end, if the address is in this map.
    fn rest(&self, address: usize, page: usize) -> Option<(usize, usize)> {
        let (start, end) = (
            self.start.load(Ordering::Acquire),
            self.end.load(Ordering::Acquire),
        );
        let first = address / page * page;
        (start != 0 && start <= address && address < end).then(|| (first.max(start), end))
    }
}

/// The previous handler of SIGBUS.
static FORMER: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

#[expect(unsafe_code, reason = "signal handlers are set by system calls")]
fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: reads a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if let Ok(page) = usize::try_from(page) {
            PAGE_BYTES.store(page.max(1), Ordering::Relaxed);
        }
        // SAFETY: all-zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_missing_page as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: as above.
        let mut former: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the second argument is read, the third written; both are valid.
        let result = unsafe { libc::sigaction(libc::SIGBUS, &action, &mut former) };
        match result {
            0 => FORMER.store(Box::into_raw(Box::new(former)), Ordering::Release),
            _ => log::debug!("cannot handle SIGBUS: {}", io::Error::last_os_error()),
        }
    });
}

/// Maps zeros where a mapped file was truncated. Restricted to async-signal-safe operations: atomics and system calls.
#[expect(unsafe_code, reason = "signal handlers receive pointers")]
extern "C" fn on_missing_page(
    _number: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    /// No such page (asm-generic/siginfo.h). Other codes report memory errors.
    const BUS_ADRERR: libc::c_int = 2;
    // SAFETY: the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    // SAFETY: SIGBUS has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let page = PAGE_BYTES.load(Ordering::Relaxed);
    let found = ALL
        .iter()
        .find_map(|guard| Some((guard, guard.rest(address, page)?)));
    if let Some((guard, (first, end))) = found
        && code == BUS_ADRERR
    {
        let start = guard.start.load(Ordering::Acquire);
        guard.missing.fetch_min(first - start, Ordering::AcqRel);
        // SAFETY: these pages belong to one of our read-only maps, which is alive, because it is being read.
        let zeros = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(first),
                end - first,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if zeros != libc::MAP_FAILED {
            return;
        }
    }
    // Not one of our maps: restore the previous handler, which receives the signal when the access is repeated.
    let former = FORMER.load(Ordering::Acquire);
    if !former.is_null() {
        // SAFETY: the pointer comes from a box that is never freed.
        unsafe { libc::sigaction(libc::SIGBUS, former, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_file_reads_as_zeros_and_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 100_000]).unwrap();
        let whole = Map::of(File::open(file.path()).unwrap()).unwrap();
        assert_eq!(whole.cut(), None);
        assert!(whole.iter().all(|&byte| byte == 7));
        file.as_file().set_len(5000).unwrap();
        assert_eq!(whole[4999], 7);
        assert_eq!(whole[99_999], 0);
        assert_eq!(whole[50_000], 0);
        let cut = whole.cut().unwrap();
        assert_eq!(
            cut,
            "was truncated from 100000 to 5000 bytes while being read"
        );
        // A file that has grown again is still not the one that was mapped.
        file.as_file().set_len(100_000).unwrap();
        let cut = whole.cut().unwrap();
        assert!(cut.contains("cannot be read from byte"), "{cut}");
        drop(whole);
        let again = Map::of(File::open(file.path()).unwrap()).unwrap();
        assert_eq!((again.cut(), again[4999]), (None, 7));
    }
}
