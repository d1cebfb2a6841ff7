//! Lines and variables of a function, from DWARF: locations and types.
//!
//! ```text
//! work (prog.c:10)   line 12 at 0x11a3   total: -20 from the frame → 12 bytes above the stack pointer, int
//! ```
//! DWARF 2 to 5 (<https://dwarfstd.org>), read by gimli. Only locations that a probe can follow are supported: a
//! register, or memory at a fixed distance from one. A variable that is computed, split or optimized out there gets the
//! reason instead.

mod lines;
mod locations;
#[cfg(test)]
mod tests;
mod types;

use std::collections::BTreeMap;

use gimli::{AttributeValue, DwAt, EndianSlice, RunTimeEndian, UnitOffset};
use perfquet_events::Error;
use perfquet_events::bytes::Endian;

use super::elf::{DEBUG_SECTIONS, EM_AARCH64, EM_X86_64, Elf, Part};
use super::probe_points::{CodeSymbol, Object};

pub use lines::{LinePlace, SourceLines};
pub use locations::{Location, Scope, Variable};
pub use types::{Member, Shape};

pub(in crate::symbols) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
pub(in crate::symbols) type Unit<'a> = gimli::Unit<Slice<'a>>;
pub(in crate::symbols) type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
pub(in crate::symbols) type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

impl Object {
    /// The lines of a function.
    pub fn lines_of(&self, symbol: &CodeSymbol) -> Result<SourceLines, Error> {
        let sections = Sections::of(self.with_debugging_information());
        let found = self.address_of(symbol.offset).map(|address| {
            let dwarf = sections.dwarf();
            lines::lines_of(&dwarf, address, symbol.bytes, |address| {
                self.offset_of(address)
            })
        });
        match found {
            Some(Ok(lines)) => Ok(lines),
            Some(Err(error)) => Err(self.damaged(&error)),
            None => Ok(SourceLines::default()),
        }
    }

    /// The name of a function in its debug info, without the enclosing names: `gen<u32>`, even if the symbol table has
    /// it without its type (Rust's older mangling).
    pub fn declared_name(&self, symbol: &CodeSymbol) -> Option<String> {
        let sections = Sections::of(self.with_debugging_information());
        let dwarf = sections.dwarf();
        let address = self.address_of(symbol.offset)?;
        let (unit, offset) = function_at(&dwarf, address).ok()??;
        let entry = unit.entry(offset).ok()?;
        let name = attribute(&unit, &entry, gimli::DW_AT_name).ok()?;
        text(&dwarf, &unit, name)
    }

    /// The size in bytes and the sign of the integer that a function returns, if its debug info says that it returns one.
    pub fn returned_integer(&self, symbol: &CodeSymbol) -> Option<(u8, bool)> {
        let sections = Sections::of(self.with_debugging_information());
        let dwarf = sections.dwarf();
        let address = self.address_of(symbol.offset)?;
        let (unit, offset) = function_at(&dwarf, address).ok()??;
        let entry = unit.entry(offset).ok()?;
        match attribute(&unit, &entry, gimli::DW_AT_type).ok()?? {
            AttributeValue::UnitRef(kind) => types::integer_of(&unit, kind).ok()?,
            _ => None,
        }
    }

    /// The variables in scope at an offset in the file, inside a function.
    pub fn variables_at(&self, symbol: &CodeSymbol, offset: u64) -> Result<Scope, Error> {
        let elf = self.with_debugging_information();
        let sections = Sections::of(elf);
        let (Some(function), Some(place)) =
            (self.address_of(symbol.offset), self.address_of(offset))
        else {
            return Ok(Scope::default());
        };
        let registers = match elf.machine {
            EM_X86_64 => &locations::X86_64[..],
            EM_AARCH64 => &locations::AARCH64[..],
            _ => &[][..],
        };
        let unwind = self.unwind_section();
        let frame = locations::frame_at(&sections, unwind.as_ref(), place);
        let dwarf = sections.dwarf();
        locations::scope_at(&dwarf, function, place, frame, registers)
            .map_err(|error| self.damaged(&error))
    }

    fn damaged(&self, error: &gimli::Error) -> Error {
        Error::Symbols {
            path: self.path().to_owned(),
            message: format!("its debugging information is damaged: {error}"),
        }
    }
}

/// The sections that DWARF is read from; they outlive their borrowers.
pub(in crate::symbols) struct Sections {
    parts: BTreeMap<&'static str, Part>,
    endian: Endian,
}

impl Sections {
    pub(in crate::symbols) fn of(elf: &Elf) -> Sections {
        let names = DEBUG_SECTIONS.into_iter().chain([".debug_frame"]);
        let parts = names
            .filter_map(|name| Some((name, elf.contents(name.as_bytes())?)))
            .collect();
        Sections {
            parts,
            endian: elf.endian(),
        }
    }

    /// The bytes of a section; empty if it is missing.
    pub(in crate::symbols) fn bytes_of(&self, name: &str) -> &[u8] {
        self.parts.get(name).map_or(&[][..], |part| part)
    }

    pub(in crate::symbols) fn endian(&self) -> RunTimeEndian {
        match self.endian {
            Endian::Little => RunTimeEndian::Little,
            Endian::Big => RunTimeEndian::Big,
        }
    }

    fn slice(&self, name: &str) -> Slice<'_> {
        EndianSlice::new(self.bytes_of(name), self.endian())
    }

    pub(in crate::symbols) fn dwarf(&self) -> Dwarf<'_> {
        let load = |id: gimli::SectionId| Ok::<_, gimli::Error>(self.slice(id.name()));
        gimli::Dwarf::load(load).unwrap_or_default()
    }
}

/// The unit and the entry of the function that begins at an address.
fn function_at<'a>(
    dwarf: &Dwarf<'a>,
    address: u64,
) -> Result<Option<(Unit<'a>, UnitOffset)>, gimli::Error> {
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let mut ranges = dwarf.unit_ranges(&unit)?;
        let (mut holds, mut any) = (false, false);
        while let Some(range) = ranges.next()? {
            any = true;
            holds |= (range.begin..range.end).contains(&address);
        }
        if any && !holds {
            continue;
        }
        let mut entries = unit.entries();
        let mut found = None;
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() == gimli::DW_TAG_subprogram
                && low_address(dwarf, &unit, entry)? == Some(address)
            {
                found = Some(entry.offset());
                break;
            }
        }
        if let Some(offset) = found {
            return Ok(Some((unit, offset)));
        }
    }
    Ok(None)
}

fn low_address<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    entry: &Entry<'a>,
) -> Result<Option<u64>, gimli::Error> {
    match entry.attr_value(gimli::DW_AT_low_pc) {
        Some(value) => dwarf.attr_address(unit, value),
        // For a function in several pieces, with cold ones elsewhere: the first contains the entry.
        None => match dwarf.die_ranges(unit, entry)?.next()? {
            Some(range) => Ok(Some(range.begin)),
            None => Ok(None),
        },
    }
}

/// An attribute of an entry, or of its abstract origin.
fn attribute<'a>(
    unit: &Unit<'a>,
    entry: &Entry<'a>,
    name: DwAt,
) -> Result<Option<AttributeValue<Slice<'a>>>, gimli::Error> {
    let mut entry = entry.clone();
    for _ in 0..4 {
        if let Some(value) = entry.attr_value(name) {
            return Ok(Some(value));
        }
        let origin = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification));
        match origin {
            Some(AttributeValue::UnitRef(offset)) => entry = unit.entry(offset)?,
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn text<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    value: Option<AttributeValue<Slice<'a>>>,
) -> Option<String> {
    let text = dwarf.attr_string(unit, value?).ok()?;
    Some(text.to_string_lossy().into_owned())
}
