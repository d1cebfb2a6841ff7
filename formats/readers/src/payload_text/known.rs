//! The kernel's known events: their systems, and the forms of those not printed as `key=value`. Field names are those
//! of the kernel's format files, so a query works on text and binary recordings of the same events.
//!
//! Sources: `include/trace/events/*.h` of Linux 2.6.32 to 7.3, and the plugins of libtraceevent.

/// Forms of the events with these names, tried in order; if none matches, the payload is `key=value`.
const FORMS: &[(&[&str], &[&str])] = &[
    (
        &["sched_switch"],
        &[
            "prev_comm={prev_comm:s} prev_pid={prev_pid:d} prev_prio={prev_prio:d} prev_state={prev_state:w} ==> \
             next_comm={next_comm:s} next_pid={next_pid:d} next_prio={next_prio:d}",
            "{prev_comm/prev_pid:t} [{prev_prio:d}] {prev_state:w} ==> {next_comm/next_pid:t} [{next_prio:d}]",
            "{prev_comm/prev_pid:t} [{prev_prio:d}] {prev_state:w} ==> {next_comm/next_pid:t} [{next_prio:d}] \
             Latency: {latency_us:f} usecs",
        ],
    ),
    (
        &["sched_wakeup", "sched_waking", "sched_wakeup_new"],
        &[
            "comm={comm:s} pid={pid:d} prio={prio:d} target_cpu={target_cpu:d}",
            "comm={comm:s} pid={pid:d} prio={prio:d} success={success:d} target_cpu={target_cpu:d}",
            "{comm/pid:t} [{prio:d}] CPU:{target_cpu:d}",
            "{comm/pid:t} [{prio:d}] success={success:d} CPU:{target_cpu:d}",
            "{comm/pid:t} [{prio:d}] CPU:{target_cpu:d} Latency: {latency_us:f} usecs",
        ],
    ),
    (
        &["sched_stat_runtime"],
        &[
            "comm={comm:s} pid={pid:d} runtime={runtime:d} [ns]",
            "comm={comm:s} pid={pid:d} runtime={runtime:d} [ns] vruntime={vruntime:d} [ns]",
        ],
    ),
    (
        &["sched_migrate_task"],
        &["comm={comm:s} pid={pid:d} prio={prio:d} orig_cpu={orig_cpu:d} dest_cpu={dest_cpu:d}"],
    ),
    (
        &[
            "sched_process_exit",
            "sched_process_free",
            "sched_process_wait",
            "sched_wait_task",
        ],
        &[
            "comm={comm:s} pid={pid:d} prio={prio:d}",
            "comm={comm:s} pid={pid:d} prio={prio:d} group_dead={group_dead:w}",
        ],
    ),
    (
        &[
            "sched_stat_wait",
            "sched_stat_sleep",
            "sched_stat_iowait",
            "sched_stat_blocked",
        ],
        &["comm={comm:s} pid={pid:d} delay={delay:d} [ns]"],
    ),
    (
        &["sched_pi_setprio"],
        &["comm={comm:s} pid={pid:d} oldprio={oldprio:d} newprio={newprio:d}"],
    ),
    (
        &["sched_kthread_stop", "sched_process_hang"],
        &["comm={comm:s} pid={pid:d}"],
    ),
    (
        &["task_rename"],
        &[
            "pid={pid:d} oldcomm={oldcomm:s} newcomm={newcomm:s} oom_score_adj={oom_score_adj:d}",
            "oldcomm={oldcomm:s} newcomm={newcomm:s} oom_score_adj={oom_score_adj:d}",
        ],
    ),
    (
        &["oom_score_adj_update"],
        &["pid={pid:d} comm={comm:s} oom_score_adj={oom_score_adj:d}"],
    ),
    (
        &["sched_process_fork"],
        &[
            "comm={parent_comm:s} pid={parent_pid:d} child_comm={child_comm:s} child_pid={child_pid:d}",
        ],
    ),
    (&["sys_enter"], &["NR {id:d} ({args:L})"]),
    (&["sys_exit"], &["NR {id:d} = {ret:d}"]),
    (
        &["softirq_entry", "softirq_exit", "softirq_raise"],
        &["vec={vec:d} [action={:s}]"],
    ),
    (&["irq_handler_exit"], &["irq={irq:d} ret={ret:h}"]),
    (&["contention_begin"], &["{lock_addr:x} (flags={flags:w})"]),
    (&["contention_end"], &["{lock_addr:x} (ret={ret:d})"]),
    (
        &[
            "block_rq_insert",
            "block_rq_issue",
            "block_rq_merge",
            "block_rq_remap",
        ],
        &[
            "{dev:D} {rwbs:w} {bytes:d} ({cmd:s}) {sector:d} + {nr_sector:d} [{comm:s}]",
            "{dev:D} {rwbs:w} {bytes:d} ({cmd:s}) {sector:d} + {nr_sector:d} {ioprio:w} [{comm:s}]",
            "{dev:D} {rwbs:w} {sector:d} + {nr_sector:d} <- ({old_dev:D}) {old_sector:d} {nr_bios:d}",
        ],
    ),
    (
        &[
            "block_rq_complete",
            "block_rq_requeue",
            "block_rq_error",
            "block_rq_abort",
        ],
        &[
            "{dev:D} {rwbs:w} ({cmd:s}) {sector:d} + {nr_sector:d} [{error:d}]",
            "{dev:D} {rwbs:w} ({cmd:s}) {sector:d} + {nr_sector:d} {ioprio:w} [{error:d}]",
        ],
    ),
    (
        &["block_bio_complete", "block_bio_bounce"],
        &[
            "{dev:D} {rwbs:w} {sector:d} + {nr_sector:d} [{error:d}]",
            "{dev:D} {rwbs:w} {sector:d} + {nr_sector:d} [{comm:s}]",
        ],
    ),
    (
        &[
            "block_bio_queue",
            "block_bio_backmerge",
            "block_bio_frontmerge",
            "block_getrq",
            "block_sleeprq",
        ],
        &["{dev:D} {rwbs:w} {sector:d} + {nr_sector:d} [{comm:s}]"],
    ),
    (
        &["block_bio_remap"],
        &["{dev:D} {rwbs:w} {sector:d} + {nr_sector:d} <- ({old_dev:D}) {old_sector:d}"],
    ),
    (
        &["block_split"],
        &["{dev:D} {rwbs:w} {sector:d} / {new_sector:d} [{comm:s}]"],
    ),
    (&["block_plug"], &["[{comm:s}]"]),
    (&["block_unplug"], &["[{comm:s}] {nr_rq:d}"]),
    (
        &["block_touch_buffer", "block_dirty_buffer"],
        &["{dev:D} sector={sector:d} size={size:d}"],
    ),
    (
        &["workqueue_execute_start", "workqueue_execute_end"],
        &[
            "work struct {work:x}: function {function:s}",
            "work struct {work:x}",
        ],
    ),
    (
        &["workqueue_activate_work"],
        &[
            "work struct {work:x}",
            "work struct {work:x} function={function:s}",
        ],
    ),
    (
        &["workqueue_queue_work"],
        &[
            "work struct={work:x} function={function:s} workqueue={workqueue:s} req_cpu={req_cpu:d} cpu={cpu:d}",
        ],
    ),
    (
        &["signal_generate"],
        &[
            "sig={sig:d} errno={errno:d} code={code:d} comm={comm:s} pid={pid:d} grp={group:d} res={result:d}",
        ],
    ),
    (
        &[
            "net_dev_queue",
            "netif_receive_skb",
            "netif_rx",
            "netif_rx_ni",
        ],
        &["dev={name:s} skbaddr={skbaddr:x} len={len:d}"],
    ),
    (
        &["net_dev_xmit"],
        &["dev={name:s} skbaddr={skbaddr:x} len={len:d} rc={rc:d}"],
    ),
    (
        &["napi_poll"],
        &[
            "napi poll on napi struct {napi:x} for device {dev_name:s} work {work:d} budget {budget:d}",
            "napi poll on napi struct {napi:x} for device {dev_name:s}",
        ],
    ),
    (
        &["signal_deliver"],
        &[
            "sig={sig:d} errno={errno:d} code={code:d} sa_handler={sa_handler:x} sa_flags={sa_flags:x}",
        ],
    ),
    (
        &["task_newtask"],
        &["pid={pid:d} comm={comm:s} clone_flags={clone_flags:x} oom_score_adj={oom_score_adj:d}"],
    ),
    (
        &["kvm_entry"],
        &[
            "vcpu {vcpu_id:d}",
            "vcpu {vcpu_id:d}, rip {rip:x}",
            "vcpu {vcpu_id:d}, rip {rip:x} intr_info {intr_info:x} error_code {error_code:x}",
        ],
    ),
    (
        &["kvm_exit"],
        &[
            "reason {exit_reason:w} rip {guest_rip:x} info {info1:x} {info2:x}",
            "vcpu {vcpu_id:d} reason {exit_reason:w} rip {guest_rip:x} info {info1:x} {info2:x}",
            "vcpu {vcpu_id:d} reason {exit_reason:w} rip {guest_rip:x} info1 {info1:x} info2 {info2:x} \
             intr_info {intr_info:x} error_code {error_code:x}",
            "vcpu {vcpu_id:d} reason {exit_reason:w} rip {guest_rip:x} info1 {info1:x} info2 {info2:x} \
             intr_info {intr_info:x} error_code {error_code:x} requests {requests:x}",
        ],
    ),
    (&["rcu_utilization"], &["{s:s}"]),
    (
        &["notifier_run", "notifier_register", "notifier_unregister"],
        &["{cb:s}"],
    ),
    (
        &["read_msr", "write_msr"],
        &[
            "{msr:x}, value {val:x}",
            "{msr:x}, value {val:x} {failed:w}",
        ],
    ),
    (
        &["tlb_flush"],
        &["pages:{pages:d} reason:{:s} ({reason:d})"],
    ),
    (
        &["cap_capable"],
        &[
            "cred {cred:x}, target_ns {target_ns:x}, capable_ns {capable_ns:x}, cap {cap:d}, ret {ret:d}",
        ],
    ),
    (
        &[
            "x86_fpu_copy_dst",
            "x86_fpu_copy_src",
            "x86_fpu_dropped",
            "x86_fpu_init_state",
            "x86_fpu_regs_activated",
            "x86_fpu_regs_deactivated",
            "x86_fpu_before_save",
            "x86_fpu_after_save",
            "x86_fpu_before_restore",
            "x86_fpu_after_restore",
        ],
        &["x86/fpu: {fpu:x} load: {load_fpu:d} xfeatures: {xfeatures:x} xcomp_bv: {xcomp_bv:x}"],
    ),
    (
        &["rss_stat"],
        &[
            "mm_id={mm_id:d} curr={curr:d} type={member:w} size={size:d}B",
            "mm_id={mm_id:d} curr={curr:d} member={member:w} size={size:d}B",
        ],
    ),
    (&["exit_mmap"], &["mt_mod {mt:x}, DESTROY"]),
    (
        &["mm_filemap_get_pages", "mm_filemap_map_pages"],
        &["dev={s_dev:D} ino={i_ino:x} ofs={ofs:s}"],
    ),
    (
        &["mm_filemap_fault"],
        // Bytes; the field `index` has pages.
        &["dev={s_dev:D} ino={i_ino:x} ofs={ofs:d}"],
    ),
    (
        &[
            "count_memcg_events",
            "mod_memcg_state",
            "mod_memcg_lruvec_state",
        ],
        &["memcg_id={id:d} item={item:d} val={val:d}"],
    ),
    (
        &["ma_read", "ma_op"],
        &["{fn:w}\tNode: {node:x} ({min:d} {max:d}) range: {index:d}-{last:d}"],
    ),
    (
        &["ma_write"],
        &[
            "{fn:w}\tNode {node:x} ({min:d} {max:d}) range:{index:d}-{last:d} piv ({piv:d}) val {val:x}",
        ],
    ),
    (
        &["vm_unmapped_area"],
        &[
            "addr={addr:x} err={:d} total_vm={total_vm:x} flags={flags:x} len={length:x} lo={low_limit:x} \
             hi={high_limit:x} mask={align_mask:x} ofs={align_offset:x}",
        ],
    ),
    (
        &["fill_mg_cmtime"],
        &[
            "ino={dev:D}:{ino:d}:{gen:d} ctime={ctime_s:d}.{ctime_ns:d} mtime={mtime_s:d}.{mtime_ns:d}",
        ],
    ),
    (
        &["inode_set_ctime_to_ts"],
        &["ino={dev:D}:{ino:d}:{gen:d} ctime={ctime_s:d}.{ctime_ns:d}"],
    ),
    (
        &["alloc_vmap_area"],
        &[
            "va_start: {addr:d} size={size:d} align={align:d} vstart={vstart:x} vend={vend:x} failed={failed:d}",
        ],
    ),
    (
        &[
            "writeback_mark_inode_dirty",
            "writeback_dirty_inode_start",
            "writeback_dirty_inode",
        ],
        &["bdi {name:s}: ino={ino:d} state={state:s} flags={flags:s}"],
    ),
    // The kernel's own entries, which no event directory of tracefs lists.
    (
        &["hwlat"],
        &[
            "#{seqnum:d} inner/outer(us): {duration:d}/{outer_duration:d} ts:{timestamp:f} count:{count:d}",
            "#{seqnum:d} inner/outer(us): {duration:d}/{outer_duration:d} ts:{timestamp:f} count:{count:d} \
             nmi-total:{nmi_total_ts:d} nmi-count:{nmi_count:d}",
            "#{seqnum:d} inner/outer(us): {duration:d}/{outer_duration:d} ts:{timestamp:f}",
        ],
    ),
    (
        &["timerlat"],
        &["#{seqnum:d} context {context:w} timer_latency {timer_latency:d} ns"],
    ),
    (
        &["osnoise"],
        &[
            "{runtime:d} {noise:d} {available_percent:f} {max_sample:d} {hw_count:d} {nmi_count:d} {irq_count:d} \
             {softirq_count:d} {thread_count:d}",
        ],
    ),
    (
        &["wakeup"],
        &[
            "{prev_pid:d}:{prev_prio:d}:{prev_state:w} + [{next_cpu:d}] {next_pid:d}:{next_prio:d}:{next_state:w} \
             {next_comm:s}",
        ],
    ),
    (
        &["context_switch"],
        &[
            "{prev_pid:d}:{prev_prio:d}:{prev_state:w} ==> [{next_cpu:d}] {next_pid:d}:{next_prio:d}:{next_state:w} \
             {next_comm:s}",
        ],
    ),
];

/// Systems of events whose name lacks the system's prefix, or has one that several systems share.
const EVENTS: &[(&str, &str)] = &[
    ("sys_enter", "raw_syscalls"),
    ("sys_exit", "raw_syscalls"),
    ("itimer_expire", "timer"),
    ("itimer_state", "timer"),
    ("tick_stop", "timer"),
    ("kmalloc", "kmem"),
    ("kmalloc_node", "kmem"),
    ("kfree", "kmem"),
    ("mm_page_alloc", "kmem"),
    ("mm_page_alloc_extfrag", "kmem"),
    ("mm_page_alloc_zone_locked", "kmem"),
    ("mm_page_free", "kmem"),
    ("mm_page_free_batched", "kmem"),
    ("mm_page_pcpu_drain", "kmem"),
    ("rss_stat", "kmem"),
    ("kfree_skb", "skb"),
    ("consume_skb", "skb"),
    ("skb_copy_datagram_iovec", "skb"),
    ("netif_rx", "net"),
    ("netif_receive_skb", "net"),
    ("sock_rcvqueue_full", "sock"),
    ("sock_exceed_buf_limit", "sock"),
    ("sock_send_length", "sock"),
    ("sock_recv_length", "sock"),
    ("inet_sock_set_state", "sock"),
    ("inet_sk_error_report", "sock"),
    ("page_fault_user", "exceptions"),
    ("page_fault_kernel", "exceptions"),
    ("read_msr", "msr"),
    ("write_msr", "msr"),
    ("rdpmc", "msr"),
    ("tlb_flush", "tlb"),
    ("task_newtask", "task"),
    ("task_rename", "task"),
    ("cap_capable", "capability"),
    ("ma_read", "maple_tree"),
    ("ma_write", "maple_tree"),
    ("ma_op", "maple_tree"),
    ("vm_unmapped_area", "mmap"),
    ("vma_mas_szero", "mmap"),
    ("vma_store", "mmap"),
    ("exit_mmap", "mmap"),
    ("alloc_vmap_area", "vmalloc"),
    ("purge_vmap_area_lazy", "vmalloc"),
    ("free_vmap_area_noflush", "vmalloc"),
    ("count_memcg_events", "memcg"),
    ("mod_memcg_state", "memcg"),
    ("mod_memcg_lruvec_state", "memcg"),
    ("inode_set_ctime_to_ts", "timestamp"),
    ("ctime_ns_xchg", "timestamp"),
    ("fill_mg_cmtime", "timestamp"),
    ("cdev_update", "thermal"),
    ("suspend_resume", "power"),
    ("wakeup_source_activate", "power"),
    ("wakeup_source_deactivate", "power"),
    ("mm_lru_insertion", "pagemap"),
    ("mm_lru_activate", "pagemap"),
    ("call_function_entry", "irq_vectors"),
    ("call_function_exit", "irq_vectors"),
    ("call_function_single_entry", "irq_vectors"),
    ("call_function_single_exit", "irq_vectors"),
    ("reschedule_entry", "irq_vectors"),
    ("reschedule_exit", "irq_vectors"),
    ("local_timer_entry", "irq_vectors"),
    ("local_timer_exit", "irq_vectors"),
    ("irq_work_entry", "irq_vectors"),
    ("irq_work_exit", "irq_vectors"),
    ("vector_activate", "irq_vectors"),
    ("vector_alloc", "irq_vectors"),
    ("vector_config", "irq_vectors"),
    ("thermal_apic_entry", "irq_vectors"),
    ("thermal_apic_exit", "irq_vectors"),
    ("cpu_idle", "power"),
    ("cpu_idle_miss", "power"),
    ("cpu_frequency", "power"),
    ("cpu_frequency_limits", "power"),
    ("device_pm_callback_start", "power"),
    ("device_pm_callback_end", "power"),
    ("pstate_sample", "power"),
    ("clock_set_rate", "power"),
    ("clock_enable", "power"),
    ("clock_disable", "power"),
    ("sched_wakeup", "sched"),
    ("emulate_vsyscall", "vsyscall"),
    ("irq_matrix_alloc", "irq_matrix"),
];

/// Systems by the prefix of an event's name; longer prefixes come first.
const PREFIXES: &[(&str, &str)] = &[
    ("sched_", "sched"),
    ("sys_enter_", "syscalls"),
    ("sys_exit_", "syscalls"),
    ("irq_handler_", "irq"),
    ("softirq_", "irq"),
    ("tasklet_", "irq"),
    ("irq_matrix_", "irq_matrix"),
    ("x86_platform_ipi_", "irq_vectors"),
    ("timer_", "timer"),
    ("hrtimer_", "timer"),
    ("alarmtimer_", "alarmtimer"),
    ("block_", "block"),
    ("kmem_cache_", "kmem"),
    ("workqueue_", "workqueue"),
    ("net_dev_", "net"),
    ("netif_", "net"),
    ("napi_poll", "napi"),
    ("tcp_", "tcp"),
    ("udp_", "udp"),
    ("fib_table_", "fib"),
    ("qdisc_", "qdisc"),
    ("neigh_", "neigh"),
    ("page_pool_", "page_pool"),
    ("kvm_", "kvm"),
    ("signal_", "signal"),
    ("power_", "power"),
    ("pm_qos_", "power"),
    ("dev_pm_qos_", "power"),
    ("psci_domain_", "power"),
    ("rpm_", "rpm"),
    ("regulator_", "regulator"),
    ("clk_", "clk"),
    ("gpio_", "gpio"),
    ("regmap_", "regmap"),
    ("i2c_", "i2c"),
    ("smbus_", "i2c"),
    ("spi_", "spi"),
    ("mmc_", "mmc"),
    ("nvme_", "nvme"),
    ("scsi_", "scsi"),
    ("xhci_", "xhci-hcd"),
    ("drm_", "drm"),
    ("dma_fence_", "dma_fence"),
    ("i915_", "i915"),
    ("ext4_", "ext4"),
    ("jbd2_", "jbd2"),
    ("xfs_", "xfs"),
    ("btrfs_", "btrfs"),
    ("f2fs_", "f2fs"),
    ("nfs_", "nfs"),
    ("nfs4_", "nfs4"),
    ("writeback_", "writeback"),
    ("wbc_", "writeback"),
    ("balance_dirty_pages", "writeback"),
    ("global_dirty_state", "writeback"),
    ("mm_vmscan_", "vmscan"),
    ("mm_compaction_", "compaction"),
    ("mm_filemap_", "filemap"),
    ("mm_migrate_", "migrate"),
    ("mm_khugepaged_", "huge_memory"),
    ("mm_collapse_", "huge_memory"),
    ("mmap_lock_", "mmap_lock"),
    ("oom_", "oom"),
    ("percpu_", "percpu"),
    ("memcg_", "memcg"),
    ("cgroup_", "cgroup"),
    ("rcu_", "rcu"),
    ("rseq_", "rseq"),
    ("ipi_", "ipi"),
    ("x86_fpu_", "x86_fpu"),
    ("notifier_", "notifier"),
    ("thermal_", "thermal"),
    ("cpuhp_", "cpuhp"),
    ("cma_", "cma"),
    ("module_", "module"),
    ("xdp_", "xdp"),
    ("bpf_", "bpf"),
    ("io_uring_", "io_uring"),
    ("iomap_", "iomap"),
    ("iommu_", "iommu"),
    ("swiotlb_", "swiotlb"),
    ("csd_", "csd"),
    ("context_tracking_user_", "context_tracking"),
    ("osnoise_", "osnoise"),
    ("hv_", "hyperv"),
    ("xen_", "xen"),
    ("virtio_", "virtio_gpu"),
    ("contention_", "lock"),
    ("lock_", "lock"),
    ("binder_", "binder"),
    ("cpufreq_interactive_", "cpufreq_interactive"),
    ("mali_", "mali"),
    ("kgsl_", "kgsl"),
    ("sync_", "sync"),
    ("vmscan_", "vmscan"),
];

/// System of unknown events.
pub(super) const UNKNOWN: &str = "ftrace";

/// The system of an event.
pub(super) fn system(event: &[u8]) -> &'static str {
    let known = EVENTS.iter().find(|(name, _)| name.as_bytes() == event);
    let by_prefix = || {
        PREFIXES
            .iter()
            .find(|(prefix, _)| event.starts_with(prefix.as_bytes()))
    };
    known
        .or_else(by_prefix)
        .map_or(UNKNOWN, |(_, system)| system)
}

/// The forms of an event besides `key=value`.
pub(super) fn forms(event: &[u8]) -> &'static [&'static str] {
    FORMS
        .iter()
        .find(|(names, _)| names.iter().any(|name| name.as_bytes() == event))
        .map_or(&[], |(_, forms)| forms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems() {
        let check = |event: &str, expected: &str| assert_eq!(system(event.as_bytes()), expected);
        check("sched_switch", "sched");
        check("sys_enter", "raw_syscalls");
        check("sys_enter_openat", "syscalls");
        check("irq_handler_exit", "irq");
        check("local_timer_entry", "irq_vectors");
        check("cpu_idle", "power");
        check("my_own", UNKNOWN);
    }

    #[test]
    fn forms_by_name() {
        assert_eq!(forms(b"sched_waking").len(), 5);
        assert!(forms(b"sched_wake_idle_without_ipi").is_empty());
    }
}
