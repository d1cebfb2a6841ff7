//! Counts of what an export wrote and omitted, for the closing lines.
//!
//! ```text
//! a.pftrace: 1,417 samples, 12 calls; 131 KiB; next: open it at https://ui.perfetto.dev
//! a.pftrace: 3 calls omitted: nested deeper than 512
//! ```

use std::collections::BTreeMap;

/// Counts of an export.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    written: Vec<(&'static str, u64)>,
    omitted: BTreeMap<(&'static str, &'static str), u64>,
    notes: Vec<String>,
}

impl Tally {
    /// Counts exported items. `noun` is singular, with a plural in "s": "sample".
    pub(crate) fn wrote(&mut self, noun: &'static str, count: u64) {
        match self.written.iter_mut().find(|(known, _)| *known == noun) {
            Some((_, sum)) => *sum += count,
            None if count > 0 => self.written.push((noun, count)),
            None => {}
        }
    }

    /// Counts omitted items with the reason: "nested deeper than 512".
    pub(crate) fn omit(&mut self, noun: &'static str, reason: &'static str, count: u64) {
        if count > 0 {
            *self.omitted.entry((noun, reason)).or_default() += count;
        }
    }

    /// Adds a sentence about the whole export.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Returns the counts of exported items, in the order in which they were first counted.
    pub(crate) fn written(&self) -> &[(&'static str, u64)] {
        &self.written
    }

    /// Returns the omissions: noun, reason, count.
    pub(crate) fn omissions(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let entries = self.omitted.iter();
        entries.map(|((noun, reason), count)| (*noun, *reason, *count))
    }

    /// Returns the sentences.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}
