//! From the arguments to the work: what each input is decides what is done with it.
//!
//! ```text
//! files                                 import into a trace directory
//! files --to X                          import into a passing one, and export that
//! whole trace --to X                    export
//! whole trace --symbols | --lines       name its frames again
//! trace of a dead recorder              complete it
//! ```

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use perfquet_formats::import::{self, Found, ImportOptions};
use perfquet_formats::store::{Directory, WriterOptions};
use perfquet_formats::symbols::{self, KernelSource};
use perfquet_formats::{Error, FORMATS, Input};

use crate::cli::Arguments;
use crate::closing;
use crate::destination::{self, Destination};
use crate::export::{self, EXPORTERS, Exporter};
use crate::progress::Line;

/// How it ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything was read.
    Done,
    /// Something was not, and `--strict` was given.
    Problems,
}

/// The arguments do not go together.
#[derive(Debug)]
pub(crate) struct Misuse {
    what: String,
    hint: &'static str,
}

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Misuse {}

pub(crate) fn misuse(what: String, hint: &'static str) -> anyhow::Error {
    Misuse { what, hint }.into()
}

/// Does what the arguments ask for.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    if arguments.list {
        return list();
    }
    let traces: Vec<(&Path, Found)> = arguments
        .inputs
        .iter()
        .map(|input| (input.as_path(), look_at(input)))
        .filter(|(_, found)| *found != Found::Nothing)
        .collect();
    match (traces.first(), arguments.inputs.len()) {
        (None, _) => import_files(arguments),
        (Some((trace, found)), 1) => take_up(arguments, trace, *found),
        (Some((trace, _)), _) => Err(misuse(
            format!("{}: a trace directory beside other inputs", trace.display()),
            "perfquet-query reads several traces at once",
        )),
    }
}

fn look_at(input: &Path) -> Found {
    // Standard input, also where a directory bears that name.
    match input.as_os_str() != "-" && input.is_dir() {
        true => import::look_into(input),
        false => Found::Nothing,
    }
}

/// What to do next after an error.
pub(crate) fn hints(error: &anyhow::Error) -> Vec<String> {
    let misuse = error.downcast_ref::<Misuse>();
    let hint = match error.downcast_ref::<Error>() {
        Some(Error::UnknownFormat { .. }) => {
            let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
            Some(format!(
                "--from FORMAT says what it is: {}",
                names.join(", ")
            ))
        }
        Some(Error::Exists { .. }) => Some("--force replaces it, -o makes another".to_owned()),
        _ => misuse.map(|misuse| misuse.hint.to_owned()),
    };
    hint.into_iter().filter(|hint| !hint.is_empty()).collect()
}

fn list() -> Result<Outcome> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Formats that are read:")?;
    for format in FORMATS {
        writeln!(out, "  {:<12} {}", format.name, format.about)?;
    }
    writeln!(out, "Exporters (--to):")?;
    for exporter in EXPORTERS {
        writeln!(out, "  {:<12} {}", exporter.name, exporter.about)?;
    }
    Ok(Outcome::Done)
}

fn import_files(arguments: &Arguments) -> Result<Outcome> {
    if let Some(exporter) = arguments.to {
        return import_and_export(arguments, exporter);
    }
    let output = match &arguments.output {
        Some(output) if output.as_os_str() == "-" => {
            return Err(misuse(
                "-o -: a trace is a directory".to_owned(),
                "--to exports to standard output",
            ));
        }
        Some(output) => output.clone(),
        None => default_output(&arguments.inputs[0]),
    };
    let report = import_into(arguments, &output, arguments.time)?;
    closing::imported(&output, &report);
    closing::unwound(&report);
    closing::unnamed(&report, arguments);
    Ok(outcome(arguments, &report))
}

fn import_into(
    arguments: &Arguments,
    output: &Path,
    time: Option<import::TimeRange>,
) -> Result<import::Report> {
    let script = script(arguments)?;
    let inputs = arguments
        .inputs
        .iter()
        .map(|path| Ok(Input::open(path)?.with_script(script.clone())))
        .collect::<Result<Vec<_>, Error>>()?;
    let line = Line::new();
    let options = ImportOptions {
        time,
        progress: line.listener(),
        ..import_options(arguments)?
    };
    Ok(import::import(inputs, output, options)?)
}

/// The script that the inputs were made by; what is no UTF-8 in it is in its comments.
fn script(arguments: &Arguments) -> Result<Option<String>> {
    let Some(path) = &arguments.script else {
        return Ok(None);
    };
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// The trace in between lies where temporary files lie, and is gone afterwards.
fn import_and_export(arguments: &Arguments, exporter: &Exporter) -> Result<Outcome> {
    // What cannot be written is told before anything is read.
    let destination = Destination::open(arguments)?;
    let passing = tempfile::Builder::new()
        .prefix("perfquet-convert-")
        .tempdir()
        .with_context(|| format!("cannot make a folder in {}", std::env::temp_dir().display()))?;
    destination::remove_when_interrupted(passing.path())?;
    let trace = passing.path().join("passing.pqt");
    let report = import_into(arguments, &trace, None)?;
    export(arguments, exporter, &trace, destination)?;
    closing::exported(&arguments.inputs, &report);
    closing::unwound(&report);
    Ok(outcome(arguments, &report))
}

fn take_up(arguments: &Arguments, trace: &Path, found: Found) -> Result<Outcome> {
    match (found, arguments.to) {
        (Found::Unfinished, None) => recover(arguments, trace),
        (Found::Unfinished | Found::Partial, Some(_)) => Err(misuse(
            format!("{}: a trace that is not complete", trace.display()),
            "perfquet-convert DIR completes the trace of a dead recorder",
        )),
        (Found::Partial, None) => Err(misuse(
            format!(
                "{}: its import was cut short, and there is no journal to complete it from",
                trace.display()
            ),
            "import its input again with --force; the parts that are whole can be read as they are",
        )),
        (Found::Whole | Found::Nothing, Some(exporter)) => {
            let destination = Destination::open(arguments)?;
            export(arguments, exporter, trace, destination)?;
            Ok(Outcome::Done)
        }
        (Found::Whole | Found::Nothing, None) => name_again(arguments, trace),
    }
}

fn recover(arguments: &Arguments, trace: &Path) -> Result<Outcome> {
    refuse_output(arguments, trace)?;
    let line = Line::new();
    let options = ImportOptions {
        progress: line.listener(),
        ..import_options(arguments)?
    };
    let report = import::recover(trace, options)?;
    drop(line);
    if !arguments.keep_raw {
        import::remove_journal(trace)?;
    }
    closing::imported(trace, &report);
    closing::unwound(&report);
    closing::unnamed(&report, arguments);
    Ok(outcome(arguments, &report))
}

fn name_again(arguments: &Arguments, trace: &Path) -> Result<Outcome> {
    refuse_output(arguments, trace)?;
    if arguments.symbols.is_empty() && !arguments.lines {
        return Err(misuse(
            format!("{}: a trace directory already", trace.display()),
            "--symbols gives it names again, --to exports it, perfquet-query asks it",
        ));
    }
    let report = import::name_again(trace, symbol_options(arguments)?)?;
    closing::named(trace, &report);
    closing::unnamed(&report, arguments);
    Ok(Outcome::Done)
}

/// What is done in place is done to the whole trace.
fn refuse_output(arguments: &Arguments, trace: &Path) -> Result<()> {
    let trace = trace.display();
    if arguments.output.is_some() {
        return Err(misuse(
            format!("{trace}: completed and named in its place"),
            "leave -o out",
        ));
    }
    if arguments.time.is_some() {
        return Err(misuse(
            format!("{trace}: completed and named as a whole"),
            "leave --time out; perfquet-query has it, and --to exports a part",
        ));
    }
    Ok(())
}

fn export(
    arguments: &Arguments,
    exporter: &Exporter,
    trace: &Path,
    mut destination: Destination,
) -> Result<()> {
    let trace = Directory::open(trace)?;
    let options = export::Options {
        time: arguments.time,
        symbols: symbol_options(arguments)?,
    };
    (exporter.write)(&trace, &options, &mut destination)?;
    destination.finish()
}

fn import_options(arguments: &Arguments) -> Result<ImportOptions> {
    Ok(ImportOptions {
        from: arguments.from,
        symbols: symbol_options(arguments)?,
        store: WriterOptions {
            force: arguments.force,
            ..WriterOptions::default()
        },
        temporary_bytes_max: arguments.max_temporary,
        ..ImportOptions::default()
    })
}

fn symbol_options(arguments: &Arguments) -> Result<symbols::Options> {
    let mut options = symbols::Options {
        lines: arguments.lines,
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

fn outcome(arguments: &Arguments, report: &import::Report) -> Outcome {
    if arguments.strict && report.counts.problems > 0 {
        Outcome::Problems
    } else {
        Outcome::Done
    }
}

/// "perf.pqt" for "/tmp/perf.data.zst": the name without its endings, here.
fn default_output(input: &Path) -> PathBuf {
    let name = match input.as_os_str() == "-" {
        true => "trace".into(),
        false => input.file_name().unwrap_or_default().to_os_string(),
    };
    let mut name = PathBuf::from(name);
    if name
        .extension()
        .is_some_and(|ending| ending == "gz" || ending == "xz" || ending == "zst")
    {
        name.set_extension("");
    }
    name.set_extension("pqt");
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_named_after_the_input() {
        let check = |input: &str, expected: &str| {
            assert_eq!(default_output(Path::new(input)), Path::new(expected));
        };
        check("/tmp/perf.data", "perf.pqt");
        check("boot.data.zst", "boot.pqt");
        check("trace", "trace.pqt");
        check("a.b.folded.gz", "a.b.pqt");
        check("a.trace.xz", "a.pqt");
        check("-", "trace.pqt");
    }
}
