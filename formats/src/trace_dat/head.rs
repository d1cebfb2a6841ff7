//! What both versions begin with, and what both are taken apart into.

use crate::bytes::{Cursor, Endian, Short};
use crate::event_format::{TRACING_MAGIC, TracingData};
use crate::trace_dat::options::Options;

/// The first bytes of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'m> {
    /// "6", "7"
    pub(super) version: &'m [u8],
    pub(super) endian: Endian,
    /// Size of `long` of the recorder; the kernel's is told by header_page.
    pub(super) long_size: u8,
    pub(super) page_size: u32,
    /// Bytes taken.
    pub(super) length: u64,
}

impl<'m> Head<'m> {
    /// Reads the part that all versions have.
    pub(super) fn parse(bytes: &'m [u8]) -> Result<Head<'m>, Short> {
        let mut cursor = Cursor::new(bytes, 0, Endian::Little);
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
        })
    }
}

/// A file taken apart.
pub(super) struct Opened<'s> {
    /// Format files, kallsyms, printk formats, command lines.
    pub(super) texts: TracingData<'s>,
    pub(super) options: Options<'s>,
    /// The ring buffers with their events: the top one, then the instances.
    pub(super) buffers: Vec<Buffer>,
    /// Texts of `trace` that lie where the events should be (latency tracers).
    pub(super) reports: Vec<Report<'s>>,
    /// What packs it: "zstd", "zlib", "none"; empty in version 6.
    pub(super) packed_by: &'s [u8],
}

/// A ring buffer: that of the top, or of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Buffer {
    /// Empty for the top one.
    pub(super) name: Vec<u8>,
    /// Name of its clock; empty if not told.
    pub(super) clock: Vec<u8>,
    /// Bytes of a page of the ring.
    pub(super) page_size: u64,
    pub(super) cpus: Vec<CpuData>,
}

/// The pages of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuData {
    /// `None`: found in a damaged file, of which CPU is not told.
    pub(super) cpu: Option<u32>,
    /// Which file: 0 is the trace.dat itself, the others lie beside it.
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// In chunks, whose own heads are to be trusted more than `size`.
    pub(super) packed: bool,
}

/// The text of a latency tracer.
pub(super) struct Report<'s> {
    pub(super) offset: u64,
    pub(super) text: std::borrow::Cow<'s, [u8]>,
}
