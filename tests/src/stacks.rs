//! `cargo xtask stacks`: counts the samples of real programs that have complete user stacks, in the recorder and in
//! `perf record -g`, as the table of docs/stacks-and-names.md.
//!
//! ```text
//! program        samples  whole  depth  perf -g: depth  bytes per sample
//! sqlite3            946  100 %   12.5             1.7              14.1
//! ```
//! Programs that are not installed are skipped.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::place::{bin, root, target_directory};
use crate::say;

/// Seconds per program and recorder.
const SECONDS: &str = "3s";
/// The input of compressors.
const LARGE: &str = "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1";

/// Programs that run for longer than that: a name, and a command of bash.
const PROGRAMS: &[(&str, &str)] = &[
    ("C -O2 without frame pointers", "exec ./deep 30 1000000"),
    (
        "python3",
        "exec python3 -c 'import json\nwhile 1: json.dumps([list(range(50))] * 20)'",
    ),
    (
        "node",
        "exec node -e 'for(;;) JSON.stringify([...Array(999).keys()].map(x => \"k\" + x).sort())'",
    ),
    (
        "perl",
        "exec perl -e 'sub f { my $n = shift; $n < 2 ? $n : f($n-1) + f($n-2) } f(18) while 1'",
    ),
    (
        "bash, recursion",
        "f() { local n=$1; if ((n > 0)); then f $((n - 1)); else for i in {1..300}; do :; done; fi; }; while :; do f 30; done",
    ),
    (
        "sqlite3",
        "exec sqlite3 :memory: 'WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 90000000) SELECT sum(x*7%13) FROM c'",
    ),
    ("xz", "exec xz -6 -k -c -T1 LARGE"),
    ("zstd", "exec zstd -19 -c -q LARGE"),
    ("gzip", "exec gzip -9 -c LARGE"),
    ("openssl rsa2048", "exec openssl speed -seconds 20 rsa2048"),
    (
        "openssl aes-256-gcm",
        "exec openssl speed -seconds 20 -evp aes-256-gcm",
    ),
    (
        "sort",
        "seq 1 9000000 | sort -R --random-source=/dev/zero | sort -n",
    ),
    ("gcc (cc1)", "while :; do gcc -O2 -c deep.c -o gcc.o; done"),
    ("clang", "while :; do clang -O2 -c deep.c -o clang.o; done"),
    ("git log --stat", "exec git -C CLONE log --stat"),
];

/// Samples with a user stack, those whose callers are all there, frames of a stack.
const WHOLE: &str = "WITH RECURSIVE t AS (SELECT stack_id AS leaf, stack_id, parent_id, 1 AS depth FROM stacks \
     UNION ALL SELECT t.leaf, s.stack_id, s.parent_id, t.depth + 1 FROM t JOIN stacks s ON s.stack_id = t.parent_id) \
     SELECT count(*), count(*) FILTER (WHERE s.cut IS NULL), round(avg(t.depth), 1) \
     FROM samples JOIN t ON t.leaf = samples.user_stack AND t.parent_id = 0 JOIN stacks s ON s.stack_id = t.stack_id";

/// Prints the table.
pub fn run() -> Result<()> {
    let folder = target_directory().join("stacks");
    std::fs::create_dir_all(&folder).context("cannot create a directory")?;
    let source = root().join("record/tests/programs/deep.c");
    std::fs::copy(&source, folder.join("deep.c")).context("cannot copy deep.c")?;
    run_in(&folder, "cc -O2 -fomit-frame-pointer -o deep deep.c")?;
    say::step("whole user stacks: samples whose callers are all there, against perf record -g");
    println!("| program | samples | whole | depth | `perf record -g`: depth | bytes per sample |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, command) in PROGRAMS {
        let command = command.replace("LARGE", LARGE);
        let command = command.replace("CLONE", &root().display().to_string());
        if let Some(line) = measured(&folder, name, &command)? {
            println!("{line}");
        }
    }
    Ok(())
}

fn measured(folder: &Path, name: &str, command: &str) -> Result<Option<String>> {
    let recorder = bin("perfquet-record").display().to_string();
    let ours = format!(
        "{recorder} -g -F 997 -e cpu-clock --duration {SECONDS} --force -o o.pqt -- bash -c \"$0\""
    );
    recorded(folder, &ours, command)?;
    let [samples, whole, depth] = numbers(folder, "o.pqt")?;
    // Nothing but the shell that did not find the program.
    if samples < 100.0 {
        return Ok(None);
    }
    let bytes = size_of(&folder.join("o.pqt")) as f64 / samples;
    let perf = format!(
        "timeout -s INT {SECONDS} perf record -q -g -F 997 -e cpu-clock -o p.data -- bash -c \"$0\""
    );
    recorded(folder, &perf, command)?;
    let convert = bin("perfquet-convert").display().to_string();
    run_in(folder, &format!("{convert} p.data --force -o p.pqt"))?;
    let [_, _, perf_depth] = numbers(folder, "p.pqt")?;
    Ok(Some(format!(
        "| {name} | {samples} | {:.1} % | {depth} | {perf_depth} | {bytes:.0} |",
        whole / samples * 100.0
    )))
}

/// Runs a recorder, which ends by itself.
fn recorded(folder: &Path, recorder: &str, command: &str) -> Result<()> {
    let mut shell = Command::new("bash");
    shell.args(["-c", recorder, command]).current_dir(folder);
    shell.stdout(Stdio::null()).stderr(Stdio::null());
    shell
        .status()
        .with_context(|| format!("cannot run {recorder}"))?;
    Ok(())
}

fn run_in(folder: &Path, command: &str) -> Result<String> {
    let mut shell = Command::new("bash");
    let output = shell.args(["-c", command]).current_dir(folder).output();
    let output = output.with_context(|| format!("cannot run {command}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn numbers(folder: &Path, trace: &str) -> Result<[f64; 3]> {
    let query = bin("perfquet-query").display().to_string();
    let rows = run_in(
        folder,
        &format!("{query} sql {trace} \"{WHOLE}\" --format csv"),
    )?;
    let row = rows.lines().last().unwrap_or_default();
    let numbers: Vec<f64> = row
        .split(',')
        .filter_map(|cell| cell.parse().ok())
        .collect();
    numbers
        .try_into()
        .ok()
        .with_context(|| format!("expected three numbers, found {row:?}"))
}

fn size_of(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size_of(&entry.path()),
        _ => entry.metadata().map_or(0, |metadata| metadata.len()),
    });
    sizes.sum()
}
