//! A recording of everything from start to end, into a journal that is encoded while it grows.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use perfquet_events::event::Selection;
use perfquet_events::wire::update::{MOMENTS, RUNTIMES, USER_STACKS};

use super::Outcome;
use crate::cli::Cli;
use crate::cpu_limit::CpuLimit;
use crate::drain::Sink;
use crate::failure::{Failure, failed};
use crate::journal::follower::Growing;
use crate::journal::{Journal, Packing, header, samples_by_id};
use crate::kept_code;
use crate::lifecycle::{Running, Start, Stopped};
use crate::live;
use crate::output::closing_line;
use crate::output::completion::complete_trace;
use crate::output::encoder::{Encoder, Source};
use crate::output::{Format, Output};
use crate::probe::Kind;
use crate::probe::definition::Definitions;
use crate::rotation;
use crate::stat::Counters;
use crate::sys::signals::Signals;
use crate::user_stacks;
use perfquet_cli::terminal;

/// Positions in the journal, for its readers.
struct Lengths {
    written: Arc<AtomicU64>,
    /// Up to which nothing is truncated any more.
    settled: Arc<AtomicU64>,
}

pub(super) fn run(
    cli: &Cli,
    start: Start,
    signals: &Signals,
    definitions: Option<&mut Definitions>,
) -> Result<Outcome> {
    let selection = start.bounds.selection.clone();
    let (output, journal) =
        Output::create(&cli.output_path(), cli.output.form(), cli.output.force)?;
    // Until this process ends, nobody else completes the trace.
    let segment = cli.retention.rotation.segment();
    let _lock = segment.map(rotation::lock).transpose()?;
    let duration = cli.output.duration.filter(|_| segment.is_none());
    let lengths = Lengths {
        written: journal.written(),
        settled: journal.settled(),
    };
    let mut running = match started(start, journal, &output, &selection) {
        Ok(running) => running,
        Err(error) => {
            output.discard();
            return Err(error);
        }
    };
    let encoder = follow(cli, &mut running, &output, &lengths, &selection);
    running.until_end(signals, duration, None, &|| {
        if let Some(encoder) = &encoder {
            encoder.keep_up(lengths.written.load(Ordering::Relaxed));
        }
        has_enough(&selection, encoder.as_ref())
    })?;
    // An exit caused by the recorder is not reported.
    let command_ended = running.command_ended();
    let (selection, seen) = (
        running.extent.selection.clone(),
        Arc::clone(&running.extent.seen),
    );
    let (sink, drained, mut stopped) = running.stop();
    if rotation::is_unwanted(&selection) {
        stopped.close(definitions);
        return Ok(Outcome::Done(None));
    }
    cli.triggers.complain(&selection, &seen);
    let traced = std::mem::replace(&mut stopped.traced, Ok(()));
    // Missing records can be counted only if all hits were to be kept, and where the kernel counts hits.
    let may_count = selection.text().is_empty() && !cli.control.are_given();
    if drained.is_err() {
        stopped.recorded = None;
    }
    let mut tracks = stopped.recording.tracks.iter();
    let is_counted = drained.is_ok()
        || may_count && tracks.all(|track| matches!(track.probe.kind, Kind::Tracepoint(_)));
    let (lost, ended) = match sink {
        Sink::Journal(journal) => {
            let missed = definitions.as_deref().map(Definitions::missed);
            let path = (drained.is_err() && may_count).then(|| output.journal_path());
            let missed = missed.unwrap_or_default();
            complete_journal(journal, &mut stopped, &missed, (is_counted, path))
        }
        Sink::Flight(_) => (0, Ok(())),
    };
    let summary = summary_of(&mut stopped, segment.is_some());
    stopped.close(definitions);
    let early = drained.and(ended).err();
    let is_whole = match encoder {
        None => closing_line::file(&output, Some(lost), is_counted).map(|()| true)?,
        Some(encoder) => complete(cli, &output, encoder, signals, early.as_ref())?,
    };
    summary.into_iter().for_each(terminal::say);
    if let Some(early) = early {
        return Err(ended_early(&early, output.path()).into());
    }
    traced?;
    Ok(match is_whole {
        true => Outcome::Done(command_ended),
        false => Outcome::Interrupted,
    })
}

/// Starts the recording into the journal.
fn started(
    start: Start,
    mut journal: Journal,
    output: &Output,
    selection: &Selection,
) -> Result<Running> {
    if let Err(error) = journal.reserve(&output.journal_path()) {
        log::info!("no space is reserved for the end of the journal: {error}");
    }
    journal
        .append(&header::head(&start.opened.recording, selection))
        .context("cannot write the journal")?;
    journal.settle();
    let written = journal.written();
    let folder = output.journal_path().with_file_name("");
    Running::start(start, Sink::Journal(journal), written, &folder)
}

/// Starts the readers of the growing journal: the encoder, unless the journal is the output, the display of samples, and what keeps code.
fn follow(
    cli: &Cli,
    running: &mut Running,
    output: &Output,
    lengths: &Lengths,
    selection: &Selection,
) -> Option<Encoder> {
    let displayed = cli.displays_samples().then(Arc::<AtomicU64>::default);
    let kept = cli.sampling.keep_code.then(Arc::<AtomicU64>::default);
    let growing = |read: Arc<AtomicU64>| Growing {
        journal: output.journal_path(),
        settled: Arc::clone(&lengths.settled),
        read,
    };
    let encoder = (cli.output.format == Format::Pqt).then(|| {
        let source = Source::Following {
            journal: output.journal_path(),
            settled: Arc::clone(&lengths.settled),
            packing: packing(cli),
            others: displayed.iter().chain(&kept).cloned().collect(),
        };
        let path = output.path().to_owned();
        Encoder::start(source, path, selection, running.containers.roots())
    });
    if let (Some(read), Some(every)) = (displayed, cli.in_kernel.bpf.every()) {
        running.display(live::Request {
            growing: growing(read),
            written: Arc::clone(&lengths.written),
            roots: running.containers.roots(),
            every,
            has_command: !cli.command.is_empty(),
        });
    }
    if let Some(read) = kept {
        running.keep_code(kept_code::Request {
            growing: growing(read),
            roots: running.containers.roots(),
        });
    }
    encoder
}

/// Returns the messages below the closing line.
fn summary_of(stopped: &mut Stopped, is_segment: bool) -> Vec<String> {
    let counters = stopped.counters.take().filter(|_| !is_segment);
    let cpu_limit = stopped.cpu_limit.take().filter(|_| !is_segment);
    let user_stacks = stopped.user_stacks.take();
    let runtimes = std::mem::take(&mut stopped.runtimes);
    let of_runtimes = runtimes.sentences(user_stacks.as_ref());
    let counters = counters.iter().flat_map(Counters::summary);
    counters
        .chain(cpu_limit.as_ref().and_then(CpuLimit::sentence))
        .chain(user_stacks.iter().flat_map(user_stacks::Counts::sentences))
        .chain(of_runtimes)
        .chain(stopped.code.iter().map(kept_code::Kept::sentence))
        .collect()
}

/// Waits for the tables; returns whether they are complete. `early` is why the journal ended before the recording.
fn complete(
    cli: &Cli,
    output: &Output,
    encoder: Encoder,
    signals: &Signals,
    early: Option<&io::Error>,
) -> Result<bool> {
    let is_whole = (cli.output.keep_raw, early.is_none());
    match (
        complete_trace(output, encoder, signals, is_whole, cli.next()),
        early,
    ) {
        (Err(error), Some(early)) => {
            log::warn!("{}", terminal::sentence(error.chain()));
            Err(ended_early(early, output.path())
                .hint(format!(
                    "free disk space, then run: perfquet-convert {}",
                    output.path().display()
                ))
                .into())
        }
        (completed, _) => completed,
    }
}

/// The journal could not be written to its end; what was written is at `output`.
pub(super) fn ended_early(error: &io::Error, output: &Path) -> Failure {
    failed(format!(
        "the recording ended early: cannot write the journal: {error}"
    ))
    .hint(format!(
        "{} has the events recorded before the error",
        output.display()
    ))
}

/// Adds the information known only at the end: losses and aggregates. Returns the number of lost events, as far as they could be
/// counted. Whatever fails, the journal ends with a whole record. If the journal could not be written to its end, `path` is set where
/// missing records can be counted; `is_counted` is set if those are all.
fn complete_journal(
    mut journal: Journal,
    stopped: &mut Stopped,
    missed: &[(String, u64)],
    (is_counted, path): (bool, Option<PathBuf>),
) -> (u64, io::Result<()>) {
    let summed_up = stopped.programs.records(&stopped.recording);
    // On a full disk there is room for these, but perhaps not for what follows.
    let written = match path.map(|path| samples_by_id(&path)).transpose() {
        Ok(written) => written,
        Err(error) => {
            log::warn!("lost events could not be counted: {error}");
            return (0, Err(error));
        }
    };
    let (mut lost, counted) = journal.losses(&stopped.recording, missed, written.as_ref());
    if counted.is_err() {
        log::warn!("the trace lacks the counts of lost events");
    }
    let early_end = || match stopped.recording.own_id {
        Some(_) => header::early_end(true),
        None => Vec::new(),
    };
    let ended = counted.and_then(|()| {
        if !is_counted {
            journal.append(&early_end())?;
        }
        journal.append(&std::mem::take(&mut stopped.counts))?;
        if let Some(kept) = &mut stopped.code {
            journal.append(&std::mem::take(&mut kept.records))?;
        }
        journal.append(&header::whole(
            &stopped.recording,
            MOMENTS,
            &stopped.moments,
        ))?;
        if let (Some(ranges), Some(id)) = (&stopped.recorded, header::any_id(&stopped.recording)) {
            journal.append(&header::recorded(id, ranges))?;
        }
        if let Some(counts) = &stopped.user_stacks {
            journal.append(&header::whole(
                &stopped.recording,
                USER_STACKS,
                &counts.text(),
            ))?;
        }
        if let Some(text) = stopped.runtimes.text() {
            journal.append(&header::whole(&stopped.recording, RUNTIMES, text))?;
        }
        if let Ok((records, _)) = &summed_up {
            journal.append(records)?;
        }
        journal.finish_round()
    });
    if ended.is_err() && is_counted {
        // What is missing at the end is not known. The next write may succeed; if not, the tables cannot be written, either.
        let _ = journal.append(&early_end());
    }
    match summed_up {
        Ok((_, lost_by_programs)) => lost += lost_by_programs,
        Err(error) => return (lost, ended.and(Err(io::Error::other(error)))),
    }
    (lost, ended)
}

/// Whether the requested number of events has been recorded.
fn has_enough(selection: &Selection, encoder: Option<&Encoder>) -> bool {
    let (Some(most), Some(encoder)) = (selection.max_events, encoder) else {
        return false;
    };
    encoder.kept() >= most
}

/// When the encoded part of the journal is packed.
fn packing(cli: &Cli) -> Packing {
    if cli.output.keep_raw {
        Packing::Never
    } else if cli.retention.rotation.segment().is_some() {
        Packing::Soon
    } else {
        Packing::Late
    }
}
