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
use std::ops::{Deref, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

/// A file mapped for reading, or a part of one.
#[derive(Debug)]
pub struct Map {
    mapped: Arc<Mapped>,
    range: Range<usize>,
}

#[derive(Debug)]
struct Mapped {
    bytes: Mmap,
    origin: Origin,
    /// Entry for the handler; `None` if there are more maps than entries.
    guard: Option<&'static Guard>,
}

/// Where the bytes of a map come from.
#[derive(Debug)]
enum Origin {
    File(File),
    /// A file that is not kept open: path, device, inode.
    Path(PathBuf, (u64, u64)),
    /// A temporary file without a name, which nobody else can change.
    Unnamed,
}

impl Deref for Map {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.mapped
            .bytes
            .get(self.range.clone())
            .unwrap_or_default()
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Map {
    /// Maps a whole file.
    pub fn of(file: File) -> io::Result<Map> {
        let bytes = map(MmapOptions::new(), &file)?;
        Ok(Map::from_mapped(bytes, Origin::File(file)))
    }

    /// Maps a whole file without keeping it open: a trace may have more files than a process may open.
    pub(super) fn of_path(path: &Path) -> io::Result<Map> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let bytes = map(MmapOptions::new(), &file)?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Map::from_mapped(
            bytes,
            Origin::Path(path.to_owned(), identity),
        ))
    }

    /// Maps a range of a temporary file without a name.
    pub(super) fn of_unnamed(file: &File, range: Range<u64>) -> io::Result<Map> {
        let length = usize::try_from(range.end.saturating_sub(range.start));
        let length = length.map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut options = MmapOptions::new();
        options.offset(range.start).len(length);
        Ok(Map::from_mapped(map(options, file)?, Origin::Unnamed))
    }

    fn from_mapped(bytes: Mmap, origin: Origin) -> Map {
        let guard = match origin {
            Origin::Unnamed => None,
            Origin::File(_) | Origin::Path(..) => Guard::of(&bytes),
        };
        Map {
            range: 0..bytes.len(),
            mapped: Arc::new(Mapped {
                bytes,
                origin,
                guard,
            }),
        }
    }

    /// A part of a map, cut to its end.
    pub fn part(map: &Map, range: Range<usize>) -> Map {
        let end = map.range.start.saturating_add(range.end).min(map.range.end);
        let start = map.range.start.saturating_add(range.start).min(end);
        Map {
            mapped: Arc::clone(&map.mapped),
            range: start..end,
        }
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
        let mapped = &self.mapped;
        let had = mapped.bytes.len() as u64;
        let length = match &mapped.origin {
            Origin::File(file) => file.metadata().ok().map(|now| now.len()),
            Origin::Path(path, identity) => {
                let now = std::fs::metadata(path).ok();
                let now = now.filter(|now| (now.dev(), now.ino()) == *identity);
                now.map(|now| now.len())
            }
            Origin::Unnamed => None,
        };
        match length {
            // A truncation within the last page raises no SIGBUS, but reads as zeros.
            Some(now) if now < had => Some(format!(
                "was truncated from {had} to {now} bytes while being read"
            )),
            _ => mapped.guard.and_then(Guard::missing).map(|offset| {
                format!("cannot be read from byte {offset} on: truncated, or a disk error")
            }),
        }
    }

    /// Returns the file, if it is open.
    pub fn file(&self) -> Option<&File> {
        match &self.mapped.origin {
            Origin::File(file) => Some(file),
            Origin::Path(..) | Origin::Unnamed => None,
        }
    }

    /// Releases the pages; a later access reads them from the file again.
    #[expect(
        unsafe_code,
        reason = "memmap2 marks this advice unsafe, because it clears private maps"
    )]
    pub fn release(&self) {
        // SAFETY: this is a shared map of a file and only read, so a released page reads the same bytes from the file
        // again.
        let result = unsafe {
            self.mapped.bytes.unchecked_advise_range(
                UncheckedAdvice::DontNeed,
                self.range.start,
                self.range.len(),
            )
        };
        // A failure only costs memory.
        if let Err(error) = result {
            log::debug!("cannot release mapped pages: {error}");
        }
    }
}

#[expect(unsafe_code, reason = "only a mapping reads a file without copying")]
fn map(options: MmapOptions, file: &File) -> io::Result<Mmap> {
    install_handler();
    // SAFETY: the map is only read. If another process truncates the file, a read raises SIGBUS, and the handler
    // maps zeros; other memory stays unreachable.
    unsafe { options.map(file) }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Before the address range can be reused.
        if let Some(guard) = self.guard {
            guard.leave();
        }
    }
}

/// Maximum number of maps that the handler knows. A directory has a file per recording thread or CPU, symbolization a file per
/// module. The kernel allows about as many (vm.max_map_count).
const GUARDS: usize = 1 << 16;

/// Addresses of a map, readable by the handler at any time.
#[derive(Debug)]
struct Guard {
    /// 0: free.
    start: AtomicUsize,
    /// 0: not yet set.
    end: AtomicUsize,
    /// Complement of the offset of the first missing page; 0: none is missing. So that a table of zeros takes no room in programs.
    missing: AtomicUsize,
}

static ALL: [Guard; GUARDS] = [const {
    Guard {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        missing: AtomicUsize::new(0),
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
        guard.missing.store(0, Ordering::Relaxed);
        guard.end.store(range.end.addr(), Ordering::Release);
        Some(guard)
    }

    fn leave(&self) {
        self.end.store(0, Ordering::Release);
        self.start.store(0, Ordering::Release);
    }

    fn missing(&self) -> Option<usize> {
        let missing = self.missing.load(Ordering::Acquire);
        (missing != 0).then_some(!missing)
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
        guard.missing.fetch_max(!(first - start), Ordering::AcqRel);
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
