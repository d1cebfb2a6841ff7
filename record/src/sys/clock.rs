//! Clocks, and the pair of stamps that ties the trace's clock to the wall's.

#![expect(unsafe_code, reason = "clock_gettime")]

use std::fmt::Write;
use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Nanoseconds of CLOCK_MONOTONIC, the clock of every recording: tracefs's `mono` and BPF's
/// `bpf_ktime_get_ns` count the same. In a time namespace, too, where this process reads another clock than the kernel's events have.
pub(crate) fn monotonic() -> u64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    let offset = *OFFSET.get_or_init(namespace_offset);
    now(libc::CLOCK_MONOTONIC).wrapping_sub(offset as u64)
}

/// Nanoseconds that the time namespace of this process adds to CLOCK_MONOTONIC.
fn namespace_offset() -> i64 {
    // The file has the offsets of children, which are those of the process itself unless it has called unshare.
    let link = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).ok();
    if link("time") != link("time_for_children") {
        return 0;
    }
    let text = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    offset_in(&text).unwrap_or(0)
}

/// The offset in `/proc/PID/timens_offsets`: `monotonic 100000 0`, in seconds and nanoseconds.
fn offset_in(text: &str) -> Option<i64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut words =
        lines.find_map(|mut words| (words.next() == Some("monotonic")).then_some(words))?;
    let mut number = || words.next()?.parse::<i64>().ok();
    number()?.checked_mul(1_000_000_000)?.checked_add(number()?)
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
    fn offsets_of_time_namespaces_are_read() {
        let of = |monotonic: &str| {
            offset_in(&format!(
                "monotonic  {monotonic}\nboottime           0         0\n"
            ))
        };
        assert_eq!(of("         0         0"), Some(0));
        assert_eq!(of("    100000         5"), Some(100_000_000_000_005));
        assert_eq!(of("    -20000 999999999"), Some(-19_999_000_000_001));
        assert_eq!(of("9999999999999 0"), None);
        assert_eq!(offset_in(""), None);
    }

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
