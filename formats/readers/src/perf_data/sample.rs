//! PERF_RECORD_SAMPLE, whose members and their order depend on the event's `sample_type`.
//!
//! ```text
//! u64 id, ip · u32 pid, tid · u64 time, addr, id, stream_id · u32 cpu, _ · u64 period · read · callchain ·
//! raw · branches · user registers · user stack · weight · data_src · transaction · interrupt registers ·
//! phys_addr · cgroup · data page size · code page size · aux
//! ```
//! include/uapi/linux/perf_event.h, PERF_RECORD_SAMPLE; kernel/events/core.c, `perf_output_sample`.

use perfquet_events::bytes::{Cursor, Endian, Short};
use perfquet_events::event::{Branch, ReadValue, Registers, Space, Stack};

use crate::perf_data::attr::{Attr, bit_fields, sample_type};

/// The smallest call chain value that is a context marker (PERF_CONTEXT_MAX), not an address.
const CONTEXT_MIN: u64 = -4095i64 as u64;
const CONTEXT_HV: u64 = -32i64 as u64;
const CONTEXT_KERNEL: u64 = -128i64 as u64;
const CONTEXT_USER: u64 = -512i64 as u64;
const CONTEXT_USER_DEFERRED: u64 = -640i64 as u64;
const CONTEXT_GUEST: u64 = -2048i64 as u64;
const CONTEXT_GUEST_KERNEL: u64 = -2176i64 as u64;
const CONTEXT_GUEST_USER: u64 = -2560i64 as u64;

const READ_TIME_ENABLED: u64 = 1 << 0;
const READ_TIME_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;

const BRANCH_HW_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;
/// The branches are the calls that have not returned (`perf record --call-graph lbr`).
pub(super) const BRANCH_CALL_STACK: u64 = 1 << 11;

/// mispred, predicted, in_tx, abort, cycles, type, spec, new_type, priv, reserved.
const BRANCH_FIELDS: &[u32] = &[1, 1, 1, 1, 16, 4, 2, 4, 3, 31];

/// The plain members of a sample; lists and stacks are in [`Lists`]. One struct, because each field is a bit of `sample_type`.
#[derive(Debug, Default)]
pub(super) struct Members<'a> {
    pub(super) ip: Option<u64>,
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    pub(super) time: Option<u64>,
    pub(super) addr: Option<u64>,
    pub(super) id: Option<u64>,
    pub(super) stream_id: Option<u64>,
    pub(super) cpu: Option<u32>,
    pub(super) period: Option<u64>,
    pub(super) raw: Option<&'a [u8]>,
    pub(super) weight: Option<u64>,
    pub(super) data_src: Option<u64>,
    pub(super) transaction: Option<u64>,
    pub(super) phys_addr: Option<u64>,
    pub(super) cgroup: Option<u64>,
    pub(super) data_page_size: Option<u64>,
    pub(super) code_page_size: Option<u64>,
    pub(super) branch_hw_index: Option<u64>,
    pub(super) user_memory: &'a [u8],
    /// Bytes of hardware trace in the sample.
    pub(super) aux_bytes: u64,
    /// Cookie of a user stack that comes later.
    pub(super) deferred: Option<u64>,
}

/// The lists of a sample, reused from one sample to the next to avoid allocations.
#[derive(Debug, Default)]
pub(super) struct Lists {
    kernel: Addresses,
    user: Addresses,
    pub(super) branches: Vec<Branch>,
    pub(super) branch_counters: Vec<u64>,
    pub(super) read: Vec<ReadValue>,
    user_registers: RegisterValues,
    interrupt_registers: RegisterValues,
}

#[derive(Debug, Default)]
struct Addresses {
    /// Space of the addresses; `None` if not recorded.
    space: Option<Space>,
    addresses: Vec<u64>,
    /// Whether a second marker of user space follows, with which perfquet-record marks missing outer frames.
    is_cut: bool,
    is_unwound: bool,
}

impl Addresses {
    fn clear(&mut self) {
        self.space = None;
        self.addresses.clear();
        self.is_cut = false;
        self.is_unwound = false;
    }

    fn stack(&self) -> Stack<'_> {
        match self.space {
            Some(space) => Stack::Addresses {
                space,
                addresses: &self.addresses,
                is_cut: self.is_cut,
                is_unwound: self.is_unwound,
            },
            None => Stack::None,
        }
    }
}

#[derive(Debug, Default)]
struct RegisterValues {
    mask: u64,
    /// ABI of the registers; 0 for none.
    abi: u64,
    values: Vec<u64>,
}

impl RegisterValues {
    fn read(&mut self, cursor: &mut Cursor<'_>, mask: u64) -> Result<(), Short> {
        self.abi = cursor.u64()?;
        self.mask = mask;
        self.values.clear();
        if self.abi != 0 {
            read_words(cursor, u64::from(mask.count_ones()), &mut self.values)?;
        }
        Ok(())
    }

    fn get(&self) -> Option<Registers<'_>> {
        (self.abi != 0).then_some(Registers {
            mask: self.mask,
            abi: self.abi,
            values: &self.values,
        })
    }
}

impl Lists {
    /// Returns the stack in the kernel, the hypervisor, or a guest's kernel.
    pub(super) fn kernel_stack(&self) -> Stack<'_> {
        self.kernel.stack()
    }

    /// Returns the stack in user space.
    pub(super) fn user_stack(&self) -> Stack<'_> {
        self.user.stack()
    }

    pub(super) fn user_registers(&self) -> Option<Registers<'_>> {
        self.user_registers.get()
    }

    pub(super) fn interrupt_registers(&self) -> Option<Registers<'_>> {
        self.interrupt_registers.get()
    }

    /// Sets a user stack that came later.
    pub(super) fn set_user_stack(&mut self, addresses: &[u64]) {
        self.user.space = Some(Space::User);
        self.user.addresses.clear();
        self.user.addresses.extend_from_slice(addresses);
    }

    /// Sets the user stack from the calls recorded by the CPU: the sources of the calls, innermost first. The leaf is
    /// `ip` if that is in user space, otherwise the target of the last call. (tools/perf/util/machine.c,
    /// `resolve_lbr_callchain_sample`)
    pub(super) fn set_user_stack_of_calls(&mut self, ip: Option<u64>) {
        let Some(last) = self.branches.first() else {
            return;
        };
        self.user.space = Some(Space::User);
        self.user.addresses.clear();
        self.user.addresses.push(ip.unwrap_or(last.to));
        let callers = self.branches.iter().map(|branch| branch.from);
        self.user.addresses.extend(callers);
        self.user.is_unwound = true;
    }

    /// Sets whether the recorder has unwound the user stack, because the kernel was not to follow its frame pointers.
    #[inline]
    pub(super) fn set_unwound(&mut self, is_unwound: bool) {
        self.user.is_unwound = is_unwound;
    }

    /// Removes the stacks of the sample before.
    #[inline]
    pub(super) fn clear_stacks(&mut self) {
        self.kernel.clear();
        self.user.clear();
    }

    fn clear(&mut self) {
        self.clear_stacks();
        self.branches.clear();
        self.branch_counters.clear();
        self.read.clear();
        self.user_registers.abi = 0;
        self.interrupt_registers.abi = 0;
    }
}

/// Returns the space for the cpumode bits of a record's `misc`.
pub(super) fn space_of(misc: u16) -> Space {
    match misc & 7 {
        1 => Space::Kernel,
        2 => Space::User,
        3 => Space::Hypervisor,
        4 => Space::GuestKernel,
        5 => Space::GuestUser,
        _ => Space::Unknown,
    }
}

/// Parses the body of a sample, after its 8-byte header.
#[inline]
pub(super) fn parse<'a>(
    cursor: &mut Cursor<'a>,
    misc: u16,
    attr: &Attr,
    lists: &mut Lists,
) -> Result<Members<'a>, Short> {
    use sample_type::*;
    lists.clear();
    let mut members = parse_head(cursor, attr)?;
    if attr.has(READ) {
        read_counters(cursor, attr.read_format, members.id, &mut lists.read)?;
    }
    if attr.has(CALLCHAIN) {
        members.deferred = read_chain(cursor, space_of(misc), lists)?;
        lists.set_unwound(attr.exclude_callchain_user());
    }
    if attr.has(RAW) {
        let size = cursor.u32()?;
        members.raw = Some(cursor.bytes(size.into())?);
    }
    if attr.sample_type & !((2 * RAW - 1) | IDENTIFIER) != 0 {
        parse_rest(cursor, attr, lists, &mut members)?;
    }
    Ok(members)
}

/// Parses the members up to the period, which are words: all are present, or the sample is truncated.
#[inline]
pub(super) fn parse_head<'a>(cursor: &mut Cursor<'a>, attr: &Attr) -> Result<Members<'a>, Short> {
    use sample_type::*;
    let mut members = Members::default();
    let endian = cursor.endian();
    let (head, _) = cursor.bytes(attr.layout.head_bytes)?.as_chunks::<8>();
    let mut head = head.iter();
    let mut word = || head.next().map_or(0, |word| endian.u64(*word));
    // Two halves of a word; the first one comes first in memory.
    let halves = |word: u64| match endian {
        Endian::Little => (word as u32, (word >> 32) as u32),
        Endian::Big => ((word >> 32) as u32, word as u32),
    };
    if attr.has(IDENTIFIER) {
        members.id = Some(word());
    }
    if attr.has(IP) {
        members.ip = Some(word());
    }
    if attr.has(TID) {
        let (pid, tid) = halves(word());
        members.pid = Some(pid as i32);
        members.tid = Some(tid as i32);
    }
    if attr.has(TIME) {
        members.time = Some(word());
    }
    if attr.has(ADDR) {
        members.addr = Some(word());
    }
    if attr.has(ID) {
        members.id = Some(word());
    }
    if attr.has(STREAM_ID) {
        members.stream_id = Some(word());
    }
    if attr.has(CPU) {
        members.cpu = Some(halves(word()).0);
    }
    if attr.has(PERIOD) {
        members.period = Some(word());
    }
    Ok(members)
}

/// Parses the members after the raw payload, which tracepoints lack.
fn parse_rest<'a>(
    cursor: &mut Cursor<'a>,
    attr: &Attr,
    lists: &mut Lists,
    members: &mut Members<'a>,
) -> Result<(), Short> {
    use sample_type::*;
    if attr.has(BRANCH_STACK) {
        members.branch_hw_index = read_branches(cursor, attr.branch_sample_type, lists)?;
    }
    if attr.has(REGS_USER) {
        lists.user_registers.read(cursor, attr.sample_regs_user)?;
    }
    if attr.has(STACK_USER) {
        let size = cursor.u64()?;
        let memory = cursor.bytes(size)?;
        if size > 0 {
            // The kernel copies `size` bytes, followed by the number of valid ones.
            let filled = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
            members.user_memory = memory.get(..filled).unwrap_or(memory);
        }
    }
    if attr.has(WEIGHT | WEIGHT_STRUCT) {
        members.weight = Some(cursor.u64()?);
    }
    if attr.has(DATA_SRC) {
        // Unlike the flags of branches, its bit-fields are declared in the reverse order for big-endian hosts
        // (include/uapi/linux/perf_event.h), so that the number is the same.
        members.data_src = Some(cursor.u64()?);
    }
    if attr.has(TRANSACTION) {
        members.transaction = Some(cursor.u64()?);
    }
    if attr.has(REGS_INTR) {
        let mask = attr.sample_regs_intr;
        lists.interrupt_registers.read(cursor, mask)?;
    }
    if attr.has(PHYS_ADDR) {
        members.phys_addr = Some(cursor.u64()?);
    }
    if attr.has(CGROUP) {
        members.cgroup = Some(cursor.u64()?);
    }
    if attr.has(DATA_PAGE_SIZE) {
        members.data_page_size = Some(cursor.u64()?);
    }
    if attr.has(CODE_PAGE_SIZE) {
        members.code_page_size = Some(cursor.u64()?);
    }
    if attr.has(AUX) {
        let size = cursor.u64()?;
        cursor.bytes(size)?;
        members.aux_bytes = size;
    }
    Ok(())
}

/// Parses a `struct read_format`: one counter, or a group with the leader first.
pub(super) fn read_counters(
    cursor: &mut Cursor<'_>,
    format: u64,
    id: Option<u64>,
    values: &mut Vec<ReadValue>,
) -> Result<Times, Short> {
    let mut times = Times::default();
    let has = |bit: u64| format & bit != 0;
    let skip_times = |cursor: &mut Cursor<'_>, times: &mut Times| -> Result<(), Short> {
        if has(READ_TIME_ENABLED) {
            times.enabled = Some(cursor.u64()?);
        }
        if has(READ_TIME_RUNNING) {
            times.running = Some(cursor.u64()?);
        }
        Ok(())
    };
    let mut value = ReadValue {
        event: None,
        id,
        value: 0,
        lost: None,
    };
    if has(READ_GROUP) {
        let count = cursor.u64()?;
        skip_times(cursor, &mut times)?;
        for _ in 0..count {
            value.id = None;
            value.value = cursor.u64()?;
            if has(READ_ID) {
                value.id = Some(cursor.u64()?);
            }
            if has(READ_LOST) {
                value.lost = Some(cursor.u64()?);
            }
            values.push(value);
        }
    } else {
        value.value = cursor.u64()?;
        skip_times(cursor, &mut times)?;
        if has(READ_ID) {
            value.id = Some(cursor.u64()?);
        }
        if has(READ_LOST) {
            value.lost = Some(cursor.u64()?);
        }
        values.push(value);
    }
    Ok(times)
}

/// Times for which a counter was enabled, and actually counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) enabled: Option<u64>,
    pub(super) running: Option<u64>,
}

/// Splits a call chain at its context markers. The part before the first one is in the sample's context.
pub(super) fn read_chain(
    cursor: &mut Cursor<'_>,
    space: Space,
    lists: &mut Lists,
) -> Result<Option<u64>, Short> {
    let count = cursor.u64()?;
    let bytes = cursor.bytes(count.saturating_mul(8))?;
    let endian = cursor.endian();
    let mut deferred = None;
    let mut current = match space {
        Space::User | Space::GuestUser | Space::Unknown => &mut lists.user,
        _ => &mut lists.kernel,
    };
    // An empty chain means that a chain was requested: the stack is empty, not unknown.
    current.space = Some(space);
    let (words, _) = bytes.as_chunks::<8>();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let address = endian.u64(*word);
        if address < CONTEXT_MIN {
            current.addresses.push(address);
            current.is_cut = false;
            continue;
        }
        let (stack, space) = match address {
            CONTEXT_USER => (&mut lists.user, Space::User),
            CONTEXT_KERNEL => (&mut lists.kernel, Space::Kernel),
            CONTEXT_HV => (&mut lists.kernel, Space::Hypervisor),
            CONTEXT_GUEST | CONTEXT_GUEST_KERNEL => (&mut lists.kernel, Space::GuestKernel),
            CONTEXT_GUEST_USER => (&mut lists.user, Space::GuestUser),
            CONTEXT_USER_DEFERRED => {
                deferred = words.next().map(|word| endian.u64(*word));
                (&mut lists.user, Space::User)
            }
            _ => continue,
        };
        stack.is_cut = !stack.addresses.is_empty();
        // The marker before the first address replaces the guess from cpumode.
        if stack.addresses.is_empty() {
            stack.space = Some(space);
        }
        current = stack;
    }
    if lists.kernel.addresses.is_empty() && !lists.user.addresses.is_empty() {
        lists.kernel.space = None;
    }
    if lists.user.addresses.is_empty() && !lists.kernel.addresses.is_empty() && deferred.is_none() {
        lists.user.space = None;
    }
    Ok(deferred)
}

/// Parses the stack of a PERF_RECORD_CALLCHAIN_DEFERRED, without its markers.
pub(super) fn read_deferred(cursor: &mut Cursor<'_>) -> Result<(u64, Vec<u64>), Short> {
    let cookie = cursor.u64()?;
    let count = cursor.u64()?;
    let mut chain = cursor.part(count.saturating_mul(8))?;
    let addresses = std::iter::from_fn(|| chain.u64().ok());
    Ok((
        cookie,
        addresses.filter(|&word| word < CONTEXT_MIN).collect(),
    ))
}

fn read_branches(
    cursor: &mut Cursor<'_>,
    branch_sample_type: u64,
    lists: &mut Lists,
) -> Result<Option<u64>, Short> {
    let count = cursor.u64()?;
    let hw_index = match branch_sample_type & BRANCH_HW_INDEX {
        0 => None,
        _ => Some(cursor.u64()?),
    };
    let mut entries = cursor.part(count.saturating_mul(24))?;
    while !entries.is_empty() {
        let (from, to, flags) = (entries.u64()?, entries.u64()?, entries.u64()?);
        lists.branches.push(Branch {
            from,
            to,
            flags: match entries.endian() {
                Endian::Little => flags,
                Endian::Big => bit_fields(flags, BRANCH_FIELDS),
            },
        });
    }
    if branch_sample_type & BRANCH_COUNTERS != 0 {
        read_words(cursor, count, &mut lists.branch_counters)?;
    }
    // -1: not available from the hardware.
    Ok(hw_index.filter(|&index| index != u64::MAX))
}

fn read_words(cursor: &mut Cursor<'_>, count: u64, words: &mut Vec<u64>) -> Result<(), Short> {
    let mut part = cursor.part(count.saturating_mul(8))?;
    while let Ok(word) = part.u64() {
        words.push(word);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_data_are_the_same_number_in_both_orders() {
        // LOAD, level hit L1, snoop none, TLB hit L1 (include/uapi/linux/perf_event.h).
        let source = 0x6810_0142u64;
        let attr = Attr::of(sample_type::IP | sample_type::DATA_SRC, 0);
        let mut lists = Lists::default();
        let little = [0x1000, source].map(u64::to_le_bytes).concat();
        let big = [0x1000, source].map(u64::to_be_bytes).concat();
        for (bytes, endian) in [(little, Endian::Little), (big, Endian::Big)] {
            let mut cursor = Cursor::new(&bytes, 0, endian);
            let members = parse(&mut cursor, 0, &attr, &mut lists).unwrap();
            assert_eq!((members.ip, members.data_src), (Some(0x1000), Some(source)));
        }
    }
}
