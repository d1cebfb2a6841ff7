//! Every file of the corpus is recognized as its own format; files of no format are rejected with a reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perfquet_events::event::{Event, Sink};
use perfquet_events::{Error, Input};
use perfquet_tests::{corpora, root};

/// The format of a file, by its directory and name; `None` for side files.
fn expected(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let (folder, rest) = path.split_once('/').unwrap_or_default();
    let extension = name.rsplit('.').next().unwrap_or_default();
    let of_threads = path.contains("/threads.data/data");
    match (folder, extension) {
        ("scopes", "zst") => Some("perf.data"),
        ("perf-data", "script" | "records") => Some("perf-script"),
        ("perf-data" | "perf-data-public", "data" | "zst" | "zstd" | "stream" | "v1") => {
            Some("perf.data")
        }
        ("perf-data" | "perf-data-public", _) if of_threads => Some("perf.data"),
        ("perf-data-public", _) if rest.starts_with("quipper/perf.data.") => Some("perf.data"),
        ("perf-data-public", _) if rest.starts_with("fuzz/") => Some("perf.data"),
        ("trace-cmd", "dat") | ("trace-dat-public", _) => Some("trace.dat"),
        ("trace-cmd", "report") | ("ftrace-legacy", _) => Some("ftrace-text"),
        ("trace-cmd", "txt") if name.starts_with("show-") => Some("ftrace-text"),
        ("ftrace", "trace" | "trace_pipe") => Some("ftrace-text"),
        ("ftrace", _) if name.starts_with("hist") => Some("ftrace-text"),
        ("dtrace" | "folded", "folded" | "folded-all") => Some("folded"),
        ("dtrace", _) => Some("dtrace"),
        ("folded", _) if rest.starts_with("perf-script/") => Some("perf-script"),
        ("folded", _) if rest == "other/bpftrace-text.txt" => Some("bpftrace"),
        ("folded", _) if rest.starts_with("other/strace-") => Some("strace"),
        ("kfi", "log" | "lst" | "conf") => Some("kfi"),
        ("exports", _) => exported(name, rest),
        ("reports", _) => reported(name, rest),
        ("more", _) => more(name, rest),
        _ => None,
    }
}

/// Files that perfquet exported.
fn exported(name: &str, path: &str) -> Option<&'static str> {
    match name {
        "metadata" if path.starts_with("tiny-ctf/") => Some("ctf"),
        "tiny.firefox.json" => Some("firefox"),
        "tiny.pb.gz" => Some("pprof"),
        "tiny.perfetto-trace" => Some("perfetto"),
        "tiny.speedscope.json" => Some("speedscope"),
        "tiny.trace.json" => Some("chrome"),
        _ => None,
    }
}

/// Inputs of reported bugs.
fn reported(name: &str, path: &str) -> Option<&'static str> {
    let extension = name.rsplit('.').next().unwrap_or_default();
    match (path, extension) {
        ("002-two.txt" | "dt01-mac.txt" | "dtrace-no-header.out", _) => Some("dtrace"),
        ("003-fgraph.txt" | "nocontext-stack.trace", _) => Some("ftrace-text"),
        // A report of trace-cmd in which one line is inside of another.
        ("hostile/ctf/address.txt" | "hostile/ctf/xinvalid-eee22af2cc", _) => Some("ftrace-text"),
        (_, "ps" | "data") => Some(match extension {
            "ps" => "perf-script",
            _ => "perf.data",
        }),
        (_, "folded") => Some("folded"),
        (_, "txt") if path.starts_with("hostile/names/") => match name {
            "folded.txt" => Some("folded"),
            "ftrace.txt" | "graph.txt" => Some("ftrace-text"),
            "script.txt" => Some("perf-script"),
            _ => None,
        },
        (_, "txt" | "json" | "bin") if !path.contains('/') => match name.get(..2)? {
            "bt" => Some("bpftrace"),
            "ft" => Some("ftrace-text"),
            "ps" => Some("perf-script"),
            _ => None,
        },
        _ => None,
    }
}

/// Files of other tools.
fn more(name: &str, path: &str) -> Option<&'static str> {
    let (tool, rest) = path.split_once('/')?;
    let extension = name.rsplit('.').next().unwrap_or_default();
    match (tool, extension) {
        ("ctf", _) if rest.starts_with("expected/") => {
            let is_timeless = TIMELESS.iter().any(|trace| name.starts_with(trace));
            (!is_timeless).then_some("ctf")
        }
        ("ctf", "xz") => Some("ctf"),
        ("ctf", _) if name == "metadata" => Some("ctf"),
        ("ctf-text", _) => Some("ctf"),
        ("bcc", _) => Some("bcc"),
        ("chrome", _) => Some("chrome"),
        // The script prints what strace does.
        ("systemtap", _) if rest == "public/strace.txt" => Some("strace"),
        ("systemtap", "txt") => Some("systemtap"),
        ("ktap", _) => Some("dtrace"),
        ("strace", _) => Some("strace"),
        ("uftrace", "folded") => Some("folded"),
        ("uftrace", "txt") if name != "task.txt" => Some("uftrace"),
        ("uftrace", _) if name == "info" => Some("uftrace"),
        _ => None,
    }
}

/// Texts of babeltrace2 of traces without clocks: their lines have no times, which identify the others.
const TIMELESS: [&str; 12] = [
    "bt-array-align-elem.",
    "bt-ev-disc-no-ts-begin-end.",
    "bt-fail-valid-events-then-invalid-events.",
    "bt-meta-variant-no-underscore.",
    "bt-meta-variant-reserved-keywords.",
    "bt-meta-variant-two-underscores.",
    "bt-no-packet-context.",
    "bt-smalltrace.",
    "bt-struct-array-align-elem.",
    "bt-succeed1.",
    "tc-CTF2-7.0-ev-disc-no-ts-begin-end.",
    "tc-CTF2-vl-ints.",
];

/// Files whose content does not identify them, each with the reason; `--from` reads those of a tool.
const REFUSED: &[(&str, &str)] = &[
    (
        "dtrace/linux-ListProbesModuleSDT.out",
        "a list of probes (dtrace -l), no trace",
    ),
    (
        "dtrace/linux-keysort.out",
        "columns of a script's own printa",
    ),
    ("dtrace/linux-sort.out", "columns of a script's own printa"),
    ("dtrace/linux-stddev.out", "two bare numbers"),
    (
        "dtrace/toolkit-hotkernel.out",
        "a table printed by another program after dtrace",
    ),
    ("more/ktap/errinfo.txt", "nothing that was printed"),
    ("more/ktap/schedtimes.txt", "nothing that was printed"),
    ("more/ktap/tutorial.md", "a manual"),
    (
        "more/strace/attach-detach.stderr.txt",
        "strace's messages about threads, no calls",
    ),
    ("perf-data/6.12/nothing.script", "empty"),
    (
        "perf-data/6.12/threads.data/data.0",
        "one record beside a perf.data",
    ),
    ("perf-data-public/recorded/empty.data", "empty"),
    (
        "perf-data-public/simpleperf/invalid_perf.data",
        "nothing but zeros",
    ),
    (
        "perf-data-public/simpleperf/perf_inject.data",
        "the text of another tool",
    ),
    (
        "trace-cmd/6.12/events-v7.f.report",
        "the kernel's functions (trace-cmd report -f), no trace",
    ),
];

/// Texts below `more/systemtap` without anything of SystemTap's own functions in their first 4 KiB, nor a table of function times: only what a script prints.
const SCRIPTED: &[&str] = &[
    "own/trace-printf",
    "public/eventcount",
    "public/fntimes",
    "public/futexes",
    "public/interrupts-by-dev",
    "public/iodevstats",
    "public/iostats",
    "public/last_100_frees",
    "public/pf2",
    "public/pf3",
    "public/pfaults",
    "public/syscallbypid-nd_example",
    "public/tcp_trace",
    "public/thread-times",
    "public/traceaio",
    "public/varwatch",
    "public/who_sent_it",
];

/// All files below a directory; links are not followed.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// The format of a file. Of an archive, only the names of its files tell what it is: it is opened.
fn recognized(path: &Path) -> Option<&'static str> {
    let mut input = Input::open(path).ok()?;
    let format = perfquet_import::sniff(&mut input).ok()?;
    let is_archive = input.head().get(257..262) == Some(b"ustar");
    let is_trace = !is_archive || format.read(&mut input, &mut Ignored).is_ok();
    is_trace.then_some(format.name)
}

/// Accepts all events.
struct Ignored;

impl Sink for Ignored {
    fn event(&mut self, _: Event<'_>) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn corpus_is_recognized() {
    let mut paths = Vec::new();
    for corpus in corpora() {
        let mut found = Vec::new();
        files(&corpus, &mut found);
        found.sort();
        paths.extend(found.into_iter().map(|path| {
            let short = path.strip_prefix(&corpus).expect("below it");
            (short.to_string_lossy().into_owned(), path)
        }));
    }
    let (mut counts, mut wrong) = (BTreeMap::new(), Vec::new());
    // Records of perf without a header, in directories of uftrace: recognized if there are enough.
    paths.retain(|(short, _)| !short.contains(".data/perf-cpu"));
    let seen = paths.len();
    for (short, path) in paths {
        let of_systemtap = short.strip_prefix("more/systemtap/");
        let script = of_systemtap.and_then(|name| name.strip_suffix(".txt"));
        let is_refused = REFUSED.iter().any(|(name, _)| *name == short)
            || script.is_some_and(|name| SCRIPTED.contains(&name));
        let wanted = expected(&short).filter(|_| !is_refused);
        let found = recognized(&path);
        *counts.entry(found.unwrap_or("refused")).or_insert(0) += 1;
        if found != wanted {
            wrong.push(format!("{short}: expected {wanted:?}, found {found:?}"));
        }
    }
    for (format, count) in &counts {
        println!("{format:<14} {count:>5} files");
    }
    println!("{seen} files, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Documents that consist of what a tool prints, by the end of their path.
const DOCUMENTS: &[&str] = &[
    // Pages of examples, in which the output of bpftrace's and bcc's tools is most of the text.
    "_example.txt",
    "libbpfcc/README.md.gz",
    // Comments and sessions with excerpts.
    "ftrace_text/dump.rs",
    "kfi/tests.rs",
    "docs/counting.md",
    "docs/one-liners.md",
    "tests/cli/aggregations.md",
    "tests/cli/hist.md",
];

/// Files below directories without traces: those of `PERFQUET_SNIFF`, by colons, or the sources of this project.
#[test]
fn other_files_are_refused() {
    let folders: Vec<PathBuf> = match std::env::var_os("PERFQUET_SNIFF") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => vec![root().to_owned()],
    };
    let mut paths = Vec::new();
    for folder in &folders {
        files(folder, &mut paths);
    }
    let is_trace = |path: &PathBuf| {
        let path = path.strip_prefix(root()).unwrap_or(path).to_string_lossy();
        let own = [
            "tests/corpus/",
            "tests/sql/",
            "tests/oracle/exports/",
            "tests/dist.folded",
            ".git/",
        ];
        own.iter().any(|folder| path.starts_with(folder)) || path.contains("/golden/")
    };
    paths.retain(|path| !is_trace(path));
    paths.retain(|path| {
        !DOCUMENTS
            .iter()
            .any(|end| path.to_string_lossy().ends_with(end))
    });
    paths.sort();
    let found: Vec<String> = paths
        .iter()
        .filter_map(|path| Some(format!("{}: {}", path.display(), recognized(path)?)))
        .collect();
    println!("{} files, {} recognized", paths.len(), found.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
}
