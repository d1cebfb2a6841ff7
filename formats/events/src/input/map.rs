//! Files in memory, and what happens when one is cut while it is read.
//!
//! ```text
//! a.data: 8 MiB, mapped      another program: truncate -s 1M a.data      bytes from 1 MiB on: SIGBUS
//! ```
//! The kernel answers a look at a page that the file no longer has with SIGBUS, which ends the program. Here a handler puts
//! zeros there instead and makes a note, and whoever reads the file asks at its end whether that happened
//! ([`Map::cut`]): what was read is then not the file. Reading by `read()` would cost 3 to 5 % of an import.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use memmap2::{Mmap, UncheckedAdvice};

/// A file, mapped to be read.
#[derive(Debug)]
pub struct Map {
    bytes: Mmap,
    file: File,
    /// Where the handler finds it; `None`: there are more maps than that.
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
    /// Maps all of a file.
    #[expect(
        unsafe_code,
        reason = "mapping a file is the one way to read it without copying"
    )]
    pub fn of(file: File) -> io::Result<Map> {
        install_handler();
        // SAFETY: the map is only read. Another process that cuts the file meanwhile makes the read fail with SIGBUS,
        // which the handler answers with zeros; it cannot make it read foreign memory.
        let bytes = unsafe { Mmap::map(&file)? };
        let guard = Guard::of(&bytes);
        Ok(Map { bytes, file, guard })
    }

    /// Maps a file whose path an input told: a regular file or nothing, for opening a pipe would wait for its
    /// writer and opening a device may do anything.
    pub fn foreign(path: &Path) -> io::Result<Map> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() == 0 {
            let what = "not a regular file, or empty";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Map::of(file)
    }

    /// What went wrong with the file since it was mapped, as the end of a sentence about it.
    pub fn cut(&self) -> Option<String> {
        let had = self.bytes.len() as u64;
        match self.file.metadata() {
            // Within its last page there is no SIGBUS, but zeros all the same.
            Ok(now) if now.len() < had => Some(format!(
                "was truncated from {had} to {} bytes while being read",
                now.len()
            )),
            _ => self.guard.and_then(Guard::missing).map(|offset| {
                format!("cannot be read from byte {offset} on: truncated, or a disk error")
            }),
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes the pages out of this program's memory; looked at again, they come back.
    #[expect(
        unsafe_code,
        reason = "memmap2 marks the advice as such, since it empties private maps"
    )]
    pub fn release(&self) {
        // SAFETY: the map is a shared one of a file and is only read, so dropped pages have the same bytes when they
        // are read from the file again.
        let result = unsafe { self.bytes.unchecked_advise(UncheckedAdvice::DontNeed) };
        // An advice that is not taken costs nothing but memory.
        if let Err(error) = result {
            log::debug!("cannot give mapped pages back: {error}");
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // Before the addresses are somebody else's.
        if let Some(guard) = self.guard {
            guard.leave();
        }
    }
}

/// Maps that the handler knows. A directory has a file for each thread of its recorder, symbols a file for each module.
const GUARDS: usize = 4096;
/// Nothing is missing.
const NOTHING: usize = usize::MAX;

/// Addresses of a map, as the handler may read them at any time.
#[derive(Debug)]
struct Guard {
    /// 0: nobody's.
    start: AtomicUsize,
    /// 0: not known yet.
    end: AtomicUsize,
    /// Offset of the first page that was missing.
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
    /// One for the addresses of these bytes.
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

    /// The addresses from a missing one's page to the end, if it is among these.
    fn rest(&self, address: usize, page: usize) -> Option<(usize, usize)> {
        let (start, end) = (
            self.start.load(Ordering::Acquire),
            self.end.load(Ordering::Acquire),
        );
        let first = address / page * page;
        (start != 0 && start <= address && address < end).then(|| (first.max(start), end))
    }
}

/// What handled SIGBUS before.
static FORMER: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

#[expect(unsafe_code, reason = "signals are set by system calls")]
fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if let Ok(page) = usize::try_from(page) {
            PAGE_BYTES.store(page.max(1), Ordering::Relaxed);
        }
        // SAFETY: all bits of a sigaction may be zeros.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_missing_page as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: as above.
        let mut former: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the second argument is read, the third written; both are whole.
        let result = unsafe { libc::sigaction(libc::SIGBUS, &action, &mut former) };
        match result {
            0 => FORMER.store(Box::into_raw(Box::new(former)), Ordering::Release),
            _ => log::debug!("cannot handle SIGBUS: {}", io::Error::last_os_error()),
        }
    });
}

/// Puts zeros where a mapped file has no more bytes. Only what may be done in a signal's handler: atomics, system calls.
#[expect(unsafe_code, reason = "a handler of signals gets pointers")]
extern "C" fn on_missing_page(
    _number: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    /// No such page (asm-generic/siginfo.h). Other codes are broken memory.
    const BUS_ADRERR: libc::c_int = 2;
    // SAFETY: the kernel gives a whole siginfo.
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
        // SAFETY: these are pages of a map of ours, which is only read and lives, since somebody reads it now.
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
    // Not ours: the former handler gets the signal, since the access is repeated now.
    let former = FORMER.load(Ordering::Acquire);
    if !former.is_null() {
        // SAFETY: it came from a box that is never freed.
        unsafe { libc::sigaction(libc::SIGBUS, former, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_reads_as_zeros_and_says_so() {
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
        // Grown again, it is not what it was.
        file.as_file().set_len(100_000).unwrap();
        let cut = whole.cut().unwrap();
        assert!(cut.contains("cannot be read from byte"), "{cut}");
        drop(whole);
        let again = Map::of(File::open(file.path()).unwrap()).unwrap();
        assert_eq!((again.cut(), again[4999]), (None, 7));
    }
}
