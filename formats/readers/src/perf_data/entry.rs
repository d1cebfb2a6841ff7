//! A record in the queue: its time, and where its bytes are.

/// Where a record is: its source in the upper 16 bits, its offset there in the lower 48.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location(pub(super) u64);

const OFFSET_BITS: u32 = 48;

impl Location {
    /// In a mapped file.
    pub(super) fn mapped(source: u16, offset: u64) -> Location {
        Location(u64::from(source) << OFFSET_BITS | offset & ((1 << OFFSET_BITS) - 1))
    }

    /// In the queue's own memory, which has the number `source`.
    pub(super) fn queued(source: u64, offset: u64) -> Location {
        Location(source << OFFSET_BITS | offset)
    }

    pub(super) fn source(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    /// Offset within the source.
    pub(super) fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }
}

/// A record that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) time: u64,
    pub(super) location: Location,
}

/// What became of a record that was handed out.
pub(super) enum Step {
    /// It is done with.
    Done,
    /// It has to wait, and all that are newer with it.
    Hold,
}
