//! Brings a trace from the other host here: complete, or not at all.
//!
//! ```text
//! perfquet trace 0                            the recorder's exit status
//! file 4711 trace.pqt/manifest.json           size, path, then that many bytes
//! …
//! end
//! ```
//! The other host is not trusted: paths stay below a new private directory, which is renamed only if all of the trace is there. What was
//! received is on the disk before the other host removes its own.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use perfquet_cli::escaped;
use perfquet_events::directory::directory_of;
use perfquet_trace::store::{Directory, State, part_path};
use perfquet_trace::symbols::limits::FETCHED_PERCENT_MAX;
use tempfile::TempDir;

use super::connection::{Connection, interruptible, pid_of};
use super::program::answers;
use super::{Place, Script};
use crate::output::{Form, Format, Output};
use crate::sys::signals::Signals;

/// Maximum length of a line before a file.
const LONGEST_LINE: u64 = 8192;
/// Maximum number of files of a trace.
const MOST_FILES: u32 = 1 << 17;

/// What the other host has.
pub(super) enum Fetched {
    /// The trace is here. Contains the recorder's exit status.
    Trace(u8),
    /// The recorder wrote no trace.
    Nothing,
    /// The recorder has not ended.
    Unfinished,
}

/// Creates the private directory in which a trace is received, next to its place. Before a recording, this is a test whether it can be.
pub(super) fn private_folder(output: &Path) -> Result<TempDir> {
    let parent = directory_of(output);
    tempfile::Builder::new()
        .prefix(".perfquet-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot write to {}", parent.display()))
}

/// Fetches the trace to `output`. `None` after a signal.
pub(super) fn fetch(
    connection: &Connection,
    place: &Place,
    (output, form, force): (&Path, Form, bool),
    signals: &Signals,
) -> Result<Option<Fetched>> {
    let variables = [
        ("dir", place.folder.as_os_str()),
        ("name", OsStr::new(place.name)),
    ];
    let script = Script::new(&variables, [], include_str!("fetch.sh"));
    let mut running = connection.start(&script, Stdio::piped(), Stdio::inherit())?;
    let stream = running.child.stdout.take().context("no output of ssh")?;
    let mut stdin = running.stdin;
    let fetched = interruptible(signals, pid_of(&running.child), || {
        let mut stream = BufReader::with_capacity(1 << 16, stream);
        let answers = answers(&mut stream, "trace");
        let Some(status) = answers.get("trace") else {
            return match (
                answers.contains_key("nothing"),
                answers.contains_key("unfinished"),
            ) {
                (true, _) => Ok(Fetched::Nothing),
                (_, true) => Ok(Fetched::Unfinished),
                _ => bail!("the connection is lost"),
            };
        };
        let status = status.to_str().and_then(|status| status.parse().ok());
        let status = status.context("the other host does not tell the recorder's exit status")?;
        let folder = private_folder(output)?;
        receive(&mut stream, folder.path(), place.name)?;
        let received = folder.path().join(place.name);
        check(&received, form.format)?;
        Output::adopt(&received, output, form, force)?;
        // If it does not arrive, the trace stays there, too.
        let _ = stdin.write_all(b"received\n");
        drop(stdin);
        // Its end: the trace there is removed.
        let _ = io::copy(&mut stream, &mut io::sink());
        Ok(Fetched::Trace(status))
    });
    let _ = running.child.wait();
    match fetched? {
        (Err(_), true) => Ok(None),
        (fetched, _) => fetched.map(Some),
    }
}

/// Writes the files of a stream below `folder`.
fn receive(stream: &mut impl BufRead, folder: &Path, name: &str) -> Result<()> {
    let free = crate::sys::file::free_bytes(&File::open(folder)?)?;
    let mut left = free / 100 * FETCHED_PERCENT_MAX;
    for _ in 0..MOST_FILES {
        let mut line = Vec::new();
        stream.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\n") else {
            bail!("the connection is lost before the end of the trace");
        };
        if line == b"end" {
            return Ok(());
        }
        let unfit = || {
            format!(
                "unexpected data: {}",
                escaped(&String::from_utf8_lossy(line))
            )
        };
        let (size, path) = header(line, name).with_context(unfit)?;
        left = left
            .checked_sub(size)
            .with_context(|| format!("no room for the trace: {free} bytes are free here"))?;
        let path = folder.join(path);
        write_file(stream, &path, size)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    bail!("the trace has more than {MOST_FILES} files");
}

/// Size and path of a file; `None` if it is not of the trace, or leads out of it.
fn header(line: &[u8], name: &str) -> Option<(u64, PathBuf)> {
    let rest = line.strip_prefix(b"file ")?;
    let (size, path) = rest.split_at(rest.iter().position(|&byte| byte == b' ')?);
    let size = str::from_utf8(size).ok()?.parse().ok()?;
    let path = Path::new(OsStr::from_bytes(path.get(1..)?));
    let is_inside = path.starts_with(name)
        && path
            .components()
            .all(|step| matches!(step, Component::Normal(_)));
    is_inside.then(|| (size, path.to_owned()))
}

/// Writes the next bytes of the stream to a new file.
fn write_file(stream: &mut impl BufRead, path: &Path, size: u64) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = io::copy(&mut stream.take(size), &mut file)?;
    if written != size {
        let message = format!("the connection is lost after {written} of {size} bytes");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Checks that a complete trace has all parts. One whose recorder was interrupted twice has its journal instead.
fn check(path: &Path, format: Format) -> Result<()> {
    if format == Format::PerfData {
        return match fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
            true => Ok(()),
            false => bail!("the other host sent no file"),
        };
    }
    if !path.join(perfquet_trace::store::FILE_NAME).exists() {
        return match path.join(perfquet_trace::store::JOURNAL).is_dir() {
            true => Ok(()),
            false => bail!("the other host sent no trace"),
        };
    }
    let trace = Directory::open(path)?;
    if trace.manifest().state != State::Recording {
        for part in trace.tables().flat_map(|(_, table)| &table.parts) {
            part_path(path, part)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(stream: &[u8]) -> Result<TempDir, String> {
        let folder = tempfile::tempdir().expect("a directory");
        match receive(&mut &*stream, folder.path(), "trace.pqt") {
            Ok(()) => Ok(folder),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    #[test]
    fn files_are_written_as_they_are() {
        let stream = b"file 3 trace.pqt/a\n\n\0\nfile 0 trace.pqt/b/c/d e\nend\n";
        let folder = received(stream).expect("a trace");
        let read =
            |name: &str| fs::read(folder.path().join("trace.pqt").join(name)).expect("a file");
        assert_eq!(read("a"), b"\n\0\n");
        assert_eq!(read("b/c/d e"), b"");
    }

    #[test]
    fn no_file_is_outside_of_the_trace() {
        for path in [
            "/etc/x",
            "../x",
            "trace.pqt/../x",
            "trace.pqt/../../x",
            "other/x",
            "",
            "trace.pqtx/a",
            "./trace.pqt/x",
        ] {
            let stream = format!("file 1 {path}\nxend\n");
            let error = received(stream.as_bytes()).err();
            assert!(
                error.is_some_and(|error| error.contains("unexpected data")),
                "{path}"
            );
        }
    }

    #[test]
    fn a_file_is_not_written_twice_nor_below_a_file() {
        for paths in [
            ["trace.pqt/a", "trace.pqt/a"],
            ["trace.pqt/a", "trace.pqt/a/b"],
            ["trace.pqt", "trace.pqt/a"],
        ] {
            let stream = format!("file 1 {}\nxfile 1 {}\nyend\n", paths[0], paths[1]);
            assert!(received(stream.as_bytes()).is_err(), "{paths:?}");
        }
    }

    #[test]
    fn a_trace_larger_than_the_disk_is_not_received() {
        // Without the bytes: the size alone is too large.
        for sizes in [vec![1_u64 << 62], vec![1, 1 << 50]] {
            let mut stream = Vec::new();
            for (number, size) in sizes.into_iter().enumerate() {
                stream.extend(format!("file {size} trace.pqt/{number}\nx").bytes());
            }
            let error = received(&stream).err().unwrap_or_default();
            assert!(error.contains("no room for the trace"), "{error}");
        }
    }

    #[test]
    fn a_stream_that_is_cut_is_no_trace() {
        let stream = b"file 3 trace.pqt/a\nabcfile 2 trace.pqt/b\ndeend\n";
        assert!(received(stream).is_ok());
        for length in 0..stream.len() {
            assert!(received(&stream[..length]).is_err(), "{length}");
        }
        for wrong in [
            "file -1 trace.pqt/a\nend\n",
            "file 9999999999999999999999 trace.pqt/a\nend\n",
            "file 18446744073709551615 trace.pqt/a\nend\n",
            "file trace.pqt/a\n",
            "\n",
        ] {
            assert!(received(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(received(&[b'x'; 100_000]).is_err());
    }
}
