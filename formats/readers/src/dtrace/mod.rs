//! Output of `dtrace`: what a D script traced, printed and aggregated. Human-readable text in many forms, mixed in one
//! file.
//!
//! ```text
//! dtrace: description 'syscall:::entry ' matched 228 probes
//! CPU     ID                    FUNCTION:NAME
//!   0   8408                     malloc:entry                64        a hit of a probe
//!   0  -> vfs_read                                                     -F: a function is entered
//!
//!   Xorg                                                           17  a key of an aggregation, its value
//!
//!               genunix`open+0x25
//!               unix`sys_syscall+0x17a
//!                 1                                                    a stack and its value
//! ```
//! Specification: `dt_consume.c` and `dt_handle.c` of libdtrace and `cmd/dtrace.c` (illumos, FreeBSD, and Oracle's for
//! Linux); for structured output, FreeBSD's dtrace(1). Versions known: illumos, FreeBSD, macOS, Linux 2.x.
//!
//! | in the output | becomes |
//! | --- | --- |
//! | a row of an aggregation, a distribution, a stack with a value | a row of `aggregates`, its bars in `buckets` |
//! | counts by key that ktap prints under the head of distributions | rows of `aggregates` |
//! | a hit (CPU, ID, FUNCTION:NAME and the traced data) | a row of `dtrace.probe` |
//! | `->`, `<-`, `=>`, `<=` | `calls`, without times, since the output has none |
//! | a table that a script prints: titles above a ruler of dashes | a separate table, named by the framed title above it |
//! | a table that a script prints: titles in capitals, rows below | a separate table; repeated titles continue it |
//! | drops | `losses` |
//! | errors, unreadable lines | `problems` |
//! | all other text | a row of `dtrace.message`, with its line |
//!
//! Data that the text lacks is NULL: the provider and module of a probe; the name of an aggregation and whether it is a
//! count or a sum; times. A D script given with `--script` supplies names and functions of aggregations. A number
//! without a key may belong to an aggregation without keys or to an empty stack: the reader assumes the first. With a
//! script, `snapshot` counts the printings of each aggregation. The modules in a stack show whether it is a kernel
//! stack.
//!
//! Without a script, `snapshot` increases whenever something else was printed between aggregations: `printa` in a
//! `tick` probe prints the same keys repeatedly, and those values must not be added.

mod cells;
mod emit;
mod flow;
mod ktap;
mod notice;
mod record;
mod script;
mod sniff;
mod stack;
mod structured;
#[cfg(test)]
mod tests;
mod text;
mod xml;

use perfquet_events::event::Sink;

use perfquet_events::{Error, Format, Input};

use sniff::Structure;

/// The output of `dtrace`.
pub const DTRACE: Format = Format {
    name: "dtrace",
    about: "output of dtrace: traces, aggregations, distributions, stacks, tables, JSON, XML",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read,
};

fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    match sniff::structure(&map) {
        Some(Structure::Json) => structured::read_json(&map, sink),
        Some(Structure::Xml) => xml::read(&map, sink),
        None => {
            let script = input.script().map(script::Script::of);
            text::read(&map, script.as_ref(), sink)
        }
    }
}
