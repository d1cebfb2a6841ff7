//! Every file of the corpus is recognized as its own format; files of no format are rejected with a reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perfquet_events::Input;
use perfquet_tests::corpora;

/// The format of a file, by its directory and name; `None` if unknown (side files, damaged on purpose).
fn expected(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let folder = path.split('/').next().unwrap_or_default();
    let ends = |end: &str| name.ends_with(end);
    match folder {
        "perf-data" if ends(".script") => Some("perf-script"),
        "perf-data" | "perf-data-public" if ends(".data") || ends(".data.zst") => Some("perf.data"),
        "trace-cmd" if ends(".dat") => Some("trace.dat"),
        "trace-dat-public" => Some("trace.dat"),
        "trace-cmd" if ends(".report") => Some("ftrace-text"),
        "ftrace" if ends(".trace") || ends(".trace_pipe") || name.starts_with("hist") => {
            Some("ftrace-text")
        }
        "ftrace-legacy" => Some("ftrace-text"),
        "dtrace" if ends(".folded") => Some("folded"),
        "dtrace" => Some("dtrace"),
        "folded" if ends(".folded") || ends(".folded-all") => Some("folded"),
        "folded" if path.contains("/perf-script/") => Some("perf-script"),
        "more" if name == "metadata" || (path.contains("/ctf/") && ends(".tar.xz")) => Some("ctf"),
        "more" if path.starts_with("more/bcc/") => Some("bcc"),
        // The script prints what strace does.
        "more" if path == "more/systemtap/public/strace.txt" => Some("strace"),
        "more" if path.starts_with("more/systemtap/") && ends(".txt") => Some("systemtap"),
        "more" if path.starts_with("more/ktap/") => Some("dtrace"),
        "kfi" if ends(".log") || ends(".lst") => Some("kfi"),
        _ => None,
    }
}

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
    ("perf-data/6.12/nothing.script", "empty"),
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

/// Texts below `more/systemtap` without anything of SystemTap's own functions in their first 4 KiB: only what a script prints.
const SCRIPTED: &[&str] = &[
    "own/trace-printf",
    "public/eventcount",
    "public/fntimes",
    "public/futexes",
    "public/interrupts-by-dev",
    "public/iodevstats",
    "public/iostats",
    "public/kvm_service_time",
    "public/last_100_frees",
    "public/latencytap",
    "public/pf2",
    "public/pf3",
    "public/pfaults",
    "public/schedtimes",
    "public/syscallbypid-nd_example",
    "public/syscalltimes",
    "public/tcp_trace",
    "public/thread-times",
    "public/traceaio",
    "public/varwatch",
    "public/who_sent_it",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder of the corpus");
    for entry in entries.flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
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
    for (short, path) in paths {
        let Some(wanted) = expected(&short) else {
            continue;
        };
        let of_systemtap = short.strip_prefix("more/systemtap/");
        let script = of_systemtap.and_then(|name| name.strip_suffix(".txt"));
        let is_refused = REFUSED.iter().any(|(name, _)| *name == short)
            || script.is_some_and(|name| SCRIPTED.contains(&name));
        let wanted = (!is_refused).then_some(wanted);
        let found = Input::open(&path).and_then(|mut input| perfquet_import::sniff(&mut input));
        let found = found.as_ref().map(|format| format.name);
        *counts.entry(found.unwrap_or("refused")).or_insert(0) += 1;
        if found.ok() != wanted {
            wrong.push(format!("{short}: expected {wanted:?}, found {found:?}"));
        }
    }
    for (format, count) in &counts {
        println!("{format:<14} {count:>5} files");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
