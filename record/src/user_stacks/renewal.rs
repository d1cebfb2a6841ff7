//! Decides when the BPF program may copy more stacks. Copies wait in memory until they are unwound, so all CPUs share the memory
//! that is left.
//!
//! ```text
//! read 4 MiB, 20 MiB wait        32 - 20 MiB, for two CPUs: 6 MiB each
//! read 4 MiB, 30 MiB wait        later: for 50 ms after a renewal, copies are not limited
//! ```

use perfquet_ebpf::walker::CopyRoom;
use perfquet_trace::symbols::limits::WAITING_BYTES_MAX;

/// Share of the room that may be used before it is renewed, which takes a system call per CPU.
const RENEWED_PART: u64 = 16;
/// If less is left, the room is not renewed.
const LEAST_LEFT_BYTES: u64 = 8 << 20;

/// State between two renewals of the room for copies.
pub(super) struct Renewal {
    /// Most bytes that a CPU may copy.
    room: CopyRoom,
    /// Whether there was no room for a copy.
    has_lacked_room: bool,
    /// Bytes read from the rings since the room was last renewed. Copies have used no more of the room than that.
    read_bytes: u64,
}

impl Renewal {
    pub(super) fn new(room: CopyRoom) -> Renewal {
        Renewal {
            room,
            has_lacked_room: false,
            read_bytes: 0,
        }
    }

    /// Notes whether there was room for a copy.
    pub(super) fn look(&mut self, has_lacked_room: bool) {
        self.has_lacked_room |= has_lacked_room;
    }

    /// Returns the room for copies of each of `cpus`, if it is to be renewed after these bytes were read, of which `waiting_bytes` are
    /// in memory.
    pub(super) fn after(
        &mut self,
        read_bytes: u64,
        waiting_bytes: u64,
        cpus: usize,
    ) -> Option<CopyRoom> {
        self.read_bytes += read_bytes;
        let left = WAITING_BYTES_MAX.saturating_sub(waiting_bytes);
        let is_due = self.has_lacked_room || self.read_bytes >= self.room.copies / RENEWED_PART;
        if left < LEAST_LEFT_BYTES || !is_due {
            return None;
        }
        self.has_lacked_room = false;
        self.read_bytes = 0;
        let share = left / cpus.max(1) as u64;
        Some(CopyRoom {
            copies: self.room.copies.min(share),
            pieces: self.room.pieces.min(share / 2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn renewal() -> Renewal {
        Renewal::new(CopyRoom {
            copies: 16 * MIB,
            pieces: 8 * MIB,
        })
    }

    fn room(renewal: &mut Renewal, read_bytes: u64, waiting_bytes: u64) -> Option<(u64, u64)> {
        let room = renewal.after(read_bytes, waiting_bytes, 2)?;
        Some((room.copies, room.pieces))
    }

    #[test]
    fn copies_share_what_is_left() {
        let mut renewal = renewal();
        assert_eq!(room(&mut renewal, 0, 0), None);
        assert_eq!(room(&mut renewal, MIB, 0), Some((16 * MIB, 8 * MIB)));
        assert_eq!(
            room(&mut renewal, 4 * MIB, 20 * MIB),
            Some((6 * MIB, 3 * MIB))
        );
        // What was read counts until the room is renewed.
        assert_eq!(room(&mut renewal, MIB, 30 * MIB), None);
        assert_eq!(room(&mut renewal, 0, 80 * MIB), None);
        assert_eq!(room(&mut renewal, 0, 8 * MIB), Some((12 * MIB, 6 * MIB)));
        assert_eq!(room(&mut renewal, 0, 8 * MIB), None);
    }

    #[test]
    fn a_copy_without_room_renews_it() {
        let mut renewal = renewal();
        renewal.look(true);
        renewal.look(false);
        assert_eq!(room(&mut renewal, 0, 60 * MIB), None);
        assert_eq!(room(&mut renewal, 0, 0), Some((16 * MIB, 8 * MIB)));
        assert_eq!(room(&mut renewal, 0, 0), None);
    }
}
