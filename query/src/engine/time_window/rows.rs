//! Values of rows that other rows may refer to: of the last rows of each key, and of current batches.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{interleave, take};
use datafusion::error::Result;

use super::super::blocks::{Place, bytes_of};

/// The place of no row.
pub(super) const NOWHERE: Place = Place {
    block: u32::MAX,
    row: 0,
};

/// The values, in blocks with the same columns.
#[derive(Debug, Default)]
pub(super) struct Rows {
    blocks: Vec<Option<Vec<ArrayRef>>>,
    free: Vec<u32>,
    rows: usize,
    bytes: usize,
    /// Index of each block among those of a gathering.
    slots: Vec<usize>,
}

impl Rows {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, columns: Vec<ArrayRef>) -> u32 {
        self.rows += columns.first().map_or(0, |column| column.len());
        self.bytes += columns.iter().map(bytes_of).sum::<usize>();
        match self.free.pop() {
            Some(number) => {
                self.blocks[number as usize] = Some(columns);
                number
            }
            None => {
                self.blocks.push(Some(columns));
                self.slots.push(usize::MAX);
                (self.blocks.len() - 1) as u32
            }
        }
    }

    fn remove(&mut self, number: u32) {
        if let Some(columns) = self.blocks[number as usize].take() {
            self.rows -= columns.first().map_or(0, |column| column.len());
            self.bytes -= columns.iter().map(bytes_of).sum::<usize>();
            self.free.push(number);
        }
    }

    fn column(&self, block: u32, column: usize) -> &ArrayRef {
        let columns = self.blocks[block as usize].as_ref();
        &columns.expect("a block stays while a row refers to it")[column]
    }

    /// A column of the rows at `places`; `default` has the one value of those at [`NOWHERE`].
    pub(super) fn gather(
        &mut self,
        column: usize,
        places: &[Place],
        default: &ArrayRef,
    ) -> Result<ArrayRef> {
        let first = places.first().map_or(NOWHERE.block, |place| place.block);
        if first != NOWHERE.block && places.iter().all(|place| place.block == first) {
            let rows = UInt32Array::from_iter_values(places.iter().map(|place| place.row));
            return Ok(take(self.column(first, column), &rows, None)?);
        }
        let mut used: Vec<u32> = Vec::new();
        let mut rows = Vec::with_capacity(places.len());
        for place in places {
            if place.block == NOWHERE.block {
                rows.push((0, 0));
                continue;
            }
            let slot = &mut self.slots[place.block as usize];
            if *slot == usize::MAX {
                used.push(place.block);
                *slot = used.len();
            }
            rows.push((*slot, place.row as usize));
        }
        for &block in &used {
            self.slots[block as usize] = usize::MAX;
        }
        let mut arrays: Vec<&dyn Array> = vec![default.as_ref()];
        arrays.extend(
            used.iter()
                .map(|&block| self.column(block, column).as_ref()),
        );
        Ok(interleave(&arrays, &rows)?)
    }

    /// Moves the rows at `places` together, and forgets all others but those of the blocks `kept`.
    pub(super) fn compact(&mut self, mut places: Vec<&mut Place>, kept: &[u32]) -> Result<()> {
        const ROWS: usize = 8192;
        let width = self.blocks.iter().flatten().next().map_or(0, Vec::len);
        places.retain(|place| place.block != NOWHERE.block && !kept.contains(&place.block));
        let former: Vec<u32> = (0..self.blocks.len() as u32)
            .filter(|number| self.blocks[*number as usize].is_some() && !kept.contains(number))
            .collect();
        for chunk in places.chunks_mut(ROWS) {
            let from: Vec<Place> = chunk.iter().map(|place| **place).collect();
            let columns: Vec<ArrayRef> = (0..width)
                .map(|column| {
                    let any = std::sync::Arc::clone(self.column(from[0].block, column));
                    self.gather(column, &from, &any)
                })
                .collect::<Result<_>>()?;
            let block = self.add(columns);
            for (row, place) in chunk.iter_mut().enumerate() {
                let row = row as u32;
                **place = Place { block, row };
            }
        }
        former.into_iter().for_each(|number| self.remove(number));
        Ok(())
    }
}
