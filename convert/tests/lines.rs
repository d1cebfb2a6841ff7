//! `--lines` with malicious files: the import ends in time and succeeds, other names are present, and the reason is
//! reported.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared by the tests of all crates"
)]
#[path = "../../tests/src/needs.rs"]
mod needs;
#[path = "../../record/tests/rows/mod.rs"]
mod rows;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use perfquet_trace::symbols::Object;

const CONVERT: &str = env!("CARGO_BIN_EXE_perfquet-convert");

/// Maximum duration of an import, even on a busy host: blazesym alone would take hours.
const LONGEST: Duration = Duration::from_secs(300);

/// A function inlined in `main`: an instance of itself, called in line 9, without a name.
const INLINED: &str =
    ".Lself:\n.uleb128 2\n.long .Lranges\n.long .Lself-.Linfo\n.byte 1\n.byte 9\n";
/// The first byte of the unit.
const RANGES: &str = ".section .debug_ranges,\"\",@progbits\n.Lranges:\n.quad 0,1\n.quad 0,0\n";

/// A directory with programs and a recording of them.
struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    /// Returns `None`, and reports it, if there is no compiler.
    fn new() -> Option<Room> {
        needs::met(&["cc"]).then(|| Room {
            folder: tempfile::tempdir().expect("a temporary folder"),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, name: &str, source: &str, arguments: &[&str]) {
        let status = Command::new("cc")
            .args(arguments)
            .args(["-no-pie", "-o", name, source])
            .current_dir(self.folder.path())
            .status();
        assert!(status.expect("a compiler").success(), "{source}");
    }

    /// A program with its lines, for comparison.
    fn healthy(&self) {
        let text = "\nint main(int count, char **words) { return count + !words; }\n";
        fs::write(self.path("healthy.c"), text).expect("a source");
        self.compile("healthy", "healthy.c", &["-g", "-O1", "-gz=zlib"]);
    }

    /// A program with hand-written debug info: `info` is the content of `main`.
    fn made(&self, name: &str, info: &str, more: &str) {
        let code = format!(
            ".file \"made.c\"\n.text\n.globl main\n.type main,@function\nmain:\n.file 1 \"made.c\"\n.loc 1 7\n ret\n.Lend:\n\
             .size main,.-main\n\
             .section .debug_abbrev,\"\",@progbits\n\
             .uleb128 1,0x11\n.byte 1\n.uleb128 0x11,1,0x12,7,0x10,0x17,0,0\n\
             .uleb128 2,0x1d\n.byte 0\n.uleb128 0x55,0x17,0x31,0x13,0x58,0xb,0x59,0xb,0,0\n\
             .uleb128 3,0x2e\n.byte 0\n.uleb128 0x31,0x13,0,0\n\
             .uleb128 4,0x0b\n.byte 1\n.uleb128 0,0\n\
             .uleb128 5,0x2e\n.byte 1\n.uleb128 0x11,1,0x12,7,0,0\n\
             .uleb128 6,0x1d\n.byte 1\n.uleb128 0x55,0x17,0,0\n.byte 0\n\
             .section .debug_info,\"\",@progbits\n.Linfo:\n.long .Linfo_end-.Lversion\n.Lversion:\n.value 4\n.long 0\n.byte 8\n\
             .uleb128 1\n.quad main\n.quad .Lend-main\n.long .Lline\n\
             .uleb128 5\n.quad main\n.quad .Lend-main\n{info}\n.byte 0\n.byte 0\n.Linfo_end:\n\
             .section .debug_line,\"\",@progbits\n.Lline:\n{more}\n.section .note.GNU-stack,\"\",@progbits\n"
        );
        let source = format!("{name}.s");
        fs::write(self.path(&source), code).expect("a source");
        self.compile(name, &source, &[]);
    }

    /// A recording with a sample in `main` of each program, in perf's pipe format.
    fn record(&self, programs: &[&str]) {
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(16_u64.to_le_bytes());
        // PERF_RECORD_HEADER_ATTR: cpu-clock, with IP, TID and time.
        let attr = [1 | 64 << 32, 0, 1, 1 | 2 | 4, 0, 0, 0, 0, 1];
        add_record(&mut bytes, 64, 0, &attr, b"");
        for (index, name) in programs.iter().enumerate() {
            let path = self.path(name);
            let functions = Object::open(&path).expect("a program").functions();
            let main = functions.iter().find(|function| function.name == "main");
            let thread = 100 + index as u64;
            let thread = thread | thread << 32;
            // PERF_RECORD_MMAP2, without an inode: r-x.
            let mapping = [thread, 0x40_0000, 0x1000_0000, 0, 0, 0, 0, 5];
            let path = path.to_str().expect("a path");
            add_record(&mut bytes, 10, 2, &mapping, path.as_bytes());
            let place = 0x40_0000 + main.expect("main").offset;
            add_record(&mut bytes, 9, 2, &[place, thread, index as u64], b"");
        }
        fs::write(self.path("in.data"), bytes).expect("a recording");
    }

    fn import(&self) -> Command {
        let mut command = Command::new(CONVERT);
        command
            .args([
                "in.data",
                "--lines",
                "--force",
                "-o",
                "out.pqt",
                "--symbols",
                ".",
            ])
            .current_dir(self.folder.path());
        command
    }

    /// Imports the recording, and checks that this succeeds in time.
    fn lines(&self) -> Lines {
        let start = Instant::now();
        let output: Output = self.import().output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{:?}: {stderr}", output.status);
        assert!(start.elapsed() < LONGEST, "{:?}: {stderr}", start.elapsed());
        let columns = ["module", "function", "file", "line"];
        let frames = rows::rows_of(&self.path("out.pqt"), "frames", &columns);
        let folder = format!("{}/", self.folder.path().display());
        let frames = frames.iter().map(|row| row.replace(&folder, ""));
        Lines {
            frames: frames.collect(),
            stderr,
        }
    }

    /// The line of `main` in a file imported together with the healthy program.
    fn check(&self, name: &str, reason: &str) {
        self.record(&["healthy", name]);
        let lines = self.lines();
        let expected = [
            "healthy main healthy.c 2".to_owned(),
            format!("{name} main - -"),
        ];
        assert_eq!(lines.frames, expected, "{}", lines.stderr);
        let path = self.path(name);
        let expected = format!(
            "1 of 2 named frames have no line: 1 of them in {}, {reason}",
            path.display()
        );
        assert!(lines.stderr.contains(&expected), "{}", lines.stderr);
    }
}

/// Adds `struct perf_event_header`, numbers, and a padded string.
fn add_record(bytes: &mut Vec<u8>, kind: u32, misc: u16, numbers: &[u64], text: &[u8]) {
    let text_bytes = match text.len() {
        0 => 0,
        length => (length + 1).next_multiple_of(8),
    };
    let size = 8 + 8 * numbers.len() + text_bytes;
    bytes.extend(kind.to_le_bytes());
    bytes.extend(misc.to_le_bytes());
    bytes.extend((size as u16).to_le_bytes());
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend(text);
    bytes.extend(vec![0; text_bytes - text.len()]);
}

/// The result of an import.
struct Lines {
    /// Module, function, file and line of each frame.
    frames: Vec<String>,
    stderr: String,
}

#[test]
fn debug_info_written_by_hand() {
    let Some(room) = Room::new() else { return };
    room.healthy();
    room.made("self", INLINED, RANGES);
    // Two functions, each an abstract instance of the other.
    let cycle = ".L1:\n.uleb128 3\n.long .L2-.Linfo\n.L2:\n.uleb128 3\n.long .L1-.Linfo\n\
                 .uleb128 2\n.long .Lranges\n.long .L1-.Linfo\n.byte 1\n.byte 9\n";
    room.made("cycle", cycle, RANGES);
    let blocks =
        format!("{INLINED}.rept 200000\n.uleb128 4\n.endr\n.rept 200000\n.byte 0\n.endr\n");
    room.made("blocks", &blocks, RANGES);
    room.record(&["self", "cycle", "blocks"]);
    let lines = room.lines();
    for name in ["self", "cycle", "blocks"] {
        let of = |frame: &&String| frame.starts_with(name);
        let frames: Vec<_> = lines.frames.iter().filter(of).collect();
        let expected = [
            format!("{name} main made.c 9"),
            format!("{name} [inlined] made.c 7"),
        ];
        assert_eq!(
            frames,
            expected.iter().collect::<Vec<_>>(),
            "{}",
            lines.stderr
        );
    }
    // An entry past the end.
    let beyond = ".uleb128 2\n.long .Lranges\n.long 0x7fffffff\n.byte 1\n.byte 9\n";
    room.made("beyond", beyond, RANGES);
    room.check("beyond", "its debug info is damaged");
}

#[test]
fn endless_debug_info_is_abandoned() {
    let Some(room) = Room::new() else { return };
    room.healthy();
    // Each of many inlined functions has the same many ranges.
    let many = |ranges: &str| {
        format!(
            ".section .debug_ranges,\"\",@progbits\n.Lranges:\n.rept 20000\n{ranges}\n.endr\n.quad 0,0\n"
        )
    };
    let again = INLINED.replace(".Lself:\n", "");
    let inlined = format!("{INLINED}.rept 20000\n{again}.endr\n");
    room.made("large", &inlined, &many(".quad 8,9"));
    // If allocation is slow, the reason is "too long" instead of "too much memory".
    room.check("large", "its debug info takes too ");
    // Empty ranges take no memory.
    let inlined = inlined.replace(".rept 20000", ".rept 400000");
    room.made("long", &inlined, &many(".quad 8,8"));
    room.check("long", "its debug info takes too long to read");
    // Each function is inlined in the other.
    let deep = ".rept 200000\n.uleb128 6\n.long .Lranges\n.endr\n";
    room.made("deep", deep, RANGES);
    room.check("deep", "its debug info takes too much memory to read");
}

#[test]
fn oversized_compressed_section_is_not_read() {
    let Some(room) = Room::new() else { return };
    room.healthy();
    let mut bytes = fs::read(room.path("healthy")).expect("a program");
    // Elf64_Chdr: zlib, reserved, size, alignment; then the zlib header.
    let is_head = |part: &[u8]| part[..8] == [1, 0, 0, 0, 0, 0, 0, 0] && part[24] == 0x78;
    let heads: Vec<usize> = (0..bytes.len() - 32)
        .filter(|&at| is_head(&bytes[at..at + 32]) && bytes[at + 12..at + 16] == [0; 4])
        .collect();
    assert!(!heads.is_empty());
    for at in heads {
        bytes[at + 8..at + 16].copy_from_slice(&(i64::MAX as u64).to_le_bytes());
    }
    fs::write(room.path("bomb"), bytes).expect("a program");
    room.check("bomb", "its debug info is damaged");
}

#[test]
fn damaged_debug_info_loses_only_lines() {
    let Some(room) = Room::new() else { return };
    let text = "static int twice(int x) { return 2 * x; }\nint main(int count, char **words)\n{\n\treturn twice(count) + !words;\n}\n";
    fs::write(room.path("whole.c"), text).expect("a source");
    room.compile("whole", "whole.c", &["-g", "-O1", "-gz=none"]);
    let whole = fs::read(room.path("whole")).expect("a program");
    // The debug sections are adjacent, before the symbols.
    let start = whole
        .windows(7)
        .position(|part| part == b"GNU C17" || part == b"GNU AS ");
    let start = start.expect("the producer's name").saturating_sub(2000);
    let (mut state, mut names) = (1_u64, Vec::new());
    for round in 0..40 {
        let mut bytes = whole.clone();
        for _ in 0..20 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            bytes[start + (state >> 33) as usize % 2000] = (state >> 20) as u8;
        }
        let name = format!("damaged{round}");
        fs::write(room.path(&name), bytes).expect("a program");
        names.push(name);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    room.record(&names);
    let lines = room.lines();
    // The symbol table is complete: the names stay.
    let of_main = lines.frames.iter().filter(|frame| frame.contains(" main "));
    assert_eq!(of_main.count(), names.len(), "{:#?}", lines.frames);
}

/// Children of a process.
fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONGEST, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn line_reader_is_separate_and_ends_with_its_parent() {
    let Some(room) = Room::new() else { return };
    let ranges = ".section .debug_ranges,\"\",@progbits\n.Lranges:\n.rept 20000\n.quad 8,8\n.endr\n.quad 0,0\n";
    let again = INLINED.replace(".Lself:\n", "");
    room.made(
        "long",
        &format!("{INLINED}.rept 400000\n{again}.endr\n"),
        ranges,
    );
    room.record(&["long"]);
    let mut parent = room
        .import()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    wait_until("no process for lines", || !children(parent.id()).is_empty());
    let child = children(parent.id())[0];
    let proc = PathBuf::from(format!("/proc/{child}"));
    let is_reading = || {
        let command = fs::read(proc.join("cmdline")).unwrap_or_default();
        command.windows(13).any(|part| part == b"--line-worker")
    };
    wait_until("it is not that process", is_reading);
    // Field 5 of proc_pid_stat(5): the process group, to which a terminal sends Ctrl-C.
    let stat = fs::read_to_string(proc.join("stat")).expect("it runs");
    let group = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(2));
    assert_eq!(group, Some(child.to_string().as_str()), "{stat}");
    let open = fs::read_dir(proc.join("fd")).expect("it runs").flatten();
    let open: Vec<PathBuf> = open
        .filter_map(|file| fs::read_link(file.path()).ok())
        .collect();
    for stream in 0..3 {
        let stream = fs::read_link(format!("/proc/{}/fd/{stream}", parent.id()));
        assert!(!open.contains(&stream.expect("a pipe")), "{open:?}");
    }

    let start = Instant::now();
    parent.kill().expect("it runs");
    parent.wait().expect("it ended");
    wait_until("the process outlives its parent", || !is_reading());
    // Well before its limit.
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}
