//! Finds the file of a module, and the file with its debugging information.
//!
//! ```text
//! /usr/bin/dd, build id 1a2b…    DIR/.build-id/1a/2b…, DIR/usr/bin/dd, DIR/dd      (--symbols DIR, in their order)
//!                                any file below DIR with that build id
//!                                /usr/bin/dd                                        the recorded path
//!                                /usr/lib/debug/.build-id/1a/2b…[.debug]            debug packages
//!                                ~/.debug/.build-id/1a/2b…/elf                      perf's cache
//!                                ~/.cache/debuginfod_client/1a2b…/executable, …/debuginfo
//! ```
//! A file whose build id is not the recorded one is another program: it is told, never used. Paths come from a trace
//! of anybody: they are opened for reading only, and only regular files.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::Options;
use super::build_id::{self, hex};
use super::elf::{Bad, Content, Elf};
use super::roots::Roots;

/// What the kernel calls the code that it maps into every process.
const VDSO: &str = "[vdso]";
/// Behind the path of a file that was removed while it was mapped.
const DELETED: &str = " (deleted)";

/// Somebody may give `/` as directory of symbols.
const INDEXED_MAX: u32 = 20_000;
const INDEXED_DEPTH_MAX: u32 = 8;

/// A module's file.
#[derive(Clone)]
pub(super) struct Found {
    /// What was mapped, or at least a file with its segments.
    pub(super) image: Arc<Elf>,
    /// Where it was found; `None` for what is no file.
    pub(super) path: Option<PathBuf>,
    /// The file with its symbol table and debugging information, if that is another one.
    pub(super) debug: Option<(Arc<Elf>, PathBuf)>,
}

/// Why there is no file for a module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Missing {
    /// It is no file: anonymous memory, a stack, generated code.
    NoFile,
    /// Nothing was found under its path or build id.
    NotFound,
    /// Files were found, with other build ids; the last of them.
    OtherBuildId(String),
    /// A file was found that could not be read as ELF.
    Unreadable(String),
    /// Only its debugging information was found; without the program's segments, offsets say nothing.
    DebugOnly,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::NoFile => f.write_str("no file is behind it"),
            Missing::NotFound => f.write_str("no file found"),
            Missing::OtherBuildId(what) => write!(f, "its build id differs, {what}"),
            Missing::Unreadable(what) => write!(f, "cannot be read, {what}"),
            Missing::DebugOnly => f.write_str("only its debugging information was found"),
        }
    }
}

/// Path and build id of a module, as recorded.
pub(super) type ModuleKey = (String, Option<Vec<u8>>);

/// Where to look, and what was found already.
pub(super) struct Files {
    directories: Vec<PathBuf>,
    roots: Roots,
    system: bool,
    home: Option<PathBuf>,
    /// Build ids of the files below the directories, made when nothing else helped.
    by_build_id: OnceCell<HashMap<Vec<u8>, Vec<PathBuf>>>,
    found: HashMap<ModuleKey, Result<Found, Missing>>,
}

impl Files {
    /// Looks where the options say.
    pub(super) fn new(options: &Options) -> Files {
        Files {
            directories: options.directories.clone(),
            roots: options.roots.clone(),
            system: options.system,
            home: std::env::var_os("HOME").map(PathBuf::from),
            by_build_id: OnceCell::new(),
            found: HashMap::new(),
        }
    }

    /// The file of a module.
    pub(super) fn find(&mut self, path: &str, build_id: Option<&[u8]>) -> Result<Found, Missing> {
        let key = (path.to_owned(), build_id.map(<[u8]>::to_vec));
        if let Some(found) = self.found.get(&key) {
            return found.clone();
        }
        let found = self.search(path, build_id);
        self.found.insert(key, found.clone());
        found
    }

    fn search(&self, path: &str, build_id: Option<&[u8]>) -> Result<Found, Missing> {
        if path == VDSO {
            return self.vdso(build_id);
        }
        let path = path.strip_suffix(DELETED).unwrap_or(path);
        if !path.starts_with('/') || path.starts_with("//") || path.starts_with("/dev/zero") {
            return Err(Missing::NoFile);
        }
        let path = Path::new(path);
        let mut reason = Missing::NotFound;
        let elsewhere = || self.with_build_id(build_id);
        let candidates = self.images(path, build_id).into_iter();
        for candidate in candidates.chain(std::iter::once_with(elsewhere).flatten()) {
            match open(&candidate, build_id) {
                Ok(elf) if elf.holds_code() => {
                    let debug = self.debug_file(&elf, &candidate);
                    return Ok(Found {
                        image: Arc::new(elf),
                        path: Some(candidate),
                        debug,
                    });
                }
                Ok(_) => reason = Missing::DebugOnly,
                // Of several reasons the one that says most.
                Err(missing @ (Missing::OtherBuildId(_) | Missing::Unreadable(_)))
                    if reason == Missing::NotFound =>
                {
                    reason = missing;
                }
                Err(_) => {}
            }
        }
        Err(reason)
    }

    /// Where the file may lie that was mapped.
    fn images(&self, path: &Path, build_id: Option<&[u8]>) -> Vec<PathBuf> {
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
        if self.system {
            candidates.push(path.to_owned());
        }
        let roots = self.roots.all().into_iter();
        candidates.extend(roots.filter_map(|root| Some(root.join(below.as_ref()?))));
        if !self.system {
            return candidates;
        }
        if let (Some((first, rest)), Some(id)) = (&id, build_id) {
            let place = Path::new("/usr/lib/debug/.build-id").join(first);
            candidates.push(place.join(rest));
            candidates.push(place.join(format!("{rest}.debug")));
            if let Some(home) = &self.home {
                let place = home.join(".debug/.build-id").join(first).join(rest);
                candidates.push(place.join("elf"));
            }
            candidates.extend(debuginfod(id, "executable"));
            candidates.extend(debuginfod(id, "debuginfo"));
        }
        candidates
    }

    /// The file with the full symbol table of `image`, if that was moved out of it.
    fn debug_file(&self, image: &Elf, image_path: &Path) -> Option<(Arc<Elf>, PathBuf)> {
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
            let fits = match (build_id, elf.build_id(), link) {
                (Some(wanted), Some(found), _) => build_id::equal(wanted, found),
                (_, _, Some((_, checksum))) => checksum_of(elf.content()) == checksum,
                _ => false,
            };
            if fits && elf.has_symbol_table() && candidate != image_path {
                return Some((Arc::new(elf), candidate));
            }
        }
        None
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
            candidates.extend(debuginfod(build_id, "debuginfo"));
        }
        candidates
    }

    /// Files below the given directories that have a build id, whatever their names.
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

    /// This machine's own, if it is the recorded one.
    fn vdso(&self, build_id: Option<&[u8]>) -> Result<Found, Missing> {
        let wanted = build_id.ok_or(Missing::NotFound)?;
        for directory in &self.directories {
            let Some((first, rest)) = build_id::directory_and_file(wanted) else {
                continue;
            };
            let place = directory.join(".build-id").join(first).join(rest);
            for name in ["vdso", "elf"] {
                if let Ok(image) = open(&place.join(name), build_id) {
                    return Ok(Found {
                        image: Arc::new(image),
                        path: Some(place.join(name)),
                        debug: None,
                    });
                }
            }
        }
        let cached = self.home.as_ref().filter(|_| self.system).and_then(|home| {
            let (first, rest) = build_id::directory_and_file(wanted)?;
            Some(
                home.join(".debug/.build-id")
                    .join(first)
                    .join(rest)
                    .join("vdso"),
            )
        });
        if let Some(path) = cached
            && let Ok(image) = open(&path, build_id)
        {
            return Ok(Found {
                image: Arc::new(image),
                path: Some(path),
                debug: None,
            });
        }
        let own = own_vdso()
            .filter(|_| self.system)
            .ok_or(Missing::NotFound)?;
        match own.build_id() {
            Some(found) if build_id::equal(found, wanted) => Ok(Found {
                image: Arc::new(own),
                path: None,
                debug: None,
            }),
            found => Err(Missing::OtherBuildId(format!(
                "this machine's has build id {}",
                found.map_or("none".into(), hex)
            ))),
        }
    }
}

/// Notes the build ids of the files of a directory and of those below it.
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

/// Opens an ELF file, and holds its build id against the recorded one. (Files recorded without one are taken as
/// they are: nothing tells them apart.)
fn open(path: &Path, build_id: Option<&[u8]>) -> Result<Elf, Missing> {
    let elf = match Elf::open(path) {
        Ok(elf) => elf,
        Err(Bad::Io(error)) => match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                return Err(Missing::Unreadable(format!("{}: {error}", path.display())));
            }
            _ => return Err(Missing::NotFound),
        },
        Err(bad) => return Err(Missing::Unreadable(format!("{}: {bad}", path.display()))),
    };
    match (build_id, elf.build_id()) {
        (None, _) => Ok(elf),
        (Some(wanted), Some(found)) if build_id::equal(wanted, found) => Ok(elf),
        (Some(_), found) => Err(Missing::OtherBuildId(format!(
            "{} has build id {}",
            path.display(),
            found.map_or("none".into(), hex)
        ))),
    }
}

/// In the folder where debuginfod's client keeps what it has fetched (debuginfod_find_debuginfo(3)).
pub(super) fn debuginfod(build_id: &[u8], kind: &str) -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|path| !path.is_empty());
    let place = match (folder("DEBUGINFOD_CACHE_PATH"), folder("XDG_CACHE_HOME")) {
        (Some(place), _) => PathBuf::from(place),
        (None, Some(caches)) => Path::new(&caches).join("debuginfod_client"),
        (None, None) => Path::new(&folder("HOME")?).join(".cache/debuginfod_client"),
    };
    Some(place.join(hex(build_id)).join(kind))
}

/// A path to put below a directory; none if it would lead out of it.
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

/// The checksum of `.gnu_debuglink`: that of gzip.
fn checksum_of(bytes: &[u8]) -> u32 {
    let mut checksum = flate2::Crc::new();
    checksum.update(bytes);
    checksum.sum()
}

/// The vDSO as it is mapped into this process.
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
