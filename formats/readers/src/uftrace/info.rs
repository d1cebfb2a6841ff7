//! The file `info`: a binary head, then lines.
//!
//! ```text
//! 46 74 72 61 63 65 21 00 | u32 version | u16 header size | u8 byte order | u8 class | u64 features | u64 which lines | u16 depth
//! exename:/opt/demo/calls
//! cpuinfo:lines=2
//! cpuinfo:nr_cpus=2 / 2 (online / possible)
//! argspec:fib@arg1;greet@arg1/s,arg2/c
//! utc_offset:1795361114
//! ```

use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_events::event::{Event, Fact, Sink};

use crate::lines::{Lines, signed, unsigned};

pub(super) const MAGIC: &[u8] = b"Ftrace!\0";
const HEAD_BYTES: usize = 40;
/// Lines, far more than uftrace writes.
const LINES_MAX: usize = 10_000;
/// Symbols have addresses from the start of their module (`SYM_REL_ADDR`).
const RELATIVE_SYMBOLS: u64 = 1 << 5;
const NANOSECONDS: i64 = 1_000_000_000;

/// What the file states.
#[derive(Debug)]
pub(super) struct Info<'a> {
    pub(super) endian: Endian,
    /// Size of a register in bytes.
    pub(super) word_bytes: usize,
    features: u64,
    lines: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Info<'a> {
    /// Parses the file; the error says what was expected.
    pub(super) fn parse(file: &'a [u8]) -> Result<Info<'a>, String> {
        let Some(rest) = file.strip_prefix(MAGIC) else {
            return Err("expected \"Ftrace!\"".to_owned());
        };
        let endian = Endian::of(rest.get(6) == Some(&2));
        let short = |short: Short| format!("{short} of the head");
        let mut head = Cursor::new(rest, MAGIC.len() as u64, endian);
        let version = head.u32().map_err(short)?;
        let size = head.u16().map_err(short)?;
        let order = head.u8().map_err(short)?;
        let class = head.u8().map_err(short)?;
        let features = head.u64().map_err(short)?;
        if !(3..=4).contains(&version) {
            return Err(format!("expected format version 3 or 4, found {version}"));
        }
        if !matches!(order, 1 | 2) {
            return Err(format!("expected a byte order of 1 or 2, found {order}"));
        }
        let text = file.get(usize::from(size).max(HEAD_BYTES)..);
        let lines = Lines::of(text.unwrap_or_default()).take(LINES_MAX);
        let lines = lines.filter_map(|line| {
            let colon = memchr::memchr(b':', line.text)?;
            Some((line.text.get(..colon)?, line.text.get(colon + 1..)?))
        });
        Ok(Info {
            endian,
            word_bytes: match class {
                1 => 4,
                _ => 8,
            },
            features,
            lines: lines.collect(),
        })
    }

    pub(super) fn has_relative_symbols(&self) -> bool {
        self.features & RELATIVE_SYMBOLS != 0
    }

    /// The value of a line; of several, the first that is no count of lines.
    pub(super) fn value(&self, key: &str) -> Option<&'a [u8]> {
        let mut lines = self.lines.iter();
        lines
            .find(|(name, value)| *name == key.as_bytes() && !value.starts_with(b"lines="))
            .map(|(_, value)| *value)
    }

    /// `NAME=` in the lines of a key.
    fn part(&self, key: &str, name: &str) -> Option<&'a [u8]> {
        let mut lines = self
            .lines
            .iter()
            .filter(|(found, _)| *found == key.as_bytes());
        lines.find_map(|(_, value)| value.strip_prefix(name.as_bytes()))
    }

    /// The exit status of the traced program, as a shell reports it.
    pub(super) fn exit_code(&self) -> Option<i32> {
        let status = i32::try_from(unsigned(self.value("exit_status")?)?).ok()?;
        match status & 0x7f {
            _ if status > 0xffff => None,
            0 => Some(status >> 8),
            signal => Some(128 + signal),
        }
    }

    pub(super) fn facts(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let text = |bytes: &'a [u8]| String::from_utf8_lossy(bytes);
        sink.event(Event::Fact(Fact::Clock("monotonic")))?;
        let seconds = self.value("utc_offset").and_then(signed);
        if let Some(offset) = seconds.and_then(|seconds| seconds.checked_mul(NANOSECONDS)) {
            sink.event(Event::Fact(Fact::WallOffset(offset)))?;
        }
        let version = text(self.value("uftrace_version").unwrap_or_default());
        let version = version.split(" (").next().unwrap_or_default();
        let recorder = format!("uftrace {version}");
        sink.event(Event::Fact(Fact::Recorder(recorder.trim_end())))?;
        if let Some(line) = self.value("cmdline") {
            sink.event(Event::Fact(Fact::CommandLine(&text(line))))?;
        }
        if let Some(host) = self.part("osinfo", "hostname=") {
            sink.event(Event::Fact(Fact::Host(&text(host))))?;
        }
        if let Some(kernel) = self.part("osinfo", "kernel=") {
            let kernel = kernel.strip_prefix(b"Linux ").unwrap_or(kernel);
            sink.event(Event::Fact(Fact::OsRelease(&text(kernel))))?;
        }
        if let Some(model) = self.part("cpuinfo", "desc=") {
            sink.event(Event::Fact(Fact::CpuModel(&text(model))))?;
        }
        let cpus = self.part("cpuinfo", "nr_cpus=");
        let cpus = cpus.and_then(|cpus| unsigned(cpus.split(|&byte| byte == b' ').next()?));
        if let Some(cpus) = cpus.and_then(|cpus| u32::try_from(cpus).ok()) {
            sink.event(Event::Fact(Fact::Cpus(cpus)))?;
        }
        for key in ["exename", "exit_status", "elapsed_time", "record_date"] {
            if let Some(value) = self.value(key) {
                sink.event(Event::Fact(Fact::Other {
                    name: &format!("uftrace.{key}"),
                    value: &text(value),
                }))?;
            }
        }
        Ok(())
    }
}
