//! The whole way of an import: which format is it, its events, the rows, the trace directory.
//!
//! ```text
//! import([a.data], a.pqt)       sniff ─► Format::read ─► normalize ─► store
//! recover(a.pqt)                the journal of a recorder that died, imported again from its start
//! journal_inputs(a.pqt)         what a journal consists of: perf.data, then what the recorder put beside it
//! name_again(a.pqt)             the frames of a whole trace, asked for their names once more
//! ```
//! Several inputs go one behind the other into the same tables. Each has its own clock and its own threads, unless they
//! are the files of one journal, which tell of the same ones; rows of a
//! later input follow those of an earlier one, so a table made of inputs that overlap in time is
//! not in order of time as a whole (its parts say whether they are).

mod again;
mod journal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use crate::event::{Progress, Sink};
use crate::normalize::{Normalizer, Output};
use crate::store::{self, Source, Writer, WriterOptions};
use crate::{Error, FORMATS, Format, Guess, Input, perf_script, symbols};

pub use crate::normalize::{Counts, TimeRange};
pub(crate) use again::{ESTIMATED_WALL_OFFSET, KERNEL_REFERENCE};
pub use again::{Found, kernel_facts, look_into, name_again, recover};
pub use journal::{RING_PREFIX, journal_files, journal_inputs, remove_journal};

/// Hears how far an import is.
pub type Listener = Box<dyn FnMut(Progress) + Send>;

/// Finds further inputs, once those before them are read.
pub type Finder = Box<dyn FnOnce() -> Result<Vec<Input>, Error> + Send>;

/// How to import.
#[derive(Default)]
pub struct ImportOptions {
    /// The format, where it is not to be recognized by content.
    pub from: Option<&'static Format>,
    /// Where names of addresses come from.
    pub symbols: symbols::Options,
    /// How the trace directory is written.
    pub store: WriterOptions,
    /// The inputs are the journal of a recorder that died: the trace says so.
    pub recovered: bool,
    /// Keep only what happened in this time, counted from the first event of each input.
    pub time: Option<TimeRange>,
    /// Rows so far, where the journal says that only so many are wanted: for the recorder, which then ends.
    pub kept: Option<Arc<AtomicU64>>,
    /// Hears how far the import is.
    pub progress: Option<Listener>,
    /// The most bytes of temporary files of an input, instead of [`crate::input::TEMPORARY_BYTES_MAX`].
    pub temporary_bytes_max: Option<u64>,
    /// Inputs that only exist when the first are read to their end: what a recorder writes when it stops.
    pub later: Option<Finder>,
}

/// What an import did.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Rows of each table.
    pub rows: BTreeMap<String, u64>,
    /// What the closing line tells.
    pub counts: Counts,
    /// Name of the format of each input.
    pub formats: Vec<&'static str>,
    /// Bytes of the inputs: as they lie on the disk, or as they were read from a pipe.
    pub input_bytes: u64,
    /// Bytes of the trace's parts.
    pub output_bytes: u64,
    /// What could not be named and why, input by input.
    pub symbols: Vec<symbols::Report>,
    /// How the walks through copied user stacks ended, where there were any, input by input.
    pub unwound: Vec<symbols::UnwindCounts>,
}

/// Imports inputs into the trace directory `output`.
pub fn import(
    inputs: Vec<Input>,
    output: &Path,
    mut options: ImportOptions,
) -> Result<Report, Error> {
    // Before the output is touched: an older trace is not set aside for an input that cannot be read.
    let mut formats = formats_of(&inputs, &options)?;
    let writer = Writer::create(output, options.store.clone())?;
    let adopt = options.store.adopt;
    let path = output;
    let mut output = Output::new(writer)?;
    output.facts.recovered = options.recovered;
    output.is_one_recording = options.recovered || options.later.is_some();
    let imported = import_all(inputs, &formats, &mut output, &mut options).and_then(|bytes| {
        let Some(find) = options.later.take() else {
            return Ok(bytes);
        };
        let inputs = find()?;
        let later = formats_of(&inputs, &options)?;
        let more = import_all(inputs, &later, &mut output, &mut options)?;
        formats.extend(later);
        Ok(bytes + more)
    });
    match imported {
        Ok(input_bytes) => report(output, &formats, input_bytes),
        Err(error) => {
            let counts = &output.counts;
            let is_empty = counts.events + counts.calls + counts.aggregates == 0;
            drop(output);
            // What was whole before a disk was full stays; what holds nothing at all is not left lying about.
            if is_empty && !adopt {
                undo(path);
            }
            Err(error)
        }
    }
}

fn formats_of(inputs: &[Input], options: &ImportOptions) -> Result<Vec<&'static Format>, Error> {
    let format = |input| options.from.map_or_else(|| sniff(input), Ok);
    inputs.iter().map(format).collect()
}

fn import_all(
    inputs: Vec<Input>,
    formats: &[&'static Format],
    output: &mut Output,
    options: &mut ImportOptions,
) -> Result<u64, Error> {
    let mut bytes = 0;
    for (mut input, &format) in inputs.into_iter().zip(formats) {
        import_one(&mut input, format, output, options)?;
        bytes += input.size_bytes().unwrap_or_else(|| input.consumed_bytes());
    }
    Ok(bytes)
}

fn report(
    mut output: Output,
    formats: &[&'static Format],
    input_bytes: u64,
) -> Result<Report, Error> {
    let symbols = std::mem::take(&mut output.symbols);
    let unwound = std::mem::take(&mut output.unwound);
    let (summary, counts) = output.finish()?;
    Ok(Report {
        rows: summary.rows,
        counts,
        formats: formats.iter().map(|format| format.name).collect(),
        input_bytes,
        output_bytes: summary.bytes,
        symbols,
        unwound,
    })
}

/// Removes the output that an import made in vain, and puts the older one back that was set aside for it.
fn undo(output: &Path) {
    match store::remove_trace(output) {
        Ok(()) => store::put_back(output),
        Err(error) => log::debug!("{error}"),
    }
}

fn import_one(
    input: &mut Input,
    format: &'static Format,
    output: &mut Output,
    options: &mut ImportOptions,
) -> Result<(), Error> {
    let mut silent: Listener = Box::new(|_| ());
    let progress = options.progress.as_mut().unwrap_or(&mut silent);
    let name = input.name().to_owned();
    let mut normalizer = Normalizer::new(
        output,
        &name,
        options.symbols.clone(),
        options.time,
        options.kept.clone(),
        &mut **progress,
    );
    normalizer.set_written(written(input));
    if let Some(bytes) = options.temporary_bytes_max {
        input.set_temporary_bytes_max(bytes);
    }
    let read = (format.read)(input, &mut normalizer);
    // First: what else went wrong may come from that.
    input.check_whole()?;
    read?;
    normalizer.finish()?;
    output.add_source(Source {
        name,
        format: format.name.to_owned(),
        bytes: input.size_bytes(),
    });
    Ok(())
}

/// When an input was last changed: its file, or what comes through a pipe now.
fn written(input: &Input) -> Option<SystemTime> {
    let Some(path) = input.path() else {
        return Some(SystemTime::now());
    };
    std::fs::metadata(path).ok()?.modified().ok()
}

/// The format of an input, by its first bytes.
pub fn sniff(input: &Input) -> Result<&'static Format, Error> {
    let mut likely = Vec::new();
    for &format in FORMATS {
        match (format.sniff)(input.head()) {
            Guess::Certain => return Ok(format),
            Guess::Likely => likely.push(format),
            Guess::No => {}
        }
    }
    match likely.first() {
        Some(format) => Ok(format),
        None => Err(Error::UnknownFormat {
            input: input.name().to_owned(),
            nearest: nearest(input),
        }),
    }
}

/// Reads the events of an input, whatever its format is.
pub fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<&'static Format, Error> {
    let format = sniff(input)?;
    (format.read)(input, sink)?;
    Ok(format)
}

/// What the first bytes look like instead, and what the name suggests, as the end of a sentence.
fn nearest(input: &Input) -> String {
    let what = looks_like(input.head()).map(|what| format!(": it looks like {what}"));
    let name = input.name().to_ascii_lowercase().replace('-', "_");
    let meant = FORMATS
        .iter()
        .find(|format| format.name.split('_').all(|word| name.contains(word)))
        .map(|format| format!("; by its name it could be {}", format.name));
    what.unwrap_or_default() + &meant.unwrap_or_default()
}

/// Files that people take for a trace, by their first bytes.
fn looks_like(head: &[u8]) -> Option<&'static str> {
    const KINDS: &[(&[u8], &str)] = &[
        (b"", "an empty file"),
        (b"\x7fELF", "a program (ELF)"),
        (
            b"PAR1",
            "a Parquet file, which perfquet-query and DuckDB read as it is",
        ),
        (b"PERFFILE", "a perf.data of version 1 (before 2010)"),
        (b"PK\x03\x04", "a zip archive, to be unpacked first"),
        (b"BZh", "a file packed with bzip2, to be unpacked first"),
        (
            b"\x04\x22\x4d\x18",
            "a file packed with lz4, to be unpacked first",
        ),
        (b"DTiJ", "a jitdump, which names code but holds no events"),
        (b"JiTD", "a jitdump, which names code but holds no events"),
        (b"<!DOCTYPE", "a web page"),
        (b"<html", "a web page"),
        (b"<svg", "a picture (SVG)"),
        (b"<?xml", "an XML document"),
        (b"{", "JSON"),
        (b"[", "JSON"),
        (b"SQLite format 3\0", "an SQLite database"),
    ];
    let starts = |kind: &&(&[u8], &'static str)| match kind.0 {
        [] => head.is_empty(),
        magic => head.starts_with(magic),
    };
    let known = KINDS.iter().find(starts).map(|kind| kind.1);
    let report = perf_script::is_report(head).then_some(
        "what perf report prints; its perf.data, or what perf script prints, has the events",
    );
    let zeros = head.len() >= 64 && head.iter().all(|&byte| byte == 0);
    known
        .or(report)
        .or(zeros.then_some("nothing but zeros, as a file that was never written"))
}
