//! The exported traces: golden files of every kind, and generated ones with contents that are hard to export.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use perfquet_tests::{foreign_corpus, root, target_directory};

use crate::several::printed;

/// Golden files, below `formats/readers/src`.
const GOLDEN: [&str; 26] = [
    "perf_data/golden/switch-events.data",
    "perf_data/golden/user-regs.data",
    "perf_data/golden/usdt.data",
    "perf_data/golden/mono.data",
    "trace_dat/golden/graph-events.dat",
    "trace_dat/golden/stacktrace.dat",
    "ftrace_text/golden/fields.trace",
    "ftrace_text/golden/graph.report",
    "folded/golden/dd.folded",
    "folded/golden/diff.folded",
    "perf_data/golden/stat.data",
    "perf_data/golden/group.data",
    "perf_data/golden/cut.data",
    "ftrace_text/golden/uprobes.trace",
    "ftrace_text/golden/lost.trace_pipe",
    "ftrace_text/golden/hist-stacks.txt",
    "kfi/golden/kft.lst",
    "strace/golden/threads.strace",
    "strace/golden/stacks.strace",
    "strace/golden/summary.strace",
    "uftrace/golden/args.tar",
    "dtrace/golden/stacks.out",
    "dtrace/golden/distributions.out",
    "pprof/golden/features.pb",
    "callgrind/golden/instructions.out",
    "perfetto/golden/features.pftrace",
];

/// The whole system, of the recorded traces: samples of a clock, and switches with the waits between them.
const RECORDED: [&str; 2] = [
    "perf-data/6.12/cpu-clock-a.data",
    "perf-data/6.12/multi.data",
];

/// Two recordings in one trace.
const SEVERAL: [&str; 2] = [
    "perf_data/golden/user-regs.data",
    "perf_data/golden/switch-events.data",
];

/// `perfquet-record --format perf.data -e sched:sched_switch -- sh -c 'sleep 0.01; sleep 0.01'`: the switches of its threads, with the moments
/// at which they get a CPU.
pub(super) const ONE_PROCESS: &str = "one-process.data";

/// `perfquet-record --format perf.data -g --call ./three:outer --call ./three:inner -- ./three`: nine calls with stacks, whose hits are rows of
/// `calls` alone.
const CALLS: &str = "calls.data";

/// Larger files from the collected traces.
const FOREIGN: [&str; 5] = [
    "perf-data/6.12/multi.data",
    "perf-data/6.12/lost.data",
    "perf-data/6.12/irq.data",
    "trace-cmd/6.12/events-v7.dat",
    "trace-cmd/6.12/buffers.dat",
];

/// A trace to export.
pub(super) struct Trace {
    pub(super) name: String,
    pub(super) path: String,
}

/// The traces, imported once for all tests, below the target directory.
pub(super) fn traces() -> &'static [Trace] {
    static TRACES: LazyLock<Vec<Trace>> = LazyLock::new(|| {
        let folder = target_directory().join("exports");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        import_all(&folder)
    });
    &TRACES
}

/// A trace by the name of its input.
pub(super) fn trace(name: &str) -> &'static Trace {
    traces().iter().find(|trace| trace.name == name).unwrap()
}

fn import_all(folder: &Path) -> Vec<Trace> {
    let readers = root().join("formats/readers/src");
    let mut inputs: Vec<PathBuf> = GOLDEN.iter().map(|name| readers.join(name)).collect();
    let own = [ONE_PROCESS, CALLS].map(|name| root().join("tests/oracle/exports").join(name));
    inputs.extend(own);
    inputs.extend(RECORDED.map(|name| root().join("tests/corpus").join(name)));
    if let Some(corpus) = foreign_corpus() {
        let foreign = FOREIGN.iter().map(|name| corpus.join(name));
        inputs.extend(foreign.filter(|path| path.is_file()));
    }
    for (name, text) in [
        ("hostile.trace", hostile()),
        ("late.trace", late()),
        ("losses.trace", losses()),
        ("empty.trace", "# tracer: nop\n".to_owned()),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        inputs.push(path);
    }
    let import = |(number, input): (usize, &PathBuf)| {
        let trace = folder.join(format!("{number}.pqt")).display().to_string();
        let input = input.display().to_string();
        printed("perfquet-convert", &[&input, "--no-symbols", "-o", &trace]);
        Trace {
            name: input.rsplit('/').next().unwrap_or_default().to_owned(),
            path: trace,
        }
    };
    let mut traces: Vec<Trace> = inputs.iter().enumerate().map(import).collect();
    let path = folder.join("several.pqt").display().to_string();
    let [first, second] = SEVERAL.map(|name| readers.join(name).display().to_string());
    printed(
        "perfquet-convert",
        &[&first, &second, "--no-symbols", "-o", &path],
    );
    traces.push(Trace {
        name: "several".to_owned(),
        path,
    });
    traces
}

/// Depth of the nested calls in [`hostile`].
pub(super) const DEPTH: usize = 600;

/// 600 nested calls; names with quotes, markup, control characters and 4,000 letters; calls without an exit.
fn hostile() -> String {
    let mut text = "# tracer: nop\n".to_owned();
    let mut time = 1_000_000_u64;
    let mut line = |task: &str, event: &str| {
        time += 1;
        let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
        writeln!(text, "{task} [001] .... {seconds}.{micros:06}: {event}").unwrap();
    };
    for depth in 0..DEPTH {
        line(
            "deep-100",
            &format!("tracing_mark_write: B|100|level {depth}"),
        );
    }
    for _ in 0..DEPTH {
        line("deep-100", "tracing_mark_write: E|100");
    }
    let long = "long".repeat(1_000);
    for name in [
        "quote\" and back\\slash",
        "</script><b>&amp;",
        "escape\x1b[2Jbell\x07",
        "\u{202e}right to left",
        "comma, semicolon; tab\there",
        &long,
    ] {
        line(
            "odd \"name\"-101",
            &format!("tracing_mark_write: B|101|{name}"),
        );
        line(
            "odd \"name\"-101",
            "sched_wakeup: comm=a\"b pid=100 prio=120 target_cpu=000",
        );
        line("odd \"name\"-101", "tracing_mark_write: E|101");
    }
    line(
        "odd \"name\"-101",
        "tracing_mark_write: C|101|queue \"length\"|5",
    );
    line("open-102", "tracing_mark_write: B|102|never left");
    line("open-102", "tracing_mark_write: B|102|left");
    line("open-102", "tracing_mark_write: E|102");
    text
}

/// Events near 2^62 ns, where floating-point numbers are no longer exact to the nanosecond.
fn late() -> String {
    let mut text = "# tracer: nop\n".to_owned();
    for (micros, event) in [
        (387_901, "tracing_mark_write: B|100|late"),
        (
            387_902,
            "sched_wakeup: comm=b pid=7 prio=120 target_cpu=001",
        ),
        (387_904, "tracing_mark_write: E|100"),
    ] {
        writeln!(text, "late-100 [000] .... 4611686018.{micros}: {event}").unwrap();
    }
    text
}

/// A trace that contains only losses.
fn losses() -> String {
    "# tracer: nop\nCPU:1 [LOST 20 EVENTS]\nCPU:2 [LOST 3 EVENTS]\n".to_owned()
}
