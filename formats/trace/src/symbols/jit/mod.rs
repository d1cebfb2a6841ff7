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
use std::io;
use std::path::{Path, PathBuf};

use perfquet_events::input::{Map, open_regular_without_links};

use super::demangle::demangle;
use super::elf::{Content, Part};
use super::limits::{MAP_BYTES_MAX, MAP_FUNCTIONS_MAX, MAPS_BYTES_MAX};
use super::roots::Roots;
use super::{FirstMapped, Name, Options, Origin};

use dump::Dump;
pub(crate) use dump::{Change, DumpedCode, Follower};

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
    /// Functions in these lists.
    list_functions: u64,
    /// Bytes of lists that may still be read.
    list_bytes_left: u64,
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
            list_functions: 0,
            list_bytes_left: MAPS_BYTES_MAX,
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
        self.forget_lists();
        // The limit is one of a reading: a list that is read again is not another one.
        self.list_bytes_left = MAPS_BYTES_MAX;
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
        self.load_list(pid, first_mapped);
        let missing = Err(String::new());
        let list = self.lists.get(&pid).unwrap_or(&missing);
        if let Ok(list) = list
            && let Some((start, _, name)) = list.at(code)
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

    /// Start and end of the function at an address of a process.
    pub(super) fn range_at(
        &mut self,
        pid: i32,
        address: u64,
        first_mapped: FirstMapped,
    ) -> Option<(u64, u64)> {
        self.load_list(pid, first_mapped);
        if let Some(Ok(list)) = self.lists.get(&pid)
            && let Some((start, end, _)) = list.at(address)
        {
            return Some((start, end));
        }
        let path = self.dump_of.get(&pid)?.clone();
        self.dump(&path).ok()?.range_at(address)
    }

    /// The function at an offset of a jitdump's file, with its code.
    pub(super) fn code_in_dump(&mut self, module: &str, offset: u64) -> Option<DumpedCode> {
        self.dump(module).ok()?.code(offset)
    }

    fn load_list(&mut self, pid: i32, first_mapped: FirstMapped) {
        if !self.lists.contains_key(&pid) {
            let list = self.read_list(pid, first_mapped);
            self.lists.insert(pid, list);
        }
    }

    /// Reads the list of a process; the lists of others are released if they are too long.
    fn read_list(&mut self, pid: i32, first_mapped: FirstMapped) -> Result<List, String> {
        let (path, text) = self.places.map_list(pid, first_mapped)?;
        let bytes = (text.len() as u64).min(MAP_BYTES_MAX);
        let Some(left) = self.list_bytes_left.checked_sub(bytes) else {
            return Err("perf maps of other processes are too long".to_owned());
        };
        self.list_bytes_left = left;
        let list = List::parse(Part::whole(text));
        if list.bad_lines > 0 {
            log::info!(
                "{}: {} lines without a name",
                path.display(),
                list.bad_lines
            );
        }
        if list.is_cut {
            log::warn!("{}: too long; some functions have no names", path.display());
        }
        let functions = list.functions.len() as u64;
        if self.list_functions + functions > MAP_FUNCTIONS_MAX {
            self.forget_lists();
        }
        self.list_functions += functions;
        Ok(list)
    }

    fn forget_lists(&mut self) {
        self.lists.clear();
        self.list_functions = 0;
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
    fn map_list(&self, pid: i32, first_mapped: FirstMapped) -> Result<(PathBuf, Content), String> {
        first(self.of_list(pid), |candidate| {
            let file = open(candidate)?;
            let is_given = |directory| candidate.starts_with(directory);
            if !self.directories.iter().any(is_given)
                && let Some(reason) = self.origin.is_other_list(&file.metadata()?, first_mapped)
            {
                return Err(io::Error::other(reason));
            }
            // Not copied: it may be large, and pages of a file are no memory of the recorder.
            let text = match file.metadata()?.len() {
                0 => Content::Owned(Vec::new()),
                _ => Content::Mapped(Map::of(file)?),
            };
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
    open_regular_without_links(path)
}

/// A list of names.
struct List {
    /// By start.
    functions: BTreeMap<u64, Listed>,
    text: Part,
    bad_lines: u64,
    /// Whether the rest of the list was not read.
    is_cut: bool,
}

/// A function in a list.
#[derive(Clone, Copy)]
struct Listed {
    end: u64,
    /// Of the name, in the text.
    at: u32,
    length: u32,
}

impl HasEnd for Listed {
    fn end(&self) -> u64 {
        self.end
    }
}

impl List {
    fn parse(text: Part) -> List {
        let mut functions = BTreeMap::new();
        let mut bad_lines = 0;
        let mut at = 0;
        let read = text.get(..MAP_BYTES_MAX as usize).unwrap_or(&text);
        let mut is_cut = read.len() < text.len();
        for line in read.split(|&byte| byte == b'\n') {
            match parse_line(line) {
                Some((start, end, name_at)) => {
                    make_room(&mut functions, start, end);
                    if functions.len() as u64 >= MAP_FUNCTIONS_MAX {
                        is_cut = true;
                        break;
                    }
                    // Both fit, as MAP_BYTES_MAX does.
                    let length = line.len() - name_at;
                    let name = Listed {
                        end,
                        at: (at + name_at) as u32,
                        length: length as u32,
                    };
                    functions.insert(start, name);
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
            is_cut,
        }
    }

    /// Start, end and name of the function at an address.
    fn at(&self, address: u64) -> Option<(u64, u64, &[u8])> {
        let (&start, listed) = self.functions.range(..=address).next_back()?;
        let from = listed.at as usize;
        let name = self.text.get(from..from + listed.length as usize)?;
        (address < listed.end).then(|| (start, listed.end, name.trim_ascii_end()))
    }
}

/// What ends at an address.
trait HasEnd {
    fn end(&self) -> u64;
}

impl HasEnd for (u64, u64) {
    fn end(&self) -> u64 {
        self.0
    }
}

/// Removes overlapping functions: their memory was reused.
fn make_room<T: HasEnd>(functions: &mut BTreeMap<u64, T>, start: u64, end: u64) {
    while let Some((&old, found)) = functions.range(..end).next_back()
        && found.end() > start
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
    use crate::symbols::limits::NAME_BYTES_MAX;

    fn at(list: &List, address: u64) -> Option<(u64, String)> {
        let (start, _, name) = list.at(address)?;
        Some((start, String::from_utf8_lossy(name).into_owned()))
    }

    #[test]
    fn lists() {
        let text = b"1000 10 first one\n0x2000 0x20 second\r\nnonsense\n\n1008 4 again\n\
            3000 10\n-5 3 sign\nffffffffffffffff 5 beyond\n4000 0 without length\n1f0";
        let list = List::parse(Part::owned(text.to_vec()));
        assert_eq!(list.bad_lines, 5);
        // The later line replaced the first.
        assert_eq!(at(&list, 0x1000), None);
        assert_eq!(at(&list, 0x1008), Some((0x1008, "again".into())));
        assert_eq!(at(&list, 0x201f), Some((0x2000, "second".into())));
        assert_eq!(at(&list, 0x2020), None);
        assert_eq!(at(&list, 0x4000), Some((0x4000, "without length".into())));
    }

    #[test]
    fn lists_of_any_length_cost_a_limited_number_of_functions() {
        let mut text = Vec::new();
        for number in 0..MAP_FUNCTIONS_MAX + 10 {
            text.extend(format!("{number:x} 1 a\n").bytes());
        }
        let list = List::parse(Part::owned(text));
        assert!(list.is_cut);
        assert!(list.functions.len() as u64 <= MAP_FUNCTIONS_MAX);
        assert_eq!(at(&list, 5), Some((5, "a".into())));
        assert_eq!(at(&list, MAP_FUNCTIONS_MAX + 5), None);
        // A name of any length is cut by whoever reads it.
        let mut text = b"1000 10 ".to_vec();
        text.resize(1 << 20, b'x');
        let list = List::parse(Part::owned(text));
        let (_, _, name) = list.at(0x1000).unwrap();
        assert!(demangle(name).len() < NAME_BYTES_MAX as usize + 32);
    }

    #[test]
    fn a_list_that_is_read_again_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("perf-12.map");
        std::fs::write(list, "1000 10 function\n").unwrap();
        let options = Options {
            directories: vec![folder.path().to_owned()],
            ..Options::default()
        };
        let mut generated = Generated::new(&options, Origin::default());
        generated.list_bytes_left = 20;
        for _ in 0..3 {
            assert_eq!(generated.range_at(12, 0x100f, None), Some((0x1000, 0x1010)));
            assert_eq!(generated.range_at(12, 0x1010, None), None);
            generated.forget();
        }
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
