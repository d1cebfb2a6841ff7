//! The bundle of `format` files embedded in files of perf and trace-cmd.
//!
//! ```text
//! 17 08 44 "tracing" "0.6\0" 00 08 00100000       magic, version, endian, sizeof(long), page size
//! "header_page\0"  u64 size  text                 layout of the ring buffer
//! "header_event\0" u64 size  text
//! u32 n, { u64 size, text }                       ftrace's own events
//! u32 n, { name NUL, u32 n, { u64 size, text } }  events by system
//! u32 size, text                                  /proc/kallsyms
//! u32 size, text                                  printk_formats
//! u64 size, text                                  saved_cmdlines, from version 0.6 on
//! ```
//! Written by perf's util/trace-event-info.c; trace.dat version 6 begins with the same data. The bundle has its own
//! byte order, independent of the enclosing file.

pub(crate) mod printk_formats;
mod search;

use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_events::event_format::EventFormat;
use perfquet_events::scan::find_text;

use search::{find_texts, length_of};

/// First bytes of the bundle.
pub(crate) const TRACING_MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// The second text, which identifies a bundle with a damaged beginning.
pub(crate) const HEADER_EVENT: &[u8] = b"header_event\0";
/// Bytes searched for it.
pub(crate) const FRONT_BYTES: usize = 4096;

/// The parsed bundle; texts borrow from the input.
#[derive(Debug, Clone, Default)]
pub(crate) struct TracingData<'a> {
    /// "0.5", "0.6"; "6" in a trace.dat.
    pub(crate) version: &'a [u8],
    /// Byte order of the traced host.
    pub(crate) endian: Endian,
    /// Size of `long` in the recorder's process, in bytes.
    pub(crate) long_size: u8,
    /// Page size of the traced host, in bytes.
    pub(crate) page_size: u32,
    /// Layout of a ring buffer page.
    pub(crate) header_page: &'a [u8],
    /// Layout of an event head in it.
    pub(crate) header_event: &'a [u8],
    /// Formats of ftrace's own events.
    pub(crate) ftrace: Vec<&'a [u8]>,
    /// All other formats, each with its system.
    pub(crate) events: Vec<(&'a [u8], &'a [u8])>,
    /// /proc/kallsyms, usually empty.
    pub(crate) kallsyms: &'a [u8],
    /// Addresses and strings of the kernel's `trace_printk`.
    pub(crate) printk_formats: &'a [u8],
    /// Lines "tid comm".
    pub(crate) saved_cmdlines: &'a [u8],
    /// Number of bytes parsed; a trace.dat of version 6 continues after them.
    pub(crate) length: u64,
    /// A description of the damage, if any; readable data is kept.
    pub(crate) damage: Option<String>,
    /// Whether reading stopped before the end.
    pub(crate) is_cut: bool,
    /// Whether format files were lost.
    pub(crate) lacks_formats: bool,
}

impl<'a> TracingData<'a> {
    /// Parses a bundle; `None` if it is not one.
    pub(crate) fn parse(bytes: &'a [u8], offset: u64) -> Option<TracingData<'a>> {
        let rest = bytes.strip_prefix(TRACING_MAGIC)?;
        let mut data = TracingData {
            long_size: 8,
            ..TracingData::default()
        };
        let mut cursor = Cursor::new(rest, offset + TRACING_MAGIC.len() as u64, Endian::Little);
        if let Err(short) = data.read(&mut cursor) {
            data.is_cut = true;
            data.damage = Some(format!("tracing data: offset {:#x}: {short}", short.offset));
        }
        data.length = bytes.len() as u64 - cursor.left();
        Some(data)
    }

    fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Short> {
        self.version = cursor.text_to_nul();
        self.endian = match cursor.u8()? {
            0 => Endian::Little,
            _ => Endian::Big,
        };
        self.long_size = match cursor.u8()? {
            4 => 4,
            _ => 8,
        };
        *cursor = Cursor::new(cursor.rest(), cursor.offset(), self.endian);
        self.page_size = cursor.u32()?;
        self.read_body(cursor)
    }

    /// Parses a bundle whose first bytes, up to `header_page`, are known from elsewhere. `bytes` follow them and are at
    /// `offset`.
    pub(crate) fn headless(
        bytes: &'a [u8],
        offset: u64,
        endian: Endian,
        long_size: u8,
        version: &'a [u8],
    ) -> TracingData<'a> {
        let mut data = TracingData {
            endian,
            long_size,
            version,
            ..TracingData::default()
        };
        let mut cursor = Cursor::new(bytes, offset, endian);
        if let Err(short) = data.read_body(&mut cursor) {
            data.is_cut = true;
            data.damage = Some(format!("tracing data: offset {:#x}: {short}", short.offset));
        }
        data.length = cursor.offset();
        data
    }

    fn read_body(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Short> {
        let start = *cursor;
        let is_headless = self.skip_header_page(cursor);
        let read = match is_headless {
            true => Err(Short {
                offset: start.offset(),
                wanted: HEADER_EVENT.len() as u64,
                left: 0,
            }),
            false => self.read_formats(cursor),
        };
        if read.is_err() || !self.are_formats() {
            let end = self.search(start.rest());
            if end == 0 {
                read?;
            }
            let offset = start.offset() + end as u64;
            self.lacks_formats = true;
            self.damage = Some(format!(
                "tracing data: offset {:#x}: the lengths of the format files are damaged; {} format files were found by their text",
                start.offset(),
                self.ftrace.len() + self.events.len()
            ));
            let rest = start.rest().get(end..).unwrap_or_default();
            *cursor = Cursor::new(rest, offset, self.endian);
        }
        let size = cursor.u32()?;
        self.kallsyms = cursor.bytes(size.into())?;
        let size = cursor.u32()?;
        self.printk_formats = cursor.bytes(size.into())?;
        if self.version.starts_with(b"0.") && self.version >= &b"0.6"[..] {
            let size = cursor.u64()?;
            self.saved_cmdlines = cursor.bytes(size)?;
        }
        Ok(())
    }

    fn read_formats(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Short> {
        self.read_header_info(cursor)?;
        self.read_ftrace_formats(cursor)?;
        self.read_event_formats(cursor)
    }

    /// Whether the parsed texts are format files.
    pub(crate) fn are_formats(&self) -> bool {
        let mut texts = self
            .ftrace
            .iter()
            .chain(self.events.iter().map(|(_, text)| text));
        texts.all(|text| text.is_empty() || text.starts_with(b"name:"))
    }

    /// Whether the parsed texts are whole format files: none continues as another one.
    pub(crate) fn are_whole(&self) -> bool {
        let texts = self.events.iter().map(|(_, text)| text);
        (self.ftrace.iter().chain(texts)).all(|text| length_of(text) == Some(text.len()))
    }

    /// Searches a section of trace.dat version 7: ftrace's own formats, or all others.
    pub(crate) fn search_section(&mut self, bytes: &'a [u8], is_ftrace: bool) {
        let found = find_texts(bytes, self.endian);
        let texts = found.events.iter().map(|(_, text)| *text);
        match is_ftrace {
            true => self.ftrace = found.ftrace.iter().copied().chain(texts).collect(),
            false => self.events = found.events,
        }
    }

    /// Takes the format files found by their text. Returns the end of the last one.
    pub(crate) fn search(&mut self, bytes: &'a [u8]) -> usize {
        let found = find_texts(bytes, self.endian);
        if found.ftrace.len() + found.events.len() >= self.ftrace.len() + self.events.len()
            || !self.are_formats()
        {
            (self.ftrace, self.events) = (found.ftrace, found.events);
        }
        found.end
    }

    /// Skips to `header_event` if the beginning is damaged. The rest of `header_page` precedes it and is parsed line by
    /// line.
    fn skip_header_page(&mut self, cursor: &mut Cursor<'a>) -> bool {
        let bytes = cursor.rest();
        if bytes.starts_with(b"header_page\0") {
            return false;
        }
        let front = bytes.get(..FRONT_BYTES).unwrap_or(bytes);
        let Some(place) = find_text(front, HEADER_EVENT) else {
            return false;
        };
        self.header_page = cursor.bytes(place as u64).unwrap_or_default();
        true
    }

    /// `header_page` and `header_event`, each with its size.
    pub(crate) fn read_header_info(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Short> {
        for _ in 0..2 {
            let name = cursor.text_to_nul();
            let size = cursor.u64()?;
            let text = cursor.bytes(size)?;
            match name {
                b"header_page" => self.header_page = text,
                _ => self.header_event = text,
            }
        }
        Ok(())
    }

    /// The number of ftrace's own formats, and each with its size.
    pub(crate) fn read_ftrace_formats(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Short> {
        for _ in 0..cursor.u32()? {
            let size = cursor.u64()?;
            self.ftrace.push(cursor.bytes(size)?);
        }
        Ok(())
    }

    /// The number of systems, and each with its name and formats.
    pub(crate) fn read_event_formats(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Short> {
        for _ in 0..cursor.u32()? {
            let system = cursor.text_to_nul();
            for _ in 0..cursor.u32()? {
                let size = cursor.u64()?;
                self.events.push((system, cursor.bytes(size)?));
            }
        }
        Ok(())
    }

    /// Parses every event's format, and returns systems and formats, ftrace's own first. Unreadable ones go to
    /// `damaged` with the reason.
    pub(crate) fn formats(
        &self,
        mut damaged: impl FnMut(&str, String),
    ) -> Vec<(String, EventFormat)> {
        let ftrace = self.ftrace.iter().map(|text| (&b"ftrace"[..], *text));
        let all = ftrace.chain(self.events.iter().copied());
        all.filter_map(|(system, text)| {
            let system = String::from_utf8_lossy(system).into_owned();
            match EventFormat::parse(text, self.long_size) {
                Ok(format) => Some((system, format)),
                Err(reason) => {
                    damaged(&system, reason);
                    None
                }
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.as_bytes());
    }

    fn sample() -> Vec<u8> {
        let mut bytes = TRACING_MAGIC.to_vec();
        bytes.extend(b"0.6\0\x01\x04\0\0\x10\0header_page\0");
        text(&mut bytes, "page");
        bytes.extend(b"header_event\0");
        text(&mut bytes, "event");
        bytes.extend(1u32.to_be_bytes());
        text(&mut bytes, "name: print\nID: 5\n");
        bytes.extend(1u32.to_be_bytes());
        bytes.extend(b"sched\0");
        bytes.extend(1u32.to_be_bytes());
        text(&mut bytes, "name: sched_switch\nID: 316\n");
        bytes.extend([0; 8]);
        text(&mut bytes, "7 sh\n");
        bytes
    }

    #[test]
    fn reads_a_big_endian_bundle() {
        let bytes = sample();
        let data = TracingData::parse(&bytes, 0).unwrap();
        assert_eq!(data.damage, None);
        assert_eq!((data.endian, data.long_size), (Endian::Big, 4));
        assert_eq!(data.saved_cmdlines, b"7 sh\n");
        assert_eq!(data.length, bytes.len() as u64);
        let formats = data.formats(|_, reason| panic!("{reason}"));
        let names: Vec<_> = formats
            .iter()
            .map(|(system, format)| format!("{system}:{} {}", format.name, format.id))
            .collect();
        assert_eq!(names, ["ftrace:print 5", "sched:sched_switch 316"]);
    }

    #[test]
    fn any_prefix_is_read_to_its_end() {
        let bytes = sample();
        assert!(TracingData::parse(&bytes[..9], 0).is_none());
        for length in TRACING_MAGIC.len()..bytes.len() {
            let data = TracingData::parse(&bytes[..length], 0).unwrap();
            assert!(data.damage.is_some(), "{length}");
            assert!(data.events.len() <= 1);
        }
    }
}
