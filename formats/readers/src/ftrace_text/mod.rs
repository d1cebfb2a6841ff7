//! The text output of Linux's function and event tracer, from the kernel and from tools: `trace`, `trace_pipe`,
//! snapshots and `hist` of tracefs; dumps of the buffer in the kernel log; `trace-cmd report` and `show`; systrace and
//! atrace of Android; perf-tools; and any of these filtered through `grep`.
//!
//! ```text
//! # tracer: nop
//! # entries-in-buffer/entries-written: 92/938   #P:2
//!           <idle>-0       [001] d..2.     2.055256: sched_switch: prev_comm=swapper/1 prev_pid=0 …
//!               dd-205     [000] .....     2.364069: sys_write(fd: 1, buf: 0x564d4d119000, count: 0x1000)
//!               dd-311     [000] .....     5.445700: vfs_read <-ksys_read
//!               dd-311     [000] .....     5.445711: <stack trace>
//!  => vfs_read
//!  0)   1.578 us    |    fdget_pos();
//! R 4 44.250212 1 0xfa000000 0x84b300a2 0x0 0
//! ```
//! Format: `kernel/trace/trace_output.c`, `trace_functions_graph.c`, `trace_events_hist.c` and others of Linux 2.6.27
//! to 7.3, `Documentation/trace/ftrace.rst`, and the sources of trace-cmd.
//!
//! - An event becomes a sample with the kernel's own columns (`payload_text`). The text does not name the
//!   event's system: it is inferred from the event's name, or is `ftrace`. Markers are `ftrace.print`.
//! - A function becomes a call without a duration; one of function_graph becomes a call, or its entry or exit. An event
//!   printed as a comment inside a graph is still an event.
//! - The kernel prints microseconds, rounded half up; trace-cmd prints nanoseconds with `-t`. A clock in other units
//!   (`counter`, `x86-tsc`, `uptime`) has no stated unit: `time` is NULL, and events have the column `clock_value`. The
//!   text never names the clock. With latency-format, times count from the first event.
//! - A stack belongs to the preceding event of the same CPU and thread. If there is none, the stack becomes an event,
//!   `ftrace.kernel_stack`.
//! - Losses are reported: overwritten entries, `[LOST n EVENTS]`, `[n EVENTS DROPPED]`.
//! - Every line is data, header, blank, a loss or a problem; the fact `ftrace.lines` has the counts.
//! - Comms cut by the kernel (to eight bytes with latency-format, to seven in a graph) are kept as printed.
//! - The flags of a head become the `context` of calls (task, softirq, irq, nmi), and the columns `common_flags` and
//!   `common_preempt_count` of events.

mod dump;
mod emit;
mod graph;
mod head;
mod header;
mod hist;
mod indent;
mod item;
mod mmio;
mod open_stack;
mod page;
mod read;
mod shape;
mod sniff;
mod stack;
mod symbol;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// The text format of ftrace.
pub const FTRACE_TEXT: Format = Format {
    name: "ftrace-text",
    about: "text output of ftrace: trace, trace_pipe, hist, dumps in dmesg, trace-cmd report, systrace",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
