//! Output of SystemTap scripts, as far as the functions of its runtime and tapsets print it.
//!
//! ```text
//! latency ns:
//!     value |-------------------------------------------------- count
//!      4096 |@                                                   1
//!      8192 |@@                                                  2
//!
//!      0 calls(171): -> main(c=0x2 v=0x7ffc76f59ff8)            thread_indent: µs, name(tid), depth
//!  16853 calls(171): <- main return=0x1
//!
//! sys(185) 1795363212093373 cpu0 kprobe.function("ksys_write")  a line, then print_backtrace
//!  0xffffffff8134d8f0 : ksys_write+0x0/0xe0 [kernel]
//!  0xffffffff81a03f4d : do_syscall_64+0x5d/0xc0 [kernel] (inexact)
//! ```
//! Specification: `runtime/stat-common.c`, `runtime/sym.c` and `tapset/indent.stp` of SystemTap; its language reference.
//! Versions known: 1.x to 5.x. A script prints whatever it likes, so text alone is not recognized: `--from systemtap` reads it. Recognized
//! are histograms, calls, backtraces, and tables of function times with at least four values, two of which have a unit.
//!
//! | in the output | becomes |
//! | --- | --- |
//! | a histogram (`@hist_log`, `@hist_linear`), the line above it as its key | a row of `aggregates`, its bars in `buckets` |
//! | a row under titles that end with Count, Total ns, Avg ns, … (function times) | a row of `aggregates` for each value |
//! | `-> func(args)`, `<- func return=…` with thread_indent, also without blanks (para-callgraph) | `calls` |
//! | a backtrace below a number | a row of `aggregates` with a stack |
//! | a backtrace below another line | a row of `systemtap.message` with a stack |
//! | damaged bars and backtraces | `problems` |
//! | all other lines | a row of `systemtap.message` |
//!
//! - Bars of `@hist_log` are those of DTrace's `quantize`. A row `~` represents empty ones.
//! - thread_indent counts microseconds from the outermost call of the thread and restarts with the next: calls have a
//!   duration, and no time.
//! - A repeated key begins another printing (`snapshot`): SystemTap's statistics keep their values when printed.

mod indent;
mod read;
mod sniff;
mod stack;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// Whether a text that is not recognized shows the command of a script, for a hint.
pub fn has_command(head: &[u8]) -> bool {
    sniff::has_command(head)
}

/// The output of SystemTap.
pub const SYSTEMTAP: Format = Format {
    name: "systemtap",
    about: "output of SystemTap: histograms, thread_indent, backtraces, tables of counts",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
