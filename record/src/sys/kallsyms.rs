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

/// The function at an address, or that holds it.
pub(crate) fn name_at(address: u64) -> Option<String> {
    let text = fs::read("/proc/kallsyms").ok()?;
    let text = String::from_utf8_lossy(&text);
    let symbols = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok()?;
        let (kind, name) = (words.next()?, words.next()?);
        let is_code = matches!(kind, "T" | "t" | "W" | "w");
        (is_code && start != 0 && start <= address).then_some((start, name))
    });
    // Of several names of one place the first counts.
    let nearest = symbols.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (address - nearest.0 < 1 << 20).then(|| nearest.1.to_owned())
}
