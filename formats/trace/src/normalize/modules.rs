//! Distinct mapped files: path, build ID, inode, and whether frames in them are identified by offset.
//!
//! A build ID may come with the mapping, or at the end of the input for a path (perf's header, its BUILD_ID records);
//! the two are joined when the tables are written. perf reads the latter from the file at the path when it ends. If
//! several files were mapped under one path, such a build ID belongs to none of them.

use hashbrown::HashMap;
use perfquet_events::event::{BuildId, KernelSymbol, Mapping, Space};

use super::texts::{TextId, Texts};
use crate::symbols::{self, FileIdentity, FirstMapped, Options, Roots};

/// Index of a module in its [`Modules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ModuleId(pub(crate) u32);

/// Kind of frame identity in a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Placing {
    /// By its offset in the file.
    Offset,
    /// By its absolute address: the kernel, and memory without a file (generated code).
    Address,
    /// By its absolute address; the module is one symbol, which begins here.
    Symbol {
        /// First address.
        start: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Module {
    path: TextId,
    build_id: Option<TextId>,
    file: Option<FileIdentity>,
    placing: Placing,
}

/// The files mapped under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MappedAs {
    One(FileIdentity),
    Several,
}

/// All modules of one input.
#[derive(Default)]
pub(crate) struct Modules {
    modules: Vec<Module>,
    ids: HashMap<Module, u32>,
    texts: Texts,
    first_mapped: Vec<FirstMapped>,
    /// The files mapped under each path.
    mapped_as: HashMap<TextId, MappedAs>,
    /// Build IDs recorded for a path; `None` if several.
    path_build_ids: HashMap<TextId, Option<TextId>>,
    /// Build ID of the recorded kernel.
    kernel_build_id: Option<TextId>,
    /// Build ID of this host's vDSO, if it runs the recorded kernel.
    vdso_build_id: Option<TextId>,
    /// Files that the recorder holds open.
    roots: Roots,
}

impl Modules {
    /// Sets the files that the recorder holds open.
    pub(crate) fn set_roots(&mut self, roots: &Roots) {
        self.roots = roots.clone();
    }

    /// The module of a mapping.
    pub(crate) fn of_mapping(&mut self, event: &Mapping<'_>) -> ModuleId {
        let kernel = event.pid == -1
            || matches!(
                event.space,
                Space::Kernel | Space::GuestKernel | Space::Hypervisor
            );
        let (path, placing) = if kernel {
            (kernel_module(event.path), Placing::Address)
        } else if self.is_program_in_memory(event) {
            (event.path, Placing::Offset)
        } else if is_generated(event) {
            // Generated code belongs to its process: another has other code at the same address.
            let path = symbols::generated_module(event.pid);
            let id = self.intern(path.as_bytes(), None, None, Placing::Address);
            self.mapped(id, event.time);
            return id;
        } else if has_no_file(event.path) {
            (event.path, Placing::Address)
        } else {
            (event.path, Placing::Offset)
        };
        let file = match placing {
            Placing::Offset if event.build_id.is_none() => FileIdentity::of(event),
            _ => None,
        };
        // 32-bit programs have another vDSO, whose build ID is never recorded.
        let is_vdso = path == VDSO && event.build_id.is_none() && event.start > u64::from(u32::MAX);
        let build_id = match self.vdso_build_id.filter(|_| is_vdso) {
            Some(id) => Some(id),
            None => event.build_id.map(|id| self.texts.intern(id)),
        };
        let id = self.intern(path, build_id, file, placing);
        self.mapped(id, event.time);
        id
    }

    /// Whether a file in memory (memfd) is a program, and not memory for generated code: it has a build ID, or the recorder, which
    /// looked into it, holds it.
    fn is_program_in_memory(&self, event: &Mapping<'_>) -> bool {
        let is_held = || FileIdentity::of(event).is_some_and(|file| self.roots.holds(file));
        event.path.starts_with(MEMORY_FILE) && (event.build_id.is_some() || is_held())
    }

    /// Records when a module was mapped, and as which file.
    fn mapped(&mut self, id: ModuleId, time: FirstMapped) {
        if let Some(first) = self.first_mapped.get_mut(id.0 as usize) {
            // `None`, before the recording, is the smallest.
            *first = time.min(*first);
        }
        let Some(&Module {
            path,
            file: Some(file),
            ..
        }) = self.get(id)
        else {
            return;
        };
        let known = self.mapped_as.entry(path).or_insert(MappedAs::One(file));
        if *known != MappedAs::One(file) {
            *known = MappedAs::Several;
        }
    }

    /// The module of one kernel symbol; perf too uses the symbol's name as that of the module.
    pub(crate) fn of_kernel_symbol(&mut self, event: &KernelSymbol<'_>) -> ModuleId {
        let start = event.start;
        self.intern(event.name, None, None, Placing::Symbol { start })
    }

    /// Adds a build ID for a path.
    pub(crate) fn build_id(&mut self, event: &BuildId<'_>) {
        let path = self.texts.intern(event.path);
        let build_id = self.texts.intern(event.build_id);
        let known = self.path_build_ids.entry(path).or_insert(Some(build_id));
        // For the kernel, the later build ID counts: perfquet-record's own precedes that of perf's cache.
        if event.space == Space::User && *known != Some(build_id) {
            *known = None;
        } else {
            *known = Some(build_id);
        }
        if event.space == Space::Kernel && is_kernel_image(event.path) {
            self.kernel_build_id = Some(build_id);
        }
        // Modules are mapped as "/lib/modules/…/xfs.ko" or "[xfs]", and their build IDs may use the other name.
        if let Some(name) = module_name(event.path) {
            let name = self.texts.intern(&name);
            self.path_build_ids.insert(name, Some(build_id));
        }
    }

    /// The build ID of the recorded kernel.
    pub(crate) fn kernel_build_id(&mut self, build_id: &[u8]) {
        self.kernel_build_id = Some(self.texts.intern(build_id));
    }

    /// Sets the build ID of the recorded kernel. If the names of this host may be used and it runs that kernel, its vDSO is the same.
    pub(crate) fn set_kernel(&mut self, build_id: &[u8], options: &Options) {
        self.kernel_build_id(build_id);
        if options.system
            && options.user
            && symbols::running_build_id().is_some_and(|running| running == build_id)
            && let Some(vdso) = symbols::own_vdso_build_id()
        {
            self.set_vdso(&vdso);
        }
    }

    /// Sets the vDSO: the recorded kernel is the running one, so its vDSO is the same.
    pub(crate) fn set_vdso(&mut self, build_id: &[u8]) {
        self.vdso_build_id = Some(self.texts.intern(build_id));
    }

    /// The file's identity, if it was recorded instead of a build ID.
    pub(crate) fn file_of(&self, module: ModuleId) -> Option<FileIdentity> {
        self.get(module)?.file
    }

    /// The time of the first mapping.
    pub(crate) fn first_mapped(&self, module: ModuleId) -> FirstMapped {
        let first = self.first_mapped.get(module.0 as usize);
        first.copied().flatten()
    }

    /// All modules.
    pub(crate) fn all(&self) -> impl Iterator<Item = ModuleId> + use<> {
        (0..self.modules.len() as u32).map(ModuleId)
    }

    /// Path, or a name in brackets.
    pub(crate) fn path(&self, module: ModuleId) -> &[u8] {
        self.get(module)
            .map_or(&[], |module| self.texts.get(module.path))
    }

    /// Kind of frame identity in the module.
    #[inline]
    pub(crate) fn placing(&self, module: ModuleId) -> Placing {
        self.get(module)
            .map_or(Placing::Address, |module| module.placing)
    }

    /// Build ID: the mapping's own, or the one recorded for its path so far.
    pub(crate) fn build_id_of(&mut self, module: ModuleId) -> Option<&[u8]> {
        let &module = self.get(module)?;
        let of_path = || match (module.file, self.mapped_as.get(&module.path)) {
            (Some(_), Some(MappedAs::Several)) => None,
            _ => self.path_build_ids.get(&module.path).copied().flatten(),
        };
        let id = match module.build_id.or_else(of_path) {
            Some(id) => id,
            None => {
                let path = self.texts.get(module.path);
                if module.placing == Placing::Address && path == KERNEL {
                    self.kernel_build_id?
                } else {
                    let name = module_name(path)?;
                    let name = self.texts.intern(&name);
                    (*self.path_build_ids.get(&name)?)?
                }
            }
        };
        Some(self.texts.get(id)).filter(|id| !id.is_empty())
    }

    fn intern(
        &mut self,
        path: &[u8],
        build_id: Option<TextId>,
        file: Option<FileIdentity>,
        placing: Placing,
    ) -> ModuleId {
        let module = Module {
            path: self.texts.intern(path),
            build_id,
            file,
            placing,
        };
        let next = self.modules.len() as u32;
        let id = *self.ids.entry(module).or_insert(next);
        if id == next {
            self.modules.push(module);
            self.first_mapped.push(Some(i64::MAX));
        }
        ModuleId(id)
    }

    fn get(&self, module: ModuleId) -> Option<&Module> {
        self.modules.get(module.0 as usize)
    }
}

const KERNEL: &[u8] = b"[kernel.kallsyms]";
const VDSO: &[u8] = b"[vdso]";
/// Path of a file without a file system (memfd_create(2)), as in "/memfd:name (deleted)".
const MEMORY_FILE: &[u8] = b"/memfd:";

/// In "[kernel.kallsyms]_text", perf appends the symbol by which it measures relocation: the module is the part in
/// brackets.
fn kernel_module(path: &[u8]) -> &[u8] {
    let bracket = path.iter().position(|&byte| byte == b']');
    match bracket {
        Some(bracket) if path.starts_with(b"[") && is_kernel_image(path) => {
            path.get(..=bracket).unwrap_or(path)
        }
        _ => path,
    }
}

fn is_kernel_image(path: &[u8]) -> bool {
    path.starts_with(KERNEL)
        || path.starts_with(b"[guest.kernel.kallsyms")
        || path == b"[kernel.vmlinux]"
}

/// Memory in which an offset means nothing outside its process (tools/perf/util/map.h, `is_anon_memory`,
/// `is_no_dso_memory`).
fn has_no_file(path: &[u8]) -> bool {
    const PREFIXES: &[&[u8]] = &[
        b"//anon",
        b"/dev/zero",
        b"/anon_hugepage",
        b"[anon",
        b"[stack",
        b"[heap]",
        b"[vsyscall]",
        b"/SYSV",
        b"//toolong",
        b"/memfd:",
        b"/dev/ashmem/dalvik",
    ];
    path.is_empty() || PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

/// Whether it is memory without a file that contains code, and not the kernel's own.
fn is_generated(event: &Mapping<'_>) -> bool {
    const PREFIXES: &[&[u8]] = &[
        b"//anon",
        b"/dev/zero",
        b"/anon_hugepage",
        b"[anon",
        b"[heap]",
        b"/memfd:",
    ];
    let has_code = event.protection.is_some_and(|bits| bits & 4 != 0);
    has_code && event.pid > 0 && PREFIXES.iter().any(|prefix| event.path.starts_with(prefix))
}

/// "[xfs]" for "/lib/modules/6.1/kernel/fs/xfs/xfs.ko.xz", if the path is that of a kernel module.
fn module_name(path: &[u8]) -> Option<Vec<u8>> {
    let file = path.rsplit(|&byte| byte == b'/').next()?;
    let end = file.windows(3).position(|part| part == b".ko")?;
    let rest = file.get(end + 3..)?;
    if !(rest.is_empty() || rest.starts_with(b".")) {
        return None;
    }
    let mut name = vec![b'['];
    name.extend(
        file.get(..end)?
            .iter()
            .map(|&byte| if byte == b'-' { b'_' } else { byte }),
    );
    name.push(b']');
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping<'a>(pid: i32, path: &'a [u8], build_id: Option<&'a [u8]>) -> Mapping<'a> {
        Mapping {
            time: None,
            pid,
            tid: pid,
            space: if pid == -1 {
                Space::Kernel
            } else {
                Space::User
            },
            start: 0x1000,
            length: 0x1000,
            file_offset: 0,
            path,
            build_id,
            device: None,
            inode: None,
            protection: None,
            flags: None,
        }
    }

    fn recorded<'a>(space: Space, path: &'a [u8], build_id: &'a [u8]) -> BuildId<'a> {
        BuildId {
            pid: -1,
            space,
            path,
            build_id,
        }
    }

    #[test]
    fn build_ids_join_by_path_even_later() {
        let mut modules = Modules::default();
        let early = modules.of_mapping(&mapping(1, b"/bin/sh", None));
        let own = modules.of_mapping(&mapping(1, b"/bin/ls", Some(b"own")));
        assert_eq!(modules.build_id_of(early), None);
        modules.build_id(&recorded(Space::User, b"/bin/sh", b"recorded"));
        modules.build_id(&recorded(Space::User, b"/bin/ls", b"other"));
        assert_eq!(modules.build_id_of(early), Some(&b"recorded"[..]));
        assert_eq!(modules.build_id_of(own), Some(&b"own"[..]));
    }

    #[test]
    fn kernel_modules_have_two_names() {
        let mut modules = Modules::default();
        let long = modules.of_mapping(&mapping(-1, b"/lib/modules/6.1/nf-nat.ko.xz", None));
        let short = modules.of_mapping(&mapping(-1, b"[xfs]", None));
        modules.build_id(&recorded(Space::Kernel, b"[nf_nat]", b"one"));
        modules.build_id(&recorded(Space::Kernel, b"/lib/modules/6.1/xfs.ko", b"two"));
        assert_eq!(modules.build_id_of(long), Some(&b"one"[..]));
        assert_eq!(modules.build_id_of(short), Some(&b"two"[..]));
    }

    #[test]
    fn the_kernel_is_named_without_its_reference_symbol() {
        let mut modules = Modules::default();
        let kernel = modules.of_mapping(&mapping(-1, b"[kernel.kallsyms]_text", None));
        assert_eq!(modules.path(kernel), b"[kernel.kallsyms]");
        assert_eq!(modules.placing(kernel), Placing::Address);
        modules.kernel_build_id(b"id");
        assert_eq!(modules.build_id_of(kernel), Some(&b"id"[..]));
    }

    #[test]
    fn generated_code_keeps_its_address() {
        let mut modules = Modules::default();
        for (path, placing) in [
            (&b"//anon"[..], Placing::Address),
            (b"[anon:libc_malloc]", Placing::Address),
            (b"[stack]", Placing::Address),
            (b"[vdso]", Placing::Offset),
            (b"/usr/lib/libc.so.6", Placing::Offset),
        ] {
            let module = modules.of_mapping(&mapping(1, path, None));
            assert_eq!(modules.placing(module), placing);
        }
    }

    #[test]
    fn a_path_of_several_files_has_no_build_id() {
        let mut modules = Modules::default();
        let of_inode = |inode| Mapping {
            device: Some((8, 1)),
            inode: Some(inode),
            ..mapping(1, b"/bin/sh", None)
        };
        let first = modules.of_mapping(&of_inode(10));
        modules.build_id(&recorded(Space::User, b"/bin/sh", b"recorded"));
        assert_eq!(modules.build_id_of(first), Some(&b"recorded"[..]));
        assert_eq!(modules.of_mapping(&of_inode(10)), first);
        let second = modules.of_mapping(&of_inode(11));
        assert_ne!(first, second);
        assert_eq!(modules.build_id_of(first), None);
        assert_eq!(modules.build_id_of(second), None);
        // Nor if two were recorded for it.
        let other = modules.of_mapping(&mapping(1, b"/bin/ls", None));
        modules.build_id(&recorded(Space::User, b"/bin/ls", b"one"));
        modules.build_id(&recorded(Space::User, b"/bin/ls", b"one"));
        assert_eq!(modules.build_id_of(other), Some(&b"one"[..]));
        modules.build_id(&recorded(Space::User, b"/bin/ls", b"two"));
        assert_eq!(modules.build_id_of(other), None);
    }

    #[test]
    fn vdso_has_the_kernels_build_id() {
        let mut modules = Modules::default();
        modules.set_vdso(b"vdso");
        let at = |start| Mapping {
            start,
            ..mapping(1, b"[vdso]", None)
        };
        let wide = modules.of_mapping(&at(0x7fff_0000_0000));
        let narrow = modules.of_mapping(&at(0xf7f0_0000));
        assert_eq!(modules.build_id_of(wide), Some(&b"vdso"[..]));
        assert_eq!(modules.build_id_of(narrow), None);
    }

    #[test]
    fn the_first_mapping_decides() {
        let mut modules = Modules::default();
        let at = |time| Mapping {
            time,
            ..mapping(1, b"/bin/sh", None)
        };
        let module = modules.of_mapping(&at(Some(7)));
        modules.of_mapping(&at(Some(9)));
        assert_eq!(modules.first_mapped(module), Some(7));
        modules.of_mapping(&at(None));
        assert_eq!(modules.first_mapped(module), None);
    }
}
