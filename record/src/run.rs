//! A recording from the command line to the closing line, step by step.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use perfquet_events::event::Selection;

use crate::boot;
use crate::bpf::{Plans, Whom};
use crate::cli::Cli;
use crate::closing_line;
use crate::completion::complete_trace;
use crate::cpu_limit::CpuLimit;
use crate::drain::Sink;
use crate::encoder::{Encoder, Source};
use crate::failure::{Failure, failed, misuse};
use crate::flight::{self, Buffer, Last, Limit, Loads, Memory, Snapshots, Watch};
use crate::ftrace::Tracing;
use crate::journal::{Journal, Packing, header, samples_by_id};
use crate::lifecycle::{Running, Start, Stopped};
use crate::list;
use crate::live;
use crate::output::{Form, Format, Output};
use crate::plan::{Plan, exclusions};
use crate::probe::Probe;
use crate::probe::definition::Definitions;
use crate::recording::{Recording, Settings, Track, WALK};
use crate::remote;
use crate::rotation::{self, End, Handover, Request};
use crate::service;
use crate::stat::{self, Counters};
use crate::sys::child::{self, Ended, Waiting};
use crate::sys::signals::{Signal, Signals};
use crate::sys::thread;
use crate::terminal;
use crate::user_stacks;

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The trace is complete. Contains the status of the command, unless the recorder ended it.
    Done(Option<Ended>),
    /// Ctrl-C before the recording began, or a second one: the journal is complete, its tables are not.
    Interrupted,
}

/// Runs the command line.
pub(crate) fn run(cli: &Cli) -> Result<Outcome> {
    if let Some(output) = &cli.output {
        Output::check_name(output)?;
    }
    if let Some(host) = cli.remote.host() {
        return Ok(match remote::run(&recording_on(host, cli)?)? {
            Some(ended) => Outcome::Done(Some(ended)),
            None => Outcome::Interrupted,
        });
    }
    cli.kernel.set();
    if list::answer(cli)? {
        return Ok(Outcome::Done(None));
    }
    if let Some(folder) = &cli.service.folder {
        return install_service(cli, folder);
    }
    thread::set_comm();
    if let Some(instance) = &cli.boot.collect_boot {
        return Ok(match boot::collect(cli, instance)? {
            true => Outcome::Done(None),
            false => Outcome::Interrupted,
        });
    }
    if cli.rotation.are_given() {
        return Ok(match rotation::run(&ring(cli)?)? {
            End::Done(ended) => Outcome::Done(ended),
            End::Interrupted => Outcome::Interrupted,
        });
    }
    // Before the first probe is defined, so that it is removed even after a signal.
    let signals = Signals::block().context("cannot wait for signals")?;
    let Plan {
        target,
        cpus,
        selection,
        requests,
        counted: groups,
        mut stacks,
        frequency_hz,
        delay,
        loads,
    } = Plan::read(cli)?;
    let is_flight = cli.flight.limit().is_some();
    let displays_samples = cli.displays_samples();
    // Own probes are removed when this function ends, after their events are closed.
    let mut definitions = None;
    let mut plans = Plans::read(&cli.bpf)?;
    let mut probes = requests.define(&mut definitions, &mut plans)?;
    probes.extend(plans.outputs());
    let (watched_probes, watched) = flight::watched(&cli.flight, &mut definitions)?;
    probes.extend(watched_probes);
    probes.extend(cli.triggers.probes(&mut definitions)?);
    let mut walking = match stacks.wants_walks(&probes) {
        true => user_stacks::load(cli.target_options.excludes_self, stacks.are_checked()),
        false => None,
    };
    if walking.is_none() && stacks.are_checked() {
        return Err(
            failed("--call-graph auto,check: no stacks are walked in the kernel")
                .hint("-v prints the reason, if the events are samples")
                .into(),
        );
    }
    if walking.is_some() {
        stacks.set_walked();
        probes.push(Probe::output(WALK, false));
    }
    let settings = Settings {
        starts_paused: delay.is_some(),
        has_own_records: (!is_flight
            || cli.control.may_pause()
            || cli.stat.is_requested()
            || cli.cpu_limit.is_given())
            && cli.format == Format::Pqt,
        frequency_hz,
        period: cli.count,
        stacks,
        extras: cli.extras.extras(&probes)?,
        ring_bytes: cli.ring_bytes.or(small_rings(
            &probes,
            &plans,
            cli.functions_traced.is_requested(),
        )),
        excludes_self: cli.target_options.excludes_self,
        excludes_children: cli.target_options.excludes_children,
        chosen_cpus: cli.cpus.as_ref().map(|_| cpus.clone()),
        has_no_addresses: (has_aggregates_only(&probes, &plans) || probes.is_empty())
            && !plans.have_stacks()
            && !cli.functions_traced.is_requested(),
    };
    // Defining probes may take long, and the user may have interrupted it.
    if signals
        .wait(Duration::ZERO)
        .is_ok_and(|signal| signal == Some(Signal::Finish))
    {
        log::warn!("interrupted before the recording began");
        return Ok(Outcome::Interrupted);
    }
    let control = cli.control.open()?;
    // Before limits are raised, threads started and events opened, so that the command inherits none of them.
    let waiting = match cli.command.is_empty() {
        true => None,
        false => Some(child::fork(&cli.command).context("cannot fork")?),
    };
    let command = waiting.as_ref().map(Waiting::pid);
    let places = target.places(command, &cpus)?;
    let whom = Whom {
        target: &target,
        command,
        cpus: &cpus,
        are_cpus_chosen: cli.cpus.is_some(),
    };
    let calls = plans.take_calls(&selection);
    let mut programs = plans.load(&whom, &settings)?;
    for tables in programs.take_walk_tables() {
        walking.get_or_insert_default().add(tables);
    }
    probes.extend(programs.pair(calls, &whom, &mut definitions)?);
    let counters = match groups.is_empty() {
        true => None,
        false => Some(Counters::open(
            groups,
            &stat::Places {
                target: &target,
                command,
                cpus: &cpus,
                are_cpus_chosen: cli.cpus.is_some(),
                per: cli.stat.per(),
                excludes_children: cli.target_options.excludes_children,
                starts_paused: delay.is_some(),
            },
        )?),
    };
    let functions = &cli.functions_traced;
    let tracing = Tracing::prepare(
        functions,
        &selection,
        (&target, &places),
        &cpus,
        cli.ring_bytes,
    )?;
    let (recording, rings) = Recording::open(probes, &target, &places, &settings)?;
    programs.connect(&recording, &mut definitions)?;
    if let Some(walking) = &mut walking {
        walking.connect(&recording)?;
    }
    let highest_hz = recording
        .tracks
        .iter()
        .filter_map(Track::frequency_hz)
        .max();
    if cli.cpu_limit.is_given() && highest_hz.is_none() {
        log::warn!(
            "--max-cpu: no event has a frequency that could be lowered; tracepoints, -c and aggregations in the kernel have none"
        );
    }
    let handover = match cli.rotation.segment() {
        Some(_) => Some(Handover::open()?),
        None => None,
    };
    let start = Start {
        target,
        recording,
        rings,
        programs,
        walking,
        waiting,
        tracing,
        selection: selection.clone(),
        triggers: cli.triggers.clone(),
        readings: match displays_samples {
            true => (None, false),
            false => (cli.bpf.every(), cli.bpf.is_live()),
        },
        runtimes: cli.runtimes,
        handover,
        delay,
        control,
        counters,
        // Symbols in a ring would be gone before their samples.
        cpu_limit: highest_hz.and_then(|highest_hz| cli.cpu_limit.limit(highest_hz)),
        has_python: cli.runtimes.has_python() && cli.format == Format::Pqt && !is_flight,
    };
    match cli.flight.limit() {
        None => record(cli, &selection, start, &signals, definitions.as_mut()),
        Some(limit) => {
            let watch = Watch::new(watched, &start.recording.tracks);
            let head = header::head(&start.recording, &selection);
            let kept = (limit, head, watch, loads);
            fly(cli, kept, start, &signals, definitions.as_mut())
        }
    }
}

/// Writes a service for these options, or for those of the packages if there are none.
fn install_service(cli: &Cli, folder: &Path) -> Result<Outcome> {
    let has_options = std::env::args_os().len() > 2;
    if has_options {
        if !cli.rotation.are_given() {
            return Err(misuse("--install-service: requires --rotate or --keep")
                .hint("add --rotate 10m --keep 24h: a service records until it is stopped")
                .into());
        }
        // What a recording would refuse is refused here.
        ring(cli)?;
    }
    service::install(folder, std::env::args_os(), cli.output.as_deref())?;
    Ok(Outcome::Done(None))
}

/// Returns the ring of traces; fails for options that it excludes.
fn ring(cli: &Cli) -> Result<Request, Failure> {
    exclusions::check(cli)?;
    let target = cli.target()?;
    // What does not exist is reported before anything is created.
    target.places(None, &cli.cpus()?)?;
    Ok(Request {
        path: cli.output.clone().unwrap_or_else(|| "traces".into()),
        limits: cli.rotation.limits()?,
        target,
        keeps_journals: cli.keep_raw,
        duration: cli.duration,
    })
}

/// Returns the recording on another host; fails for options that need this one.
fn recording_on<'a>(host: &'a str, cli: &Cli) -> Result<remote::Request<'a>, Failure> {
    // The first three write several traces, the last one a file that names this command line.
    let excluded = ["rotate", "keep", "snapshot-on", "install-service"];
    let mut given = cli.given.iter().map(String::as_str);
    if let Some(option) = given.find(|option| excluded.contains(option)) {
        return Err(misuse(format!("--ssh cannot be combined with --{option}"))
            .hint(format!("run: ssh {host} perfquet-record --{option} …")));
    }
    if cli.control.has_descriptors() {
        return Err(misuse(
            "--ssh cannot be combined with --control fd:N, a descriptor of this host",
        )
        .hint("use --control fifo:PATH, a FIFO of that host"));
    }
    let is_query = list::is_requested(cli);
    Ok(remote::Request {
        host,
        words: std::env::args_os().skip(1).collect(),
        output: (!is_query).then(|| cli.output()),
        form: cli.form(),
        force: cli.force,
    })
}

/// When the encoded part of the journal is packed.
fn packing(cli: &Cli) -> Packing {
    if cli.keep_raw {
        Packing::Never
    } else if cli.rotation.segment().is_some() {
        Packing::Soon
    } else {
        Packing::Late
    }
}

/// Whether nothing is recorded event by event.
fn has_aggregates_only(probes: &[Probe], plans: &Plans) -> bool {
    plans.has_sums() && plans.calls.is_empty() && probes.iter().all(Probe::is_output)
}

/// The size of rings that no events fill; making and clearing large ones takes as long as starting all the rest. `None`: there
/// are events.
fn small_rings(probes: &[Probe], plans: &Plans, traces_functions: bool) -> Option<usize> {
    /// The side-band of functions that ftrace traces.
    const SIDE_BAND: usize = 4 << 20;
    /// Stacks, when they are first seen.
    const STACKS: usize = 4 << 20;
    const NOTHING: usize = 512 << 10;
    match (probes, has_aggregates_only(probes, plans)) {
        ([], _) if traces_functions => Some(SIDE_BAND),
        ([], _) => Some(NOTHING),
        (_, true) if plans.have_stacks() => Some(STACKS),
        (_, true) => Some(NOTHING),
        (_, false) => None,
    }
}

/// Records everything from start to end into a journal, which is encoded while it grows.
fn record(
    cli: &Cli,
    selection: &Selection,
    start: Start,
    signals: &Signals,
    definitions: Option<&mut Definitions>,
) -> Result<Outcome> {
    let (output, mut journal) = Output::create(&cli.output(), cli.form(), cli.force)?;
    // Until this process ends, nobody else completes the trace.
    let segment = cli.rotation.segment();
    let _lock = segment.map(rotation::lock).transpose()?;
    let duration = cli.duration.filter(|_| segment.is_none());
    let (written, settled) = (journal.written(), journal.settled());
    if let Err(error) = journal.reserve(&output.journal_path()) {
        log::info!("no space is reserved for the end of the journal: {error}");
    }
    let started = journal
        .append(&header::head(&start.recording, selection))
        .context("cannot write the journal")
        .and_then(|()| {
            journal.settle();
            let written = Arc::clone(&written);
            let folder = output.journal_path().with_file_name("");
            Running::start(start, Sink::Journal(journal), written, &folder)
        });
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            output.discard();
            return Err(error);
        }
    };
    let displayed = cli.displays_samples().then(Arc::<AtomicU64>::default);
    let encoder = (cli.format == Format::Pqt).then(|| {
        let roots = running.containers.roots();
        let path = output.path().to_owned();
        Encoder::start(
            Source::Following {
                journal: output.journal_path(),
                settled: Arc::clone(&settled),
                packing: packing(cli),
                displayed: displayed.clone(),
            },
            path,
            selection,
            roots,
        )
    });
    if let (Some(read), Some(every)) = (displayed, cli.bpf.every()) {
        running.display(live::Request {
            journal: output.journal_path(),
            written: Arc::clone(&written),
            settled,
            read,
            roots: running.containers.roots(),
            every,
            has_command: !cli.command.is_empty(),
        });
    }
    running.until_end(signals, duration, None, &|| {
        if let Some(encoder) = &encoder {
            encoder.keep_up(written.load(Ordering::Relaxed));
        }
        has_enough(selection, encoder.as_ref())
    })?;
    // An exit caused by the recorder is not reported.
    let command_ended = running.command_ended;
    let (selection, seen) = (running.selection.clone(), Arc::clone(&running.seen));
    let (sink, drained, mut stopped) = running.stop();
    if rotation::is_unwanted(&selection) {
        stopped.close(definitions);
        return Ok(Outcome::Done(None));
    }
    cli.triggers.complain(&selection, &seen);
    let traced = std::mem::replace(&mut stopped.traced, Ok(()));
    let (lost, ended) = match sink {
        Sink::Journal(journal) => {
            let missed = definitions.as_deref().map(Definitions::missed);
            // Missing records can be counted only if all hits were to be kept.
            let may_count =
                drained.is_err() && selection.text().is_empty() && !cli.control.are_given();
            let path = may_count.then(|| output.journal_path());
            complete_journal(journal, &mut stopped, &missed.unwrap_or_default(), path)
        }
        Sink::Flight(_) => (0, Ok(())),
    };
    let user_stacks = stopped.user_stacks.take();
    let runtimes = std::mem::take(&mut stopped.runtimes);
    let counters = stopped.counters.take();
    let cpu_limit = stopped.cpu_limit.take();
    stopped.close(definitions);
    let early = drained.and(ended).err();
    let is_whole = match encoder {
        None => closing_line::file(&output, lost).map(|()| true)?,
        Some(encoder) => {
            let next = cli.next();
            let completed = complete_trace(
                &output,
                encoder,
                signals,
                (cli.keep_raw, early.is_none()),
                next,
            );
            match (completed, &early) {
                (Ok(is_whole), _) => is_whole,
                (Err(error), None) => return Err(error),
                (Err(error), Some(early)) => {
                    log::warn!("{error:#}");
                    return Err(ended_early(early)
                        .hint(format!(
                            "free disk space, then run: perfquet-convert {}",
                            output.path().display()
                        ))
                        .into());
                }
            }
        }
    };
    if segment.is_none() {
        for line in counters.iter().flat_map(Counters::summary) {
            terminal::say(line);
        }
    }
    if segment.is_none()
        && let Some(sentence) = cpu_limit.as_ref().and_then(CpuLimit::sentence)
    {
        terminal::say(sentence);
    }
    for sentence in user_stacks.iter().flat_map(user_stacks::Counts::sentences) {
        terminal::say(sentence);
    }
    for sentence in runtimes.sentences() {
        terminal::say(sentence);
    }
    if let Some(early) = early {
        return Err(ended_early(&early)
            .hint("query the trace; it holds the events written before the error")
            .into());
    }
    traced?;
    Ok(match is_whole {
        true => Outcome::Done(command_ended),
        false => Outcome::Interrupted,
    })
}

fn ended_early(error: &io::Error) -> Failure {
    failed(format!(
        "the recording ended early: cannot write the journal: {error}"
    ))
}

/// Adds the information known only at the end: losses and aggregates. Returns the number of lost events, as far as they could be
/// counted. Whatever fails, the journal ends with a whole record. `path` is set if the journal could not be written to its end.
fn complete_journal(
    mut journal: Journal,
    stopped: &mut Stopped,
    missed: &[(String, u64)],
    path: Option<PathBuf>,
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
    let ended = counted.and_then(|()| {
        journal.append(&std::mem::take(&mut stopped.counts))?;
        if let Some(counts) = &stopped.user_stacks {
            journal.append(&header::user_stacks(&stopped.recording, &counts.text()))?;
        }
        if let Some(text) = stopped.runtimes.text() {
            journal.append(&header::runtimes(&stopped.recording, text))?;
        }
        if let Ok((records, _)) = &summed_up {
            journal.append(records)?;
        }
        journal.finish_round()
    });
    match summed_up {
        Ok((_, lost_by_programs)) => lost += lost_by_programs,
        Err(error) => return (lost, ended.and(Err(io::Error::other(error)))),
    }
    (lost, ended)
}

/// Keeps the last events; writes a trace on request and at the end.
fn fly(
    cli: &Cli,
    (limit, head, watch, loads): (Limit, Vec<u8>, Option<Watch>, Loads),
    start: Start,
    signals: &Signals,
    definitions: Option<&mut Definitions>,
) -> Result<Outcome> {
    let output = cli.output();
    if cli.format == Format::PerfData {
        Output::check(&output, cli.force)?;
    }
    let folder = flight::folder_of(&output, cli.format);
    let form = Form {
        format: Format::Pqt,
        ..cli.form()
    };
    let (place, journal) = Output::create(&folder, form, cli.force)?;
    let (mut snapshots, asker) = Snapshots::new(&output, cli.form(), cli.flight.signals(), loads);
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
    running.until_end(signals, cli.duration, Some(&mut snapshots), &|| false)?;
    let command_ended = running.command_ended;
    let (sink, drained, mut stopped) = running.stop();
    let runtimes = std::mem::take(&mut stopped.runtimes);
    stopped.close(definitions);
    if let Sink::Flight(kept) = sink {
        let last = Last {
            force: cli.force,
            keeps_journal: cli.keep_raw,
        };
        snapshots.finish(&kept.held(), &place, last)?;
    }
    for sentence in runtimes.sentences() {
        terminal::say(sentence);
    }
    drained.context("the recording ended early: cannot write the journal")?;
    Ok(Outcome::Done(command_ended))
}

/// Whether the requested number of events has been recorded.
fn has_enough(selection: &Selection, encoder: Option<&Encoder>) -> bool {
    let (Some(most), Some(encoder)) = (selection.max_events, encoder) else {
        return false;
    };
    encoder.kept() >= most
}
