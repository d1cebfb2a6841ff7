//! Dictionaries of a chunk: each distinct value once, in the order of first use.
//!
//! Integers (and the bits of floating-point numbers) are looked up by hash. If the values of a page are close together
//! (CPUs, threads, priorities), they are looked up by their distance from the smallest, which costs one load. Strings
//! come with their interner's IDs, which are only mapped to the smaller set in this chunk.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::store::intern::Entries;

/// Maximum number of entries: above it, keys are hardly smaller than the values.
pub(super) const MAX_ENTRIES: usize = 1 << 16;

/// Maximum size of the strings in a dictionary, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Maximum span of a page's values to look them up by their distance from the smallest.
const MAX_SPAN: u64 = 1 << 16;

const ABSENT: u32 = u32::MAX;

/// Distinct integers.
#[derive(Debug)]
pub(super) struct Integers {
    /// The values, by key.
    pub(super) values: Vec<u64>,
    /// Open addressing: keys, or `ABSENT`. A power of two, at most half full.
    slots: Vec<u32>,
    shift: u32,
    /// Odd and secret: an input cannot choose values that collide.
    multiplier: u64,
}

impl Integers {
    pub(super) fn new() -> Integers {
        let multiplier = RandomState::new().hash_one(0u8) | 1;
        Integers {
            values: Vec::new(),
            slots: Vec::new(),
            shift: 64,
            multiplier,
        }
    }

    /// Replaces `keys` by those of `values`, which are between `low` and `low + span`. Returns `false` if there are too
    /// many distinct ones; then the keys are invalid.
    pub(super) fn keys_of(
        &mut self,
        values: impl ExactSizeIterator<Item = u64>,
        low: u64,
        span: u64,
        near: &mut Vec<u32>,
        keys: &mut Vec<u32>,
    ) -> bool {
        let count = values.len();
        keys.clear();
        keys.resize(count, ABSENT);
        if span < MAX_SPAN && span / 4 <= count as u64 {
            near.clear();
            near.resize(span as usize + 1, ABSENT);
            for (key, value) in keys.iter_mut().zip(values) {
                let Some(place) = near.get_mut(value.wrapping_sub(low) as usize) else {
                    return false;
                };
                if *place == ABSENT {
                    *place = self.key_of(value);
                }
                *key = *place;
            }
        } else {
            for (key, value) in keys.iter_mut().zip(values) {
                *key = self.key_of(value);
                if *key as usize > MAX_ENTRIES {
                    return false;
                }
            }
        }
        self.values.len() <= MAX_ENTRIES
    }

    #[inline]
    fn key_of(&mut self, value: u64) -> u32 {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.start_of(value);
        while let Some(&key) = self.slots.get(at & mask)
            && key != ABSENT
        {
            if self.values.get(key as usize) == Some(&value) {
                return key;
            }
            at += 1;
        }
        self.add(value)
    }

    /// The slot at which the search for a value begins.
    #[inline]
    fn start_of(&self, value: u64) -> usize {
        (value.wrapping_mul(self.multiplier) >> (self.shift & 63)) as usize
    }

    /// Adds a value that is new.
    fn add(&mut self, value: u64) -> u32 {
        if self.values.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let key = self.values.len() as u32;
        self.values.push(value);
        self.place(key, value);
        key
    }

    fn place(&mut self, key: u32, value: u64) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.start_of(value);
        while let Some(slot) = self.slots.get_mut(at & mask) {
            if *slot == ABSENT {
                *slot = key;
                break;
            }
            at += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        self.shift = 64 - size.trailing_zeros();
        self.slots.clear();
        self.slots.resize(size, ABSENT);
        for key in 0..self.values.len() {
            if let Some(&value) = self.values.get(key) {
                self.place(key as u32, value);
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.values.capacity() * size_of::<u64>() + self.slots.len() * size_of::<u32>()
    }

    /// Forgets the values after the first `count`; lookups are no longer possible.
    pub(super) fn end(&mut self, count: usize) {
        self.values.truncate(count);
        self.slots = Vec::new();
    }
}

/// Distinct strings: IDs of the column's interner.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// The strings, by key.
    pub(super) entries: Entries,
    /// Key by ID, or `ABSENT`.
    keys: Vec<u32>,
    /// Keys by string, once IDs changed their meaning: the same strings come with other ones.
    by_text: Option<(HashTable<u32>, DefaultHashBuilder)>,
    /// The page in which each key was last used.
    pages: Vec<u32>,
    page: u32,
}

impl Texts {
    /// Replaces `keys` by those of `numbers`, and `used` by the distinct ones among them. Returns `false` if there are
    /// too many distinct ones.
    pub(super) fn keys_of(
        &mut self,
        numbers: &[u32],
        texts: &Entries,
        keys: &mut Vec<u32>,
        used: &mut Vec<u32>,
    ) -> bool {
        keys.clear();
        keys.resize(numbers.len(), ABSENT);
        used.clear();
        self.page += 1;
        if self.keys.len() < texts.len() {
            self.keys.resize(texts.len(), ABSENT);
        }
        for (place, &number) in keys.iter_mut().zip(numbers) {
            let mut key = self.keys.get(number as usize).copied().unwrap_or(ABSENT);
            if key == ABSENT {
                key = self.key_of(texts.get(number));
                if let Some(known) = self.keys.get_mut(number as usize) {
                    *known = key;
                }
            }
            if let Some(page) = self.pages.get_mut(key as usize)
                && *page != self.page
            {
                *page = self.page;
                used.push(key);
            }
            *place = key;
        }
        self.entries.len() <= MAX_ENTRIES && self.entries.bytes() <= MAX_BYTES
    }

    /// IDs mean other strings from here on.
    pub(super) fn restart(&mut self) {
        self.keys.clear();
        if self.by_text.is_none() {
            let (mut table, hasher) = (HashTable::new(), DefaultHashBuilder::default());
            for key in 0..self.entries.len() as u32 {
                let hash = hasher.hash_one(self.entries.get(key));
                let hash_of = |&key: &u32| hasher.hash_one(self.entries.get(key));
                table.insert_unique(hash, key, hash_of);
            }
            self.by_text = Some((table, hasher));
        }
    }

    /// The key of a string whose ID occurs for the first time.
    fn key_of(&mut self, text: &[u8]) -> u32 {
        let next = self.entries.len() as u32;
        if let Some((table, hasher)) = &mut self.by_text {
            let entries = &self.entries;
            let found = table.entry(
                hasher.hash_one(text),
                |&key| entries.get(key) == text,
                |&key| hasher.hash_one(entries.get(key)),
            );
            match found {
                Entry::Occupied(known) => return *known.get(),
                Entry::Vacant(free) => free.insert(next),
            };
        }
        self.entries.push(text);
        self.pages.push(0);
        next
    }

    pub(super) fn memory(&self) -> usize {
        self.entries.bytes() + (self.keys.len() + self.pages.len()) * size_of::<u32>()
    }

    /// Forgets the strings after the first `count`; lookups are no longer possible.
    pub(super) fn end(&mut self, count: usize) {
        self.entries.truncate(count);
        self.keys = Vec::new();
        self.pages = Vec::new();
        self.by_text = None;
    }
}
