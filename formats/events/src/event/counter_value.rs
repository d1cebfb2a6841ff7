//! The value of a counter: occurrences of an event in a period.

/// Occurrences of an event in a period, for all of the recording or for one CPU, thread or cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterValue<'a> {
    /// Start of the period.
    pub since: Option<i64>,
    /// End of the period.
    pub time: Option<i64>,
    /// Name of the event.
    pub event: &'a [u8],
    /// Unit of the values; empty for occurrences.
    pub unit: &'a [u8],
    /// The values; `None` if the event was not counted.
    pub counted: Option<Counted>,
    /// CPU.
    pub cpu: Option<u32>,
    /// Thread.
    pub tid: Option<i32>,
    /// Name of the thread; empty if unknown.
    pub comm: &'a [u8],
    /// Path of the cgroup; empty if none.
    pub cgroup: &'a [u8],
    /// Why it was not counted; empty if it was.
    pub error: &'a [u8],
}

/// What the kernel counted, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Occurrences while the counter ran.
    pub value: u64,
    /// Nanoseconds for which the event was enabled.
    pub enabled: u64,
    /// Nanoseconds for which it was counted.
    pub running: u64,
}

impl Counted {
    /// Returns the estimate for all of the enabled time; `None` if the counter never ran although it was enabled.
    pub fn scaled(self) -> Option<u64> {
        match (self.running, self.enabled) {
            (0, 0) => Some(self.value),
            (0, _) => None,
            (running, enabled) if running >= enabled => Some(self.value),
            (running, enabled) => {
                let scaled = u128::from(self.value) * u128::from(enabled) / u128::from(running);
                Some(u64::try_from(scaled).unwrap_or(u64::MAX))
            }
        }
    }

    /// Adds the values of another place.
    #[must_use]
    pub fn plus(self, other: Counted) -> Counted {
        Counted {
            value: self.value.saturating_add(other.value),
            enabled: self.enabled.saturating_add(other.enabled),
            running: self.running.saturating_add(other.running),
        }
    }

    /// Returns what was added since an earlier reading.
    #[must_use]
    pub fn minus(self, earlier: Counted) -> Counted {
        Counted {
            value: self.value.saturating_sub(earlier.value),
            enabled: self.enabled.saturating_sub(earlier.enabled),
            running: self.running.saturating_sub(earlier.running),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_share_hardware_are_scaled() {
        let check = |value, enabled, running, expected| {
            let counted = Counted {
                value,
                enabled,
                running,
            };
            assert_eq!(counted.scaled(), expected);
        };
        check(100, 50, 50, Some(100));
        check(100, 60, 20, Some(300));
        check(0, 60, 0, None);
        // A thread that never ran.
        check(0, 0, 0, Some(0));
        check(u64::MAX, u64::MAX, 1, Some(u64::MAX));
    }
}
