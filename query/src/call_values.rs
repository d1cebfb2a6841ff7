//! A value per call, indexed by call ID.

use perfquet::{Session, Trace, TraceTable};
use std::collections::HashMap;

/// Values of the calls of one trace.
#[derive(Debug, Default)]
pub(crate) struct CallValues {
    /// Call IDs begin at 1 and have few gaps.
    dense: Vec<u32>,
    /// IDs beyond those of a genuine file.
    sparse: HashMap<i64, u32>,
    most: usize,
    /// Offset of this trace's call IDs.
    base: i64,
}

/// No call has this value.
const NOWHERE: u32 = u32::MAX;

impl CallValues {
    /// One per trace.
    pub(crate) fn for_calls(session: &Session) -> Vec<CallValues> {
        let rows = |trace: &Trace| trace.table("calls").map_or(0, TraceTable::rows) as usize;
        let each = session.traces().iter().map(|trace| CallValues {
            base: trace.id_offset,
            ..CallValues::below(rows(trace).saturating_mul(2).saturating_add(1024))
        });
        each.collect()
    }

    /// For call IDs mostly below `most`.
    pub(crate) fn below(most: usize) -> CallValues {
        CallValues {
            most,
            ..CallValues::default()
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: i64) -> Option<u32> {
        let dense = usize::try_from(id.wrapping_sub(self.base))
            .ok()
            .and_then(|id| self.dense.get(id).copied());
        match dense {
            Some(NOWHERE) => None,
            Some(value) => Some(value),
            None => self.sparse.get(&id).copied(),
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, id: i64, value: u32) {
        match usize::try_from(id.wrapping_sub(self.base)) {
            Ok(id) if id < self.most => {
                if id >= self.dense.len() {
                    let length = (id + 1).max(self.dense.len() * 2).min(self.most);
                    self.dense.resize(length, NOWHERE);
                }
                self.dense[id] = value;
            }
            _ => {
                self.sparse.insert(id, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_place() {
        let mut places = CallValues::below(100);
        for id in [1, 99, 100, 50, i64::MAX, -1] {
            assert_eq!(places.get(id), None);
            places.set(id, id as u32 & 0xff);
            assert_eq!(places.get(id), Some(id as u32 & 0xff));
        }
        assert_eq!(places.get(2), None);
    }

    #[test]
    fn ids_of_later_traces_are_dense() {
        let mut places = CallValues {
            base: 1_000_000_000_000,
            ..CallValues::below(100)
        };
        places.set(1_000_000_000_007, 3);
        assert_eq!(places.get(1_000_000_000_007), Some(3));
        assert_eq!(places.get(7), None);
        assert!(places.sparse.is_empty());
    }
}
