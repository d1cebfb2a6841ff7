//! The sweep over two inputs that are in the order of the starts of their ranges.
//!
//! ```text
//! left   [10 ───────── 50)          swept by start: left 10, right 20, left 30, right 40
//! right       20      40            at 20: the open left range of the same key matches
//! left           [30 ─ 35)          at 40: 30–35 has expired, and is dropped when it is seen
//! ```
//! Each row is first compared with the open ranges of the other side, then opens its own. So a pair is found at the later of
//! its rows, and ranges that end before they start need no special case.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::NullBuffer;
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::DataType;
use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;

use super::super::blocks::{Blocks, Ids, needed};
use super::super::gather::Place;
use super::super::integers::Integers;
use super::super::keys::{Keys, NONE};
use super::super::merge::out_of_order;
use super::overflow::Overflow;
use super::spec::{Current, Entry, LEFT, RIGHT, Rows, SIDES, Spec, batch_of, unmatched};

/// The state of the join.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) spec: Arc<Spec>,
    pub(super) keys: Keys,
    /// The open ranges of each key, left and right.
    pub(super) open: Vec<[Vec<Entry>; 2]>,
    /// Number of open ranges, expired ones included.
    pub(super) entries: [usize; 2],
    /// Number of open ranges at which expired ones are removed.
    purge_at: usize,
    pub(super) blocks: [Blocks; 2],
    pub(super) current: [Option<Current>; 2],
    pub(super) has_ended: [bool; 2],
    /// The start of the last row swept.
    position: i64,
    last_start: [Option<i64>; 2],
    /// The pairs found since the last output.
    pairs: [Vec<Place>; 2],
    /// Pairs that are only counted.
    counted: usize,
    pub(super) ready: VecDeque<RecordBatch>,
    /// The rows on disk, after memory was exhausted.
    pub(super) overflow: Option<Overflow>,
}

/// Minimum number of open ranges before expired ones are removed.
const FEW: usize = 1 << 16;
/// Pairs that are only counted, in one batch.
const COUNTED: usize = 1 << 20;

impl Sweep {
    pub(super) fn new(spec: &Arc<Spec>, kinds: &[DataType]) -> Result<Sweep> {
        let blocks = |side: usize| {
            let schema = Arc::clone(&spec.sides[side].schema);
            Blocks::new(schema, spec.tracks(side))
        };
        Ok(Sweep {
            spec: Arc::clone(spec),
            keys: Keys::new(kinds, spec.null_is_key)?,
            open: Vec::new(),
            entries: [0; 2],
            purge_at: FEW,
            blocks: [blocks(LEFT), blocks(RIGHT)],
            current: [None, None],
            has_ended: [false; 2],
            position: i64::MIN,
            last_start: [None; 2],
            pairs: [Vec::new(), Vec::new()],
            counted: 0,
            ready: VecDeque::new(),
            overflow: None,
        })
    }

    /// Takes the next batch of a side.
    pub(super) fn begin(&mut self, number: usize, batch: &RecordBatch) -> Result<()> {
        let side = &self.spec.sides[number];
        let rows = batch.num_rows();
        let values = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(rows);
        let starts = Integers::of(&values(&side.start)?)?;
        let nulls = starts
            .leading_nulls()
            .ok_or_else(|| out_of_order(&side.start))?;
        if let Some(&first) = starts.values.get(nulls) {
            if self.last_start[number].is_some_and(|last| last > first) {
                return Err(out_of_order(&side.start));
            }
            self.last_start[number] = starts.values.last().copied();
        }
        let ends = match side.start.eq(&side.end) {
            true => starts.clone(),
            false => Integers::of(&values(&side.end)?)?,
        };
        let keys: Vec<ArrayRef> = side.keys.iter().map(values).collect::<Result<_>>()?;
        let keys = self.keys.number(&keys, rows)?;
        self.open.resize_with(self.keys.count(), Default::default);
        let rows = Rows {
            columns: needed(batch, &side.needed),
            valid: NullBuffer::union(starts.nulls.as_ref(), ends.nulls.as_ref()),
            starts: starts.values,
            ends: ends.values,
            keys,
        };
        let ids = match &mut self.overflow {
            Some(overflow) => Ids::From(overflow.record(number, &rows)?),
            None => Ids::None,
        };
        self.take(number, rows, ids);
        Ok(())
    }

    pub(super) fn take(&mut self, side: usize, rows: Rows, ids: Ids) {
        let count = rows.starts.len();
        self.current[side] = Some(Current {
            block: self.blocks[side].add(rows.columns, count, ids),
            valid: rows.valid,
            starts: rows.starts,
            ends: rows.ends,
            keys: rows.keys,
            row: 0,
            dropped: 0,
        });
    }

    /// Sweeps on, until a side needs its next batch or many pairs wait. Returns whether there are more rows.
    pub(super) fn advance(&mut self) -> Result<bool> {
        while let Some(side) = self.next_side() {
            self.sweep(side);
            if self.pairs[LEFT].len() >= self.spec.batch_size || self.counted >= COUNTED {
                self.flush()?;
            }
            let current = self.current[side].as_ref();
            if let Some(current) = current.filter(|current| current.row == current.starts.len()) {
                if current.dropped > 0 {
                    self.blocks[side].expire(current.block, current.dropped);
                }
                self.current[side] = None;
                if self.entries[LEFT] + self.entries[RIGHT] > self.purge_at {
                    self.purge()?;
                }
                if self.blocks[side].has_spent() {
                    self.flush()?;
                }
                return Ok(true);
            }
        }
        self.flush()?;
        Ok(false)
    }

    /// The side whose row is next, if each side has a row or has ended.
    fn next_side(&self) -> Option<usize> {
        match [&self.current[LEFT], &self.current[RIGHT]] {
            [Some(left), Some(right)] => {
                // Rows that match nothing can be swept at any time, and NULLs come first.
                if !left.is_valid() {
                    return Some(LEFT);
                }
                if !right.is_valid() {
                    return Some(RIGHT);
                }
                let (left, right) = (left.starts[left.row], right.starts[right.row]);
                Some(match left.cmp(&right) {
                    std::cmp::Ordering::Less => LEFT,
                    std::cmp::Ordering::Equal => self.spec.first,
                    std::cmp::Ordering::Greater => RIGHT,
                })
            }
            [Some(_), None] => self.has_ended[RIGHT].then_some(LEFT),
            [None, Some(_)] => self.has_ended[LEFT].then_some(RIGHT),
            [None, None] => None,
        }
    }

    /// Sweeps the rows of a side up to the next row of the other.
    fn sweep(&mut self, number: usize) {
        let other = 1 - number;
        let limit = match &self.current[other] {
            Some(other) if other.is_valid() => other.starts[other.row],
            // Its rows without a range are swept later.
            Some(_) => i64::MIN,
            None => i64::MAX,
        };
        let limit_too = self.current[other].is_none() || self.spec.first == number;
        let opens = !self.has_ended[other] || self.current[other].is_some();
        let (alive, meets) = (self.spec.touching[number], self.spec.touching[other]);
        let only_counts = self.spec.output.is_empty()
            && self.spec.filter.is_none()
            && self.spec.kind == JoinType::Inner;
        let enough = self.spec.batch_size;
        let Some(current) = &mut self.current[number] else {
            return;
        };
        let [left_pairs, right_pairs] = &mut self.pairs;
        let (own_pairs, other_pairs) = match number {
            LEFT => (left_pairs, right_pairs),
            _ => (right_pairs, left_pairs),
        };
        let blocks = &mut self.blocks[other];
        while current.row < current.starts.len() {
            let row = current.row;
            let key = current.keys[row];
            if key == NONE || !current.is_valid() {
                current.dropped += 1;
                current.row += 1;
                continue;
            }
            let (start, end) = (current.starts[row], current.ends[row]);
            if !(start < limit || (limit_too && start == limit)) {
                break;
            }
            current.row += 1;
            self.position = start;
            let place = Place {
                block: current.block,
                row: row as u32,
            };
            let open = &mut self.open[key as usize];
            let others = &mut open[other];
            let mut kept = 0;
            for index in 0..others.len() {
                let entry = others[index];
                if !(start < entry.end || (alive && start == entry.end)) {
                    blocks.expire(entry.place.block, 1);
                    continue;
                }
                if kept != index {
                    others[kept] = entry;
                }
                kept += 1;
                if entry.start < end || (meets && entry.start == end) {
                    match only_counts {
                        true => self.counted += 1,
                        false => {
                            own_pairs.push(place);
                            other_pairs.push(entry.place);
                        }
                    }
                }
            }
            self.entries[other] -= others.len() - kept;
            others.truncate(kept);
            // Later rows of the other side start here at the earliest; if it goes first, they start later.
            let touches = meets && self.spec.first == number && start == end;
            if opens && (start < end || touches) {
                open[number].push(Entry { start, end, place });
                self.entries[number] += 1;
            } else {
                current.dropped += 1;
            }
            if own_pairs.len() >= enough || self.counted >= COUNTED {
                break;
            }
        }
    }

    /// Drops the open ranges that have expired, and keys without any.
    pub(super) fn purge(&mut self) -> Result<()> {
        let position = self.position;
        for side in SIDES {
            let touching = self.spec.touching[1 - side];
            let blocks = &mut self.blocks[side];
            let entries = &mut self.entries[side];
            for open in &mut self.open {
                open[side].retain(|entry| {
                    let is_open = position < entry.end || (touching && position == entry.end);
                    if !is_open {
                        blocks.expire(entry.place.block, 1);
                        *entries -= 1;
                    }
                    is_open
                });
                if open[side].capacity() > 4 * open[side].len() + 16 {
                    open[side].shrink_to_fit();
                }
            }
        }
        self.purge_at = 2 * (self.entries[LEFT] + self.entries[RIGHT]) + FEW;
        for side in SIDES {
            if self.blocks[side].rows() > 4 * self.entries[side] + FEW {
                self.compact(side)?;
            }
        }
        Ok(())
    }

    /// Forgets keys without open ranges, if most are.
    pub(super) fn forget_keys(&mut self) {
        if self.overflow.is_some() {
            // Rows on disk have their numbers.
            return;
        }
        let used = |open: &[Vec<Entry>; 2]| !open.iter().all(Vec::is_empty);
        let mut is_used: Vec<bool> = self.open.iter().map(used).collect();
        for current in self.current.iter().flatten() {
            for &key in current.keys[current.row..]
                .iter()
                .filter(|&&key| key != NONE)
            {
                is_used[key as usize] = true;
            }
        }
        let count = is_used.iter().filter(|&&is_used| is_used).count();
        if self.open.len() < 2 * count + FEW {
            return;
        }
        let renumbered = self.keys.retain(|key| is_used[key as usize]);
        let mut open = Vec::new();
        open.resize_with(self.keys.count(), Default::default);
        for (former, lists) in std::mem::take(&mut self.open).into_iter().enumerate() {
            if renumbered[former] != NONE {
                open[renumbered[former] as usize] = lists;
            }
        }
        self.open = open;
        for current in self.current.iter_mut().flatten() {
            for key in current.keys[current.row..].iter_mut() {
                if *key != NONE {
                    *key = renumbered[*key as usize];
                }
            }
        }
    }

    /// Copies the open rows of a side into one batch, so that theirs can be freed.
    pub(super) fn compact(&mut self, side: usize) -> Result<()> {
        self.flush()?;
        let swept = self.current[side].as_ref().map(|current| current.block);
        let mut places: Vec<(u32, u32, Place)> = Vec::new();
        for (key, open) in self.open.iter().enumerate() {
            for (index, entry) in open[side].iter().enumerate() {
                if Some(entry.place.block) != swept {
                    places.push((key as u32, index as u32, entry.place));
                }
            }
        }
        for chunk in places.chunks(self.spec.batch_size) {
            let former: Vec<Place> = chunk.iter().map(|(_, _, place)| *place).collect();
            let columns = self.blocks[side].gather_all(&former)?;
            let ids: Option<Vec<u64>> = (former.iter())
                .map(|&place| self.blocks[side].id(place))
                .collect();
            let ids = ids.map_or(Ids::None, Ids::Each);
            let block = self.blocks[side].add(columns, former.len(), ids);
            for (row, &(key, index, former)) in chunk.iter().enumerate() {
                let place = Place {
                    block,
                    row: row as u32,
                };
                self.open[key as usize][side][index as usize].place = place;
                if self.spec.tracks(side) && self.overflow.is_none() {
                    if self.blocks[side].is_marked(former) {
                        self.blocks[side].mark(place);
                    }
                    // Its fate is decided at the new place.
                    self.blocks[side].mark(former);
                }
                self.blocks[side].expire(former.block, 1);
            }
        }
        self.flush()
    }

    /// Outputs the pairs found, and frees batches that no pair can need any more.
    pub(super) fn flush(&mut self) -> Result<()> {
        while self.counted > 0 {
            let rows = self.counted.min(COUNTED);
            self.counted -= rows;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let schema = Arc::clone(&self.spec.schema);
            self.ready
                .push_back(RecordBatch::try_new_with_options(schema, vec![], &options)?);
        }
        let pairs = std::mem::take(&mut self.pairs);
        let chunks = pairs[LEFT].chunks(self.spec.batch_size);
        for (left, right) in chunks.zip(pairs[RIGHT].chunks(self.spec.batch_size)) {
            self.put_out([left, right])?;
        }
        self.pairs = pairs;
        self.pairs.iter_mut().for_each(Vec::clear);
        for side in SIDES {
            if self.blocks[side].has_spent() {
                self.free_spent(side)?;
            }
        }
        Ok(())
    }

    fn put_out(&mut self, pairs: [&[Place]; 2]) -> Result<()> {
        let kept;
        let pairs = match self.passing(pairs)? {
            Some(passing) => {
                kept = passing;
                [kept[LEFT].as_slice(), kept[RIGHT].as_slice()]
            }
            None => pairs,
        };
        for side in SIDES {
            if !self.spec.tracks(side) {
                continue;
            }
            let places = pairs[side].iter().copied();
            let blocks = &mut self.blocks[side];
            let new: Vec<Place> = places.filter(|&place| blocks.mark(place)).collect();
            if self.spec.is_semi() {
                let mut both = [&[][..], &[][..]];
                both[side] = &new;
                self.put_out_rows(both, new.len())?;
            }
        }
        match self.spec.shows_pairs() {
            true => self.put_out_rows(pairs, pairs[LEFT].len()),
            false => Ok(()),
        }
    }

    /// The pairs that pass the filter; `None` for all.
    fn passing(&mut self, pairs: [&[Place]; 2]) -> Result<Option<[Vec<Place>; 2]>> {
        let Some(filter) = &self.spec.filter else {
            return Ok(None);
        };
        let columns: Vec<ArrayRef> = (filter.columns.iter())
            .map(|&(side, column)| self.blocks[side].gather(column, pairs[side]))
            .collect::<Result<_>>()?;
        let rows = pairs[LEFT].len();
        let batch = batch_of(&filter.schema, columns, rows)?;
        let passes = filter.expr.evaluate(&batch)?.into_array(rows)?;
        let passes = match passes.as_boolean() {
            with_nulls if with_nulls.null_count() > 0 => prep_null_mask_filter(with_nulls),
            whole => whole.clone(),
        };
        if passes.true_count() == rows {
            return Ok(None);
        }
        let of_side = |side: usize| {
            let places = passes.values().set_indices().map(|row| pairs[side][row]);
            places.collect::<Vec<Place>>()
        };
        Ok(Some([of_side(LEFT), of_side(RIGHT)]))
    }

    fn put_out_rows(&mut self, places: [&[Place]; 2], rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = (self.spec.output.iter())
            .map(|&(side, column)| self.blocks[side].gather(column, places[side]))
            .collect::<Result<_>>()?;
        let batch = batch_of(&self.spec.schema, columns, rows)?;
        self.ready.push_back(batch);
        Ok(())
    }

    fn free_spent(&mut self, side: usize) -> Result<()> {
        let (spec, ready) = (&self.spec, &mut self.ready);
        let shows = spec.shows_unmatched(side);
        self.blocks[side].free_spent(|columns, rows| {
            if shows {
                ready.push_back(unmatched(spec, side, &columns, rows)?);
            }
            Ok(())
        })
    }

    /// Ends the sweep: open ranges match nothing any more.
    pub(super) fn end(&mut self) -> Result<()> {
        self.flush()?;
        self.open.iter_mut().flatten().for_each(Vec::clear);
        self.open.iter_mut().flatten().for_each(Vec::shrink_to_fit);
        self.entries = [0; 2];
        (self.position, self.last_start) = (i64::MIN, [None; 2]);
        for side in SIDES {
            self.blocks[side].expire_all();
        }
        self.flush()
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.open.len() * size_of::<[Vec<Entry>; 2]>();
        // A list has room for twice its ranges while it grows.
        let entries = 2 * (self.entries[LEFT] + self.entries[RIGHT]) * size_of::<Entry>();
        let blocks: usize = self.blocks.iter().map(Blocks::bytes).sum();
        blocks + lists + entries + self.keys.bytes()
    }
}
