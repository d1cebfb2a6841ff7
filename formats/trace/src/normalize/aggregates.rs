//! Aggregations of other tools, as rows of `aggregates` and `buckets`.

use perfquet_events::Error;
use perfquet_events::event::{Aggregate, AggregateValue, StackDefinition};

use super::{Normalizer, Trees, samples};
use crate::tables;

impl Normalizer<'_> {
    /// Adds a stack that later events reference by ID. Its addresses can be resolved only now.
    pub(super) fn stack_record(&mut self, record: &StackDefinition<'_>) -> Result<(), Error> {
        if let Some(time) = record.time
            && !self.naming.generated.is_empty()
        {
            self.naming.generated.advance(time, &mut self.life);
        }
        let Normalizer {
            life,
            trees: Trees { frames, stacks, .. },
            ..
        } = self;
        if let Some(stack) = samples::stack_of(record.stack, record.pid, life, stacks, frames) {
            stacks.define(record.id, stack);
        }
        self.make_room()
    }

    /// Adds one key of an aggregation.
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate<'_>) -> Result<(), Error> {
        let Normalizer {
            life,
            trees: Trees { frames, stacks, .. },
            output,
            ..
        } = self;
        let mut stack = |stack| samples::stack_of(stack, None, life, stacks, frames);
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
