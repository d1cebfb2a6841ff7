//! Input of any kind: file, directory, pipe or growing journal, compressed or not.
//!
//! A reader either streams ([`Input`] is `Read` and `BufRead`) or takes all bytes ([`Input::whole`]). A plain file is
//! memory-mapped; a pipe or compressed file is first copied to an unlinked temporary file of limited size. `.gz`,
//! `.zst` and `.xz` are recognized by their first bytes, the output of `atrace -z` by the line before its zlib stream,
//! UTF-16 by its byte order mark.
//! A directory format names the file that identifies it; its reader opens the others with [`Input::map_file`]. The files of an
//! archive are read in the same way ([`Input::open_archive`]).

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::Error;
use crate::archive::Flaw;
use crate::bytes::Endian;

mod directory;
mod encoding;
mod map;
mod pipe;
mod regular;

pub use map::Map;
pub use regular::{open_regular, open_regular_without_links};

/// Number of bytes that sniffers see.
pub const HEAD_BYTES: usize = 4096;

/// Default maximum size of a temporary file: 16 GiB.
pub const TEMPORARY_BYTES_MAX: u64 = 16 << 30;

const BUFFER_BYTES: usize = 1 << 20;
/// The reader of a journal has buffers; reads into them pass by this one, because they are not smaller.
const JOURNAL_BUFFER_BYTES: usize = 64 << 10;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";
/// `atrace -z` writes this line, followed by the zlib-compressed text.
const ATRACE_LINE: &[u8] = b"TRACE:\n";
/// atrace may print messages before that line, within this many bytes.
const ATRACE_WITHIN: usize = 512;
/// More than `xz -9` needs; a hostile file may require gigabytes.
const XZ_MEMORY_KIB: u32 = 100 << 10;

/// An input to import.
pub struct Input {
    name: String,
    path: Option<PathBuf>,
    /// Size of the file on disk, if known.
    size_bytes: Option<u64>,
    head: Vec<u8>,
    /// Number of bytes of `head` that `read` has returned.
    head_read: usize,
    source: Source,
    consumed_bytes: u64,
    /// Names of the files of a directory, sorted.
    files: Vec<String>,
    /// Where they are.
    tree: Option<directory::Tree>,
    /// Directory in an archive; empty or with a `/` at its end.
    prefix: String,
    /// Of the directories below, only these are part of the input; all, if empty.
    part: Vec<String>,
    /// The file of the archive that this is a part of.
    container: Option<PathBuf>,
    /// The size is that of the archive, not of the files that are read.
    is_whole_archive: bool,
    /// Parts of the archive that cannot be read.
    flaws: Vec<Flaw>,
    /// Reason why a compressed file was not decompressed completely.
    damage: Option<String>,
    /// Additional information from the user: the D script that printed the output of `dtrace`.
    script: Option<String>,
    /// Further mapped files of this input.
    watched: Vec<(String, Arc<Map>)>,
    temporary_bytes_max: u64,
    is_prompt: bool,
}

enum Source {
    /// A directory, until [`Input::enter`] chooses one of its files.
    Directory,
    Mapped {
        map: Arc<Map>,
        read: usize,
    },
    Stream(Box<dyn BufRead + Send>),
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Input, Error> {
        if path.as_os_str() == "-" {
            return Input::standard();
        }
        let file = File::open(path).map_err(Error::io(path))?;
        let metadata = file.metadata().map_err(Error::io(path))?;
        if metadata.is_dir() {
            return Input::open_directory(path);
        }
        let mut input = Input::of_file(path.display().to_string(), file, &metadata)?;
        input.path = Some(path.to_owned());
        Ok(input)
    }

    /// Opens standard input. A redirected file is read like a named one if it is at its start.
    fn standard() -> Result<Input, Error> {
        let name = "stdin".to_owned();
        let stdin = io::stdin();
        let file = stdin.as_fd().try_clone_to_owned().map(File::from);
        if let Ok(mut file) = file
            && let Ok(metadata) = file.metadata()
            && metadata.is_file()
            && file.stream_position().is_ok_and(|position| position == 0)
        {
            return Input::of_file(name, file, &metadata);
        }
        pipe::widen(&stdin);
        Input::from_reader(&name, Box::new(stdin))
    }

    fn of_file(name: String, file: File, metadata: &Metadata) -> Result<Input, Error> {
        let path = PathBuf::from(&name);
        let mut input = if metadata.is_file() && metadata.len() > 0 {
            // Compressed files are streamed, not mapped.
            if is_packed(&head_of(&file).map_err(Error::io(&path))?) {
                Input::from_reader(&name, Box::new(file))?
            } else {
                Input::from_map(name, Map::of(file).map_err(Error::io(&path))?)
            }
        } else {
            Input::from_reader(&name, Box::new(file))?
        };
        input.size_bytes = metadata.is_file().then_some(metadata.len());
        Ok(input)
    }

    /// Whether this is a directory of which no file has been entered.
    pub fn is_directory(&self) -> bool {
        matches!(self.source, Source::Directory)
    }

    /// Returns the names of the files in a directory, sorted; empty for other inputs. Subdirectories are not searched.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Adds a file to those of this input.
    pub fn watch(&mut self, name: String, map: &Arc<Map>) {
        self.watched.push((name, Arc::clone(map)));
    }

    /// Checks that no file was truncated since it was opened. Bytes read past a truncation are zeros.
    pub fn check_whole(&self) -> Result<(), Error> {
        let own = match &self.source {
            Source::Mapped { map, .. } => Some((&self.name, map)),
            Source::Stream(_) | Source::Directory => None,
        };
        let watched = self.watched.iter().map(|(name, map)| (name, map));
        for (name, map) in own.into_iter().chain(watched) {
            if let Some(cut) = map.cut() {
                return Err(Error::Damaged {
                    input: name.clone(),
                    place: crate::event::Place::Whole,
                    message: format!("{cut}, so the trace is incomplete\nhint: import it again"),
                });
            }
        }
        Ok(())
    }

    /// Sets the maximum size of a temporary file, used for a pipe or compressed file whose format needs random access.
    pub fn set_temporary_bytes_max(&mut self, bytes: u64) {
        self.temporary_bytes_max = bytes;
    }

    /// Returns the maximum size of a temporary file.
    pub fn temporary_bytes_max(&self) -> u64 {
        self.temporary_bytes_max
    }

    /// Has events passed on as soon as the format allows, for a reader that waits for them. A late event may then follow a newer one.
    pub fn set_prompt(&mut self) {
        self.is_prompt = true;
    }

    /// Whether events are passed on as soon as the format allows.
    pub fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    /// Returns the reason why [`Input::whole`] lacks a part of a compressed file; `None` if it is complete. [`Format::read`] reports it.
    ///
    /// [`Format::read`]: crate::Format::read
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Reads a file while another thread appends to it: no further than `settled`, since the writer may truncate what follows, and
    /// to its end once `finished` is set. After setting it, the writer should unpark the reading thread, which otherwise continues
    /// after a pause.
    pub fn following(
        path: &Path,
        settled: Arc<AtomicU64>,
        finished: Arc<AtomicBool>,
    ) -> Result<Input, Error> {
        let file = File::open(path).map_err(Error::io(path))?;
        Input::of_journal(
            path,
            Box::new(Follower {
                file,
                read: 0,
                settled,
                finished,
                pause: PAUSE_MIN,
            }),
        )
    }

    /// Opens the journal at `path`, whose bytes `reader` assembles.
    pub fn of_journal(path: &Path, reader: Box<dyn Read + Send>) -> Result<Input, Error> {
        let reader = Box::new(BufReader::with_capacity(JOURNAL_BUFFER_BYTES, reader));
        let mut input = Input::unpacked(&path.display().to_string(), reader)?;
        input.path = Some(path.to_owned());
        Ok(input)
    }

    /// Wraps a byte stream, and decompresses it if necessary.
    pub fn from_reader(name: &str, reader: Box<dyn Read + Send>) -> Result<Input, Error> {
        let reader = Box::new(BufReader::with_capacity(BUFFER_BYTES, reader));
        Input::unpacked(name, reader)
    }

    fn unpacked(name: &str, mut reader: Box<dyn BufRead + Send>) -> Result<Input, Error> {
        let mut head = read_head(&mut reader).map_err(Error::io(name))?;
        // A compressed file may be compressed again (a .gz of a .zst): decompress until the head is plain, at most four
        // layers, because a hostile file could nest them without end.
        for _ in 0..4 {
            let packed = io::Cursor::new(std::mem::take(&mut head)).chain(reader);
            let (unpacked, done) = unpack(packed).map_err(Error::io(name))?;
            reader = unpacked;
            head = read_head(&mut reader).map_err(Error::io(name))?;
            if done {
                break;
            }
        }
        Ok(Input::of_source(
            name.to_owned(),
            Source::Stream(reader),
            head,
        ))
    }

    /// Wraps bytes in memory, for tests and fuzzing.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Input, Error> {
        Input::from_reader(name, Box::new(io::Cursor::new(bytes.to_vec())))
    }

    fn from_map(name: String, map: Map) -> Input {
        let head = map.iter().take(HEAD_BYTES).copied().collect();
        let source = Source::Mapped {
            map: Arc::new(map),
            read: 0,
        };
        Input::of_source(name, source, head)
    }

    fn of_source(name: String, source: Source, head: Vec<u8>) -> Input {
        Input {
            name,
            path: None,
            size_bytes: None,
            head,
            head_read: 0,
            source,
            consumed_bytes: 0,
            files: Vec::new(),
            tree: None,
            prefix: String::new(),
            part: Vec::new(),
            container: None,
            is_whole_archive: false,
            flaws: Vec::new(),
            damage: None,
            script: None,
            watched: Vec::new(),
            temporary_bytes_max: TEMPORARY_BYTES_MAX,
            is_prompt: false,
        }
    }

    /// Name for messages and the manifest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds the D script that produced the input.
    pub fn with_script(self, script: Option<String>) -> Input {
        Input { script, ..self }
    }

    /// Returns the D script that produced the input, if given.
    pub fn script(&self) -> Option<&str> {
        self.script.as_deref()
    }

    /// Returns the path, if the input is a file.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the path of the file that holds the bytes: that of an archive, for a file in it.
    pub fn container(&self) -> Option<&Path> {
        self.path().or(self.container.as_deref())
    }

    /// Returns the size of the file on disk, compressed or not.
    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// Returns the number of bytes read so far, after decompression.
    pub fn consumed_bytes(&self) -> u64 {
        self.consumed_bytes
    }

    /// Returns the first bytes, for sniffing: [`HEAD_BYTES`], or all of a shorter input.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns all bytes, if the input is a plain file that is already mapped.
    pub fn mapped(&self) -> Option<Arc<Map>> {
        match &self.source {
            Source::Mapped { map, .. } => Some(Arc::clone(map)),
            Source::Stream(_) | Source::Directory => None,
        }
    }

    /// Returns whether the last line has no line ending, if all bytes are mapped.
    pub fn ends_within_a_line(&self) -> bool {
        let map = self.mapped();
        map.and_then(|map| map.last().copied())
            .is_some_and(|last| last != b'\n')
    }

    /// Returns all bytes, through an unlinked temporary file for a pipe or compressed file; `None` if the input is
    /// empty. Nothing may have been read before.
    pub fn whole(&mut self) -> Result<Option<Arc<Map>>, Error> {
        if let Some(map) = self.mapped() {
            return Ok(Some(map));
        }
        let mut file = unlinked_file().map_err(Error::io(std::env::temp_dir()))?;
        let copied = match self.copy_to(&mut file)? {
            (copied, None) => copied,
            (0, Some(source)) => return Err(Error::io(&self.name)(source)),
            // Keep what was decompressed before the damage.
            (copied, Some(error)) => {
                self.damage = Some(format!("expected more of the input: {error}"));
                copied
            }
        };
        if copied == 0 {
            return Ok(None);
        }
        let map = Arc::new(Map::of(file).map_err(Error::io(std::env::temp_dir()))?);
        self.source = Source::Mapped {
            map: Arc::clone(&map),
            read: 0,
        };
        Ok(Some(map))
    }

    /// Copies the readable bytes; returns their number and the error that stopped the copy.
    fn copy_to(&mut self, file: &mut File) -> Result<(u64, Option<io::Error>), Error> {
        let mut copied = 0;
        let max = self.temporary_bytes_max;
        loop {
            let bytes = match self.fill_buf() {
                Ok([]) => return Ok((copied, None)),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok((copied, Some(error))),
            };
            let count = bytes.len();
            if copied + count as u64 > max {
                return Err(too_large(&self.name, max));
            }
            file.write_all(bytes)
                .map_err(Error::io(std::env::temp_dir()))?;
            copied += count as u64;
            self.consume(count);
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Source::Stream(reader) = &mut self.source
            && self.head_read == self.head.len()
        {
            // A buffered reader fills a large buffer of the caller without using its own.
            let count = reader.read(buffer)?;
            self.consumed_bytes += count as u64;
            return Ok(count);
        }
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Input {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &mut self.source {
            Source::Directory => Ok(&[]),
            Source::Mapped { map, read } => Ok(map.get(*read..).unwrap_or_default()),
            Source::Stream(_) if self.head_read < self.head.len() => {
                Ok(self.head.get(self.head_read..).unwrap_or_default())
            }
            Source::Stream(reader) => reader.fill_buf(),
        }
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.consumed_bytes += count as u64;
        match &mut self.source {
            Source::Directory => {}
            Source::Mapped { read, .. } => *read += count,
            Source::Stream(_) if self.head_read < self.head.len() => self.head_read += count,
            Source::Stream(reader) => reader.consume(count),
        }
    }
}

fn is_packed(bytes: &[u8]) -> bool {
    [GZIP_MAGIC, ZSTD_MAGIC, XZ_MAGIC]
        .iter()
        .any(|magic| bytes.starts_with(magic))
        || packed_by_atrace(bytes).is_some()
        || bytes.starts_with(encoding::UTF8_MARK)
        || encoding::utf16(bytes).is_some()
}

/// Finds the start of the compressed text of `atrace -z`.
fn packed_by_atrace(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..ATRACE_WITHIN).unwrap_or(bytes);
    let line = crate::scan::find_text(head, ATRACE_LINE)?;
    let begin = line + ATRACE_LINE.len();
    // The zlib header (RFC 1950): method 8 with a window of 32 KiB, and a checksum of both bytes.
    let &[method, flags] = bytes.get(begin..begin + 2)? else {
        return None;
    };
    let is_zlib = method == 0x78 && Endian::Big.u16([method, flags]).is_multiple_of(31);
    is_zlib.then_some(begin)
}

/// Removes one layer of compression or encoding; returns whether there was none.
fn unpack(
    mut reader: impl BufRead + Send + 'static,
) -> io::Result<(Box<dyn BufRead + Send>, bool)> {
    let head = reader.fill_buf()?;
    Ok(if head.starts_with(GZIP_MAGIC) {
        let unpacked = flate2::bufread::MultiGzDecoder::new(reader);
        (
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked)),
            false,
        )
    } else if head.starts_with(ZSTD_MAGIC) {
        let unpacked = zstd::stream::read::Decoder::with_buffer(reader)?;
        (
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked)),
            false,
        )
    } else if head.starts_with(XZ_MAGIC) {
        let unpacked = lzma_rust2::XzReader::new_mem_limit(reader, true, XZ_MEMORY_KIB);
        (
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked)),
            false,
        )
    } else if let Some(begin) = packed_by_atrace(head) {
        let mut notices = vec![0; begin];
        reader.read_exact(&mut notices)?;
        let unpacked = flate2::bufread::ZlibDecoder::new(reader);
        let text = io::Cursor::new(notices).chain(unpacked);
        (
            Box::new(BufReader::with_capacity(BUFFER_BYTES, text)),
            false,
        )
    } else if head.starts_with(encoding::UTF8_MARK) {
        reader.consume(encoding::UTF8_MARK.len());
        (Box::new(reader), false)
    } else if let Some(endian) = encoding::utf16(head) {
        reader.consume(2);
        let text = encoding::Utf16::new(reader, endian);
        (
            Box::new(BufReader::with_capacity(BUFFER_BYTES, text)),
            false,
        )
    } else {
        (Box::new(reader), true)
    })
}

/// Reads the first bytes. What precedes damage is kept; the reader fails where it is.
fn read_head(reader: &mut Box<dyn BufRead + Send>) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    match reader.take(HEAD_BYTES as u64).read_to_end(&mut head) {
        Err(error) if !head.is_empty() => *reader = Box::new(Broken(error)),
        result => drop(result?),
    }
    Ok(head)
}

/// The rest of a damaged input.
struct Broken(io::Error);

impl Broken {
    fn error(&self) -> io::Error {
        io::Error::new(self.0.kind(), self.0.to_string())
    }
}

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.error())
    }
}

impl BufRead for Broken {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Err(self.error())
    }

    fn consume(&mut self, _: usize) {}
}

/// Reads the first bytes of a file.
fn head_of(file: &File) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut head = vec![0; HEAD_BYTES];
    let mut length = 0;
    while let Some(rest) = head.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(length);
    Ok(head)
}

fn too_large(what: &str, max: u64) -> Error {
    Error::Unsupported {
        input: what.to_owned(),
        message: format!(
            "expected at most {max} bytes after decompression (limit for temporary files), found more\n\
             hint: raise it with --max-temporary SIZE, or decompress the input first"
        ),
    }
}

/// Creates an unnamed file, deleted when it is closed.
fn unlinked_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(std::env::temp_dir())
}

/// An unlinked temporary file, for data that does not fit into memory.
pub struct Spool {
    file: File,
    length: u64,
    max: u64,
}

impl Spool {
    /// Creates an empty file with a maximum size in bytes.
    pub fn new(max: u64) -> Result<Spool, Error> {
        let file = unlinked_file().map_err(Error::io(std::env::temp_dir()))?;
        let length = 0;
        Ok(Spool { file, length, max })
    }

    /// Returns the size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.length
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.length + bytes.len() as u64 > self.max {
            return Err(too_large("records waiting for their turn", self.max));
        }
        self.file
            .write_all(bytes)
            .map_err(Error::io(std::env::temp_dir()))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Maps the content; `None` if it is empty.
    pub fn map(&self) -> Result<Option<Arc<Map>>, Error> {
        if self.length == 0 {
            return Ok(None);
        }
        let map = self.file.try_clone().and_then(Map::of);
        Ok(Some(Arc::new(
            map.map_err(Error::io(std::env::temp_dir()))?,
        )))
    }
}

/// Reads a growing file: an end of file counts only once the writer has finished.
struct Follower {
    file: File,
    /// Number of bytes read.
    read: u64,
    /// Length up to which the content is final.
    settled: Arc<AtomicU64>,
    finished: Arc<AtomicBool>,
    pause: Duration,
}

/// Pauses between two looks at a file that does not grow: short at first, so that a busy recording is followed closely; at
/// most a few per second in the end, since each wake-up costs more than what it reads.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(160);

impl Read for Follower {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // The flag first: whatever was written before it was set is then visible.
            let finished = self.finished.load(Ordering::Acquire);
            let final_bytes = match finished {
                true => u64::MAX,
                false => self.settled.load(Ordering::Acquire),
            };
            let left = final_bytes.saturating_sub(self.read);
            let count = (&self.file).take(left).read(buffer)?;
            if count > 0 || finished {
                self.read += count as u64;
                self.pause = PAUSE_MIN;
                return Ok(count);
            }
            std::thread::park_timeout(self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(packed: &[u8], expected: &[u8]) {
        let mut input = Input::from_bytes("test", packed).unwrap();
        assert_eq!(input.head(), &expected[..expected.len().min(HEAD_BYTES)]);
        let mut read = Vec::new();
        input.read_to_end(&mut read).unwrap();
        assert_eq!(read, expected);
        assert_eq!(input.consumed_bytes(), expected.len() as u64);
    }

    #[test]
    fn unpacks_nested_compression() {
        let plain: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let zst = zstd::encode_all(&plain[..], 1).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&zst).unwrap();
        let gz = gz.finish().unwrap();
        check(&plain, &plain);
        check(&zst, &plain);
        check(&gz, &plain);
        check(PACKED_BY_XZ, b"function_graph\n");
        check(b"", b"");
        check(b"x", b"x");
    }

    #[test]
    fn unpacks_atrace_output() {
        let text = b"# tracer: nop\n".repeat(10_000);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(&text).unwrap();
        let packed = zlib.finish().unwrap();
        for notices in [&b"TRACE:\n"[..], b"capturing trace... done\nTRACE:\n"] {
            check(&[notices, &packed].concat(), &[notices, &text].concat());
        }
        check(b"TRACE:\n", b"TRACE:\n");
        check(b"TRACE:\nx\n", b"TRACE:\nx\n");
        check(b"TRACE:\n# tracer: nop\n", b"TRACE:\n# tracer: nop\n");
    }

    #[test]
    fn reads_other_encodings() {
        let text = "# tracer: nop\n ü 😀\n".repeat(100_000);
        let utf16 = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
            let units = std::iter::once(0xfeff).chain(text.encode_utf16());
            units.flat_map(unit).collect()
        };
        check(&utf16(u16::to_le_bytes), text.as_bytes());
        check(&utf16(u16::to_be_bytes), text.as_bytes());
        check(
            &[encoding::UTF8_MARK, text.as_bytes()].concat(),
            text.as_bytes(),
        );
        let packed = zstd::encode_all(&utf16(u16::to_le_bytes)[..], 1).unwrap();
        check(&packed, text.as_bytes());
        // A mark and no text.
        check(&[0xff, 0xfe, 0, 0], &[0xff, 0xfe, 0, 0]);
    }

    /// `printf 'function_graph\n' | xz -0`
    const PACKED_BY_XZ: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21,
        0x01, 0x0c, 0x00, 0x00, 0x00, 0x8f, 0x98, 0x41, 0x9c, 0x01, 0x00, 0x0e, 0x66, 0x75, 0x6e,
        0x63, 0x74, 0x69, 0x6f, 0x6e, 0x5f, 0x67, 0x72, 0x61, 0x70, 0x68, 0x0a, 0x00, 0x00, 0x20,
        0x80, 0xd3, 0xf6, 0xd5, 0x16, 0x31, 0x7f, 0x00, 0x01, 0x27, 0x0f, 0xdf, 0x1a, 0xfc, 0x6a,
        0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
    ];

    #[test]
    fn temporary_file_has_a_limit() {
        // 10 MB that compress to 10 kB; a hostile file could decompress to terabytes.
        let packed = zstd::encode_all(&vec![7u8; 10_000_000][..], 1).unwrap();
        let mut input = Input::from_bytes("bomb.zst", &packed).unwrap();
        input.set_temporary_bytes_max(1_000_000);
        let error = input.whole().map(|_| ()).unwrap_err().to_string();
        assert!(
            error.starts_with("bomb.zst: expected at most 1000000 bytes"),
            "{error}"
        );
        assert!(error.contains("--max-temporary"), "{error}");
        let mut spool = Spool::new(10).unwrap();
        spool.append(&[1; 10]).unwrap();
        assert!(spool.append(&[1]).is_err());
    }

    #[test]
    fn truncated_file_is_not_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![b'x'; 20_000]).unwrap();
        let mut input = Input::open(file.path()).unwrap();
        input.check_whole().unwrap();
        file.as_file().set_len(10_000).unwrap();
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 20_000);
        let error = input.check_whole().unwrap_err().to_string();
        assert!(
            error.contains("was truncated from 20000 to 10000 bytes"),
            "{error}"
        );
    }

    #[test]
    fn spools_a_pipe() {
        let plain = vec![7u8; 10_000];
        let mut input = Input::from_bytes("pipe", &plain).unwrap();
        assert!(input.mapped().is_none());
        assert_eq!(&input.whole().unwrap().unwrap()[..], &plain[..]);
        assert!(
            Input::from_bytes("e", b"")
                .unwrap()
                .whole()
                .unwrap()
                .is_none()
        );
    }
}
