//! Profiles of speedscope's own format: written by py-spy, rbspy, pyinstrument, austin2speedscope, and by `--to speedscope`.
//!
//! ```text
//! {"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"py-spy@0.3.14",
//!  "shared":{"frames":[{"name":"main","file":"app.py","line":3},{"name":"work"}]},
//!  "profiles":[{"type":"sampled","name":"MainThread","unit":"seconds","samples":[[0,1],[0]],"weights":[0.01,0.02]},
//!              {"type":"evented","name":"worker","unit":"microseconds","events":[{"type":"O","frame":1,"at":5}, …]}]}
//! ```
//! Specification: <https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources> and its JSON schema.
//!
//! | in the file | becomes |
//! | --- | --- |
//! | a sample of a sampled profile | a row of `samples`; its weight is `period`, in nanoseconds for units of time |
//! | `O` and `C` of an evented profile | `calls` with their durations |
//! | the name of a profile | the name of the thread; from our own exports, event, thread and ID |
//! | an evented profile of others | a thread, numbered from 2^30 on |
//! | frames | function, file, line |
//!
//! - Samples have no time: the axis of a sampled profile is the sum of its weights, from which gaps are missing.
//! - Events are named after the unit: `time`, `bytes`, `weight`. With `weight/1000`, a period of 31230 means 31.23.
//! - Files have no thread IDs, except for our own exports. Calls without a thread or CPU there have no self times. The clock is unknown.
//! - Calls take 64 bytes each in memory, since they are sorted over all profiles.

mod calls;
mod frames;
mod read;
mod sniff;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// speedscope's own format.
pub const SPEEDSCOPE: Format = Format {
    name: "speedscope",
    about: "profile of speedscope in JSON: py-spy, rbspy and others",
    main_file: None,
    has_lines: false,
    sniff: sniff::sniff,
    read_file: read::read,
};
