//! Inputs `lake:DIR?host=…`: a trace of a lake is exported as that trace; statements are about all traces of the lake.

use std::path::Path;

use anyhow::Result;
use perfquet_cli::glob_matches;
use perfquet_trace::lake::{Address, few};
use perfquet_trace::store::Directory;

use crate::cli::Arguments;
use crate::closing_line;
use crate::destination::Destination;
use crate::export::{Catalog, Exporter, Output, Tally};
use crate::misuse::misuse;

/// The address of the only input, if any input is one.
pub(crate) fn address(arguments: &Arguments) -> Result<Option<Address>> {
    for input in &arguments.inputs {
        let Some(address) = Address::parse(input, glob_matches) else {
            continue;
        };
        let address = address?;
        if arguments.inputs.len() > 1 {
            return Err(misuse(
                format!(
                    "{}: a lake cannot be combined with other inputs",
                    input.display()
                ),
                "to query several traces, run: perfquet-query sql TRACE...",
            ));
        }
        return Ok(Some(address));
    }
    Ok(None)
}

/// The exporter for a lake. Rejects those that cannot read one.
pub(crate) fn exporter(arguments: &Arguments) -> Result<&'static Exporter> {
    let input = arguments.inputs[0].display();
    let Some(exporter) = arguments.to else {
        return Err(misuse(
            format!("{input}: already traces of a lake"),
            "use --to to export one of them, or perfquet-query to query them",
        ));
    };
    match exporter.output {
        Output::Lake | Output::Archive { .. } => Err(misuse(
            format!(
                "--to {}: expected a trace directory, found {input}",
                exporter.name
            ),
            "use the trace directory that was published in the lake",
        )),
        Output::Text { .. }
        | Output::Reference { .. }
        | Output::File { .. }
        | Output::Timeline { .. }
        | Output::Directory { .. } => Ok(exporter),
    }
}

/// Opens the trace to export, and returns its own name. Exactly one must be selected.
pub(crate) fn only_trace(address: &Address, input: &Path) -> Result<(String, Directory)> {
    let mut traces = Vec::new();
    let mut names = Vec::new();
    let notes = address.open(|record, trace| {
        names.push(record.trace);
        // One is exported, two are too many.
        if traces.len() < 2 {
            traces.push((record.name, trace));
        }
    })?;
    for note in notes {
        log::warn!("{note}");
    }
    match traces.pop() {
        Some(trace) if traces.is_empty() => Ok(trace),
        _ => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Err(misuse(
                format!(
                    "{}: expected one trace, found {}: {}",
                    input.display(),
                    names.len(),
                    few(&names)
                ),
                "select one with lake:DIR?trace=NAME, or with host and date",
            ))
        }
    }
}

/// Writes statements that create the tables of a lake.
pub(crate) fn write_statements(
    arguments: &Arguments,
    exporter: &Exporter,
    address: &Address,
) -> Result<()> {
    if !address.is_whole() {
        return Err(misuse(
            format!(
                "--to {}: host, date and trace cannot be used: tables have all rows of a lake",
                exporter.name
            ),
            "use lake:DIR, and select rows in the queries",
        ));
    }
    // Before traces are read.
    let destination = Destination::open(arguments, exporter, address.root())?;
    let (catalog, notes) = Catalog::of_lake(address)?;
    for note in notes {
        log::warn!("{note}");
    }
    let mut tally = Tally::default();
    let (name, bytes) = destination.write_lake(exporter, &catalog, &mut tally)?;
    closing_line::written(&name, bytes, exporter, &tally);
    Ok(())
}
