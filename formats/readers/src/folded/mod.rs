//! Folded stacks: one stack per line, root first, with a count. Written by `stackcollapse-*.pl`, inferno, bpftrace
//! scripts, async-profiler and austin; the input of flame graphs.
//!
//! ```text
//! dd;[unknown];read 10101010
//! dd;read;system_call_[k];sys_read_[k];vfs_read_[k] 12.5
//! noploop;main 274 415
//! ```
//! The format has no specification; this reader follows `stackcollapse-perf.pl` and `difffolded.pl` of FlameGraph, and
//! accepts what inferno accepts:
//! - The number follows the last space; a frame may contain spaces, but never `;`. A line that begins with `# ` and
//!   has no `;` is a comment, as austin writes (`# name: value`).
//! - `_[k]` ends the name of a kernel frame, `_[i]` that of one inlined into the preceding frame, `_[j]` that of
//!   JIT-compiled code (its module becomes `[jit]`). Frames without a suffix may or may not be user code.
//! - `[unknown]` is a frame without a name; another name in brackets is a module, whose function is unknown: `[libc.so.6]`.
//! - Two numbers per line are a comparison (`difffolded.pl`): samples of the events `before` and `after`. They are read
//!   as such if nine of ten lines have two; otherwise the first number belongs to the frame.
//! - A count may have decimals. `period` is an integer, so all counts of such a file are multiplied by the same power
//!   of ten, and the event's name states it: with `count/1000`, a period of 31230 means 31.23.
//!
//! A line becomes a sample of the event `count` without a time; its period is the count.

mod line;
mod read;
mod sniff;
#[cfg(test)]
mod tests;

use perfquet_events::Format;
use perfquet_events::input::HEAD_BYTES;

/// Folded stacks.
pub const FOLDED: Format = Format {
    name: "folded",
    about: "folded stacks: frame;frame;frame COUNT (FlameGraph, inferno, async-profiler, austin)",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};

/// Whether the first line has a count, if it is longer than what a sniffer sees: minified scripts and style sheets have a `;` as
/// often as a deep stack.
pub fn has_counted_line(file: &[u8]) -> bool {
    /// Longer ones are accepted.
    const LINE_BYTES_MAX: usize = 16 << 20;
    let searched = file.get(..LINE_BYTES_MAX).unwrap_or(file);
    let end = perfquet_events::scan::find(searched, b'\n');
    match end {
        Some(end) if end < HEAD_BYTES => true,
        None if searched.len() < HEAD_BYTES || searched.len() < file.len() => true,
        _ => {
            let line = searched.get(..end.unwrap_or(searched.len()));
            line.is_some_and(|line| line::split_count(line).is_some())
        }
    }
}
