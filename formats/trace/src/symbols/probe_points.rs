//! Probe targets in a program or library: its functions, and its static probes.
//!
//! ```text
//! malloc          at 0x9d1e0 in the file, 599 bytes
//! .note.stapsdt   provider libc, name memory_heap_new, at 0x9b3f2, arguments "8@%rbx 8@%r12"
//! ```
//! The notes are those of systemtap's sys/sdt.h
//! (<https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Short, before_nul};

use super::Options;
use super::demangle::{demangle, demangle_with_parameters, without_version};
use super::elf::{Elf, Part};
use super::files::Files;
use super::origin::Origin;
use super::unwind::call_frame_ranges;

/// Type of the notes of static probes.
const NT_STAPSDT: u32 = 3;

/// A program or library.
pub struct Object {
    path: PathBuf,
    image: Arc<Elf>,
    /// The file with its symbols, if they were stripped.
    debug: Option<Arc<Elf>>,
    /// Whether locations are addresses: the kernel is not a mapped file.
    is_kernel: bool,
}

/// A function in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSymbol {
    /// As in the symbol table, mangled or not.
    pub name: String,
    /// File offset of its start.
    pub offset: u64,
    /// Length in bytes; 0 if unknown.
    pub bytes: u64,
}

/// A static probe (USDT).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticProbe {
    /// Who made it.
    pub provider: String,
    /// Name of the function.
    pub name: String,
    /// File offset.
    pub offset: u64,
    /// File offset of its semaphore; `None` if it has none.
    pub semaphore_offset: Option<u64>,
    /// Locations of its arguments, in assembler syntax: "8@%rbx -4@12(%rsp)".
    pub arguments: String,
}

/// A variable of each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadVariable {
    /// Offset in the file's variables of threads.
    pub offset: u64,
    /// Address at which the dynamic linker writes the file's number among those with such variables; `None` for a program that
    /// needs no number: its own is 1.
    pub module: Option<u64>,
}

impl CodeSymbol {
    /// The demangled name without parameters, as in frames.
    pub fn readable(&self) -> String {
        demangle(self.name.as_bytes())
    }

    /// The demangled name with the parameters of C++.
    pub fn readable_with_parameters(&self) -> String {
        demangle_with_parameters(&self.name)
    }
}

impl Object {
    /// Opens a file, and, if it is stripped, its installed debug file.
    pub fn open(path: &Path) -> Result<Object, Error> {
        let files = Files::new(&Options::default(), Origin::default());
        Object::open_with(files, path)
    }

    /// Opens a file of another user's process. Debug files are not used if only a checksum identifies them.
    pub fn open_foreign(path: &Path) -> Result<Object, Error> {
        let files = Files::new(&Options::default(), Origin::default());
        Object::open_with(files.without_checksums(), path)
    }

    fn open_with(files: Files, path: &Path) -> Result<Object, Error> {
        let unreadable = |message: String| Error::Symbols {
            path: path.to_owned(),
            message,
        };
        std::fs::metadata(path).map_err(Error::io(path))?;
        let found = files
            .open(path)
            .map_err(|missing| unreadable(missing.to_string()))?;
        Ok(Object {
            path: path.to_owned(),
            image: found.image,
            debug: found.debug,
            is_kernel: false,
        })
    }

    /// Opens a kernel (vmlinux) with its debug info, or a file with the debug info alone. Its locations are addresses
    /// of the build, not offsets in the file.
    pub fn open_kernel(path: &Path) -> Result<Object, Error> {
        let unreadable = |message: String| Error::Symbols {
            path: path.to_owned(),
            message,
        };
        std::fs::metadata(path).map_err(Error::io(path))?;
        let elf = Elf::open(path).map_err(|bad| unreadable(bad.to_string()))?;
        if elf.section(b".debug_info").is_none() {
            return Err(unreadable("it has no debugging information".to_owned()));
        }
        Ok(Object {
            path: path.to_owned(),
            image: Arc::new(elf),
            debug: None,
            is_kernel: true,
        })
    }

    /// The build ID.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.image.build_id()
    }

    /// Whether only its dynamic symbols are known.
    pub fn is_stripped(&self) -> bool {
        let mut files = self.debug.iter().chain([&self.image]);
        !files.any(|elf| elf.has_symbol_table())
    }

    /// Whether it throws exceptions of C++, by the functions that it imports.
    pub fn throws_exceptions(&self) -> bool {
        let names = self.image.contents(b".dynstr");
        names.is_some_and(|names| {
            let mut names = names.split(|&byte| byte == 0);
            names.any(|name| name == b"__cxa_throw" || name == b"__cxa_rethrow")
        })
    }

    /// Whether its addresses have 64 bits.
    pub fn is_wide(&self) -> bool {
        self.image.is_wide()
    }

    /// All functions, by name.
    pub fn functions(&self) -> Vec<CodeSymbol> {
        self.functions_where(|_| true)
    }

    /// The functions whose name in the symbol table is wanted, by name.
    pub fn functions_where(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<CodeSymbol> {
        let with_symbols = self.debug.iter().chain([&self.image]);
        let mut symbols = Vec::new();
        for elf in with_symbols {
            let Some(functions) = elf.functions() else {
                continue;
            };
            for function in &functions.list {
                let name = functions.names.get(function.name as usize..);
                let name = without_version(before_nul(name.unwrap_or_default()));
                if !is_wanted(name) {
                    continue;
                }
                // The debug file has the addresses, but not the bytes: the image maps them to offsets.
                if let Some(offset) = self.offset_of(function.address) {
                    symbols.push(CodeSymbol {
                        name: String::from_utf8_lossy(name).into_owned(),
                        offset,
                        bytes: function.bytes,
                    });
                }
            }
            if !symbols.is_empty() {
                break;
            }
        }
        symbols.sort_by(|a, b| (&a.name, a.offset).cmp(&(&b.name, b.offset)));
        symbols.dedup();
        symbols
    }

    /// File offset of a variable or function, by its name in the symbol table.
    pub fn offset_of_symbol(&self, name: &str) -> Option<u64> {
        let address = self.image.address_of_symbol(name.as_bytes())?;
        self.offset_of(address)
    }

    /// Names and addresses of the defined symbols whose names start with a prefix.
    pub fn symbols_with_prefix(&self, prefix: &str) -> Vec<(String, u64)> {
        self.image.symbols_with_prefix(prefix.as_bytes())
    }

    /// A variable of each thread, by its name in the symbol table.
    pub fn thread_variable(&self, name: &str) -> Option<ThreadVariable> {
        let offset = self.image.address_of_symbol(name.as_bytes());
        let of_debug = |debug: &Arc<Elf>| debug.address_of_symbol(name.as_bytes());
        let offset = offset.or_else(|| self.debug.as_ref().and_then(of_debug))?;
        let module = self.image.module_number_place(name.as_bytes());
        let is_program = self.image.section(b".interp").is_some();
        let is_reachable = module.is_some() || is_program;
        is_reachable.then_some(ThreadVariable { offset, module })
    }

    /// File offset and size of each function with call frame information, which stripped files keep, by offset.
    pub fn code_ranges(&self) -> Vec<(u64, u64)> {
        let ranges = call_frame_ranges(&self.image, self.debug.as_deref());
        let in_file = |(start, end): (u64, u64)| Some((self.offset_of(start)?, end - start));
        let mut ranges: Vec<(u64, u64)> = ranges.into_iter().filter_map(in_file).collect();
        ranges.sort_unstable();
        ranges
    }

    /// The static probes, in the order of their notes. An unreadable note ends them.
    pub fn static_probes(&self) -> Vec<StaticProbe> {
        let Some(notes) = self.image.contents(b".note.stapsdt") else {
            return Vec::new();
        };
        let mut probes = Vec::new();
        let mut cursor = Cursor::new(&notes, 0, self.image.endian());
        while let Ok(Some(probe)) = self.next_probe(&mut cursor) {
            probes.extend(probe);
        }
        probes
    }

    /// The code at an offset in the file, up to `bytes` bytes.
    pub fn code(&self, offset: u64, bytes: usize) -> &[u8] {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let content = self.image.content();
        let rest = content.get(start..).unwrap_or_default();
        rest.get(..bytes).unwrap_or(rest)
    }

    /// Returns `None` at the end; the inner `None` is another kind of note.
    fn next_probe(&self, cursor: &mut Cursor<'_>) -> Result<Option<Option<StaticProbe>>, Short> {
        if cursor.is_empty() {
            return Ok(None);
        }
        let (name_bytes, body_bytes) = (cursor.u32()?, cursor.u32()?);
        let kind = cursor.u32()?;
        let owner = cursor.bytes(u64::from(name_bytes).next_multiple_of(4))?;
        let body = cursor.bytes(u64::from(body_bytes).next_multiple_of(4))?;
        if kind != NT_STAPSDT || before_nul(owner) != b"stapsdt" {
            return Ok(Some(None));
        }
        let mut body = Cursor::new(body, 0, self.image.endian());
        let wide = self.image.is_wide();
        let mut word = || match wide {
            true => body.u64(),
            false => body.u32().map(u64::from),
        };
        let (place, base, semaphore) = (word()?, word()?, word()?);
        let mut text = || String::from_utf8_lossy(body.text_to_nul()).into_owned();
        let (provider, name, arguments) = (text(), text(), text());
        // Prelinking moves the whole file: .stapsdt.base moved with it, the note did not.
        let moved = self
            .image
            .section(b".stapsdt.base")
            .map_or(0, |section| section.address.wrapping_sub(base));
        let offset = self.offset_of(place.wrapping_add(moved));
        let semaphore_offset = match semaphore {
            0 => None,
            semaphore => self.offset_of(semaphore.wrapping_add(moved)),
        };
        Ok(Some(offset.map(|offset| StaticProbe {
            provider,
            name,
            offset,
            semaphore_offset,
            arguments,
        })))
    }

    /// Gives up the memory of pages that were read, which are read again when needed.
    pub fn release(&self) {
        self.image.release();
        if let Some(debug) = &self.debug {
            debug.release();
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that describes lines and variables, if any does.
    pub(super) fn with_debugging_information(&self) -> &Elf {
        let described = |elf: &&Arc<Elf>| elf.section(b".debug_info").is_some();
        let debug = self.debug.as_ref().filter(described);
        debug.unwrap_or(&self.image)
    }

    /// Address and contents of the unwind table, which stripped files keep.
    pub(super) fn unwind_section(&self) -> Option<(u64, Part)> {
        let section = self.image.section(b".eh_frame")?;
        Some((section.address, self.image.contents(b".eh_frame")?))
    }

    /// The address of an offset in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        if self.is_kernel {
            return Some(offset);
        }
        self.image.address_of_offset(offset)
    }

    /// The file offset of an address, as a uprobe needs it.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        if self.is_kernel {
            return Some(address);
        }
        self.image.loaded().find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            (inside < segment.file_bytes).then(|| segment.offset.saturating_add(inside))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program() {
        let object = Object::open(&std::env::current_exe().unwrap()).unwrap();
        let functions = object.functions();
        let main = functions.iter().find(|function| function.name == "main");
        let main = main.expect("every program has one");
        assert!(main.bytes > 0);
        assert_eq!(object.code(main.offset, 4).len(), 4);
        assert!(object.static_probes().is_empty());
        assert!(Object::open(Path::new("/nonexistent")).is_err());
    }
}
