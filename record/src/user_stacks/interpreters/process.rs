//! A process with an interpreter, and what was read of it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use perfquet_ebpf::walk_tables::{PythonEntry, RubyEntry, V8Entry};
use perfquet_trace::symbols::limits::INTERPRETED_PROCESS_BYTES_MAX;

use super::code::{CODE_BYTES, Code};
use super::known::{KnownObject, KnownObjects};
use super::{python, ruby, v8};
use crate::sys::procfs::{self, Map};

/// What a native frame does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs interpreted functions, up to one that was called from C.
    Evaluates,
    /// A part of that function with a frame of its own, called by it.
    Part,
    Other,
}

/// What the program in the kernel needs to read frames.
#[derive(Debug, Clone, Copy)]
pub(in crate::user_stacks) enum Entry {
    Python(PythonEntry),
    Ruby(RubyEntry),
    V8(V8Entry),
}

enum Interpreter {
    Python(python::Process),
    Ruby(ruby::Process),
    V8(v8::Process),
}

/// A process with an interpreter.
pub(super) struct Process {
    interpreter: Interpreter,
    codes: HashMap<(u64, u64), Option<Arc<Code>>>,
    /// Memory of these.
    bytes: u64,
    /// Whether the trace has the mapping of its functions.
    pub(super) is_mapped: bool,
}

impl Process {
    /// Returns the process; `None` if it has no interpreter that can be read.
    pub(super) fn find(pid: i32, known: &mut KnownObjects) -> Option<Process> {
        let mut maps = Vec::new();
        procfs::read_maps(pid, &mut maps);
        let maps: Vec<Map<'_>> = procfs::parse_maps(&maps).collect();
        let mut seen = Vec::new();
        for map in &maps {
            let Some(language) = language_of(map.path) else {
                continue;
            };
            if seen.contains(&map.path) {
                continue;
            }
            seen.push(map.path);
            let object = known.open(&path_of(pid, map));
            match object.and_then(|object| in_file((pid, language), object, map, &maps)) {
                Ok(Some(interpreter)) => {
                    return Some(Process {
                        interpreter,
                        codes: HashMap::new(),
                        bytes: 0,
                        is_mapped: false,
                    });
                }
                Ok(None) => {}
                Err(reason) => {
                    let path = String::from_utf8_lossy(map.path);
                    let language = language.name();
                    log::info!(
                        "{language} functions of process {pid} ({path}) have no names: {reason}"
                    );
                    return None;
                }
            }
        }
        None
    }

    pub(super) fn language(&self) -> Language {
        match &self.interpreter {
            Interpreter::Python(_) => Language::Python,
            Interpreter::Ruby(_) => Language::Ruby,
            Interpreter::V8(_) => Language::JavaScript,
        }
    }

    pub(super) fn entry(&self) -> Entry {
        match &self.interpreter {
            Interpreter::Python(process) => Entry::Python(*process.entry()),
            Interpreter::Ruby(process) => Entry::Ruby(*process.entry()),
            Interpreter::V8(process) => Entry::V8(*process.entry()),
        }
    }

    /// Returns what the code at an address does.
    pub(super) fn role(&self, address: u64) -> Role {
        match &self.interpreter {
            Interpreter::Python(process) => process.role(address),
            Interpreter::Ruby(process) => process.role(address),
            Interpreter::V8(process) => process.role(address),
        }
    }

    /// Returns the function at an address, if it still has this name (Python, V8) or body (Ruby). `room` is the memory that all
    /// processes may still use.
    pub(super) fn code(&mut self, address: u64, name: u64, room: u64) -> Option<Arc<Code>> {
        if let Some(known) = self.codes.get(&(address, name)) {
            return known.clone();
        }
        let room = room.min(INTERPRETED_PROCESS_BYTES_MAX.saturating_sub(self.bytes));
        if room < CODE_BYTES {
            return None;
        }
        let code = match &mut self.interpreter {
            Interpreter::Python(process) => process.read_code(address, name),
            Interpreter::Ruby(process) => process.read_code(address, name),
            Interpreter::V8(process) => process.read_code(address, name),
        };
        let bytes = code.as_ref().map_or(CODE_BYTES, Code::bytes);
        let code = code.filter(|_| bytes <= room).map(Arc::new);
        self.bytes += if code.is_some() { bytes } else { CODE_BYTES };
        self.codes.insert((address, name), code.clone());
        code
    }

    /// Memory of its functions.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn in_file(
    (pid, language): (i32, Language),
    object: Arc<KnownObject>,
    first: &Map<'_>,
    maps: &[Map<'_>],
) -> Result<Option<Interpreter>, String> {
    let mapped = Mapped::new(pid, object, first, maps);
    match language {
        Language::Python => {
            let found = python::Process::in_file(&mapped)?;
            Ok(found.map(Interpreter::Python))
        }
        Language::Ruby => {
            let found = ruby::Process::in_file(&mapped, maps)?;
            Ok(found.map(Interpreter::Ruby))
        }
        Language::JavaScript => {
            let found = v8::Process::in_file(&mapped)?;
            Ok(found.map(Interpreter::V8))
        }
    }
}

/// A file that a process has mapped, which may be its interpreter.
pub(in crate::user_stacks) struct Mapped<'a> {
    pub(super) pid: i32,
    pub(in crate::user_stacks) object: Arc<KnownObject>,
    own: Vec<Map<'a>>,
}

impl<'a> Mapped<'a> {
    /// Opens the file of a mapping, one of all mappings of a process.
    pub(in crate::user_stacks) fn of(
        pid: i32,
        first: &Map<'a>,
        maps: &[Map<'a>],
    ) -> Result<Mapped<'a>, String> {
        let object = KnownObject::open(&path_of(pid, first))?;
        Ok(Mapped::new(pid, Arc::new(object), first, maps))
    }

    fn new(pid: i32, object: Arc<KnownObject>, first: &Map<'a>, maps: &[Map<'a>]) -> Mapped<'a> {
        let is_same = |map: &&Map<'_>| map.inode == first.inode && map.path == first.path;
        Mapped {
            pid,
            object,
            own: maps.iter().filter(is_same).copied().collect(),
        }
    }

    /// The address in the process of an offset in the file, in memory with this protection.
    pub(super) fn address_of(&self, offset: u64, protection: libc::c_int) -> Option<u64> {
        let has_it = |map: &&Map<'_>| {
            let bytes = map.end - map.start;
            let is_inside = (map.file_offset..map.file_offset + bytes).contains(&offset);
            is_inside && map.protection & protection as u32 != 0
        };
        let map = self.own.iter().find(has_it)?;
        Some(map.start + (offset - map.file_offset))
    }

    /// The address in the process of an address in the file.
    pub(in crate::user_stacks) fn relocated(&self, address: u64) -> Option<u64> {
        let map = self.own.first()?;
        let base = self.object.address_of(map.file_offset)?;
        Some(map.start.wrapping_sub(base).wrapping_add(address))
    }

    /// Start and end, in the process, of functions; `question` stands for `is_wanted`.
    pub(super) fn code_of(
        &self,
        question: &'static str,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Vec<(u64, u64)> {
        let functions = self.object.functions_of(question, is_wanted);
        let in_process = |&(offset, bytes): &(u64, u64)| {
            let start = self.address_of(offset, libc::PROT_EXEC)?;
            Some((start, start.checked_add(bytes)?))
        };
        functions.iter().filter_map(in_process).collect()
    }
}

/// The file of a mapping, even if it has been replaced or is below another root.
fn path_of(pid: i32, map: &Map<'_>) -> PathBuf {
    PathBuf::from(format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        map.start, map.end
    ))
}

/// The interpreted languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    Ruby,
    JavaScript,
}

impl Language {
    pub(super) fn name(self) -> &'static str {
        match self {
            Language::Python => "Python",
            Language::Ruby => "Ruby",
            Language::JavaScript => "JavaScript",
        }
    }

    /// The name of the module that its functions are in.
    pub(super) fn module(self) -> &'static [u8] {
        match self {
            Language::Python => b"[python]",
            Language::Ruby => b"[ruby]",
            Language::JavaScript => b"[javascript]",
        }
    }
}

/// Returns the language that a file may be the interpreter of: `python3.11`, `libpython3.12.so.1.0`, `libruby-3.1.so.3.1.2`, `node`.
/// `uwsgi-core` does not say so, but opening each file of each process would take too long.
fn language_of(path: &[u8]) -> Option<Language> {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let stem = name.strip_prefix(b"lib").unwrap_or(name);
    match () {
        () if !path.starts_with(b"/") => None,
        () if stem.starts_with(b"python") => Some(Language::Python),
        () if stem.starts_with(b"ruby") => Some(Language::Ruby),
        () if stem.starts_with(b"node") => Some(Language::JavaScript),
        () => None,
    }
}

/// Whether a file can contain an interpreter.
pub(in crate::user_stacks) fn may_be_interpreter(path: &[u8]) -> bool {
    language_of(path).is_some()
}
