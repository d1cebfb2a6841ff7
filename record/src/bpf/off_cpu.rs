//! `--off-cpu`: off-CPU time of threads, aggregated in the kernel by stack, reason and waker.
//!
//! ```text
//! perfquet-record -a --off-cpu --duration 10s -o o.pqt
//! perfquet-query flamegraph o.pqt
//! ```
//! Rows of `aggregates` named "off-cpu", in nanoseconds. Keys: thread name, process, reason of the switch (preempted,
//! interruptible, uninterruptible, idle), waker. Threads that are off the CPU at the end count until then, without a
//! waker. Threads that were off the CPU at the start are counted from their next switch.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use perfquet_cli::quantity::duration;
use perfquet_ebpf::layout::{Cell, NO_BAR, OffCell, OffKey, OffSettings, OffStart};
use perfquet_ebpf::walk_tables::WalkTables;
use perfquet_ebpf::{EbpfLoader, Object, compiled};
use perfquet_events::event::{Action, AggregateValue};
use perfquet_trace::unit_fact::OFF_CPU;

use super::intervals::{CellKey, Entry, Intervals};
use super::walking::Variants;
use super::{OWN_RECORDS, Printing, Whom, put_losses, refused, send, whom};
use crate::failure::Failure;
use crate::journal::own_records::{OwnRecords, Row};
use crate::probe::btf::Btf;
use crate::probe::stacks::Stacks;
use crate::recording::Recording;
use crate::sys::clock;

const VARIANTS: Variants = Variants {
    walking: compiled::OFF_CPU_WALKED,
    plain: compiled::OFF_CPU,
};
/// The program that reads the stacks, and its tracepoint.
const SWITCH: (&str, &str) = ("off_cpu_switch", "sched_switch");
/// Maximum number of distinct stacks.
const MOST_STACKS: u32 = 65_536;

/// Command-line options.
#[derive(Debug, Clone, Args)]
#[group(id = "off-cpu")]
pub(crate) struct Options {
    /// Aggregate off-CPU time by stack, reason and waker in the kernel
    ///
    /// =TIME ignores shorter periods, as in --off-cpu=1ms. [default: 0s]
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
    intervals: Intervals,
    /// When the program was stopped.
    end: u64,
    least: u64,
    /// Whether it walks user stacks by unwind tables.
    walks: bool,
    has_user_stacks: bool,
    /// Its tables, until they are taken.
    tables: Option<WalkTables>,
}

/// Returns the plan, if requested.
pub(super) fn plan(options: &Options) -> Option<Plan> {
    options.off_cpu.map(|least| Plan { least })
}

impl OffCpu {
    /// Loads the programs. They walk user stacks by unwind tables if `stacks` and the kernel allow it.
    pub(crate) fn load(plan: &Plan, whom: &Whom<'_>, stacks: Stacks) -> Result<OffCpu> {
        let least = u64::try_from(plan.least.as_nanos()).unwrap_or(u64::MAX);
        let settings = OffSettings {
            least,
            has_prev_state: has_prev_state().into(),
            has_kernel_side: stacks.has_kernel_side().into(),
            has_user_side: stacks.has_user_side().into(),
            ..OffSettings::default()
        };
        let target = whom::filter(whom)?;
        let load = |bytes| {
            Object::load(bytes, &target, |loader: &mut EbpfLoader<'_>| {
                loader.override_global("off_settings", &settings, true);
                loader.map_max_entries("told_stacks", MOST_STACKS);
            })
        };
        let prepare = |object: &mut Object| object.prepare_tracepoint(SWITCH.0, SWITCH.1);
        let loaded = VARIANTS.load(stacks.are_walked_by_programs(), load, prepare);
        let (object, tables) = loaded.map_err(refused_off_cpu)?;
        Ok(OffCpu {
            object,
            intervals: Intervals::default(),
            end: 0,
            least,
            walks: tables.is_some(),
            has_user_stacks: stacks.has_user_side(),
            tables,
        })
    }

    /// Takes the tables of the programs.
    pub(super) fn take_walk_tables(&mut self) -> Option<WalkTables> {
        self.tables.take()
    }

    /// Whether its keys include user stacks.
    pub(crate) fn has_user_stacks(&self) -> bool {
        self.has_user_stacks
    }

    /// Attaches the programs.
    pub(crate) fn connect(&mut self, recording: &Recording) -> Result<(), Failure> {
        send(&mut self.object, "stack_records", recording, OWN_RECORDS)?;
        if self.walks {
            self.object.observe_births().map_err(refused_off_cpu)?;
        }
        for (program, tracepoint) in [("off_cpu_waking", "sched_waking"), SWITCH] {
            self.object
                .attach_tracepoint(program, tracepoint)
                .map_err(refused_off_cpu)?;
        }
        Ok(())
    }

    /// Enables or disables recording.
    pub(crate) fn set_on(&mut self, is_on: bool) -> Result<()> {
        self.end = clock::monotonic();
        if is_on {
            self.intervals.begin(self.end);
        }
        let result = self.object.set_on(is_on);
        Ok(result.map_err(refused_off_cpu)?)
    }

    /// Switches the programs to the next interval.
    pub(crate) fn begin_interval(&mut self) -> Result<(), Failure> {
        let begun = self.object.begin_interval(self.intervals.next());
        begun.map_err(refused_off_cpu)
    }

    /// Ends an interval that the programs have left, and adds its values. The last interval includes threads that are
    /// still off the CPU.
    pub(crate) fn end_interval(
        &mut self,
        records: &mut OwnRecords,
        printing: &mut Printing<'_>,
    ) -> Result<(), Failure> {
        let mut entries = Vec::new();
        let cells = self.object.per_cpu::<OffKey, OffCell>("off_cells");
        for (key, cells) in cells.map_err(refused_off_cpu)? {
            let count = cells.iter().map(|cell| cell.count).sum();
            let total = cells.iter().map(|cell| cell.total).sum();
            entries.push(entry(&key, key.interval, count, total));
            if self.intervals.is_over(key.interval) {
                let removed = self
                    .object
                    .remove_per_cpu::<OffKey, OffCell>("off_cells", &key);
                removed.map_err(refused_off_cpu)?;
            }
        }
        if printing.is_last {
            let starts = self.object.entries::<u32, OffStart>("starts");
            for (_, start) in starts.map_err(refused_off_cpu)? {
                let time = self.end.saturating_sub(start.time);
                if time >= self.least {
                    let interval = self.intervals.number();
                    entries.push(entry(&start.key, interval, 1, time));
                }
            }
        }
        let cells = self.intervals.end(entries);
        let how = (printing.has_intervals, printing.is_last);
        for printout in self.intervals.printouts(&cells, printing.now, how) {
            for ((_, words), bars) in printout.cells.iter() {
                let total = bars.get(&NO_BAR).map_or(0, |cell| cell.sum);
                records.aggregate(OFF_CPU, Action::Sum, &row(words, total), printout.since);
            }
        }
        Ok(())
    }

    /// Adds the losses, and returns their number.
    pub(crate) fn put_losses(&self, records: &mut OwnRecords) -> Result<u64, Failure> {
        if self.intervals.given_up() > 0 {
            records.loss(self.intervals.given_up(), "off-cpu: no room in the totals");
        }
        put_losses(&self.object, OFF_CPU, records, &[])
    }
}

/// Whether the kernel passes the state of the thread that leaves its CPU to programs at sched_switch: since Linux 5.18, and
/// in some older kernels of distributions.
fn has_prev_state() -> bool {
    // bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state
    let arguments = Btf::of(None).and_then(|btf| btf.tracepoint_arguments(SWITCH.1));
    arguments.is_some_and(|arguments| arguments >= 4)
}

fn refused_off_cpu(error: perfquet_ebpf::Error) -> Failure {
    refused("--off-cpu", &error)
}

fn entry(key: &OffKey, interval: u32, count: u64, total: u64) -> Entry {
    Entry {
        interval,
        key: cell_key(key),
        bar: NO_BAR,
        cell: Cell {
            count,
            sum: total,
            ..Cell::default()
        },
    }
}

/// Returns process, state, both stacks, and the names of the thread and its waker.
fn cell_key(key: &OffKey) -> CellKey {
    let text = |text: &[u8; 16]| {
        let (words, _) = text.as_chunks::<8>();
        [0, 1].map(|word: usize| {
            words
                .get(word)
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        })
    };
    let numbers = [
        key.process.into(),
        key.state.into(),
        key.kernel_stack,
        key.user_stack,
    ];
    let words = [&numbers[..], &text(&key.comm), &text(&key.waker)].concat();
    (String::new(), words)
}

fn row(words: &[u64], total: u64) -> Row {
    let word = |place: usize| words.get(place).copied().unwrap_or(0);
    let text = |place: usize| -> Vec<u8> {
        let bytes = [word(place), word(place + 1)]
            .map(u64::to_ne_bytes)
            .concat();
        bytes.into_iter().take_while(|&byte| byte != 0).collect()
    };
    let state = match word(1) {
        0 => "preempted",
        1 => "interruptible",
        2 => "uninterruptible",
        3 => "idle",
        _ => "other",
    };
    Row {
        keys: vec![text(4), word(0).to_string().into(), state.into(), text(6)],
        kernel_stack: word(2),
        user_stack: word(3),
        value: Some(AggregateValue::of_unsigned(total)),
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
        let row = row(&cell_key(&key).1, 1000);
        assert_eq!(
            row.keys,
            [&b"dd"[..], b"7", b"uninterruptible", b"0123456789abcdef"]
        );
        assert_eq!(
            (row.kernel_stack, row.user_stack, row.value),
            (1, 2, Some(AggregateValue::Int(1000)))
        );
    }
}
