//! How many steps reading a file's debugging information may take.
//!
//! ```text
//! 12 MiB of it  →  20 million steps, and 16 for each byte
//! ```
//! A program of a compiler takes about one step per byte: an entry, an attribute, a range, a row. A file made by hand can
//! ask for any number: a thousand units that share a table, a million functions with the same million ranges.

use super::NoLines;
use crate::symbols::variables::Sections;

/// For small files.
const STEPS_LEAST: u64 = 20_000_000;
const STEPS_PER_BYTE: u64 = 16;

/// Steps that are left.
pub(super) struct Budget(u64);

/// Why reading ended.
#[derive(Debug)]
pub(super) enum Failure {
    Damaged,
    Spent,
}

impl Budget {
    pub(super) fn of(sections: &Sections) -> Budget {
        Budget(STEPS_LEAST.saturating_add(sections.bytes().saturating_mul(STEPS_PER_BYTE)))
    }

    /// Takes so many steps.
    #[inline]
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Failure> {
        self.0 = self.0.checked_sub(steps).ok_or(Failure::Spent)?;
        Ok(())
    }
}

impl From<gimli::Error> for Failure {
    fn from(_: gimli::Error) -> Failure {
        Failure::Damaged
    }
}

impl From<Failure> for NoLines {
    fn from(failure: Failure) -> NoLines {
        match failure {
            Failure::Damaged => NoLines::Damaged,
            Failure::Spent => NoLines::TooMuch,
        }
    }
}
