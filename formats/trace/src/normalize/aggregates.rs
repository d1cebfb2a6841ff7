//! Aggregations of other tools, as rows of `aggregates` and `buckets`.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Aggregate, AggregateValue, Stack, StackDefinition};

use super::stacks::StackId;
use super::{Normalizer, Trees, samples};
use crate::tables;

/// Maximum number of stacks remembered by ID, 16 bytes each.
const STACKS_MAX: usize = 1 << 20;

/// Stacks recorded before the aggregations that reference them.
#[derive(Default)]
pub(super) struct StacksById {
    by_id: HashMap<u64, StackId>,
    given_up: u64,
}

impl StacksById {
    /// Number of stacks that were not kept.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }
}

impl Normalizer<'_> {
    /// Adds a stack that later aggregations reference by ID. Its addresses can be resolved only now.
    pub(super) fn stack_record(&mut self, record: &StackDefinition<'_>) -> Result<(), Error> {
        if let Some(time) = record.time
            && !self.naming.generated.is_empty()
        {
            self.naming.generated.advance(time, &mut self.life);
        }
        let Normalizer {
            life,
            trees:
                Trees {
                    frames,
                    stacks,
                    stacks_by_id,
                    ..
                },
            ..
        } = self;
        if let Some(stack) = samples::stack_of(record.stack, record.pid, life, stacks, frames) {
            if stacks_by_id.by_id.len() < STACKS_MAX {
                stacks_by_id.by_id.insert(record.id, stack);
            } else {
                stacks_by_id.given_up += 1;
            }
        }
        self.make_room()
    }

    /// Adds one key of an aggregation.
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate<'_>) -> Result<(), Error> {
        let Normalizer {
            life,
            trees:
                Trees {
                    frames,
                    stacks,
                    stacks_by_id,
                    ..
                },
            output,
            ..
        } = self;
        let mut stack = |stack| match stack {
            Stack::Id(id) => stacks_by_id.by_id.get(&id).copied(),
            stack => samples::stack_of(stack, None, life, stacks, frames),
        };
        let kernel_stack = stack(aggregate.kernel_stack);
        let user_stack = stack(aggregate.user_stack);
        let aggregate_id = output.next_ids.aggregate;
        output.next_ids.aggregate += 1;
        output.counts.aggregates += 1;
        let table = output.fixed.aggregates;
        tables::aggregates::Row {
            aggregate_id,
            name: (!aggregate.name.is_empty()).then_some(aggregate.name),
            action: aggregate.action.map(|action| action.as_str().as_bytes()),
            keys: aggregate.keys,
            value: aggregate.value.map(AggregateValue::as_f64),
            exact_value: aggregate.value.and_then(AggregateValue::exact),
            kernel_stack: kernel_stack.map(|stack| stack as i32),
            user_stack: user_stack.map(|stack| stack as i32),
            snapshot: i32::try_from(aggregate.snapshot).unwrap_or(i32::MAX),
            time: aggregate.time,
            since: aggregate.since,
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
