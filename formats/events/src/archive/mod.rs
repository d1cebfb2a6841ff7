//! Archives: the files in a tar or zip file that is in memory or mapped, without unpacking it.
//!
//! ```text
//! x.tar    head, bytes, head, bytes, …                         bytes as they are
//! x.zip    head, bytes, …, directory of all heads, its place    bytes as they are, or compressed one by one
//! ```
//! Names are only compared, never opened, so no archive reaches a file outside of it. Limits are those of [`Archive::of`].

use std::io::{self, BufRead, Read};
use std::ops::Range;

mod checked;
mod tar;
pub mod zip;

use checked::Checked;

/// Maximum number of files in an archive; what follows is reported as missing.
pub const MEMBERS_MAX: usize = 1 << 20;
/// Longest name; longer ones are cut.
const NAME_BYTES: usize = 4096;
/// Buffer of a file that is decompressed.
const BUFFER_BYTES: usize = 256 << 10;

/// The files of an archive.
#[derive(Debug)]
pub struct Archive {
    members: Vec<Member>,
    /// Files that cannot be read, with the reason.
    problems: Vec<Flaw>,
}

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Path in the archive: `kernel/ch0_0`.
    pub name: String,
    /// Its bytes in the archive.
    pub bytes: Range<usize>,
    /// How they are stored.
    pub method: Method,
    /// Size and checksum (CRC-32) after decompression, if the archive has them.
    pub check: Option<Check>,
}

/// What the archive says about the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Size after decompression.
    pub size_bytes: u64,
    /// CRC-32 after decompression.
    pub crc: u32,
}

/// How the bytes of a file are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// As they are.
    Stored,
    /// RFC 1951.
    Deflate,
    /// RFC 8878.
    Zstd,
}

/// A part of an archive that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Offset in the archive.
    pub offset: u64,
    /// The missing part and the reason.
    pub message: String,
}

/// Whether these are the first bytes of an archive.
pub fn is_archive(head: &[u8]) -> bool {
    tar::is_tar(head) || zip::is_zip(head)
}

impl Archive {
    /// Lists the files of an archive: at most [`MEMBERS_MAX`], each name once (the last in a tar, the first in a zip).
    pub fn of(bytes: &[u8]) -> Archive {
        let is_tar = tar::is_tar(bytes);
        let (found, mut problems) = match is_tar {
            true => {
                let (mut members, cut) = tar::members(bytes);
                // A later file replaces an earlier one of its name.
                members.reverse();
                let cut = cut.map(|offset| Flaw {
                    offset: offset as u64,
                    message: "the archive ends too early".to_owned(),
                });
                (members, Vec::from_iter(cut))
            }
            false => zip::members(bytes),
        };
        let mut members: Vec<Member> = Vec::with_capacity(found.len());
        for mut member in found {
            match inside(&member.name) {
                Some(name) => member.name = name,
                None => {
                    problems.push(Flaw {
                        offset: member.bytes.start as u64,
                        message: format!("{:?} is outside of the archive", member.name),
                    });
                    continue;
                }
            }
            members.push(member);
        }
        // Stable: the first of each name stays the first.
        members.sort_by(|one, other| one.name.cmp(&other.name));
        members.dedup_by(|later, first| {
            let is_same = later.name == first.name;
            if is_same && !is_tar {
                problems.push(Flaw {
                    offset: later.bytes.start as u64,
                    message: format!("{:?} is twice in the archive", later.name),
                });
            }
            is_same
        });
        Archive { members, problems }
    }

    /// All files, sorted by name.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Files that cannot be read, and whether the archive is cut.
    pub fn problems(&self) -> &[Flaw] {
        &self.problems
    }

    /// The file of a name.
    pub fn member(&self, name: &str) -> Option<&Member> {
        let place = self
            .members
            .binary_search_by(|member| member.name.as_str().cmp(name));
        self.members.get(place.ok()?)
    }

    /// The files below a directory, whose name ends with `/`; all, if it is empty.
    pub fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a Member> {
        let start = self
            .members
            .partition_point(|member| member.name.as_str() < folder);
        let after = self.members.get(start..).unwrap_or_default();
        after
            .iter()
            .take_while(move |member| member.name.starts_with(folder))
    }
}

impl Member {
    /// Reads the file from its bytes in the archive. The end is an error if size or checksum are not those of the archive.
    pub fn read(
        &self,
        stored: impl AsRef<[u8]> + Send + 'static,
    ) -> io::Result<Box<dyn BufRead + Send>> {
        let stored = io::Cursor::new(stored);
        let check = self.check;
        let buffered = |reader: Box<dyn Read + Send>| -> Box<dyn BufRead + Send> {
            Box::new(io::BufReader::with_capacity(BUFFER_BYTES, reader))
        };
        Ok(match self.method {
            Method::Stored => buffered(Box::new(Checked::new(stored, check))),
            Method::Deflate => {
                let inflated = flate2::bufread::DeflateDecoder::new(stored);
                buffered(Box::new(Checked::new(inflated, check)))
            }
            Method::Zstd => {
                let unpacked = zstd::stream::read::Decoder::with_buffer(stored)?;
                buffered(Box::new(Checked::new(unpacked, check)))
            }
        })
    }
}

/// A name without `./`, empty parts and a leading `/`; `None` if it leaves the archive.
fn inside(name: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => return None,
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// The text of a name, cut to [`NAME_BYTES`].
fn name_of(bytes: &[u8]) -> String {
    let bytes = bytes.get(..NAME_BYTES).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
