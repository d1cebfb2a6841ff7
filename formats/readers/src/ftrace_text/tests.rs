//! Golden files, random lines, prefixes.

use perfquet_events::{Guess, Input};
use proptest::prelude::*;

use std::io::Read;

use super::FTRACE_TEXT;
use crate::golden::*;

#[test]
fn golden() {
    for path in golden_files("ftrace_text") {
        assert_golden(&path, &read_golden(&FTRACE_TEXT, &path));
        if !path.to_string_lossy().contains("garbage") {
            assert_recognized(&FTRACE_TEXT, &path);
        }
    }
}

/// The five counts of `ftrace.lines`; the first number is their sum.
fn counts(events: &str) -> (u64, Vec<u64>) {
    let line = events
        .lines()
        .find(|line| line.contains("ftrace.lines"))
        .expect("the counts of lines");
    let numbers: Vec<u64> = line
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    (numbers[0], numbers[1..].to_vec())
}

#[test]
fn every_line_is_counted() {
    for path in golden_files("ftrace_text") {
        let mut text = Vec::new();
        let mut input = Input::open(&path).unwrap();
        input.read_to_end(&mut text).unwrap();
        let lines = text.split_inclusive(|&byte| byte == b'\n').count() as u64;
        let (sum, parts) = counts(&read_golden(&FTRACE_TEXT, &path));
        assert_eq!(sum, lines, "{}", path.display());
        assert_eq!(parts.iter().sum::<u64>(), lines, "{}", path.display());
    }
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let events = read_bytes(&FTRACE_TEXT, text.as_bytes());
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.starts_with("type") && !line.contains("ftrace.lines"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_stack_finds_its_event_across_other_cpus() {
    check(
        "  a-1 [000] .... 1.000001: x: v=1\n  b-2 [001] .... 1.000002: x: v=2\n  \
           a-1 [000] .... 1.000003: <stack trace>\n => f\n => g\n  \
           b-2 [001] .... 1.000004: <stack trace>\n => h\n  a-1 [000] .... 1.000005: x: v=3\n",
        &[
            "sample 0 time=1000001000 cpu=0 tid=1 comm=\"a\" kernel_stack=[\"f\" (kernel), \"g\" (kernel)] fields=[1, 0, 0]",
            "sample 0 time=1000002000 cpu=1 tid=2 comm=\"b\" kernel_stack=[\"h\" (kernel)] fields=[2, 0, 0]",
            "sample 0 time=1000005000 cpu=0 tid=1 comm=\"a\" fields=[3, 0, 0]",
        ],
    );
}

#[test]
fn a_stack_without_an_event_becomes_an_event() {
    check(
        "  a-1 [000] .... 1.000003: <stack trace>\n => f\n",
        &[
            "sample 0 time=1000003000 cpu=0 tid=1 comm=\"a\" kernel_stack=[\"f\" (kernel)] fields=[0, 0]",
        ],
    );
}

#[test]
fn losses() {
    check(
        "# tracer: nop\n# entries-in-buffer/entries-written: 1/12   #P:2\nCPU:1 [LOST EVENTS]\n\
         CPU:1 [LOST 3 EVENTS]\n  a-1 [000] .... 1.000003: x: v=1\n",
        &[
            "Fact(Other { name: \"ftrace.tracer\", value: \"nop\" })",
            "Fact(Cpus(2))",
            "Loss(Loss { time: None, cpu: None, event: None, count: Some(11), in_all: None, \
             reason: \"overwritten before it was read\" })",
            "Loss(Loss { time: None, cpu: Some(1), event: None, count: None, in_all: None, reason: \"buffer overrun\" })",
            "Loss(Loss { time: None, cpu: Some(1), event: None, count: Some(3), in_all: None, reason: \"buffer overrun\" })",
            "sample 0 time=1000003000 cpu=0 tid=1 comm=\"a\" fields=[1, 0, 0]",
        ],
    );
}

#[test]
fn repeated_rows_are_noted() {
    check(
        "  a-1 [000] .... 1.000003: f <-g (repeats: 3, last_ts: 1.000009)\n",
        &[
            "call time=1000003000 cpu=0 tid=1 comm=\"a\" function=\"f\" caller=\"g\" context=task \
             args=[\"repeats=3\"] leaf=true",
        ],
    );
}

/// Other formats have stacks too; the heads decide.
#[test]
fn a_pipe_with_stacks_is_recognized() {
    let text = "  a-1 [000] .... 1.000001: x: v=1\n  a-1 [000] .... 1.000003: <stack trace>\n => f\n => g+0x1/0x2\n";
    assert_eq!((FTRACE_TEXT.sniff)(text.as_bytes()), Guess::Certain);
    for format in crate::FORMATS {
        assert!(
            format.name == FTRACE_TEXT.name || (format.sniff)(text.as_bytes()) < Guess::Certain,
            "{}",
            format.name
        );
    }
}

/// trace-cmd prints both lines, before events of any form.
#[test]
fn heads_of_trace_cmd_are_recognized() {
    let check = |text: &str, expected| {
        assert_eq!((FTRACE_TEXT.sniff)(text.as_bytes()), expected, "{text:?}");
    };
    check("version = 6\ncpus=2\nanything\n", Guess::Certain);
    check("version = 0.5\nCPU 0 is empty\ncpus=4\n", Guess::Certain);
    check("cpus=2\nCPU 0 is empty\n", Guess::Likely);
}

#[test]
fn other_text_is_refused() {
    for text in [
        "",
        "hello world\n",
        "dd 29776 666709.771979:   10101010 cpu-clock: \n\t  414b3b f (/x)\n",
        "a;b;c 12\n",
        "{\"a\": 1}\n",
        "[1375472591.957624676] host sequence event: { cpu_id = 2 }, { n = 6, seq = [ [0] = -1 ] }\n",
        "[15:33:09.69] (+?.?????????) vm ust:start: { cpu_id = 0 }, { vpid = 1 }, { }\n[15:33:09.70] (+0.1) vm ust:end: { cpu_id = 0 }, { }\n",
        "# a comment\nint main() { return 1; }\n",
        "[metadata]\nname = chardet\nversion = attr: chardet.version.__version__\n",
        "# coding: utf-8\nversion = '2.8.1'\n",
        "version = 1\nrevision = 3\n",
        "#!/bin/sh\ncpus=4\nexec make -j$cpus\n",
    ] {
        assert_eq!((FTRACE_TEXT.sniff)(text.as_bytes()), Guess::No, "{text:?}");
    }
    let events = read_bytes(&FTRACE_TEXT, b"hello\nworld\n");
    assert!(
        events.starts_with("error test: line 1: expected events of ftrace"),
        "{events}"
    );
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_bytes(&FTRACE_TEXT, &bytes);
    }

    /// Fragments of real lines, in any order.
    #[test]
    fn any_pieces(pieces in prop::collection::vec(
        prop::sample::select(vec![
            "# tracer: function_graph\n", "# event histogram\n", "  dd-1 ", "[000] ", "d..2. ", "1.000001: ", "12us+: ",
            " 0) ", "  1.5 us  | ", " | ", "f() {", "}", "f();", "/* ", " */", "\n", "\n => f", "<stack trace>", "a=1 ",
            "sys_write(", "fd: 1, ", ")", " -> 0x1", "sched_switch: ", "{ a: ~ 2^3 }", " hitcount: 5", "Totals:\n",
            "CPU:1 [LOST 5 EVENTS]\n", "=>", "==========>", "-", "\"", "<-g", "block_rq_issue: ", "8,0 ", "[dd]", "-2",
            "kernel_stack: ", "ARRAY[", "ff, ", "tracing_mark_write: ", "B|1|", "0x", "18446744073709551616", ": ",
        ]), 0..60,
    )) {
        let text: String = pieces.concat();
        let events = read_bytes(&FTRACE_TEXT, text.as_bytes());
        if !events.starts_with("error") && !text.is_empty() {
            let (sum, parts) = counts(&events);
            prop_assert_eq!(sum, parts.iter().sum::<u64>());
            prop_assert_eq!(sum, text.split_inclusive('\n').count() as u64);
        }
    }

    /// Events of a prefix are a prefix of the whole file's events, except for the truncated line.
    #[test]
    fn prefixes(cut in 0usize..2000) {
        let whole = "          <idle>-0       [001] d..2.     2.055256: sched_wakeup: comm=a pid=1 prio=120 target_cpu=003\n\
              dd-205     [000] .....     2.364069: vfs_read <-ksys_read\n 1)   1.578 us    |    fdget_pos();\n".repeat(8);
        let cut = cut.min(whole.len());
        let events = read_bytes(&FTRACE_TEXT, &whole.as_bytes()[..cut]);
        let all = read_bytes(&FTRACE_TEXT, whole.as_bytes());
        if !events.starts_with("error") {
            // The counts, the truncated line, its effect on the line before, and its problem.
            let kept = events.lines().count().saturating_sub(5);
            for (part, of_whole) in events.lines().zip(all.lines()).take(kept) {
                prop_assert_eq!(part, of_whole);
            }
        }
    }
}

#[test]
fn a_dump_late_in_a_log_is_found() {
    let before = "[    1.000000] usb 1-1: new full-speed USB device\n".repeat(40_000);
    let dump = "\
[    4.448775] Dumping ftrace buffer:
[    4.449175] ---------------------------------
[    4.450645]   <idle>-0         1d..2. 4717288us : x: y=1
[    4.486832] ---------------------------------
";
    let text = read_bytes(&FTRACE_TEXT, (before + dump).as_bytes());
    let samples = text.lines().filter(|line| line.starts_with("sample"));
    assert_eq!(samples.count(), 1, "{text}");
    assert!(!text.contains("Problem"), "{text}");
}

/// Without heads, only their form distinguishes events from the second line of a text.
#[test]
fn a_marker_without_a_head_ends_at_the_next_event() {
    check(
        "# tracer: nop\n#\nsys_enter: NR 1 (1, 2)\ntracing_mark_write: one\ntwo words\n\
         sched_wakeup: comm=a pid=5\nvfs_read <-ksys_read\n",
        &[
            "Fact(Other { name: \"ftrace.tracer\", value: \"nop\" })",
            "sample 0 fields=[1, [1, 2]]",
            "sample 1 fields=[\"tracing_mark_write\", \"one\\ntwo words\"]",
            "sample 2 fields=[\"a\", 5]",
            "call function=\"vfs_read\" caller=\"ksys_read\" leaf=true",
        ],
    );
}

/// The output of the option `fields` (kernel/trace/trace_output.c, `print_fields`).
#[test]
fn bytes_and_addresses_of_the_option_fields_are_numbers() {
    let line = |time: u32, more: &str| {
        format!(
            "              dd-419     [000] ..... 209.{time:06}: exiting: pid=0x1a3 (419) {more}\n"
        )
    };
    let text = line(
        1,
        "group_dead=(1) letter='A'(65) where=0x0 (0) ret=0xfffffffffffffffe (-2)",
    ) + &line(
        2,
        "group_dead=(0) letter=(7) where=0xffff88800b5d2000 (-131391448866816) ret=0x0 (0)",
    );
    let events = read_bytes(&FTRACE_TEXT, text.as_bytes());
    let expected = "pid:Int(8) group_dead:Int(8) letter:Int(8) where:UInt(8) ret:Int(8)";
    assert!(events.contains(expected), "{events}");
    assert!(
        events.contains("fields=[419, 1, 65, 0, -2, 0, 0]"),
        "{events}"
    );
    assert!(
        events.contains("fields=[419, 0, 7, 18446612682260684800, 0, 0, 0]"),
        "{events}"
    );
}
