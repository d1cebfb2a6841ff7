//! Output files of Valgrind's callgrind and cachegrind, and of others that write their format (Xdebug, KCachegrind's converters).
//!
//! ```text
//! positions: line
//! events: Ir Dr
//! ob=(5) /tmp/demo/cg
//! fl=(1) cg.c
//! fn=(2) main
//! 16 400 20                    line 16 costs 400 Ir and 20 Dr
//! cfn=(3) fib
//! calls=10 4                   ten calls of fib, which begins in line 4,
//! +1 2806                      from line 17, with what they cost altogether
//! ```
//! Specification: "Callgrind Format Specification" in Valgrind's manual. Versions known: 1.
//!
//! | in the file | becomes |
//! | --- | --- |
//! | a line of costs | a row of `samples` for each event: the cost is `period`; function, module, file and line are the only frame |
//! | `calls=` and the line below it | rows of `aggregates` with caller and callee as key: `calls`, and the inclusive cost of each event, over all places and parts |
//! | `jump=`, `jcnd=` | rows of `aggregates`: `jumps` and `jump executions`, with function, source and target (addresses, or lines) |
//! | `totals:`, `summary:` | compared with the costs; a difference is a problem |
//!
//! - The tool counts edges, no stacks: `top` shows exact self costs, and its totals are self costs, too. The inclusive costs of a
//!   function are those of the edges that lead to it: `SELECT keys[2], sum(value) FROM aggregates WHERE name = 'Ir' GROUP BY 1`.
//! - Code of other files that the compiler inlined (`fi=`, `fe=`) keeps its function and has its own file.
//! - `ip` is the address that `--dump-instr=yes` adds.

mod edges;
mod names;
mod read;
mod sniff;
#[cfg(test)]
mod tests;

use perfquet_events::Format;

/// Output of callgrind.
pub const CALLGRIND: Format = Format {
    name: "callgrind",
    about: "output of Valgrind's callgrind and cachegrind, and of Xdebug: costs by line and call",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read::read,
};
