//! `cargo xtask stacks`: the share of samples of real programs whose user stack ends at the root of a thread, in the recorder and in
//! its peers, with the recorder's cost: the table of docs/stacks-and-names.md. Takes eight minutes.
//!
//! ```text
//! | program | samples | whole | depth | copied | us | tables, MiB | bytes | perf -g | perf dwarf | bpftrace |
//! | sqlite3 | 1,480   | 99.9  | 13.3  | 4      | 8.4 | 1          | 1.1   | 0       | 1          | 0        |
//! ```
//! Programs that are not installed are skipped. The criterion is the same for all tools: one of the three outermost frames is a
//! function with which threads begin. `us` is the time of the recorder's program in the kernel per sample, `bytes` the size of the trace
//! per sample, relative to one with frame pointers.

mod programs;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::place::{bin, root, target_directory};
use crate::say;
use programs::{LARGE, PROGRAMS, Program, SOURCES};

/// Seconds per program and recorder.
const SECONDS: u64 = 3;
const PEER_SECONDS: u64 = 2;
const RATE_HZ: &str = "499";
/// A switch of the kernel that makes it measure the time of programs.
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Functions with which threads and programs begin.
const ROOTS: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "clone3",
    "__clone3",
    "clone",
    "__clone",
    "start_thread",
    "_dl_start_user",
    "runtime.goexit",
    "runtime.mstart",
    "runtime.rt0_go",
    "_rt0_amd64",
];

/// The table's numbers for one trace: samples with a user stack, those whose outermost frames are those of a thread's root, frames.
const WHOLE: &str = "WITH RECURSIVE t AS (SELECT stack_id AS leaf, stack_id, parent_id, 1 AS depth FROM stacks \
     UNION ALL SELECT t.leaf, s.stack_id, s.parent_id, t.depth + 1 FROM t JOIN stacks s ON s.stack_id = t.parent_id), \
     d AS (SELECT leaf, max(depth) AS depth FROM t GROUP BY leaf), \
     w AS (SELECT t.leaf, max(CASE WHEN split_part(split_part(f.function, '.abi0', 1), '@', 1) IN (ROOTS) THEN 1 ELSE 0 END) AS whole \
     FROM t JOIN d ON d.leaf = t.leaf AND t.depth > d.depth - 3 JOIN stacks s ON s.stack_id = t.stack_id \
     JOIN frames f ON f.frame_id = s.frame_id GROUP BY t.leaf) \
     SELECT count(*), coalesce(sum(w.whole), 0), round(avg(d.depth), 1) \
     FROM samples JOIN d ON d.leaf = samples.user_stack JOIN w ON w.leaf = d.leaf";

/// Prints the table; with arguments, only of the programs whose names start with one of them.
pub fn run(names: &[&str]) -> Result<()> {
    let folder = target_directory().join("stacks");
    std::fs::create_dir_all(&folder).context("cannot create a directory")?;
    for name in ["deep.c", "Spin.java"] {
        let source = root().join("record/tests/programs").join(name);
        std::fs::copy(&source, folder.join(name)).context("cannot copy a program")?;
    }
    for (name, text) in SOURCES {
        std::fs::write(folder.join(name), text).context("cannot write a program")?;
    }
    let _statistics = Statistics::on();
    say::step("whole user stacks: share of samples (%) that end at a thread's root");
    println!(
        "| program | samples | whole | depth | copied | us | tables, MiB | bytes | `perf -g` | `perf dwarf` | bpftrace |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let is_wanted = |program: &&Program| {
        names.is_empty() || names.iter().any(|name| program.name.starts_with(name))
    };
    for program in PROGRAMS.iter().filter(is_wanted) {
        match measured(&folder, program) {
            Ok(Some(line)) => println!("{line}"),
            Ok(None) => say::note(&format!("{}: not installed", program.name)),
            Err(error) => say::note(&format!("{}: {error:#}", program.name)),
        }
    }
    Ok(())
}

fn measured(folder: &Path, program: &Program) -> Result<Option<String>> {
    let fill = |text: &str| {
        let text = text.replace("LARGE", LARGE);
        let text = text.replace("CLONE", &root().display().to_string());
        text.replace("PG", &postgres_directory().display().to_string())
    };
    if !program.build.is_empty() && run_in(folder, &fill(program.build)).is_err() {
        return Ok(None);
    }
    let command = fill(program.command);
    let recorder = bin("perfquet-record").display().to_string();
    let ours = |method: &str, seconds: u64, output: &str| {
        format!(
            "exec {recorder} {method} -F {RATE_HZ} -e cpu-clock:u -v --duration {seconds}s --force -o {output} -- bash -c \"$0\""
        )
    };
    let run = recorded(folder, &ours("-g", SECONDS, "o.pqt"), &command, SECONDS)?;
    let auto = numbers(folder, "o.pqt")?;
    // Nothing but the shell that did not find the program.
    if auto.samples < 100.0 {
        return Ok(None);
    }
    recorded(
        folder,
        &ours("--call-graph fp", SECONDS, "f.pqt"),
        &command,
        SECONDS,
    )?;
    let pointers = numbers(folder, "f.pqt")?;
    let bytes = |trace: &str, samples: f64| size_of(&folder.join(trace)) as f64 / samples;
    let ratio = bytes("o.pqt", auto.samples) / bytes("f.pqt", pointers.samples);
    let seconds = PEER_SECONDS;
    let perf = |method: &str| -> Result<String> {
        let perf = format!(
            "exec timeout -s INT {seconds} perf record -q {method} -F {RATE_HZ} -e cpu-clock:u -o p.data -- bash -c \"$0\""
        );
        recorded(folder, &perf, &command, seconds)?;
        let convert = bin("perfquet-convert").display().to_string();
        run_in(folder, &format!("{convert} p.data --force -o p.pqt"))?;
        Ok(percent(&numbers(folder, "p.pqt")?))
    };
    let copied = run.after("; copied ");
    let tables = run.before(" KiB of the kernel's memory") / 1024.0;
    Ok(Some(format!(
        "| {} | {} | {} | {} | {copied} | {:.1} | {tables:.0} | {ratio:.1} | {} | {} | {} |",
        program.name,
        auto.samples,
        percent(&auto),
        auto.depth,
        run.us_per_sample,
        perf("-g")?,
        perf("--call-graph dwarf")?,
        bpftrace(folder, &command)?,
    )))
}

/// Outside of the clone, whose directories another user may not enter.
fn postgres_directory() -> PathBuf {
    std::env::temp_dir().join("perfquet-stacks-postgres")
}

/// Prints a share in percent; whole numbers only if nothing is rounded to them.
fn percent(numbers: &Numbers) -> String {
    let share = numbers.whole / numbers.samples.max(1.0) * 100.0;
    match share == share.round() {
        true => format!("{share}"),
        false => format!("{share:.1}"),
    }
}

/// The kernel's measuring of programs, until it is dropped.
struct Statistics(Option<String>);

impl Statistics {
    fn on() -> Statistics {
        let former = std::fs::read_to_string(STATISTICS).ok();
        Statistics(former.filter(|_| std::fs::write(STATISTICS, "1").is_ok()))
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        if let Some(former) = &self.0 {
            let _ = std::fs::write(STATISTICS, former);
        }
    }
}

/// The messages and cost of a recorder.
struct Run {
    messages: String,
    us_per_sample: f64,
}

impl Run {
    /// The number after a text in the messages.
    fn after(&self, text: &str) -> u64 {
        let rest = self.messages.split(text).nth(1).unwrap_or_default();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    /// The number before it.
    fn before(&self, text: &str) -> f64 {
        let rest = self.messages.split(text).next().unwrap_or_default();
        let digits = rest.rsplit(' ').next();
        digits
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(f64::NAN)
    }
}

/// Runs a recorder and its command, and ends both.
fn recorded(folder: &Path, recorder: &str, command: &str, seconds: u64) -> Result<Run> {
    let log = folder.join("messages");
    let messages = std::fs::File::create(&log).context("cannot create a file")?;
    let mut shell = Command::new("bash");
    shell.args(["-c", recorder, command]).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = shell.stderr(messages).process_group(0).spawn();
    let child = child
        .as_mut()
        .map_err(|error| anyhow::anyhow!("cannot run {recorder}: {error}"))?;
    let patience = Instant::now() + Duration::from_secs(seconds * 20 + 20);
    let mut us_per_sample = f64::NAN;
    while child.try_wait()?.is_none() && Instant::now() < patience {
        if let Some(us) = time_of_program(child.id()) {
            us_per_sample = us;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // The command goes on otherwise.
    let group = format!("-{}", child.id());
    let mut kill = Command::new("kill");
    let _ = kill
        .args(["-KILL", "--", &group])
        .stderr(Stdio::null())
        .status();
    child.wait()?;
    Ok(Run {
        messages: std::fs::read_to_string(&log).unwrap_or_default(),
        us_per_sample,
    })
}

/// Returns the microseconds per run of the program at samples, which a process has loaded.
fn time_of_program(pid: u32) -> Option<f64> {
    const PERF_EVENT: &str = "prog_type:\t7\n";
    let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    files.flatten().find_map(|file| {
        let text = std::fs::read_to_string(file.path()).ok()?;
        let number = |name: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        let (time, count) = (number("run_time_ns:")?, number("run_cnt:")?);
        (text.contains(PERF_EVENT) && count > 0.0).then_some(time / count / 1e3)
    })
}

/// Share of the stacks of bpftrace that end at a root. It follows no children, so only commands that become the program count.
fn bpftrace(folder: &Path, command: &str) -> Result<String> {
    if !command.starts_with("exec ") || !say::has("bpftrace") {
        return Ok("–".to_owned());
    }
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(Stdio::null());
    let shell = shell.stderr(Stdio::null()).spawn();
    let mut program = shell.with_context(|| format!("cannot run {command}"))?;
    // It looks up names when it ends, so the program must outlive it.
    let pid = program.id().to_string();
    let script =
        format!("profile:hz:{RATE_HZ} /pid == {pid}/ {{ @[ustack(perf, 127)] = count(); }}");
    let seconds = (PEER_SECONDS + 1).to_string();
    let mut peer = Command::new("timeout");
    peer.args([
        "-k", "9", "-s", "INT", &seconds, "bpftrace", "-p", &pid, "-e", &script,
    ]);
    peer.env("BPFTRACE_MAP_KEYS_MAX", "100000");
    let output = peer.stdin(Stdio::null()).stderr(Stdio::null()).output();
    program.kill()?;
    program.wait()?;
    let output = output.context("cannot run bpftrace")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (mut samples, mut whole) = (0.0, 0.0);
    for stack in text.split("@[").skip(1) {
        let Some((frames, count)) = stack.split_once("]: ") else {
            continue;
        };
        let count: f64 = count.lines().next().unwrap_or("").parse().unwrap_or(0.0);
        let outermost = frames.lines().rev().filter(|line| !line.trim().is_empty());
        let is_whole = outermost.take(3).any(|line| {
            let name = line.split_whitespace().nth(1).unwrap_or_default();
            let name = name.rsplit_once('+').map_or(name, |(name, _)| name);
            ROOTS.contains(&name.trim_end_matches(".abi0"))
        });
        samples += count;
        whole += if is_whole { count } else { 0.0 };
    }
    let depth = 0.0;
    Ok(match samples > 0.0 {
        true => percent(&Numbers {
            samples,
            whole,
            depth,
        }),
        false => "–".to_owned(),
    })
}

fn run_in(folder: &Path, command: &str) -> Result<String> {
    let mut shell = Command::new("timeout");
    let output = shell.args(["60", "bash", "-c", command]);
    let output = output.current_dir(folder).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {command}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

struct Numbers {
    samples: f64,
    whole: f64,
    depth: f64,
}

fn numbers(folder: &Path, trace: &str) -> Result<Numbers> {
    let query = bin("perfquet-query").display().to_string();
    let names: Vec<String> = ROOTS.iter().map(|name| format!("'{name}'")).collect();
    let sql = WHOLE.replace("ROOTS", &names.join(", "));
    let rows = run_in(
        folder,
        &format!("{query} sql {trace} \"{sql}\" --format csv"),
    )?;
    let row = rows.lines().last().unwrap_or_default();
    let cells: Vec<f64> = row
        .split(',')
        .map(|cell| cell.parse().unwrap_or(0.0))
        .collect();
    let [samples, whole, depth] = cells[..] else {
        anyhow::bail!("expected three numbers, found {row:?}");
    };
    Ok(Numbers {
        samples,
        whole,
        depth,
    })
}

fn size_of(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size_of(&entry.path()),
        _ => entry.metadata().map_or(0, |metadata| metadata.len()),
    });
    sizes.sum()
}
