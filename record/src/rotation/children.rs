//! Recorders that are children of the supervisor, one for each trace.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use super::handover::{NEVER, Started};
use crate::sys::child;

/// A recorder of one trace.
pub(super) struct Recorder {
    process: Child,
    stream: UnixStream,
    /// The beginning of a line.
    line: String,
    pub(super) path: PathBuf,
    pub(super) is_ready: bool,
    /// Whether it knows from when on to record.
    pub(super) has_begun: bool,
    /// Whether its trace is removed when it has ended.
    pub(super) is_discarded: bool,
    /// Whether it was asked to end.
    pub(super) is_ending: bool,
    /// Last time of its recording.
    pub(super) ended_at: Option<u64>,
    /// Tasks that its tasks have started, once it has ended.
    pub(super) tasks: Started,
    pub(super) started: Instant,
}

impl Recorder {
    /// Starts this program with the same command line for one trace. `family` are the processes that those of the target have started since
    /// the ring began. `follows`: there are earlier traces.
    pub(super) fn start(path: PathBuf, family: &[i32], follows: bool) -> io::Result<Recorder> {
        let words: Vec<OsString> = env::args_os().skip(1).collect();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("perfquet-record").arg("--segment").arg(&path);
        if !family.is_empty() {
            let pids: Vec<String> = family.iter().map(i32::to_string).collect();
            command.arg(format!("--family={}", pids.join(",")));
        }
        if follows {
            command.arg("--follows");
        }
        command.args(words);
        Recorder::spawn(command, path)
    }

    fn spawn(mut command: Command, path: PathBuf) -> io::Result<Recorder> {
        let (stream, theirs) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        let process = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Ctrl-C reaches the supervisor only, which ends the recorders in order.
            .process_group(0)
            .spawn()?;
        Ok(Recorder {
            process,
            stream,
            line: String::new(),
            path,
            is_ready: false,
            has_begun: false,
            is_discarded: false,
            is_ending: false,
            ended_at: None,
            tasks: Started::default(),
            started: Instant::now(),
        })
    }

    /// Reads what it says.
    pub(super) fn listen(&mut self) {
        let mut bytes = [0; 256];
        while let Ok(length @ 1..) = self.stream.read(&mut bytes) {
            let text = bytes.get(..length).unwrap_or_default();
            self.line.push_str(&String::from_utf8_lossy(text));
        }
        while let Some(end) = self.line.find('\n') {
            let line: String = self.line.drain(..=end).collect();
            match line.trim().split_once(' ') {
                None if line.trim() == "ready" => self.is_ready = true,
                Some(("ended", words)) => {
                    let (time, tasks) = words.split_once(' ').unwrap_or((words, ""));
                    self.ended_at = time.parse().ok();
                    self.tasks = Started::parse(tasks);
                }
                _ => log::warn!("{}: unexpected message {line:?}", self.path.display()),
            }
        }
    }

    /// Lets it begin after this time.
    pub(super) fn begin_after(&mut self, time: Option<u64>) {
        self.follow(time, &Started::default());
    }

    /// Lets it begin after the end of the last recorder, whose tasks had started these.
    pub(super) fn follow(&mut self, ended_at: Option<u64>, tasks: &Started) {
        self.has_begun = true;
        let begin = ended_at.map_or(0, |time| time.saturating_add(1));
        let line = format!("begin {begin} {}", tasks.text());
        // It waits for the line.
        let _ = self.stream.set_nonblocking(false);
        let _ = self
            .stream
            .write_all(format!("{}\n", line.trim_end()).as_bytes());
        let _ = self.stream.set_nonblocking(true);
    }

    /// Asks it to end, once, unless it ends by itself: another signal would interrupt it.
    pub(super) fn end(&mut self) {
        if !self.is_ending && self.ended_at.is_none() {
            child::terminate(self.process.id() as i32);
        }
        self.is_ending = true;
    }

    /// Asks a recorder that is ending to leave its tables to the next start.
    pub(super) fn interrupt(&mut self) {
        child::terminate(self.process.id() as i32);
    }

    /// Returns how it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Ends it before it has begun.
    pub(super) fn discard(&mut self) {
        self.is_discarded = true;
        self.begin_after(Some(NEVER as u64 - 1));
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Waits for this many lines from the script; returns how many arrived.
    fn wait_for(recorder: &mut Recorder, lines: usize) -> usize {
        let start = Instant::now();
        let mut text = Vec::new();
        let count = |text: &[u8]| text.iter().filter(|&&byte| byte == b'\n').count();
        while count(&text) < lines && start.elapsed() < Duration::from_secs(20) {
            let mut bytes = [0; 64];
            if let Ok(length @ 1..) = recorder.stream.read(&mut bytes) {
                text.extend(bytes.get(..length).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(1));
        }
        count(&text)
    }

    /// A ring that ends while one recorder follows another asks for the end twice.
    #[test]
    fn a_recorder_is_asked_to_end_once() {
        let mut command = Command::new("sh");
        // Says a line at the start and at each signal.
        command.args([
            "-c",
            "trap 'echo signal >&0' TERM; echo started >&0; while :; do sleep 0.01; done",
        ]);
        let mut recorder = Recorder::spawn(command, PathBuf::from("t.pqt")).expect("a shell");
        assert_eq!(wait_for(&mut recorder, 1), 1);
        recorder.end();
        assert_eq!(wait_for(&mut recorder, 1), 1);
        recorder.end();
        thread::sleep(Duration::from_millis(100));
        recorder.interrupt();
        assert_eq!(wait_for(&mut recorder, 1), 1);
        thread::sleep(Duration::from_millis(100));
        assert!(recorder.stream.read(&mut [0; 8]).is_err(), "another signal");
        recorder.process.kill().expect("it runs");
        recorder.process.wait().expect("it ends");
    }
}
