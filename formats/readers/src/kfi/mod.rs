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
//! Specification: the code that prints it, `drivers/char/kfi.c` of CELF's 2.4 and `kernel/kft.c` of the 2.6 patches,
//! and the scripts that read it, `scripts/addr2sym` and `scripts/kd`. Versions known: KFI of 2.4 (`/proc/kfi`, and
//! KFT's console output), KFI and KFT of 2.6 (`/proc/kfi_trace`, `/proc/kft_data`), the same on several CPUs, with
//! arguments; each with addresses, or resolved by `addr2sym`.
//!
//! # Columns
//!
//! Each row of the log is a row of `calls`, in the order of the log: `call_id` grows with the lines.
//!
//! | in the log | in `calls` |
//! | --- | --- |
//! | Entry | `time`: (start + entry) × 1000, where start is the N of `Logging started at N usec` (fact `kfi.start`); without it the entry alone, and the clock is `kfi-relative` |
//! | Delta | `duration` = delta × 1000. NULL for -1: the exit was not seen. Other deltas that are not durations are NULL too, and are kept in `args` as written: `delta=-2` (kept by a stack watch), `delta=no exit` (an older printer; kd treats it as 0), `delta=4294967295` (-1 without its sign) |
//! | PID | `tid`; NULL and `context` irq for -1, which KFI writes for hardware interrupts and softirqs alike |
//! | `.N` after it | `cpu`, that of the exit; NULL if the delta is -1, since `.0` and `.9` are then meaningless. The fact `kfi.smp` records that the log has these suffixes |
//! | Function | `function`; an address is resolved by `--symbols`. A name with an offset (`_end+0x123`) is outside that function, and keeps the offset |
//! | Caller | `caller`, without its offset: the part before the first `+`, as kd reads it |
//! | Frame ptr, Arg 1–3 | `args`: `frame=0x…`, `arg1=0x…`, … |
//!
//! So `Entry` is (`time` − `kfi.start` × 1000) / 1000, and the output of kd can be computed from the tables.
//!
//! KFI of 2.4 writes delta 0 for a call whose exit it did not see. Such a call is indistinguishable from one of less
//! than 1 µs: its duration is 0.
//!
//! A file may contain several runs; facts of the second are `kfi.2.start`, …. A run with `autorepeat` appends to the
//! same log each time its trigger fires, with entries relative to the latest start. The header has only the last start:
//! rows of earlier segments have no time, and have `entry=` and `segment=` in their `args`.
//!
//! Calls dropped by filters, exits without an entry, and a full log are rows of `losses`. Console prefixes (`<0>`, `[
//! 12.345678]`, `Jan  1 00:00:12 host kernel:`) are skipped.
//!
//! A KFI configuration is not a trace: it is checked, described in the error (`config.rs`), and rejected.

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
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
