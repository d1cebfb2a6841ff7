//! The recording on the other host: the recorder there, signals for it, its messages and its end.
//!
//! ```text
//! here                        there: session.sh
//! Ctrl-C, SIGTERM      ─►     a line on stdin: SIGINT to the recorder
//! killed, unplugged    ─►     end of stdin: SIGTERM to the recorder, which completes the trace there
//! stdout, stderr       ◄─     those of the recorder and its command
//! ```

use std::ffi::OsStr;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use super::connection::{Connection, pid_of};
use super::messages::Messages;
use super::{Place, Request};
use crate::sys::child;
use crate::sys::signals::{Signal, Signals};

/// Number of signals for the recorder: the second one makes it leave its tables. The next one is for this process.
const SIGNALS_OF_RECORDER: usize = 2;
/// Longest time between two looks whether the session has ended, which SIGCHLD reports, too.
const TICK: Duration = Duration::from_secs(1);

/// An ended session.
pub(super) struct Ended {
    /// Exit status of ssh: that of the recorder, or 255 if the connection is lost. `None`: the user did not wait for it.
    pub(super) status: Option<i32>,
    pub(super) messages: Messages,
}

/// Runs the recorder until it ends.
pub(super) fn run(
    connection: &Connection,
    request: &Request,
    (program, place): (&OsStr, &Place),
    signals: &Signals,
) -> Result<Ended> {
    let variables = [
        ("dir", place.folder.as_os_str()),
        ("name", OsStr::new(place.name)),
        ("program", program),
    ];
    let words = request.words.iter().map(|word| word.as_os_str());
    let script = super::Script::new(&variables, words, include_str!("session.sh"));
    let mut running = connection.start(&script, Stdio::inherit(), Stdio::piped())?;
    let stderr = running.child.stderr.take().context("no stderr of ssh")?;
    let mut messages = Messages::relay(stderr, place.path().into_encoded_bytes());
    let mut received = 0;
    loop {
        if let Some(status) = running.child.try_wait().context("cannot wait for ssh")? {
            if received > SIGNALS_OF_RECORDER {
                return Ok(Ended {
                    status: None,
                    messages,
                });
            }
            messages.wait();
            let status = status.code();
            return Ok(Ended { status, messages });
        }
        if signals.wait(TICK).context("cannot wait for signals")? == Some(Signal::Finish) {
            received += 1;
            if received > SIGNALS_OF_RECORDER {
                child::terminate(pid_of(&running.child));
            } else {
                // Without a connection, the session ends by itself.
                let _ = running.stdin.write_all(b"stop\n");
            }
        }
    }
}
