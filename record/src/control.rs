//! `--delay` and `--control`: recording begins later, pauses, and goes on when another program says so.
//!
//! ```text
//! $ mkfifo commands answers
//! $ perfquet-record -a --delay -1 --control fifo:commands,answers &
//! $ echo enable > commands; read answer < answers        answer: ack
//! ```
//! The syntax, the commands and the answer are perf's. A command that fails is answered by `error: REASON`, where perf sends nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use perfquet_cli::quantity::duration;

use crate::failure::{Failure, failed, misuse};
use crate::sys::channel;

/// Maximum length of a command; the rest of a longer line is dropped.
const LONGEST_LINE: usize = 256;
/// What the hint and the answer to a wrong command list.
const COMMANDS: &str = "enable, disable, snapshot, ping or stop";

/// Command-line options.
#[derive(Debug, Clone, Default, Args)]
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "the texts are those of --help"
)]
pub(crate) struct ControlOptions {
    /// Start recording after TIME; -1: when --control enables it
    ///
    /// The command starts at once. Until then, events are disabled and cost nothing. --duration counts from then on.
    #[arg(short = 'D', long, value_name = "TIME|-1", value_parser = delay, allow_hyphen_values = true)]
    delay: Option<Delay>,
    /// Take commands from a FIFO or a descriptor: fifo:PATH[,PATH] or fd:N[,N]
    ///
    /// Commands are lines: enable, disable, snapshot (with --ring), ping, stop. Each is answered in the second FIFO or descriptor, if
    /// there is one: ack, once it has taken effect, or error: REASON. Pauses are in table losses.
    #[arg(long, value_name = "CHANNEL", value_parser = place)]
    control: Option<Place>,
}

/// When recording begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delay {
    /// After this time.
    Time(Duration),
    /// At the command `enable`.
    UntilEnabled,
}

/// Where commands come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Fifos(PathBuf, Option<PathBuf>),
    Descriptors(RawFd, Option<RawFd>),
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Enable,
    Disable,
    Snapshot,
    Ping,
    Stop,
    Unknown(String),
}

/// The open channel.
pub(crate) struct Control {
    commands: Option<File>,
    answers: Option<File>,
    /// Bytes that are no whole line yet.
    pending: Vec<u8>,
}

impl ControlOptions {
    /// Whether recording can start late or pause.
    pub(crate) fn are_given(&self) -> bool {
        self.delay.is_some() || self.control.is_some()
    }

    /// Whether there can be pauses.
    pub(crate) fn may_pause(&self) -> bool {
        self.control.is_some()
    }

    /// Whether the channel consists of descriptors of this process.
    pub(crate) fn has_descriptors(&self) -> bool {
        matches!(self.control, Some(Place::Descriptors(..)))
    }

    /// Returns the delay; fails if nothing could end it.
    pub(crate) fn delay(&self) -> Result<Option<Delay>, Failure> {
        match (self.delay, &self.control) {
            (Some(Delay::UntilEnabled), None) => Err(misuse(
                "--delay -1: requires --control, which enables recording",
            )
            .hint("add --control fifo:PATH, or use a time, such as --delay 2s")),
            (delay, _) => Ok(delay),
        }
    }

    /// Opens the channel, if any.
    pub(crate) fn open(&self) -> Result<Option<Control>, Failure> {
        let (commands, answers) = match &self.control {
            None => return Ok(None),
            Some(Place::Fifos(commands, answers)) => {
                let answers = answers.as_deref().map(open_fifo).transpose()?;
                (open_fifo(commands)?, answers)
            }
            Some(Place::Descriptors(commands, answers)) => {
                let answers = answers.map(adopt).transpose()?;
                (adopt(*commands)?, answers)
            }
        };
        Ok(Some(Control {
            commands: Some(commands),
            answers,
            pending: Vec::new(),
        }))
    }
}

impl Control {
    /// The descriptor to wait for; `None` once the other side has closed it.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.commands.as_ref().map(File::as_fd)
    }

    /// Returns the commands that have arrived, without waiting.
    pub(crate) fn arrived(&mut self) -> Vec<Command> {
        let mut buffer = [0; 4096];
        while let Some(commands) = &mut self.commands
            && channel::may_read(commands)
        {
            match commands.read(&mut buffer) {
                Ok(length @ 1..) => self.pending.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The other side has closed it. Its last line may lack the end.
                Ok(0) | Err(_) => {
                    self.commands = None;
                    if !self.pending.is_empty() {
                        self.pending.push(b'\n');
                    }
                }
            }
        }
        take_lines(&mut self.pending)
    }

    /// Answers a command.
    pub(crate) fn answer(&mut self, result: Result<(), String>) {
        if let Err(reason) = &result {
            log::warn!("--control: {reason}");
        }
        let Some(answers) = &mut self.answers else {
            return;
        };
        let line = match result {
            Ok(()) => "ack\n".to_owned(),
            Err(reason) => format!("error: {reason}\n"),
        };
        // A reader that does not read must not stop the recording.
        let written = match channel::may_write(answers) {
            true => answers.write_all(line.as_bytes()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        if let Err(error) = written {
            log::warn!("--control: cannot answer: {error}");
        }
    }
}

impl Command {
    fn of_line(line: &[u8]) -> Option<Command> {
        let text = String::from_utf8_lossy(line);
        // perf's clients end some messages with NUL.
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        Some(match text {
            "" => return None,
            "enable" => Command::Enable,
            "disable" => Command::Disable,
            "snapshot" => Command::Snapshot,
            "ping" => Command::Ping,
            "stop" => Command::Stop,
            other => Command::Unknown(other.to_owned()),
        })
    }

    /// The reason for which a wrong command fails.
    pub(crate) fn unknown(text: &str) -> String {
        format!("unknown command {text:?}, expected {COMMANDS}")
    }
}

/// Takes the whole lines out of a buffer.
fn take_lines(pending: &mut Vec<u8>) -> Vec<Command> {
    let mut found = Vec::new();
    while let Some(end) = pending.iter().position(|&byte| byte == b'\n') {
        let line: Vec<u8> = pending.drain(..=end).collect();
        found.extend(Command::of_line(&line[..line.len().min(LONGEST_LINE)]));
    }
    pending.truncate(LONGEST_LINE);
    found
}

fn open_fifo(path: &Path) -> Result<File, Failure> {
    let hint = format!("create it: mkfifo {}", path.display());
    // Open for both, so that it has no end when a writer closes it, and opening does not wait.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| {
            let failure = failed(format!(
                "--control: cannot open {}: {error}",
                path.display()
            ));
            match error.kind() {
                io::ErrorKind::NotFound => failure.hint(hint.clone()),
                _ => failure,
            }
        })?;
    let is_fifo = file
        .metadata()
        .is_ok_and(|found| found.file_type().is_fifo());
    match is_fifo {
        true => Ok(file),
        false => Err(misuse(format!("--control: {} is not a FIFO", path.display())).hint(hint)),
    }
}

fn adopt(fd: RawFd) -> Result<File, Failure> {
    channel::adopt(fd).map_err(|error| {
        misuse(format!("--control: descriptor {fd}: {error}")).hint(format!(
            "open it for the recorder, as with {fd}<>FIFO in a shell"
        ))
    })
}

/// Parses `fifo:PATH[,PATH]` and `fd:N[,N]`.
fn place(text: &str) -> Result<Place, String> {
    let expected = || "expected fifo:PATH[,PATH] or fd:N[,N]".to_owned();
    let (kind, rest) = text.split_once(':').ok_or_else(expected)?;
    let (commands, answers) = match rest.split_once(',') {
        Some((commands, answers)) => (commands, Some(answers)),
        None => (rest, None),
    };
    if commands.is_empty() || answers == Some("") {
        return Err(expected());
    }
    let number = |text: &str| text.parse::<u16>().map(RawFd::from).map_err(|_| expected());
    match kind {
        "fifo" => Ok(Place::Fifos(commands.into(), answers.map(PathBuf::from))),
        "fd" => {
            let answers = answers.map(number).transpose()?;
            Ok(Place::Descriptors(number(commands)?, answers))
        }
        _ => Err(expected()),
    }
}

/// Parses a time, or -1.
fn delay(text: &str) -> Result<Delay, String> {
    match text {
        "-1" => Ok(Delay::UntilEnabled),
        _ => duration(text).map(Delay::Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels() {
        let fifos = |commands: &str, answers: Option<&str>| {
            Ok(Place::Fifos(commands.into(), answers.map(PathBuf::from)))
        };
        assert_eq!(place("fifo:a"), fifos("a", None));
        assert_eq!(place("fifo:a,b:c"), fifos("a", Some("b:c")));
        assert_eq!(place("fd:3"), Ok(Place::Descriptors(3, None)));
        assert_eq!(place("fd:3,4"), Ok(Place::Descriptors(3, Some(4))));
        for wrong in [
            "", "a", "fifo:", "fifo:a,", "fd:-1", "fd:x", "fd:3,x", "pipe:3",
        ] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn delays() {
        assert_eq!(delay("-1"), Ok(Delay::UntilEnabled));
        assert_eq!(delay("2s"), Ok(Delay::Time(Duration::from_secs(2))));
        assert!(delay("2").is_err() && delay("-2s").is_err());
        let options = ControlOptions {
            delay: Some(Delay::UntilEnabled),
            control: None,
        };
        assert!(options.delay().is_err());
    }

    #[test]
    fn lines_are_commands() {
        let mut pending = b"enable\ndisa".to_vec();
        assert_eq!(take_lines(&mut pending), [Command::Enable]);
        assert_eq!(pending, b"disa");
        pending.extend(b"ble\0\n\n  stop \nhurry\n");
        let unknown = Command::Unknown("hurry".into());
        assert_eq!(
            take_lines(&mut pending),
            [Command::Disable, Command::Stop, unknown]
        );
        pending.extend([b'x'; 10_000]);
        assert_eq!(take_lines(&mut pending), []);
        assert_eq!(pending.len(), LONGEST_LINE);
        pending.extend(b"yy\nping\n");
        assert_eq!(take_lines(&mut pending).len(), 2);
    }
}
