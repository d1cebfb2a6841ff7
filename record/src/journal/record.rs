//! Building records: `{ u32 type, u16 misc, u16 size, body }`, padded to 8 bytes.

/// Types of records (include/uapi/linux/perf_event.h; from 64 on tools/lib/perf/include/perf/event.h).
pub(super) mod kind {
    pub(crate) const MMAP: u32 = 1;
    pub(crate) const COMM: u32 = 3;
    pub(crate) const FORK: u32 = 7;
    pub(crate) const SAMPLE: u32 = 9;
    pub(crate) const MMAP2: u32 = 10;
    pub(crate) const LOST_SAMPLES: u32 = 13;
    pub(crate) const HEADER_ATTR: u32 = 64;
    pub(crate) const TRACING_DATA: u32 = 66;
    pub(crate) const BUILD_ID: u32 = 67;
    pub(crate) const FINISHED_ROUND: u32 = 68;
    pub(crate) const EVENT_UPDATE: u32 = 78;
    pub(crate) const HEADER_FEATURE: u32 = 80;
    pub(crate) const FINISHED_INIT: u32 = 82;
}

/// Bits of `misc`.
pub(super) mod misc {
    pub(crate) const KERNEL: u16 = 1;
    pub(crate) const USER: u16 = 2;
    /// FORK: of a thread that existed; mappings are not to be copied from its parent.
    pub(crate) const FORK_EXEC: u16 = 1 << 13;
    /// BUILD_ID: its length stands behind it.
    pub(crate) const BUILD_ID_SIZE: u16 = 1 << 15;
}

/// perf's strings in headers are padded to so many bytes.
const NAME_ALIGN: usize = 64;

/// Records one behind the other.
#[derive(Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
}

/// The body of a record under construction.
pub(super) struct Body<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl Records {
    pub(super) fn new() -> Records {
        Records::default()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds a record. Says false, and adds nothing, if it is longer than a record can be.
    pub(super) fn add(&mut self, kind: u32, misc: u16, fill: impl FnOnce(&mut Body<'_>)) -> bool {
        let start = self.bytes.len();
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(misc.to_ne_bytes());
        self.bytes.extend(0u16.to_ne_bytes());
        let mut body = Body {
            bytes: &mut self.bytes,
            start,
        };
        fill(&mut body);
        body.pad(8);
        let Ok(size) = u16::try_from(self.bytes.len() - start) else {
            self.bytes.truncate(start);
            return false;
        };
        self.bytes[start + 6..start + 8].copy_from_slice(&size.to_ne_bytes());
        true
    }
}

impl Body<'_> {
    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_ne_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.bytes.extend(value.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_ne_bytes());
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Text, its NUL, and zeros to a multiple of 8: as in the kernel's records.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.raw(text);
        self.u8(0);
        self.pad(8);
    }

    /// Length, then text padded to 64: as in perf's headers.
    pub(super) fn header_text(&mut self, text: &str) {
        let length = (text.len() + 1).next_multiple_of(NAME_ALIGN);
        self.u32(length as u32);
        self.raw(text.as_bytes());
        self.bytes.resize(self.bytes.len() + length - text.len(), 0);
    }

    /// What ends every record but samples, with our sample_type: TID, TIME, CPU, IDENTIFIER.
    pub(super) fn trailer(&mut self, pid: i32, tid: i32, time: u64, cpu: u32, id: u64) {
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
    fn a_record_knows_its_size() {
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
    fn too_long_a_record_leaves_nothing() {
        let mut records = Records::new();
        assert!(!records.add(kind::COMM, 0, |body| body.raw(&[0; 70_000])));
        assert!(records.bytes().is_empty());
    }
}
