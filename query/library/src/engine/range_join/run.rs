//! Runs a join: feeds the sweep, obeys the memory limit, and joins the rows on disk.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::array::RecordBatch;
use arrow::compute::filter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::metrics::{BaselineMetrics, SpillMetrics};
use futures::StreamExt;

use super::super::blocks::Ids;
use super::super::gather::Place;
use super::overflow::{Generation, Stored, restored};
use super::spec::{Entry, SIDES, unmatched};
use super::sweep::Sweep;

/// The consumer of the result does not want more.
pub(super) struct Closed;

/// A join that runs.
pub(super) struct Run<F> {
    pub(super) sweep: Sweep,
    pub(super) inputs: [SendableRecordBatchStream; 2],
    pub(super) memory: MemoryReservation,
    pub(super) env: Arc<RuntimeEnv>,
    pub(super) metrics: BaselineMetrics,
    pub(super) spill_metrics: SpillMetrics,
    /// Takes the rows of the result.
    pub(super) send: F,
}

impl<F: AsyncFnMut(RecordBatch) -> Result<(), Closed>> Run<F> {
    /// Runs the join to its end, or until the consumer stops.
    pub(super) async fn run(mut self) -> Result<()> {
        loop {
            for side in SIDES {
                self.fill(side).await?;
            }
            let goes_on = self.sweep.advance()?;
            if self.deliver().await.is_err() {
                return Ok(());
            }
            if !goes_on {
                break;
            }
        }
        self.sweep.end()?;
        if self.deliver().await.is_err() {
            return Ok(());
        }
        match self.join_disk().await {
            Ok(Ok(()) | Err(Closed)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the next batch of a side if it has none.
    async fn fill(&mut self, side: usize) -> Result<()> {
        while self.sweep.current[side].is_none() && !self.sweep.has_ended[side] {
            match self.inputs[side].next().await.transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => {
                    self.sweep.begin(side, &batch)?;
                    self.keep_to_memory()?;
                }
                None => self.sweep.has_ended[side] = true,
            }
        }
        Ok(())
    }

    fn keep_to_memory(&mut self) -> Result<()> {
        if self.memory.try_resize(self.sweep.bytes()).is_ok() {
            return Ok(());
        }
        self.sweep.purge()?;
        self.sweep.forget_keys();
        for side in SIDES {
            self.sweep.compact(side)?;
        }
        if self.memory.try_resize(self.sweep.bytes()).is_ok() {
            return Ok(());
        }
        self.sweep.spill(&self.env, &self.spill_metrics)?;
        self.memory.try_resize(self.sweep.bytes())
    }

    async fn deliver(&mut self) -> Result<(), Closed> {
        while let Some(batch) = self.sweep.ready.pop_front() {
            self.metrics.record_output(batch.num_rows());
            (self.send)(batch).await?;
        }
        Ok(())
    }

    /// Joins the generations on disk with later rows, and outputs the rows that never matched.
    async fn join_disk(&mut self) -> Result<Result<(), Closed>> {
        let Some(overflow) = &mut self.sweep.overflow else {
            return Ok(Ok(()));
        };
        let (generations, later) = overflow.finish()?;
        for generation in &generations {
            for side in SIDES {
                if self
                    .join_generation(generation, side, &later[1 - side])
                    .await?
                    .is_err()
                {
                    return Ok(Err(Closed));
                }
            }
        }
        for side in SIDES {
            // Rows of later generations are among the later rows.
            let first = generations
                .first()
                .map(|generation| &generation.files[side]);
            for file in first.into_iter().chain([&later[side]]) {
                if self.show_unmatched(side, file).await?.is_err() {
                    return Ok(Err(Closed));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Joins the open ranges of one side of a generation with later rows of the other.
    async fn join_generation(
        &mut self,
        generation: &Generation,
        side: usize,
        later: &Stored,
    ) -> Result<Result<(), Closed>> {
        let other = 1 - side;
        let Some(mut file) = self.open(side, &generation.files[side])? else {
            return Ok(Ok(()));
        };
        let mut next = file.next().await.transpose()?;
        while let Some(batch) = next {
            // As many as fit into memory, usually all.
            self.add_open(side, &batch)?;
            next = file.next().await.transpose()?;
            if next.is_some() && self.memory.try_resize(self.sweep.bytes()).is_ok() {
                continue;
            }
            if let Some(mut rows) = self.open(other, later)? {
                while let Some(batch) = rows.next().await.transpose()? {
                    self.meet(other, &batch, generation.from[other])?;
                    if self.deliver().await.is_err() {
                        return Ok(Err(Closed));
                    }
                }
            }
            self.sweep.end()?;
            if self.deliver().await.is_err() {
                return Ok(Err(Closed));
            }
            self.memory.try_resize(self.sweep.bytes())?;
        }
        Ok(Ok(()))
    }

    fn open(&self, side: usize, file: &Stored) -> Result<Option<SendableRecordBatchStream>> {
        match &self.sweep.overflow {
            Some(overflow) => overflow.read(side, file),
            None => Ok(None),
        }
    }

    fn add_open(&mut self, side: usize, batch: &RecordBatch) -> Result<()> {
        let (rows, ids) = restored(batch)?;
        let count = rows.starts.len();
        let block = self.sweep.blocks[side].add(rows.columns, count, Ids::Each(ids));
        for row in 0..count {
            let place = Place {
                block,
                row: row as u32,
            };
            self.sweep.open[rows.keys[row] as usize][side].push(Entry {
                start: rows.starts[row],
                end: rows.ends[row],
                place,
            });
        }
        self.sweep.entries[side] += count;
        Ok(())
    }

    /// Sweeps over later rows of a side, from an ID on.
    fn meet(&mut self, side: usize, batch: &RecordBatch, from: u64) -> Result<()> {
        let (mut rows, ids) = restored(batch)?;
        let skipped = ids.partition_point(|&id| id < from);
        let count = ids.len() - skipped;
        if count == 0 {
            return Ok(());
        }
        for column in &mut rows.columns {
            *column = column.slice(skipped, count);
        }
        rows.starts = rows.starts.slice(skipped, count);
        rows.ends = rows.ends.slice(skipped, count);
        rows.valid = rows.valid.map(|valid| valid.slice(skipped, count));
        rows.keys.drain(..skipped);
        self.sweep.take(side, rows, Ids::From(ids[skipped]));
        while self.sweep.advance()? {}
        Ok(())
    }

    /// Outputs the rows of a file that never matched, if the kind of join has them.
    async fn show_unmatched(&mut self, side: usize, file: &Stored) -> Result<Result<(), Closed>> {
        if !self.sweep.spec.shows_unmatched(side) {
            return Ok(Ok(()));
        }
        let Some(mut file) = self.open(side, file)? else {
            return Ok(Ok(()));
        };
        while let Some(batch) = file.next().await.transpose()? {
            let (rows, ids) = restored(&batch)?;
            let is_unmatched = |id: &u64| Some(!self.sweep.blocks[side].has_matched(*id));
            let mask: BooleanArray = ids.iter().map(is_unmatched).collect();
            let count = mask.true_count();
            if count == 0 {
                continue;
            }
            let columns = rows.columns.iter().map(|column| filter(column, &mask));
            let columns = columns
                .collect::<Result<Vec<_>, _>>()
                .map_err(DataFusionError::from)?;
            let batch = unmatched(&self.sweep.spec, side, &columns, count)?;
            self.sweep.ready.push_back(batch);
            if self.deliver().await.is_err() {
                return Ok(Err(Closed));
            }
        }
        Ok(Ok(()))
    }
}
