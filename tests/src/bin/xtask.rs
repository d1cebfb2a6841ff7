//! All chores of the project: `cargo xtask NAME`. Each is one file of the library in this crate.

use std::process::ExitCode;

use perfquet_tests as chores;

const USAGE: &str = "\
All chores of the project.

usage: cargo xtask CHORE

  demo [--seconds N]     builds, records this machine, shows the hottest functions, an SQL answer, a flame graph
  dist [--output DIR]    packages: a .tar.zst and a .deb with programs, manual pages and completions; --quick compresses less
  vm [SCENARIO]...       scenarios on real kernels in QEMU (--kernel K, --recorder PATH); --fetch [K]... gets what they need
  test [--host]          every test and lint, then what was skipped and why; --host: only tests that depend on the host's load
  bench [NAME]...        perfquet and its peers in alternation: record, probe-effect, import, encode, … (all by default)
  schemas                writes formats/trace/src/tables.rs from schemas/*.toml
  bpf                    compiles the programs for the kernel (ebpf/src/*.bpf.c), with clang
  shapes                 functions of more than 100 lines and structs of more than 15 fields, with their reasons
  corpus [DIR]           every trace at hand against its own tool, as a table; --record [NAME]... makes those of tests/corpus
  fuzz [--minutes N]     damaged inputs and damaged traces for every reader and report, until the time is over
  site                   the manual as a static site in target/site/html, by mdbook; its links are checked
  sniff DIR...           files that are no traces: each must be refused
  salvage                how much of damaged recordings is kept, as a table
  stacks [PROGRAM]...    samples of real programs with their whole user stack, beside perf and bpftrace, as a table
  pairs [NUMBER]...      recordings of every two options together: read by perf alike, nothing unreadable, nothing twice
  scopes                 one moment recorded by -a, as a command and by -p: what views say about the same threads (root)
  starve [--runs N]      attaching to threads with a recorder that hardly gets a CPU: every hit once
  storms [--rounds N]    storms of system calls beside 20 busy processes: nothing lost
  marathon [--minutes N] memory and journal of a long recording with stacks
  help                   this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        // These have their own help.
        [chore, "--help" | "-h"] if !matches!(*chore, "bench" | "vm") => {
            print!("{USAGE}");
            Ok(())
        }
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        ["bpf"] => chores::bpf::run(),
        ["schemas"] => chores::schemas::run(),
        ["shapes"] => chores::shapes::run(),
        ["site"] => chores::site::run(),
        ["test"] => chores::test::run(chores::test::Suite::Steady),
        ["test", "--host"] => chores::test::run(chores::test::Suite::Host),
        ["demo", rest @ ..] => chores::demo::run(rest),
        ["dist", rest @ ..] => chores::dist::run(rest),
        ["bench", rest @ ..] => chores::bench::run(rest),
        ["vm", rest @ ..] => chores::vm::run(rest),
        ["stacks", programs @ ..] => chores::stacks::run(programs),
        ["pairs", numbers @ ..] => chores::pairs::run(numbers),
        ["scopes"] => chores::scopes::run(),
        ["starve", rest @ ..] => chores::load::starve(rest),
        ["storms", rest @ ..] => chores::load::storms(rest),
        ["marathon", rest @ ..] => chores::load::marathon(rest),
        ["corpus"] => chores::corpus::run(None),
        ["corpus", "--record", names @ ..] => chores::corpus::record(names),
        ["corpus", directory] => chores::corpus::run(Some(directory)),
        ["sniff", first, rest @ ..] => chores::sniff::run(&[&[*first], rest].concat()),
        ["salvage"] => chores::salvage::run(),
        ["fuzz"] => chores::fuzz::run(1),
        ["fuzz", "--minutes", minutes] => match minutes.parse() {
            Ok(minutes) => chores::fuzz::run(minutes),
            Err(_) => return misuse(&format!("--minutes: expected a number, found {minutes:?}")),
        },
        _ => return misuse(&format!("no such chore: {}", arguments.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn misuse(message: &str) -> ExitCode {
    eprintln!("xtask: {message}\n\n{USAGE}");
    ExitCode::from(2)
}
