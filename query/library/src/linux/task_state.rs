//! What a thread does, as sched_switch reports it.

/// A thread's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Not known: the thread was not seen yet, or events are missing.
    Unknown,
    Running,
    /// Woken, waiting for a CPU.
    Runnable,
    /// Switched out while runnable, waiting for a CPU.
    Preempted,
    Interruptible,
    Uninterruptible,
    /// By a signal or a debugger.
    Stopped,
    /// Of an idle kernel thread.
    Idle,
    Parked,
    /// Switched out to wait; what for is not recorded.
    Blocked,
    Dead,
}

impl State {
    /// Name in SQL; `None` if unknown.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            State::Unknown | State::Blocked => None,
            State::Running => Some("running"),
            State::Runnable => Some("runnable"),
            State::Preempted => Some("preempted"),
            State::Interruptible => Some("interruptible"),
            State::Uninterruptible => Some("uninterruptible"),
            State::Stopped => Some("stopped"),
            State::Idle => Some("idle"),
            State::Parked => Some("parked"),
            State::Dead => Some("dead"),
        }
    }

    /// Whether the thread waits for something other than a CPU.
    pub(crate) fn is_asleep(self) -> bool {
        match self {
            State::Interruptible
            | State::Uninterruptible
            | State::Stopped
            | State::Idle
            | State::Parked
            | State::Blocked => true,
            State::Unknown | State::Running | State::Runnable | State::Preempted | State::Dead => {
                false
            }
        }
    }

    /// Whether the thread waits for a CPU.
    pub(crate) fn is_waiting(self) -> bool {
        matches!(self, State::Runnable | State::Preempted)
    }
}

/// The state of a thread that was switched out, from `prev_state` of sched_switch. The bits are those of
/// include/linux/sched.h since 4.14: the lowest one decides. Earlier kernels differ in bits above 8 only, of which the first
/// ones say that the thread ends, too: EXIT_ZOMBIE 16, EXIT_DEAD 32.
pub(crate) fn switched_out(prev_state: i64) -> State {
    const REPORTED: i64 = 0xff;
    match prev_state & REPORTED & (prev_state & REPORTED).wrapping_neg() {
        // TASK_RUNNING, with or without the mark of a preemption.
        0 => State::Preempted,
        0x01 => State::Interruptible,
        0x02 => State::Uninterruptible,
        0x04 | 0x08 => State::Stopped,
        0x10 | 0x20 => State::Dead,
        0x40 => State::Parked,
        _ => State::Idle,
    }
}

/// The same from a text: `S`, `R+`, `D|W`.
pub(crate) fn switched_out_text(prev_state: &str) -> State {
    match prev_state.bytes().next() {
        Some(b'R') => State::Preempted,
        Some(b'S') => State::Interruptible,
        Some(b'D') => State::Uninterruptible,
        Some(b'T' | b't') => State::Stopped,
        Some(b'X' | b'Z' | b'x') => State::Dead,
        Some(b'P') => State::Parked,
        Some(b'I') => State::Idle,
        Some(b'0'..=b'9') => {
            let number = match prev_state.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16).ok(),
                None => prev_state.parse().ok(),
            };
            number.map_or(State::Blocked, switched_out)
        }
        _ => State::Blocked,
    }
}
