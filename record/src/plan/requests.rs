//! The requested events and probes with their filters, recorded individually or aggregated: first parsed, then defined.

use anyhow::Result;

use crate::bpf::Plans;
use crate::cli::{Cli, ProbeRequest};
use crate::failure::{Failure, misuse};
use crate::output::Format;
use crate::probe::definition::Definitions;
use crate::probe::{self, Probe, ProbeOption, Usage, Wanted, call, counter};

/// What `-e`, the probe options, `--filter`, `--agg`, `-F` and `-c` request.
pub(crate) struct Requests<'a> {
    pub(super) events: Vec<Request<'a>>,
    /// Without any event.
    pub(super) default: Option<Probe>,
}

/// An option that asks for events or their aggregates, parsed.
pub(crate) struct Request<'a> {
    pub(super) option: &'a ProbeRequest,
    /// All its filters, in one.
    pub(super) filter: Option<String>,
    pub(super) what: What,
}

/// What happens with the events of an option.
pub(crate) enum What {
    /// They are recorded.
    Rows(Wanted),
    /// They are aggregated.
    Hits(Wanted),
    /// Calls are aggregated.
    Calls(Vec<call::Functions>),
    /// Calls are paired in the kernel, and recorded.
    Paired(call::Functions),
    /// The time between events is aggregated.
    Latency,
}

impl<'a> Requests<'a> {
    /// Parses the options, and changes nothing.
    pub(crate) fn read(cli: &'a Cli) -> Result<Requests<'a>> {
        if cli.placed.has_lonely_filter {
            return Err(misuse("--filter: no event or probe precedes it").into());
        }
        if cli.placed.has_lonely_aggregation {
            return Err(misuse("--agg: no event or probe precedes it")
                .hint("put it after the event or probe to aggregate")
                .into());
        }
        let events = cli
            .placed
            .requests
            .iter()
            .map(|option| request(cli, option));
        let events = events.collect::<Result<Vec<Request<'_>>, Failure>>()?;
        let mut existing = events.iter().flat_map(Request::existing);
        let has_sampled = existing.any(Probe::is_sampled);
        let has_recorded = events
            .iter()
            .any(|request| matches!(request.what, What::Rows(_)));
        if !has_sampled && cli.sampling.count.is_some() && has_recorded {
            return Err(
                misuse("-c: applies only to counters and clocks, not to tracepoints")
                    .hint("add one, for example -e cycles -c 1000000")
                    .into(),
            );
        }
        // A frequency requests samples, also in addition to tracepoints.
        let is_frequency_requested = !has_sampled && cli.sampling.frequency.is_some();
        let has_none = !has_recorded
            && !cli.functions_traced.is_requested()
            && !cli.events.stat.is_requested();
        let has_programs = cli.aggregates() || events.iter().any(Request::is_paired);
        let default = match !has_programs && (has_none || is_frequency_requested) {
            true => Some(counter::default()?),
            false => None,
        };
        Ok(Requests { events, default })
    }

    /// Returns the recorded events that need no definition.
    pub(super) fn existing(&self) -> Vec<Probe> {
        let recorded = self.events.iter().flat_map(Request::existing);
        recorded.chain(&self.default).cloned().collect()
    }

    /// Defines the probes, and returns the events to record. Aggregations become plans.
    pub(crate) fn define(
        self,
        definitions: &mut Option<Definitions>,
        plans: &mut Plans,
    ) -> Result<Vec<Probe>, Failure> {
        let mut probes = Vec::new();
        for request in self.events {
            let (text, texts) = (&request.option.text, &request.option.aggregations);
            let filter = request.filter.as_deref();
            match request.what {
                What::Rows(wanted) => {
                    let mut found = wanted.define(definitions, Usage::Rows)?;
                    for probe in &mut found {
                        probe.filter = request.filter.clone();
                    }
                    probes.extend(found);
                }
                What::Hits(wanted) => {
                    let found = wanted.define(definitions, Usage::Programs)?;
                    plans.aggregate_hits(text, texts, filter, &found)?;
                }
                What::Calls(functions) => plans.aggregate_calls(text, texts, filter, functions)?,
                What::Paired(functions) => plans.calls.push(functions),
                What::Latency => plans.aggregate_latency(text, texts, filter)?,
            }
        }
        probes.extend(self.default);
        Ok(probes)
    }
}

impl Request<'_> {
    /// Returns the recorded events that need no definition.
    pub(super) fn existing(&self) -> &[Probe] {
        match &self.what {
            What::Rows(Wanted::Events(probes)) => probes,
            _ => &[],
        }
    }

    fn is_paired(&self) -> bool {
        matches!(self.what, What::Paired(_))
    }
}

fn request<'a>(cli: &Cli, option: &'a ProbeRequest) -> Result<Request<'a>, Failure> {
    // As in perf, all filters of an event must match.
    let filter = match &option.filters[..] {
        [] => None,
        [filter] => Some(filter.clone()),
        filters => Some(format!("({})", filters.join(") && ("))),
    };
    let is_aggregated = !option.aggregations.is_empty();
    let text = &option.text;
    let what = match option.option {
        ProbeOption::Latency => What::Latency,
        ProbeOption::Call if is_aggregated => What::Calls(calls(option, filter.as_deref())?),
        ProbeOption::Call if filter.is_some() => {
            return Err(misuse(format!("--filter: {text} is a call, not an event"))
                .hint("filter calls with --min-duration, --max-duration or --context, or aggregate them with --agg"));
        }
        ProbeOption::Call if may_pair_in_kernel(cli) => What::Paired(call::functions(text)?),
        _ if is_aggregated => What::Hits(probe::wanted(option.option, text, Usage::Programs)?),
        _ => What::Rows(probe::wanted(option.option, text, Usage::Rows)?),
    };
    if let (What::Rows(Wanted::Events(probes)), Some(_)) = (&what, &filter)
        && probes.iter().any(Probe::is_sampled)
    {
        return Err(misuse(format!("--filter: {text} is not a tracepoint"))
            .hint("drop --filter; counters and clocks have no fields"));
    }
    check_aggregations(option, filter.as_deref(), &what)?;
    Ok(Request {
        option,
        filter,
        what,
    })
}

/// Fails for aggregations that the events cannot have. Fields of probes are known when these are defined.
fn check_aggregations(
    option: &ProbeRequest,
    filter: Option<&str>,
    what: &What,
) -> Result<(), Failure> {
    let (text, texts) = (&option.text, &option.aggregations);
    let mut plans = Plans::default();
    match what {
        What::Hits(Wanted::Events(probes)) => plans.aggregate_hits(text, texts, filter, probes),
        What::Calls(functions) => Plans::check_calls(text, texts, filter, functions),
        What::Latency => plans.aggregate_latency(text, texts, filter),
        What::Rows(_) | What::Hits(_) | What::Paired(_) => Ok(()),
    }
}

/// The functions of calls that are aggregated. The return value needs not be named with the function.
fn calls(option: &ProbeRequest, filter: Option<&str>) -> Result<Vec<call::Functions>, Failure> {
    const RETVAL: &str = "$retval";
    let texts = option.aggregations.iter().map(String::as_str);
    let has_retval = texts.chain(filter).any(|text| text.contains("retval"));
    let all = option.earlier.iter().chain([&option.text]);
    all.map(|text| match has_retval && !text.contains(RETVAL) {
        true => call::functions(&format!("{text} {RETVAL}")),
        false => call::functions(text),
    })
    .collect()
}

/// Whether the kernel may pair entries and returns of --call: only if calls are filtered by duration and no option
/// needs data that the BPF program does not report.
fn may_pair_in_kernel(cli: &Cli) -> bool {
    let calls = &cli.calls;
    let has_limit = calls.min_duration.is_some() || calls.max_duration.is_some();
    let is_more = calls.context.is_some()
        || calls.max_events.is_some()
        || cli.sampling.stacks.is_requested()
        || cli.target.options.excludes_children;
    has_limit
        && !is_more
        && cli.output.format == Format::Pqt
        && cli.retention.flight.limit().is_none()
}
