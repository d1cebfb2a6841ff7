//! Errors for hosts without function tracing, with a next step.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::plan::Tracer;
use super::settings::read;
use crate::failure::{Failure, failed, misuse, similar};
use crate::sys::tracefs::Tracefs;

const ENABLED: &str = "/proc/sys/kernel/ftrace_enabled";

/// Fails if the kernel forbids function tracing, or lacks it.
pub(super) fn check(tracefs: &Tracefs, tracer: Tracer) -> Result<(), Failure> {
    let filter = tracefs.path("set_ftrace_filter");
    match open_and_look(&filter) {
        Ok(()) => {}
        Err(error) => return Err(not_there(&filter, &error)),
    }
    if fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "0") {
        return Err(
            failed("function tracing is switched off (kernel.ftrace_enabled is 0)")
                .hint("as root: sysctl kernel.ftrace_enabled=1"),
        );
    }
    if !has(&tracefs.path("available_tracers"), tracer) {
        let (what, option) = match tracer {
            Tracer::Function => ("function tracer", "CONFIG_FUNCTION_TRACER"),
            Tracer::Graph => ("function graph tracer", "CONFIG_FUNCTION_GRAPH_TRACER"),
        };
        let failure = failed(format!(
            "this kernel was built without the {what} ({option})"
        ));
        return Err(match tracer {
            Tracer::Graph if has(&tracefs.path("available_tracers"), Tracer::Function) => {
                failure.hint("use --function to record calls without durations")
            }
            Tracer::Function | Tracer::Graph => failure,
        });
    }
    Ok(())
}

/// Whether a list of tracers contains this one.
pub(super) fn has(list: &Path, tracer: Tracer) -> bool {
    read(list)
        .split_whitespace()
        .any(|name| name == tracer.name())
}

/// Function tracing without arguments is all there is.
pub(super) fn no_arguments() -> Failure {
    failed(
        "this kernel does not record function arguments (Linux 6.15, CONFIG_FUNCTION_TRACE_ARGS)",
    )
    .hint("use --call 'FUNC PARAMETER $retval' for single functions")
}

/// Returns the error for a function that the kernel does not allow to be traced.
pub(super) fn unknown_function(tracefs: &Tracefs, name: &str, error: &io::Error) -> Failure {
    if error.raw_os_error() != Some(libc::EINVAL) {
        return failed(format!("cannot trace {name}: {error}"));
    }
    let list = tracefs.path("available_filter_functions");
    let text = fs::read(list).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned);
    let exists = crate::sys::kallsyms::functions()
        .iter()
        .any(|known| known == name);
    let why = match exists {
        true => "exists, but cannot be traced (it is inlined, or code that tracing itself needs)",
        false => "is no function of this kernel that can be traced",
    };
    misuse(format!("{name} {why}")).hint(similar(
        name,
        names,
        "perfquet-record --functions PATTERN",
    ))
}

fn open_and_look(path: &Path) -> io::Result<()> {
    let mut byte = [0];
    File::open(path)?.read(&mut byte).map(drop)
}

fn not_there(path: &Path, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        // The files are root's, and root gets EPERM: only lockdown does that.
        Some(libc::EPERM) => failed(
            "kernel lockdown forbids function tracing; tracepoints and uprobes still work",
        )
        .hint("check the level: cat /sys/kernel/security/lockdown; change it at boot (lockdown=, Secure Boot)"),
        Some(libc::EACCES) => {
            failed("not permitted to trace functions").hint("run as root")
        }
        Some(libc::ENOENT) => {
            failed("this kernel was built without function tracing (CONFIG_DYNAMIC_FTRACE)")
        }
        _ => failed(format!("cannot read {}: {error}", path.display())),
    }
}
