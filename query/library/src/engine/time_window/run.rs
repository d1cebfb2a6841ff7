//! Runs the functions over rows in the order of time.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;

use super::super::blocks::bytes_of;
use super::super::integers::Integers;
use super::super::keys::Keys;
use super::super::merge::out_of_order;
use super::functions::{Function, Windows};
use super::rows::Rows;
use super::state::State;
use super::waiting::{Complete, Waiting};

/// The state of the operator.
pub(super) struct Run {
    windows: Arc<Windows>,
    /// The sort key of the rows, to check their order.
    time: Option<Arc<dyn PhysicalExpr>>,
    last: Option<Option<i64>>,
    schema: SchemaRef,
    keys: Vec<Keys>,
    states: Vec<State>,
    /// Arguments of the functions.
    rows: Rows,
    waiting: Option<Waiting>,
    /// The last rows, all of the same time, if others of that time may follow that count together with them.
    held: Vec<RecordBatch>,
}

/// Number of unreferenced rows that may stay in memory, because compacting copies all others.
const FEW: usize = 1 << 16;

impl Run {
    pub(super) fn new(
        windows: &Arc<Windows>,
        time: Option<Arc<dyn PhysicalExpr>>,
        input: &Schema,
        schema: SchemaRef,
    ) -> Result<Run> {
        let keys = windows.keyings.iter().map(|exprs| {
            let kinds = exprs.iter().map(|expr| expr.data_type(input));
            Keys::new(&kinds.collect::<Result<Vec<DataType>>>()?, true)
        });
        let is_known = |column: &&super::functions::WindowColumn| {
            !matches!(column.function, Function::Lead { .. })
        };
        let waiting = windows.lead().map(|(_, n)| {
            let known = windows
                .columns
                .iter()
                .filter(is_known)
                .map(|column| &column.field);
            let fields = input.fields().iter().chain(known).cloned();
            Waiting::new(n, &Schema::new(fields.collect::<Vec<_>>()))
        });
        Ok(Run {
            windows: Arc::clone(windows),
            time,
            last: None,
            schema,
            keys: keys.collect::<Result<_>>()?,
            states: (windows.columns.iter())
                .map(|column| State::of(&column.function))
                .collect(),
            rows: Rows::default(),
            waiting,
            held: Vec::new(),
        })
    }

    /// Takes a batch; returns the rows of the result that are complete.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
        self.check_order(batch)?;
        if !self.windows.have_peers() {
            return self.follow(batch, None);
        }
        let times = self.times(batch)?;
        let ends = times.ends_of_equals();
        let rows = batch.num_rows();
        let (first, last) = match ends.as_slice() {
            [.., before, _] => (ends[0], *before),
            _ => (rows, rows),
        };
        let mut complete = Vec::new();
        let continues = match self.held.first() {
            Some(held) => self.times(held)?.key(0) == times.key(0),
            None => false,
        };
        let mut start = 0;
        if continues {
            self.held.push(batch.slice(0, first));
            start = first;
        }
        if start == rows {
            return Ok(complete);
        }
        complete.extend(self.release()?);
        // A batch of one time waits as a whole.
        let last = if ends.len() == 1 { 0 } else { last };
        if start < last {
            let ends = ends.iter().filter(|&&end| end > start && end <= last);
            let ends: Vec<usize> = ends.map(|end| end - start).collect();
            complete.extend(self.follow(&batch.slice(start, last - start), Some(&ends))?);
        }
        self.held.push(batch.slice(last, rows - last));
        Ok(complete)
    }

    /// The rows of the result for those that are held, all of one time.
    fn release(&mut self) -> Result<Vec<RecordBatch>> {
        let held = std::mem::take(&mut self.held);
        let Some(first) = held.first() else {
            return Ok(Vec::new());
        };
        let batch = match held.as_slice() {
            [batch] => batch.clone(),
            _ => concat_batches(&first.schema(), &held)?,
        };
        self.follow(&batch, Some(&[batch.num_rows()]))
    }

    /// Computes the functions for the next rows; `ends`: the ends of groups of the same time.
    fn follow(&mut self, batch: &RecordBatch, ends: Option<&[usize]>) -> Result<Vec<RecordBatch>> {
        let rows = batch.num_rows();
        let values = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(rows);
        let args: Vec<ArrayRef> = self
            .windows
            .args
            .iter()
            .map(values)
            .collect::<Result<_>>()?;
        let block = self.rows.add(args.clone());
        let mut keys = Vec::new();
        for (exprs, numbers) in self.windows.keyings.iter().zip(&mut self.keys) {
            let columns: Vec<ArrayRef> = exprs.iter().map(values).collect::<Result<_>>()?;
            keys.push(numbers.number(&columns, rows)?);
        }
        let mut known = Vec::new();
        for (column, state) in self.windows.columns.iter().zip(&mut self.states) {
            let count = self.keys[column.keying].count();
            let of_rows = (keys[column.keying].as_slice(), ends);
            let args = (block, args.as_slice());
            known.extend(state.values(&column.function, of_rows, count, args, &mut self.rows)?);
        }
        let columns: Vec<ArrayRef> = batch.columns().iter().cloned().chain(known).collect();
        let complete = match (&mut self.waiting, self.windows.lead()) {
            (Some(waiting), Some((keying, _))) => {
                let count = self.keys[keying].count();
                waiting.add(columns, block, keys.swap_remove(keying), count);
                waiting.take(false)?
            }
            _ => vec![Complete {
                columns,
                found: Vec::new(),
            }],
        };
        let complete = self.finished(complete)?;
        self.forget()?;
        Ok(complete)
    }

    /// The rows that are still incomplete when the input ends.
    pub(super) fn end(&mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = self.release()?;
        let complete = match &mut self.waiting {
            Some(waiting) => waiting.take(true)?,
            None => Vec::new(),
        };
        batches.extend(self.finished(complete)?);
        Ok(batches)
    }

    fn finished(&mut self, complete: Vec<Complete>) -> Result<Vec<RecordBatch>> {
        let width = self.schema.fields().len() - self.windows.columns.len();
        let mut batches = Vec::new();
        for Complete { columns, found } in complete {
            let mut known = columns.into_iter();
            let mut columns: Vec<ArrayRef> = known.by_ref().take(width).collect();
            for column in &self.windows.columns {
                match &column.function {
                    Function::Lead { arg, default, .. } => {
                        columns.push(self.rows.gather(*arg, &found, default)?);
                    }
                    _ => columns.extend(known.next()),
                }
            }
            batches.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
        }
        Ok(batches)
    }

    /// The sort key of a batch.
    fn times(&self, batch: &RecordBatch) -> Result<Integers> {
        let Some(time) = &self.time else {
            let message = "rows of the same time need a time".to_owned();
            return Err(DataFusionError::Internal(message));
        };
        Integers::of(&time.evaluate(batch)?.into_array(batch.num_rows())?)
    }

    fn check_order(&mut self, batch: &RecordBatch) -> Result<()> {
        let Some(time) = &self.time else {
            return Ok(());
        };
        let times = self.times(batch)?;
        times.leading_nulls().ok_or_else(|| out_of_order(time))?;
        if self.last.is_some_and(|last| last > times.key(0)) {
            return Err(out_of_order(time));
        }
        self.last = Some(times.key(batch.num_rows() - 1));
        Ok(())
    }

    /// Forgets the values of rows that no key refers to, if they are many.
    fn forget(&mut self) -> Result<()> {
        let places: usize = self
            .states
            .iter_mut()
            .map(|state| state.places().len())
            .sum();
        if self.rows.rows() > 4 * places + FEW + 16 * 8192 {
            self.compact()?;
        }
        Ok(())
    }

    pub(super) fn compact(&mut self) -> Result<()> {
        let kept = self.waiting.as_ref().map_or_else(Vec::new, Waiting::blocks);
        let places = self
            .states
            .iter_mut()
            .flat_map(|state| state.places().iter_mut());
        self.rows.compact(places.collect(), &kept)
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(Keys::bytes).sum();
        let states: usize = self.states.iter().map(State::bytes).sum();
        let waiting = self.waiting.as_ref().map_or(0, Waiting::bytes);
        let held = self.held.iter().flat_map(RecordBatch::columns);
        let held: usize = held.map(bytes_of).sum();
        keys + states + waiting + held + self.rows.bytes()
    }
}
