//! Until when states last that are open at the end of a trace: its last event, of whatever kind, or the last exit of a thread, which is no
//! event. One rule for all passes that add up time.
//!
//! ```text
//! sched_switch → hog      sys_enter      sys_exit
//!         1 s                 9 s          9.1 s      hog ran for 8.1 s
//! ```
//! A state that a loss concerns, and a wait of a thread that exits, have no known end. In a recording of some CPUs, only what runs on
//! these is certain to last: another thread may run elsewhere.

use super::coverage::Coverage;
use crate::linux::task_state::State;

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
    /// Whether who does not run may run elsewhere, so that nothing is known of waits and sleeps.
    pub(super) is_of_some_cpus: bool,
}

impl Ending {
    pub(super) fn covers(&mut self, coverage: &Coverage) {
        self.end = coverage.end;
        self.is_of_some_cpus = coverage.is_of_some_cpus();
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
    pub(super) fn of(&self, state: State, end: Option<i64>) -> Option<i64> {
        let lasts = self.is_closing && (state == State::Running || !self.is_of_some_cpus);
        end.or_else(|| self.time().filter(|_| lasts))
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
        let runs = |ending: &Ending, end| ending.of(State::Running, end);
        assert_eq!(
            (runs(&ending, None), runs(&ending, Some(7))),
            (None, Some(7))
        );
        ending.closing();
        assert_eq!(runs(&ending, None), Some(100));
        assert_eq!(runs(&ending, Some(120)), Some(120));
        ending.exited(120);
        ending.exited(110);
        assert_eq!(runs(&ending, None), Some(120));
        assert_eq!(ending.of(State::Runnable, None), Some(120));
        let mut unknown = Ending::default();
        unknown.passed(40);
        unknown.passed(30);
        unknown.closing();
        assert_eq!(runs(&unknown, None), Some(40));
    }

    #[test]
    fn who_does_not_run_may_run_on_another_cpu() {
        let ending_of = |cpus: &str| {
            let mut coverage = Coverage::default();
            coverage.learn("cpus", cpus);
            coverage.learn("end", "100");
            coverage.learn("scope", "system, CPUs 0, 1");
            let mut ending = Ending::default();
            ending.covers(&coverage);
            ending.closing();
            ending
        };
        let some = ending_of("4");
        assert_eq!(some.of(State::Running, None), Some(100));
        assert_eq!(some.of(State::Runnable, None), None);
        assert_eq!(some.of(State::Uninterruptible, Some(7)), Some(7));
        assert_eq!(ending_of("2").of(State::Runnable, None), Some(100));
    }
}
