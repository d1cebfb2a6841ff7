//! Files mapped at the addresses of processes.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::names::Name;

/// A mapped range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping {
    end: u64,
    file_offset: u64,
    pub(super) path: Name,
}

/// The mappings of all processes, at one time.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    processes: HashMap<i32, BTreeMap<u64, Mapping>>,
    parents: HashMap<i32, i32>,
    count: usize,
}

impl Mapped {
    /// Adds a mapping, which replaces earlier ones in its range.
    pub(super) fn map(&mut self, pid: i32, (start, end): (u64, u64), file_offset: u64, path: Name) {
        if end <= start {
            return;
        }
        let ranges = self.processes.entry(pid).or_default();
        // Ranges do not overlap, so only the one before `start` can reach into it.
        let before = ranges
            .range(..start)
            .next_back()
            .map(|(&start, &range)| (start, range));
        if let Some((other, range)) = before.filter(|(_, range)| range.end > start) {
            ranges.insert(
                other,
                Mapping {
                    end: start,
                    ..range
                },
            );
            if range.end > end {
                self.count += 1;
                ranges.insert(end, rest(other, range, end));
            }
        }
        let inside: Vec<u64> = ranges.range(start..end).map(|(&start, _)| start).collect();
        for other in inside {
            if let Some(range) = ranges.remove(&other) {
                self.count -= 1;
                if range.end > end {
                    self.count += 1;
                    ranges.insert(end, rest(other, range, end));
                }
            }
        }
        self.count += 1;
        let mapping = Mapping {
            end,
            file_offset,
            path,
        };
        ranges.insert(start, mapping);
    }

    /// Handles the creation of a process, which has the mappings of its parent until it has its own.
    pub(super) fn fork(&mut self, parent: i32, child: i32) {
        if let Some(ranges) = self.processes.remove(&child) {
            self.count -= ranges.len();
        }
        if parent != child {
            self.parents.insert(child, parent);
        }
    }

    /// The mapping of an address, and the offset of the address in the file.
    pub(super) fn at(&self, pid: i32, address: u64) -> Option<(Name, u64)> {
        let mut pid = pid;
        // In a damaged trace, processes may be their own ancestors.
        for _ in 0..64 {
            match self.processes.get(&pid) {
                Some(ranges) => {
                    let (start, range) = ranges.range(..=address).next_back()?;
                    let offset = range.file_offset.wrapping_add(address - start);
                    return (address < range.end).then_some((range.path, offset));
                }
                None => pid = *self.parents.get(&pid)?,
            }
        }
        None
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.count * 2 * size_of::<(u64, Mapping)>() + self.parents.capacity() * 16
    }
}

/// The part of a range from `end` on.
fn rest(start: u64, range: Mapping, end: u64) -> Mapping {
    Mapping {
        file_offset: range.file_offset.wrapping_add(end - start),
        ..range
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Names;
    use super::*;

    #[test]
    fn later_mappings_replace_parts_of_earlier_ones() {
        let mut names = Names::default();
        let mut name = |text| names.of(Some(text), Name::default());
        let (a, b) = (name("/a"), name("/b"));
        let mut mapped = Mapped::default();
        mapped.map(1, (100, 200), 1000, a);
        mapped.map(1, (140, 160), 0, b);
        let at = |mapped: &Mapped, address| mapped.at(1, address);
        assert_eq!(at(&mapped, 99), None);
        assert_eq!(at(&mapped, 100), Some((a, 1000)));
        assert_eq!(at(&mapped, 140), Some((b, 0)));
        assert_eq!(at(&mapped, 160), Some((a, 1060)));
        assert_eq!(at(&mapped, 200), None);
        mapped.map(1, (50, 300), 0, b);
        assert_eq!((at(&mapped, 150), mapped.count), (Some((b, 100)), 1));
        mapped.fork(1, 2);
        assert_eq!(mapped.at(2, 60), Some((b, 10)));
        mapped.map(2, (0, 10), 0, a);
        assert_eq!((mapped.at(2, 60), mapped.at(2, 5)), (None, Some((a, 5))));
        mapped.fork(2, 1);
        mapped.fork(1, 2);
        assert_eq!(mapped.at(2, 5), None);
    }
}
