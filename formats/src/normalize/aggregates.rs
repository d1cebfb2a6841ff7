//! Aggregations that another tool made become rows of `aggregates` and `buckets`.

use super::{Normalizer, samples};
use crate::Error;
use crate::event::Aggregate;
use crate::tables;

impl Normalizer<'_> {
    /// Takes one key of an aggregation.
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate<'_>) -> Result<(), Error> {
        let Normalizer {
            life,
            frames,
            stacks,
            output,
            ..
        } = self;
        let mut stack = |stack| samples::stack_of(stack, None, life, stacks, frames);
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
