//! Byte strings, each kept once and referenced by ID.
//!
//! Names of threads, modules and functions come by the million, but only hundreds are distinct: each thread, mapping or
//! frame keeps four bytes.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use perfquet_events::scan::same;

use crate::store::Names;

/// ID of a string in its [`Texts`], from 0 in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TextId(pub(crate) u32);

/// The strings.
#[derive(Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    /// End of each string in `bytes`; it begins at the end of the previous string.
    ends: Vec<usize>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Texts {
    /// The ID of `text`, which is added if it is new.
    pub(crate) fn intern(&mut self, text: &[u8]) -> TextId {
        let hash = self.hasher.hash_one(text);
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        let known = self
            .ids
            .find(hash, |&id| same(text_of(bytes, ends, id), text));
        if let Some(&id) = known {
            return TextId(id);
        }
        let id = self.ends.len() as u32;
        self.ids
            .insert_unique(hash, id, |&id| hasher.hash_one(text_of(bytes, ends, id)));
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
        TextId(id)
    }

    /// The string with an ID; empty for an unknown ID.
    pub(crate) fn get(&self, id: TextId) -> &[u8] {
        text_of(&self.bytes, &self.ends, id.0)
    }

    /// Bytes of all strings, including their overhead.
    pub(crate) fn bytes(&self) -> usize {
        const BESIDE: usize = 16;
        self.bytes.len() + self.ends.len() * BESIDE
    }

    /// Number of strings.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// Strings that the encoder's thread needs too.
#[derive(Default)]
pub(crate) struct SharedTexts {
    texts: Texts,
    names: Names,
}

impl SharedTexts {
    /// The ID of `text`, which is added if it is new.
    pub(crate) fn intern(&mut self, text: &[u8]) -> TextId {
        let known = self.texts.len();
        let id = self.texts.intern(text);
        if id.0 as usize == known {
            self.names.push(text);
        }
        id
    }

    /// The string with an ID; empty for an unknown ID.
    #[inline]
    pub(crate) fn get(&self, id: TextId) -> &[u8] {
        self.texts.get(id)
    }

    /// Bytes of all strings, including their overhead, in both copies.
    pub(crate) fn bytes(&self) -> usize {
        2 * self.texts.bytes()
    }

    /// The strings by the same IDs, for another thread.
    #[inline]
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }
}

fn text_of<'a>(bytes: &'a [u8], ends: &[usize], id: u32) -> &'a [u8] {
    let index = id as usize;
    let end = ends.get(index).copied().unwrap_or(0);
    let start = index
        .checked_sub(1)
        .and_then(|before| ends.get(before).copied())
        .unwrap_or(0);
    bytes.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_each_text_once() {
        let mut texts = Texts::default();
        let ids: Vec<u32> = ["a", "", "bc", "a", "bc", ""]
            .iter()
            .map(|text| texts.intern(text.as_bytes()).0)
            .collect();
        assert_eq!(ids, [0, 1, 2, 0, 2, 1]);
        assert_eq!(texts.len(), 3);
        assert_eq!(texts.get(TextId(2)), b"bc");
        assert_eq!(texts.get(TextId(1)), b"");
        assert_eq!(texts.get(TextId(9)), b"");
        for number in 0..10_000 {
            texts.intern(format!("{number}").as_bytes());
        }
        assert_eq!(texts.intern(b"bc"), TextId(2));
    }
}
