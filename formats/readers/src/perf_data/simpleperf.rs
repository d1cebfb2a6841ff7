//! What simpleperf, Android's perf, adds: records from 32768 on, features from 128 on.
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

use crate::perf_data::read::Session;
use crate::perf_data::record::{HEADER_BYTES, RecordHeader, kind};

const FILE: u32 = 128;
const META_INFO: u32 = 129;
const FILE2: u32 = 132;

/// Most bytes of a record in pieces.
const SPLIT_BYTES_MAX: usize = 256 << 20;

/// Kinds of files (`enum DsoType`).
const DSO_KERNEL: u32 = 0;
const DSO_ELF: u32 = 2;

/// What is kept of simpleperf's own.
#[derive(Debug, Default)]
pub(super) struct Simpleperf {
    /// Names of events by type and config.
    names: HashMap<(u32, u64), String>,
    /// Pieces of a record that is longer than 64 KiB.
    split: Vec<u8>,
    /// Files that symbol records refer to: path and lowest address.
    files: HashMap<u64, Vec<u8>>,
}

impl Simpleperf {
    /// Name of an event, if the meta information tells it.
    pub(super) fn name(&self, kind: u32, config: u64) -> Option<&str> {
        self.names.get(&(kind, config)).map(String::as_str)
    }
}

impl Session<'_, '_> {
    /// Takes one of simpleperf's records.
    pub(super) fn simpleperf_record(
        &mut self,
        header: RecordHeader,
        mut body: Cursor<'_>,
    ) -> Result<(), Error> {
        let offset = body.offset();
        let result = match header.kind {
            kind::KERNEL_SYMBOL => match body.u32().and_then(|size| body.bytes(size.into())) {
                Ok(text) => return self.kallsyms(text),
                Err(short) => Err(short),
            },
            kind::DSO => self.file_record(body),
            kind::SYMBOL => return self.symbol_record(body),
            kind::SPLIT => return self.piece(body),
            kind::SPLIT_END => return self.whole_of_pieces(offset),
            kind::EVENT_ID => self.event_ids(body),
            kind::SIMPLEPERF_TRACING_DATA => match body.u32() {
                Ok(size) => {
                    let data = body.rest();
                    let data = data.get(..size as usize).unwrap_or(data);
                    return self.tracing_data(data, body.offset());
                }
                Err(short) => Err(short),
            },
            // How simpleperf's own unwinding went; the stacks are in the samples.
            kind::SIMPLEPERF_CALLCHAIN | kind::UNWINDING_RESULT | kind::DEBUG => Ok(()),
            unknown => {
                self.count_unknown(unknown);
                Ok(())
            }
        };
        match result {
            Ok(()) => Ok(()),
            Err(short) => self.short("record of simpleperf", short),
        }
    }

    /// `u64 type, id, min_vaddr; char path[]`.
    fn file_record(&mut self, mut body: Cursor<'_>) -> Result<(), Short> {
        body.u64()?;
        let id = body.u64()?;
        body.u64()?;
        let path = body.text_to_nul().to_vec();
        self.simpleperf.files.insert(id, path);
        Ok(())
    }

    /// `u64 addr, len, file id; char name[]`.
    fn symbol_record(&mut self, mut body: Cursor<'_>) -> Result<(), Error> {
        let mut read = || Ok((body.u64()?, body.u64()?, body.u64()?, body.text_to_nul()));
        let (start, length, file, name) = match read() {
            Ok(all) => all,
            Err(short) => return self.short("record of simpleperf", short),
        };
        let path = self.simpleperf.files.get(&file).map(Vec::as_slice);
        self.sink.event(Event::Symbol(Symbol {
            module: path.filter(|path| !path.starts_with(b"[kernel.kallsyms]")),
            start,
            length,
            name,
        }))
    }

    /// `u64 n; {u64 attr, u64 id}[n]`.
    fn event_ids(&mut self, mut body: Cursor<'_>) -> Result<(), Short> {
        for _ in 0..body.u64()? {
            let (attr, id) = (body.u64()?, body.u64()?);
            if attr < self.attrs.len() as u64 {
                self.ids.insert(id, attr as usize);
            }
        }
        Ok(())
    }

    /// A record longer than its size field can say comes in pieces …
    fn piece(&mut self, body: Cursor<'_>) -> Result<(), Error> {
        if self.simpleperf.split.len() + body.rest().len() > SPLIT_BYTES_MAX {
            self.simpleperf.split.clear();
            return self.problem(Place::Offset(body.offset()), "split record", || {
                format!("expected the end of a split record within {SPLIT_BYTES_MAX} bytes")
            });
        }
        self.simpleperf.split.extend_from_slice(body.rest());
        Ok(())
    }

    /// … which are put together here.
    fn whole_of_pieces(&mut self, offset: u64) -> Result<(), Error> {
        let bytes = std::mem::take(&mut self.simpleperf.split);
        let Some(header) = RecordHeader::parse(&bytes, self.endian) else {
            return Ok(());
        };
        // Its size field has overflowed unless it is one of simpleperf's own: the pieces are the truth.
        let is_piece = matches!(header.kind, kind::SPLIT | kind::SPLIT_END);
        if bytes.len() < HEADER_BYTES || is_piece || header.kind == kind::SAMPLE {
            return self.problem(Place::Offset(offset), "split record", || {
                format!(
                    "expected a complete split record, found type {}",
                    header.kind
                )
            });
        }
        let header = RecordHeader {
            size: bytes.len(),
            ..header
        };
        if header.kind < 64 {
            return self.record(header, &bytes, offset, None, &[]);
        }
        self.tool_record(header, &bytes, offset, &[])
    }

    /// Takes one of simpleperf's features.
    pub(super) fn simpleperf_feature(
        &mut self,
        bit: u32,
        mut body: Cursor<'_>,
    ) -> Result<(), Error> {
        match bit {
            META_INFO => self.meta_info(body),
            FILE | FILE2 => {
                while !body.is_empty() {
                    let part = body.u32().and_then(|size| body.part(size.into()));
                    let result = match part {
                        Ok(part) if bit == FILE => self.file(part)?,
                        Ok(part) => self.file_message(part.rest())?,
                        Err(short) => Err(short),
                    };
                    if let Err(short) = result {
                        return self.short("symbols of simpleperf", short);
                    }
                }
                Ok(())
            }
            // Unwinding errors, ETM branches: for simpleperf itself.
            _ => Ok(()),
        }
    }

    fn meta_info(&mut self, body: Cursor<'_>) -> Result<(), Error> {
        let mut parts = body.rest().split(|&byte| byte == 0);
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
            match &*key {
                "event_type_info" => self.event_names(&value),
                "clockid" if value != "perf" => {
                    self.sink.event(Event::Fact(Fact::Clock(&value)))?;
                }
                "simpleperf_version" => {
                    let text = format!("simpleperf {value}");
                    self.sink.event(Event::Fact(Fact::Recorder(&text)))?;
                }
                _ => {}
            }
            if !key.is_empty() {
                self.other_fact(&format!("simpleperf.{key}"), &value)?;
            }
        }
        Ok(())
    }

    /// Lines "name,type,config".
    fn event_names(&mut self, text: &str) {
        for line in text.lines() {
            let mut parts = line.rsplitn(3, ',');
            let (config, kind, name) = (parts.next(), parts.next(), parts.next());
            if let (Some(Ok(config)), Some(Ok(kind)), Some(name)) =
                (config.map(str::parse), kind.map(str::parse), name)
            {
                self.simpleperf.names.insert((kind, config), name.into());
            }
        }
    }

    /// FILE: one file with its symbols.
    fn file(&mut self, mut body: Cursor<'_>) -> Result<Result<(), Short>, Error> {
        let path = body.text_to_nul();
        let mut head = || Ok((body.u32()?, body.u64()?, body.u32()?));
        let (kind, min_vaddr, count) = match head() {
            Ok(all) => all,
            Err(short) => return Ok(Err(short)),
        };
        // The offset that turns addresses into offsets follows the symbols.
        let mut probe = body;
        for _ in 0..count {
            if let Err(short) = symbol(&mut probe) {
                return Ok(Err(short));
            }
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
            match symbol(&mut body) {
                Ok((vaddr, length, name)) => {
                    self.file_symbol(&place, vaddr, length.into(), name)?
                }
                Err(short) => return Ok(Err(short)),
            }
        }
        Ok(Ok(()))
    }

    /// FILE2: path=1, type=2, min_vaddr=3, symbols=4 {vaddr=1, len=2, name=3}, elf_file=6 {file_offset=1}.
    fn file_message(&mut self, message: &[u8]) -> Result<Result<(), Short>, Error> {
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
                        // protobuf leaves zeros out.
                        _ => Some(0),
                    };
                }
                _ => {}
            }
        }
        // Zero is left out, too: that is the kernel.
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
            self.file_symbol(&place, vaddr, length, name)?;
        }
        Ok(Ok(()))
    }

    fn file_symbol(
        &mut self,
        file: &File<'_>,
        vaddr: u64,
        length: u64,
        name: &[u8],
    ) -> Result<(), Error> {
        let start = match file.file_offset {
            Some(offset) => vaddr.wrapping_sub(file.min_vaddr).wrapping_add(offset),
            None => vaddr,
        };
        self.sink.event(Event::Symbol(Symbol {
            module: (file.kind != DSO_KERNEL).then_some(file.path),
            start,
            length,
            name,
        }))
    }
}

/// A file that symbols are told for.
struct File<'a> {
    path: &'a [u8],
    kind: u32,
    min_vaddr: u64,
    /// Offset in the file of `min_vaddr`.
    file_offset: Option<u64>,
}

fn symbol<'a>(body: &mut Cursor<'a>) -> Result<(u64, u32, &'a [u8]), Short> {
    Ok((body.u64()?, body.u32()?, body.text_to_nul()))
}

/// A protobuf message; iterates over its fields, and ends where it is damaged.
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
