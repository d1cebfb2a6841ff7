//! The head of a function recording: a trace.dat of version 6 without events, whose pages are in adjacent files.
//!
//! ```text
//! 17 08 44 "tracing" "6\0" 00 08 u32 page size
//! "header_page\0" u64 size, text   "header_event\0" u64 size, text
//! u32 count, { u64 size, text }    formats of ftrace's own events
//! u32 count, { "sched\0" u32 count, { u64 size, text } }   other systems: only if the ring has their events
//! u32 size, text                   kallsyms: functions only
//! u32 size, text                   printk formats
//! u64 size, text                   names of threads
//! u32 CPUs
//! "options  \0" { u16 id, u32 size, data } u16 0
//! ```
//! The head is written at the start, so that a killed recorder leaves it, and again at the end, with the losses of the
//! rings (trace-cmd.dat.v6(5)).

use perfquet_cli::glob_matches;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::HEAD;
use super::buffer::Buffer;
use super::plan::{Plan, Tracer};
use crate::sys::ring::page_bytes;
use crate::sys::tracefs::Tracefs;
use crate::sys::{clock, host};

/// What a ring may contain.
#[derive(Debug, Clone, Copy)]
pub(super) enum Contents<'a> {
    /// Calls of a tracer, and what programs write into any ring.
    Calls(&'a Plan),
    /// Events of all kinds.
    Everything,
}

/// Events of ftrace that function tracing writes, and those that programs write into any ring.
const FORMATS: &[&str] = &[
    "function",
    "funcgraph_entry",
    "funcgraph_exit",
    "fgraph_retaddr_entry",
    "kernel_stack",
    "user_stack",
    "print",
    "bprint",
    "bputs",
    "raw_data",
    "func_repeats",
];

/// What precedes the options, of which the first is the clock.
const OPTIONS: &[u8] = b"options  \0";

/// Numbers of options (trace-cmd's TRACECMD_OPTION_*).
mod option {
    pub(super) const DATE: u16 = 1;
    pub(super) const CPUSTAT: u16 = 2;
    pub(super) const TRACECLOCK: u16 = 4;
    pub(super) const UNAME: u16 = 5;
    pub(super) const CPUCOUNT: u16 = 8;
}

/// The head of one recording.
pub(super) struct Head {
    path: PathBuf,
    /// The unchanging part, up to the printk formats.
    fixed: Vec<u8>,
    /// Whether no other part of the journal has the wall time.
    is_only_input: bool,
}

impl Head {
    /// Collects the contents; the head is later written to `journal`.
    pub(super) fn new(
        journal: &Path,
        tracefs: &Tracefs,
        buffer: &Buffer,
        contents: Contents<'_>,
    ) -> io::Result<Head> {
        let mut out = Vec::new();
        out.extend([0x17, 0x08, 0x44]);
        out.extend(b"tracing6\0");
        out.push(u8::from(cfg!(target_endian = "big")));
        out.push(size_of::<libc::c_long>() as u8);
        out.extend((page_bytes() as u32).to_ne_bytes());
        for name in ["header_page", "header_event"] {
            let file = format!("events/{name}");
            out.extend(name.as_bytes());
            out.push(0);
            add_long(&mut out, &buffer.page_file(tracefs, &file));
        }
        add_formats(&mut out, tracefs, "ftrace", FORMATS);
        let systems = match contents {
            Contents::Calls(_) => Vec::new(),
            Contents::Everything => tracefs.systems(),
        };
        let systems = systems.iter().filter(|system| *system != "ftrace");
        out.extend((systems.clone().count() as u32).to_ne_bytes());
        for system in systems {
            out.extend(system.as_bytes());
            out.push(0);
            add_formats(&mut out, tracefs, system, &tracefs.tracepoints(system));
        }
        // The function tracer also reports callers, which may be any function.
        let named = match contents {
            Contents::Calls(plan) if plan.tracer == Tracer::Graph => plan.watched(),
            Contents::Calls(_) | Contents::Everything => &[],
        };
        add_short(&mut out, &symbols(named)?);
        add_short(&mut out, &tracefs.file("printk_formats"));
        Ok(Head {
            path: journal.join(HEAD),
            fixed: out,
            is_only_input: matches!(contents, Contents::Everything),
        })
    }

    /// The path of its file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it; `stats` are those of each CPU, at the end.
    pub(super) fn write(
        &self,
        tracefs: &Tracefs,
        buffer: &Buffer,
        stats: &[(u32, String)],
    ) -> io::Result<()> {
        let mut out = Vec::new();
        // The kernel keeps only a few of them; the journal has them all. These are for other readers.
        add_long(&mut out, &tracefs.file("saved_cmdlines"));
        let cpus = host::present_cpus().len() as u32;
        out.extend(cpus.to_ne_bytes());
        out.extend(OPTIONS);
        let mut add_option = |id: u16, data: &[u8]| {
            out.extend(id.to_ne_bytes());
            out.extend((data.len() as u32).to_ne_bytes());
            out.extend(data);
        };
        add_option(option::TRACECLOCK, &text_of(buffer.read("trace_clock")));
        if self.is_only_input
            && let Some(offset) = wall_offset_us(&buffer.read("per_cpu/cpu0/stats"))
        {
            add_option(option::DATE, &text_of(format!("{offset:#x}")));
        }
        let names = host::names();
        let uname = format!("Linux {} {} {}", names.host, names.release, names.machine);
        add_option(option::UNAME, &text_of(uname));
        add_option(option::CPUCOUNT, &cpus.to_ne_bytes());
        for (cpu, text) in stats {
            add_option(option::CPUSTAT, &text_of(format!("CPU: {cpu}\n{text}\n")));
        }
        out.extend(0u16.to_ne_bytes());
        replace(&self.path, &[&self.fixed, &out])
    }
}

/// Returns the first option of a written head: the contents of the file `trace_clock`, `local [mono]\0`.
pub(super) fn clock_in(head: &[u8]) -> &[u8] {
    let begins = |at: &usize| head[*at..].starts_with(OPTIONS);
    let options = (0..head.len()).rev().find(begins);
    let option = options.map_or(&[][..], |at| &head[at + OPTIONS.len()..]);
    let size = option.get(2..6).and_then(|size| size.try_into().ok());
    let size = u32::from_ne_bytes(size.unwrap_or_default()) as usize;
    option.get(6..6 + size).unwrap_or_default()
}

/// Returns the wall time minus the ring's clock, from the statistics of a CPU: `now ts: 12.345678`. Clocks that do not count
/// nanoseconds have no point there.
fn wall_offset_us(stats: &str) -> Option<u64> {
    let (wall, _) = clock::wall_and_monotonic();
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("now ts:"))?;
    let (seconds, microseconds) = line.trim().split_once('.')?;
    let now = seconds.parse::<u64>().ok()? * 1_000_000 + microseconds.parse::<u64>().ok()?;
    (wall / 1000).checked_sub(now)
}

/// Replaces a file atomically.
fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let hidden = path.with_file_name(format!(".{HEAD}.new"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&hidden)?;
    for part in parts {
        file.write_all(part)?;
    }
    fs::rename(&hidden, path)
}

/// Returns the lines of `/proc/kallsyms` for the watched functions, each with the next symbol, or those of all
/// functions.
fn symbols(watched: &[String]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut was_watched = false;
    let file = BufReader::with_capacity(1 << 18, File::open("/proc/kallsyms")?);
    for line in file.split(b'\n') {
        let mut line = line?;
        let mut words = line.split(|&byte| byte == b' ' || byte == b'\t');
        let (kind, name) = (words.nth(1), words.next().unwrap_or_default());
        if !matches!(kind, Some(b"T" | b"t" | b"W" | b"w")) {
            continue;
        }
        let name = String::from_utf8_lossy(name);
        let is_watched =
            watched.is_empty() || watched.iter().any(|pattern| glob_matches(pattern, &name));
        if is_watched || was_watched {
            line.push(b'\n');
            out.extend(line);
        }
        was_watched = is_watched;
    }
    Ok(out)
}

fn text_of(text: String) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    bytes.push(0);
    bytes
}

/// Appends the formats of these events of a system, as far as they exist.
fn add_formats(out: &mut Vec<u8>, tracefs: &Tracefs, system: &str, names: &[impl AsRef<str>]) {
    let formats: Vec<Vec<u8>> = names
        .iter()
        .map(|name| tracefs.file(&format!("events/{system}/{}/format", name.as_ref())))
        .filter(|text| !text.is_empty())
        .collect();
    out.extend((formats.len() as u32).to_ne_bytes());
    formats.iter().for_each(|text| add_long(out, text));
}

fn add_short(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u32).to_ne_bytes());
    out.extend(text);
}

fn add_long(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_ne_bytes());
    out.extend(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_a_head() {
        let option = |id: u16, text: &[u8]| {
            let size = (text.len() as u32).to_ne_bytes();
            [&id.to_ne_bytes()[..], &size, text].concat()
        };
        let clock = option(option::TRACECLOCK, b"local [global]\0");
        let head = [b"17options  \0..", OPTIONS, &clock, &option(5, b"Linux\0")].concat();
        assert_eq!(clock_in(&head), b"local [global]\0");
        for cut in [&b""[..], b"options", OPTIONS, &head[..head.len() - 20]] {
            assert_eq!(clock_in(cut), b"");
        }
    }

    #[test]
    fn wall_time_of_a_clock() {
        let now = clock::wall_and_monotonic().0 / 1000;
        let offset = wall_offset_us("entries: 5\nnow ts:    12.000034\n").unwrap();
        assert!((offset + 12_000_034).abs_diff(now) < 60_000_000);
        for stats in ["", "entries: 5", "now ts: 4711", "now ts: x.y"] {
            assert_eq!(wall_offset_us(stats), None, "{stats}");
        }
    }
}
