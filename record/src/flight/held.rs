//! The contents of a snapshot.

use std::io;
use std::sync::Arc;

use super::memory::Pieces;
use crate::journal::Journal;

/// Everything that a trace consists of, at one moment.
pub(crate) struct Held {
    /// Facts, events, formats.
    pub(super) head: Arc<Vec<u8>>,
    /// Thread names, forks and mappings.
    pub(super) side_band: Vec<u8>,
    pub(super) events: Pieces,
    /// When it was recorded.
    pub(super) recorded: Vec<u8>,
}

impl Held {
    /// Writes it as a journal.
    pub(super) fn write_to(&self, journal: &mut Journal) -> io::Result<()> {
        // No round is ever closed: process records come first, though it is younger than the events.
        journal.append(&self.head)?;
        journal.append(&self.side_band)?;
        journal.append(&self.recorded)?;
        self.events.write_to(journal)
    }
}
