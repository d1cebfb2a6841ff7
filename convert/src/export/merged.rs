//! The selected rows of all event tables, as one stream in time order.
//!
//! ```text
//! samples               1 4 7 …  ┐
//! sched.sched_switch    2 4 9 …  ├─►  1 2 4 4 5 7 9 …
//! sched.sched_wakeup    5 …      ┘
//! ```
//! Each table is already in time order; one batch of each table is in memory. A table whose event changed its fields
//! comes as several tables, one per form.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::{Context, Result};
use arrow_array::RecordBatch;

use super::batch::BatchRow;
use super::source::{RowTable, Source, TableRows};

/// Index of a table in the list of opened tables.
pub(super) type TableIndex = usize;

/// The rows of several tables.
pub(super) struct MergedRows<'s> {
    tables: Vec<Table<'s>>,
    /// Time and table of the next row of each table.
    next: BinaryHeap<Reverse<(Option<i64>, TableIndex)>>,
    /// The table of the last row.
    current: Option<TableIndex>,
}

struct Table<'s> {
    batches: TableRows<'s>,
    batch: Option<RecordBatch>,
    row: usize,
}

impl<'s> MergedRows<'s> {
    /// Opens the tables.
    pub(super) fn open(
        source: &'s Source<'_>,
        tables: &[&'s RowTable<'_>],
    ) -> Result<MergedRows<'s>> {
        let mut rows = MergedRows {
            tables: Vec::new(),
            next: BinaryHeap::new(),
            current: None,
        };
        for table in tables {
            rows.tables.push(Table {
                batches: source.rows(table, None)?,
                batch: None,
                row: 0,
            });
            rows.advance(rows.tables.len() - 1)?;
        }
        Ok(rows)
    }

    /// Returns the next row; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<MergedRow<'_>>> {
        if let Some(table) = self.current.take() {
            self.tables[table].row += 1;
            self.advance(table)?;
        }
        let Some(Reverse((_, table))) = self.next.pop() else {
            return Ok(None);
        };
        self.current = Some(table);
        let Table { batch, row, .. } = &self.tables[table];
        let batch = batch.as_ref().context("a row has a batch")?;
        Ok(Some(MergedRow {
            table,
            columns: BatchRow { batch, row: *row },
        }))
    }

    /// Queues the table's next row; reads the next batch if the current one is exhausted.
    fn advance(&mut self, index: TableIndex) -> Result<()> {
        let table = &mut self.tables[index];
        while table
            .batch
            .as_ref()
            .is_none_or(|batch| table.row >= batch.num_rows())
        {
            table.row = 0;
            table.batch = match table.batches.next() {
                Some(batch) => Some(batch?),
                None => return Ok(()),
            };
        }
        if let Some(batch) = &table.batch {
            let row = BatchRow {
                batch,
                row: table.row,
            };
            self.next.push(Reverse((row.i64("time"), index)));
        }
        Ok(())
    }
}

/// One row of a table of events.
#[derive(Clone, Copy)]
pub(super) struct MergedRow<'a> {
    pub(super) table: TableIndex,
    pub(super) columns: BatchRow<'a>,
}
