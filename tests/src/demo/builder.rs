//! The workload of the demo: a background build of the query tool, with its progress on one line.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::LOOK_EVERY;
use super::estimate::Estimate;
use crate::{place, say};

/// A running `cargo build` of the query tool or, if that is already built, of a small crate.
pub(super) struct Builder {
    child: Child,
    started: Instant,
    log: PathBuf,
    /// Number of packages that are finished, at least in part.
    done: Arc<AtomicUsize>,
    /// Number of packages.
    all: usize,
    /// How long the rest takes.
    estimate: Arc<Mutex<Estimate>>,
    /// Whether it is the build of a small crate, which ends with the recording.
    scratch: Option<PathBuf>,
}

impl Builder {
    /// Starts the build to record.
    pub(super) fn start(directory: &Path) -> Result<Builder> {
        let scratch = place::release("perfquet-query")
            .is_file()
            .then(|| directory.join("scratch"));
        let mut command = place::cargo();
        command.args([
            "build",
            "--release",
            "--message-format",
            "json-render-diagnostics",
        ]);
        match &scratch {
            None => {
                command.args(["--package", "perfquet-query"]);
            }
            Some(target) => {
                // A separate, empty target directory: cargo finds nothing built.
                let _ = std::fs::remove_dir_all(target);
                command
                    .args(["--package", "perfquet-import", "--target-dir"])
                    .arg(target);
            }
        }
        if scratch.is_some() {
            // In a separate process group, to end it as a whole. The build of the query tool stays in this group:
            // Ctrl-C ends it too.
            command.process_group(0);
        }
        let log = directory.join("build.log");
        let errors =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("cannot run cargo")?;
        let done = Arc::new(AtomicUsize::new(0));
        let estimate = match scratch {
            None => Estimate::of("perfquet-query"),
            Some(_) => Estimate::default(),
        };
        let estimate = Arc::new(Mutex::new(estimate));
        count_packages(&mut child, done.clone(), estimate.clone());
        Ok(Builder {
            child,
            started: Instant::now(),
            log,
            done,
            all: packages(),
            estimate,
            scratch,
        })
    }

    /// The current step, for the line above the recording.
    pub(super) fn what(&self) -> &'static str {
        match self.scratch {
            None => "the compiler building the query tool",
            Some(_) => "the compiler rebuilding a small crate, as a workload",
        }
    }

    /// Waits until crates are finished: the first seconds of a build are downloads and planning.
    pub(super) fn wait_until_busy(&mut self) {
        let patience = Duration::from_secs(if self.scratch.is_some() { 4 } else { 120 });
        while self.started.elapsed() < patience
            && self.done.load(Relaxed) < 3
            && matches!(self.child.try_wait(), Ok(None))
        {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether the query tool is there already.
    pub(super) fn is_done(&mut self) -> bool {
        self.scratch.is_some() || !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the build of a small crate; waits for that of the query tool, showing how far it is.
    pub(super) fn finish(mut self) -> Result<()> {
        if let Some(scratch) = self.scratch.take() {
            self.end_group();
            let _ = std::fs::remove_dir_all(scratch);
            return Ok(());
        }
        say::step(
            "waiting for the query tool (DataFusion: 10 to 20 minutes on two idle cores, once)",
        );
        let mut shown = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            let every = if std::io::stdout().is_terminal() {
                LOOK_EVERY
            } else {
                Duration::from_secs(60)
            };
            if shown.elapsed() >= every {
                shown = Instant::now();
                self.show_progress();
            }
            std::thread::sleep(LOOK_EVERY);
        };
        if std::io::stdout().is_terminal() {
            print!("\r\x1b[K");
        }
        if !status.success() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!(
                "building the query tool failed ({status}):\n{}\n\
                 hint: the whole output is in {}; killed by signal 9 means too little memory (cargo build -j1 needs less)",
                tail.join("\n"),
                self.log.display()
            );
        }
        say::note(&format!(
            "built in {}",
            say::seconds(self.started.elapsed().as_secs())
        ));
        Ok(())
    }

    /// Ends cargo and its compilers, which share a process group.
    fn end_group(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
        let _ = self.child.wait();
    }

    fn show_progress(&self) {
        let elapsed = self.started.elapsed();
        let estimate = self.estimate.lock().unwrap_or_else(PoisonError::into_inner);
        let line = format!(
            "{} of {} packages, {}{}",
            self.done.load(Relaxed),
            self.all,
            say::seconds(elapsed.as_secs()),
            rest(estimate.rest(elapsed))
        );
        if std::io::stdout().is_terminal() {
            print!("\r\x1b[K  {line}");
            let _ = std::io::stdout().flush();
        } else {
            say::note(&line);
        }
    }
}

/// About how long a build still takes, after how long it took.
fn rest(rest: Option<Duration>) -> String {
    match rest.map(|rest| rest.as_secs().div_ceil(60)) {
        None => String::new(),
        Some(0 | 1) => "; about a minute left".to_owned(),
        Some(minutes) => format!("; about {minutes} minutes left"),
    }
}

/// cargo reports every finished library, program and build script as a line of JSON on its stdout. Counts packages, as
/// [`packages`] does: many have a build script besides their library.
fn count_packages(child: &mut Child, done: Arc<AtomicUsize>, estimate: Arc<Mutex<Estimate>>) {
    #[derive(serde::Deserialize)]
    struct Message {
        reason: String,
        package_id: Option<String>,
        #[serde(default)]
        fresh: bool,
        target: Option<Target>,
    }
    #[derive(serde::Deserialize)]
    struct Target {
        kind: Vec<String>,
    }

    let Some(output) = child.stdout.take() else {
        return;
    };
    std::thread::spawn(move || {
        let mut finished = HashSet::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str::<Message>(&line) else {
                continue;
            };
            let (Some(id), Some(target)) = (message.package_id, message.target) else {
                continue;
            };
            if message.reason != "compiler-artifact" {
                continue;
            }
            // A build script comes before the package's own code.
            if target.kind != ["custom-build"] {
                let mut estimate = estimate.lock().unwrap_or_else(PoisonError::into_inner);
                estimate.finish(&id, message.fresh);
            }
            finished.insert(id);
            done.store(finished.len(), Relaxed);
        }
    });
}

/// Number of packages of the query tool.
fn packages() -> usize {
    let listed = place::cargo()
        .args([
            "tree",
            "--package",
            "perfquet-query",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .stderr(Stdio::null())
        .output();
    let Ok(listed) = listed else { return 240 };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    // Name and version; further words mark macros and repetitions.
    let distinct: HashSet<(&str, &str)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?))
        })
        .collect();
    distinct.len()
}

/// A command line that builds a small crate for this many seconds: the workload for users without privileges.
pub(super) fn scratch_build(directory: &Path, seconds: u64) -> Vec<String> {
    let target = directory.join("scratch-own");
    let _ = std::fs::remove_dir_all(&target);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    [
        "timeout",
        &format!("{seconds}s"),
        &cargo,
        "build",
        "--quiet",
        "--release",
        "--package",
        "perfquet-import",
        "--manifest-path",
        &place::root().join("Cargo.toml").display().to_string(),
        "--target-dir",
        &target.display().to_string(),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Ends a build that the demo abandoned, so that no compiler stays running.
impl Drop for Builder {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if self.scratch.is_some() {
            self.end_group();
        } else {
            let _ = Command::new("kill")
                .arg(self.child.id().to_string())
                .status();
            let _ = self.child.wait();
        }
    }
}
