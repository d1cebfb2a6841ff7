//! `--dry-run`: the plan in words.
//!
//! ```text
//! target      system, 2 CPUs
//! event       sched:sched_switch: every hit, filter prev_pid > 0
//! probe       probe:vfs_read: f:pq_…/vfs_read vfs_read count=$arg3:u64
//! stacks      kernel and user
//! output      trace.pqt, a new directory
//! privileges  root for all processes, tracepoints; this user is not root
//! ```

use std::fmt::Write as _;

use anyhow::Result;
use perfquet_trace::count::counted;

use super::Plan;
use super::requests::{Request, What};
use crate::cli::Cli;
use crate::control::Delay;
use crate::output::{Format, Output};
use crate::probe::definition::Definition;
use crate::probe::{Kind, Probe, Wanted, counter};
use crate::recording::{Rate, rate};
use crate::sys::host;

/// Longer lists are counted.
const MOST_NAMES: usize = 8;

/// Returns the lines of the plan.
pub(crate) fn print(cli: &Cli) -> Result<String> {
    let plan = Plan::read(cli)?;
    if cli.retention.rotation.are_given() {
        cli.retention.rotation.limits()?;
    }
    let mut lines = Lines::default();
    let of_system = match plan.target.is_of_cpus() {
        true => format!(", {}", counted(plan.cpus.len() as u64, "CPU")),
        false => String::new(),
    };
    lines.add("target", plan.target.describe(None) + &of_system);
    if !cli.command.is_empty() {
        let words = cli.command.iter().map(|word| word.to_string_lossy());
        lines.add("command", words.collect::<Vec<_>>().join(" "));
    }
    for request in &plan.requests.events {
        lines.request(request, &plan, cli);
    }
    if let Some(default) = &plan.requests.default {
        lines.events(std::slice::from_ref(default), None, &plan, cli);
    }
    for (name, what) in cli.in_kernel.bpf.programs() {
        lines.add("aggregation", format!("{name}: {what}"));
    }
    for name in cli.functions_traced.names() {
        lines.add("functions", name);
    }
    for group in &plan.counted {
        let names: Vec<&str> = group.iter().map(|probe| probe.name.as_str()).collect();
        lines.add("counter", names.join(", "));
    }
    match (plan.stacks.describe(), cli.aggregates()) {
        ("none", true) => lines.add("stacks", "only those in keys of aggregations".to_owned()),
        (_, true) if plan.samples_nothing() => {
            lines.add("stacks", plan.stacks.describe_in_keys().to_owned());
        }
        (stacks, _) => lines.add("stacks", stacks.to_owned()),
    }
    if cli.sampling.keep_code {
        lines.add(
            "code",
            "of sampled functions that will be gone later".to_owned(),
        );
    }
    lines.limits(&plan, cli);
    lines.output(cli);
    lines.add("privileges", privileges(&plan, cli));
    Ok(lines.text)
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn add(&mut self, label: &str, text: String) {
        let _ = writeln!(self.text, "{label:<11} {text}");
    }

    fn request(&mut self, request: &Request<'_>, plan: &Plan<'_>, cli: &Cli) {
        let filter = request.filter.as_deref();
        match &request.what {
            What::Rows(Wanted::Events(probes)) => self.events(probes, filter, plan, cli),
            What::Rows(Wanted::Probes(wanted)) => self.probes(wanted, filter),
            What::Rows(Wanted::Calls(functions)) | What::Paired(functions) => {
                let names = functions.all.iter().map(|both| both.function.clone());
                let names: Vec<String> = names.collect();
                self.add("calls", listed(&names));
            }
            What::Hits(_) | What::Calls(_) | What::Latency => {
                let mut text = request.option.text.clone();
                let aggregations = request.option.aggregations.join("; ");
                if !aggregations.is_empty() {
                    let _ = write!(text, ": {aggregations}");
                }
                self.add("aggregation", with_filter(text, filter));
            }
        }
    }

    fn events(&mut self, probes: &[Probe], filter: Option<&str>, plan: &Plan<'_>, cli: &Cli) {
        for probe in probes.iter().take(MOST_NAMES) {
            let names = probe.members.iter().map(|member| member.name.as_str());
            let names: Vec<&str> = [probe.name.as_str()].into_iter().chain(names).collect();
            let substitute = match counter::is_cycles(&probe.attr) {
                true => ", or cpu-clock on a host without hardware counters",
                false => "",
            };
            let names = names.join(", ");
            let text = format!("{names}: {}{substitute}", occasion(probe, plan, cli));
            self.add("event", with_filter(text, filter));
        }
        if probes.len() > MOST_NAMES {
            let more = probes.len() - MOST_NAMES;
            self.add("event", format!("and {more} more: every hit"));
        }
    }

    fn probes(&mut self, wanted: &[Definition], filter: Option<&str>) {
        for definition in wanted.iter().take(MOST_NAMES) {
            let Some(form) = definition.forms.first() else {
                continue;
            };
            let name = format!("{}:{}", definition.system, definition.name);
            let text = format!("{name}: {} {}", form.head, form.body);
            self.add("probe", with_filter(text, filter));
        }
        if wanted.len() > MOST_NAMES {
            self.add("probe", format!("and {} more", wanted.len() - MOST_NAMES));
        }
    }

    fn limits(&mut self, plan: &Plan<'_>, cli: &Cli) {
        match plan.delay {
            Some(Delay::Time(time)) => self.add("start", format!("after {time:?}")),
            Some(Delay::UntilEnabled) => self.add("start", "when enabled by --control".to_owned()),
            None => {}
        }
        let mut ends = Vec::new();
        if let Some(duration) = cli.output.duration {
            ends.push(format!("after {duration:?}"));
        }
        if let Some(most) = plan.selection.max_events {
            ends.push(format!("after {}", counted(most, "event")));
        }
        ends.push(match cli.command.is_empty() {
            true if plan.target.is_of_cpus() => "on Ctrl-C".to_owned(),
            true => "when all targets end, or on Ctrl-C".to_owned(),
            false => "when the command ends, or on Ctrl-C".to_owned(),
        });
        self.add("end", ends.join(", "));
        if cli.retention.flight.limit().is_some() {
            self.add(
                "ring",
                "only the last events are kept, in memory".to_owned(),
            );
        }
    }

    fn output(&mut self, cli: &Cli) {
        let path = cli.output_path();
        let kind = match cli.output.format {
            Format::Pqt if cli.retention.rotation.are_given() => "a directory of traces",
            Format::Pqt => "a directory",
            Format::PerfData => "a perf.data file",
        };
        let is_there = Output::check(&path, false).is_err();
        let replaced = match is_there && cli.output.force {
            true => ", which replaces the existing one",
            false => "",
        };
        self.add("output", format!("{}, {kind}{replaced}", path.display()));
        if let Some(destination) = cli.retention.rotation.destination() {
            self.add("publish", destination.describe());
        }
    }
}

fn with_filter(text: String, filter: Option<&str>) -> String {
    match filter {
        Some(filter) => format!("{text}, filter {filter}"),
        None => text,
    }
}

/// The first names, and how many others there are.
fn listed(names: &[String]) -> String {
    let first = names[..names.len().min(MOST_NAMES)].join(", ");
    match names.len() > MOST_NAMES {
        true => format!("{first} and {} more", names.len() - MOST_NAMES),
        false => first,
    }
}

/// When an event makes a record.
fn occasion(probe: &Probe, plan: &Plan<'_>, cli: &Cli) -> String {
    if !probe.is_sampled() {
        return "every hit".to_owned();
    }
    match rate(&probe.attr, cli.sampling.count, plan.frequency_hz) {
        Rate::Every(1) => "every hit".to_owned(),
        Rate::Every(count) => format!("every {count}"),
        Rate::PerSecond(frequency) => format!("{frequency} samples per second"),
    }
}

/// What the recording needs root for, and whether this user is.
fn privileges(plan: &Plan<'_>, cli: &Cli) -> String {
    let mut recorded = plan.requests.events.iter().flat_map(Request::existing);
    let has_tracepoints = recorded.any(|probe| matches!(probe.kind, Kind::Tracepoint(_)));
    let mut whats = plan.requests.events.iter().map(|request| &request.what);
    let has_probes = whats.any(|what| {
        matches!(
            what,
            What::Rows(Wanted::Probes(_) | Wanted::Calls(_)) | What::Paired(_)
        )
    });
    let reasons = [
        (plan.target.is_of_cpus(), "all processes"),
        (has_tracepoints, "tracepoints"),
        (has_probes, "probes"),
        (cli.aggregates(), "in-kernel aggregation"),
        (cli.functions_traced.is_requested(), "function tracing"),
    ];
    let reasons = reasons.iter().filter(|(is_there, _)| *is_there);
    let reasons: Vec<&str> = reasons.map(|(_, reason)| *reason).collect();
    let user = match host::is_root() {
        true => "this user is root",
        false => "this user is not root",
    };
    match reasons.is_empty() {
        true => format!("root for processes of other users; {user}"),
        false => format!("root for {}; {user}", reasons.join(", ")),
    }
}
