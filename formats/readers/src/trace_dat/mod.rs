//! trace.dat: what `trace-cmd record`, `extract`, `restore`, `split` and `convert` write.
//!
//! ```text
//! 17 08 44 "tracing" "6\0" 00 08 00100000   magic, version, endian, sizeof(long), page size; format files follow
//! 17 08 44 "tracing" "7\0" 00 08 00100000   the same, then "zstd\0" "1.5.4\0" u64 offset of the first options
//! 10 00  01 00  00000000  0501000000000000  a section: u16 id 16, u16 flags (1: packed), u32 string, u64 size
//! 79 6f 23 … 00  a8 0f …                    a page of the kernel's ring buffer: u64 time, long commit, then
//! 49 8a 00 00  3c 01 …                      an event: 5 bits length, 27 bits time, payload from common_type on
//! ```
//! | file | what |
//! | --- | --- |
//! | `head.rs`, `version6.rs`, `version7.rs`, `options.rs`, `unpack.rs` | where in the file things are |
//! | `restore.rs` | files of single CPUs that a dead recorder left beside it |
//! | `page.rs`, `stream.rs`, `merge.rs` | pages → records of one CPU, with their stacks → all CPUs in the order of time |
//! | `clock.rs` | what a time stamp counts, and how it becomes nanoseconds |
//! | `formats.rs`, `declare.rs` | which event an id is, and its declaration |
//! | `emit.rs`, `printk.rs`, `kallsyms.rs` | records → events; the text of trace_printk; names of functions |
//! | `facts.rs` | facts, command lines, mappings, what the rings counted as lost |
//!
//! Specification: trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5) of trace-cmd, include/linux/ring_buffer.h of Linux and
//! libtraceevent's kbuffer-parse.c. Known: versions 6 and 7, both byte orders, kernels of 32 and 64 bits since 2.6.31
//! (pages and events are read by the format files inside the file, never by the kernel's version), packed by zlib or
//! zstd or not, several buffers, host and guest.
//!
//! - A stack (`kernel_stack`, `user_stack`) belongs to the event before it on the same CPU, of the same thread and
//!   context; one that finds none is an event of its own.
//! - `function` becomes a call without an end, `funcgraph_entry` and `funcgraph_exit` become enter and leave. All
//!   other events keep their fields, also those that the kernel's own tracers write.
//! - Clocks of an unknown unit (`counter`, `x86-tsc` without its conversion) give events without a time, in their order;
//!   the column `clock_value` has what the clock said.
//! - In a file with instances, events have a column `buffer` with the instance's name.

mod clock;
mod declare;
mod emit;
mod facts;
mod formats;
mod head;
mod kallsyms;
mod merge;
mod options;
mod page;
mod printk;
mod read;
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
    sniff: sniff::sniff,
    read: read::read,
};
