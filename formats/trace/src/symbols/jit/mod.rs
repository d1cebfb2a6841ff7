//! Names of generated code: the lists that runtimes write for perf, and jitdump.
//!
//! ```text
//! /tmp/perf-4711.map    7f2c4a3b1000 1a4 LazyCompile:~parse /srv/app.js:12      (hexadecimal start and length)
//! …/jit-4711.dump       the code itself, with times, names and lines ([`dump`])
//! ```
//! Like perf (tools/perf/util/map.c, `map__new`), [`module_of`] names memory that contains code but has no file after
//! such a list. Later lines of a list take precedence, because memory is reused.

mod dump;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::demangle::demangle;
use super::roots::Roots;
use super::{FirstMapped, Name, Options, Origin};

use dump::Dump;
pub(crate) use dump::{Change, Follower};

/// Larger than any known list; a file may be hostile.
const FILE_MAX: u64 = 1 << 30;

/// The module of a process's generated code.
pub(crate) fn module_of(pid: i32) -> String {
    format!("/tmp/perf-{pid}.map")
}

/// The process of a module of generated code.
pub(super) fn pid_of(module: &str) -> Option<i32> {
    number_in(module.strip_prefix("/tmp/")?, "perf-", ".map")
}

/// Whether a module is generated code, whose names are in files that its process writes.
pub(crate) fn is_generated(module: &str) -> bool {
    pid_of(module).is_some() || is_dump(module)
}

/// Whether a path is that of a jitdump. (tools/perf/util/jitdump.c, `jit_detect`)
pub(crate) fn is_dump(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    number_in(file, "jit-", ".dump").is_some()
}

fn number_in(text: &str, before: &str, after: &str) -> Option<i32> {
    let digits = text.strip_prefix(before)?.strip_suffix(after)?;
    digits.parse().ok().filter(|&pid| pid > 0)
}

/// The files read so far.
pub(super) struct Generated {
    places: Places,
    lists: HashMap<i32, Result<List, String>>,
    dumps: HashMap<String, Result<Dump, String>>,
    /// The dump of a process, if it maps one.
    dump_of: HashMap<i32, String>,
}

/// Possible locations of such files.
struct Places {
    directories: Vec<PathBuf>,
    roots: Roots,
    system: bool,
    origin: Origin,
}

impl Generated {
    pub(super) fn new(options: &Options, origin: Origin) -> Generated {
        Generated {
            places: Places {
                directories: options.directories.clone(),
                roots: options.roots.clone(),
                system: options.system,
                origin,
            },
            lists: HashMap::new(),
            dumps: HashMap::new(),
            dump_of: HashMap::new(),
        }
    }

    /// Records where a process wrote its code.
    pub(super) fn add_dump(&mut self, pid: i32, path: &str) {
        self.dump_of.insert(pid, path.to_owned());
    }

    /// Forgets the files, which are read again when they are needed: they grow.
    pub(super) fn forget(&mut self) {
        self.lists.clear();
        self.dumps.clear();
    }

    /// The function at `code` of a process; its offset is relative to `address`. The first code without a file was
    /// mapped at `first_mapped`.
    pub(super) fn at(
        &mut self,
        pid: i32,
        code: u64,
        address: u64,
        first_mapped: FirstMapped,
    ) -> Result<Name, String> {
        let places = &self.places;
        let list = self.lists.entry(pid).or_insert_with(|| {
            let (path, text) = places.read_list(pid, first_mapped)?;
            let list = List::parse(text);
            if list.bad_lines > 0 {
                log::info!(
                    "{}: {} lines without a name",
                    path.display(),
                    list.bad_lines
                );
            }
            Ok(list)
        });
        if let Ok(list) = list
            && let Some((start, name)) = list.at(code)
        {
            return Ok(Name::of(demangle(name), address.wrapping_sub(start)));
        }
        let reason = match list {
            Ok(_) => "no name at the address".to_owned(),
            Err(reason) => reason.clone(),
        };
        let Some(path) = self.dump_of.get(&pid).cloned() else {
            return Err(reason);
        };
        let dump = self.dump(&path)?;
        dump.name_at(code, address).ok_or(reason)
    }

    /// The function at an offset of a jitdump's file.
    pub(super) fn in_dump(&mut self, module: &str, code: u64, offset: u64) -> Result<Name, String> {
        let dump = self.dump(module)?;
        dump.name(code, offset)
            .ok_or_else(|| "no code at the offset".to_owned())
    }

    fn dump(&mut self, module: &str) -> Result<&mut Dump, String> {
        let places = &self.places;
        let dump = self
            .dumps
            .entry(module.to_owned())
            .or_insert_with(|| first(places.of_dump(Path::new(module)), Dump::open));
        dump.as_mut().map_err(|reason| reason.clone())
    }
}

impl Places {
    /// The first list that exists. One below a given directory is trusted.
    fn read_list(&self, pid: i32, first_mapped: FirstMapped) -> Result<(PathBuf, Vec<u8>), String> {
        first(self.of_list(pid), |candidate| {
            let file = open(candidate)?;
            let is_given = |directory| candidate.starts_with(directory);
            if !self.directories.iter().any(is_given)
                && let Some(reason) = self.origin.is_other_list(&file.metadata()?, first_mapped)
            {
                return Err(io::Error::other(reason));
            }
            let mut text = Vec::new();
            file.take(FILE_MAX).read_to_end(&mut text)?;
            Ok((candidate.to_owned(), text))
        })
    }

    fn of_list(&self, pid: i32) -> Vec<PathBuf> {
        let name = format!("perf-{pid}.map");
        let mut candidates = Vec::new();
        for directory in &self.directories {
            candidates.push(directory.join(&name));
            candidates.push(directory.join("tmp").join(&name));
        }
        if let Some((root, inside)) = self.roots.of(pid) {
            candidates.push(root.join("tmp").join(format!("perf-{inside}.map")));
        }
        if self.system {
            candidates.push(Path::new("/tmp").join(name));
        }
        candidates
    }

    fn of_dump(&self, path: &Path) -> Vec<PathBuf> {
        let below = super::files::relative(path);
        let mut candidates = Vec::new();
        for directory in &self.directories {
            candidates.extend(below.as_ref().map(|below| directory.join(below)));
            candidates.extend(path.file_name().map(|name| directory.join(name)));
        }
        if self.system {
            candidates.push(path.to_owned());
        }
        let roots = self.roots.all().into_iter();
        candidates.extend(roots.filter_map(|root| Some(root.join(below.as_ref()?))));
        candidates
    }
}

/// Opens the first readable file; otherwise returns the obstacle.
fn first<T>(candidates: Vec<PathBuf>, open: impl Fn(&Path) -> io::Result<T>) -> Result<T, String> {
    let mut reason = "no file found".to_owned();
    for candidate in candidates {
        match open(&candidate) {
            Ok(opened) => return Ok(opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => reason = format!("{}: {error}", candidate.display()),
        }
    }
    Err(reason)
}

/// Opens a regular file that may be hostile. Links are not followed: `/tmp` is world-writable.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path)?;
    if !file.metadata()?.is_file() {
        let message = "not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(file)
}

/// A list of names: by start, with the end and the name's range in the text.
struct List {
    functions: BTreeMap<u64, (u64, (usize, usize))>,
    text: Vec<u8>,
    bad_lines: u64,
}

impl List {
    fn parse(text: Vec<u8>) -> List {
        let mut functions = BTreeMap::new();
        let mut bad_lines = 0;
        let mut at = 0;
        for line in text.split(|&byte| byte == b'\n') {
            match parse_line(line) {
                Some((start, end, name_at)) => {
                    make_room(&mut functions, start, end);
                    functions.insert(start, (end, (at + name_at, at + line.len())));
                }
                None if line.is_empty() => {}
                None => bad_lines += 1,
            }
            at += line.len() + 1;
        }
        List {
            functions,
            text,
            bad_lines,
        }
    }

    fn at(&self, address: u64) -> Option<(u64, &[u8])> {
        let (&start, &(end, (from, to))) = self.functions.range(..=address).next_back()?;
        let name = self.text.get(from..to)?;
        (address < end).then(|| (start, name.trim_ascii_end()))
    }
}

/// Removes overlapping functions: their memory was reused.
fn make_room<T>(functions: &mut BTreeMap<u64, (u64, T)>, start: u64, end: u64) {
    while let Some((&old, &(old_end, _))) = functions.range(..end).next_back()
        && old_end > start
    {
        functions.remove(&old);
    }
}

/// `START LENGTH NAME`, hexadecimal; some runtimes add 0x; the name may contain spaces.
fn parse_line(line: &[u8]) -> Option<(u64, u64, usize)> {
    let number = |from: usize| {
        let rest = line.get(from..)?;
        let length = rest.iter().position(|&byte| byte == b' ')?;
        let digits = str::from_utf8(rest.get(..length)?).ok()?;
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        // Reject a sign, which from_str_radix would accept.
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(digits, 16).ok()?;
        is_plain.then_some((number, from + length + 1))
    };
    let (start, after) = number(0)?;
    let (length, name_at) = number(after)?;
    let has_name = line
        .get(name_at..)
        .is_some_and(|name| !name.trim_ascii().is_empty());
    let end = start.checked_add(length.max(1))?;
    has_name.then_some((start, end, name_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(list: &List, address: u64) -> Option<(u64, String)> {
        let (start, name) = list.at(address)?;
        Some((start, String::from_utf8_lossy(name).into_owned()))
    }

    #[test]
    fn lists() {
        let text = b"1000 10 first one\n0x2000 0x20 second\r\nnonsense\n\n1008 4 again\n\
            3000 10\n-5 3 sign\nffffffffffffffff 5 beyond\n4000 0 without length\n1f0";
        let list = List::parse(text.to_vec());
        assert_eq!(list.bad_lines, 5);
        // The later line replaced the first.
        assert_eq!(at(&list, 0x1000), None);
        assert_eq!(at(&list, 0x1008), Some((0x1008, "again".into())));
        assert_eq!(at(&list, 0x201f), Some((0x2000, "second".into())));
        assert_eq!(at(&list, 0x2020), None);
        assert_eq!(at(&list, 0x4000), Some((0x4000, "without length".into())));
    }

    #[test]
    fn names_of_files() {
        assert_eq!(pid_of("/tmp/perf-12.map"), Some(12));
        assert_eq!(pid_of(&module_of(7)), Some(7));
        for other in [
            "/tmp/perf-.map",
            "/tmp/perf--1.map",
            "/var/perf-1.map",
            "perf-1.map",
        ] {
            assert_eq!(pid_of(other), None, "{other}");
        }
        assert!(is_dump("/home/u/.debug/jit/java-x/jit-12.dump"));
        assert!(!is_dump("/tmp/jit-12.so"));
    }
}
