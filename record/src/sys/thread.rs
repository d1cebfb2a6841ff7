//! What a thread is to the scheduler and to filters: its name, its priority.

#![expect(unsafe_code, reason = "prctl and sched_setscheduler")]

/// The name of all our threads. The kernel's filters compare with it ([`crate::own`]), so it is set
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
/// when somebody waits for them ([`make_all_normal`]); otherwise they are merely polite.
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

/// Ends the politeness of all threads of this process: the recording is over, somebody waits. Without CAP_SYS_NICE
/// they stay as they are.
pub(crate) fn make_all_normal() {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    let parameter = libc::sched_param { sched_priority: 0 };
    for thread in threads.flatten() {
        if let Some(tid) = thread.file_name().to_str().and_then(|tid| tid.parse().ok()) {
            // SAFETY: as above; `tid` is one of ours, or has just ended.
            unsafe { libc::sched_setscheduler(tid, libc::SCHED_OTHER, &parameter) };
        }
    }
}
