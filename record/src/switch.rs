//! Whether the recording is on, and when that changes.

use std::time::{Duration, Instant};

use crate::control::Delay;

/// Time after which events of threads are enabled once more.
const REPEAT: Duration = Duration::from_millis(500);

/// The state of a recording that begins later or pauses.
pub(crate) struct Switch {
    pub(crate) is_on: bool,
    has_been_on: bool,
    delay: Duration,
    /// End of the delay.
    begins: Option<Instant>,
    /// A thread that was being started when the events were enabled may have inherited them disabled.
    repeats: Option<Instant>,
}

impl Switch {
    /// On, unless there is a delay.
    pub(crate) fn new(delay: Option<Delay>) -> Switch {
        let time = match delay {
            Some(Delay::Time(time)) => Some(time),
            Some(Delay::UntilEnabled) | None => None,
        };
        Switch {
            is_on: delay.is_none(),
            has_been_on: delay.is_none(),
            delay: time.unwrap_or_default(),
            begins: time.and_then(|time| Instant::now().checked_add(time)),
            repeats: None,
        }
    }

    /// Whether anything was recorded until now.
    pub(crate) fn has_been_on(&self) -> bool {
        self.has_been_on
    }

    /// The delay, or zero.
    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the time until something is due.
    pub(crate) fn due(&self) -> Option<Duration> {
        let next = self.begins.into_iter().chain(self.repeats).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Whether the delay is over, once.
    pub(crate) fn begins(&mut self) -> bool {
        self.begins.take_if(|at| Instant::now() >= *at).is_some()
    }

    /// Whether to enable the events once more.
    pub(crate) fn repeats(&mut self) -> bool {
        self.repeats.take_if(|at| Instant::now() >= *at).is_some()
    }

    /// Turns it on. Returns whether that was for the first time.
    pub(crate) fn turn_on(&mut self, is_of_threads: bool) -> bool {
        self.is_on = true;
        self.begins = None;
        self.repeats = is_of_threads.then(|| Instant::now() + REPEAT);
        !std::mem::replace(&mut self.has_been_on, true)
    }

    /// Turns it off, also before the delay is over. Returns whether it was on.
    pub(crate) fn turn_off(&mut self) -> bool {
        self.begins = None;
        self.repeats = None;
        std::mem::replace(&mut self.is_on, false)
    }
}
