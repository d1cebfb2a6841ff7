//! The recorder on the other host: this program, copied there once, or the same version if that cannot run there.
//!
//! ```text
//! perfquet-record in PATH, with the hash of this one        used
//! ~/.cache/perfquet/perfquet-record-HASH                    used; copied there if the architecture is the same
//! perfquet-record in PATH, of this version                  used if this program cannot run there
//! ```

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;

use anyhow::{Context, Result};
use indicatif::HumanBytes;
use perfquet_cli::escaped;
use sha2::{Digest, Sha256};

use super::connection::{Connection, interruptible, pid_of};
use super::script::Script;
use crate::failure::failed;
use crate::sys::signals::Signals;
use perfquet_cli::terminal;

/// This program, as the kernel started it, even if its file has been replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Maximum number of bytes that a host answers.
const MOST_BYTES: u64 = 1 << 20;

/// Answers of a script, by name: lines `perfquet NAME VALUE`. Startup files of a shell may print other lines.
pub(super) type Answers = BTreeMap<String, OsString>;

/// Describes the host and the recorders that it has.
pub(super) fn question(hash: &str) -> Script {
    Script::new(&[("hash", OsStr::new(hash))], [], include_str!("host.sh"))
}

/// Reads answers up to that named `last`, or to the end.
pub(super) fn answers(output: &mut impl BufRead, last: &str) -> Answers {
    let mut answers = Answers::new();
    let mut left = output.take(MOST_BYTES);
    let mut line = Vec::new();
    while left
        .read_until(b'\n', &mut line)
        .is_ok_and(|length| length > 0)
    {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(text) = text.strip_prefix(b"perfquet ") {
            let (name, value) = text.split_at(
                text.iter()
                    .position(|&byte| byte == b' ')
                    .unwrap_or(text.len()),
            );
            let name = String::from_utf8_lossy(name).into_owned();
            let is_last = name == last;
            let value = value.strip_prefix(b" ").unwrap_or_default();
            answers.insert(name, OsString::from_vec(value.to_vec()));
            if is_last {
                break;
            }
        }
        line.clear();
    }
    answers
}

/// Returns the SHA-256 of this program.
pub(super) fn own_hash() -> Result<String> {
    let hash = || {
        let mut hash = Sha256::new();
        let mut file = File::open(THIS_PROGRAM)?;
        let mut bytes = vec![0; 1 << 16];
        loop {
            match file.read(&mut bytes)? {
                0 => break,
                length => hash.update(&bytes[..length]),
            }
        }
        Ok::<_, io::Error>(hash.finalize())
    };
    let hash = hash().with_context(|| format!("cannot read {THIS_PROGRAM}"))?;
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the path of a recorder there; copies this program if there is none. `None` after a signal.
pub(super) fn find(
    connection: &Connection,
    host: &Answers,
    hash: &str,
    signals: &Signals,
) -> Result<Option<OsString>> {
    let name = connection.host();
    let has = |name: &str, value: &str| host.get(name).is_some_and(|found| found == value);
    if !has("system", "Linux") {
        let system = shown(host.get("system"));
        return Err(failed(format!(
            "{name} runs {system}; perfquet-record requires Linux"
        ))
        .into());
    }
    if let Some(installed) = host.get("installed")
        && has("hash", hash)
    {
        return Ok(Some(installed.clone()));
    }
    if let Some(copy) = host.get("copy") {
        return Ok(Some(copy.clone()));
    }
    let version = concat!("perfquet-record ", env!("CARGO_PKG_VERSION"));
    let installed = host.get("installed").filter(|_| has("version", version));
    let other_build = |installed: &OsString| {
        terminal::say(format_args!(
            "perfquet-record: using {} on {name}, another build of this version",
            shown(Some(installed))
        ));
        Ok(Some(installed.clone()))
    };
    if !has("machine", std::env::consts::ARCH) {
        let machine = shown(host.get("machine"));
        return match installed {
            Some(installed) => other_build(installed),
            None => Err(unfit(
                format!(
                    "{name} is {machine}, and this perfquet-record is for {}",
                    std::env::consts::ARCH
                ),
                version,
            )),
        };
    }
    let Some(answers) = copy(connection, hash, signals)? else {
        return Ok(None);
    };
    if let Some(copy) = answers.get("copy") {
        return Ok(Some(copy.clone()));
    }
    match (answers.get("refusal"), installed) {
        (Some(_), Some(installed)) => other_build(installed),
        (Some(refusal), None) => Err(unfit(
            format!(
                "this perfquet-record does not run on {name}: {}",
                shown(Some(refusal))
            ),
            version,
        )),
        (None, _) => Err(failed(format!("cannot copy perfquet-record to {name}")).into()),
    }
}

fn unfit(message: String, version: &str) -> anyhow::Error {
    failed(message)
        .hint(format!(
            "install {version}, built for that host, in the PATH of its shells without a terminal"
        ))
        .into()
}

/// Copies this program into the cache there. `None` after a signal.
fn copy(connection: &Connection, hash: &str, signals: &Signals) -> Result<Option<Answers>> {
    let program =
        File::open(THIS_PROGRAM).with_context(|| format!("cannot read {THIS_PROGRAM}"))?;
    let size = HumanBytes(program.metadata()?.len());
    terminal::say(format_args!(
        "perfquet-record: copying this program ({size}) to the cache on {}",
        connection.host()
    ));
    let script = Script::new(&[("hash", OsStr::new(hash))], [], include_str!("copy.sh"));
    let mut running = connection.start(&script, Stdio::piped(), Stdio::inherit())?;
    let output = running.child.stdout.take().context("no output of ssh")?;
    let mut stdin = running.stdin;
    let answers = interruptible(signals, pid_of(&running.child), move || {
        // A failed write leaves an incomplete program there, which has another hash.
        let _ = io::copy(&mut BufReader::new(program), &mut stdin);
        drop(stdin);
        answers(&mut BufReader::new(output), "copy")
    });
    let _ = running.child.wait();
    let (answers, is_interrupted) = answers?;
    Ok((!is_interrupted).then_some(answers))
}

/// A text from another host in a message: one line without control characters.
fn shown(text: Option<&OsString>) -> String {
    let text = text.map_or("an unknown system".into(), |text| text.to_string_lossy());
    escaped(&text).into_owned()
}
