//! What a thread is to the scheduler and to filters: its name, its priority.

#![expect(unsafe_code, reason = "prctl and sched_setscheduler")]

/// The name of all our threads. The kernel's filters compare with it ([`crate::own_activity`]), so it is set
/// whatever the program file is called.
pub(crate) const COMM: &str = "perfquet-record";

/// Names this thread and those that it starts later.
pub(crate) fn set_comm() {
    let mut name = [0u8; 16];
    name[..COMM.len()].copy_from_slice(COMM.as_bytes());
    // SAFETY: the kernel reads at most 16 bytes up to the NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// A thread of a user who cannot take politeness back has this nice value: a third of the share of others.
const POLITE: libc::c_int = 5;
/// Bit of CAP_SYS_NICE in a set of capabilities (include/uapi/linux/capability.h).
const CAP_SYS_NICE: u32 = 23;

/// This thread and those that it starts later run only when nothing else wants the CPU, if that can be taken back
/// when somebody waits for them ([`make_idle_normal`]); otherwise they are merely polite.
pub(crate) fn make_idle() {
    if !may_take_back() {
        // SAFETY: no memory is involved; 0 is the calling thread. Without success it is less polite.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, POLITE) };
        return;
    }
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads `parameter`; 0 is the calling thread. Without success the thread is merely less polite.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameter) };
}

/// Leaving SCHED_IDLE needs CAP_SYS_NICE.
fn may_take_back() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set >> CAP_SYS_NICE & 1 == 1)
}

/// This thread runs before all that are not real-time, where it may: by SCHED_RR, else by the best nice value. A drain that waits for
/// a CPU longer than a ring lasts loses events, and nice values alone do not count between groups of processes.
pub(crate) fn make_urgent() {
    /// The lowest: whatever else is real-time goes first.
    const LEAST: libc::c_int = 1;
    /// The best.
    const NICE: libc::c_int = -20;
    let parameter = libc::sched_param {
        sched_priority: LEAST,
    };
    // What it starts is not meant to be urgent.
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads `parameter`; 0 is the calling thread.
    let is_set = unsafe { libc::sched_setscheduler(0, policy, &parameter) } == 0;
    if !is_set {
        // As root too: in a cgroup (version 1) whose cpu.rt_runtime_us is 0, as it is in a new one, where the kernel has
        // CONFIG_RT_GROUP_SCHED (kernel/sched/syscalls.c, __sched_setscheduler).
        let error = std::io::Error::last_os_error();
        log::debug!("SCHED_RR is refused ({error}): draining with nice value {NICE}");
        // SAFETY: no memory is involved. Without success the thread stays as it is.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    }
}

/// Ends the politeness of all threads of this process that run only when nothing else wants the CPU, and says which those
/// are. Without CAP_SYS_NICE they stay as they are.
pub(crate) fn make_idle_normal() -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let tids = threads
        .flatten()
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    // SAFETY: asks for a number; a tid is that of one of our threads, or of one that has just ended.
    let is_idle = |tid: &i32| unsafe { libc::sched_getscheduler(*tid) } == libc::SCHED_IDLE;
    let tids: Vec<i32> = tids.filter(is_idle).collect();
    set_policy(&tids, libc::SCHED_OTHER);
    tids
}

/// Makes these threads polite again.
pub(crate) fn make_idle_again(tids: &[i32]) {
    set_policy(tids, libc::SCHED_IDLE);
}

fn set_policy(tids: &[i32], policy: libc::c_int) {
    let parameter = libc::sched_param { sched_priority: 0 };
    for &tid in tids {
        // SAFETY: the kernel reads `parameter`; `tid` is one of ours, or has just ended.
        unsafe { libc::sched_setscheduler(tid, policy, &parameter) };
    }
}
