//! Frames by their lines: a text has millions of them, and some thousands of distinct ones.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use perfquet_events::event::NamedFrame;

use super::frame;

/// Number of lines kept (a power of two), about 2 MB.
const SLOTS: usize = 1 << 14;

/// The latest line at each hash, parsed.
pub(super) struct KnownFrames<'a> {
    slots: Vec<Option<(&'a [u8], NamedFrame<'a>)>>,
    hasher: DefaultHashBuilder,
}

impl Default for KnownFrames<'_> {
    fn default() -> Self {
        KnownFrames {
            slots: vec![None; SLOTS],
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<'a> KnownFrames<'a> {
    /// The frame of a call chain in this line; `None` if it is not one.
    #[inline]
    pub(super) fn of(&mut self, line: &'a [u8]) -> Option<NamedFrame<'a>> {
        let place = self.hasher.hash_one(line) as usize % SLOTS;
        match self.slots.get(place) {
            Some(&Some((known, frame))) if known == line => Some(frame),
            _ => self.parse(line, place),
        }
    }

    #[cold]
    fn parse(&mut self, line: &'a [u8], place: usize) -> Option<NamedFrame<'a>> {
        let frame = frame::frame(line)?.in_chain();
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Some((line, frame));
        }
        Some(frame)
    }
}
