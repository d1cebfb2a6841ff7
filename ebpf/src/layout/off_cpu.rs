//! Time off the CPU: ebpf/src/offcpu.bpf.c.

#![expect(unsafe_code, reason = "plain structs that the kernel reads and writes")]

use aya::Pod;

/// Constants of offcpu.bpf.c (`struct off_settings`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffSettings {
    /// Minimum duration in nanoseconds.
    pub least: u64,
    /// Whether sched_switch has the state of the thread that leaves as an argument.
    pub has_prev_state: u32,
    /// Whether kernel stacks are recorded.
    pub has_kernel_side: u32,
    /// Whether user stacks are recorded.
    pub has_user_side: u32,
    /// 0
    pub unused: u32,
}

/// A thread off the CPU: location and reason (`struct off_key`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct OffKey {
    /// ID of the kernel stack.
    pub kernel_stack: u64,
    /// ID of the user stack.
    pub user_stack: u64,
    /// Its comm.
    pub comm: [u8; 16],
    /// Comm of its waker; empty without one.
    pub waker: [u8; 16],
    /// Its PID.
    pub process: u32,
    /// 0 preempted, 1 interruptible, 2 uninterruptible, 3 idle, 4 any other.
    pub state: u32,
    /// Number of the interval.
    pub interval: u32,
    /// 0
    pub unused: u32,
}

/// A thread that is off the CPU (`struct off_start`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffStart {
    /// The key to which its time is added.
    pub key: OffKey,
    /// Start time.
    pub time: u64,
}

/// Values of a key on one CPU (`struct off_cell`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OffCell {
    /// Count.
    pub count: u64,
    /// Nanoseconds.
    pub total: u64,
}

// SAFETY: plain integers in C layout, valid for any bits; no padding (checked below).
unsafe impl Pod for OffSettings {}
// SAFETY: as above.
unsafe impl Pod for OffKey {}
// SAFETY: as above.
unsafe impl Pod for OffStart {}
// SAFETY: as above.
unsafe impl Pod for OffCell {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_program() {
        assert_eq!((size_of::<OffKey>(), size_of::<OffStart>()), (64, 72));
        assert_eq!(size_of::<OffSettings>(), 24);
    }
}
