//! A walk, or a copy with its pieces, until its sample has been read. Its records stay in the bytes of the ring, of which a copy of a
//! deep stack has 160 KiB, as long as these are kept.

use perfquet_events::bytes::Endian;

use super::sample;

/// Payloads of the records of one walk.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Of records that are no longer in the bytes of the ring.
    kept: Vec<u8>,
    /// In the bytes of the ring, in place of these: nearly always the only one.
    first: (usize, usize),
    /// In the bytes of the ring, after either.
    pieces: Vec<(usize, usize)>,
}

impl Held {
    /// A walk whose first record has this payload.
    pub(super) fn new(range: (usize, usize)) -> Held {
        Held {
            kept: Vec::new(),
            first: range,
            pieces: Vec::new(),
        }
    }

    /// Adds a piece of a copy.
    pub(super) fn add(&mut self, range: (usize, usize)) {
        self.pieces.push(range);
    }

    /// The kind of its first record.
    pub(super) fn kind(&self, bytes: &[u8]) -> Option<u32> {
        Endian::Little.u32_at(self.first(bytes), 0)
    }

    /// The payload with all pieces, put together in `room` if there are any.
    pub(super) fn whole<'a>(&'a self, bytes: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
        let first = self.first(bytes);
        if self.pieces.is_empty() {
            return first;
        }
        room.clear();
        room.extend_from_slice(first);
        for piece in &self.pieces {
            sample::add_piece(room, part(bytes, *piece));
        }
        room
    }

    /// Keeps what is in the bytes of the ring, which are about to be removed.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        if self.kept.is_empty() || !self.pieces.is_empty() {
            let mut room = Vec::new();
            self.kept = self.whole(bytes, &mut room).to_vec();
            self.first = (0, 0);
            self.pieces.clear();
        }
    }

    fn first<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        match self.kept.is_empty() {
            true => part(bytes, self.first),
            false => &self.kept,
        }
    }
}

fn part(bytes: &[u8], (from, to): (usize, usize)) -> &[u8] {
    bytes.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_the_same_before_and_after_its_bytes_are_removed() {
        let bytes: Vec<u8> = (0..40).collect();
        let room = &mut Vec::new();
        let mut held = Held::new((4, 12));
        assert_eq!(held.whole(&bytes, room), &bytes[4..12]);
        assert_eq!(held.kind(&bytes), Some(0x0706_0504));
        held.keep(&bytes);
        assert_eq!(held.whole(&[], room), &bytes[4..12]);
        assert_eq!(held.kind(&[]), Some(0x0706_0504));
        // Pieces belong to copies only.
        held.add((0, 40));
        assert_eq!(held.whole(&bytes, room), &bytes[4..12]);
        assert_eq!(Held::new((30, 90)).whole(&bytes, room).len(), 0);
    }
}
