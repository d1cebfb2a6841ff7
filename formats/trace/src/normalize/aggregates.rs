//! Aggregations that another tool made become rows of `aggregates` and `buckets`.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Aggregate, Stack, ToldStack};

use super::stacks::StackId;
use super::{Normalizer, samples};
use crate::tables;

/// Stacks that are remembered by their numbers, 16 bytes each.
const TOLD_MAX: usize = 1 << 20;

/// Stacks that precede their references.
#[derive(Default)]
pub(super) struct ToldStacks {
    by_id: HashMap<u64, StackId>,
    given_up: u64,
}

impl ToldStacks {
    /// How many were not kept.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }
}

impl Normalizer<'_> {
    /// Takes a stack that later aggregations name by its number. Now its addresses can be resolved.
    pub(super) fn told_stack(&mut self, told: &ToldStack<'_>) -> Result<(), Error> {
        if let Some(time) = told.time
            && !self.generated.is_empty()
        {
            self.generated.advance(time, &mut self.life);
        }
        let Normalizer {
            life,
            frames,
            stacks,
            told_stacks,
            ..
        } = self;
        if let Some(stack) = samples::stack_of(told.stack, told.pid, life, stacks, frames) {
            if told_stacks.by_id.len() < TOLD_MAX {
                told_stacks.by_id.insert(told.id, stack);
            } else {
                told_stacks.given_up += 1;
            }
        }
        self.make_room()
    }

    /// Takes one key of an aggregation.
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate<'_>) -> Result<(), Error> {
        let Normalizer {
            life,
            frames,
            stacks,
            output,
            told_stacks,
            ..
        } = self;
        let mut stack = |stack| match stack {
            Stack::Told(id) => told_stacks.by_id.get(&id).copied(),
            stack => samples::stack_of(stack, None, life, stacks, frames),
        };
        let kernel_stack = stack(aggregate.kernel_stack);
        let user_stack = stack(aggregate.user_stack);
        let aggregate_id = output.next_aggregate;
        output.next_aggregate += 1;
        output.counts.aggregates += 1;
        let table = output.fixed.aggregates;
        tables::aggregates::Row {
            aggregate_id,
            name: (!aggregate.name.is_empty()).then_some(aggregate.name),
            action: aggregate.action.map(|action| action.as_str().as_bytes()),
            keys: aggregate.keys,
            value: aggregate.value,
            kernel_stack: kernel_stack.map(|stack| stack as i32),
            user_stack: user_stack.map(|stack| stack as i32),
            snapshot: i32::try_from(aggregate.snapshot).unwrap_or(i32::MAX),
            time: aggregate.time,
        }
        .push(output.writer.rows(table));
        output.writer.end_row(table)?;
        let table = output.fixed.buckets;
        for bucket in aggregate.buckets {
            tables::buckets::Row {
                aggregate_id,
                low: bucket.low,
                high: bucket.high,
                count: bucket.count,
            }
            .push(output.writer.rows(table));
            output.writer.end_row(table)?;
        }
        self.make_room()
    }
}
