//! Files of a zip archive.
//!
//! ```text
//! PK\3\4 version flags method time crc sizes name extra, then the bytes      for each file
//! PK\1\2 … the same, and the offset of the file                              the directory: for each file
//! PK\6\6 …, PK\6\7 …                                                         its place, if it needs 64 bits
//! PK\5\6 … entries, size and offset of the directory, comment                the end
//! ```
//! Specification: <https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT>, items 4.3 and 4.5. Read are stored, deflated and
//! zstd-compressed files, also with 64-bit sizes and after other bytes (self-extracting archives). Of an archive without its directory,
//! the files up to the cut are found by their heads.
//!
//! Files that overlap are refused: an archive of some kilobytes could otherwise have petabytes.

use std::io::Read;
use std::ops::Range;

use super::{Check, Flaw, MEMBERS_MAX, Member, Method, name_of};
use crate::bytes::{Cursor, Endian, Short};

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const END_64: &[u8] = b"PK\x06\x06";
const LOCATOR_64: &[u8] = b"PK\x06\x07";
/// Precedes the parts of an archive that was split, and of one that could have been.
const SPANNED: [&[u8]; 2] = [b"PK\x07\x08PK\x03\x04", b"PK00PK\x03\x04"];
const LOCAL_BYTES: usize = 30;
const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
/// Longest comment after the end.
const COMMENT_BYTES: usize = u16::MAX as usize;
/// Extra field with 64-bit sizes.
const EXTRA_64: u16 = 1;
/// Extra fields with a name in UTF-8.
const EXTRA_NAME: u16 = 0x7075;
/// A number that is in the extra field.
const ELSEWHERE: u64 = u32::MAX as u64;
/// File system of Unix, in the upper byte of the version that made a file.
const UNIX: u8 = 3;
/// `S_IFMT`, `S_IFLNK`.
const KIND: u32 = 0o170_000;
const LINK: u32 = 0o120_000;
const ENCRYPTED: u16 = 1;
/// Sizes and checksum follow the bytes.
const DESCRIBED_LATER: u16 = 8;

/// Bytes that are decompressed to find the ends of files, if the directory is missing.
const INFLATED_BYTES_MAX: u64 = 16 << 30;

/// Whether these are the first bytes of an archive.
pub fn is_zip(head: &[u8]) -> bool {
    head.starts_with(LOCAL)
        || head.starts_with(END)
        || SPANNED.iter().any(|start| head.starts_with(start))
}

/// All regular files, and those that cannot be read.
pub fn members(archive: &[u8]) -> (Vec<Member>, Vec<Flaw>) {
    let mut list = List {
        archive,
        entries: Vec::new(),
        problems: Vec::new(),
        inflatable: INFLATED_BYTES_MAX,
    };
    match directory(archive) {
        Some(directory) => list.read(&directory),
        None => list.search(),
    }
    list.apart();
    let members = list.entries.into_iter().map(|(_, member)| member);
    (members.collect(), list.problems)
}

/// Where the heads of all files are.
struct Directory {
    /// The part of the archive with the heads.
    bytes: Range<usize>,
    /// Bytes before the archive, from which offsets count.
    before: usize,
    entries: u64,
}

/// Finds the directory by the end of the archive.
fn directory(archive: &[u8]) -> Option<Directory> {
    let first = archive.len().saturating_sub(END_BYTES + COMMENT_BYTES);
    let last = archive.len().checked_sub(END_BYTES)?;
    let ends = (first..=last).rev().filter(|&at| {
        let comment = Endian::Little.u16_at(archive, at + 20);
        archive.get(at..).is_some_and(|rest| rest.starts_with(END))
            && comment.is_some_and(|comment| at + END_BYTES + usize::from(comment) <= archive.len())
    });
    // A comment may contain what looks like an end.
    ends.take(16).find_map(|end| directory_of(archive, end))
}

fn directory_of(archive: &[u8], end: usize) -> Option<Directory> {
    let mut cursor = Cursor::new(archive.get(end + 8..)?, 0, Endian::Little);
    let _here = cursor.u16().ok()?;
    let mut entries = u64::from(cursor.u16().ok()?);
    let mut size = u64::from(cursor.u32().ok()?);
    let mut offset = u64::from(cursor.u32().ok()?);
    let mut after = end;
    if let Some((record, found)) = end_64(archive, end) {
        (entries, size, offset) = found;
        after = record;
    }
    // Bytes before the archive move everything by their number.
    let start = after.checked_sub(usize::try_from(size).ok()?)?;
    let before = start.checked_sub(usize::try_from(offset).ok()?)?;
    let bytes = start..after;
    let begins = archive.get(bytes.clone())?.starts_with(CENTRAL);
    (begins || entries == 0).then_some(Directory {
        bytes,
        before,
        entries,
    })
}

/// The end with 64 bits: its place, and entries, size and offset of the directory.
fn end_64(archive: &[u8], end: usize) -> Option<(usize, (u64, u64, u64))> {
    let locator = archive.get(end.checked_sub(LOCATOR_BYTES)?..end)?;
    let mut cursor = Cursor::new(locator.strip_prefix(LOCATOR_64)?, 0, Endian::Little);
    let _disk = cursor.u32().ok()?;
    let offset = usize::try_from(cursor.u64().ok()?).ok()?;
    // With bytes before the archive, it is directly before its locator.
    let usual = end.checked_sub(LOCATOR_BYTES + 56);
    [Some(offset), usual].into_iter().flatten().find_map(|at| {
        let record = archive.get(at..)?.strip_prefix(END_64)?;
        let entries = Endian::Little.u64_at(record, 28)?;
        let size = Endian::Little.u64_at(record, 36)?;
        let offset = Endian::Little.u64_at(record, 44)?;
        Some((at, (entries, size, offset)))
    })
}

/// The part of a head that both kinds have.
struct Head {
    flags: u16,
    method: u16,
    crc: u32,
    stored: u64,
    size: u64,
}

impl Head {
    /// From the flags on.
    fn of(cursor: &mut Cursor<'_>) -> Result<Head, Short> {
        let (flags, method) = (cursor.u16()?, cursor.u16()?);
        let _time = cursor.u32()?;
        Ok(Head {
            flags,
            method,
            crc: cursor.u32()?,
            stored: u64::from(cursor.u32()?),
            size: u64::from(cursor.u32()?),
        })
    }

    fn method(&self) -> Result<Method, String> {
        match self.method {
            _ if self.flags & ENCRYPTED != 0 => Err("is encrypted".to_owned()),
            0 => Ok(Method::Stored),
            8 => Ok(Method::Deflate),
            93 => Ok(Method::Zstd),
            other => Err(format!("is compressed by an unsupported method ({other})")),
        }
    }

    /// Replaces numbers that are in the extra fields; returns a better name, too.
    fn extend<'a>(&mut self, extra: &'a [u8], offset: &mut u64) -> Option<&'a [u8]> {
        let mut name = None;
        let mut cursor = Cursor::new(extra, 0, Endian::Little);
        while let (Ok(id), Ok(length)) = (cursor.u16(), cursor.u16()) {
            let Ok(mut field) = cursor.part(u64::from(length)) else {
                break;
            };
            match id {
                EXTRA_64 => {
                    for number in [&mut self.size, &mut self.stored, &mut *offset] {
                        if *number == ELSEWHERE {
                            *number = field.u64().unwrap_or(*number);
                        }
                    }
                }
                // A version and the checksum of the other name precede it.
                EXTRA_NAME => name = field.rest().get(5..).filter(|name| !name.is_empty()),
                _ => {}
            }
        }
        name
    }
}

struct List<'a> {
    archive: &'a [u8],
    /// Offset of the head, and the file.
    entries: Vec<(usize, Member)>,
    problems: Vec<Flaw>,
    /// Bytes that may still be decompressed to find the ends of files.
    inflatable: u64,
}

impl List<'_> {
    fn flaw(&mut self, offset: usize, message: String) {
        self.problems.push(Flaw {
            offset: offset as u64,
            message,
        });
    }

    /// Reads the directory.
    fn read(&mut self, directory: &Directory) {
        let heads = self.archive.get(directory.bytes.clone());
        let start = directory.bytes.start;
        let mut cursor = Cursor::new(heads.unwrap_or_default(), 0, Endian::Little);
        let mut count = 0;
        while !cursor.is_empty() {
            let at = start + usize::try_from(cursor.offset()).unwrap_or(usize::MAX);
            if count == MEMBERS_MAX {
                self.flaw(
                    at,
                    format!(
                        "the archive has more than {MEMBERS_MAX} files; the others are not read"
                    ),
                );
                return;
            }
            // Other records may follow: a signature.
            if !cursor.rest().starts_with(CENTRAL) {
                break;
            }
            if self.entry(&mut cursor, at, directory.before).is_err() {
                break;
            }
            count += 1;
        }
        if (count as u64) < directory.entries {
            let missing = directory.entries - count as u64;
            self.flaw(
                start,
                format!(
                    "the directory of the archive lacks {missing} of {} files",
                    directory.entries
                ),
            );
        }
    }

    fn entry(&mut self, cursor: &mut Cursor<'_>, at: usize, before: usize) -> Result<(), Short> {
        let _signature = cursor.u32()?;
        let (_, system) = (cursor.u8()?, cursor.u8()?);
        let _needs = cursor.u16()?;
        let mut head = Head::of(cursor)?;
        let lengths = [cursor.u16()?, cursor.u16()?, cursor.u16()?];
        let [name, extra, comment] = lengths.map(u64::from);
        let (_disk, _internal) = (cursor.u16()?, cursor.u16()?);
        let attributes = cursor.u32()?;
        let mut offset = u64::from(cursor.u32()?);
        let name = cursor.bytes(name)?;
        let extra = cursor.bytes(extra)?;
        cursor.bytes(comment)?;
        let name = head.extend(extra, &mut offset).unwrap_or(name);
        let is_link = system == UNIX && (attributes >> 16) & KIND == LINK;
        let name = named(name);
        if name.ends_with('/') || is_link {
            return Ok(());
        }
        let start = usize::try_from(offset)
            .ok()
            .and_then(|offset| before.checked_add(offset));
        let found = start.and_then(|start| {
            let local = self.archive.get(start..)?;
            let lengths = local.starts_with(LOCAL).then(|| {
                let length = |at| Endian::Little.u16_at(local, at).map(usize::from);
                Some(length(26)? + length(28)?)
            })??;
            let first = start + LOCAL_BYTES + lengths;
            Some((
                start,
                first,
                first.checked_add(usize::try_from(head.stored).ok()?)?,
            ))
        });
        let Some((start, first, end)) = found.filter(|found| found.2 <= self.archive.len()) else {
            self.flaw(at, format!("{name:?} is not where the archive says"));
            return Ok(());
        };
        self.push(name, &head, start, first..end);
        Ok(())
    }

    fn push(&mut self, name: String, head: &Head, start: usize, bytes: Range<usize>) {
        match head.method() {
            Ok(Method::Stored) if head.size != bytes.len() as u64 => {
                self.flaw(start, format!("{name:?} has two sizes"));
            }
            Ok(method) => self.entries.push((
                start,
                Member {
                    name,
                    bytes,
                    method,
                    check: Some(Check {
                        size_bytes: head.size,
                        crc: head.crc,
                    }),
                },
            )),
            Err(reason) => self.flaw(start, format!("{name:?} {reason}")),
        }
    }

    /// Finds the files of an archive without its directory.
    fn search(&mut self) {
        let mut at = match SPANNED.iter().any(|start| self.archive.starts_with(start)) {
            true => 4,
            false => 0,
        };
        let end = loop {
            if self.entries.len() >= MEMBERS_MAX {
                break Some(at);
            }
            match self.local(at) {
                Some(Ok(next)) => at = next,
                Some(Err(message)) => {
                    self.flaw(at, message);
                    return;
                }
                None => break (at < self.archive.len()).then_some(at),
            }
        };
        let offset = end.unwrap_or(self.archive.len());
        let is_directory = self
            .archive
            .get(offset..)
            .is_some_and(|rest| rest.starts_with(CENTRAL));
        self.flaw(
            offset,
            match is_directory {
                true => "the directory of the archive is cut: its files are read".to_owned(),
                false => "the archive ends too early".to_owned(),
            },
        );
    }

    /// Reads the file whose head is at an offset; returns the offset after it, `None` if there is no head.
    fn local(&mut self, at: usize) -> Option<Result<usize, String>> {
        let local = self.archive.get(at..)?;
        let mut cursor = Cursor::new(local.strip_prefix(LOCAL)?, 0, Endian::Little);
        let _needs = cursor.u16().ok()?;
        let mut head = Head::of(&mut cursor).ok()?;
        let (name, extra) = (cursor.u16().ok()?, cursor.u16().ok()?);
        let name = cursor.bytes(u64::from(name)).ok()?;
        let extra = cursor.bytes(u64::from(extra)).ok()?;
        let name = named(head.extend(extra, &mut 0).unwrap_or(name));
        let first = at + local.len() - cursor.rest().len();
        let method = head.method();
        let is_described = head.flags & DESCRIBED_LATER != 0;
        let mut next = usize::try_from(head.stored)
            .ok()
            .and_then(|stored| first.checked_add(stored))?;
        if is_described {
            // Only a compressed stream knows its end.
            let Ok(Method::Deflate) = method else {
                return Some(Err(format!(
                    "{name:?} has no size before its bytes, and the archive is cut"
                )));
            };
            let Some(stored) = deflated(cursor.rest(), &mut self.inflatable) else {
                self.cut(at, name, Method::Deflate, first, None);
                return Some(Ok(self.archive.len()));
            };
            let end = first + stored;
            let after = self.archive.get(end..).unwrap_or_default();
            next = end + descriptor(after, &mut head);
            head.stored = stored as u64;
        }
        if next > self.archive.len() {
            if let (Ok(method), false) = (method, name.ends_with('/')) {
                let check = Check {
                    size_bytes: head.size,
                    crc: head.crc,
                };
                self.cut(at, name, method, first, Some(check));
            }
            return Some(Ok(self.archive.len()));
        }
        let end = first + usize::try_from(head.stored).unwrap_or_default();
        if !name.ends_with('/') {
            self.push(name, &head, at, first..end);
        }
        Some(Ok(next))
    }

    /// Adds a truncated file: its bytes are read, and its end is an error.
    fn cut(&mut self, at: usize, name: String, method: Method, first: usize, check: Option<Check>) {
        let bytes = first..self.archive.len();
        let member = Member {
            name,
            bytes,
            method,
            check,
        };
        self.entries.push((at, member));
    }

    /// Removes files whose bytes are also those of another one, and restores the order of the archive.
    fn apart(&mut self) {
        self.entries.sort_by_key(|(start, _)| *start);
        let mut end = 0;
        let entries = std::mem::take(&mut self.entries);
        for (start, member) in entries {
            if start < end {
                self.flaw(
                    start,
                    format!("{:?} overlaps another file of the archive", member.name),
                );
                continue;
            }
            end = member.bytes.end;
            self.entries.push((start, member));
        }
    }
}

/// Length of a compressed stream; `None` if it is cut or damaged, or has more than `left` bytes.
fn deflated(bytes: &[u8], left: &mut u64) -> Option<usize> {
    let mut inflated = flate2::bufread::DeflateDecoder::new(bytes);
    let mut limited = inflated.by_ref().take(*left);
    let count = std::io::copy(&mut limited, &mut std::io::sink()).ok()?;
    *left -= count;
    (*left > 0).then_some(())?;
    usize::try_from(inflated.total_in()).ok()
}

/// Reads the data descriptor (sizes and checksum after the bytes of a file) and returns its length. The bytes after it tell
/// which of its four forms it has.
fn descriptor(after: &[u8], head: &mut Head) -> usize {
    let marked = usize::from(after.starts_with(b"PK\x07\x08")) * 4;
    for (width, length) in [(4, 12), (8, 20)] {
        let next = after.get(marked + length..).unwrap_or_default();
        let is_next =
            [LOCAL, CENTRAL].iter().any(|start| next.starts_with(start)) || next.is_empty();
        let field = |at: usize, width: usize| {
            after
                .get(marked + at..marked + at + width)
                .map(|bytes| Endian::Little.unsigned(bytes))
        };
        if let (true, Some(crc), Some(size)) = (is_next, field(0, 4), field(4 + width, width)) {
            head.crc = u32::try_from(crc).unwrap_or_default();
            head.size = size;
            return marked + length;
        }
    }
    0
}

/// The name of a file; some programs for Windows write `\`.
fn named(bytes: &[u8]) -> String {
    let name = name_of(bytes);
    match name.contains('/') {
        false if name.contains('\\') => name.replace('\\', "/"),
        _ => name,
    }
}
