//! What the demo shows of its trace: the facts, the hottest functions, an answer in SQL, a flame graph.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::shorten;
use crate::{place, say};

/// Runs the query tool on the trace, each command shown as one would type it.
pub(super) fn show(trace: &Path, directory: &Path) -> Result<()> {
    let path = trace.display().to_string();
    let picture = directory.join("flamegraph.svg").display().to_string();

    say::step("where the time went");
    query(&["top", &path, "-n", "15"], &path)?;

    say::step("the same trace in SQL");
    query(&["sql", &path, &question(trace)], &path)?;

    say::step("as a flame graph");
    query(&["flamegraph", &path, "-o", &picture], &path)?;
    say::note(&format!(
        "written to {} — open it in a browser",
        say::paint("1", &picture)
    ));

    say::step("what next");
    let program = place::target_directory().join("release/perfquet-query");
    for (words, why) in [
        ("info", "what is in it"),
        ("tables", "every table and column, explained"),
        ("shell", "ask your own questions"),
    ] {
        say::note(&format!(
            "{} {words} {}   {why}",
            shorten(&program).display(),
            shorten(trace).display()
        ));
    }
    Ok(())
}

/// Scheduler events are there only with privileges; samples always.
fn question(trace: &Path) -> String {
    if trace.join("events/sched/sched_switch").is_dir() {
        "SELECT prev_comm, count(*) AS switches FROM sched_switch GROUP BY prev_comm ORDER BY switches DESC LIMIT 8"
    } else {
        "SELECT comm, count(*) AS samples FROM samples GROUP BY comm ORDER BY samples DESC LIMIT 8"
    }
    .to_owned()
}

fn query(arguments: &[&str], trace: &str) -> Result<()> {
    let program = place::target_directory().join("release/perfquet-query");
    let shown: Vec<String> = arguments
        .iter()
        .map(|&argument| match argument {
            _ if argument == trace => shorten(Path::new(trace)).display().to_string(),
            _ if argument.contains(' ') => format!("\"{argument}\""),
            _ => argument.to_owned(),
        })
        .collect();
    say::command_line(&format!("perfquet-query {}", shown.join(" ")));
    let status = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !status.success() {
        bail!("perfquet-query failed ({status}); what it said is above, the trace is {trace}");
    }
    Ok(())
}
