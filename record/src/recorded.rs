//! The ranges of time in which a recording was on, for the trace: rates are those of recorded time, not of the time between events.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ranges that are noted, at most. Of a recording with more pauses, the trace does not say when it was on.
const RANGES_MAX: usize = 1024;

/// The ranges, on the trace's clock; shared by the thread that switches and the one that writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<Ranges>>);

#[derive(Debug, Default)]
struct Ranges {
    ended: Vec<(u64, u64)>,
    since: Option<u64>,
}

impl Recorded {
    /// The recording is on from this time.
    pub(crate) fn begin(&self, time: u64) {
        self.lock().since.get_or_insert(time);
    }

    /// The recording is off from this time: a pause, or the end.
    pub(crate) fn end(&self, time: u64) {
        let mut ranges = self.lock();
        if let Some(since) = ranges.since.take() {
            let range = (since, time.max(since));
            ranges.ended.push(range);
        }
    }

    /// The ranges between two times, `BEGIN..END BEGIN..END …`; a range that has not ended ends at `until`. `None` if there are
    /// none, or too many.
    pub(crate) fn text(&self, from: u64, until: u64) -> Option<String> {
        let ranges = self.lock();
        if ranges.ended.len() >= RANGES_MAX {
            return None;
        }
        let last = ranges.since.map(|since| (since, until));
        let all = ranges.ended.iter().copied().chain(last);
        let mut text = String::new();
        for (begin, end) in all {
            let (begin, end) = (begin.max(from), end.min(until));
            if begin <= end {
                let separator = if text.is_empty() { "" } else { " " };
                let _ = write!(text, "{separator}{begin}..{end}");
            }
        }
        (!text.is_empty()).then_some(text)
    }

    fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_left_out() {
        let recorded = Recorded::default();
        assert_eq!(recorded.text(0, 99), None);
        recorded.end(5);
        recorded.begin(10);
        recorded.begin(11);
        recorded.end(20);
        recorded.begin(30);
        assert_eq!(recorded.text(0, 99).as_deref(), Some("10..20 30..99"));
        assert_eq!(recorded.text(15, 25).as_deref(), Some("15..20"));
        recorded.end(40);
        assert_eq!(recorded.text(0, u64::MAX).as_deref(), Some("10..20 30..40"));
        assert_eq!(recorded.text(50, u64::MAX), None);
    }

    #[test]
    fn what_is_noted_is_bounded() {
        let recorded = Recorded::default();
        for time in 0..RANGES_MAX as u64 {
            recorded.begin(2 * time);
            recorded.end(2 * time + 1);
        }
        assert_eq!(recorded.text(0, u64::MAX), None);
    }
}
