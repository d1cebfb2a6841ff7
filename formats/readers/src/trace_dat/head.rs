//! The head that both versions share, and the common result of parsing either.

use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_events::scan::find_text;

use crate::trace_dat::options::Options;
use crate::tracing_data::{FRONT_BYTES, HEADER_EVENT, TRACING_MAGIC, TracingData};

/// The first bytes of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'m> {
    /// "6", "7"
    pub(super) version: &'m [u8],
    pub(super) endian: Endian,
    /// Size of `long` on the recorder; header_page has that of the kernel.
    pub(super) long_size: u8,
    pub(super) page_size: u32,
    /// Number of bytes parsed.
    pub(super) length: u64,
    /// The head was missing: version 6 begins with `header_page`, version 7 with its sections.
    pub(super) is_guessed: bool,
}

impl<'m> Head<'m> {
    /// Parses the part common to all versions.
    pub(super) fn parse(bytes: &'m [u8]) -> Result<Head<'m>, Short> {
        let mut cursor = Cursor::new(bytes, 0, Endian::Little);
        // A file without the magic was recognized by other signs.
        if !(bytes.starts_with(TRACING_MAGIC) && is_begun_well(bytes))
            && let Some(head) = Head::find(bytes)
        {
            return Ok(head);
        }
        cursor.bytes(TRACING_MAGIC.len() as u64)?;
        let version = cursor.text_to_nul();
        let endian = match cursor.u8()? {
            0 => Endian::Little,
            _ => Endian::Big,
        };
        let long_size = match cursor.u8()? {
            4 => 4,
            _ => 8,
        };
        let mut cursor = Cursor::new(cursor.rest(), cursor.offset(), endian);
        let page_size = cursor.u32()?;
        Ok(Head {
            version,
            endian,
            long_size,
            page_size,
            length: cursor.offset(),
            is_guessed: false,
        })
    }

    /// Reconstructs the head of a file whose first bytes are damaged: a byte lost or duplicated before the version, or
    /// the whole head overwritten.
    pub(super) fn find(bytes: &'m [u8]) -> Option<Head<'m>> {
        let front = bytes.get(..FRONT_BYTES.min(bytes.len()))?;
        let begin = front.get(..32)?;
        let version = find_text(begin, b"racing6\0").or_else(|| find_text(begin, b"racing7\0"));
        if let Some(place) = version {
            let version = place + b"racing".len();
            return Self::parse_from(bytes, version);
        }
        // Unpacked sections contain the same strings as version 6.
        let endians = [Endian::Little, Endian::Big];
        if let Some(endian) = endians.iter().find(|endian| has_sections(bytes, **endian)) {
            return Some(Self::guessed(b"7", *endian, 0));
        }
        // Unpacked format files may be longer than the front, and the sections after them further on.
        if bytes.len() > FRONT_BYTES
            && let Some(endian) = endians.iter().find(|endian| is_version7(bytes, **endian))
        {
            return Some(Self::guessed(b"7", *endian, 0));
        }
        // Reading begins at `header_page`; only some lines before `header_event` may be left.
        let page = find_text(front, HEADER_PAGE).map(|place| (place, place + HEADER_PAGE.len()));
        let event = || find_text(front, HEADER_EVENT).map(|place| (0, place + HEADER_EVENT.len()));
        if let Some((length, size)) = page.or_else(event) {
            let size = bytes.get(size..)?;
            let endian = endians.iter().find(|endian| is_text(size, **endian))?;
            return Some(Self::guessed(b"6", *endian, length as u64));
        }
        // Only some of the format files may be left.
        let endian = endians.iter().find(|endian| has_format(front, **endian))?;
        Some(Self::guessed(b"6", *endian, 0))
    }

    fn parse_from(bytes: &'m [u8], version: usize) -> Option<Head<'m>> {
        let rest = bytes.get(version..)?;
        let mut cursor = Cursor::new(rest, version as u64, Endian::Little);
        let version = cursor.text_to_nul();
        let endian = match cursor.u8().ok()? {
            0 => Endian::Little,
            _ => Endian::Big,
        };
        let long_size = cursor.u8().ok()?;
        let mut cursor = Cursor::new(cursor.rest(), cursor.offset(), endian);
        Some(Head {
            version,
            endian,
            long_size: if long_size == 4 { 4 } else { 8 },
            page_size: cursor.u32().ok()?,
            length: cursor.offset(),
            is_guessed: false,
        })
    }

    fn guessed(version: &'static [u8], endian: Endian, length: u64) -> Head<'m> {
        Head {
            version,
            endian,
            long_size: 8,
            page_size: 4096,
            length,
            is_guessed: true,
        }
    }
}

/// Whether the magic is followed by a version, known or not, a byte order and a size of `long`.
fn is_begun_well(bytes: &[u8]) -> bool {
    let rest = bytes.get(TRACING_MAGIC.len()..).unwrap_or_default();
    let mut cursor = Cursor::new(rest, 0, Endian::Little);
    let version = cursor.text_to_nul();
    let is_version = matches!(version, [b'0'..=b'9'] | [b'0', b'.', ..]);
    is_version && cursor.u8().is_ok_and(|order| order <= 1) && matches!(cursor.u8(), Ok(4 | 8))
}

const HEADER_PAGE: &[u8] = b"header_page\0";

/// Whether the size of a text is here. The number of formats follows `header_event`; another text follows
/// `header_page`.
fn is_text(bytes: &[u8], endian: Endian) -> bool {
    let mut cursor = Cursor::new(bytes, 0, endian);
    let size = cursor.u64().ok().filter(|size| *size < 1 << 16);
    let is_whole = size.is_some_and(|size| cursor.bytes(size).is_ok());
    // The following data may be truncated.
    is_whole
        && (cursor.rest().starts_with(HEADER_EVENT)
            || cursor.u32().is_ok_and(|count| count < 1 << 16)
            || cursor.is_empty())
}

/// Whether a format file is here after its size: `u64 size, "name: sched_switch\nID: 316\nformat:\n…"`. Its end may be cut.
fn has_format(bytes: &[u8], endian: Endian) -> bool {
    const NAME: &[u8] = b"name: ";
    let mut from = 0;
    while let Some(rest) = bytes.get(from..)
        && let Some(skipped) = find_text(rest, NAME)
    {
        let start = from + skipped;
        from = start + NAME.len();
        let size = start.checked_sub(8).and_then(|size| bytes.get(size..));
        let size = size.and_then(|size| Cursor::new(size, 0, endian).u64().ok());
        let Some(size) = size.filter(|size| (64..1 << 16).contains(size)) else {
            continue;
        };
        let text = bytes.get(start..).unwrap_or_default();
        let text = text.get(..size as usize).unwrap_or(text);
        if find_text(text, b"\nID: ").is_some() && find_text(text, b"\nformat:\n\tfield:").is_some()
        {
            return true;
        }
    }
    false
}

/// Whether a file without its first bytes has format files, but not the table of version 6, and sections after the format files.
fn is_version7(bytes: &[u8], endian: Endian) -> bool {
    let is_table = |tag: &[u8]| find_text(bytes, tag).is_some();
    let front = bytes.get(..FRONT_BYTES).unwrap_or(bytes);
    let formats = bytes.get(..FORMATS_BYTES_MAX).unwrap_or(bytes);
    has_format(front, endian)
        && !is_table(b"flyrecord\0")
        && !is_table(b"latency  \0")
        && has_sections_in(bytes, formats.len(), endian)
}

/// More than the format files of a whole kernel.
const FORMATS_BYTES_MAX: usize = 16 << 20;

/// Whether two consecutive sections of version 7 begin near the front: `u16 id, u16 flags, u32 name, u64 size`. Their IDs and the
/// offsets of their names rise: other tables of numbers (message catalogs, archives of objects) have heads of the right size, too.
fn has_sections(bytes: &[u8], endian: Endian) -> bool {
    has_sections_in(bytes, FRONT_BYTES.min(bytes.len()), endian)
}

fn has_sections_in(bytes: &[u8], searched: usize, endian: Endian) -> bool {
    let head = |offset: usize| {
        let mut cursor = Cursor::new(bytes.get(offset..)?, 0, endian);
        let (id, flags, name, size) = (
            cursor.u16().ok()?,
            cursor.u16().ok()?,
            cursor.u32().ok()?,
            cursor.u64().ok()?,
        );
        let is_one = (15..=25).contains(&id) && flags <= 1 && name < 1 << 16 && size > 0;
        let next = offset + 16 + usize::try_from(size).ok().filter(|&size| size < 1 << 32)?;
        is_one.then_some((id, name, next))
    };
    // Sections may be absent, and their names are as short as `file kallsyms`.
    let follows = |first: (u16, u32, usize), second: (u16, u32, usize)| {
        let distance = second.1.checked_sub(first.1);
        (1..=3).contains(&(i32::from(second.0) - i32::from(first.0)))
            && distance.is_some_and(|distance| distance < 64 && (distance > 0) == (second.1 > 0))
    };
    (0..searched).any(|offset| {
        head(offset).is_some_and(|first| head(first.2).is_some_and(|next| follows(first, next)))
    })
}

/// A parsed file.
pub(super) struct Opened<'s> {
    /// Format files, kallsyms, printk formats, command lines.
    pub(super) texts: TracingData<'s>,
    pub(super) options: Options<'s>,
    /// The ring buffers with events: the top-level one, then the instances.
    pub(super) buffers: Vec<Buffer>,
    /// Texts of `trace` in place of events (latency tracers).
    pub(super) reports: Vec<Report<'s>>,
    /// Distance by which the end of the events is moved, in a file that has lost or gained bytes.
    pub(super) drift: i64,
    /// Compression of the file: "zstd", "zlib", "none"; empty in version 6.
    pub(super) packed_by: &'s [u8],
}

/// The ring buffer of the top level or of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Buffer {
    /// Empty for the top level.
    pub(super) name: Vec<u8>,
    /// Name of its clock; empty if not given.
    pub(super) clock: Vec<u8>,
    /// Size of a ring buffer page in bytes.
    pub(super) page_size: u64,
    pub(super) cpus: Vec<CpuData>,
}

/// The pages of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuData {
    /// `None`: found in a damaged file that does not state the CPU.
    pub(super) cpu: Option<u32>,
    /// Index of the file: 0 is the trace.dat itself, the others are in the same directory.
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Packed into chunks, whose own heads are more reliable than `size`.
    pub(super) packed: bool,
}

/// The text of a latency tracer.
pub(super) struct Report<'s> {
    pub(super) offset: u64,
    pub(super) text: std::borrow::Cow<'s, [u8]>,
}
