//! Names of the kernel's functions.

use std::collections::BTreeSet;
use std::fs;

/// All functions of the kernel and its modules, in order; none where they are hidden.
pub(crate) fn functions() -> Vec<String> {
    let text = fs::read("/proc/kallsyms").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let names: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (_, kind, name) = (words.next()?, words.next()?, words.next()?);
            // Code of the kernel and of its modules; what was discarded after the start is data by then.
            matches!(kind, "T" | "t" | "W" | "w").then_some(name)
        })
        .collect();
    names.into_iter().map(str::to_owned).collect()
}
