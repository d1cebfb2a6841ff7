//! Finds the IDs of short strings without hashing or comparing bytes: names of threads have at most 15.
//!
//! ```text
//! "kworker/0:1" → its first 8 bytes, its last 8 bytes, its length → one of 256 slots → ID 7, or absent
//! ```
//! Two integers and the length identify a string of up to 16 bytes. A slot's earlier string is overwritten, so this is
//! a cache in front of the interner, not a replacement.

use perfquet_events::bytes::Endian;

/// Number of slots: 8 KiB, allocated once a column has had many lookups.
const PLACES: usize = 256;

/// A string of up to 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Short {
    front: u64,
    back: u64,
    length: u32,
}

impl Short {
    /// `None` if it is longer.
    #[inline]
    pub(super) fn new(text: &[u8]) -> Option<Short> {
        let (front, back) = match text.len() {
            8..=16 => (
                Endian::Little.u64(*text.first_chunk()?),
                Endian::Little.u64(*text.last_chunk()?),
            ),
            4..=7 => (
                Endian::Little.u32(*text.first_chunk()?).into(),
                Endian::Little.u32(*text.last_chunk()?).into(),
            ),
            2..=3 => (
                Endian::Little.u16(*text.first_chunk()?).into(),
                Endian::Little.u16(*text.last_chunk()?).into(),
            ),
            1 => (u64::from(*text.first()?), 0),
            0 => (0, 0),
            _ => return None,
        };
        Some(Short {
            front,
            back,
            length: text.len() as u32,
        })
    }

    #[inline]
    fn place(self) -> usize {
        let mixed = self.front ^ self.back.rotate_left(29) ^ u64::from(self.length);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros())) as usize
    }
}

/// The IDs of recent short strings.
#[derive(Debug)]
pub(super) struct Recent {
    places: Box<[Option<(Short, u32)>]>,
}

impl Recent {
    pub(super) fn new() -> Recent {
        Recent {
            places: vec![None; PLACES].into_boxed_slice(),
        }
    }

    #[inline]
    pub(super) fn get(&self, text: Short) -> Option<u32> {
        match self.places.get(text.place()) {
            Some(Some((known, number))) if *known == text => Some(*number),
            _ => None,
        }
    }

    pub(super) fn set(&mut self, text: Short, number: u32) {
        if let Some(place) = self.places.get_mut(text.place()) {
            *place = Some((text, number));
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.len() * size_of::<Option<(Short, u32)>>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_equal_exactly_if_the_texts_are(
            a in prop::collection::vec(0..3u8, 0..18),
            b in prop::collection::vec(0..3u8, 0..18),
        ) {
            let (short_a, short_b) = (Short::new(&a), Short::new(&b));
            prop_assert_eq!(short_a.is_some(), a.len() <= 16);
            if short_a.is_some() && short_b.is_some() {
                prop_assert_eq!(short_a == short_b, a == b);
            }
        }
    }

    #[test]
    fn finds_a_cached_string_or_nothing() {
        let mut recent = Recent::new();
        let mut all = HashMap::new();
        for number in 0..2000 {
            let text = format!("worker/{}", number % 700);
            let short = Short::new(text.as_bytes()).unwrap();
            recent.set(short, number);
            all.insert(text, number);
        }
        let found = all
            .iter()
            .filter_map(|(text, &number)| {
                let found = recent.get(Short::new(text.as_bytes()).unwrap())?;
                assert_eq!(found, number, "{text}");
                Some(found)
            })
            .count();
        assert!(found > 200, "{found}");
    }
}
