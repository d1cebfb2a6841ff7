//! jitdump: a runtime's own record of its generated code, with times, code, names and lines.
//!
//! ```text
//! "JiTD", u32 version 1, u32 size of this head, u32 machine, u32 0, u32 pid, u64 time, u64 flags
//! u32 kind, u32 bytes, u64 time, …     0 LOAD: u32 pid, tid, u64 vma, address, bytes, index, name, NUL, code
//!                                      1 MOVE: u32 pid, tid, u64 vma, old address, address, bytes, index
//!                                      2 DEBUG_INFO of the next LOAD: u64 address, count, then of each line
//!                                        u64 address, u32 line, u32 0, file, NUL ("\xff": the same file)
//! ```
//! tools/perf/Documentation/jitdump-specification.txt. The runtime maps the file with PROT_EXEC, which shows a recorder
//! its path. A frame in such code is the file and the code's offset in it: so it is distinguished by time, and can be
//! named later. The file may be hostile, and may still grow.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use perfquet_events::bytes::{Cursor, Endian, Short};

use crate::symbols::demangle::demangle;
use crate::symbols::limits::{KEPT_FUNCTION_BYTES_MAX, MAP_FUNCTIONS_MAX};
use crate::symbols::{Name, Options};

const MAGIC: &[u8; 4] = b"DTiJ";
const SWAPPED: &[u8; 4] = b"JiTD";
const HEAD_BYTES: usize = 40;
const PREFIX_BYTES: u64 = 16;
const LOAD_BYTES: u64 = 56;
const MOVE_BYTES: u64 = 64;
/// Times are those of the CPU's cycle counter.
const ARCH_TIMESTAMP: u64 = 1;
/// Maximum size read of a name, or of a function's debug info.
const PART_MAX: u64 = 16 << 20;
/// Checking whether the file has grown costs a system call.
const CALLS_PER_LOOK: u32 = 4;

mod kind {
    pub(super) const LOAD: u32 = 0;
    pub(super) const MOVE: u32 = 1;
    pub(super) const DEBUG_INFO: u32 = 2;
}

/// Code was generated or moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// When.
    pub(crate) time: u64,
    /// Address of the code from then on.
    pub(crate) address: u64,
    /// Size of the code.
    pub(crate) bytes: u64,
    /// Its offset in the file.
    pub(crate) offset: u64,
}

/// The records of a file, in order.
struct Records {
    file: File,
    endian: Endian,
    machine: u16,
    flags: u64,
    at: u64,
    length: u64,
    /// A record that cannot be followed has been read.
    is_damaged: bool,
}

struct Record {
    kind: u32,
    bytes: u64,
    time: u64,
    /// Offset of the record in the file.
    at: u64,
}

impl Records {
    fn open(path: &Path) -> io::Result<Records> {
        let file = super::open(path)?;
        let wrong = |message: &str| io::Error::new(io::ErrorKind::InvalidData, message);
        let mut head = [0; HEAD_BYTES];
        file.read_exact_at(&mut head, 0)
            .map_err(|_| wrong("shorter than the head of a jitdump"))?;
        let endian = match head.first_chunk() {
            Some(MAGIC) => Endian::Little,
            Some(SWAPPED) => Endian::Big,
            _ => return Err(wrong("no jitdump")),
        };
        let mut cursor = Cursor::new(&head, 0, endian);
        let mut numbers = || -> Result<(u32, u32, u32, u64), Short> {
            cursor.u32()?;
            let (version, head_bytes) = (cursor.u32()?, cursor.u32()?);
            let machine = cursor.u32()?;
            cursor.bytes(16)?;
            Ok((version, head_bytes, machine, cursor.u64()?))
        };
        let (version, head_bytes, machine, flags) = numbers().map_err(|_| wrong("no jitdump"))?;
        if version != 1 || (head_bytes as usize) < HEAD_BYTES {
            return Err(wrong("a jitdump of another version than 1"));
        }
        Ok(Records {
            length: file.metadata()?.len(),
            file,
            endian,
            machine: u16::try_from(machine).unwrap_or_default(),
            flags,
            at: head_bytes.into(),
            is_damaged: false,
        })
    }

    /// The next record, if it is complete.
    fn peek(&mut self) -> Option<Record> {
        let at = self.at;
        let end_of_prefix = at.checked_add(PREFIX_BYTES)?;
        if self.is_damaged || end_of_prefix > self.length {
            return None;
        }
        let prefix = self.read(at, PREFIX_BYTES)?;
        let mut cursor = Cursor::new(&prefix, at, self.endian);
        let (kind, bytes) = (cursor.u32().ok()?, u64::from(cursor.u32().ok()?));
        let time = cursor.u64().ok()?;
        if bytes < PREFIX_BYTES {
            self.is_damaged = true;
            return None;
        }
        let is_whole = at.checked_add(bytes)? <= self.length;
        is_whole.then_some(Record {
            kind,
            bytes,
            time,
            at,
        })
    }

    fn pass(&mut self, record: &Record) {
        self.at = record.at + record.bytes;
    }

    fn read(&self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        let mut read = vec![0; usize::try_from(bytes.min(PART_MAX)).ok()?];
        self.file.read_exact_at(&mut read, at).ok()?;
        Some(read)
    }

    /// Of a LOAD: address, bytes, index.
    fn load(&self, record: &Record) -> Option<(u64, u64, u64)> {
        if record.bytes < LOAD_BYTES {
            return None;
        }
        let body = self.read(record.at, LOAD_BYTES)?;
        let mut cursor = Cursor::new(body.get(32..)?, record.at, self.endian);
        let (address, bytes, index) = (cursor.u64().ok()?, cursor.u64().ok()?, cursor.u64().ok()?);
        // The code is the last part of the record.
        (bytes <= record.bytes - LOAD_BYTES).then_some((address, bytes, index))
    }

    /// Of a MOVE: new address, bytes, index.
    fn moved(&self, record: &Record) -> Option<(u64, u64, u64)> {
        if record.bytes < MOVE_BYTES {
            return None;
        }
        let body = self.read(record.at, MOVE_BYTES)?;
        let mut cursor = Cursor::new(body.get(40..)?, record.at, self.endian);
        Some((cursor.u64().ok()?, cursor.u64().ok()?, cursor.u64().ok()?))
    }
}

/// The code of a function in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DumpedCode {
    /// Offset of its first byte in the file.
    pub(crate) start: u64,
    /// Address at which it was generated.
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Machine number of ELF.
    pub(crate) machine: u16,
    /// Its beginning, as far as code is kept.
    pub(crate) code: Vec<u8>,
}

/// Follows the locations of code, in time order.
pub(crate) struct Follower {
    records: Records,
    /// The next record, once it is there: samples come far more often.
    next: Option<Record>,
    /// The file offset of each index's code.
    offsets: HashMap<u64, u64>,
    calls: u32,
}

impl Follower {
    /// Opens the file named in a trace.
    pub(crate) fn open(path: &str, options: &Options) -> Result<Follower, String> {
        let places = super::Generated::new(options, super::Origin::default()).places;
        let records = super::first(places.of_dump(Path::new(path)), |candidate| {
            let records = Records::open(candidate)?;
            if records.flags & ARCH_TIMESTAMP != 0 {
                let message = "its times are those of the CPU's counter";
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
            Ok(records)
        })?;
        Ok(Follower {
            records,
            next: None,
            offsets: HashMap::new(),
            calls: 0,
        })
    }

    /// The next change up to a time.
    pub(crate) fn next_until(&mut self, time: u64) -> Option<Change> {
        loop {
            let Some(record) = self.next.take().or_else(|| self.records.peek()) else {
                self.look_again();
                return None;
            };
            if record.time > time {
                self.next = Some(record);
                return None;
            }
            self.records.pass(&record);
            let change = match record.kind {
                kind::LOAD => self.loaded(&record),
                kind::MOVE => self.moved(&record),
                _ => None,
            };
            if change.is_some() {
                return change;
            }
        }
    }

    fn loaded(&mut self, record: &Record) -> Option<Change> {
        let (address, bytes, index) = self.records.load(record)?;
        let offset = record.at + record.bytes - bytes;
        self.offsets.insert(index, offset);
        Some(Change {
            time: record.time,
            address,
            bytes,
            offset,
        })
    }

    fn moved(&mut self, record: &Record) -> Option<Change> {
        let (address, bytes, index) = self.records.moved(record)?;
        let &offset = self.offsets.get(&index)?;
        Some(Change {
            time: record.time,
            address,
            bytes,
            offset,
        })
    }

    /// Checks for growth: the file may be written during the import.
    fn look_again(&mut self) {
        self.calls += 1;
        if self.calls >= CALLS_PER_LOOK {
            self.calls = 0;
            if let Ok(metadata) = self.records.file.metadata() {
                self.records.length = metadata.len();
            }
        }
    }
}

/// The functions of a whole file, by the offset of their code.
pub(super) struct Dump {
    functions: BTreeMap<u64, Function>,
    records: Records,
    /// The last code at each address: its end, and the offset of its code.
    last: Option<BTreeMap<u64, (u64, u64)>>,
}

/// A function's code; name and lines are read on request.
struct Function {
    bytes: u64,
    address: u64,
    /// Offset of the record with its name, and of that with its lines.
    load: (u64, u64),
    lines: Option<(u64, u64)>,
}

impl Dump {
    /// Reads the locations of the functions.
    pub(super) fn open(path: &Path) -> io::Result<Dump> {
        let mut records = Records::open(path)?;
        let mut functions = BTreeMap::new();
        let mut lines: Option<(u64, u64)> = None;
        while let Some(record) = records.peek()
            && (functions.len() as u64) < MAP_FUNCTIONS_MAX
        {
            records.pass(&record);
            let place = (record.at, record.bytes);
            match record.kind {
                kind::DEBUG_INFO => lines = Some(place),
                kind::LOAD => {
                    if let Some((address, bytes, _)) = records.load(&record) {
                        let function = Function {
                            bytes,
                            address,
                            load: place,
                            lines: lines.take(),
                        };
                        functions.insert(record.at + record.bytes - bytes, function);
                    }
                }
                _ => {}
            }
        }
        Ok(Dump {
            functions,
            records,
            last: None,
        })
    }

    /// The function at an offset of the file; its own offset is relative to `offset`.
    pub(super) fn name(&self, code: u64, offset: u64) -> Option<Name> {
        let (&start, function) = self.functions.range(..=code).next_back()?;
        if code - start >= function.bytes {
            return None;
        }
        let (at, bytes) = function.load;
        let text_bytes = (bytes - LOAD_BYTES).checked_sub(function.bytes)?;
        let text = self.records.read(at + LOAD_BYTES, text_bytes)?;
        let address = function.address.wrapping_add(code - start);
        let line = function.lines.and_then(|place| self.line(place, address));
        let (file, line) = line.unzip();
        Some(Name {
            function: demangle(perfquet_events::bytes::before_nul(&text)),
            function_offset: Some(offset.wrapping_sub(start)),
            file,
            line,
            is_unverified: false,
        })
    }

    /// The function at an offset of the file, with its code.
    pub(super) fn code(&self, offset: u64) -> Option<DumpedCode> {
        let (&start, function) = self.functions.range(..=offset).next_back()?;
        if offset - start >= function.bytes {
            return None;
        }
        let kept = function.bytes.min(KEPT_FUNCTION_BYTES_MAX);
        Some(DumpedCode {
            start,
            address: function.address,
            size: function.bytes,
            machine: self.records.machine,
            code: self.records.read(start, kept)?,
        })
    }

    /// Start and end of the last function at an address of the process.
    pub(super) fn range_at(&mut self, address: u64) -> Option<(u64, u64)> {
        let (&start, &(end, _)) = self.last().range(..=address).next_back()?;
        (address < end).then_some((start, end))
    }

    /// The last function at an address of the process.
    pub(super) fn name_at(&mut self, code: u64, address: u64) -> Option<Name> {
        let (&start, &(end, offset)) = self.last().range(..=code).next_back()?;
        let place = |address: u64| offset.wrapping_add(address.wrapping_sub(start));
        (code < end).then(|| self.name(place(code), place(address)))?
    }

    fn last(&mut self) -> &BTreeMap<u64, (u64, u64)> {
        self.last.get_or_insert_with(|| {
            let mut last = BTreeMap::new();
            for (&offset, function) in &self.functions {
                let end = function.address.saturating_add(function.bytes);
                if end > function.address {
                    super::make_room(&mut last, function.address, end);
                    last.insert(function.address, (end, offset));
                }
            }
            last
        })
    }

    /// The last line that begins at or before an address.
    fn line(&self, (at, bytes): (u64, u64), address: u64) -> Option<(String, u32)> {
        let body = self.records.read(at, bytes)?;
        let mut cursor = Cursor::new(body.get(24..)?, at, self.records.endian);
        let count = cursor.u64().ok()?;
        let mut file: &[u8] = b"";
        let mut best: Option<(u64, &[u8], u32)> = None;
        for _ in 0..count {
            let (Ok(start), Ok(line), Ok(_)) = (cursor.u64(), cursor.u32(), cursor.u32()) else {
                break;
            };
            let name = cursor.text_to_nul();
            // A NUL follows.
            if name != b"\xff" {
                file = name;
            }
            if start <= address && best.is_none_or(|(known, ..)| known <= start) {
                best = Some((start, file, line));
            }
        }
        let (_, file, line) = best?;
        Some((String::from_utf8_lossy(file).into_owned(), line))
    }
}

#[cfg(test)]
#[path = "dump_tests.rs"]
mod tests;
