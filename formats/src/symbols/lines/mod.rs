//! Source lines and inlined functions, from DWARF.
//!
//! ```text
//! 0x11d4  →  work_inner, workload.c:16
//! 0x52e0  →  main, main.rs:9;  inlined: Vec::push, vec/mod.rs:2442;  ptr::write, ptr/mod.rs:1377
//! ```
//! DWARF 2 to 5, read by gimli, a hundred times slower than the symbol table. All addresses of a file are looked up
//! in one pass over the units that hold them, and nothing of a unit is kept. A file may be anybody's: every step is
//! paid from a [`Budget`] that grows with the file, so that tables which refer to each other without end, or a few bytes
//! that stand for many, end the look-up instead of the import.

mod budget;
mod functions;
mod rows;
mod units;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Name;
use super::elf::Elf;
use super::variables::Sections;
use budget::{Budget, Failure};
use units::{Ranges, Units};

/// Paths and names longer than this are cut.
const TEXT_MAX: usize = 4096;

/// Reader of debugging information.
#[derive(Default)]
pub(super) struct Lines {
    /// By the address of the file in memory, which the value keeps alive.
    files: HashMap<usize, File>,
}

struct File {
    _elf: Arc<Elf>,
    /// Or why there are no lines.
    described: Result<Described, NoLines>,
}

struct Described {
    sections: Sections,
    ranges: Ranges,
}

/// Why a file has no lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum NoLines {
    /// It has no debugging information.
    NotDescribed,
    /// That is in other files (-gsplit-dwarf).
    Split,
    /// It is damaged.
    Damaged,
    /// It takes more steps than a file of its size should.
    TooMuch,
    /// It does not cover the address.
    NotThere,
}

impl NoLines {
    /// As a sentence about a file.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            NoLines::NotDescribed => "no debug info",
            NoLines::Split => "its debug info is in .dwo files, which are not read",
            NoLines::Damaged => "its debug info is damaged",
            NoLines::TooMuch => "its debug info takes too long to read",
            NoLines::NotThere => "its debug info does not cover the address",
        }
    }
}

/// What is known of an address beside its symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Location {
    /// In the function of the symbol: the line, or that of the call of what is inlined there.
    outer: Line,
    /// Functions inlined there, the outermost first.
    inlined: Vec<(Arc<str>, Line)>,
}

type Line = (Option<Arc<str>>, Option<u32>);

impl Location {
    /// Puts lines and inlined functions to a name that holds only the symbol.
    pub(super) fn add_to(self, names: &mut Vec<Name>) {
        let text = |file: Option<Arc<str>>| file.map(|file| file.to_string());
        if let Some(outer) = names.first_mut() {
            (outer.file, outer.line) = (text(self.outer.0), self.outer.1);
        }
        for (function, (file, line)) in self.inlined {
            names.push(Name {
                function: function.to_string(),
                function_offset: None,
                file: text(file),
                line,
                is_unverified: false,
            });
        }
    }
}

impl Lines {
    /// Locates addresses of a file, as its own segments count them.
    pub(super) fn locate(
        &mut self,
        elf: &Arc<Elf>,
        addresses: &[u64],
    ) -> Vec<Result<Location, NoLines>> {
        let mut distinct = addresses.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let file = self
            .files
            .entry(Arc::as_ptr(elf).addr())
            .or_insert_with(|| File {
                _elf: Arc::clone(elf),
                described: unless_it_panics(|| describe(elf)).unwrap_or(Err(NoLines::Damaged)),
            });
        let located = match &file.described {
            Ok(described) => unless_it_panics(|| located(described, &distinct))
                .unwrap_or_else(|| vec![Err(NoLines::Damaged); distinct.len()]),
            Err(reason) => vec![Err(*reason); distinct.len()],
        };
        let of = |address| {
            let index = distinct.binary_search(address).ok()?;
            located.get(index).cloned()
        };
        let places = addresses.iter();
        places
            .map(|address| of(address).unwrap_or(Err(NoLines::NotThere)))
            .collect()
    }
}

/// Damaged debug info must not end an import, whatever the library makes of it.
fn unless_it_panics<T>(read: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()
}

fn describe(elf: &Elf) -> Result<Described, NoLines> {
    if elf.section(b".debug_info").is_none() {
        return Err(NoLines::NotDescribed);
    }
    let sections = Sections::of(elf);
    let mut budget = Budget::of(&sections);
    let dwarf = sections.dwarf();
    let mut units = Units::new(&dwarf, &sections);
    let ranges = units.ranges(&mut budget)?;
    Ok(Described { sections, ranges })
}

fn located(described: &Described, addresses: &[u64]) -> Vec<Result<Location, NoLines>> {
    let mut located = vec![Err(NoLines::NotThere); addresses.len()];
    let mut budget = Budget::of(&described.sections);
    let dwarf = described.sections.dwarf();
    let mut units = Units::new(&dwarf, &described.sections);
    for (unit, wanted) in described.ranges.units_of(addresses) {
        // What an earlier unit has told stays.
        let wanted: Vec<usize> = wanted
            .into_iter()
            .filter(|&index| matches!(located.get(index), Some(Err(_))))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let found = of_unit(&mut units, unit, addresses, &wanted, &mut budget);
        let reason = match found {
            Ok(found) => {
                for (index, location) in found {
                    if let Some(slot) = located.get_mut(index) {
                        *slot = Ok(location);
                    }
                }
                continue;
            }
            Err(failure) => NoLines::from(failure),
        };
        for index in wanted {
            if let Some(slot @ Err(_)) = located.get_mut(index) {
                *slot = Err(reason);
            }
        }
    }
    located
}

/// Lines and inlined functions of some addresses of a unit.
fn of_unit(
    units: &mut Units<'_, '_>,
    unit: usize,
    addresses: &[u64],
    wanted: &[usize],
    budget: &mut Budget,
) -> Result<Vec<(usize, Location)>, Failure> {
    let wanted: Vec<(u64, usize)> = wanted
        .iter()
        .filter_map(|&index| Some((*addresses.get(index)?, index)))
        .collect();
    let places: Vec<u64> = wanted.iter().map(|&(address, _)| address).collect();
    let unit = units.unit(unit, budget)?;
    let chains = functions::inlined_at(units, &unit, &places, budget)?;
    let (leaves, files) = rows::lines_at(units, &unit, &places, &chains, budget)?;
    let mut found = Vec::new();
    for (((_, index), leaf), chain) in wanted.into_iter().zip(leaves).zip(chains) {
        let Some(leaf) = leaf else { continue };
        let file = |number: u64| files.get(&number).cloned();
        let mut lines: Vec<Line> = chain
            .iter()
            .map(|call| (call.file.and_then(file), call.line))
            .collect();
        lines.push((file(leaf.file), leaf.line));
        let mut lines = lines.into_iter();
        let outer = lines.next().unwrap_or_default();
        let mut inlined = Vec::new();
        for (call, line) in chain.iter().zip(lines) {
            inlined.push((units.name(call.function, &unit, budget)?, line));
        }
        found.push((index, Location { outer, inlined }));
    }
    Ok(found)
}
