//! Names as printed by perf for the corpus, and files built for the tests.

mod identity;
mod lines;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfquet_events::event::{Mapping, Registers};

use super::elf::{Content, Elf};
use super::*;

/// The recordings of this project, and downloaded ones if available.
fn corpora() -> Vec<PathBuf> {
    let clone = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let foreign = std::env::var_os("PERFQUET_CORPUS").map(PathBuf::from);
    let foreign = foreign.unwrap_or_else(|| clone.join("../shared/corpus"));
    let foreign = foreign.is_dir().then_some(foreign);
    [clone.join("tests/corpus")]
        .into_iter()
        .chain(foreign)
        .collect()
}

/// A frame of perf script: address, function with offset, module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Printed {
    address: u64,
    name: Option<String>,
    module: String,
}

/// `   11a7 work_inner+0x21 (/w/workload)`, alone or at the end of a line with a sample's fields.
fn printed(line: &str) -> Option<Printed> {
    let (frame, module) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let frame = frame.rsplit_once(": ").map_or(frame, |(_, frame)| frame);
    let (address, name) = frame.trim_start().split_once(' ')?;
    Some(Printed {
        address: u64::from_str_radix(address, 16).ok()?,
        name: (name != "[unknown]").then(|| name.to_owned()),
        module: module.to_owned(),
    })
}

/// The distinct frames of all perf script outputs in a directory.
fn all_printed(folder: &Path) -> BTreeSet<Printed> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "script")
        {
            let text = fs::read_to_string(&path).unwrap();
            all.extend(text.lines().filter_map(printed));
        }
    }
    all
}

fn as_printed(names: &[Name]) -> Option<String> {
    let name = names.first()?;
    Some(format!(
        "{}+{:#x}",
        name.function,
        name.function_offset.unwrap()
    ))
}

fn request(frame: &Printed) -> Request<'_> {
    let kernel = frame.module.starts_with('[');
    Request {
        module: Some(&frame.module),
        offset: (!kernel).then_some(frame.address),
        address: kernel.then_some(frame.address),
        space: if kernel { Space::Kernel } else { Space::User },
        ..Request::default()
    }
}

/// perf prints stacks with file offsets, single addresses as recorded: they are known only for a program that is always
/// mapped at 0x400000.
fn in_file(frame: Printed) -> Option<Printed> {
    let address = match frame.address {
        small if small < 0x40_0000 => small,
        absolute if frame.module.ends_with("/workload") => absolute - 0x40_0000,
        _ => return None,
    };
    Some(Printed { address, ..frame })
}

#[test]
fn kernel_names_are_those_of_perf() {
    for corpus in corpora() {
        kernel_names_of(&corpus.join("perf-data/6.12"));
    }
}

fn kernel_names_of(folder: &Path) {
    let options = Options {
        kernel: KernelSource::Kallsyms(folder.join("kallsyms.part")),
        ..Options::default()
    };
    let mut symbolizer = new_symbolizer(options, KernelFacts::default());
    let frames: Vec<_> = all_printed(folder)
        .into_iter()
        .filter(|frame| frame.module == KERNEL && frame.name.is_some())
        .collect();
    let requests: Vec<_> = frames.iter().map(request).collect();
    let names = symbolizer.names(&requests);
    let mut wrong = Vec::new();
    for (frame, names) in frames.iter().zip(&names) {
        if as_printed(names) != frame.name {
            wrong.push((frame, as_printed(names)));
        }
    }
    println!(
        "{} of {} kernel frames as perf",
        frames.len() - wrong.len(),
        frames.len()
    );
    assert!(frames.len() > 100, "{}", frames.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn user_names_are_those_of_perf() {
    for corpus in corpora() {
        user_names_of(&corpus);
    }
}

fn user_names_of(corpus: &Path) {
    let options = Options {
        directories: vec![corpus.join("perf-data/programs")],
        system: false,
        ..Options::default()
    };
    let mut symbolizer = new_symbolizer(options, KernelFacts::default());
    let frames: Vec<_> = ["6.12", "host", "host-6.18"]
        .iter()
        .flat_map(|folder| all_printed(&corpus.join("perf-data").join(folder)))
        .filter(|frame| frame.module.contains("/workload"))
        .filter_map(in_file)
        .collect();
    let requests: Vec<_> = frames.iter().map(request).collect();
    let names = symbolizer.names(&requests);
    let mut wrong = Vec::new();
    for (frame, names) in frames.iter().zip(&names) {
        if as_printed(names) != frame.name {
            wrong.push((frame, as_printed(names)));
        }
    }
    println!(
        "{} of {} user frames as perf",
        frames.len() - wrong.len(),
        frames.len()
    );
    assert!(frames.len() > 20, "{}", frames.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A C program with `outer`, which calls `ends`, which ends in a call that never returns, and into which `inlined`
/// is inlined.
const PROGRAM: &str = "#include <stdlib.h>
volatile int sink;
static inline __attribute__((always_inline)) void inlined(int n) { sink += n; sink *= n; }
__attribute__((noinline, noreturn)) void ends(int n) { sink = n; exit(n); }
__attribute__((noinline)) void outer(int n) {
    inlined(n);
    if (sink < 1000) ends(n);
    sink++;
}
__attribute__((weak, alias(\"outer\"))) void __weak_name(int n);
int main(int argc, char **argv) { outer(argc); return 0; }
";

/// A temporary directory with the program in it, if there is a compiler.
struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn new(arguments: &[&str]) -> Option<Built> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("program.c"), PROGRAM).unwrap();
        let built = Built { folder };
        let mut all = vec!["-O1", "-g", "-Wl,--build-id", "-o", "program", "program.c"];
        all.extend(arguments);
        built.run("cc", &all).then_some(built)
    }

    /// Runs a tool in the directory; reports if it is missing.
    fn run(&self, tool: &str, arguments: &[&str]) -> bool {
        if !crate::needs::met(&[tool]) {
            return false;
        }
        let status = Command::new(tool)
            .args(arguments)
            .current_dir(self.folder.path())
            .status();
        assert!(status.unwrap().success(), "{tool} {arguments:?}");
        true
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    /// File offset and length of a function in the program.
    fn function(&self, name: &str) -> (u64, u64) {
        let elf = Elf::open(&self.program()).unwrap();
        let functions = elf.functions().unwrap();
        let found = functions.list.iter().find(|function| {
            perfquet_events::bytes::before_nul(&functions.names[function.name as usize..])
                == name.as_bytes()
        });
        let found = found.unwrap();
        let text = elf.section(b".text").unwrap();
        let bias = elf.address_minus_offset(text.address & 0xffff).unwrap();
        (found.address - bias, found.bytes)
    }

    fn names(&self, options: Options, offset: u64, return_address: bool) -> Vec<Name> {
        let path = self.program();
        let mut symbolizer = new_symbolizer(options, KernelFacts::default());
        let request = user_request(path.to_str().unwrap(), offset, return_address);
        symbolizer.names(&[request]).remove(0)
    }
}

fn user_request(module: &str, offset: u64, return_address: bool) -> Request<'_> {
    Request {
        module: Some(module),
        offset: Some(offset),
        space: Space::User,
        return_address,
        ..Request::default()
    }
}

/// The origin of a recording that began now, at time 0.
fn now() -> Origin {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    Origin {
        wall_offset: Some(now.as_nanos() as i64),
        began: Some(0),
        ..Origin::default()
    }
}

fn new_symbolizer(options: Options, facts: KernelFacts) -> Symbolizer {
    Symbolizer::new(options, facts, now()).unwrap()
}

fn check_program(arguments: &[&str]) {
    let Some(built) = Built::new(arguments) else {
        return;
    };
    let (outer, _) = built.function("outer");
    let names = built.names(Options::default(), outer + 2, false);
    assert_eq!(
        as_printed(&names).as_deref(),
        Some("outer+0x2"),
        "strong before weak"
    );

    let (ends, length) = built.function("ends");
    let names = built.names(Options::default(), ends + length, true);
    let expected = format!("ends+{length:#x}");
    assert_eq!(as_printed(&names), Some(expected), "after its last call");
    assert_eq!(built.names(Options::default(), 1 << 40, false), []);
}

#[test]
fn names_of_a_program() {
    check_program(&[]);
    check_program(&["-no-pie"]);
    check_program(&["-static"]);
}

/// A server has the program and its debug info; the host has the stripped program, or nothing.
#[test]
fn names_from_a_debuginfod_server() {
    let Some(built) = Built::new(&[]) else { return };
    if !crate::needs::met(&["curl"]) {
        return;
    }
    let (outer, _) = built.function("outer");
    let id = Elf::open(&built.program()).unwrap();
    let id = id.build_id().unwrap().to_vec();
    let place = built
        .folder
        .path()
        .join("server/buildid")
        .join(build_id::hex(&id));
    fs::create_dir_all(&place).unwrap();
    let (executable, debug_info) = (place.join("executable"), place.join("debuginfo"));
    let split = built.run(
        "objcopy",
        &["--only-keep-debug", "program", debug_info.to_str().unwrap()],
    ) && built.run("strip", &["-o", executable.to_str().unwrap(), "program"])
        && built.run("strip", &["program"]);
    if !split {
        return;
    }
    let url = format!("file://{}", built.folder.path().join("server").display());
    let options = |cache: &str| Options {
        debuginfod: Debuginfod::new(&url, built.folder.path().join(cache)),
        lines: Some(LineReader::InProcess),
        ..Options::default()
    };
    let check = |options: Options| {
        let names = built.names(options, outer, false);
        assert_eq!(as_printed(&names).as_deref(), Some("outer+0x0"));
        assert!(names[0].file.as_deref().unwrap().ends_with("program.c"));
    };
    assert_eq!(
        built.names(Options::default(), outer, false),
        [],
        "not asked"
    );
    let of_stripped = options("one");
    check(of_stripped.clone());
    assert_eq!(of_stripped.debuginfod.unwrap().counts().fetched, 1);

    // The program is gone, and only its build ID tells which it was.
    fs::remove_file(built.program()).unwrap();
    let of_nothing = options("two");
    let path = built.program();
    let request = Request {
        build_id: Some(&id),
        ..user_request(path.to_str().unwrap(), outer, false)
    };
    let mut symbolizer = new_symbolizer(of_nothing, KernelFacts::default());
    let names = symbolizer.names(&[request]).remove(0);
    assert_eq!(as_printed(&names).as_deref(), Some("outer+0x0"));
    let counts = symbolizer.report().debuginfod.clone().unwrap();
    assert_eq!((counts.fetched, counts.absent, counts.not_asked), (2, 0, 0));
}

#[test]
fn a_stripped_program_and_its_debug_info() {
    let Some(built) = Built::new(&[]) else { return };
    let (outer, _) = built.function("outer");
    let split = built.run(
        "objcopy",
        &["--only-keep-debug", "program", "program.debug"],
    ) && built.run("strip", &["program"]);
    if !split {
        return;
    }
    assert_eq!(
        built.names(Options::default(), outer, false),
        [],
        "stripped"
    );
    // By its build ID, in a given directory, under any name.
    let directory = built.folder.path().join("symbols");
    fs::create_dir(&directory).unwrap();
    fs::rename(
        built.folder.path().join("program.debug"),
        directory.join("x"),
    )
    .unwrap();
    let options = Options {
        directories: vec![directory.clone()],
        lines: Some(LineReader::InProcess),
        ..Options::default()
    };
    let names = built.names(options, outer, false);
    assert_eq!(as_printed(&names).as_deref(), Some("outer+0x0"));
    assert!(names[0].file.as_deref().unwrap().ends_with("program.c"));
    // By its debug link, in the same directory.
    fs::rename(
        directory.join("x"),
        built.folder.path().join("program.debug"),
    )
    .unwrap();
    built.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    let names = built.names(Options::default(), outer, false);
    assert_eq!(as_printed(&names).as_deref(), Some("outer+0x0"));
}

#[test]
fn another_build_is_not_used() {
    let Some(built) = Built::new(&[]) else { return };
    let (outer, _) = built.function("outer");
    let path = built.program();
    let id = Elf::open(&path).unwrap().build_id().unwrap().to_vec();
    let mut symbolizer = new_symbolizer(Options::default(), KernelFacts::default());
    let request = user_request(path.to_str().unwrap(), outer, false);
    let names = symbolizer.names(&[
        Request {
            build_id: Some(&id),
            ..request
        },
        Request {
            build_id: Some(&[7; 20]),
            ..request
        },
    ]);
    assert_eq!(as_printed(&names[0]).as_deref(), Some("outer+0x0"));
    assert!(names[1].is_empty());
    let report = symbolizer.report();
    assert_eq!((report.frames, report.named), (2, 1));
    let unnamed = report.unnamed();
    assert_eq!(unnamed.len(), 1);
    assert!(
        unnamed[0].reason.contains("its build id differs"),
        "{}",
        unnamed[0]
    );
}

#[test]
fn only_regular_files_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let paths = [&pipe, &empty].map(|path| path.to_str().unwrap().to_owned());
    let mut symbolizer = new_symbolizer(Options::default(), KernelFacts::default());
    for module in [
        &paths[0],
        &paths[1],
        "/dev/zero",
        "/dev/tty",
        "//anon",
        "[stack]",
        "",
        "/",
        "/\0",
    ] {
        assert_eq!(
            symbolizer.names(&[user_request(module, 0x1000, false)]),
            [[]],
            "{module}"
        );
    }
}

#[test]
fn damaged_files_do_no_harm() {
    let Some(built) = Built::new(&[]) else { return };
    let whole = fs::read(built.program()).unwrap();
    let read_all = |bytes: Vec<u8>| {
        let Ok(elf) = Elf::parse(Content::Owned(bytes)) else {
            return;
        };
        elf.build_id();
        elf.debug_link();
        elf.address_of_offset(0x1000);
        elf.contents(b".debug_info");
        let table = elf
            .functions()
            .map_or_else(table::Table::empty, table::Table::of_functions);
        table.at(0x1010);
        plt::names(&elf, &table);
    };
    for length in (0..whole.len()).step_by(211).chain(0..200) {
        read_all(whole[..length].to_vec());
    }
    // Headers at the start and the end, changed one byte at a time, and many bytes everywhere.
    let headers = (0..1200).chain(whole.len() - 3000..whole.len());
    for at in headers.step_by(7) {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            read_all(bytes);
        }
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..100 {
        let mut bytes = whole.clone();
        for _ in 0..50 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 20) as u8;
        }
        read_all(bytes);
    }
}

fn kernel_request(address: u64, module: &str) -> Request<'_> {
    Request {
        module: Some(module),
        address: Some(address),
        space: Space::Kernel,
        ..Request::default()
    }
}

const SYSTEM_MAP: &str = "ffffffff81000000 T _text\nffffffff81000100 T vfs_read\nffffffff81000200 T vfs_write\n\
                          ffffffffc0000000 t ext4_write\t[ext4]\n";

fn facts(reference: u64) -> KernelFacts {
    KernelFacts {
        os_release: Some("0.0.0-foreign".into()),
        build_id: None,
        reference: Some(("_text".into(), reference)),
    }
}

#[test]
fn kernel_at_another_address() {
    let folder = tempfile::tempdir().unwrap();
    let map = folder.path().join("System.map");
    fs::write(&map, SYSTEM_MAP).unwrap();
    let mut options = Options::default();
    options.add(&map).unwrap();
    assert_eq!(options.kernel, KernelSource::Kallsyms(map));
    let mut symbolizer = new_symbolizer(options.clone(), facts(0xffff_ffff_9300_0000));
    let names = symbolizer.names(&[
        kernel_request(0xffff_ffff_9300_0123, KERNEL),
        kernel_request(0xffff_ffff_c000_0010, "[ext4]"),
    ]);
    assert_eq!(as_printed(&names[0]).as_deref(), Some("vfs_read+0x23"));
    assert!(
        names[1].is_empty(),
        "the addresses of modules differ too, and are unknown"
    );
    assert!(
        symbolizer.report().unnamed()[0]
            .reason
            .contains("another boot")
    );

    let mut symbolizer = new_symbolizer(options, facts(0xffff_ffff_8100_0000));
    let names = symbolizer.names(&[kernel_request(0xffff_ffff_c000_0010, "[ext4]")]);
    assert_eq!(
        as_printed(&names[0]).as_deref(),
        Some("ext4_write+0x10"),
        "same boot"
    );
}

#[test]
fn a_kernel_as_elf() {
    let Some(built) = Built::new(&["-no-pie"]) else {
        return;
    };
    let (outer, _) = built.function("outer");
    let mut options = Options::default();
    options.add(&built.program()).unwrap();
    assert_eq!(options.kernel, KernelSource::Vmlinux(built.program()));
    let shift = 0x1200_0000;
    let facts = KernelFacts {
        reference: Some(("outer".into(), 0x40_0000 + outer + shift)),
        ..KernelFacts::default()
    };
    let mut symbolizer = new_symbolizer(options, facts);
    let (ends, _) = built.function("ends");
    let names = symbolizer.names(&[kernel_request(0x40_0000 + ends + shift + 1, KERNEL)]);
    assert_eq!(as_printed(&names[0]).as_deref(), Some("ends+0x1"));
}

#[test]
fn kernel_of_another_host_has_no_names() {
    let options = Options::default();
    let mut symbolizer = new_symbolizer(options, facts(0xffff_ffff_8100_0000));
    let names = symbolizer.names(&[kernel_request(0xffff_ffff_8100_0123, KERNEL)]);
    assert!(names[0].is_empty());
    let kernel = symbolizer.report().kernel.clone().unwrap();
    assert!(
        kernel.contains("recorded on kernel 0.0.0-foreign"),
        "{kernel}"
    );
}

#[test]
fn a_list_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kallsyms");
    let error = |text: &str| {
        fs::write(&path, text).unwrap();
        let options = Options {
            kernel: KernelSource::Kallsyms(path.clone()),
            ..Options::default()
        };
        let error = Symbolizer::new(options, KernelFacts::default(), now()).err();
        error.unwrap().to_string()
    };
    assert!(error("0000000000000000 T _text\n").contains("kptr_restrict"));
    assert!(error("some text\n").contains("found 0 of them and 1 others"));
}

#[test]
fn symbols_from_the_trace() {
    let mut symbolizer = new_symbolizer(Options::default(), facts(1));
    symbolizer.add_symbol(None, 0xffff_ffff_c000_1000, 0x40, b"bpf_prog_1234_count");
    symbolizer.add_symbol(Some("/system/lib/libart.so"), 0x500, 0, b"_ZN3art3RunEv");
    symbolizer.add_symbol(Some("/system/lib/libart.so"), 0x600, 0x10, b"last");
    let art = "/system/lib/libart.so";
    let names = symbolizer.names(&[
        kernel_request(0xffff_ffff_c000_1010, "[bpf]"),
        user_request(art, 0x5ff, false),
        user_request(art, 0x600, true),
        user_request(art, 0x610, false),
    ]);
    let printed: Vec<_> = names.iter().map(|names| as_printed(names)).collect();
    assert_eq!(printed[0].as_deref(), Some("bpf_prog_1234_count+0x10"));
    assert_eq!(printed[1].as_deref(), Some("art::Run+0xff"));
    assert_eq!(printed[2].as_deref(), Some("art::Run+0x100"));
    assert_eq!(printed[3], None);
}

#[test]
fn hostile_stacks_end() {
    let path = std::env::current_exe().unwrap();
    let path = path.to_str().unwrap().as_bytes();
    let mut unwinder = Unwinder::new(&Options::default(), now(), "x86_64");
    let mapping = |start, length, file_offset| Mapping {
        time: None,
        pid: 7,
        tid: 7,
        space: Space::User,
        start,
        length,
        file_offset,
        path,
        build_id: None,
        device: None,
        inode: None,
        protection: Some(5),
        flags: None,
    };
    let length = fs::metadata(std::env::current_exe().unwrap())
        .unwrap()
        .len();
    unwinder.add_mapping(&mapping(0x1_0000, length, 0));
    unwinder.add_mapping(&mapping(u64::MAX - 0x1000, u64::MAX, u64::MAX));
    unwinder.add_mapping(&mapping(0x2_0000, 0x1000, 0x50_0000));
    let mut random = random_numbers(3);
    let mut addresses = Vec::new();
    for round in 0..2000 {
        let sp = if round % 10 == 0 {
            u64::MAX - 64
        } else {
            0x7000_0000
        };
        let memory: Vec<u8> = (0..256)
            .flat_map(|slot| {
                match slot % 3 {
                    0 => 0x1_0000 + random() % length,
                    1 => sp.wrapping_add(random() % 2048),
                    _ => random(),
                }
                .to_le_bytes()
            })
            .collect();
        let values = [
            sp.wrapping_add(random() % 64),
            sp,
            0x1_0000 + random() % length,
        ];
        let registers = Registers {
            mask: 1 << 6 | 1 << 7 | 1 << 8,
            abi: 2,
            values: &values[..round % 4],
        };
        unwinder.unwind(7, &registers, &memory, &mut addresses);
        assert!(addresses.len() <= 1024);
    }
    let counts = unwinder.counts();
    assert_eq!(counts.unsupported, 1500);
    unwinder.clear(7);
}

/// Pseudorandom numbers, equal in every run.
pub(in crate::symbols) fn random_numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        state >> 8
    }
}
