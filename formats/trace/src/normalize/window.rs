//! A time range: events outside it are dropped and counted.

/// A range of time, in nanoseconds after the first event of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeRange {
    /// The first nanosecond; `None` for the start.
    pub start: Option<i64>,
    /// First time past the end; `None` for an open end.
    pub end: Option<i64>,
}

/// The range on the clock of one input.
pub(crate) struct Window {
    range: Option<TimeRange>,
    first: Option<i64>,
    left_out: u64,
    /// Number of events whose time does not fit into a row.
    pub(crate) beyond: u64,
}

impl Window {
    pub(crate) fn new(range: Option<TimeRange>) -> Window {
        Window {
            range,
            first: None,
            left_out: 0,
            beyond: 0,
        }
    }

    /// Whether to keep an event. With a range, events without a time are dropped.
    #[inline]
    pub(crate) fn holds(&mut self, time: Option<i64>) -> bool {
        let Some(range) = self.range else {
            return true;
        };
        let first = match (self.first, time) {
            (Some(first), _) => first,
            (None, Some(time)) => *self.first.insert(time),
            (None, None) => 0,
        };
        let holds = time.is_some_and(|time| {
            let after = time.saturating_sub(first);
            range.start.is_none_or(|start| after >= start)
                && range.end.is_none_or(|end| after < end)
        });
        self.left_out += u64::from(!holds);
        holds
    }

    /// Whether no event is dropped.
    #[inline]
    pub(crate) fn holds_all(&self) -> bool {
        self.range.is_none()
    }

    /// The first and the last time at which events are kept.
    pub(crate) fn bounds(&self) -> (i64, i64) {
        let range = self.range.unwrap_or_default();
        let at = |offset: Option<i64>| Some(self.first?.saturating_add(offset?));
        (
            at(range.start).unwrap_or(i64::MIN),
            at(range.end).unwrap_or(i64::MAX),
        )
    }

    /// Returns the number of dropped events.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_the_first_event() {
        let range = TimeRange {
            start: Some(10),
            end: Some(20),
        };
        let mut window = Window::new(Some(range));
        let held: Vec<i64> = (1000..1030)
            .filter(|&time| window.holds(Some(time)))
            .collect();
        assert_eq!(held, (1010..1020).collect::<Vec<_>>());
        assert!(!window.holds(None));
        assert_eq!(window.left_out(), 21);
        assert!(Window::new(None).holds(None));
    }
}
