//! Output of `bpftrace`: maps, histograms and the output of its programs, as text or, with `-f json`, as lines of JSON.
//!
//! ```text
//! Attaching 2 probes...
//! @reads[dd, 4711]: 17                        a key of a map and its value
//!
//! @latency[dd]:
//! [4K, 8K)               1 |@@@@@@@@@|        a bar of a histogram; K, M, G are powers of 1024
//!
//! @stacks[
//!     vfs_read+1
//!     ksys_read+95
//! , dd]: 3                                    a stack in the key
//! ```
//! Specification: `src/output.cpp` of bpftrace and its reference guide. Versions known: 0.9 to 0.21.
//!
//! | in the output | becomes |
//! | --- | --- |
//! | a key of a map, a histogram | a row of `aggregates`, its bars in `buckets` |
//! | `count 2, average 15, total 30` (stats) | three rows: count, avg, sum |
//! | `Lost 7 events` | `losses` |
//! | `ERROR: …`, unreadable lines | `problems` |
//! | all other text, values other than numbers | a row of `bpftrace.message`, with its line |
//!
//! The output does not state whether a value is a count, a sum or a minimum. The parts of a key are joined by `, `
//! (JSON: `,`), which may also occur inside them: keys are split only if all keys of the map give the same number of
//! parts. A stack is the kernel's by its addresses, or by its position: of two stacks, the first is the kernel's.

mod histogram;
mod json;
mod key;
mod output;
mod sniff;
#[cfg(test)]
mod tests;
mod text;

use perfquet_events::event::Sink;
use perfquet_events::{Error, Format, Input};

/// The output of `bpftrace`.
pub const BPFTRACE: Format = Format {
    name: "bpftrace",
    about: "output of bpftrace: maps, histograms, stacks; text or JSON",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read,
};

fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    match sniff::is_json(&map) {
        true => json::read(&map, sink),
        false => text::read(&map, sink),
    }
}
