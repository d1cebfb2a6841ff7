//! `perf_event_open(2)`: one counter, tracepoint or clock on one CPU or thread.

#![expect(unsafe_code, reason = "system calls that no safe crate wraps")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use perf_event_open_sys as raw;
pub(crate) use perf_event_open_sys::bindings as abi;

/// The description of an event: `struct perf_event_attr`.
pub(crate) type Attr = abi::perf_event_attr;

/// Size of an attr that every reader since Linux 5.13 knows (`PERF_ATTR_SIZE_VER7`). perf 6.1 reads any excess as IDs.
const JOURNAL_ATTR_BYTES: usize = 128;

/// Maximum number of events of a group.
pub(crate) const GROUP_EVENTS: usize = 32;

/// The numbers that identify an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of occurrences, including lost ones; nanoseconds for clocks.
    pub(crate) value: u64,
    /// Samples lost; `None` on kernels before 6.0.
    pub(crate) lost: Option<u64>,
}

/// The tasks whose events are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Counted {
    /// A thread; -1: all.
    Process(i32),
    /// The tasks of a cgroup, by its directory's descriptor.
    Cgroup(RawFd),
}

/// An open event.
#[derive(Debug)]
pub(crate) struct Event {
    fd: OwnedFd,
    has_lost: bool,
    /// Whether a reading has the values of all events of its group.
    is_group: bool,
}

impl Event {
    /// Opens it for `pid` (-1: every process) on `cpu` (-1: every CPU).
    pub(crate) fn open(attr: &Attr, pid: i32, cpu: i32) -> io::Result<Event> {
        Event::open_for(attr, pid, (cpu, -1), 0)
    }

    /// Opens it for the tasks of a cgroup, whose directory is open, on `cpu`.
    pub(crate) fn open_in_cgroup(attr: &Attr, folder: RawFd, cpu: i32) -> io::Result<Event> {
        Event::open_for(attr, folder, (cpu, -1), abi::PERF_FLAG_PID_CGROUP)
    }

    /// Opens the event such that its first record already goes to the ring of `owner`, which must be on the same CPU
    /// and clock.
    pub(crate) fn open_into(attr: &Attr, pid: i32, cpu: i32, owner: &Event) -> io::Result<Event> {
        // The manual says that PERF_FLAG_FD_OUTPUT is broken since 2.6.35, but it works for CPU events (tested on 6.1
        // to 7.3). Where it does not, the records until the ioctl are lost.
        let flags = abi::PERF_FLAG_FD_OUTPUT | abi::PERF_FLAG_FD_NO_GROUP;
        if let Ok(event) = Event::open_for(attr, pid, (cpu, owner.as_raw_fd()), flags) {
            return Ok(event);
        }
        let event = Event::open(attr, pid, cpu)?;
        event.set_output(owner)?;
        Ok(event)
    }

    /// Opens an event that is counted together with `leader`: the kernel schedules both or none. `tasks` is a PID, or the directory
    /// of a cgroup.
    pub(crate) fn open_to_count(
        attr: &Attr,
        tasks: Counted,
        cpu: i32,
        leader: Option<&Event>,
    ) -> io::Result<Event> {
        let (tasks, flags) = match tasks {
            Counted::Process(pid) => (pid, 0),
            Counted::Cgroup(folder) => (folder, abi::PERF_FLAG_PID_CGROUP),
        };
        let group = leader.map_or(-1, AsRawFd::as_raw_fd);
        Event::open_for(attr, tasks, (cpu, group), flags)
    }

    fn open_for(
        attr: &Attr,
        tasks: i32,
        (cpu, group): (i32, RawFd),
        flags: u32,
    ) -> io::Result<Event> {
        let flags = abi::PERF_FLAG_FD_CLOEXEC | flags;
        let mut attr = *attr;
        attr.size = size_of::<Attr>() as u32;
        // SAFETY: `attr` is initialized, its `size` is that of the struct, and the kernel copies it. The members
        // that hold addresses (kprobe_func, uprobe_path) are never set here.
        let fd = unsafe { raw::perf_event_open(&mut attr, tasks, cpu, group, flags.into()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let has_lost = attr.read_format & u64::from(abi::PERF_FORMAT_LOST) != 0;
        let is_group = attr.read_format & u64::from(abi::PERF_FORMAT_GROUP) != 0;
        Ok(Event {
            fd,
            has_lost,
            is_group,
        })
    }

    /// Starts the event.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: no address is passed.
        check(unsafe { raw::ioctls::ENABLE(self.as_raw_fd(), 0) })
    }

    /// Stops it, in the children that inherited it too.
    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: no address is passed.
        check(unsafe { raw::ioctls::DISABLE(self.as_raw_fd(), 0) })
    }

    /// Sets its period, or its frequency if it was opened with one. Children that inherited it keep theirs.
    pub(crate) fn set_period(&self, period: u64) -> io::Result<()> {
        // The kernel takes the address of the number (perf_event_open(2)), the wrapper any number.
        let address = (&raw const period).addr() as u64;
        // SAFETY: the kernel reads 8 bytes from `period`, which lives during the call.
        check(unsafe { raw::ioctls::PERIOD(self.as_raw_fd(), address) })
    }

    /// Sends its records into the ring of `owner`, which must be on the same CPU and clock.
    pub(crate) fn set_output(&self, owner: &Event) -> io::Result<()> {
        // SAFETY: no address is passed.
        check(unsafe { raw::ioctls::SET_OUTPUT(self.as_raw_fd(), owner.as_raw_fd()) })
    }

    /// Sets a tracepoint's filter. Possible once: the kernel rejects a second filter.
    pub(crate) fn set_filter(&self, filter: &CStr) -> io::Result<()> {
        // SAFETY: the kernel reads the string, which ends with NUL, and does not write it.
        check(unsafe { raw::ioctls::SET_FILTER(self.as_raw_fd(), filter.as_ptr().cast_mut()) })
    }

    /// The id that its records carry.
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: the kernel writes 8 bytes to `id`.
        check(unsafe { raw::ioctls::ID(self.as_raw_fd(), &mut id) })?;
        Ok(id)
    }

    /// Reads value, time enabled and time running, in nanoseconds (`read_format`: PERF_FORMAT_TOTAL_TIME_*).
    pub(crate) fn times(&self) -> io::Result<[u64; 3]> {
        let mut words = [0u64; 3];
        // SAFETY: the kernel writes at most 24 bytes, which `words` has.
        let read = unsafe { libc::read(self.as_raw_fd(), words.as_mut_ptr().cast(), 24) };
        match read {
            24 => Ok(words),
            0.. => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sets its count to 0, in the children that inherited it too.
    pub(crate) fn reset(&self) -> io::Result<()> {
        // SAFETY: no address is passed.
        check(unsafe { raw::ioctls::RESET(self.as_raw_fd(), 0) })
    }

    /// Reads its counts (`read_format`: value, id, and lost where the kernel has it).
    pub(crate) fn counts(&self) -> io::Result<Counts> {
        if self.is_group {
            return self.counts_of_group();
        }
        let mut words = [0u64; 3];
        let wanted = if self.has_lost { 24 } else { 16 };
        // SAFETY: the kernel writes at most `wanted` bytes, and `words` has 24.
        let read = unsafe { libc::read(self.as_raw_fd(), words.as_mut_ptr().cast(), wanted) };
        match usize::try_from(read) {
            Ok(count) if count == wanted => Ok(Counts {
                value: words[0],
                lost: self.has_lost.then_some(words[2]),
            }),
            // End of file: the event is in error state (a pinned counter that was not scheduled).
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

impl Event {
    /// Reads the counts of a group's first event: the number of events, then value, id and lost of each.
    fn counts_of_group(&self) -> io::Result<Counts> {
        let mut words = [0u64; 1 + 3 * GROUP_EVENTS];
        let bytes = size_of_val(&words);
        // SAFETY: the kernel writes at most `bytes`, the size of `words`.
        let read = unsafe { libc::read(self.as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
        match read {
            32.. => Ok(Counts {
                value: words[1],
                lost: self.has_lost.then_some(words[3]),
            }),
            24.. if !self.has_lost => Ok(Counts {
                value: words[1],
                lost: None,
            }),
            0.. => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Attaches a BPF program that decides about each sample of an event.
pub(super) fn set_bpf(event: &Event, program: RawFd) -> io::Result<()> {
    // SAFETY: a descriptor is passed, no address.
    check(unsafe { raw::ioctls::SET_BPF(event.as_raw_fd(), program as u32) })
}

/// The bytes of an attr as a journal holds them.
pub(crate) fn attr_bytes(attr: &Attr) -> Vec<u8> {
    let mut attr = *attr;
    let size = if attr.config3 == 0 && attr.config4 == 0 {
        JOURNAL_ATTR_BYTES
    } else {
        size_of::<Attr>()
    };
    attr.size = size as u32;
    // SAFETY: `perf_event_attr` is `repr(C)` without padding and initialized throughout; `size` is at most its own.
    unsafe { std::slice::from_raw_parts((&raw const attr).cast::<u8>(), size) }.to_vec()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
