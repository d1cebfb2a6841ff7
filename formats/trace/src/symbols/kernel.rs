//! Kernel symbols: finds the list that belongs to the recorded kernel, and its offset.
//!
//! ```text
//! recorded: [kernel.kallsyms]_text at ffffffff93000000, build ID 5be1…, release 6.12.117
//! System.map: ffffffff81000000 T _text                           → every address is 0x12000000 higher
//! ```
//! Without a given list, this host's `/proc/kallsyms` is used if its kernel is the recorded one: same build ID or, if
//! unknown, same release and same address of `_text`. A wrong list gives plausible but wrong names; in doubt no list is
//! used, and the report states the reason. A list has no build ID: names from a given list are unverified, and any
//! other list is used only if the recorded kernel has no build ID either.

use std::path::{Path, PathBuf};

use perfquet_events::Error;
use perfquet_events::bytes::Endian;

use super::build_id::{self, hex};
use super::debuginfod;
use super::elf::{self, Elf};
use super::kallsyms::{self, Kallsyms};
use super::table::Table;
use super::{KernelFacts, KernelSource, Options};

const KALLSYMS: &str = "/proc/kallsyms";
/// Larger than the code of any kernel.
const IMAGE_MAX_BYTES: u64 = 64 << 20;

/// The state of the kernel's symbols.
pub(super) enum Kernel {
    /// Not searched yet.
    Unasked,
    Known(Known),
    /// The reason for not having any.
    Unknown(String),
}

/// A list of symbols.
pub(super) struct Known {
    table: Table,
    /// Offset from an address of the list to one of the trace.
    shift: u64,
    /// Where it was found.
    source: String,
    /// The reason for not naming modules.
    without_modules: Option<&'static str>,
    /// Whether it is proven to be the recorded kernel's.
    is_verified: bool,
}

/// The name found for an address.
pub(super) struct KernelName<'k> {
    pub(super) name: &'k [u8],
    /// Start of the function, as recorded.
    pub(super) start: u64,
}

impl Known {
    /// The function at an address of the trace.
    pub(super) fn at(&self, address: u64) -> Option<KernelName<'_>> {
        let symbol = self.table.at(address.wrapping_sub(self.shift))?;
        Some(KernelName {
            name: self.table.name(symbol),
            start: symbol.start.wrapping_add(self.shift),
        })
    }

    /// Start and end of the function at an address of the trace.
    pub(super) fn range_at(&self, address: u64) -> Option<(u64, u64)> {
        let symbol = self.table.at(address.wrapping_sub(self.shift))?;
        let moved = |address: u64| address.wrapping_add(self.shift);
        Some((moved(symbol.start), moved(symbol.end)))
    }

    /// The source of the names, as a sentence for the report.
    pub(super) fn about(&self) -> String {
        let shift = match self.shift {
            0 => String::new(),
            shift => format!(", shifted by {shift:#x}"),
        };
        format!("{}: {} symbols{shift}", self.source, self.table.len())
    }

    /// Whether it is proven to be the recorded kernel's.
    pub(super) fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// The reason for having no names of modules, if so.
    pub(super) fn without_modules(&self) -> Option<&'static str> {
        self.without_modules
    }
}

/// Reads the given list. An unreadable list is an error, since the user requested it.
pub(super) fn given(options: &Options, facts: &KernelFacts) -> Result<Kernel, Error> {
    let (path, known) = match &options.kernel {
        KernelSource::Auto => return Ok(Kernel::Unasked),
        KernelSource::None => return Ok(Kernel::Unknown("not requested".into())),
        KernelSource::Kallsyms(path) | KernelSource::SystemMap(path) => {
            let is_verified = path == Path::new(KALLSYMS) && Running::here().is(facts);
            (path, from_list(path, facts, is_verified))
        }
        KernelSource::Vmlinux(path) => (path, from_vmlinux(path, facts, true)),
    };
    match known {
        Ok(known) => Ok(Kernel::Known(known)),
        Err(message) => Err(Error::Symbols {
            path: path.clone(),
            message,
        }),
    }
}

/// Searches the recorded kernel's symbols: in the given directories, in this host's kernel, in the usual places.
pub(super) fn find(options: &Options, facts: &KernelFacts) -> Kernel {
    let mut reason = None;
    for path in in_directories(options, facts) {
        match from_any(&path, facts) {
            Some(Ok(known)) => return Kernel::Known(known),
            Some(Err(message)) => reason = Some(format!("{}: {message}", path.display())),
            None => {}
        }
    }
    if !options.system {
        return Kernel::Unknown(reason.unwrap_or_else(|| "no symbols given".into()));
    }
    let running = Running::here();
    match running.symbols(facts) {
        Ok(known) => return Kernel::Known(known),
        Err(message) => reason = reason.or(Some(message)),
    }
    for path in usual_places(facts) {
        match from_any(&path, facts) {
            // Kernels of one release are rebuilt for every update: the list of another build looks plausible.
            Some(Ok(known)) if known.is_verified || facts.build_id.is_none() => {
                return Kernel::Known(known);
            }
            _ => {}
        }
    }
    Kernel::Unknown(reason.unwrap_or_else(|| "no symbols found".into()))
}

fn in_directories(options: &Options, facts: &KernelFacts) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let release = facts.os_release.as_deref().filter(|r| is_plain(r));
    for directory in &options.directories {
        if let Some((first, rest)) = facts
            .build_id
            .as_deref()
            .and_then(build_id::directory_and_file)
        {
            let place = directory.join(".build-id").join(first);
            paths.push(place.join(&rest).join("kallsyms"));
            paths.push(place.join(&rest).join("vmlinux"));
            paths.push(place.join(format!("{rest}.debug")));
            paths.push(place.join(rest));
        }
        for name in ["kallsyms", "vmlinux", "System.map"] {
            paths.extend(release.map(|release| directory.join(format!("{name}-{release}"))));
            paths.push(directory.join(name));
        }
    }
    paths
}

fn usual_places(facts: &KernelFacts) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if let (Some(home), Some((first, rest))) = (
        std::env::var_os("HOME"),
        facts
            .build_id
            .as_deref()
            .and_then(build_id::directory_and_file),
    ) {
        let place = Path::new(&home)
            .join(".debug/.build-id")
            .join(first)
            .join(rest);
        paths.extend(["kallsyms", "vmlinux", "elf"].map(|name| place.join(name)));
    }
    if let Some(release) = facts.os_release.as_deref().filter(|r| is_plain(r)) {
        paths.push(format!("/usr/lib/debug/boot/vmlinux-{release}").into());
        paths.push(format!("/usr/lib/debug/lib/modules/{release}/vmlinux").into());
        paths.push(format!("/boot/System.map-{release}").into());
    }
    paths
}

/// Paths where a kernel with its debug info may be installed.
pub fn kernel_debug_files(release: &str, build_id: Option<&[u8]>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if is_plain(release) {
        paths.push(format!("/usr/lib/debug/boot/vmlinux-{release}").into());
        paths.push(format!("/usr/lib/debug/lib/modules/{release}/vmlinux").into());
        paths.push(format!("/lib/modules/{release}/build/vmlinux").into());
        paths.push(format!("/boot/vmlinux-{release}").into());
    }
    if let Some((first, rest)) = build_id.and_then(build_id::directory_and_file) {
        let place = Path::new("/usr/lib/debug/.build-id").join(first);
        paths.push(place.join(format!("{rest}.debug")));
    }
    paths.extend(build_id.and_then(|id| debuginfod::cached(id, debuginfod::Kind::DebugInfo)));
    paths
}

/// Whether a release, which comes from the trace, is safe as part of a path.
fn is_plain(release: &str) -> bool {
    !release.is_empty() && !release.contains('/') && release.len() < 128
}

/// Reads a file of any kind; `None` if there is none at that path.
fn from_any(path: &Path, facts: &KernelFacts) -> Option<Result<Known, String>> {
    if !path.is_file() {
        return None;
    }
    Some(match Elf::open(path) {
        Ok(_) => from_vmlinux(path, facts, false),
        // Its directory is named after the build ID.
        Err(_) => from_list(path, facts, is_below_build_id(path)),
    })
}

fn is_below_build_id(path: &Path) -> bool {
    path.components()
        .any(|component| component.as_os_str() == ".build-id")
}

fn from_list(path: &Path, facts: &KernelFacts, is_verified: bool) -> Result<Known, String> {
    let read = |with_modules| kallsyms::read(path, with_modules).map_err(|e| e.to_string());
    let kallsyms = check_list(read(true)?)?;
    let shift = shift_of(&kallsyms.table, facts)?;
    // From another boot: module addresses differ.
    let (table, without_modules) = match shift {
        0 => (kallsyms.table, None),
        _ => (
            read(false)?.table,
            Some("the list is of another boot, which had them elsewhere"),
        ),
    };
    Ok(Known {
        table,
        shift,
        source: path.display().to_string(),
        without_modules,
        is_verified,
    })
}

fn check_list(kallsyms: Kallsyms) -> Result<Kallsyms, String> {
    if kallsyms.hidden {
        return Err(
            "all addresses are 0, hidden from this user (sysctl kernel.kptr_restrict)".into(),
        );
    }
    // Debian's System.map is a single line that names the package with the real one.
    if kallsyms.table.len() < 2 {
        return Err(format!(
            "expected lines like \"ffffffff81000000 T _text\", found {} of them and {} others",
            kallsyms.table.len(),
            kallsyms.bad_lines
        ));
    }
    Ok(kallsyms)
}

fn from_vmlinux(path: &Path, facts: &KernelFacts, given: bool) -> Result<Known, String> {
    let vmlinux = Elf::open(path).map_err(|bad| bad.to_string())?;
    let is_verified = match (facts.build_id.as_deref(), vmlinux.build_id()) {
        (Some(wanted), Some(found)) if build_id::equal(wanted, found) => true,
        (Some(wanted), found) => {
            let found = found.map_or("none".to_owned(), hex);
            let wanted = hex(wanted);
            return Err(format!(
                "its build id is {found}, that of the recorded kernel {wanted}"
            ));
        }
        (None, _) => false,
    };
    let table = vmlinux
        .functions()
        .map_or_else(Table::empty, Table::of_functions);
    if table.is_empty() || vmlinux.is_relocatable() {
        let hint = if given {
            ", give one with its symbol table"
        } else {
            ""
        };
        return Err(format!("no kernel with symbols{hint}"));
    }
    let shift = shift_of(&table, facts)?;
    Ok(Known {
        table,
        shift,
        source: path.display().to_string(),
        without_modules: Some("a vmlinux has none"),
        is_verified,
    })
}

/// Offset of the kernel relative to the list: address space randomization.
fn shift_of(table: &Table, facts: &KernelFacts) -> Result<u64, String> {
    let Some((name, recorded)) = &facts.reference else {
        return Ok(0);
    };
    if let Some(listed) = table.address_of(name.as_bytes()) {
        return Ok(recorded.wrapping_sub(listed));
    }
    // A partial list of the same boot may lack it.
    let first = table.next_at(*recorded);
    if first.is_some_and(|symbol| symbol.start - recorded < IMAGE_MAX_BYTES) {
        return Ok(0);
    }
    Err(format!(
        "it has no symbol {name}, which the recording uses to state the kernel's address"
    ))
}

/// Build ID of the running kernel.
pub(crate) fn running_build_id() -> Option<Vec<u8>> {
    Running::here().build_id
}

/// The running kernel.
struct Running {
    build_id: Option<Vec<u8>>,
    os_release: Option<String>,
}

impl Running {
    fn here() -> Running {
        let order = if cfg!(target_endian = "big") {
            Endian::Big
        } else {
            Endian::Little
        };
        let notes = std::fs::read("/sys/kernel/notes").ok();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Running {
            build_id: notes
                .and_then(|notes| elf::build_id_in_notes(&notes, order).map(<[u8]>::to_vec)),
            os_release: release.map(|release| release.trim_end().to_owned()),
        }
    }

    /// Whether it is certainly the recorded kernel.
    fn is(&self, facts: &KernelFacts) -> bool {
        match (&self.build_id, &facts.build_id) {
            (Some(here), Some(recorded)) => build_id::equal(here, recorded),
            _ => false,
        }
    }

    /// The symbols if it is the recorded kernel, or the reason why not.
    fn symbols(&self, facts: &KernelFacts) -> Result<Known, String> {
        let proven = self.is(facts);
        if let (false, Some(here), Some(recorded)) = (proven, &self.build_id, &facts.build_id) {
            return Err(self.other_kernel(facts, &hex(here), &hex(recorded)));
        }
        if !proven && (facts.os_release.is_none() || self.os_release != facts.os_release) {
            return Err(self.other_kernel(facts, "unknown", "unknown"));
        }
        let mut known = from_list(Path::new(KALLSYMS), facts, proven)
            .map_err(|message| format!("{KALLSYMS}: {message}"))?;
        let is_same_boot = known.shift == 0 && facts.reference.is_some();
        if !proven && !is_same_boot {
            return Err(format!(
                "this machine runs the same release {}, but not provably the same kernel",
                self.os_release.as_deref().unwrap_or_default()
            ));
        }
        known.source = format!("{KALLSYMS} of this machine");
        Ok(known)
    }

    fn other_kernel(&self, facts: &KernelFacts, here: &str, recorded: &str) -> String {
        let or_unknown = |release: &Option<String>| release.clone().unwrap_or("unknown".into());
        format!(
            "recorded on kernel {} (build id {recorded}), this machine runs {} (build id {here})",
            or_unknown(&facts.os_release),
            or_unknown(&self.os_release),
        )
    }
}
