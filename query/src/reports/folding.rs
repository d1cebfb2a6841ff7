//! Weights of stacks from SQL, for walks over the stack tree.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;

use perfquet::Session;
use perfquet::Trace;
use perfquet::stacks::ids;
use perfquet::stacks::node_of;
use perfquet::stacks::strings;
use perfquet_trace::tables;

use super::event_weight::WeightedEvent;
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

/// A part of a row's weight, as numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<const N: usize> {
    /// Index in [`Folded::rows`].
    pub(super) row: u32,
    pub(super) numbers: [i64; N],
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
        let mut folded = Folded::default();
        let mut rows = Vec::new();
        let keys = of_rows(session, subject, condition, key, &[], |row, []| {
            folded.weight += row.weight;
            folded.samples += row.samples;
            rows.push(row);
        })?;
        Ok(Folded {
            rows,
            keys,
            ..folded
        })
    }

    /// As [`Folded::query`], with parts of the weights by `numbers` (SQL): there may be millions, of few stacks and keys.
    pub(super) fn query_parts<const N: usize>(
        session: &Session,
        subject: &WeightedEvent,
        condition: &str,
        key: &str,
        numbers: &[String; N],
        mut each: impl FnMut(Part<N>),
    ) -> Result<Folded> {
        let mut folded = Folded::default();
        let mut known: HashMap<(usize, u32, u32, u32), u32> = HashMap::new();
        let add = |row: Weighted, numbers| {
            folded.weight += row.weight;
            folded.samples += row.samples;
            let next = folded.rows.len() as u32;
            let index = (row.trace, row.kernel, row.user, row.key);
            let index = *known.entry(index).or_insert(next);
            match folded.rows.get_mut(index as usize) {
                Some(known) => {
                    known.weight += row.weight;
                    known.samples += row.samples;
                }
                None => folded.rows.push(row),
            }
            each(Part {
                row: index,
                numbers,
                weight: row.weight,
                samples: row.samples,
            });
        };
        let keys = of_rows(session, subject, condition, Some(key), numbers, add)?;
        Ok(Folded { keys, ..folded })
    }
}

/// Calls `each` with every row and its numbers. Returns the values of the key.
fn of_rows<const N: usize>(
    session: &Session,
    subject: &WeightedEvent,
    condition: &str,
    key: Option<&str>,
    numbers: &[String; N],
    mut each: impl FnMut(Weighted, [i64; N]),
) -> Result<Vec<String>> {
    let mut columns = vec!["kernel_stack", "user_stack"];
    if session.traces().len() > 1 {
        columns.push("trace");
    }
    columns.extend(key);
    columns.extend(numbers.iter().map(String::as_str));
    let sql = subject
        .fill(include_str!("folding.sql"), condition)
        .replace("{keys}", &columns.join(", "));
    let mut keys = Keys::default();
    let traces = session.traces().iter().map(Nodes::of);
    let traces: Vec<Nodes> = traces.collect();
    let mut answer = session.query(&sql)?;
    while let Some(batch) = answer.next_batch()? {
        of_batch(
            (session, &traces),
            &batch,
            key.is_some(),
            &mut keys,
            &mut each,
        )?;
    }
    Ok(keys.names)
}

/// Values of the extra key.
#[derive(Debug, Default)]
struct Keys {
    names: Vec<String>,
    known: HashMap<String, u32>,
}

impl Keys {
    fn of(&mut self, name: &str) -> u32 {
        if let Some(&key) = self.known.get(name) {
            return key;
        }
        let key = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.known.insert(name.to_owned(), key);
        key
    }
}

/// The nodes of a trace's tree, which is not read yet.
struct Nodes {
    id_offset: i64,
    count: u64,
}

impl Nodes {
    fn of(trace: &Trace) -> Nodes {
        let stacks = trace.table(tables::stacks::NAME);
        Nodes {
            id_offset: trace.id_offset,
            // Node 0 is the empty stack; the IDs of others have no gaps.
            count: stacks.map_or(0, |table| table.rows()).saturating_add(1),
        }
    }

    /// The node of a stack. An ID that the trace lacks is not a stack: the file is damaged, but the row still counts.
    fn node(&self, stack: i64) -> u32 {
        node_of(stack, self.id_offset, self.count).unwrap_or(0)
    }
}

fn of_batch<const N: usize>(
    (session, nodes): (&Session, &[Nodes]),
    batch: &RecordBatch,
    keyed: bool,
    keys: &mut Keys,
    each: &mut impl FnMut(Weighted, [i64; N]),
) -> Result<()> {
    let several = session.traces().len() > 1;
    let stacks = [ids(batch.column(0))?, ids(batch.column(1))?];
    let named = |name: &str| batch.column_by_name(name);
    let (Some(weights), Some(samples)) = (named("weight"), named("samples")) else {
        anyhow::bail!("folding.sql: expected the columns weight and samples");
    };
    let (weights, samples) = (totals::read(weights)?, samples.as_primitive::<Int64Type>());
    let (columns, of_totals) = batch.columns().split_at(batch.num_columns() - 2 - N);
    let numbers: Vec<_> = of_totals[..N].iter().map(ids).collect::<Result<_>>()?;
    let texts: Result<Vec<_>> = columns[2..].iter().map(strings).collect();
    let mut texts = texts?;
    let keyed = if keyed { texts.pop() } else { None };
    let traces = if several { texts.pop() } else { None };
    for row in 0..batch.num_rows() {
        let trace = match &traces {
            Some(names) => session.forest().trace(names.value(row)).unwrap_or_default(),
            None => 0,
        };
        let key = match &keyed {
            Some(column) if column.is_valid(row) => keys.of(column.value(row)),
            Some(_) => keys.of("[unknown]"),
            None => 0,
        };
        let node = |column: &arrow::array::Int64Array| match column.is_valid(row) {
            true => nodes[trace].node(column.value(row)),
            false => 0,
        };
        let weighted = Weighted {
            trace,
            kernel: node(&stacks[0]),
            user: node(&stacks[1]),
            key,
            weight: totals::weight(&weights, row),
            samples: u64::try_from(samples.value(row)).unwrap_or_default(),
        };
        each(
            weighted,
            std::array::from_fn(|place| numbers[place].value(row)),
        );
    }
    Ok(())
}
