//! How one recorder of a ring follows another, as lines on a socket, which is the standard input of the recorder.
//!
//! ```text
//! next ─"ready"─► supervisor ─SIGINT─► last ─"ended 1234"─► supervisor ─"begin 1235"─► next
//! ```
//! Times are those of the trace's clock in ns. The next recorder drops what it has from before the beginning.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};
use perfquet_events::event::Selection;

/// Longest wait for the last recorder; after that, this one begins at its own time.
const LONGEST: Duration = Duration::from_secs(30);

/// A beginning after everything: the trace is not wanted.
pub(super) const NEVER: i64 = i64::MAX;

/// The recorder's end of the socket.
pub(crate) struct Handover {
    stream: UnixStream,
}

impl Handover {
    /// Takes the socket.
    pub(crate) fn open() -> Result<Handover> {
        let fd = io::stdin().as_fd().try_clone_to_owned();
        let stream = UnixStream::from(fd.context("cannot reach the recorder that rotates")?);
        Ok(Handover { stream })
    }

    /// Says that this recorder records, and waits for the end of the last one. Returns the selection that begins there; `None`
    /// if there was none.
    pub(crate) fn begin(&self, selection: &Selection) -> Option<Selection> {
        self.say("ready");
        self.stream.set_read_timeout(Some(LONGEST)).ok()?;
        let mut line = String::new();
        BufReader::new(&self.stream).read_line(&mut line).ok()?;
        let begin: i64 = line.strip_prefix("begin ")?.trim().parse().ok()?;
        (begin > 0).then(|| Selection {
            begin: Some(begin),
            ..selection.clone()
        })
    }

    /// Whether the supervisor has ended.
    pub(crate) fn is_orphaned(&self) -> bool {
        let mut byte = [0];
        let _ = self.stream.set_nonblocking(true);
        match (&self.stream).read(&mut byte) {
            Ok(length) => length == 0,
            // A supervisor that was killed before it read a message resets the connection.
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Says that the recording ended at this time, inclusive.
    pub(crate) fn end(&self, time: u64) {
        let _ = self.stream.set_nonblocking(false);
        self.say(&format!("ended {time}"));
    }

    /// A supervisor that was killed does not hear it.
    fn say(&self, line: &str) {
        let _ = (&self.stream).write_all(format!("{line}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_begins_where_the_last_one_ended() {
        let (stream, mut other) = UnixStream::pair().unwrap();
        let handover = Handover { stream };
        other.write_all(b"begin 1235\n").unwrap();
        let selection = handover.begin(&Selection::default()).unwrap();
        assert_eq!(selection.begin, Some(1235));
        assert!(!handover.is_orphaned());
        handover.end(2000);
        let mut lines = BufReader::new(&other).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        assert_eq!(lines.next().unwrap().unwrap(), "ended 2000");
        other.write_all(b"begin 0\n").unwrap();
        assert!(handover.begin(&Selection::default()).is_none());
        drop(other);
        assert!(handover.is_orphaned());
    }
}
