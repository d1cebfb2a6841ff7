//! A BPF program of a dozen instructions that excludes the recorder's own samples: counters and clocks do not support
//! filters.
//!
//! ```text
//! comm = bpf_get_current_comm(); return comm != "perfquet-record";     0: the sample is not written
//! ```
//! By name, as the filters of tracepoints ([`crate::self_exclusion`]): threads that come later have it too.
//! (include/uapi/linux/bpf.h; kernel/events/core.c, `bpf_overflow_handler`)

#![expect(unsafe_code, reason = "bpf and an ioctl of perf events")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::perf_event::{Event, set_bpf};
use super::thread::COMM;

const PROG_LOAD: libc::c_int = 5;
const PROG_TYPE_PERF_EVENT: u32 = 7;
const GET_CURRENT_COMM: i32 = 16;

/// The loaded program.
pub(crate) struct SampleFilter(OwnedFd);

/// `union bpf_attr` of BPF_PROG_LOAD, as far as it is needed.
#[repr(C)]
struct Load {
    prog_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

impl SampleFilter {
    /// Loads it; needs CAP_BPF and CAP_PERFMON.
    pub(crate) fn load() -> io::Result<SampleFilter> {
        let program = program();
        let license = c"Dual MIT/GPL";
        let load = Load {
            prog_type: PROG_TYPE_PERF_EVENT,
            instruction_count: program.len() as u32,
            instructions: program.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: *b"pq_not_own\0\0\0\0\0\0",
        };
        // SAFETY: `load` has the layout of the union's member and outlives the call, as do the program and the license;
        // the kernel copies all of them.
        let fd =
            unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, size_of::<Load>()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(SampleFilter(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Attaches the program to an event, which keeps it.
    pub(crate) fn attach(&self, event: &Event) -> io::Result<()> {
        set_bpf(event, self.0.as_raw_fd())
    }
}

/// `struct bpf_insn`: opcode, registers (source << 4 | destination), offset, constant; in the host's byte order.
fn program() -> Vec<u64> {
    let instruction = |opcode: u8, destination: u8, source: u8, offset: i16, constant: i32| {
        let [low, high] = offset.to_ne_bytes();
        let [a, b, c, d] = constant.to_ne_bytes();
        // The registers are bit fields, whose order is that of the bytes.
        let registers = match cfg!(target_endian = "big") {
            true => destination << 4 | source,
            false => source << 4 | destination,
        };
        u64::from_ne_bytes([opcode, registers, low, high, a, b, c, d])
    };
    let mut comm = [0; 16];
    comm[..COMM.len()].copy_from_slice(COMM.as_bytes());
    let (words, _) = comm.as_chunks::<8>();
    let load_word = |word: [u8; 8]| {
        let word = u64::from_ne_bytes(word);
        let (low, high) = (word as u32 as i32, (word >> 32) as i32);
        [
            instruction(0x18, 2, 0, 0, low),
            instruction(0, 0, 0, 0, high),
        ]
    };
    let (first, second) = (load_word(words[0]), load_word(words[1]));
    vec![
        instruction(0xbf, 1, 10, 0, 0),               // r1 = r10
        instruction(0x07, 1, 0, 0, -16),              // r1 -= 16
        instruction(0xb7, 2, 0, 0, 16),               // r2 = 16
        instruction(0x85, 0, 0, 0, GET_CURRENT_COMM), // comm of the running thread to r10 - 16
        instruction(0xb7, 0, 0, 0, 1),                // r0 = 1
        instruction(0x79, 1, 10, -16, 0),             // r1 = its first half
        first[0],
        first[1],
        instruction(0x5d, 1, 2, 5, 0),   // another process: to the end
        instruction(0x79, 1, 10, -8, 0), // r1 = its second half
        second[0],
        second[1],
        instruction(0x5d, 1, 2, 1, 0), // another process: to the end
        instruction(0xb7, 0, 0, 0, 0), // r0 = 0
        instruction(0x95, 0, 0, 0, 0), // return r0
    ]
}
