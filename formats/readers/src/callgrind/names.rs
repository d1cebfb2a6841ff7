//! Compressed names: `(5) main` defines a number, `(5)` stands for the name.

use hashbrown::HashMap;

use crate::lines::unsigned;

/// Numbers of one kind.
const NAMES_MAX: usize = 1 << 22;

/// Names by number, of one kind: objects, files or functions.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    known: HashMap<u64, &'a [u8]>,
}

impl<'a> Names<'a> {
    /// The name that a text gives; `None` if its number was not defined. `???` is unknown, and empty.
    pub(super) fn name(&mut self, text: &'a [u8]) -> Option<&'a [u8]> {
        let Some((number, name)) = numbered(text) else {
            return Some(plain(text));
        };
        if name.is_empty() {
            return self.known.get(&number).copied();
        }
        if self.known.len() < NAMES_MAX {
            self.known.insert(number, plain(name));
        }
        Some(plain(name))
    }
}

fn plain(name: &[u8]) -> &[u8] {
    match name {
        b"???" => b"",
        name => name,
    }
}

/// The number, and the name after it. A name may itself begin with a bracket: `(below main)`.
fn numbered(text: &[u8]) -> Option<(u64, &[u8])> {
    let inner = text.strip_prefix(b"(")?;
    let end = inner.iter().position(|&byte| byte == b')')?;
    let number = unsigned(inner.get(..end)?)?;
    Some((number, inner.get(end + 1..)?.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept() {
        let mut names = Names::default();
        assert_eq!(names.name(b"(1) main"), Some(&b"main"[..]));
        assert_eq!(names.name(b"(1)"), Some(&b"main"[..]));
        assert_eq!(names.name(b"(2) (below main)"), Some(&b"(below main)"[..]));
        assert_eq!(names.name(b"(below main)"), Some(&b"(below main)"[..]));
        assert_eq!(names.name(b"???"), Some(&b""[..]));
        assert_eq!(names.name(b"(3)"), None);
        assert_eq!(names.name(b"(1) other"), Some(&b"other"[..]));
    }
}
