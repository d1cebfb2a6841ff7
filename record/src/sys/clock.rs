//! Clocks, and the pair of stamps that ties the trace's clock to the wall's.

#![expect(unsafe_code, reason = "clock_gettime")]

use std::time::Duration;

/// Nanoseconds of CLOCK_MONOTONIC, the clock of every recording: tracefs's `mono` and BPF's
/// `bpf_ktime_get_ns` count the same.
pub(crate) fn monotonic() -> u64 {
    now(libc::CLOCK_MONOTONIC)
}

/// Returns the nanoseconds since boot, including suspend.
pub(crate) fn since_boot() -> u64 {
    now(libc::CLOCK_BOOTTIME)
}

/// Returns the CPU time of all threads of this process.
pub(crate) fn process_cpu() -> Duration {
    Duration::from_nanos(now(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// Returns the nanoseconds since 1970 and those of CLOCK_MONOTONIC at the same moment.
pub(crate) fn wall_and_monotonic() -> (u64, u64) {
    let before = monotonic();
    let wall = now(libc::CLOCK_REALTIME);
    let after = monotonic();
    (wall, before + (after - before) / 2)
}

fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec. These clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
