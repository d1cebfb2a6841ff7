//! Text log of Kernel Function Instrumentation (KFI, later KFT: Kernel Function Trace): one line per call of a kernel
//! function, with its entry and its duration in microseconds.
//!
//! ```text
//! Logging started at 1285942 usec by entry to function do_fork
//! Execution time filter count = 896348
//!
//!  Entry    Delta     PID        Function                        Caller
//! -------- -------- -------- ----------------                 ------------
//!        0       26      19  do_fork                          0x10008094
//!       77       -1    -1.2  timer_interrupt                  do_IRQ+0x48
//! ```
//! Specification: the code that prints it, `drivers/char/kfi.c` of CELF's 2.4, `kernel/kft.c` of the 2.6 patches, and
//! what `scripts/addr2sym` and `scripts/kd` make of it. Versions known: KFI of 2.4 (`/proc/kfi`, and what KFT says on the
//! console), KFI and KFT of 2.6 (`/proc/kfi_trace`, `/proc/kft_data`), the same on several CPUs, with arguments; each with
//! addresses, or resolved by `addr2sym`.
//!
//! # Which column holds what
//!
//! Each row of the log is a row of `calls`, in the order of the log: `call_id` grows with the lines.
//!
//! | in the log | in `calls` |
//! | --- | --- |
//! | Entry | `time`: (start + entry) × 1000, where start is the N of `Logging started at N usec` (fact `kfi.start`); without it the entry alone, and the clock is `kfi-relative` |
//! | Delta | `duration` = delta × 1000. NULL for -1: the exit was not seen. Other deltas that are no duration are NULL too and stay in `args` as they were written: `delta=-2` (kept by a stack watch), `delta=no exit` (an older printer; kd takes it for 0), `delta=4294967295` (-1 without its sign) |
//! | PID | `tid`; NULL and `context` irq for -1, which KFI writes for hardware interrupts and softirqs alike |
//! | `.N` after it | `cpu`, that of the exit; NULL where the delta is -1, since `.0` and `.9` then mean nothing. The fact `kfi.smp` says that the log has these suffixes |
//! | Function | `function`; an address is resolved by `--symbols`. A function whose name has an offset (`_end+0x123`) is not that function, and keeps it |
//! | Caller | `caller`, without its offset: the part before the first `+`, which is all that kd looks at |
//! | Frame ptr, Arg 1–3 | `args`: `frame=0x…`, `arg1=0x…`, … |
//!
//! So `Entry` is (`time` − `kfi.start` × 1000) / 1000, and what kd prints can be made from the tables.
//!
//! KFI of 2.4 wrote delta 0 for a call whose exit it did not see, which looks like a call of less than 1 µs: the duration
//! is 0.
//!
//! Several runs may stand in one file; facts of the second are `kfi.2.start`, …. A run with `autorepeat` appends to the same
//! log each time its trigger fires, with entries from the latest start, and the header knows only the last: rows of
//! the earlier segments have no time, and `entry=` and `segment=` in their `args`.
//!
//! What the filters left out, exits without an entry, and a full log are rows of `losses`. Lines with what a console puts
//! before them (`<0>`, `[   12.345678]`, `Jan  1 00:00:12 host kernel:`) are read without it.
//!
//! The configuration of KFI is no trace: it is checked and told (`config.rs`), and refused.

pub mod config;
mod header;
mod read;
mod row;
mod segments;
mod sniff;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// Logs of KFI and KFT.
pub const KFI: Format = Format {
    name: "kfi",
    about: "log of Kernel Function Instrumentation (KFI, KFT), with names or addresses",
    sniff: sniff::sniff,
    read: read::read,
};
