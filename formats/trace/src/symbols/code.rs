//! Machine code of recorded functions, with their source lines.
//!
//! ```text
//! /w/workload, build ID 1a2b…, offset 0x11b0   →  work_inner: 102 bytes from 0x1189 on, x86-64
//! 0x11b0                                       →  work_inner, workload.c:16;  inlined: step, step.h:4
//! ```
//! The code is that of the recorded file, found as its symbols are: a file with another build ID is never shown.
//! Memory is not: code that was patched while it ran (a kernel's alternatives, breakpoints) is shown as in the file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use perfquet_events::Error;

use super::demangle::demangle;
use super::elf::{EM_AARCH64, EM_X86_64, Elf};
use super::files::{Files, Found, ModuleKey};
use super::jit::is_generated;
use super::lines::{Lines, Location};
use super::origin::{FileIdentity, FirstMapped, Origin};
use super::user::Module;
use super::{KERNEL, KernelSource, Options};

/// Not EM_X86_64: with 32 bits.
const EM_386: u16 = 3;
/// Longer functions are cut: half a million instructions with their texts and lines take 0.4 GB.
const FUNCTION_BYTES_MAX: usize = 1 << 20;

/// The reason for generated code without its bytes.
pub const GENERATED: &str = "its code was generated at run time, and the recording did not keep it";

/// Where code was sampled.
#[derive(Debug, Clone, Copy)]
pub struct CodePlace<'a> {
    /// Path of the module as recorded, or [`KERNEL`].
    pub module: &'a str,
    /// Its build ID.
    pub build_id: Option<&'a [u8]>,
    /// The mapped file, if the recording identifies it.
    pub file: Option<FileIdentity>,
    /// The time of its first mapping.
    pub first_mapped: FirstMapped,
    /// Offset in the module's file; for the kernel, an absolute address.
    pub offset: u64,
    /// Name and start of the function, which locate the kernel's code: it runs at other addresses than those of its file.
    pub function: (&'a str, u64),
}

/// The instruction set of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// x86 with 32 bits.
    X86,
    /// x86 with 64 bits.
    X86_64,
    /// ARM with 64 bits.
    Aarch64,
    /// Another one, as its number in ELF.
    Other(u16),
}

impl Machine {
    /// The instruction set with a machine number of ELF.
    pub fn of_number(number: u16) -> Machine {
        match number {
            EM_386 => Machine::X86,
            EM_X86_64 => Machine::X86_64,
            EM_AARCH64 => Machine::Aarch64,
            other => Machine::Other(other),
        }
    }

    /// The machine number of ELF.
    pub fn number(self) -> u16 {
        match self {
            Machine::X86 => EM_386,
            Machine::X86_64 => EM_X86_64,
            Machine::Aarch64 => EM_AARCH64,
            Machine::Other(number) => number,
        }
    }

    /// The name in the table `code`.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Machine::X86 => "i386".into(),
            Machine::X86_64 => "x86_64".into(),
            Machine::Aarch64 => "aarch64".into(),
            Machine::Other(number) => number.to_string().into(),
        }
    }

    /// The instruction set with such a name.
    pub fn of_name(name: &str) -> Option<Machine> {
        match name {
            "i386" => Some(Machine::X86),
            "x86_64" => Some(Machine::X86_64),
            "aarch64" => Some(Machine::Aarch64),
            number => number.parse().ok().map(Machine::Other),
        }
    }
}

/// The code of a function.
pub struct Code {
    /// Demangled name.
    pub function: String,
    /// Address of its first byte, as in the file's symbol table.
    pub address: u64,
    /// The code.
    pub bytes: Vec<u8>,
    /// Whether the end is missing.
    pub is_cut: bool,
    /// Instruction set.
    pub machine: Machine,
    /// Whether the file is proven to be the recorded one.
    pub is_verified: bool,
    /// Time of the file's last change.
    pub changed: Option<SystemTime>,
    /// Length of the function.
    pub size: u64,
    /// Difference between [`CodePlace::offset`] and the address in the file.
    to_offset: u64,
    /// The module, if the code is from its file.
    module: Option<Rc<Module>>,
}

impl Code {
    /// Code of a function that a recorder kept. Places have the same origin as `start`.
    pub fn kept(
        (function, start): (String, u64),
        address: u64,
        machine: Machine,
        bytes: Vec<u8>,
        size: u64,
    ) -> Code {
        Code {
            function,
            address,
            is_cut: (bytes.len() as u64) < size,
            bytes,
            machine,
            is_verified: true,
            changed: None,
            to_offset: start.wrapping_sub(address),
            module: None,
            size,
        }
    }

    /// The address in the file of a sampled place.
    pub fn address_of(&self, offset: u64) -> u64 {
        offset.wrapping_sub(self.to_offset)
    }

    /// The place, as sampled, of an address.
    pub fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_add(self.to_offset)
    }

    /// Demangled name of the function that contains an address, and the distance from its start.
    pub fn name_at(&self, address: u64) -> Option<(String, u64)> {
        let (start, _, name) = self.module.as_ref()?.function_at(address)?;
        Some((demangle(name), address - start))
    }
}

/// A function with the file and the line of an instruction in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlace {
    /// Name of an inlined function; `None` for the symbol's.
    pub inlined: Option<Arc<str>>,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line in it, from 1.
    pub line: Option<u32>,
}

/// Reads machine code of recorded modules.
pub struct CodeReader {
    files: Files,
    lines: Option<Lines>,
    kernel: Option<PathBuf>,
    modules: HashMap<ModuleKey, Result<Rc<Module>, String>>,
}

impl CodeReader {
    /// Searches in the places given by the options, for a trace of this origin.
    pub fn new(options: &Options, origin: Origin) -> CodeReader {
        CodeReader {
            files: Files::new(options, origin),
            lines: options.lines.clone().map(Lines::new),
            kernel: match &options.kernel {
                KernelSource::Vmlinux(path) => Some(path.clone()),
                _ => None,
            },
            modules: HashMap::new(),
        }
    }

    /// Reads the code of the function at a place.
    ///
    /// # Errors
    ///
    /// The reason, as part of a sentence: the file was not found or is another one, has no symbol there, or no code.
    pub fn function(&mut self, place: &CodePlace<'_>) -> Result<Code, String> {
        if place.module == KERNEL {
            return self.kernel_function(place);
        }
        if is_generated(place.module) {
            return Err(GENERATED.to_owned());
        }
        let key = key_of(place);
        let files = &mut self.files;
        let module = self.modules.entry(key.clone()).or_insert_with(|| {
            let found = files.find(&key).map_err(|missing| missing.to_string())?;
            match found.image.is_relocatable() {
                true => Err("it is not linked: its code has no addresses yet".to_owned()),
                false => Ok(Rc::new(Module::new(found))),
            }
        });
        let module = module.as_ref().map_err(Clone::clone)?;
        let image = module.image();
        let address = image.address_of_offset(place.offset);
        let address = address.ok_or("the offset is in none of its segments")?;
        code_of(module, address, place.offset.wrapping_sub(address))
    }

    /// Whether the file with the code is found.
    pub fn has_file(&mut self, place: &CodePlace<'_>) -> bool {
        match place.module {
            KERNEL => self.kernel.is_some() || place.build_id.and_then(installed).is_some(),
            _ => self.files.find(&key_of(place)).is_ok(),
        }
    }

    /// Releases the files; they are found again.
    pub fn forget(&mut self) {
        self.modules.clear();
        self.files.forget();
    }

    /// The kernel's code from a vmlinux, whose function of the same name shows how far the kernel was moved.
    fn kernel_function(&mut self, place: &CodePlace<'_>) -> Result<Code, String> {
        let installed = || installed(place.build_id?);
        let path = self.kernel.clone().or_else(installed);
        let path = path.ok_or("the kernel's code is in its vmlinux, which was not found")?;
        let key = ModuleKey {
            path: path.display().to_string(),
            build_id: place.build_id.map(<[u8]>::to_vec),
            file: None,
            first_mapped: None,
        };
        let module = self
            .modules
            .entry(key)
            .or_insert_with(|| Ok(Rc::new(Module::new(vmlinux(&path, place.build_id)?))));
        let module = module.as_ref().map_err(Clone::clone)?;
        let (name, start) = place.function;
        let mut starts = module.starts_of(name);
        starts.dedup();
        match starts[..] {
            [address] => code_of(module, address, start.wrapping_sub(address)),
            [] => Err(format!("{} has no function of this name", path.display())),
            _ => Err(format!(
                "{} has several functions of this name",
                path.display()
            )),
        }
    }

    /// Returns where each address of a function is in the source, from the symbol's function to the innermost one inlined
    /// there; and, if any address has no place, the reason, as part of a sentence.
    pub fn lines(
        &mut self,
        code: &Code,
        addresses: &[u64],
    ) -> (Vec<Vec<SourcePlace>>, Option<&'static str>) {
        let (Some(lines), Some(module)) = (&mut self.lines, &code.module) else {
            return (vec![Vec::new(); addresses.len()], None);
        };
        let mut reason = None;
        let located = lines.locate(module.described(), addresses);
        let places = located.into_iter().map(|located| match located {
            Ok(location) => places(location),
            Err(missing) => {
                reason.get_or_insert(missing.sentence());
                Vec::new()
            }
        });
        (places.collect(), reason)
    }
}

fn key_of(place: &CodePlace<'_>) -> ModuleKey {
    ModuleKey {
        path: place.module.to_owned(),
        build_id: place.build_id.map(<[u8]>::to_vec),
        file: place.file,
        first_mapped: place.first_mapped,
    }
}

fn code_of(module: &Rc<Module>, address: u64, to_offset: u64) -> Result<Code, String> {
    let (start, end, name) = module
        .function_at(address)
        .ok_or("it has no symbol there")?;
    let image = module.image();
    let rest = image.code_at(start).ok_or("its code is not in the file")?;
    let length = usize::try_from(end - start).unwrap_or(usize::MAX);
    let length = length.min(rest.len());
    let kept = length.min(FUNCTION_BYTES_MAX);
    Ok(Code {
        function: demangle(name),
        address: start,
        bytes: rest.get(..kept).unwrap_or_default().to_vec(),
        is_cut: kept < length,
        machine: match (image.machine, image.is_wide()) {
            (EM_X86_64, _) => Machine::X86_64,
            (EM_386, false) => Machine::X86,
            (EM_AARCH64, _) => Machine::Aarch64,
            (other, _) => Machine::Other(other),
        },
        is_verified: module.is_verified(),
        changed: image
            .file()
            .and_then(|file| file.metadata().ok()?.modified().ok()),
        to_offset,
        module: Some(Rc::clone(module)),
        size: end - start,
    })
}

fn places(location: Location) -> Vec<SourcePlace> {
    let (outer, inlined) = location.into_parts();
    let first = SourcePlace {
        inlined: None,
        file: outer.0,
        line: outer.1,
    };
    let others = inlined.into_iter().map(|(name, (file, line))| SourcePlace {
        inlined: Some(name),
        file,
        line,
    });
    std::iter::once(first).chain(others).collect()
}

/// The vmlinux of a debug package.
fn installed(build_id: &[u8]) -> Option<PathBuf> {
    let paths = super::kernel_debug_files("", Some(build_id)).into_iter();
    paths.into_iter().find(|path| path.is_file())
}

fn vmlinux(path: &Path, build_id: Option<&[u8]>) -> Result<Found, String> {
    let image = Elf::open(path).map_err(|bad| Error::Symbols {
        path: path.to_owned(),
        message: bad.to_string(),
    });
    let image = image.map_err(|error| error.to_string())?;
    let is_verified = match (build_id, image.build_id()) {
        (Some(wanted), Some(found)) => super::build_id::equal(wanted, found),
        _ => false,
    };
    if build_id.is_some() && !is_verified {
        return Err(format!("{} is another kernel", path.display()));
    }
    if !image.holds_code() {
        return Err(format!("{} has no code", path.display()));
    }
    Ok(Found {
        image: Arc::new(image),
        debug: None,
        is_verified,
    })
}

#[cfg(test)]
mod tests {
    use super::super::probe_points::Object;
    use super::*;

    /// This program, its build ID, and its main function: offset and length.
    fn own() -> (String, Option<Vec<u8>>, u64, u64) {
        let path = std::env::current_exe().unwrap();
        let object = Object::open(&path).unwrap();
        let main = object.functions_where(|name| name == b"main");
        let build_id = object.build_id().map(<[u8]>::to_vec);
        let path = path.to_str().unwrap().to_owned();
        (path, build_id, main[0].offset, main[0].bytes)
    }

    fn place<'a>(module: &'a str, build_id: Option<&'a [u8]>, offset: u64) -> CodePlace<'a> {
        CodePlace {
            module,
            build_id,
            file: None,
            first_mapped: None,
            offset,
            function: ("main", 0xffff_ffff_8100_0000),
        }
    }

    #[test]
    fn code_is_that_of_the_recorded_file() {
        let (path, build_id, offset, bytes) = own();
        let options = Options {
            lines: Some(super::super::LineReader::InProcess),
            ..Options::default()
        };
        let mut reader = CodeReader::new(&options, Origin::default());
        let code = reader.function(&place(&path, build_id.as_deref(), offset + 1));
        let code = code.unwrap();
        assert_eq!(code.function, "main");
        assert_eq!(code.bytes.len() as u64, bytes);
        assert_eq!(code.is_verified, build_id.is_some());
        assert_eq!(code.address_of(offset), code.address);
        assert_eq!(code.offset_of(code.address), offset);
        assert_eq!(code.name_at(code.address + 1), Some(("main".to_owned(), 1)));
        let (places, _) = reader.lines(&code, &[code.address]);
        assert_eq!(places.len(), 1);

        let other = reader.function(&place(&path, Some(&[7; 20]), offset)).err();
        assert!(other.unwrap().starts_with("its build id differs"));
        let missing = reader.function(&place("/nonexistent", None, 0)).err();
        assert_eq!(missing.unwrap(), "no file found");
        let anonymous = reader.function(&place("[heap]", None, 0)).err();
        assert_eq!(anonymous.unwrap(), "it is not a file");
    }

    #[test]
    fn a_kernel_runs_at_other_addresses_than_those_of_its_file() {
        let (path, build_id, _, bytes) = own();
        let options = Options {
            kernel: KernelSource::Vmlinux(path.into()),
            ..Options::default()
        };
        let mut reader = CodeReader::new(&options, Origin::default());
        let start = 0xffff_ffff_8100_0000;
        let code = reader.function(&place(KERNEL, build_id.as_deref(), start + 3));
        let code = code.unwrap();
        assert_eq!(code.bytes.len() as u64, bytes);
        assert_eq!(code.address_of(start + 3), code.address + 3);
        let other = reader.function(&place(KERNEL, Some(&[7; 20]), start)).err();
        assert!(other.unwrap().ends_with("is another kernel"));
        let mut nowhere = CodeReader::new(&Options::default(), Origin::default());
        let missing = nowhere.function(&place(KERNEL, None, start)).err();
        assert!(missing.is_some());
    }
}
