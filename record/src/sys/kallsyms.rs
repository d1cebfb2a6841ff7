//! Names of the kernel's functions.

use std::collections::BTreeSet;
use std::fs;

/// All functions of the kernel and its modules, in order; none where they are hidden.
pub(crate) fn functions() -> Vec<String> {
    let text = read();
    let names: BTreeSet<&str> = code(&text).map(|(_, name)| name).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Where these functions are, a name that several have as often; 0 where addresses are hidden.
pub(crate) fn addresses(functions: &BTreeSet<&str>) -> Vec<(String, u64)> {
    let text = read();
    let found = code(&text).filter(|(_, name)| functions.contains(name));
    found
        .map(|(address, name)| (name.to_owned(), address))
        .collect()
}

/// The function at an address, or that holds it.
pub(crate) fn name_at(address: u64) -> Option<String> {
    let text = read();
    let symbols = code(&text).filter(|(start, _)| *start != 0 && *start <= address);
    // Of several names of one place the first counts.
    let nearest = symbols.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (address - nearest.0 < 1 << 20).then(|| nearest.1.to_owned())
}

fn read() -> String {
    let text = fs::read("/proc/kallsyms").unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// Code of the kernel and of its modules; what was discarded after the start is data by then.
fn code(text: &str) -> impl Iterator<Item = (u64, &str)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, kind, name) = (words.next()?, words.next()?, words.next()?);
        let start = u64::from_str_radix(start, 16).ok()?;
        matches!(kind, "T" | "t" | "W" | "w").then_some((start, name))
    })
}
