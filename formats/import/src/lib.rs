//! Imports trace files into trace directories: detects the format, then runs reader, `normalize` and store.
//!
//! ```text
//! import([a.data], a.pqt)       sniff ─► Format::read ─► normalize ─► store
//! recover(a.pqt)                imports the journal of a killed recorder from its start
//! journal_inputs(a.pqt)         the files of a journal: perf.data, then the others
//! Importer::import_bytes        the same into a temporary directory: tables as Arrow record batches
//! ```
//! Several inputs are imported one after another into the same tables. They share a clock and a system, otherwise they are
//! refused; what no input recorded between them is a loss. Each has its own threads, except for the files of one journal. Rows of a later input follow those of an earlier one, so if inputs overlap in time, their
//! table is not sorted by time as a whole (each part states whether it is sorted).
//!
//! This is the only crate that sees both the readers and the trace directory.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod apart;
mod copies;
mod importer;
mod journal;
mod packed;
mod parts;
mod recover;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use apart::Inputs;
use parts::Part;
use perfquet_events::event::{Event, Hit, Place, Problem, Progress, Sink};
use perfquet_events::{Error, Format, Guess, Input};
use perfquet_readers::{FORMATS, folded, perf_data, perf_script, systemtap};
use perfquet_trace::normalize::{Limits, Normalizer, Output, TimeRange};
use perfquet_trace::store::{self, Source, Writer, WriterOptions};
use perfquet_trace::{Report, symbols};

pub use importer::{Imported, Importer};
pub use journal::{RING_PREFIX, journal_files, journal_inputs, remove_journal};
pub use packed::{Unpacked, pack_journal};
pub use recover::{Found, look_into, recover};

/// Callback for the progress of an import.
pub type Listener = Box<dyn FnMut(Progress) + Send>;

/// Callback that finds further inputs after the first ones are read.
pub type Finder = Box<dyn FnOnce() -> Result<Vec<Input>, Error> + Send>;

/// Options of an import.
#[derive(Default)]
pub struct ImportOptions {
    /// Format of the inputs; `None` to detect it.
    pub from: Option<&'static Format>,
    /// Sources of symbols.
    pub symbols: symbols::Options,
    /// Options of the store.
    pub store: WriterOptions,
    /// Limits of the state kept per input.
    pub limits: Limits,
    /// The inputs are the journal of a killed recorder; recorded in the trace.
    pub recovered: bool,
    /// Keep only this time range from the first event of each input.
    pub time: Option<TimeRange>,
    /// Number of rows so far, if the journal limits them: the recorder ends at the limit.
    pub kept: Option<Arc<AtomicU64>>,
    /// Ends the import with [`Error::Interrupted`] once it is true; the output is removed.
    pub stop: Option<Arc<AtomicBool>>,
    /// Callback for the progress.
    pub progress: Option<Listener>,
    /// Maximum size in bytes of an input's temporary files, instead of [`perfquet_events::input::TEMPORARY_BYTES_MAX`].
    pub temporary_bytes_max: Option<u64>,
    /// Inputs that exist only after the first ones are read: files that a recorder writes when it stops.
    pub later: Option<Finder>,
}

/// Imports inputs into the trace directory `output`.
pub fn import(
    inputs: Vec<Input>,
    output: &Path,
    mut options: ImportOptions,
) -> Result<Report, Error> {
    // Before the output is changed: an older trace is not set aside for an unreadable input.
    let parts = parts_of(inputs, &options)?;
    let mut formats: Vec<_> = parts.iter().map(|part| part.format).collect();
    let writer = Writer::create(output, options.store.clone())?;
    let adopt = options.store.adopt;
    let path = output;
    let mut output = Output::new(writer)?;
    output.facts.recovered = options.recovered;
    output.is_one_recording = options.recovered || options.later.is_some();
    let mut inputs = Inputs::default();
    let imported = import_all(parts, &mut inputs, &mut output, &mut options).and_then(|bytes| {
        let Some(find) = options.later.take() else {
            return Ok(bytes);
        };
        let parts = parts_of(find()?, &options)?;
        formats.extend(parts.iter().map(|part| part.format));
        let more = import_all(parts, &mut inputs, &mut output, &mut options)?;
        Ok(bytes + more)
    });
    let imported = imported.and_then(|bytes| {
        output.add_gaps(&inputs.summaries())?;
        Ok(bytes)
    });
    match imported {
        Ok(input_bytes) => report(output, &formats, input_bytes),
        Err(error) => {
            let is_empty = output.is_empty();
            drop(output);
            // Tables completed before a disk was full stay; an output without any is removed.
            let is_void = is_empty || matches!(error, Error::Interrupted | Error::Apart { .. });
            if is_void && !adopt {
                undo(path);
            }
            Err(error)
        }
    }
}

fn parts_of(mut inputs: Vec<Input>, options: &ImportOptions) -> Result<Vec<Part>, Error> {
    if let Some(bytes) = options.temporary_bytes_max {
        for input in &mut inputs {
            input.set_temporary_bytes_max(bytes);
        }
    }
    parts::parts_of(inputs, options.from)
}

fn import_all(
    parts: Vec<Part>,
    inputs: &mut Inputs,
    output: &mut Output,
    options: &mut ImportOptions,
) -> Result<u64, Error> {
    let mut bytes = 0;
    let mut first_error = None;
    let (count, mut failed) = (parts.len(), 0);
    for part in parts {
        let (format, is_one_of_several) = (part.format, part.is_one_of_several);
        let mut input = part.open()?;
        if let Some(error) = import_one(&mut input, format, is_one_of_several, output, options)? {
            first_error.get_or_insert(error);
            failed += 1;
        }
        inputs.add(format.name, output)?;
        bytes += input.size_bytes().unwrap_or_else(|| input.consumed_bytes());
    }
    match first_error {
        Some(error) if failed == count => Err(error),
        _ => Ok(bytes),
    }
}

fn report(output: Output, formats: &[&'static Format], input_bytes: u64) -> Result<Report, Error> {
    Ok(Report {
        formats: formats.iter().map(|format| format.name).collect(),
        input_bytes,
        ..output.finish()?
    })
}

/// Removes the output of a failed import, and restores the previous one.
fn undo(output: &Path) {
    match store::remove_trace(output) {
        Ok(()) => store::put_back(output),
        Err(error) => log::debug!("{error}"),
    }
}

/// Imports an input. The error of one of several, of which nothing can be read, is a problem of the trace, and returned.
fn import_one(
    input: &mut Input,
    format: &'static Format,
    is_one_of_several: bool,
    output: &mut Output,
    options: &mut ImportOptions,
) -> Result<Option<Error>, Error> {
    let mut silent: Listener = Box::new(|_| ());
    let progress = options.progress.as_mut().unwrap_or(&mut silent);
    let name = input.name().to_owned();
    let mut normalizer = Normalizer::new(
        output,
        &name,
        (options.symbols.clone(), options.limits),
        options.time,
        options.kept.clone(),
        &mut **progress,
    );
    normalizer.set_written(written(input));
    let read = match &options.stop {
        Some(stop) => {
            let sink = &mut normalizer;
            format.read(input, &mut Stoppable { sink, stop })
        }
        None => format.read(input, &mut normalizer),
    };
    // Report this first: it may have caused the other errors.
    input.check_whole()?;
    let error = match read {
        Ok(()) => None,
        Err(error @ (Error::Damaged { .. } | Error::Unsupported { .. })) if is_one_of_several => {
            normalizer.event(Event::Problem(Problem {
                place: Place::Whole,
                count: 1,
                message: &error.to_string(),
            }))?;
            Some(error)
        }
        Err(error) => return Err(error),
    };
    normalizer.finish()?;
    output.add_source(Source {
        name,
        format: format.name.to_owned(),
        bytes: input.size_bytes(),
    });
    Ok(error)
}

/// Passes events on until the caller ends the import.
struct Stoppable<'a, S> {
    sink: &'a mut S,
    stop: &'a AtomicBool,
}

impl<S> Stoppable<'_, S> {
    fn check(&self) -> Result<(), Error> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}

impl<S: Sink> Sink for Stoppable<'_, S> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.check()?;
        self.sink.event(event)
    }

    fn hit(&mut self, hit: &Hit<'_>) -> Result<(), Error> {
        self.check()?;
        self.sink.hit(hit)
    }
}

/// Returns when an input was last changed; now, for a pipe.
fn written(input: &Input) -> Option<SystemTime> {
    let Some(path) = input.container() else {
        return Some(SystemTime::now());
    };
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Detects the format of an input by its first bytes, that of a directory or an archive by its main file, otherwise by its first trace.
pub fn sniff(input: &mut Input) -> Result<&'static Format, Error> {
    input.open_archive()?;
    match input.is_directory() {
        true => parts::format_of(input),
        false => sniff_file(input),
    }
}

/// Detects the format of a file.
fn sniff_file(input: &Input) -> Result<&'static Format, Error> {
    let mut likely = Vec::new();
    for &format in FORMATS {
        match format.guess(input)? {
            Guess::Certain => return Ok(format),
            Guess::Likely => likely.push(format),
            Guess::No => {}
        }
    }
    let is_damaged_perf_data = || {
        let head = input.head();
        let map = input
            .mapped()
            .filter(|_| looks_like(head).is_none() && !is_of_others(head));
        map.is_some_and(|map| perf_data::has_damaged_front(&map))
    };
    likely.retain(|format| {
        let is_folded = format.name == folded::FOLDED.name;
        let is_counted = || {
            input
                .mapped()
                .is_none_or(|map| folded::has_counted_line(&map))
        };
        !is_of_others(input.head()) && (!is_folded || is_counted())
    });
    match likely.first() {
        Some(format) => Ok(format),
        None if is_damaged_perf_data() => Ok(&perf_data::PERF_DATA),
        None => Err(Error::UnknownFormat {
            input: input.name().to_owned(),
            nearest: nearest(input),
        }),
    }
}

/// Reads the events of an input of any format.
pub fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<&'static Format, Error> {
    let format = sniff(input)?;
    format.read(input, sink)?;
    Ok(format)
}

/// Whether the first bytes are those of another kind of file, so that what resembles a damaged trace in it does so by chance.
fn is_of_others(head: &[u8]) -> bool {
    const MAGIC: &[&[u8]] = &[
        b"\x7fELF",
        b"!<arch>\n",
        b"PAR1",
        b"SQLite format 3\0",
        b"\x89PNG\r\n",
        b"\xff\xd8\xff",
        b"GIF8",
        b"%PDF-",
        // Compiled messages of gettext, in both byte orders.
        b"\xde\x12\x04\x95",
        b"\x95\x04\x12\xde",
        // Java's classes.
        b"\xca\xfe\xba\xbe",
        b"DTiJ",
        b"JiTD",
        b"<svg",
        b"<!DOCTYPE",
        b"<html",
    ];
    MAGIC.iter().any(|magic| head.starts_with(magic))
}

/// Returns what the first bytes and the name suggest instead, as the end of a sentence.
fn nearest(input: &Input) -> String {
    if input.is_archive() {
        return ": it is an archive without a file that is a trace".to_owned();
    }
    if input.is_directory() {
        let known: Vec<String> = FORMATS
            .iter()
            .filter_map(|format| Some(format!("\"{}\" ({})", format.main_file?, format.name)))
            .collect();
        return format!(
            ": it is a directory without a file that identifies a trace: {}",
            known.join(", ")
        );
    }
    let what = looks_like(input.head()).map(|what| format!(": it looks like {what}"));
    let name = input.name().to_ascii_lowercase();
    // `x.pprof`, but not `x.heapprofile`.
    let has = |word: &str| {
        let is_begin = |place: usize| {
            let before = name.get(..place).unwrap_or_default();
            !before.ends_with(char::is_alphanumeric)
        };
        let mut places = name.match_indices(word);
        places.any(|(place, _)| is_begin(place))
    };
    let meant = FORMATS
        .iter()
        .find(|format| format.name.split(['-', '_']).all(has))
        .map(|format| format!("; by its name it could be {}", format.name));
    what.unwrap_or_default() + &meant.unwrap_or_default()
}

/// Recognizes other kinds of files by their first bytes.
fn looks_like(head: &[u8]) -> Option<&'static str> {
    const HEAP: &[u8] = b"\"callFrame\"";
    const KINDS: &[(&[u8], &str)] = &[
        (b"", "an empty file"),
        (b"\x7fELF", "a program (ELF)"),
        (b"PAR1", "a Parquet file; query it with DuckDB"),
        (b"PERFFILE", "a perf.data of version 1 (before 2010)"),
        (b"BZh", "a file compressed with bzip2; decompress it first"),
        (
            b"\x04\x22\x4d\x18",
            "a file compressed with lz4; decompress it first",
        ),
        (b"DTiJ", "a jitdump, which has symbols but no events"),
        (b"JiTD", "a jitdump, which has symbols but no events"),
        (b"<!DOCTYPE", "a web page"),
        (b"<html", "a web page"),
        (b"<svg", "an image (SVG)"),
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
        "the output of perf report; import its perf.data or the output of perf script instead",
    );
    // `380928 bytes allocated at:` of mallocstacks, `1024 bytes in 4 allocations from stack` of memleak.
    let is_bcc = |line: &[u8]| {
        let is_counted = line
            .trim_ascii_start()
            .first()
            .is_some_and(u8::is_ascii_digit);
        let ends = [&b" bytes allocated at:"[..], b" allocations from stack"];
        is_counted && ends.iter().any(|end| line.trim_ascii_end().ends_with(end))
    };
    let bcc = head.split(|byte| *byte == b'\n').any(is_bcc).then_some(
        "stacks of a bcc tool; fold them first (one line per stack: root;frame;leaf BYTES)",
    );
    // `{"head":{"callFrame":{"functionName":"(root)",…`
    let is_heap = head.starts_with(b"{")
        && head.windows(HEAP.len()).any(|part| part == HEAP)
        && head.windows(6).any(|part| part == b"\"head\"");
    let heap = is_heap.then_some("a heap profile of V8, which perfquet does not read");
    // `{"gcc_version": "12.2.0", "files": […], …`
    let is_gcov = head.starts_with(b"{") && head.windows(13).any(|part| part == b"\"gcc_version\"");
    let gcov = is_gcov
        .then_some("the JSON of gcov; import the text that gcov writes without --json-format");
    let stap = systemtap::has_command(head).then_some(
        "output of a SystemTap script without a known layout; --from systemtap reads it",
    );
    let zeros = head.len() >= 64 && head.iter().all(|&byte| byte == 0);
    heap.or(gcov)
        .or(known)
        .or(report)
        .or(bcc)
        .or(stap)
        .or(zeros.then_some("only zeros, as in a file that was never written"))
}
