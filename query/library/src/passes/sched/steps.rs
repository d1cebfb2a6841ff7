//! Amounts by step of time: an interval is cut at the borders of steps.

/// Steps of equal length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    length: i64,
}

/// Maximum number of steps in one interval: more would be a mistake, and fill the memory.
const MOST: i64 = 1 << 20;

impl Steps {
    /// `length` is in nanoseconds; `None` if it is not positive.
    pub(super) fn new(length: i64) -> Option<Steps> {
        (length > 0).then_some(Steps { length })
    }

    pub(super) fn length(self) -> i64 {
        self.length
    }

    /// Number of the step of a time.
    pub(super) fn of(self, time: i64) -> i64 {
        time.div_euclid(self.length)
    }

    /// Begin of a step.
    pub(super) fn begin(self, step: i64) -> i64 {
        step.saturating_mul(self.length)
    }

    /// The parts of an interval: step and length.
    pub(super) fn parts(self, from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> {
        let last = self.of(to.max(from));
        (self.of(from)..=last).map(move |step| {
            let begin = self.begin(step).max(from);
            let end = self.begin(step).saturating_add(self.length).min(to);
            (step, end.saturating_sub(begin).max(0))
        })
    }

    /// Describes a step that is too short for an interval of this length.
    pub(super) fn why_not(self, interval: i64) -> Option<String> {
        (interval / self.length > MOST).then(|| {
            format!(
                "the step is too short: an interval of {interval} ns would have more than {MOST} steps\nhint: use a step of at least {} ns",
                interval / MOST + 1
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_cut_at_steps() {
        let steps = Steps::new(10).unwrap();
        let parts = |from, to| steps.parts(from, to).collect::<Vec<_>>();
        assert_eq!(parts(5, 32), [(0, 5), (1, 10), (2, 10), (3, 2)]);
        assert_eq!(parts(12, 14), [(1, 2)]);
        assert_eq!(parts(-5, 5), [(-1, 5), (0, 5)]);
        assert_eq!(parts(10, 20), [(1, 10), (2, 0)]);
        assert!(Steps::new(0).is_none());
        assert!(steps.why_not(1 << 40).is_some() && steps.why_not(1 << 20).is_none());
    }
}
