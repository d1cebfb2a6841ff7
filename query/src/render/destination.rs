//! Output of a report: stdout, or a file that gets its name only when it is complete. Errors name it.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use perfquet_events::Error;
use perfquet_trace::output_file::OutputFile;

/// The destination of a report.
pub(crate) enum Destination {
    Standard(Box<dyn Write + Send>),
    File(Named<OutputFile>),
}

impl Destination {
    /// Opens the file, or stdout if there is no path. Fails if the file exists.
    pub(crate) fn open(path: Option<&Path>, force: bool) -> Result<Destination> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            return Ok(Destination::Standard(super::stdout()));
        };
        match OutputFile::create(path, force) {
            Ok(file) => {
                if let Some(temporary) = file.temporary().map(Path::to_owned) {
                    perfquet::interrupt::remove_at_end(move || vec![temporary.clone()]);
                }
                let place = path.display().to_string();
                Ok(Destination::File(Named::new(file, place)))
            }
            Err(error @ Error::Exists { .. }) => Err(anyhow!(
                "{error}\nhint: use --force to overwrite it, or another PATH"
            )),
            Err(Error::Io { source, .. }) => {
                Err(source).with_context(|| format!("cannot write {}", path.display()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Flushes the output, and renames the file to its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self {
            Destination::Standard(_) => Ok(()),
            Destination::File(file) => {
                let Named { out, place } = file;
                let finished = out.finish().map_err(|error| match error {
                    Error::Io { source, .. } => source.into(),
                    error => anyhow::Error::from(error),
                });
                finished.with_context(|| format!("cannot write {place}"))
            }
        }
    }
}

/// A writer whose errors name it. Their kind stays: a closed pipe is no error.
pub(crate) struct Named<W> {
    out: W,
    place: String,
}

impl<W: Write> Named<W> {
    pub(crate) fn new(out: W, place: String) -> Named<W> {
        Named { out, place }
    }

    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(
            error.kind(),
            format!("cannot write {}: {error}", self.place),
        )
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        written.map_err(|error| self.named(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        flushed.map_err(|error| self.named(error))
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Destination::Standard(out) => out.write(bytes),
            Destination::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::Standard(out) => out.flush(),
            Destination::File(file) => file.flush(),
        }
    }
}
