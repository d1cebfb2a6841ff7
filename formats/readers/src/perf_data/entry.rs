//! A queued record: its time and its location.

/// Location of a record: its source in the upper 16 bits, its offset in the lower 48.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location(pub(super) u64);

const OFFSET_BITS: u32 = 48;

impl Location {
    /// In a mapped file or a buffer.
    pub(super) fn mapped(source: u16, offset: u64) -> Location {
        Location(u64::from(source) << OFFSET_BITS | offset & ((1 << OFFSET_BITS) - 1))
    }

    /// In the queue's own memory, whose source number is `source`.
    pub(super) fn queued(source: u64, offset: u64) -> Location {
        Location(source << OFFSET_BITS | offset)
    }

    pub(super) fn source(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    /// Returns the offset in the source.
    pub(super) fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }
}

/// A waiting record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) time: u64,
    pub(super) location: Location,
}

/// Result of emitting a record.
pub(super) enum Step {
    /// The record is finished.
    Done,
    /// The record has to wait, and so do all newer ones.
    Hold,
}
