//! The recording time of an input, as far as it is known: it decides which files may name frames without a build ID.
//!
//! ```text
//! times 17.2 s … 47.9 s, wall offset 1,790,000,000 s           recorded from 1,790,000,017.2 s on
//! times 17.2 s … 47.9 s, the file was written at 12:00:48      from 12:00:17 on, or before
//! ```

use std::time::SystemTime;

use crate::store::Facts;
use crate::symbols::Origin;

/// First and last time of an input.
pub(crate) struct Age {
    first: i64,
    /// Before the first if there is no time.
    last: i64,
    /// When its file was last changed.
    pub(crate) written: Option<SystemTime>,
}

impl Default for Age {
    fn default() -> Age {
        Age {
            first: i64::MAX,
            last: i64::MIN,
            written: None,
        }
    }
}

impl Age {
    /// Adds the time of an event.
    #[inline]
    pub(crate) fn see(&mut self, time: Option<i64>) {
        let Some(time) = time else { return };
        self.first = self.first.min(time);
        self.last = self.last.max(time);
    }

    /// The last time; `None` if there is no time.
    pub(crate) fn last(&self) -> Option<i64> {
        (self.first <= self.last).then_some(self.last)
    }

    /// Host and time of the recording.
    pub(crate) fn origin(&self, facts: &Facts) -> Origin {
        let is_known = self.first <= self.last;
        let first = is_known.then_some(self.first);
        let last = is_known.then_some(self.last);
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
