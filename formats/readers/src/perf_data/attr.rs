//! `struct perf_event_attr`: the settings of an event, which determine the layout of its samples.
//!
//! ```text
//!  0 u32 type, u32 size    8 u64 config      16 u64 sample_period|freq  24 u64 sample_type
//! 32 u64 read_format      40 u64 flags       48 u32 wakeup, bp_type     56 u64 config1
//! 64 u64 config2          72 u64 branch_sample_type    80 u64 sample_regs_user
//! 88 u32 sample_stack_user, i32 clockid      96 u64 sample_regs_intr    …
//! ```
//! Newer kernels extend the structure (include/uapi/linux/perf_event.h). Members missing from a shorter one are zero;
//! unknown members of a longer one are ignored. The flags are C bit-fields: on a big-endian host, they start at the
//! highest bit.

use perfquet_events::bytes::{Cursor, Endian};

/// Bits of `sample_type`.
pub(super) mod sample_type {
    pub(in super::super) const IP: u64 = 1 << 0;
    pub(in super::super) const TID: u64 = 1 << 1;
    pub(in super::super) const TIME: u64 = 1 << 2;
    pub(in super::super) const ADDR: u64 = 1 << 3;
    pub(in super::super) const READ: u64 = 1 << 4;
    pub(in super::super) const CALLCHAIN: u64 = 1 << 5;
    pub(in super::super) const ID: u64 = 1 << 6;
    pub(in super::super) const CPU: u64 = 1 << 7;
    pub(in super::super) const PERIOD: u64 = 1 << 8;
    pub(in super::super) const STREAM_ID: u64 = 1 << 9;
    pub(in super::super) const RAW: u64 = 1 << 10;
    pub(in super::super) const BRANCH_STACK: u64 = 1 << 11;
    pub(in super::super) const REGS_USER: u64 = 1 << 12;
    pub(in super::super) const STACK_USER: u64 = 1 << 13;
    pub(in super::super) const WEIGHT: u64 = 1 << 14;
    pub(in super::super) const DATA_SRC: u64 = 1 << 15;
    pub(in super::super) const IDENTIFIER: u64 = 1 << 16;
    pub(in super::super) const TRANSACTION: u64 = 1 << 17;
    pub(in super::super) const REGS_INTR: u64 = 1 << 18;
    pub(in super::super) const PHYS_ADDR: u64 = 1 << 19;
    pub(in super::super) const AUX: u64 = 1 << 20;
    pub(in super::super) const CGROUP: u64 = 1 << 21;
    pub(in super::super) const DATA_PAGE_SIZE: u64 = 1 << 22;
    pub(in super::super) const CODE_PAGE_SIZE: u64 = 1 << 23;
    pub(in super::super) const WEIGHT_STRUCT: u64 = 1 << 24;
    /// The first members of a sample, each of one word.
    pub(in super::super) const WORDS: u64 =
        IDENTIFIER | IP | TID | TIME | ADDR | ID | STREAM_ID | CPU | PERIOD;
}

/// Values of `type`.
pub(super) mod event_type {
    pub(in super::super) const HARDWARE: u32 = 0;
    pub(in super::super) const SOFTWARE: u32 = 1;
    pub(in super::super) const TRACEPOINT: u32 = 2;
    pub(in super::super) const HW_CACHE: u32 = 3;
    pub(in super::super) const RAW: u32 = 4;
    pub(in super::super) const BREAKPOINT: u32 = 5;
}

/// Smallest attr: PERF_ATTR_SIZE_VER0.
pub(super) const ATTR_BYTES_MIN: u64 = 64;
/// Maximum size of a plausible attr: the kernel rejects more than a page.
pub(super) const ATTR_BYTES_MAX: u64 = 4096;

/// Maximum type: PMUs are numbered consecutively.
const KINDS_MAX: u32 = 1 << 16;
/// Plausible bits of `sample_type`, `read_format` and the flags, including some of later kernels.
const SAMPLE_TYPES_MAX: u64 = 1 << 32;
const READ_FORMATS_MAX: u64 = 1 << 12;
const FLAGS_MAX: u64 = 1 << 48;

/// The settings of an event.
#[derive(Debug, Clone, Default)]
pub(super) struct Attr {
    pub(super) kind: u32,
    pub(super) config: u64,
    /// Period, or samples per second if `freq()`.
    pub(super) sample_period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    /// Flags; bit 0 is `disabled` on every host.
    pub(super) flags: u64,
    pub(super) breakpoint_kind: u32,
    pub(super) config1: u64,
    pub(super) config2: u64,
    pub(super) branch_sample_type: u64,
    pub(super) sample_regs_user: u64,
    pub(super) clock_id: i32,
    pub(super) sample_regs_intr: u64,
    /// Positions of members that are read before a record is decoded.
    pub(super) layout: RecordLayout,
}

/// Positions of time and ID in an event's records, computed once because they are read for every record.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecordLayout {
    /// Size in bytes of a sample's first members, one word each.
    pub(super) head_bytes: u64,
    /// Offset of the time after the header of a sample.
    pub(super) time: Option<usize>,
    /// Offset of the ID after the header of a sample.
    pub(super) id: Option<usize>,
    /// Distance of the time from the end of other records.
    pub(super) time_from_end: Option<usize>,
    /// Distance of the ID from the end of other records.
    pub(super) id_from_end: Option<usize>,
    /// Size in bytes of the trailer of records other than samples.
    pub(super) trailer_bytes: usize,
}

macro_rules! flag {
    ($name:ident, $bit:literal) => {
        pub(super) fn $name(&self) -> bool {
            self.flags >> $bit & 1 == 1
        }
    };
}

impl Attr {
    /// Parses `bytes`, a whole attr.
    pub(super) fn parse(bytes: &[u8], endian: Endian) -> Attr {
        let mut cursor = Cursor::new(bytes, 0, endian);
        let mut attr = Attr::default();
        // Missing members at the end are zero.
        let _ = attr.read(&mut cursor);
        attr.layout = attr.layout();
        attr
    }

    /// Returns an attr with these members.
    #[cfg(test)]
    pub(super) fn of(sample_type: u64, flags: u64) -> Attr {
        let mut attr = Attr {
            sample_type,
            flags,
            ..Attr::default()
        };
        attr.layout = attr.layout();
        attr
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), perfquet_events::bytes::Short> {
        self.kind = cursor.u32()?;
        let size = match cursor.u32()? {
            0 => ATTR_BYTES_MIN,
            size => u64::from(size),
        };
        // The writer's size field gives the valid part; the space reserved for the attr may be larger.
        let valid = size.saturating_sub(8).min(cursor.left());
        let mut cursor = cursor.part(valid)?;
        self.config = cursor.u64()?;
        self.sample_period = cursor.u64()?;
        self.sample_type = cursor.u64()?;
        self.read_format = cursor.u64()?;
        let flags = cursor.u64()?;
        self.flags = match cursor.endian() {
            Endian::Little => flags,
            Endian::Big => bit_fields(flags, FLAG_FIELDS),
        };
        cursor.u32()?;
        self.breakpoint_kind = cursor.u32()?;
        self.config1 = cursor.u64()?;
        self.config2 = cursor.u64()?;
        self.branch_sample_type = cursor.u64()?;
        self.sample_regs_user = cursor.u64()?;
        cursor.u32()?;
        self.clock_id = cursor.i32()?;
        self.sample_regs_intr = cursor.u64()?;
        Ok(())
    }

    /// Whether the bytes may be an attr, by its size and by unknown bits.
    pub(super) fn is_plausible(bytes: &[u8], endian: Endian) -> bool {
        let mut cursor = Cursor::new(bytes, 0, endian);
        let (Ok(kind), Ok(size)) = (cursor.u32(), cursor.u32()) else {
            return false;
        };
        let attr = Attr::parse(bytes, endian);
        // Only the first attrs, of 64 bytes, may lack their size: zeros are no attr.
        let is_size = size == 0 && bytes.len() as u64 == ATTR_BYTES_MIN
            || (ATTR_BYTES_MIN..=ATTR_BYTES_MAX).contains(&u64::from(size))
                && size.is_multiple_of(8);
        kind < KINDS_MAX
            && is_size
            && attr.sample_type < SAMPLE_TYPES_MAX
            && attr.read_format < READ_FORMATS_MAX
            && attr.flags < FLAGS_MAX
    }

    flag!(inherit, 1);
    flag!(exclude_user, 4);
    flag!(exclude_kernel, 5);
    flag!(exclude_hv, 6);
    flag!(mmap, 8);
    flag!(freq, 10);
    flag!(sample_id_all, 18);
    flag!(exclude_host, 19);
    flag!(exclude_guest, 20);
    flag!(exclude_callchain_user, 22);
    flag!(use_clockid, 25);
    flag!(build_id, 34);

    /// 0 to 3.
    pub(super) fn precise_ip(&self) -> usize {
        (self.flags >> 15 & 3) as usize
    }

    /// The period of samples that do not have it; unknown if it varies.
    #[inline]
    pub(super) fn fixed_period(&self) -> Option<u64> {
        (!self.freq() && self.sample_period > 0).then_some(self.sample_period)
    }

    pub(super) fn has(&self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    /// Returns the name of the clock of the samples.
    pub(super) fn clock(&self) -> &'static str {
        if !self.use_clockid() {
            return "sched_clock";
        }
        clock_name(self.clock_id)
    }

    /// Returns the offset after the header of one of a sample's first members.
    fn offset_of(&self, bit: u64) -> Option<usize> {
        let before = match bit {
            sample_type::ID => {
                sample_type::IDENTIFIER
                    | sample_type::IP
                    | sample_type::TID
                    | sample_type::TIME
                    | sample_type::ADDR
            }
            _ => sample_type::IDENTIFIER | sample_type::IP | sample_type::TID,
        };
        self.has(bit)
            .then(|| 8 * (self.sample_type & before).count_ones() as usize)
    }

    fn layout(&self) -> RecordLayout {
        let trailer = |bit| match self.sample_id_all() {
            true => self.distance_from_end(bit),
            false => None,
        };
        let is_identified = self.has(sample_type::IDENTIFIER);
        RecordLayout {
            head_bytes: 8 * u64::from((self.sample_type & sample_type::WORDS).count_ones()),
            time: self.offset_of(sample_type::TIME),
            id: match is_identified {
                true => Some(0),
                false => self.offset_of(sample_type::ID),
            },
            time_from_end: trailer(sample_type::TIME),
            id_from_end: match is_identified && self.sample_id_all() {
                true => Some(8),
                false => trailer(sample_type::ID),
            },
            trailer_bytes: self.trailer_bytes(),
        }
    }

    fn distance_from_end(&self, bit: u64) -> Option<usize> {
        let after = match bit {
            sample_type::TIME => {
                sample_type::ID
                    | sample_type::STREAM_ID
                    | sample_type::CPU
                    | sample_type::IDENTIFIER
            }
            _ => sample_type::STREAM_ID | sample_type::CPU | sample_type::IDENTIFIER,
        };
        self.has(bit)
            .then(|| 8 + 8 * (self.sample_type & after).count_ones() as usize)
    }

    fn trailer_bytes(&self) -> usize {
        if !self.sample_id_all() {
            return 0;
        }
        let members = sample_type::TID
            | sample_type::TIME
            | sample_type::ID
            | sample_type::STREAM_ID
            | sample_type::CPU
            | sample_type::IDENTIFIER;
        8 * (self.sample_type & members).count_ones() as usize
    }
}

/// Widths of the fields in the flag word, lowest first; the last one extends to the highest bit.
const FLAG_FIELDS: &[u32] = &[
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 24,
];

/// Converts bit-fields of a big-endian host, which start at the highest bit, to those of a little-endian one. `widths`
/// are those of the fields; the order of bits inside a field stays.
pub(super) fn bit_fields(word: u64, widths: &[u32]) -> u64 {
    let mut place = 0;
    let mut result = 0;
    for &width in widths {
        let mask = (1u64 << width) - 1;
        result |= (word >> (64 - place - width) & mask) << place;
        place += width;
    }
    result
}

/// Returns the name of a CLOCK_* number.
pub(super) fn clock_name(id: i32) -> &'static str {
    match id {
        0 => "realtime",
        1 => "monotonic",
        2 => "process_cputime",
        3 => "thread_cputime",
        4 => "monotonic_raw",
        5 => "realtime_coarse",
        6 => "monotonic_coarse",
        7 => "boottime",
        8 => "realtime_alarm",
        9 => "boottime_alarm",
        11 => "tai",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_bit_fields() {
        let mut bytes = [0u8; 64];
        bytes[4..8].copy_from_slice(&64u32.to_be_bytes());
        bytes[40..48].copy_from_slice(&(1u64 << (63 - 18) | 1 << (63 - 16)).to_be_bytes());
        let attr = Attr::parse(&bytes, Endian::Big);
        assert!(attr.sample_id_all());
        assert!(!attr.freq());
        assert_eq!(attr.precise_ip(), 1);
    }

    #[test]
    fn members_are_found_from_both_ends() {
        let layout = Attr::of(
            sample_type::IDENTIFIER
                | sample_type::IP
                | sample_type::TID
                | sample_type::TIME
                | sample_type::CPU,
            1 << 18,
        )
        .layout;
        assert_eq!((layout.time, layout.id), (Some(24), Some(0)));
        assert_eq!(layout.time_from_end, Some(24));
        assert_eq!(layout.id_from_end, Some(8));
        assert_eq!(layout.trailer_bytes, 32);
    }

    #[test]
    fn short_and_long_attrs() {
        let mut bytes = vec![0xffu8; 256];
        bytes[4..8].copy_from_slice(&72u32.to_le_bytes());
        let attr = Attr::parse(&bytes, Endian::Little);
        assert_eq!((attr.config2, attr.branch_sample_type), (u64::MAX, 0));
        bytes[4..8].copy_from_slice(&256u32.to_le_bytes());
        let attr = Attr::parse(&bytes, Endian::Little);
        assert_eq!(attr.branch_sample_type, u64::MAX);
        Attr::parse(&bytes[..3], Endian::Little);
    }
}
