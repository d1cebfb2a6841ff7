//! Several traces in one file of a viewer, on one timeline: that of the first.
//!
//! ```text
//! a.pqt b.pqt --to perfetto      placed by what both say of their clocks
//! ab.align.json --to perfetto    placed as perfquet-query align found
//! ```
//! Traces without a known place are refused: a viewer would show them at a wrong time.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use perfquet_trace::align::{self, Clock, Method, Placement};
use perfquet_trace::store::Directory;

use crate::cli::Arguments;
use crate::export::{Exporter, Output, first_time};
use crate::misuse::misuse;

/// A trace of a timeline.
pub(crate) struct Placed {
    /// Its name among the traces.
    pub(crate) name: String,
    pub(crate) trace: Directory,
    pub(crate) placement: Placement,
}

/// Returns the traces if several are exported; `None` for other inputs. `is_trace` tells whether a path is a complete trace.
pub(crate) fn traces(
    arguments: &Arguments,
    exporter: &Exporter,
    is_trace: impl Fn(&Path) -> bool,
) -> Result<Option<Vec<Placed>>> {
    let alignment = arguments
        .inputs
        .iter()
        .find(|path| align::file::is_alignment(path));
    let (paths, placements): (Vec<PathBuf>, Vec<Option<Placement>>) = match alignment {
        Some(path) => {
            if arguments.inputs.len() > 1 {
                return Err(misuse(
                    format!("{}: an alignment already names its traces", path.display()),
                    "drop the other inputs, or align all with: perfquet-query align",
                ));
            }
            align::file::read(path)?.into_iter().unzip()
        }
        None => {
            let inputs = &arguments.inputs;
            if inputs.len() < 2 || !inputs.iter().all(|path| is_trace(path)) {
                return Ok(None);
            }
            arguments
                .inputs
                .iter()
                .map(|path| (path.clone(), None))
                .unzip()
        }
    };
    if !matches!(exporter.output, Output::Timeline { .. }) {
        return Err(misuse(
            format!(
                "--to {}: expected one trace, found {}",
                exporter.name,
                paths.len()
            ),
            "--to perfetto and --to chrome show several traces on one timeline",
        ));
    }
    let names = names(&paths);
    let mut all: Vec<Placed> = Vec::new();
    let mut reference: Option<(String, Directory)> = None;
    for ((path, placement), name) in paths.iter().zip(placements).zip(names) {
        let trace = Directory::open(path)?;
        let placement = match (&reference, placement) {
            (_, Some(placement)) => placement,
            (None, None) => Placement::shifted(0, Method::Reference, Some(0)),
            // An alignment that found no place says so.
            (Some((first, to)), None) => {
                let found = related((first, to), (&name, &trace));
                found.map_err(|reason| {
                    misuse(
                        format!("cannot place {name} on the timeline of {first}: {reason}"),
                        "find its place with: perfquet-query align TRACE... -o x.align.json; then convert x.align.json",
                    )
                })?
            }
        };
        if reference.is_none() {
            reference = Some((name.clone(), Directory::open(path)?));
        }
        all.push(Placed {
            name,
            trace,
            placement,
        });
    }
    above_zero(&mut all)?;
    Ok(Some(all))
}

/// Moves all traces if one begins before time 0 of the timeline, which viewers drop.
fn above_zero(all: &mut [Placed]) -> Result<()> {
    let mut earliest = 0;
    for one in all.iter() {
        let Some(first) = first_time(&one.trace) else {
            continue;
        };
        match one.placement.place(first) {
            Some(place) => earliest = place.min(earliest),
            None => bail!("{}: its times are too far away", one.name),
        }
    }
    for one in all.iter_mut() {
        one.placement.shift = one.placement.shift.saturating_sub(earliest);
    }
    Ok(())
}

fn related(
    (first, to): (&str, &Directory),
    (name, trace): (&str, &Directory),
) -> Result<Placement, String> {
    let [to_facts, facts] = [to, trace].map(|trace| trace.manifest().facts.by_name());
    align::by_facts(&clock(first, to, &to_facts), &clock(name, trace, &facts))
}

fn clock<'c>(name: &'c str, trace: &Directory, facts: &'c [(String, String)]) -> Clock<'c> {
    Clock {
        trace: name,
        facts,
        wall_offset: trace.manifest().facts.wall_offset,
        start: first_time(trace),
    }
}

/// The shortest names that tell the traces apart.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let of = |path: &Path, parts: usize| {
        let all: Vec<_> = path
            .components()
            .map(|part| part.as_os_str().to_string_lossy())
            .collect();
        let name = all
            .iter()
            .skip(all.len().saturating_sub(parts))
            .map(AsRef::as_ref);
        let name = name.collect::<Vec<&str>>().join("/");
        let name = name.strip_suffix(".pqt").or(name.strip_suffix(".pqtz"));
        name.map(str::to_owned).unwrap_or_else(|| of_path(path))
    };
    let mut found: Vec<String> = Vec::new();
    for parts in 1..=4 {
        found = paths.iter().map(|path| of(path, parts)).collect();
        let mut sorted = found.clone();
        sorted.sort();
        sorted.dedup();
        if sorted.len() == paths.len() {
            break;
        }
    }
    found
}

fn of_path(path: &Path) -> String {
    path.display().to_string()
}

/// How a trace was placed, as a sentence.
pub(crate) fn words(first: &Placed, one: &Placed) -> String {
    let Placement {
        shift,
        drift,
        method,
        error,
        ..
    } = one.placement;
    let shift = shift.saturating_sub(first.placement.shift);
    let first = &first.name;
    let drift = match drift {
        0 => String::new(),
        drift => format!(", drift {} ppm", drift as f64 / 1e3),
    };
    let error = match error {
        Some(error) => format!("error {error} ns"),
        None => "error not known".to_owned(),
    };
    format!(
        "{} on the timeline of {first} by {}: shift {shift} ns{drift}, {error}",
        one.name,
        method.name()
    )
}
