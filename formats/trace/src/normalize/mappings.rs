//! Address maps of processes and the kernel: the file at an address.
//!
//! ```text
//! Mapping { pid: 40, start: 0x401000, length: 0x2000, file_offset: 0x1000, path: "/bin/sh" }
//! 40: 0x401234 → /bin/sh + 0x1234        pid -1: 0xffffffff81000042 → [kernel.kallsyms], kept as address
//! ```
//! A fork copies the map (by reference until either changes), an exec empties it, and a later mapping replaces the
//! overlapping part of earlier ones, as with mmap. Code without a file (generated code, the kernel) keeps its absolute
//! address, under the module's name.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use perfquet_events::event::{Fork, KernelSymbol, Mapping, Space};

use super::modules::{ModuleId, Modules};

/// Ranges in one map: the kernel's limit per process (vm.max_map_count).
const RANGES_PER_MAP: usize = 65_536;
/// Ranges in all maps together; above it, a process's map is emptied instead of copied.
const RANGES_IN_ALL: usize = 1 << 20;
/// Maximum number of processes with a map.
const PROCESSES: usize = 1 << 18;

/// A mapped address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    /// First address past the end.
    pub(crate) end: u64,
    pub(crate) file_offset: u64,
    pub(crate) module: ModuleId,
    /// Whether code may run there.
    pub(crate) executable: bool,
}

/// The map of one process, or of a kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressMap {
    /// Changes with every modification and is never reused, so that cached lookups stay valid.
    pub(crate) generation: u64,
    ranges: BTreeMap<u64, Range>,
}

impl AddressMap {
    /// The range that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<Range> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then_some(*range)
    }

    /// The ranges that overlap this one.
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &Range> {
        let before = self.ranges.range(..start).next_back();
        let inside = self.ranges.range(start..end.max(start));
        let all = before.into_iter().chain(inside).map(|(_, range)| range);
        all.filter(move |range| range.end > start)
    }

    fn change(&mut self, generation: u64, range: Range) -> bool {
        self.generation = generation;
        self.insert(range)
    }

    /// Whether nothing is mapped.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// All ranges in address order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.ranges.values()
    }

    /// Inserts a range; overlapping ranges keep only their parts outside it. Returns `false` if there is no room.
    fn insert(&mut self, new: Range) -> bool {
        let all_stay = self.remove(new.start, new.end);
        let room = self.ranges.len() < RANGES_PER_MAP;
        if room {
            self.ranges.insert(new.start, new);
        }
        room && all_stay
    }

    /// Removes a range from the map. Returns `false` if a range would be split and there is no room for both parts.
    fn remove(&mut self, start: u64, end: u64) -> bool {
        let mut all_stay = true;
        // From the end, so that each step looks at the last range that begins before `end`.
        while let Some((&key, &old)) = self.ranges.range(..end).next_back() {
            if old.end <= start {
                break;
            }
            self.ranges.remove(&key);
            if old.end > end {
                let room = self.ranges.len() < RANGES_PER_MAP;
                if room {
                    self.ranges.insert(end, after(old, end));
                }
                all_stay &= room;
            }
            if old.start < start {
                self.ranges.insert(old.start, Range { end: start, ..old });
                break;
            }
        }
        all_stay
    }
}

/// The part of `range` from `start` on.
fn after(range: Range, start: u64) -> Range {
    Range {
        start,
        file_offset: range.file_offset.wrapping_add(start - range.start),
        ..range
    }
}

/// All maps of one input.
pub(crate) struct Mappings {
    processes: HashMap<ProcessKey, Process>,
    kernel: AddressMap,
    guest_kernel: AddressMap,
    empty: AddressMap,
    next_generation: u64,
    /// Ranges in the maps of all processes; a shared map counts once.
    total: usize,
    /// Ranges and maps dropped at the limits.
    given_up: u64,
}

/// A process of the host, or of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ProcessKey {
    pid: i32,
    guest: bool,
}

struct Process {
    map: Arc<AddressMap>,
}

impl Default for Mappings {
    fn default() -> Self {
        let map = |generation| AddressMap {
            generation,
            ..AddressMap::default()
        };
        Mappings {
            processes: HashMap::new(),
            kernel: map(1),
            guest_kernel: map(2),
            empty: map(3),
            next_generation: 4,
            total: 0,
            given_up: 0,
        }
    }
}

impl Mappings {
    /// The map for addresses of `space` in `pid`.
    pub(crate) fn of(&self, pid: Option<i32>, space: Space) -> &AddressMap {
        match space {
            Space::Kernel | Space::Hypervisor => &self.kernel,
            Space::GuestKernel => &self.guest_kernel,
            Space::User | Space::Unknown | Space::GuestUser => {
                let guest = space == Space::GuestUser;
                pid.and_then(|pid| self.processes.get(&ProcessKey { pid, guest }))
                    .map_or(&self.empty, |process| &*process.map)
            }
        }
    }

    /// Adds a mapping.
    pub(crate) fn map(&mut self, event: &Mapping<'_>, modules: &mut Modules) -> ModuleId {
        let module = modules.of_mapping(event);
        let range = Range {
            start: event.start,
            end: event.start.saturating_add(event.length),
            file_offset: event.file_offset,
            module,
            executable: event.protection.is_none_or(|bits| bits & 4 != 0),
        };
        if range.start >= range.end {
            return module;
        }
        let generation = self.generation();
        let room = match event.space {
            Space::GuestKernel => self.guest_kernel.change(generation, range),
            // The kernel's own mappings have pid -1, whatever their misc bits.
            Space::User | Space::Unknown | Space::GuestUser if event.pid != -1 => {
                let guest = event.space == Space::GuestUser;
                let pid = event.pid;
                self.map_user(ProcessKey { pid, guest }, generation, range)
            }
            _ => self.kernel.change(generation, range),
        };
        self.given_up += u64::from(!room);
        module
    }

    /// The kernel gained or lost a symbol outside its image: BPF programs, out-of-line code.
    pub(crate) fn kernel_symbol(&mut self, event: &KernelSymbol<'_>, modules: &mut Modules) {
        let end = event.start.saturating_add(event.length);
        let generation = self.generation();
        if event.gone {
            self.kernel.generation = generation;
            let all_stay = self.kernel.remove(event.start, end);
            self.given_up += u64::from(!all_stay);
        } else if event.start < end {
            let range = Range {
                start: event.start,
                end,
                file_offset: 0,
                module: modules.of_kernel_symbol(event),
                executable: true,
            };
            let room = self.kernel.change(generation, range);
            self.given_up += u64::from(!room);
        }
    }

    /// A new process gets a copy of its creator's map; a new thread shares it.
    pub(crate) fn fork(&mut self, event: &Fork) {
        let host = |pid| ProcessKey { pid, guest: false };
        if event.pid == event.parent_pid {
            return;
        }
        let map = self
            .processes
            .get(&host(event.parent_pid))
            .map(|parent| Arc::clone(&parent.map));
        // Processes that existed at the start have their own mapping records.
        if event.time.is_none() && self.processes.contains_key(&host(event.pid)) {
            return;
        }
        self.drop_process(host(event.pid));
        let Some(map) = map else {
            return;
        };
        if self.processes.len() >= PROCESSES {
            self.given_up += 1;
        } else {
            self.processes.insert(host(event.pid), Process { map });
        }
    }

    /// Empties the map of a process that called exec or ended.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.drop_process(ProcessKey { pid, guest: false });
    }

    /// Number of ranges and whole maps dropped at the limits.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    fn map_user(&mut self, key: ProcessKey, generation: u64, range: Range) -> bool {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&key) {
            return false;
        }
        let process = self.processes.entry(key).or_insert_with(|| Process {
            map: Arc::default(),
        });
        let shared = Arc::strong_count(&process.map) > 1;
        let before = if shared { 0 } else { process.map.ranges.len() };
        let too_many = self.total + process.map.ranges.len() >= RANGES_IN_ALL;
        if too_many {
            process.map = Arc::default();
            self.given_up += 1;
        }
        let map = Arc::make_mut(&mut process.map);
        let room = map.change(generation, range);
        self.total = (self.total + map.ranges.len()).saturating_sub(before);
        room
    }

    fn drop_process(&mut self, key: ProcessKey) {
        if let Some(process) = self.processes.remove(&key)
            && let Ok(map) = Arc::try_unwrap(process.map)
        {
            self.total = self.total.saturating_sub(map.ranges.len());
        }
    }

    fn generation(&mut self) -> u64 {
        self.next_generation += 1;
        self.next_generation
    }
}

/// The space of an instruction pointer whose recorded space may be unknown.
#[inline]
pub(crate) fn space_of_ip(ip: u64, space: Space) -> Space {
    match space {
        // 64-bit kernels use the upper half; the space is unknown on 32-bit kernels.
        Space::Unknown if ip >> 63 == 1 => Space::Kernel,
        Space::Unknown => Space::User,
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(pid: i32, start: u64, end: u64, path: &[u8]) -> Mapping<'_> {
        Mapping {
            time: None,
            pid,
            tid: pid,
            space: if pid == -1 {
                Space::Kernel
            } else {
                Space::User
            },
            start,
            length: end - start,
            file_offset: 0x1000,
            path,
            build_id: None,
            device: None,
            inode: None,
            protection: None,
            flags: None,
        }
    }

    fn fork(pid: i32, parent_pid: i32) -> Fork {
        Fork {
            time: Some(1),
            pid,
            tid: pid,
            parent_pid,
            parent_tid: parent_pid,
        }
    }

    struct World {
        mappings: Mappings,
        modules: Modules,
    }

    impl World {
        fn new() -> World {
            World {
                mappings: Mappings::default(),
                modules: Modules::default(),
            }
        }

        fn map(&mut self, pid: i32, start: u64, end: u64, path: &str) {
            self.mappings.map(
                &mapping(pid, start, end, path.as_bytes()),
                &mut self.modules,
            );
        }

        /// "path+offset in the file", or "-".
        fn at(&self, pid: i32, address: u64) -> String {
            let space = if pid == -1 {
                Space::Kernel
            } else {
                Space::User
            };
            match self.mappings.of(Some(pid), space).find(address) {
                Some(range) => format!(
                    "{}+{:x}",
                    String::from_utf8_lossy(self.modules.path(range.module)),
                    address - range.start + range.file_offset
                ),
                None => "-".into(),
            }
        }
    }

    #[test]
    fn a_later_mapping_replaces_earlier_ones() {
        let mut world = World::new();
        world.map(1, 0x10_000, 0x20_000, "/a");
        world.map(1, 0x14_000, 0x15_000, "/b");
        assert_eq!(world.at(1, 0x10_000), "/a+1000");
        assert_eq!(world.at(1, 0x13_fff), "/a+4fff");
        assert_eq!(world.at(1, 0x14_000), "/b+1000");
        assert_eq!(world.at(1, 0x15_000), "/a+6000");
        assert_eq!(world.at(1, 0x1f_fff), "/a+10fff");
        assert_eq!(world.at(1, 0x20_000), "-");
        // Across both edges and all ranges between.
        world.map(1, 0x13_000, 0x16_000, "/c");
        assert_eq!(world.at(1, 0x12_fff), "/a+3fff");
        assert_eq!(world.at(1, 0x14_800), "/c+2800");
        assert_eq!(world.at(1, 0x16_000), "/a+7000");
        world.map(1, 0, u64::MAX, "/d");
        assert_eq!(world.mappings.of(Some(1), Space::User).ranges().count(), 1);
    }

    #[test]
    fn a_fork_copies_and_an_exec_empties() {
        let mut world = World::new();
        world.map(1, 0x10_000, 0x20_000, "/sh");
        world.mappings.fork(&fork(2, 1));
        let shared = world.mappings.of(Some(1), Space::User).generation;
        assert_eq!(world.mappings.of(Some(2), Space::User).generation, shared);
        world.map(2, 0x18_000, 0x20_000, "/lib");
        assert_eq!(world.at(1, 0x18_000), "/sh+9000");
        assert_eq!(world.at(2, 0x18_000), "/lib+1000");
        assert_ne!(world.mappings.of(Some(2), Space::User).generation, shared);
        world.mappings.forget(2);
        assert_eq!(world.at(2, 0x18_000), "-");
        assert_eq!(world.at(1, 0x18_000), "/sh+9000");
        world.mappings.forget(1);
        assert_eq!(world.at(1, 0x10_000), "-");
        assert_eq!(world.mappings.total, 0);
    }

    #[test]
    fn kernel_symbols_come_and_go() {
        let mut world = World::new();
        world.map(-1, 0xffff_0000, 0xffff_8000, "[kernel.kallsyms]_text");
        let mut symbol = KernelSymbol {
            time: None,
            start: 0xffff_9000,
            length: 0x100,
            name: b"bpf_prog_1",
            gone: false,
        };
        world.mappings.kernel_symbol(&symbol, &mut world.modules);
        assert_eq!(world.at(-1, 0xffff_9010), "bpf_prog_1+10");
        symbol.gone = true;
        world.mappings.kernel_symbol(&symbol, &mut world.modules);
        assert_eq!(world.at(-1, 0xffff_9010), "-");
        assert!(world.at(-1, 0xffff_0010).starts_with("[kernel.kallsyms]"));
    }

    #[test]
    fn too_many_ranges_empty_a_map_and_are_counted() {
        let mut world = World::new();
        for number in 0..RANGES_PER_MAP as u64 + 5 {
            world.map(1, number << 12, (number + 1) << 12, "/a");
        }
        assert_eq!(world.mappings.total, RANGES_PER_MAP);
        for pid in 2..40 {
            world.mappings.fork(&fork(pid, 1));
            world.map(pid, 0, 0x1000, "/b");
        }
        assert!(world.mappings.total <= RANGES_IN_ALL);
        assert!(world.mappings.given_up() > 0);
    }

    #[test]
    fn holes_do_not_exceed_the_limit_of_ranges() {
        let mut world = World::new();
        let holes = RANGES_PER_MAP as u64 + 100;
        world.map(-1, 0, (2 * holes + 1) << 12, "[kernel.kallsyms]_text");
        for hole in (1..=holes).rev() {
            let symbol = KernelSymbol {
                time: None,
                start: (2 * hole - 1) << 12,
                length: 0x1000,
                name: b"bpf_prog_1",
                gone: true,
            };
            world.mappings.kernel_symbol(&symbol, &mut world.modules);
        }
        let ranges = world.mappings.of(None, Space::Kernel).ranges().count();
        assert!(ranges <= RANGES_PER_MAP + 1, "{ranges}");
        assert!(world.mappings.given_up() >= 100);
    }

    #[test]
    fn the_number_of_maps_is_bounded() {
        let mut world = World::new();
        world.map(1, 0x10_000, 0x20_000, "/sh");
        for pid in 2..PROCESSES as i32 + 10 {
            world.mappings.fork(&fork(pid, 1));
        }
        assert_eq!(world.mappings.processes.len(), PROCESSES);
        assert_eq!(world.mappings.given_up(), 9);
        world.map(i32::MAX, 0x10_000, 0x20_000, "/late");
        assert_eq!(world.at(i32::MAX, 0x10_000), "-");
        world.map(1, 0x30_000, 0x40_000, "/known");
        assert_eq!(world.at(1, 0x30_000), "/known+1000");
    }
}
