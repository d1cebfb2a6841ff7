//! The progress line of a recording, on a terminal only: time, events, losses, bytes.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use perfquet_trace::count::counted;
use perfquet_trace::normalize::Counts;

use perfquet_cli::terminal;

/// Interval at which the end and signals are checked, and the progress line is drawn.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// The progress line.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
}

/// The contents of the line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shown {
    /// Number of events so far, estimated from the rate for samples; `None` if counting is too slow.
    pub(crate) events: Option<u64>,
    /// Events lost so far.
    pub(crate) lost: u64,
    /// Size of the journal in bytes.
    pub(crate) bytes: u64,
}

impl Progress {
    /// Starts the clock. Hidden while a command writes to the same terminal.
    pub(crate) fn start(is_hidden: bool) -> Progress {
        let bar = if is_hidden || terminal::is_quiet() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new_spinner()
        };
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Progress {
            bar,
            started: Instant::now(),
        }
    }

    /// Whether the line is visible. If not, its contents need not be computed.
    pub(crate) fn is_visible(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Shows the progress of the recording.
    pub(crate) fn show(&self, shown: Shown) {
        self.bar
            .set_message(line("recording", self.elapsed(), shown));
        self.bar.tick();
    }

    /// Shows the progress of the encoder.
    pub(crate) fn encoding(&self, done_bytes: u64, all_bytes: u64) {
        let percent = (done_bytes.min(all_bytes) * 100)
            .checked_div(all_bytes)
            .unwrap_or(0);
        self.step(&format!(
            "writing tables {percent} % of {}",
            HumanBytes(all_bytes)
        ));
    }

    /// Shows the current step after the recording.
    pub(crate) fn step(&self, step: &str) {
        self.bar.set_message(step.to_owned());
        self.bar.tick();
    }

    /// Clears the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(step: &str, elapsed: Duration, shown: Shown) -> String {
    let events = shown.events.map_or(String::new(), |events| {
        format!(" · {}", counted(events, "event"))
    });
    format!(
        "{step} {:.1} s{events} · {} lost · {}",
        elapsed.as_secs_f64(),
        HumanCount(shown.lost),
        HumanBytes(shown.bytes)
    )
}

/// "1,234 events, 12 calls, 0 lost, 5.2 MiB": the rows that `perfquet-query info` counts, of each kind that there is.
pub(crate) fn summary(counts: &Counts, bytes: u64) -> String {
    let kinds = [
        (counts.recorded_events(), "event"),
        (counts.calls, "call"),
        (counts.aggregates, "aggregate"),
        (counts.counter_values, "count"),
    ];
    let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<String> = kinds.map(|(count, noun)| counted(count, noun)).collect();
    let recorded = match kinds.is_empty() {
        true => counted(0u64, "event"),
        false => kinds.join(", "),
    };
    let filtered = match counts.filtered {
        0 => String::new(),
        filtered => format!(", {} filtered", HumanCount(filtered)),
    };
    format!(
        "{recorded}{filtered}, {} lost, {}",
        counts.lost_text(),
        HumanBytes(bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let shown = Shown {
            events: Some(12_345),
            lost: 0,
            bytes: 3 << 20,
        };
        assert_eq!(
            line("recording", Duration::from_millis(1500), shown),
            "recording 1.5 s · 12,345 events · 0 lost · 3.00 MiB"
        );
        let shown = Shown {
            events: None,
            ..shown
        };
        assert_eq!(
            line("recording", Duration::from_millis(1500), shown),
            "recording 1.5 s · 0 lost · 3.00 MiB"
        );
    }

    #[test]
    fn every_kind_of_row_is_counted() {
        let counts = Counts {
            events: 1_240,
            of_recorder: 6,
            calls: 12,
            ..Counts::default()
        };
        assert_eq!(
            summary(&counts, 3 << 20),
            "1,234 events, 12 calls, 0 lost, 3.00 MiB"
        );
        let counts = Counts {
            events: 6,
            of_recorder: 6,
            ..Counts::default()
        };
        assert_eq!(summary(&counts, 0), "0 events, 0 lost, 0 B");
        let counts = Counts {
            counter_values: 2,
            ..counts
        };
        assert_eq!(summary(&counts, 0), "2 counts, 0 lost, 0 B");
    }
}
