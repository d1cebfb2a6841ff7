//! The program that walks the user stacks of samples, and its records.

use std::os::fd::BorrowedFd;

use aya::EbpfLoader;

use crate::compiled;
use crate::error::Error;
use crate::object::{Object, Target};
use crate::walk_tables::WalkTables;

const PROGRAM: &str = "walk_sample";

/// `struct walk_record`: kind.
pub const RECORD_WALK: u32 = 5;
/// `struct copy_record`: kind.
pub const RECORD_COPY: u32 = 6;
/// `struct python_record`: kind.
pub const RECORD_PYTHON: u32 = 7;
/// `struct python_record`: kind, of Ruby frames.
pub const RECORD_RUBY: u32 = 11;
/// `struct python_record`: kind, of V8's functions.
pub const RECORD_V8: u32 = 12;
/// `struct copy_record` with more memory of the copy before it: kind.
pub const RECORD_PIECE: u32 = 8;
/// `struct miss_record`: kind, in the records of aggregating programs.
pub const RECORD_MISS: u32 = 9;
/// Bytes of a copy's record before its memory.
pub const COPY_HEAD_BYTES: usize = 32 + COPY_REGISTERS * 8;
/// `struct copy_record`: size.
pub const COPY_BYTES: u64 = COPY_HEAD_BYTES as u64 + 9 * 4096;
/// Bytes of a walk's record before its addresses.
pub const WALK_HEAD_BYTES: usize = 24;
/// Registers in a copy's record, by their DWARF numbers.
pub const COPY_REGISTERS: usize = 16;

/// What the program does.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalkSettings {
    /// Discards the recorder's samples.
    pub excludes_self: bool,
    /// Walks user stacks; without it, the program does nothing but discard samples.
    pub has_user_stacks: bool,
    /// Copies walked stacks, too, so that the recorder can compare the two. The copy precedes the walk.
    pub checks_walks: bool,
}

/// Bytes of stacks that a CPU may copy (`struct copy_room`).
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyRoom {
    /// In the first records of copies, up to 32 KiB of each stack.
    pub copies: u64,
    /// In the records after them.
    pub pieces: u64,
}

/// The program, loaded into the kernel.
pub struct Walker {
    object: Object,
}

impl Walker {
    /// Loads the programs for that many CPUs, and returns them with their tables. Requires Linux 5.17.
    pub fn load(cpus: u32, settings: WalkSettings) -> Result<(Walker, WalkTables), Error> {
        let settings = [
            settings.excludes_self,
            settings.has_user_stacks,
            settings.checks_walks,
            false,
        ];
        let settings = settings.map(u32::from);
        let target = Target::default();
        let mut object = Object::load(compiled::WALK, &target, |loader: &mut EbpfLoader<'_>| {
            loader.override_global("walk_settings", &settings, true);
            loader.map_max_entries("copies", cpus);
            loader.map_max_entries("copy_rooms", cpus);
        })?;
        object.prepare(PROGRAM)?;
        let tables = WalkTables::of(&mut object)?;
        Ok((Walker { object }, tables))
    }

    /// Attaches the programs that observe new address spaces. Must be called before the first list is published.
    pub fn start(&mut self) -> Result<(), Error> {
        self.object.observe_births()
    }

    /// Sends the program's records to an event on a CPU.
    pub fn send_to(&mut self, cpu: u32, event: BorrowedFd<'_>) -> Result<(), Error> {
        self.object.send_to("walk_records", cpu, event)
    }

    /// Sets what a CPU may copy until the next call, from 50 ms after this time (`CLOCK_MONOTONIC`) on; before, copies are not
    /// limited. One copy always fits.
    pub fn set_copy_room(&mut self, cpu: u32, room: CopyRoom, read_at: u64) -> Result<(), Error> {
        let copies = room.copies.max(COPY_BYTES);
        self.object
            .set("copy_rooms", cpu, [copies, room.pieces, read_at])
    }

    /// Runs the program at each sample of an event.
    pub fn attach(&mut self, event: BorrowedFd<'_>) -> Result<(), Error> {
        self.object.attach(PROGRAM, event, 0)
    }

    /// Returns the number of lost records.
    pub fn lost(&self) -> Result<u64, Error> {
        Ok(self.object.lost()?.iter().map(|(_, count)| count).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk_tables::{
        ADDRESSES, CHUNK_BLOCKS, CHUNKS_MAX, FILE_TABLE, FILE_WITHOUT, FILES_MAX, WALK_BUSY,
        WalkEnd,
    };

    #[test]
    fn numbers_are_those_of_the_program() {
        let walk = include_str!("walk.h");
        let program = include_str!("walk.bpf.c");
        let python = include_str!("python.h");
        let ruby = include_str!("ruby.h");
        let v8 = include_str!("v8.h");
        let stacks = include_str!("stacks.h");
        assert!(program.contains("#define COPY_HEAD_BYTES (32 + REGISTERS * 8)\n"));
        let defined = |name: &str, value: u64| {
            let line = format!("#define {name} {value}");
            let is_it = |found: &str| found == line || found.starts_with(&format!("{line} "));
            assert!(
                walk.lines()
                    .chain(program.lines())
                    .chain(python.lines())
                    .chain(ruby.lines())
                    .chain(v8.lines())
                    .chain(stacks.lines())
                    .any(is_it),
                "{line}"
            );
        };
        defined("CHUNK_BLOCKS", CHUNK_BLOCKS.into());
        defined("ADDRESS_BITS", ADDRESSES.trailing_zeros().into());
        defined("MOST_CHUNKS", CHUNKS_MAX.into());
        defined("MOST_FILES", FILES_MAX.into());
        defined("FILE_TABLE", FILE_TABLE.into());
        defined("FILE_WITHOUT", FILE_WITHOUT.into());
        defined("RECORD_WALK", RECORD_WALK.into());
        defined("RECORD_COPY", RECORD_COPY.into());
        defined("RECORD_PYTHON", RECORD_PYTHON.into());
        defined("RECORD_RUBY", RECORD_RUBY.into());
        defined("RECORD_V8", RECORD_V8.into());
        defined("RECORD_PIECE", RECORD_PIECE.into());
        defined("RECORD_MISS", RECORD_MISS.into());
        defined("WALK_BUSY", WALK_BUSY.into());
        defined("WALK_HEAD_BYTES", WALK_HEAD_BYTES as u64);
        defined("REGISTERS", COPY_REGISTERS as u64);
        let ends = [
            "ROOT",
            "LOST",
            "MEMORY",
            "NO_RULE",
            "DEEP",
            "NO_TABLE",
            "NO_LIST",
            "UNSUPPORTED",
        ];
        for (number, name) in (0..).zip(ends) {
            defined(&format!("WALK_{name}"), number.into());
            let end = format!("{:?}", WalkEnd::of(number)).to_uppercase();
            assert_eq!(end, format!("SOME({})", name.replace('_', "")));
        }
    }
}
