//! Inputs that are directories: their files, and those in the directories below.
//!
//! ```text
//! d.data/data, data.1, data.2        session/kernel/metadata, session/ust/uid/0/64-bit/metadata
//! ```

use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::{Input, Source};
use crate::Error;
use crate::input::Map;

impl Input {
    /// Lists the files of a directory. The formats know which of them identifies it
    /// ([`Format::main_file`](crate::Format::main_file)).
    pub(super) fn open_directory(path: &Path) -> Result<Input, Error> {
        let mut input = Input::of_source(path.display().to_string(), Source::Directory, Vec::new());
        input.path = Some(path.to_owned());
        for entry in std::fs::read_dir(path).map_err(Error::io(path))? {
            let entry = entry.map_err(Error::io(path))?;
            if let Ok(name) = entry.file_name().into_string()
                && entry.path().is_file()
            {
                input.files.push(name);
            }
        }
        input.files.sort_unstable();
        Ok(input)
    }

    /// Returns the files of this name in a directory and in those below it, with their paths from it, sorted. Links are
    /// not followed. Empty for other inputs.
    pub fn files_below(&self, name: &str) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        if let (Source::Directory, Some(path)) = (&self.source, &self.path) {
            let mut visits = 0;
            below(path, "", 0, &mut visits, name, &mut found)?;
            found.sort_unstable();
        }
        Ok(found)
    }

    /// Returns the names of the files in a directory below, sorted. Links are not followed.
    pub fn files_in(&self, folder: &str) -> Result<Vec<String>, Error> {
        let Some(path) = self.path.as_ref().map(|path| path.join(folder)) else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(Error::io(&path))? {
            let entry = entry.map_err(Error::io(&path))?;
            let kind = entry.file_type().map_err(Error::io(&path))?;
            if let (true, Ok(name)) = (kind.is_file(), entry.file_name().into_string()) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the first bytes of a file in the directory; `None` if there is no such file.
    pub fn head_of(&self, file: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(path) = self.path_of(file) else {
            return Ok(None);
        };
        Ok(Some(Input::open(&path)?.head))
    }

    fn path_of(&self, file: &str) -> Option<PathBuf> {
        let folder = self.path.as_ref()?;
        if let Some(name) = self.files.iter().find(|name| *name == file) {
            return Some(folder.join(name));
        }
        // As [`Input::files_below`] returns them.
        let mut parts = Path::new(file).components();
        let is_below = parts.all(|part| matches!(part, Component::Normal(_)));
        let path = folder.join(file);
        let is_file = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        (is_below && file.contains('/') && is_file).then_some(path)
    }

    /// Makes a file of the directory the source of bytes. The input keeps its name and its list of files.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the directory has no such file.
    pub fn enter(&mut self, file: &str) -> Result<(), Error> {
        let path = self.path_of(file).ok_or_else(|| Error::Unsupported {
            input: self.name.clone(),
            message: format!("expected a file \"{file}\" in this directory"),
        })?;
        let entered = Input::open(&path)?;
        self.source = entered.source;
        self.head = entered.head;
        self.size_bytes = entered.size_bytes;
        Ok(())
    }

    /// Maps a further file of the directory; `None` for an empty file.
    pub fn map_file(&mut self, file: &str) -> Result<Option<Arc<Map>>, Error> {
        let Some(path) = self.path_of(file) else {
            return Ok(None);
        };
        let opened = File::open(&path).map_err(Error::io(&path))?;
        let length = opened.metadata().map_err(Error::io(&path))?.len();
        if length == 0 {
            return Ok(None);
        }
        let map = Arc::new(Map::of(opened).map_err(Error::io(&path))?);
        self.size_bytes = match self.size_bytes {
            None if self.is_directory() => Some(length),
            size => size.map(|bytes| bytes + length),
        };
        self.watch(path.display().to_string(), &map);
        Ok(Some(map))
    }
}

/// Directories below a directory that are searched, and how deep: `archives/CHUNK/ust/uid/0/64-bit` has six levels.
const FOLDERS_MAX: usize = 1 << 16;
const DEPTH_MAX: u32 = 8;

/// Finds the files of a name in `folder` and below it; `prefix` is its path from the first one.
fn below(
    folder: &Path,
    prefix: &str,
    depth: u32,
    visits: &mut usize,
    name: &str,
    found: &mut Vec<String>,
) -> Result<(), Error> {
    *visits += 1;
    if depth > DEPTH_MAX || *visits > FOLDERS_MAX {
        return Ok(());
    }
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        // What cannot be listed below it is not part of the input.
        Err(error) if depth > 0 => {
            log::debug!("{}: {error}", folder.display());
            return Ok(());
        }
        Err(error) => return Err(Error::io(folder)(error)),
    };
    for entry in entries.flatten() {
        let (Ok(kind), Ok(entry_name)) = (entry.file_type(), entry.file_name().into_string())
        else {
            continue;
        };
        if kind.is_file() && entry_name == name {
            found.push(format!("{prefix}{name}"));
        } else if kind.is_dir() {
            let inner = format!("{prefix}{entry_name}/");
            below(&entry.path(), &inner, depth + 1, visits, name, found)?;
        }
    }
    Ok(())
}
