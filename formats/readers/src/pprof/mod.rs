//! Profiles of pprof (`profile.proto`), gzipped or not: written by Go, Parca, Pyroscope, gperftools, pprof-rs, and by
//! `--to pprof`.
//!
//! ```text
//! sample types   samples/count  cpu/nanoseconds
//! sample         location 3, 2, 1    values 4, 40000000    label thread=worker
//! location 3     mapping 1, address 0x45f3a1, lines: inner.go:7 inlined into outer.go:31
//! ```
//! Specification: <https://github.com/google/pprof/blob/main/proto/profile.proto>.
//!
//! | in the profile | becomes |
//! | --- | --- |
//! | a sample | a row of `samples` for each sample type whose value is not 0; the value is `period`, the type is the event |
//! | a location | frames with function, file, line, module, build ID and offset in the module; inlined functions |
//! | labels `thread` (text), `tid`, `thread_id`, `pid`, `cpu` (numbers) | name and ID of the thread, process, CPU |
//! | other labels, negative values | counted in `problems`: `samples` has no column for them |
//! | time, duration, period, comments | facts |
//!
//! - The default sample type is the first event; where none is named, it is the last type, as in pprof.
//! - Samples have no time. Units of sample types are facts: `pprof.unit.cpu` = `nanoseconds`.
//! - Rows of several types have the same stack: they are one sample, so add values within an event only.

mod profile;
mod read;
mod sniff;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// pprof's profile.
pub const PPROF: Format = Format {
    name: "pprof",
    about: "profile of pprof: Go, Parca, Pyroscope, gperftools, pprof-rs",
    main_file: None,
    has_lines: false,
    sniff: sniff::sniff,
    read_file: read::read,
};
