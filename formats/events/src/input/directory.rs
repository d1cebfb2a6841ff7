//! Inputs that are directories or archives: their files, and those in the directories below.
//!
//! ```text
//! d.data/data, data.1, data.2        session/kernel/metadata, session/ust/uid/0/64-bit/metadata        either in x.zip
//! ```
//! An archive is a directory whose files are read in place; compressed ones in a temporary file, if a format needs all of their bytes.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Input, Source, Spool};
use crate::Error;
use crate::archive::{self, Archive, Flaw, Member, Method};
use crate::input::Map;

/// Directories below a directory that are searched, and how deep: `archives/CHUNK/ust/uid/0/64-bit` has six levels.
const FOLDERS_MAX: usize = 1 << 16;
const DEPTH_MAX: u32 = 8;

/// Where the files of a directory are.
#[derive(Clone)]
pub(super) enum Tree {
    Folder(PathBuf),
    Archive(Arc<Packed>),
}

/// An archive and the files of it that were decompressed.
pub(super) struct Packed {
    map: Arc<Map>,
    archive: Archive,
    unpacked: Mutex<Option<Spool>>,
}

impl Input {
    /// Lists the files of a directory. The formats know which of them identifies it
    /// ([`Format::main_file`](crate::Format::main_file)).
    pub(super) fn open_directory(path: &Path) -> Result<Input, Error> {
        let mut input = Input::of_source(path.display().to_string(), Source::Directory, Vec::new());
        input.path = Some(path.to_owned());
        input.tree = Some(Tree::Folder(path.to_owned()));
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

    /// Turns an archive (`.tar`, `.zip`, also compressed) into a directory with its files. Other inputs stay what they are.
    ///
    /// # Errors
    /// The archive is compressed, and has more bytes than temporary files may have.
    pub fn open_archive(&mut self) -> Result<(), Error> {
        if self.is_directory() || !archive::is_archive(&self.head) {
            return Ok(());
        }
        let Some(map) = self.whole()? else {
            return Ok(());
        };
        let archive = Archive::of(&map);
        self.flaws = archive.problems().to_vec();
        self.files = archive
            .members()
            .iter()
            .filter(|member| !member.name.contains('/'))
            .map(|member| member.name.clone())
            .collect();
        self.source = Source::Directory;
        self.is_whole_archive = true;
        self.head.clear();
        self.tree = Some(Tree::Archive(Arc::new(Packed {
            map,
            archive,
            unpacked: Mutex::new(None),
        })));
        Ok(())
    }

    /// Whether this is an archive, opened as a directory.
    pub fn is_archive(&self) -> bool {
        matches!(self.tree, Some(Tree::Archive(_)))
    }

    /// Sets the size of the archive of which this input is all that is read.
    pub fn set_archive_bytes(&mut self, bytes: u64) {
        self.size_bytes = Some(bytes);
        self.is_whole_archive = true;
    }

    /// Takes the parts of the archive that cannot be read.
    pub fn take_flaws(&mut self) -> Vec<Flaw> {
        std::mem::take(&mut self.flaws)
    }

    /// Adds parts of an archive that cannot be read, for the reader of this input to report.
    pub fn add_flaws(&mut self, flaws: Vec<Flaw>) {
        self.flaws.extend(flaws);
    }

    /// Returns all files in a directory and below it, with their paths from it, sorted; at most `max`, and whether there are
    /// more. Links are not followed. Empty for other inputs.
    pub fn all_files(&self, max: usize) -> Result<(Vec<String>, bool), Error> {
        let mut found = Vec::new();
        let mut has_more = false;
        self.walk(&mut |name| {
            has_more = found.len() >= max;
            if !has_more {
                found.push(name);
            }
            !has_more
        })?;
        found.sort_unstable();
        Ok((found, has_more))
    }

    /// Returns the files of this name in a directory and in those below it, with their paths from it, sorted. Links are
    /// not followed. Empty for other inputs.
    pub fn files_below(&self, name: &str) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        self.walk(&mut |file| {
            if base_of(&file) == name && self.is_in_part(&file) {
                found.push(file);
            }
            true
        })?;
        found.sort_unstable();
        Ok(found)
    }

    /// Passes all files on, until there are enough.
    fn walk(&self, wants_more: &mut dyn FnMut(String) -> bool) -> Result<(), Error> {
        match (&self.source, &self.tree) {
            (Source::Directory, Some(Tree::Folder(path))) => {
                let mut visits = 0;
                below(path, "", 0, &mut visits, wants_more)?;
            }
            (Source::Directory, Some(Tree::Archive(packed))) => {
                let members = packed.archive.below(&self.prefix);
                let _all = members
                    .filter_map(|member| member.name.strip_prefix(self.prefix.as_str()))
                    .all(|name| wants_more(name.to_owned()));
            }
            _ => {}
        }
        Ok(())
    }

    fn is_in_part(&self, file: &str) -> bool {
        let folder = file.get(..file.len() - base_of(file).len());
        self.part.is_empty()
            || folder.is_some_and(|folder| self.part.iter().any(|part| part == folder))
    }

    /// Returns the names of the files in a directory below, sorted. Links are not followed.
    pub fn files_in(&self, folder: &str) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        match &self.tree {
            None => {}
            Some(Tree::Folder(path)) => {
                let path = path.join(folder);
                for entry in std::fs::read_dir(&path).map_err(Error::io(&path))? {
                    let entry = entry.map_err(Error::io(&path))?;
                    let kind = entry.file_type().map_err(Error::io(&path))?;
                    if let (true, Ok(name)) = (kind.is_file(), entry.file_name().into_string()) {
                        names.push(name);
                    }
                }
            }
            Some(Tree::Archive(packed)) => {
                let folder = format!("{}{folder}", self.prefix);
                let members = packed.archive.below(&folder);
                let names_in = members.filter_map(|member| {
                    let name = member.name.strip_prefix(&folder)?;
                    (!name.contains('/')).then(|| name.to_owned())
                });
                names.extend(names_in);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the first bytes of a file in the directory; `None` if there is no such file.
    pub fn head_of(&self, file: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.member(file)?.map(|input| input.head))
    }

    /// Returns the bytes of a file in the directory as they are stored, perhaps compressed; `None` if it is empty, or there is no such file.
    pub fn stored(&self, file: &str) -> Result<Option<Map>, Error> {
        if self.stored_size(file) == Some(0) {
            return Ok(None);
        }
        if let Some(path) = self.path_of(file) {
            return Map::of_path(&path).map(Some).map_err(Error::io(&path));
        }
        let packed = self.packed(file);
        Ok(packed.map(|(packed, member)| packed.stored(member)))
    }

    /// Returns the size of a file in the directory as it is stored; `None` if there is no such file.
    pub fn stored_size(&self, file: &str) -> Option<u64> {
        match self.path_of(file) {
            Some(path) => std::fs::metadata(path).ok().map(|metadata| metadata.len()),
            None => self
                .packed(file)
                .map(|(_, member)| member.bytes.len() as u64),
        }
    }

    /// Opens a file of the directory as an input; `None` if there is no such file.
    pub fn member(&self, file: &str) -> Result<Option<Input>, Error> {
        if let Some(path) = self.path_of(file) {
            return Ok(Some(Input::open(&path)?));
        }
        let Some((packed, member)) = self.packed(file) else {
            return Ok(None);
        };
        let name = format!("{}/{file}", self.name);
        let stored = packed.stored(member);
        let is_plain = member.method == Method::Stored
            && !stored.is_empty()
            && !super::is_packed(stored.get(..super::HEAD_BYTES).unwrap_or(&stored));
        let mut input = match is_plain {
            true => Input::from_map(name, stored),
            false => {
                let reader = member.read(packed.stored(member));
                Input::unpacked(&name, reader.map_err(Error::io(&name))?)?
            }
        };
        if is_plain && let Some(message) = packed.damage(member) {
            let offset = member.bytes.start as u64;
            input.flaws.push(Flaw { offset, message });
        }
        input.size_bytes = Some(member.bytes.len() as u64);
        input.container = self.container().map(Path::to_owned);
        input.temporary_bytes_max = self.temporary_bytes_max;
        input.script.clone_from(&self.script);
        Ok(Some(input))
    }

    /// Returns a directory below as an input; its name ends with `/`.
    pub fn below(&self, folder: &str) -> Result<Input, Error> {
        let name = match folder {
            "" => self.name.clone(),
            folder => format!("{}/{}", self.name, folder.trim_end_matches('/')),
        };
        match &self.tree {
            Some(Tree::Folder(path)) if !folder.is_empty() => {
                Ok(Input::open_directory(&path.join(folder))?.like(self))
            }
            Some(tree) => {
                let mut input = Input::of_source(name, Source::Directory, Vec::new()).like(self);
                input.prefix = format!("{}{folder}", self.prefix);
                input.tree = Some(tree.clone());
                input.files = input.files_in("")?;
                Ok(input)
            }
            None => Err(Error::Unsupported {
                input: self.name.clone(),
                message: "expected a directory".to_owned(),
            }),
        }
    }

    /// Returns some of the directories below as one input; their names end with `/`.
    pub fn of_folders(&self, folders: Vec<String>) -> Input {
        let source = Source::Directory;
        let mut input = Input::of_source(self.name.clone(), source, Vec::new()).like(self);
        input.path.clone_from(&self.path);
        input.tree.clone_from(&self.tree);
        input.prefix.clone_from(&self.prefix);
        input.files.clone_from(&self.files);
        input.part = folders;
        input
    }

    fn like(mut self, other: &Input) -> Input {
        self.container = other.container().map(Path::to_owned);
        self.script.clone_from(&other.script);
        self.temporary_bytes_max = other.temporary_bytes_max;
        self
    }

    fn packed(&self, file: &str) -> Option<(&Arc<Packed>, &Member)> {
        let Some(Tree::Archive(packed)) = &self.tree else {
            return None;
        };
        let member = match self.prefix.as_str() {
            "" => packed.archive.member(file),
            prefix => packed.archive.member(&format!("{prefix}{file}")),
        };
        Some((packed, member?))
    }

    fn path_of(&self, file: &str) -> Option<PathBuf> {
        let Some(Tree::Folder(folder)) = &self.tree else {
            return None;
        };
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
        let entered = self.member(file)?.ok_or_else(|| Error::Unsupported {
            input: self.name.clone(),
            message: format!("expected a file \"{file}\" in this directory"),
        })?;
        self.source = entered.source;
        self.head = entered.head;
        if !self.is_whole_archive {
            self.size_bytes = entered.size_bytes;
        }
        self.damage = entered.damage;
        self.flaws.extend(entered.flaws);
        Ok(())
    }

    /// Maps a further file of the directory; `None` for an empty file.
    pub fn map_file(&mut self, file: &str) -> Result<Option<Arc<Map>>, Error> {
        if let Some((packed, member)) = self.packed(file) {
            let (packed, member) = (Arc::clone(packed), member.clone());
            return self.map_member(&packed, &member);
        }
        let Some(path) = self.path_of(file) else {
            return Ok(None);
        };
        let length = std::fs::metadata(&path).map_err(Error::io(&path))?.len();
        if length == 0 {
            return Ok(None);
        }
        let map = Arc::new(Map::of_path(&path).map_err(Error::io(&path))?);
        self.add_size(length);
        self.watch(path.display().to_string(), &map);
        Ok(Some(map))
    }

    fn add_size(&mut self, length: u64) {
        self.size_bytes = match self.size_bytes {
            None if self.is_directory() => Some(length),
            size => size.map(|bytes| bytes + length),
        };
    }

    /// Maps a file of an archive. What precedes damage is kept.
    fn map_member(&mut self, packed: &Packed, member: &Member) -> Result<Option<Arc<Map>>, Error> {
        if !self.is_whole_archive {
            self.add_size(member.bytes.len() as u64);
        }
        let damage = |message: String| Flaw {
            offset: member.bytes.start as u64,
            message: format!("{:?}: {message}", member.name),
        };
        if member.method == Method::Stored {
            let map = packed.stored(member);
            if let Some(reason) = packed.damage(member) {
                self.flaws.push(damage(reason));
            }
            return Ok((!map.is_empty()).then(|| Arc::new(map)));
        }
        let reader = member.read(packed.stored(member));
        let mut reader = reader.map_err(Error::io(&self.name))?;
        let mut unpacked = packed
            .unpacked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let spool = match &mut *unpacked {
            Some(spool) => spool,
            none => none.insert(Spool::new(self.temporary_bytes_max)?),
        };
        let start = spool.size_bytes();
        loop {
            match reader.fill_buf() {
                Ok([]) => break,
                Ok(bytes) => {
                    let count = bytes.len();
                    spool.append(bytes)?;
                    reader.consume(count);
                }
                Err(error) => {
                    self.flaws.push(damage(error.to_string()));
                    break;
                }
            }
        }
        let range = start..spool.size_bytes();
        if range.is_empty() {
            return Ok(None);
        }
        let map = Map::of_unnamed(&spool.file, range);
        Ok(Some(Arc::new(
            map.map_err(Error::io(std::env::temp_dir()))?,
        )))
    }
}

impl Packed {
    /// The bytes of a file in the archive.
    fn stored(&self, member: &Member) -> Map {
        Map::part(&self.map, member.bytes.clone())
    }

    /// Compares a stored file with its checksum.
    fn damage(&self, member: &Member) -> Option<String> {
        member.check?;
        let mut reader = member.read(self.stored(member)).ok()?;
        std::io::copy(&mut reader, &mut std::io::sink())
            .err()
            .map(|error| error.to_string())
    }
}

fn base_of(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Finds the files in `folder` and below it; `prefix` is its path from the first one. Returns whether more are wanted.
fn below(
    folder: &Path,
    prefix: &str,
    depth: u32,
    visits: &mut usize,
    wants_more: &mut dyn FnMut(String) -> bool,
) -> Result<bool, Error> {
    *visits += 1;
    if depth > DEPTH_MAX || *visits > FOLDERS_MAX {
        return Ok(true);
    }
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        // What cannot be listed below it is not part of the input.
        Err(error) if depth > 0 => {
            log::debug!("{}: {error}", folder.display());
            return Ok(true);
        }
        Err(error) => return Err(Error::io(folder)(error)),
    };
    for entry in entries.flatten() {
        let (Ok(kind), Ok(entry_name)) = (entry.file_type(), entry.file_name().into_string())
        else {
            continue;
        };
        let goes_on = if kind.is_file() {
            wants_more(format!("{prefix}{entry_name}"))
        } else if kind.is_dir() {
            let inner = format!("{prefix}{entry_name}/");
            below(&entry.path(), &inner, depth + 1, visits, wants_more)?
        } else {
            true
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}
