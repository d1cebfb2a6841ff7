//! BPF programs, from the command line to their records in the journal.
//!
//! ```text
//! Plans::read ─► outputs ─► load (whom) ─► connect (rings, probes) ─► start … stop ─► records
//! ```
//! The results of a program reach the journal in one of two ways: as single records through the rings, which are samples
//! of an event `perfquet:NAME` ([`Probe::output`]), or as aggregates, read from the program's maps ([`aggregation`]).
//!
//! To add a program: `ebpf/src/NAME.bpf.c` (with program.h), `cargo xtask bpf`, a line in `ebpf/src/compiled.rs`, its
//! structs in layout/; a file here with its options, and a field in [`Options`], [`Plans`] and [`Programs`]; for records of
//! a new kind, an entry in `formats/events/src/wire/mod.rs`.

mod agg;
mod aggregate_rows;
mod aggregation;
pub(crate) mod calls;
mod intervals;
mod latency;
mod live;
mod off_cpu;
mod pairing;
mod plan;
mod profile;
pub(crate) mod walking;
mod whom;

use std::os::fd::{AsFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use perfquet_cli::quantity::duration;
use perfquet_ebpf::walk_tables::WalkTables;
use perfquet_ebpf::{Error, Object, layout};
use perfquet_events::event::Selection;

use crate::failure::{Failure, failed};
use crate::journal::own_records::OwnRecords;
use crate::probe::Probe;
use crate::probe::call::Functions;
use crate::probe::definition::Definitions;
use crate::probe::edges::Both;
use crate::recording::Recording;
use crate::sys::clock;
use crate::target::Target;
use aggregation::Aggregation;
use latency::Latency;
use plan::{Output, Plan, Requested};

pub(crate) use agg::AGGREGATIONS;
pub(crate) use live::Live;

/// The event that carries stacks, aggregates and losses.
pub(crate) const OWN_RECORDS: &str = "records";

/// Command-line options.
#[derive(Debug, Clone, Args)]
#[group(id = "bpf")]
pub(crate) struct Options {
    #[command(flatten)]
    agg: agg::Options,
    #[command(flatten)]
    off_cpu: off_cpu::Options,
    #[command(flatten)]
    profile: profile::Options,
    /// Read aggregates and counts every TIME, for a time series in their tables [default: once]
    ///
    /// Also the interval of --live.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    every: Option<Duration>,
    /// Show the hottest functions and threads while recording [default interval: 1s]
    ///
    /// With an aggregation or --stat, prints the aggregates and counts of each interval instead. On a terminal, the display takes the
    /// screen unless a command is recorded; otherwise each interval is printed as text.
    #[arg(long, help_heading = "Output")]
    live: bool,
}

/// Parses the value of `--every`.
fn interval(text: &str) -> Result<Duration, String> {
    const LEAST: Duration = Duration::from_millis(10);
    match duration(text)? {
        time if time < LEAST => Err("expected at least 10ms".to_owned()),
        time => Ok(time),
    }
}

/// The requested programs, before loading.
#[derive(Default)]
pub(crate) struct Plans {
    /// Functions whose calls are paired in the kernel.
    pub(crate) calls: Vec<Functions>,
    of_hits: Vec<Requested<Probe>>,
    of_calls: Vec<(Requested<Both>, Rc<Vec<Functions>>)>,
    of_latencies: Vec<Requested<Latency>>,
    off_cpu: Option<off_cpu::Plan>,
}

/// The tasks that programs record.
pub(crate) struct Whom<'a> {
    /// The target given on the command line.
    pub(crate) target: &'a Target,
    /// PID of the command, which waits to start.
    pub(crate) command: Option<i32>,
    /// The recorded CPUs.
    pub(crate) cpus: &'a [u32],
    /// Whether the user selected these CPUs.
    pub(crate) are_cpus_chosen: bool,
}

/// The loaded programs.
#[derive(Default)]
pub(crate) struct Programs {
    /// Calls filtered by duration.
    pub(crate) calls: Option<calls::Calls>,
    aggregations: Vec<Aggregation>,
    off_cpu: Option<off_cpu::OffCpu>,
    /// Number of times that aggregates were read.
    printouts: u32,
    /// Whether aggregates are read at intervals.
    has_intervals: bool,
}

impl Options {
    /// Returns the command that shows the aggregates, if any are requested.
    pub(crate) fn report(&self) -> Option<&'static str> {
        if self.off_cpu.is_requested() || self.profile.is_requested() {
            return Some("perfquet-query flamegraph -o FILE.svg");
        }
        let texts = self.agg.texts();
        let has_stack = |text: &String| text.contains("stack");
        match texts {
            [] => None,
            texts if texts.iter().any(|text| text.contains("quantize(")) => {
                Some("perfquet-query hist")
            }
            texts if texts.iter().any(has_stack) => Some("perfquet-query flamegraph -o FILE.svg"),
            _ => Some("perfquet-query agg"),
        }
    }

    /// Returns the names of the programs that belong to no event, and what they aggregate.
    pub(crate) fn programs(&self) -> Vec<(&'static str, &'static str)> {
        let programs = [
            (
                self.profile.is_requested(),
                ("profile", "samples by comm, pid, kstack, ustack"),
            ),
            (
                self.off_cpu.is_requested(),
                (
                    "off-cpu",
                    "time off the CPU by comm, pid, reason, waker, kstack, ustack",
                ),
            ),
        ];
        let wanted = programs.into_iter().filter(|(is_wanted, _)| *is_wanted);
        wanted.map(|(_, program)| program).collect()
    }

    /// Returns the interval at which aggregates are read, if any.
    pub(crate) fn every(&self) -> Option<Duration> {
        self.every.or(self.live.then_some(Duration::from_secs(1)))
    }

    /// Whether to print each interval.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Returns the values of `--agg`, in order.
    pub(crate) fn aggregations(&self) -> &[String] {
        self.agg.texts()
    }
}

impl Plans {
    /// Plans the programs that belong to no event or probe: profile and off-CPU time.
    pub(crate) fn read(options: &Options) -> Result<Plans, Failure> {
        let mut plans = Plans {
            off_cpu: off_cpu::plan(&options.off_cpu),
            ..Plans::default()
        };
        plans.of_hits.extend(profile::requested(&options.profile)?);
        Ok(plans)
    }

    /// Adds the aggregations `texts` of the probes that match `argument`, over the hits that pass `filter`.
    pub(crate) fn aggregate_hits(
        &mut self,
        argument: &str,
        texts: &[String],
        filter: Option<&str>,
        probes: &[Probe],
    ) -> Result<(), Failure> {
        for mut requested in agg::of_hits(argument, texts, filter, probes)? {
            self.name(argument, &mut requested.plan);
            self.of_hits.push(requested);
        }
        Ok(())
    }

    /// Adds the aggregations `texts` of the calls of `functions`, over those that pass `filter`. `argument` is the last option.
    pub(crate) fn aggregate_calls(
        &mut self,
        argument: &str,
        texts: &[String],
        filter: Option<&str>,
        functions: Vec<Functions>,
    ) -> Result<(), Failure> {
        let functions = Rc::new(functions);
        let all = functions.iter().flat_map(|of_option| &of_option.all);
        for mut requested in agg::of_calls(argument, texts, filter, all)? {
            self.name(argument, &mut requested.plan);
            self.of_calls.push((requested, Rc::clone(&functions)));
        }
        Ok(())
    }

    /// Fails for aggregations that these calls cannot have.
    pub(crate) fn check_calls(
        argument: &str,
        texts: &[String],
        filter: Option<&str>,
        functions: &[Functions],
    ) -> Result<(), Failure> {
        let all = functions.iter().flat_map(|of_option| &of_option.all);
        agg::of_calls(argument, texts, filter, all).map(drop)
    }

    /// Adds the aggregations `texts` of a latency, over those that pass `filter`.
    pub(crate) fn aggregate_latency(
        &mut self,
        argument: &str,
        texts: &[String],
        filter: Option<&str>,
    ) -> Result<(), Failure> {
        for mut requested in latency::requested(argument, texts, filter)? {
            self.name(argument, &mut requested.plan);
            self.of_latencies.push(requested);
        }
        Ok(())
    }

    /// Prefixes names that another aggregation has with the probe or function.
    fn name(&self, argument: &str, plan: &mut Plan) {
        let plans = self.of_hits.iter().map(|requested| &requested.plan);
        let plans = plans.chain(self.of_calls.iter().map(|(requested, _)| &requested.plan));
        let plans = plans.chain(self.of_latencies.iter().map(|requested| &requested.plan));
        let taken: Vec<&Output> = plans.flat_map(|plan| &plan.outputs).collect();
        for output in &mut plan.outputs {
            if taken.iter().any(|other| other.name == output.name) {
                output.name = format!("{argument} {}", output.name);
            }
        }
    }

    /// Whether nothing is requested.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_sums() && self.calls.is_empty()
    }

    /// Whether aggregates over all events are requested.
    pub(crate) fn has_sums(&self) -> bool {
        let is_aggregated =
            !self.of_hits.is_empty() || !self.of_calls.is_empty() || !self.of_latencies.is_empty();
        is_aggregated || self.off_cpu.is_some()
    }

    /// Whether aggregates have stacks in their keys.
    pub(crate) fn have_stacks(&self) -> bool {
        let plans = self.of_hits.iter().map(|requested| &requested.plan);
        let plans = plans.chain(self.of_calls.iter().map(|(requested, _)| &requested.plan));
        let plans = plans.chain(self.of_latencies.iter().map(|requested| &requested.plan));
        let mut keys = plans.flat_map(|plan| &plan.keys);
        self.off_cpu.is_some() || keys.any(|key| key.is_stack())
    }

    /// Returns the events to which programs write.
    pub(crate) fn outputs(&self) -> Vec<Probe> {
        match self.is_empty() {
            true => Vec::new(),
            false => vec![own_records()],
        }
    }

    /// Takes the functions whose calls are paired in the kernel.
    pub(crate) fn take_calls(&mut self, selection: &Selection) -> Option<calls::Plan> {
        let functions = std::mem::take(&mut self.calls);
        (!functions.is_empty()).then(|| calls::Plan::of(functions, selection))
    }

    /// Loads the programs, without attaching them.
    pub(crate) fn load(
        self,
        whom: &Whom<'_>,
        settings: &crate::recording::Settings,
    ) -> Result<Programs> {
        let mut programs = Programs::default();
        for requested in self.of_hits {
            let loaded = Aggregation::of_hits(requested, whom, settings)?;
            programs.aggregations.push(loaded);
        }
        for (requested, functions) in self.of_calls {
            let loaded = Aggregation::of_calls(requested, &functions, whom, settings)?;
            programs.aggregations.push(loaded);
        }
        for requested in self.of_latencies {
            let loaded = Aggregation::of_latency(requested, whom, settings)?;
            programs.aggregations.push(loaded);
        }
        if let Some(plan) = self.off_cpu {
            programs.off_cpu = Some(off_cpu::OffCpu::load(&plan, whom, settings.stacks)?);
        }
        Ok(programs)
    }
}

impl Programs {
    /// Whether aggregates include user stacks, whose code may need names from runtimes.
    pub(crate) fn has_user_stacks(&self) -> bool {
        let mut aggregations = self.aggregations.iter();
        let of_off_cpu = self.off_cpu.as_ref();
        of_off_cpu.is_some_and(off_cpu::OffCpu::has_user_stacks)
            || aggregations.any(Aggregation::has_user_stacks)
    }

    /// Takes the tables of the programs that walk the stacks in their keys.
    pub(crate) fn take_walk_tables(&mut self) -> Vec<WalkTables> {
        let aggregations = self.aggregations.iter_mut();
        let off_cpu = self.off_cpu.as_mut();
        aggregations
            .flat_map(Aggregation::take_walk_tables)
            .chain(off_cpu.and_then(off_cpu::OffCpu::take_walk_tables))
            .collect()
    }

    /// Loads the programs that pair calls. Returns the events to record: the programs' output or, if they cannot be loaded,
    /// the entries and returns themselves.
    pub(crate) fn pair(
        &mut self,
        plan: Option<calls::Plan>,
        whom: &Whom<'_>,
        definitions: &mut Option<Definitions>,
    ) -> Result<Vec<Probe>, Failure> {
        let Some(plan) = plan else {
            return Ok(Vec::new());
        };
        match plan.load(whom, definitions) {
            Ok(calls) => {
                log::info!("calls are paired in the kernel");
                let output = calls.output();
                self.calls = Some(calls);
                Ok(vec![output])
            }
            Err(error) => {
                log::info!("calls are paired in user space: {error:#}");
                plan.define(definitions)
            }
        }
    }

    /// Connects the programs' output to the rings and attaches them, switched off.
    pub(crate) fn connect(
        &mut self,
        recording: &Recording,
        definitions: &mut Option<Definitions>,
    ) -> Result<()> {
        if let Some(calls) = &mut self.calls {
            calls.connect(recording)?;
        }
        for aggregation in &mut self.aggregations {
            aggregation.connect(recording, definitions)?;
        }
        if let Some(off_cpu) = &mut self.off_cpu {
            off_cpu.connect(recording)?;
        }
        Ok(())
    }

    /// Whether there are aggregates to read.
    pub(crate) fn has_sums(&self) -> bool {
        self.off_cpu.is_some() || !self.aggregations.is_empty()
    }

    /// Starts recording.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.set_on(true).into_iter().collect()
    }

    /// Stops recording.
    pub(crate) fn stop(&mut self) {
        for result in self.set_on(false) {
            // A program that cannot be switched off is removed with the recorder's descriptors.
            if let Err(error) = result {
                log::debug!("{error:#}");
            }
        }
    }

    /// Starts or stops every program; one result per program.
    fn set_on(&mut self, is_on: bool) -> Vec<Result<()>> {
        let mut results = Vec::new();
        results.extend(self.calls.as_mut().map(|calls| calls.set_on(is_on)));
        let aggregations = self.aggregations.iter_mut();
        results.extend(aggregations.map(|aggregation| aggregation.set_on(is_on)));
        results.extend(self.off_cpu.as_mut().map(|off_cpu| off_cpu.set_on(is_on)));
        results
    }

    /// Returns the descriptors of tracepoints and, if `with_own`, of the recorder's probes. Closing one waits for an RCU
    /// grace period of the kernel, so the caller closes many in the background.
    pub(crate) fn slow_to_close(&self, with_own: bool) -> Vec<RawFd> {
        let calls = self.calls.iter().filter(|_| with_own);
        let aggregations = self.aggregations.iter();
        calls
            .flat_map(calls::Calls::descriptors)
            .chain(aggregations.flat_map(|aggregation| aggregation.slow_to_close(with_own)))
            .collect()
    }

    /// Returns the aggregates of the interval that ends, as records for the journal.
    pub(crate) fn interval(
        &mut self,
        recording: &Recording,
        live: Option<&mut Live>,
    ) -> Result<Vec<u8>> {
        for aggregation in &mut self.aggregations {
            aggregation.begin_interval()?;
        }
        if let Some(off_cpu) = &mut self.off_cpu {
            off_cpu.begin_interval()?;
        }
        self.has_intervals = true;
        let records = self.end_interval(recording, false, live)?;
        Ok(records.map(OwnRecords::into_bytes).unwrap_or_default())
    }

    /// Returns the last aggregates and the losses, as records for the journal, and the number of losses. The rings must
    /// be drained.
    pub(crate) fn records(&mut self, recording: &Recording) -> Result<(Vec<u8>, u64)> {
        let Some(mut records) = self.end_interval(recording, true, None)? else {
            return Ok((Vec::new(), 0));
        };
        let mut lost = 0;
        if let Some(calls) = &self.calls {
            lost += calls.put_losses(&mut records)?;
        }
        for aggregation in &mut self.aggregations {
            lost += aggregation.put_losses(&mut records)?;
        }
        if let Some(off_cpu) = &self.off_cpu {
            lost += off_cpu.put_losses(&mut records)?;
        }
        Ok((records.into_bytes(), lost))
    }

    /// Reads the aggregates of an interval. Returns `None` if no program is loaded.
    fn end_interval(
        &mut self,
        recording: &Recording,
        is_last: bool,
        live: Option<&mut Live>,
    ) -> Result<Option<OwnRecords>> {
        let id = recording
            .output(OWN_RECORDS)
            .and_then(|track| track.events.first());
        let Some(id) = id.map(|opened| opened.id) else {
            return Ok(None);
        };
        let now = clock::monotonic();
        let mut records = OwnRecords::new(id, now, self.printouts);
        self.printouts += 1;
        let mut printing = Printing {
            now,
            has_intervals: self.has_intervals,
            is_last,
            live,
        };
        for aggregation in &mut self.aggregations {
            aggregation.end_interval(&mut records, &mut printing)?;
        }
        if let Some(off_cpu) = &mut self.off_cpu {
            off_cpu.end_interval(&mut records, &mut printing)?;
        }
        Ok(Some(records))
    }
}

/// An interval that ends.
struct Printing<'a> {
    now: u64,
    /// Whether intervals are recorded, not just totals.
    has_intervals: bool,
    is_last: bool,
    /// The output of `--live`.
    live: Option<&'a mut Live>,
}

/// Returns the event whose samples are stacks, aggregates and losses.
pub(crate) fn own_records() -> Probe {
    Probe::output(OWN_RECORDS, false)
}

/// Connects the output map `map` of the programs to the rings, as samples of `perfquet:NAME`.
fn send(object: &mut Object, map: &str, recording: &Recording, name: &str) -> Result<(), Failure> {
    let Some(track) = recording.output(name) else {
        return Err(failed(format!("no event carries the records of {map}")));
    };
    for opened in &track.events {
        object
            .send_to(map, opened.place.cpu, opened.event.as_fd())
            .map_err(|error| refused(name, &error))?;
    }
    Ok(())
}

/// A reason that only one kind of program uses.
enum Reason {
    /// Filtered, with this reason; not a loss.
    Filtered(String),
    /// Lost, for this reason.
    Lost(&'static str),
}

/// Adds the numbers of filtered and lost hits of an object's programs; returns the number of lost ones. `own` has the
/// reasons from [`layout::OWN_REASONS`] on.
fn put_losses(
    object: &Object,
    what: &str,
    records: &mut OwnRecords,
    own: &[Reason],
) -> Result<u64, Failure> {
    let mut total = 0;
    let lost = object.lost().map_err(|error| refused(what, &error))?;
    for (number, count) in lost {
        let shared = layout::REASONS.iter().find(|(reason, _)| *reason == number);
        let own = number
            .checked_sub(layout::OWN_REASONS)
            .and_then(|place| own.get(place as usize));
        let words = match (shared, own) {
            (_, Some(Reason::Filtered(words))) => {
                records.loss(count, words);
                continue;
            }
            (_, Some(Reason::Lost(words))) | (Some((_, words)), None) => words,
            (None, None) => "unknown",
        };
        records.loss(count, &format!("{what}: {words}"));
        total += count;
    }
    Ok(total)
}

/// Converts an error of the loader to a message, with its hint.
pub(crate) fn refused(what: &str, error: &Error) -> Failure {
    if let Error::Refused { log, .. } = error {
        log::debug!("{log}");
    }
    let failure = failed(format!("{what}: {error}"));
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
