//! Lookup of the event of an ID, done twice for each record of a file with several events.
//!
//! The kernel numbers counters consecutively, so the IDs of a recording are close together: a table indexed by the
//! distance from the lowest ID covers almost every file. Other IDs are hashed.

use hashbrown::HashMap;

/// Maximum span of the table.
const SPAN_MAX: u64 = 1 << 16;
/// No event.
const NONE: u32 = u32::MAX;

/// Counter IDs, with the indexes of their events.
#[derive(Debug, Default)]
pub(super) struct Ids {
    all: HashMap<u64, u32>,
    lowest: u64,
    /// Event indexes by distance from the lowest ID; empty if the IDs are too far apart.
    table: Vec<u32>,
}

impl Ids {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds an ID. The first insertion of an ID is kept: attrs come before descriptions.
    pub(super) fn insert(&mut self, id: u64, event: usize) {
        let Ok(event) = u32::try_from(event) else {
            return;
        };
        if self.all.contains_key(&id) {
            return;
        }
        let is_first = self.all.is_empty();
        self.all.insert(id, event);
        if is_first {
            self.lowest = id;
            self.table.push(event);
        } else if !self.table.is_empty() && !self.insert_near(id, event) {
            self.table = Vec::new();
        }
    }

    /// Adds an ID to the table; returns false if it is too far away.
    fn insert_near(&mut self, id: u64, event: u32) -> bool {
        if id < self.lowest {
            let shift = self.lowest - id;
            if shift >= SPAN_MAX || shift + self.table.len() as u64 > SPAN_MAX {
                return false;
            }
            let shift = std::iter::repeat_n(NONE, shift as usize);
            self.table.splice(0..0, shift);
            self.lowest = id;
        }
        let place = id - self.lowest;
        if place >= SPAN_MAX {
            return false;
        }
        let place = place as usize;
        if place >= self.table.len() {
            self.table.resize(place + 1, NONE);
        }
        if let Some(slot) = self.table.get_mut(place) {
            *slot = event;
        }
        true
    }

    /// Returns the index of the event.
    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<usize> {
        if self.table.is_empty() {
            return self.all.get(&id).map(|event| *event as usize);
        }
        let place = usize::try_from(id.wrapping_sub(self.lowest)).ok()?;
        let event = self.table.get(place).copied();
        event
            .filter(|&event| event != NONE)
            .map(|event| event as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ids: &[u64], has_table: bool) {
        let mut table = Ids::default();
        for (event, id) in ids.iter().enumerate() {
            table.insert(*id, event);
            table.insert(*id, 99);
        }
        for (event, id) in ids.iter().enumerate() {
            assert_eq!(table.get(*id), Some(event), "{id}");
            assert_eq!(table.get(id ^ 0x4000), None, "{id}");
        }
        assert_eq!(!table.table.is_empty(), has_table);
    }

    #[test]
    fn near_and_far() {
        check(&[], false);
        check(&[5], true);
        check(&[5, 9, 3, 4], true);
        check(&[5, u64::MAX], false);
        check(&[u64::MAX, 0], false);
        check(&[1 << 17, 1], false);
        check(&[(1 << 16) + 2, 3], true);
    }
}
