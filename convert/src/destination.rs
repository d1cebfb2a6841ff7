//! Where an export goes: standard output, or a file that bears its name only when it is whole.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use perfquet_formats::Error;
use perfquet_formats::output_file::OutputFile;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::Arguments;
use crate::run::misuse;

/// An output of an export.
pub(crate) enum Destination {
    Standard(BufWriter<io::Stdout>),
    File { file: OutputFile, path: PathBuf },
}

impl Destination {
    /// Makes ready what `-o` names. Fails where something is in the way, before anything is read.
    pub(crate) fn open(arguments: &Arguments) -> Result<Destination> {
        let path = arguments
            .output
            .clone()
            .filter(|path| path.as_os_str() != "-");
        let Some(path) = path else {
            return Ok(Destination::Standard(BufWriter::new(io::stdout())));
        };
        refuse_input(arguments, &path)?;
        let file = match OutputFile::create(&path, arguments.force) {
            Err(Error::Io { source, .. }) => {
                return Err(source).with_context(|| format!("cannot write {}", path.display()));
            }
            other => other?,
        };
        if let Some(temporary) = file.temporary() {
            remove_when_interrupted(temporary)?;
        }
        Ok(Destination::File { file, path })
    }

    /// Writes what is left, and gives the file its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self {
            Destination::Standard(_) => Ok(()),
            Destination::File { file, .. } => Ok(file.finish()?),
        }
    }

    /// The error with the file that it is about.
    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let place = match self {
                Destination::Standard(_) => "standard output".to_owned(),
                Destination::File { path, .. } => path.display().to_string(),
            };
            io::Error::new(error.kind(), format!("cannot write {place}: {error}"))
        })
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = match self {
            Destination::Standard(out) => out.write(bytes),
            Destination::File { file, .. } => file.write(bytes),
        };
        self.named(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = match self {
            Destination::Standard(out) => out.flush(),
            Destination::File { file, .. } => file.flush(),
        };
        self.named(result)
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
