//! Programs that try to make a recorder fail which looks into their files and memory, beside an honest one.

mod room;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use room::{Room, may_record, peak_kib};

/// Peak of the recorder's memory.
const MOST_KIB: u64 = 256 << 10;
/// Time from Ctrl-C to the end. Without optimization, reading a long list takes several seconds.
const LONGEST_END: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 2 });

/// The sections of an ELF file with code at offset 0x1000.
struct Elf {
    sections: Vec<(&'static [u8], u64, u64)>,
    contents: Vec<(u64, Vec<u8>)>,
}

impl Elf {
    fn new() -> Elf {
        // mov rcx, 0x1000000; dec rcx; jnz; ret
        let code = [
            0x48, 0xc7, 0xc1, 0, 0, 0, 1, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3,
        ];
        Elf {
            sections: vec![(b".text", 0x1000, 0x1000)],
            contents: vec![(0x1000, code.to_vec())],
        }
    }

    fn with(mut self, name: &'static [u8], at: u64, contents: Vec<u8>) -> Elf {
        self.sections.push((name, at, contents.len() as u64));
        self.contents.push((at, contents));
        self
    }

    fn write(mut self, path: &Path) {
        const NAMES_AT: u64 = 0x8000;
        const SECTIONS_AT: u64 = 0x9000;
        let mut names = vec![0];
        self.sections.push((b".shstrtab", NAMES_AT, 256));
        let mut headers = vec![0; 64];
        for (name, at, bytes) in &self.sections {
            let kind: u32 = if *name == b".shstrtab" { 3 } else { 1 };
            let flags: u64 = if *name == b".text" { 6 } else { 2 };
            headers.extend((names.len() as u32).to_le_bytes());
            headers.extend(kind.to_le_bytes());
            for word in [flags, *at, *at, *bytes] {
                headers.extend(word.to_le_bytes());
            }
            headers.extend([0; 24]);
            names.extend(name.iter().chain(&[0]));
        }
        let count = self.sections.len() as u16 + 1;
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(16, 0);
        head.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        for word in [0x1000, 64, SECTIONS_AT] {
            head.extend(word.to_le_bytes());
        }
        head.extend([0; 4]);
        for number in [64, 56, 1, 64, count, count - 1] {
            head.extend(number.to_le_bytes());
        }
        head.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        for word in [0x1000u64, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000] {
            head.extend(word.to_le_bytes());
        }
        let file = fs::File::create(path).expect("a file");
        file.set_len(SECTIONS_AT + 0x1000).expect("a file");
        let parts = [(0, head), (NAMES_AT, names), (SECTIONS_AT, headers)];
        for (at, bytes) in parts.into_iter().chain(self.contents) {
            file.write_all_at(&bytes, at).expect("a file");
        }
    }
}

/// A name and a checksum of a debug file.
fn link_to(name: &str) -> Vec<u8> {
    let mut link = name.as_bytes().to_vec();
    link.resize((name.len() + 1).next_multiple_of(4), 0);
    link.extend(0x1234_5678_u32.to_le_bytes());
    link
}

/// A CIE, and an FDE of 32 bytes for every 16 bytes of code.
fn frames(bytes: usize, at: u64) -> Vec<u8> {
    let mut section =
        b"\x14\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0\0".to_vec();
    while section.len() < bytes {
        let place = section.len() as u64;
        let code = 0x8000_0000 + place / 2;
        section.extend(28u32.to_le_bytes());
        section.extend((place as u32 + 4).to_le_bytes());
        section.extend((code.wrapping_sub(at + place + 8) as u32).to_le_bytes());
        section.extend(16u32.to_le_bytes());
        section.extend([
            0, 0x41, 0x0e, 16, 0x41, 0x0e, 24, 0x41, 0x0e, 32, 0x41, 0x0e, 40, 0, 0, 0,
        ]);
    }
    section.extend([0; 4]);
    section
}

/// Interrupts the recorder. Returns its peak memory, and the time until its end.
fn end(recorder: &mut Child, mut peak: u64) -> (u64, Duration) {
    let began = Instant::now();
    let pid = recorder.id();
    let sent = Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status();
    assert!(sent.is_ok_and(|status| status.success()));
    while recorder.try_wait().expect("a child").is_none() {
        peak = peak_kib(pid).unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(10));
        if began.elapsed() > 2 * LONGEST_END {
            let _ = recorder.kill();
            panic!("the recorder does not end");
        }
    }
    (peak, began.elapsed())
}

#[cfg(target_arch = "x86_64")]
#[test]
fn hostile_programs_cost_a_limited_time_and_memory() {
    if !may_record() {
        return;
    }
    let room = Room::new();
    let compiled = [
        room.compile("deep.c", &["-O2"]),
        room.compile("hostile.c", &["-O1"]),
        room.compile("hostile_python.c", &["-O1", "-rdynamic"]),
        room.compile("hostile_ruby.c", &["-O1", "-rdynamic"]),
        room.compile(
            "hostile_node.c",
            &[
                "-O1",
                "-rdynamic",
                "-fno-omit-frame-pointer",
                "-fno-asynchronous-unwind-tables",
            ],
        ),
        room.compile("hostile_jvm.c", &["-O1", "-rdynamic"]),
    ];
    if compiled.iter().any(Option::is_none) {
        return;
    }
    let at = |name: &str| room.path(name);
    fs::rename(at("hostile_python"), at("python3.11")).expect("it moves");
    fs::rename(at("hostile_ruby"), at("ruby3.1")).expect("it moves");
    fs::rename(at("hostile_node"), at("node")).expect("it moves");
    fs::create_dir(at("jvm")).expect("a directory");
    fs::rename(at("hostile_jvm"), at("jvm/libjvm.so")).expect("it moves");
    // Reading it would take an hour.
    fs::File::create(at("endless"))
        .and_then(|file| file.set_len(4 << 40))
        .expect("a sparse file");
    Elf::new()
        .with(b".gnu_debuglink", 0x3000, link_to("endless"))
        .write(&at("linked"));
    Elf::new()
        .with(b".eh_frame", 0x20_0000, frames(100 << 20, 0x20_0000))
        .write(&at("framed"));
    Elf::new().write(&at("libjvm.so"));
    let script =
        "./deep 5 10000000 & ./hostile file linked & ./hostile file framed & ./python3.11 & ./ruby3.1 & ./node & jvm/libjvm.so &
        ./hostile list 1100000 100 & ./hostile list 10 30000000 & ./hostile runtime libjvm.so &
        wait";
    let mut recorder = room.recorder();
    recorder.args([
        "--force",
        "-o",
        "t.pqt",
        "-g",
        "-e",
        "cpu-clock",
        "-F",
        "499",
        "--",
        "bash",
        "-c",
        script,
    ]);
    let mut recorder = recorder
        .stderr(Stdio::piped())
        .spawn()
        .expect("the recorder runs");
    let (mut peak, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(5) {
        peak = peak_kib(recorder.id()).unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(20));
    }
    let children = children_of(recorder.id());
    let (peak, time) = end(&mut recorder, peak);
    for pid in children {
        let _ = Command::new("kill")
            .args(["-KILL", &pid])
            .stderr(Stdio::null())
            .status();
        let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
        let _ = fs::remove_file(format!("/tmp/.java_pid{pid}"));
    }
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut recorder.stderr.take().expect("a pipe"), &mut stderr)
        .expect("text");
    eprintln!("{peak} KiB, {} ms to the end; {stderr}", time.as_millis());
    assert!(peak <= MOST_KIB, "{peak} KiB: {stderr}");
    assert!(time <= LONGEST_END, "{time:?}: {stderr}");
    assert!(stderr.contains(" 0 lost"), "{stderr}");
    let frames = room.rows("frames", &["module", "function"]);
    for function in ["leaf", "middle", "down", "main"] {
        let is_honest = |row: &String| row.ends_with(&format!("/deep {function}"));
        assert!(frames.iter().any(is_honest), "{function}");
    }
    let longest = frames.iter().map(String::len).max();
    assert!(longest.is_some_and(|bytes| bytes < 20 << 10), "{longest:?}");
    assert_eq!(room.rows("losses", &["count"]), Vec::<String>::new());
}

/// PIDs of the processes that a process has started, and of theirs.
fn children_of(pid: u32) -> Vec<String> {
    let list = Command::new("ps").args(["-eo", "pid=,ppid="]).output();
    let list = list.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let pairs: Vec<(&str, &str)> = list
        .lines()
        .filter_map(|line| line.trim().split_once(char::is_whitespace))
        .map(|(pid, parent)| (pid, parent.trim()))
        .collect();
    let mut all = vec![pid.to_string()];
    let mut next = 0;
    while let Some(parent) = all.get(next).cloned() {
        next += 1;
        let own = pairs.iter().filter(|(_, of)| **of == parent);
        all.extend(own.map(|(pid, _)| (*pid).to_owned()));
    }
    all.split_off(1)
}
