//! Events of ftrace that the kernel lists beside tracepoints, and opens, but never passes to perf events.
//!
//! ```text
//! ftrace:print                                   trace_printk() and trace_marker write into ftrace's buffers only
//! e:eprobes/opened syscalls.sys_enter_openat …   an event probe: its functions for perf events are empty
//! s:woken u64 delay; pid_t pid;                  a synthetic event of a histogram: has no such functions
//! ```
//! (`eprobe_register` in kernel/trace/trace_eprobe.c, `ftrace_event_register` in trace_export.c, `synth_event_reg` in
//! trace_events_synth.c.)

use crate::failure::{Failure, misuse};
use crate::sys::tracefs::Tracefs;

/// Formats of ftrace's own entries.
const FTRACE: &str = "ftrace";
/// The only one of them that perf events receive: hits of all functions at once, and only if no user stack is requested.
const FUNCTION: &str = "function";
const SYNTHETIC: &str = "synthetic";

/// The events of a kernel that perf events never see.
pub(super) struct Unheard {
    /// `GROUP/NAME` and `SYSTEM.EVENT` of each event probe.
    event_probes: Vec<(String, String)>,
}

impl Unheard {
    pub(super) fn of(tracefs: &Tracefs) -> Unheard {
        Unheard::parse(&String::from_utf8_lossy(&tracefs.file("dynamic_events")))
    }

    fn parse(dynamic_events: &str) -> Unheard {
        let event_probe = |line: &str| {
            let mut words = line.strip_prefix("e:")?.split(' ');
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        };
        Unheard {
            event_probes: dynamic_events.lines().filter_map(event_probe).collect(),
        }
    }

    /// Whether an event is one of them.
    pub(super) fn has(&self, system: &str, name: &str) -> bool {
        self.refusal(system, name).is_some()
    }

    /// Returns the error for an event that is one of them.
    pub(super) fn refusal(&self, system: &str, name: &str) -> Option<Failure> {
        let event = format!("{system}:{name}");
        let only_ftrace = "the kernel passes it to ftrace only";
        let (why, hint) = if let Some(source) = self.source(system, name) {
            let hint = format!("record the event that it probes: -e {source}");
            (only_ftrace, hint)
        } else if system == FTRACE && name == FUNCTION {
            (
                "the kernel samples all functions at once",
                "use --function FUNC".to_owned(),
            )
        } else if system == SYNTHETIC || system == FTRACE {
            let option = match system {
                SYNTHETIC => format!(" -e {event}"),
                _ => String::new(),
            };
            let hint = format!(
                "record it with trace-cmd record{option}, then import trace.dat with perfquet-convert"
            );
            (only_ftrace, hint)
        } else {
            return None;
        };
        Some(misuse(format!("cannot record {event}: {why}")).hint(hint))
    }

    /// The event that an event probe reads.
    fn source(&self, system: &str, name: &str) -> Option<String> {
        let probe = format!("{system}/{name}");
        let found = self.event_probes.iter().find(|(own, _)| *own == probe);
        found.map(|(_, source)| source.replacen('.', ":", 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_only_ftrace_sees() {
        let unheard = Unheard::parse(
            "p:kprobes/opened do_sys_openat2\n\
             e:eprobes/opened syscalls.sys_enter_openat name=+0($filename):ustring\n\
             s:woken u64 delay; pid_t pid;\n\
             u:mine",
        );
        let hint = |system, name| {
            let refusal = unheard.refusal(system, name);
            refusal.map(|refusal| refusal.hint_text().unwrap_or("").to_owned())
        };
        let of_trace_cmd = |option: &str| {
            let end = "import trace.dat with perfquet-convert";
            Some(format!(
                "record it with trace-cmd record{option}, then {end}"
            ))
        };
        assert_eq!(
            hint("eprobes", "opened").as_deref(),
            Some("record the event that it probes: -e syscalls:sys_enter_openat")
        );
        assert_eq!(hint("ftrace", "print"), of_trace_cmd(""));
        assert_eq!(
            hint("ftrace", "function").as_deref(),
            Some("use --function FUNC")
        );
        assert_eq!(
            hint("synthetic", "woken"),
            of_trace_cmd(" -e synthetic:woken")
        );
        for (system, name) in [
            ("kprobes", "opened"),
            ("user_events", "mine"),
            ("syscalls", "sys_enter_openat"),
        ] {
            assert_eq!(hint(system, name), None, "{system}:{name}");
        }
    }
}
