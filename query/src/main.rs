//! The program perfquet-query; its code is the library's.

use std::process::ExitCode;

fn main() -> ExitCode {
    perfquet_query::main()
}
