//! A process with an interpreter of Ruby (CRuby): its instruction sequences, read from its memory.
//!
//! ```text
//! rb_vm_exec        runs methods and blocks, up to one that was called from C
//!   vm_exec_core    called by it: the loop over the instructions
//! ```
//! Where a thread's frames are is in a variable of libruby that each thread has (`ruby_current_ec`). The dynamic linker numbers
//! the files with such variables; it has written libruby's number where a relocation of libruby asks for it. Without symbols, both
//! are found in the code ([`stripped`]).

pub(super) mod lines;
mod offsets;
mod stripped;

use std::sync::Arc;

use perfquet_ebpf::walk_tables::RubyEntry;
use perfquet_events::bytes::{Endian, before_nul};
use perfquet_trace::symbols::limits::{INTERPRETED_LINES_BYTES_MAX, INTERPRETED_TEXT_MAX};

use super::code::{Code, LineTable, Memory, printable};
use super::process::{Mapped, Role};
use crate::sys::procfs::Map;
use offsets::Offsets;

const EVALUATES: [&[u8]; 2] = [b"rb_vm_exec", b"vm_exec"];
const LOOPS: &str = "vm_exec_core";
const CONTEXT: &str = "ruby_current_ec";
/// A smaller function is not the loop: it has 16 to 21 KiB in Debian's 3.1 and 3.3.
const LOOP_MIN: u64 = 8192;
/// Size of an entry of glibc's dynamic thread vector, and the number of the program in it.
const VECTOR_ENTRY_BYTES: u64 = 16;
const PROGRAM: u64 = 1;
/// Files with variables of threads: a few in each process.
const FILES_MAX: u64 = 1 << 16;

/// A process with an interpreter.
pub(super) struct Process {
    memory: Memory,
    offsets: Offsets,
    entry: RubyEntry,
    /// `rb_vm_exec`, and the loop in it: start and end.
    evaluates: Vec<(u64, u64)>,
    parts: Vec<(u64, u64)>,
}

impl Process {
    pub(super) fn in_file(file: &Mapped<'_>, maps: &[Map<'_>]) -> Result<Option<Process>, String> {
        let Some(version) = file.object.offset_of_symbol("ruby_version") else {
            return Ok(None);
        };
        let version = before_nul(file.object.code(version, 16));
        let version = String::from_utf8_lossy(version).into_owned();
        let offsets = Offsets::of(&version)?;
        let is_musl = |map: &Map<'_>| map.path.windows(8).any(|word| word == b"/ld-musl");
        if maps.iter().any(is_musl) {
            return Err("the C library is not glibc".to_owned());
        }
        let mut evaluates = file.code_of("rb_vm_exec", |name| is_part_of_any(name, &EVALUATES));
        let mut parts = file.code_of(LOOPS, |name| is_part_of_any(name, &[LOOPS.as_bytes()]));
        let has_loop = |(start, end): &(u64, u64)| end - start >= LOOP_MIN;
        if evaluates.is_empty() || !evaluates.iter().chain(&parts).any(has_loop) {
            let found = stripped::find_loop(file);
            let (callers, whole) = found.ok_or("no symbols rb_vm_exec and vm_exec_core")?;
            (evaluates, parts) = (callers, vec![whole]);
        }
        let memory = Memory::of(file.pid)?;
        let word = |at: Option<u64>| at.and_then(|at| memory.u64_at(at));
        let (number, offset) = match file.object.thread_variable(CONTEXT) {
            Some(variable) => {
                let number = match variable.module {
                    Some(place) => word(file.relocated(place)),
                    None => Some(PROGRAM),
                };
                (number, Some(variable.offset))
            }
            None => {
                let place = stripped::context_place(file);
                let place = place.ok_or_else(|| format!("no symbol {CONTEXT}"))?;
                (word(Some(place)), word(place.checked_add(8)))
            }
        };
        let offset = offset.and_then(|offset| u32::try_from(offset).ok());
        let number = number.ok_or("its variables are not mapped")?;
        if !(1..FILES_MAX).contains(&number) {
            // Not relocated yet: it is about to map more files.
            return Ok(None);
        }
        let entry = RubyEntry {
            block: u32::try_from(number * VECTOR_ENTRY_BYTES).unwrap_or(u32::MAX),
            context: offset.ok_or("its variables are not mapped")?,
            frame_bytes: offsets.frame_bytes,
        };
        log::debug!("process {} runs Ruby {version}", file.pid);
        Ok(Some(Process {
            memory,
            offsets,
            entry,
            evaluates,
            parts,
        }))
    }

    /// Returns what the program in the kernel needs.
    pub(super) fn entry(&self) -> &RubyEntry {
        &self.entry
    }

    pub(super) fn role(&self, address: u64) -> Role {
        let is_in = |code: &[(u64, u64)]| {
            let mut code = code.iter();
            code.any(|&(start, end)| (start..end).contains(&address))
        };
        match () {
            () if is_in(&self.evaluates) => Role::Evaluates,
            () if is_in(&self.parts) => Role::Part,
            () => Role::Other,
        }
    }

    pub(super) fn read_code(&self, iseq: u64, body: u64) -> Option<Code> {
        if self.memory.u64_at(iseq.checked_add(offsets::BODY)?)? != body {
            return None;
        }
        let bytes = self.memory.read(body, offsets::BODY_BYTES)?;
        let word = |at: usize| Endian::Little.u64_at(&bytes, at);
        let number = |at: usize| Endian::Little.u32_at(&bytes, at);
        let first_line = match self.offsets.has_line_object {
            true => u32::try_from(word(offsets::FIRST_LINE)? >> 1).ok()?,
            false => number(offsets::FIRST_LINE)?,
        };
        let words = number(offsets::WORDS)?;
        let at = self.offsets.lines;
        let (entries, count, index) = (word(at)?, number(at + 16)?, word(at + 24)?);
        let entry_bytes = u64::from(count) * lines::ENTRY_BYTES;
        let index_bytes = match count {
            0 | 1 => 0,
            _ => lines::index_bytes(words),
        };
        if entry_bytes + index_bytes > INTERPRETED_LINES_BYTES_MAX {
            return None;
        }
        Some(Code {
            file: self.path(word(offsets::PATH)?)?,
            function: self.text(word(offsets::LABEL)?)?.into(),
            first_line,
            lines: LineTable::Ruby(lines::Table {
                entries: self.memory.read(entries, entry_bytes).unwrap_or_default(),
                index: self.memory.read(index, index_bytes).unwrap_or_default(),
                words,
            }),
            start: word(offsets::INSTRUCTIONS)?,
            is_builtin: false,
        })
    }

    /// Reads a path: a string, or an array of the path as given and the real one.
    fn path(&self, address: u64) -> Option<Arc<str>> {
        let head = self.memory.read(address, offsets::OBJECT_BYTES)?;
        let word = |at: usize| Endian::Little.u64_at(&head, at);
        let flags = word(0)?;
        if flags & offsets::TYPE_MASK != offsets::TYPE_ARRAY {
            return self.text(address).map(Arc::from);
        }
        let element = match flags & offsets::FLAG != 0 {
            true => word(offsets::ARRAY_ELEMENT)?,
            false => self.memory.u64_at(word(offsets::ARRAY_ELEMENTS)?)?,
        };
        self.text(element).map(Arc::from)
    }

    /// Reads a string.
    fn text(&self, address: u64) -> Option<String> {
        let head = self.memory.read(address, offsets::OBJECT_BYTES)?;
        let word = |at: usize| Endian::Little.u64_at(&head, at);
        let flags = word(0)?;
        if flags & offsets::TYPE_MASK != offsets::TYPE_STRING {
            return None;
        }
        let is_elsewhere = flags & offsets::FLAG != 0;
        let length = match !is_elsewhere && self.offsets.has_length_in_flags {
            true => flags >> 14 & 0x1f,
            false => word(offsets::STRING_LENGTH)?,
        };
        if length > INTERPRETED_TEXT_MAX {
            return None;
        }
        let text = match is_elsewhere {
            true => word(offsets::STRING_TEXT)?,
            false => address.checked_add(self.offsets.embedded)?,
        };
        let text = self.memory.read(text, length)?;
        let text = String::from_utf8_lossy(&text);
        Some(text.chars().map(printable).collect())
    }
}

/// Whether a symbol is one of these functions, or a part that the compiler has made of it: `vm_exec_core.cold`.
fn is_part_of_any(name: &[u8], functions: &[&[u8]]) -> bool {
    let is_part = |function: &&[u8]| {
        let rest = name.strip_prefix(*function);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
    };
    functions.iter().any(is_part)
}
