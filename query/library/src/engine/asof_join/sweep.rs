//! The pass over both tables of an ASOF JOIN: the latest row of each key so far.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;

use super::super::blocks::{Blocks, Ids};
use super::super::gather::Place;
use super::super::integers::Integers;
use super::super::keys::{Keys, NONE};
use super::super::merge::out_of_order;
use super::{Direction, Matches};

/// One side: its time, and its keys.
#[derive(Debug, Clone)]
pub(super) struct Side {
    pub(super) time: Arc<dyn PhysicalExpr>,
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
}

/// A batch that is being swept.
struct Current {
    times: Integers,
    keys: Vec<u32>,
    row: usize,
}

impl Current {
    /// The time of the current row, if it can match.
    fn time(&self) -> Option<i64> {
        let can_match = self.keys[self.row] != NONE && !self.times.is_null(self.row);
        can_match.then(|| self.times.values[self.row])
    }

    fn is_used_up(&self) -> bool {
        self.row == self.keys.len()
    }
}

/// The next input that the sweep needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Left,
    Right,
}

/// The state of the join.
pub(super) struct Sweep {
    sides: [Side; 2],
    direction: Direction,
    matches: Matches,
    schema: SchemaRef,
    keys: Keys,
    /// The latest row of the right table for each key.
    latest: Vec<Option<Place>>,
    /// Rows of the right table.
    blocks: Blocks,
    left: Option<(Current, RecordBatch)>,
    right: Option<(Current, u32)>,
    right_has_ended: bool,
    last: [Option<i64>; 2],
    /// The matches of the rows of the left batch, from `shown` on.
    found: Vec<Option<Place>>,
    shown: usize,
    pub(super) ready: Vec<RecordBatch>,
}

/// Minimum number of rows of the right table before unneeded ones are removed.
const FEW: usize = 1 << 16;

impl Sweep {
    /// `schema`: that of the result; `right`: that of the right table.
    pub(super) fn new(
        sides: [Side; 2],
        kinds: &[DataType],
        direction: Direction,
        matches: Matches,
        schema: SchemaRef,
        right: SchemaRef,
    ) -> Result<Sweep> {
        Ok(Sweep {
            sides,
            direction,
            matches,
            schema,
            keys: Keys::new(kinds, false)?,
            latest: Vec::new(),
            blocks: Blocks::new(right, false),
            left: None,
            right: None,
            right_has_ended: false,
            last: [None; 2],
            found: Vec::new(),
            shown: 0,
            ready: Vec::new(),
        })
    }

    fn current(&mut self, side: usize, batch: &RecordBatch) -> Result<Current> {
        let rows = batch.num_rows();
        let Side { time, keys } = &self.sides[side];
        let values = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(rows);
        let mut times = Integers::of(&values(time)?)?;
        if self.direction.is_forward {
            times = times.reversed();
        }
        let ends = times.ascending().ok_or_else(|| out_of_order(time))?;
        if let Some((first, last)) = ends {
            if self.last[side].is_some_and(|before| before > first) {
                return Err(out_of_order(time));
            }
            self.last[side] = Some(last);
        }
        let keys: Vec<ArrayRef> = keys.iter().map(values).collect::<Result<_>>()?;
        let keys = self.keys.number(&keys, rows)?;
        self.latest.resize(self.keys.count(), None);
        Ok(Current {
            times,
            keys,
            row: 0,
        })
    }

    /// Takes the next batch of the left table, which has rows.
    pub(super) fn take_left(&mut self, batch: RecordBatch) -> Result<()> {
        self.left = Some((self.current(0, &batch)?, batch));
        self.shown = 0;
        Ok(())
    }

    /// Takes the next batch of the right table, which has rows; `None` after the last one.
    pub(super) fn take_right(&mut self, batch: Option<RecordBatch>) -> Result<()> {
        let Some(batch) = batch else {
            self.right_has_ended = true;
            return Ok(());
        };
        let current = self.current(1, &batch)?;
        let rows = batch.num_rows();
        let block = self.blocks.add(batch.columns().to_vec(), rows, Ids::None);
        self.right = Some((current, block));
        Ok(())
    }

    /// Sweeps to the end of one of the current batches.
    pub(super) fn advance(&mut self) -> Result<Need> {
        loop {
            let Some((left, _)) = &mut self.left else {
                return Ok(Need::Left);
            };
            if left.is_used_up() {
                self.flush()?;
                self.left = None;
                return Ok(Need::Left);
            }
            let Some(time) = left.time() else {
                left.row += 1;
                self.found.push(None);
                continue;
            };
            let key = left.keys[left.row] as usize;
            match &mut self.right {
                Some((right, block)) => {
                    let blocks = &mut self.blocks;
                    while !right.is_used_up() {
                        let place = Place {
                            block: *block,
                            row: right.row as u32,
                        };
                        let Some(of_right) = right.time() else {
                            blocks.expire(place.block, 1);
                            right.row += 1;
                            continue;
                        };
                        if !(of_right < time || (self.direction.or_equal && of_right == time)) {
                            break;
                        }
                        let latest = &mut self.latest[right.keys[right.row] as usize];
                        if let Some(former) = latest.replace(place) {
                            blocks.expire(former.block, 1);
                        }
                        right.row += 1;
                    }
                    if right.is_used_up() {
                        self.right = None;
                        if self.blocks.has_spent() {
                            self.flush()?;
                        }
                        continue;
                    }
                }
                None if !self.right_has_ended => return Ok(Need::Right),
                None => {}
            }
            self.found.push(self.latest[key]);
            left.row += 1;
        }
    }

    /// Outputs the swept rows of the left batch, and frees batches that are no longer needed.
    fn flush(&mut self) -> Result<()> {
        let found = std::mem::take(&mut self.found);
        if let Some((_, batch)) = self.left.as_ref().filter(|_| !found.is_empty()) {
            let rows = batch.slice(self.shown, found.len());
            self.shown += found.len();
            self.put_out(&rows, found)?;
        }
        self.blocks.free_spent(|_, _| Ok(()))?;
        if self.blocks.rows() > 4 * self.latest.len() + FEW {
            self.compact()?;
        }
        Ok(())
    }

    fn put_out(&mut self, rows: &RecordBatch, mut found: Vec<Option<Place>>) -> Result<()> {
        let filtered;
        let mut rows = rows;
        if self.matches == Matches::Required && found.iter().any(Option::is_none) {
            let mask: BooleanArray = found.iter().map(|place| Some(place.is_some())).collect();
            filtered = filter_record_batch(rows, &mask)?;
            found.retain(Option::is_some);
            rows = &filtered;
        }
        if found.is_empty() {
            return Ok(());
        }
        let mut columns = rows.columns().to_vec();
        for column in 0..self.schema.fields().len() - columns.len() {
            columns.push(self.blocks.gather_or_null(column, &found)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(found.len()));
        let schema = Arc::clone(&self.schema);
        self.ready.push(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?);
        Ok(())
    }

    /// Copies the latest rows into one batch, so that theirs can be freed.
    pub(super) fn compact(&mut self) -> Result<()> {
        let current = self.right.as_ref().map(|(_, block)| *block);
        let stays = |place: &Place| Some(place.block) != current;
        let keys: Vec<usize> = (0..self.latest.len())
            .filter(|&key| self.latest[key].as_ref().is_some_and(stays))
            .collect();
        for keys in keys.chunks(FEW / 8) {
            let former: Vec<Place> = keys.iter().filter_map(|&key| self.latest[key]).collect();
            let columns = self.blocks.gather_all(&former)?;
            let block = self.blocks.add(columns, former.len(), Ids::None);
            for (row, (&key, former)) in keys.iter().zip(&former).enumerate() {
                let row = row as u32;
                self.latest[key] = Some(Place { block, row });
                self.blocks.expire(former.block, 1);
            }
        }
        self.blocks.free_spent(|_, _| Ok(()))
    }

    /// Flushes, and compacts the latest rows.
    pub(super) fn shrink(&mut self) -> Result<()> {
        self.flush()?;
        self.compact()
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.bytes() + self.latest.len() * size_of::<Option<Place>>() + self.keys.bytes()
    }
}
