//! Output of an export: stdout, or a file or directory that is renamed to its name when it is complete.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use perfquet_events::Error;
use perfquet_trace::output_directory::OutputDirectory;
use perfquet_trace::output_file::OutputFile;

use crate::cli::Arguments;
use crate::export::{Catalog, Exporter, Output, Source, Tally};
use crate::interrupt::remove_when_interrupted;
use crate::misuse::misuse;

/// Compression level: exports are so repetitive that higher levels take more time and hardly save space.
const GZIP_LEVEL: u32 = 4;

/// An output of an export.
pub(crate) enum Destination {
    Stream(Stream),
    Directory(OutputDirectory),
}

/// A file or stdout.
pub(crate) struct Stream {
    /// `None` only after finishing.
    out: Option<Compressed>,
    /// `None` for stdout.
    path: Option<PathBuf>,
    name: String,
    /// Size of the finished output.
    bytes: u64,
}

/// Plain bytes, or gzip if the name ends in `.gz`.
enum Compressed {
    Plain(Sink),
    Gzip(Box<GzEncoder<Sink>>),
}

enum Sink {
    /// With the number of bytes written.
    Standard(BufWriter<io::Stdout>, u64),
    File(OutputFile),
}

impl Destination {
    /// Opens the output given by `-o`, or the exporter's default, named after `input`. Fails on conflicts before anything is read.
    pub(crate) fn open(
        arguments: &Arguments,
        exporter: &Exporter,
        input: &Path,
    ) -> Result<Destination> {
        let path = match (&arguments.output, exporter.output) {
            (Some(path), _) => Some(path.clone()),
            (None, Output::Text { .. } | Output::Reference { .. } | Output::Lake) => None,
            (
                None,
                Output::File { ending, .. }
                | Output::Timeline { ending, .. }
                | Output::Directory { ending, .. }
                | Output::Archive { ending, .. },
            ) => Some(named_after(input, ending)),
        };
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            return Destination::standard(exporter);
        };
        refuse_input(arguments, input, &path)?;
        let name = path.display().to_string();
        let failed = |error| match error {
            Error::Io { source, .. } => {
                anyhow::Error::from(source).context(format!("cannot write {name}"))
            }
            other => other.into(),
        };
        if let Output::Directory { .. } = exporter.output {
            let folder = OutputDirectory::create(&path, arguments.force).map_err(failed)?;
            remove_when_interrupted(folder.temporary())?;
            return Ok(Destination::Directory(folder));
        }
        let file = OutputFile::create(&path, arguments.force).map_err(failed)?;
        if let Some(temporary) = file.temporary() {
            remove_when_interrupted(temporary)?;
        }
        let is_gzip = path.extension().is_some_and(|ending| ending == "gz");
        Ok(Destination::Stream(Stream::new(
            Sink::File(file),
            Some(path),
            is_gzip,
        )))
    }

    fn standard(exporter: &Exporter) -> Result<Destination> {
        let is_gzip = match exporter.output {
            Output::Text { .. } | Output::Reference { .. } => false,
            Output::Directory { .. } | Output::Lake => {
                return Err(misuse(
                    format!("--to {}: several files, not for stdout", exporter.name),
                    "use -o DIR",
                ));
            }
            Output::File { ending, .. }
            | Output::Timeline { ending, .. }
            | Output::Archive { ending, .. } => {
                if io::stdout().is_terminal() {
                    return Err(misuse(
                        format!("--to {}: not text, stdout is a terminal", exporter.name),
                        "use -o PATH, or a pipe",
                    ));
                }
                ending.ends_with(".gz")
            }
        };
        let out = Sink::Standard(BufWriter::with_capacity(1 << 16, io::stdout()), 0);
        Ok(Destination::Stream(Stream::new(out, None, is_gzip)))
    }

    /// Writes the export, and renames it to its name. Returns its name and its size in bytes.
    pub(crate) fn write(
        self,
        exporter: &Exporter,
        source: &Source<'_>,
        tally: &mut Tally,
    ) -> Result<(String, u64)> {
        match (self, exporter.output) {
            (
                Destination::Stream(mut out),
                Output::Text { write }
                | Output::Reference { write, .. }
                | Output::File { write, .. }
                | Output::Archive { write, .. },
            ) => {
                write(source, &mut out, tally)?;
                out.finish()
            }
            (Destination::Stream(mut out), Output::Timeline { write, .. }) => {
                write(std::slice::from_ref(source), &mut out, tally)?;
                out.finish()
            }
            (Destination::Directory(folder), Output::Directory { write, .. }) => {
                write(source, folder.temporary(), tally)?;
                let (path, bytes) = folder.finish()?;
                Ok((path.display().to_string(), bytes))
            }
            _ => Err(other_kind()),
        }
    }

    /// Writes the export of traces on one timeline. Returns its name and its size in bytes.
    pub(crate) fn write_timeline(
        self,
        exporter: &Exporter,
        sources: &[Source<'_>],
        tally: &mut Tally,
    ) -> Result<(String, u64)> {
        match (self, exporter.output) {
            (Destination::Stream(mut out), Output::Timeline { write, .. }) => {
                write(sources, &mut out, tally)?;
                out.finish()
            }
            _ => Err(other_kind()),
        }
    }

    /// Writes statements about a lake. Returns the name of the output and its size in bytes.
    pub(crate) fn write_lake(
        self,
        exporter: &Exporter,
        catalog: &Catalog,
        tally: &mut Tally,
    ) -> Result<(String, u64)> {
        match (self, exporter.output) {
            (Destination::Stream(mut out), Output::Reference { write_lake, .. }) => {
                write_lake(catalog, &mut out, tally)?;
                out.finish()
            }
            _ => Err(other_kind()),
        }
    }
}

fn other_kind() -> anyhow::Error {
    anyhow::anyhow!("internal error: the exporter expected another kind of output")
}

impl Stream {
    fn new(sink: Sink, path: Option<PathBuf>, is_gzip: bool) -> Stream {
        let name = path.as_ref().map(|path| path.display().to_string());
        let out = match is_gzip {
            true => {
                let level = Compression::new(GZIP_LEVEL);
                Compressed::Gzip(Box::new(GzEncoder::new(sink, level)))
            }
            false => Compressed::Plain(sink),
        };
        Stream {
            out: Some(out),
            path,
            name: name.unwrap_or("stdout".to_owned()),
            bytes: 0,
        }
    }

    /// Flushes the output, and renames the file to its name. Returns its name and its size in bytes.
    fn finish(mut self) -> Result<(String, u64)> {
        let sink = match self.out.take() {
            Some(Compressed::Plain(sink)) => Ok(sink),
            Some(Compressed::Gzip(out)) => out.finish(),
            None => return Ok((self.name, self.bytes)),
        };
        match self.named(sink)? {
            Sink::Standard(mut out, bytes) => {
                self.named(out.flush())?;
                self.bytes = bytes;
            }
            Sink::File(mut file) => {
                self.named(file.flush())?;
                file.finish()?;
                let found = self.path.as_ref().map(std::fs::metadata);
                if let Some(Ok(found)) = found {
                    self.bytes = found.len();
                }
            }
        }
        Ok((self.name, self.bytes))
    }

    /// Adds the file to an error.
    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", self.name))
        })
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = match &mut self.out {
            Some(Compressed::Plain(out)) => out.write(bytes),
            Some(Compressed::Gzip(out)) => out.write(bytes),
            None => Ok(0),
        };
        self.named(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = match &mut self.out {
            Some(Compressed::Plain(out)) => out.flush(),
            Some(Compressed::Gzip(out)) => out.flush(),
            None => Ok(()),
        };
        self.named(result)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Standard(out, all) => {
                let written = out.write(bytes)?;
                *all += written as u64;
                Ok(written)
            }
            Sink::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Standard(out, _) => out.flush(),
            Sink::File(file) => file.flush(),
        }
    }
}

/// Returns the default output: "perf" + ending for "/tmp/perf.data.zst", in the current directory.
pub(crate) fn named_after(input: &Path, ending: &str) -> PathBuf {
    let name = match input.as_os_str() == "-" {
        true => "trace".into(),
        false => match input.file_name() {
            Some(name) => name.to_os_string(),
            // `.` and `..` have no file name.
            None => input
                .canonicalize()
                .ok()
                .and_then(|path| path.file_name().map(ToOwned::to_owned))
                .unwrap_or("trace".into()),
        },
    };
    let mut name = PathBuf::from(name);
    if name
        .extension()
        .is_some_and(|ending| ending == "gz" || ending == "xz" || ending == "zst")
    {
        name.set_extension("");
    }
    name.set_extension("");
    let mut name = name.into_os_string();
    name.push(ending);
    PathBuf::from(name)
}

/// Rejects an output that is also an input: `--force` replaces an older export, never an input.
fn refuse_input(arguments: &Arguments, input: &Path, path: &Path) -> Result<()> {
    let Ok(output) = path.canonicalize() else {
        return Ok(());
    };
    let same = |input: &&Path| input.canonicalize().is_ok_and(|input| input == output);
    let inputs = arguments.inputs.iter().map(AsRef::as_ref);
    match inputs.chain([input]).find(same) {
        Some(_) => Err(misuse(
            format!("{}: input and output are the same file", path.display()),
            "use another path for -o",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_named_after_the_input() {
        let check = |input: &str, expected: &str| {
            assert_eq!(
                named_after(Path::new(input), ".pqt"),
                Path::new(expected),
                "{input}"
            );
        };
        check("/tmp/perf.data", "perf.pqt");
        check("boot.data.zst", "boot.pqt");
        check("trace", "trace.pqt");
        check("a.b.folded.gz", "a.b.pqt");
        check("a.trace.xz", "a.pqt");
        check("-", "trace.pqt");
        let firefox = named_after(Path::new("a.pqt"), ".firefox.json.gz");
        assert_eq!(firefox, Path::new("a.firefox.json.gz"));
    }
}
