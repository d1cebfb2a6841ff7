//! A process with a Python interpreter: its code objects, read from its memory.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use perfquet_ebpf::walk_tables::PythonEntry;
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_trace::symbols::Object;
use perfquet_trace::symbols::limits::{
    PYTHON_LINES_BYTES_MAX, PYTHON_PROCESS_BYTES_MAX, PYTHON_TEXT_MAX,
};

use super::lines;
use super::offsets::{BYTES_DATA, BYTES_SIZE, Offsets, STRING_LENGTH, STRING_STATE, TABLE_BYTES};
use crate::sys::procfs::{self, Map};

/// The function that runs Python code, and its parts; 3.14 can be built with one function per instruction instead.
const EVALUATES: &str = "_PyEval_EvalFrameDefault";
const INSTRUCTION: &str = "_TAIL_CALL_";
/// A smaller function does not run all instructions: they have functions of their own, whose symbols were stripped. It has 1,196
/// bytes in Debian's 3.14.8, tens of thousands in builds with all instructions.
const EVALUATES_MIN: u64 = 8192;
/// Memory for a code object without its name and table.
const CODE_BYTES: u64 = 256;

/// A process with a Python interpreter.
pub(super) struct Process {
    memory: File,
    offsets: Offsets,
    entry: PythonEntry,
    /// Code that evaluates frames: start and end.
    evaluates: Vec<(u64, u64)>,
    codes: HashMap<(u64, u64), Option<Arc<Code>>>,
    /// Memory of these.
    bytes: u64,
    /// Whether the trace has the mapping of its functions.
    pub(super) is_mapped: bool,
}

/// A code object.
pub(super) struct Code {
    pub(super) file: Arc<str>,
    pub(super) function: Arc<str>,
    first_line: u32,
    lines: Vec<u8>,
    /// Address of its first instruction.
    start: u64,
}

impl Code {
    fn bytes(&self) -> u64 {
        let texts = self.file.len() + self.function.len() + self.lines.len();
        CODE_BYTES + texts as u64
    }

    /// Returns the line of the instruction at an address; the function's first one if it has none.
    pub(super) fn line_at(&self, instruction: u64) -> u32 {
        let offset = instruction.wrapping_sub(self.start) as i64;
        lines::line_at(&self.lines, self.first_line, offset).unwrap_or(self.first_line)
    }
}

impl Process {
    /// Returns the process; `None` if it has no interpreter that can be read.
    pub(super) fn find(pid: i32) -> Option<Process> {
        let mut maps = Vec::new();
        procfs::read_maps(pid, &mut maps);
        let maps: Vec<Map<'_>> = procfs::parse_maps(&maps).collect();
        let mut seen = Vec::new();
        for map in &maps {
            if !may_be_python(map.path) || seen.contains(&map.path) {
                continue;
            }
            seen.push(map.path);
            match Process::in_file(pid, map, &maps) {
                Ok(Some(process)) => return Some(process),
                Ok(None) => {}
                Err(reason) => {
                    let path = String::from_utf8_lossy(map.path);
                    log::info!(
                        "Python functions of process {pid} ({path}) have no names: {reason}"
                    );
                    return None;
                }
            }
        }
        None
    }

    fn in_file(pid: i32, first: &Map<'_>, maps: &[Map<'_>]) -> Result<Option<Process>, String> {
        let file = format!("/proc/{pid}/map_files/{:x}-{:x}", first.start, first.end);
        let object = Object::open_foreign(Path::new(&file)).map_err(|error| error.to_string())?;
        let symbol = |name| object.offset_of_symbol(name);
        let (Some(runtime), Some(version)) = (symbol("_PyRuntime"), symbol("Py_Version")) else {
            return Ok(None);
        };
        let version = Endian::Little
            .u32_at(object.code(version, 4), 0)
            .unwrap_or(0);
        let is_same = |map: &&Map<'_>| map.inode == first.inode && map.path == first.path;
        let address_of = |offset: u64, protection: u32| {
            let has_it = |map: &&Map<'_>| {
                let bytes = map.end - map.start;
                let is_inside = (map.file_offset..map.file_offset + bytes).contains(&offset);
                is_inside && map.protection & protection != 0
            };
            let map = maps.iter().filter(is_same).find(has_it)?;
            Some(map.start + (offset - map.file_offset))
        };
        let unmapped = || "its variables are not mapped".to_owned();
        let runtime = address_of(runtime, libc::PROT_WRITE as u32).ok_or_else(unmapped)?;
        let functions = object.functions_where(|name| {
            let rest = name.strip_prefix(EVALUATES.as_bytes());
            let is_part = rest.is_some_and(|rest| !rest.starts_with(b"_"));
            is_part || name.starts_with(INSTRUCTION.as_bytes())
        });
        let evaluates: Vec<(u64, u64)> = functions
            .iter()
            .filter_map(|function| {
                let start = address_of(function.offset, libc::PROT_EXEC as u32)?;
                Some((start, start + function.bytes))
            })
            .collect();
        let bytes: u64 = evaluates.iter().map(|(start, end)| end - start).sum();
        match bytes {
            0 => return Err(format!("no symbol {EVALUATES}")),
            1..EVALUATES_MIN => {
                return Err(format!("no symbols {INSTRUCTION}… of its instructions"));
            }
            _ => {}
        }
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(|error| error.to_string())?;
        let mut table = vec![0; TABLE_BYTES];
        memory
            .read_exact_at(&mut table, runtime)
            .map_err(|error| error.to_string())?;
        let offsets = Offsets::of(version, &table)?;
        let entry = PythonEntry {
            interpreter: runtime + offsets.frames.interpreter,
            ..offsets.frames
        };
        log::debug!("process {pid} runs Python {:x}", version >> 8);
        Ok(Some(Process {
            memory,
            offsets,
            entry,
            evaluates,
            codes: HashMap::new(),
            bytes: 0,
            is_mapped: false,
        }))
    }

    /// Returns what the program in the kernel needs.
    pub(super) fn entry(&self) -> &PythonEntry {
        &self.entry
    }

    /// Whether an address is in the function that runs Python code.
    pub(super) fn evaluates(&self, address: u64) -> bool {
        let has_it = |&(start, end): &(u64, u64)| (start..end).contains(&address);
        self.evaluates.iter().any(has_it)
    }

    /// Returns the code object at an address, if it still has this name. `room` is the memory that all processes may still use.
    pub(super) fn code(&mut self, address: u64, name: u64, room: u64) -> Option<Arc<Code>> {
        if let Some(known) = self.codes.get(&(address, name)) {
            return known.clone();
        }
        let room = room.min(PYTHON_PROCESS_BYTES_MAX.saturating_sub(self.bytes));
        if room < CODE_BYTES {
            return None;
        }
        let code = self.read_code(address, name);
        let bytes = code.as_ref().map_or(CODE_BYTES, Code::bytes);
        let code = code.filter(|_| bytes <= room).map(Arc::new);
        self.bytes += if code.is_some() { bytes } else { CODE_BYTES };
        self.codes.insert((address, name), code.clone());
        code
    }

    /// Memory of its code objects.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_code(&self, address: u64, name: u64) -> Option<Code> {
        let at = |offset: u32| address.checked_add(offset.into());
        let offsets = &self.offsets;
        if self.u64_at(at(offsets.frames.qualname)?)? != name {
            return None;
        }
        let table = self.u64_at(at(offsets.line_table)?)?;
        let bytes = self.u64_at(table.checked_add(BYTES_SIZE)?)?;
        if bytes > PYTHON_LINES_BYTES_MAX {
            return None;
        }
        let first_line = self.read(at(offsets.first_line)?, 4)?;
        Some(Code {
            file: self.text(self.u64_at(at(offsets.filename)?)?)?.into(),
            function: self.text(name)?.into(),
            first_line: Endian::Little.u32_at(&first_line, 0)?,
            lines: self.read(table.checked_add(BYTES_DATA)?, bytes)?,
            start: at(offsets.instructions)?,
        })
    }

    /// Reads a string.
    fn text(&self, address: u64) -> Option<String> {
        let head = self.read(address, STRING_STATE + 4)?;
        let length = Endian::Little.u64_at(&head, STRING_LENGTH as usize)?;
        let state = Endian::Little.u32_at(&head, STRING_STATE as usize)?;
        let (width, is_ascii) = kind_of_string(state).filter(|_| length <= PYTHON_TEXT_MAX)?;
        let before = match is_ascii {
            true => self.offsets.ascii_bytes,
            false => self.offsets.compact_bytes,
        };
        let data = address.checked_add(before.into())?;
        let bytes = self.read(data, length * u64::from(width))?;
        let mut cursor = Cursor::new(&bytes, 0, Endian::Little);
        let mut text = String::new();
        for _ in 0..length {
            let number = match width {
                1 => cursor.u8().ok()?.into(),
                2 => cursor.u16().ok()?.into(),
                _ => cursor.u32().ok()?,
            };
            let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
            // Names of files can have any character, and these end a text in the journal or a line.
            text.push(match character.is_control() {
                true => char::REPLACEMENT_CHARACTER,
                false => character,
            });
        }
        Some(text)
    }

    fn u64_at(&self, address: u64) -> Option<u64> {
        Endian::Little.u64_at(&self.read(address, 8)?, 0)
    }

    fn read(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        let mut buffer = vec![0; usize::try_from(bytes).ok()?];
        self.memory.read_exact_at(&mut buffer, address).ok()?;
        Some(buffer)
    }
}

/// Returns the bytes of a character, and whether all are ASCII, by a string's state; `None` if its characters do not follow its
/// header. Before the kind, the state has 2 bits for whether the string is interned, or 16: 3.14 was developed with 16, and has 2
/// in 3.14.8. Both cannot hold: these numbers are at most 3.
fn kind_of_string(state: u32) -> Option<(u32, bool)> {
    [2, 16].into_iter().find_map(|bits| {
        let kind = state >> bits;
        let (width, is_compact, is_ascii) = (kind & 7, kind & 8 != 0, kind & 16 != 0);
        (is_compact && matches!(width, 1 | 2 | 4)).then_some((width, is_ascii))
    })
}

/// Whether a file can contain an interpreter: `python3.11`, `libpython3.12.so.1.0`, `uwsgi-core` do not all say so, but
/// opening each file of each process would take too long.
pub(in crate::user_stacks) fn may_be_python(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    path.starts_with(b"/") && (name.starts_with(b"python") || name.starts_with(b"libpython"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_either_layout() {
        // Of 3.14.8, with what padding had: "inner", "outer.<locals>.<genexpr>", "<module>".
        for state in [0x706d_7466, 0x65, 0xe7] {
            assert_eq!(kind_of_string(state), Some((1, true)));
        }
        // Two bytes a character; four.
        assert_eq!(kind_of_string(0b0_1010 << 2 | 1), Some((2, false)));
        assert_eq!(kind_of_string(0b0_1100 << 2 | 1), Some((4, false)));
        // 16 bits before the kind.
        assert_eq!(kind_of_string(0b1_1001 << 16 | 1), Some((1, true)));
        assert_eq!(kind_of_string(0b0_1010 << 16), Some((2, false)));
        // Not compact.
        assert_eq!(kind_of_string(0b0_0001 << 2), None);
    }
}
