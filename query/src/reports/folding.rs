//! Weights of stacks from SQL, for walks over the stack tree.

use anyhow::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;

use super::event_weight::WeightedEvent;
use crate::session::Session;
use crate::stacks::ids;
use crate::text::strings;
use crate::totals;

/// A pair of stacks, to which weight is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weighted {
    pub(super) trace: usize,
    /// Nodes of the trace's tree; 0 for no stack.
    pub(super) kernel: u32,
    pub(super) user: u32,
    /// Number of the extra key in [`Folded::keys`].
    pub(super) key: u32,
    pub(super) weight: u128,
    pub(super) samples: u64,
}

/// All pairs of stacks of one event.
#[derive(Debug, Default)]
pub(super) struct Folded {
    pub(super) rows: Vec<Weighted>,
    /// Values of the extra key.
    pub(super) keys: Vec<String>,
    pub(super) weight: u128,
    pub(super) samples: u64,
}

impl Folded {
    /// Queries the weights per pair of stacks, and per value of `key` (a column) if given.
    pub(super) fn query(
        session: &Session,
        subject: &WeightedEvent,
        condition: &str,
        key: Option<&str>,
    ) -> Result<Folded> {
        let mut keys = vec!["kernel_stack", "user_stack"];
        if session.traces.len() > 1 {
            keys.push("trace");
        }
        keys.extend(key);
        let sql = subject
            .fill(include_str!("folding.sql"), condition)
            .replace("{keys}", &keys.join(", "));
        let mut folded = Folded::default();
        let mut answer = session.query(&sql)?;
        let mut known = std::collections::HashMap::new();
        while let Some(batch) = answer.next()? {
            folded.add(session, &batch, key.is_some(), &mut known)?;
        }
        Ok(folded)
    }

    fn add(
        &mut self,
        session: &Session,
        batch: &RecordBatch,
        keyed: bool,
        known: &mut std::collections::HashMap<String, u32>,
    ) -> Result<()> {
        let several = session.traces.len() > 1;
        let stacks = [ids(batch.column(0))?, ids(batch.column(1))?];
        let named = |name: &str| batch.column_by_name(name);
        let (Some(weights), Some(samples)) = (named("weight"), named("samples")) else {
            anyhow::bail!("folding.sql: expected the columns weight and samples");
        };
        let (weights, samples) = (totals::read(weights)?, samples.as_primitive::<Int64Type>());
        let texts: Result<Vec<_>> = batch.columns()[2..batch.num_columns() - 2]
            .iter()
            .map(strings)
            .collect();
        let mut texts = texts?;
        let keyed = if keyed { texts.pop() } else { None };
        let traces = if several { texts.pop() } else { None };
        for row in 0..batch.num_rows() {
            let trace = match &traces {
                Some(names) => session.forest.trace(names.value(row)).unwrap_or_default(),
                None => 0,
            };
            let key = match &keyed {
                Some(column) => {
                    let name = if column.is_valid(row) {
                        column.value(row)
                    } else {
                        "[unknown]"
                    };
                    match known.get(name) {
                        Some(&key) => key,
                        None => {
                            let key = self.keys.len() as u32;
                            self.keys.push(name.to_owned());
                            known.insert(name.to_owned(), key);
                            key
                        }
                    }
                }
                None => 0,
            };
            let tree = session.forest.tree(trace)?;
            // An ID missing from the tree is not a stack: the file is damaged, but the row still counts.
            let node = |column: &arrow::array::Int64Array| match column.is_valid(row) {
                true => tree.node(column.value(row)).unwrap_or_default(),
                false => 0,
            };
            let weight = totals::weight(&weights, row);
            let samples = u64::try_from(samples.value(row)).unwrap_or_default();
            self.weight += weight;
            self.samples += samples;
            let (kernel, user) = (node(&stacks[0]), node(&stacks[1]));
            self.rows.push(Weighted {
                trace,
                kernel,
                user,
                key,
                weight,
                samples,
            });
        }
        Ok(())
    }
}
