//! Blocks of files that were read, kept for the queries that follow: small files whole, and of large ones what was read in order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use object_store::path::Path;
use tokio::sync::OnceCell;

/// Maximum size of all blocks that are kept.
const MOST: u64 = 64 << 20;

/// A block of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) file: Path,
    pub(crate) start: u64,
}

/// A block, which the first that needs it reads.
pub(crate) type Block = Arc<OnceCell<Bytes>>;

#[derive(Debug, Default)]
pub(crate) struct Blocks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: HashMap<Key, Block>,
    /// From the oldest, with their sizes.
    order: VecDeque<(Key, u64)>,
    bytes: u64,
}

impl Blocks {
    /// The block of this size; the oldest others are dropped for it.
    pub(crate) fn block(&self, key: Key, bytes: u64) -> Block {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = state.known.get(&key) {
            return Arc::clone(known);
        }
        while state.bytes.saturating_add(bytes) > MOST
            && let Some((oldest, size)) = state.order.pop_front()
        {
            state.known.remove(&oldest);
            state.bytes = state.bytes.saturating_sub(size);
        }
        let block = Block::default();
        state.known.insert(key.clone(), Arc::clone(&block));
        state.order.push_back((key, bytes));
        state.bytes = state.bytes.saturating_add(bytes);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_blocks_are_dropped() {
        let blocks = Blocks::default();
        let key = |start| Key {
            file: Path::from("a"),
            start,
        };
        let first = blocks.block(key(0), MOST / 2);
        assert!(Arc::ptr_eq(&first, &blocks.block(key(0), MOST / 2)));
        blocks.block(key(1), MOST / 2);
        blocks.block(key(2), 1);
        assert!(!Arc::ptr_eq(&first, &blocks.block(key(0), MOST / 2)));
        // One that is larger than all is still read.
        blocks.block(key(3), MOST * 2);
    }
}
