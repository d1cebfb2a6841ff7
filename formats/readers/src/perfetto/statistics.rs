//! Statistics that a recorder reads from /proc and /sys at intervals, as rows of tables.
//!
//! ```text
//! sys_stats { meminfo { key 2, value 1048576 } cpu_stat { cpu_id 0, user_ns 50000000 } }      →  perfetto.meminfo, perfetto.cpu_stat
//! process_stats { processes { pid 100, vm_rss_kb 4096 } }                                     →  perfetto.process_stats
//!   threads { tid 101, cpu_freq_indices 2, 5, cpu_freq_ticks 40, 3 }                          →  perfetto.time_in_state, a row each
//! ```
//! Source: protos/perfetto/trace/sys_stats/sys_stats.proto, protos/perfetto/trace/ps/process_stats.proto. Values that have not changed are
//! missing, in the tables too.

use perfquet_events::Error;
use perfquet_events::event::{Event, EventKind, FieldType, Fields, Sample, Sink, Value as Cell};

use super::types::Declared;
use crate::protobuf::{Message, Value};

/// What a member of a row becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Signed,
    Text,
    /// The name at this number, from 1.
    Name(&'static str),
    /// The row's process.
    Pid,
    /// The row's CPU.
    Cpu,
    /// Numbers, a row for each; the column before has their place in the list.
    Each,
}

/// A column: its name, the member, its kind.
type Column = (&'static str, u64, Kind);

/// Rows of a packet.
struct Group {
    /// Number of the packet's data.
    packet: u64,
    table: &'static str,
    /// The repeated member; 0: the message itself.
    member: u64,
    columns: &'static [Column],
    /// A repeated member of each, and the columns of its rows after those.
    inner: Option<(u64, &'static [Column])>,
}

use Kind::{Cpu, Each, Name, Number, Pid, Signed, Text};

const SYSTEM: u64 = 7;
const PROCESSES: u64 = 9;
/// Of a process: its threads.
const THREADS: u64 = 11;

#[rustfmt::skip]
const GROUPS: &[Group] = &[
    Group { packet: PROCESSES, table: "process_stats", member: 1, inner: None, columns: &[
        ("", 1, Pid), ("vm_size_kib", 2, Number), ("vm_rss_kib", 3, Number), ("rss_anon_kib", 4, Number),
        ("rss_file_kib", 5, Number), ("rss_shmem_kib", 6, Number), ("vm_swap_kib", 7, Number), ("vm_locked_kib", 8, Number),
        ("vm_hwm_kib", 9, Number), ("oom_score_adj", 10, Signed)] },
    Group { packet: SYSTEM, table: "meminfo", member: 1, inner: None, columns: &[("key", 1, Number), ("name", 1, Name(MEMORY)), ("value_kib", 2, Number)] },
    Group { packet: SYSTEM, table: "vmstat", member: 2, inner: None, columns: &[("key", 1, Number), ("name", 1, Name(VIRTUAL_MEMORY)), ("value", 2, Number)] },
    Group { packet: SYSTEM, table: "cpu_stat", member: 3, inner: None, columns: &[
        ("", 1, Cpu), ("user_ns", 2, Number), ("user_nice_ns", 3, Number), ("system_ns", 4, Number), ("idle_ns", 5, Number),
        ("io_wait_ns", 6, Number), ("irq_ns", 7, Number), ("softirq_ns", 8, Number), ("steal_ns", 9, Number)] },
    Group { packet: SYSTEM, table: "sys_counts", member: 0, inner: None, columns: &[
        ("forks", 4, Number), ("irqs", 5, Number), ("softirqs", 7, Number)] },
    Group { packet: SYSTEM, table: "irq_counts", member: 6, inner: None, columns: &[("irq", 1, Signed), ("count", 2, Number)] },
    Group { packet: SYSTEM, table: "softirq_counts", member: 8, inner: None, columns: &[("softirq", 1, Signed), ("count", 2, Number)] },
    Group { packet: SYSTEM, table: "devfreq", member: 10, inner: None, columns: &[("device", 1, Text), ("frequency_khz", 2, Number)] },
    Group { packet: SYSTEM, table: "cpufreq", member: 0, inner: None, columns: &[("", 0, Cpu), ("frequency_khz", 11, Each)] },
    Group { packet: SYSTEM, table: "buddy_info", member: 12, inner: None, columns: &[
        ("node", 1, Text), ("zone", 2, Text), ("page_order", 0, Number), ("pages", 3, Each)] },
    Group { packet: SYSTEM, table: "disk_stat", member: 13, inner: None, columns: &[
        ("device", 1, Text), ("read_sectors", 2, Number), ("read_time_ms", 3, Number), ("write_sectors", 4, Number),
        ("write_time_ms", 5, Number), ("discard_sectors", 6, Number), ("discard_time_ms", 7, Number), ("flush_count", 8, Number),
        ("flush_time_ms", 9, Number)] },
    Group { packet: SYSTEM, table: "psi", member: 14, inner: None, columns: &[("key", 1, Number), ("resource", 1, Name(PRESSURE)), ("total_ns", 2, Number)] },
    Group { packet: SYSTEM, table: "thermal_zone", member: 15, inner: None, columns: &[
        ("zone", 1, Text), ("type", 3, Text), ("temperature", 2, Number)] },
    Group { packet: SYSTEM, table: "cpuidle_state", member: 16, columns: &[("", 1, Cpu)],
        inner: Some((2, &[("state", 1, Text), ("duration_us", 2, Number)])) },
    Group { packet: SYSTEM, table: "gpufreq", member: 0, inner: None, columns: &[("gpu", 0, Number), ("frequency_mhz", 17, Each)] },
    Group { packet: SYSTEM, table: "slab_info", member: 18, inner: None, columns: &[
        ("name", 1, Text), ("pages_per_slab", 2, Number), ("slabs", 3, Number)] },
    Group { packet: SYSTEM, table: "cgroup", member: 19, columns: &[("path", 1, Text)],
        inner: Some((2, &[("counter", 1, Number), ("device", 3, Text), ("value", 2, Number)])) },
];

/// Members that are no statistics: the end of the collection.
const ENDS: [(u64, u64); 2] = [(SYSTEM, 9), (PROCESSES, 2)];

/// Names of `MeminfoCounters` and `VmstatCounters` (sys_stats_counters.proto), and of `PsiResource`.
const MEMORY: &str = "MemTotal MemFree MemAvailable Buffers Cached SwapCached Active Inactive Active(anon) Inactive(anon) Active(file) \
    Inactive(file) Unevictable Mlocked SwapTotal SwapFree Dirty Writeback AnonPages Mapped Shmem Slab SReclaimable \
    SUnreclaim KernelStack PageTables CommitLimit Committed_AS VmallocTotal VmallocUsed VmallocChunk CmaTotal CmaFree Gpu \
    Zram Misc ION_heap ION_heap_pool";
const VIRTUAL_MEMORY: &str = "nr_free_pages nr_alloc_batch nr_inactive_anon nr_active_anon nr_inactive_file nr_active_file nr_unevictable nr_mlock \
    nr_anon_pages nr_mapped nr_file_pages nr_dirty nr_writeback nr_slab_reclaimable nr_slab_unreclaimable \
    nr_page_table_pages nr_kernel_stack nr_overhead nr_unstable nr_bounce nr_vmscan_write nr_vmscan_immediate_reclaim \
    nr_writeback_temp nr_isolated_anon nr_isolated_file nr_shmem nr_dirtied nr_written nr_pages_scanned workingset_refault \
    workingset_activate workingset_nodereclaim nr_anon_transparent_hugepages nr_free_cma nr_swapcache nr_dirty_threshold \
    nr_dirty_background_threshold pgpgin pgpgout pgpgoutclean pswpin pswpout pgalloc_dma pgalloc_normal pgalloc_movable \
    pgfree pgactivate pgdeactivate pgfault pgmajfault pgrefill_dma pgrefill_normal pgrefill_movable pgsteal_kswapd_dma \
    pgsteal_kswapd_normal pgsteal_kswapd_movable pgsteal_direct_dma pgsteal_direct_normal pgsteal_direct_movable \
    pgscan_kswapd_dma pgscan_kswapd_normal pgscan_kswapd_movable pgscan_direct_dma pgscan_direct_normal \
    pgscan_direct_movable pgscan_direct_throttle pginodesteal slabs_scanned kswapd_inodesteal kswapd_low_wmark_hit_quickly \
    kswapd_high_wmark_hit_quickly pageoutrun allocstall pgrotated drop_pagecache drop_slab pgmigrate_success \
    pgmigrate_fail compact_migrate_scanned compact_free_scanned compact_isolated compact_stall compact_fail \
    compact_success compact_daemon_wake unevictable_pgs_culled unevictable_pgs_scanned unevictable_pgs_rescued \
    unevictable_pgs_mlocked unevictable_pgs_munlocked unevictable_pgs_cleared unevictable_pgs_stranded nr_zspages \
    nr_ion_heap nr_gpu_heap allocstall_dma allocstall_movable allocstall_normal compact_daemon_free_scanned \
    compact_daemon_migrate_scanned nr_fastrpc nr_indirectly_reclaimable nr_ion_heap_pool nr_kernel_misc_reclaimable \
    nr_shadow_call_stack_bytes nr_shmem_hugepages nr_shmem_pmdmapped nr_unreclaimable_pages nr_zone_active_anon \
    nr_zone_active_file nr_zone_inactive_anon nr_zone_inactive_file nr_zone_unevictable nr_zone_write_pending oom_kill \
    pglazyfree pglazyfreed pgrefill pgscan_direct pgscan_kswapd pgskip_dma pgskip_movable pgskip_normal pgsteal_direct \
    pgsteal_kswapd swap_ra swap_ra_hit workingset_restore allocstall_device allocstall_dma32 balloon_deflate \
    balloon_inflate balloon_migrate cma_alloc_fail cma_alloc_success nr_file_hugepages nr_file_pmdmapped \
    nr_foll_pin_acquired nr_foll_pin_released nr_sec_page_table_pages nr_shadow_call_stack nr_swapcached \
    nr_throttled_written pgalloc_device pgalloc_dma32 pgdemote_direct pgdemote_kswapd pgreuse pgscan_anon pgscan_file \
    pgskip_device pgskip_dma32 pgsteal_anon pgsteal_file thp_collapse_alloc thp_collapse_alloc_failed \
    thp_deferred_split_page thp_fault_alloc thp_fault_fallback thp_fault_fallback_charge thp_file_alloc thp_file_fallback \
    thp_file_fallback_charge thp_file_mapped thp_migration_fail thp_migration_split thp_migration_success \
    thp_scan_exceed_none_pte thp_scan_exceed_share_pte thp_scan_exceed_swap_pte thp_split_page thp_split_page_failed \
    thp_split_pmd thp_swpout thp_swpout_fallback thp_zero_page_alloc thp_zero_page_alloc_failed vma_lock_abort \
    vma_lock_miss vma_lock_retry vma_lock_success workingset_activate_anon workingset_activate_file workingset_nodes \
    workingset_refault_anon workingset_refault_file workingset_restore_anon workingset_restore_file";
const PRESSURE: &str = "cpu.some cpu.full io.some io.full memory.some memory.full";

/// Rows of packets, and what no table holds.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// Members of statistics that are in no table.
    pub(super) unread: u64,
    /// Messages that end inside of a member.
    pub(super) cut: u64,
}

/// Values of a row.
#[derive(Debug, Clone, Default)]
struct Row<'a> {
    pid: Option<i32>,
    cpu: Option<u32>,
    cells: Vec<Cell<'a>>,
    /// Of a list, the numbers.
    each: Option<Vec<u64>>,
}

impl Statistics {
    /// Emits the rows of a packet.
    pub(super) fn emit(
        &mut self,
        time: i64,
        (packet, body): (u64, &[u8]),
        types: &mut Declared,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        self.cut += u64::from(is_cut(body));
        for group in GROUPS.iter().filter(|group| group.packet == packet) {
            if group.member == 0 {
                let is_there = members(body).any(|(member, _)| {
                    let mut columns = group.columns.iter();
                    columns.any(|column| column.1 == member)
                });
                if is_there {
                    self.rows(time, group, body, types, sink)?;
                }
                continue;
            }
            for (member, value) in members(body) {
                if let (true, Value::Bytes(inner)) = (member == group.member, value) {
                    self.rows(time, group, inner, types, sink)?;
                }
            }
        }
        let is_known = |member: u64| {
            ENDS.contains(&(packet, member))
                || GROUPS.iter().any(|group| {
                    let is_column = |column: &Column| column.1 == member;
                    group.packet == packet
                        && match group.member {
                            0 => group.columns.iter().any(is_column),
                            of_group => of_group == member,
                        }
                })
        };
        self.unread += members(body)
            .filter(|(member, _)| !is_known(*member))
            .count() as u64;
        match packet {
            PROCESSES => self.times_in_states(time, body, types, sink),
            _ => Ok(()),
        }
    }

    /// Emits the ticks of threads at each frequency. Frequencies are numbers: a packet of the recording's start lists them.
    fn times_in_states(
        &mut self,
        time: i64,
        body: &[u8],
        types: &mut Declared,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        for process in messages(body, 1) {
            let pid = number(process, 1).map(|pid| pid as i32);
            for thread in messages(process, THREADS) {
                self.cut += u64::from(is_cut(thread));
                let each = |of: u64| {
                    let found = members(thread).filter(move |(member, _)| *member == of);
                    found.flat_map(|(_, value)| value.numbers())
                };
                let (indices, ticks) = (each(2).count(), each(3).count());
                self.unread += indices.abs_diff(ticks) as u64;
                self.unread += members(thread).filter(|(member, _)| *member > 4).count() as u64;
                let columns = vec![
                    ("frequency_index".to_owned(), FieldType::UInt(8)),
                    ("ticks".to_owned(), FieldType::UInt(8)),
                    ("is_complete".to_owned(), FieldType::Bool),
                ];
                let names = ("perfetto", "time_in_state");
                let event = types.of(names, EventKind::Marker, columns, sink)?;
                let is_complete = number(thread, 4).is_some_and(|full| full != 0);
                for (index, ticks) in each(2).zip(each(3)) {
                    sink.event(Event::Sample(&Sample {
                        time: Some(time),
                        pid,
                        tid: number(thread, 1).map(|tid| tid as i32),
                        fields: Fields::Values(&[
                            Cell::UInt(index),
                            Cell::UInt(ticks),
                            Cell::Bool(is_complete),
                        ]),
                        ..Sample::of(event)
                    }))?;
                }
            }
        }
        Ok(())
    }

    fn rows(
        &mut self,
        time: i64,
        group: &Group,
        body: &[u8],
        types: &mut Declared,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let row = Row::of(body, group.columns);
        if group.member != 0 {
            self.cut += u64::from(is_cut(body));
            let is_column = |member| group.columns.iter().any(|column| column.1 == member);
            let is_inner = |member| {
                group.inner.is_some_and(|(of_inner, _)| of_inner == member)
                    || (group.packet, member) == (PROCESSES, THREADS)
            };
            let unread =
                members(body).filter(|(member, _)| !is_column(*member) && !is_inner(*member));
            self.unread += unread.count() as u64;
        }
        let inner_columns = group.inner.map_or(&[][..], |(_, columns)| columns);
        let columns = group.columns.iter().chain(inner_columns);
        let columns = columns.filter(|column| !column.0.is_empty());
        let columns = columns.map(|&(name, _, kind)| (name.to_owned(), type_of(kind)));
        let names = ("perfetto", group.table);
        let event = types.of(names, EventKind::Marker, columns.collect(), sink)?;
        let mut emit = |row: &Row<'_>, cells: &[Cell<'_>]| {
            sink.event(Event::Sample(&Sample {
                time: Some(time),
                pid: row.pid,
                cpu: row.cpu,
                fields: Fields::Values(cells),
                ..Sample::of(event)
            }))
        };
        if let Some(numbers) = &row.each {
            for (place, number) in (0..).zip(numbers) {
                let mut row = row.clone();
                match row.cells.iter_mut().rev().nth(1) {
                    Some(of_place) => *of_place = Cell::UInt(place),
                    None => row.cpu = u32::try_from(place).ok(),
                }
                if let Some(cell) = row.cells.last_mut() {
                    *cell = Cell::UInt(*number);
                }
                emit(&row, &row.cells)?;
            }
            return Ok(());
        }
        let Some((of_inner, columns)) = group.inner else {
            return emit(&row, &row.cells);
        };
        for (member, value) in members(body) {
            if let (true, Value::Bytes(inner)) = (member == of_inner, value) {
                self.cut += u64::from(is_cut(inner));
                let cells = [&row.cells[..], &Row::of(inner, columns).cells].concat();
                emit(&row, &cells)?;
            }
        }
        Ok(())
    }
}

fn is_cut(body: &[u8]) -> bool {
    Message::new(body, 0).any(|field| field.is_err())
}

fn members(body: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    let fields = Message::new(body, 0).map_while(Result::ok);
    fields.map(|field| (field.number, field.value))
}

fn messages(body: &[u8], of: u64) -> impl Iterator<Item = &[u8]> {
    let found = members(body).filter(move |(member, _)| *member == of);
    found.filter_map(|(_, value)| value.bytes())
}

fn number(body: &[u8], of: u64) -> Option<u64> {
    members(body).find_map(|(member, value)| match value {
        Value::Number(number) if member == of => Some(number),
        _ => None,
    })
}

fn type_of(kind: Kind) -> FieldType {
    match kind {
        Text | Name(_) => FieldType::Text,
        Signed => FieldType::Int(8),
        Number | Each | Pid | Cpu => FieldType::UInt(8),
    }
}

impl<'a> Row<'a> {
    fn of(body: &'a [u8], columns: &[Column]) -> Row<'a> {
        let mut row = Row::default();
        for &(_, of_column, kind) in columns {
            // Of a member that is repeated against its description, the last value counts.
            let values = members(body).filter(|(member, _)| *member == of_column);
            let value = match kind {
                Each => {
                    let numbers = values.flat_map(|(_, value)| value.numbers());
                    row.each = Some(numbers.collect());
                    None
                }
                _ => values.last().map(|(_, value)| value),
            };
            let cell = match (kind, value) {
                (Pid, Some(Value::Number(pid))) => {
                    row.pid = Some(pid as i32);
                    continue;
                }
                (Cpu, Some(Value::Number(cpu))) => {
                    row.cpu = u32::try_from(cpu).ok();
                    continue;
                }
                (Pid | Cpu, _) => continue,
                (Name(names), Some(Value::Number(number))) => name(names, number),
                (Number, Some(Value::Number(number))) => Cell::UInt(number),
                (Signed, Some(Value::Number(number))) => Cell::Int(number.cast_signed()),
                (Text, Some(Value::Bytes(text))) => Cell::Bytes(text),
                _ => Cell::Null,
            };
            row.cells.push(cell);
        }
        row
    }
}

/// The name of a number of an enumeration; NULL if a newer version has added it.
fn name(names: &'static str, number: u64) -> Cell<'static> {
    let place = number
        .checked_sub(1)
        .and_then(|place| usize::try_from(place).ok());
    let found = place.and_then(|place| names.split_ascii_whitespace().nth(place));
    found.map_or(Cell::Null, |name| Cell::Bytes(name.as_bytes()))
}
