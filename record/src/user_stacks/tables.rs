//! Data for the program in the kernel: tables of sampled files, and lists of sampled processes. They are created when a
//! sample misses them, so their size depends on the programs that run, not on those that exist.

use std::collections::{HashMap, HashSet};

use perfquet_ebpf::walker::{List, ListRow, WalkSettings, Walker};
use perfquet_trace::symbols::UnwindTable;

use super::builder::Builder;
use super::python::Pythons;
use super::spaces::Spaces;
use crate::bpf;
use crate::failure::Failure;
use crate::recording::{Recording, WALK};
use crate::sys::host;

/// Required for bpf_loop.
const KERNEL: (u32, u32) = (5, 17);

/// The loaded program.
pub(crate) struct Walking {
    walker: Walker,
    /// CPUs whose samples are walked.
    cpus: Vec<u32>,
}

/// Loads the program. Returns `None` if it cannot be used, and logs the reason.
pub(crate) fn load(excludes_self: bool, checks_walks: bool) -> Option<Walking> {
    let (major, minor) = KERNEL;
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    if !host::is_linux(major, minor) {
        log::info!("stacks are not walked in the kernel: requires Linux {major}.{minor}");
        return None;
    }
    if !crate::sys::procfs::has_the_machines_numbers() {
        log::info!("stacks are not walked in the kernel: PIDs in this container differ");
        return None;
    }
    let cpus = host::possible_cpus();
    let settings = WalkSettings {
        excludes_self,
        has_user_stacks: true,
        checks_walks,
    };
    match Walker::load(cpus, settings) {
        Ok(walker) => Some(Walking {
            walker,
            cpus: Vec::new(),
        }),
        Err(error) => {
            if let perfquet_ebpf::Error::Refused { log, .. } = &error {
                log::debug!("{log}");
            }
            log::info!("stacks are not walked in the kernel: {error}");
            None
        }
    }
}

impl Walking {
    /// Connects the program's output to the rings, and attaches it to the events whose stacks it walks.
    pub(crate) fn connect(&mut self, recording: &Recording) -> Result<(), Failure> {
        let refused = |error| bpf::refused("-g", &error);
        self.walker.start().map_err(refused)?;
        for opened in recording
            .output(WALK)
            .iter()
            .flat_map(|track| &track.events)
        {
            use std::os::fd::AsFd;
            let cpu = opened.place.cpu;
            self.walker
                .send_to(cpu, opened.event.as_fd())
                .map_err(refused)?;
            self.cpus.push(cpu);
        }
        let walked = recording.tracks.iter().filter(|track| track.is_walked);
        for opened in walked.flat_map(|track| &track.events) {
            use std::os::fd::AsFd;
            self.walker.attach(opened.event.as_fd()).map_err(refused)?;
        }
        Ok(())
    }
}

/// Published and requested tables and lists.
pub(super) struct Tables {
    walking: Walking,
    builder: Builder,
    /// Files whose table exists or is being built.
    files: HashSet<u32>,
    wanted_files: Vec<u32>,
    lists: HashMap<i32, Option<List>>,
    /// Processes whose list must be rebuilt.
    changed: HashSet<i32>,
    has_complained: bool,
    /// Bytes per CPU and pass for copies of deep stacks.
    copy_room: u64,
}

impl Tables {
    pub(super) fn start(walking: Walking, copy_room: u64) -> Tables {
        let mut tables = Tables {
            walking,
            builder: Builder::start(),
            files: HashSet::new(),
            wanted_files: Vec::new(),
            lists: HashMap::new(),
            changed: HashSet::new(),
            has_complained: false,
            copy_room,
        };
        tables.renew_copy_room();
        tables
    }

    /// Allows the program to copy deep stacks again, after the rings were read.
    pub(super) fn renew_copy_room(&mut self) {
        let Walking { walker, cpus } = &mut self.walking;
        for &cpu in cpus.iter() {
            if let Err(error) = walker.set_copy_room(cpu, self.copy_room) {
                log::debug!("deep stacks on CPU {cpu} are not copied: {error}");
            }
        }
    }

    /// Requests the table of a file, by the walker's number, after a sample missed it.
    pub(super) fn want_table(&mut self, number: u32) {
        if number > 0 && self.files.insert(number) {
            self.wanted_files.push(number);
        }
    }

    /// Requests the list of a process, after a sample missed it.
    pub(super) fn want_list(&mut self, pid: i32) {
        self.lists.entry(pid).or_default();
        self.changed.insert(pid);
    }

    /// Marks the mappings of a process as changed.
    pub(super) fn changed(&mut self, pid: i32) {
        if self.lists.contains_key(&pid) {
            self.changed.insert(pid);
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.builder.is_busy() || !self.changed.is_empty()
    }

    /// Publishes finished tables and lists. `spaces` includes all changes before `as_of`.
    pub(super) fn publish(
        &mut self,
        spaces: &mut Spaces,
        mut pythons: Option<&mut Pythons>,
        as_of: u64,
    ) {
        self.walking.walker.settle();
        for number in std::mem::take(&mut self.wanted_files) {
            if let Some(source) = spaces.table_source(number - 1) {
                self.builder.request(number, source);
            }
        }
        while let Some((number, table)) = self.builder.take() {
            self.add_table(number, &table);
        }
        for pid in std::mem::take(&mut self.changed) {
            self.publish_list(spaces, pid, as_of);
            if let Some(pythons) = &mut pythons {
                self.publish_python(pythons, pid);
            }
        }
    }

    fn add_table(&mut self, number: u32, table: &UnwindTable) {
        let value = |row: &perfquet_trace::symbols::Row| {
            u32::from(row.cfa) | u32::from(row.rbp as u16) << 16
        };
        let rows = table.rows.iter().map(|row| (row.address, value(row)));
        let wide: Vec<[u64; 2]> = table.wide.iter().map(|rule| rule.words()).collect();
        let walker = &mut self.walking.walker;
        let added = walker.add_table(number, rows, &wide, table.chains.hold());
        let bytes = walker.memory_bytes();
        log::debug!(
            "table {number}: {} rows, {} KiB in all, frame pointers hold: {}",
            table.rows.len(),
            bytes >> 10,
            table.chains.hold()
        );
        if !matches!(added, Ok(true)) && !self.has_complained {
            self.has_complained = true;
            log::info!("no room for more unwind tables: stacks through other files are copied");
        }
    }

    fn publish_python(&mut self, pythons: &mut Pythons, pid: i32) {
        let Ok(process) = u32::try_from(pid) else {
            return;
        };
        if let Some(entry) = pythons.entry(pid)
            && let Err(error) = self.walking.walker.set_python(process, &entry)
        {
            log::debug!("Python of process {pid}: {error}");
        }
    }

    fn publish_list(&mut self, spaces: &mut Spaces, pid: i32, as_of: u64) {
        let Ok(process) = u32::try_from(pid) else {
            return;
        };
        let mapped = spaces.mapped_code(pid);
        let former = self.lists.remove(&pid).flatten();
        let walker = &mut self.walking.walker;
        if mapped.is_empty() {
            if let Some(list) = former {
                let _ = walker.remove_list(process, list);
            }
            return;
        }
        let rows: Vec<ListRow> = mapped
            .iter()
            .map(|code| ListRow {
                start: code.start,
                end: code.end,
                file: code.file.map_or(0, |file| file + 1),
                file_start: u32::try_from(code.file_start).unwrap_or(u32::MAX),
            })
            .collect();
        match walker.set_list(process, as_of, &rows, former) {
            Ok(list) => {
                self.lists.insert(pid, list);
            }
            Err(error) => log::debug!("list of process {pid}: {error}"),
        }
    }

    /// Logs the total size.
    pub(super) fn finish(self) {
        log::info!(
            "unwind tables of {} files, {} KiB of the kernel's memory",
            self.files.len(),
            self.walking.walker.memory_bytes() >> 10
        );
    }
}
