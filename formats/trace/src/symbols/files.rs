//! Finds the file of a module, and the file with its debug info.
//!
//! ```text
//! /usr/bin/dd, build ID 1a2b…    DIR/.build-id/1a/2b…, DIR/usr/bin/dd, DIR/dd      (--symbols DIR, in their order)
//!                                any file below DIR with that build ID
//!                                /usr/bin/dd                                        the recorded path
//!                                /usr/lib/debug/.build-id/1a/2b…[.debug]            debug packages
//!                                ~/.debug/.build-id/1a/2b…/elf                      perf's cache; also has the symbols of a stripped file
//!                                ~/.cache/debuginfod_client/1a2b…/executable, …/debuginfo
//!                                a server, if asked for (`debuginfod.rs`)
//! ```
//! A file with another build ID than the recorded one is another program and is never used. If no build ID was
//! recorded, inode and age decide ([`Origin`]); files below `--symbols` are trusted, but count as unverified. `/bin/a
//! (deleted)` is searched as `/bin/a` by build ID only: the file at that path is most likely its successor. Paths come
//! from foreign traces: they are opened read-only, and only if they are regular files.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::Options;
use super::build_id::{self, hex};
use super::debuginfod::{Debuginfod, Kind, cached};
use super::elf::{Bad, Content, Elf};
use super::limits::{CHECKSUM_BYTES_MAX, CHECKSUMS_BYTES_MAX};
use super::origin::{FileIdentity, FirstMapped, Likeness, Origin};
use super::roots::Roots;

/// The kernel's name for the code that it maps into every process.
const VDSO: &str = "[vdso]";
/// Suffix of the path of a file deleted while mapped.
const DELETED: &str = " (deleted)";

/// Maximum number of files indexed: the user may give `/` as symbol directory.
const INDEXED_MAX: u32 = 20_000;
const INDEXED_DEPTH_MAX: u32 = 8;

/// A module's file.
#[derive(Clone)]
pub(super) struct Found {
    /// The mapped file, or at least a file with its segments.
    pub(super) image: Arc<Elf>,
    /// The file with its symbol table and debug info, if it is a separate one.
    pub(super) debug: Option<Arc<Elf>>,
    /// Whether the file is proven to be the recorded one.
    pub(super) is_verified: bool,
}

impl Found {
    /// Releases the pages of the mapped files until they are next read.
    pub(super) fn release(&self) {
        for file in std::iter::once(&self.image).chain(&self.debug) {
            file.release();
        }
    }
}

/// The reason for a module without a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Missing {
    /// Not a file: anonymous memory, a stack, generated code.
    NoFile,
    /// No file was found by path or build ID.
    NotFound,
    /// Files were found, but with other build IDs; the first of them.
    OtherBuildId(String),
    /// No build ID was recorded, and the file at the path is not, or may not be, the recorded one.
    OtherFile(String),
    /// The file was removed or replaced while mapped, and no other file is proven to be the same.
    Deleted,
    /// The file found is not valid ELF.
    Unreadable(String),
    /// Only its debug info was found; without the program's segments, offsets have no meaning.
    DebugOnly,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::NoFile => f.write_str("it is not a file"),
            Missing::NotFound => f.write_str("no file found"),
            Missing::OtherBuildId(what) => write!(f, "its build id differs, {what}"),
            Missing::OtherFile(what) => f.write_str(what),
            Missing::Deleted => f.write_str("it was removed or replaced while it ran"),
            Missing::Unreadable(what) => write!(f, "cannot be read, {what}"),
            Missing::DebugOnly => f.write_str("only its debugging information was found"),
        }
    }
}

/// A module as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ModuleKey {
    /// The path, or a name in brackets.
    pub(super) path: String,
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) file: Option<FileIdentity>,
    pub(super) first_mapped: FirstMapped,
}

/// The origin of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The mapped file itself, under any name: a process holds it open.
    Held,
    /// Named by the user.
    Given,
    /// The recorded path, or a cache on this host.
    System,
}

/// The search paths, and the files found so far.
pub(super) struct Files {
    directories: Vec<PathBuf>,
    roots: Roots,
    system: bool,
    debuginfod: Option<Debuginfod>,
    /// Whether debug info is wanted beyond the symbol table.
    with_lines: bool,
    home: Option<PathBuf>,
    origin: Origin,
    /// Build IDs of the files below the directories; built when all else fails.
    by_build_id: OnceCell<HashMap<Vec<u8>, Vec<PathBuf>>>,
    found: HashMap<ModuleKey, Result<Found, Missing>>,
    /// Bytes that may still be read to compute checksums.
    checksums_left: Cell<u64>,
    /// Whether only unwind information is needed, at once.
    is_live: bool,
}

impl Files {
    /// Searches in the places given by the options.
    pub(super) fn new(options: &Options, origin: Origin) -> Files {
        Files {
            directories: options.directories.clone(),
            roots: options.roots.clone(),
            system: options.system,
            debuginfod: options.debuginfod.clone(),
            with_lines: options.lines.is_some(),
            home: std::env::var_os("HOME").map(PathBuf::from),
            origin,
            by_build_id: OnceCell::new(),
            found: HashMap::new(),
            checksums_left: Cell::new(CHECKSUMS_BYTES_MAX),
            is_live: false,
        }
    }

    /// Uses no debug file that only a checksum identifies: reading one takes a second per gigabyte.
    pub(super) fn without_checksums(mut self) -> Files {
        self.checksums_left = Cell::new(0);
        self
    }

    /// Searches unwind information alone, for stacks of running processes.
    pub(super) fn set_live(&mut self) {
        self.checksums_left = Cell::new(0);
        self.debuginfod = None;
        self.is_live = true;
    }

    /// Opens a file that no trace refers to.
    pub(super) fn open(&self, path: &Path) -> Result<Found, Missing> {
        let image = open(path)?;
        if !image.holds_code() {
            return Err(Missing::DebugOnly);
        }
        Ok(self.with_debug(image, path, true))
    }

    /// The file of a module.
    pub(super) fn find(&mut self, key: &ModuleKey) -> Result<Found, Missing> {
        if let Some(found) = self.found.get(key) {
            return found.clone();
        }
        let found = self.search(key);
        self.found.insert(key.clone(), found.clone());
        found
    }

    /// Finds the file of a module below the root of a process.
    pub(super) fn find_below(&self, root: &Path, key: &ModuleKey) -> Result<Found, Missing> {
        let below = relative(Path::new(&key.path)).ok_or(Missing::NoFile)?;
        let path = root.join(below);
        let elf = open(&path)?;
        let is_verified = self.judge(&elf, &path, Place::System, key)?;
        match elf.holds_code() {
            true => Ok(self.with_debug(elf, &path, is_verified)),
            false => Err(Missing::DebugOnly),
        }
    }

    /// The file mapped by a running process, by a path that the kernel provides. `None` if the process has ended or another file is
    /// there.
    pub(super) fn find_mapped(&self, path: &Path, file: FileIdentity) -> Option<Found> {
        let image = open(path).ok()?;
        let is_it = file.is_of(&image.file()?.metadata().ok()?);
        (is_it && image.holds_code()).then(|| self.with_debug(image, path, true))
    }

    /// Forgets the files found; they may be found again.
    pub(super) fn forget(&mut self) {
        self.found.retain(|_, found| found.is_err());
    }

    fn search(&self, key: &ModuleKey) -> Result<Found, Missing> {
        let build_id = key.build_id.as_deref();
        let recorded = key.path.as_str();
        if recorded == VDSO {
            return self.vdso(build_id);
        }
        if !recorded.starts_with('/')
            || recorded.starts_with("//")
            || recorded.starts_with("/dev/zero")
        {
            return Err(Missing::NoFile);
        }
        let mut reason = Missing::NotFound;
        let candidates = self.candidates(key).into_iter();
        let elsewhere = || {
            let found = self.with_build_id(build_id).into_iter();
            found.map(|path| (path, Place::Given))
        };
        for (candidate, place) in candidates.chain(std::iter::once_with(elsewhere).flatten()) {
            let judged = open(&candidate).and_then(|elf| {
                let is_verified = self.judge(&elf, &candidate, place, key)?;
                Ok((elf, is_verified))
            });
            match judged {
                Ok((elf, is_verified)) if elf.holds_code() => {
                    return Ok(self.with_debug(elf, &candidate, is_verified));
                }
                Ok(_) => reason = Missing::DebugOnly,
                // Of several reasons, the most informative.
                Err(
                    missing @ (Missing::OtherBuildId(_)
                    | Missing::OtherFile(_)
                    | Missing::Unreadable(_)),
                ) if reason == Missing::NotFound => {
                    reason = missing;
                }
                Err(_) => {}
            }
        }
        if let (Some(debuginfod), Some(id)) = (&self.debuginfod, build_id)
            && let Some(path) = debuginfod.fetch(id, Kind::Executable)
            && let Ok(elf) = open(&path)
        {
            return Ok(self.with_debug(elf, &path, true));
        }
        if reason == Missing::NotFound && recorded.ends_with(DELETED) {
            reason = Missing::Deleted;
        }
        Err(reason)
    }

    fn with_debug(&self, image: Elf, path: &Path, is_verified: bool) -> Found {
        let frames = image.section(b".eh_frame");
        let is_enough = self.is_live && frames.is_some_and(|frames| frames.bytes > 4);
        let debug = match is_enough {
            true => None,
            false => self.debug_file(&image, path).map(Arc::new),
        };
        Found {
            image: Arc::new(image),
            debug,
            is_verified,
        }
    }

    /// Compares a file with the recorded one, and returns whether it is proven to be that. A file with the recorded
    /// build ID is; one with another build ID is another program. Without a recorded build ID, inode and age decide.
    fn judge(
        &self,
        elf: &Elf,
        path: &Path,
        place: Place,
        key: &ModuleKey,
    ) -> Result<bool, Missing> {
        match (&key.build_id, elf.build_id()) {
            (Some(wanted), Some(found)) if build_id::equal(wanted, found) => return Ok(true),
            (Some(_), found) => {
                return Err(Missing::OtherBuildId(format!(
                    "{} has build id {}",
                    path.display(),
                    found.map_or("none".into(), hex)
                )));
            }
            (None, _) => {}
        }
        if place == Place::Held {
            let metadata = elf.file().and_then(|file| file.metadata().ok());
            let is_it = |file: FileIdentity| metadata.is_some_and(|found| file.is_of(&found));
            return match key.file.is_none_or(is_it) {
                true => Ok(true),
                false => Err(Missing::NotFound),
            };
        }
        let Ok(metadata) = std::fs::metadata(path) else {
            return Err(Missing::NotFound);
        };
        let likeness = self.origin.judge(&metadata, key.file, key.first_mapped);
        match (likeness, place) {
            (Likeness::Same, _) => Ok(true),
            (Likeness::Plausible, _) | (Likeness::Other(_), Place::Given) => Ok(false),
            (Likeness::Other(why), Place::System | Place::Held) => Err(Missing::OtherFile(why)),
        }
    }

    /// Possible locations of the mapped file.
    fn candidates(&self, key: &ModuleKey) -> Vec<(PathBuf, Place)> {
        let build_id = key.build_id.as_deref();
        let held = self.roots.held(build_id, key.file);
        let mut candidates: Vec<_> = held.map(|path| (path, Place::Held)).into_iter().collect();
        candidates.extend(self.images(Path::new(&key.path), build_id));
        // Only a build ID shows whether the file is back.
        if let (Some(former), Some(_)) = (key.path.strip_suffix(DELETED), build_id) {
            candidates.extend(self.images(Path::new(former), build_id));
        }
        candidates
    }

    fn images(&self, path: &Path, build_id: Option<&[u8]>) -> Vec<(PathBuf, Place)> {
        let mut candidates = Vec::new();
        let id = build_id.and_then(build_id::directory_and_file);
        let below = relative(path);
        for directory in &self.directories {
            if let Some((first, rest)) = &id {
                let place = directory.join(".build-id").join(first);
                candidates.push(place.join(rest));
                candidates.push(place.join(rest).join("elf"));
                candidates.push(place.join(format!("{rest}.debug")));
            }
            candidates.extend(build_id.map(|id| directory.join(hex(id)).join("executable")));
            candidates.extend(below.as_ref().map(|below| directory.join(below)));
            candidates.extend(path.file_name().map(|name| directory.join(name)));
        }
        let given = candidates.len();
        if self.system {
            candidates.push(path.to_owned());
        }
        let roots = self.roots.all().into_iter();
        candidates.extend(roots.filter_map(|root| Some(root.join(below.as_ref()?))));
        if let (true, Some((first, rest)), Some(build_id)) = (self.system, &id, build_id) {
            let place = Path::new("/usr/lib/debug/.build-id").join(first);
            candidates.push(place.join(rest));
            candidates.push(place.join(format!("{rest}.debug")));
            if let Some(home) = &self.home {
                let place = home.join(".debug/.build-id").join(first).join(rest);
                candidates.push(place.join("elf"));
            }
            candidates.extend(cached(build_id, Kind::Executable));
            candidates.extend(cached(build_id, Kind::DebugInfo));
        }
        let with_place = |(index, path)| match index < given {
            true => (path, Place::Given),
            false => (path, Place::System),
        };
        candidates.into_iter().enumerate().map(with_place).collect()
    }

    /// The file with the full symbol table of `image`, if that was stripped.
    fn debug_file(&self, image: &Elf, image_path: &Path) -> Option<Elf> {
        if image.has_symbol_table() && image.section(b".debug_info").is_some() {
            return None;
        }
        let link = image.debug_link();
        let build_id = image.build_id();
        let elsewhere = || self.with_build_id(build_id);
        let candidates = self.debug_files(build_id, link.map(|(name, _)| name), image_path);
        let candidates = candidates.into_iter();
        for candidate in candidates.chain(std::iter::once_with(elsewhere).flatten()) {
            let Ok(elf) = Elf::open(&candidate) else {
                continue;
            };
            // What costs little first: the link may name any file.
            if candidate == image_path || !elf.has_symbol_table() {
                continue;
            }
            let fits = match (build_id, elf.build_id(), link) {
                (Some(wanted), Some(found), _) => build_id::equal(wanted, found),
                (_, _, Some((_, checksum))) => self.has_checksum(&elf, checksum),
                _ => false,
            };
            if fits {
                return Some(elf);
            }
        }
        if image.has_symbol_table() && !self.with_lines {
            return None;
        }
        let fetched = self
            .debuginfod
            .as_ref()?
            .fetch(build_id?, Kind::DebugInfo)?;
        Elf::open(&fetched).ok()
    }

    /// Whether a file has a checksum, as far as it may be read.
    fn has_checksum(&self, elf: &Elf, checksum: u32) -> bool {
        let bytes = elf.content().len() as u64;
        let left = self.checksums_left.get().checked_sub(bytes);
        let Some(left) = left.filter(|_| bytes <= CHECKSUM_BYTES_MAX) else {
            log::info!("a debug file of {bytes} bytes without a build ID is not used");
            return false;
        };
        self.checksums_left.set(left);
        crc32fast::hash(elf.content()) == checksum
    }

    fn debug_files(
        &self,
        build_id: Option<&[u8]>,
        link: Option<&[u8]>,
        image_path: &Path,
    ) -> Vec<PathBuf> {
        let mut candidates = Vec::new();
        let id = build_id.and_then(build_id::directory_and_file);
        let link = link
            .map(|name| Path::new(OsStr::from_bytes(name)))
            .and_then(Path::file_name);
        let system = PathBuf::from("/usr/lib/debug");
        let places = self
            .directories
            .iter()
            .chain(self.system.then_some(&system));
        for directory in places {
            if let Some((first, rest)) = &id {
                let place = directory.join(".build-id").join(first);
                candidates.push(place.join(format!("{rest}.debug")));
            }
            candidates.extend(build_id.map(|id| directory.join(hex(id)).join("debuginfo")));
            if let Some(link) = link {
                candidates.push(directory.join(link));
                if let Some(below) = image_path.parent().and_then(relative) {
                    candidates.push(directory.join(below).join(link));
                }
            }
        }
        if let (Some(link), Some(parent)) = (link, image_path.parent()) {
            candidates.push(parent.join(link));
            candidates.push(parent.join(".debug").join(link));
        }
        if let (true, Some(home), Some((first, rest)), Some(build_id)) =
            (self.system, &self.home, &id, build_id)
        {
            let place = home.join(".debug/.build-id").join(first).join(rest);
            candidates.push(place.join("debug"));
            candidates.push(place.join("elf"));
            candidates.extend(cached(build_id, Kind::DebugInfo));
        }
        candidates
    }

    /// Files below the given directories with this build ID, whatever their names.
    fn with_build_id(&self, build_id: Option<&[u8]>) -> Vec<PathBuf> {
        let Some(build_id) = build_id.filter(|_| !self.directories.is_empty()) else {
            return Vec::new();
        };
        let index = self.by_build_id.get_or_init(|| {
            let mut index = HashMap::new();
            let mut left = INDEXED_MAX;
            for directory in &self.directories {
                index_directory(directory, 0, &mut left, &mut index);
            }
            index
        });
        let found = index.get(build_id::unpadded(build_id));
        found.cloned().unwrap_or_default()
    }

    /// The recorded vDSO: from a symbol directory, from perf's cache, or this host's own.
    fn vdso(&self, build_id: Option<&[u8]>) -> Result<Found, Missing> {
        let wanted = build_id.ok_or(Missing::NotFound)?;
        let cache = self.home.as_ref().filter(|_| self.system);
        let cache = cache.map(|home| home.join(".debug"));
        let places = self.directories.iter().chain(&cache);
        for directory in places {
            let Some((first, rest)) = build_id::directory_and_file(wanted) else {
                continue;
            };
            let place = directory.join(".build-id").join(first).join(rest);
            for path in [place.join("vdso"), place.join("elf")] {
                let has_id = |image: &Elf| {
                    let found = image.build_id();
                    found.is_some_and(|found| build_id::equal(found, wanted))
                };
                if let Some(image) = open(&path).ok().filter(has_id) {
                    return Ok(Found {
                        image: Arc::new(image),
                        debug: None,
                        is_verified: true,
                    });
                }
            }
        }
        let own = own_vdso()
            .filter(|_| self.system)
            .ok_or(Missing::NotFound)?;
        match own.build_id() {
            Some(found) if build_id::equal(found, wanted) => Ok(Found {
                image: Arc::new(own),
                debug: None,
                is_verified: true,
            }),
            found => Err(Missing::OtherBuildId(format!(
                "this machine's has build id {}",
                found.map_or("none".into(), hex)
            ))),
        }
    }
}

/// Records the build IDs of the files in a directory and its subdirectories.
fn index_directory(
    directory: &Path,
    depth: u32,
    left: &mut u32,
    index: &mut HashMap<Vec<u8>, Vec<PathBuf>>,
) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let mut paths: Vec<_> = entries.flatten().collect();
    paths.sort_by_key(std::fs::DirEntry::file_name);
    for entry in paths {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if *left == 0 {
            return;
        }
        if kind.is_dir() && depth < INDEXED_DEPTH_MAX {
            index_directory(&entry.path(), depth + 1, left, index);
        } else if kind.is_file() {
            *left -= 1;
            if let Ok(elf) = Elf::open(&entry.path())
                && let Some(id) = elf.build_id()
            {
                let id = build_id::unpadded(id).to_vec();
                index.entry(id).or_default().push(entry.path());
            }
        }
    }
}

/// Opens an ELF file.
fn open(path: &Path) -> Result<Elf, Missing> {
    match Elf::open(path) {
        Ok(elf) => Ok(elf),
        Err(Bad::Io(error)) => match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                Err(Missing::Unreadable(format!("{}: {error}", path.display())))
            }
            _ => Err(Missing::NotFound),
        },
        Err(bad) => Err(Missing::Unreadable(format!("{}: {bad}", path.display()))),
    }
}

/// A path to append to a directory; `None` if it would lead out of it.
pub(super) fn relative(path: &Path) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => below.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(below)
}

/// Build ID of the running kernel's vDSO.
pub(crate) fn own_vdso_build_id() -> Option<Vec<u8>> {
    own_vdso()?.build_id().map(<[u8]>::to_vec)
}

/// The vDSO mapped into this process.
fn own_vdso() -> Option<Elf> {
    use std::os::unix::fs::FileExt;
    const VDSO_MAX: u64 = 1 << 20;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with(VDSO))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let length = end
        .checked_sub(start)
        .filter(|length| *length <= VDSO_MAX)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let memory = std::fs::File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    Elf::parse(Content::Owned(bytes)).ok()
}
