//! The requested probes, with their filters, recorded individually or aggregated.

use anyhow::Result;

use crate::bpf::Plans;
use crate::cli::{Cli, ProbeRequest};
use crate::failure::{Failure, misuse};
use crate::probe::definition::Definitions;
use crate::probe::{self, Probe, ProbeOption, call, counter};

/// Returns the probes of `-e`, the probe options, `--filter`, `-F` and `-c`.
pub(crate) fn probes(
    cli: &Cli,
    definitions: &mut Option<Definitions>,
    plans: &mut Plans,
) -> Result<Vec<Probe>> {
    if cli.has_lonely_filter {
        return Err(misuse("--filter: no event or probe precedes it").into());
    }
    if cli.has_lonely_aggregation {
        return Err(misuse("--agg: no event or probe precedes it")
            .hint("put it after the event or probe to aggregate")
            .into());
    }
    let mut probes = Vec::new();
    for request in &cli.requests {
        // As in perf, all filters of an event must match.
        let filter = match &request.filters[..] {
            [] => None,
            [filter] => Some(filter.clone()),
            filters => Some(format!("({})", filters.join(") && ("))),
        };
        match request.option {
            ProbeOption::Latency => {
                let (text, texts) = (&request.text, &request.aggregations);
                plans.aggregate_latency(text, texts, filter.as_deref())?;
                continue;
            }
            ProbeOption::Call if !request.aggregations.is_empty() => {
                aggregate_calls(request, filter.as_deref(), plans)?;
                continue;
            }
            ProbeOption::Call if filter.is_some() => {
                return Err(misuse(format!(
                    "--filter: {} is a call, not an event",
                    request.text
                ))
                .hint("filter calls with --min-duration, --max-duration or --context, or aggregate them with --agg")
                .into());
            }
            ProbeOption::Call if cli.may_pair_in_kernel() => {
                plans.calls.push(call::functions(&request.text)?);
                continue;
            }
            _ => {}
        }
        let mut found = match request.aggregations.is_empty() {
            true => probe::of(request.option, &request.text, definitions)?,
            false => probe::for_programs(request.option, &request.text, definitions)?,
        };
        if !request.aggregations.is_empty() {
            let filter = filter.as_deref();
            plans.aggregate_hits(&request.text, &request.aggregations, filter, &found)?;
            continue;
        }
        if let Some(filter) = &filter {
            set_filter(&mut found, &request.text, filter)?;
        }
        probes.extend(found);
    }
    let has_sampled = probes.iter().any(Probe::is_sampled);
    if !has_sampled && cli.count.is_some() && !probes.is_empty() {
        return Err(
            misuse("-c: applies only to counters and clocks, not to tracepoints")
                .hint("add one, for example -e cycles -c 1000000")
                .into(),
        );
    }
    // A frequency requests samples, also in addition to tracepoints.
    let is_frequency_requested = !has_sampled && cli.frequency.is_some();
    let has_none =
        probes.is_empty() && !cli.functions_traced.is_requested() && !cli.stat.is_requested();
    if plans.is_empty() && (has_none || is_frequency_requested) {
        probes.push(counter::default()?);
    }
    Ok(probes)
}

/// The calls of an option, aggregated. The return value needs not be named with the function.
fn aggregate_calls(
    request: &ProbeRequest,
    filter: Option<&str>,
    plans: &mut Plans,
) -> Result<(), Failure> {
    const RETVAL: &str = "$retval";
    let texts = request.aggregations.iter().map(String::as_str);
    let has_retval = texts.chain(filter).any(|text| text.contains("retval"));
    let mut functions = Vec::new();
    for text in request.earlier.iter().chain([&request.text]) {
        let mut text = text.clone();
        if has_retval && !text.contains(RETVAL) {
            text.push(' ');
            text.push_str(RETVAL);
        }
        functions.push(call::functions(&text)?);
    }
    plans.aggregate_calls(&request.text, &request.aggregations, filter, functions)
}

fn set_filter(probes: &mut [Probe], argument: &str, filter: &str) -> Result<(), Failure> {
    for probe in probes {
        if probe.is_sampled() {
            return Err(misuse(format!("--filter: {argument} is not a tracepoint"))
                .hint("drop --filter; counters and clocks have no fields"));
        }
        probe.filter = Some(filter.to_owned());
    }
    Ok(())
}
