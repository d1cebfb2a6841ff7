//! The ring buffer that the boot left, and the tracing that still fills it.
//!
//! ```text
//! /sys/kernel/tracing/               ftrace=, trace_event=, kprobe_event=
//! /sys/kernel/tracing/instances/foo  trace_instance=foo,sched
//! ```
//! Reading removes events from the ring, so nothing is read before it is certain that they are those of the boot. The settings
//! of the command line are undone only after all pages are in files.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use super::super::buffer::Buffer;
use super::super::head::{Contents, Head};
use super::super::pages::Pages;
use super::super::settings::{append, read, remove_instance, write};
use super::super::state::{self, Saved};
use super::super::{claim, entries_in};
use super::parameters::Parameters;
use crate::failure::{Failure, failed, misuse};
use crate::sys::host;
use crate::sys::tracefs::Tracefs;

/// Parameters of the top level, the files that they set, and the values without them.
const SETTINGS: [(&str, &str, &str); 9] = [
    ("ftrace", "current_tracer", "nop"),
    ("ftrace_filter", "set_ftrace_filter", ""),
    ("ftrace_notrace", "set_ftrace_notrace", ""),
    ("ftrace_graph_filter", "set_graph_function", ""),
    ("ftrace_graph_notrace", "set_graph_notrace", ""),
    ("ftrace_graph_max_depth", "max_graph_depth", "0"),
    ("tracing_thresh", "tracing_thresh", "0"),
    ("trace_clock", "trace_clock", "local"),
    // The kernel's own default, in KiB.
    ("trace_buf_size", "buffer_size_kb", "1408"),
];
const NOP: &str = "nop";

/// A ring buffer with events of the boot.
pub(crate) struct BootBuffer {
    tracefs: Tracefs,
    buffer: Buffer,
    parameters: Parameters,
    /// The instance; `None` for the top level.
    instance: Option<String>,
    cpus: Vec<u32>,
    /// Keeps other recorders away.
    claim: Saved,
}

impl BootBuffer {
    /// Finds the buffer that the command line of this boot describes, or that of an instance.
    pub(crate) fn find(instance: Option<&str>) -> Result<BootBuffer, Failure> {
        if !host::is_root() {
            return Err(
                failed("--collect-boot: not permitted to read the boot trace").hint("run as root"),
            );
        }
        let tracefs = Tracefs::open()?;
        for gone in state::clean_up(&tracefs) {
            log::info!("removed {gone}, left by a killed recorder");
        }
        let parameters = Parameters::of_this_boot()
            .map_err(|error| failed(format!("cannot read /proc/cmdline: {error}")))?;
        let instance = choose(&tracefs, &parameters, instance)?;
        let root = match &instance {
            Some(name) => tracefs.path("instances").join(name),
            None => tracefs.path(""),
        };
        if instance.is_none() {
            check_tracer(&root, &parameters)?;
        }
        if let Some(reader) = claim::reader(&root) {
            return Err(failed(format!(
                "{reader} reads the boot trace, which removes events from it"
            ))
            .hint("stop it"));
        }
        let claim = Saved::claim()?;
        let buffer = Buffer::left(root);
        let mut cpus = host::present_cpus();
        cpus.retain(|cpu| buffer.has(&format!("per_cpu/cpu{cpu}")));
        let found = BootBuffer {
            tracefs,
            buffer,
            parameters,
            instance,
            cpus,
            claim,
        };
        match found.stats().iter().any(|(_, text)| entries_in(text) > 0) {
            true => Ok(found),
            false => {
                let failure = found.empty();
                found.let_go();
                Err(failure)
            }
        }
    }

    /// Stops tracing, and moves the pages and their description into a journal.
    pub(crate) fn collect(&self, journal: &Path) -> Result<()> {
        self.buffer
            .write("tracing_on", "0")
            .context("cannot stop tracing")?;
        let head = Head::new(journal, &self.tracefs, &self.buffer, Contents::Everything)
            .context("cannot collect event formats and symbols of the boot trace")?;
        let stats = self.stats();
        head.write(&self.tracefs, &self.buffer, &stats)
            .with_context(|| format!("cannot write {}", head.path().display()))?;
        Pages::start(&self.tracefs, &self.buffer, &self.cpus, journal)
            .and_then(Pages::finish)
            .context("cannot write the pages of the boot trace")
    }

    /// Undoes what the command line set, so that the kernel no longer traces, and others can.
    pub(crate) fn reset(self) {
        let undone = match &self.instance {
            Some(_) => remove_instance(&self.buffer.path("")),
            None => self.reset_top(),
        };
        if let Err(error) = undone {
            log::warn!(
                "{}: the settings of the boot are not all undone: {error}",
                self.buffer.path("").display()
            );
        }
        self.let_go();
    }

    /// Leaves everything to another attempt.
    pub(crate) fn let_go(self) {
        let root = self.buffer.path("");
        if let Err(error) = self.claim.put_back(&root) {
            log::warn!("cannot release the boot trace: {error}");
        }
    }

    fn reset_top(&self) -> io::Result<()> {
        let path = |file: &str| self.buffer.path(file);
        let mut result = Ok(());
        let mut keep = |done: io::Result<()>| {
            if let Err(error) = done {
                result = Err(error);
            }
        };
        // With an exclamation mark, the kernel disables those, and leaves others enabled.
        for event in self.parameters.events() {
            keep(append(&path("set_event"), &format!("!{event}\n")));
        }
        for probe in self.parameters.probes() {
            let event = probe.replace('/', ":");
            keep(append(&path("set_event"), &format!("!{event}\n")));
            keep(append(&path("dynamic_events"), &format!("-:{probe}\n")));
        }
        for (parameter, file, value) in SETTINGS {
            if self.parameters.value(parameter).is_some() && self.buffer.has(file) {
                keep(write(&path(file), value));
            }
        }
        let options = self.parameters.value("trace_options").unwrap_or_default();
        if options.split(',').any(|option| option == "nooverwrite") {
            keep(write(&path("options/overwrite"), "1"));
        }
        keep(write(&path("tracing_on"), "1"));
        result
    }

    /// Statistics of each CPU's ring.
    fn stats(&self) -> Vec<(u32, String)> {
        let of = |&cpu: &u32| (cpu, self.buffer.read(&format!("per_cpu/cpu{cpu}/stats")));
        self.cpus.iter().map(of).collect()
    }

    fn empty(&self) -> Failure {
        failed(format!(
            "the boot trace in {} is empty: it has been collected, or nothing that it selects has run",
            self.buffer.path("").display()
        ))
        .hint("compare /proc/cmdline with the line that perfquet-record --boot prints, and reboot")
    }
}

/// Returns the instance to collect; `None` for the top level.
fn choose(
    tracefs: &Tracefs,
    parameters: &Parameters,
    instance: Option<&str>,
) -> Result<Option<String>, Failure> {
    let instances = parameters.instances();
    let known = || match instances.is_empty() {
        true => "the kernel command line names no instance (trace_instance=)".to_owned(),
        false => format!("the kernel command line names {}", instances.join(", ")),
    };
    if let Some(name) = instance {
        let is_name = !name.contains('/') && ![".", ".."].contains(&name);
        return match is_name && tracefs.path("instances").join(name).is_dir() {
            true => Ok(Some(name.to_owned())),
            false => Err(misuse(format!(
                "--collect-boot={name}: no such instance in {}",
                tracefs.path("instances").display()
            ))
            .hint(known())),
        };
    }
    match (parameters.trace_the_top(), instances.as_slice()) {
        (true, others) => {
            for name in others {
                log::warn!("the instance {name} is not collected; use --collect-boot={name}");
            }
            Ok(None)
        }
        (false, [only]) => choose(tracefs, parameters, Some(only)),
        (false, []) => Err(failed(
            "nothing was traced during the boot: the kernel command line has no ftrace=, trace_event=, kprobe_event= or \
             trace_instance=",
        )
        .hint(
            "add the line that perfquet-record --boot prints to the kernel command line, and reboot \
             (docs/function-tracing.md)",
        )),
        (false, _) => Err(misuse(format!("--collect-boot: {}", known()))
            .hint("choose one: --collect-boot=INSTANCE")),
    }
}

/// Fails if the top level is used for something else by now.
fn check_tracer(root: &Path, parameters: &Parameters) -> Result<(), Failure> {
    let current = read(&root.join("current_tracer"));
    let at_boot = parameters.value("ftrace").unwrap_or(NOP);
    if current.is_empty() || current == NOP || current == at_boot {
        return Ok(());
    }
    Err(failed(format!(
        "the boot trace was replaced{}: current_tracer is {current}, it was {at_boot} at boot",
        claim::by_whom(root)
    ))
    .hint("reboot, and collect the boot trace before other tools trace"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn another_tracer_than_that_of_the_boot() {
        let folder = tempfile::tempdir().unwrap();
        let check = |tracer: &str, line: &str| {
            fs::write(folder.path().join("current_tracer"), tracer).unwrap();
            check_tracer(folder.path(), &Parameters::parse(line))
                .map_err(|failure| failure.to_string())
        };
        assert_eq!(check("function_graph\n", "ftrace=function_graph"), Ok(()));
        assert_eq!(check("nop\n", "ftrace=function_graph"), Ok(()));
        assert_eq!(check("nop\n", "trace_event=sched:*"), Ok(()));
        let error = check("function\n", "trace_event=sched:*").unwrap_err();
        assert!(
            error.contains("current_tracer is function, it was nop"),
            "{error}"
        );
    }
}
