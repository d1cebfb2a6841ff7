//! `--publish`: each complete trace of a ring goes to a lake, by `perfquet-convert`, a child of the lowest priority.
//!
//! ```text
//! ring/.publish.json   {"place":"s3://bucket/lake","waiting":["000042-….pqt"],"published":["000041-….pqt"],"dropped":[], …}
//! ```
//! The file outlives the recorder: traces that waited are published after the next start. Publishing a trace twice changes nothing, so a
//! recorder that is killed before it notes a trace does no harm. Recording never waits for the lake: the ring removes its oldest traces
//! whether they are published or not, and a trace that was not is counted as dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use perfquet_cli::terminal;
use perfquet_trace::count::counted;
use perfquet_trace::remote::is_url;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, failed};
use crate::sys::{child, thread as priority};

const CONVERTER: &str = "perfquet-convert";
/// Uploads for the converter.
const UPLOADER: &str = "perfquet-query";
const QUEUE: &str = ".publish.json";
/// Pause after an attempt that failed, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Time to publish what waits after the recording.
const LAST: Duration = Duration::from_secs(60);
/// Longest message of the converter.
const LONGEST_MESSAGE: u64 = 4096;

/// Where the traces of a ring go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    /// Directory or URL of a lake.
    pub(super) place: PathBuf,
    /// Traces that wait beyond this size are dropped.
    pub(super) backlog_bytes: u64,
}

impl Destination {
    /// Returns the destination in words.
    pub(crate) fn describe(&self) -> String {
        format!(
            "each complete trace to the lake {}, backlog up to {} MiB",
            self.place.display(),
            self.backlog_bytes >> 20
        )
    }

    /// Whether a process in another directory finds it.
    pub(crate) fn is_absolute(&self) -> bool {
        self.place.is_absolute() || self.place.to_str().is_some_and(is_url)
    }
}

/// What outlives the recorder. Names of traces are those in the ring.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Queue {
    place: PathBuf,
    waiting: BTreeSet<String>,
    published: BTreeSet<String>,
    dropped: BTreeSet<String>,
    published_count: u64,
    dropped_count: u64,
}

/// The queue of a ring.
pub(super) struct Publishing {
    destination: Destination,
    program: PathBuf,
    file: PathBuf,
    queue: Queue,
    /// How often each waiting trace has failed.
    attempts: BTreeMap<String, u32>,
    running: Option<Job>,
    pause: Duration,
    resumes: Instant,
    /// The last message of the converter: a warning comes once.
    message: String,
    status: String,
    /// Whether the file differs from the queue.
    is_changed: bool,
}

/// Paths and sizes of the complete traces of a ring, by name: the oldest first.
type Traces = BTreeMap<String, (PathBuf, u64)>;

/// The converter at work.
struct Job {
    name: String,
    process: Child,
    stderr: JoinHandle<String>,
}

impl Publishing {
    /// Reads the queue of a ring. Fails if a program is missing that publishes.
    pub(super) fn open(ring: &Path, destination: Destination) -> Result<Publishing> {
        let program = programs(&destination.place)?;
        let file = ring.join(QUEUE);
        let read = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Queue::default(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                log::warn!(
                    "{}: {error}; all traces of the ring are published again",
                    file.display()
                );
                Queue::default()
            }),
        };
        // Another lake has none of them.
        let queue = match read.place == destination.place {
            true => read,
            false => Queue {
                place: destination.place.clone(),
                ..Queue::default()
            },
        };
        Ok(Publishing {
            destination,
            program,
            file,
            queue,
            attempts: BTreeMap::new(),
            running: None,
            pause: FIRST_PAUSE,
            resumes: Instant::now(),
            message: String::new(),
            status: String::new(),
            is_changed: false,
        })
    }

    /// Takes up complete traces of the ring, given with their sizes; notes what was published, and starts the next.
    pub(super) fn step(&mut self, complete: Vec<(PathBuf, u64)>) -> Result<()> {
        let named = complete.into_iter().map(|(path, bytes)| {
            let name = path.file_name().unwrap_or_default();
            (name.to_string_lossy().into_owned(), (path, bytes))
        });
        let complete: Traces = named.collect();
        self.reap();
        self.take_up(&complete);
        self.limit(&complete);
        if std::mem::take(&mut self.is_changed) {
            self.save()?;
        }
        if self.running.is_none() && Instant::now() >= self.resumes {
            self.start(&complete);
        }
        self.report();
        Ok(())
    }

    /// Notes how the converter ended, if it has.
    fn reap(&mut self) {
        let Some(job) = &mut self.running else {
            return;
        };
        let Ok(Some(status)) = job.process.try_wait() else {
            return;
        };
        let Some(Job { name, stderr, .. }) = self.running.take() else {
            return;
        };
        let said = stderr.join().unwrap_or_default();
        let said = said.trim();
        let said = said.strip_prefix("perfquet-convert: ").unwrap_or(said);
        if status.success() {
            self.attempts.remove(&name);
            self.queue.waiting.remove(&name);
            self.queue.published.insert(name);
            self.queue.published_count += 1;
            self.is_changed = true;
            self.pause = FIRST_PAUSE;
            self.message.clear();
            return;
        }
        if status.code() == Some(2) {
            // Of this trace, another attempt would fail as well.
            log::warn!("--publish: {name}: {said}");
            self.drop_trace(&name, "it cannot be published");
            return;
        }
        *self.attempts.entry(name.clone()).or_default() += 1;
        self.resumes = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if said != self.message {
            let waiting = counted(self.queue.waiting.len() as u64, "trace");
            log::warn!("--publish: {name}: {said}\n{waiting} waiting; trying again");
            said.clone_into(&mut self.message);
        }
    }

    /// Lets new traces wait, and counts those that the ring has removed while they did.
    fn take_up(&mut self, complete: &Traces) {
        let waiting = self.queue.waiting.iter();
        let gone = waiting.filter(|name| !complete.contains_key(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.drop_trace(&name, "the ring removed it before it was published");
        }
        let Queue {
            waiting,
            published,
            dropped,
            ..
        } = &mut self.queue;
        published.retain(|name| complete.contains_key(name));
        dropped.retain(|name| complete.contains_key(name));
        let is_new = |name: &&String| !published.contains(*name) && !dropped.contains(*name);
        for name in complete.keys().filter(is_new) {
            self.is_changed |= waiting.insert(name.clone());
        }
    }

    /// Drops the oldest traces beyond the size of the backlog.
    fn limit(&mut self, complete: &Traces) {
        let size = |name: &String| complete.get(name).map_or(0, |(_, bytes)| *bytes);
        let mut bytes: u64 = self.queue.waiting.iter().map(size).sum();
        let mut oldest = Vec::new();
        for name in &self.queue.waiting {
            if bytes <= self.destination.backlog_bytes {
                break;
            }
            if self.running.as_ref().is_none_or(|job| job.name != *name) {
                bytes = bytes.saturating_sub(size(name));
                oldest.push(name.clone());
            }
        }
        for name in oldest {
            self.drop_trace(&name, "more is waiting than --backlog");
        }
    }

    fn drop_trace(&mut self, name: &str, reason: &str) {
        self.queue.waiting.remove(name);
        self.attempts.remove(name);
        self.queue.dropped.insert(name.to_owned());
        self.queue.dropped_count += 1;
        self.is_changed = true;
        let count = counted(self.queue.dropped_count, "trace");
        log::warn!("--publish: {name} dropped: {reason}; {count} dropped in all");
    }

    /// Starts the converter for the oldest trace that has failed least often.
    fn start(&mut self, complete: &Traces) {
        let attempts = |name: &String| self.attempts.get(name).copied().unwrap_or_default();
        let waiting = self.queue.waiting.iter();
        let Some(name) = waiting.min_by_key(|name| attempts(name)).cloned() else {
            return;
        };
        let Some((path, _)) = complete.get(&name) else {
            return;
        };
        match self.spawn(path) {
            Ok((process, stderr)) => {
                self.running = Some(Job {
                    name,
                    process,
                    stderr,
                });
            }
            Err(error) => {
                log::warn!(
                    "--publish: cannot start {}: {error}",
                    self.program.display()
                );
                self.resumes = Instant::now() + LONGEST_PAUSE;
            }
        }
    }

    fn spawn(&self, path: &Path) -> io::Result<(Child, JoinHandle<String>)> {
        let mut command = Command::new(&self.program);
        command
            .arg(path)
            .args(["--to", "lake", "--quiet", "-o"])
            .arg(&self.destination.place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C reaches the supervisor only.
            .process_group(0);
        // A process has the priority of the thread that starts it.
        let started = thread::spawn(move || {
            priority::make_last();
            command.spawn()
        });
        let mut process = match started.join() {
            Ok(process) => process?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let stderr = process.stderr.take();
        let reader = thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = (&mut stderr).take(LONGEST_MESSAGE).read_to_end(&mut text);
                // The rest would block it.
                let _ = io::copy(&mut stderr, &mut io::sink());
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok((process, reader))
    }

    /// Replaces the file of the queue.
    fn save(&self) -> Result<()> {
        let new = self.file.with_extension("json.new");
        let write = || {
            let mut options = File::options();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            serde_json::to_writer(&mut file, &self.queue)?;
            file.flush()?;
            file.sync_all()?;
            fs::rename(&new, &self.file)
        };
        write().with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Whether what waits is published after the recording: not after an attempt that failed.
    pub(super) fn goes_on(&self, since_the_end: Duration) -> bool {
        let has_work = self.running.is_some() || !self.queue.waiting.is_empty();
        has_work && self.message.is_empty() && since_the_end < LAST
    }

    /// Ends the converter, whose trace waits for the next start, and says what was done.
    pub(super) fn finish(mut self) -> Result<()> {
        if let Some(mut job) = self.running.take() {
            child::terminate(job.process.id() as i32);
            let _ = job.process.wait();
            let _ = job.stderr.join();
        }
        self.save()?;
        let place = self.destination.place.display();
        terminal::say(format_args!("{place}: {}", self.sentence()));
        if !self.queue.waiting.is_empty() {
            terminal::say(
                "next: the same command publishes the waiting traces, as does perfquet-convert TRACE... --to lake -o PLACE",
            );
        }
        Ok(())
    }

    /// `12 traces published, 1 waiting, 0 dropped`
    fn sentence(&self) -> String {
        format!(
            "{} published, {} waiting, {} dropped",
            counted(self.queue.published_count, "trace"),
            self.queue.waiting.len(),
            self.queue.dropped_count
        )
    }

    /// Gives the service manager the sentence, if there is one (sd_notify(3)): `systemctl status` shows it.
    fn report(&mut self) {
        let status = self.sentence();
        if status == self.status {
            return;
        }
        if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
            let text = format!("STATUS={status}");
            let sent = UnixDatagram::unbound()
                .and_then(|datagram| datagram.send_to(text.as_bytes(), Path::new(&socket)));
            if let Err(error) = sent {
                log::debug!("{}: {error}", socket.display());
            }
        }
        self.status = status;
    }
}

/// The converter. Fails if it is missing, or the program that uploads for it.
fn programs(place: &Path) -> Result<PathBuf, Failure> {
    let missing = |name: &str| {
        failed(format!(
            "--publish: no {name} beside this program or in PATH"
        ))
        .hint(format!("install {name}, which publishes"))
    };
    let converter = find(CONVERTER).ok_or_else(|| missing(CONVERTER))?;
    let is_remote = place.to_str().is_some_and(is_url);
    if is_remote && find(UPLOADER).is_none() {
        return Err(missing(UPLOADER));
    }
    Ok(converter)
}

/// A program beside this one, or in PATH.
fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&path));
    let mut programs = folders.map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of a ring whose converter is this shell script.
    fn publishing(ring: &Path, script: &str, backlog_bytes: u64) -> Publishing {
        let program = ring.join("convert");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).unwrap();
        let place = PathBuf::from("/lake");
        let queue = fs::read(ring.join(QUEUE)).map(|text| serde_json::from_slice(&text).unwrap());
        Publishing {
            destination: Destination {
                place,
                backlog_bytes,
            },
            program,
            file: ring.join(QUEUE),
            queue: queue.unwrap_or_default(),
            attempts: BTreeMap::new(),
            running: None,
            pause: Duration::from_millis(10),
            resumes: Instant::now(),
            message: String::new(),
            status: String::new(),
            is_changed: false,
        }
    }

    fn traces(ring: &Path, numbers: std::ops::Range<u32>) -> Vec<(PathBuf, u64)> {
        let path = |number| ring.join(format!("{number:06}-20261125T134000Z.pqt"));
        numbers.map(|number| (path(number), 100)).collect()
    }

    /// Steps until nothing waits, or for a while.
    fn run(
        publishing: &mut Publishing,
        traces: &[(PathBuf, u64)],
        is_over: impl Fn(&Publishing) -> bool,
    ) {
        let since = Instant::now();
        while !is_over(publishing) {
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "{:?}",
                publishing.queue
            );
            publishing.step(traces.to_vec()).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn each_trace_is_published_once_the_oldest_first() {
        let ring = tempfile::tempdir().unwrap();
        let script = "echo $1 >> $(dirname $0)/log";
        let mut first = publishing(ring.path(), script, 1000);
        let found = traces(ring.path(), 0..3);
        run(&mut first, &found, |it| it.queue.published_count == 3);
        // The same ring after another start, with two more traces, and without the first.
        drop(first);
        let mut second = publishing(ring.path(), script, 1000);
        let found = traces(ring.path(), 1..5);
        run(&mut second, &found, |it| it.queue.published_count == 5);
        let log = fs::read_to_string(ring.path().join("log")).unwrap();
        let expected: Vec<String> = traces(ring.path(), 0..5)
            .iter()
            .map(|(path, _)| path.display().to_string())
            .collect();
        assert_eq!(log.lines().collect::<Vec<_>>(), expected);
        assert_eq!(second.queue.published.len(), 4);
        assert_eq!(
            second.sentence(),
            "5 traces published, 0 waiting, 0 dropped"
        );
    }

    #[test]
    fn failures_wait_and_others_pass_them() {
        let ring = tempfile::tempdir().unwrap();
        // The first trace fails for good, the second one never succeeds, the third one does.
        let script = "case $1 in *000000*) echo no host >&2; exit 2;; *000001*) echo down >&2; exit 1;; esac";
        let mut publishing = publishing(ring.path(), script, 1000);
        let found = traces(ring.path(), 0..3);
        run(&mut publishing, &found, |it| {
            it.queue.published_count == 1 && it.attempts.values().sum::<u32>() > 1
        });
        assert_eq!(
            publishing.sentence(),
            "1 trace published, 1 waiting, 1 dropped"
        );
        assert!(!publishing.goes_on(Duration::ZERO));
    }

    #[test]
    fn a_backlog_has_a_limit_and_removed_traces_are_counted() {
        let ring = tempfile::tempdir().unwrap();
        let mut publishing = publishing(ring.path(), "exit 1", 250);
        publishing.resumes = Instant::now() + Duration::from_secs(600);
        publishing.step(traces(ring.path(), 0..4)).unwrap();
        assert_eq!(
            publishing.sentence(),
            "0 traces published, 2 waiting, 2 dropped"
        );
        assert!(
            publishing
                .queue
                .waiting
                .iter()
                .all(|name| name.starts_with("000002") || name.starts_with("000003"))
        );
        // The ring removes one that waits, and one that was dropped before.
        publishing.step(traces(ring.path(), 3..4)).unwrap();
        assert_eq!(
            publishing.sentence(),
            "0 traces published, 1 waiting, 3 dropped"
        );
        assert!(publishing.queue.dropped.is_empty());
    }
}
