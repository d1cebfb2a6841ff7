//! Times as differences (`--deltatime`) or since the first sample (`--reltime`), which look like times.
//!
//! ```text
//! ls 28244     0.000000: page-faults:          0
//! ls 28244     0.000048: page-faults:         48
//! ls 28244     0.000028: page-faults:         76
//! ```
//! perf sorts by time: some samples may be late, but not every tenth. Times that begin with 0 and often fall are
//! differences.

/// Adds up differences.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Deltas {
    is_delta: bool,
    first: Option<i64>,
    latest: i64,
    pairs: u64,
    falls: u64,
    is_reported: bool,
}

impl Deltas {
    /// The state for the second reading of the text.
    pub(super) fn learned(self) -> Deltas {
        Deltas {
            is_delta: self.first == Some(0) && self.falls > 0 && self.falls * 10 >= self.pairs,
            ..Deltas::default()
        }
    }

    /// Whether times count from the first sample: perf's clocks are never at 0.
    pub(super) fn is_relative(&self) -> bool {
        self.first == Some(0) && self.pairs > 0
    }

    /// Replaces a difference by the time. Returns true once, for the first one replaced.
    #[inline]
    pub(super) fn absolute(&mut self, time: &mut Option<i64>, is_sample: bool) -> bool {
        let Some(time) = time else {
            return false;
        };
        if self.is_delta {
            self.latest = self.latest.saturating_add(*time);
            *time = self.latest;
            return !std::mem::replace(&mut self.is_reported, true);
        }
        // Records of perf about what ran before have the time 0.
        if is_sample {
            self.pairs += u64::from(self.first.is_some());
            self.falls += u64::from(*time < self.latest);
            self.first.get_or_insert(*time);
            self.latest = *time;
        }
        false
    }
}
