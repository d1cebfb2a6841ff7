//! Kernel tracepoints: `SYSTEM:NAME`, both with wildcards, and modifiers after another colon.
//!
//! ```text
//! sched:sched_switch    syscalls:*read*    ext4:*    raw_syscalls:sys_enter:u
//! ```

use perfquet_cli::glob_matches;
use perfquet_events::event::Purpose;

use super::form::{Form, Place};
use super::rejected::Rejected;
use super::unheard::Unheard;
use super::{Kind, Probe, event_attr, modifiers};
use crate::failure::{Failure, failed, misuse, similar};
use crate::sys::tracefs::Tracefs;

/// A tracepoint of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tracepoint {
    /// "sched"
    pub(crate) system: String,
    /// "sched_switch"
    pub(crate) name: String,
    /// Format file, with the layout of the payload.
    pub(crate) format: Vec<u8>,
    /// Whether the recorder defined it and removes it at the end.
    pub(crate) is_own: bool,
    /// Whether it is a probe in a program or library.
    pub(crate) is_of_program: bool,
    /// Purpose of its hits.
    pub(crate) purpose: Purpose,
    /// Definition of an own probe.
    pub(crate) definition: Option<(Place, Form)>,
}

/// Returns the tracepoints that match a name with wildcards.
pub(crate) fn parse(event: &str) -> Result<Vec<Probe>, Failure> {
    let tracefs =
        Tracefs::open().map_err(|failure| failure.during(&format!("cannot record {event}")))?;
    let mut parts = event.splitn(3, ':');
    let (system, name) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let modifiers = parts.next().unwrap_or("");
    let unheard = Unheard::of(&tracefs);
    let uprobes = tracefs.file("uprobe_events");
    let (mut probes, mut rejected) = (Vec::new(), Rejected::default());
    for system in matching(&tracefs.systems(), system) {
        for name in matching(&tracefs.tracepoints(&system), name) {
            match unheard.refusal(&system, &name) {
                Some(refusal) => rejected.add(&format!("{system}:{name}"), refusal),
                None => {
                    let is_of_program = is_uprobe(&uprobes, &system, &name);
                    let event = (system.as_str(), name.as_str());
                    probes.push(open(&tracefs, event, modifiers, is_of_program)?);
                }
            }
        }
    }
    rejected.report(event, probes.len(), "are for ftrace only")?;
    if probes.len() > 1 {
        for probe in &mut probes {
            probe.pattern = Some(event.to_owned());
        }
    }
    if probes.is_empty() {
        let whole = event.split_once(':').map_or("", |(_, name)| name);
        let place = if system.contains("probe") || system == "usdt" {
            whole
        } else {
            name
        };
        let hint = option_of_probes(system, place)
            .unwrap_or_else(|| similar(&format!("{system}:{name}"), names(&tracefs), "--list"));
        return Err(misuse(format!("no tracepoint {event}")).hint(hint));
    }
    Ok(probes)
}

/// Returns the probe option for names of probes defined earlier with perf, because one option here defines and records
/// a probe.
fn option_of_probes(system: &str, name: &str) -> Option<String> {
    let of_probes = ["kprobe", "kretprobe", "uprobe", "uretprobe", "usdt"];
    if of_probes.contains(&system) {
        return Some(format!("use --{system} '{name}'"));
    }
    let (option, place) = match system {
        "probe" => ("kprobe", name.to_owned()),
        _ => match (system.strip_prefix("probe_"), system.strip_prefix("sdt_")) {
            (Some(object), _) => ("uprobe", format!("{object}:{name}")),
            (_, Some(provider)) => ("usdt", format!("OBJECT:{provider}:{name}")),
            _ => return None,
        },
    };
    let (option, place) = match place.strip_suffix("__return") {
        Some(function) if option == "kprobe" => ("kretprobe", function),
        Some(function) if option == "uprobe" => ("uretprobe", function),
        _ => (option, place.as_str()),
    };
    Some(format!(
        "define and record a probe with --{option} '{place}'"
    ))
}

/// Returns `SYSTEM:NAME` of all tracepoints that can be recorded; empty if tracefs is not readable.
pub(crate) fn all_names() -> Vec<String> {
    Tracefs::open().map_or_else(|_| Vec::new(), |tracefs| names(&tracefs))
}

fn names(tracefs: &Tracefs) -> Vec<String> {
    let unheard = Unheard::of(tracefs);
    let of_system = |system: String| {
        let mut names = tracefs.tracepoints(&system);
        names.retain(|name| !unheard.has(&system, name));
        let whole = move |name: String| format!("{system}:{name}");
        names.into_iter().map(whole).collect::<Vec<_>>()
    };
    tracefs.systems().into_iter().flat_map(of_system).collect()
}

/// Whether the list of all probes in programs has an event: `p:probe_libc/malloc /usr/lib/libc.so.6:0x00000000000a1b30 …`
fn is_uprobe(uprobe_events: &[u8], system: &str, name: &str) -> bool {
    let event = format!("{system}/{name} ");
    let mut lines = uprobe_events.split(|&byte| byte == b'\n');
    lines.any(|line| {
        let start = line.iter().position(|&byte| byte == b':');
        start.is_some_and(|start| line[start + 1..].starts_with(event.as_bytes()))
    })
}

fn matching(names: &[String], pattern: &str) -> Vec<String> {
    let matches = |name: &&String| glob_matches(pattern, name);
    names.iter().filter(matches).cloned().collect()
}

fn open(
    tracefs: &Tracefs,
    (system, name): (&str, &str),
    modifiers: &str,
    is_of_program: bool,
) -> Result<Probe, Failure> {
    let unreadable = |error| {
        failed(format!(
            "cannot read the tracepoint {system}:{name}: {error}"
        ))
        .hint("run as root")
    };
    let mut attr = event_attr::tracepoint(tracefs.id(system, name).map_err(unreadable)?);
    modifiers::apply(name, modifiers, &mut attr)?;
    let mut shown = format!("{system}:{name}");
    if !modifiers.is_empty() {
        shown = format!("{shown}:{modifiers}");
    }
    Ok(Probe {
        name: shown,
        attr,
        kind: Kind::Tracepoint(Tracepoint {
            system: system.to_owned(),
            name: name.to_owned(),
            format: tracefs.format(system, name).map_err(unreadable)?,
            is_own: false,
            is_of_program,
            purpose: Purpose::Rows,
            definition: None,
        }),
        filter: None,
        wants_precision: false,
        pattern: None,
        members: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::{is_uprobe, option_of_probes};

    #[test]
    fn probes_in_programs() {
        let listed =
            b"p:probe_libc/malloc /usr/lib/libc.so.6:0x0a1b30\nr:other/free__return /bin/a:0x10";
        let found = |system, name| is_uprobe(listed, system, name);
        assert!(found("probe_libc", "malloc") && found("other", "free__return"));
        assert!(!found("probe_libc", "mall") && !found("libc", "malloc"));
    }

    #[test]
    fn perf_probe_names_get_a_hint() {
        for (system, name, expected) in [
            ("probe", "vfs_read", Some("--kprobe 'vfs_read'")),
            ("probe", "vfs_read__return", Some("--kretprobe 'vfs_read'")),
            ("probe_libc", "malloc", Some("--uprobe 'libc:malloc'")),
            (
                "probe_libc",
                "malloc__return",
                Some("--uretprobe 'libc:malloc'"),
            ),
            ("sdt_libc", "setjmp", Some("--usdt 'OBJECT:libc:setjmp'")),
            ("sched", "sched_swich", None),
        ] {
            let hint = option_of_probes(system, name);
            match expected {
                Some(expected) => assert!(hint.is_some_and(|hint| hint.ends_with(expected))),
                None => assert_eq!(hint, None),
            }
        }
    }
}
