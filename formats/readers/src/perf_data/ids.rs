//! Which event an id belongs to: looked up for each record of a file with several events, and twice.
//!
//! The kernel numbers its counters one by one, so the ids of a recording lie close together: a table indexed by
//! their distance from the lowest serves almost every file. Ids from anywhere are kept hashed.

use hashbrown::HashMap;

/// Largest distance that the table spans.
const SPAN_MAX: u64 = 1 << 16;
/// No event.
const NONE: u32 = u32::MAX;

/// Ids of counters, with the number of their event.
#[derive(Debug, Default)]
pub(super) struct Ids {
    all: HashMap<u64, u32>,
    lowest: u64,
    /// By distance from the lowest; empty if the ids lie too far apart.
    table: Vec<u32>,
}

impl Ids {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Remembers whose an id is. Who told it first is right: attrs come before descriptions.
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

    /// Puts it into the table; `false`: it lies too far away.
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

    /// The event's number.
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
