//! Nanoseconds since the begin of a page: of one trace by its own clock, of several by that of the first.

use perfquet::Trace;

/// Where the time of a page begins, and on which clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    begin: i64,
    is_aligned: bool,
}

impl Since {
    /// Since a time of the trace's own clock.
    pub(super) fn own(begin: i64) -> Since {
        Since {
            begin,
            is_aligned: false,
        }
    }

    /// Since a time of the timeline on which the trace has a place.
    pub(super) fn aligned(begin: i64) -> Since {
        Since {
            begin,
            is_aligned: true,
        }
    }

    /// Returns the nanoseconds from the begin to a time of a trace's own clock.
    pub(super) fn place(self, trace: &Trace, time: i64) -> i64 {
        let placement = trace.placement.filter(|_| self.is_aligned);
        let time = placement
            .and_then(|placement| placement.place(time))
            .unwrap_or(time);
        time.saturating_sub(self.begin)
    }

    /// Returns the SQL of the nanoseconds from the begin to a time, which is an expression.
    pub(super) fn of(self, time: &str) -> String {
        let begin = self.begin;
        match self.is_aligned {
            true => format!("(aligned({time}) - {begin})"),
            false => format!("({time} - {begin})"),
        }
    }
}
