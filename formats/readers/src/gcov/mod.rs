//! Text of gcov: how often each line was executed.
//!
//! ```text
//!         -:    0:Source:gp.c
//!         -:    1:#include <stdio.h>
//!  61003001:    3:void leaf(int n) { for (int i = 0; i < n; i++) s += i * n; }
//!     #####:    7:    abort();
//! function leaf called 3001 returned 100% blocks executed 100%
//!
//!       214:    2:  T r = a + b;             the sum of the functions on these lines
//! ------------------
//! add<int>(int, int):
//!       200:    2:  T r = a + b;
//! ------------------
//! add<double>(double, double):
//!        14:    2:  T r = a + b;
//! ------------------
//! ```
//! Specification: "Invoking gcov" in GCC's manual. Versions known: GCC 4 to 14, llvm-cov gcov. The binary `.gcda` is refused: `gcov` prints this
//! text from it and the program's `.gcno`.
//!
//! | in the text | becomes |
//! | --- | --- |
//! | a line with a count; `#####` and `=====` are 0 | a row of `aggregates`: `executions` by file and line |
//! | a line below the name of one of several functions (instances of a template) | a row of `aggregates`: `executions by function` by file, line and function |
//! | `function … called N` (`-b`) | a row of `aggregates`: `calls` by file and function |
//! | `Source:`, `Graph:`, `Data:`, `Runs:` | facts |
//! | lines without code, branches, calls | counted only |
//!
//! Counts that `-H` rounded (`61.0M`) are problems.

mod read;
mod sniff;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// The text of gcov.
pub const GCOV: Format = Format {
    name: "gcov",
    about: "text of gcov: executions of lines",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
