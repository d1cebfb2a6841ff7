//! Construction of records: `{ u32 type, u16 misc, u16 size, body }`, padded to 8 bytes.

/// Types of records (include/uapi/linux/perf_event.h; from 64 on tools/lib/perf/include/perf/event.h).
pub(crate) mod kind {
    pub(crate) const MMAP: u32 = 1;
    pub(crate) const LOST: u32 = 2;
    pub(crate) const COMM: u32 = 3;
    pub(crate) const EXIT: u32 = 4;
    pub(crate) const FORK: u32 = 7;
    pub(crate) const SAMPLE: u32 = 9;
    pub(crate) const MMAP2: u32 = 10;
    pub(crate) const LOST_SAMPLES: u32 = 13;
    pub(crate) const SWITCH: u32 = 14;
    pub(crate) const NAMESPACES: u32 = 16;
    pub(crate) const HEADER_ATTR: u32 = 64;
    pub(crate) const TRACING_DATA: u32 = 66;
    pub(crate) const BUILD_ID: u32 = 67;
    pub(crate) const FINISHED_ROUND: u32 = 68;
    pub(crate) const EVENT_UPDATE: u32 = 78;
    pub(crate) const HEADER_FEATURE: u32 = 80;
    pub(crate) const FINISHED_INIT: u32 = 82;
}

/// Bits of `misc`.
pub(crate) mod misc {
    /// The mode of the CPU, such as [`KERNEL`].
    pub(crate) const CPU_MODE: u16 = 7;
    pub(crate) const KERNEL: u16 = 1;
    pub(crate) const USER: u16 = 2;
    /// COMM: the name comes from an exec.
    pub(crate) const COMM_EXEC: u16 = 1 << 13;
    /// MMAP2: a build ID replaces device and inode.
    pub(crate) const MMAP_BUILD_ID: u16 = 1 << 14;
    /// FORK: of an existing thread, which does not inherit its parent's mappings.
    pub(crate) const FORK_EXEC: u16 = 1 << 13;
    /// BUILD_ID: the length follows the build ID.
    pub(crate) const BUILD_ID_SIZE: u16 = 1 << 15;
}

/// The part of a record that can be read without its event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    /// One of [`kind`].
    pub(crate) kind: u32,
    /// Bits of [`misc`].
    pub(crate) misc: u16,
    /// The whole record.
    pub(crate) bytes: &'a [u8],
    /// PID, for a record of a process.
    pub(crate) pid: i32,
    /// PID of the parent, for FORK and EXIT.
    pub(crate) parent: i32,
    /// TID, for a record of a process.
    pub(crate) tid: i32,
    /// Time; 0 for the state at the start.
    pub(crate) time: u64,
}

impl Head<'_> {
    /// Whether the record describes a process, and is obsolete once the process has ended.
    pub(crate) fn is_of_process(&self) -> bool {
        matches!(
            self.kind,
            kind::MMAP | kind::COMM | kind::EXIT | kind::FORK | kind::MMAP2 | kind::NAMESPACES
        )
    }
}

/// Returns the kind of a record, one of [`kind`].
pub(crate) fn kind_of(record: &[u8]) -> Option<u32> {
    Some(i32_at(record, 0)? as u32)
}

/// Offset of the identifier of a sample.
pub(crate) const SAMPLE_ID_AT: usize = 8;

/// Returns the identifier of a sample, which comes first in the recorder's samples.
pub(crate) fn sample_id(sample: &[u8]) -> Option<u64> {
    u64_at(sample, SAMPLE_ID_AT)
}

/// Returns TID and time of a sample, which follow the identifier and, if present ([`Track::has_ip`]), the address.
///
/// [`Track::has_ip`]: crate::recording::Track::has_ip
pub(crate) fn sample_tid_and_time(sample: &[u8], has_ip: bool) -> Option<(i32, u64)> {
    let at = if has_ip { 24 } else { 16 };
    Some((i32_at(sample, at + 4)?, u64_at(sample, at + 8)?))
}

/// Returns the TID in the trailer of a record that is not a sample: u32 pid, tid; u64 time; u32 cpu, 0; u64 id.
pub(crate) fn trailer_tid(record: &[u8]) -> Option<i32> {
    i32_at(record, record.len().checked_sub(TRAILER_BYTES - 4)?)
}

/// Returns the time in the trailer of a record that is not a sample.
pub(crate) fn trailer_time(record: &[u8]) -> Option<u64> {
    u64_at(record, record.len().checked_sub(TRAILER_BYTES - 8)?)
}

/// Returns the identifier in the trailer of a record that is not a sample.
pub(crate) fn trailer_id(record: &[u8]) -> Option<u64> {
    u64_at(record, record.len().checked_sub(8)?)
}

/// Returns the number of records that a LOST record reports: u64 id, lost.
pub(crate) fn lost(record: &[u8]) -> Option<u64> {
    u64_at(record, 16)
}

/// Size of the trailer written by [`Body::trailer`], and by the kernel.
pub(crate) const TRAILER_BYTES: usize = 32;

/// Iterates over the records in `bytes`, up to the first incomplete one.
pub(crate) fn walk(bytes: &[u8]) -> impl Iterator<Item = Head<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let kind = i32_at(rest, 0)? as u32;
        let (misc, size) = (u16_at(rest, 4)?, usize::from(u16_at(rest, 6)?));
        if size < 8 {
            return None;
        }
        let (bytes, after) = rest.split_at_checked(size)?;
        rest = after;
        let has_parent = matches!(kind, kind::FORK | kind::EXIT);
        Some(Head {
            kind,
            misc,
            bytes,
            pid: i32_at(bytes, 8).unwrap_or(0),
            parent: i32_at(bytes, 12).unwrap_or(0),
            tid: i32_at(bytes, if has_parent { 16 } else { 12 }).unwrap_or(0),
            time: trailer_time(bytes).unwrap_or(0),
        })
    })
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let (number, _) = bytes.get(at..)?.split_first_chunk()?;
    Some(u64::from_ne_bytes(*number))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let (number, _) = bytes.get(at..)?.split_first_chunk()?;
    Some(u16::from_ne_bytes(*number))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    let (number, _) = bytes.get(at..)?.split_first_chunk()?;
    Some(i32::from_ne_bytes(*number))
}

/// perf pads strings in headers to this many bytes.
const NAME_ALIGN: usize = 64;

/// Consecutive records.
#[derive(Default)]
pub(crate) struct Records {
    bytes: Vec<u8>,
}

/// Returns the head of a record of `size` bytes, which includes the 8 bytes of the head.
pub(super) fn head(kind: u32, misc: u16, size: u16) -> [u8; 8] {
    let [a, b, c, d] = kind.to_ne_bytes();
    let ([e, f], [g, h]) = (misc.to_ne_bytes(), size.to_ne_bytes());
    [a, b, c, d, e, f, g, h]
}

/// The body of a record under construction.
pub(crate) struct Body<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl Records {
    pub(crate) fn new() -> Records {
        Records::default()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds bytes without a head.
    pub(crate) fn plain(&mut self, fill: impl FnOnce(&mut Body<'_>)) {
        let start = self.bytes.len();
        fill(&mut Body {
            bytes: &mut self.bytes,
            start,
        });
    }

    /// Adds a record. Returns false, and adds nothing, if it is too long for a record.
    pub(crate) fn add(&mut self, kind: u32, misc: u16, fill: impl FnOnce(&mut Body<'_>)) -> bool {
        let start = self.bytes.len();
        self.bytes.extend(head(kind, misc, 0));
        let mut body = Body {
            bytes: &mut self.bytes,
            start,
        };
        fill(&mut body);
        // perf pads its records, but not these: hotspot expects a section to end with its last string.
        if kind != kind::HEADER_FEATURE {
            body.pad(8);
        }
        let Ok(size) = u16::try_from(self.bytes.len() - start) else {
            self.bytes.truncate(start);
            return false;
        };
        self.bytes[start..start + 8].copy_from_slice(&head(kind, misc, size));
        true
    }
}

impl Body<'_> {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_ne_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.bytes.extend(value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_ne_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Adds a string with its NUL, padded to a multiple of 8, as the kernel does.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.raw(text);
        self.u8(0);
        self.pad(8);
    }

    /// Adds a length and a string padded to 64, as in perf's headers.
    pub(crate) fn header_text(&mut self, text: &str) {
        let length = (text.len() + 1).next_multiple_of(NAME_ALIGN);
        self.u32(length as u32);
        self.raw(text.as_bytes());
        self.bytes.resize(self.bytes.len() + length - text.len(), 0);
    }

    /// Adds the trailer of all records but samples, for the recorder's sample_type: TID, TIME, CPU, IDENTIFIER.
    pub(crate) fn trailer(&mut self, pid: i32, tid: i32, time: u64, cpu: u32, id: u64) {
        self.i32(pid);
        self.i32(tid);
        self.u64(time);
        self.u32(cpu);
        self.u32(0);
        self.u64(id);
    }

    fn pad(&mut self, to: usize) {
        let length = self.bytes.len() - self.start;
        let padding = length.next_multiple_of(to) - length;
        self.bytes.resize(self.bytes.len() + padding, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_their_size() {
        let mut records = Records::new();
        assert!(records.add(kind::COMM, misc::USER, |body| {
            body.i32(1);
            body.i32(2);
            body.text(b"sleep");
        }));
        let mut expected = Vec::new();
        expected.extend(3u32.to_ne_bytes());
        expected.extend(2u16.to_ne_bytes());
        expected.extend(24u16.to_ne_bytes());
        expected.extend(1i32.to_ne_bytes());
        expected.extend(2i32.to_ne_bytes());
        expected.extend(b"sleep\0\0\0");
        assert_eq!(records.bytes(), expected);
    }

    #[test]
    fn a_feature_ends_with_its_last_string() {
        let mut records = Records::new();
        assert!(records.add(kind::HEADER_FEATURE, 0, |body| {
            body.u64(3);
            body.header_text("host");
        }));
        assert_eq!(records.bytes().len(), 8 + 8 + 4 + 64);
    }

    #[test]
    fn too_long_record_is_not_added() {
        let mut records = Records::new();
        assert!(!records.add(kind::COMM, 0, |body| body.raw(&[0; 70_000])));
        assert!(records.bytes().is_empty());
    }
}
