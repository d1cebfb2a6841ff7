//! The compressed part of a journal that was already encoded: a recording of hours takes little more space than its
//! tables.
//!
//! ```text
//! journal/perf.data                                      a hole of 32 MiB, then the records
//! journal/packed.0000000000000000-0000000002000000       its bytes from 0 to 32 MiB, compressed with zstd
//! journal/.packed                                        the next piece, incomplete
//! ```
//! A piece is written under another name, synced, and renamed; only then are its bytes punched out of the journal.
//! Therefore every byte is in the file, in a piece, or in both, whenever the recorder is killed, and [`Unpacked`] reads
//! the original journal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::vec;

use zstd::bulk::Compressor;
use zstd::stream::read::Decoder;
use zstd::zstd_safe::CParameter;

use perfquet_events::Error;
use perfquet_events::directory::directory_of;

/// Prefix of piece names; the start and end in the journal follow, in 16 digits each.
const PREFIX: &str = "packed.";
/// The name of an incomplete piece.
const UNFINISHED: &str = ".packed";
/// Level 3 takes 1.6 times the CPU time (of 88 MB of system calls: 56 ms instead of 35), and saves 4 % of a journal of stacks;
/// one of system calls becomes larger.
const LEVEL: i32 = 1;
/// Maximum number of zeros read in place of an unreadable piece.
const PIECE_BYTES_MAX: u64 = 1 << 30;
/// Uncompressed size of a frame. Frames are compressed in one call each: streaming copies the input, and is slower.
const FRAME_BYTES: usize = 4 << 20;

/// A file with a part of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    range: Range<u64>,
    path: PathBuf,
}

impl Piece {
    /// The piece at a path, if its name is that of one.
    pub(super) fn at(path: &Path) -> Option<Piece> {
        let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
        let (start, end) = name.split_once('-')?;
        let number = |digits: &str| match digits.len() {
            16 => u64::from_str_radix(digits, 16).ok(),
            _ => None,
        };
        let range = number(start)?..number(end)?;
        let length = range.end.checked_sub(range.start)?;
        (1..=PIECE_BYTES_MAX).contains(&length).then(|| Piece {
            range,
            path: path.to_owned(),
        })
    }
}

/// Compresses a range of a journal into a piece next to it, and syncs it to disk; the caller may then punch the range
/// out of the journal. Returns the size of the piece.
pub fn pack_journal(journal: &Path, range: Range<u64>) -> Result<u64, Error> {
    let folder = directory_of(journal);
    let unfinished = folder.join(UNFINISHED);
    let written = write(journal, &range, &unfinished);
    let settled = written.and_then(|bytes| {
        let name = format!("{PREFIX}{:016x}-{:016x}", range.start, range.end);
        fs::rename(&unfinished, folder.join(name))?;
        File::open(folder)?.sync_all()?;
        Ok(bytes)
    });
    settled.map_err(|error| {
        // A leftover only takes space.
        let _ = fs::remove_file(&unfinished);
        Error::io(unfinished)(error)
    })
}

fn write(journal: &Path, range: &Range<u64>, unfinished: &Path) -> io::Result<u64> {
    // A leftover of a killed recorder.
    match fs::remove_file(unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Traces contain secrets, and this may run as root.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(unfinished)?;
    let journal = File::open(journal)?;
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.set_parameter(CParameter::ChecksumFlag(true))?;
    let mut buffer = vec![0; FRAME_BYTES];
    let mut packed = Vec::with_capacity(zstd::zstd_safe::compress_bound(FRAME_BYTES));
    let mut position = range.start;
    while position < range.end {
        let wanted = (range.end - position).min(FRAME_BYTES as u64) as usize;
        let piece = buffer.get_mut(..wanted).unwrap_or_default();
        journal.read_exact_at(piece, position)?;
        compressor.compress_to_buffer(piece, &mut packed)?;
        file.write_all(&packed)?;
        packed.clear();
        position += wanted as u64;
    }
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

/// The original contents of a journal with compressed pieces. The rest of an unreadable piece reads as zeros, which are
/// never a record: the reader continues after it and reports the skipped bytes.
pub struct Unpacked {
    journal: File,
    pieces: vec::IntoIter<Piece>,
    next: Option<Piece>,
    open: Option<Open>,
    position: u64,
}

struct Open {
    piece: Piece,
    /// `None` if it cannot be decompressed any further.
    decoder: Option<Decoder<'static, io::BufReader<File>>>,
}

impl Unpacked {
    /// The journal with the pieces in its directory.
    pub fn open(journal: &Path) -> io::Result<Unpacked> {
        let folder = directory_of(journal);
        let mut pieces = Vec::new();
        for entry in fs::read_dir(folder)? {
            pieces.extend(Piece::at(&entry?.path()));
        }
        Unpacked::of(journal, pieces)
    }

    pub(super) fn of(journal: &Path, mut pieces: Vec<Piece>) -> io::Result<Unpacked> {
        pieces.sort_by_key(|piece| piece.range.start);
        let mut end = 0;
        // A piece that overlaps another was not written by the recorder.
        pieces.retain(|piece| {
            let follows = piece.range.start >= end;
            if follows {
                end = piece.range.end;
            }
            follows
        });
        let mut pieces = pieces.into_iter();
        Ok(Unpacked {
            journal: File::open(journal)?,
            next: pieces.next(),
            pieces,
            open: None,
            position: 0,
        })
    }

    /// Reads up to the next piece.
    fn read_journal(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let until = self.next.as_ref().map(|piece| piece.range.start);
        let wanted = within(buffer, until.unwrap_or(u64::MAX) - self.position);
        let count = self.journal.read_at(wanted, self.position)?;
        match until {
            Some(until) if count == 0 && !wanted.is_empty() => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "expected {} bytes of the journal before its next piece, found its end",
                    until - self.position
                ),
            )),
            _ => Ok(count),
        }
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self
            .open
            .as_ref()
            .is_none_or(|open| open.piece.range.end <= self.position)
        {
            self.open = self
                .next
                .take_if(|piece| piece.range.start <= self.position)
                .map(Open::of);
            if self.open.is_some() {
                self.next = self.pieces.next();
            }
        }
        let count = match &mut self.open {
            Some(open) => open.read(within(buffer, open.piece.range.end - self.position)),
            None => self.read_journal(buffer)?,
        };
        self.position += count as u64;
        Ok(count)
    }
}

impl Open {
    fn of(piece: Piece) -> Open {
        let decoder = File::open(&piece.path).and_then(Decoder::new);
        let decoder = decoder.inspect_err(|error| complain(&piece, &error.to_string()));
        Open {
            decoder: decoder.ok(),
            piece,
        }
    }

    /// Reads the contents of the piece, or zeros; at least one byte.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        if let Some(decoder) = &mut self.decoder {
            match decoder.read(buffer) {
                Ok(0) => complain(&self.piece, "expected more bytes, found its end"),
                Ok(count) => return count,
                Err(error) => complain(&self.piece, &error.to_string()),
            }
            self.decoder = None;
        }
        buffer.fill(0);
        buffer.len()
    }
}

fn complain(piece: &Piece, what: &str) {
    log::warn!(
        "{}: {what}: this part of the journal is lost",
        piece.path.display()
    );
}

/// As much of a buffer as there are bytes.
fn within(buffer: &mut [u8], bytes: u64) -> &mut [u8] {
    let length = usize::try_from(bytes).map_or(buffer.len(), |bytes| bytes.min(buffer.len()));
    buffer.get_mut(..length).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A journal of nearly incompressible bytes, in a temporary directory.
    fn journal(length: usize) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        let mut seed = 7u32;
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 27) as u8 + 1
            })
            .collect();
        fs::write(&path, &bytes).unwrap();
        (folder, path, bytes)
    }

    /// Punches a hole, as zeros.
    fn punch(journal: &Path, range: Range<u64>) {
        let file = OpenOptions::new().write(true).open(journal).unwrap();
        let zeros = vec![0; (range.end - range.start) as usize];
        file.write_all_at(&zeros, range.start).unwrap();
    }

    fn read(journal: &Path) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut unpacked = Unpacked::open(journal).unwrap();
        unpacked.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn journal_reads_unchanged_wherever_compression_stops() {
        let (folder, path, bytes) = journal(1 << 20);
        assert!(read(&path) == bytes);
        // Killed in the middle of a piece.
        fs::write(folder.path().join(UNFINISHED), "half").unwrap();
        assert!(read(&path) == bytes);
        for range in [0..300_000, 300_000..300_001, 300_001..800_000] {
            let packed = pack_journal(&path, range.clone()).unwrap();
            assert!(packed < range.end - range.start + 100);
            // Killed before the hole is punched, halfway through, and after it.
            assert!(read(&path) == bytes);
            let middle = range.start.midpoint(range.end);
            punch(&path, range.start..middle);
            assert!(read(&path) == bytes);
            punch(&path, range.clone());
            assert!(read(&path) == bytes);
        }
        // Records appended in the meantime follow.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"more").unwrap();
        assert!(read(&path) == [&bytes[..], b"more"].concat());
        assert!(!folder.path().join(UNFINISHED).exists());
    }

    #[test]
    fn a_piece_has_several_frames() {
        let (_folder, path, bytes) = journal(2 * FRAME_BYTES + 1000);
        let range = 500..bytes.len() as u64;
        pack_journal(&path, range.clone()).unwrap();
        punch(&path, range);
        assert!(read(&path) == bytes);
    }

    #[test]
    fn unwritable_piece_leaves_the_journal_unchanged() {
        let (folder, path, bytes) = journal(1000);
        // The journal is shorter than this.
        pack_journal(&path, 0..2000).unwrap_err();
        // A directory with that name cannot be removed.
        fs::create_dir(folder.path().join(UNFINISHED)).unwrap();
        pack_journal(&path, 0..500).unwrap_err();
        assert_eq!(read(&path), bytes);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_damaged_piece_loses_only_its_damaged_part() {
        let (folder, path, bytes) = journal(600_000);
        for start in [0, 200_000, 400_000] {
            pack_journal(&path, start..start + 200_000).unwrap();
            punch(&path, start..start + 200_000);
        }
        let second = folder
            .path()
            .join("packed.0000000000030d40-0000000000061a80");
        let length = fs::metadata(&second).unwrap().len();
        let file = OpenOptions::new().write(true).open(&second).unwrap();
        file.set_len(length - 1000).unwrap();
        let found = read(&path);
        assert_eq!(found.len(), bytes.len());
        assert!(found[..200_000] == bytes[..200_000]);
        assert!(found[400_000..] == bytes[400_000..]);
        assert_eq!(found[399_999], 0);
    }

    #[test]
    fn other_names_are_not_pieces() {
        let is_piece = |name: &str| Piece::at(Path::new(name)).is_some();
        assert!(is_piece("a/packed.0000000000000000-0000000000000001"));
        for name in [
            "packed.0000000000000001-0000000000000001",
            "packed.0000000000000001-0000000000000000",
            "packed.0000000000000000-ffffffffffffffff",
            "packed.0-1",
            ".packed",
            "packed.",
        ] {
            assert!(!is_piece(name), "{name}");
        }
    }

    proptest! {
        /// Pieces may overlap, leave gaps or reach past the end: reading ends without a panic.
        #[test]
        fn unexpected_pieces_are_read_without_a_hang(ranges in prop::collection::vec((0u64..3000, 1u64..3000), 0..5)) {
            let (folder, path, bytes) = journal(2000);
            for (start, length) in ranges {
                let name = format!("{PREFIX}{start:016x}-{:016x}", start + length);
                let of = bytes.get(start as usize..).unwrap_or_default();
                let packed = zstd::encode_all(&of[..of.len().min(length as usize)], 1).unwrap();
                fs::write(folder.path().join(name), packed).unwrap();
            }
            let mut found = Vec::new();
            let whole = Unpacked::open(&path).unwrap().read_to_end(&mut found);
            prop_assert!(found.len() < 10_000);
            if whole.is_ok() {
                let common = found.len().min(2000);
                prop_assert_eq!(&found[..common], &bytes[..common]);
            }
        }
    }
}
