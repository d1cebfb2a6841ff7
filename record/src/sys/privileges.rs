//! Why the kernel refused, in words with a next step: which sysctl, which capability, which limit.

use std::fs;
use std::io;

use crate::failure::{Failure, failed};

/// `kernel.perf_event_NAME`, where it can be read.
pub(crate) fn perf_sysctl(name: &str) -> Option<i64> {
    let path = format!("/proc/sys/kernel/perf_event_{name}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The target of an event, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Whole CPUs.
    System,
    /// Cgroups on whole CPUs.
    Cgroup,
    /// This process or thread.
    Task(i32),
    /// The recorded command.
    Command,
    /// Processes of this user.
    User(u32),
}

/// `perf_event_open` failed for the event `name`.
pub(crate) fn cannot_open(name: &str, scope: Scope, error: &io::Error) -> Failure {
    let number = error.raw_os_error().unwrap_or(0);
    match number {
        libc::EACCES | libc::EPERM => not_permitted(name, scope),
        libc::ESRCH => match scope {
            Scope::Task(pid) => failed(format!("no process {pid}")),
            Scope::User(user) => failed(format!("no process of user {user} runs")),
            Scope::System | Scope::Cgroup | Scope::Command => failed("the command exited before the recording began"),
        },
        libc::ENOENT if scope == Scope::Cgroup => {
            failed(format!("cannot record {name}: the cgroup has no perf_event controller"))
                .hint("enable a controller in the parent cgroup: echo +cpu > PARENT/cgroup.subtree_control")
        }
        libc::EMFILE | libc::ENFILE => failed(format!("cannot open the event {name}: {error}"))
            .hint("raise the limit of open files (ulimit -n), or record fewer events"),
        libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO => failed(format!(
            "this host has no hardware counter {name}"
        ))
        .hint("use cpu-clock, which works everywhere; virtual machines often have no hardware counters"),
        libc::EBUSY => failed(format!("cannot open the event {name}: the counter is in use"))
            .hint("another profiler or the NMI watchdog holds it: sysctl kernel.nmi_watchdog=0"),
        libc::EINVAL => failed(format!("the kernel rejected the event {name}: {error}")).hint(
            match perf_sysctl("max_sample_rate") {
                Some(rate) => format!("check its modifiers, and that -F is at most {rate} (kernel.perf_event_max_sample_rate)"),
                None => "check its modifiers".to_owned(),
            },
        ),
        libc::ENOSYS => failed("this kernel was built without perf events (CONFIG_PERF_EVENTS)"),
        libc::EOVERFLOW => failed(format!("cannot open the event {name}: stacks deeper than kernel.perf_event_max_stack")),
        _ => failed(format!("cannot open the event {name}: {error}")),
    }
}

fn not_permitted(name: &str, scope: Scope) -> Failure {
    let level = perf_sysctl("paranoid");
    let reason = level.map_or(String::new(), |level| {
        format!(" (kernel.perf_event_paranoid is {level})")
    });
    match scope {
        Scope::System | Scope::Cgroup => failed(format!("not permitted to record system-wide{reason}")).hint(
            "run as root, grant CAP_PERFMON (setcap cap_perfmon,cap_ipc_lock+ep FILE), or run: \
             sysctl kernel.perf_event_paranoid=-1; without privileges, record a command: perfquet-record -- COMMAND",
        ),
        Scope::Task(pid) => failed(format!("not permitted to record {name} of process {pid}{reason}")).hint(
            "run as its owner with kernel.perf_event_paranoid at 2 or less, run as root, or grant \
             CAP_PERFMON",
        ),
        Scope::User(user) => {
            failed(format!("not permitted to record {name} of user {user}{reason}"))
                .hint("record your own processes, run as root, or grant CAP_PERFMON")
        }
        Scope::Command => failed(format!("not permitted to record {name}{reason}")).hint(
            "run as root, grant CAP_PERFMON, or run: sysctl kernel.perf_event_paranoid=1",
        ),
    }
}

/// Returns the error for rings that cannot be mapped, however small, or not in the requested size.
pub(crate) fn cannot_map(ring_bytes: usize, locked_limit_bytes: u64, error: &io::Error) -> Failure {
    if error.raw_os_error() != Some(libc::EPERM) {
        return failed(format!(
            "cannot map a ring of {}: {error}",
            kib(ring_bytes as u64)
        ))
        .hint("use a smaller -m SIZE");
    }
    let per_cpu = perf_sysctl("mlock_kb").map_or("unknown".to_owned(), |limit| limit.to_string());
    failed(format!(
        "rings of {} exceed locked memory (kernel.perf_event_mlock_kb is {per_cpu} per CPU, the memlock limit is {})",
        kib(ring_bytes as u64),
        kib(locked_limit_bytes)
    ))
    .hint("use a smaller -m SIZE, or grant CAP_IPC_LOCK, or raise ulimit -l")
}

fn kib(bytes: u64) -> String {
    match bytes {
        u64::MAX => "unlimited".to_owned(),
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}

/// More descriptors are needed than the limit allows.
pub(crate) fn too_many_files(events: usize, needed: u64, limit: u64) -> Failure {
    failed(format!(
        "{events} events need {needed} file descriptors; the limit is {limit}"
    ))
    .hint(
        "raise it (ulimit -n), or record fewer events: raw_syscalls:sys_enter and raw_syscalls:sys_exit \
         cover all system calls",
    )
}
