//! `--max-cpu`: samples less often while the recorder itself takes too much CPU time.
//!
//! ```text
//! above the limit: a half of the rate, or less if that is not enough      well below it for 10 s: twice the rate
//! ```
//! Each change is a row of the event `perf.sampling_rate`. Samples have their period, so their weights are right at any rate.

use std::time::{Duration, Instant};

use clap::Args;
use perfquet_trace::count::{counted, grouped};

use crate::sys::clock;

/// Time over which CPU use is measured.
const WINDOW: Duration = Duration::from_secs(2);
/// Most by which the rate is divided in one step.
const STEP_MAX: u64 = 16;
/// Part of the limit below which the rate may rise: it doubles, and so does most of the use.
const WELL_BELOW: f64 = 0.4;
/// Number of windows well below the limit until the rate rises.
const CALM_WINDOWS: u32 = 5;

/// Command-line options.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct CpuLimitOptions {
    /// Sample less often while the recorder takes more than PERCENT of one CPU (1%, 0.5%)
    ///
    /// Lowers the frequency of counters and clocks (-F) of the whole system, CPUs or cgroups, down to 1 Hz, and raises it again. Weights of
    /// samples stay right, and each change is a row of the table perf.sampling_rate. Tracepoints, events with -c and in-kernel aggregations
    /// keep their rates.
    #[arg(long = "max-cpu", value_name = "PERCENT", value_parser = percent)]
    max_cpu: Option<f64>,
}

impl CpuLimitOptions {
    /// Whether there is a limit.
    pub(crate) fn is_given(&self) -> bool {
        self.max_cpu.is_some()
    }

    /// Returns the limit for events with this frequency at most.
    pub(crate) fn limit(&self, highest_hz: u64) -> Option<CpuLimit> {
        Some(CpuLimit::new(self.max_cpu? / 100.0, highest_hz))
    }
}

/// Parses a percentage of a CPU.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent.is_finite() => Ok(percent),
        _ => Err("expected a percentage of one CPU above 0, as in 1% or 0.5%".to_owned()),
    }
}

/// The CPU use of this process, and the part of the requested rate at which events are sampled.
pub(crate) struct CpuLimit {
    /// Seconds of CPU time per second.
    limit: f64,
    highest_hz: u64,
    /// The requested frequencies are divided by this.
    divisor: u64,
    /// Start of the window, and CPU time until then.
    window: (Instant, Duration),
    calm_windows: u32,
    lowered: u64,
    /// Largest divisor so far.
    most: u64,
    is_exceeded: bool,
}

impl CpuLimit {
    fn new(limit: f64, highest_hz: u64) -> CpuLimit {
        CpuLimit {
            limit,
            highest_hz,
            divisor: 1,
            window: (Instant::now(), clock::process_cpu()),
            calm_windows: 0,
            lowered: 0,
            most: 1,
            is_exceeded: false,
        }
    }

    /// Measures. Returns the divisor of all frequencies if it changes.
    pub(crate) fn look(&mut self) -> Option<u64> {
        let (now, cpu) = (Instant::now(), clock::process_cpu());
        let (since, cpu_before) = self.window;
        let elapsed = now - since;
        if elapsed < WINDOW {
            return None;
        }
        self.window = (now, cpu);
        let share = (cpu - cpu_before).as_secs_f64() / elapsed.as_secs_f64();
        let mut divisor = self.next(share);
        let frequency = |divisor| CpuLimit::frequency(self.highest_hz, divisor);
        if frequency(divisor) == frequency(self.divisor) {
            divisor = self.divisor;
        }
        if share > self.limit && divisor == self.divisor && !self.is_exceeded {
            self.is_exceeded = true;
            log::warn!(
                "--max-cpu: the recorder takes {:.1}% of a CPU, though it samples at the lowest rate",
                share * 100.0
            );
        }
        (divisor != self.divisor).then(|| {
            log::info!("{:.2}% of a CPU: rates divided by {divisor}", share * 100.0);
            self.lowered += u64::from(divisor > self.divisor);
            self.most = self.most.max(divisor);
            self.divisor = divisor;
            divisor
        })
    }

    /// The divisor after a window with this use.
    fn next(&mut self, share: f64) -> u64 {
        if share > self.limit {
            self.calm_windows = 0;
            let excess = (share / self.limit).ceil() as u64;
            let divisor = self.divisor * excess.clamp(2, STEP_MAX);
            return divisor.min(self.highest_hz.max(1));
        }
        self.calm_windows = match share < self.limit * WELL_BELOW {
            true => self.calm_windows + 1,
            false => 0,
        };
        if self.divisor > 1 && self.calm_windows >= CALM_WINDOWS {
            self.calm_windows = 0;
            return self.divisor / 2;
        }
        self.divisor
    }

    /// Returns the frequency at which an event is sampled.
    pub(crate) fn frequency(requested_hz: u64, divisor: u64) -> u64 {
        (requested_hz / divisor).max(1)
    }

    /// What the closing lines say; `None` if the rate was never lowered.
    pub(crate) fn sentence(&self) -> Option<String> {
        (self.lowered > 0).then(|| {
            format!(
                "--max-cpu {}%: sampling was lowered {}, to {} Hz at the lowest, and ended at {} Hz; see table perf/sampling_rate",
                self.limit * 100.0,
                counted(self.lowered, "time"),
                grouped(CpuLimit::frequency(self.highest_hz, self.most)),
                grouped(CpuLimit::frequency(self.highest_hz, self.divisor)),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(percent("1%"), Ok(1.0));
        assert_eq!(percent("0.5"), Ok(0.5));
        assert_eq!(percent("250 %"), Ok(250.0));
        for wrong in ["0", "-1%", "x", "", "%", "nan", "inf", "1%%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_fall_at_once_and_rise_slowly() {
        let mut limit = CpuLimit::new(0.01, 1_000);
        let mut after = |share| {
            limit.divisor = limit.next(share);
            limit.divisor
        };
        assert_eq!(after(0.009), 1);
        assert_eq!(after(0.011), 2);
        assert_eq!(after(0.03), 6);
        assert_eq!(after(0.5), 96);
        assert_eq!(after(0.5), 1_000, "1 Hz");
        assert_eq!(after(0.5), 1_000);
        // Within the limit, the rate stays; calm windows must be consecutive.
        assert_eq!(after(0.005), 1_000);
        for share in [
            0.001, 0.001, 0.001, 0.001, 0.005, 0.001, 0.001, 0.001, 0.001,
        ] {
            assert_eq!(after(share), 1_000);
        }
        assert_eq!(after(0.001), 500);
        assert_eq!(after(0.001), 500);
        assert_eq!(CpuLimit::frequency(19, 500), 1);
        assert_eq!(CpuLimit::frequency(1_000, 500), 2);
    }
}
