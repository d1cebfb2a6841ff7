//! Chains named by their format, found as a whole: samples repeat them.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use perfquet_events::event::NamedFrame;

use super::frames::append_frame;

/// Recent chains and the IDs of their stacks.
#[derive(Default)]
pub(super) struct NamedChains {
    /// All members of the frames of each chain, concatenated.
    bytes: Vec<u8>,
    chains: Vec<Known>,
    index: HashTable<u32>,
    /// The chain that is being looked up.
    wanted: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Known {
    start: usize,
    length: usize,
    stack: u32,
    /// The hash, to grow the table without reading the chains.
    hash: u64,
}

impl NamedChains {
    /// Looks a chain up. Returns its hash, and its stack if it is known.
    pub(super) fn find(
        &mut self,
        chain: &[NamedFrame<'_>],
        hasher: &DefaultHashBuilder,
    ) -> (u64, Option<u32>) {
        let wanted = &mut self.wanted;
        wanted.clear();
        for frame in chain {
            wanted.push((frame.space as u8) << 1 | u8::from(frame.inlined));
            append_frame(wanted, frame);
        }
        let hash = hasher.hash_one(&wanted[..]);
        let found = self.index.find(hash, |&index| {
            self.chains.get(index as usize).is_some_and(|known| {
                let bytes = self.bytes.get(known.start..known.start + known.length);
                known.hash == hash && bytes == Some(&self.wanted[..])
            })
        });
        let known = found.and_then(|&index| self.chains.get(index as usize));
        (hash, known.map(|known| known.stack))
    }

    /// Adds the chain that was looked up last; forgets all others if there would be more than `most` bytes.
    pub(super) fn insert(&mut self, hash: u64, stack: u32, most: usize) {
        if self.bytes.len() + self.wanted.len() > most {
            self.forget();
        }
        let known = Known {
            start: self.bytes.len(),
            length: self.wanted.len(),
            stack,
            hash,
        };
        self.bytes.extend_from_slice(&self.wanted);
        let (index, chains) = (self.chains.len() as u32, &self.chains);
        self.index.insert_unique(hash, index, |&index| {
            chains.get(index as usize).map_or(0, |known| known.hash)
        });
        self.chains.push(known);
    }

    /// Forgets all chains, but not the one that is being looked up.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
        self.chains.clear();
        self.index.clear();
    }
}
