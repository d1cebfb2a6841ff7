//! Tracing data inside a perf.data: tracepoint formats, thread names, kernel symbols.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::event::{Comm, Event, Place, Symbol};
use perfquet_events::event_format::EventFormat;

use crate::perf_data::output::Output;
use crate::tracing_data::{TracingData, printk_formats};

/// Formats of tracepoints.
pub(super) struct Formats {
    /// Formats by ID, with their system.
    formats: HashMap<u64, (String, EventFormat)>,
    /// Byte order of raw payloads.
    pub(super) is_big_endian: bool,
}

impl Formats {
    /// Starts without formats; payloads have the byte order of the records.
    pub(super) fn new(endian: Endian) -> Formats {
        Formats {
            formats: HashMap::new(),
            is_big_endian: endian == Endian::Big,
        }
    }

    /// Returns the format with this ID, and its system.
    pub(super) fn get(&self, id: u64) -> Option<&(String, EventFormat)> {
        self.formats.get(&id)
    }

    /// Stores the tracepoint formats, and emits thread names and symbols.
    pub(super) fn add(
        &mut self,
        bytes: &[u8],
        offset: u64,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let Some(data) = TracingData::parse(bytes, offset) else {
            return out.problem(Place::Offset(offset), "tracing data", || {
                "expected tracing data, found another magic; payloads of tracepoints stay raw"
                    .into()
            });
        };
        self.is_big_endian = data.endian == Endian::Big;
        let mut damaged = Vec::new();
        let formats = data.formats(|system, reason| damaged.push(format!("{system}: {reason}")));
        for reason in damaged.into_iter().chain(data.damage.clone()) {
            out.problem(Place::Offset(offset), "tracing data", || reason)?;
        }
        for (system, format) in formats {
            self.formats.insert(format.id, (system, format));
        }
        for line in data.saved_cmdlines.split(|&byte| byte == b'\n') {
            if let Some((tid, comm)) = split_once(line, b' ')
                && let Some(tid) = number(tid, 10)
            {
                out.event(Event::Comm(Comm {
                    time: None,
                    pid: None,
                    tid: tid as i32,
                    comm,
                    exec: false,
                }))?;
            }
        }
        printk_formats::emit(data.printk_formats, out.sink)?;
        kallsyms(data.kallsyms, out)
    }
}

/// Emits the symbols of an embedded /proc/kallsyms.
pub(super) fn kallsyms(text: &[u8], out: &mut Output<'_>) -> Result<(), Error> {
    for line in text.split(|&byte| byte == b'\n') {
        let Some((address, rest)) = split_once(line, b' ') else {
            continue;
        };
        let Some((b"t" | b"T" | b"w" | b"W", name)) = split_once(rest, b' ') else {
            continue;
        };
        // Zeros: hidden by kptr_restrict.
        let Some(start) = number(address, 16).filter(|&start| start != 0) else {
            continue;
        };
        let name = name
            .split(|byte| byte.is_ascii_whitespace())
            .next()
            .unwrap_or_default();
        out.event(Event::Symbol(Symbol {
            module: None,
            start,
            length: 0,
            name,
            line: None,
        }))?;
    }
    Ok(())
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = text.iter().position(|&byte| byte == at)?;
    Some((text.get(..index)?, text.get(index + 1..)?))
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?.trim(), radix).ok()
}
