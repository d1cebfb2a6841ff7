//! trace.dat files, as written by `trace-cmd record`, `extract`, `restore`, `split` and `convert`.
//!
//! ```text
//! 17 08 44 "tracing" "6\0" 00 08 00100000   magic, version, endian, sizeof(long), page size; format files follow
//! 17 08 44 "tracing" "7\0" 00 08 00100000   the same, then "zstd\0" "1.5.4\0" u64 offset of the first options
//! 10 00  01 00  00000000  0501000000000000  a section: u16 id 16, u16 flags (1: packed), u32 string, u64 size
//! 79 6f 23 … 00  a8 0f …                    a page of the kernel's ring buffer: u64 time, long commit, then
//! 49 8a 00 00  3c 01 …                      an event: 5 bits length, 27 bits time, payload from common_type on
//! ```
//! | file | contents |
//! | --- | --- |
//! | `head.rs`, `version6.rs`, `version7.rs`, `options.rs`, `unpack.rs` | layout of the file |
//! | `restore.rs` | per-CPU files left by a killed recorder |
//! | `budget.rs` | how much of a damaged file is examined |
//! | `regions.rs` | where the pages of each CPU are, in a damaged file |
//! | `page.rs`, `stream.rs`, `merge.rs` | pages → records of one CPU, with their stacks → all CPUs in time order |
//! | `clock.rs` | units of timestamps, and their conversion to nanoseconds |
//! | `formats.rs`, `declare.rs` | event IDs and declarations |
//! | `emit.rs`, `printk.rs`, `kallsyms.rs` | records → events; trace_printk strings; function names |
//! | `facts.rs` | facts, command lines, mappings, losses counted by the ring buffers |
//!
//! Specification: trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5) of trace-cmd, include/linux/ring_buffer.h of Linux and
//! libtraceevent's kbuffer-parse.c. Known: versions 6 and 7, both byte orders, kernels of 32 and 64 bits since 2.6.31
//! (pages and events are read by the format files inside the file, never by the kernel's version), packed by zlib or
//! zstd or not, several buffers, host and guest.
//!
//! - A stack (`kernel_stack`, `user_stack`) belongs to the preceding event on the same CPU, of the same thread and
//!   context. Without such an event, the stack becomes a separate event.
//! - `function` becomes a call without an end, `funcgraph_entry` and `funcgraph_exit` become enter and leave. All other
//!   events keep their fields, including those written by the kernel's own tracers.
//! - Events on a clock of unknown unit (`counter`, `x86-tsc` without its conversion) have no time and keep their order;
//!   the column `clock_value` has the clock's count.
//! - In a file with instances, events have a column `buffer` with the instance's name.

mod budget;
mod clock;
mod declare;
mod emit;
mod facts;
mod formats;
#[cfg(test)]
mod front_tests;
mod head;
mod kallsyms;
mod merge;
mod options;
mod page;
pub(crate) mod pages;
mod printk;
mod read;
mod regions;
mod reporter;
mod restore;
mod sniff;
mod stream;
#[cfg(test)]
mod test_file;
#[cfg(test)]
mod tests;
mod unpack;
mod version6;
mod version7;

use perfquet_events::Format;

/// trace.dat, versions 6 and 7.
pub const TRACE_DAT: Format = Format {
    name: "trace.dat",
    about: "trace-cmd record, extract, restore: versions 6 and 7",
    main_file: None,
    has_lines: false,
    sniff: sniff::sniff,
    read_file: read::read,
};
