//! The running kernel's memory.
//!
//! ```text
//! /proc/kcore: ELF, a core; LOAD  0xffffffff81000000, 0x4000000 bytes, at 0x7fff81003000 of the file
//! ```
//! The kernel writes the ranges that can be read as segments (fs/proc/kcore.c). Its code is there as it runs: with patched calls and
//! alternatives. Only root may read it, and no kernel that is locked down lets it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_trace::symbols::Machine;

const KCORE: &str = "/proc/kcore";
const HEAD_BYTES: usize = 64;
const SEGMENT_BYTES: u64 = 56;
/// More than any kernel writes.
const SEGMENTS_MAX: u64 = 1 << 12;
const LOAD: u32 = 1;
const NOT_READABLE: &str = "/proc/kcore is not readable, which has the kernel's code";

/// The open file, and its segments.
pub(super) struct Kcore {
    file: File,
    machine: Machine,
    segments: Vec<Segment>,
}

struct Segment {
    address: u64,
    bytes: u64,
    offset: u64,
}

impl Kcore {
    pub(super) fn open() -> Result<Kcore, &'static str> {
        Kcore::of(Path::new(KCORE)).map_err(|error| {
            log::info!("{KCORE}: {error}");
            NOT_READABLE
        })
    }

    fn of(path: &Path) -> io::Result<Kcore> {
        let file = File::open(path)?;
        let mut head = [0; HEAD_BYTES];
        file.read_exact_at(&mut head, 0)?;
        let wrong = |_: Short| io::Error::from(io::ErrorKind::InvalidData);
        let endian = match head {
            [0x7f, b'E', b'L', b'F', 2, 1, ..] => Endian::Little,
            [0x7f, b'E', b'L', b'F', 2, 2, ..] => Endian::Big,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let (machine, at, count) = numbers(&head, endian).map_err(wrong)?;
        let mut segments = Vec::new();
        for index in 0..u64::from(count).min(SEGMENTS_MAX) {
            let mut segment = [0; SEGMENT_BYTES as usize];
            file.read_exact_at(&mut segment, at.saturating_add(index * SEGMENT_BYTES))?;
            segments.extend(Segment::read(&segment, endian).map_err(wrong)?);
        }
        Ok(Kcore {
            file,
            machine: Machine::of_number(machine),
            segments,
        })
    }

    pub(super) fn machine(&self) -> Machine {
        self.machine
    }

    /// Reads bytes at an address.
    pub(super) fn read(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        let end = address.checked_add(bytes)?;
        let segment = self.segments.iter().find(|segment| {
            segment.address <= address && end <= segment.address.saturating_add(segment.bytes)
        })?;
        let mut code = vec![0; usize::try_from(bytes).ok()?];
        let offset = segment.offset.checked_add(address - segment.address)?;
        self.file.read_exact_at(&mut code, offset).ok()?;
        Some(code)
    }
}

/// Machine, offset and number of the program headers.
fn numbers(head: &[u8], endian: Endian) -> Result<(u16, u64, u16), Short> {
    let mut cursor = Cursor::new(head, 0, endian);
    cursor.bytes(18)?;
    let machine = cursor.u16()?;
    cursor.bytes(12)?;
    let at = cursor.u64()?;
    cursor.bytes(16)?;
    Ok((machine, at, cursor.u16()?))
}

impl Segment {
    fn read(header: &[u8], endian: Endian) -> Result<Option<Segment>, Short> {
        let mut cursor = Cursor::new(header, 0, endian);
        let kind = cursor.u32()?;
        cursor.u32()?;
        let (offset, address) = (cursor.u64()?, cursor.u64()?);
        cursor.u64()?;
        let bytes = cursor.u64()?;
        Ok((kind == LOAD).then_some(Segment {
            address,
            bytes,
            offset,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_where_the_headers_say() {
        let mut file = vec![0_u8; HEAD_BYTES];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&62_u16.to_le_bytes());
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[56..58].copy_from_slice(&2_u16.to_le_bytes());
        for (kind, offset, address, bytes) in [
            (4_u32, 0_u64, 0_u64, 100_u64),
            (1, 176, 0xffff_ffff_8100_0000, 8),
        ] {
            file.extend(kind.to_le_bytes());
            file.extend([0; 4]);
            for number in [offset, address, 0, bytes, bytes, 0] {
                file.extend(number.to_le_bytes());
            }
        }
        file.extend(b"\x90\x90\xc3\xcc1234");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("core");
        std::fs::write(&path, &file).unwrap();
        let kcore = Kcore::of(&path).unwrap();
        assert_eq!(kcore.machine(), Machine::X86_64);
        let read = |address, bytes| kcore.read(address, bytes);
        assert_eq!(read(0xffff_ffff_8100_0002, 2).unwrap(), b"\xc3\xcc");
        assert_eq!(read(0xffff_ffff_8100_0004, 5), None);
        assert_eq!(read(0xffff_ffff_8200_0000, 1), None);
        assert_eq!(read(u64::MAX, 2), None);
        std::fs::write(&path, &file[..100]).unwrap();
        assert!(Kcore::of(&path).is_err());
    }
}
