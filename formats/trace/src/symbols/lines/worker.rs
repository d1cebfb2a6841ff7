//! The parent's side of the process that reads the debug info of a file.

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

/// A reply is shorter: some hundred addresses of 64 functions, and new texts.
const REPLY_MAX_BYTES: u64 = 256 << 20;
/// A process that waits for others gets less than a CPU, but not a tenth of one.
const WAIT_PER_SECOND: u64 = 10;

/// A process with the debug info of a file.
pub(super) struct Worker {
    child: Child,
    socket: BufReader<UnixStream>,
    texts: Texts,
}

impl Worker {
    /// Starts the process. It gets the open file: what its path leads to may be another one by now.
    pub(super) fn start(program: &Path, file: File, patience_s: u64) -> Result<Worker, NoLines> {
        let start = || -> io::Result<Worker> {
            let bytes = file.metadata()?.len();
            let wait_s = limits::seconds(patience_s, bytes.saturating_mul(8)) * WAIT_PER_SECOND;
            let (socket, other) = UnixStream::pair()?;
            socket.set_read_timeout(Some(Duration::from_secs(wait_s)))?;
            // In a group of its own, for Ctrl-C is meant for this process, and its end is the end of that one.
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

    /// Locates addresses, which are in order; with the reason if it can locate no more.
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

    /// Why it gave no answer.
    fn reason(&mut self, error: &io::Error) -> NoLines {
        if matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        ) {
            return NoLines::TooMuch;
        }
        // It is ending already: the signal that ended it stays.
        let _ = self.child.kill();
        match self.child.wait().map(|status| status.signal()) {
            Ok(Some(libc::SIGXCPU)) => NoLines::TooMuch,
            // A failed allocation, a stack that is too deep, the kernel's want of memory.
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
