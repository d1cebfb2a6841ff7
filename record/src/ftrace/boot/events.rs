//! The kernel parameters that enable events and probes.
//!
//! ```text
//! -e 'initcall:*,sched:sched_process_e*'    trace_event=initcall:*,sched:sched_process_exec,sched:sched_process_exit
//! --kprobe 'vfs_read count'                 kprobe_event=p:probe/vfs_read,vfs_read,count=$arg3:u64
//! ```
//! The kernel knows `*` for all events of a system, and no other wildcards.

use crate::failure::{Failure, misuse};
use crate::probe::kprobe;
use crate::probe::{Kind, tracepoint};

/// Returns the parameter for events; none without them.
pub(super) fn parameters(arguments: &[String]) -> Result<Option<String>, Failure> {
    let mut names = Vec::new();
    let events = arguments.iter().flat_map(|argument| argument.split(','));
    for event in events.map(str::trim) {
        let (system, name) = event
            .split_once(':')
            .filter(|(_, name)| !name.contains(':'))
            .ok_or_else(|| no_tracepoint(event))?;
        let found = tracepoint::parse(event)?;
        if name == "*" && !system.contains(['*', '?', '[']) {
            names.push(event.to_owned());
            continue;
        }
        names.extend(found.into_iter().filter_map(|probe| match probe.kind {
            Kind::Tracepoint(tracepoint) => {
                Some(format!("{}:{}", tracepoint.system, tracepoint.name))
            }
            Kind::Sampled | Kind::Output { .. } => None,
        }));
    }
    Ok((!names.is_empty()).then(|| format!("trace_event={}", names.join(","))))
}

fn no_tracepoint(event: &str) -> Failure {
    misuse(format!(
        "-e {event}: --boot takes tracepoints, expected SYSTEM:NAME"
    ))
    .hint("list them: perfquet-record --list 'initcall:*'")
}

/// Returns the parameter for probes; none without them.
pub(super) fn probe_parameters(
    kprobes: &[String],
    kretprobes: &[String],
) -> Result<Option<String>, Failure> {
    let entries = kprobes.iter().map(|text| (text, false));
    let returns = kretprobes.iter().map(|text| (text, true));
    let mut probes = Vec::new();
    for (text, at_return) in entries.chain(returns) {
        for definition in kprobe::definitions(text, at_return)? {
            // The last form is a plain kprobe, which every kernel knows.
            let form = definition.forms.last();
            let form = form.ok_or_else(|| misuse(format!("{text}: expected a function")))?;
            let name = definition
                .name
                .replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
            let probe = format!("{}:{}/{name} {}", form.head, definition.system, form.body);
            if probe.contains([',', ';', '"']) {
                return Err(misuse(format!(
                    "{text}: a kernel parameter cannot have this argument"
                )));
            }
            probes.push(probe.replace(' ', ","));
        }
    }
    Ok((!probes.is_empty()).then(|| format!("kprobe_event={}", probes.join(";"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_tracepoints() {
        for wrong in ["cycles", "sched:sched_switch:u", ""] {
            let failure = parameters(&[wrong.to_owned()]).unwrap_err();
            assert!(failure.to_string().contains("SYSTEM:NAME"), "{failure}");
        }
        assert!(matches!(parameters(&[]), Ok(None)));
    }
}
