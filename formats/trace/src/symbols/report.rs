//! Frames without names and the reasons: for one line on stderr, the problems table and `-v`.
//!
//! ```text
//! symbols of /usr/bin/foo: its build id differs, /usr/bin/foo has build id 1a2b…: 512 frames
//! ```

use super::DebuginfodCounts;
use std::collections::{BTreeMap, BTreeSet};

use crate::count::counted;

/// Frames without a name, by module and reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The source of the kernel's names, or the reason for not having any; `None` if no kernel frame was requested.
    pub kernel: Option<String>,
    /// Frames requested.
    pub frames: u64,
    /// Frames that got a name.
    pub named: u64,
    /// What was fetched from debuginfod servers so far, for all inputs; `None` if they were not to be asked.
    pub debuginfod: Option<DebuginfodCounts>,
    pub(super) missing: BTreeMap<(String, String), u64>,
    unverified: BTreeMap<String, u64>,
    without_line: BTreeMap<(String, &'static str), u64>,
}

/// A module some of whose frames have no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unnamed<'r> {
    /// Module, or `[kernel.kallsyms]`.
    pub module: &'r str,
    /// The reason, as a sentence without a full stop.
    pub reason: &'r str,
    /// Number of distinct frames.
    pub frames: u64,
}

impl Report {
    pub(super) fn add(&mut self, module: &str, reason: &str, frames: u64) {
        let key = (module.to_owned(), reason.to_owned());
        *self.missing.entry(key).or_default() += frames;
    }

    pub(super) fn add_unverified(&mut self, module: &str, frames: u64) {
        if frames > 0 {
            *self.unverified.entry(module.to_owned()).or_default() += frames;
        }
    }

    pub(super) fn add_without_line(&mut self, module: &str, reason: &'static str) {
        let key = (module.to_owned(), reason);
        *self.without_line.entry(key).or_default() += 1;
    }

    /// All modules with frames that have a name but no line although lines were requested, most frames first.
    pub fn without_line(&self) -> Vec<Unnamed<'_>> {
        most_first(&self.without_line)
    }

    /// Modules whose names are from files that are not proven to be the recorded ones, each with its named frames.
    pub fn unverified(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        let modules = self.unverified.iter();
        modules.map(|(module, &frames)| (module.as_str(), frames))
    }

    /// All modules with frames that have no name, most frames first.
    pub fn unnamed(&self) -> Vec<Unnamed<'_>> {
        most_first(&self.missing)
    }
}

/// The modules, most frames first.
fn most_first<R: AsRef<str>>(frames: &BTreeMap<(String, R), u64>) -> Vec<Unnamed<'_>> {
    let mut list: Vec<_> = frames
        .iter()
        .map(|((module, reason), &frames)| Unnamed {
            module,
            reason: reason.as_ref(),
            frames,
        })
        .collect();
    list.sort_by_key(|unnamed| std::cmp::Reverse(unnamed.frames));
    list
}

/// A sentence on the files with unverified names; `None` if there are none.
pub fn unverified_sentence(reports: &[Report]) -> Option<String> {
    let modules: BTreeMap<&str, u64> = reports.iter().flat_map(Report::unverified).collect();
    let first = modules.iter().max_by_key(|(_, frames)| **frames)?.0;
    let rest = match modules.len() - 1 {
        0 => String::new(),
        1 => " and 1 more file".to_owned(),
        count => format!(" and {count} more files"),
    };
    Some(format!(
        "names from {first}{rest} are unverified, since no build ID was recorded: see the column frames.unverified"
    ))
}

/// A sentence on named frames without a line, where lines were requested, with the most common reason.
pub fn without_line_sentence(reports: &[Report]) -> Option<String> {
    let without: Vec<_> = reports.iter().flat_map(Report::without_line).collect();
    let most = without.iter().max_by_key(|module| module.frames)?;
    let named: u64 = reports.iter().map(|report| report.named).sum();
    let frames: u64 = without.iter().map(|module| module.frames).sum();
    let modules: BTreeSet<&str> = without.iter().map(|module| module.module).collect();
    let rest = match modules.len() {
        1 => String::new(),
        count => format!("; {count} files in all"),
    };
    Some(format!(
        "{frames} of {named} named frames have no line: {} of them in {}, {}{rest}",
        most.frames, most.module, most.reason
    ))
}

impl std::fmt::Display for Unnamed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unnamed {
            module,
            reason,
            frames,
        } = self;
        write!(
            f,
            "symbols of {module}: {reason}: {}",
            counted(*frames, "frame")
        )
    }
}
