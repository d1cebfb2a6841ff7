//! Kernel functions that function tracing can hook, so that one BPF program runs at many of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sys::kallsyms;
use crate::sys::tracefs::Tracefs;

/// Minimum number of functions to hook together. Fewer functions get one event each, which allows more pending calls:
/// before Linux 6.14, a hook has two per function and CPU.
pub(crate) const FEWEST: usize = 16;

/// Returns the addresses of the functions that can be hooked. Functions whose name is not unique are omitted; empty if
/// the kernel hides addresses.
pub(crate) fn addresses(functions: &BTreeSet<&str>) -> BTreeMap<String, u64> {
    let list = Tracefs::open().map(|tracefs| tracefs.path("available_filter_functions"));
    let list = list.ok().and_then(|path| fs::read(path).ok());
    let list = list.unwrap_or_default();
    let list = String::from_utf8_lossy(&list);
    let names = list
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next());
    let hookable = once(names.map(|name| (name, ())), functions);
    let known = kallsyms::addresses(functions);
    let known = once(
        known.iter().map(|(name, at)| (name.as_str(), *at)),
        functions,
    );
    known
        .into_iter()
        .filter(|(name, address)| *address != 0 && hookable.contains_key(name))
        .map(|(name, address)| (name.to_owned(), address))
        .collect()
}

/// Returns those of `wanted` that occur once.
fn once<'a, T>(
    all: impl Iterator<Item = (&'a str, T)>,
    wanted: &BTreeSet<&str>,
) -> BTreeMap<&'a str, T> {
    let mut found = BTreeMap::new();
    let mut repeated = BTreeSet::new();
    for (name, value) in all.filter(|(name, _)| wanted.contains(name)) {
        if found.insert(name, value).is_some() {
            repeated.insert(name);
        }
    }
    found.retain(|name, _| !repeated.contains(name));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_names_are_omitted() {
        let all = [("a", 1), ("b", 2), ("c", 3), ("b", 4)];
        let found = once(all.into_iter(), &BTreeSet::from(["a", "b", "d"]));
        assert_eq!(found, BTreeMap::from([("a", 1)]));
    }
}
