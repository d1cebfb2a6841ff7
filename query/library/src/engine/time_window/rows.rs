//! Values of rows that other rows may refer to: of the last rows of each key, and of current batches.

use arrow::array::{Array, ArrayRef};
use datafusion::error::Result;

use super::super::blocks::bytes_of;
use super::super::gather::{Gathering, Place};

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
    gathering: Gathering,
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

    /// A column of the rows at `places`; `default` has the one value of those at [`NOWHERE`].
    pub(super) fn gather(
        &mut self,
        column: usize,
        places: &[Place],
        default: &ArrayRef,
    ) -> Result<ArrayRef> {
        let blocks = &self.blocks;
        let places = (places.iter()).map(|place| (place.block != NOWHERE.block).then_some(*place));
        let of_block = |number: u32| &existing(blocks, number)[column];
        (self.gathering).gather(places, blocks.len(), of_block, default)
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
                    let any = std::sync::Arc::clone(&existing(&self.blocks, from[0].block)[column]);
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

fn existing(blocks: &[Option<Vec<ArrayRef>>], number: u32) -> &[ArrayRef] {
    let columns = blocks[number as usize].as_ref();
    columns.expect("a block stays while a row refers to it")
}
