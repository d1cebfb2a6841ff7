//! Names of LTTng's kernel events, of perf's and of our exports, as the kernel has them.
//!
//! ```text
//! sched_switch { prev_tid = 7, prev_prio = 20 }      sched:sched_switch { prev_pid 7, prev_prio 120 }
//! irq_softirq_entry { vec = 1 }                      irq:softirq_entry
//! syscall_entry_openat { dfd, filename, … }          syscalls:sys_enter_openat
//! ```
//! LTTng's events have no system, so it follows from the first words (include/instrumentation/events of lttng-modules).

use perfquet_events::event::EventKind;

use super::schema::Metadata;

/// The program that wrote a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracer {
    LttngKernel,
    LttngUser,
    Perf,
    Perfquet,
    Other,
}

impl Tracer {
    pub(super) fn of(metadata: &Metadata) -> Tracer {
        match (metadata.env("tracer_name"), metadata.env("domain")) {
            (Some("perfquet"), _) => Tracer::Perfquet,
            (Some("perf"), _) => Tracer::Perf,
            (_, Some("kernel")) => Tracer::LttngKernel,
            (_, Some("ust")) => Tracer::LttngUser,
            _ => Tracer::Other,
        }
    }

    /// Whether columns are those of the kernel's events: numbers without labels.
    pub(super) fn is_kernel(self) -> bool {
        matches!(self, Tracer::LttngKernel | Tracer::Perf | Tracer::Perfquet)
    }
}

/// System, name and kind of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) system: String,
    pub(super) name: String,
    pub(super) kind: EventKind,
}

fn identity(system: &str, name: &str, kind: EventKind) -> Identity {
    Identity {
        system: system.to_owned(),
        name: name.to_owned(),
        kind,
    }
}

/// The identity of an event.
pub(super) fn identify(name: &str, tracer: Tracer, tracer_name: Option<&str>) -> Identity {
    let kind = match tracer {
        Tracer::LttngKernel | Tracer::Perf | Tracer::Perfquet => EventKind::Tracepoint,
        Tracer::LttngUser => EventKind::Usdt,
        Tracer::Other => EventKind::Marker,
    };
    match (tracer, name.split_once(':')) {
        (Tracer::Perf | Tracer::Perfquet, Some((_, modifiers))) if is_modifiers(modifiers) => {
            identity("", name, EventKind::Counter)
        }
        (_, Some((system, event))) => identity(system, event, kind),
        (Tracer::LttngKernel, None) => {
            let (system, name) = kernel_name(name);
            identity(system, &name, kind)
        }
        (Tracer::Perfquet, None) => match system_of_exported(name) {
            Some(system) => identity(system, name, kind),
            None => identity("", name, EventKind::Counter),
        },
        (Tracer::Perf, None) if name.starts_with("perf_") => {
            identity("perf", name, EventKind::Recorder)
        }
        (Tracer::Perf, None) => identity("", name, EventKind::Counter),
        (Tracer::LttngUser, None) => identity("ust", name, kind),
        (Tracer::Other, None) => identity(tracer_name.unwrap_or("ctf"), name, kind),
    }
}

/// `u` of `cycles:u`.
fn is_modifiers(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 6
        && text.chars().all(|letter| "ukhGHpPDSIbeW".contains(letter))
}

/// The system of an event that our exporter writes without it, as Trace Compass expects.
fn system_of_exported(name: &str) -> Option<&'static str> {
    let starts = |prefix: &str| name.starts_with(prefix);
    match name {
        "call" => Some("perfquet"),
        _ if starts("sched_") => Some("sched"),
        _ if starts("irq_handler_") || starts("softirq_") || starts("tasklet_") => Some("irq"),
        _ => None,
    }
}

/// How the kernel's name follows from LTTng's.
#[derive(Clone, Copy)]
enum Rule {
    /// The name stays.
    Same,
    /// The prefix is dropped.
    Without,
    /// The prefix is replaced.
    With(&'static str),
}

/// Prefixes, the system, and the rule; longer ones first.
const SYSTEMS: &[(&str, &str, Rule)] = &[
    (
        "compat_syscall_entry_",
        "compat_syscalls",
        Rule::With("sys_enter_"),
    ),
    (
        "compat_syscall_exit_",
        "compat_syscalls",
        Rule::With("sys_exit_"),
    ),
    ("syscall_entry_", "syscalls", Rule::With("sys_enter_")),
    ("syscall_exit_", "syscalls", Rule::With("sys_exit_")),
    ("x86_irq_vectors_", "irq_vectors", Rule::Without),
    ("x86_exceptions_", "exceptions", Rule::Without),
    ("kvm_x86_", "kvm", Rule::With("kvm_")),
    ("kvm_mmu_", "kvmmmu", Rule::Same),
    ("kvm_", "kvm", Rule::Same),
    ("mm_compaction_", "compaction", Rule::Same),
    ("mm_vmscan_", "vmscan", Rule::Same),
    ("printk_console", "printk", Rule::With("console")),
    ("preemptirq_", "preemptirq", Rule::Without),
    ("irq_softirq_", "irq", Rule::With("softirq_")),
    ("irq_tasklet_", "irq", Rule::With("tasklet_")),
    ("irq_handler_", "irq", Rule::Same),
    ("skb_consume", "skb", Rule::With("consume_skb")),
    ("skb_kfree", "skb", Rule::With("kfree_skb")),
    ("skb_", "skb", Rule::Same),
    ("napi_poll", "napi", Rule::Same),
    ("napi_gro_", "net", Rule::Same),
    ("net_dev_", "net", Rule::Same),
    ("netif_", "net", Rule::Same),
    ("writeback_", "writeback", Rule::Same),
    ("workqueue_", "workqueue", Rule::Same),
    ("regulator_", "regulator", Rule::Same),
    ("lttng_", "lttng", Rule::Same),
    ("random_", "random", Rule::Without),
    ("signal_", "signal", Rule::Same),
    ("module_", "module", Rule::Same),
    ("regmap_", "regmap", Rule::Same),
    ("sched_", "sched", Rule::Same),
    ("timer_", "timer", Rule::Without),
    ("block_", "block", Rule::Same),
    ("power_", "power", Rule::Without),
    ("btrfs_", "btrfs", Rule::Same),
    ("kmem_", "kmem", Rule::Without),
    ("sock_", "sock", Rule::Same),
    ("jbd2_", "jbd2", Rule::Same),
    ("ext4_", "ext4", Rule::Same),
    ("scsi_", "scsi", Rule::Same),
    ("gpio_", "gpio", Rule::Same),
    ("lock_", "lock", Rule::Same),
    ("tcp_", "tcp", Rule::Same),
    ("udp_", "udp", Rule::Same),
    ("rcu_", "rcu", Rule::Same),
    ("rpc_", "sunrpc", Rule::Same),
    ("i2c_", "i2c", Rule::Same),
];

/// System and name of a kernel event of LTTng.
pub(super) fn kernel_name(name: &str) -> (&'static str, String) {
    for (prefix, system, rule) in SYSTEMS {
        if let Some(rest) = name.strip_prefix(prefix) {
            let name = match rule {
                Rule::Same => name.to_owned(),
                Rule::Without => rest.to_owned(),
                Rule::With(start) => format!("{start}{rest}"),
            };
            return (system, name);
        }
    }
    ("lttng", name.to_owned())
}

/// How a value becomes that of the kernel's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// LTTng stores priorities without the 100 of real-time threads.
    Priority,
    /// LTTng stores flags of requests as bits.
    Rwbs,
}

/// The kernel's name of a field, and how its value changes.
pub(super) fn field<'n>(event: &str, field: &'n str, tracer: Tracer) -> (&'n str, Change) {
    let is_lttng = tracer == Tracer::LttngKernel;
    if !is_lttng && tracer != Tracer::Perfquet {
        return (field, Change::None);
    }
    if event.starts_with("block_") && field == "rwbs" && is_lttng {
        return (field, Change::Rwbs);
    }
    if !event.starts_with("sched_") {
        return (field, Change::None);
    }
    // LTTng's process IDs are those of thread groups.
    let name = match field {
        "prev_tid" => "prev_pid",
        "next_tid" => "next_pid",
        "tid" => "pid",
        "child_tid" if is_lttng => "child_pid",
        "parent_tid" if is_lttng => "parent_pid",
        "old_tid" if is_lttng => "old_pid",
        "pid" if is_lttng => "tgid",
        "child_pid" if is_lttng => "child_tgid",
        "parent_pid" if is_lttng => "parent_tgid",
        other => other,
    };
    let change = match field {
        "prio" | "prev_prio" | "next_prio" | "oldprio" | "newprio" if is_lttng => Change::Priority,
        _ => Change::None,
    };
    (name, change)
}

/// The kernel's text of LTTng's flags of a request: `WS`, and its length.
pub(super) fn rwbs(bits: u64) -> ([u8; 8], usize) {
    const FLUSH: u64 = 1 << 8;
    const PREFLUSH: u64 = 1 << 10;
    let letters = [
        (PREFLUSH, b'F'),
        (1 << 1, b'D'),
        (1 << 0, b'W'),
        (1 << 2, b'R'),
        (FLUSH | 1 << 9, b'F'),
        (1 << 3, b'A'),
        (1 << 5, b'S'),
        (1 << 6, b'M'),
    ];
    let (mut text, mut length) = ([0; 8], 0);
    for (bit, letter) in letters {
        if bits & bit != 0
            && let Some(place) = text.get_mut(length)
        {
            *place = letter;
            length += 1;
        }
    }
    if length == 0 {
        return (*b"N\0\0\0\0\0\0\0", 1);
    }
    (text, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_events_of_lttng() {
        let check = |lttng: &str, kernel: &str| {
            let (system, name) = kernel_name(lttng);
            assert_eq!(format!("{system}:{name}"), kernel);
        };
        check("sched_switch", "sched:sched_switch");
        check("irq_softirq_raise", "irq:softirq_raise");
        check("irq_handler_entry", "irq:irq_handler_entry");
        check("timer_hrtimer_start", "timer:hrtimer_start");
        check("syscall_entry_openat", "syscalls:sys_enter_openat");
        check("compat_syscall_exit_read", "compat_syscalls:sys_exit_read");
        check("power_cpu_idle", "power:cpu_idle");
        check("skb_kfree", "skb:kfree_skb");
        check("kvm_x86_entry", "kvm:kvm_entry");
        check(
            "x86_exceptions_page_fault_user",
            "exceptions:page_fault_user",
        );
        check("printk_console", "printk:console");
        check("some_module_event", "lttng:some_module_event");
    }

    #[test]
    fn fields_of_lttng() {
        let check = |event, name, expected| {
            assert_eq!(field(event, name, Tracer::LttngKernel), expected);
        };
        check("sched_switch", "prev_tid", ("prev_pid", Change::None));
        check("sched_switch", "next_prio", ("next_prio", Change::Priority));
        check(
            "sched_process_fork",
            "child_pid",
            ("child_tgid", Change::None),
        );
        check(
            "sched_process_fork",
            "child_tid",
            ("child_pid", Change::None),
        );
        check("block_rq_issue", "rwbs", ("rwbs", Change::Rwbs));
        check("irq_handler_entry", "tid", ("tid", Change::None));
        assert_eq!(rwbs(1 | 1 << 5), (*b"WS\0\0\0\0\0\0", 2));
        assert_eq!(rwbs(0), (*b"N\0\0\0\0\0\0\0", 1));
    }

    #[test]
    fn samples_and_tracepoints_of_perf() {
        let kind = |name| identify(name, Tracer::Perf, Some("perf")).kind;
        assert_eq!(kind("cycles:u"), EventKind::Counter);
        assert_eq!(kind("cpu-clock"), EventKind::Counter);
        assert_eq!(kind("sched:sched_switch"), EventKind::Tracepoint);
        assert_eq!(kind("perf_mmap2"), EventKind::Recorder);
    }
}
