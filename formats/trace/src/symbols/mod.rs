//! Addresses become names: functions, files, lines.
//!
//! ```text
//! Request { module: "/usr/bin/dd", build_id: 1a2b…, offset: 0x6f21, return_address: true }  →  [dd_copy+0x1c2]
//! Request { module: "[kernel.kallsyms]", address: 0xffffffff81456a76 }                     →  [getname_flags+0x26]
//! ```
//! Names are never guessed: a file is used only if its build ID is the recorded one, kernel symbols only if they are
//! the recorded kernel's. If the trace recorded nothing to compare, [`Name::is_unverified`] is set. If an address has
//! several names, perf's choice is used, so that both print the same. A frame without a name keeps module and offset,
//! is counted in the [`Report`] with the reason, and can be named later.
//! Symbol tables are read by `elf` and `table`; `lines` has blazesym read DWARF for lines and inlined
//! functions; `unwind` walks copied stacks.

mod build_id;
mod code;
mod debuginfod;
mod demangle;
mod elf;
mod embedded;
mod files;
mod jit;
mod kallsyms;
mod kernel;
pub mod limits;
mod lines;
mod origin;
mod plt;
mod probe_points;
mod report;
mod roots;
mod table;
mod unwind;
mod user;
mod variables;

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use perfquet_events::Error;
use perfquet_events::event::{Event, Fact, Space};

use embedded::TraceSymbols;
use files::{Files, Missing, ModuleKey};
use jit::Generated;
use kernel::Kernel;
use lines::Lines;
use user::{Module, NoName, Place};

pub use code::{Code, CodePlace, CodeReader, GENERATED, Machine, SourcePlace};
pub use debuginfod::{Debuginfod, DebuginfodCounts};
pub use demangle::{demangle, may_be_mangled};
pub(crate) use files::own_vdso_build_id;
pub(crate) use jit::{
    Change, DumpedCode, Follower, is_dump, is_generated, module_of as generated_module,
};
pub use kernel::kernel_debug_files;
pub(crate) use kernel::running_build_id;
pub use lines::{LineReader, serve_lines};
pub use origin::{FileIdentity, FirstMapped, Origin};
pub use probe_points::{CodeSymbol, Object, StaticProbe, ThreadVariable};
pub use report::{Report, Unnamed, unverified_sentence, without_line_sentence};
pub use roots::Roots;
pub use unwind::{
    Chains, GeneratedCode, GeneratedRule, MappedCode, RBP_SAME, RBP_UNKNOWN, Row, StackMemory,
    TableSource, UnwindCounts, UnwindTable, Unwinder, Unwound, WIDE_RULES_MAX, Wide,
};
pub use variables::{LinePlace, Location, Member, Scope, Shape, SourceLines, Variable};

/// Size of symbol tables and mapped files above which the current ones are released before another is read. Half of all
/// programs take less than 1 MiB, a compiler's library 200.
const MODULES_KEPT_BYTES: usize = 32 << 20;

/// Name of the kernel as a module.
pub const KERNEL: &str = "[kernel.kallsyms]";

/// Number of frames to pass to [`Symbolizer::names`] at once: their names, of a few hundred bytes each, are in memory
/// together.
pub(crate) const FRAMES_AT_ONCE: usize = 1 << 12;

/// Sources of names.
#[derive(Debug, Clone)]
pub struct Options {
    /// Symbols of the kernel.
    pub kernel: KernelSource,
    /// Directories with programs and debug info, searched first: by build ID (`.build-id/1a/2b….debug`), by the
    /// recorded path below them, by file name.
    pub directories: Vec<PathBuf>,
    /// Whether to name user frames.
    pub user: bool,
    /// Reader of files, lines and inlined functions from debug info; `None` to skip them. A hundred times slower.
    pub lines: Option<LineReader>,
    /// Roots of processes with another file system, to find their mapped files.
    pub roots: Roots,
    /// Whether to search this host: recorded paths, `/usr/lib/debug`, the caches of perf and debuginfod, its kernel.
    pub system: bool,
    /// Servers to ask for what is not on this host.
    pub debuginfod: Option<Debuginfod>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kernel: KernelSource::Auto,
            directories: Vec::new(),
            user: true,
            lines: None,
            roots: Roots::default(),
            system: true,
            debuginfod: None,
        }
    }
}

impl Options {
    /// Adds a file or directory given to `--symbols`: a directory of programs, a vmlinux, or a list of kernel symbols
    /// (kallsyms, System.map).
    pub fn add(&mut self, path: &Path) -> Result<(), Error> {
        let metadata = std::fs::metadata(path).map_err(Error::io(path))?;
        if metadata.is_dir() {
            self.directories.push(path.to_owned());
        } else if elf::Elf::open(path).is_ok() {
            self.kernel = KernelSource::Vmlinux(path.to_owned());
        } else {
            self.kernel = KernelSource::Kallsyms(path.to_owned());
        }
        Ok(())
    }
}

/// Source of the kernel's symbols.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KernelSource {
    /// The directories, this host's kernel, its debug packages: whichever is the recorded kernel's.
    #[default]
    Auto,
    /// A copy of `/proc/kallsyms`.
    Kallsyms(PathBuf),
    /// A System.map of the build.
    SystemMap(PathBuf),
    /// The uncompressed kernel (vmlinux).
    Vmlinux(PathBuf),
    /// No names for the kernel.
    None,
}

/// Facts in a trace about the kernel it was recorded on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// `uname -r`
    pub os_release: Option<String>,
    /// Build ID of the kernel.
    pub build_id: Option<Vec<u8>>,
    /// A kernel symbol and its address while recording: `_text` or `_stext`.
    pub reference: Option<(String, u64)>,
}

impl KernelFacts {
    /// Takes facts about the kernel from an event.
    pub fn note(&mut self, event: &Event<'_>) {
        match event {
            Event::Fact(Fact::OsRelease(release)) => self.os_release = Some((*release).to_owned()),
            Event::Fact(Fact::KernelBuildId(id)) => self.build_id = Some(id.to_vec()),
            Event::BuildId(id) if id.space == Space::Kernel && id.path.starts_with(b"[kernel") => {
                self.build_id = Some(id.build_id.to_vec());
            }
            // perf writes the symbol's address as the offset in the file: "[kernel.kallsyms]_text".
            Event::Mapping(mapping) if mapping.space != Space::User => {
                let name = mapping.path.strip_prefix(KERNEL.as_bytes());
                if let Some(name) = name.filter(|name| !name.is_empty())
                    && mapping.file_offset != 0
                {
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.reference = Some((name, mapping.file_offset));
                }
                if mapping.path.starts_with(KERNEL.as_bytes())
                    && let Some(id) = mapping.build_id
                {
                    self.build_id = Some(id.to_vec());
                }
            }
            _ => {}
        }
    }
}

/// A frame to symbolize.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// Path of the module as recorded.
    pub module: Option<&'a str>,
    /// Its build ID.
    pub build_id: Option<&'a [u8]>,
    /// The mapped file, if the recording identifies it.
    pub file: Option<FileIdentity>,
    /// The time of its first mapping.
    pub first_mapped: FirstMapped,
    /// Offset in the module's file.
    pub offset: Option<u64>,
    /// Absolute address, for the kernel.
    pub address: Option<u64>,
    /// Space in which the code runs.
    pub space: Space,
    /// Whether the address follows a call, and is not that of an executed instruction.
    pub return_address: bool,
}

/// A function at a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Function, demangled.
    pub function: String,
    /// Bytes from its start; unknown for inlined ones.
    pub function_offset: Option<u64>,
    /// Source file.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// Whether the file is not proven to be the recorded one.
    pub is_unverified: bool,
}

impl Name {
    /// A function without its line.
    fn of(function: String, function_offset: u64) -> Name {
        Name {
            function,
            function_offset: Some(function_offset),
            file: None,
            line: None,
            is_unverified: false,
        }
    }
}

/// Names frames.
pub struct Symbolizer {
    options: Options,
    facts: KernelFacts,
    kernel: Kernel,
    files: Files,
    modules: HashMap<ModuleKey, Result<Module, Missing>>,
    trace_symbols: TraceSymbols,
    generated: Generated,
    lines: Option<Lines>,
    report: Report,
}

impl Symbolizer {
    /// Reads the given kernel symbols; other symbols on request.
    pub fn new(options: Options, facts: KernelFacts, origin: Origin) -> Result<Symbolizer, Error> {
        Ok(Symbolizer {
            kernel: kernel::given(&options, &facts)?,
            generated: Generated::new(&options, origin.clone()),
            files: Files::new(&options, origin),
            modules: HashMap::new(),
            trace_symbols: TraceSymbols::default(),
            lines: options.lines.clone().map(Lines::new),
            report: Report::default(),
            options,
            facts,
        })
    }

    /// Adds a symbol from the trace itself, which precedes all others. Without a module, `start` is an absolute address
    /// of the kernel; with one, an offset in its file. A length of 0 extends to the next symbol.
    pub fn add_symbol(&mut self, module: Option<&str>, start: u64, length: u64, name: &[u8]) {
        self.trace_symbols.add(module, start, length, name);
    }

    /// Adds the source file and line of a symbol from the trace itself.
    pub fn add_line(&mut self, module: &str, start: u64, file: &str, line: u32) {
        self.trace_symbols.add_line(module, start, file, line);
    }

    /// Records where a process wrote its generated code.
    pub fn add_dump(&mut self, pid: i32, path: &str) {
        self.generated.add_dump(pid, path);
    }

    /// Returns the names of each frame, from the function to the innermost one inlined there; empty if unknown. Most
    /// efficient with many distinct frames at once.
    pub fn names(&mut self, requests: &[Request<'_>]) -> Vec<Vec<Name>> {
        let mut names = vec![Vec::new(); requests.len()];
        // Sorted, so that files are read and reported in the same order every time.
        let mut places: BTreeMap<Recorded<'_>, Vec<Place>> = BTreeMap::new();
        self.report.frames += requests.len() as u64;
        for (index, (request, name)) in requests.iter().zip(&mut names).enumerate() {
            if is_of_kernel(request) {
                *name = self.kernel_names(request);
                continue;
            }
            if let Some(found) = self.generated_name(request) {
                match found {
                    Ok(found) => name.push(found),
                    Err(reason) => {
                        let module = request.module.unwrap_or("[unknown]");
                        self.report.add(module, &reason, 1);
                    }
                }
                continue;
            }
            match (request.module, request.offset) {
                (Some(module), Some(offset)) if is_of_user(request.space) => {
                    let place = Place {
                        request: index,
                        offset,
                        return_address: request.return_address,
                    };
                    let recorded = Recorded {
                        module,
                        build_id: request.build_id,
                        file: request.file,
                        first_mapped: request.first_mapped,
                    };
                    places.entry(recorded).or_default().push(place);
                }
                _ => {
                    let module = request.module.unwrap_or("[unknown]");
                    self.report.add(module, no_module(request), 1);
                }
            }
        }
        for (recorded, places) in places {
            self.user_names(recorded, places, &mut names);
        }
        let named = names.iter().filter(|names| !names.is_empty()).count();
        self.report.named += named as u64;
        let debuginfod = self.options.debuginfod.as_ref();
        self.report.debuginfod = debuginfod.map(Debuginfod::counts);
        names
    }

    /// Memory of the loaded symbol tables and their files.
    fn held_bytes(&self) -> usize {
        let modules = self.modules.values().flatten();
        modules.map(Module::held_bytes).sum()
    }

    /// Releases the symbol tables; files that were not found are not searched again.
    fn forget_modules(&mut self) {
        self.modules.retain(|_, module| module.is_err());
        self.files.forget();
        // The debug info readers hold references to them.
        if let Some(lines) = &mut self.lines {
            lines.close();
        }
    }

    /// Reads the lists and dumps of generated code again: processes append to them.
    pub(crate) fn reread_generated(&mut self) {
        self.generated.forget();
    }

    /// Start and end of the generated function at an address of a process.
    pub(crate) fn generated_range(
        &mut self,
        pid: i32,
        address: u64,
        first_mapped: FirstMapped,
    ) -> Option<(u64, u64)> {
        self.generated.range_at(pid, address, first_mapped)
    }

    /// The function at an offset of a jitdump's file, with its code.
    pub(crate) fn dumped_code(&mut self, module: &str, offset: u64) -> Option<DumpedCode> {
        self.generated.code_in_dump(module, offset)
    }

    /// Start and end of the kernel's function at an address.
    pub(crate) fn kernel_range(&mut self, address: u64) -> Option<(u64, u64)> {
        if matches!(self.kernel, Kernel::Unasked) {
            self.kernel = kernel::find(&self.options, &self.facts);
        }
        match &self.kernel {
            Kernel::Known(known) => known.range_at(address),
            Kernel::Unasked | Kernel::Unknown(_) => None,
        }
    }

    /// Frames without a name, and the reasons.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The name of generated code; `None` if the frame is not generated code.
    fn generated_name(&mut self, request: &Request<'_>) -> Option<Result<Name, String>> {
        let module = request.module.filter(|_| self.options.user)?;
        let after = u64::from(request.return_address);
        match (request.offset, request.address) {
            (Some(offset), _) if is_dump(module) => {
                let code = offset.saturating_sub(after);
                Some(self.generated.in_dump(module, code, offset))
            }
            (None, Some(address)) => {
                let pid = jit::pid_of(module)?;
                let code = address.saturating_sub(after);
                Some(self.generated.at(pid, code, address, request.first_mapped))
            }
            _ => None,
        }
    }

    fn kernel_names(&mut self, request: &Request<'_>) -> Vec<Name> {
        let module = request.module.unwrap_or(KERNEL);
        let Some(address) = request.address else {
            self.report.add(module, "no address recorded", 1);
            return Vec::new();
        };
        let code = address.saturating_sub(u64::from(request.return_address));
        if let Some(name) = self.trace_symbols.name(None, code, address) {
            return vec![name];
        }
        if matches!(self.kernel, Kernel::Unasked) {
            // The kernel's symbol table is a large one.
            self.forget_modules();
            self.kernel = kernel::find(&self.options, &self.facts);
        }
        let reason = match &self.kernel {
            Kernel::Unasked => "not looked for",
            Kernel::Unknown(reason) => {
                self.report.kernel = Some(format!("no symbols: {reason}"));
                reason.as_str()
            }
            Kernel::Known(known) => {
                if self.report.kernel.is_none() {
                    self.report.kernel = Some(known.about());
                }
                if let Some(found) = known.at(code).or_else(|| known.at(address)) {
                    let function = demangle(found.name);
                    let name = Name::of(function, address.wrapping_sub(found.start));
                    let is_unverified = !known.is_verified();
                    if is_unverified {
                        self.report.add_unverified(module, 1);
                    }
                    return vec![Name {
                        is_unverified,
                        ..name
                    }];
                }
                match known.without_modules() {
                    Some(reason) if module != KERNEL => reason,
                    _ => "no symbol at the address",
                }
            }
        };
        self.report.add(module, reason, 1);
        Vec::new()
    }

    fn user_names(
        &mut self,
        recorded: Recorded<'_>,
        mut places: Vec<Place>,
        names: &mut [Vec<Name>],
    ) {
        let module = recorded.module;
        places.retain(|place| {
            let code = place.offset_of_code();
            let name = self.trace_symbols.name(Some(module), code, place.offset);
            match (name, names.get_mut(place.request)) {
                (Some(name), Some(slot)) => {
                    *slot = vec![name];
                    false
                }
                _ => true,
            }
        });
        if places.is_empty() {
            return;
        }
        if !self.options.user {
            self.report
                .add(module, "not requested", places.len() as u64);
            return;
        }
        let key = recorded.key();
        if !self.modules.contains_key(&key) && self.held_bytes() > MODULES_KEPT_BYTES {
            self.forget_modules();
        }
        let files = &mut self.files;
        let found = match self.modules.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let found = files.find(free.key()).map(Module::new);
                free.insert(found)
            }
        };
        // Neighbors are found in the same part of a table.
        places.sort_unstable_by_key(|place| (place.offset, place.request));
        let report = &mut self.report;
        match found {
            Ok(found) => {
                let mut unverified = 0;
                let is_unverified = !found.is_verified();
                let lines = self.lines.as_mut();
                found.names(&places, lines, |request, found, no_lines| {
                    if let Some(reason) = no_lines {
                        report.add_without_line(module, reason.sentence());
                    }
                    match (found, names.get_mut(request)) {
                        (Ok(mut found), Some(slot)) => {
                            for name in &mut found {
                                name.is_unverified = is_unverified;
                            }
                            unverified += u64::from(is_unverified);
                            *slot = found;
                        }
                        (Ok(_), None) => {}
                        (Err(reason), _) => report.add(module, sentence(reason), 1),
                    }
                });
                report.add_unverified(module, unverified);
            }
            Err(missing) => report.add(module, &missing.to_string(), places.len() as u64),
        }
    }
}

/// A module as identified in requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Recorded<'a> {
    module: &'a str,
    build_id: Option<&'a [u8]>,
    file: Option<FileIdentity>,
    first_mapped: FirstMapped,
}

impl Recorded<'_> {
    fn key(&self) -> ModuleKey {
        ModuleKey {
            path: self.module.to_owned(),
            build_id: self.build_id.map(<[u8]>::to_vec),
            file: self.file,
            first_mapped: self.first_mapped,
        }
    }
}

fn is_of_kernel(request: &Request<'_>) -> bool {
    match request.space {
        Space::Kernel => true,
        Space::Unknown => request.module == Some(KERNEL),
        Space::User | Space::Hypervisor | Space::GuestKernel | Space::GuestUser => false,
    }
}

fn is_of_user(space: Space) -> bool {
    matches!(space, Space::User | Space::Unknown)
}

fn no_module(request: &Request<'_>) -> &'static str {
    match request.space {
        Space::Hypervisor => "code of a hypervisor",
        Space::GuestKernel | Space::GuestUser => "code of a guest",
        _ => "no mapping recorded for the address",
    }
}

fn sentence(reason: NoName) -> &'static str {
    match reason {
        NoName::NoSymbols => "it has no symbols, and no file with debugging information was found",
        NoName::NoSymbolThere => "no symbol at the address",
        NoName::OutsideSegments => "the offset is in no segment of the file",
    }
}
