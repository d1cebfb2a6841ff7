//! A process with a Python interpreter: its code objects, read from its memory.

pub(super) mod lines;
mod offsets;

use perfquet_ebpf::walk_tables::PythonEntry;
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_trace::symbols::limits::{INTERPRETED_LINES_BYTES_MAX, INTERPRETED_TEXT_MAX};

use super::code::{Code, LineTable, Memory, printable};
use super::process::{Mapped, Role};
use offsets::{BYTES_DATA, BYTES_SIZE, Offsets, STRING_LENGTH, STRING_STATE, TABLE_BYTES};

/// The function that runs Python code, and its parts; 3.14 can be built with one function per instruction instead.
const EVALUATES: &str = "_PyEval_EvalFrameDefault";
const INSTRUCTION: &str = "_TAIL_CALL_";
/// A smaller function does not run all instructions: they have functions of their own, whose symbols were stripped. It has 1,196
/// bytes in Debian's 3.14.8, tens of thousands in builds with all instructions.
const EVALUATES_MIN: u64 = 8192;
/// Its members, up to its instructions, have 200 bytes.
const CODE_OBJECT_BYTES_MAX: u32 = 4096;
/// Bytes of a string or table that are read at once: most have fewer.
const READ_BYTES: u64 = 160;

/// A process with a Python interpreter.
pub(super) struct Process {
    memory: Memory,
    offsets: Offsets,
    entry: PythonEntry,
    /// Code that evaluates frames: start and end.
    evaluates: Vec<(u64, u64)>,
}

impl Process {
    pub(super) fn in_file(file: &Mapped<'_>) -> Result<Option<Process>, String> {
        let object = &file.object;
        let symbol = |name| object.offset_of_symbol(name);
        let (Some(runtime), Some(version)) = (symbol("_PyRuntime"), symbol("Py_Version")) else {
            return Ok(None);
        };
        let version = Endian::Little
            .u32_at(object.code(version, 4), 0)
            .unwrap_or(0);
        let unmapped = || "its variables are not mapped".to_owned();
        let runtime = file.address_of(runtime, libc::PROT_WRITE);
        let runtime = runtime.ok_or_else(unmapped)?;
        let evaluates = file.code_of(EVALUATES, |name| {
            let rest = name.strip_prefix(EVALUATES.as_bytes());
            let is_part = rest.is_some_and(|rest| !rest.starts_with(b"_"));
            is_part || name.starts_with(INSTRUCTION.as_bytes())
        });
        let bytes: u64 = evaluates.iter().map(|(start, end)| end - start).sum();
        match bytes {
            0 => return Err(format!("no symbol {EVALUATES}")),
            1..EVALUATES_MIN => {
                return Err(format!("no symbols {INSTRUCTION}… of its instructions"));
            }
            _ => {}
        }
        let memory = Memory::of(file.pid)?;
        let table = memory.read(runtime, TABLE_BYTES as u64);
        let table = table.ok_or_else(unmapped)?;
        let offsets = Offsets::of(version, &table)?;
        let entry = PythonEntry {
            interpreter: runtime + offsets.frames.interpreter,
            ..offsets.frames
        };
        log::debug!("process {} runs Python {:x}", file.pid, version >> 8);
        Ok(Some(Process {
            memory,
            offsets,
            entry,
            evaluates,
        }))
    }

    /// Returns what the program in the kernel needs.
    pub(super) fn entry(&self) -> &PythonEntry {
        &self.entry
    }

    pub(super) fn role(&self, address: u64) -> Role {
        let has_it = |&(start, end): &(u64, u64)| (start..end).contains(&address);
        match self.evaluates.iter().any(has_it) {
            true => Role::Evaluates,
            false => Role::Other,
        }
    }

    pub(super) fn read_code(&self, address: u64, name: u64) -> Option<Code> {
        let offsets = &self.offsets;
        let object = self.memory.read_up_to(address, self.code_object_bytes())?;
        let word = |offset: u32| Endian::Little.u64_at(&object, offset as usize);
        if word(offsets.frames.qualname)? != name {
            return None;
        }
        let table = word(offsets.line_table)?;
        let head = self.memory.read_up_to(table, READ_BYTES)?;
        let bytes = Endian::Little.u64_at(&head, BYTES_SIZE as usize)?;
        if bytes > INTERPRETED_LINES_BYTES_MAX {
            return None;
        }
        let lines = self.memory.read_after(head, table, BYTES_DATA + bytes)?;
        Some(Code {
            file: self.text(word(offsets.filename)?)?.into(),
            function: self.text(name)?.into(),
            first_line: Endian::Little.u32_at(&object, offsets.first_line as usize)?,
            lines: LineTable::Python(lines.get(BYTES_DATA as usize..)?.to_vec()),
            start: address.checked_add(offsets.instructions.into())?,
            is_builtin: false,
        })
    }

    /// Bytes of a code object up to the last member that is read.
    fn code_object_bytes(&self) -> u64 {
        let Offsets {
            frames,
            filename,
            line_table,
            first_line,
            ..
        } = self.offsets;
        let last = filename.max(line_table).max(first_line);
        u64::from(last.max(frames.qualname).min(CODE_OBJECT_BYTES_MAX)) + 8
    }

    /// Reads a string.
    fn text(&self, address: u64) -> Option<String> {
        let head = self.memory.read_up_to(address, READ_BYTES)?;
        let length = Endian::Little.u64_at(&head, STRING_LENGTH as usize)?;
        let state = Endian::Little.u32_at(&head, STRING_STATE as usize)?;
        let (width, is_ascii) = kind_of_string(state).filter(|_| length <= INTERPRETED_TEXT_MAX)?;
        let before = match is_ascii {
            true => self.offsets.ascii_bytes,
            false => self.offsets.compact_bytes,
        };
        let before = u64::from(before);
        let bytes = before + length * u64::from(width);
        let bytes = self.memory.read_after(head, address, bytes)?;
        let mut cursor = Cursor::new(&bytes, 0, Endian::Little);
        cursor.bytes(before).ok()?;
        let mut text = String::new();
        for _ in 0..length {
            let number = match width {
                1 => cursor.u8().ok()?.into(),
                2 => cursor.u16().ok()?.into(),
                _ => cursor.u32().ok()?,
            };
            let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
            text.push(printable(character));
        }
        Some(text)
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
