//! The text of the sources: formatted, of a readable size, without leftovers, `unsafe` only where allowed.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use perfquet_tests::{place, root, schemas, shapes};

use super::{assert_none, read, tracked};

/// Above this, a file has more than one topic. The generated table definitions are exempt.
const MOST_LINES: usize = 800;

/// Files that may use `unsafe`: the kernel's interfaces, the BPF structs, the memory map, the size of a pipe; in tests a
/// counting allocator, and two system calls.
const UNSAFE_ALLOWED: &[&str] = &[
    "record/src/sys/",
    "ebpf/src/layout/",
    "ebpf/src/sys.rs",
    "formats/events/src/input/map.rs",
    "formats/events/src/input/pipe.rs",
    "tests/fuzz/watch.rs",
    "tests/fuzz/coverage.rs",
    "tests/src/needs.rs",
];

#[test]
fn code_is_formatted() {
    let output = place::cargo()
        .args(["fmt", "--all", "--check", "--", "-l"])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("rustup component add") => {
            perfquet_tests::skip("needs rustfmt (rustup component add rustfmt)");
        }
        Ok(output) => panic!(
            "run `cargo fmt --all`; it would change:\n{}",
            String::from_utf8_lossy(&output.stdout)
        ),
        Err(error) => panic!("cannot run cargo: {error}"),
    }
}

/// The table definitions are committed, so that reviews and searches see them; this compares them with their source.
#[test]
fn generated_tables_are_fresh() {
    let fresh = schemas::generate(root()).unwrap();
    let committed = read(&root().join(schemas::OUTPUT));
    assert!(
        fresh == committed,
        "{} is stale: run `cargo xtask schemas`",
        schemas::OUTPUT
    );
}

/// Long files are hard to read: split them by topic.
#[test]
fn files_are_short() {
    let long = |path: &PathBuf| {
        let lines = read(&root().join(path)).lines().count();
        (lines > MOST_LINES)
            .then(|| format!("{}: {lines} lines; split it by thing", path.display()))
    };
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|path| !path.ends_with("formats/trace/src/tables.rs"))
        .filter_map(long)
        .collect();
    assert_none(&wrong);
}

/// Large functions and structs know several things: split them by what they know.
#[test]
fn large_functions_and_structs_say_why() {
    let all = shapes::of(sources().into_iter());
    let unexplained = all
        .iter()
        .filter(|shape| shape.reason.is_none() && !shape.is_not_split());
    let wrong = unexplained
        .map(|shape| {
            format!(
                "{shape}: split it, or say above it: \"{} …\"",
                shape.kind.begin()
            )
        })
        .chain(shapes::split(&all));
    assert_none(&wrong.collect::<Vec<String>>());
}

/// Open work belongs in an issue, not in a comment.
#[test]
fn nothing_is_left_to_do() {
    // In pieces, so that this file does not match itself.
    let words = [
        ["to", "do!("],
        ["unimple", "mented!("],
        ["TO", "DO"],
        ["FIX", "ME"],
        ["dbg", "!("],
    ];
    let words = words.map(|halves| halves.concat());
    assert_none(&lines_with(
        |line| words.iter().any(|word| line.contains(word.as_str())),
        |_| true,
    ));
}

#[test]
fn unsafe_is_only_where_allowed() {
    let words = [
        ["unsafe", " {"],
        ["unsafe", " fn"],
        ["unsafe", " impl"],
        ["unsafe", "_code"],
    ]
    .map(|halves| halves.concat());
    let allowed = |path: &Path| {
        UNSAFE_ALLOWED
            .iter()
            .any(|place| path.starts_with(place) || path == Path::new(place))
    };
    let code = |line: &str| !line.trim_start().starts_with("//");
    assert_none(&lines_with(
        |line| code(line) && words.iter().any(|word| line.contains(word.as_str())),
        |path| !allowed(path),
    ));
}

/// No test is ignored but those of the suite for live hosts, whose reason names it.
#[test]
fn ignored_tests_belong_to_the_suite_for_live_hosts() {
    let attribute = ["#[ig", "nore"].concat();
    let suite = "cargo xtask test --host\"]";
    assert_none(&lines_with(
        |line| line.contains(&attribute) && !line.ends_with(suite),
        |_| true,
    ));
}

/// `println!` and `eprintln!` panic on a closed stream: the command's exit status would be lost. The programs print
/// messages through their `terminal.rs`, and write results with `write!`, whose errors are checked.
#[test]
fn no_program_panics_on_a_closed_stderr() {
    // In pieces, so that this file does not match itself.
    let words = [["print", "ln!("], ["print", "!("]].map(|halves| halves.concat());
    let programs = [
        "record/src",
        "convert/src",
        "query/src",
        "query/library/src",
        "formats",
        "ebpf/src",
    ];
    let is_of_program = |path: &Path| {
        let is_test =
            path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        !is_test && programs.iter().any(|folder| path.starts_with(folder))
    };
    // Unit tests print with it which parts they skip.
    let is_said = |line: &str| line.contains("\"skipped: ") || line.trim_start().starts_with("//");
    assert_none(&lines_with(
        |line| !is_said(line) && words.iter().any(|word| line.contains(word.as_str())),
        is_of_program,
    ));
}

/// Bytes of inputs are converted to numbers in one file, which checks lengths.
#[test]
fn numbers_are_decoded_in_one_file() {
    let words = [
        ["from_le", "_bytes("],
        ["from_be", "_bytes("],
        ["from_ne", "_bytes("],
    ];
    let words = words.map(|halves| halves.concat());
    let is_reader = |path: &Path| {
        path.starts_with("formats") && path != Path::new("formats/events/src/bytes.rs")
    };
    assert_none(&lines_with(
        |line| words.iter().any(|word| line.contains(word.as_str())),
        is_reader,
    ));
}

/// A broken recorder must not skip its own tests: `needs` decides about requirements, by asking the kernel.
#[test]
fn no_requirement_asks_the_program_under_test() {
    // Exceptions: a harness without `needs`, and a measurement that the test makes first.
    const ALLOWED: [&str; 12] = [
        "tests/src/needs.rs",
        "tests/tidy/sources.rs",
        "tests/src/lib.rs",
        "tests/src/test.rs",
        "tests/src/bench/mod.rs",
        "tests/oracle/perf_script.rs",
        "formats/trace/tests/crash.rs",
        "record/tests/aggregations.rs",
        "record/tests/perf_file.rs",
        "record/tests/readable_names.rs",
        "record/tests/stacks.rs",
        "record/src/probe/btf.rs",
    ];
    let word = ["\"skip", "ped: "].concat();
    assert_none(&lines_with(
        |line| line.contains(&word) && !line.trim_start().starts_with("//"),
        |path| !ALLOWED.iter().any(|allowed| path == Path::new(allowed)),
    ));
}

/// Every source file begins with its purpose.
#[test]
fn files_begin_with_their_purpose() {
    let silent = |path: &PathBuf| {
        let text = read(&root().join(path));
        (!text.starts_with("//!") && !text.starts_with("// @generated")).then(|| {
            format!(
                "{}: begin with a `//!` paragraph: what it is, and why",
                path.display()
            )
        })
    };
    let wrong: Vec<String> = sources().iter().filter_map(silent).collect();
    assert_none(&wrong);
}

/// A helper is named after its topic.
#[test]
fn no_file_is_called_util() {
    let vague = [
        "util.rs",
        "utils.rs",
        "common.rs",
        "helpers.rs",
        "helper.rs",
        "misc.rs",
    ];
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| vague.iter().any(|word| name == *word))
        })
        .map(|path| format!("{}: name it after what it does", path.display()))
        .collect();
    assert_none(&wrong);
}

fn sources() -> Vec<PathBuf> {
    tracked()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// `path:line: text` of every matching line of the sources.
fn lines_with(unwanted: impl Fn(&str) -> bool, looked_at: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources().iter().filter(|path| looked_at(path)) {
        for (number, line) in read(&root().join(path)).lines().enumerate() {
            if unwanted(line) {
                found.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    found
}
