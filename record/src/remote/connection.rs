//! One connection to another host, by OpenSSH's client, shared by all that runs there.
//!
//! ```text
//! ssh -M -S DIR/ssh HOST …      asks for a password, if at all; ends when this process does, since its stdin ends
//! ssh -S DIR/ssh HOST …         the session, the fetching: through the first one
//! ```
//! Keys, ports and jump hosts come from ssh_config(5). `PERFQUET_SSH` replaces the command `ssh`, like git's `GIT_SSH_COMMAND`.

use std::ffi::OsString;
use std::io::{self, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::script::Script;
use crate::failure::{Failure, failed};
use crate::sys::child;
use crate::sys::signals::{Signal, Signals};

/// The variable with the command to use instead of `ssh`; a shell splits it into words.
const COMMAND: &str = "PERFQUET_SSH";
/// Longest directory below which a control socket has a valid name (UNIX sockets: 108 bytes, of which ssh adds 17).
const LONGEST_FOLDER: usize = 60;
/// Time in which a client without a connection ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection.
pub(super) struct Connection {
    host: String,
    /// Private directory of the control socket.
    folder: TempDir,
    master: Child,
}

/// A script that runs there. Its stderr is this process's, unless it was piped.
pub(super) struct Running {
    pub(super) child: Child,
    pub(super) stdin: ChildStdin,
}

impl Connection {
    /// Connects, and runs a script that ends with the connection. Returns its output, too.
    pub(super) fn open(
        host: &str,
        script: &Script,
    ) -> Result<(Connection, BufReader<ChildStdout>)> {
        let folder = tempfile::Builder::new()
            .prefix("perfquet-ssh-")
            .tempdir_in(temporary_folder())
            .context("cannot create a directory for the connection")?;
        let mut command = ssh(&socket(&folder));
        command.args(["-o", "ControlMaster=yes", "-o", "ControlPersist=no"]);
        command.args(["-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"]);
        // A network that is gone ends the connection after three of these.
        command.args(["-o", "ServerAliveInterval=15"]);
        command.arg("--").arg(host).arg(script.command_line());
        let mut master = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run sh")?;
        // Fails if there is no connection, which the end of the output says, too.
        let _ = master
            .stdin
            .as_mut()
            .map(|stdin| stdin.write_all(script.bytes()));
        let output = BufReader::new(master.stdout.take().context("no output of ssh")?);
        let connection = Connection {
            host: host.to_owned(),
            folder,
            master,
        };
        Ok((connection, output))
    }

    /// Returns the PID of the client that holds the connection.
    pub(super) fn pid(&self) -> i32 {
        pid_of(&self.master)
    }

    /// Returns the host, as the user wrote it.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the reason why there is no connection, after ssh has printed it.
    pub(super) fn failure(&mut self) -> Failure {
        let begin = Instant::now();
        let mut ended = None;
        while ended.is_none() && begin.elapsed() < PATIENCE {
            ended = self.master.try_wait().ok().flatten();
            thread::sleep(Duration::from_millis(5));
        }
        let host = &self.host;
        match ended.and_then(|status| status.code()) {
            Some(127) => failed("cannot run ssh").hint(format!(
                "install OpenSSH's client, or set {COMMAND} to a command"
            )),
            _ => failed(format!("cannot connect to {host}")).hint(format!(
                "make this command work: {} {host} true",
                command().display()
            )),
        }
    }

    /// Whether the connection still exists.
    pub(super) fn is_open(&self) -> bool {
        let mut command = ssh(&socket(&self.folder));
        command.args(["-O", "check", "--"]).arg(&self.host);
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    /// Starts a script. Its end of stdin is ours to close.
    pub(super) fn start(&self, script: &Script, stdout: Stdio, stderr: Stdio) -> Result<Running> {
        let mut command = ssh(&socket(&self.folder));
        // Without the connection there is no second one, which could ask for a password.
        command.args(["-o", "ControlMaster=no", "-o", "ProxyCommand=false"]);
        command.arg("--").arg(&self.host).arg(script.command_line());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            // Ctrl-C reaches this process only, which passes it on.
            .process_group(0)
            .spawn()
            .context("cannot run sh")?;
        let mut stdin = child.stdin.take().context("no input of ssh")?;
        // Fails if there is no connection any more, which the status says, too.
        let _ = stdin.write_all(script.bytes());
        Ok(Running { child, stdin })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Ok(None) = self.master.try_wait() {
            child::terminate(self.pid());
            let _ = self.master.wait();
        }
    }
}

/// Does blocking work, which ends early if the process with this PID does. A signal ends the process. Returns the result, and whether
/// there was a signal.
pub(super) fn interruptible<T: Send>(
    signals: &Signals,
    pid: i32,
    work: impl FnOnce() -> T + Send,
) -> Result<(T, bool)> {
    let (ended, ending): (PipeReader, PipeWriter) = io::pipe()?;
    let mut is_interrupted = false;
    let result = thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let _ending = ending;
            work()
        });
        while !worker.is_finished() {
            let signal = signals.wait_or(Duration::from_secs(1), Some(ended.as_fd()));
            if matches!(signal, Ok(Some(Signal::Finish))) {
                is_interrupted = true;
                child::terminate(pid);
            }
        }
        worker.join()
    });
    let result = result.map_err(|_| failed("a thread of the connection panicked"))?;
    Ok((result, is_interrupted))
}

/// Returns the PID of a child that has not been waited for.
pub(super) fn pid_of(child: &Child) -> i32 {
    child.id().cast_signed()
}

/// The client, with the options that all uses share.
fn ssh(socket: &OsString) -> Command {
    let mut script = OsString::from("trap '' INT QUIT HUP TTOU; exec ");
    script.push(command());
    script.push(" \"$@\"");
    let mut ssh = Command::new("sh");
    child::unblock_signals(&mut ssh);
    ssh.arg("-c").arg(script).arg("ssh");
    ssh.args(["-T", "-x", "-S"]).arg(socket);
    ssh
}

/// The command of the client, as the user would write it.
fn command() -> OsString {
    let command = std::env::var_os(COMMAND).filter(|command| !command.is_empty());
    command.unwrap_or_else(|| "ssh".into())
}

/// ssh expands % in this path.
fn socket(folder: &TempDir) -> OsString {
    let path = folder.path().join("ssh");
    OsString::from(path.to_string_lossy().replace('%', "%%"))
}

fn temporary_folder() -> PathBuf {
    let folder = std::env::temp_dir();
    match folder.as_os_str().len() > LONGEST_FOLDER {
        true => "/tmp".into(),
        false => folder,
    }
}
