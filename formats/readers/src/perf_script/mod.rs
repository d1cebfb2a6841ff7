//! What `perf script` prints: samples with their stacks, tracepoints with their payloads, and, on request, perf's own
//! records.
//!
//! ```text
//! workload   220    50.102807555:    1001001 cpu-clock:
//!         ffffffff81c95a7f __memset+0xf ([kernel.kallsyms])
//!                   401186 work_inner+0x31 (/w/workload)
//!
//!             dd   479/479   [001]   256.369262940:          1  probe:vfs_write: (ffffffff81442060) count=4096
//! ```
//! After `tools/perf/builtin-script.c` of Linux 3.x to 7.x: the default form and those of `-F` with comm, tid, pid, cpu,
//! time, period, event, ip, sym, symoff, dso, brstack, trace, in perf's own order, any of them missing.
//!
//! - One number in front is the thread, `1/2` process and thread.
//! - A sample ends with an empty line or the next head. Frames come leaf first; those of the kernel are the kernel's
//!   stack, the rest that of user space. Without a call chain the place on the head's line is the only frame.
//! - Payloads are taken apart as those of ftrace ([`crate::payload_text`]).
//! - Lines of source code after a frame (`-F +srcline`) are not kept.
//! - Every line is data, header, blank, a loss or a problem; the fact `perf_script.lines` has the counts.

mod frame;
mod head;
mod read;
mod record;
mod sniff;
#[cfg(test)]
mod tests;

pub use sniff::is_report;

use perfquet_events::Format;

/// perf script's text.
pub const PERF_SCRIPT: Format = Format {
    name: "perf-script",
    about: "text output of perf script: samples with stacks, tracepoints",
    sniff: sniff::sniff,
    read: read::read,
};
