//! What a machine may lack: each need has a name, used by the sessions and by tests, and a reason that is said aloud.

use std::path::Path;

use crate::say;

/// None if the machine has it; otherwise why what needs it cannot run.
///
/// ```
/// assert!(perfquet_tests::needs::missing("a flying carpet").is_some());
/// ```
pub fn missing(need: &str) -> Option<String> {
    let there = match need {
        "root" => is_root(),
        "bpf" => is_root() && has_tracefs() && Path::new("/sys/kernel/btf/vmlinux").is_file(),
        "perf events" => may_record_system(),
        "tracefs" => has_tracefs(),
        "perf" | "zstd" | "trace-cmd" | "bpftrace" | "cc" | "curl" => say::has(need),
        "kernel probes" => is_root() && Path::new("/sys/kernel/tracing/kprobe_events").is_file(),
        "ftrace" => is_root() && Path::new("/sys/kernel/tracing/max_graph_depth").is_file(),
        _ => false,
    };
    (!there).then(|| format!("needs {need}"))
}

fn has_tracefs() -> bool {
    Path::new("/sys/kernel/tracing/events/sched/sched_switch/id").is_file()
}

/// Whether the effective user is root.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    effective == Some("0")
}

/// `kernel.perf_event_paranoid`; None where the kernel has no perf events.
pub fn perf_event_paranoid() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn may_record_system() -> bool {
    perf_event_paranoid().is_some_and(|level| is_root() || level <= 0)
}
