//! A flight recorder: keeps the last events, and writes a trace on request and at the end.

use std::path::Path;

use anyhow::{Context, Result};

use super::Outcome;
use super::trace::ended_early;
use crate::cli::Cli;
use crate::drain::Sink;
use crate::flight::{self, Buffer, Last, Limit, Loads, Memory, Snapshots, Watch, Watched};
use crate::journal::header;
use crate::lifecycle::{Running, Start};
use crate::output::{Form, Format, Output};
use crate::probe::definition::Definitions;
use crate::sys::signals::Signals;
use perfquet_cli::terminal;

/// When a trace is written before the end.
pub(super) struct Wanted {
    /// Functions whose slow calls ask for it.
    pub(super) watched: Vec<Watched>,
    /// Loads that ask for it.
    pub(super) loads: Loads,
}

pub(super) fn run(
    cli: &Cli,
    (limit, Wanted { watched, loads }): (Limit, Wanted),
    start: Start,
    signals: &Signals,
    definitions: Option<&mut Definitions>,
) -> Result<Outcome> {
    let watch = Watch::new(watched, &start.opened.recording.tracks);
    let head = header::head(&start.opened.recording, &start.bounds.selection);
    let output = cli.output_path();
    if cli.output.format == Format::PerfData {
        Output::check(&output, cli.output.force)?;
    }
    let folder = flight::folder_of(&output, cli.output.format);
    let form = Form {
        format: Format::Pqt,
        ..cli.output.form()
    };
    let (place, journal) = Output::create(&folder, form, cli.output.force)?;
    let (mut snapshots, asker) = Snapshots::new(
        &output,
        cli.output.form(),
        cli.retention.flight.signals(),
        loads,
    );
    let folder = place.journal_path().with_file_name("");
    let started = Memory::new(&folder, journal, limit, head)
        .context("cannot write the journal")
        .and_then(|memory| {
            let kept = Buffer::new(limit, memory, watch, asker);
            let held_bytes = kept.held_bytes();
            let nowhere = Path::new(""); // functions are not traced into memory
            Running::start(start, Sink::Flight(Box::new(kept)), held_bytes, nowhere)
        });
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            place.discard();
            return Err(error);
        }
    };
    snapshots.set_roots(running.containers.roots());
    running.until_end(signals, cli.output.duration, Some(&mut snapshots), &|| {
        false
    })?;
    let command_ended = running.command_ended();
    let (mut sink, drained, mut stopped) = running.stop();
    let runtimes = std::mem::take(&mut stopped.runtimes);
    let has_own_records = stopped.recording.own_id.is_some();
    if let Sink::Flight(kept) = &mut sink
        && let Err(error) = kept.add_losses(&stopped.recording)
    {
        log::warn!("the trace lacks the counts of lost events: {error}");
    }
    stopped.close(definitions);
    if let Sink::Flight(mut kept) = sink {
        let (noted, what) = match drained.is_ok() {
            true => (kept.add_recorded(), "when it was recorded"),
            false => {
                let records = header::early_end(has_own_records);
                (kept.end_early(&records), "that it ended early")
            }
        };
        if let Err(error) = noted {
            log::warn!("the trace does not say {what}: {error}");
        }
        let last = Last {
            force: cli.output.force,
            keeps_journal: cli.output.keep_raw,
            is_whole: drained.is_ok(),
        };
        snapshots.finish(&kept.held(), &place, last)?;
    }
    for sentence in runtimes.sentences(None) {
        terminal::say(&sentence);
    }
    if let Err(error) = drained {
        return Err(ended_early(&error, &output).into());
    }
    Ok(Outcome::Done(command_ended))
}
