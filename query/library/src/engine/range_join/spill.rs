//! Moves the open ranges of a sweep to disk; later rows are then stored there too.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array};
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::metrics::SpillMetrics;

use super::super::blocks::Ids;
use super::super::gather::Place;
use super::overflow::{Generation, Overflow, RowFile, Stored, stored};
use super::spec::{Current, Rows, SIDES};
use super::sweep::Sweep;

impl Sweep {
    /// Moves all open ranges to disk.
    pub(super) fn spill(&mut self, env: &Arc<RuntimeEnv>, metrics: &SpillMetrics) -> Result<()> {
        self.flush()?;
        let mut overflow = match self.overflow.take() {
            Some(overflow) => overflow,
            None => Overflow::new(&self.spec, env, metrics)?,
        };
        let mut generation = Generation {
            files: [None, None],
            from: [0; 2],
        };
        for side in SIDES {
            generation.files[side] = self.spill_open(side, &mut overflow, env)?;
            self.spill_current(side, &mut overflow)?;
            let current = self.current[side].as_ref();
            let id = current.and_then(|current| {
                let row = current.row as u32;
                let block = current.block;
                self.blocks[side].id(Place { block, row })
            });
            generation.from[side] = id.unwrap_or(overflow.next_id[side]);
        }
        overflow.generations.push(generation);
        self.overflow = Some(overflow);
        self.flush()
    }

    fn spill_open(
        &mut self,
        side: usize,
        overflow: &mut Overflow,
        env: &Arc<RuntimeEnv>,
    ) -> Result<Stored> {
        let manager = &overflow.managers[side];
        let mut file = RowFile::create(manager, env, &overflow.metrics)?;
        let mut entries = Vec::new();
        for (key, open) in self.open.iter_mut().enumerate() {
            let taken = std::mem::take(&mut open[side]);
            entries.extend(taken.into_iter().map(|entry| (key as u32, entry)));
        }
        // In any order: a generation is open as a whole.
        for chunk in entries.chunks(self.spec.batch_size) {
            let places: Vec<Place> = chunk.iter().map(|(_, entry)| entry.place).collect();
            let blocks = &mut self.blocks[side];
            let mut ids = Vec::with_capacity(places.len());
            for &place in &places {
                ids.push(match blocks.id(place) {
                    Some(id) => id,
                    None => {
                        let id = overflow.next_id[side];
                        overflow.next_id[side] += 1;
                        if self.spec.tracks(side) {
                            if blocks.is_marked(place) {
                                blocks.mark_id(id);
                            }
                            // Whether it matches is known at the end.
                            blocks.mark(place);
                        }
                        id
                    }
                });
            }
            let rows = Rows {
                columns: blocks.gather_all(&places)?,
                starts: chunk.iter().map(|(_, entry)| entry.start).collect(),
                ends: chunk.iter().map(|(_, entry)| entry.end).collect(),
                valid: None,
                keys: chunk.iter().map(|(key, _)| *key).collect(),
            };
            file.write(&stored(manager.schema(), &rows, UInt64Array::from(ids))?)?;
            for place in places {
                blocks.expire(place.block, 1);
            }
        }
        self.entries[side] = 0;
        file.finish()
    }

    /// Gives the rows of the current batch that are not swept yet an ID each.
    fn spill_current(&mut self, side: usize, overflow: &mut Overflow) -> Result<()> {
        let Some(current) = self.current[side].take() else {
            return Ok(());
        };
        let place = Place {
            block: current.block,
            row: 0,
        };
        if self.blocks[side].id(place).is_some() {
            self.current[side] = Some(current);
            return Ok(());
        }
        let (row, count) = (current.row, current.starts.len() - current.row);
        let slice = |column: &ArrayRef| column.slice(row, count);
        let Current {
            block,
            starts,
            ends,
            valid,
            keys,
            dropped,
            ..
        } = current;
        let rows = Rows {
            columns: self.blocks[side].columns(block).iter().map(slice).collect(),
            starts: starts.slice(row, count),
            ends: ends.slice(row, count),
            valid: valid.map(|valid| valid.slice(row, count)),
            keys: keys[row..].to_vec(),
        };
        if self.spec.tracks(side) {
            // Rows with an ID are shown by it.
            for row in row..row + count {
                let row = row as u32;
                self.blocks[side].mark(Place { block, row });
            }
        }
        if dropped + count > 0 {
            self.blocks[side].expire(block, dropped + count);
        }
        let ids = Ids::From(overflow.record(side, &rows)?);
        self.take(side, rows, ids);
        Ok(())
    }
}
