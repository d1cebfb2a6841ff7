//! The process that reads the debug info of one file on behalf of another process, and may be killed by it.
//!
//! ```text
//! perfquet-convert --line-worker 30      the file is its stdin, the socket its stdout; 5 seconds of CPU time if it is small
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use super::message::Reply;
use super::reader::{Reader, SLICE, unless_it_panics};
use super::{NoLines, limits};

/// First argument of a process that reads debug info.
pub(super) const LINE_WORKER: &str = "--line-worker";

/// Reads debug info for the parent process, if this process was started for that. Must be called first in `main` of a
/// program that is a [`super::LineReader::Program`]; if it returns true, the process must exit.
pub fn serve_lines(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next().is_none_or(|first| first != LINE_WORKER) {
        return false;
    }
    let patience_s = arguments
        .next()
        .and_then(|patience| patience.to_str()?.parse().ok())
        .unwrap_or(limits::SMALL_FILE_S);
    // No report: the parent notices that the socket is closed.
    let _ = serve(patience_s);
    true
}

fn serve(patience_s: u64) -> io::Result<()> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut socket = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let requests = requests(socket.try_clone()?);
    let bytes = file.metadata()?.len();
    limits::set(limits::seconds(patience_s, bytes), bytes)?;
    let mut reader = unless_it_panics(|| Reader::open(file)).unwrap_or(Err(NoLines::Damaged));
    let mut seconds = 0;
    for addresses in requests {
        let bytes = reader.as_ref().map_or(0, Reader::bytes);
        seconds += limits::seconds(patience_s, bytes);
        limits::set(seconds, bytes)?;
        for slice in addresses.chunks(SLICE) {
            let reply = match &mut reader {
                Ok(reader) => reader.locate(slice),
                Err(reason) => Reply {
                    texts: Vec::new(),
                    places: vec![Err(*reason); slice.len()],
                },
            };
            let mut line = serde_json::to_vec(&reply)?;
            line.push(b'\n');
            socket.write_all(&line)?;
        }
    }
    Ok(())
}

/// The requests, as they arrive. Their end, even during a lookup, means that the parent has ended, and ends this
/// process.
fn requests(socket: UnixStream) -> mpsc::Receiver<Vec<u64>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(socket).lines() {
            let addresses = line.and_then(|line| Ok(serde_json::from_str(&line)?));
            if addresses.is_ok_and(|addresses| sender.send(addresses).is_err()) {
                break;
            }
        }
        std::process::exit(0);
    });
    receiver
}
