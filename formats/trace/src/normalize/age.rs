//! The recording time of an input, as far as it is known: it decides which files may name frames without a build ID.
//!
//! ```text
//! times 17.2 s … 47.9 s, wall offset 1,790,000,000 s           recorded from 1,790,000,017.2 s on
//! times 17.2 s … 47.9 s, the file was written at 12:00:48      from 12:00:17 on, or before
//! ```

use std::time::SystemTime;

use super::spans::Span;
use crate::store::Facts;
use crate::symbols::Origin;

/// First and last time of an input, of its samples and hits unless another is named.
#[derive(Default)]
pub(crate) struct Age {
    samples: Span,
    /// When its file was last changed.
    pub(crate) written: Option<SystemTime>,
    /// Of its calls, and of values of counters.
    calls: Span,
    /// Of mappings, which may be older than the recording.
    mapped: Span,
}

impl Age {
    /// Adds the time of an event.
    #[inline]
    pub(crate) fn see(&mut self, time: Option<i64>) {
        if let Some(time) = time {
            self.samples.see(time);
        }
    }

    /// Adds the time of a mapping.
    pub(crate) fn see_mapping(&mut self, time: Option<i64>) {
        if let Some(time) = time {
            self.mapped.see(time);
        }
    }

    /// Adds the first or last time of a call.
    #[inline]
    pub(crate) fn see_call(&mut self, time: Option<i64>) {
        if let Some(time) = time {
            self.calls.see(time);
        }
    }

    /// First and last time of events and calls.
    pub(crate) fn times(&self) -> Option<(i64, i64)> {
        self.samples.with(self.calls).known()
    }

    /// The last time; `None` if there is no time.
    pub(crate) fn last(&self) -> Option<i64> {
        let span = self.samples.with(self.mapped);
        span.known().map(|(_, last)| last)
    }

    /// Host and time of the recording.
    pub(crate) fn origin(&self, facts: &Facts) -> Origin {
        let known = self.samples.with(self.mapped).known();
        let (first, last) = (known.map(|known| known.0), known.map(|known| known.1));
        let mut origin = Origin::of_facts(facts, first);
        if let (None, Some(written), Some(last)) = (origin.wall_offset, self.written, last) {
            origin.estimate(written, last);
        }
        origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_wall_offset_the_file_age_decides() {
        let mut age = Age::default();
        let mut facts = Facts::default();
        for time in [None, Some(30), Some(10), Some(50)] {
            age.see(time);
        }
        assert_eq!(age.origin(&facts).began, Some(10));
        assert_eq!(age.origin(&facts).wall_offset, None);
        age.written = Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(1050));
        let estimated = age.origin(&facts);
        assert_eq!(
            (estimated.wall_offset, estimated.is_estimated),
            (Some(1000), true)
        );
        facts.wall_offset = Some(900);
        let known = age.origin(&facts);
        assert_eq!((known.wall_offset, known.is_estimated), (Some(900), false));
    }
}
