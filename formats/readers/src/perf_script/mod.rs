//! The output of `perf script`: samples with their stacks, tracepoints with their payloads, and, on request, perf's own
//! records.
//!
//! ```text
//! workload   220    50.102807555:    1001001 cpu-clock:
//!         ffffffff81c95a7f __memset+0xf ([kernel.kallsyms])
//!                   401186 work_inner+0x31 (/w/workload)
//!
//!             dd   479/479   [001]   256.369262940:          1  probe:vfs_write: (ffffffff81442060) count=4096
//! ```
//! Format: `tools/perf/builtin-script.c` of Linux 3.x to 7.x. The default fields, and those of `-F` with comm, tid,
//! pid, cpu, time, period, event, addr, data_src, weight, ip, sym, symoff, dso, iregs, uregs, brstack, phys_addr, trace, in perf's own order, with any of them missing.
//!
//! - A single number in front is the TID, `1/2` PID and TID, one of ten columns the period.
//! - A head without a time is one only in texts whose heads have none, and a stack without a head (`-F ip,sym`) only in
//!   texts without heads. Lines between a head and its frames are messages of perf, or problems; the stack goes on.
//! - Differences of times (`--deltatime`) are added up, and reported.
//! - A sample ends with an empty line or the next head. Frames come leaf first; those of the kernel form the kernel
//!   stack, the others the user stack. Without a call chain, the location on the head's line is the only frame.
//! - Payloads are parsed like those of ftrace (`payload_text`).
//! - Source lines (`-F +srcline`, `-F +srccode`) and instructions (`-F +insn`) are dropped.
//! - Every line is data, header, blank, a loss or a problem; the fact `perf_script.lines` has the counts.

mod deltas;
mod frame;
mod head;
mod kind;
mod known;
mod layout;
mod location;
mod messages;
mod read;
mod record;
mod registers;
mod sniff;
#[cfg(test)]
mod tests;

pub use sniff::is_report;

use perfquet_events::Format;

/// The text of perf script.
pub const PERF_SCRIPT: Format = Format {
    name: "perf-script",
    about: "text output of perf script: samples with stacks, tracepoints",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
