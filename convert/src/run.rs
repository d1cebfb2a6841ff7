//! Chooses the work by the kind of the inputs and the options.
//!
//! ```text
//! files                                 import into a trace directory
//! files --to X                          import into a temporary trace, and export it
//! complete trace --to X                 export
//! complete trace --symbols, --lines or --debuginfod    symbolize again
//! trace of a killed recorder            complete
//! complete traces, or an alignment, --to perfetto       export on one timeline
//! complete traces --to lake             publish
//! archive (.pqtz)                       unpack
//! lake:DIR?trace=NAME --to X            export a trace of a lake
//! lake:DIR --to ddl=X                   write statements for its tables
//! ```

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use perfquet_events::{Error, Input};
use perfquet_import::{Found, ImportOptions};
use perfquet_readers::FORMATS;
use perfquet_trace::Report;
use perfquet_trace::lake::Address;
use perfquet_trace::normalize::TimeRange;
use perfquet_trace::output_directory::OutputDirectory;
use perfquet_trace::remote::is_url;
use perfquet_trace::reopen;
use perfquet_trace::store::{self, Archive, Directory, WriterOptions};
use perfquet_trace::symbols::{self, Debuginfod, KernelSource, LineReader};

use crate::cli::Arguments;
use crate::closing_line;
use crate::destination::{self, Destination};
use crate::export::{
    EXPORTERS, Exporter, Output, Selection, Source, Tally, first_time, lake, pqtz,
};
use crate::from_lake;
use crate::interrupt;
use crate::misuse::{Misuse, misuse};
use crate::passing::Passing;
use crate::progress::Line;
use crate::timeline::{self, Placed};

/// The running program, even if its file has been replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Outcome of a run that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All inputs were read.
    Done,
    /// There were read errors, and `--strict` is set.
    Problems,
}

/// Runs the work selected by the arguments.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    if arguments.list {
        return list();
    }
    refuse_store(arguments)?;
    if let Some(address) = from_lake::address(arguments)? {
        return export_from_lake(arguments, &address);
    }
    let traces: Vec<(&Path, Found)> = arguments
        .inputs
        .iter()
        .map(|input| (input.as_path(), look_at(input)))
        .filter(|(_, found)| *found != Found::Nothing)
        .collect();
    if arguments
        .to
        .is_some_and(|to| matches!(to.output, Output::Lake))
    {
        return publish(arguments, &traces);
    }
    if has_lake_options(arguments) {
        return Err(without_lake());
    }
    let is_whole = |path: &Path| look_at(path) == Found::Whole;
    if let Some(exporter) = arguments.to
        && let Some(placed) = timeline::traces(arguments, exporter, is_whole)?
    {
        return export_timeline(arguments, exporter, &placed);
    }
    match (traces.first(), arguments.inputs.len()) {
        (None, _) => import_files(arguments),
        (Some((trace, found)), 1) => take_up(arguments, trace, *found),
        (Some((trace, _)), _) => Err(misuse(
            format!(
                "{}: a trace directory cannot be combined with other inputs",
                trace.display()
            ),
            "to query several traces, run: perfquet-query sql TRACE...; to export them on one timeline, use --to perfetto",
        )),
    }
}

/// Rejects the URL of a store as an output other than a lake.
fn refuse_store(arguments: &Arguments) -> Result<()> {
    let url = arguments.output.as_ref().and_then(|output| output.to_str());
    let is_lake = |to: &Exporter| matches!(to.output, Output::Lake);
    match url.filter(|url| is_url(url)) {
        Some(url) if !arguments.to.is_some_and(is_lake) => Err(misuse(
            format!(
                "-o {url}: expected a path, found a URL: only --to lake writes to object stores"
            ),
            "write a file or directory, and copy it",
        )),
        _ => Ok(()),
    }
}

fn export_from_lake(arguments: &Arguments, address: &Address) -> Result<Outcome> {
    let exporter = from_lake::exporter(arguments)?;
    if has_lake_options(arguments) {
        return Err(without_lake());
    }
    refuse_selection(arguments, exporter)?;
    if let Output::Reference { .. } = exporter.output {
        from_lake::write_statements(arguments, exporter, address)?;
        return Ok(Outcome::Done);
    }
    let (name, trace) = from_lake::only_trace(address, &arguments.inputs[0])?;
    let named = PathBuf::from(format!("{name}.pqt"));
    let destination = Destination::open(arguments, exporter, &named)?;
    export(arguments, exporter, &trace, Some(name), destination)?;
    Ok(Outcome::Done)
}

/// Whether an option is given that only --to lake has.
fn has_lake_options(arguments: &Arguments) -> bool {
    arguments.partition.is_some()
        || arguments.retain.is_some()
        || arguments.compact
        || arguments.summaries
}

fn without_lake() -> anyhow::Error {
    misuse(
        "--partition, --retain, --compact and --summaries: expected --to lake".to_owned(),
        "use --to lake -o DIR",
    )
}

/// Adds complete traces to a lake.
fn publish(arguments: &Arguments, traces: &[(&Path, Found)]) -> Result<Outcome> {
    if let Some(exporter) = arguments.to {
        refuse_selection(arguments, exporter)?;
    }
    let Some(lake) = arguments
        .output
        .as_ref()
        .filter(|path| path.as_os_str() != "-")
    else {
        return Err(misuse(
            "--to lake: expected the directory of the lake".to_owned(),
            "use -o DIR",
        ));
    };
    for input in &arguments.inputs {
        let found = traces.iter().find(|(trace, _)| trace == input);
        match found {
            Some((_, Found::Whole)) => {}
            Some(_) => {
                return Err(misuse(
                    format!("{}: incomplete trace", input.display()),
                    "if its recorder was killed, complete it with: perfquet-convert DIR",
                ));
            }
            None => {
                return Err(misuse(
                    format!(
                        "--to lake: expected a trace directory, found {}",
                        input.display()
                    ),
                    "import it first with: perfquet-convert FILE -o DIR.pqt",
                ));
            }
        }
    }
    let paths: Vec<&Path> = arguments.inputs.iter().map(AsRef::as_ref).collect();
    let options = lake::Options {
        partition: arguments.partition.as_ref(),
        retain: arguments.retain,
        compact: arguments.compact,
        summaries: arguments.summaries,
    };
    let summary = lake::publish(&paths, lake, options)?;
    closing_line::published(lake, &summary);
    Ok(Outcome::Done)
}

fn look_at(input: &Path) -> Found {
    // `-` is stdin, even if a directory has this name.
    match input.as_os_str() != "-" {
        true if input.is_dir() => perfquet_import::look_into(input),
        true if Archive::is_trace(input) => Found::Whole,
        _ => Found::Nothing,
    }
}

/// Returns hints for an error.
pub(crate) fn hints(error: &anyhow::Error) -> Vec<String> {
    let misuse = error.downcast_ref::<Misuse>();
    let hint = match error.downcast_ref::<Error>() {
        Some(Error::UnknownFormat { .. }) => {
            let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
            Some(format!("use --from with one of: {}", names.join(", ")))
        }
        Some(Error::Apart { .. }) => Some(
            "import each into its own trace; perfquet-query align puts several on one timeline"
                .to_owned(),
        ),
        Some(Error::Exists { .. }) => Some("use --force to overwrite it, or -o PATH".to_owned()),
        _ => misuse.map(|misuse| misuse.hint.to_owned()),
    };
    hint.into_iter().filter(|hint| !hint.is_empty()).collect()
}

fn list() -> Result<Outcome> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Input formats (--from):")?;
    for format in FORMATS {
        writeln!(out, "  {:<12} {}", format.name, format.about)?;
    }
    writeln!(out, "Output formats (--to):")?;
    for exporter in EXPORTERS {
        writeln!(out, "  {:<12} {}", exporter.name, exporter.about)?;
    }
    Ok(Outcome::Done)
}

fn import_files(arguments: &Arguments) -> Result<Outcome> {
    if let Some(exporter) = arguments.to {
        return import_and_export(arguments, exporter);
    }
    let output = trace_directory(arguments, &arguments.inputs[0])?;
    let report = import_into(arguments, &output, arguments.time)?;
    closing_line::imported(&output, &report);
    closing_line::unwound(&report);
    closing_line::unnamed(&report, arguments);
    Ok(outcome(arguments, &report))
}

/// Returns the trace directory to write: that of `-o`, or one named after the input.
fn trace_directory(arguments: &Arguments, input: &Path) -> Result<PathBuf> {
    match &arguments.output {
        Some(output) if output.as_os_str() == "-" => Err(misuse(
            "-o -: a trace directory cannot be written to stdout".to_owned(),
            "to export to stdout, use --to FORMAT",
        )),
        Some(output) => Ok(output.clone()),
        None => Ok(destination::named_after(input, ".pqt")),
    }
}

/// The inputs without those that are given again, whose rows would be there twice.
fn each_once(inputs: &[PathBuf]) -> Vec<&Path> {
    let mut known = BTreeSet::new();
    let is_new = |input: &&Path| {
        let Ok(file) = std::fs::canonicalize(input) else {
            return true;
        };
        let is_new = known.insert(file);
        if !is_new {
            log::warn!("{}: given twice, imported once", input.display());
        }
        is_new
    };
    inputs.iter().map(PathBuf::as_path).filter(is_new).collect()
}

fn import_into(arguments: &Arguments, output: &Path, time: Option<TimeRange>) -> Result<Report> {
    let script = script(arguments)?;
    let inputs = each_once(&arguments.inputs)
        .into_iter()
        .map(|path| Ok(Input::open(path)?.with_script(script.clone())))
        .collect::<Result<Vec<_>, Error>>()?;
    let line = Line::new();
    let options = ImportOptions {
        time,
        progress: line.listener(),
        ..import_options(arguments)?
    };
    let imported = perfquet_import::import(inputs, output, options);
    if imported.is_err()
        && let Some(earlier) = store::earlier_trace(output)
    {
        log::warn!(
            "{} is incomplete; the trace before it is {} until an import is complete",
            output.display(),
            earlier.display()
        );
    }
    Ok(imported?)
}

/// Returns the D script of the inputs. Only its comments may contain invalid UTF-8.
fn script(arguments: &Arguments) -> Result<Option<String>> {
    let Some(path) = &arguments.script else {
        return Ok(None);
    };
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Imports into a temporary trace, exports it and removes it.
fn import_and_export(arguments: &Arguments, exporter: &Exporter) -> Result<Outcome> {
    if let Output::Reference { .. } = exporter.output {
        return Err(misuse(
            format!(
                "--to {}: expected a trace directory, whose files it refers to, found {}",
                exporter.name,
                arguments.inputs[0].display()
            ),
            "import it first with: perfquet-convert FILE -o DIR.pqt",
        ));
    }
    // Report an unwritable output before reading anything.
    let destination = Destination::open(arguments, exporter, &arguments.inputs[0])?;
    let passing = Passing::create()?;
    let trace = passing.trace();
    let report = import_into(arguments, &trace, None)?;
    export(
        arguments,
        exporter,
        &Directory::open(&trace)?,
        None,
        destination,
    )?;
    closing_line::exported(&arguments.inputs, &report);
    closing_line::unwound(&report);
    Ok(outcome(arguments, &report))
}

fn take_up(arguments: &Arguments, trace: &Path, found: Found) -> Result<Outcome> {
    match (found, arguments.to) {
        (Found::Unfinished, None) => recover(arguments, trace),
        (Found::Unfinished | Found::Partial, Some(_)) => Err(misuse(
            format!("{}: incomplete trace", trace.display()),
            "if its recorder was killed, complete it with: perfquet-convert DIR",
        )),
        (Found::Partial, None) => Err(misuse(
            format!(
                "{}: the import was interrupted, and there is no journal to complete it from",
                trace.display()
            ),
            "import the input again with --force; complete parts can be queried as they are",
        )),
        (Found::Whole | Found::Nothing, Some(exporter)) => {
            if trace.is_file() && matches!(exporter.output, Output::Reference { .. }) {
                return Err(misuse(
                    format!(
                        "--to {}: expected a trace directory, whose files it refers to, found {}",
                        exporter.name,
                        trace.display()
                    ),
                    "unpack it first with: perfquet-convert FILE.pqtz -o DIR.pqt",
                ));
            }
            refuse_selection(arguments, exporter)?;
            let destination = Destination::open(arguments, exporter, trace)?;
            export(
                arguments,
                exporter,
                &Directory::open(trace)?,
                None,
                destination,
            )?;
            Ok(Outcome::Done)
        }
        (Found::Whole | Found::Nothing, None) if trace.is_file() => unpack(arguments, trace),
        (Found::Whole | Found::Nothing, None) => name_again(arguments, trace),
    }
}

/// Writes an archived trace as a directory.
fn unpack(arguments: &Arguments, archive: &Path) -> Result<Outcome> {
    let is_named = !arguments.symbols.is_empty() || arguments.lines || arguments.debuginfod;
    if is_named || arguments.time.is_some() {
        return Err(misuse(
            format!(
                "{}: --symbols, --lines, --debuginfod and --time cannot be used: an archive is only unpacked",
                archive.display()
            ),
            "unpack it first, then use the directory",
        ));
    }
    let output = trace_directory(arguments, archive)?;
    let trace = Directory::open(archive)?;
    let folder = OutputDirectory::create(&output, arguments.force)?;
    interrupt::remove_when_interrupted(folder.temporary())?;
    let parts = pqtz::unpack(&trace, folder.temporary())?;
    let (path, size) = folder.finish()?;
    closing_line::unpacked(&path.display().to_string(), parts, size);
    Ok(Outcome::Done)
}

fn recover(arguments: &Arguments, trace: &Path) -> Result<Outcome> {
    refuse_output(arguments, trace)?;
    let line = Line::new();
    let options = ImportOptions {
        progress: line.listener(),
        ..import_options(arguments)?
    };
    let report = perfquet_import::recover(trace, options)?;
    drop(line);
    if !arguments.keep_raw {
        perfquet_import::remove_journal(trace)?;
    }
    closing_line::imported(trace, &report);
    closing_line::unwound(&report);
    closing_line::unnamed(&report, arguments);
    Ok(outcome(arguments, &report))
}

fn name_again(arguments: &Arguments, trace: &Path) -> Result<Outcome> {
    refuse_output(arguments, trace)?;
    if arguments.symbols.is_empty() && !arguments.lines && !arguments.debuginfod {
        return Err(misuse(
            format!("{}: already a trace directory", trace.display()),
            "use --symbols or --debuginfod to symbolize it, --to to export it, or perfquet-query to query it",
        ));
    }
    let report = reopen::name_again(trace, symbol_options(arguments)?)?;
    closing_line::named(trace, &report);
    closing_line::unnamed(&report, arguments);
    Ok(Outcome::Done)
}

/// Rejects options that do not apply to updating a trace in place.
fn refuse_output(arguments: &Arguments, trace: &Path) -> Result<()> {
    let trace = trace.display();
    if arguments.output.is_some() {
        return Err(misuse(
            format!("{trace}: -o cannot be used: the trace is updated in place"),
            "drop -o",
        ));
    }
    if arguments.time.is_some() {
        return Err(misuse(
            format!("{trace}: --time cannot be used: the whole trace is updated"),
            "drop --time, or use it with --to or perfquet-query",
        ));
    }
    Ok(())
}

/// Rejects a selection of rows for an export that refers to all rows.
fn refuse_selection(arguments: &Arguments, exporter: &Exporter) -> Result<()> {
    let reason = match exporter.output {
        Output::Reference { .. } => "it refers to files with all rows",
        Output::Lake => "a lake has all rows of a trace",
        Output::Archive { .. } => "it has all rows of the trace",
        Output::Text { .. }
        | Output::File { .. }
        | Output::Timeline { .. }
        | Output::Directory { .. } => return Ok(()),
    };
    let option = [
        (arguments.time.is_some(), "--time"),
        (!arguments.event.is_empty(), "--event"),
        (arguments.condition.is_some(), "--where"),
    ];
    match option.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(misuse(
            format!("--to {}: {option} cannot be used: {reason}", exporter.name),
            "select rows in the queries",
        )),
        None => Ok(()),
    }
}

fn export(
    arguments: &Arguments,
    exporter: &Exporter,
    trace: &Directory,
    name: Option<String>,
    destination: Destination,
) -> Result<()> {
    let selection = Selection {
        time: arguments.time,
        events: arguments.event.clone(),
        condition: arguments.condition.clone(),
    };
    let line = Line::new();
    let progress = line.rows();
    let symbols = symbol_options(arguments)?;
    let mut source = Source::open(trace, &selection, symbols, &progress)?;
    // The path of a trace in a lake is that of the lake.
    source.name = name.unwrap_or(source.name);
    let mut tally = Tally::default();
    let (name, bytes) = destination.write(exporter, &source, &mut tally)?;
    drop(line);
    closing_line::written(&name, bytes, exporter, &tally);
    closing_line::excluded(&name, source.excluded());
    Ok(())
}

/// Exports several traces on the timeline of the first.
fn export_timeline(
    arguments: &Arguments,
    exporter: &Exporter,
    placed: &[Placed],
) -> Result<Outcome> {
    let destination = Destination::open(arguments, exporter, &arguments.inputs[0])?;
    let line = Line::new();
    let progress = line.rows();
    let mut tally = Tally::default();
    let firsts = placed.iter().filter_map(|one| {
        let first = first_time(&one.trace)?;
        one.placement.place(first)
    });
    let begin = firsts.min().unwrap_or(0);
    let (mut sources, mut unknown) = (Vec::new(), None);
    for (number, one) in placed.iter().enumerate() {
        let selection = Selection {
            time: None,
            events: arguments.event.clone(),
            condition: arguments.condition.clone(),
        };
        let symbols = symbol_options(arguments)?;
        // An event or a column may be in one of the traces only.
        let mut source = match Source::open(&one.trace, &selection, symbols, &progress) {
            Ok(source) => source,
            Err(error) => {
                let reason = error.to_string();
                let reason = reason.lines().next().unwrap_or_default();
                tally.note(format!("{} left out: {reason}", one.name));
                unknown.get_or_insert(error);
                continue;
            }
        };
        source.name.clone_from(&one.name);
        source.place(one.placement, number, arguments.time, begin)?;
        if number > 0 {
            tally.note(timeline::words(&placed[0], one));
        }
        sources.push(source);
    }
    if let (true, Some(error)) = (sources.is_empty(), unknown) {
        return Err(error);
    }
    let (name, bytes) = destination.write_timeline(exporter, &sources, &mut tally)?;
    drop(line);
    closing_line::written(&name, bytes, exporter, &tally);
    for source in &sources {
        closing_line::excluded(&name, source.excluded());
    }
    Ok(Outcome::Done)
}

fn import_options(arguments: &Arguments) -> Result<ImportOptions> {
    Ok(ImportOptions {
        from: arguments.from,
        symbols: symbol_options(arguments)?,
        store: WriterOptions {
            force: arguments.force,
            mode: 0o777,
            ..WriterOptions::default()
        },
        temporary_bytes_max: arguments.max_temporary,
        ..ImportOptions::default()
    })
}

fn symbol_options(arguments: &Arguments) -> Result<symbols::Options> {
    let mut options = symbols::Options {
        lines: arguments
            .lines
            .then(|| LineReader::Program(OWN_PROGRAM.into())),
        debuginfod: debuginfod(arguments)?,
        ..symbols::Options::default()
    };
    if arguments.no_symbols {
        options.kernel = KernelSource::None;
        options.user = false;
        options.system = false;
    }
    for path in &arguments.symbols {
        options.add(path)?;
    }
    Ok(options)
}

fn debuginfod(arguments: &Arguments) -> Result<Option<Debuginfod>> {
    if !arguments.debuginfod {
        return Ok(None);
    }
    let servers = Debuginfod::from_environment();
    let missing = || {
        misuse(
            "--debuginfod: DEBUGINFOD_URLS names no server".to_owned(),
            "set it, for example: export DEBUGINFOD_URLS=https://debuginfod.elfutils.org",
        )
    };
    servers.map(Some).ok_or_else(missing)
}

fn outcome(arguments: &Arguments, report: &Report) -> Outcome {
    if arguments.strict && report.counts.problems > 0 {
        Outcome::Problems
    } else {
        Outcome::Done
    }
}
