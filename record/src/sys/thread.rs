//! What a thread is to the scheduler and to filters: its name, its priority.

#![expect(unsafe_code, reason = "prctl and sched_setscheduler")]

/// The name of all our threads. The kernel's filters compare with it ([`crate::own`]), so it is set
/// whatever the program file is called.
pub(crate) const COMM: &str = "perfquet-record";

/// Names this thread and those that it starts later.
pub(crate) fn set_comm() {
    let name = c"perfquet-record";
    // SAFETY: the kernel reads at most 16 bytes up to the NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// This thread and those that it starts later run only when nothing else wants the CPU.
pub(crate) fn make_idle() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads `parameter`; 0 is the calling thread. Without success the thread is merely less polite.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameter) };
}

/// Ends the politeness of all threads of this process: the recording is over, somebody waits. Needs
/// CAP_SYS_NICE; without it they stay as they are.
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
