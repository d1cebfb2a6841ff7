//! Reports compared with other tools' output for the same trace: kd's tables and trees, DTrace's drawings, folded
//! stacks.
//!
//! Logs and texts are generated here by the rules of `kft.c` and `dt_consume.c`, and so is the output of kd and
//! `stackcollapse.pl`. Downloaded files come with that output (`kfi/expected`, ties by name).

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, foreign_corpus};

use crate::dtrace_text;
use crate::kfi_log::{self, Machine};

/// The output of `perfquet-query`.
fn query(arguments: &[&str], trace: &Path) -> String {
    let output = Command::new(bin("perfquet-query"))
        .arg(arguments[0])
        .arg(trace)
        .args(&arguments[1..])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A file of the corpus as a trace.
fn import(file: &Path, folder: &Path) -> PathBuf {
    let trace = folder.join(file.file_name().unwrap()).with_extension("pqt");
    let output = Command::new(bin("perfquet-convert"))
        .arg(file)
        .args(["--no-symbols", "-o"])
        .arg(&trace)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {errors}", file.display());
    trace
}

/// The columns of the expected tables, in their order.
const COLUMNS: [&str; 4] = ["-f", "Fctalsmn", "-n", "15"];
const TREE: &[&str] = &["durations", "--kd-compat", "-c", "-l"];
const INTERLACED: &[&str] = &["durations", "--kd-compat", "-c", "-l", "-i"];

#[test]
fn durations_print_what_kd_prints() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, has_cpus) in [(3, false), (5, false), (7, true)] {
        let machine = Machine::play(seed, 60, has_cpus);
        let log = folder.path().join(format!("played{seed}.lst"));
        std::fs::write(&log, machine.logs().0).unwrap();
        let trace = import(&log, folder.path());
        for sort in ['t', 'l', 'c'] {
            let sort_by = sort.to_string();
            let mut arguments = vec!["durations", "--kd-compat", "-s", &sort_by];
            arguments.extend(COLUMNS);
            let found = words(&query(&arguments, &trace), 2);
            assert_eq!(
                found,
                kfi_log::table(&machine.rows, sort),
                "{seed} by {sort}"
            );
        }
        for (arguments, is_interlaced) in [(TREE, false), (INTERLACED, true)] {
            let expected = kfi_log::tree(&machine.rows, is_interlaced);
            let found = query(arguments, &trace);
            assert!(
                found == expected,
                "{seed}: {arguments:?}:\n{found}\nkd:\n{expected}"
            );
        }
    }
    if let Some(corpus) = foreign_corpus() {
        durations_of_listed_logs(&corpus);
    }
}

fn durations_of_listed_logs(corpus: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let columns = COLUMNS;
    let mut compared = 0;
    for log in ["kft-up", "kft-smp", "kft-smp64", "kft-args"] {
        let trace = import(&corpus.join(format!("kfi/{log}.lst")), folder.path());
        for (sort, name) in [("t", "time"), ("l", "local"), ("c", "count")] {
            let mut arguments = vec!["durations", "--kd-compat", "-s", sort];
            arguments.extend(columns);
            let found = words(&query(&arguments, &trace), 2);
            let expected = corpus.join(format!("kfi/expected/{log}.kd-{name}.txt"));
            let expected = words(&std::fs::read_to_string(expected).unwrap(), 1);
            assert_eq!(found, expected, "{log} by {name}");
            compared += found.len();
        }
        for (name, arguments) in [("tree", TREE), ("tree-interlaced", INTERLACED)] {
            let path = corpus.join(format!("kfi/expected/{log}.kd-{name}.txt"));
            if let Ok(expected) = std::fs::read_to_string(path) {
                let found = query(arguments, &trace);
                assert!(found == expected, "{log}: {name} differs");
                compared += found.lines().count();
            }
        }
    }
    assert!(compared > 1000, "{compared} lines");
}

/// The words of each line after the first `titles`.
fn words(text: &str, titles: usize) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    text.lines().skip(titles).map(words).collect()
}

#[test]
fn distributions_are_drawn_like_dtraces() {
    let folder = tempfile::tempdir().unwrap();
    let sizes: Vec<i64> = (0..200)
        .map(|number| (number * number * 37) % 5000)
        .collect();
    let signed: Vec<i64> = sizes.iter().map(|size| size % 300 - 120).collect();
    let text = [
        "dtrace: script 'sizes.d' matched 4 probes\n^C\n\n".to_owned(),
        dtrace_text::quantize("dd", &sizes),
        dtrace_text::quantize("cat", &signed),
        dtrace_text::quantize("one", &[4096]),
        dtrace_text::lquantize("bash", &sizes, 0, 1000, 100),
        dtrace_text::lquantize("ls", &signed, -50, 50, 10),
    ]
    .concat();
    let file = folder.path().join("distributions.out");
    std::fs::write(&file, &text).unwrap();
    let trace = import(&file, folder.path());
    assert_eq!(bars(&query(&["hist"], &trace)), bars(&text));
    let Some(corpus) = foreign_corpus() else {
        return;
    };
    for name in [
        "linux-allquant",
        "linux-lquantize",
        "linux-multiaggs2",
        "linux-negquant",
        "linux-truncquant",
        "linux-zero",
        "toolkit-cpudists",
    ] {
        let file = corpus.join(format!("dtrace/{name}.out"));
        let trace = import(&file, folder.path());
        let expected = bars(&std::fs::read_to_string(&file).unwrap());
        assert!(!expected.is_empty(), "{name}");
        let found = bars(&query(&["hist"], &trace));
        assert_eq!(found, expected, "{name}");
    }
}

/// The lines of drawings, sorted: repeated keys are at their last position.
fn bars(text: &str) -> Vec<String> {
    let is_bar = |line: &&str| {
        let bytes = line.as_bytes();
        bytes.get(15).is_some_and(u8::is_ascii_digit) && line.contains('|')
            || line.starts_with('-') && line.contains('|')
    };
    let mut bars: Vec<String> = text
        .lines()
        .filter(is_bar)
        .map(|line| line.trim_end().to_owned())
        .collect();
    bars.sort();
    bars
}

/// Stacks of a kernel, innermost frame first, with their counts; one occurs twice.
const STACKS: [(&[&str], u64); 5] = [
    (
        &[
            "genunix`kmem_cpu_reload+0x20",
            "genunix`kmem_cache_free+0xce",
            "unix`sys_syscall+0x17a",
        ],
        1,
    ),
    (&["unix`mutex_exit+0x12", "unix`sys_syscall+0x17a"], 12),
    (&["unix`mutex_exit+0x19", "unix`sys_syscall+0x17a"], 30),
    (&["unix`idle+0x114", "unix`thread_start+0x8"], 577),
    (&["unix`mutex_exit+0x12"], 2),
];

#[test]
fn dtrace_stacks_are_folded_like_stackcollapse_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stacks.out");
    std::fs::write(
        &file,
        dtrace_text::stacks(&STACKS.map(|(frames, count)| (frames.to_vec(), count))),
    )
    .unwrap();
    let trace = import(&file, folder.path());
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = dtrace_text::folded(&STACKS.map(|(frames, count)| (frames.to_vec(), count)));
    let found = sorted(&query(&["flamegraph", "--folded"], &trace));
    assert_eq!(found, expected);
    let Some(corpus) = foreign_corpus() else {
        return;
    };
    let trace = import(
        &corpus.join("dtrace/flamegraph-example-stacks.out"),
        folder.path(),
    );
    let expected = corpus.join("dtrace/flamegraph-example-stacks.folded");
    let expected = sorted(&std::fs::read_to_string(expected).unwrap());
    assert_eq!(
        sorted(&query(&["flamegraph", "--folded"], &trace)),
        expected
    );
}
