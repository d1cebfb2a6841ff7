//! Stacks from copied stack memory (`perf record --call-graph dwarf`), unwound by framehop.
//!
//! ```text
//! ip 0x5647b6e511b7, sp 0x7ffd5dc6f1c8, 2048 bytes from sp upwards
//!   workload-nofp .eh_frame: caller's frame is at rsp+8     →  0x5647b6e51222, 0x5647b6e512e7
//!   libc.so.6     .eh_frame: …                              →  0x7f332063124a, 0x7f3320631305, …
//! ```
//! Kept per process: the mappings with code. Per file: the unwind sections, mapped once. Supports x86-64 and aarch64
//! (`arch/*/include/uapi/asm/perf_regs.h` numbers the registers). Memory and files may be hostile: the walk ends after
//! 1024 frames, or at an address outside all code.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use perfquet_events::bytes::Endian;
use perfquet_events::event::{Mapping, Registers};

use super::Options;
use super::elf::{Elf, Part, Section};
use super::files::{Files, Found, ModuleKey};
use super::jit::{is_dump, pid_of as pid_of_list};
use super::origin::{FileIdentity, FirstMapped, Origin};

/// Maximum number of frames in a stack. perf stops at 127; deeper recursion adds no information.
const DEPTH_MAX: usize = 1024;

/// framehop identifies the state of its cache by a 16-bit counter that every process and every added module advances:
/// before it wraps around, the cache is rebuilt.
const GENERATIONS_MAX: u32 = 60_000;

const X86_BP: u32 = 6;
const X86_SP: u32 = 7;
const X86_IP: u32 = 8;
const ARM_FP: u32 = 29;
const ARM_LR: u32 = 30;
const ARM_SP: u32 = 31;
const ARM_PC: u32 = 32;

const PROT_EXEC: u32 = 4;
const ABI_64: u64 = 2;

/// Result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unwound {
    /// Reached the start of the thread.
    Complete,
    /// Reached the end of the copied memory: the outer frames are missing.
    MemoryEnded,
    /// The next address would be outside all code, or no unwind rule exists.
    Lost,
    /// No registers, 32-bit, or an unsupported architecture.
    Unsupported,
}

/// Number of walks per result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnwindCounts {
    /// [`Unwound::Complete`]
    pub complete: u64,
    /// [`Unwound::MemoryEnded`]
    pub memory_ended: u64,
    /// [`Unwound::Lost`]
    pub lost: u64,
    /// [`Unwound::Unsupported`]
    pub unsupported: u64,
}

/// Unwinds user stacks of all processes of a trace.
pub struct Unwinder {
    files: Files,
    machine: Machine,
    processes: HashMap<i32, Process>,
    /// Modules without a file, and the reasons.
    missing: BTreeMap<String, String>,
    counts: UnwindCounts,
}

enum Machine {
    X86_64 {
        cache: Box<CacheX86_64>,
        added: u32,
    },
    Aarch64 {
        cache: Box<CacheAarch64>,
        added: u32,
    },
    Other,
}

/// Mappings with code, by start.
#[derive(Default)]
struct Process {
    regions: BTreeMap<u64, Region>,
    modules: Option<Modules>,
    /// The state before the mappings were reported again.
    former: Option<(BTreeMap<u64, Region>, Modules)>,
}

#[derive(Clone, PartialEq, Eq)]
struct Region {
    end: u64,
    file_offset: u64,
    path: Arc<[u8]>,
    build_id: Option<Arc<[u8]>>,
    file: Option<FileIdentity>,
    first_mapped: FirstMapped,
}

enum Modules {
    X86_64(UnwinderX86_64<Part>),
    Aarch64(UnwinderAarch64<Part>),
}

impl Unwinder {
    /// Creates an unwinder for traces of an architecture as reported by `uname -m`.
    pub fn new(options: &Options, origin: Origin, architecture: &str) -> Unwinder {
        Unwinder {
            files: Files::new(options, origin),
            machine: match architecture {
                "x86_64" => Machine::X86_64 {
                    cache: Box::default(),
                    added: 0,
                },
                "aarch64" | "arm64" => Machine::Aarch64 {
                    cache: Box::default(),
                    added: 0,
                },
                _ => Machine::Other,
            },
            processes: HashMap::new(),
            missing: BTreeMap::new(),
            counts: UnwindCounts::default(),
        }
    }

    /// Adds a mapping of code, which replaces earlier mappings there.
    pub fn add_mapping(&mut self, mapping: &Mapping<'_>) {
        let end = mapping.start.saturating_add(mapping.length);
        let has_code = mapping.protection.is_none_or(|p| p & PROT_EXEC != 0);
        if mapping.pid < 0 || end == mapping.start {
            return;
        }
        let process = self.processes.entry(mapping.pid).or_default();
        let made_room = process.make_room(mapping.start..end);
        if made_room || has_code {
            // Rebuilt at the next stack of this process.
            process.modules = None;
        }
        if !has_code {
            return;
        }
        let build_id = mapping.build_id.map(Arc::from);
        process.regions.insert(
            mapping.start,
            Region {
                end,
                file_offset: mapping.file_offset,
                path: Arc::from(mapping.path),
                build_id,
                file: FileIdentity::of(mapping),
                first_mapped: mapping.time,
            },
        );
    }

    /// Starts a repeated report of all mappings of a process, some of them changed.
    pub fn restart(&mut self, pid: i32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let regions = std::mem::take(&mut process.regions);
            let modules = process.modules.take();
            process.former = modules.map(|modules| (regions, modules));
        }
    }

    /// Removes the mappings of a process that ended or has a new image.
    pub fn clear(&mut self, pid: i32) {
        self.processes.remove(&pid);
    }

    /// Walks a stack: puts the thread's current address and then the return addresses, leaf first, into `addresses`.
    /// `memory` is the copy from the stack pointer upwards.
    pub fn unwind(
        &mut self,
        pid: i32,
        registers: &Registers<'_>,
        memory: &[u8],
        addresses: &mut Vec<u64>,
    ) -> Unwound {
        addresses.clear();
        let unwound = self.walk(pid, registers, memory, addresses);
        let count = match unwound {
            Unwound::Complete => &mut self.counts.complete,
            Unwound::MemoryEnded => &mut self.counts.memory_ended,
            Unwound::Lost => &mut self.counts.lost,
            Unwound::Unsupported => &mut self.counts.unsupported,
        };
        *count += 1;
        unwound
    }

    /// Number of walks per result.
    pub fn counts(&self) -> UnwindCounts {
        self.counts
    }

    /// Modules without a file, and the reasons: stacks through them may be truncated or follow frame pointers.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.missing
            .iter()
            .map(|(module, reason)| (module.as_str(), reason.as_str()))
    }

    fn walk(
        &mut self,
        pid: i32,
        registers: &Registers<'_>,
        memory: &[u8],
        addresses: &mut Vec<u64>,
    ) -> Unwound {
        self.prepare(pid);
        let empty = Process::default();
        let process = self.processes.get(&pid).unwrap_or(&empty);
        let (Some(modules), ABI_64) = (&process.modules, registers.abi) else {
            return Unwound::Unsupported;
        };
        let walk = || match (modules, &mut self.machine) {
            (Modules::X86_64(modules), Machine::X86_64 { cache, .. }) => {
                let (Some(ip), Some(sp), Some(bp)) = (
                    register(registers, X86_IP),
                    register(registers, X86_SP),
                    register(registers, X86_BP),
                ) else {
                    return Unwound::Unsupported;
                };
                let mut memory = |address| word(memory, sp, address);
                let registers = UnwindRegsX86_64::new(ip, sp, bp);
                let frames = modules.iter_frames(ip, registers, cache, &mut memory);
                follow(frames, process, addresses)
            }
            (Modules::Aarch64(modules), Machine::Aarch64 { cache, .. }) => {
                let (Some(pc), Some(sp), Some(lr), Some(fp)) = (
                    register(registers, ARM_PC),
                    register(registers, ARM_SP),
                    register(registers, ARM_LR),
                    register(registers, ARM_FP),
                ) else {
                    return Unwound::Unsupported;
                };
                let mut memory = |address| word(memory, sp, address);
                // User addresses of Linux have 48 bits (52 with large addresses); the rest is the pointer
                // authentication code.
                let mask = PtrAuthMask::from_max_known_address(modules.max_known_code_address());
                let registers = UnwindRegsAarch64::new_with_ptr_auth_mask(mask, lr, sp, fp);
                let frames = modules.iter_frames(pc, registers, cache, &mut memory);
                follow(frames, process, addresses)
            }
            _ => Unwound::Unsupported,
        };
        // Damaged unwind tables must not end an import, even if the library panics.
        match catch_unwind(AssertUnwindSafe(walk)) {
            Ok(unwound) => unwound,
            Err(_) => {
                self.machine.forget();
                Unwound::Lost
            }
        }
    }

    /// Reads the unwind tables of a process's mappings.
    fn prepare(&mut self, pid: i32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.modules.is_some() {
            return;
        }
        if let Some((regions, modules)) = process.former.take()
            && files_of(&regions).eq(files_of(&process.regions))
        {
            process.modules = Some(modules);
            return;
        }
        let (mut modules, added) = match &mut self.machine {
            Machine::X86_64 { added, .. } => (Modules::X86_64(UnwinderX86_64::new()), added),
            Machine::Aarch64 { added, .. } => (Modules::Aarch64(UnwinderAarch64::new()), added),
            Machine::Other => return,
        };
        *added += 1;
        for (&start, region) in &process.regions {
            let path = String::from_utf8_lossy(&region.path);
            let key = ModuleKey {
                path: path.clone().into_owned(),
                build_id: region.build_id.as_deref().map(<[u8]>::to_vec),
                file: region.file,
                first_mapped: region.first_mapped,
            };
            match self.files.find(&key) {
                Ok(found) => {
                    let Some(module) = module(&path, start, region, &found) else {
                        continue;
                    };
                    *added += 1;
                    match &mut modules {
                        Modules::X86_64(modules) => modules.add_module(module),
                        Modules::Aarch64(modules) => modules.add_module(module),
                    }
                }
                Err(missing) => {
                    self.missing.insert(path.into_owned(), missing.to_string());
                }
            }
        }
        process.modules = Some(modules);
        if *added > GENERATIONS_MAX {
            *added = 0;
            self.machine.forget();
            // Other processes are rebuilt too.
            for (_, other) in self
                .processes
                .iter_mut()
                .filter(|(other, _)| **other != pid)
            {
                other.modules = None;
                other.former = None;
            }
        }
    }
}

impl Machine {
    /// Rebuilds the cache of unwind rules.
    fn forget(&mut self) {
        match self {
            Machine::X86_64 { cache, .. } => **cache = CacheX86_64::default(),
            Machine::Aarch64 { cache, .. } => **cache = CacheAarch64::default(),
            Machine::Other => {}
        }
    }
}

impl Process {
    /// Cuts a range out of the mappings, and returns whether any overlapped.
    fn make_room(&mut self, range: Range<u64>) -> bool {
        let overlapping: Vec<u64> = self
            .regions
            .range(..range.end)
            .rev()
            // Regions do not overlap: the first that ends before the range is the last to check.
            .take_while(|(_, region)| region.end > range.start)
            .map(|(&start, _)| start)
            .collect();
        for start in &overlapping {
            let Some(region) = self.regions.remove(start) else {
                continue;
            };
            if region.end > range.end {
                let cut = range.end - start;
                let rest = Region {
                    file_offset: region.file_offset.wrapping_add(cut),
                    ..region.clone()
                };
                self.regions.insert(range.end, rest);
            }
            if *start < range.start {
                let head = Region {
                    end: range.start,
                    ..region
                };
                self.regions.insert(*start, head);
            }
        }
        !overlapping.is_empty()
    }

    fn holds(&self, address: u64) -> bool {
        let before = self.regions.range(..=address).next_back();
        before.is_some_and(|(_, region)| address < region.end)
    }
}

/// The regions that may belong to files with unwind tables; generated code has none.
fn files_of(regions: &BTreeMap<u64, Region>) -> impl Iterator<Item = (&u64, &Region)> {
    regions.iter().filter(|(_, region)| {
        let is_generated = str::from_utf8(&region.path)
            .is_ok_and(|path| is_dump(path) || pid_of_list(path).is_some());
        region.path.starts_with(b"/") && !region.path.starts_with(b"//") && !is_generated
    })
}

/// Collects the frames that are in code.
fn follow<U, F>(
    mut frames: framehop::UnwindIterator<'_, '_, '_, U, F>,
    process: &Process,
    addresses: &mut Vec<u64>,
) -> Unwound
where
    U: framehop::Unwinder,
    F: FnMut(u64) -> Result<u64, ()>,
{
    while addresses.len() < DEPTH_MAX {
        match frames.next() {
            Ok(Some(frame)) => {
                if frame.is_return_address() && !process.holds(frame.address_for_lookup()) {
                    return Unwound::Lost;
                }
                addresses.push(frame.address());
            }
            Ok(None) => return Unwound::Complete,
            Err(framehop::Error::CouldNotReadStack(_)) => return Unwound::MemoryEnded,
            // The outermost frame of a thread has no return address.
            Err(framehop::Error::ReturnAddressIsNull) => return Unwound::Complete,
            Err(_) => return Unwound::Lost,
        }
    }
    Unwound::Lost
}

/// The value of a register, if it was recorded.
fn register(registers: &Registers<'_>, number: u32) -> Option<u64> {
    let bit = 1u64.checked_shl(number)?;
    let index = (registers.mask & (bit - 1)).count_ones() as usize;
    (registers.mask & bit != 0)
        .then(|| registers.values.get(index).copied())
        .flatten()
}

/// Eight bytes of the copied stack.
fn word(memory: &[u8], sp: u64, address: u64) -> Result<u64, ()> {
    let offset = usize::try_from(address.checked_sub(sp).ok_or(())?).map_err(|_| ())?;
    Endian::Little.u64_at(memory, offset).ok_or(())
}

/// A mapped file in the form that framehop needs.
fn module(path: &str, start: u64, region: &Region, found: &Found) -> Option<Module<Part>> {
    let image = &found.image;
    let bias = start
        .wrapping_sub(region.file_offset)
        .wrapping_sub(image.address_minus_offset(region.file_offset)?);
    let base = image.loaded().map(|segment| segment.address).min()? & !0xfff;
    let addresses = |name: &[u8]| image.section(name).map(Section::addresses);
    let eh_frame = contents(image, b".eh_frame");
    let debug_frame = match (&eh_frame, &found.debug) {
        (Some(_), _) => None,
        (None, Some(debug)) => contents(debug, b".debug_frame"),
        (None, None) => contents(image, b".debug_frame"),
    };
    let sections = ExplicitModuleSectionInfo {
        base_svma: base,
        text_svma: addresses(b".text"),
        got_svma: addresses(b".got"),
        eh_frame_svma: addresses(b".eh_frame"),
        eh_frame_hdr_svma: addresses(b".eh_frame_hdr"),
        eh_frame_hdr: eh_frame
            .is_some()
            .then(|| contents(image, b".eh_frame_hdr"))
            .flatten(),
        eh_frame,
        debug_frame,
        ..ExplicitModuleSectionInfo::default()
    };
    let range = start..region.end;
    Some(Module::new(
        path.to_owned(),
        range,
        base.wrapping_add(bias),
        sections,
    ))
}

/// A section with more than its end mark.
fn contents(elf: &Elf, name: &[u8]) -> Option<Part> {
    elf.contents(name).filter(|contents| contents.len() > 4)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use perfquet_events::event::Space;

    #[test]
    fn unchanged_files_are_not_parsed_again() {
        let program = std::env::current_exe().unwrap();
        let elf = Elf::open(&program).unwrap();
        let code = (0..).step_by(0x1000);
        let code = code.take(1 << 20);
        let mut code = code.filter(|&offset| elf.address_minus_offset(offset).is_some());
        let file_offset = code.next().unwrap();
        let program = program.as_os_str().as_bytes();
        let later = Origin {
            wall_offset: Some(i64::MAX),
            began: Some(0),
            ..Origin::default()
        };
        let mut unwinder = Unwinder::new(&Options::default(), later, "x86_64");
        let mut added = |regions: &[(u64, &[u8])]| {
            unwinder.restart(1);
            for &(start, path) in regions {
                unwinder.add_mapping(&Mapping {
                    time: None,
                    pid: 1,
                    tid: 1,
                    space: Space::User,
                    start,
                    length: 0x1000,
                    file_offset,
                    path,
                    build_id: None,
                    device: None,
                    inode: None,
                    protection: Some(PROT_EXEC),
                    flags: None,
                });
            }
            unwinder.prepare(1);
            match unwinder.machine {
                Machine::X86_64 { added, .. } => added,
                Machine::Aarch64 { .. } | Machine::Other => 0,
            }
        };
        let first = added(&[(0x1000, program)]);
        assert!(first > 1);
        assert_eq!(added(&[(0x1000, program), (0x9000, b"//anon")]), first);
        let generated = b"/tmp/jit-1.dump";
        assert_eq!(added(&[(0x1000, program), (0x9000, generated)]), first);
        assert!(added(&[(0x5000, program)]) > first);
    }
}
