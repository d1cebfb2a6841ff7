//! Names for aggregations and filters, and the locations of their values.

use perfquet_ebpf::layout::{
    Fetch, MOST_SAVED, MOST_TEXTS, Saved, SavedValue, Saving, Subject, Value,
};

use super::super::plan::{Key, Located};
use super::fetch::{self, Fetched};
use crate::failure::{Failure, misuse};
use crate::probe::Probe;

/// Names of key parts that every probe has.
const BUILT_IN: &[(&str, &[Key])] = &[
    ("comm", &[Key::Comm]),
    ("pid", &[Key::Process]),
    ("tid", &[Key::Thread]),
    ("cpu", &[Key::Cpu]),
    ("probe", &[Key::Probe]),
    ("function", &[Key::Probe]),
    ("stack", &[Key::KernelStack, Key::UserStack]),
    ("kstack", &[Key::KernelStack]),
    ("ustack", &[Key::UserStack]),
];

/// Names that every probe has in filters in addition to its fields, including the kernel's names.
const SUBJECTS: &[(&str, Subject)] = &[
    ("COMM", Subject::Comm),
    ("comm", Subject::Comm),
    ("CPU", Subject::Cpu),
    ("cpu", Subject::Cpu),
    ("common_pid", Subject::Thread),
    ("tid", Subject::Thread),
];

/// A value that every probe has.
const RUNQUEUE: &str = "runqueue";

/// Returns the key parts of a name that every probe has.
pub(super) fn built_in(name: &str) -> Option<&'static [Key]> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

/// Returns the filter subject of a name that every probe has.
pub(super) fn subject(name: &str) -> Option<Subject> {
    let found = SUBJECTS.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

/// A named value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bpf) enum Found {
    /// A number with its width and sign, as in the last step of a fetch.
    Number(Located, Fetch),
    /// A string.
    Text {
        /// The location of the string.
        at: Located,
        /// Of at most 16 bytes.
        is_short: bool,
    },
    /// Name of the thread at the hit or the end.
    Comm,
}

impl Found {
    /// Returns a measured time in nanoseconds.
    pub(in crate::bpf) fn measured(value: Value) -> Found {
        let width = Fetch {
            size: 8,
            ..Fetch::default()
        };
        Found::Number(Located::Measured(value), width)
    }

    /// Returns a value fetched at the hit or the end.
    pub(in crate::bpf) fn fetched(fetched: Fetched) -> Found {
        match fetched {
            Fetched::Number(fetch) => Found::Number(Located::Fetched(fetch), fetch),
            Fetched::Text { fetch, is_short } => Found::Text {
                at: Located::Fetched(fetch),
                is_short,
            },
            Fetched::Comm => Found::Comm,
        }
    }
}

/// The names that one probe or function has.
pub(in crate::bpf) trait Fields {
    /// Finds the value `name`. `option` is the option that requests it, for messages.
    fn find(&mut self, option: &str, name: &str) -> Result<Found, Failure>;

    /// Returns the values to save at each start, for the names found.
    fn saved(&self) -> Vec<Saved>;
}

/// The names of a probe's hits.
#[derive(Clone)]
pub(super) struct HitFields<'a>(pub(super) &'a Probe);

impl Fields for HitFields<'_> {
    fn find(&mut self, option: &str, name: &str) -> Result<Found, Failure> {
        match fetch::of(option, self.0, name) {
            Err(_) if name == RUNQUEUE => Ok(Found::measured(Value::Runqueue)),
            fetched => fetched.map(Found::fetched),
        }
    }

    fn saved(&self) -> Vec<Saved> {
        Vec::new()
    }
}

/// Values to save at the start, each in a slot.
#[derive(Debug, Clone, Default)]
pub(in crate::bpf) struct Saver {
    saved: Saved,
    used: usize,
    texts: usize,
}

impl Saver {
    /// Finds a slot for a value; equal values share one.
    pub(in crate::bpf) fn save(&mut self, option: &str, value: Fetched) -> Result<Found, Failure> {
        let too_many = || {
            misuse(format!("{option}: too many values to save at the start"))
                .hint(format!("use at most {MOST_SAVED} numbers, of which thread names and short strings take two, and {MOST_TEXTS} long strings"))
        };
        let (saving, fetch) = match value {
            Fetched::Number(fetch) => (Saving::Number, fetch),
            Fetched::Text {
                fetch,
                is_short: true,
            } => (Saving::ShortText, fetch),
            Fetched::Comm => (Saving::Comm, Fetch::default()),
            Fetched::Text {
                fetch,
                is_short: false,
            } => {
                let known = self.saved.texts[..self.texts]
                    .iter()
                    .position(|text| *text == fetch);
                let place = known.unwrap_or(self.texts);
                *self.saved.texts.get_mut(place).ok_or_else(too_many)? = fetch;
                self.texts = self.texts.max(place + 1);
                return Ok(Found::Text {
                    at: Located::Saved((MOST_SAVED + place) as u32),
                    is_short: false,
                });
            }
        };
        let wanted = SavedValue {
            saving: saving as u32,
            unused: 0,
            fetch,
        };
        let known = self.saved.values.iter().position(|value| *value == wanted);
        let words = if saving == Saving::Number { 1 } else { 2 };
        let place = match known {
            Some(place) => place,
            None if self.used + words > MOST_SAVED => return Err(too_many()),
            None => {
                self.saved.values[self.used] = wanted;
                self.used += words;
                self.used - words
            }
        };
        let at = Located::Saved(place as u32);
        Ok(match saving {
            Saving::Number => Found::Number(at, fetch),
            _ => Found::Text { at, is_short: true },
        })
    }

    /// Returns all values to save.
    pub(in crate::bpf) fn saved(&self) -> Saved {
        self.saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_places() {
        let number = |place| {
            Fetched::Number(Fetch {
                place,
                size: 8,
                ..Fetch::default()
            })
        };
        let text = |place, is_short| Fetched::Text {
            fetch: Fetch {
                place,
                is_text: 1,
                ..Fetch::default()
            },
            is_short,
        };
        let mut saver = Saver::default();
        let mut place = |value| match saver.save("--agg", value) {
            Ok(Found::Number(Located::Saved(place), _)) => Some(place),
            Ok(Found::Text {
                at: Located::Saved(place),
                ..
            }) => Some(place),
            _ => None,
        };
        assert_eq!(place(number(1)), Some(0));
        assert_eq!(place(Fetched::Comm), Some(1));
        assert_eq!(place(number(1)), Some(0));
        assert_eq!(place(number(2)), Some(3));
        assert_eq!(place(text(1, true)), Some(4));
        assert_eq!(place(number(3)), None);
        assert_eq!(place(Fetched::Comm), Some(1));
        assert_eq!(place(text(1, false)), Some(6));
        assert_eq!(place(text(2, false)), Some(7));
        assert_eq!(place(text(2, false)), Some(7));
        assert_eq!(place(text(3, false)), None);
    }
}
