//! The share of CPU time that one process may cost.

use std::time::{Duration, Instant};

/// CPU time spent since a start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    since: Instant,
    spent: Duration,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            since: Instant::now(),
            spent: Duration::ZERO,
        }
    }
}

impl Share {
    /// Whether less than an allowance and this share of the time since the start was spent.
    pub(super) fn is_below(&self, now: Instant, percent: u64, allowance: Duration) -> bool {
        let elapsed = now.saturating_duration_since(self.since);
        let share = elapsed.mul_f64(percent as f64 / 100.0);
        self.spent < allowance + share
    }

    pub(super) fn spend(&mut self, spent: Duration) {
        self.spent += spent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_with_time() {
        let mut share = Share::default();
        let later = |seconds| share.since + Duration::from_secs(seconds);
        let (start, second, minute) = (later(0), later(1), later(60));
        let allowance = Duration::from_millis(100);
        assert!(share.is_below(start, 2, allowance));
        share.spend(Duration::from_millis(110));
        assert!(!share.is_below(start, 2, allowance));
        assert!(share.is_below(second, 2, allowance));
        share.spend(Duration::from_secs(1));
        assert!(!share.is_below(second, 2, allowance));
        assert!(share.is_below(minute, 2, allowance));
    }
}
