//! `--to pqtz`: the trace as one file, which every command opens without unpacking; and back.
//!
//! ```text
//! a.pqt/manifest.json, a.pqt/samples/00000.parquet, …  ◄─►  a.pqtz: stored members, the manifest last
//! ```
//! Parts are compressed already. A reader finds the manifest by the central directory at the end. PKWARE's APPNOTE 6.3.10 is the format.

use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use crc32fast::Hasher;
use parquet::file::reader::Length as _;
use perfquet_trace::store::{Directory, FILE_NAME, JOURNAL, PartFile, Root};

use super::{Exporter, Output, Source, Tally};

/// `--to pqtz`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "pqtz",
    about: "one file with the whole trace, which every command opens",
    output: Output::Archive {
        ending: ".pqtz",
        next: "perfquet-query info FILE",
        write,
    },
};

/// Sizes and offsets from here on need 64 bits.
const WIDE: u64 = 0xffff_ffff;
/// So do numbers of members.
const MANY: u64 = 0xffff;
const VERSION: u16 = 20;
const VERSION_WIDE: u16 = 45;
/// Names are UTF-8.
const FLAGS: u16 = 0x0800;
/// 1980-01-01, the first date; equal traces have equal archives.
const DATE: u16 = 0x21;

fn write(source: &Source<'_>, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let trace = source.trace;
    let mut archive = ArchiveWriter::new(out, WIDE);
    let mut parts = 0;
    for part in trace.tables().flat_map(|(_, table)| &table.parts) {
        let (path, file) = trace.root().part(part)?;
        let failed = || format!("cannot read {}", path.display());
        archive.add(&part.file, &file).with_context(failed)?;
        parts += 1;
    }
    let manifest = manifest(trace)?;
    archive.add_bytes(FILE_NAME, &manifest)?;
    archive.finish()?;
    tally.wrote("part", parts);
    if trace.path().join(JOURNAL).exists() {
        tally.note(format!("the directory {JOURNAL} is not part of it"));
    }
    Ok(())
}

/// The text of the manifest, with members that this version does not know.
fn manifest(trace: &Directory) -> Result<Vec<u8>> {
    match trace.root() {
        Root::Directory(path) => {
            let path = path.join(FILE_NAME);
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        }
        Root::Archive(archive) => {
            let member = archive.member(FILE_NAME)?;
            Ok(member.range(0, member.len())?.to_vec())
        }
        Root::Remote(remote) => bail!("{}: expected a local trace", remote.url().display()),
    }
}

/// A zip of stored members.
struct ArchiveWriter<'o> {
    out: &'o mut dyn Write,
    offset: u64,
    /// The central directory.
    entries: Vec<u8>,
    count: u64,
    wide: u64,
}

impl ArchiveWriter<'_> {
    /// Sizes and offsets from `wide` on have 64 bits.
    fn new(out: &mut dyn Write, wide: u64) -> ArchiveWriter<'_> {
        ArchiveWriter {
            out,
            offset: 0,
            entries: Vec::new(),
            count: 0,
            wide,
        }
    }

    fn add(&mut self, name: &str, file: &PartFile) -> Result<()> {
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; 1 << 16];
        let mut first = file.reader(0);
        loop {
            match first.read(&mut buffer)? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        let bytes = file.len();
        self.header(name, hasher.finalize(), bytes)?;
        let copied = std::io::copy(&mut file.reader(0), self.out)?;
        if copied != bytes {
            bail!("expected {bytes} bytes, found {copied}");
        }
        self.offset += bytes;
        Ok(())
    }

    fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.header(name, crc32fast::hash(bytes), bytes.len() as u64)?;
        self.out.write_all(bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes the header of a member, and its entry in the central directory.
    fn header(&mut self, name: &str, checksum: u32, bytes: u64) -> Result<()> {
        let length = u16::try_from(name.len()).context("a name of a part is too long")?;
        let is_wide = bytes >= self.wide;
        let version = if is_wide { VERSION_WIDE } else { VERSION };
        let mut header = Vec::new();
        header.extend(b"PK\x03\x04");
        let common = |version: u16, extra: u16| {
            let mut fields = Vec::new();
            for value in [version, FLAGS, 0, 0, DATE] {
                fields.extend(value.to_le_bytes());
            }
            fields.extend(checksum.to_le_bytes());
            let short = if is_wide { u32::MAX } else { bytes as u32 };
            fields.extend(short.to_le_bytes());
            fields.extend(short.to_le_bytes());
            fields.extend(length.to_le_bytes());
            fields.extend(extra.to_le_bytes());
            fields
        };
        let sizes = if is_wide {
            vec![bytes, bytes]
        } else {
            Vec::new()
        };
        let extra = extra_field(&sizes);
        header.extend(common(version, extra.len() as u16));
        header.extend(name.as_bytes());
        header.extend(extra);
        self.out.write_all(&header)?;
        // The entry also has the offset.
        let is_far = self.offset >= self.wide;
        let mut values = sizes;
        values.extend(is_far.then_some(self.offset));
        let extra = extra_field(&values);
        let version = if is_wide || is_far {
            VERSION_WIDE
        } else {
            VERSION
        };
        self.entries.extend(b"PK\x01\x02");
        self.entries.extend(VERSION_WIDE.to_le_bytes());
        self.entries.extend(common(version, extra.len() as u16));
        // Comment, disk and attributes.
        self.entries.extend([0; 10]);
        let short = if is_far { u32::MAX } else { self.offset as u32 };
        self.entries.extend(short.to_le_bytes());
        self.entries.extend(name.as_bytes());
        self.entries.extend(extra);
        self.count += 1;
        self.offset += header.len() as u64;
        Ok(())
    }

    /// Writes the central directory.
    fn finish(self) -> Result<()> {
        let (start, bytes) = (self.offset, self.entries.len() as u64);
        self.out.write_all(&self.entries)?;
        let mut end = Vec::new();
        let is_wide = self.count >= MANY || start >= self.wide || bytes >= self.wide;
        if is_wide {
            let place = start + bytes;
            end.extend(b"PK\x06\x06");
            end.extend(44_u64.to_le_bytes());
            end.extend(VERSION_WIDE.to_le_bytes());
            end.extend(VERSION_WIDE.to_le_bytes());
            end.extend([0; 8]);
            for value in [self.count, self.count, bytes, start] {
                end.extend(value.to_le_bytes());
            }
            end.extend(b"PK\x06\x07");
            end.extend([0; 4]);
            end.extend(place.to_le_bytes());
            end.extend(1_u32.to_le_bytes());
        }
        let short = |value: u64, most: u64| if is_wide { most } else { value };
        end.extend(b"PK\x05\x06");
        end.extend([0; 4]);
        for _ in 0..2 {
            end.extend((short(self.count, MANY) as u16).to_le_bytes());
        }
        for value in [bytes, start] {
            end.extend((short(value, WIDE) as u32).to_le_bytes());
        }
        end.extend([0; 2]);
        Ok(self.out.write_all(&end)?)
    }
}

/// The extra field with values of 64 bits; empty without any.
fn extra_field(values: &[u64]) -> Vec<u8> {
    let mut field = Vec::new();
    if !values.is_empty() {
        field.extend(1_u16.to_le_bytes());
        field.extend((values.len() as u16 * 8).to_le_bytes());
        field.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    field
}

/// Writes the files of an archived trace into an empty directory. Returns their number.
pub(crate) fn unpack(trace: &Directory, folder: &Path) -> Result<u64> {
    let Root::Archive(archive) = trace.root() else {
        bail!("{}: expected an archive", trace.path().display());
    };
    let mut count = 0;
    for part in trace.tables().flat_map(|(_, table)| &table.parts) {
        let (_, file) = trace.root().part(part)?;
        copy(&file, archive.checksum(&part.file), &part.file, folder)
            .with_context(|| format!("{}: {}", archive.path().display(), part.file))?;
        count += 1;
    }
    let manifest = archive.member(FILE_NAME)?;
    copy(&manifest, archive.checksum(FILE_NAME), FILE_NAME, folder)
        .with_context(|| format!("{}: {FILE_NAME}", archive.path().display()))?;
    Ok(count)
}

/// Copies a member below a directory. Its name was checked with the manifest.
fn copy(member: &PartFile, checksum: Option<u32>, name: &str, folder: &Path) -> Result<()> {
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).create(parent)?;
    }
    let mut file = File::create_new(&path)?;
    let mut hasher = Hasher::new();
    let mut reader = member.reader(0);
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        file.write_all(&buffer[..count])?;
        bytes += count as u64;
    }
    if bytes != member.len() {
        bail!("expected {} bytes, found {bytes}", member.len());
    }
    let found = hasher.finalize();
    if checksum != Some(found) {
        let expected = checksum.unwrap_or_default();
        bail!("expected the checksum {expected:08x}, found {found:08x}: the file is damaged");
    }
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquet_events::Input;
    use perfquet_import::{ImportOptions, import};
    use perfquet_trace::store::Archive;

    use super::super::Selection;

    /// A trace, and its archive with sizes and offsets of 64 bits from `wide` on.
    fn archived(folder: &Path, wide: u64) -> (Directory, Vec<u8>) {
        let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/readers/src");
        let trace = folder.join("a.pqt");
        let input = Input::open(&readers.join("perf_data/golden/user-regs.data")).unwrap();
        import(vec![input], &trace, ImportOptions::default()).unwrap();
        let trace = Directory::open(&trace).unwrap();
        let mut out = Vec::new();
        let mut archive = ArchiveWriter::new(&mut out, wide);
        for part in trace.tables().flat_map(|(_, table)| &table.parts) {
            let (_, file) = trace.root().part(part).unwrap();
            archive.add(&part.file, &file).unwrap();
        }
        archive
            .add_bytes(FILE_NAME, &manifest(&trace).unwrap())
            .unwrap();
        archive.finish().unwrap();
        (trace, out)
    }

    fn opened(folder: &Path, bytes: &[u8]) -> Result<Directory, String> {
        let path = folder.join("a.pqtz");
        std::fs::write(&path, bytes).unwrap();
        let trace = Directory::open(&path).map_err(|error| error.to_string())?;
        for (name, _) in trace.tables() {
            let rows = trace.read(name).map_err(|error| error.to_string())?;
            for batch in rows {
                batch.map_err(|error| error.to_string())?;
            }
        }
        Ok(trace)
    }

    #[test]
    fn archives_have_the_rows_of_the_trace_also_with_64_bits() {
        let folder = tempfile::tempdir().unwrap();
        for wide in [WIDE, 1_000, 0] {
            let _ = std::fs::remove_dir_all(folder.path().join("a.pqt"));
            let (trace, bytes) = archived(folder.path(), wide);
            let found = opened(folder.path(), &bytes).unwrap();
            assert_eq!(found.manifest(), trace.manifest(), "{wide}");
            for (name, _) in trace.tables() {
                let rows = |trace: &Directory| -> Vec<_> {
                    trace.read(name).unwrap().map(Result::unwrap).collect()
                };
                assert_eq!(rows(&found), rows(&trace), "{name}");
            }
            let unpacked = folder.path().join(format!("unpacked{wide}"));
            std::fs::create_dir(&unpacked).unwrap();
            unpack(&found, &unpacked).unwrap();
            let again = Directory::open(&unpacked).unwrap();
            assert_eq!(again.manifest(), trace.manifest());
            // Programs for zips read them.
            let zip = folder.path().join("a.pqtz");
            let python = std::process::Command::new("python3")
                .args(["-c", "import sys, zipfile; sys.exit(zipfile.ZipFile(sys.argv[1]).testzip() is not None)"])
                .arg(&zip)
                .status();
            if let Ok(status) = python {
                assert!(status.success(), "{wide}");
            }
        }
    }

    #[test]
    fn an_export_of_an_archive_is_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let (_, bytes) = archived(folder.path(), WIDE);
        let archive = opened(folder.path(), &bytes).unwrap();
        let progress = |_| {};
        let selection = Selection::default();
        let source = Source::open(&archive, &selection, Default::default(), &progress).unwrap();
        let (mut out, mut tally) = (Vec::new(), Tally::default());
        write(&source, &mut out, &mut tally).unwrap();
        assert_eq!(out, bytes);
    }

    #[test]
    fn any_damage_of_an_archive_is_an_error_or_harmless() {
        let folder = tempfile::tempdir().unwrap();
        let (_, bytes) = archived(folder.path(), WIDE);
        for length in (0..bytes.len()).step_by(61) {
            assert!(
                opened(folder.path(), &bytes[..length]).is_err(),
                "{length} bytes"
            );
        }
        // Every byte of the central directory and its end, and some of the rest.
        let directory = bytes
            .windows(4)
            .position(|four| four == b"PK\x01\x02")
            .unwrap();
        let places = (0..directory).step_by(211).chain(directory..bytes.len());
        let mut errors = 0;
        for place in places {
            for value in [0, 0xff, bytes[place] ^ 0x01, bytes[place] ^ 0x80] {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                errors += usize::from(opened(folder.path(), &damaged).is_err());
            }
        }
        assert!(errors > 1_000, "{errors}");
        // What unpacks is what was packed: checksums are compared.
        let mut changed = bytes.clone();
        let inside = 30 + "x".len() + 40;
        changed[inside] ^= 0x10;
        let path = folder.path().join("b.pqtz");
        std::fs::write(&path, &changed).unwrap();
        let target = folder.path().join("b");
        std::fs::create_dir(&target).unwrap();
        let error = unpack(&Directory::open(&path).unwrap(), &target).unwrap_err();
        assert!(
            format!("{error:#}").contains("the file is damaged"),
            "{error:#}"
        );
    }

    /// An archive with these members.
    fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut archive = ArchiveWriter::new(&mut out, WIDE);
        for (name, bytes) in members {
            archive.add_bytes(name, bytes).unwrap();
        }
        archive.finish().unwrap();
        out
    }

    #[test]
    fn hostile_archives_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let error = |bytes: &[u8]| match opened(folder.path(), bytes) {
            Ok(_) => panic!("opened"),
            Err(error) => error,
        };
        for name in ["../x", "/etc/x", "a/../../x", "a\\..\\x", "./x", "x\0y", ""] {
            let found = error(&zip(&[(name, b"x")]));
            assert!(
                found.contains("expected a name inside of the trace"),
                "{name:?}: {found}"
            );
        }
        let found = error(&zip(&[("a", b"x"), ("a", b"y")]));
        assert!(
            found.contains("expected each member once, found a twice"),
            "{found}"
        );
        let found = error(&zip(&[("a", b"x")]));
        assert!(found.contains("a zip without manifest.json"), "{found}");
        assert!(found.contains("perfquet-convert"), "{found}");
        let found = error(b"PK\x03\x04 not really");
        assert!(
            found.contains("the file is not a zip, or was cut off"),
            "{found}"
        );
        // Fields of the central directory of two members.
        let bytes = zip(&[("manifest.json", b"{}"), ("b", b"0123456789")]);
        let second = bytes
            .windows(5)
            .rposition(|five| five == b"PK\x01\x02\x2d")
            .unwrap();
        let changed = |offset: usize, value: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[second + offset..][..value.len()].copy_from_slice(value);
            error(&bytes)
        };
        // Both begin at the first: one name is wrong.
        let found = changed(42, &0_u32.to_le_bytes());
        assert!(
            found.contains("expected its name before its data"),
            "{found}"
        );
        let found = changed(24, &11_u32.to_le_bytes());
        assert!(
            found.contains("expected one size of a stored member"),
            "{found}"
        );
        let found = changed(20, &0x7fff_ffff_u32.to_le_bytes());
        assert!(found.contains("expected its data before"), "{found}");
        let found = changed(42, &0x7fff_ffff_u32.to_le_bytes());
        assert!(found.contains("expected its data before"), "{found}");
        // A member inside of another: the first holds a header of the second.
        let inner = zip(&[("b", b"0123456789")]);
        let mut outer = zip(&[("manifest.json", &inner), ("b", b"0123456789")]);
        let second = outer
            .windows(5)
            .rposition(|five| five == b"PK\x01\x02\x2d")
            .unwrap();
        let inside = 30 + "manifest.json".len() as u32;
        outer[second + 42..][..4].copy_from_slice(&inside.to_le_bytes());
        let found = error(&outer);
        assert!(found.contains("found one inside of another"), "{found}");
        // Compressed.
        let mut bytes = zip(&[("manifest.json", b"{}")]);
        let entry = bytes
            .windows(4)
            .position(|four| four == b"PK\x01\x02")
            .unwrap();
        bytes[entry + 10] = 8;
        let found = error(&bytes);
        assert!(
            found.contains("expected a stored member, found a compressed"),
            "{found}"
        );
        // More members than 16 bits count.
        let names: Vec<String> = (0..70_000).map(|number| number.to_string()).collect();
        let mut members: Vec<(&str, &[u8])> =
            names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        members.push(("manifest.json", b"{\"version\": 99}"));
        let found = error(&zip(&members));
        assert!(found.contains("unsupported version 99"), "{found}");
        assert!(Archive::is_trace(&folder.path().join("a.pqtz")));
    }
}
