//! Trace events of Chrome, in JSON: written by Chrome, Node.js, Bazel, clang (`-ftime-trace`), PyTorch, viztracer, uftrace and others.
//!
//! ```text
//! {"traceEvents": [
//! {"ph":"X","cat":"v8","name":"V8.GC","pid":6532,"tid":6532,"ts":2497837357.25,"dur":28140,"args":{"type":"minor"}},
//! {"ph":"B","name":"fork","pid":14212,"ts":518468500.959}, {"ph":"E","name":"fork","pid":14212,"ts":518468885.101},
//! {"ph":"C","name":"heap","pid":6532,"ts":2497837400,"args":{"used":12,"free":3}},
//! {"ph":"M","name":"thread_name","pid":6532,"tid":6536,"args":{"name":"worker"}}
//! ], "displayTimeUnit": "ns"}
//! ```
//! The format is described in the document "Trace Event Format" of Google (2016). Read are the object and the bare array, also
//! if the closing brackets are missing, as after a killed producer.
//!
//! | phase | becomes |
//! | --- | --- |
//! | `X` | a call with its duration; `args` as `name=value` |
//! | `B`, `E` | entry and exit of a call of the thread; an `E` with a name ends the innermost open call of that name, and those inside it have no exit |
//! | `b` `n` `e`, `i` `I` `R` | a hit of the event CATEGORY:NAME; `phase`, `id`, and a column for each argument |
//! | `C` | a hit of CATEGORY:NAME with a number for each series |
//! | `M` | names of processes and threads |
//! | `samples` | samples of the counter NAME, with the stack in `stackFrames` |
//! | others | a hit of `chrome:other` with phase, category, name, id, arguments as JSON |
//!
//! - Times are microseconds with decimals, kept to the nanosecond. The clock is unknown: `trace file`.
//! - Calls have the stack of their `sf`. clang's `beginningOfTime` is the time of day at time 0. What viztracer's buffer overwrote is a loss.
//!   The text of ftrace in `systemTraceEvents` is not read, and counted.
//! - Events come in any order, so a first pass notes their times and the columns of each event: 24 bytes for each one in memory.
//! - Processes and threads may have any ID: a text (`"stream 7"`), 64 bits, or that of a thread of another process. Those that are no
//!   numbers of the kernel have numbers from 2^30 on, and their ID becomes the name. Calls without any are those of one more thread;
//!   other events without any have none.
//! - The name of a process is that of its first thread, unless `thread_name` names that, too: then the fact `chrome.process_name.PID` has it.
//! - Beyond a thousand events with a table each, the others become hits of `chrome:other`.

mod members;
mod open;
mod order;
mod ours;
mod read;
mod samples;
mod sniff;
#[cfg(test)]
mod tests;
mod types;

use perfquet_events::Format;

/// Chrome's trace events.
pub const CHROME: Format = Format {
    name: "chrome",
    about: "trace events in JSON (Chrome, Node.js, Bazel, clang, PyTorch, viztracer)",
    main_file: None,
    has_lines: false,
    sniff: sniff::sniff,
    read_file: read::read,
};
