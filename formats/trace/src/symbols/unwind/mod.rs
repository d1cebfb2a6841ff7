//! Stacks from copied stack memory: of x86-64 by [rules](rule) from the files' call frame information, of aarch64 by
//! framehop.
//!
//! ```text
//! ip 0x5647b6e511b7, sp 0x7ffd5dc6f1c8, 2048 bytes from sp upwards
//!   workload-nofp .eh_frame: caller's frame is at rsp+8     →  0x5647b6e51222, 0x5647b6e512e7
//!   libc.so.6     .eh_frame: …                              →  0x7f332063124a, 0x7f3320631305, …
//! ```
//! Kept per process: the mappings with code. Per file: its list of functions, if its own index does
//! not suffice, and the rules evaluated last.
//! `arch/*/include/uapi/asm/perf_regs.h` numbers the registers. Memory and files may be hostile: a walk ends after 1024 frames, or at an
//! address outside all code.

mod arm;
mod cfi;
mod chains;
mod code_files;
mod flow;
mod frame_rows;
mod generated;
mod go;
mod root;
mod rule;
mod sources;
mod stubs;
mod table;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use perfquet_events::bytes::Endian;
use perfquet_events::event::{Mapping, Registers};

use super::Options;
use super::elf::Elf;
use super::files::{Files, Found, ModuleKey, own_vdso_build_id};
use super::limits::CHAIN_BYTES_MAX;
use super::origin::{FileIdentity, FirstMapped, Origin};
use arm::Arm;
use cfi::CallFrames;
use code_files::{CodeFile, CodeFiles};
use rule::Rule;
use table::base_of;
use walk::{Code, State, walk};

pub use chains::Chains;
pub use generated::{GeneratedCode, GeneratedRule};
pub(super) use go::go_names;
pub use rule::{RBP_SAME, RBP_UNKNOWN, Row, WIDE_RULES_MAX, Wide};
pub use table::UnwindTable;

/// Start and end of each function with call frame information.
pub(super) fn call_frame_ranges(image: &Elf, debug: Option<&Elf>) -> Vec<(u64, u64)> {
    let Some(frames) = CallFrames::of(image, debug) else {
        return Vec::new();
    };
    let functions = frames.functions().iter();
    functions
        .map(|function| (function.start, function.end))
        .collect()
}

const X86_BP: u32 = 6;
const X86_SP: u32 = 7;
const X86_IP: u32 = 8;
/// Numbers of the kernel for the registers 0 to 15 of DWARF: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15.
const X86_OF_DWARF: [u32; 16] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23];

const PROT_EXEC: u32 = 4;
const ABI_64: u64 = 2;

/// Result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unwound {
    /// Reached the start of the thread.
    Complete,
    /// Reached the end of the copied memory: the outer frames are missing.
    MemoryEnded,
    /// Reached code that has no unwind information and no frame pointers.
    NoRule,
    /// The next address would be outside all code.
    Lost,
    /// Deeper than any recorded stack.
    TooDeep,
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
    /// [`Unwound::NoRule`]
    pub no_rule: u64,
    /// [`Unwound::Lost`]
    pub lost: u64,
    /// [`Unwound::TooDeep`]
    pub too_deep: u64,
    /// [`Unwound::Unsupported`]
    pub unsupported: u64,
}

impl UnwindCounts {
    /// Number of stacks whose outer frames are missing.
    pub fn cut(&self) -> u64 {
        let UnwindCounts {
            complete: _,
            memory_ended,
            no_rule,
            lost,
            too_deep,
            unsupported,
        } = self;
        memory_ended + no_rule + lost + too_deep + unsupported
    }

    /// Counts one walk.
    pub fn add(&mut self, unwound: Unwound) {
        self.add_many(unwound, 1);
    }

    /// Counts walks with the same result.
    pub fn add_many(&mut self, unwound: Unwound, more: u64) {
        let count = match unwound {
            Unwound::Complete => &mut self.complete,
            Unwound::MemoryEnded => &mut self.memory_ended,
            Unwound::NoRule => &mut self.no_rule,
            Unwound::Lost => &mut self.lost,
            Unwound::TooDeep => &mut self.too_deep,
            Unwound::Unsupported => &mut self.unsupported,
        };
        *count += more;
    }
}

/// A copy of a stack.
#[derive(Debug, Clone, Copy)]
pub struct StackMemory<'a> {
    /// From the stack pointer upwards.
    pub lower: &'a [u8],
    /// Another part above, and its address.
    pub upper: (u64, &'a [u8]),
}

/// A mapping of code, for programs that walk stacks by tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedCode {
    /// First address.
    pub start: u64,
    /// First address past the end.
    pub end: u64,
    /// The file, as [`Unwinder::table_source`] knows it; `None` for generated code and files that were not found.
    pub file: Option<u32>,
    /// The address in the file where the mapping starts, from [`UnwindTable::base`].
    pub file_start: u64,
}

/// A file whose table can be built, in any thread.
pub struct TableSource(Found);

impl TableSource {
    /// Builds the table: 10 ms for a C library, a second for a compiler's.
    pub fn build(&self) -> UnwindTable {
        UnwindTable::of(&self.0)
    }
}

/// Unwinds user stacks of all processes of a trace.
pub struct Unwinder {
    files: Files,
    machine: Machine,
    processes: HashMap<i32, Process>,
    /// Modules without a file, and the reasons.
    missing: BTreeMap<String, String>,
    counts: UnwindCounts,
    /// Build ID of the vDSO, whose mappings have none.
    vdso: Option<Arc<[u8]>>,
    /// Whether the processes run on this host now.
    is_live: bool,
}

#[expect(clippy::large_enum_variant, reason = "there is one for a whole import")]
enum Machine {
    X86_64(Rules),
    Aarch64(Arm),
    Other,
}

/// The mappings with code, by start.
#[derive(Default)]
struct Process {
    regions: BTreeMap<u64, Region>,
    /// Call frame information read for its stacks, in bytes.
    frame_bytes: u64,
    /// Of aarch64, once needed.
    modules: Option<arm::Modules>,
    /// The state before the mappings were reported again.
    former: Option<(BTreeMap<u64, Region>, arm::Modules)>,
}

#[derive(Clone)]
struct Region {
    end: u64,
    file_offset: u64,
    path: Arc<[u8]>,
    build_id: Option<Arc<[u8]>>,
    file: Option<FileIdentity>,
    /// Generation of the inode, which distinguishes files that had the same one; 0 if unknown.
    generation: u64,
    first_mapped: FirstMapped,
    /// Its file's code, once needed.
    code: RegionCode,
}

/// The code of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegionCode {
    Unresolved,
    /// No file, or a file that was not found.
    Without,
    /// Index in [`Rules::files`], and the offset to add to an address to get the file's.
    File {
        index: u32,
        bias: u64,
    },
}

/// The rules of all files.
#[derive(Default)]
struct Rules {
    code: CodeFiles,
    by_key: HashMap<ModuleKey, u32>,
    /// Files of running processes, by inode and its generation.
    by_inode: HashMap<(FileIdentity, u64), u32>,
}

impl Unwinder {
    /// Creates an unwinder for traces of an architecture as reported by `uname -m`.
    pub fn new(options: &Options, origin: Origin, architecture: &str) -> Unwinder {
        Unwinder {
            files: Files::new(options, origin),
            machine: match architecture {
                "x86_64" => Machine::X86_64(Rules::default()),
                "aarch64" | "arm64" => Machine::Aarch64(Arm::default()),
                _ => Machine::Other,
            },
            processes: HashMap::new(),
            missing: BTreeMap::new(),
            counts: UnwindCounts::default(),
            vdso: None,
            is_live: false,
        }
    }

    /// Declares that the processes run on this host now: their vDSO is the recorder's, their files are below `/proc/PID/root`.
    pub fn set_live(&mut self) {
        self.vdso = own_vdso_build_id().map(Arc::from);
        self.is_live = true;
        self.files.set_live();
    }

    /// Whether a process has code at an address.
    pub fn has_code(&self, pid: i32, address: u64) -> bool {
        let process = self.processes.get(&pid);
        let before = process.and_then(|process| process.regions.range(..=address).next_back());
        before.is_some_and(|(_, region)| address < region.end)
    }

    /// Whether a process has code of a file with such a path.
    pub fn has_code_of(&self, pid: i32, is_path: impl Fn(&[u8]) -> bool) -> bool {
        let regions = self.processes.get(&pid).map(|process| &process.regions);
        let mut regions = regions.into_iter().flat_map(BTreeMap::values);
        regions.any(|region| is_path(&region.path))
    }

    /// Adds a mapping of code, which replaces earlier mappings there.
    pub fn add_mapping(&mut self, mapping: &Mapping<'_>) {
        self.add_mapping_of(mapping, 0);
    }

    /// Adds a mapping as [`Unwinder::add_mapping`], with the generation of its inode.
    pub fn add_mapping_of(&mut self, mapping: &Mapping<'_>, generation: u64) {
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
        let is_vdso = mapping.path == b"[vdso]" && mapping.start > u64::from(u32::MAX);
        let vdso = self.vdso.clone().filter(|_| is_vdso);
        let build_id = mapping.build_id.map(Arc::from).or(vdso);
        process.regions.insert(
            mapping.start,
            Region {
                end,
                file_offset: mapping.file_offset,
                path: Arc::from(mapping.path),
                build_id,
                file: FileIdentity::of(mapping),
                generation,
                first_mapped: mapping.time,
                code: RegionCode::Unresolved,
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

    /// Gives a new process the mappings of its parent.
    pub fn fork(&mut self, parent: i32, child: i32) {
        let of_parent = self.processes.get(&parent).filter(|_| parent != child);
        if let Some(of_parent) = of_parent {
            let process = Process {
                regions: of_parent.regions.clone(),
                frame_bytes: of_parent.frame_bytes,
                ..Process::default()
            };
            self.processes.insert(child, process);
        }
    }

    /// Adds a file that processes will map, and returns its number; `None` if another file is at that path, or it is not code for this
    /// architecture.
    pub fn add_file(&mut self, path: &Path, file: FileIdentity, generation: u64) -> Option<u32> {
        let Machine::X86_64(rules) = &mut self.machine else {
            return None;
        };
        let inode = (file, generation);
        if let Some(&index) = rules.by_inode.get(&inode) {
            return Some(index);
        }
        let index = rules.code.add(self.files.find_mapped(path, file)?)?;
        rules.by_inode.insert(inode, index);
        Some(index)
    }

    /// The mappings of a process's code, by address, with their files.
    pub fn mapped_code(&mut self, pid: i32) -> Vec<MappedCode> {
        let (Machine::X86_64(rules), Some(process)) =
            (&mut self.machine, self.processes.get_mut(&pid))
        else {
            return Vec::new();
        };
        let files = &mut Searched {
            files: &mut self.files,
            missing: &mut self.missing,
            running: self.is_live.then_some(pid),
        };
        let regions = process.regions.iter_mut();
        let mapped = regions.map(|(&start, region)| {
            if region.code == RegionCode::Unresolved {
                region.code = rules.resolve(files, start, region);
            }
            let (file, file_start) = match region.code {
                RegionCode::File { index, bias } => {
                    let file = rules.code.file(index);
                    let base = file.map_or(0, |file| base_of(&file.found.image));
                    (Some(index), start.wrapping_add(bias).wrapping_sub(base))
                }
                RegionCode::Unresolved | RegionCode::Without => (None, 0),
            };
            MappedCode {
                start,
                end: region.end,
                file,
                file_start,
            }
        });
        mapped.collect()
    }

    /// The file of a mapping.
    pub fn table_source(&self, file: u32) -> Option<TableSource> {
        let Machine::X86_64(rules) = &self.machine else {
            return None;
        };
        let file = rules.code.file(file)?;
        Some(TableSource(file.found.clone()))
    }

    /// Removes the mappings of a process that ended or has a new image.
    pub fn clear(&mut self, pid: i32) {
        self.processes.remove(&pid);
    }

    /// Walks a stack. Fills `addresses` with the current address of the thread and the return addresses, leaf first.
    /// `memory` is a copy of the stack from the stack pointer upwards.
    pub fn unwind(
        &mut self,
        pid: i32,
        registers: &Registers<'_>,
        memory: &[u8],
        addresses: &mut Vec<u64>,
    ) -> Unwound {
        let memory = StackMemory {
            lower: memory,
            upper: (0, &[]),
        };
        self.unwind_parts(pid, registers, memory, addresses)
    }

    /// Walks a stack, as [`Unwinder::unwind`], of which one or two parts were copied. The second part is ignored on aarch64.
    pub fn unwind_parts(
        &mut self,
        pid: i32,
        registers: &Registers<'_>,
        memory: StackMemory<'_>,
        addresses: &mut Vec<u64>,
    ) -> Unwound {
        addresses.clear();
        let empty = &mut Process::default();
        let process = self.processes.get_mut(&pid).unwrap_or(empty);
        let files = &mut Searched {
            files: &mut self.files,
            missing: &mut self.missing,
            running: self.is_live.then_some(pid),
        };
        let (unwound, must_rebuild) = match &mut self.machine {
            _ if registers.abi != ABI_64 || process.regions.is_empty() => {
                (Unwound::Unsupported, false)
            }
            Machine::X86_64(rules) => {
                let unwound = rules.unwind(files, process, registers, memory, addresses);
                (unwound, false)
            }
            Machine::Aarch64(arm) => arm.unwind(files, process, registers, memory.lower, addresses),
            Machine::Other => (Unwound::Unsupported, false),
        };
        if must_rebuild {
            let others = self
                .processes
                .iter_mut()
                .filter(|(other, _)| **other != pid);
            for (_, other) in others {
                other.modules = None;
                other.former = None;
            }
        }
        self.counts.add(unwound);
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
}

/// The search for a mapped file.
struct Searched<'a> {
    files: &'a mut Files,
    missing: &'a mut BTreeMap<String, String>,
    /// The process with the mapping, if it runs on this host.
    running: Option<i32>,
}

impl Searched<'_> {
    fn find(&mut self, region: &Region) -> (ModuleKey, Option<Found>) {
        let path = String::from_utf8_lossy(&region.path);
        let key = ModuleKey {
            path: path.clone().into_owned(),
            build_id: region.build_id.as_deref().map(<[u8]>::to_vec),
            file: region.file,
            first_mapped: region.first_mapped,
        };
        let found = self.files.find(&key).or_else(|missing| {
            // The process may run in a container not noticed yet.
            let root = self.running.map(|pid| format!("/proc/{pid}/root"));
            let found = root.map(|root| self.files.find_below(Path::new(&root), &key));
            found.and_then(Result::ok).ok_or(missing)
        });
        match found {
            Ok(found) => (key, Some(found)),
            Err(missing) => {
                self.missing.insert(path.into_owned(), missing.to_string());
                (key, None)
            }
        }
    }
}

impl Rules {
    fn unwind(
        &mut self,
        files: &mut Searched<'_>,
        process: &mut Process,
        registers: &Registers<'_>,
        memory: StackMemory<'_>,
        addresses: &mut Vec<u64>,
    ) -> Unwound {
        let (Some(ip), Some(sp), bp) = (
            register(registers, X86_IP),
            register(registers, X86_SP),
            register(registers, X86_BP),
        ) else {
            return Unwound::Unsupported;
        };
        let mut walked = Walked {
            rules: self,
            files,
            regions: &mut process.regions,
            frame_bytes: &mut process.frame_bytes,
            registers,
            memory,
            sp,
        };
        walk(&mut walked, State { ip, sp, bp }, addresses)
    }

    fn resolve(&mut self, files: &mut Searched<'_>, start: u64, region: &Region) -> RegionCode {
        let inode = region.file.map(|file| (file, region.generation));
        let of_running = match (files.running, inode) {
            (Some(pid), Some(inode)) => self.running(files, pid, inode, start..region.end),
            _ => None,
        };
        let index = of_running.or_else(|| {
            let (key, found) = files.find(region);
            let known = self.by_key.get(&key).copied();
            let index = known.or_else(|| self.code.add(found?))?;
            self.by_key.insert(key, index);
            Some(index)
        });
        let code = index.and_then(|index| {
            let image = &self.code.file(index)?.found.image;
            let difference = image.address_minus_offset(region.file_offset)?;
            let bias = region
                .file_offset
                .wrapping_add(difference)
                .wrapping_sub(start);
            Some(RegionCode::File { index, bias })
        });
        code.unwrap_or(RegionCode::Without)
    }

    /// The file that a running process maps there, whatever its path leads to now.
    fn running(
        &mut self,
        files: &Searched<'_>,
        pid: i32,
        inode: (FileIdentity, u64),
        range: Range<u64>,
    ) -> Option<u32> {
        if let Some(&index) = self.by_inode.get(&inode) {
            return Some(index);
        }
        let mapped = format!("/proc/{pid}/map_files/{:x}-{:x}", range.start, range.end);
        let paths = [mapped, format!("/proc/{pid}/exe")];
        let mut found = paths.iter().filter_map(|path| {
            let path = Path::new(path);
            files.files.find_mapped(path, inode.0)
        });
        let index = self.code.add(found.next()?)?;
        self.by_inode.insert(inode, index);
        Some(index)
    }
}

/// A stack that is being walked.
struct Walked<'a, 'f> {
    rules: &'a mut Rules,
    files: &'a mut Searched<'f>,
    regions: &'a mut BTreeMap<u64, Region>,
    frame_bytes: &'a mut u64,
    registers: &'a Registers<'a>,
    memory: StackMemory<'a>,
    /// Where the memory begins.
    sp: u64,
}

impl walk::Process for Walked<'_, '_> {
    fn code(&mut self, address: u64, looked_up: u64) -> Option<Code<'_>> {
        let (&start, region) = self.regions.range_mut(..=looked_up).next_back()?;
        if looked_up >= region.end {
            return None;
        }
        if region.code == RegionCode::Unresolved {
            region.code = self.rules.resolve(self.files, start, region);
        }
        let RegionCode::File { index, bias } = region.code else {
            // Generated code mostly has frame pointers.
            return Some(Code {
                rule: Rule::Gap,
                instructions: &[],
                chains_hold: true,
            });
        };
        let is_live = self.files.running.is_some();
        let frame_bytes = is_live.then_some(&mut *self.frame_bytes);
        let looked_up = looked_up.wrapping_add(bias);
        let rule = self.rules.code.rule_at(index, looked_up, frame_bytes);
        if rule != Rule::Gap {
            return Some(Code {
                rule,
                instructions: &[],
                chains_hold: false,
            });
        }
        let CodeFile { found, rules, .. } = self.rules.code.file_mut(index)?;
        let instructions = found.image.code_at(address.wrapping_add(bias));
        Some(Code {
            rule,
            instructions: instructions.unwrap_or_default(),
            // In a large file, this would take too long while rings fill.
            chains_hold: rules.as_mut().is_some_and(|rules| {
                let is_fast = !is_live || rules.frame_bytes() <= CHAIN_BYTES_MAX;
                is_fast && rules.chains_hold(&found.image)
            }),
        })
    }

    fn is_code(&self, address: u64) -> bool {
        let before = self.regions.range(..=address).next_back();
        before.is_some_and(|(_, region)| address < region.end)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let StackMemory { lower, upper } = self.memory;
        word(lower, self.sp, address).or_else(|| word(upper.1, upper.0, address))
    }

    fn register(&self, number: u8) -> Option<u64> {
        let number = X86_OF_DWARF.get(usize::from(number))?;
        register(self.registers, *number)
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
fn word(memory: &[u8], sp: u64, address: u64) -> Option<u64> {
    let offset = usize::try_from(address.checked_sub(sp)?).ok()?;
    Endian::Little.u64_at(memory, offset)
}
