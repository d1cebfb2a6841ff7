//! Parses a sample, and writes it with its user stack in the call chain.

mod changed;

use perfquet_ebpf::walker::{COPY_HEAD_BYTES, COPY_REGISTERS, RECORD_COPY};
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::event::Registers;
use perfquet_trace::symbols::StackMemory;

use crate::journal::record::misc;
use crate::recording::Track;
use crate::sys::perf_event::abi;
pub(super) use changed::{put_filled, put_marked};

const IP: u64 = abi::PERF_SAMPLE_IP as u64;
const ADDR: u64 = abi::PERF_SAMPLE_ADDR as u64;
const ID: u64 = abi::PERF_SAMPLE_ID as u64;
const STREAM_ID: u64 = abi::PERF_SAMPLE_STREAM_ID as u64;
const PERIOD: u64 = abi::PERF_SAMPLE_PERIOD as u64;
const READ: u64 = abi::PERF_SAMPLE_READ as u64;
const CALLCHAIN: u64 = abi::PERF_SAMPLE_CALLCHAIN as u64;
const RAW: u64 = abi::PERF_SAMPLE_RAW as u64;
const BRANCH_STACK: u64 = abi::PERF_SAMPLE_BRANCH_STACK as u64;
const REGS_USER: u64 = abi::PERF_SAMPLE_REGS_USER as u64;
const STACK_USER: u64 = abi::PERF_SAMPLE_STACK_USER as u64;

/// Members after the call chain that are written as they are.
const OTHERS: u64 = (abi::PERF_SAMPLE_WEIGHT
    | abi::PERF_SAMPLE_WEIGHT_STRUCT
    | abi::PERF_SAMPLE_DATA_SRC
    | abi::PERF_SAMPLE_TRANSACTION
    | abi::PERF_SAMPLE_REGS_INTR
    | abi::PERF_SAMPLE_PHYS_ADDR
    | abi::PERF_SAMPLE_CGROUP
    | abi::PERF_SAMPLE_DATA_PAGE_SIZE
    | abi::PERF_SAMPLE_CODE_PAGE_SIZE
    | abi::PERF_SAMPLE_AUX) as u64;

/// Marks the start of kernel frames.
const CONTEXT_KERNEL: u64 = -128i64 as u64;
/// Marks the start of user frames.
const CONTEXT_USER: u64 = -512i64 as u64;
/// Maximum size of a record.
const RECORD_MAX: usize = 65_528;
const ABI_64: u64 = 2;
/// In the record of a copy or piece: the number of bytes of memory.
const COPY_BYTES_AT: usize = 8;
/// In that of a piece: the address of its memory.
const COPY_ADDRESS_AT: usize = 16;
/// In that of a copy: rsp.
const COPY_SP_AT: usize = 32 + 7 * 8;

/// PERF's numbers of the registers with the DWARF numbers 0 to 15, and rip.
const OF_DWARF: [u32; COPY_REGISTERS] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23];
const PERF_IP: u32 = 8;

/// Layout of an event's samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) sample_type: u64,
    registers: u64,
    /// Words per event of a group, whose values the samples have.
    words_per_value: u64,
    /// Whether branches begin with the index of the newest one.
    has_branch_index: bool,
    /// Whether the registers stay in the sample.
    keeps_registers: bool,
    /// Whether a program walks their user stacks.
    pub(super) is_walked: bool,
    /// Whether their user stacks are by frame pointers, to be marked if they are cut.
    pub(super) is_followed: bool,
}

impl Layout {
    /// Returns `None` if the event's user stacks need no processing.
    pub(super) fn of(track: &Track) -> Option<Layout> {
        let attr = &track.attr;
        track.is_rewritten().then_some(Layout {
            sample_type: attr.sample_type,
            registers: attr.sample_regs_user,
            words_per_value: 1
                + u64::from(attr.read_format & u64::from(abi::PERF_FORMAT_ID) != 0)
                + u64::from(attr.read_format & u64::from(abi::PERF_FORMAT_LOST) != 0),
            has_branch_index: attr.branch_sample_type & u64::from(abi::PERF_SAMPLE_BRANCH_HW_INDEX)
                != 0,
            keeps_registers: track.keeps_registers,
            is_walked: track.is_walked,
            is_followed: track.is_followed,
        })
    }
}

impl Layout {
    /// Whether samples have copies of stacks.
    pub(super) fn has_copies(&self) -> bool {
        self.sample_type & STACK_USER != 0
    }
}

/// Returns the offset of the number of addresses in the call chain, if all members before it are words.
pub(super) fn chain_at(sample_type: u64) -> Option<usize> {
    let has = |bit| sample_type & bit != 0;
    let words = [IP, ADDR, ID, STREAM_ID, PERIOD]
        .into_iter()
        .filter(|bit| has(*bit));
    // After header, identifier, PID and TID, time and CPU.
    (has(CALLCHAIN) && !has(READ)).then(|| 8 * (5 + words.count()))
}

/// The parts of a sample.
pub(super) struct Parts<'a> {
    pub(super) pid: i32,
    /// Offset of the number of addresses, and of their end; equal without a call chain.
    chain: (usize, usize),
    /// Start and end of the registers and memory.
    copied: (usize, usize),
    /// Registers and stack memory.
    pub(super) copy: Option<(Copied, &'a [u8])>,
    /// Start and end of the room for the memory.
    reserved: (usize, usize),
    /// The kernel stack, if the kernel overwrote the call chain.
    found: Option<Vec<u64>>,
    /// Whether it also displaced the registers, which the sample then has not.
    loses_registers: bool,
    /// Whether all that is left of the kernel stack is the innermost frame.
    pub(super) is_overwritten: bool,
}

impl Parts<'_> {
    /// The outermost user address of the call chain that the kernel recorded, and whether it is the innermost, too.
    pub(super) fn outermost(&self, record: &[u8]) -> Option<(u64, bool)> {
        let (start, end) = self.chain;
        let (words, _) = record.get(start + 8..end)?.as_chunks::<8>();
        let words = words.iter().map(|word| Endian::Little.u64(*word));
        let mut user = words.skip_while(|word| *word != CONTEXT_USER).skip(1);
        let innermost = user.next()?;
        Some(match user.last() {
            Some(outermost) => (outermost, false),
            None => (innermost, true),
        })
    }
}

/// Registers of a copy.
#[derive(Debug, Clone, Default)]
pub(super) struct Copied {
    mask: u64,
    abi: u64,
    values: Vec<u64>,
}

/// A copy recorded by the program instead of a walk.
pub(super) struct WalkCopy<'a> {
    registers: Copied,
    pub(super) memory: StackMemory<'a>,
}

impl WalkCopy<'_> {
    pub(super) fn registers(&self) -> Registers<'_> {
        self.registers.get()
    }
}

impl Copied {
    pub(super) fn get(&self) -> Registers<'_> {
        Registers {
            mask: self.mask,
            abi: self.abi,
            values: &self.values,
        }
    }
}

/// The members with which the records of walks and copies begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkHead {
    pub(super) kind: u32,
    pub(super) end: u32,
    /// Number of frames of a walk, of bytes of a copy.
    pub(super) count: u32,
    /// The file without a table that ended the walk.
    pub(super) file: u32,
    /// The first address that was not followed.
    pub(super) at: u64,
}

impl WalkHead {
    /// Reads the members; `None` if the record is too short.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<WalkHead> {
        Some(WalkHead {
            kind: cursor.u32().ok()?,
            end: cursor.u32().ok()?,
            count: cursor.u32().ok()?,
            file: cursor.u32().ok()?,
            at: cursor.u64().ok()?,
        })
    }
}

/// Parses the rest of a copy's record, after its head.
pub(super) fn copy_of_walk<'a>(cursor: &mut Cursor<'a>, bytes: u32) -> Option<WalkCopy<'a>> {
    let ip = cursor.u64().ok()?;
    let mut numbered = vec![(PERF_IP, ip)];
    for number in OF_DWARF {
        numbered.push((number, cursor.u64().ok()?));
    }
    numbered.sort_unstable();
    let registers = Copied {
        mask: numbered.iter().map(|(number, _)| 1 << number).sum(),
        abi: ABI_64,
        values: numbered.into_iter().map(|(_, value)| value).collect(),
    };
    let lower = cursor.bytes(bytes.into()).ok()?;
    // The kernel pads a record to words; a piece that does not continue it follows the padding.
    let upper = upper_part(cursor).unwrap_or_default();
    let memory = StackMemory { lower, upper };
    Some(WalkCopy { registers, memory })
}

/// The part of the stack that [`add_piece`] appended: its address, number of bytes, memory.
fn upper_part<'a>(cursor: &mut Cursor<'a>) -> Option<(u64, &'a [u8])> {
    let address = cursor.u64().ok()?;
    let bytes = cursor.u64().ok()?;
    Some((address, cursor.bytes(bytes).ok()?))
}

/// Appends a piece to the copy before it: pieces that continue the copied memory become part of it, pieces above become a
/// second part. A walk is left unchanged.
pub(super) fn add_piece(copy: &mut Vec<u8>, piece: &[u8]) {
    let number = |bytes: &[u8], at| Endian::Little.u32_at(bytes, at);
    let word = |bytes: &[u8], at| Endian::Little.u64_at(bytes, at);
    let (Some(RECORD_COPY), Some(before), Some(sp)) = (
        number(copy, 0),
        number(copy, COPY_BYTES_AT),
        word(copy, COPY_SP_AT),
    ) else {
        return;
    };
    let (Some(bytes), Some(address)) = (number(piece, COPY_BYTES_AT), word(piece, COPY_ADDRESS_AT))
    else {
        return;
    };
    let end = COPY_HEAD_BYTES + before as usize;
    let memory = piece.get(COPY_HEAD_BYTES..COPY_HEAD_BYTES + bytes as usize);
    let (Some(memory), true) = (memory, copy.len() >= end) else {
        return;
    };
    let put = |copy: &mut Vec<u8>, at: usize, value: &[u8]| {
        if let Some(place) = copy.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    let upper_bytes_at = end + 8;
    match (word(copy, end), word(copy, upper_bytes_at)) {
        (Some(upper), Some(upper_bytes)) => {
            if address != upper.wrapping_add(upper_bytes) {
                return;
            }
            let upper_bytes = upper_bytes + u64::from(bytes);
            put(copy, upper_bytes_at, &upper_bytes.to_le_bytes());
        }
        // Without the padding of the record.
        _ if address == sp.wrapping_add(before.into()) => {
            copy.truncate(end);
            put(
                copy,
                COPY_BYTES_AT,
                &before.saturating_add(bytes).to_le_bytes(),
            );
        }
        _ => {
            copy.truncate(end);
            copy.extend_from_slice(&address.to_le_bytes());
            copy.extend_from_slice(&u64::from(bytes).to_le_bytes());
        }
    }
    copy.extend_from_slice(memory);
}

/// Parses a sample. Returns `None` if members cannot be read.
///
/// The kernel has one buffer for the call chains of each context of a CPU. It takes a sample's chain before it runs the program that
/// walks the user stack, and copies it to the ring afterwards. If the program faults at a page that is not in memory, and
/// that fault is itself recorded with its stack, the record has a part of the other chain: its number of addresses is not
/// that for which the record has room (kernel/events/core.c, __perf_event_overflow). The sample of the fault, which is in the ring `before`
/// this one, has the frames of this one as its outer frames.
pub(super) fn parts<'a>(
    record: &'a [u8],
    layout: &Layout,
    before: Option<&[u8]>,
) -> Option<Parts<'a>> {
    // Only registers may follow it.
    let is_last = layout.sample_type & (RAW | BRANCH_STACK | STACK_USER | OTHERS) == 0;
    match parts_as_written(record, layout) {
        Some((parts, end)) if end == record.len() || !is_last => Some(parts),
        _ if is_last && layout.is_walked => with_chain_of(before, record, layout),
        _ => None,
    }
}

/// Parses a sample whose chain is that of another one, of which `before` has the addresses.
fn with_chain_of<'a>(
    before: Option<&[u8]>,
    record: &'a [u8],
    layout: &Layout,
) -> Option<Parts<'a>> {
    let mut cursor = Cursor::new(record, 0, Endian::Little);
    let (ip, pid) = head(&mut cursor, layout)?;
    let start = cursor.offset() as usize;
    let misc = Endian::Little.u32_at(record, 4)? & u32::from(misc::CPU_MODE);
    let ip = ip.filter(|_| misc == u32::from(misc::KERNEL));
    let (words, _) = before.unwrap_or_default().as_chunks::<8>();
    let words = words.iter().map(|word| Endian::Little.u64(*word));
    let outer = words
        .skip_while(|address| Some(*address) != ip)
        .take_while(|address| *address != CONTEXT_USER);
    let mut found: Vec<u64> = outer.collect();
    let is_overwritten = ip.is_some() && found.is_empty();
    if is_overwritten {
        found.extend(ip);
    }
    if !found.is_empty() {
        found.insert(0, CONTEXT_KERNEL);
    }
    Some(Parts {
        pid,
        chain: (start, start),
        copied: (start, record.len()),
        copy: None,
        reserved: (0, 0),
        found: Some(found),
        loses_registers: layout.keeps_registers,
        is_overwritten,
    })
}

/// Parses the members before the call chain; returns the address and the PID.
fn head(cursor: &mut Cursor<'_>, layout: &Layout) -> Option<(Option<u64>, i32)> {
    let has = |bit| layout.sample_type & bit != 0;
    cursor.bytes(16).ok()?; // header, id
    let ip = match has(IP) {
        true => Some(cursor.u64().ok()?),
        false => None,
    };
    let pid = cursor.i32().ok()?;
    cursor.bytes(12).ok()?; // tid, time
    for bit in [ADDR, ID, STREAM_ID] {
        if has(bit) {
            cursor.u64().ok()?;
        }
    }
    cursor.u64().ok()?; // cpu
    if has(PERIOD) {
        cursor.u64().ok()?;
    }
    if has(READ) {
        let values = cursor.u64().ok()?;
        let bytes = values.checked_mul(layout.words_per_value)?.checked_mul(8)?;
        cursor.bytes(bytes).ok()?;
    }
    Some((ip, pid))
}

/// Parses a sample; returns also the offset of what follows the known members.
fn parts_as_written<'a>(record: &'a [u8], layout: &Layout) -> Option<(Parts<'a>, usize)> {
    let has = |bit| layout.sample_type & bit != 0;
    let mut cursor = Cursor::new(record, 0, Endian::Little);
    let (_, pid) = head(&mut cursor, layout)?;
    let chain_start = cursor.offset() as usize;
    if has(CALLCHAIN) {
        let count = cursor.u64().ok()?;
        cursor.bytes(count.checked_mul(8)?).ok()?;
    }
    let chain = (chain_start, cursor.offset() as usize);
    if has(RAW) {
        let bytes = cursor.u32().ok()?;
        cursor.bytes(bytes.into()).ok()?;
    }
    if has(BRANCH_STACK) {
        let branches = cursor.u64().ok()?;
        let index = u64::from(layout.has_branch_index) * 8;
        cursor
            .bytes(branches.checked_mul(24)?.checked_add(index)?)
            .ok()?;
    }
    let mut copied_start = cursor.offset() as usize;
    let mut registers = Copied::default();
    if has(REGS_USER) {
        registers.mask = layout.registers;
        registers.abi = cursor.u64().ok()?;
        if registers.abi != 0 {
            for _ in 0..layout.registers.count_ones() {
                registers.values.push(cursor.u64().ok()?);
            }
        }
    }
    if layout.keeps_registers {
        copied_start = cursor.offset() as usize;
    }
    let mut memory = &record[..0];
    let mut reserved = (0, 0);
    if has(STACK_USER) {
        let bytes = cursor.u64().ok()?;
        let start = cursor.offset() as usize;
        reserved = (start, start.checked_add(usize::try_from(bytes).ok()?)?);
        memory = cursor.bytes(bytes).ok()?;
        if bytes > 0 {
            // The kernel copies `bytes`, followed by the number of bytes that are valid.
            let filled = usize::try_from(cursor.u64().ok()?).ok()?;
            memory = memory.get(..filled).unwrap_or(memory);
        }
    }
    let copied = (copied_start, cursor.offset() as usize);
    let has_copy = registers.abi != 0 && has(STACK_USER);
    let parts = Parts {
        pid,
        chain,
        copied,
        copy: has_copy.then_some((registers, memory)),
        reserved,
        found: None,
        loses_registers: false,
        is_overwritten: false,
    };
    Some((parts, cursor.offset() as usize))
}

/// Writes samples with their user stacks.
#[derive(Default)]
pub(super) struct Rewriter {
    /// The user stack, leaf first.
    pub(super) addresses: Vec<u64>,
}

impl Rewriter {
    /// Appends a sample to `out`.
    pub(super) fn write(
        &mut self,
        record: &[u8],
        parts: &Parts<'_>,
        is_cut: bool,
        out: &mut Vec<u8>,
    ) {
        let (chain_start, chain_end) = parts.chain;
        let (copied_start, copied_end) = parts.copied;
        let part = |start, end| record.get(start..end).unwrap_or_default();
        let found = parts.found.as_ref().map(|found| {
            let bytes = found.iter().flat_map(|word| word.to_ne_bytes());
            bytes.collect::<Vec<u8>>()
        });
        let kernel = match &found {
            Some(found) => found,
            None => part(chain_start.saturating_add(8).min(chain_end), chain_end),
        };
        let middle = part(chain_end, copied_start);
        let rest = match parts.loses_registers {
            // PERF_SAMPLE_REGS_ABI_NONE
            true => &[0; 8],
            false => record.get(copied_end..).unwrap_or_default(),
        };
        let others = chain_start + 8 + kernel.len() + middle.len() + rest.len();
        let room = (RECORD_MAX.saturating_sub(others) / 8).saturating_sub(2);
        let is_cut = is_cut || self.addresses.len() > room;
        self.addresses.truncate(room);
        let marks = match (self.addresses.is_empty(), is_cut) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        let count = kernel.len() / 8 + self.addresses.len() + marks;
        let size = chain_start + 8 + count * 8 + middle.len() + rest.len();
        let start = out.len();
        out.extend_from_slice(part(0, chain_start));
        out.extend_from_slice(&(count as u64).to_ne_bytes());
        out.extend_from_slice(kernel);
        if marks > 0 {
            out.extend_from_slice(&CONTEXT_USER.to_ne_bytes());
        }
        for address in &self.addresses {
            out.extend_from_slice(&address.to_ne_bytes());
        }
        if marks > 1 {
            out.extend_from_slice(&CONTEXT_USER.to_ne_bytes());
        }
        out.extend_from_slice(middle);
        out.extend_from_slice(rest);
        if let Some(place) = out.get_mut(start + 6..start + 8) {
            place.copy_from_slice(&(size as u16).to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SP: u64 = 0x7ffe_0000_1ff8;

    fn copy(kind: u32, address: u64, memory: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; COPY_HEAD_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &kind.to_le_bytes());
        put(COPY_BYTES_AT, &(memory.len() as u32).to_le_bytes());
        put(COPY_ADDRESS_AT, &address.to_le_bytes());
        put(COPY_SP_AT, &SP.to_le_bytes());
        bytes.extend_from_slice(memory);
        bytes.extend([0; 4]);
        bytes
    }

    fn check(whole: &[u8], lower: &[u8], upper: (u64, &[u8])) {
        let mut cursor = Cursor::new(whole, 0, Endian::Little);
        cursor.bytes(24).unwrap();
        let bytes = Endian::Little.u32_at(whole, COPY_BYTES_AT).unwrap();
        let found = copy_of_walk(&mut cursor, bytes).unwrap();
        assert_eq!((found.memory.lower, found.memory.upper), (lower, upper));
    }

    #[test]
    fn pieces_continue_the_memory_of_a_copy() {
        let mut whole = copy(RECORD_COPY, 0, b"abcd");
        check(&whole, b"abcd", (0, &[]));
        add_piece(&mut whole, &copy(8, SP + 4, b"efgh"));
        add_piece(&mut whole, &copy(8, SP + 8, b"ij"));
        check(&whole, b"abcdefghij", (0, &[]));
        add_piece(&mut whole, &copy(8, SP + 99, b"xyz"));
        check(&whole, b"abcdefghij", (SP + 99, b"xyz"));
        add_piece(&mut whole, &copy(8, SP + 102, b"uv"));
        check(&whole, b"abcdefghij", (SP + 99, b"xyzuv"));
        // Neither part ends there.
        add_piece(&mut whole, &copy(8, SP + 400, b"w"));
        check(&whole, b"abcdefghij", (SP + 99, b"xyzuv"));
    }

    #[test]
    fn values_branches_and_registers_stay() {
        let layout = |keeps_registers| Layout {
            sample_type: IP | PERIOD | READ | CALLCHAIN | BRANCH_STACK | REGS_USER | STACK_USER,
            registers: 0b101,
            words_per_value: 3,
            has_branch_index: true,
            keeps_registers,
            is_walked: false,
            is_followed: false,
        };
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // Header, id, ip, pid and tid, time, cpu, period.
        let head: Vec<u8> = words(&[0, 1, 2, 3, 4, 5, 6]);
        let values: Vec<u8> = words(&[2, 10, 11, 0, 20, 21, 0]);
        let kernel: Vec<u8> = words(&[1, 0xffff_ffff_8000_0000]);
        let branches: Vec<u8> = words(&[2, 7, 30, 31, 32, 33, 34, 35]);
        let registers: Vec<u8> = words(&[ABI_64, 40, 41]);
        let memory: Vec<u8> = words(&[16, 50, 51, 16]);
        let record = [&head[..], &values, &kernel, &branches, &registers, &memory].concat();
        let chain: Vec<u8> = words(&[3, 0xffff_ffff_8000_0000, CONTEXT_USER, 0x1234]);
        for (keeps, rest) in [(false, &[][..]), (true, &registers[..])] {
            let parts = parts(&record, &layout(keeps), None).unwrap();
            let (copied, stack) = parts.copy.as_ref().unwrap();
            assert_eq!(copied.get().values, [40, 41]);
            assert_eq!(stack.len(), 16);
            let mut rewriter = Rewriter {
                addresses: vec![0x1234],
            };
            let mut out = Vec::new();
            rewriter.write(&record, &parts, false, &mut out);
            let mut expected = [&head[..], &values, &chain, &branches, rest].concat();
            let bytes = (expected.len() as u16).to_le_bytes();
            expected[6..8].copy_from_slice(&bytes);
            assert_eq!(out, expected, "{keeps}");
        }
        // Lengths beyond the record.
        for at in [56, 56 + 56 + 16] {
            let mut damaged = record.clone();
            damaged[at..at + 8].fill(0xff);
            assert!(parts(&damaged, &layout(false), None).is_none());
        }
    }

    #[test]
    fn a_sample_whose_chain_was_overwritten_keeps_the_rest() {
        let layout = |is_walked| Layout {
            sample_type: IP | PERIOD | CALLCHAIN,
            registers: 0,
            words_per_value: 2,
            has_branch_index: false,
            keeps_registers: false,
            is_walked,
            is_followed: false,
        };
        let ip = 0xffff_ffff_8000_0004;
        // The record has room for three addresses; the other chain has two, three or six.
        let record = |mode: u16, count: u64| -> Vec<u8> {
            let chain = [CONTEXT_KERNEL, 0xffff_ffff_8111_0000, 7];
            let words = [[0, 1, ip, 3 | 4 << 32, 4, 5, 6, count].as_slice(), &chain].concat();
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let size = bytes.len() as u16;
            bytes[4..6].copy_from_slice(&mode.to_le_bytes());
            bytes[6..8].copy_from_slice(&size.to_le_bytes());
            bytes
        };
        let written = |record: &[u8], before: Option<&[u8]>| -> Option<Vec<u64>> {
            let parts = parts(record, &layout(true), before)?;
            assert_eq!(parts.pid, 3);
            let mut rewriter = Rewriter {
                addresses: vec![0x1234],
            };
            let mut out = Vec::new();
            rewriter.write(record, &parts, false, &mut out);
            assert_eq!(out.len(), usize::from(u16::from_le_bytes([out[6], out[7]])));
            assert_eq!(out[8..56], record[8..56]);
            let (words, _) = out[56..].as_chunks::<8>();
            Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
        };
        let cut = vec![4, CONTEXT_KERNEL, ip, CONTEXT_USER, 0x1234];
        let fault = [CONTEXT_KERNEL, 8, 9, ip, 10, 11, CONTEXT_USER, 12];
        let fault: Vec<u8> = fault
            .iter()
            .flat_map(|word: &u64| word.to_le_bytes())
            .collect();
        let whole = vec![6, CONTEXT_KERNEL, ip, 10, 11, CONTEXT_USER, 0x1234];
        for count in [2, 6, u64::MAX] {
            let record = record(misc::KERNEL, count);
            assert_eq!(written(&record, Some(&fault)).unwrap(), whole);
            // Recorded by somebody else, or of another hit.
            assert_eq!(written(&record, None).unwrap(), cut);
            assert_eq!(written(&record, Some(&fault[..24])).unwrap(), cut);
        }
        let user = vec![2, CONTEXT_USER, 0x1234];
        assert_eq!(written(&record(misc::USER, 6), Some(&fault)).unwrap(), user);
        let same = written(&record(misc::KERNEL, 3), Some(&fault)).unwrap();
        assert_eq!(
            same,
            [
                5,
                CONTEXT_KERNEL,
                0xffff_ffff_8111_0000,
                7,
                CONTEXT_USER,
                0x1234
            ]
        );
        // Registers after the chain are elsewhere: the sample has none.
        let with_registers = Layout {
            sample_type: IP | PERIOD | CALLCHAIN | REGS_USER,
            registers: 0b101,
            keeps_registers: true,
            ..layout(true)
        };
        let record_of_fault = record(misc::KERNEL, 6);
        let without = parts(&record_of_fault, &with_registers, Some(&fault)).unwrap();
        let mut out = Vec::new();
        Rewriter::default().write(&record_of_fault, &without, false, &mut out);
        let end: Vec<u8> = [10u64, 11, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        assert!(out.ends_with(&end));
        // No program has run before the others, and a record without a thread is not a sample.
        assert!(parts(&record(misc::KERNEL, 6), &layout(false), None).is_none());
        assert!(parts(&record(misc::KERNEL, 6)[..30], &layout(true), None).is_none());
    }

    #[test]
    fn damaged_pieces_change_nothing() {
        let whole = copy(RECORD_COPY, 0, b"abcd");
        let cut = copy(8, SP + 4, b"efgh")[..COPY_HEAD_BYTES + 3].to_vec();
        for damaged in [vec![], vec![8; 11], cut] {
            let mut same = whole.clone();
            add_piece(&mut same, &damaged);
            assert_eq!(same, whole);
        }
        let mut walk = copy(5, 0, b"abcd");
        add_piece(&mut walk, &copy(8, SP + 4, b"efgh"));
        assert_eq!(walk, copy(5, 0, b"abcd"));
    }
}
