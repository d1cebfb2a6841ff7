//! The parts of an ELF file needed for names and unwinding: segments, sections, notes, symbols.
//!
//! ```text
//! 7f 45 4c 46 02 01 …   class (1: 32-bit, 2: 64-bit), byte order (1: little, 2: big)
//! PT_LOAD  file offset 0x26000 → address 0x26000, 0x1550fc bytes, executable
//! .note.gnu.build-id: "GNU", type 3, 93ac61ec…
//! ```
//! elf(5); System V ABI, chapters 4 and 5. Both classes and byte orders. The file may be hostile: every offset is
//! checked against its length, and no allocation is larger than the file.
//!
//! The crate `object` reads the same headers and finds the same functions, but takes 1.2 (libc) to 4.2 times as long
//! (libLLVM: 1.90 for 0.45 ms), borrows from the file where names outlive it here, and decompresses sections without
//! a limit.

mod symbols;
mod unpacked;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use perfquet_events::input::Map;

use perfquet_events::bytes::{Cursor, Endian, Short};

use super::limits::{self, NOTE_BYTES_MAX, SECTIONS_MAX};

/// Debug info of lines, inlined functions and variables.
pub(in crate::symbols) const DEBUG_SECTIONS: [&str; 12] = [
    ".debug_abbrev",
    ".debug_addr",
    ".debug_aranges",
    ".debug_info",
    ".debug_line",
    ".debug_line_str",
    ".debug_loc",
    ".debug_loclists",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_str",
    ".debug_str_offsets",
];

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
const SHF_COMPRESSED: u64 = 0x800;
const NT_GNU_BUILD_ID: u32 = 3;
const ET_REL: u16 = 1;

/// `e_machine` values that need special treatment.
const EM_ARM: u16 = 40;
pub(in crate::symbols) const EM_X86_64: u16 = 62;
pub(in crate::symbols) const EM_AARCH64: u16 = 183;

/// Unit of the size of a file on the disk (stat(2)).
const BLOCK_BYTES: u64 = 512;
/// Size of a file name and a checksum.
const LINK_BYTES_MAX: usize = 1024;
/// Length of a section's name that is compared.
const SECTION_NAME_MAX: usize = 64;

/// Maximum size of a decompressed section, and maximum compression ratio: a few packed bytes can promise any size.
/// Debug info shrinks to a fifth or a tenth.
const DECOMPRESSED_MAX: u64 = 1 << 30;
const DECOMPRESSED_RATIO_MAX: u64 = 64;

pub(super) use symbols::{Function, Functions, Relocation};

/// Bytes of a file, mapped or in memory.
pub(in crate::symbols) enum Content {
    Mapped(Map),
    Owned(Vec<u8>),
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Content::Mapped(map) => map,
            Content::Owned(bytes) => bytes,
        }
    }
}

/// A part of a file that keeps the file alive.
#[derive(Clone)]
pub(in crate::symbols) struct Part {
    content: Arc<Content>,
    range: Range<usize>,
}

impl Part {
    /// All of a file.
    pub(in crate::symbols) fn whole(content: Content) -> Part {
        Part {
            range: 0..content.len(),
            content: Arc::new(content),
        }
    }

    /// All of `bytes`.
    pub(in crate::symbols) fn owned(bytes: Vec<u8>) -> Part {
        let range = 0..bytes.len();
        Part {
            content: Arc::new(Content::Owned(bytes)),
            range,
        }
    }
}

impl Default for Part {
    fn default() -> Part {
        Part::owned(Vec::new())
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.content.get(self.range.clone()).unwrap_or_default()
    }
}

/// The reason for rejecting a file as ELF.
#[derive(Debug)]
pub(in crate::symbols) enum Bad {
    Io(io::Error),
    Text(String),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Io(error) => error.fmt(f),
            Bad::Text(text) => f.write_str(text),
        }
    }
}

impl From<Short> for Bad {
    fn from(short: Short) -> Bad {
        Bad::Text(format!("offset {:#x}: {short}", short.offset))
    }
}

/// A program header.
#[derive(Debug, Clone)]
pub(in crate::symbols) struct Segment {
    kind: u32,
    pub(in crate::symbols) executable: bool,
    pub(in crate::symbols) offset: u64,
    pub(in crate::symbols) address: u64,
    pub(in crate::symbols) file_bytes: u64,
}

/// A section header.
#[derive(Debug, Clone)]
pub(in crate::symbols) struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    pub(in crate::symbols) address: u64,
    offset: u64,
    pub(in crate::symbols) bytes: u64,
    link: u32,
    info: u32,
    pub(in crate::symbols) alignment: u64,
    pub(in crate::symbols) entry_bytes: u64,
}

impl Section {
    /// A section of code at an address, for tests.
    #[cfg(test)]
    pub(in crate::symbols) fn at(address: u64) -> Section {
        Section {
            name: 0,
            kind: 1,
            flags: SHF_ALLOC | SHF_EXECINSTR,
            address,
            offset: 0,
            bytes: 0,
            link: 0,
            info: 0,
            alignment: 16,
            entry_bytes: 0,
        }
    }

    /// The address range.
    pub(in crate::symbols) fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes)
    }
}

/// Where BOLT leaves the code of the functions that it has moved: 62 MB in rustc, of which nothing runs.
const MOVED: &[u8] = b".bolt.org.text";

/// An ELF file.
pub(in crate::symbols) struct Elf {
    content: Arc<Content>,
    endian: Endian,
    wide: bool,
    kind: u16,
    pub(in crate::symbols) machine: u16,
    /// The address where a program begins; 0 for most libraries.
    pub(in crate::symbols) entry: u64,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    section_names: u32,
}

impl Elf {
    /// Maps and reads the headers of a regular file.
    pub(in crate::symbols) fn open(path: &Path) -> Result<Elf, Bad> {
        let map = Map::foreign(path).map_err(Bad::Io)?;
        let metadata = map.file().map(File::metadata).transpose();
        let metadata = metadata.map_err(Bad::Io)?;
        let on_disk = metadata.map_or(u64::MAX, |metadata| metadata.blocks() * BLOCK_BYTES);
        if limits::is_hollow(map.len() as u64, on_disk) {
            return Err(Bad::Text(format!(
                "{} bytes, of which only {on_disk} are on the disk",
                map.len()
            )));
        }
        Elf::parse(Content::Mapped(map))
    }

    /// Reads the headers.
    pub(in crate::symbols) fn parse(content: Content) -> Result<Elf, Bad> {
        let ident = content
            .get(..16)
            .ok_or_else(|| Bad::Text("shorter than an ELF header".into()))?;
        let (magic, class, order) = match ident {
            [a, b, c, d, class, order, ..] => ([*a, *b, *c, *d], *class, *order),
            _ => return Err(Bad::Text("shorter than an ELF header".into())),
        };
        if magic != *b"\x7fELF" {
            return Err(Bad::Text("not an ELF file".into()));
        }
        let wide = match class {
            1 => false,
            2 => true,
            other => return Err(Bad::Text(format!("ELF class {other}, expected 1 or 2"))),
        };
        let endian = match order {
            1 => Endian::Little,
            2 => Endian::Big,
            other => return Err(Bad::Text(format!("byte order {other}, expected 1 or 2"))),
        };
        let mut elf = Elf {
            content: Arc::new(content),
            endian,
            wide,
            kind: 0,
            machine: 0,
            entry: 0,
            segments: Vec::new(),
            sections: Vec::new(),
            section_names: 0,
        };
        elf.read_headers()?;
        Ok(elf)
    }

    fn read_headers(&mut self) -> Result<(), Bad> {
        let content = Arc::clone(&self.content);
        let mut cursor = Cursor::new(&content, 0, self.endian);
        cursor.bytes(16)?;
        self.kind = cursor.u16()?;
        self.machine = cursor.u16()?;
        cursor.u32()?; // e_version
        self.entry = self.word(&mut cursor)?;
        let segments_at = self.word(&mut cursor)?;
        let sections_at = self.word(&mut cursor)?;
        cursor.u32()?; // e_flags
        cursor.u16()?; // e_ehsize
        let segment_bytes = u64::from(cursor.u16()?);
        let mut segment_count = u64::from(cursor.u16()?);
        let section_bytes = u64::from(cursor.u16()?);
        let mut section_count = u64::from(cursor.u16()?);
        self.section_names = u32::from(cursor.u16()?);
        // Counts that do not fit are in the first section (elf(5), "e_shnum").
        let escaped = section_count == 0 || self.section_names == 0xffff || segment_count == 0xffff;
        if sections_at != 0 && escaped {
            let first = self.section_at(&content, sections_at)?;
            if section_count == 0 {
                section_count = first.bytes;
            }
            if self.section_names == 0xffff {
                self.section_names = first.link;
            }
            if segment_count == 0xffff {
                segment_count = u64::from(first.info);
            }
        }
        self.segments = self.table(segments_at, segment_bytes, segment_count, Elf::segment_at)?;
        self.sections = self.table(sections_at, section_bytes, section_count, Elf::section_at)?;
        Ok(())
    }

    fn table<T>(
        &self,
        at: u64,
        entry_bytes: u64,
        count: u64,
        read: fn(&Elf, &[u8], u64) -> Result<T, Short>,
    ) -> Result<Vec<T>, Bad> {
        if at == 0 || count == 0 {
            return Ok(Vec::new());
        }
        if count > SECTIONS_MAX {
            return Err(Bad::Text(format!(
                "offset {at:#x}: expected at most {SECTIONS_MAX} headers, found {count}"
            )));
        }
        let length = self.content.len() as u64;
        let fits = entry_bytes
            .checked_mul(count)
            .and_then(|bytes| bytes.checked_add(at))
            .is_some_and(|end| entry_bytes > 0 && end <= length);
        if !fits {
            return Err(Bad::Text(format!(
                "offset {at:#x}: expected a table of {count} headers, found the end of the file"
            )));
        }
        let mut entries = Vec::new();
        for index in 0..count {
            entries.push(read(self, &self.content, at + index * entry_bytes)?);
        }
        Ok(entries)
    }

    fn segment_at(&self, content: &[u8], at: u64) -> Result<Segment, Short> {
        let mut cursor = Cursor::new(content, 0, self.endian);
        cursor.bytes(at)?;
        let kind = cursor.u32()?;
        let flags_first = if self.wide { cursor.u32()? } else { 0 };
        let offset = self.word(&mut cursor)?;
        let address = self.word(&mut cursor)?;
        self.word(&mut cursor)?; // p_paddr
        let file_bytes = self.word(&mut cursor)?;
        self.word(&mut cursor)?; // p_memsz
        let flags = if self.wide {
            flags_first
        } else {
            cursor.u32()?
        };
        Ok(Segment {
            kind,
            executable: flags & 1 != 0,
            offset,
            address,
            file_bytes,
        })
    }

    fn section_at(&self, content: &[u8], at: u64) -> Result<Section, Short> {
        let mut cursor = Cursor::new(content, 0, self.endian);
        cursor.bytes(at)?;
        let name = cursor.u32()?;
        let kind = cursor.u32()?;
        let flags = self.word(&mut cursor)?;
        let address = self.word(&mut cursor)?;
        let offset = self.word(&mut cursor)?;
        let bytes = self.word(&mut cursor)?;
        let link = cursor.u32()?;
        let info = cursor.u32()?;
        let alignment = self.word(&mut cursor)?;
        let entry_bytes = self.word(&mut cursor)?;
        Ok(Section {
            name,
            kind,
            flags,
            address,
            offset,
            bytes,
            link,
            info,
            alignment,
            entry_bytes,
        })
    }

    fn word(&self, cursor: &mut Cursor<'_>) -> Result<u64, Short> {
        if self.wide {
            cursor.u64()
        } else {
            cursor.u32().map(u64::from)
        }
    }

    /// The byte order.
    pub(in crate::symbols) fn endian(&self) -> Endian {
        self.endian
    }

    /// Whether it is an object file (a kernel module), whose addresses are not relocated yet.
    pub(in crate::symbols) fn is_relocatable(&self) -> bool {
        self.kind == ET_REL
    }

    /// Whether addresses have 64 bits.
    pub(in crate::symbols) fn is_wide(&self) -> bool {
        self.wide
    }

    /// The segments that are loaded.
    pub(in crate::symbols) fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments
            .iter()
            .filter(|segment| segment.kind == PT_LOAD)
    }

    /// Whether the file contains code: a file of debug info alone has empty segments, and offsets in it have no
    /// meaning.
    pub(in crate::symbols) fn holds_code(&self) -> bool {
        self.loaded()
            .any(|segment| segment.executable && segment.file_bytes > 0)
    }

    /// The address to which a file offset is loaded, relative to the file's own base.
    pub(in crate::symbols) fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            offset
                .checked_sub(segment.offset)
                .is_some_and(|inside| inside < segment.file_bytes)
        };
        // Pages at the edge of two segments are mapped twice; prefer code.
        let segment = self
            .loaded()
            .filter(|segment| segment.executable)
            .find(holds)
            .or_else(|| self.loaded().find(holds))?;
        (offset - segment.offset).checked_add(segment.address)
    }

    /// Difference between addresses and offsets in the code segment shown by a mapping at `offset`. (Mappings start at
    /// whole pages, segments at any offset.)
    pub(in crate::symbols) fn address_minus_offset(&self, offset: u64) -> Option<u64> {
        let of_page = |page: u64| {
            self.loaded()
                .filter(|segment| segment.executable)
                .find(|segment| {
                    let end = segment.offset.saturating_add(segment.file_bytes);
                    (segment.offset & !(page - 1)..end).contains(&offset)
                })
        };
        let segment = of_page(0x1000).or_else(|| of_page(0x1_0000))?;
        Some(segment.address.wrapping_sub(segment.offset))
    }

    /// The contents of executable sections; without section headers, of executable segments.
    pub(in crate::symbols) fn code(&self) -> impl Iterator<Item = &[u8]> {
        let sections = self.sections.iter();
        let sections = sections.filter(|section| section.flags & SHF_EXECINSTR != 0);
        let segments = self.loaded().filter(|segment| segment.executable);
        let segments = segments.filter(|_| self.sections.is_empty());
        let of_segments = segments.filter_map(|segment| {
            let start = usize::try_from(segment.offset).ok()?;
            let bytes = usize::try_from(segment.file_bytes).ok()?;
            self.content.get(start..start.checked_add(bytes)?)
        });
        sections
            .filter_map(|section| self.raw(section))
            .chain(of_segments)
    }

    /// The addresses of executable sections, in order, without what BOLT has moved; without section headers, of executable
    /// segments, which may contain other data, too.
    pub(in crate::symbols) fn code_addresses(&self) -> Vec<Range<u64>> {
        let sections = self.sections.iter();
        let sections = sections
            .filter(|section| section.flags & SHF_EXECINSTR != 0 && section.kind != SHT_NOBITS)
            .filter(|section| self.section_name(section) != MOVED);
        let segments = self.loaded().filter(|segment| segment.executable);
        let segments = segments.filter(|_| self.sections.is_empty());
        let of_segments = segments
            .map(|segment| segment.address..segment.address.saturating_add(segment.file_bytes));
        let mut ranges: Vec<Range<u64>> = sections
            .map(Section::addresses)
            .chain(of_segments)
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        // Hostile ones overlap.
        ranges.dedup_by(|next, before| {
            let overlaps = next.start < before.end;
            if overlaps {
                before.end = before.end.max(next.end);
            }
            overlaps
        });
        ranges
    }

    /// The contents from an address on, to the end of its executable segment.
    pub(in crate::symbols) fn code_at(&self, address: u64) -> Option<&[u8]> {
        let mut segments = self.loaded().filter(|segment| segment.executable);
        segments.find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            let left = segment.file_bytes.checked_sub(inside)?;
            let start = usize::try_from(segment.offset.checked_add(inside)?).ok()?;
            let left = usize::try_from(left).ok().filter(|&left| left > 0)?;
            self.content.get(start..start.checked_add(left)?)
        })
    }

    /// The section with that name.
    pub(in crate::symbols) fn section(&self, name: &[u8]) -> Option<&Section> {
        self.sections
            .iter()
            .find(|section| self.section_name(section) == name)
    }

    fn section_name(&self, section: &Section) -> &[u8] {
        self.sections
            .get(self.section_names as usize)
            .and_then(|names| self.raw(names))
            .and_then(|names| names.get(section.name as usize..))
            // A name without an end would be read again for each section.
            .map(|rest| rest.get(..SECTION_NAME_MAX).unwrap_or(rest))
            .map(perfquet_events::bytes::before_nul)
            .unwrap_or_default()
    }

    /// Bytes of a section in the file; `None` if it has none there.
    fn raw(&self, section: &Section) -> Option<&[u8]> {
        self.content.get(self.range(section)?)
    }

    fn range(&self, section: &Section) -> Option<Range<usize>> {
        if section.kind == SHT_NOBITS {
            return None;
        }
        let start = usize::try_from(section.offset).ok()?;
        let end = start.checked_add(usize::try_from(section.bytes).ok()?)?;
        (end <= self.content.len()).then_some(start..end)
    }

    /// Contents of the section with that name, decompressed if necessary.
    pub(in crate::symbols) fn contents(&self, name: &[u8]) -> Option<Part> {
        let section = self.section(name)?;
        if section.flags & SHF_COMPRESSED != 0 {
            return self.unpacked(section).map(Part::owned);
        }
        self.part(section)
    }

    fn part(&self, section: &Section) -> Option<Part> {
        Some(Part {
            content: Arc::clone(&self.content),
            range: self.range(section)?,
        })
    }

    /// Contents as [`Elf::contents`], if they have at most that size.
    pub(in crate::symbols) fn contents_up_to(&self, name: &[u8], most: u64) -> Option<Part> {
        let section = self.section(name)?;
        if section.flags & SHF_COMPRESSED != 0 {
            let mut cursor = Cursor::new(self.raw(section)?, section.offset, self.endian);
            cursor.bytes(if self.wide { 8 } else { 4 }).ok()?;
            if self.word(&mut cursor).ok()? > most {
                return None;
            }
        }
        self.contents(name)
    }

    /// `Elf64_Chdr`: kind (1: zlib, 2: zstd), size, alignment; then the compressed bytes.
    fn unpacked(&self, section: &Section) -> Option<Vec<u8>> {
        let mut cursor = Cursor::new(self.raw(section)?, section.offset, self.endian);
        let kind = cursor.u32().ok()?;
        if self.wide {
            cursor.u32().ok()?;
        }
        let size = self.word(&mut cursor).ok()?;
        self.word(&mut cursor).ok()?;
        let packed = cursor.rest().len() as u64;
        if size > DECOMPRESSED_MAX || size / DECOMPRESSED_RATIO_MAX > packed {
            return None;
        }
        let mut unpacked = Vec::new();
        match kind {
            1 => flate2::read::ZlibDecoder::new(cursor.rest())
                .take(size)
                .read_to_end(&mut unpacked)
                .ok()?,
            2 => zstd::stream::read::Decoder::with_buffer(cursor.rest())
                .ok()?
                .take(size)
                .read_to_end(&mut unpacked)
                .ok()?,
            _ => return None,
        };
        Some(unpacked)
    }

    /// The build ID, from the note sections or, in a stripped file, the note segments.
    pub(in crate::symbols) fn build_id(&self) -> Option<&[u8]> {
        let of_sections = self.sections.iter();
        let of_sections = of_sections
            .filter(|section| section.kind == SHT_NOTE)
            .filter_map(|section| self.raw(section));
        let of_segments = self.segments.iter();
        let of_segments = of_segments
            .filter(|segment| segment.kind == PT_NOTE)
            .filter_map(|segment| {
                let start = usize::try_from(segment.offset).ok()?;
                let end = start.checked_add(usize::try_from(segment.file_bytes).ok()?)?;
                self.content.get(start..end)
            });
        // Of all of them together: many headers may have the same notes.
        let mut left = NOTE_BYTES_MAX as usize;
        of_sections.chain(of_segments).find_map(|notes| {
            let notes = notes.get(..left).unwrap_or(notes);
            left -= notes.len();
            build_id_in_notes(notes, self.endian)
        })
    }

    /// Name and checksum of the file with its debug info (`.gnu_debuglink`).
    pub(in crate::symbols) fn debug_link(&self) -> Option<(&[u8], u32)> {
        let link = self.raw(self.section(b".gnu_debuglink")?)?;
        let link = link.get(..LINK_BYTES_MAX).unwrap_or(link);
        let name = perfquet_events::bytes::before_nul(link);
        let checksum = link.get((name.len() + 1).next_multiple_of(4)..)?;
        let checksum = Cursor::new(checksum, 0, self.endian).u32().ok()?;
        (!name.is_empty()).then_some((name, checksum))
    }

    /// The open file, if it is one.
    pub(in crate::symbols) fn file(&self) -> Option<&File> {
        match &*self.content {
            Content::Mapped(map) => map.file(),
            Content::Owned(_) => None,
        }
    }

    /// All of its bytes.
    pub(in crate::symbols) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Releases the pages of a mapped file until they are next read.
    pub(in crate::symbols) fn release(&self) {
        match &*self.content {
            Content::Mapped(map) => map.release(),
            Content::Owned(_) => {}
        }
    }
}

/// Finds the build ID among notes (`Elf64_Nhdr`: name size, contents' size, type; both padded to 4).
pub(in crate::symbols) fn build_id_in_notes(notes: &[u8], endian: Endian) -> Option<&[u8]> {
    let mut cursor = Cursor::new(notes, 0, endian);
    loop {
        let name_bytes = u64::from(cursor.u32().ok()?);
        let bytes = u64::from(cursor.u32().ok()?);
        let kind = cursor.u32().ok()?;
        let name = cursor.bytes(name_bytes.next_multiple_of(4)).ok()?;
        if kind == NT_GNU_BUILD_ID && name.starts_with(b"GNU\0") {
            return cursor.bytes(bytes).ok().filter(|id| !id.is_empty());
        }
        cursor.bytes(bytes.next_multiple_of(4)).ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_where_sections_are_executable() {
        let names = b"\0.bolt.org.text\0.text";
        let code = |name, address, bytes| Section {
            name,
            bytes,
            ..Section::at(address)
        };
        let names_of_sections = Section {
            kind: 3,
            flags: 0,
            bytes: names.len() as u64,
            ..Section::at(0)
        };
        let data = Section {
            flags: SHF_ALLOC,
            ..code(0, 0x5000, 0x100)
        };
        let segment = Segment {
            kind: PT_LOAD,
            executable: true,
            offset: 0,
            address: 0x1000,
            file_bytes: 0x8000,
        };
        let mut elf = Elf {
            content: Arc::new(Content::Owned(names.to_vec())),
            endian: Endian::Little,
            wide: true,
            kind: 3,
            machine: EM_X86_64,
            entry: 0,
            segments: vec![segment],
            sections: vec![
                names_of_sections,
                // Out of order, and overlapping.
                code(16, 0x7000, 0x100),
                code(16, 0x6000, 0x80),
                code(16, 0x6040, 0x10),
                code(1, 0x1000, 0x4000),
                data,
            ],
            section_names: 0,
        };
        assert_eq!(elf.code_addresses(), [0x6000..0x6080, 0x7000..0x7100]);
        elf.sections.clear();
        let all = 0x1000..0x9000;
        assert_eq!(elf.code_addresses(), std::slice::from_ref(&all));
    }
}
