//! A copy of an ELF file with only its debug info, decompressed and without links to other files.
//!
//! ```text
//! header   .debug_info, unpacked   .debug_line   …   .symtab   .strtab   .shstrtab   section headers
//! ```
//! For a library that supports only one of the two compressions, trusts their sizes, and opens any file that
//! `.gnu_debuglink`, `.gnu_debugaltlink` or `.debug_sup` name.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Seek, Write};

use super::{DEBUG_SECTIONS, Elf, SHF_COMPRESSED, SHT_NOBITS};

/// Sections that name other files.
const LINKS: [&str; 3] = [".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup"];

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const ET_EXEC: u16 = 2;
const EV_CURRENT: u32 = 1;

/// A section of the copy.
struct Copied {
    name: u32,
    kind: u32,
    offset: u64,
    bytes: u64,
    link: u32,
    entry_bytes: u64,
}

impl Elf {
    /// Whether its debug info is uncompressed, and it has no links to other files.
    pub(in crate::symbols) fn is_plain(&self) -> bool {
        let is_packed = |name: &str| {
            let section = self.section(name.as_bytes());
            section.is_some_and(|section| section.flags & SHF_COMPRESSED != 0)
        };
        let is_there = |name: &&str| self.section(name.as_bytes()).is_some();
        !copied_sections().any(is_packed) && !LINKS.iter().any(is_there)
    }

    /// The copy: an unnamed temporary file. A section that cannot be decompressed is invalid data.
    pub(in crate::symbols) fn unpacked_copy(&self) -> io::Result<File> {
        let mut out = Writer::new(self)?;
        for name in copied_sections() {
            let Some(section) = self.section(name.as_bytes()) else {
                continue;
            };
            if section.kind == SHT_NOBITS {
                continue;
            }
            let contents = self
                .contents(name.as_bytes())
                .ok_or(ErrorKind::InvalidData)?;
            out.section(name, SHT_PROGBITS, &contents, (0, 0))?;
        }
        if let Some(symbols) = self.section(b".symtab")
            && let Some(texts) = self.sections.get(symbols.link as usize)
            && let (Some(symbol_bytes), Some(text_bytes)) = (self.raw(symbols), self.raw(texts))
        {
            let texts_index = out.sections.len() as u32 + 1;
            let entry = symbols.entry_bytes;
            out.section(".symtab", SHT_SYMTAB, symbol_bytes, (texts_index, entry))?;
            out.section(".strtab", SHT_STRTAB, text_bytes, (0, 0))?;
        }
        out.finish(self)
    }
}

/// The sections to copy, including the types of DWARF 4.
fn copied_sections() -> impl Iterator<Item = &'static str> {
    DEBUG_SECTIONS.into_iter().chain([".debug_types"])
}

/// Writes the copy, in the byte order of this host.
struct Writer {
    out: BufWriter<File>,
    offset: u64,
    is_wide: bool,
    sections: Vec<Copied>,
    names: Vec<u8>,
}

impl Writer {
    fn new(elf: &Elf) -> io::Result<Writer> {
        let mut writer = Writer {
            out: BufWriter::new(tempfile::tempfile()?),
            offset: 0,
            is_wide: elf.wide,
            sections: Vec::new(),
            names: vec![0],
        };
        // Written again when the offset of the section headers is known.
        let header = writer.header(elf, 0, 0);
        writer.write(&header)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes zeros up to the next multiple of 8.
    fn align(&mut self) -> io::Result<()> {
        let padding = self.offset.next_multiple_of(8) - self.offset;
        self.write(&vec![0; padding as usize])
    }

    /// Adds a section; `table` is the section that it refers to, and the size of its entries.
    fn section(
        &mut self,
        name: &str,
        kind: u32,
        contents: &[u8],
        table: (u32, u64),
    ) -> io::Result<()> {
        self.align()?;
        self.sections.push(Copied {
            name: self.names.len() as u32,
            kind,
            offset: self.offset,
            bytes: contents.len() as u64,
            link: table.0,
            entry_bytes: table.1,
        });
        self.names.extend(name.bytes().chain([0]));
        self.write(contents)
    }

    fn finish(mut self, elf: &Elf) -> io::Result<File> {
        let names = [&self.names[..], b".shstrtab\0"].concat();
        self.section(".shstrtab", SHT_STRTAB, &names, (0, 0))?;
        self.align()?;
        let headers_at = self.offset;
        let mut headers = vec![0; self.section_header_bytes().into()];
        for section in &self.sections {
            headers.extend(section.name.to_ne_bytes());
            headers.extend(section.kind.to_ne_bytes());
            for word in [0, 0, section.offset, section.bytes] {
                self.push_word(&mut headers, word);
            }
            headers.extend(section.link.to_ne_bytes());
            headers.extend(0_u32.to_ne_bytes());
            for word in [8, section.entry_bytes] {
                self.push_word(&mut headers, word);
            }
        }
        self.write(&headers)?;
        let header = self.header(elf, headers_at, self.sections.len() as u16 + 1);
        let mut file = self.out.into_inner()?;
        file.rewind()?;
        file.write_all(&header)?;
        Ok(file)
    }

    /// `Elf64_Ehdr` or `Elf32_Ehdr` (elf(5)).
    fn header(&self, elf: &Elf, headers_at: u64, header_count: u16) -> Vec<u8> {
        let mut header = vec![0x7f, b'E', b'L', b'F'];
        let is_big = u8::from(cfg!(target_endian = "big"));
        header.extend([1 + u8::from(self.is_wide), 1 + is_big, 1]);
        header.resize(16, 0);
        header.extend(ET_EXEC.to_ne_bytes());
        header.extend(elf.machine.to_ne_bytes());
        header.extend(EV_CURRENT.to_ne_bytes());
        for word in [0, 0, headers_at] {
            self.push_word(&mut header, word);
        }
        header.extend(0_u32.to_ne_bytes());
        let (own_bytes, segment_bytes): (u16, u16) = if self.is_wide { (64, 56) } else { (52, 32) };
        let section_bytes = self.section_header_bytes();
        let names_index = header_count.saturating_sub(1);
        for number in [
            own_bytes,
            segment_bytes,
            0,
            section_bytes,
            header_count,
            names_index,
        ] {
            header.extend(number.to_ne_bytes());
        }
        header
    }

    fn section_header_bytes(&self) -> u16 {
        if self.is_wide { 64 } else { 40 }
    }

    fn push_word(&self, out: &mut Vec<u8>, word: u64) {
        match self.is_wide {
            true => out.extend(word.to_ne_bytes()),
            // The copy of a 32-bit file is larger only if the file is hostile.
            false => out.extend((word.min(u32::MAX.into()) as u32).to_ne_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::elf::Content;

    #[test]
    fn a_copy_has_the_debug_info_and_the_symbols() {
        // A Rust program has both, and so do its tests.
        let elf = Elf::open(&std::env::current_exe().unwrap()).unwrap();
        let copy = perfquet_events::input::Map::of(elf.unpacked_copy().unwrap()).unwrap();
        let copy = Elf::parse(Content::Mapped(copy)).unwrap();
        assert!(copy.is_plain());
        for name in copied_sections().chain([".symtab", ".strtab"]) {
            let contents = |elf: &Elf| elf.contents(name.as_bytes()).map(|part| part.to_vec());
            assert_eq!(contents(&elf), contents(&copy), "{name}");
        }
    }
}
