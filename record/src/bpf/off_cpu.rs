//! `--off-cpu`: off-CPU time of threads, aggregated in the kernel by stack, reason and waker.
//!
//! ```text
//! perfquet-record -a --off-cpu --duration 10s -o o.pqt
//! perfquet-query flamegraph o.pqt
//! ```
//! Rows of `aggregates`, called "off-cpu", nanoseconds. Keys: thread name, process, why it was switched out (preempted,
//! interruptible, uninterruptible, idle), who woke it. Threads that are still off at the end count until then, with no waker. Those
//! that were off before the beginning are seen from their next switch on.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use perfquet_cli::quantity::duration;
use perfquet_ebpf::layout::{OffCell, OffKey, OffSettings, OffStart};
use perfquet_ebpf::{EbpfLoader, Object, compiled};
use perfquet_events::event::Action;

use super::{TOLD, Whom, refused, send, tell_losses, whom};
use crate::failure::Failure;
use crate::journal::told::{Row, Told};
use crate::recording::Recording;
use crate::sys::clock;

const NAME: &str = "off-cpu";
/// Different stacks.
const MOST_STACKS: u32 = 65_536;

/// Command-line options.
#[derive(Debug, Clone, Args)]
#[group(id = "off-cpu")]
pub(crate) struct Options {
    /// Aggregate off-CPU time by stack, reason and waker in the kernel
    ///
    /// =TIME ignores shorter periods, as in --off-cpu=1ms [default: 0s].
    #[arg(
        long = "off-cpu",
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0s",
        value_parser = duration
    )]
    off_cpu: Option<Duration>,
}

impl Options {
    pub(super) fn is_requested(&self) -> bool {
        self.off_cpu.is_some()
    }
}

/// The requested plan.
pub(crate) struct Plan {
    least: Duration,
}

/// The off-CPU program, loaded into the kernel.
pub(crate) struct OffCpu {
    object: Object,
    /// When it was stopped.
    end: u64,
    least: u64,
}

/// Returns the plan, if requested.
pub(super) fn plan(options: &Options) -> Option<Plan> {
    options.off_cpu.map(|least| Plan { least })
}

impl OffCpu {
    /// Loads the programs.
    pub(crate) fn load(plan: &Plan, whom: &Whom<'_>) -> Result<OffCpu> {
        let least = u64::try_from(plan.least.as_nanos()).unwrap_or(u64::MAX);
        let settings = OffSettings { least };
        let target = whom::filter(whom)?;
        let object = Object::load(compiled::OFF_CPU, &target, |loader: &mut EbpfLoader<'_>| {
            loader.override_global("off_settings", &settings, true);
            loader.map_max_entries("told_stacks", MOST_STACKS);
        });
        Ok(OffCpu {
            object: object.map_err(|error| refused("--off-cpu", &error))?,
            end: 0,
            least,
        })
    }

    /// Attaches the programs.
    pub(crate) fn connect(&mut self, recording: &Recording) -> Result<(), Failure> {
        send(&mut self.object, "stack_records", recording, TOLD)?;
        for (program, tracepoint) in [
            ("off_cpu_waking", "sched_waking"),
            ("off_cpu_switch", "sched_switch"),
        ] {
            self.object
                .attach_tracepoint(program, tracepoint)
                .map_err(|error| refused("--off-cpu", &error))?;
        }
        Ok(())
    }

    /// Lets them record, or stops them.
    pub(crate) fn set_on(&mut self, is_on: bool) -> Result<()> {
        self.end = clock::monotonic();
        let result = self.object.set_on(is_on);
        Ok(result.map_err(|error| refused("--off-cpu", &error))?)
    }

    /// Adds all that was summed up and lost, and says how many were lost.
    pub(crate) fn tell(&self, told: &mut Told) -> Result<u64, Failure> {
        let refused = |error| refused("--off-cpu", &error);
        let mut totals: BTreeMap<OffKey, u64> = BTreeMap::new();
        let cells = self.object.per_cpu::<OffKey, OffCell>("off_cells");
        for (key, cells) in cells.map_err(refused)? {
            let total: u64 = cells.iter().map(|cell| cell.total).sum();
            *totals.entry(key).or_default() += total;
        }
        let starts = self.object.entries::<u32, OffStart>("starts");
        for (_, start) in starts.map_err(refused)? {
            let time = self.end.saturating_sub(start.time);
            if time >= self.least {
                *totals.entry(start.key).or_default() += time;
            }
        }
        for (key, total) in totals {
            told.aggregate(NAME, Action::Sum, &row(&key, total));
        }
        tell_losses(&self.object, NAME, told, &[])
    }
}

fn row(key: &OffKey, total: u64) -> Row {
    let text = |text: &[u8]| {
        let end = text.iter().position(|&byte| byte == 0);
        text[..end.unwrap_or(text.len())].to_vec()
    };
    let state = match key.state {
        0 => "preempted",
        1 => "interruptible",
        2 => "uninterruptible",
        3 => "idle",
        _ => "other",
    };
    Row {
        keys: vec![
            text(&key.comm),
            key.process.to_string().into(),
            state.into(),
            text(&key.waker),
        ],
        kernel_stack: key.kernel_stack,
        user_stack: key.user_stack,
        value: Some(total as f64),
        bars: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let mut key = OffKey {
            state: 2,
            process: 7,
            kernel_stack: 1,
            user_stack: 2,
            ..OffKey::default()
        };
        key.comm[..2].copy_from_slice(b"dd");
        key.waker = *b"0123456789abcdef";
        let row = row(&key, 1000);
        assert_eq!(
            row.keys,
            [&b"dd"[..], b"7", b"uninterruptible", b"0123456789abcdef"]
        );
        assert_eq!(
            (row.kernel_stack, row.user_stack, row.value),
            (1, 2, Some(1000.0))
        );
    }
}
