//! The parent's side of the process that reads a file's debug info.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::message::{Reply, Texts};
use super::serve::LINE_WORKER;
use super::{Located, NoLines, limits};

/// Maximum size of a reply: a few hundred addresses of 64 functions, and new strings.
const REPLY_MAX_BYTES: u64 = 256 << 20;
/// Seconds to wait per second of CPU time: even on a busy host, a process gets at least a tenth of a CPU.
const WAIT_PER_SECOND: u64 = 10;

/// A process with the debug info of a file.
pub(super) struct Worker {
    child: Child,
    socket: BufReader<UnixStream>,
    texts: Texts,
}

impl Worker {
    /// Starts the process. It gets the open file: its path may lead to another one by now.
    pub(super) fn start(program: &Path, file: File, patience_s: u64) -> Result<Worker, NoLines> {
        let start = || -> io::Result<Worker> {
            let bytes = file.metadata()?.len();
            let wait_s = limits::seconds(patience_s, bytes.saturating_mul(8)) * WAIT_PER_SECOND;
            let (socket, other) = UnixStream::pair()?;
            socket.set_read_timeout(Some(Duration::from_secs(wait_s)))?;
            // In a separate process group: Ctrl-C is meant for the parent, whose end also ends this process.
            let child = Command::new(program)
                .arg(LINE_WORKER)
                .arg(patience_s.to_string())
                .stdin(file)
                .stdout(OwnedFd::from(other))
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()?;
            Ok(Worker {
                child,
                socket: BufReader::new(socket),
                texts: Texts::default(),
            })
        };
        start().map_err(|error| {
            log::debug!("cannot start {} to read lines: {error}", program.display());
            NoLines::NoReader
        })
    }

    /// Locates sorted addresses; with the reason if it cannot continue.
    pub(super) fn locate(&mut self, addresses: &[u64]) -> (Vec<Located>, Option<NoLines>) {
        let mut located = Vec::with_capacity(addresses.len());
        let failure = self.ask(addresses, &mut located).err().map(|error| {
            let reason = self.reason(&error);
            log::debug!("the process that reads lines ended: {error}, {reason:?}");
            reason
        });
        let rest = failure.unwrap_or(NoLines::NoReader);
        located.resize(addresses.len(), Err(rest));
        (located, failure)
    }

    fn ask(&mut self, addresses: &[u64], located: &mut Vec<Located>) -> io::Result<()> {
        let mut request = serde_json::to_vec(addresses)?;
        request.push(b'\n');
        self.socket.get_mut().write_all(&request)?;
        let mut line = Vec::new();
        while located.len() < addresses.len() {
            line.clear();
            let mut socket = (&mut self.socket).take(REPLY_MAX_BYTES);
            if socket.read_until(b'\n', &mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let reply: Reply = serde_json::from_slice(&line)?;
            if reply.places.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            located.extend(self.texts.places(reply));
        }
        Ok(())
    }

    /// The reason for a missing reply.
    fn reason(&mut self, error: &io::Error) -> NoLines {
        if matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        ) {
            return NoLines::TooMuch;
        }
        // The process is ending already: the signal that ended it remains.
        let _ = self.child.kill();
        match self.child.wait().map(|status| status.signal()) {
            Ok(Some(libc::SIGXCPU)) => NoLines::TooMuch,
            // A failed allocation, a stack overflow, the kernel's OOM killer.
            Ok(Some(libc::SIGABRT | libc::SIGKILL)) => NoLines::TooLarge,
            Ok(Some(libc::SIGBUS | libc::SIGSEGV)) => NoLines::Damaged,
            Ok(_) | Err(_) => NoLines::NoReader,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
