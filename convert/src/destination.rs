//! Where an export goes: standard output, or a file that bears its name only when it is whole.
//!
//! A pipe or a device that is there already is written as it is.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use perfquet_formats::Error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::NamedTempFile;

use crate::cli::Arguments;
use crate::run::misuse;

/// What is written to.
enum Target {
    Standard(io::Stdout),
    /// A pipe, a device.
    Special(File),
    /// Beside its place, under another name.
    Passing(NamedTempFile),
}

/// An output of an export.
pub(crate) struct Destination {
    out: BufWriter<Target>,
    /// `None`: standard output.
    path: Option<PathBuf>,
    force: bool,
}

impl Destination {
    /// Makes ready what `-o` names. Fails where something is in the way, before anything is read.
    pub(crate) fn open(arguments: &Arguments) -> Result<Destination> {
        let path = arguments
            .output
            .clone()
            .filter(|path| path.as_os_str() != "-");
        let target = match &path {
            None => Target::Standard(io::stdout()),
            Some(path) => {
                refuse_input(arguments, path)?;
                target(path, arguments.force)?
            }
        };
        Ok(Destination {
            out: BufWriter::new(target),
            path,
            force: arguments.force,
        })
    }

    /// Writes what is left, and gives the file its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        let place = |path: &Path| format!("cannot write {}", path.display());
        let target = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        let (Target::Passing(file), Some(path)) = (target, self.path) else {
            return Ok(());
        };
        let named = match self.force {
            true => file.persist(&path),
            false => file.persist_noclobber(&path),
        };
        named
            .map_err(|failed| failed.error)
            .with_context(|| place(&path))?;
        Ok(())
    }

    /// The error with the file that it is about.
    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let place = match &self.path {
                None => "standard output".to_owned(),
                Some(path) => path.display().to_string(),
            };
            io::Error::new(error.kind(), format!("cannot write {place}: {error}"))
        })
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.named(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.named(result)
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Standard(out) => out.write(bytes),
            Target::Special(file) => file.write(bytes),
            Target::Passing(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Standard(out) => out.flush(),
            Target::Special(file) => file.flush(),
            Target::Passing(file) => file.flush(),
        }
    }
}

/// `--force` replaces an older export, never what is read.
fn refuse_input(arguments: &Arguments, path: &Path) -> Result<()> {
    let Ok(output) = path.canonicalize() else {
        return Ok(());
    };
    let same = |input: &&PathBuf| input.canonicalize().is_ok_and(|input| input == output);
    match arguments.inputs.iter().find(same) {
        Some(_) => Err(misuse(
            format!("{}: the input itself", path.display()),
            "-o names another file",
        )),
        None => Ok(()),
    }
}

fn target(path: &Path, force: bool) -> Result<Target> {
    let cannot = || format!("cannot write {}", path.display());
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            return Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(cannot);
        }
        Ok(found) if !found.is_file() => {
            let file = File::options()
                .write(true)
                .open(path)
                .with_context(cannot)?;
            return Ok(Target::Special(file));
        }
        Ok(_) if !force => {
            return Err(Error::Exists {
                path: path.to_owned(),
            }
            .into());
        }
        _ => {}
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    folder.metadata().with_context(cannot)?;
    let file = tempfile::Builder::new()
        .prefix(".perfquet-convert-")
        // Less what the mask takes away, as for any new file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(cannot)?;
    remove_when_interrupted(file.path())?;
    Ok(Target::Passing(file))
}

/// What is removed when a signal ends the process.
static PASSING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn passing() -> MutexGuard<'static, Vec<PathBuf>> {
    PASSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signals that this process was started to ignore, as nohup and shells do: bit 0 is signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Lets an interrupt take this file or folder along.
pub(crate) fn remove_when_interrupted(path: &Path) -> Result<()> {
    let mut paths = passing();
    if paths.is_empty() {
        let ignored = ignored_signals();
        let heard = [SIGHUP, SIGINT, SIGTERM].into_iter();
        let heard = heard.filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(heard).context("cannot listen for signals")?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    for path in passing().drain(..) {
                        // One of the two, and it may be gone already.
                        let _ = std::fs::remove_dir_all(&path);
                        let _ = std::fs::remove_file(&path);
                    }
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            })
            .context("cannot start a thread")?;
    }
    paths.push(path.to_owned());
    Ok(())
}
