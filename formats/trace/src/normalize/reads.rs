//! Counter values read with a sample: the growth of each counter since its last reading.
//!
//! ```text
//! sample of {cycles 100, instructions 250}     rows: cycles 100, instructions 250
//! sample of {cycles 180, instructions 250}     row:  cycles 80
//! ```
//! Same result as `perf script` (tools/perf/util/session.c, `deliver_sample_value`): one row for each member of the
//! group whose value grew, with the growth as period.

use hashbrown::HashMap;

use perfquet_events::event::ReadValue;

/// Maximum number of counters remembered. There is one per event, CPU and thread; a hostile input could name any
/// number.
const COUNTERS: usize = 1 << 20;

/// The last reading of every counter.
#[derive(Default)]
pub(crate) struct Reads {
    last: HashMap<Counter, u64>,
}

/// A counter's ID, and its thread: an event inherited by threads has one counter per thread, all with the same ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Counter {
    id: Option<u64>,
    event: u32,
    thread: Option<i32>,
}

impl Reads {
    /// The growth of a counter; `None` if it did not grow, or belongs to no known event.
    pub(crate) fn growth(&mut self, read: &ReadValue, thread: Option<i32>) -> Option<i64> {
        let counter = Counter {
            id: read.id,
            event: read.event?.0,
            thread,
        };
        if self.last.len() >= COUNTERS && !self.last.contains_key(&counter) {
            self.last.clear();
        }
        let before = self.last.insert(counter, read.value).unwrap_or(0);
        // A value that fell (after a reset) gives a negative growth, so that the sum equals the last value.
        let growth = read.value.wrapping_sub(before) as i64;
        (growth != 0).then_some(growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquet_events::event::EventId;

    #[test]
    fn periods_are_the_growth_of_counters() {
        let mut reads = Reads::default();
        let mut growth = |id, value, thread| {
            let read = ReadValue {
                event: Some(EventId(0)),
                id: Some(id),
                value,
                lost: None,
            };
            reads.growth(&read, thread)
        };
        assert_eq!(growth(7, 100, None), Some(100));
        assert_eq!(growth(8, 250, None), Some(250));
        assert_eq!(growth(7, 180, None), Some(80));
        assert_eq!(growth(8, 250, None), None);
        assert_eq!(growth(7, 150, None), Some(-30));
        assert_eq!(growth(7, 5, Some(1)), Some(5));
    }

    #[test]
    fn counters_without_an_event_are_skipped() {
        let read = ReadValue {
            event: None,
            id: Some(1),
            value: 5,
            lost: None,
        };
        assert_eq!(Reads::default().growth(&read, None), None);
    }
}
