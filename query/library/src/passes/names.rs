//! Strings by number, for thread names, of which there are few.

use hashbrown::HashMap;

/// A string's number; 0 is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Name(u32);

impl Name {
    /// Returns the name, or another one if it is unknown.
    pub(super) fn or(self, other: Name) -> Name {
        match self.0 {
            0 => other,
            _ => self,
        }
    }
}

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
        match self.text(last) {
            Some(before) if is_same(before, text) => last,
            _ => self.intern(text),
        }
    }

    /// Replaces a name if the string is known.
    #[inline]
    pub(super) fn update(&mut self, name: &mut Name, text: Option<&str>) {
        if text.is_some() {
            *name = self.of(text, *name);
        }
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

/// Compares short strings by their first and last bytes, without a call of memcmp.
#[inline]
fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        8..=16 => {
            one.first_chunk::<8>() == other.first_chunk::<8>()
                && one.last_chunk::<8>() == other.last_chunk::<8>()
        }
        4..=7 => {
            one.first_chunk::<4>() == other.first_chunk::<4>()
                && one.last_chunk::<4>() == other.last_chunk::<4>()
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_any_length_differ_in_any_byte() {
        for length in 0..20 {
            let text = "abcdefghijklmnopqrst"[..length].to_owned();
            assert!(is_same(&text, &text));
            assert!(!is_same(&text, &format!("{text}x")));
            for place in 0..length {
                let mut other = text.clone();
                other.replace_range(place..=place, "X");
                assert!(!is_same(&text, &other), "{text} {other}");
            }
        }
    }

    #[test]
    fn an_unknown_string_does_not_replace_a_name() {
        let mut names = Names::default();
        let mut name = names.of(Some("sh"), Name::default());
        names.update(&mut name, None);
        assert_eq!(names.text(name), Some("sh"));
        names.update(&mut name, Some("ls"));
        assert_eq!(names.text(name), Some("ls"));
    }
}
