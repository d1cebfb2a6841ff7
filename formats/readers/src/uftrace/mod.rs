//! Data of uftrace: calls of user functions, with arguments and return values. Format versions 3 and 4.
//!
//! ```text
//! info          Ftrace!\0 version header_size endian class features … | exename:/opt/demo/calls … argspec:fib@arg1;greet@arg1/s …
//! task.txt      SESS timestamp=518.466316475 pid=14212 sid=40eac3b1b5d65ad7 exename="/opt/demo/calls"
//! sid-40ea….map 563b194c8000-563b194cd000 r-xp 00000000 00:00 0   /opt/demo/calls build-id:73e6…
//! calls.sym     0000000000001249 T fib
//! 14212.dat     u64 time | u64: 2 bits type, 1 bit more, 3 bits magic (5), 10 bits depth, 48 bits address | arguments
//! kernel-cpu0.dat, kernel_header, kallsyms   pages of the kernel's ring buffer, their formats, names of functions
//! perf-cpu0.dat records of perf: context switches, names, ends of threads
//! ```
//! The format is documented by uftrace itself: `uftrace.h`, `libmcount/record.c`, `utils/fstack.c`. A trace is a directory with the
//! file `info`; the input may be that directory, one with it below, or an archive (`.tar`, `.zip`, also compressed). The printed texts of
//! `uftrace dump` and `uftrace replay` are read, too (`dump.rs`, `replay.rs`).
//!
//! - A record has the address of a function; its name is in the `.sym` files, its module in the mappings of its session.
//! - The size of arguments follows from their specification, which is in `info` and in `.dbg` files. Without it, the next record is searched.
//! - Arguments are `arg1=5`. An integer without a format is a register, whose type uftrace does not record. It is signed, and
//!   values from 0xffff0000 to 0xffffffff are small negative numbers of 32 bits, as `uftrace replay` shows them.
//! - A return value that is no integer (a string, a floating-point number) is a hit of `uftrace:return_value`.
//! - Context switches are hits of `linux:sched_out` and `linux:sched_in`, and calls of `linux:schedule`, as in uftrace's own reports.
//! - Functions of the kernel are calls inside the user functions of their thread, its events are tables as in a trace.dat. Their
//!   durations are those that the kernel measured, without the time of its tracing, which `uftrace report` includes.
//! - Records of a task that were lost become losses; no call of this task spans them.

mod arguments;
mod dump;
mod emit;
mod events;
mod info;
mod kernel;
mod pattern;
mod perf;
mod read;
mod record;
mod replay;
mod sessions;
mod sniff;
mod symbols;
#[cfg(test)]
mod tests;
mod text;

use perfquet_events::Format;

/// uftrace's directories and texts.
pub const UFTRACE: Format = Format {
    name: "uftrace",
    about: "uftrace: a directory, .tar or .zip, the text of uftrace dump or replay",
    main_file: Some("**/info"),
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
