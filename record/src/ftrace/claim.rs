//! The top of tracefs: whether it is free, and who has it otherwise.
//!
//! Only one graph tracer can follow functions into their callees, and it shares the top-level ring buffer with all
//! other users, whose events would end up in the recorder's pages. So every setting that the recorder would overwrite
//! must have its initial value.

use std::fs;
use std::path::Path;

use super::buffer::Buffer;
use super::settings::read;
use super::state::Saved;
use crate::failure::{Failure, failed};
use crate::sys::procfs;
use crate::sys::tracefs::Tracefs;

/// Files, and their values while unused; unused lists contain only comments.
const VALUES: &[(&str, &str)] = &[("current_tracer", "nop")];
const LISTS: &[&str] = &[
    "set_ftrace_filter",
    "set_ftrace_notrace",
    "set_ftrace_pid",
    "set_ftrace_notrace_pid",
    "set_event",
];
/// Settings that limit the graph tracers of all instances too.
const LIMITING_VALUES: &[(&str, &str)] = &[("max_graph_depth", "0"), ("tracing_thresh", "0")];
const LIMITING_LISTS: &[&str] = &["set_graph_function", "set_graph_notrace"];

/// Claims the top-level tracer. `reason` names the feature that requires it.
pub(super) fn take(tracefs: &Tracefs, reason: &str) -> Result<Buffer, Failure> {
    let root = tracefs.path("");
    let found = first_use(&root, VALUES, LISTS);
    if let Some(found) = found.or_else(|| limit(&root)) {
        return Err(failed(format!(
            "the kernel's only function graph tracer is in use{}: {found}",
            by_whom(&root)
        ))
        .hint(format!(
            "{reason} requires it; if it is no longer used, run: trace-cmd reset, or write to the files in {}",
            root.display()
        )));
    }
    Ok(Buffer::top(tracefs, Saved::claim()?))
}

/// Fails if top-level settings of another user would keep functions out of an instance.
pub(super) fn check_limits(tracefs: &Tracefs) -> Result<(), Failure> {
    let root = tracefs.path("");
    match limit(&root) {
        None => Ok(()),
        Some(found) => Err(failed(format!(
            "every function graph tracer is limited{}: {found}",
            by_whom(&root)
        ))
        .hint(format!(
            "if the limit is no longer needed, run: trace-cmd reset, or write to the files in {}",
            root.display()
        ))),
    }
}

/// A setting at the top that limits the graph tracers of all instances.
pub(super) fn limit(root: &Path) -> Option<String> {
    first_use(root, LIMITING_VALUES, LIMITING_LISTS)
}

/// Returns the first setting that differs from its unused value: "tracing_thresh is 10".
fn first_use(root: &Path, values: &[(&str, &str)], lists: &[&str]) -> Option<String> {
    for (file, unused) in values {
        let found = read(&root.join(file));
        if !found.is_empty() && found != *unused {
            return Some(format!("{file} is {found}"));
        }
    }
    for file in lists {
        let text = read(&root.join(file));
        // "#### all functions enabled ####", "no pid"
        let mut lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty() && *line != "no pid");
        if let Some(first) = lines.next() {
            let more = match lines.count() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            return Some(format!("{file} has {first}{more}"));
        }
    }
    None
}

/// ", by process 4711 (trace-cmd)", as far as that can be found out.
pub(super) fn by_whom(root: &Path) -> String {
    match holders(root).as_slice() {
        [] => String::new(),
        who => format!(", by {}", who.join(" and ")),
    }
}

/// Returns a process that reads events of a ring, which removes them: "process 4711 (cat)".
pub(super) fn reader(root: &Path) -> Option<String> {
    let is_pipe = |target: &Path| {
        let file = target.strip_prefix(root).unwrap_or(Path::new(""));
        let name = file.file_name().unwrap_or_default();
        // Instances have rings of their own.
        (name == "trace_pipe" || name == "trace_pipe_raw") && !file.starts_with("instances")
    };
    processes_with(&is_pipe).into_iter().next()
}

/// Returns the processes that have tracefs files open: "process 4711 (trace-cmd)", as far as they are accessible.
fn holders(root: &Path) -> Vec<String> {
    let inside = [root, Path::new("/sys/kernel/debug/tracing")];
    processes_with(&|target| inside.iter().any(|root| target.starts_with(root)))
}

/// Returns other processes that have such a file open.
fn processes_with(is_it: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let own = std::process::id() as i32;
    let holds = |pid: i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let mut targets = files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| is_it(&target))
    };
    procfs::processes()
        .into_iter()
        .filter(|&pid| pid != own && holds(pid))
        .take(3)
        .map(|pid| {
            let comm = procfs::task(pid, pid)
                .map(|task| task.comm)
                .unwrap_or_default();
            format!(
                "process {pid} ({})",
                String::from_utf8_lossy(&comm).escape_debug()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        put("current_tracer", "nop\n");
        put("max_graph_depth", "0\n");
        put("set_graph_function", "#### all functions enabled ####\n");
        put("set_ftrace_pid", "no pid\n");
        put("set_event", "");
        let found = |root: &Path| first_use(root, VALUES, LISTS).or_else(|| limit(root));
        assert_eq!(found(folder.path()), None);
        put("tracing_thresh", "10\n");
        assert_eq!(
            limit(folder.path()).as_deref(),
            Some("tracing_thresh is 10")
        );
        put("set_event", "sched:sched_switch\nsched:sched_waking\n");
        assert_eq!(
            found(folder.path()).as_deref(),
            Some("set_event has sched:sched_switch and 1 more")
        );
        put("current_tracer", "function_graph\n");
        assert_eq!(
            found(folder.path()).as_deref(),
            Some("current_tracer is function_graph")
        );
    }
}
