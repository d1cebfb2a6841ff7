//! `--list`: the events of this machine, one a line, as `-e` takes them.

use std::io::{self, Write};

use crate::probe::{counter, glob_matches, pmu_names, tracepoint};
use crate::sys::tracefs::Tracefs;

/// Prints the events whose name, or its part behind the colon, matches. A pattern without wildcards matches inside.
pub(crate) fn print(pattern: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let names = counter::names()
        .chain(pmu_names())
        .chain(tracepoint::all_names())
        .filter(|name| matches(pattern, name));
    for name in names {
        match writeln!(out, "{name}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    if let Err(failure) = Tracefs::open() {
        eprintln!("perfquet-record: tracepoints are not listed: {failure}");
    }
    Ok(())
}

fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains(['*', '?', '[']) {
        return name.contains(pattern);
    }
    let behind_colon = name.split_once(':').map(|(_, behind)| behind);
    glob_matches(pattern, name) || behind_colon.is_some_and(|name| glob_matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::matches;

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
