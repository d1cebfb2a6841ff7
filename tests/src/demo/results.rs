//! The results of the demo: the facts, the hottest functions, an SQL query, a flame graph, a report.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::shorten;
use crate::{place, say};

/// Rows of the first table.
const FIRST_ROWS: usize = 8;

/// Prints the functions with the most samples, from folded stacks of the converter, because the query tool is not built
/// yet.
pub(super) fn show_first(trace: &Path) -> Result<()> {
    say::step("first results, while the query tool is still being built");
    say::command_line(&format!(
        "perfquet-convert {} --to folded | …",
        shorten(trace).display()
    ));
    let program = place::release("perfquet-convert");
    let output = Command::new(&program)
        .arg(trace)
        .args(["--to", "folded"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        bail!("perfquet-convert failed ({}), see above", output.status);
    }
    let folded = String::from_utf8_lossy(&output.stdout);
    for line in hottest(&folded) {
        say::note(&line);
    }
    Ok(())
}

/// Returns a heading and the functions with the most samples: share and name.
fn hottest(folded: &str) -> Vec<String> {
    let mut weights: HashMap<&str, u64> = HashMap::new();
    let mut total = 0;
    for line in folded.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else {
            continue;
        };
        let count: u64 = count.parse().unwrap_or(0);
        total += count;
        let function = stack.rsplit(';').next().unwrap_or(stack);
        *weights.entry(function).or_default() += count;
    }
    let mut weights: Vec<(&str, u64)> = weights.into_iter().collect();
    weights.sort_by(|left, right| right.1.cmp(&left.1).then(left.0.cmp(right.0)));
    let heading = format!("{:>12}  function", "self_percent");
    let rows = weights.iter().take(FIRST_ROWS).map(|(function, count)| {
        let percent = 100.0 * *count as f64 / total as f64;
        format!("{percent:>12.2}  {function}")
    });
    std::iter::once(heading).chain(rows).collect()
}

/// Runs the query tool on the trace, printing each command as typed.
pub(super) fn show(trace: &Path, directory: &Path) -> Result<()> {
    let path = trace.display().to_string();
    let picture = directory.join("flamegraph.svg").display().to_string();
    let report = directory.join("report.html").display().to_string();

    say::step("where the time went");
    query(&["top", &path, "-n", "15"], &path)?;

    say::step("the same trace in SQL");
    query(&["sql", &path, &question(trace)], &path)?;

    say::step("as a flame graph");
    query(&["flamegraph", &path, "-o", &picture, "--force"], &path)?;
    say::note(&format!(
        "written to {} — open it in a browser",
        say::paint("1", &picture)
    ));

    say::step("as a report: time, threads, stacks and functions in one file");
    query(&["report", &path, "-o", &report, "--force"], &path)?;
    say::note(&format!(
        "written to {} — open it in a browser, or send it",
        say::paint("1", &report)
    ));

    say::step("what next");
    let program = place::release("perfquet-query");
    for (words, why) in [
        ("info", "summary"),
        ("tables", "every table and column, explained"),
        ("shell", "run your own queries"),
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
    let program = place::release("perfquet-query");
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
        bail!("perfquet-query failed ({status}); see its output above; the trace is {trace}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::hottest;

    #[test]
    fn the_hottest_functions_come_first() {
        let folded = "sh;main;read 3\nsh;main 1\nls;a b;read 5\nls;spin 1\n";
        let expected = [
            "self_percent  function",
            "       80.00  read",
            "       10.00  main",
            "       10.00  spin",
        ];
        assert_eq!(hottest(folded), expected);
    }
}
