//! Text of gprof: the flat profile and the call graph.
//!
//! ```text
//!   %   cumulative   self              self     total
//!  time   seconds   seconds    calls  ms/call  ms/call  name
//! 100.16      0.16     0.16     3001     0.05     0.05  leaf
//!
//! index % time    self  children    called     name
//!                 0.00    0.16       1/1           main [2]       a caller
//! [3]    100.0    0.00    0.16       1         work [3]           the function of the block
//!                 0.16    0.00    3000/3001        leaf [1]       a function that it calls
//! ```
//! Specification: "Interpreting gprof's Output" in its manual. Versions known: binutils 2.x. The binary gmon.out is refused: it has no names
//! without the program, and `gprof PROGRAM gmon.out` prints this text.
//!
//! | in the text | becomes rows of `aggregates` |
//! | --- | --- |
//! | a row of the flat profile | `self seconds`, `calls`, and the two means per call, by function |
//! | the function of a block of the call graph | `children seconds` by function |
//! | a function that it calls | `edge calls`, `edge self seconds`, `edge children seconds` by caller and callee |
//! | all other lines | rows of `gprof.message`; lines of callers say what those of callees do, and are only counted |
//!
//! gprof divides the time of a function among its callers by their calls: the seconds of edges are estimates.

mod read;
mod sniff;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// The text of gprof.
pub const GPROF: Format = Format {
    name: "gprof",
    about: "text of gprof: flat profile and call graph",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
