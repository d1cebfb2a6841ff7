//! C++ and Rust functions are probed by their source names, and errors list the alternatives.

mod room;

use std::path::Path;
use std::process::Command;

use room::{Room, ended};

/// A directory with a program; `None`, with a message, if it cannot be compiled or probed.
fn compiled(compiler: &str, options: &[&str], source: &str, program: &str) -> Option<Room> {
    if !room::may_record() || !Path::new("/sys/kernel/tracing/uprobe_events").exists() {
        eprintln!("skipped: needs root and uprobes");
        return None;
    }
    let room = Room::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let status = Command::new(compiler)
        .args(options)
        .arg("-o")
        .args([room.path(program), folder.join(source)])
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs {compiler}");
        return None;
    }
    Some(room)
}

fn cplusplus() -> Option<Room> {
    compiled(
        "c++",
        &["-g", "-O1", "-no-pie"],
        "overloaded.cpp",
        "overloaded",
    )
}

#[track_caller]
fn check(
    room: &Room,
    program: &str,
    probe: &str,
    table: &str,
    columns: &[&str],
    expected: &[&str],
) {
    room.record(&["--uprobe", probe, "--", program]);
    assert_eq!(room.rows(table, columns), expected, "{probe}");
}

/// Returns the message about a mistake on the command line.
#[track_caller]
fn refused(room: &Room, arguments: &[&str]) -> String {
    let (status, stderr) = room.run(arguments);
    assert_eq!(status, Some(2), "{arguments:?}: {stderr}");
    stderr
}

#[test]
fn overloads_templates_and_operators() {
    let Some(room) = cplusplus() else { return };
    let numbers = ["1", "2", "3", "4", "5"];
    let program = "./overloaded";
    let of = |probe: &str, table: &str, column: &str| {
        let table = format!("events/probe_overloaded/{table}");
        check(&room, program, probe, &table, &[column], &numbers);
    };
    of("./overloaded:ns::over(int) n=%di:s32", "ns_over", "n");
    of("./overloaded:over(int) $arg1:s32", "ns_over", "arg1");
    of("./overloaded:_ZN2ns4overEi n=%rdi:s32", "ns_over", "n");
    of(
        "./overloaded:ns::list<int>::push value=%si:s32",
        "ns_list_push",
        "value",
    );
    of(
        "./overloaded:list< long >::push value=%si:s64",
        "ns_list_push",
        "value",
    );
    of(
        "./overloaded:(anonymous namespace)::hidden n=%di:s32",
        "hidden",
        "n",
    );
    of("./overloaded:hidden n=%di:s32", "hidden", "n");
    of(
        "./overloaded:counter::operator+= n=%si:s32",
        "counter_operator__",
        "n",
    );
    of("mine=./overloaded:ns::over(int) n", "mine", "n");
    // All overloads.
    room.record(&["--uprobe", "./overloaded:ns::over*", "--", program]);
    let one = room.rows("events/probe_overloaded/ns_over", &["tid"]).len();
    let other = room
        .rows("events/probe_overloaded/ns_over_1", &["tid"])
        .len();
    assert_eq!((one, other), (5, 5));
}

#[test]
fn calls_have_readable_names() {
    let Some(room) = cplusplus() else { return };
    room.record(&["--call", "./overloaded:ns::over(int)", "--", "./overloaded"]);
    assert_eq!(room.rows("calls", &["function"]), ["ns::over"; 5]);
    room.record(&["--call", "./overloaded:ns::over*", "--", "./overloaded"]);
    let mut functions = room.rows("calls", &["function"]);
    functions.sort();
    functions.dedup();
    assert_eq!(functions, ["ns::over(double)", "ns::over(int)"]);
}

#[test]
fn errors_name_the_alternatives() {
    let Some(room) = cplusplus() else { return };
    let stderr = |probe: &str| refused(&room, &["--uprobe", probe, "--", "true"]);
    let text = stderr("./overloaded:ns::over");
    assert!(text.contains("2 functions have this name"), "{text}");
    assert!(text.contains("ns::over(double), ns::over(int)"), "{text}");
    let text = stderr("./overloaded:push");
    assert!(
        text.contains("ns::list<int>::push(int), ns::list<long>::push(long)"),
        "{text}"
    );
    let text = stderr("./overloaded:ns::ovr(int)");
    assert!(text.contains("use ns::over(int)"), "{text}");
    let text = stderr("./overloaded:ns::over(int):x");
    assert!(
        text.contains("expected a line number, found \"x\""),
        "{text}"
    );
    let text = stderr("./overloaded:over(int) x=%edi");
    assert!(text.contains("use %di:u32 for the value of %edi"), "{text}");
    let text = stderr("./overloaded:over(int)+0x1 $arg1");
    assert!(
        text.contains("$argN is known at the entry of a function only"),
        "{text}"
    );
    let listed = room
        .recorder()
        .args(["--functions", "./overloaded:over"])
        .output();
    let listed = String::from_utf8_lossy(&listed.expect("it runs").stdout).into_owned();
    assert_eq!(listed, "ns::over(double)\nns::over(int)\n");
}

#[test]
fn one_instance_of_a_generic_function_of_rust() {
    // The compiler's default mangling, and the newer one.
    for mangling in [&[][..], &["-C", "symbol-mangling-version=v0"]] {
        let options = [&["-g", "-C", "opt-level=1"], mangling].concat();
        let Some(room) = compiled("rustc", &options, "generic.rs", "generic") else {
            return;
        };
        for (probe, count) in [
            ("r::gen<u32>", 3),
            ("generic::r::gen<u64>", 6),
            ("r::gen::<u32>", 3),
        ] {
            let probe = format!("./generic:{probe}");
            room.record(&["--uprobe", &probe, "--", "./generic"]);
            let rows = room
                .rows("events/probe_generic/generic_r_gen", &["tid"])
                .len();
            assert_eq!(rows, count, "{mangling:?}: {probe}");
        }
    }
}

#[test]
fn missing_source_is_reported() {
    let Some(room) = cplusplus() else { return };
    // Compiled in another directory: the source is not where the debug info says.
    let source = room.path("moved.c");
    std::fs::write(
        &source,
        "int work(int n)\n{\n\treturn n * 3;\n}\nint main(void) { return work(2); }\n",
    )
    .unwrap();
    let status = Command::new("cc")
        .args(["-g", "-O0", "-o", "moved", "moved.c"])
        .current_dir(room.path(""))
        .status();
    assert!(status.is_ok_and(|status| status.success()));
    std::fs::remove_file(&source).unwrap();
    let output = room
        .recorder()
        .args(["--lines", "./moved:work"])
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, stderr) = ended(output);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(
        lines.starts_with("work at ") && lines.contains("\n     2"),
        "{lines}"
    );
    assert!(
        stderr.contains("cannot read its source") && stderr.contains("moved.c: No such file"),
        "{stderr}"
    );
}

#[test]
fn return_probes_of_a_program_that_throws_are_warned_of() {
    let Some(room) = compiled("c++", &["-O1"], "throws.cpp", "throws") else {
        return;
    };
    let warning = "an exception that leaves a function whose return is probed ends the program";
    for (probe, is_of_return) in [
        (["--call", "./throws:main"], true),
        (["--uretprobe", "./throws:main"], true),
        (["--uprobe", "./throws:thrower(int)"], false),
    ] {
        let stderr = room.record(&[&probe[..], &["--", "./throws"]].concat());
        assert_eq!(
            stderr.contains(warning),
            is_of_return,
            "{probe:?}: {stderr}"
        );
    }
}
