//! One run of a program: wall time, CPU time with all its children and of its busiest thread, peak memory, output.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The cost of a run.
pub(super) struct Run {
    pub(super) wall: Duration,
    /// User and system time of the program and of all children it waited for, in steps of 10 ms.
    pub(super) cpu: Duration,
    /// CPU time of the program's thread that used most, sampled every 5 ms: no number of CPUs makes the run shorter.
    pub(super) busiest_thread: Duration,
    /// Peak resident memory of the program itself, sampled every 5 ms.
    pub(super) peak_bytes: u64,
    pub(super) stdout: String,
}

/// The runs of one contestant, and their medians.
#[derive(Default)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    pub(super) fn push(&mut self, run: Run) {
        self.0.push(run);
    }

    /// Wall time in seconds.
    pub(super) fn wall(&self) -> f64 {
        median(self.0.iter().map(|run| run.wall.as_secs_f64()))
    }

    /// CPU time in seconds.
    pub(super) fn cpu(&self) -> f64 {
        median(self.0.iter().map(|run| run.cpu.as_secs_f64()))
    }

    /// CPU time of the busiest thread in seconds.
    pub(super) fn busiest_thread(&self) -> f64 {
        median(self.0.iter().map(|run| run.busiest_thread.as_secs_f64()))
    }

    pub(super) fn peak_bytes(&self) -> f64 {
        median(self.0.iter().map(|run| run.peak_bytes as f64))
    }
}

/// Runs the program to its end and measures it. Only one may run at a time: the kernel reports the CPU time of all
/// children as one sum.
pub(super) fn run(command: &mut Command, scratch: &Path) -> Result<Run> {
    run_with(command.stdin(Stdio::null()), None, scratch)
}

/// The same with this file as its standard input, through a pipe. The CPU time of filling the pipe does not count.
pub(super) fn run_fed(command: &mut Command, input: &Path, scratch: &Path) -> Result<Run> {
    let input = File::open(input).with_context(|| format!("cannot open {}", input.display()))?;
    run_with(command.stdin(Stdio::piped()), Some(input), scratch)
}

fn run_with(command: &mut Command, input: Option<File>, scratch: &Path) -> Result<Run> {
    let output = scratch.join("stdout");
    let errors = scratch.join("stderr");
    command
        .stdout(
            File::create(&output).with_context(|| format!("cannot create {}", output.display()))?,
        )
        .stderr(File::create(&errors)?);
    let cpu_before = cpu_of_children()?;
    let started = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let fed = (child.stdin.take().zip(input))
        .map(|(pipe, input)| std::thread::spawn(move || feed(pipe, input)));
    let process = format!("/proc/{}", child.id());
    let mut peak_bytes = 0;
    let mut threads = HashMap::new();
    let status: ExitStatus = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        peak_bytes = peak_bytes.max(high_water_mark(&format!("{process}/status")));
        add_threads(&process, &mut threads);
        std::thread::sleep(Duration::from_millis(5));
    };
    if let Some(fed) = fed {
        let _ = fed.join();
    }
    let wall = started.elapsed();
    let cpu = cpu_of_children()? - cpu_before;
    if !status.success() {
        let errors = std::fs::read(&errors).unwrap_or_default();
        bail!(
            "{command:?} failed ({status}):\n{}",
            String::from_utf8_lossy(&errors).trim_end()
        );
    }
    let stdout = String::from_utf8_lossy(&std::fs::read(&output)?).into_owned();
    Ok(Run {
        wall,
        cpu,
        busiest_thread: threads.into_values().max().unwrap_or_default(),
        peak_bytes,
        stdout,
    })
}

/// `proc(5)`, /proc/PID/stat: fields 16 and 17, in ticks of 10 ms on every Linux.
fn cpu_of_children() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("needs /proc")?;
    // The second field is the name in parentheses, which may contain anything; the fields after it are plain.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(ticks * 10))
}

fn high_water_mark(status_file: &str) -> u64 {
    let text = std::fs::read_to_string(status_file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// Writes a file into a pipe, in blocks of the size that `cat` uses. `std::io::copy` would splice the pages of the file
/// into the pipe, which a program that generates its output does not do.
fn feed(mut pipe: ChildStdin, mut input: File) {
    let mut block = vec![0; 128 << 10];
    while let Ok(count) = input.read(&mut block)
        && count > 0
    {
        // A program that exits early closes the pipe; its exit status is checked anyway.
        if pipe.write_all(&block[..count]).is_err() {
            return;
        }
    }
}

/// CPU times of the process's threads so far (`/proc/PID/task/TID/schedstat`: the first number, in nanoseconds).
fn add_threads(process: &str, threads: &mut HashMap<String, Duration>) {
    for task in std::fs::read_dir(format!("{process}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        if let Some(ns) = text.split(' ').next().and_then(|ns| ns.parse().ok()) {
            threads.insert(
                task.file_name().to_string_lossy().into_owned(),
                Duration::from_nanos(ns),
            );
        }
    }
}

/// The median of the values; NaN without values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn measures_cpu_memory_and_output() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done",
        ]);
        let run = run(&mut command, directory.path()).unwrap();
        assert_eq!(run.stdout, "done\n");
        // No upper bound: other tests of this process have children too.
        assert!(run.cpu > Duration::ZERO && run.wall > Duration::ZERO);
        assert!(run.busiest_thread > Duration::ZERO);
        assert!(run.peak_bytes > 100_000);
    }

    #[test]
    fn feeds_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let input = directory.path().join("input");
        std::fs::write(&input, "fed\n".repeat(100_000)).unwrap();
        let mut command = Command::new("wc");
        let run = run_fed(command.arg("-l"), &input, directory.path()).unwrap();
        assert_eq!(run.stdout.trim(), "100000");
        // One that does not read to the end.
        let run = run_fed(&mut Command::new("true"), &input, directory.path()).unwrap();
        assert_eq!(run.stdout, "");
    }

    #[test]
    fn a_failure_shows_the_output() {
        let directory = tempfile::tempdir().unwrap();
        let error = run(
            Command::new("sh").args(["-c", "echo reason >&2; exit 3"]),
            directory.path(),
        );
        assert!(format!("{:#}", error.err().unwrap()).contains("reason"));
    }
}
