//! The two requests of `bpf(2)` that aya does not offer: an event of ours into a map, and a program on an event of ours.

#![expect(unsafe_code, reason = "system calls that no safe crate wraps")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_UPDATE_ELEM: libc::c_long = 2;
const LINK_CREATE: libc::c_long = 28;
/// `enum bpf_attach_type`
const PERF_EVENT: u32 = 41;
/// `PERF_EVENT_IOC_SET_BPF`
const SET_BPF: libc::Ioctl = 0x4004_2408;

/// `union bpf_attr` for BPF_MAP_UPDATE_ELEM.
#[repr(C)]
struct MapUpdate {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `union bpf_attr` for BPF_LINK_CREATE of a perf event.
#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// Puts an event into a map of events, at the place of its CPU.
pub(crate) fn put_event(map: BorrowedFd<'_>, cpu: u32, event: BorrowedFd<'_>) -> io::Result<()> {
    let value = event.as_raw_fd() as u32;
    let request = MapUpdate {
        map: map.as_raw_fd() as u32,
        unused: 0,
        key: (&raw const cpu) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: the kernel reads 4 bytes at `key` and 4 at `value`, which both outlive the call, since a map of events
    // has keys and values of that size; it refuses other maps of descriptors.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            MAP_UPDATE_ELEM,
            &raw const request,
            size_of::<MapUpdate>(),
        )
    };
    check(done).map(drop)
}

/// Lets a program run at every hit of an event, with a number that it can ask for. It goes with the descriptor that is
/// returned. Kernels before 5.15 have no such links: there it goes with the event, and there is no number.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<Option<OwnedFd>> {
    let request = LinkCreate {
        program: program.as_raw_fd() as u32,
        target: event.as_raw_fd() as u32,
        attach_type: PERF_EVENT,
        flags: 0,
        cookie,
    };
    // SAFETY: the kernel copies `request`, whose size it is told.
    let made = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            LINK_CREATE,
            &raw const request,
            size_of::<LinkCreate>(),
        )
    };
    match check(made) {
        Ok(link) => {
            // SAFETY: the kernel has just made this descriptor for us, nobody else owns it.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(link as i32) }))
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && cookie == 0 => {
            // SAFETY: takes two descriptors and no address.
            let done = unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) };
            check(done.into()).map(|_| None)
        }
        Err(error) => Err(error),
    }
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
