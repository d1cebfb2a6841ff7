//! Output of an export: stdout, or a file that gets its name only when it is complete.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use perfquet_events::Error;
use perfquet_trace::output_file::OutputFile;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::Arguments;
use crate::misuse::misuse;

/// An output of an export.
pub(crate) enum Destination {
    Standard(BufWriter<io::Stdout>),
    File { file: OutputFile, path: PathBuf },
}

impl Destination {
    /// Opens the output of `-o`. Fails on conflicts before anything is read.
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

    /// Flushes the output, and renames the file to its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self {
            Destination::Standard(_) => Ok(()),
            Destination::File { file, .. } => Ok(file.finish()?),
        }
    }

    /// Adds the file to an error.
    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let place = match self {
                Destination::Standard(_) => "stdout".to_owned(),
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

/// Rejects an output that is also an input: `--force` replaces an older export, never an input.
fn refuse_input(arguments: &Arguments, path: &Path) -> Result<()> {
    let Ok(output) = path.canonicalize() else {
        return Ok(());
    };
    let same = |input: &&PathBuf| input.canonicalize().is_ok_and(|input| input == output);
    match arguments.inputs.iter().find(same) {
        Some(_) => Err(misuse(
            format!("{}: input and output are the same file", path.display()),
            "use another path for -o",
        )),
        None => Ok(()),
    }
}

/// Paths to remove when a signal ends the process.
static PASSING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn passing() -> MutexGuard<'static, Vec<PathBuf>> {
    PASSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the signals ignored since the start of the process, as by nohup: bit 0 is signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Removes this file or directory if the process is interrupted.
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
                        // Only one of the two applies, and the path may already be gone.
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
