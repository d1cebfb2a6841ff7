//! Where a recording goes: a new trace directory with its journal, or a perf.data file.
//!
//! ```text
//! a.pqt/journal/perf.data     while recording; the encoder puts the tables beside journal/
//! a.pqt.old                   with --force: the trace that stood there, until the new one is whole
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use perfquet_formats::store;

use crate::cli::Format;
use crate::failure::{Failure, failed};
use crate::journal::Journal;
use crate::sys::host;

/// An output that is being written.
pub(crate) struct Output {
    path: PathBuf,
    format: Format,
    /// What stood there before.
    old: Option<PathBuf>,
}

impl Output {
    /// Whether it could be made.
    pub(crate) fn check(path: &Path, force: bool) -> Result<(), Failure> {
        match path.symlink_metadata() {
            Ok(_) if !force => Err(failed(format!("{} exists", path.display()))
                .hint("--force overwrites it, -o chooses another name")),
            _ => Ok(()),
        }
    }

    /// Makes it, with an empty journal inside.
    pub(crate) fn create(path: &Path, format: Format, force: bool) -> Result<(Output, Journal)> {
        let old = set_aside(path, format, force)?;
        let output = Output {
            path: path.to_owned(),
            format,
            old,
        };
        let journal = output.journal_path();
        if format == Format::Pqt {
            let folder = path.join(store::JOURNAL);
            for folder in [path, &folder] {
                private_folder(folder)
                    .with_context(|| format!("cannot create {}", folder.display()))?;
            }
        }
        let journal = Journal::create(&journal)
            .with_context(|| format!("cannot create {}", journal.display()))?;
        Ok((output, journal))
    }

    /// Where the journal lies.
    pub(crate) fn journal_path(&self) -> PathBuf {
        match self.format {
            Format::Pqt => self.path.join(store::JOURNAL).join("perf.data"),
            Format::PerfData => self.path.clone(),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It is whole: what stood there before goes, and so does the journal unless it is to be kept.
    pub(crate) fn complete(&self, keeps_journal: bool) -> Result<()> {
        if self.format == Format::Pqt && !keeps_journal {
            let journal = self.path.join(store::JOURNAL);
            fs::remove_dir_all(&journal)
                .with_context(|| format!("cannot remove {}", journal.display()))?;
        }
        if let Some(old) = &self.old {
            let removed = match self.format {
                Format::Pqt => fs::remove_dir_all(old),
                Format::PerfData => fs::remove_file(old),
            };
            removed.with_context(|| format!("cannot remove {}", old.display()))?;
        }
        self.give_to_caller();
        Ok(())
    }

    /// Nothing was recorded: as if we had never been here.
    pub(crate) fn discard(&self) {
        let _ = match self.format {
            Format::Pqt => fs::remove_dir_all(&self.path),
            Format::PerfData => fs::remove_file(&self.path),
        };
        if let Some(old) = &self.old {
            let _ = fs::rename(old, &self.path);
        }
    }

    /// It was needed for another one that is whole now.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            log::warn!("{} cannot be removed: {error}", self.path.display());
        }
        if let Some(old) = &self.old {
            let _ = fs::remove_dir_all(old);
        }
    }

    /// Recorded by sudo, the trace belongs to whoever called it.
    pub(crate) fn give_to_caller(&self) {
        if let Some((user, group)) = host::sudo_caller()
            && let Err(error) = give(&self.path, user, group)
        {
            log::warn!("{} stays root's: {error}", self.path.display());
        }
    }
}

/// With `force` renames what stands at `path`; without it that is an error.
fn set_aside(path: &Path, format: Format, force: bool) -> Result<Option<PathBuf>> {
    let Ok(kind) = path.symlink_metadata() else {
        return Ok(None);
    };
    Output::check(path, force)?;
    if format == Format::Pqt {
        return Ok(Some(store::set_aside(path)?));
    }
    if !kind.is_file() {
        return Err(failed(format!("{} exists and is no file", path.display())).into());
    }
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    fs::rename(path, &old).with_context(|| format!("cannot rename {}", path.display()))?;
    Ok(Some(old.into()))
}

/// Traces hold secrets: nobody else may look in.
fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// The tree below is ours alone until it is given away, so nobody can put a link in between; links are not followed.
fn give(path: &Path, user: u32, group: u32) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user, group)?;
        }
    }
    lchown(path, Some(user), Some(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_exists_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for format in [Format::Pqt, Format::PerfData] {
            let path = folder.path().join(format!("{format:?}"));
            let (first, _) = Output::create(&path, format, false).unwrap();
            let error = Output::create(&path, format, false).err().unwrap();
            assert!(error.to_string().ends_with("exists"), "{error}");
            let (second, mut journal) = Output::create(&path, format, true).unwrap();
            journal.append(b"new").unwrap();
            assert!(second.old.as_ref().is_some_and(|old| old.exists()));
            second.complete(true).unwrap();
            assert!(second.old.as_ref().is_some_and(|old| !old.exists()));
            assert_eq!(fs::read(first.journal_path()).unwrap(), b"new");
            second.complete(false).unwrap_err();
        }
    }

    #[test]
    fn what_is_no_trace_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("home");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("letter"), "dear").unwrap();
        for format in [Format::Pqt, Format::PerfData] {
            assert!(Output::create(&path, format, true).is_err());
        }
        assert!(path.join("letter").exists());
    }

    #[test]
    fn discarding_brings_the_old_one_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        fs::write(&path, "old").unwrap();
        let (output, _) = Output::create(&path, Format::PerfData, true).unwrap();
        output.discard();
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
}
