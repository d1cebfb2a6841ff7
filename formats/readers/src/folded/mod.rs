//! Folded stacks: one stack a line, root first, and how often it was seen. What `stackcollapse-*.pl`,
//! inferno, bpftrace scripts, async-profiler and austin write, and flame graphs are drawn from.
//!
//! ```text
//! dd;[unknown];read 10101010
//! dd;read;system_call_[k];sys_read_[k];vfs_read_[k] 12.5
//! noploop;main 274 415
//! ```
//! There is no specification; this follows `stackcollapse-perf.pl` and `difffolded.pl` of FlameGraph, and what
//! inferno accepts:
//! - The number follows the last blank; blanks inside a frame belong to it, `;` never does. `#` begins no
//!   comment, but for austin's `# name: value` lines.
//! - `_[k]` ends the name of a kernel frame, `_[i]` that of one inlined into the frame before it, `_[j]` that of
//!   compiled code (its module becomes `[jit]`). Whether a frame without them is user code is not given.
//! - `[unknown]` is a frame without a name.
//! - Two numbers a line are a comparison (`difffolded.pl`): samples of the events `before` and `after`. So it is
//!   read where nine of ten lines have two; elsewhere the first belongs to the frame.
//! - A count may have decimals. `period` is whole, so all counts of such a file are multiplied by the same power
//!   of ten, and the event says so: of `count/1000`, a period of 31230 means 31.23.
//!
//! A line is a sample of the event `count` with the count as its period, and has no time.

mod line;
mod read;
mod sniff;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// Folded stacks.
pub const FOLDED: Format = Format {
    name: "folded",
    about: "folded stacks: frame;frame;frame COUNT (FlameGraph, inferno, async-profiler, austin)",
    sniff: sniff::sniff,
    read: read::read,
};
