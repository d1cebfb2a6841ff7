//! Recordable events, and their syntax on the command line. One file per kind of probe.
//!
//! ```text
//! -e sched:sched_switch -e 'syscalls:*read*' -e cycles:u,cpu-clock -e r1a8 -e cpu/event=0x3c,umask=1/
//! --kprobe 'tcp_sendmsg size' --uprobe 'libc.so.6:malloc bytes=%di:u64' --usdt ./prog:prov:name
//! ```

mod argument;
mod breakpoint;
pub(crate) mod btf;
pub(crate) mod call;
pub(crate) mod counter;
pub(crate) mod definition;
pub(crate) mod edges;
pub(crate) mod event_attr;
pub(crate) mod extras;
mod fetch;
pub(crate) mod filter;
pub(crate) mod form;
mod function_name;
pub(crate) mod group;
pub(crate) mod hooks;
pub(crate) mod kprobe;
mod modifiers;
mod place;
mod pmu;
pub(crate) mod probe_listing;
mod register;
pub(crate) mod rejected;
mod single_step;
pub(crate) mod stacks;
pub(crate) mod tracepoint;
mod unheard;
pub(crate) mod uprobe;
pub(crate) mod usdt;
pub(crate) mod vmlinux;

use perfquet_events::event::CallFunction;

use crate::failure::{Failure, misuse, similar};
use crate::sys::perf_event::Attr;
use definition::{Definition, Definitions};
use form::Form;
use tracepoint::Tracepoint;

pub(crate) use place::is_of_program;
pub(crate) use pmu::{names as pmu_names, types as pmu_types};

/// An event or probe option of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeOption {
    /// `-e`
    Event,
    /// `--kprobe`
    Kprobe,
    /// `--kretprobe`
    Kretprobe,
    /// `--uprobe`
    Uprobe,
    /// `--uretprobe`
    Uretprobe,
    /// `--usdt`
    Usdt,
    /// `--call`
    Call,
    /// `--latency`
    Latency,
}

/// The use of the hits of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    /// They are recorded.
    Rows,
    /// BPF programs run at them, which record nothing; the kernel does not let them at its hooks of function tracing.
    Programs,
}

/// One event to record.
#[derive(Clone)]
pub(crate) struct Probe {
    /// Display name: "sched:sched_switch", "cycles:u".
    pub(crate) name: String,
    /// Type, configuration and modifiers; the rest is set by [`crate::recording`].
    pub(crate) attr: Attr,
    /// The kind of the event.
    pub(crate) kind: Kind,
    /// Filter in the kernel's syntax.
    pub(crate) filter: Option<String>,
    /// Use the highest precision of the hardware (`:P`, and `cycles` if no event was requested).
    pub(crate) wants_precision: bool,
    /// The pattern that matched it: if the kernel rejects the probe, it is skipped.
    pub(crate) pattern: Option<String>,
    /// The other events of its group, whose values its samples have.
    pub(crate) members: Vec<Probe>,
}

/// Kinds of events, by the contents of their records.
#[derive(Clone)]
pub(crate) enum Kind {
    /// A counter or clock: samples.
    Sampled,
    /// A tracepoint: every hit, with its payload.
    Tracepoint(Tracepoint),
    /// The output of the recorder's BPF programs; with stacks if requested.
    Output {
        /// Whether its records have stacks if the user requests them.
        may_have_stacks: bool,
        /// Functions of the calls in its records.
        functions: Vec<CallFunction>,
    },
}

impl Probe {
    /// Whether it samples a counter or clock.
    pub(crate) fn is_sampled(&self) -> bool {
        matches!(self.kind, Kind::Sampled)
    }

    /// Whether it carries the output of BPF programs.
    pub(crate) fn is_output(&self) -> bool {
        matches!(self.kind, Kind::Output { .. })
    }

    /// Whether it is a probe in a program or library, defined by the recorder or before.
    pub(crate) fn is_of_program(&self) -> bool {
        match &self.kind {
            Kind::Tracepoint(tracepoint) => tracepoint.is_of_program,
            Kind::Sampled | Kind::Output { .. } => false,
        }
    }

    /// Returns the event `perfquet:NAME` for output of BPF programs; the reader recognizes it by its name.
    pub(crate) fn output(name: &str, may_have_stacks: bool) -> Probe {
        Probe {
            name: format!("perfquet:{name}"),
            attr: event_attr::output(),
            kind: Kind::Output {
                may_have_stacks,
                functions: Vec::new(),
            },
            filter: None,
            wants_precision: false,
            pattern: None,
            members: Vec::new(),
        }
    }
}

/// Whether the kernel runs BPF programs at an event of this form: it does not at fprobes.
fn may_have_programs(form: &Form) -> bool {
    form.head.starts_with(['p', 'r'])
}

/// The events of an option, before the recorder's own probes are defined.
pub(crate) enum Wanted {
    /// Counters, clocks and tracepoints, which exist.
    Events(Vec<Probe>),
    /// Probes in the kernel or in programs.
    Probes(Vec<Definition>),
    /// Entries and returns of functions.
    Calls(call::Functions),
}

/// Parses an option that is not [`ProbeOption::Latency`], without changing anything.
pub(crate) fn wanted(option: ProbeOption, text: &str, usage: Usage) -> Result<Wanted, Failure> {
    let mut wanted = match option {
        ProbeOption::Event => return parse(text).map(Wanted::Events),
        ProbeOption::Latency => {
            return Err(misuse(format!(
                "{text}: a latency is aggregated, not recorded"
            )));
        }
        ProbeOption::Call => return call::functions(text).map(Wanted::Calls),
        ProbeOption::Kprobe => kprobe::definitions(text, false)?,
        ProbeOption::Kretprobe => kprobe::definitions(text, true)?,
        ProbeOption::Uprobe => uprobe::definitions(text, false)?,
        ProbeOption::Uretprobe => uprobe::definitions(text, true)?,
        ProbeOption::Usdt => usdt::definitions(text)?,
    };
    if usage == Usage::Programs {
        for definition in &mut wanted {
            definition.forms.retain(may_have_programs);
        }
    }
    definition::check_support(&wanted)?;
    Ok(Wanted::Probes(wanted))
}

impl Wanted {
    /// Defines the probes, and returns all events.
    pub(crate) fn define(
        self,
        definitions: &mut Option<Definitions>,
        usage: Usage,
    ) -> Result<Vec<Probe>, Failure> {
        match self {
            Wanted::Events(probes) => Ok(probes),
            Wanted::Probes(wanted) => Definitions::of(definitions)?.define_all(&wanted),
            Wanted::Calls(functions) => {
                let pairs = functions.define(definitions, usage)?;
                Ok(pairs.into_iter().flat_map(|(_, pair)| pair).collect())
            }
        }
    }
}

/// Parses one argument of `-e`: a comma-separated list of events, with wildcards, and groups.
pub(crate) fn parse(argument: &str) -> Result<Vec<Probe>, Failure> {
    let mut probes = Vec::new();
    for part in group::parts(argument)? {
        match part {
            group::Part::Events(events) => probes.extend(parse_list(events)?),
            group::Part::Group { events, modifiers } => {
                probes.push(group::parse(argument, events, modifiers)?);
            }
        }
    }
    Ok(probes)
}

/// Parses a comma-separated list of events.
fn parse_list(events: &str) -> Result<Vec<Probe>, Failure> {
    let mut probes = Vec::new();
    for event in split(events) {
        probes.extend(parse_event(event.trim())?);
    }
    Ok(probes)
}

/// Splits at commas, but not inside `/…/`. A breakpoint has one slash, before its length.
fn split(argument: &str) -> Vec<&str> {
    let mut events = Vec::new();
    let mut begin = 0;
    let mut is_inside = false;
    for (place, character) in argument.char_indices() {
        let is_breakpoint = argument[begin..].starts_with(breakpoint::PREFIX);
        is_inside ^= character == '/' && !is_breakpoint;
        if character == ',' && !is_inside {
            events.push(&argument[begin..place]);
            begin = place + 1;
        }
    }
    events.push(&argument[begin..]);
    events
}

fn parse_event(event: &str) -> Result<Vec<Probe>, Failure> {
    if event.is_empty() {
        return Err(misuse("expected an event, found an empty name")
            .hint("list events: perfquet-record --list"));
    }
    if event.starts_with(breakpoint::PREFIX) {
        return breakpoint::parse(event).map(|probe| vec![probe]);
    }
    let event = without_prefix(event);
    let (event, stack) = stacks::split_terms(event)?;
    let mut probes = parse_plain(&event)?;
    if let Some(stack) = stack {
        probes
            .iter_mut()
            .for_each(|probe| stack.put(&mut probe.attr));
    }
    Ok(probes)
}

/// `tracepoint:SYSTEM:NAME` is bpftrace's spelling.
fn without_prefix(event: &str) -> &str {
    let tracepoint = event.strip_prefix("tracepoint:");
    tracepoint
        .filter(|rest| rest.contains(':'))
        .unwrap_or(event)
}

/// Parses an event without stack settings.
fn parse_plain(event: &str) -> Result<Vec<Probe>, Failure> {
    if event.contains('/') {
        return pmu::parse(event).map(|probe| vec![probe]);
    }
    let (name, modifiers) = event.split_once(':').unwrap_or((event, ""));
    if let Some(probe) = counter::parse(name, modifiers)? {
        return Ok(vec![probe]);
    }
    if event.contains(':') {
        return tracepoint::parse(event);
    }
    if let Some(probe) = pmu::parse_alias(event)? {
        return Ok(vec![probe]);
    }
    Err(unknown(event))
}

fn unknown(event: &str) -> Failure {
    if is_program(event) {
        return misuse(format!("no event {event}"))
            .hint(format!("put -- before the command: -- {event}"));
    }
    let mut names: Vec<String> = counter::names().collect();
    names.extend(tracepoint::all_names());
    misuse(format!("no event {event}")).hint(similar(event, names, "--list"))
}

/// Whether a program has this name: the command follows an option whose value was omitted.
fn is_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&folders);
    folders.any(|folder| folder.is_absolute() && folder.join(name).is_file())
}

#[cfg(test)]
mod tests;
