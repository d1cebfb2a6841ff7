//! Output of bcc's tools and of libbpf-tools: histograms, counts, stacks with values, lists of events.
//!
//! ```text
//! 15:38:33
//! pid = 15 rcu_preempt
//!      usecs               : count    distribution
//!          0 -> 1          : 6        |*                                       |
//!          2 -> 3          : 72       |****************************************|
//!
//! avg = 13746 nsecs, total: 6543360 nsecs, count: 476
//!
//!     schedule
//!     do_nanosleep
//!     -                sleep (4711)
//!         1000123
//! ```
//! Specification: `src/cc/table.py` (`print_log2_hist`, `print_linear_hist`) and the tools of bcc; `trace_helpers.c` of
//! libbpf-tools. Versions known: bcc 0.1 to 0.31, libbpf-tools 0.26.
//!
//! | in the output | becomes |
//! | --- | --- |
//! | a histogram, the line above it (`pid = 7`, `operation = 'read'`, argdist's probe) as its key | a row of `aggregates`, its bars in `buckets` |
//! | a row under FUNC COUNT, SYSCALL COUNT TIME, COUNT EVENT, … | a row of `aggregates` for each value |
//! | `avg = …, total: …, count: …` | three rows: avg, sum, count |
//! | frames and a number (stackcount, offcputime, profile), memleak's allocations | a row of `aggregates` with a stack |
//! | a row under PID COMM FD ERR PATH and other titles in capitals | a row of `bcc.TOOL` with typed columns |
//! | lost events | `losses` |
//! | damaged bars and rows | `problems` |
//! | all other lines | a row of `bcc.message` |
//!
//! - Bars have inclusive ends: `4 -> 7` is [4, 8), and `0 -> 1` has the values 0 and 1.
//! - A line with nothing but a time begins another printing, and so does a repeated key: `snapshot` counts them. Most tools
//!   clear their values in between, but funclatency of libbpf-tools does not, so printings must not be added without
//!   knowing the tool. `time` is that of the printing, of the day and without a time zone.
//! - Frames of the kernel and the user are distinguished only if the line `--` is between them.

mod histogram;
mod read;
mod sniff;
mod stack;
#[cfg(test)]
mod tests;
mod tool;

use perfquet_events::Format;

/// The output of bcc's tools.
pub const BCC: Format = Format {
    name: "bcc",
    about: "output of bcc's tools and libbpf-tools: histograms, counts, stacks, lists of events",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
