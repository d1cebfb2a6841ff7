//! Until when states last that are open at the end of a trace: its last event, of whatever kind, or the last exit of a thread, which is no
//! event. One rule for all passes that add up time.
//!
//! ```text
//! sched_switch → hog      sys_enter      sys_exit
//!         1 s                 9 s          9.1 s      hog ran for 8.1 s
//! ```
//! A state that a loss concerns, and a wait of a thread that exits, have no known end.

use super::coverage::Coverage;

/// The end of a trace.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Time of the last event, as the trace has it.
    end: Option<i64>,
    /// Time of the last event that was read, for tables without this fact.
    last: Option<i64>,
    /// Time of the last exit.
    exit: Option<i64>,
    is_closing: bool,
}

impl Ending {
    pub(super) fn covers(&mut self, coverage: &Coverage) {
        self.end = coverage.end;
    }

    #[inline]
    pub(super) fn passed(&mut self, time: i64) {
        self.last = self.last.max(Some(time));
    }

    pub(super) fn exited(&mut self, time: i64) {
        self.exit = self.exit.max(Some(time));
    }

    /// There are no more events: the states that end from here on last to the end of the recording.
    pub(super) fn closing(&mut self) {
        self.is_closing = true;
    }

    /// Whether all events were read.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    pub(super) fn time(&self) -> Option<i64> {
        self.end.or(self.last).max(self.exit)
    }

    /// The end of a state: at a known time, or that of the trace; `None` if it is not known.
    #[inline]
    pub(super) fn of(&self, end: Option<i64>) -> Option<i64> {
        end.or_else(|| self.time().filter(|_| self.is_closing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_states_last_to_the_last_event() {
        let mut coverage = Coverage::default();
        coverage.learn("end", "100");
        coverage.learn("scope", "command");
        assert!(coverage.is_of_threads);
        let mut ending = Ending::default();
        ending.covers(&coverage);
        ending.passed(40);
        ending.exited(90);
        assert_eq!((ending.of(None), ending.of(Some(7))), (None, Some(7)));
        ending.closing();
        assert_eq!(ending.of(None), Some(100));
        assert_eq!(ending.of(Some(120)), Some(120));
        ending.exited(120);
        ending.exited(110);
        assert_eq!(ending.of(None), Some(120));
        let mut unknown = Ending::default();
        unknown.passed(40);
        unknown.passed(30);
        unknown.closing();
        assert_eq!(unknown.of(None), Some(40));
    }
}
