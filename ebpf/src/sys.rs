//! The `bpf(2)` requests that aya does not support: putting an event into a map, attaching a program to an event, and
//! attaching one to many kernel functions.

#![expect(unsafe_code, reason = "system calls that no safe crate wraps")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya_obj::generated::bpf_insn;

const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const LINK_CREATE: libc::c_long = 28;
/// `enum bpf_prog_type`
const KPROBE: u32 = 2;
/// `enum bpf_attach_type`
const PERF_EVENT: u32 = 41;
/// `enum bpf_attach_type`
const TRACE_KPROBE_MULTI: u32 = 42;
/// `BPF_F_KPROBE_MULTI_RETURN`
const AT_RETURN: u32 = 1;
/// `PERF_EVENT_IOC_SET_BPF`
const SET_BPF: libc::Ioctl = 0x4004_2408;

/// At which end of functions a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As they are called.
    Entry,
    /// As they return.
    Return,
}

/// A function of the kernel, and the number that the program gets by `bpf_get_attach_cookie` when it runs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// Where it begins.
    pub address: u64,
    /// Its number.
    pub cookie: u64,
}

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

/// `union bpf_attr` for BPF_PROG_LOAD, as far as used.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// `union bpf_attr` for BPF_LINK_CREATE of kernel functions.
#[repr(C)]
struct LinkCreateMulti {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    count: u32,
    symbols: u64,
    addresses: u64,
    cookies: u64,
}

/// `union bpf_attr` for BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct GetInfo {
    descriptor: u32,
    size: u32,
    info: u64,
}

/// `struct bpf_link_info` of kernel functions, as far as used.
#[repr(C)]
#[derive(Default)]
struct MultiInfo {
    kind: u32,
    id: u32,
    program: u32,
    unused: u32,
    addresses: u64,
    count: u32,
    flags: u32,
    missed: u64,
}

/// Puts an event into a map of events, at the index of its CPU.
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
    // has keys and values of that size; it rejects other maps of descriptors.
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

/// Attaches a program to every hit of an event, with a cookie that it can request. It is detached when the returned
/// descriptor is closed. Kernels before 5.15 lack such links: there it is detached with the event, and has no cookie.
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
    // SAFETY: the kernel copies `request`, whose size is passed.
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
            // SAFETY: the kernel has just created this descriptor, and this is its only owner.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(link as i32) }))
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && cookie == 0 => {
            // SAFETY: passes two descriptors and no address.
            let done = unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) };
            check(done.into()).map(|_| None)
        }
        Err(error) => Err(error),
    }
}

/// Loads a program for kernel functions.
pub(crate) fn load_for_functions(instructions: &[bpf_insn], license: &CStr) -> io::Result<OwnedFd> {
    let request = ProgLoad {
        kind: KPROBE,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        attach_type: TRACE_KPROBE_MULTI,
        ..ProgLoad::default()
    };
    // SAFETY: the kernel reads the given number of instructions and the license string up to its NUL; both outlive the
    // call.
    let made = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_LOAD,
            &raw const request,
            size_of::<ProgLoad>(),
        )
    };
    // SAFETY: the kernel has just created this descriptor, and this is its only owner.
    check(made).map(|program| unsafe { OwnedFd::from_raw_fd(program as i32) })
}

/// Attaches a program to one point of these functions. It is detached when the returned descriptor is closed.
pub(crate) fn hook(program: BorrowedFd<'_>, end: End, functions: &[Hook]) -> io::Result<OwnedFd> {
    let addresses: Vec<u64> = functions.iter().map(|function| function.address).collect();
    let cookies: Vec<u64> = functions.iter().map(|function| function.cookie).collect();
    let request = LinkCreateMulti {
        program: program.as_raw_fd() as u32,
        target: 0,
        attach_type: TRACE_KPROBE_MULTI,
        flags: 0,
        multi_flags: match end {
            End::Entry => 0,
            End::Return => AT_RETURN,
        },
        count: functions.len() as u32,
        symbols: 0,
        addresses: addresses.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
    };
    // SAFETY: the kernel reads `count` addresses and as many cookies; both lists outlive the call.
    let made = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            LINK_CREATE,
            &raw const request,
            size_of::<LinkCreateMulti>(),
        )
    };
    // SAFETY: the kernel has just created this descriptor, and this is its only owner.
    check(made).map(|link| unsafe { OwnedFd::from_raw_fd(link as i32) })
}

/// Hits missed by such a link; 0 if the kernel does not report them.
pub(crate) fn missed(link: BorrowedFd<'_>) -> u64 {
    let mut info = MultiInfo::default();
    let mut request = GetInfo {
        descriptor: link.as_raw_fd() as u32,
        size: size_of::<MultiInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    // SAFETY: the kernel writes at most `size` bytes at `info`, and their number to `size`; both outlive the call, and
    // are plain integers.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            OBJ_GET_INFO_BY_FD,
            &raw mut request,
            size_of::<GetInfo>(),
        )
    };
    match check(done) {
        Ok(_) => info.missed,
        Err(_) => 0,
    }
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
