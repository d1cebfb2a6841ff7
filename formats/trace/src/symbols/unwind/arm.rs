//! Stacks of aarch64, unwound by framehop.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use perfquet_events::event::Registers;

use super::super::elf::{Elf, Part, Section};
use super::super::files::Found;
use super::super::jit::{is_dump, pid_of as pid_of_list};
use super::{Process, Region, Searched, Unwound, register, word};

/// Maximum number of frames in a stack.
const DEPTH_MAX: usize = 1024;

/// framehop identifies the state of its cache by a 16-bit counter that every process and every added module advances:
/// before it wraps around, the cache is rebuilt.
const GENERATIONS_MAX: u32 = 60_000;

const FP: u32 = 29;
const LR: u32 = 30;
const SP: u32 = 31;
const PC: u32 = 32;

/// A process's modules, as framehop has them.
pub(super) type Modules = UnwinderAarch64<Part>;

/// The cache of unwind rules of all processes.
#[derive(Default)]
pub(super) struct Arm {
    cache: Box<CacheAarch64>,
    added: u32,
}

impl Arm {
    /// Walks a stack; also returns whether the mappings of all other processes must be reported again.
    pub(super) fn unwind(
        &mut self,
        files: &mut Searched<'_>,
        process: &mut Process,
        registers: &Registers<'_>,
        memory: &[u8],
        addresses: &mut Vec<u64>,
    ) -> (Unwound, bool) {
        let must_rebuild = self.prepare(files, process);
        let (Some(modules), Some(pc), Some(sp), Some(lr), Some(fp)) = (
            &process.modules,
            register(registers, PC),
            register(registers, SP),
            register(registers, LR),
            register(registers, FP),
        ) else {
            return (Unwound::Unsupported, must_rebuild);
        };
        let walk = || {
            let mut memory = |address| word(memory, sp, address).ok_or(());
            // User addresses of Linux have 48 bits (52 with large addresses); the rest is the pointer
            // authentication code.
            let mask = PtrAuthMask::from_max_known_address(modules.max_known_code_address());
            let registers = UnwindRegsAarch64::new_with_ptr_auth_mask(mask, lr, sp, fp);
            let frames = modules.iter_frames(pc, registers, &mut self.cache, &mut memory);
            follow(frames, &process.regions, addresses)
        };
        // Damaged unwind tables must not end an import, even if the library panics.
        let unwound = catch_unwind(AssertUnwindSafe(walk)).unwrap_or_else(|_| {
            *self.cache = CacheAarch64::default();
            Unwound::Lost
        });
        (unwound, must_rebuild)
    }

    /// Reads the unwind tables of a process's mappings.
    fn prepare(&mut self, files: &mut Searched<'_>, process: &mut Process) -> bool {
        if process.modules.is_some() {
            return false;
        }
        if let Some((regions, modules)) = process.former.take()
            && files_of(&regions).eq(files_of(&process.regions))
        {
            process.modules = Some(modules);
            return false;
        }
        let mut modules = UnwinderAarch64::new();
        self.added += 1;
        for (&start, region) in &process.regions {
            let (key, found) = files.find(region);
            let module = found.and_then(|found| module(&key.path, start, region, &found));
            if let Some(module) = module {
                self.added += 1;
                modules.add_module(module);
            }
        }
        process.modules = Some(modules);
        let must_rebuild = self.added > GENERATIONS_MAX;
        if must_rebuild {
            *self = Arm::default();
        }
        must_rebuild
    }
}

/// Returns the regions that may belong to files with unwind tables; generated code has none.
fn files_of(
    regions: &BTreeMap<u64, Region>,
) -> impl Iterator<Item = (&u64, u64, u64, &[u8], Option<&[u8]>)> {
    let of_files = regions.iter().filter(|(_, region)| {
        let is_generated = str::from_utf8(&region.path)
            .is_ok_and(|path| is_dump(path) || pid_of_list(path).is_some());
        region.path.starts_with(b"/") && !region.path.starts_with(b"//") && !is_generated
    });
    of_files.map(|(start, region)| {
        let Region {
            end,
            file_offset,
            path,
            build_id,
            ..
        } = region;
        (start, *end, *file_offset, &**path, build_id.as_deref())
    })
}

/// Collects the frames that are in code.
fn follow<U, F>(
    mut frames: framehop::UnwindIterator<'_, '_, '_, U, F>,
    regions: &BTreeMap<u64, Region>,
    addresses: &mut Vec<u64>,
) -> Unwound
where
    U: framehop::Unwinder,
    F: FnMut(u64) -> Result<u64, ()>,
{
    let is_code = |address| {
        let before = regions.range(..=address).next_back();
        before.is_some_and(|(_, region)| address < region.end)
    };
    while addresses.len() < DEPTH_MAX {
        match frames.next() {
            Ok(Some(frame)) => {
                if frame.is_return_address() && !is_code(frame.address_for_lookup()) {
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
    Unwound::TooDeep
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
