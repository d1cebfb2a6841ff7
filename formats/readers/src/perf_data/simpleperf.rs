//! Extensions of simpleperf, Android's perf: records from 32768 on, features from 128 on.
//!
//! ```text
//! META_INFO   key NUL value NUL …: event_type_info = "cycles,0,0\nsched:sched_switch,2,45", clockid, …
//! FILE        {u32 size; path NUL, u32 type, u64 min_vaddr, u32 n, {u64 vaddr, u32 size, name NUL}[n], …}
//! FILE2       {u32 size; the same as a protobuf message}
//! ```
//! AOSP system/extras/simpleperf: record_file_format.h, record.h, record_file.proto. Symbols come with the file, because
//! the device is elsewhere.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_events::event::{Event, Fact, Place, Symbol};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::formats::{Formats, kallsyms};
use crate::perf_data::output::{Fault, Output, missing};
use crate::perf_data::record::{RecordHeader, kind};

const FILE: u32 = 128;
const META_INFO: u32 = 129;
const FILE2: u32 = 132;

/// Maximum size of a split record.
const SPLIT_BYTES_MAX: usize = 256 << 20;

/// Kinds of files (`enum DsoType`).
const DSO_KERNEL: u32 = 0;
const DSO_ELF: u32 = 2;

/// Data that records of simpleperf refer to.
#[derive(Debug, Default)]
pub(super) struct Simpleperf {
    /// Pieces of a record longer than 64 KiB.
    pieces: Vec<u8>,
    /// The pieces became too long: the rest of this record is skipped.
    is_skipping: bool,
    /// Paths of files, which symbol records reference by ID.
    files: HashMap<u64, Vec<u8>>,
}

impl Simpleperf {
    /// DSO: `u64 type, id, min_vaddr; char path[]`.
    pub(super) fn add_file(&mut self, mut body: Cursor<'_>) -> Result<(), Short> {
        body.u64()?;
        let id = body.u64()?;
        body.u64()?;
        let path = body.text_to_nul().to_vec();
        self.files.insert(id, path);
        Ok(())
    }

    /// SYMBOL: `u64 addr, len, file id; char name[]`.
    pub(super) fn symbol(&self, mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
        let (start, length, file) = (body.u64()?, body.u64()?, body.u64()?);
        let name = body.text_to_nul();
        let path = self.files.get(&file).map(Vec::as_slice);
        out.event(Event::Symbol(Symbol {
            module: path.filter(|path| !path.starts_with(b"[kernel.kallsyms]")),
            start,
            length,
            name,
            line: None,
        }))?;
        Ok(())
    }

    /// SPLIT: a piece of a record too long for its size field.
    pub(super) fn add_piece(
        &mut self,
        body: Cursor<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        if self.is_skipping {
            return Ok(());
        }
        if self.pieces.len() + body.rest().len() > SPLIT_BYTES_MAX {
            self.pieces.clear();
            self.is_skipping = true;
            return out.problem(Place::Offset(body.offset()), "split record", || {
                format!("expected the end of a split record within {SPLIT_BYTES_MAX} bytes")
            });
        }
        self.pieces.extend_from_slice(body.rest());
        Ok(())
    }

    /// SPLIT_END: assembles the pieces.
    pub(super) fn take_record(
        &mut self,
        offset: u64,
        endian: Endian,
        out: &mut Output<'_>,
    ) -> Result<Option<(RecordHeader, Vec<u8>)>, Error> {
        let bytes = std::mem::take(&mut self.pieces);
        if std::mem::take(&mut self.is_skipping) {
            return Ok(None);
        }
        let Some(header) = RecordHeader::parse(&bytes, endian) else {
            out.problem(Place::Offset(offset), "split record", || {
                format!(
                    "expected the pieces of a record, found {} bytes",
                    bytes.len()
                )
            })?;
            return Ok(None);
        };
        // simpleperf splits only its own records: a kernel record has a 16-bit size, which the queue would use.
        let is_piece = matches!(header.kind, kind::SPLIT | kind::SPLIT_END);
        if header.kind < kind::SIMPLEPERF_FIRST || is_piece {
            out.problem(Place::Offset(offset), "split record", || {
                format!(
                    "expected a record of simpleperf in pieces, found {} bytes of type {}",
                    bytes.len(),
                    header.kind
                )
            })?;
            return Ok(None);
        }
        let header = RecordHeader {
            size: bytes.len(),
            ..header
        };
        Ok(Some((header, bytes)))
    }

    /// Ends the input: reports pieces without an end.
    pub(super) fn finish(&self, out: &mut Output<'_>) -> Result<(), Error> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        let length = self.pieces.len();
        out.problem(Place::Whole, "split record", || {
            format!("expected the end of a split record, found {length} bytes of it and the end of the input")
        })
    }
}

/// KERNEL_SYMBOL: `u32 size`, then a /proc/kallsyms.
pub(super) fn kernel_symbols(mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
    let size = body.u32()?;
    kallsyms(body.bytes(size.into())?, out)?;
    Ok(())
}

/// EVENT_ID: `u64 n; {u64 attr, u64 id}[n]`.
pub(super) fn event_ids(mut body: Cursor<'_>, catalog: &mut Catalog) -> Result<(), Short> {
    for _ in 0..body.u64()? {
        let (attr, id) = (body.u64()?, body.u64()?);
        catalog.add_id(id, usize::try_from(attr).unwrap_or(usize::MAX));
    }
    Ok(())
}

/// TRACING_DATA: `u32 size`, then the data.
pub(super) fn tracing_data(
    mut body: Cursor<'_>,
    formats: &mut Formats,
    out: &mut Output<'_>,
) -> Result<(), Fault> {
    let size = body.u32()?;
    let data = body.rest();
    let data = data.get(..size as usize).unwrap_or(data);
    formats.add(data, body.offset(), out)?;
    Ok(())
}

/// Reads one of simpleperf's features.
pub(super) fn feature(
    bit: u32,
    mut body: Cursor<'_>,
    names: &mut HashMap<(u32, u64), String>,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    match bit {
        META_INFO => meta_info(body, names, out),
        FILE | FILE2 => {
            while !body.is_empty() {
                if let Some(short) = missing(next_file(bit, &mut body, out))? {
                    return out.short("symbols of simpleperf", short);
                }
            }
            Ok(())
        }
        // Unwinding errors, ETM branches: for simpleperf itself.
        _ => Ok(()),
    }
}

fn next_file(bit: u32, body: &mut Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
    let size = body.u32()?;
    let part = body.part(size.into())?;
    match bit {
        FILE => file(part, out),
        _ => file_message(part.rest(), out),
    }
}

fn meta_info(
    body: Cursor<'_>,
    names: &mut HashMap<(u32, u64), String>,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    let mut parts = body.rest().split(|&byte| byte == 0);
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        match &*key {
            "event_type_info" => names.extend(value.lines().filter_map(event_name)),
            "clockid" if value != "perf" => out.fact(Fact::Clock(&value))?,
            "simpleperf_version" => {
                let text = format!("simpleperf {value}");
                out.fact(Fact::Recorder(&text))?;
            }
            _ => {}
        }
        if !key.is_empty() {
            out.other_fact(&format!("simpleperf.{key}"), &value)?;
        }
    }
    Ok(())
}

/// `name,type,config`.
fn event_name(line: &str) -> Option<((u32, u64), String)> {
    let mut parts = line.rsplitn(3, ',');
    let config = parts.next()?.parse().ok()?;
    let kind = parts.next()?.parse().ok()?;
    Some(((kind, config), parts.next()?.into()))
}

/// FILE: one file with its symbols.
fn file(mut body: Cursor<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
    let path = body.text_to_nul();
    let (kind, min_vaddr, count) = (body.u32()?, body.u64()?, body.u32()?);
    // The offset that converts addresses to file offsets follows the symbols.
    let mut probe = body;
    for _ in 0..count {
        symbol(&mut probe)?;
    }
    let file_offset = match kind {
        DSO_ELF => probe.u64().ok().filter(|&offset| offset != u64::MAX),
        _ => None,
    };
    let place = File {
        path,
        kind,
        min_vaddr,
        file_offset,
    };
    for _ in 0..count {
        let (vaddr, length, name) = symbol(&mut body)?;
        file_symbol(&place, vaddr, length.into(), name, out)?;
    }
    Ok(())
}

/// FILE2: path=1, type=2, min_vaddr=3, symbols=4 {vaddr=1, len=2, name=3}, elf_file=6 {file_offset=1}.
fn file_message(message: &[u8], out: &mut Output<'_>) -> Result<(), Fault> {
    let mut place = File {
        path: b"",
        kind: u32::MAX,
        min_vaddr: 0,
        file_offset: None,
    };
    for (number, value) in Message(message) {
        match (number, value) {
            (1, Part::Bytes(path)) => place.path = path,
            (2, Part::Number(kind)) => place.kind = kind as u32,
            (3, Part::Number(min_vaddr)) => place.min_vaddr = min_vaddr,
            (6, Part::Bytes(elf)) => {
                let offset = Message(elf).find(|(number, _)| *number == 1);
                place.file_offset = match offset {
                    Some((_, Part::Number(offset))) => Some(offset),
                    // protobuf omits zeros.
                    _ => Some(0),
                };
            }
            _ => {}
        }
    }
    // An omitted kind is zero, the kernel.
    if place.kind == u32::MAX {
        place.kind = DSO_KERNEL;
    }
    for (number, value) in Message(message) {
        let (4, Part::Bytes(symbol)) = (number, value) else {
            continue;
        };
        let (mut vaddr, mut length, mut name) = (0, 0, &b""[..]);
        for (number, value) in Message(symbol) {
            match (number, value) {
                (1, Part::Number(value)) => vaddr = value,
                (2, Part::Number(value)) => length = value,
                (3, Part::Bytes(value)) => name = value,
                _ => {}
            }
        }
        file_symbol(&place, vaddr, length, name, out)?;
    }
    Ok(())
}

fn file_symbol(
    file: &File<'_>,
    vaddr: u64,
    length: u64,
    name: &[u8],
    out: &mut Output<'_>,
) -> Result<(), Error> {
    let start = match file.file_offset {
        Some(offset) => vaddr.wrapping_sub(file.min_vaddr).wrapping_add(offset),
        None => vaddr,
    };
    out.event(Event::Symbol(Symbol {
        module: (file.kind != DSO_KERNEL).then_some(file.path),
        start,
        length,
        name,
        line: None,
    }))
}

/// A file with symbols.
struct File<'a> {
    path: &'a [u8],
    kind: u32,
    min_vaddr: u64,
    /// File offset of `min_vaddr`.
    file_offset: Option<u64>,
}

fn symbol<'a>(body: &mut Cursor<'a>) -> Result<(u64, u32, &'a [u8]), Short> {
    Ok((body.u64()?, body.u32()?, body.text_to_nul()))
}

/// A protobuf message. Iterates over its fields, up to the first damaged one.
struct Message<'a>(&'a [u8]);

enum Part<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Iterator for Message<'a> {
    type Item = (u64, Part<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let part = match key & 7 {
            0 => Part::Number(self.varint()?),
            1 => Part::Number(Endian::Little.u64_at(self.bytes(8)?, 0)?),
            2 => {
                let length = self.varint()?;
                Part::Bytes(self.bytes(length)?)
            }
            5 => Part::Number(Endian::Little.u32_at(self.bytes(4)?, 0)?.into()),
            _ => return None,
        };
        Some((key >> 3, part))
    }
}

impl<'a> Message<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        let bytes = b"\x0a\x02ab\x10\xac\x02\x1d\x01\0\0\0\x22\x7f";
        let parts: Vec<_> = Message(bytes)
            .map(|(number, part)| match part {
                Part::Number(value) => format!("{number}={value}"),
                Part::Bytes(bytes) => format!("{number}={bytes:?}"),
            })
            .collect();
        assert_eq!(parts, ["1=[97, 98]", "2=300", "3=1"]);
    }
}
