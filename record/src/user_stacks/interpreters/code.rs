//! A function of an interpreted language, and the memory that it is read from.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use perfquet_events::bytes::Endian;

use super::python;
use super::ruby;

/// Memory for a function without its names and line table.
pub(super) const CODE_BYTES: u64 = 256;

/// A code object of Python, an instruction sequence of Ruby, or a function of V8.
pub(super) struct Code {
    pub(super) file: Arc<str>,
    pub(super) function: Arc<str>,
    pub(super) first_line: u32,
    pub(super) lines: LineTable,
    /// Address of its first instruction.
    pub(super) start: u64,
    /// Part of the runtime, not of a script: the name of its native code says more.
    pub(super) is_builtin: bool,
}

pub(super) enum LineTable {
    /// Only the first line is known.
    None,
    Python(Vec<u8>),
    Ruby(ruby::lines::Table),
}

impl Code {
    pub(super) fn bytes(&self) -> u64 {
        let lines = match &self.lines {
            LineTable::None => 0,
            LineTable::Python(table) => table.len(),
            LineTable::Ruby(table) => table.bytes(),
        };
        CODE_BYTES + (self.file.len() + self.function.len() + lines) as u64
    }

    /// Returns the line of the instruction at an address; the function's first one if it has none.
    pub(super) fn line_at(&self, instruction: u64) -> u32 {
        let offset = instruction.wrapping_sub(self.start) as i64;
        let line = match &self.lines {
            LineTable::None => None,
            LineTable::Python(table) => python::lines::line_at(table, self.first_line, offset),
            LineTable::Ruby(table) => table.line_at(offset),
        };
        line.unwrap_or(self.first_line)
    }
}

/// The memory of a process.
pub(in crate::user_stacks) struct Memory(File);

impl Memory {
    pub(in crate::user_stacks) fn of(pid: i32) -> Result<Memory, String> {
        let file = File::open(format!("/proc/{pid}/mem"));
        file.map(Memory).map_err(|error| error.to_string())
    }

    pub(in crate::user_stacks) fn read(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        let mut buffer = vec![0; usize::try_from(bytes).ok()?];
        self.0.read_exact_at(&mut buffer, address).ok()?;
        Some(buffer)
    }

    /// Reads at most so many bytes: fewer before memory that is not mapped. A system call takes longer than some bytes too many.
    pub(in crate::user_stacks) fn read_up_to(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        let mut buffer = vec![0; usize::try_from(bytes).ok()?];
        let read = self.0.read_at(&mut buffer, address).ok()?;
        buffer.truncate(read);
        Some(buffer)
    }

    /// Reads bytes of which `known`, from the same address on, has the first.
    pub(in crate::user_stacks) fn read_after(
        &self,
        mut known: Vec<u8>,
        address: u64,
        bytes: u64,
    ) -> Option<Vec<u8>> {
        let missing = bytes.saturating_sub(known.len() as u64);
        if missing > 0 {
            let from = address.checked_add(known.len() as u64)?;
            known.extend(self.read(from, missing)?);
        }
        known.truncate(usize::try_from(bytes).ok()?);
        Some(known)
    }

    pub(in crate::user_stacks) fn u64_at(&self, address: u64) -> Option<u64> {
        Endian::Little.u64_at(&self.read(address, 8)?, 0)
    }
}

/// Names of files can have any character, and these end a text in the journal or a line.
pub(super) fn printable(character: char) -> char {
    match character.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    }
}
