//! Symbols and relocations of functions in an ELF file.
//!
//! ```text
//! Elf64_Sym: name 0x1a3, info 0x12 (global function), other 0, section 15, address 0x1189, 102 bytes
//! ```

use std::ops::RangeInclusive;

use perfquet_events::bytes::{Cursor, Short};

use super::super::limits::SYMBOLS_MAX;
use super::{EM_AARCH64, EM_ARM, Elf, Part, SHF_ALLOC, SHF_EXECINSTR, Section};

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const RELA_BYTES: usize = 24;
const R_X86_64_DTPMOD64: u32 = 16;
/// Relocations of a file that are read: 2,700 in libruby.
const RELOCATIONS_MAX: usize = 1 << 20;
/// Relocations of that type that are examined: libraries have a handful.
const MODULE_NUMBERS_MAX: usize = 64;
const SHN_UNDEF: u16 = 0;
const SHN_ABS: u16 = 0xfff1;
const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// A function, or a label in code.
pub(in crate::symbols) struct Function {
    pub(in crate::symbols) address: u64,
    /// 0 if not stated.
    pub(in crate::symbols) bytes: u64,
    /// End of its section.
    pub(in crate::symbols) section_end: u64,
    /// Offset of the name in [`Functions::names`].
    pub(in crate::symbols) name: u32,
    pub(in crate::symbols) weak: bool,
    pub(in crate::symbols) global: bool,
}

/// The functions of one symbol table.
pub(in crate::symbols) struct Functions {
    pub(in crate::symbols) names: Part,
    pub(in crate::symbols) list: Vec<Function>,
}

impl Elf {
    /// Whether it has the full symbol table, not only the dynamic one.
    pub(in crate::symbols) fn has_symbol_table(&self) -> bool {
        self.symbol_section(SHT_SYMTAB).is_some()
    }

    fn symbol_section(&self, kind: u32) -> Option<&Section> {
        self.sections
            .iter()
            .find(|section| section.kind == kind && self.raw(section).is_some())
    }

    /// The functions of the full symbol table, or else of the dynamic one.
    pub(in crate::symbols) fn functions(&self) -> Option<Functions> {
        let section = self
            .symbol_section(SHT_SYMTAB)
            .or_else(|| self.symbol_section(SHT_DYNSYM))?;
        let names = self.part(self.sections.get(section.link as usize)?)?;
        let mut list = Vec::new();
        for entry in self.symbol_entries(section)? {
            let Ok(symbol) = self.symbol(entry) else {
                break;
            };
            if let Some(function) = self.as_function(&symbol, &names) {
                list.push(function);
            }
            if list.len() as u64 >= SYMBOLS_MAX {
                log::info!("a file has more than {SYMBOLS_MAX} functions");
                break;
            }
        }
        Some(Functions { names, list })
    }

    /// Name of a dynamic symbol.
    pub(in crate::symbols) fn dynamic_name(&self, index: u32) -> Option<&[u8]> {
        let section = self.symbol_section(SHT_DYNSYM)?;
        let entry = self.symbol_entries(section)?.nth(index as usize)?;
        let symbol = self.symbol(entry).ok()?;
        let names = self.raw(self.sections.get(section.link as usize)?)?;
        let name = perfquet_events::bytes::before_nul(names.get(symbol.name as usize..)?);
        (!name.is_empty()).then_some(name)
    }

    /// Address of a defined symbol of any kind, from the dynamic table or the full one.
    pub(in crate::symbols) fn address_of_symbol(&self, wanted: &[u8]) -> Option<u64> {
        let tables = [SHT_DYNSYM, SHT_SYMTAB].into_iter();
        let sections = tables.filter_map(|kind| self.symbol_section(kind));
        sections.into_iter().find_map(|section| {
            let names = self.raw(self.sections.get(section.link as usize)?)?;
            let symbols = self
                .symbol_entries(section)?
                .map_while(|entry| self.symbol(entry).ok());
            let is_it = |symbol: &RawSymbol| {
                let name = names.get(symbol.name as usize..).unwrap_or_default();
                let rest = name.strip_prefix(wanted);
                symbol.section != SHN_UNDEF && rest.is_some_and(|rest| rest.first() == Some(&0))
            };
            { symbols }.find(is_it).map(|symbol| symbol.address)
        })
    }

    /// Names and addresses of defined symbols of any kind, from the dynamic table, or from the full one if that has none.
    pub(in crate::symbols) fn symbols_with_prefix(&self, prefix: &[u8]) -> Vec<(String, u64)> {
        let tables = [SHT_DYNSYM, SHT_SYMTAB].into_iter();
        let mut sections = tables.filter_map(|kind| self.symbol_section(kind));
        let found = |section: &Section| {
            let names = self.raw(self.sections.get(section.link as usize)?)?;
            let symbols = self
                .symbol_entries(section)?
                .map_while(|entry| self.symbol(entry).ok());
            let named = symbols.filter_map(|symbol| {
                let name = names.get(symbol.name as usize..)?;
                if !name.starts_with(prefix) || symbol.section == SHN_UNDEF {
                    return None;
                }
                let name = perfquet_events::bytes::before_nul(name);
                Some((String::from_utf8_lossy(name).into_owned(), symbol.address))
            });
            let named: Vec<(String, u64)> = named.collect();
            (!named.is_empty()).then_some(named)
        };
        sections.find_map(found).unwrap_or_default()
    }

    /// Address at which the dynamic linker writes the number of this file among those with variables of threads, for all of them or
    /// for one; `None` if no relocation asks for it (x86-64).
    pub(in crate::symbols) fn module_number_place(&self, variable: &[u8]) -> Option<u64> {
        let section = self.section(b".rela.dyn").filter(|_| self.wide)?;
        let entries = self.raw(section)?.chunks_exact(RELA_BYTES);
        let entries = entries.take(RELOCATIONS_MAX);
        let mut places = entries.filter_map(|entry| {
            let mut cursor = Cursor::new(entry, 0, self.endian);
            let (place, kind, symbol) =
                (cursor.u64().ok()?, cursor.u32().ok()?, cursor.u32().ok()?);
            (kind == R_X86_64_DTPMOD64).then_some((place, symbol))
        });
        let is_own = |symbol: u32| symbol == 0 || self.dynamic_name(symbol) == Some(variable);
        let mut places = places.by_ref().take(MODULE_NUMBERS_MAX);
        places
            .find(|&(_, symbol)| is_own(symbol))
            .map(|(place, _)| place)
    }

    fn symbol_entries(&self, section: &Section) -> Option<std::slice::ChunksExact<'_, u8>> {
        let size = if self.wide { 24 } else { 16 };
        // Half of a table's entries or more are functions.
        let most = size * 4 * SYMBOLS_MAX as usize;
        let raw = self.raw(section)?;
        Some(raw.get(..most).unwrap_or(raw).chunks_exact(size))
    }

    fn symbol(&self, entry: &[u8]) -> Result<RawSymbol, Short> {
        let mut cursor = Cursor::new(entry, 0, self.endian);
        let name = cursor.u32()?;
        let symbol = if self.wide {
            let info = cursor.u8()?;
            let other = cursor.u8()?;
            let section = cursor.u16()?;
            RawSymbol {
                name,
                info,
                other,
                section,
                address: cursor.u64()?,
                bytes: cursor.u64()?,
            }
        } else {
            let address = u64::from(cursor.u32()?);
            let bytes = u64::from(cursor.u32()?);
            RawSymbol {
                name,
                info: cursor.u8()?,
                other: cursor.u8()?,
                section: cursor.u16()?,
                address,
                bytes,
            }
        };
        Ok(symbol)
    }

    /// The choice of `dso__load_sym` in perf's `util/symbol-elf.c`: functions, and labels in sections of code that are
    /// not hidden; neither absolute nor undefined ones, and no mapping symbols of ARM. (perf keeps data too, but no
    /// sampled code address is in it.)
    fn as_function(&self, symbol: &RawSymbol, names: &[u8]) -> Option<Function> {
        const HIDDEN: u8 = 2;
        const INTERNAL: u8 = 1;
        let kind = symbol.info & 0xf;
        let is_function = kind == STT_FUNC || kind == STT_GNU_IFUNC;
        let visibility = symbol.other & 3;
        let is_label = kind == STT_NOTYPE && visibility != HIDDEN && visibility != INTERNAL;
        if !(is_function || is_label)
            || symbol.name == 0
            || symbol.section == SHN_UNDEF
            || symbol.section == SHN_ABS
        {
            return None;
        }
        let section = self.sections.get(usize::from(symbol.section))?;
        if section.flags & SHF_ALLOC == 0 {
            return None;
        }
        if is_label {
            let is_text =
                section.flags & SHF_EXECINSTR != 0 && memchr_text(self.section_name(section));
            if !is_text {
                return None;
            }
        }
        let name = names.get(symbol.name as usize..)?;
        let is_arm = self.machine == EM_ARM || self.machine == EM_AARCH64;
        if is_arm && is_mapping_symbol(name) {
            return None;
        }
        // The lowest bit of an ARM function marks Thumb code.
        let thumb = self.machine == EM_ARM && kind == STT_FUNC;
        Some(Function {
            address: symbol.address & !u64::from(thumb),
            bytes: symbol.bytes,
            section_end: section.addresses().end,
            name: symbol.name,
            weak: symbol.info >> 4 == 2,
            global: symbol.info >> 4 == 1,
        })
    }

    /// Relocations of a section with addends, of places in a range: a library may have a million, nearly all in its data.
    pub(in crate::symbols) fn relocations(
        &self,
        name: &[u8],
        places: &RangeInclusive<u64>,
    ) -> Vec<Relocation> {
        let Some(entries) = self
            .section(name)
            .and_then(|section| self.raw(section))
            .filter(|_| self.wide)
        else {
            return Vec::new();
        };
        let mut relocations = Vec::new();
        for entry in entries.chunks_exact(24).take(SYMBOLS_MAX as usize) {
            let mut cursor = Cursor::new(entry, 0, self.endian);
            let (Ok(place), Ok(info), Ok(addend)) = (cursor.u64(), cursor.u64(), cursor.i64())
            else {
                break;
            };
            if !places.contains(&place) {
                continue;
            }
            relocations.push(Relocation {
                place,
                kind: info as u32,
                symbol: (info >> 32) as u32,
                addend,
            });
        }
        relocations
    }
}

/// `Elf64_Rela`
pub(in crate::symbols) struct Relocation {
    pub(in crate::symbols) place: u64,
    pub(in crate::symbols) kind: u32,
    pub(in crate::symbols) symbol: u32,
    pub(in crate::symbols) addend: i64,
}

struct RawSymbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    address: u64,
    bytes: u64,
}

fn memchr_text(section_name: &[u8]) -> bool {
    section_name.windows(4).any(|four| four == b"text")
}

/// `$a`, `$d`, `$x`, `$t`, alone or before a dot: they mark changes between code and data, not functions.
fn is_mapping_symbol(name: &[u8]) -> bool {
    matches!(
        name,
        [b'$', b'a' | b'd' | b't' | b'x', 0 | b'.', ..] | [b'$', b'a' | b'd' | b't' | b'x']
    )
}
