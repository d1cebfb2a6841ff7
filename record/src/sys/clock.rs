//! Clocks, and the pair of stamps that ties the trace's clock to the wall's.

#![expect(unsafe_code, reason = "clock_gettime")]

use std::fmt::Write;
use std::time::{Duration, Instant};

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

/// Returns the CPU time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    Duration::from_nanos(now(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Returns the nanoseconds since 1970 and those of CLOCK_MONOTONIC at the same moment.
pub(crate) fn wall_and_monotonic() -> (u64, u64) {
    let before = monotonic();
    let wall = now(libc::CLOCK_REALTIME);
    let after = monotonic();
    (wall, before + (after - before) / 2)
}

/// Moments on the trace's clock and on the wall's, from the start of a recording to its end: how far they drift apart.
#[derive(Debug)]
pub(crate) struct Moments {
    /// Time of the trace, and of the wall.
    all: Vec<(u64, u64)>,
    every: Duration,
    next: Instant,
}

impl Moments {
    /// Keeps the first moment.
    pub(crate) fn start() -> Moments {
        let every = Duration::from_secs(30);
        let mut moments = Moments {
            all: Vec::new(),
            every,
            next: Instant::now() + every,
        };
        moments.keep();
        moments
    }

    /// Keeps a moment if the last is long ago.
    pub(crate) fn look(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        if self.all.len() == MOMENTS_MAX {
            let mut number = 0;
            self.all.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
        self.next = Instant::now() + self.every;
        self.keep();
    }

    fn keep(&mut self) {
        let (wall, monotonic) = wall_and_monotonic();
        self.all.push((monotonic, wall));
    }

    /// All moments up to now: `TIME=WALL TIME=WALL …`.
    pub(crate) fn end(mut self) -> String {
        self.keep();
        let mut text = String::new();
        for (time, wall) in &self.all {
            let separator = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{separator}{time}={wall}");
        }
        text
    }
}

/// Moments of a recording, at most: they fit in one record.
const MOMENTS_MAX: usize = 1024;

fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec. These clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_recordings_have_fewer_moments_an_hour() {
        let mut moments = Moments::start();
        for _ in 0..3 * MOMENTS_MAX {
            moments.next = Instant::now();
            moments.look();
        }
        assert!(moments.all.len() <= MOMENTS_MAX && moments.every > Duration::from_secs(60));
        assert!(moments.all.is_sorted());
        let text = moments.end();
        assert!(text.len() < 60_000, "{}", text.len());
        let (time, wall) = text
            .split(' ')
            .next_back()
            .unwrap()
            .split_once('=')
            .unwrap();
        assert!(time.parse::<u64>().unwrap() < wall.parse::<u64>().unwrap());
    }
}
