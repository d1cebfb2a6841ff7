//! Perfetto's protobuf traces: written by `traced`, its SDK, Chromium, Android, and by `--to perfetto`.
//!
//! ```text
//! packet   clock_snapshot { BOOTTIME 1000000000, REALTIME 1790000000000000000, primary: BOOTTIME }
//! packet   ftrace_events { cpu 0, sched_switch { prev_comm sh, prev_pid 100, next_comm worker, … } }
//! packet   sequence 3, interned_data { event_names { 1: "work" } }, track_event { SLICE_BEGIN, name 1, track 7 }
//! packet   track_descriptor { uuid 7, thread { pid 100, tid 101 } }
//! ```
//! Specification: <https://github.com/google/perfetto/tree/main/protos/perfetto/trace>; known up to version 58.
//!
//! | in the trace | becomes |
//! | --- | --- |
//! | events of ftrace bundles (also compact and generic ones) | rows of the kernel's tables, `sched:sched_switch`, … |
//! | slices of tracks | calls; those on a track of a thread nest |
//! | instants and counters of tracks | rows of a table for each category and name, with the annotations as columns |
//! | samples of perf | rows of `samples` with their stacks |
//! | process trees, descriptors of processes and threads | threads, their processes, names, command lines |
//! | lost events of bundles, overruns, chunks and packets lost by buffers, lost samples | losses |
//! | flows between slices, times and instructions of their threads | counted in `problems` |
//! | other packets | counted in `problems` by their kind; those that describe the recording itself are facts |
//!
//! - All times are on the trace's clock: the primary one of the first snapshot, otherwise BOOTTIME. Packets on a clock that no
//!   snapshot relates to it are counted in `problems`.
//! - A compact switch has no previous thread: it is the one that the last switch of the CPU has named, or NULL.
//! - The number of samples lost is that of perf; `period` is the period requested, or the difference of the running total.

mod clock;
mod entry;
mod interned;
mod kernel;
mod names;
mod ours;
mod packets;
mod pairs;
mod read;
mod samples;
mod sniff;
mod statistics;
#[cfg(test)]
mod tests;
mod tracks;
mod types;

use perfquet_events::Format;

/// Perfetto's trace.
pub const PERFETTO: Format = Format {
    name: "perfetto",
    about: "protobuf trace of Perfetto: traced, its SDK, Chromium, Android",
    main_file: None,
    has_lines: false,
    sniff: sniff::sniff,
    read_file: read::read,
};
