//! `cargo xtask scopes`: one moment recorded three times, by `-a`, as a command, and by `-p`, and what views say about the same threads.
//!
//! ```text
//! metric                 threads          -a     command          -p   differing
//! running, us                 31     412,118     411,902     411,902           3
//! ```
//! All three recorders have the same clock. Compared are the threads of the command, from the moment at which `-p` has attached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{bin, say};

const EVENTS: &str =
    "sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new";

/// Threads that start, end, wait for each other and for a disk. `-p` attaches during the pause.
const WORK: &str = "echo $$ > pid; sleep 3
for i in 1 2 3 4 5 6 7 8 9 10; do ls -l /usr/bin > /dev/null; done
for i in 1 2 3; do dd if=/dev/zero of=file bs=4k count=500 conv=fsync 2> /dev/null; cat file | md5sum > /dev/null; done
sleep 0.1";

/// What is compared: a name and a query with the columns tid and value, with `{from}`.
const METRICS: [(&str, &str); 5] = [
    (
        "running, us",
        "SELECT tid, sum(duration) / 1000 FROM thread_states WHERE state = 'running' AND time >= {from} GROUP BY tid",
    ),
    (
        "waits for a CPU",
        "SELECT tid, count(*) FROM runqueue_waits WHERE duration IS NOT NULL AND time >= {from} GROUP BY tid",
    ),
    (
        "waits for a CPU, us",
        "SELECT tid, sum(duration) / 1000 FROM runqueue_waits WHERE duration IS NOT NULL AND time >= {from} GROUP BY tid",
    ),
    (
        "off the CPU, us",
        "SELECT tid, sum(duration) / 1000 FROM off_cpu WHERE duration IS NOT NULL AND time >= {from} GROUP BY tid",
    ),
    (
        "wake-ups",
        "SELECT tid, count(*) FROM wakeups WHERE time >= {from} GROUP BY tid",
    ),
];

const SCOPES: [&str; 3] = ["-a", "command", "-p"];

/// Records and compares.
pub fn run() -> Result<()> {
    let folder = tempfolder()?;
    let traces = SCOPES.map(|scope| folder.join(format!("{}.pqt", scope.trim_start_matches('-'))));
    say::step("one moment recorded by -a, as a command, and by -p");
    record(&folder, &traces)?;
    let from: i64 = traces
        .iter()
        .map(|trace| number(trace, "SELECT min(time) FROM sched_switch"))
        .collect::<Result<Vec<i64>>>()?
        .into_iter()
        .max()
        .unwrap_or_default();
    // Those that leave a CPU in the recording of the command, after its shell has started.
    let sql = format!("SELECT DISTINCT tid, 0 FROM sched_switch WHERE tid <> 0 AND time >= {from}");
    let threads: BTreeSet<i64> = pairs(&traces[1], &sql)?.into_keys().collect();
    println!(
        "{:<22} {:>8} {:>12} {:>12} {:>12} {:>10} {:>14}",
        "metric", "threads", SCOPES[0], SCOPES[1], SCOPES[2], "differing", "largest"
    );
    for (metric, sql) in METRICS {
        let sql = sql.replace("{from}", &from.to_string());
        let values: Vec<BTreeMap<i64, i64>> = traces
            .iter()
            .map(|trace| pairs(trace, &sql))
            .collect::<Result<_>>()?;
        let of = |scope: usize, tid: &i64| values[scope].get(tid).copied().unwrap_or(0);
        let difference = |tid: &i64| {
            let all = [0, 1, 2].map(|scope| of(scope, tid));
            all.iter().max().unwrap_or(&0) - all.iter().min().unwrap_or(&0)
        };
        let sums = [0, 1, 2].map(|scope| threads.iter().map(|tid| of(scope, tid)).sum::<i64>());
        let differing = threads.iter().filter(|tid| difference(tid) > 0).count();
        let largest = threads.iter().map(difference).max().unwrap_or(0);
        println!(
            "{metric:<22} {:>8} {:>12} {:>12} {:>12} {differing:>10} {largest:>14}",
            threads.len(),
            sums[0],
            sums[1],
            sums[2]
        );
    }
    std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
}

fn tempfolder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("perfquet-scopes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Starts `-a`, then the command, then `-p`; ends `-a` after the command.
fn record(folder: &Path, traces: &[PathBuf; 3]) -> Result<()> {
    let recorder = |trace: &Path, words: &[&str]| -> Result<Child> {
        let mut command = Command::new(bin("perfquet-record"));
        command.args(["-q", "-e", EVENTS, "-o"]).arg(trace);
        command.args(words).current_dir(folder);
        let child = command.stdin(Stdio::null()).spawn();
        child.context("cannot run perfquet-record")
    };
    let mut system = recorder(&traces[0], &["-a"])?;
    std::thread::sleep(Duration::from_secs(1));
    let mut command = recorder(&traces[1], &["--", "sh", "-c", WORK])?;
    let pid = written(&folder.join("pid"))?;
    let mut process = recorder(&traces[2], &["-p", &pid])?;
    let is_recorded = [&mut command, &mut process].map(|child| child.wait());
    let interrupt = Command::new("kill")
        .args(["-INT", &system.id().to_string()])
        .status();
    let is_ended = system.wait();
    for status in is_recorded.into_iter().chain([interrupt, is_ended]) {
        let status = status.context("a recorder or kill")?;
        if !status.success() {
            bail!("a recorder failed: {status}");
        }
    }
    Ok(())
}

/// The contents of a file that the command writes.
fn written(path: &Path) -> Result<String> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return Ok(text.trim().to_owned()),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    bail!("{}: the command did not start", path.display())
}

/// The rows of a query with two columns of numbers.
fn pairs(trace: &Path, sql: &str) -> Result<BTreeMap<i64, i64>> {
    let mut command = Command::new(bin("perfquet-query"));
    command.arg("sql").arg(trace).args([sql, "--format", "csv"]);
    let output = command.output().context("cannot run perfquet-query")?;
    if !output.status.success() {
        bail!("{sql}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    let rows = text.lines().skip(1).filter_map(|line| {
        let (tid, value) = line.split_once(',')?;
        Some((tid.parse().ok()?, value.parse().ok()?))
    });
    Ok(rows.collect())
}

fn number(trace: &Path, sql: &str) -> Result<i64> {
    let found = pairs(trace, &format!("SELECT 0, ({sql})"))?;
    found.into_values().next().context("no rows")
}
