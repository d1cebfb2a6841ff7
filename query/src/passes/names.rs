//! Strings by number, for thread names, of which there are few.

use hashbrown::HashMap;

/// A string's number; 0 is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Name(u32);

/// Distinct strings.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
    bytes: usize,
}

impl Names {
    /// Returns the number of a string, mostly `last`.
    #[inline]
    pub(super) fn of(&mut self, text: Option<&str>, last: Name) -> Name {
        let Some(text) = text else {
            return Name::default();
        };
        if self.text(last) == Some(text) {
            return last;
        }
        self.intern(text)
    }

    fn intern(&mut self, text: &str) -> Name {
        if let Some(&number) = self.numbers.get(text) {
            return Name(number);
        }
        self.texts.push(text.into());
        let number = self.texts.len() as u32;
        self.numbers.insert(text.into(), number);
        self.bytes += 2 * text.len() + 64;
        Name(number)
    }

    /// Returns the string; `None` if unknown.
    #[inline]
    pub(super) fn text(&self, name: Name) -> Option<&str> {
        let place = (name.0 as usize).checked_sub(1)?;
        self.texts.get(place).map(|text| &**text)
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
