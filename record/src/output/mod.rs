//! The output of a recording: a new trace directory with its journal, or a perf.data file.
//!
//! ```text
//! a.pqt/journal/perf.data     while recording; the encoder writes the tables next to journal/
//! a.pqt.perfquet-old          with --force: the previous trace, until the new one is complete
//! ```

pub(crate) mod closing_line;
pub(crate) mod completion;
pub(crate) mod encoder;
pub(crate) mod progress;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use perfquet_trace::store;

use crate::failure::{Failure, failed, misuse};
use crate::journal::Journal;
use crate::sys::host;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Trace directory of Parquet tables
    Pqt,
    /// Single file without tables, for perf report and perf script
    #[value(name = "perf.data")]
    PerfData,
}

impl Format {
    /// Returns the path of the output if none is given.
    pub(crate) fn usual_name(self) -> &'static str {
        match self {
            Format::Pqt => "trace.pqt",
            Format::PerfData => "perf.data",
        }
    }
}

/// Options of an output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) format: Format,
    /// Permissions of the complete output. Until then, or without this option, it is private.
    pub(crate) mode: Option<u32>,
}

/// An output being written.
pub(crate) struct Output {
    path: PathBuf,
    form: Form,
}

impl Output {
    /// Rejects the name by which other programs write to stdout.
    pub(crate) fn check_name(path: &Path) -> Result<(), Failure> {
        if path == Path::new("-") {
            return Err(misuse("-o -: a recording cannot be written to stdout")
                .hint("use -o PATH; perfquet-convert PATH --to FORMAT writes to stdout"));
        }
        Ok(())
    }

    /// Checks whether the output can be created.
    pub(crate) fn check(path: &Path, force: bool) -> Result<(), Failure> {
        match path.symlink_metadata() {
            Ok(_) if !force => Err(failed(format!("{} exists", path.display()))
                .hint("use --force to overwrite it, or -o PATH")),
            _ => Ok(()),
        }
    }

    /// Creates the output, with an empty journal.
    pub(crate) fn create(path: &Path, form: Form, force: bool) -> Result<(Output, Journal)> {
        let output = Output::create_folders(path, form, force)?;
        let path = output.journal_path();
        match Journal::create(&path) {
            Ok(journal) => Ok((output, journal)),
            Err(error) => {
                match form.format {
                    Format::Pqt => output.discard(),
                    // The file, if there is one, is another's.
                    Format::PerfData => store::put_back(&output.path),
                }
                Err(error).with_context(|| format!("cannot create {}", path.display()))
            }
        }
    }

    /// Creates the output without the journal of a recording in progress.
    pub(crate) fn create_folders(path: &Path, form: Form, force: bool) -> Result<Output> {
        set_aside(path, form.format, force)?;
        let output = Output {
            path: path.to_owned(),
            form,
        };
        if form.format == Format::Pqt {
            let folder = path.join(store::JOURNAL);
            for folder in [path, &folder] {
                if let Err(error) = private_folder(folder) {
                    // The outer directory, if there is one, is another's.
                    match folder == path {
                        true => store::put_back(path),
                        false => output.discard(),
                    }
                    return Err(error)
                        .with_context(|| format!("cannot create {}", folder.display()));
                }
            }
        }
        Ok(output)
    }

    /// Moves a recording that was received from another host to its path.
    pub(crate) fn adopt(received: &Path, path: &Path, form: Form, force: bool) -> Result<()> {
        set_aside(path, form.format, force)?;
        if let Err(error) = fs::rename(received, path) {
            store::put_back(path);
            return Err(error).with_context(|| format!("cannot create {}", path.display()));
        }
        let path = path.to_owned();
        Output { path, form }.complete(true)
    }

    /// Returns the path of the journal.
    pub(crate) fn journal_path(&self) -> PathBuf {
        match self.form.format {
            Format::Pqt => self.path.join(store::JOURNAL).join("perf.data"),
            Format::PerfData => self.path.clone(),
        }
    }

    /// Returns the path of the output.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Completes the output: removes the previous one, and the journal unless it is kept.
    pub(crate) fn complete(&self, keeps_journal: bool) -> Result<()> {
        if self.form.format == Format::Pqt && !keeps_journal {
            let journal = self.path.join(store::JOURNAL);
            fs::remove_dir_all(&journal)
                .with_context(|| format!("cannot remove {}", journal.display()))?;
        }
        store::remove_set_aside(&self.path)?;
        if let Some(mode) = self.form.mode {
            permit(&self.path, mode)
                .with_context(|| format!("cannot set the mode of {}", self.path.display()))?;
        }
        self.give_to_caller();
        Ok(())
    }

    /// Removes the output, because nothing was recorded, and restores the previous one.
    pub(crate) fn discard(&self) {
        let removed = match self.form.format {
            Format::Pqt => store::remove_trace(&self.path).map_err(anyhow::Error::from),
            Format::PerfData => fs::remove_file(&self.path).map_err(anyhow::Error::from),
        };
        match removed {
            Ok(()) => store::put_back(&self.path),
            Err(error) => log::warn!("cannot remove {}: {error}", self.path.display()),
        }
    }

    /// Removes a temporary output that is no longer needed.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            log::warn!("{} cannot be removed: {error}", self.path.display());
        }
        if let Err(error) = store::remove_set_aside(&self.path) {
            log::warn!("{error}");
        }
    }

    /// Gives a trace recorded with sudo to the calling user.
    pub(crate) fn give_to_caller(&self) {
        if let Some((user, group)) = host::sudo_caller()
            && let Err(error) = give(&self.path, user, group)
        {
            log::warn!(
                "cannot give {} to the user who ran sudo: {error}",
                self.path.display()
            );
        }
    }
}

/// Sets aside an existing `path` with `force`; fails without it.
fn set_aside(path: &Path, format: Format, force: bool) -> Result<()> {
    store::complete_overwriting(path)?;
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    Output::check(path, force)?;
    match format {
        Format::Pqt => store::set_aside(path)?,
        Format::PerfData => store::set_file_aside(path)?,
    }
    Ok(())
}

/// Creates a directory that only the owner can access, because traces contain secrets.
fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Sets the permissions of a tree; directories get the search bit where the read bit is set. The outer directory comes
/// last: until then nobody else can place a link inside.
fn permit(path: &Path, mode: u32) -> io::Result<()> {
    let mut own = mode;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            permit(&entry?.path(), mode)?;
        }
        own |= (mode & 0o444) >> 2;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(own))
}

/// Changes the owner of a tree. Until then only root can access it, so nobody can place a link inside; links are not
/// followed.
fn give(path: &Path, user: u32, group: u32) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user, group)?;
        }
    }
    lchown(path, Some(user), Some(group))
}

/// Parses permissions in octal. The owner keeps read and write access; otherwise nobody could read or remove the trace.
pub(crate) fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| mode & !0o666 == 0 && mode & 0o600 == 0o600)
        .ok_or_else(|| "expected permissions to read and write, such as 0640 or 644".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private(format: Format) -> Form {
        Form { format, mode: None }
    }

    fn mode_of(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_recording_is_not_written_to_stdout() {
        let failure = Output::check_name(Path::new("-")).unwrap_err();
        assert!(failure.to_string().starts_with("-o -: "));
        assert!(Output::check_name(Path::new("./-")).is_ok());
    }

    #[test]
    fn a_recording_is_private_until_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pqt");
        let form = Form {
            format: Format::Pqt,
            mode: Some(0o644),
        };
        let (output, _) = Output::create(&path, form, false).unwrap();
        assert_eq!(mode_of(&path), 0o700);
        assert_eq!(mode_of(&output.journal_path()), 0o600);
        output.complete(true).unwrap();
        assert_eq!(mode_of(&path), 0o755);
        assert_eq!(mode_of(&output.journal_path()), 0o644);
    }

    #[test]
    fn existing_output_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        for format in [Format::Pqt, Format::PerfData] {
            let path = folder.path().join(format!("{format:?}"));
            let form = private(format);
            let (first, _) = Output::create(&path, form, false).unwrap();
            let error = Output::create(&path, form, false).err().unwrap();
            assert!(error.to_string().ends_with("exists"), "{error}");
            let (second, mut journal) = Output::create(&path, form, true).unwrap();
            journal.append(b"new").unwrap();
            let entries = || fs::read_dir(folder.path()).unwrap().count();
            let before = entries();
            second.complete(true).unwrap();
            assert_eq!(entries(), before - 1, "the older one is gone");
            assert_eq!(fs::read(first.journal_path()).unwrap(), b"new");
            second.complete(false).unwrap();
        }
    }

    #[test]
    fn other_files_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("home");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("letter"), "dear").unwrap();
        for format in [Format::Pqt, Format::PerfData] {
            assert!(Output::create(&path, private(format), true).is_err());
        }
        assert!(path.join("letter").exists());
    }

    #[test]
    fn discarding_restores_the_old_output() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        fs::write(&path, "old").unwrap();
        let (output, _) = Output::create(&path, private(Format::PerfData), true).unwrap();
        output.discard();
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
}
