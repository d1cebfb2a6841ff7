//! User stacks from copied stack memory (`perf record --call-graph dwarf`). The unwinder gets a process's code mappings
//! with the first stack of that process, and after each change of its map.

use hashbrown::HashMap;
use perfquet_events::event::{Mapping, Registers, Sample, Space, Stack};

use super::mappings::Mappings;
use super::modules::Modules;
use crate::symbols::{Options, Origin, UnwindCounts, Unwinder, Unwound};

/// Maximum number of processes known to the unwinder at a time.
const PROCESSES: usize = 512;
/// PROT_EXEC
const EXECUTABLE: u32 = 4;

/// The unwinder of one input; created with the first copied stack.
pub(crate) struct Unwinding {
    options: Options,
    /// From the input; otherwise this host's.
    pub(crate) architecture: Option<String>,
    unwinder: Option<Unwinder>,
    /// PID → generation of the map that the unwinder has.
    known: HashMap<i32, u64>,
    addresses: Vec<u64>,
}

impl Unwinding {
    pub(crate) fn new(options: Options) -> Unwinding {
        Unwinding {
            options,
            architecture: None,
            unwinder: None,
            known: HashMap::new(),
            addresses: Vec::new(),
        }
    }

    /// The unwound stack of a sample, leaf first, and whether outer frames are missing, if that is longer than the recorded one.
    pub(crate) fn unwind(
        &mut self,
        sample: &Sample<'_>,
        registers: &Registers<'_>,
        pid: i32,
        mappings: &Mappings,
        modules: &mut Modules,
        origin: impl FnOnce() -> Origin,
    ) -> Option<(&[u64], bool)> {
        let unwinder = self.unwinder.get_or_insert_with(|| {
            let architecture = self.architecture.as_deref();
            Unwinder::new(
                &self.options,
                origin(),
                architecture.unwrap_or(std::env::consts::ARCH),
            )
        });
        let map = mappings.of(Some(pid), Space::User);
        if self.known.get(&pid) != Some(&map.generation) {
            if self.known.len() >= PROCESSES {
                self.known.drain().for_each(|(pid, _)| unwinder.clear(pid));
            }
            unwinder.restart(pid);
            for range in map.ranges().filter(|range| range.executable) {
                let build_id = modules.build_id_of(range.module).map(<[u8]>::to_vec);
                let file = modules.file_of(range.module);
                unwinder.add_mapping(&Mapping {
                    time: modules.first_mapped(range.module),
                    pid,
                    tid: pid,
                    space: Space::User,
                    start: range.start,
                    length: range.end - range.start,
                    file_offset: range.file_offset,
                    path: modules.path(range.module),
                    build_id: build_id.as_deref(),
                    device: file.map(|file| file.device),
                    inode: file.map(|file| file.inode),
                    protection: Some(EXECUTABLE),
                    flags: None,
                });
            }
            self.known.insert(pid, map.generation);
        }
        let memory = sample.user_memory;
        let unwound = unwinder.unwind(pid, registers, memory, &mut self.addresses);
        let is_cut = unwound != Unwound::Complete;
        let is_longer = self.addresses.len() > recorded(&sample.user_stack);
        is_longer.then_some((&self.addresses, is_cut))
    }

    /// Number of walks per result; `None` if there were no walks.
    pub(crate) fn counts(&self) -> Option<UnwindCounts> {
        self.unwinder.as_ref().map(Unwinder::counts)
    }

    /// Logs the obstacles.
    pub(crate) fn log(&self) {
        let missing = self.unwinder.iter().flat_map(Unwinder::missing);
        for (module, reason) in missing {
            log::info!("stacks through {module} may be cut: {reason}");
        }
    }
}

fn recorded(stack: &Stack<'_>) -> usize {
    match stack {
        Stack::None | Stack::Id(_) => 0,
        Stack::Addresses { addresses, .. } => addresses.len(),
        Stack::Named(frames) => frames.len(),
    }
}
