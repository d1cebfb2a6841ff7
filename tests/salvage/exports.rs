//! Imports truncated exports: each must report that something is missing.
//!
//! A cut between two records leaves a file that its format cannot tell from a whole one: only these may be silent.

use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_tests::{bin, root};

use crate::events_of;
use crate::rows::Outcome;

/// Samples with stacks, calls and events, calls without an end, stacks with weights.
const INPUTS: [&str; 4] = [
    "formats/readers/src/perf_data/golden/user-regs.data",
    "formats/readers/src/trace_dat/golden/graph-events.dat",
    "formats/readers/src/perf_data/golden/switch-events.data",
    "formats/readers/src/folded/golden/dd.folded",
];

const FORMATS: [&str; 9] = [
    "perfetto",
    "firefox",
    "pprof",
    "speedscope",
    "chrome",
    "ctf",
    "folded",
    "perf-script",
    "pqtz",
];

const CUTS: usize = 20;

/// The files of an export: one, or those of a directory.
fn files(export: &Path) -> Vec<PathBuf> {
    if export.is_file() {
        return vec![export.to_owned()];
    }
    let entries = std::fs::read_dir(export).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Whether the first bytes of an export look like a whole one.
fn looks_whole(format: &str, part: &[u8]) -> bool {
    match format {
        "folded" => part.ends_with(b"\n"),
        // Frames begin with a tab; an empty line follows them.
        "perf-script" => {
            let last = part.split_inclusive(|byte| *byte == b'\n').next_back();
            part.ends_with(b"\n") && last.is_some_and(|line| !line.starts_with(b"\t"))
        }
        "perfetto" => is_between_packets(part),
        // A stream without a packet.
        "ctf" => part.is_empty(),
        _ => false,
    }
}

/// Whether bytes are whole packets of Perfetto: each has a tag, its size as a varint, and as many bytes.
fn is_between_packets(mut part: &[u8]) -> bool {
    while let [_, rest @ ..] = part {
        let Some(last) = rest.iter().position(|byte| byte & 0x80 == 0) else {
            return false;
        };
        let size = (rest[..=last].iter().rev())
            .fold(0usize, |size, byte| size << 7 | usize::from(byte & 0x7f));
        match rest.get(last + 1 + size..) {
            Some(next) => part = next,
            None => return false,
        }
    }
    true
}

fn events(outcome: &Outcome) -> u64 {
    let rows = outcome.rows.iter();
    rows.map(|(row, count)| count * events_of(row)).sum()
}

fn is_silent(whole: &Outcome, cut: &Outcome) -> bool {
    let is_told = cut.error.is_some()
        || (cut.messages.iter()).any(|message| !whole.messages.contains(message));
    events(whole) > events(cut) && !is_told
}

fn convert(from: &Path, words: &[&str], to: &Path) {
    let mut command = Command::new(bin("perfquet-convert"));
    command.arg(from).args(words).args(["-f", "-o"]).arg(to);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn cut_exports_are_not_read_as_whole_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (mut silent, mut told) = (Vec::new(), 0);
    for input in INPUTS {
        let trace = folder.path().join("a.pqt");
        convert(&root().join(input), &["--no-symbols"], &trace);
        for format in FORMATS {
            let export = folder
                .path()
                .join(format!("{}.{format}", told + silent.len()));
            convert(&trace, &["--to", format], &export);
            let whole = Outcome::at(&export);
            if whole.total() == 0 {
                continue;
            }
            for file in files(&export) {
                let bytes = std::fs::read(&file).unwrap();
                for place in 0..CUTS {
                    let part = &bytes[..bytes.len() * place / CUTS];
                    if looks_whole(format, part) {
                        continue;
                    }
                    std::fs::write(&file, part).unwrap();
                    match is_silent(&whole, &Outcome::at(&export)) {
                        true => silent.push(format!("{input} --to {format}: {} bytes", part.len())),
                        false => told += 1,
                    }
                }
                std::fs::write(&file, &bytes).unwrap();
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
    assert!(told > 400, "{told} cuts");
}
