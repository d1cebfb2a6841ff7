//! Code with its debug info in other files: that of `-gsplit-dwarf`, whose units in this file are skeletons.
//!
//! ```text
//! skeleton unit 0x0: main.dwo, 0x1000…0x1200        its line rows are here, its inlined functions are not
//! ```
//! A line row alone would give a function the line of a function inlined in it.

use super::NoLines;
use crate::symbols::variables::{Dwarf, Sections, Unit};

/// Addresses of skeleton units, sorted and disjoint.
#[derive(Debug, Default)]
pub(super) struct Split(Vec<(u64, u64)>);

impl Split {
    /// Finds the skeletons; an error if all units are.
    pub(super) fn of(sections: &Sections) -> Result<Split, NoLines> {
        // Addresses of a skeleton are in a section that other units rarely use.
        if sections.bytes_of(".debug_addr").is_empty() {
            return Ok(Split::default());
        }
        let dwarf = sections.dwarf();
        let mut ranges = Vec::new();
        let (mut count, mut split) = (0_u64, 0_u64);
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            count += 1;
            // Before DWARF 5, only an attribute marks skeletons.
            let may_be =
                header.version() < 5 || matches!(header.type_(), gimli::UnitType::Skeleton(_));
            let unit = may_be.then(|| dwarf.unit(header).ok()).flatten();
            if let Some(unit) = unit.filter(|unit| unit.dwo_id.is_some()) {
                split += 1;
                add_ranges(&dwarf, &unit, &mut ranges);
            }
        }
        match count > 0 && split == count {
            true => Err(NoLines::Split),
            false => Ok(Split::joined(ranges)),
        }
    }

    fn joined(mut ranges: Vec<(u64, u64)>) -> Split {
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in ranges {
            match joined.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((begin, end)),
            }
        }
        Split(joined)
    }

    /// Whether an address belongs to a skeleton unit.
    pub(super) fn holds(&self, address: u64) -> bool {
        let count = self.0.partition_point(|&(begin, _)| begin <= address);
        let last = count.checked_sub(1).and_then(|last| self.0.get(last));
        last.is_some_and(|&(_, end)| address < end)
    }
}

fn add_ranges(dwarf: &Dwarf<'_>, unit: &Unit<'_>, ranges: &mut Vec<(u64, u64)>) {
    let Ok(mut found) = dwarf.unit_ranges(unit) else {
        return;
    };
    while let Ok(Some(range)) = found.next() {
        if range.begin < range.end {
            ranges.push((range.begin, range.end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined() {
        let split = Split::joined(vec![(8, 9), (1, 3), (2, 6), (6, 7)]);
        let held: Vec<u64> = (0..10).filter(|&address| split.holds(address)).collect();
        assert_eq!(held, [1, 2, 3, 4, 5, 6, 8]);
    }
}
