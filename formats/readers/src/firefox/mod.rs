//! Processed profiles of the Firefox Profiler: saved by profiler.firefox.com, written by samply, and by `--to firefox`.
//!
//! ```text
//! {"meta":{"interval":1,"startTime":1700000000000.5,"preprocessedProfileVersion":60,"product":"prog", …},
//!  "libs":[{"name":"prog","path":"/usr/bin/prog","codeId":"7b4e…"}],
//!  "shared":{"stackTable":{"frame":[0,1],"prefix":[null,0]},"frameTable":{…},"funcTable":{…},"stringArray":["main", …]},
//!  "threads":[{"name":"worker","pid":"100","tid":101,
//!              "samples":{"stack":[1,null],"time":[0.5,1.5],"weight":[1,1],"weightType":"samples"},"markers":{…}}]}
//! ```
//! Specification: `src/types/profile.ts` of firefox-devtools/profiler and its changelog of formats. Versions known: 24 to 75, with
//! tables in each thread (up to 55), strings shared (56), tables shared (60), distances instead of prefixes (66), libraries of frames (70).
//!
//! | in the profile | becomes |
//! | --- | --- |
//! | a sample | a row of `samples`; event `time` (weights in milliseconds, as nanoseconds), `samples` or `bytes` |
//! | frames | function, file, line, library with build ID and offset, inlining, kernel or user by category |
//! | markers of our own exports that are calls | `calls` |
//! | other markers | a row of `firefox.marker`: name, category, duration, phase, data as JSON |
//! | `nativeAllocations`, `jsAllocations` | a row of `firefox.native_allocation`, `firefox.js_allocation`, with its stack; memory that is freed has negative bytes |
//! | a counter's values | a row of `firefox.counter`: changes, as recorded |
//! | threads | name of the thread and its process |
//!
//! - samply saves addresses without names, and may save the names beside the profile: `profile.syms.json`.
//! - Times are nanoseconds after the profile's start, which is a fact. Weights of our exports are the periods of `meta.product`, the event.
//! - Not read: CPU use between samples (`threadCPUDelta`), delays of events, pages, screenshots, JavaScript tracers.
//! - Gecko's raw profiles, which no tool but Firefox and `perf script gecko` writes, are refused: profiler.firefox.com converts them.
//! - In memory are the columns of the tables (4 bytes a value, 24 a string), markers (40 bytes each) and allocations (130 bytes each). Samples are merged by time.

mod allocations;
mod read;
mod sniff;
mod stacks;
mod symbols;
mod tables;
#[cfg(test)]
mod tests;
mod threads;

use perfquet_events::Format;

/// Processed profiles of the Firefox Profiler.
pub const FIREFOX: Format = Format {
    name: "firefox",
    about: "processed profile of the Firefox Profiler: samply, profiler.firefox.com",
    main_file: None,
    has_lines: false,
    sniff: sniff::sniff,
    read_file: read::read,
};
