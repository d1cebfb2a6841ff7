//! Unwind rules and names of Go code, which has no call frame information: `.gopclntab`, which stripped programs keep, has, for every instruction, the distance
//! of the stack pointer from its value at function entry.
//!
//! ```text
//! f1 ff ff ff 00 00 01 08   magic of Go 1.20, instruction size, pointer size; then counts and offsets
//! functab   u32 entry, u32 offset of the function     _func   … u32 pcsp …
//! pcsp      +0 for 9 bytes, +24 for 40 bytes, -24 …   →  CFA = rsp+8, rsp+32, rsp+8
//! ```
//! Go's src/runtime/symtab.go (pcHeader, funcInfo) and src/debug/gosym/pclntab.go; formats of Go 1.16 to today. The section
//! may be hostile: every offset is checked, and the work is bounded by its size.

use perfquet_events::bytes::{Cursor, Endian, before_nul};

use super::super::elf::{Elf, Part};
use super::super::limits::SYMBOLS_MAX;
use super::super::table::{Symbol, Table};
use super::rule::{Frame, RSP, Rbp, Rule};

const MAGIC_1_16: u32 = 0xffff_fffa;
const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;

/// Where threads and goroutines begin.
const ROOTS: [&[u8]; 4] = [
    b"runtime.goexit",
    b"runtime.mstart",
    b"runtime.rt0_go",
    b"_rt0_amd64_linux",
];
/// Functions that switch stacks and leave the frame pointer on the previous one. The clock functions do so for the
/// vDSO.
const SWITCHES: [&[u8]; 8] = [
    b"runtime.systemstack",
    b"runtime.mcall",
    b"runtime.asmcgocall",
    b"runtime.morestack",
    b"runtime.cgocallback",
    b"runtime.nanotime1",
    b"runtime.walltime",
    b"time.now",
];

/// Length of a name that is read; names with many type parameters are long.
const NAME_READ_MAX: usize = 4096;

/// The functions of a Go program.
pub(super) struct GoFrames {
    section: Part,
    functions: Vec<GoFunction>,
    names: usize,
    pc_tables: usize,
    func_pcsp: usize,
    func_name: usize,
}

/// A function of a Go program.
#[derive(Debug, Clone, Copy)]
pub(super) struct GoFunction {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of its `_func`, in the section.
    offset: usize,
}

/// The names of a Go program's functions; `None` for other programs.
pub(in crate::symbols) fn go_names(image: &Elf) -> Option<Table> {
    let frames = GoFrames::of(image)?;
    let symbols = frames.functions.iter().filter_map(|function| {
        let at = frames.name_at(function)?;
        let name = frames.section.get(at..)?;
        let name = before_nul(name.get(..NAME_READ_MAX).unwrap_or(name));
        let (at, length) = (u32::try_from(at).ok()?, u32::try_from(name.len()).ok()?);
        Some(Symbol::new(function.start, function.end, at, length))
    });
    let symbols = symbols.collect();
    Some(Table::new(symbols, frames.section.clone(), |_, _, _| true))
}

/// The sections with Go's tables.
const SECTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

/// Whether a file may have Go's functions.
pub(super) fn has_functions(image: &Elf) -> bool {
    SECTIONS.iter().any(|name| image.section(name).is_some())
}

impl GoFrames {
    /// Lists the functions of a Go program; `None` for other programs.
    pub(super) fn of(image: &Elf) -> Option<GoFrames> {
        let section = SECTIONS.iter().find_map(|name| image.contents(name))?;
        let mut head = Cursor::new(&section, 0, Endian::Little);
        let magic = head.u32().ok()?;
        let [0, 0, _, 8] = *head.bytes(4).ok()? else {
            return None;
        };
        let count = head.u64().ok()?;
        head.u64().ok()?; // files
        let is_relative = matches!(magic, MAGIC_1_18 | MAGIC_1_20);
        let text = match magic {
            MAGIC_1_16 => 0,
            MAGIC_1_18 | MAGIC_1_20 => {
                let address = head.u64().ok()?;
                // Not set in files that are relocated.
                match image.code_at(address) {
                    Some(_) if address > 0 => address,
                    _ => image.section(b".text")?.address,
                }
            }
            _ => return None,
        };
        let mut offset = || usize::try_from(head.u64().ok()?).ok();
        let (names, _units, _files, pc_tables, functions_at) =
            (offset()?, offset()?, offset()?, offset()?, offset()?);
        let mut frames = GoFrames {
            functions: Vec::new(),
            names,
            pc_tables,
            func_pcsp: if is_relative { 16 } else { 20 },
            func_name: if is_relative { 4 } else { 8 },
            section,
        };
        frames.functions = frames.functions_at(functions_at, count, is_relative, text)?;
        Some(frames)
    }

    /// `functab`: entry and offset of each function, then the end of the last.
    fn functions_at(
        &self,
        at: usize,
        count: u64,
        is_relative: bool,
        text: u64,
    ) -> Option<Vec<GoFunction>> {
        let table = self.section.get(at..)?;
        let mut cursor = Cursor::new(table, at as u64, Endian::Little);
        let mut number = || match is_relative {
            true => cursor.u32().map(u64::from).ok(),
            false => cursor.u64().ok(),
        };
        let mut functions: Vec<GoFunction> = Vec::new();
        for _ in 0..count.min(SYMBOLS_MAX) {
            let (Some(entry), Some(offset)) = (number(), number()) else {
                break;
            };
            let start = text.wrapping_add(entry);
            if let Some(last) = functions.last_mut() {
                last.end = start;
            }
            let offset = usize::try_from(offset).ok()?.checked_add(at)?;
            functions.push(GoFunction {
                start,
                end: start,
                offset,
            });
        }
        if let (Some(last), Some(end)) = (functions.last_mut(), number()) {
            last.end = text.wrapping_add(end);
        }
        functions
            .is_sorted_by_key(|function| function.start)
            .then_some(functions)
    }

    /// The functions, by address.
    pub(super) fn functions(&self) -> &[GoFunction] {
        &self.functions
    }

    /// The rule at an address; [`Rule::Gap`] outside of all functions.
    pub(super) fn rule_at(&self, address: u64) -> Rule {
        let next = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = next
            .checked_sub(1)
            .and_then(|last| self.functions.get(last));
        let Some(function) = function.filter(|function| address < function.end) else {
            return Rule::Gap;
        };
        let mut found = Rule::Gap;
        self.rules_of(function, &mut |start, rule| {
            if start <= address {
                found = rule;
            }
            start <= address
        });
        found
    }

    /// Passes every rule of a function with its first address, in order, until `each` returns false.
    pub(super) fn rules_of(&self, function: &GoFunction, each: &mut dyn FnMut(u64, Rule) -> bool) {
        let name = self.name(function).unwrap_or_default();
        if ROOTS.contains(&name) {
            each(function.start, Rule::Root);
            return;
        }
        if SWITCHES.contains(&name) {
            each(function.start, Rule::Switch);
            return;
        }
        if self.follow(function, each).is_none() {
            each(function.start, Rule::Gap);
        }
    }

    /// `pcsp`: pairs of a change of the distance and the bytes that it is for, both of variable length.
    fn follow(&self, function: &GoFunction, each: &mut dyn FnMut(u64, Rule) -> bool) -> Option<()> {
        let place = function.offset.checked_add(self.func_pcsp)?;
        let pcsp = Endian::Little.u32_at(&self.section, place)? as usize;
        if pcsp == 0 {
            return None;
        }
        let mut table = self
            .section
            .get(self.pc_tables.checked_add(pcsp)?..)?
            .iter();
        let mut pc = function.start;
        let mut distance: i32 = -1;
        while pc < function.end {
            let change = number(&mut table)?;
            if change == 0 && pc != function.start {
                break;
            }
            let change = (change >> 1) as i32 ^ -((change & 1) as i32);
            distance = distance.checked_add(change)?;
            let rule = match distance {
                ..0 => Rule::Opaque,
                0 => Rule::Frame(Frame::ENTRY),
                distance => Rule::Frame(Frame::at(RSP, distance.checked_add(8)?, Rbp::AtCfa(-16))),
            };
            if !each(pc, rule) {
                break;
            }
            let step = number(&mut table)?;
            if step == 0 {
                break;
            }
            pc = pc.checked_add(step.into())?;
        }
        Some(())
    }

    /// Where the name begins in the section.
    fn name_at(&self, function: &GoFunction) -> Option<usize> {
        let place = function.offset.checked_add(self.func_name)?;
        let name = Endian::Little.u32_at(&self.section, place)? as usize;
        self.names.checked_add(name)
    }

    /// The beginning of the name, as far as it is compared.
    fn name(&self, function: &GoFunction) -> Option<&[u8]> {
        let names = self.section.get(self.name_at(function)?..)?;
        let name = before_nul(names.get(..48).unwrap_or(names));
        Some(name.strip_suffix(b".abi0").unwrap_or(name))
    }
}

/// Seven bits a byte, the lowest first.
fn number<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u32> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let byte = bytes.next()?;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
