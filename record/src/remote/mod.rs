//! `--ssh HOST`: records on another host, and brings the trace here.
//!
//! ```text
//! connect      one connection, which asks for a password at most once          [`connection`]
//! find         the recorder there, or a copy of this program                   [`program`]
//! run          the recorder there, in a private directory                      [`session`], [`messages`]
//! fetch        the complete trace, which is then removed there                 [`fetch`]
//! ```
//! The trace is completed there, because names of functions come from files of that host. What runs there are scripts for its shell
//! ([`script`], `*.sh`) and the recorder, which gets the command line from here, and the hidden `--ssh-output PATH` in front of it.

mod connection;
mod fetch;
mod messages;
mod program;
mod script;
mod session;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::failure::failed;
use crate::output::{Form, Output};
use crate::sys::child;
use crate::sys::signals::Signals;
use connection::{Connection, interruptible};
use fetch::Fetched;
use script::Script;

/// Exit status of ssh if the connection fails.
const NO_CONNECTION: i32 = 255;

/// Command-line options.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RemoteOptions {
    /// Record on another host, and write the trace here
    ///
    /// Uses ssh, and its configuration; PERFQUET_SSH sets another command ('ssh -p 2222'). COMMAND and all paths but that of -o are those
    /// of HOST. The recorder is copied to ~/.cache/perfquet there, unless HOST has it.
    #[arg(long, value_name = "[USER@]HOST", value_parser = host)]
    ssh: Option<String>,
    /// Write the trace to PATH for a recorder on another host.
    #[arg(long, value_name = "PATH", hide = true)]
    ssh_output: Option<PathBuf>,
}

impl RemoteOptions {
    /// Returns the other host that is to record.
    pub(crate) fn host(&self) -> Option<&str> {
        self.ssh.as_deref().filter(|_| self.ssh_output.is_none())
    }

    /// Returns where this process writes the trace if another host requests it.
    pub(crate) fn output(&self) -> Option<&Path> {
        self.ssh_output.as_deref()
    }
}

/// A recording on another host.
pub(crate) struct Request<'a> {
    pub(crate) host: &'a str,
    /// The command line of the recorder.
    pub(crate) words: Vec<OsString>,
    /// Where the trace is written here; `None` if the command line requests none.
    pub(crate) output: Option<PathBuf>,
    pub(crate) form: Form,
    pub(crate) force: bool,
}

/// Where the trace is on the other host.
struct Place {
    folder: PathBuf,
    name: &'static str,
}

impl Place {
    fn path(&self) -> OsString {
        self.folder.join(self.name).into_os_string()
    }
}

/// Records there. Returns the recorder's end; `None` after signals.
pub(crate) fn run(request: &Request) -> Result<Option<child::Ended>> {
    let signals = Signals::block().context("cannot wait for signals")?;
    if let Some(output) = &request.output {
        Output::check(output, request.force)?;
        fetch::private_folder(output)?;
    }
    let hash = program::own_hash()?;
    let (mut connection, mut output) = Connection::open(request.host, &program::question(&hash))?;
    let answers = interruptible(&signals, connection.pid(), || {
        program::answers(&mut output, "end")
    })?;
    let (host, is_interrupted) = answers;
    if is_interrupted {
        return Ok(interrupted());
    }
    drop(output);
    if !host.contains_key("end") {
        return Err(connection.failure().into());
    }
    let Some(program) = program::find(&connection, &host, &hash, &signals)? else {
        return Ok(interrupted());
    };
    let folder = host.get("folder").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_absolute());
    let folder =
        folder.with_context(|| format!("no directory for the trace on {}", request.host))?;
    let place = Place {
        folder: folder.join(format!("perfquet-{}", random_name()?)),
        name: request.form.format.usual_name(),
    };
    let ended = session::run(&connection, request, (&program, &place), &signals)?;
    let outcome = finish(&connection, request, (&place, &ended), &signals);
    // If they wait still, the trace is there, or nowhere.
    let path = place.path();
    ended
        .messages
        .release(&format!("{}:{}", request.host, path.display()));
    outcome
}

/// Fetches the trace of a recorder that has ended, if there is one.
fn finish(
    connection: &Connection,
    request: &Request,
    (place, ended): (&Place, &session::Ended),
    signals: &Signals,
) -> Result<Option<child::Ended>> {
    let (host, status) = (request.host, ended.status);
    let path = place.path().display().to_string();
    let lost = || failed(format!("the connection to {host} is lost"));
    let is_lost = status == Some(NO_CONNECTION) && !connection.is_open();
    let Some(output) = &request.output else {
        return match is_lost {
            true => Err(lost().into()),
            false => Ok(status.map(child::Ended::Exited)),
        };
    };
    let copy = format!("copy it: scp -r {host}:{path} {}", output.display());
    if is_lost {
        return Err(lost()
            .hint(format!(
                "the recorder there completes the trace; then {copy}"
            ))
            .into());
    }
    let to = (output.as_path(), request.form, request.force);
    match fetch::fetch(connection, place, to, signals) {
        Ok(Some(Fetched::Trace(status))) => {
            ended.messages.release(&output.display().to_string());
            Ok(Some(child::Ended::Exited(status.into())))
        }
        Ok(Some(Fetched::Nothing)) => Ok(status.map(child::Ended::Exited)),
        Ok(Some(Fetched::Unfinished)) => {
            Err(failed(format!("the recorder on {host} has not ended"))
                .hint(format!("when it has, {copy}"))
                .into())
        }
        Ok(None) => {
            log::warn!("interrupted; the trace remains on {host}: {path}");
            Ok(None)
        }
        Err(error) => {
            let failure = failed(format!("cannot fetch the trace, which remains on {host}"));
            Err(error.context(failure.hint(copy)))
        }
    }
}

fn interrupted() -> Option<child::Ended> {
    log::warn!("interrupted before the recording began");
    None
}

/// A name that nobody can guess: others may create names in the directory there, too.
fn random_name() -> Result<String> {
    let mut bytes = [0; 16];
    let mut file = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    file.read_exact(&mut bytes)
        .context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Parses the host. One that begins like an option would be one of ssh.
fn host(text: &str) -> Result<String, String> {
    let is_fit = !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_control);
    match is_fit {
        true => Ok(text.to_owned()),
        false => Err("expected [USER@]HOST".to_owned()),
    }
}
