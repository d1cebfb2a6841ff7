//! Queries instead of a recording: `--list`, `--functions`, `--lines`, `--vars`, `--boot`, `--dry-run`, and `--cleanup`.

use std::io::{self, Write};

use anyhow::{Context, Result};
use perfquet_cli::glob_matches;
use perfquet_trace::count::counted;

use crate::boot;
use crate::cli::Cli;
use crate::failure::{Failure, misuse, similar};
use crate::ftrace;
use crate::plan;
use crate::preset;
use crate::probe::{counter, definition, pmu_names, probe_listing, tracepoint};
use crate::sys::tracefs::Tracefs;
use perfquet_cli::terminal;

/// Whether such a query is requested.
pub(crate) fn is_requested(cli: &Cli) -> bool {
    let has_pattern = [
        &cli.listing.list,
        &cli.listing.functions,
        &cli.listing.lines,
        &cli.listing.vars,
    ]
    .into_iter()
    .any(Option::is_some);
    has_pattern || cli.boot.is_line_wanted || cli.listing.cleanup || cli.listing.is_dry_run
}

/// Runs such a query, if one is requested.
pub(crate) fn answer(cli: &Cli) -> Result<bool> {
    let text = if cli.listing.list.as_deref() == Some("presets") {
        preset::list()
    } else if let Some(pattern) = &cli.listing.list {
        events(pattern)?
    } else if let Some(pattern) = &cli.listing.functions {
        probe_listing::functions(pattern)?
    } else if let Some(function) = &cli.listing.lines {
        probe_listing::lines(function)?
    } else if let Some(function) = &cli.listing.vars {
        probe_listing::variables(function)?
    } else if cli.boot.is_line_wanted {
        boot::line(cli)?
    } else if cli.listing.cleanup {
        let probes = definition::clean_up()?;
        let others = ftrace::clean_up()?;
        let tracers = match others.len() {
            0 => String::new(),
            count => format!(" and {}", counted(count as u64, "tracer")),
        };
        terminal::say(format_args!(
            "removed {}{tracers} of killed recorders",
            counted(probes.len() as u64, "probe")
        ));
        let removed = probes.iter().chain(&others);
        removed.map(|name| format!("{name}\n")).collect()
    } else if cli.listing.is_dry_run {
        plan::print(cli)?
    } else {
        return Ok(false);
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the list")
        }
        _ => Ok(true),
    }
}

/// Lists the events of this host, one per line, whose name, or its part after the colon, matches. A pattern without
/// wildcards matches any part.
fn events(pattern: &str) -> Result<String, Failure> {
    let all: Vec<String> = counter::names()
        .chain(pmu_names())
        .chain(tracepoint::all_names())
        .collect();
    let matching = all.iter().filter(|name| matches(pattern, name));
    let text: String = matching.map(|name| format!("{name}\n")).collect();
    let missing = Tracefs::open().err();
    if !text.is_empty() {
        if let Some(failure) = missing {
            log::warn!("tracepoints are not listed: {failure}");
        }
        return Ok(text);
    }
    Err(match missing {
        Some(failure) => failure.during(&format!(
            "no event matches {pattern}, and tracepoints are not listed"
        )),
        None => misuse(format!("no event matches {pattern}")).hint(similar(pattern, all, "--list")),
    })
}

fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains(['*', '?', '[']) {
        return name.contains(pattern);
    }
    let after_colon = name.split_once(':').map(|(_, after)| after);
    glob_matches(pattern, name) || after_colon.is_some_and(|name| glob_matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::{events, matches};

    #[test]
    fn missing_names_are_errors() {
        let failure = events("nosuchevent").unwrap_err();
        assert!(failure.to_string().contains("no event matches nosuchevent"));
        assert!(events("cycels").unwrap_err().hint_text().is_some());
        assert!(events("cycles").unwrap().contains("cycles\n"));
    }

    #[test]
    fn patterns() {
        for (pattern, expected) in [
            ("*", true),
            ("sched:*", true),
            ("sched_sw*", true),
            ("switch", true),
            ("irq:*", false),
            ("waking", false),
        ] {
            assert_eq!(
                matches(pattern, "sched:sched_switch"),
                expected,
                "{pattern}"
            );
        }
    }
}
