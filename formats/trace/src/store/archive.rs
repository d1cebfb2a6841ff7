//! `.pqtz`: a trace as one file, a zip with stored members, whose parts are read in place.
//!
//! ```text
//! samples/00000.parquet  frames/00000.parquet  …  manifest.json  central directory  end of central directory
//! ```
//! PKWARE's APPNOTE 6.3.10, sections 4.3 and 4.5.3, is the format. Members may come from anywhere: names, sizes and offsets are checked before
//! one is read, and none is ever a path of the file system.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use parquet::file::reader::Length as _;
use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_events::event::Place;

use super::manifest::FILE_NAME;
use super::part_file::PartFile;
use crate::remote::{Remote, failure};

/// Ending of the names of such files.
pub const ARCHIVE_ENDING: &str = ".pqtz";

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const LOCAL_BYTES: u64 = 30;
const CENTRAL_BYTES: u64 = 46;
const END_BYTES: u64 = 22;
const END_64_BYTES: u64 = 56;
const LOCATOR_64_BYTES: u64 = 20;
/// A comment of 65,535 bytes may follow the end of the central directory.
const LONGEST_END: u64 = END_BYTES + 0xffff;
/// A trace with a hundred thousand parts has 10 MB of them.
const LARGEST_DIRECTORY: u64 = 1 << 28;
/// Extra field with sizes and offsets of 64 bits.
const EXTRA_64: u16 = 1;
const IS_ENCRYPTED: u16 = 1;
const STORED: u16 = 0;

/// An opened archive.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    file: PartFile,
    modified: Option<SystemTime>,
    /// Of a file behind a URL, by its server.
    version: Option<String>,
    members: HashMap<String, Member>,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    /// Of its data.
    offset: u64,
    bytes: u64,
    checksum: u32,
    is_stored: bool,
}

/// An entry of the central directory.
struct Entry {
    name: Vec<u8>,
    flags: u16,
    method: u16,
    checksum: u32,
    stored_bytes: u64,
    bytes: u64,
    /// Of its local header.
    offset: u64,
}

impl Archive {
    /// Whether a file begins as a zip does.
    pub fn is_archive(path: &Path) -> bool {
        let mut first = [0; 4];
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        let file = file
            .ok()
            .filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
        let is_read = file.is_some_and(|file| file.read_exact_at(&mut first, 0).is_ok());
        is_read && (first == *b"PK\x03\x04" || first == *b"PK\x05\x06")
    }

    /// Whether a file is a trace as one file, by its name or its members.
    pub fn is_trace(path: &Path) -> bool {
        let is_named = path.to_string_lossy().ends_with(ARCHIVE_ENDING);
        let has_manifest = |archive: Archive| archive.members.contains_key(FILE_NAME);
        Archive::is_archive(path) && (is_named || Archive::open(path).is_ok_and(has_manifest))
    }

    /// Opens an archive, and checks the names and places of all members.
    pub fn open(path: &Path) -> Result<Archive, Error> {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(Error::io(path))?;
        let found = file.metadata().map_err(Error::io(path))?;
        if !found.is_file() {
            let error = io::Error::other("expected a file, found a directory or a special file");
            return Err(Error::io(path)(error));
        }
        let mut archive = Archive {
            path: path.to_owned(),
            file: PartFile::of(file).map_err(Error::io(path))?,
            modified: Some(found.modified().map_err(Error::io(path))?),
            version: None,
            members: HashMap::new(),
        };
        archive.read_members(found.len())?;
        Ok(archive)
    }

    /// Opens an archive behind a URL.
    pub(super) fn remote(remote: &Remote) -> Result<Archive, Error> {
        let file = (remote.place().whole()).map_err(|error| failure(remote.url(), &error))?;
        let mut archive = Archive {
            path: remote.url().to_owned(),
            version: Some(file.version()),
            file: PartFile::remote(file),
            modified: None,
            members: HashMap::new(),
        };
        archive.read_members(archive.file.len())?;
        Ok(archive)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns when the file was written; `None` for one behind a URL.
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Returns the version of a file behind a URL.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns the bytes of a member, which must be stored.
    pub fn member(&self, name: &str) -> Result<PartFile, Error> {
        let Some(member) = self.members.get(name) else {
            if name == FILE_NAME {
                return Err(Error::Unsupported {
                    input: self.path.display().to_string(),
                    message: format!(
                        "expected a trace, found a zip without {FILE_NAME}\n\
                         hint: if it has traces of other tools, import it with: perfquet-convert {}",
                        self.path.display()
                    ),
                });
            }
            return Err(self.damaged(0, format!("expected the member {name}, found none")));
        };
        if !member.is_stored {
            return Err(Error::Unsupported {
                input: self.path.display().to_string(),
                message: format!(
                    "{name}: expected a stored member, found a compressed or encrypted one\n\
                     hint: unpack it, then open the directory, or write it by: perfquet-convert DIR --to pqtz"
                ),
            });
        }
        Ok(self.file.within(member.offset, member.bytes))
    }

    /// Returns the CRC-32 that a member should have.
    pub fn checksum(&self, name: &str) -> Option<u32> {
        self.members.get(name).map(|member| member.checksum)
    }

    fn read_members(&mut self, length: u64) -> Result<(), Error> {
        let (entries, start) = self.central_directory(length)?;
        let (mut places, mut members) = (Vec::new(), HashMap::new());
        for entry in entries {
            let at = |message: String| self.damaged(entry.offset, message);
            let shown = String::from_utf8_lossy(&entry.name).into_owned();
            let name = String::from_utf8(entry.name.clone())
                .ok()
                .filter(|name| is_inside(name))
                .ok_or_else(|| {
                    at(format!(
                        "expected a name inside of the trace, found {shown:?}"
                    ))
                })?;
            let data = self
                .data_of(&entry, start)
                .map_err(|message| self.damaged(entry.offset, format!("{name}: {message}")))?;
            places.push((entry.offset, data.saturating_add(entry.stored_bytes)));
            if name.ends_with('/') {
                continue;
            }
            let member = Member {
                offset: data,
                bytes: entry.stored_bytes,
                checksum: entry.checksum,
                is_stored: entry.method == STORED && entry.flags & IS_ENCRYPTED == 0,
            };
            if member.is_stored && entry.bytes != entry.stored_bytes {
                let sizes = format!("{} and {} bytes", entry.stored_bytes, entry.bytes);
                return Err(at(format!(
                    "{name}: expected one size of a stored member, found {sizes}"
                )));
            }
            if members.insert(name.clone(), member).is_some() {
                return Err(at(format!("expected each member once, found {name} twice")));
            }
        }
        self.members = members;
        places.sort_unstable();
        let pairs = places.iter().zip(places.iter().skip(1));
        match pairs.into_iter().find(|(one, next)| one.1 > next.0) {
            Some((_, next)) => {
                let message = "expected members one after the other, found one inside of another";
                Err(self.damaged(next.0, message.to_owned()))
            }
            None => Ok(()),
        }
    }

    /// The entries of the central directory, and its offset.
    fn central_directory(&self, length: u64) -> Result<(Vec<Entry>, u64), Error> {
        let tail_bytes = length.min(LONGEST_END);
        let tail_offset = length.saturating_sub(tail_bytes);
        let tail = self.bytes(tail_offset, tail_bytes)?;
        let end = end_of_directory(&tail).ok_or_else(|| {
            let message =
                "expected the end of a zip, found none: the file is not a zip, or was cut off";
            self.damaged(length, message.to_owned())
        })?;
        let end_offset = tail_offset.saturating_add(end);
        let short = |place: u64| move |short: Short| self.damaged(place, short.to_string());
        let fixed = self.bytes(end_offset, END_BYTES)?;
        let mut cursor = Cursor::new(&fixed, end_offset, Endian::Little);
        let directory = (|| {
            cursor.u32()?;
            let disks = (cursor.u16()?, cursor.u16()?);
            let counts = (cursor.u16()?, cursor.u16()?);
            let (bytes, offset) = (cursor.u32()?, cursor.u32()?);
            Ok((disks, counts, bytes, offset))
        })()
        .map_err(short(end_offset))?;
        let (disks, counts, bytes, offset) = directory;
        let is_wide = counts.0 == u16::MAX || bytes == u32::MAX || offset == u32::MAX;
        let (mut count, mut bytes, mut offset) =
            (u64::from(counts.0), u64::from(bytes), u64::from(offset));
        let mut limit = end_offset;
        if disks != (0, 0) || counts.0 != counts.1 {
            let message = "expected a zip in one piece, found one of several";
            return Err(self.damaged(end_offset, message.to_owned()));
        }
        if is_wide && let Some(wide) = self.wide_end(end_offset)? {
            (limit, count, bytes, offset) = wide;
        }
        let is_possible = bytes <= LARGEST_DIRECTORY
            && count <= bytes / CENTRAL_BYTES
            && offset.checked_add(bytes).is_some_and(|end| end <= limit);
        if !is_possible {
            return Err(self.damaged(
                end_offset,
                format!("expected a central directory before it, found {count} members in {bytes} bytes at {offset}"),
            ));
        }
        let text = self.bytes(offset, bytes)?;
        let mut cursor = Cursor::new(&text, offset, Endian::Little);
        let mut entries = Vec::new();
        for _ in 0..count {
            let place = cursor.offset();
            match entry(&mut cursor) {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => {
                    let message = "expected an entry of the central directory";
                    return Err(self.damaged(place, message.to_owned()));
                }
                Err(error) => return Err(short(place)(error)),
            }
        }
        Ok((entries, offset))
    }

    /// The zip64 end of the central directory: its offset, number of entries, bytes and offset.
    fn wide_end(&self, end: u64) -> Result<Option<(u64, u64, u64, u64)>, Error> {
        let Some(locator) = end.checked_sub(LOCATOR_64_BYTES) else {
            return Ok(None);
        };
        let text = self.bytes(locator, LOCATOR_64_BYTES)?;
        let mut cursor = Cursor::new(&text, locator, Endian::Little);
        let place = (|| {
            let is_locator = cursor.u32()? == LOCATOR_64;
            cursor.u32()?;
            Ok::<_, Short>(is_locator.then_some(cursor.u64()?))
        })();
        // Without it, the values are meant.
        let Ok(Some(place)) = place else {
            return Ok(None);
        };
        if place
            .checked_add(END_64_BYTES)
            .is_none_or(|after| after > locator)
        {
            let message = format!("expected the zip64 end before it, found it at {place}");
            return Err(self.damaged(locator, message));
        }
        let text = self.bytes(place, END_64_BYTES)?;
        let mut cursor = Cursor::new(&text, place, Endian::Little);
        let wide = (|| {
            let is_end = cursor.u32()? == END_64;
            cursor.bytes(28)?;
            let count = cursor.u64()?;
            Ok::<_, Short>((is_end, count, cursor.u64()?, cursor.u64()?))
        })();
        match wide {
            Ok((true, count, bytes, offset)) => Ok(Some((place, count, bytes, offset))),
            _ => Err(self.damaged(place, "expected the zip64 end of a zip".to_owned())),
        }
    }

    /// Offset of a member's data, which ends before the central directory.
    fn data_of(&self, entry: &Entry, directory: u64) -> Result<u64, String> {
        let missing = || format!("expected its data before {directory}");
        let header_end = entry.offset.checked_add(LOCAL_BYTES);
        header_end
            .filter(|&end| end <= directory)
            .ok_or_else(missing)?;
        let header = self
            .bytes(entry.offset, LOCAL_BYTES)
            .map_err(|error| error.to_string())?;
        let mut cursor = Cursor::new(&header, entry.offset, Endian::Little);
        let lengths = (|| {
            let is_local = cursor.u32()? == LOCAL;
            cursor.bytes(22)?;
            Ok::<_, Short>((is_local, cursor.u16()?, cursor.u16()?))
        })();
        let Ok((true, name, extra)) = lengths else {
            return Err("expected a header of a member".to_owned());
        };
        let name_offset = entry.offset.saturating_add(LOCAL_BYTES);
        let data = name_offset.saturating_add(u64::from(name) + u64::from(extra));
        data.checked_add(entry.stored_bytes)
            .filter(|&end| end <= directory)
            .ok_or_else(missing)?;
        let found = self
            .bytes(name_offset, u64::from(name))
            .map_err(|error| error.to_string())?;
        match found == entry.name {
            true => Ok(data),
            false => Err(format!(
                "expected its name before its data, found {:?}",
                String::from_utf8_lossy(&found)
            )),
        }
    }

    /// Bytes of the file.
    fn bytes(&self, offset: u64, count: u64) -> Result<Bytes, Error> {
        self.file
            .range(offset, count)
            .map_err(|error| match self.version {
                Some(_) => failure(&self.path, &error),
                None => Error::io(&self.path)(error),
            })
    }

    fn damaged(&self, offset: u64, message: String) -> Error {
        Error::Damaged {
            input: self.path.display().to_string(),
            place: Place::Offset(offset),
            message,
        }
    }
}

/// Whether a name is one of a file below a directory, on every system.
fn is_inside(name: &str) -> bool {
    let mut steps = Path::new(name).components();
    !name.is_empty()
        && !name.contains(['\\', '\0'])
        && steps.all(|step| matches!(step, Component::Normal(_)))
}

/// Place of the end of the central directory in the last bytes of a file.
fn end_of_directory(tail: &[u8]) -> Option<u64> {
    let signature = END.to_le_bytes();
    let starts = tail.windows(signature.len()).enumerate().rev();
    let mut starts = starts.filter(|(_, window)| **window == signature);
    let is_at_end = |start: &usize| {
        let comment = Endian::Little.u16_at(tail, start + 20);
        comment.is_some_and(|comment| start + 22 + usize::from(comment) == tail.len())
    };
    let found = starts.find_map(|(start, _)| Some(start).filter(is_at_end))?;
    u64::try_from(found).ok()
}

/// The next entry of a central directory; `None` if it has no signature.
fn entry(cursor: &mut Cursor<'_>) -> Result<Option<Entry>, Short> {
    if cursor.u32()? != CENTRAL {
        return Ok(None);
    }
    cursor.bytes(4)?;
    let (flags, method) = (cursor.u16()?, cursor.u16()?);
    cursor.bytes(4)?;
    let checksum = cursor.u32()?;
    let (stored_bytes, bytes) = (cursor.u32()?, cursor.u32()?);
    let lengths = [cursor.u16()?, cursor.u16()?, cursor.u16()?].map(u64::from);
    cursor.bytes(8)?;
    let offset = cursor.u32()?;
    let [name, extra, comment] = lengths;
    let name = cursor.bytes(name)?.to_vec();
    let mut extras = cursor.part(extra)?;
    cursor.bytes(comment)?;
    let mut entry = Entry {
        name,
        flags,
        method,
        checksum,
        stored_bytes: stored_bytes.into(),
        bytes: bytes.into(),
        offset: offset.into(),
    };
    while extras.left() >= 4 {
        let (id, length) = (extras.u16()?, extras.u16()?);
        let mut fields = extras.part(length.into())?;
        if id == EXTRA_64 {
            // Only those that do not fit, in this order.
            for (value, place) in [
                (bytes, &mut entry.bytes),
                (stored_bytes, &mut entry.stored_bytes),
                (offset, &mut entry.offset),
            ] {
                if value == u32::MAX {
                    *place = fields.u64()?;
                }
            }
        }
    }
    Ok(Some(entry))
}
