//! The distinct strings of a column, numbered in the order of their first use.
//!
//! ```text
//! push "swapper" → 0   push "bash" → 1   push "swapper" → 0
//! ```
//! Rows keep the IDs, down to the dictionary page: a string is hashed once, when it is pushed, and not at all if it
//! equals the previous one. The encoder has a copy of the entries; each batch brings the new ones.

use std::hash::BuildHasher as _;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::short::{Recent, Short};

/// Above this many entries, or bytes in them, IDs restart with the next batch: a column whose strings rarely repeat
/// must not keep all of them.
const MAX_ENTRIES: usize = 1 << 16;
const MAX_BYTES: usize = 4 << 20;

/// Number of lookups after which recent short strings are cached.
const MANY: u32 = 4096;

/// Concatenated strings.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Entries {
    /// Appends a string.
    pub(super) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// Appends all of `others`.
    pub(super) fn append(&mut self, others: &Entries) {
        let shift = self.bytes.len();
        self.bytes.extend_from_slice(&others.bytes);
        self.ends.extend(others.ends.iter().map(|end| end + shift));
    }

    /// The string with this ID; empty if there is none.
    #[inline]
    pub(super) fn get(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = match number.checked_sub(1) {
            Some(before) => self.ends.get(before),
            None => Some(&0),
        };
        match (start, self.ends.get(number)) {
            (Some(&start), Some(&end)) => self.bytes.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Number of strings.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Memory of the strings.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    fn from(&self, first: usize) -> Entries {
        let start = match first.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
            None => 0,
        };
        let ends = self.ends.get(first..).unwrap_or_default();
        Entries {
            bytes: self.bytes.get(start..).unwrap_or_default().to_vec(),
            ends: ends.iter().map(|end| end - start).collect(),
        }
    }

    /// Forgets the strings after the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }
}

/// The strings that come with a batch's IDs.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Entries that were not passed on yet.
    pub(super) fresh: Entries,
    /// Whether IDs mean other strings than in the batch before.
    pub(super) begins: bool,
    /// Whether IDs mean other strings in the next batch.
    pub(super) ends: bool,
}

/// Gives equal strings equal IDs.
#[derive(Debug, Default)]
pub(super) struct Interner {
    entries: Entries,
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
    last: u32,
    /// Created after `MANY` lookups: most tables of a trace have few rows.
    recent: Option<Recent>,
    looked_up: u32,
    /// Number of entries that the encoder has.
    handed: usize,
    /// Whether the entries restarted after the last batch.
    restarted: bool,
    /// The IDs of strings that come by number, and whose numbers these are.
    named: Vec<u32>,
    names: u64,
}

/// No ID.
const UNNAMED: u32 = u32::MAX;

impl Interner {
    /// The ID of `text` if it equals the last string, or is a recent short one.
    #[inline]
    pub(super) fn recent(&self, text: &[u8]) -> Option<u32> {
        match (&self.recent, Short::new(text)) {
            (Some(recent), Some(short)) => recent.get(short),
            // A missing entry reads as an empty string too.
            _ => {
                (self.entries.get(self.last) == text && self.entries.len() > 0).then_some(self.last)
            }
        }
    }

    /// The ID of `text`, and the memory used if it is new.
    #[inline]
    pub(super) fn intern(&mut self, text: &[u8]) -> (u32, usize) {
        match self.recent(text) {
            Some(number) => (number, 0),
            None => self.look_up(text),
        }
    }

    /// The ID of `text`, if it has one.
    pub(super) fn find(&mut self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        let number = *self
            .numbers
            .find(hash, |&number| self.entries.get(number) == text)?;
        self.last = number;
        Some(number)
    }

    fn look_up(&mut self, text: &[u8]) -> (u32, usize) {
        let Interner {
            entries,
            numbers,
            hasher,
            ..
        } = self;
        let found = numbers.entry(
            hasher.hash_one(text),
            |&number| entries.get(number) == text,
            |&number| hasher.hash_one(entries.get(number)),
        );
        let (number, grown) = match found {
            Entry::Occupied(found) => (*found.get(), 0),
            Entry::Vacant(free) => {
                let number = entries.len() as u32;
                free.insert(number);
                entries.push(text);
                let place = size_of::<usize>() + 2 * size_of::<u32>();
                (number, text.len() + place)
            }
        };
        (number, grown + self.remember(text, number))
    }

    /// Caches `text`. Returns the memory used.
    fn remember(&mut self, text: &[u8], number: u32) -> usize {
        self.last = number;
        self.looked_up = self.looked_up.saturating_add(1);
        let mut grown = 0;
        if self.looked_up == MANY {
            grown = self.recent.insert(Recent::new()).bytes();
        }
        if let (Some(recent), Some(short)) = (&mut self.recent, Short::new(text)) {
            recent.set(short, number);
        }
        grown
    }

    /// Batches with other IDs were written before.
    pub(super) fn follow(&mut self) {
        self.restarted = true;
    }

    /// Sets the list of names to which the numbers of later strings refer.
    pub(super) fn name_by(&mut self, names: u64) {
        if self.names != names {
            self.names = names;
            self.named.clear();
        }
    }

    /// The ID of the string with a number, if it is known.
    #[inline]
    pub(super) fn named(&self, number: u32) -> Option<u32> {
        let id = self.named.get(number as usize).copied();
        id.filter(|&id| id != UNNAMED)
    }

    /// Remembers the ID of the string with a number. Returns the memory that this took.
    pub(super) fn set_named(&mut self, number: u32, id: u32) -> usize {
        let before = self.named.len();
        let number = number as usize;
        if number >= before {
            self.named.resize(number + 1, UNNAMED);
        }
        if let Some(place) = self.named.get_mut(number) {
            *place = id;
        }
        (self.named.len() - before) * size_of::<u32>()
    }

    /// The entries that the encoder lacks. IDs restart after them if there are too many, or if the memory is needed.
    pub(super) fn hand_over(&mut self, forget: bool) -> Handed {
        let fresh = self.entries.from(self.handed);
        let begins = std::mem::take(&mut self.restarted);
        let ends = forget || self.entries.len() >= MAX_ENTRIES || self.entries.bytes() >= MAX_BYTES;
        if ends {
            self.entries = Entries::default();
            self.numbers = HashTable::new();
            self.recent = None;
            self.looked_up = 0;
            self.last = 0;
            self.named = Vec::new();
            self.restarted = true;
        }
        self.handed = self.entries.len();
        Handed {
            fresh,
            begins,
            ends,
        }
    }

    /// Memory that stays with the column after a batch was passed on.
    pub(super) fn bytes(&self) -> usize {
        let recent = self.recent.as_ref().map_or(0, Recent::bytes);
        self.entries.bytes()
            + self.numbers.capacity() * 2 * size_of::<u32>()
            + self.named.len() * size_of::<u32>()
            + recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_texts_alike() {
        let mut interner = Interner::default();
        let texts: [&[u8]; 6] = [b"", b"a", b"a", b"", b"bc", b"a"];
        let numbers: Vec<u32> = texts.iter().map(|text| interner.intern(text).0).collect();
        assert_eq!(numbers, [0, 1, 1, 0, 2, 1]);
        let handed = interner.hand_over(false);
        assert!(!handed.begins && !handed.ends);
        assert_eq!(handed.fresh.get(2), b"bc");
        assert_eq!(interner.intern(b"d").0, 3);
        let Handed {
            fresh,
            begins,
            ends,
        } = interner.hand_over(true);
        assert_eq!((fresh.len(), fresh.get(0)), (1, &b"d"[..]));
        assert!(!begins && ends);
        assert_eq!(interner.bytes(), 0);
    }

    #[test]
    fn restarts_if_strings_rarely_repeat() {
        let mut interner = Interner::default();
        for number in 0..=MAX_ENTRIES {
            interner.intern(number.to_string().as_bytes());
        }
        assert_eq!(interner.hand_over(false).fresh.len(), MAX_ENTRIES + 1);
        assert_eq!(interner.intern(b"").0, 0);
        assert_eq!(interner.intern(b"x").0, 1);
        let handed = interner.hand_over(false);
        assert!(handed.begins && !handed.ends);
        assert_eq!((handed.fresh.len(), handed.fresh.get(1)), (2, &b"x"[..]));
    }
}
