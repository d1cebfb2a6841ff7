//! Buffers into which a stream is read. Records wait there for their turn, without being copied.
//!
//! ```text
//! buffer 7: record record … record rec│    buffer 8: record record … record │ free
//!                                  └── moved to the front of buffer 8
//! ```
//! A buffer is used again once no record waits in it. If records wait in too many of them, those in the older ones are
//! copied ([`Buffers::is_crowded`]).

use std::io::{self, Read};
use std::sync::Arc;

use perfquet_events::Input;

use crate::perf_data::entry::Location;

/// Size of a buffer, unless a single record needs more.
const BUFFER_BYTES: usize = 1 << 20;
/// Smallest part of a buffer that is read into.
const ROOM_BYTES: usize = 64 << 10;
/// Maximum number of buffers with waiting records.
const BUFFERS_MAX: usize = 16;

/// The buffers of a stream.
#[derive(Default)]
pub(super) struct Buffers {
    slots: Vec<Slot>,
    /// Number of buffers filled so far.
    count: u64,
}

#[derive(Default)]
struct Slot {
    /// `None` while the buffer is filled.
    bytes: Option<Arc<Vec<u8>>>,
    /// Place in the order of reading.
    number: u64,
    is_free: bool,
}

/// The buffer that is being filled.
#[derive(Default)]
pub(super) struct Front {
    slot: u16,
    bytes: Arc<Vec<u8>>,
    /// Number of bytes that were read.
    filled: usize,
    /// Number of them that were used.
    used: usize,
}

impl Front {
    /// Returns the number of the buffer, as in a [`Location`], and the bytes that were read.
    pub(super) fn read_bytes(&self) -> (u16, &[u8]) {
        let bytes = self.bytes.get(..self.filled).unwrap_or_default();
        (self.slot, bytes)
    }

    /// Returns the offset of the next unused byte in the buffer.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns the location of the record that begins with the next unused byte.
    pub(super) fn location(&self) -> Location {
        Location::mapped(self.slot, self.used as u64)
    }

    /// Returns the bytes that were read but not used.
    #[inline]
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.used..self.filled).unwrap_or_default()
    }

    /// Uses bytes, at most those that were read; returns their number.
    pub(super) fn consume(&mut self, count: usize) -> usize {
        let count = count.min(self.filled - self.used);
        self.used += count;
        count
    }

    /// Whether there is room to have this many unused bytes.
    pub(super) fn has_room(&self, count: usize) -> bool {
        let room = self.bytes.len() - self.filled;
        room >= ROOM_BYTES && self.used + count <= self.bytes.len()
    }
}

impl Buffers {
    /// Returns the bytes of a buffer.
    #[inline]
    pub(super) fn get(&self, slot: u64) -> Option<&[u8]> {
        let bytes = self.slots.get(slot as usize)?.bytes.as_ref()?;
        Some(bytes.as_slice())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether too many buffers are in use.
    pub(super) fn is_crowded(&self) -> bool {
        self.slots.iter().filter(|slot| !slot.is_free).count() > BUFFERS_MAX
    }

    /// Whether a buffer is one of the older half of those in use.
    pub(super) fn is_old(&self, slot: u64) -> bool {
        let slot = self.slots.get(slot as usize);
        slot.is_some_and(|slot| slot.number + BUFFERS_MAX as u64 / 2 < self.count)
    }

    /// Frees all buffers except that of `front` and those of the waiting records.
    pub(super) fn free_except(&mut self, front: &Front, waiting: impl Iterator<Item = Location>) {
        self.slots.iter_mut().for_each(|slot| slot.is_free = true);
        for slot in waiting.map(Location::source).chain([u64::from(front.slot)]) {
            if let Some(slot) = self.slots.get_mut(slot as usize) {
                slot.is_free = false;
            }
        }
    }

    /// Continues in a free buffer with room for this many unused bytes, and moves the unused bytes there.
    pub(super) fn turn_over(&mut self, front: &mut Front, count: usize) {
        let place = self.slots.iter().position(|slot| slot.is_free);
        let place = place.unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        self.count += 1;
        (slot.number, slot.is_free) = (self.count, false);
        let wanted = BUFFER_BYTES.max(count.max(front.rest().len()) + ROOM_BYTES);
        let mut bytes = match slot.bytes.take() {
            Some(bytes) if bytes.len() == wanted => bytes,
            _ => Arc::new(vec![0; wanted]),
        };
        let rest = front.rest();
        // Nobody else has a free buffer, so this copies nothing.
        if let Some(start) = Arc::make_mut(&mut bytes).get_mut(..rest.len()) {
            start.copy_from_slice(rest);
        }
        slot.bytes = Some(Arc::clone(&bytes));
        *front = Front {
            slot: u16::try_from(place).unwrap_or(u16::MAX),
            bytes,
            filled: rest.len(),
            used: 0,
        };
    }

    /// Reads further bytes into the buffer that is being filled; returns their number.
    pub(super) fn read(&mut self, front: &mut Front, input: &mut Input) -> io::Result<usize> {
        let slot = usize::from(front.slot);
        // Only `front` refers to the buffer now, so `make_mut` copies nothing.
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.bytes = None;
        }
        let room = Arc::make_mut(&mut front.bytes).get_mut(front.filled..);
        let result = input.read(room.unwrap_or_default());
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.bytes = Some(Arc::clone(&front.bytes));
        }
        let count = result?;
        front.filled += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use perfquet_events::bytes::Endian;

    use super::*;
    use crate::perf_data::entry::Step;
    use crate::perf_data::order::Queue;

    const RECORD_BYTES: usize = 1008;
    const RECORDS: u64 = 40_000;

    /// Reads 38 MiB, and emits all waiting records whenever there are `waiting_max` of them. Returns the number of buffers.
    fn read(waiting_max: u64) -> usize {
        let bytes: Vec<u8> = (0..RECORDS)
            .flat_map(|number| {
                let mut record = [number as u8; RECORD_BYTES];
                record[..8].copy_from_slice(&((RECORD_BYTES as u64) << 48 | 9).to_le_bytes());
                record[8..16].copy_from_slice(&number.to_le_bytes());
                record
            })
            .collect();
        let mut input = Input::from_bytes("test", &bytes).unwrap();
        let mut queue = Queue::new(Vec::new(), Endian::Little);
        let mut front = Front::default();
        let (mut read, mut emitted) = (0, 0);
        let mut emit = |queue: &mut Queue<'_>| {
            let mut check = |_, record: &[u8], _| {
                assert_eq!(Endian::Little.u64_at(record, 8), Some(emitted));
                assert!(record[16..].iter().all(|&byte| byte == emitted as u8));
                emitted += 1;
                Ok(Step::Done)
            };
            queue.flush(u64::MAX, &mut check).unwrap();
        };
        loop {
            while front.rest().len() >= RECORD_BYTES {
                queue.push(read, front.location(), RECORD_BYTES).unwrap();
                front.consume(RECORD_BYTES);
                read += 1;
                if queue.len() >= waiting_max {
                    emit(&mut queue);
                }
            }
            if !front.has_room(RECORD_BYTES) {
                queue.turn_over(&mut front, RECORD_BYTES).unwrap();
            }
            if queue.buffers.read(&mut front, &mut input).unwrap() == 0 {
                break;
            }
        }
        emit(&mut queue);
        assert_eq!((read, emitted), (RECORDS, RECORDS));
        queue.buffers.slots.len()
    }

    #[test]
    fn buffers_are_used_again() {
        assert_eq!(read(1), 2);
        assert_eq!(read(2000), 3);
    }

    #[test]
    fn records_in_too_many_buffers_are_copied() {
        assert_eq!(read(u64::MAX), BUFFERS_MAX + 1);
    }

    #[test]
    fn a_record_may_be_larger_than_a_buffer() {
        let mut input = Input::from_bytes("test", &[7; 3 * BUFFER_BYTES]).unwrap();
        let (mut buffers, mut front) = (Buffers::default(), Front::default());
        for wanted in [1, 2 * BUFFER_BYTES] {
            while front.rest().len() < wanted {
                if !front.has_room(wanted) {
                    buffers.turn_over(&mut front, wanted);
                }
                assert!(buffers.read(&mut front, &mut input).unwrap() > 0);
            }
        }
        assert!(front.rest().iter().all(|&byte| byte == 7));
    }
}
