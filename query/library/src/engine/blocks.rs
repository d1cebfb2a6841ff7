//! Rows of one side that may still match rows of the other, in their input batches.

use std::mem::size_of;

use arrow::array::BooleanArray;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter;
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, SchemaRef, StringViewType};
use datafusion::error::Result;

use super::gather::{Gathering, Place};

/// The numbers of the rows of a block, once rows of the join have been written to disk.
#[derive(Debug)]
pub(in crate::engine) enum Ids {
    None,
    From(u64),
    Each(Vec<u64>),
}

impl Ids {
    fn of(&self, row: u32) -> Option<u64> {
        match self {
            Ids::None => None,
            Ids::From(first) => Some(first + u64::from(row)),
            Ids::Each(ids) => Some(ids[row as usize]),
        }
    }
}

/// A batch of rows, or the remaining rows of several.
#[derive(Debug)]
struct Block {
    ids: Ids,
    columns: Vec<ArrayRef>,
    rows: usize,
    /// Number of rows that may still match, including those not swept yet.
    live: usize,
    /// Whether each row has matched, if the kind of join needs it.
    matched: Vec<u64>,
    bytes: usize,
}

/// The blocks of one side.
#[derive(Debug)]
pub(in crate::engine) struct Blocks {
    blocks: Vec<Option<Block>>,
    free: Vec<u32>,
    /// Blocks without live rows. Pairs that have not been output may still refer to them.
    spent: Vec<u32>,
    tracks_matches: bool,
    /// Which of the rows with an ID have matched.
    matched: Vec<u64>,
    schema: SchemaRef,
    /// Rows in all blocks, and their memory in bytes.
    rows: usize,
    bytes: usize,
    gathering: Gathering,
}

impl Blocks {
    /// `schema`: the columns that are needed from this side.
    pub(in crate::engine) fn new(schema: SchemaRef, tracks_matches: bool) -> Blocks {
        Blocks {
            blocks: Vec::new(),
            free: Vec::new(),
            spent: Vec::new(),
            tracks_matches,
            matched: Vec::new(),
            schema,
            rows: 0,
            bytes: 0,
            gathering: Gathering::default(),
        }
    }

    pub(in crate::engine) fn rows(&self) -> usize {
        self.rows
    }

    pub(in crate::engine) fn bytes(&self) -> usize {
        self.bytes + 8 * self.matched.len()
    }

    /// Adds rows, all of them live.
    pub(in crate::engine) fn add(&mut self, columns: Vec<ArrayRef>, rows: usize, ids: Ids) -> u32 {
        let matched = match (self.tracks_matches, &ids) {
            (true, Ids::None) => vec![0; rows.div_ceil(64)],
            _ => Vec::new(),
        };
        let mut bytes = columns.iter().map(bytes_of).sum::<usize>() + 8 * matched.len();
        if let Ids::Each(ids) = &ids {
            bytes += 8 * ids.len();
        }
        let block = Block {
            ids,
            columns,
            rows,
            live: rows,
            matched,
            bytes,
        };
        self.rows += rows;
        self.bytes += bytes;
        match self.free.pop() {
            Some(number) => {
                self.blocks[number as usize] = Some(block);
                number
            }
            None => {
                self.blocks.push(Some(block));
                (self.blocks.len() - 1) as u32
            }
        }
    }

    fn block(&self, number: u32) -> &Block {
        existing(&self.blocks, number)
    }

    fn block_mut(&mut self, number: u32) -> &mut Block {
        let block = self.blocks[number as usize].as_mut();
        block.expect("a block stays while it has live rows")
    }

    /// Marks rows of a block as unable to match any more.
    #[inline]
    pub(in crate::engine) fn expire(&mut self, number: u32, rows: usize) {
        let block = self.block_mut(number);
        block.live -= rows;
        if block.live == 0 {
            self.spent.push(number);
        }
    }

    pub(in crate::engine) fn columns(&self, number: u32) -> &[ArrayRef] {
        &self.block(number).columns
    }

    pub(in crate::engine) fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }

    /// Marks a row as matched. Returns whether it was not before.
    pub(in crate::engine) fn mark(&mut self, place: Place) -> bool {
        let id = self.block(place.block).ids.of(place.row);
        match id {
            Some(id) => set(&mut self.matched, id),
            None => set(&mut self.block_mut(place.block).matched, place.row.into()),
        }
    }

    pub(in crate::engine) fn is_marked(&self, place: Place) -> bool {
        let block = self.block(place.block);
        match block.ids.of(place.row) {
            Some(id) => self.has_matched(id),
            None => is_set(&block.matched, place.row.into()),
        }
    }

    pub(in crate::engine) fn id(&self, place: Place) -> Option<u64> {
        self.block(place.block).ids.of(place.row)
    }

    /// Whether the row with an ID has matched.
    pub(in crate::engine) fn has_matched(&self, id: u64) -> bool {
        is_set(&self.matched, id)
    }

    /// Marks the row with an ID.
    pub(in crate::engine) fn mark_id(&mut self, id: u64) {
        set(&mut self.matched, id);
    }

    /// Marks all rows as unable to match any more.
    pub(in crate::engine) fn expire_all(&mut self) {
        for (number, block) in self.blocks.iter_mut().enumerate() {
            if let Some(block) = block.as_mut().filter(|block| block.live > 0) {
                block.live = 0;
                self.spent.push(number as u32);
            }
        }
    }

    /// Frees the blocks without live rows. `unmatched` gets rows that never matched, if the join needs them.
    pub(in crate::engine) fn free_spent(
        &mut self,
        mut unmatched: impl FnMut(Vec<ArrayRef>, usize) -> Result<()>,
    ) -> Result<()> {
        for number in std::mem::take(&mut self.spent) {
            let Some(block) = self.blocks[number as usize].take() else {
                continue;
            };
            self.free.push(number);
            self.rows -= block.rows;
            self.bytes -= block.bytes;
            // Rows with an ID are on disk; whether they match is known at the end.
            if !self.tracks_matches || !matches!(block.ids, Ids::None) {
                continue;
            }
            let is_unmatched = |row: usize| !is_set(&block.matched, row as u64);
            let mask = BooleanBuffer::collect_bool(block.rows, is_unmatched);
            let count = mask.count_set_bits();
            if count > 0 {
                let mask = BooleanArray::new(mask, None);
                let columns = block.columns.iter().map(|column| filter(column, &mask));
                unmatched(columns.collect::<Result<_, _>>()?, count)?;
            }
        }
        Ok(())
    }

    /// One column of the rows at `places`.
    pub(in crate::engine) fn gather(
        &mut self,
        column: usize,
        places: &[Place],
    ) -> Result<ArrayRef> {
        self.gather_places(column, places.iter().copied().map(Some))
    }

    /// One column of the rows at `places`, and NULL for none.
    pub(in crate::engine) fn gather_or_null(
        &mut self,
        column: usize,
        places: &[Option<Place>],
    ) -> Result<ArrayRef> {
        self.gather_places(column, places.iter().copied())
    }

    fn gather_places(
        &mut self,
        column: usize,
        places: impl ExactSizeIterator<Item = Option<Place>> + Clone,
    ) -> Result<ArrayRef> {
        let null = new_null_array(self.schema.field(column).data_type(), 1);
        let blocks = &self.blocks;
        let of_block = |number: u32| &existing(blocks, number).columns[column];
        (self.gathering).gather(places, blocks.len(), of_block, &null)
    }

    /// All columns of the rows at `places`.
    pub(in crate::engine) fn gather_all(&mut self, places: &[Place]) -> Result<Vec<ArrayRef>> {
        (0..self.schema.fields().len())
            .map(|column| self.gather(column, places))
            .collect()
    }
}

fn existing(blocks: &[Option<Block>], number: u32) -> &Block {
    let block = blocks[number as usize].as_ref();
    block.expect("a block stays while it has live rows")
}

fn set(bits: &mut Vec<u64>, index: u64) -> bool {
    let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
    if word >= bits.len() {
        bits.resize(word + 1, 0);
    }
    let is_new = bits[word] & bit == 0;
    bits[word] |= bit;
    is_new
}

fn is_set(bits: &[u64], index: u64) -> bool {
    let word = bits.get((index / 64) as usize);
    word.is_some_and(|word| word & 1 << (index % 64) != 0)
}

/// The columns of a batch that are needed.
pub(in crate::engine) fn needed(batch: &RecordBatch, columns: &[usize]) -> Vec<ArrayRef> {
    let column = |&index: &usize| std::sync::Arc::clone(batch.column(index));
    columns.iter().map(column).collect()
}

/// Memory of a column without shared buffers: string views share theirs with other batches of the file.
pub(in crate::engine) fn bytes_of(array: &ArrayRef) -> usize {
    fn of_views<T: ByteViewType>(array: &ArrayRef) -> usize {
        let views = array.as_byte_view::<T>();
        let texts: usize = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
        let used: usize = (views.views().iter())
            .map(|view| (*view as u32) as usize)
            .filter(|&length| length > 12)
            .sum();
        array.len() * size_of::<u128>() + texts.min(used)
    }
    match array.data_type() {
        DataType::Utf8View => of_views::<StringViewType>(array),
        DataType::BinaryView => of_views::<BinaryViewType>(array),
        _ => array.to_data().get_slice_memory_size().unwrap_or(0),
    }
}
