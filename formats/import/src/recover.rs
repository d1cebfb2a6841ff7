//! Directories given as input: classifies them, and completes the trace of a killed recorder.

use std::path::Path;

use perfquet_events::Error;
use perfquet_trace::Report;
use perfquet_trace::store::{Directory, State};

use super::journal::{has_journal, journal_inputs};
use super::{ImportOptions, import};

/// Kind of a directory given as input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A complete trace.
    Whole,
    /// A trace of a killed recorder, with its journal: [`recover`] completes it.
    Unfinished,
    /// A trace of a killed writer, without a journal.
    Partial,
    /// Not a trace directory.
    Nothing,
}

/// Returns the kind of a directory.
pub fn look_into(directory: &Path) -> Found {
    let state = Directory::open(directory)
        .map(|trace| trace.manifest().state)
        .ok();
    let has_journal = has_journal(directory);
    match state {
        Some(State::Complete | State::Recovered) => Found::Whole,
        Some(State::Recording) | None if has_journal => Found::Unfinished,
        Some(State::Recording) => Found::Partial,
        None => Found::Nothing,
    }
}

/// Completes the trace of a killed recorder in `directory`: imports its journal again from the start and replaces
/// the parts written so far. The journal stays.
pub fn recover(directory: &Path, mut options: ImportOptions) -> Result<Report, Error> {
    let inputs = journal_inputs(directory)?;
    options.recovered = true;
    options.store.adopt = true;
    import(inputs, directory, options)
}
