//! Copies of waiting records that are neither in a mapped file nor in a buffer: in memory, the older ones in an unlinked
//! temporary file if there are many.

use std::sync::Arc;

use perfquet_events::Error;
use perfquet_events::input::{Map, Spool};

/// Maximum number of bytes in memory; more go to a file.
const BYTES_MAX: usize = 64 << 20;

/// Copies of records, in memory and, if there are many, in a temporary file.
#[derive(Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    /// The copies before `bytes`.
    spool: Option<Spool>,
    pub(super) temporary_bytes_max: u64,
}

pub(super) struct ArenaView<'a> {
    spooled: Option<Arc<Map>>,
    bytes: &'a [u8],
}

impl ArenaView<'_> {
    #[inline]
    pub(super) fn from(&self, offset: u64) -> Option<&[u8]> {
        match &self.spooled {
            None => self.bytes.get(offset as usize..),
            Some(map) if (offset as usize) < map.len() => map.get(offset as usize..),
            Some(map) => self.bytes.get(offset as usize - map.len()..),
        }
    }
}

impl Arena {
    pub(super) fn new(temporary_bytes_max: u64) -> Arena {
        Arena {
            temporary_bytes_max,
            ..Arena::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.spool.is_none()
    }

    /// Stores a copy; returns its offset.
    #[inline]
    pub(super) fn push(&mut self, record: &[u8]) -> Result<u64, Error> {
        if self.bytes.len() + record.len() > BYTES_MAX {
            self.spill()?;
        }
        let offset = self.spool.as_ref().map_or(0, Spool::size_bytes) + self.bytes.len() as u64;
        self.bytes.extend_from_slice(record);
        Ok(offset)
    }

    #[cold]
    pub(super) fn spill(&mut self) -> Result<(), Error> {
        let spool = match &mut self.spool {
            Some(spool) => spool,
            none => none.insert(Spool::new(self.temporary_bytes_max)?),
        };
        spool.append(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    pub(super) fn view(&self) -> Result<ArenaView<'_>, Error> {
        Ok(ArenaView {
            spooled: match &self.spool {
                Some(spool) => spool.map()?,
                None => None,
            },
            bytes: &self.bytes,
        })
    }

    /// Returns an empty arena that reuses the memory.
    pub(super) fn emptied(mut self) -> Arena {
        self.bytes.clear();
        Arena {
            bytes: self.bytes,
            spool: None,
            ..self
        }
    }
}
