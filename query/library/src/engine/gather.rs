//! Collects rows that are spread over blocks of columns.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{interleave, take};
use datafusion::error::Result;

/// A row: its block and its index in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Place {
    pub(in crate::engine) block: u32,
    pub(in crate::engine) row: u32,
}

/// Memory that gatherings share.
#[derive(Debug, Default)]
pub(in crate::engine) struct Gathering {
    /// Index of each block among the arrays of a gathering; [`usize::MAX`] for the others.
    slots: Vec<usize>,
}

impl Gathering {
    /// Returns one column of the rows at `places`. `column`: that of a block, of which there are `blocks`. `missing` has the one
    /// value of rows at no place, and the type of the column.
    pub(in crate::engine) fn gather<'b>(
        &mut self,
        places: impl ExactSizeIterator<Item = Option<Place>> + Clone,
        blocks: usize,
        column: impl Fn(u32) -> &'b ArrayRef,
        missing: &ArrayRef,
    ) -> Result<ArrayRef> {
        if let Some(Some(first)) = places.clone().next()
            && (places.clone()).all(|place| place.is_some_and(|place| place.block == first.block))
        {
            let rows = places.flatten().map(|place| place.row);
            let rows = UInt32Array::from_iter_values(rows);
            return Ok(take(column(first.block), &rows, None)?);
        }
        if self.slots.len() < blocks {
            self.slots.resize(blocks, usize::MAX);
        }
        let mut arrays: Vec<&dyn Array> = Vec::new();
        let mut missing_slot = None;
        let mut used: Vec<u32> = Vec::new();
        let mut rows = Vec::with_capacity(places.len());
        for place in places {
            let Some(place) = place else {
                let slot = *missing_slot.get_or_insert_with(|| {
                    arrays.push(missing.as_ref());
                    arrays.len() - 1
                });
                rows.push((slot, 0));
                continue;
            };
            let slot = &mut self.slots[place.block as usize];
            if *slot == usize::MAX {
                *slot = arrays.len();
                used.push(place.block);
                arrays.push(column(place.block).as_ref());
            }
            rows.push((*slot, place.row as usize));
        }
        for block in used {
            self.slots[block as usize] = usize::MAX;
        }
        match arrays.is_empty() {
            true => Ok(missing.slice(0, 0)),
            false => Ok(interleave(&arrays, &rows)?),
        }
    }
}
