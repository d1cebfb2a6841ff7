//! Amounts by step of time: an interval is cut at the borders of steps.

use datafusion::scalar::ScalarValue;

use super::super::integer;

/// Steps of equal length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    length: i64,
    /// Begin of step 0.
    origin: i64,
    /// Times that count.
    within: (i64, i64),
}

/// Maximum number of steps in one interval: more would be a mistake, and fill the memory.
const MOST: i64 = 1 << 20;

impl Steps {
    /// The steps of a pass: of the whole trace, which begin at multiples of their `length`, or of a part of it, which begin with it.
    /// Times are in nanoseconds; `None` if the length is not positive, or missing.
    pub(super) fn of_arguments(arguments: &[ScalarValue]) -> Option<Steps> {
        let (length, origin, within) = match arguments {
            [length] => (length, 0, (i64::MIN, i64::MAX)),
            [length, from, to] => {
                let (from, to) = (integer(from)?, integer(to)?);
                (length, from, (from, to))
            }
            _ => return None,
        };
        let length = integer(length)?;
        (length > 0).then_some(Steps {
            length,
            origin,
            within,
        })
    }

    pub(super) fn length(self) -> i64 {
        self.length
    }

    /// Number of the step of a time.
    pub(super) fn of(self, time: i64) -> i64 {
        time.saturating_sub(self.origin).div_euclid(self.length)
    }

    /// Begin of a step.
    pub(super) fn begin(self, step: i64) -> i64 {
        self.origin.saturating_add(step.saturating_mul(self.length))
    }

    /// The parts of an interval: step and length.
    pub(super) fn parts(self, from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> {
        let (from, to) = (from.max(self.within.0), to.min(self.within.1));
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
        let of = |arguments: &[i64]| {
            let arguments = arguments.iter().map(|&number| ScalarValue::from(number));
            Steps::of_arguments(&arguments.collect::<Vec<_>>())
        };
        let steps = of(&[10]).unwrap();
        let parts = |from, to| steps.parts(from, to).collect::<Vec<_>>();
        assert_eq!(parts(5, 32), [(0, 5), (1, 10), (2, 10), (3, 2)]);
        assert_eq!(parts(12, 14), [(1, 2)]);
        assert_eq!(parts(-5, 5), [(-1, 5), (0, 5)]);
        assert_eq!(parts(10, 20), [(1, 10), (2, 0)]);
        assert!(of(&[0]).is_none() && of(&[]).is_none());
        // A part of the time has its own steps.
        let part = of(&[10, 7, 25]).unwrap();
        let parts: Vec<_> = part.parts(5, 32).collect();
        assert_eq!(parts, [(0, 10), (1, 8)]);
        assert_eq!((part.begin(0), part.begin(1)), (7, 17));
        assert!(part.parts(30, 40).all(|(_, length)| length == 0));
        assert!(steps.why_not(1 << 40).is_some() && steps.why_not(1 << 20).is_none());
    }
}
