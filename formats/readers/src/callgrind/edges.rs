//! Sums by edge: a file has a line for each place that calls, and each part of it repeats them.

use std::borrow::Cow;

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::event::{Action, Aggregate, AggregateValue, Event, Sink, Stack};

/// Edges in memory. Beyond, those so far are emitted, and the next are of another printing.
const EDGES_MAX: usize = 1 << 20;

/// Name and function of a sum.
type Name<'a> = (&'a [u8], Action);

pub(super) const CALLS: Name<'static> = (b"calls", Action::Count);
pub(super) const JUMPS: Name<'static> = (b"jumps", Action::Count);
pub(super) const EXECUTIONS: Name<'static> = (b"jump executions", Action::Count);

type Key<'a> = (&'a [u8], Vec<Cow<'a, [u8]>>);

/// All edges so far, in the order of their first occurrence.
#[derive(Debug, Default)]
pub(super) struct Edges<'a> {
    by_key: HashMap<Key<'a>, (usize, Action, u64)>,
    snapshot: u32,
}

impl<'a> Edges<'a> {
    pub(super) fn add(
        &mut self,
        (name, action): Name<'a>,
        keys: &[Cow<'a, [u8]>],
        value: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        if self.by_key.len() >= EDGES_MAX {
            self.emit(sink)?;
        }
        let order = self.by_key.len();
        let sum = self.by_key.entry((name, keys.to_vec()));
        let (.., sum) = sum.or_insert((order, action, 0));
        *sum = sum.saturating_add(value);
        Ok(())
    }

    /// Emits all edges, and forgets them.
    pub(super) fn emit(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut edges: Vec<_> = self.by_key.drain().collect();
        edges.sort_unstable_by_key(|(_, (order, ..))| *order);
        for ((name, keys), (_, action, value)) in &edges {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
            sink.event(Event::Aggregate(&Aggregate {
                name,
                action: Some(*action),
                keys: &keys,
                value: Some(AggregateValue::of_unsigned(*value)),
                kernel_stack: Stack::None,
                user_stack: Stack::None,
                snapshot: self.snapshot,
                since: None,
                time: None,
                buckets: &[],
            }))?;
        }
        self.snapshot = self.snapshot.saturating_add(1);
        Ok(())
    }
}
