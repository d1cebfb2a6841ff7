//! What has no name, and why: for one line on stderr, the problems table and `-v`.
//!
//! ```text
//! symbols of /usr/bin/foo: its build id differs, /usr/bin/foo has build id 1a2b…: 512 frames
//! ```

use std::collections::BTreeMap;

/// Frames without a name, by module and reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Where the kernel's names come from, or why there are none; `None` if no kernel frame was asked for.
    pub kernel: Option<String>,
    /// Frames asked for.
    pub frames: u64,
    /// Frames that got a name.
    pub named: u64,
    pub(super) missing: BTreeMap<(String, String), u64>,
}

/// A module some of whose frames have no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unnamed<'r> {
    /// Module, or `[kernel.kallsyms]`.
    pub module: &'r str,
    /// Why, as a sentence without a stop.
    pub reason: &'r str,
    /// How many distinct frames.
    pub frames: u64,
}

impl Report {
    pub(super) fn add(&mut self, module: &str, reason: &str, frames: u64) {
        let key = (module.to_owned(), reason.to_owned());
        *self.missing.entry(key).or_default() += frames;
    }

    /// All modules with frames that have no name, those with most of them first.
    pub fn unnamed(&self) -> Vec<Unnamed<'_>> {
        let mut list: Vec<_> = self
            .missing
            .iter()
            .map(|((module, reason), &frames)| Unnamed {
                module,
                reason,
                frames,
            })
            .collect();
        list.sort_by_key(|unnamed| std::cmp::Reverse(unnamed.frames));
        list
    }
}

impl std::fmt::Display for Unnamed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unnamed {
            module,
            reason,
            frames,
        } = self;
        write!(f, "symbols of {module}: {reason}: {frames} frames")
    }
}
