//! Records of a perf.data other than samples: types, bodies, trailers.
//!
//! ```text
//! u32 type, u16 misc, u16 size (with these 8 bytes)   body   trailer: pid/tid, time, id, stream_id, cpu, identifier
//! ```
//! Kernel records are 1 to 63 (include/uapi/linux/perf_event.h), perf's own from 64 on (tools/lib/perf/include/
//! perf/event.h), simpleperf's from 32768 on.

use perfquet_events::bytes::{Cursor, Endian, Short, before_nul};
use perfquet_events::event::{Comm, Fork, Mapping, Space};

use crate::perf_data::attr::{Attr, sample_type};
use crate::perf_data::sample::space_of;

/// Bytes of a record's header.
pub(super) const HEADER_BYTES: usize = 8;

/// Flag in `misc`. MMAP: not executable. COMM: by execve. SWITCH: switched out.
pub(super) const MISC_BIT_13: u16 = 1 << 13;
/// Flag in `misc`. SWITCH: preempted. MMAP2: a build ID instead of device and inode.
pub(super) const MISC_BIT_14: u16 = 1 << 14;
/// Flag in `misc`. BUILD_ID: the size is stored. LOST_SAMPLES: dropped by a BPF filter.
pub(super) const MISC_BIT_15: u16 = 1 << 15;

/// Numbers of record types.
pub(super) mod kind {
    pub(in super::super) const MMAP: u32 = 1;
    pub(in super::super) const LOST: u32 = 2;
    pub(in super::super) const COMM: u32 = 3;
    pub(in super::super) const EXIT: u32 = 4;
    pub(in super::super) const THROTTLE: u32 = 5;
    pub(in super::super) const UNTHROTTLE: u32 = 6;
    pub(in super::super) const FORK: u32 = 7;
    pub(in super::super) const READ: u32 = 8;
    pub(in super::super) const SAMPLE: u32 = 9;
    pub(in super::super) const MMAP2: u32 = 10;
    pub(in super::super) const AUX: u32 = 11;
    pub(in super::super) const ITRACE_START: u32 = 12;
    pub(in super::super) const LOST_SAMPLES: u32 = 13;
    pub(in super::super) const SWITCH: u32 = 14;
    pub(in super::super) const SWITCH_CPU_WIDE: u32 = 15;
    pub(in super::super) const NAMESPACES: u32 = 16;
    pub(in super::super) const KSYMBOL: u32 = 17;
    pub(in super::super) const BPF_EVENT: u32 = 18;
    pub(in super::super) const CGROUP: u32 = 19;
    pub(in super::super) const TEXT_POKE: u32 = 20;
    pub(in super::super) const AUX_OUTPUT_HW_ID: u32 = 21;
    pub(in super::super) const CALLCHAIN_DEFERRED: u32 = 22;
    /// The last known kernel type.
    pub(in super::super) const KERNEL_LAST: u32 = 22;

    /// perf's own types.
    pub(in super::super) const HEADER_ATTR: u32 = 64;
    pub(in super::super) const HEADER_EVENT_TYPE: u32 = 65;
    pub(in super::super) const TRACING_DATA: u32 = 66;
    pub(in super::super) const BUILD_ID: u32 = 67;
    pub(in super::super) const FINISHED_ROUND: u32 = 68;
    pub(in super::super) const ID_INDEX: u32 = 69;
    pub(in super::super) const AUXTRACE_INFO: u32 = 70;
    pub(in super::super) const AUXTRACE: u32 = 71;
    pub(in super::super) const AUXTRACE_ERROR: u32 = 72;
    pub(in super::super) const THREAD_MAP: u32 = 73;
    pub(in super::super) const CPU_MAP: u32 = 74;
    pub(in super::super) const STAT_CONFIG: u32 = 75;
    pub(in super::super) const STAT: u32 = 76;
    pub(in super::super) const STAT_ROUND: u32 = 77;
    pub(in super::super) const EVENT_UPDATE: u32 = 78;
    pub(in super::super) const TIME_CONV: u32 = 79;
    pub(in super::super) const HEADER_FEATURE: u32 = 80;
    pub(in super::super) const COMPRESSED: u32 = 81;
    pub(in super::super) const FINISHED_INIT: u32 = 82;
    pub(in super::super) const COMPRESSED2: u32 = 83;
    pub(in super::super) const BPF_METADATA: u32 = 84;
    /// perf's last known type (schedstat).
    pub(in super::super) const TOOL_LAST: u32 = 86;

    /// simpleperf's own types.
    pub(in super::super) const SIMPLEPERF_FIRST: u32 = 32768;
    pub(in super::super) const KERNEL_SYMBOL: u32 = 32769;
    pub(in super::super) const DSO: u32 = 32770;
    pub(in super::super) const SYMBOL: u32 = 32771;
    pub(in super::super) const SPLIT: u32 = 32772;
    pub(in super::super) const SPLIT_END: u32 = 32773;
    pub(in super::super) const EVENT_ID: u32 = 32774;
    pub(in super::super) const SIMPLEPERF_CALLCHAIN: u32 = 32775;
    pub(in super::super) const UNWINDING_RESULT: u32 = 32776;
    pub(in super::super) const SIMPLEPERF_TRACING_DATA: u32 = 32777;
    pub(in super::super) const DEBUG: u32 = 32778;
}

/// A record's header, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// Size of the record including its header, in bytes.
    pub(super) size: usize,
}

impl RecordHeader {
    /// Parses the header at the start of `bytes`; `None` if they are too short.
    #[inline]
    pub(super) fn parse(bytes: &[u8], endian: Endian) -> Option<RecordHeader> {
        let word = endian.u64_at(bytes, 0)?;
        let (kind, misc, size) = match endian {
            Endian::Little => (word as u32, (word >> 32) as u16, (word >> 48) as u16),
            Endian::Big => ((word >> 32) as u32, (word >> 16) as u16, word as u16),
        };
        if (kind::SIMPLEPERF_FIRST..=kind::DEBUG).contains(&kind) {
            // simpleperf's own records have a 32-bit size in both fields.
            return Some(RecordHeader {
                kind,
                misc: 0,
                size: usize::from(misc) << 16 | usize::from(size),
            });
        }
        Some(RecordHeader {
            kind,
            misc,
            size: size.into(),
        })
    }
}

/// Returns the body of a record that begins at this offset.
#[inline]
pub(super) fn body(record: &[u8], offset: u64, endian: Endian) -> Cursor<'_> {
    let body = record.get(HEADER_BYTES..).unwrap_or_default();
    Cursor::new(body, offset + HEADER_BYTES as u64, endian)
}

/// Returns the number of bytes that follow a record without being included in its size.
pub(super) fn extra_bytes(header: RecordHeader, record: &[u8], endian: Endian) -> u64 {
    if header.kind != kind::AUXTRACE && header.kind != kind::TRACING_DATA {
        return 0;
    }
    let mut body = body(record, 0, endian);
    match header.kind {
        kind::AUXTRACE => body.u64().unwrap_or(0),
        _ => {
            // simpleperf writes the data inside the record, perf after it.
            let size = body.u32().map_or(0, u64::from);
            if body.left() >= size { 0 } else { size }
        }
    }
}

/// Returns the number of bytes of a kernel record that the kernel wrote, with a trailer of `trailer_bytes`.
///
/// For three types, the kernel adds the size of the trailer again for each further event that receives the record, but
/// writes one trailer, right after the body (`perf_event_ksymbol_output` and the two similar functions do not restore
/// `header.size`). The rest is stale data of the ring.
pub fn written_bytes(record: &[u8], trailer_bytes: usize, endian: Endian) -> usize {
    match RecordHeader::parse(record, endian) {
        Some(header) => written(header, record, trailer_bytes, endian).len(),
        None => record.len(),
    }
}

/// Returns the part of a kernel record that the kernel wrote; its header is parsed.
#[inline]
pub(super) fn written(
    header: RecordHeader,
    record: &[u8],
    trailer_bytes: usize,
    endian: Endian,
) -> &[u8] {
    match header.kind {
        kind @ (kind::KSYMBOL | kind::BPF_EVENT | kind::TEXT_POKE) => {
            let end = end_of_body(kind, record, endian).map(|end| end + trailer_bytes);
            end.and_then(|end| record.get(..end)).unwrap_or(record)
        }
        _ => record,
    }
}

/// Returns the end of the body of one of these three types.
fn end_of_body(kind: u32, record: &[u8], endian: Endian) -> Option<usize> {
    /// KSYMBOL: u64 address, u32 length, u16 type, u16 flags, char name[], NUL and padding.
    const NAME: usize = HEADER_BYTES + 16;
    /// BPF_EVENT: u16 type, u16 flags, u32 id, u8 tag[8].
    const BPF_END: usize = HEADER_BYTES + 16;
    /// TEXT_POKE: u64 address, u16 old_len, u16 new_len, u8 bytes[], padding.
    const LENGTHS: usize = HEADER_BYTES + 8;
    match kind {
        kind::KSYMBOL => {
            let name = record.get(NAME..)?;
            let length = name.iter().position(|byte| *byte == 0)? + 1;
            Some(NAME + length.next_multiple_of(8))
        }
        kind::BPF_EVENT => Some(BPF_END),
        _ => {
            let length = |at| endian.u16_at(record, at).map(usize::from);
            let bytes = 4 + length(LENGTHS)? + length(LENGTHS + 2)?;
            Some(LENGTHS + bytes.next_multiple_of(8))
        }
    }
}

/// The trailer of a record other than a sample (`struct sample_id`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    pub(super) time: Option<u64>,
    pub(super) id: Option<u64>,
    pub(super) cpu: Option<u32>,
}

impl Trailer {
    /// Splits the body from the trailer after it.
    pub(super) fn split<'a>(
        body: &'a [u8],
        offset: u64,
        endian: Endian,
        attr: Option<&Attr>,
    ) -> Result<(Cursor<'a>, Trailer), Short> {
        let mut cursor = Cursor::new(body, offset, endian);
        let Some(attr) = attr else {
            return Ok((cursor, Trailer::default()));
        };
        let length = (body.len()).saturating_sub(attr.layout.trailer_bytes) as u64;
        let body = cursor.part(length)?;
        let mut trailer = Trailer::default();
        if !attr.sample_id_all() {
            return Ok((body, trailer));
        }
        if attr.has(sample_type::TID) {
            trailer.pid = Some(cursor.i32()?);
            trailer.tid = Some(cursor.i32()?);
        }
        if attr.has(sample_type::TIME) {
            trailer.time = Some(cursor.u64()?);
        }
        if attr.has(sample_type::ID) {
            trailer.id = Some(cursor.u64()?);
        }
        if attr.has(sample_type::STREAM_ID) {
            cursor.u64()?;
        }
        if attr.has(sample_type::CPU) {
            trailer.cpu = Some(cursor.u32()?);
            cursor.u32()?;
        }
        if attr.has(sample_type::IDENTIFIER) {
            trailer.id = Some(cursor.u64()?);
        }
        Ok((body, trailer))
    }
}

/// PERF_RECORD_MMAP and MMAP2. `with_build_ids`: an event of the recording requests build IDs.
pub(super) fn mapping<'a>(
    header: RecordHeader,
    body: &mut Cursor<'a>,
    with_build_ids: bool,
) -> Result<Mapping<'a>, Short> {
    let mut mapping = Mapping {
        time: None,
        pid: body.i32()?,
        tid: body.i32()?,
        space: match space_of(header.misc) {
            Space::Unknown => Space::User,
            space => space,
        },
        start: body.u64()?,
        length: body.u64()?,
        file_offset: body.u64()?,
        path: b"",
        build_id: None,
        device: None,
        inode: None,
        protection: None,
        flags: None,
    };
    if header.kind == kind::MMAP2 {
        let mut union = body.part(24)?;
        let is_flagged = header.misc & MISC_BIT_14 != 0;
        if let Some(id) = build_id_in(union.rest(), with_build_ids).filter(|_| is_flagged) {
            mapping.build_id = Some(id);
        } else {
            let (major, minor) = (union.u32()?, union.u32()?);
            let inode = union.u64()?;
            // perf writes zeros for mappings without a file.
            if inode != 0 {
                mapping.device = Some((major, minor));
                mapping.inode = Some(inode);
            }
        }
        mapping.protection = Some(body.u32()?);
        mapping.flags = Some(body.u32()?);
    }
    mapping.path = before_nul(body.rest());
    Ok(mapping)
}

/// The build ID in an MMAP2: `u8 size, u8, u16, u8 id[20]`. `None` if the bytes are device and inode instead.
///
/// The flag alone does not decide: while another session requests build IDs, kernels since 5.12 set it in the records of
/// all sessions, although only the bodies of that session have them (`perf_event_mmap_output` does not restore
/// `header.misc`). Unused bytes of a build ID are zero. If no event requests them, `perf inject` may still have added them,
/// but only IDs of linkers: one of 8 bytes equals the major number of SCSI disks.
fn build_id_in(union: &[u8], with_build_ids: bool) -> Option<&[u8]> {
    /// Sizes of MD5 and SHA-1.
    const USUAL: [usize; 2] = [16, 20];
    let (head, id) = union.split_at_checked(4)?;
    let (&size, reserved) = head.split_first()?;
    let size = usize::from(size);
    let (id, unused) = id.split_at_checked(size)?;
    let is_size = size > 0 && (with_build_ids || USUAL.contains(&size));
    let is_clean = reserved.iter().chain(unused).all(|byte| *byte == 0);
    (is_size && is_clean).then_some(id)
}

/// PERF_RECORD_COMM.
pub(super) fn comm<'a>(header: RecordHeader, body: &mut Cursor<'a>) -> Result<Comm<'a>, Short> {
    Ok(Comm {
        time: None,
        pid: Some(body.i32()?),
        tid: body.i32()?,
        comm: body.text_to_nul(),
        exec: header.misc & MISC_BIT_13 != 0,
    })
}

/// PERF_RECORD_FORK and EXIT, which have the same members, and their time.
pub(super) fn task(body: &mut Cursor<'_>) -> Result<(Fork, u64), Short> {
    let (pid, parent_pid) = (body.i32()?, body.i32()?);
    let (tid, parent_tid) = (body.i32()?, body.i32()?);
    let fork = Fork {
        time: None,
        pid,
        tid,
        parent_pid,
        parent_tid,
    };
    Ok((fork, body.u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_in_both_orders_and_sizes() {
        let little = RecordHeader::parse(b"\x0a\0\0\0\x02\0\x28\0", Endian::Little).unwrap();
        let big = RecordHeader::parse(b"\0\0\0\x0a\0\x02\0\x28", Endian::Big).unwrap();
        assert_eq!(little, big);
        assert_eq!((little.kind, little.misc, little.size), (10, 2, 40));
        let large = RecordHeader::parse(b"\x01\x80\0\0\x02\0\x28\0", Endian::Little).unwrap();
        assert_eq!((large.kind, large.misc, large.size), (32769, 0, 0x20028));
        assert_eq!(
            RecordHeader::parse(b"\x01\x80\0\0\x02\0\x28", Endian::Little),
            None
        );
    }

    #[test]
    fn flagged_devices_are_no_build_ids() {
        let union = |size: u8, id: &[u8]| {
            let mut union = [vec![size, 0, 0, 0], id.to_vec()].concat();
            union.resize(24, 0);
            union
        };
        // Devices 254:0, 8:1, 0:46, 259:2 (NVMe): u32 major, minor; u64 inode, generation.
        let device = |major: u32, minor: u32, inode: u64, generation: u64| {
            let words = [inode, generation].map(u64::to_le_bytes).concat();
            [&major.to_le_bytes()[..], &minor.to_le_bytes(), &words].concat()
        };
        for with_build_ids in [false, true] {
            let check = |union: &[u8], expected: Option<usize>| {
                let found = build_id_in(union, with_build_ids).map(<[u8]>::len);
                assert_eq!(found, expected, "{with_build_ids} {union:?}");
            };
            check(&union(20, &[7; 20]), Some(20));
            check(&union(16, &[7; 16]), Some(16));
            check(&union(8, &[7; 8]), with_build_ids.then_some(8));
            check(&union(0, &[]), None);
            check(&union(21, &[7; 20]), None);
            check(&union(16, &[7; 20]), None);
            check(&device(254, 0, 10_061_323, 0), None);
            check(&device(8, 1, 10_061_323, 2_096_066_686), None);
            check(&device(0, 46, 77, 0), None);
            check(&device(259, 2, 77, 0), None);
        }
        // Nothing distinguishes it but the settings of the events.
        assert_eq!(build_id_in(&device(8, 1, 77, 0), false), None);
    }

    #[test]
    fn stale_bytes_are_not_part_of_a_record() {
        let of = |record: &[u8]| written_bytes(record, 8, Endian::Little);
        let records: [(u32, &[u8]); 4] = [
            (kind::KSYMBOL, b"address.len.tyflprog_12\0"),
            (kind::KSYMBOL, b"address.len.tyflprog_1234567890\0"),
            (kind::BPF_EVENT, b"tyflid..tag_of_8"),
            (kind::TEXT_POKE, b"address.\x05\0\x05\0oldesnewer\0\0"),
        ];
        for (kind, body) in records {
            let head = [&kind.to_le_bytes()[..], &[0; 4]].concat();
            let whole = [&head, body, b"trailer."].concat();
            assert_eq!(of(&whole), whole.len(), "type {kind}");
            let longer = [&whole[..], b"of another record, and older"].concat();
            assert_eq!(of(&longer), whole.len(), "type {kind}");
            // A truncated record is left unchanged.
            let short = &whole[..whole.len() - 1];
            assert_eq!(of(short), short.len(), "type {kind}");
        }
        let comm = [&kind::COMM.to_le_bytes()[..], &[0; 60]].concat();
        assert_eq!(of(&comm), 64);
    }

    #[test]
    fn trailer_is_split_from_the_end() {
        let attr = Attr::of(sample_type::TID | sample_type::TIME, 1 << 18);
        let body = b"sh\0\0\0\0\0\0\x07\0\0\0\x08\0\0\0\x09\0\0\0\0\0\0\0";
        let (cursor, trailer) = Trailer::split(body, 8, Endian::Little, Some(&attr)).unwrap();
        assert_eq!(cursor.left(), 8);
        assert_eq!(
            (trailer.pid, trailer.tid, trailer.time),
            (Some(7), Some(8), Some(9))
        );
        assert!(Trailer::split(b"short", 8, Endian::Little, Some(&attr)).is_err());
    }
}
