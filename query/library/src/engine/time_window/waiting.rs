//! Rows of the result that wait for a later row of their key.
//!
//! ```text
//! young     whole batches in order: the first leaves as a batch once no row of it waits
//! old       the few rows that still wait when their batch has to leave, and leave one by one
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::filter;
use arrow::datatypes::{Field, Schema, SchemaRef, UInt32Type};
use datafusion::error::Result;

use super::super::blocks::{Blocks, Ids};
use super::super::gather::Place;
use super::rows::NOWHERE;
use super::state::Rings;

/// Batches that wait as a whole.
const YOUNG: usize = 16;
/// Marks the place of a row that is old.
const OLD: u32 = 1 << 31;

/// A batch and, for each row, the one that it waits for.
struct Young {
    /// The columns known so far.
    columns: Vec<ArrayRef>,
    /// Its values among the rows.
    block: u32,
    keys: Vec<u32>,
    found: Vec<Place>,
    waits: usize,
}

/// The rows that wait.
pub(super) struct Waiting {
    rings: Rings,
    young: VecDeque<Young>,
    /// Number of the first batch in `young`.
    first: u32,
    /// Old rows: their columns, then the number of their key.
    old: Blocks,
    old_rows: usize,
    /// Old rows, with the rows that they waited for.
    found: Vec<(Place, Place)>,
}

/// Rows that no longer wait: their columns, and the places of the rows that they waited for.
pub(super) struct Complete {
    pub(super) columns: Vec<ArrayRef>,
    pub(super) found: Vec<Place>,
}

impl Waiting {
    /// `known`: the columns that rows have when they begin to wait.
    pub(super) fn new(n: usize, known: &Schema) -> Waiting {
        let key = Field::new("key", arrow::datatypes::DataType::UInt32, false);
        let fields = known.fields().iter().cloned().chain([Arc::new(key)]);
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Waiting {
            rings: Rings::new(n),
            young: VecDeque::new(),
            first: 0,
            old: Blocks::new(schema, false),
            old_rows: 0,
            found: Vec::new(),
        }
    }

    /// Adds the rows of a batch; each is what another row of its key waited for.
    pub(super) fn add(&mut self, columns: Vec<ArrayRef>, block: u32, keys: Vec<u32>, count: usize) {
        self.rings.resize(count);
        let number = self.first.wrapping_add(self.young.len() as u32) & !OLD;
        self.young.push_back(Young {
            columns,
            block,
            found: vec![NOWHERE; keys.len()],
            waits: keys.len(),
            keys: Vec::new(),
        });
        for (row, &key) in keys.iter().enumerate() {
            let row = row as u32;
            let own = Place { block: number, row };
            let before = self.rings.push(key, own);
            if before == NOWHERE {
                continue;
            }
            let found = Place { block, row };
            if before.block & OLD != 0 {
                self.found.push((before, found));
                continue;
            }
            let index = before.block.wrapping_sub(self.first) & !OLD;
            let young = &mut self.young[index as usize];
            young.found[before.row as usize] = found;
            young.waits -= 1;
        }
        if let Some(young) = self.young.back_mut() {
            young.keys = keys;
        }
    }

    /// Takes rows that need not wait any more; `all` rows at the end.
    pub(super) fn take(&mut self, all: bool) -> Result<Vec<Complete>> {
        let mut complete = Vec::new();
        if !self.found.is_empty() {
            let found = std::mem::take(&mut self.found);
            let places: Vec<Place> = found.iter().map(|(place, _)| old_place(*place)).collect();
            let mut columns = self.old.gather_all(&places)?;
            columns.pop();
            complete.push(Complete {
                columns,
                found: found.into_iter().map(|(_, found)| found).collect(),
            });
            self.old_rows -= places.len();
            for place in places {
                self.old.expire(place.block, 1);
            }
            self.old.free_spent(|_, _| Ok(()))?;
        }
        while let Some(young) = self.young.front() {
            if young.waits > 0 && !all && self.young.len() <= YOUNG {
                break;
            }
            let Some(young) = self.young.pop_front() else {
                break;
            };
            let number = self.first;
            self.first = self.first.wrapping_add(1) & !OLD;
            if young.waits == 0 || all {
                complete.push(Complete {
                    columns: young.columns,
                    found: young.found,
                });
                continue;
            }
            complete.extend(self.grow_old(number, young)?);
        }
        if all {
            complete.extend(self.take_old()?);
        }
        if self.old.rows() > 4 * self.old_rows + (1 << 16) {
            self.compact()?;
        }
        Ok(complete)
    }

    /// Moves the rows that wait to the old ones. Returns the others.
    fn grow_old(&mut self, number: u32, young: Young) -> Result<Option<Complete>> {
        let waits: BooleanArray = (young.found.iter())
            .map(|place| Some(*place == NOWHERE))
            .collect();
        let keys: ArrayRef = Arc::new(UInt32Array::from(young.keys.clone()));
        let columns = young.columns.iter().chain([&keys]);
        let old: Vec<ArrayRef> = columns
            .map(|column| filter(column, &waits))
            .collect::<Result<_, _>>()?;
        let rows: Vec<usize> = waits.values().set_indices().collect();
        let block = self.old.add(old, rows.len(), Ids::None);
        self.old_rows += rows.len();
        for (place, &row) in rows.iter().enumerate() {
            let from = Place {
                block: number,
                row: row as u32,
            };
            let to = Place {
                block: block | OLD,
                row: place as u32,
            };
            self.rings.moved(young.keys[row], from, to);
        }
        if rows.len() == young.found.len() {
            return Ok(None);
        }
        let is_complete = arrow::compute::not(&waits)?;
        let columns = young
            .columns
            .iter()
            .map(|column| filter(column, &is_complete));
        let found = young.found.into_iter().filter(|place| *place != NOWHERE);
        Ok(Some(Complete {
            columns: columns.collect::<Result<_, _>>()?,
            found: found.collect(),
        }))
    }

    /// The places of old rows that wait.
    fn old_places(&mut self) -> Vec<Place> {
        let places = self.rings.places().iter().copied();
        let is_old = |place: &Place| *place != NOWHERE && place.block & OLD != 0;
        places.filter(is_old).map(old_place).collect()
    }

    /// Takes all old rows, whose later row does not exist.
    fn take_old(&mut self) -> Result<Vec<Complete>> {
        let mut complete = Vec::new();
        for places in self.old_places().chunks(8192) {
            let mut columns = self.old.gather_all(places)?;
            columns.pop();
            complete.push(Complete {
                columns,
                found: vec![NOWHERE; places.len()],
            });
        }
        Ok(complete)
    }

    /// Compacts the old rows.
    fn compact(&mut self) -> Result<()> {
        for places in self.old_places().chunks(8192) {
            let columns = self.old.gather_all(places)?;
            let keys = columns.last().expect("the key comes last");
            let keys = keys.as_primitive::<UInt32Type>().values().clone();
            let block = self.old.add(columns, places.len(), Ids::None);
            for (row, place) in places.iter().enumerate() {
                let from = Place {
                    block: place.block | OLD,
                    row: place.row,
                };
                let to = Place {
                    block: block | OLD,
                    row: row as u32,
                };
                self.rings.moved(keys[row], from, to);
                self.old.expire(place.block, 1);
            }
        }
        self.old.free_spent(|_, _| Ok(()))
    }

    /// The blocks of values that young rows may refer to.
    pub(super) fn blocks(&self) -> Vec<u32> {
        self.young.iter().map(|young| young.block).collect()
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_young = |young: &Young| {
            let columns = young.columns.iter().map(super::super::blocks::bytes_of);
            columns.sum::<usize>() + young.found.len() * 12
        };
        self.old.bytes() + self.young.iter().map(of_young).sum::<usize>() + self.rings.bytes()
    }
}

fn old_place(place: Place) -> Place {
    Place {
        block: place.block & !OLD,
        row: place.row,
    }
}
