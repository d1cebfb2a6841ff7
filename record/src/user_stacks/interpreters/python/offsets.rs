//! Where the members of CPython's structs are.
//!
//! ```text
//! 3.11, 3.12   fixed: they are part of the ABI of a minor version
//! 3.13, 3.14   _PyRuntime: "xdebugpy", u64 version, u64 free_threaded, then sizes and offsets by struct, u64 each
//! ```
//! (python/cpython: `Include/internal/pycore_frame.h`, `pycore_debug_offsets.h`)

use perfquet_ebpf::walk_tables::PythonEntry;
use perfquet_events::bytes::{Cursor, Endian, Short};

/// Size of `_Py_DebugOffsets` that is read; the members used are in its first half.
pub(super) const TABLE_BYTES: usize = 512;
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Offsets of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offsets {
    /// Those that the program in the kernel reads; `interpreter` is an offset in `_PyRuntime`.
    pub(super) frames: PythonEntry,
    /// In a code object.
    pub(super) filename: u32,
    pub(super) line_table: u32,
    pub(super) first_line: u32,
    pub(super) instructions: u32,
    /// Size of the header of a string in ASCII, and of others.
    pub(super) ascii_bytes: u32,
    pub(super) compact_bytes: u32,
}

/// Members before the data of a bytes object.
pub(super) const BYTES_SIZE: u64 = 16;
pub(super) const BYTES_DATA: u64 = 32;
/// Members of a string's header.
pub(super) const STRING_LENGTH: u64 = 16;
pub(super) const STRING_STATE: u64 = 32;

const PYTHON_3_11: Offsets = Offsets {
    frames: PythonEntry {
        interpreter: 48,
        threads: 16,
        next: 8,
        thread_id: 152,
        frame: 56,
        inner_frame: Some(8),
        code: 32,
        previous: 48,
        instruction: 56,
        owner: 68,
        owner_is_entry: true,
        qualname: 128,
    },
    filename: 112,
    line_table: 136,
    first_line: 72,
    instructions: 184,
    ascii_bytes: 48,
    compact_bytes: 72,
};

const PYTHON_3_12: Offsets = Offsets {
    frames: PythonEntry {
        interpreter: 48,
        threads: 72,
        next: 8,
        thread_id: 136,
        frame: 56,
        inner_frame: Some(0),
        code: 0,
        previous: 8,
        instruction: 56,
        owner: 70,
        owner_is_entry: false,
        qualname: 128,
    },
    filename: 112,
    line_table: 136,
    first_line: 68,
    instructions: 192,
    ascii_bytes: 40,
    compact_bytes: 56,
};

impl Offsets {
    /// Returns the offsets of a version (`Py_Version`), with the start of `_PyRuntime`; otherwise the reason.
    pub(super) fn of(version: u32, runtime: &[u8]) -> Result<Offsets, String> {
        match (version >> 24, version >> 16 & 0xff) {
            (3, 11) => Ok(PYTHON_3_11),
            (3, 12) => Ok(PYTHON_3_12),
            (3, minor @ (13 | 14)) => match Offsets::read(minor, version, runtime) {
                Ok(Some(offsets)) => Ok(offsets),
                Ok(None) => Err("the process's own table of offsets is not known".to_owned()),
                Err(_) => Err("the process's table of offsets is too short".to_owned()),
            },
            (major, minor) => Err(format!("Python {major}.{minor} is not supported")),
        }
    }

    /// Reads `_Py_DebugOffsets`.
    fn read(minor: u32, version: u32, runtime: &[u8]) -> Result<Option<Offsets>, Short> {
        let mut cursor = Cursor::new(runtime, 0, Endian::Little);
        let is_known = cursor.bytes(8)? == COOKIE && cursor.u64()? == u64::from(version);
        let is_free_threaded = cursor.u64()? != 0;
        if !is_known || is_free_threaded {
            return Ok(None);
        }
        let mut words = |count: usize| -> Result<Vec<u32>, Short> {
            let word = |_| {
                cursor
                    .u64()
                    .map(|word| u32::try_from(word).unwrap_or(u32::MAX))
            };
            (0..count).map(word).collect()
        };
        let is_3_14 = minor == 14;
        // size, finalizing, interpreters_head; main follows head.
        let runtime = words(3)?;
        // size, id, next, threads_head.
        let interpreter = words(if is_3_14 { 16 } else { 13 })?;
        // size, prev, next, interp, current_frame, thread_id.
        let thread = words(9)?;
        // size, previous, executable, instr_ptr, localsplus, owner.
        let frame = words(if is_3_14 { 8 } else { 6 })?;
        // size, filename, name, qualname, linetable, firstlineno, argcount, localsplusnames, localspluskinds, code.
        let code = words(10)?;
        let frames = PythonEntry {
            interpreter: u64::from(runtime[2]) + 8,
            threads: interpreter[3],
            next: thread[2],
            thread_id: thread[5],
            frame: thread[4],
            inner_frame: None,
            code: frame[2],
            previous: frame[1],
            instruction: frame[3],
            owner: frame[5],
            owner_is_entry: false,
            qualname: code[3],
        };
        // The program in the kernel reads so much of a frame.
        let is_far = [
            frames.code,
            frames.previous,
            frames.instruction,
            frames.owner,
        ];
        if is_far.iter().any(|&offset| offset > 112) {
            return Ok(None);
        }
        Ok(Some(Offsets {
            frames,
            filename: code[1],
            line_table: code[4],
            first_line: code[5],
            instructions: code[9],
            ..PYTHON_3_12
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(minor: u64, interpreter: usize, frame: usize) -> Vec<u8> {
        let mut bytes = COOKIE.to_vec();
        let mut words = vec![3 << 24 | minor << 16 | 0xf0, 0];
        words.extend([1000, 8, 624]);
        words.extend((0..interpreter as u64).map(|word| word * 8));
        words.extend([1, 0, 8, 16, 72, 152, 160, 0, 0]);
        words.extend([80, 8, 0, 56, 72, 70, 64, 0].iter().take(frame));
        words.extend([1, 112, 120, 128, 136, 68, 0, 0, 0, 200]);
        words
            .iter()
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    }

    #[test]
    fn tables_of_processes() {
        for (minor, interpreter, frame) in [(13, 13, 6), (14, 16, 8)] {
            let version = 3 << 24 | minor << 16 | 0xf0;
            let bytes = table(minor.into(), interpreter, frame);
            let offsets = Offsets::of(version, &bytes).unwrap();
            assert_eq!(offsets.frames.interpreter, 632);
            assert_eq!(offsets.frames.frame, 72);
            assert_eq!(offsets.frames.owner, 70);
            assert_eq!(offsets.instructions, 200);
            assert!(Offsets::of(version, &bytes[..bytes.len() - 1]).is_err());
            assert!(Offsets::of(version + 1, &bytes).is_err(), "another build");
        }
        assert!(Offsets::of(0x030a_0df0, &[]).is_err());
    }
}
