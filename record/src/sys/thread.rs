//! Name and scheduling priority of threads.

#![expect(unsafe_code, reason = "prctl and sched_setscheduler")]

/// The name of all threads of the recorder. Kernel filters compare with it ([`crate::self_exclusion`]), so it is set
/// regardless of the program's file name.
pub(crate) const COMM: &str = "perfquet-record";

/// Names this thread and those that it starts later.
pub(crate) fn set_comm() {
    let mut name = [0u8; 16];
    name[..COMM.len()].copy_from_slice(COMM.as_bytes());
    // SAFETY: the kernel reads at most 16 bytes up to the NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Nice value for a user who cannot raise the priority again: a third of the CPU share of others.
const POLITE: libc::c_int = 5;
/// Bit of CAP_SYS_NICE in a set of capabilities (include/uapi/linux/capability.h).
const CAP_SYS_NICE: u32 = 23;

/// Runs this thread, and threads that it starts later, only when the CPU is idle, if that can be undone when the user
/// waits for them ([`make_idle_normal`]); otherwise at a lower priority.
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

/// Runs this thread, and processes that it starts later, after all others, but not never: a host may be busy for days.
pub(crate) fn make_last() {
    /// `IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT` (include/uapi/linux/ioprio.h).
    const IDLE: libc::c_int = 3 << 13;
    // SAFETY: no memory is involved; `IOPRIO_WHO_PROCESS` is 1, 0 is the calling thread. Without success it is less polite.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
        libc::syscall(libc::SYS_ioprio_set, 1, 0, IDLE);
    }
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

/// The best nice value.
const PREFERRED: libc::c_int = -20;

/// Runs this thread before others that are not real-time, if permitted.
pub(crate) fn make_preferred() {
    // SAFETY: no memory is involved; 0 is the calling thread. Without success it stays as it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PREFERRED) };
}

/// Runs this thread before all others that are not real-time, if permitted: with SCHED_RR, otherwise with the lowest
/// nice value. A drain loses events if it waits for a CPU longer than a ring lasts, and nice values alone do not apply
/// between groups of processes.
pub(crate) fn make_urgent() {
    /// The lowest priority: other real-time threads go first.
    const LEAST: libc::c_int = 1;
    let parameter = libc::sched_param {
        sched_priority: LEAST,
    };
    // Threads that it starts are not urgent.
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads `parameter`; 0 is the calling thread.
    let is_set = unsafe { libc::sched_setscheduler(0, policy, &parameter) } == 0;
    if !is_set {
        // Fails even for root in a cgroup (version 1) whose cpu.rt_runtime_us is 0, the default of a new one, if the
        // kernel has CONFIG_RT_GROUP_SCHED (kernel/sched/syscalls.c, __sched_setscheduler).
        let error = std::io::Error::last_os_error();
        log::debug!("SCHED_RR is refused ({error}): draining with nice value {PREFERRED}");
        make_preferred();
    }
}

/// Sets all idle threads of this process to normal priority, and returns them. Without CAP_SYS_NICE, they stay idle.
pub(crate) fn make_idle_normal() -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let tids = threads
        .flatten()
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    // SAFETY: returns a number; the TID is that of a thread of this process, or of one that has just ended.
    let is_idle = |tid: &i32| unsafe { libc::sched_getscheduler(*tid) } == libc::SCHED_IDLE;
    let tids: Vec<i32> = tids.filter(is_idle).collect();
    set_policy(&tids, libc::SCHED_OTHER);
    tids
}

/// Whether this thread runs only while the CPU is idle.
#[cfg(test)]
pub(crate) fn is_idle() -> bool {
    // SAFETY: returns a number; 0 is this thread.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_IDLE }
}

/// Sets these threads to idle priority again.
pub(crate) fn make_idle_again(tids: &[i32]) {
    set_policy(tids, libc::SCHED_IDLE);
}

fn set_policy(tids: &[i32], policy: libc::c_int) {
    let parameter = libc::sched_param { sched_priority: 0 };
    for &tid in tids {
        // SAFETY: the kernel reads `parameter`; `tid` is that of a thread of this process, or of one that has just
        // ended.
        unsafe { libc::sched_setscheduler(tid, policy, &parameter) };
    }
}
