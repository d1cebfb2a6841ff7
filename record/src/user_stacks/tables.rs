//! Data for the program in the kernel: tables of sampled files, and lists of sampled processes. They are created when a
//! sample misses them, so their size depends on the programs that run, not on those that exist.

use std::collections::{BTreeSet, HashMap, HashSet};

use perfquet_ebpf::walk_tables::{List, ListRow, WalkEnd, WalkTables};
use perfquet_ebpf::walker::{CopyRoom, WalkSettings, Walker};
use perfquet_trace::symbols::UnwindTable;

use super::builder::Builder;
use super::caches::Caches;
use super::hotspot;
use super::interpreters::{Entry, Interpreters, may_be_interpreter};
use super::spaces::Spaces;
use crate::bpf::{self, walking};
use crate::failure::Failure;
use crate::recording::{Recording, WALK};
use crate::sys::{clock, host};

/// The programs that walk stacks, and their tables.
#[derive(Default)]
pub(crate) struct Walking {
    /// The program for samples.
    walker: Option<Walker>,
    /// CPUs whose samples are walked.
    cpus: Vec<u32>,
    /// Those of each object.
    tables: Vec<WalkTables>,
}

/// Loads the program for samples. Returns `None` if it cannot be used, and logs the reason.
pub(crate) fn load(excludes_self: bool, checks_walks: bool) -> Option<Walking> {
    if !walking::is_possible() {
        return None;
    }
    let cpus = host::possible_cpus();
    let settings = WalkSettings {
        excludes_self,
        has_user_stacks: true,
        checks_walks,
    };
    match Walker::load(cpus, settings) {
        Ok((walker, tables)) => Some(Walking {
            walker: Some(walker),
            cpus: Vec::new(),
            tables: vec![tables],
        }),
        Err(error) => {
            walking::log_refusal(&error);
            None
        }
    }
}

impl Walking {
    /// Adds the tables of programs that walk the stacks in their keys.
    pub(crate) fn add(&mut self, tables: WalkTables) {
        self.tables.push(tables);
    }

    /// Connects the output of the program for samples to the rings, and attaches it to the events whose stacks it walks.
    pub(crate) fn connect(&mut self, recording: &Recording) -> Result<(), Failure> {
        let Some(walker) = &mut self.walker else {
            return Ok(());
        };
        let refused = |error| bpf::refused("-g", &error);
        walker.start().map_err(refused)?;
        for opened in recording
            .output(WALK)
            .iter()
            .flat_map(|track| &track.events)
        {
            use std::os::fd::AsFd;
            let cpu = opened.place.cpu;
            walker.send_to(cpu, opened.event.as_fd()).map_err(refused)?;
            self.cpus.push(cpu);
        }
        let walked = recording.tracks.iter().filter(|track| track.is_walked);
        for opened in walked.flat_map(|track| &track.events) {
            use std::os::fd::AsFd;
            walker.attach(opened.event.as_fd()).map_err(refused)?;
        }
        Ok(())
    }

    /// Whether programs walk the stacks in their keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.tables.len() > usize::from(self.walker.is_some())
    }

    fn memory_bytes(&self) -> u64 {
        self.tables.iter().map(WalkTables::memory_bytes).sum()
    }
}

/// Published and requested tables and lists.
pub(super) struct Tables {
    walking: Walking,
    builder: Builder,
    /// Files whose table exists or is being built.
    files: HashSet<u32>,
    wanted_files: Vec<u32>,
    /// By process, the list in each object.
    lists: HashMap<i32, Vec<Option<List>>>,
    /// Processes whose list must be rebuilt.
    changed: HashSet<i32>,
    /// The command, which has no mappings for a moment when it starts.
    expected: Option<i32>,
    /// Code caches of JVMs.
    caches: Caches,
    has_complained: bool,
}

impl Tables {
    pub(super) fn start(walking: Walking, copy_room: CopyRoom) -> Tables {
        let mut tables = Tables {
            walking,
            builder: Builder::start(),
            files: HashSet::new(),
            wanted_files: Vec::new(),
            lists: HashMap::new(),
            changed: HashSet::new(),
            expected: None,
            caches: Caches::default(),
            has_complained: false,
        };
        tables.renew_copy_room(copy_room);
        tables
    }

    /// Allows the program to copy that much on each CPU, after the rings were read.
    pub(super) fn renew_copy_room(&mut self, room: CopyRoom) {
        let Walking { walker, cpus, .. } = &mut self.walking;
        let Some(walker) = walker else {
            return;
        };
        let read_at = clock::monotonic();
        for &cpu in cpus.iter() {
            if let Err(error) = walker.set_copy_room(cpu, room, read_at) {
                log::debug!("the room for copies on CPU {cpu} is not renewed: {error}");
            }
        }
    }

    /// Requests what a walk has missed: the table of a file, by the walker's number, or the list of the process, which lacks an
    /// address; 0 if there was none.
    pub(super) fn want(
        &mut self,
        pid: i32,
        end: WalkEnd,
        (file, address): (u32, u64),
        spaces: &Spaces,
    ) {
        if end == WalkEnd::NoTable {
            if file > 0 && self.files.insert(file) {
                self.wanted_files.push(file);
            }
        } else if address == 0 || spaces.has_code(pid, address) {
            self.lists.entry(pid).or_default();
            self.changed.insert(pid);
        }
        // Otherwise, the address is outside of all code.
    }

    /// Requests the list of a process, and the tables of all of its code.
    pub(super) fn load(&mut self, pid: i32, spaces: &mut Spaces) {
        for code in spaces.mapped_code(pid) {
            self.load_file(code.file);
        }
        self.lists.entry(pid).or_default();
        self.changed.insert(pid);
    }

    /// Requests the table of a file.
    pub(super) fn load_file(&mut self, file: Option<u32>) {
        if let Some(number) = file.map(|file| file + 1)
            && self.files.insert(number)
        {
            self.wanted_files.push(number);
        }
    }

    /// Has the list of a process follow its mappings from now on.
    pub(super) fn expect(&mut self, pid: i32) {
        self.expected = Some(pid);
        self.lists.entry(pid).or_default();
    }

    /// Whether tables are being built.
    pub(super) fn are_building(&self) -> bool {
        self.builder.is_busy()
    }

    /// Marks the mappings of a process as changed.
    pub(super) fn changed(&mut self, pid: i32) {
        if self.lists.contains_key(&pid) {
            self.changed.insert(pid);
        }
    }

    /// Forgets the generated code of a process: it has ended, or runs another program.
    pub(super) fn forget(&mut self, pid: i32) {
        self.caches.forget(pid, &mut self.walking.tables);
    }

    /// A walk of a process ended in code without a rule, which its JVM may have compiled since.
    pub(super) fn missed_code(&mut self, pid: i32) {
        self.caches.look(pid);
    }

    /// The JVMs whose code had rules.
    pub(super) fn take_generated(&mut self) -> BTreeSet<i32> {
        self.caches.take_seen()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.builder.is_busy() || !self.changed.is_empty() || self.caches.are_waiting()
    }

    /// Publishes finished tables and lists. `spaces` includes all changes before `as_of`.
    pub(super) fn publish(
        &mut self,
        spaces: &mut Spaces,
        mut interpreters: Option<&mut Interpreters>,
        as_of: u64,
    ) {
        self.walking.tables.iter_mut().for_each(WalkTables::settle);
        for number in std::mem::take(&mut self.wanted_files) {
            if let Some(source) = spaces.table_source(number - 1) {
                self.builder.request(number, source);
            }
        }
        while let Some((number, table)) = self.builder.take() {
            self.add_table(number, &table);
        }
        self.changed
            .extend(self.caches.update(&mut self.walking.tables));
        for pid in std::mem::take(&mut self.changed) {
            if spaces.has_code_of(pid, hotspot::is_jvm) {
                self.caches.watch(pid);
            }
            self.publish_list(spaces, pid, as_of);
            if let Some(interpreters) = &mut interpreters
                && spaces.has_code_of(pid, may_be_interpreter)
            {
                self.publish_interpreter(interpreters, pid);
            }
        }
    }

    fn add_table(&mut self, number: u32, table: &UnwindTable) {
        let value = |row: &perfquet_trace::symbols::Row| {
            u32::from(row.cfa) | u32::from(row.rbp as u16) << 16
        };
        let wide: Vec<[u64; 2]> = table.wide.iter().map(|rule| rule.words()).collect();
        let mut is_added = true;
        for tables in &mut self.walking.tables {
            let rows = table.rows.iter().map(|row| (row.address, value(row)));
            let added = tables.add_table(number, rows, &wide, table.chains.hold());
            is_added &= matches!(added, Ok(true));
        }
        let bytes = self.walking.memory_bytes();
        log::debug!(
            "table {number}: {} rows, {} KiB in all, frame pointers hold: {}",
            table.rows.len(),
            bytes >> 10,
            table.chains.hold()
        );
        if !is_added && !self.has_complained {
            self.has_complained = true;
            log::info!("no room for more unwind tables: stacks through other files are copied");
        }
    }

    fn publish_interpreter(&mut self, interpreters: &mut Interpreters, pid: i32) {
        let Ok(process) = u32::try_from(pid) else {
            return;
        };
        let Some(entry) = interpreters.entry(pid) else {
            return;
        };
        for tables in &mut self.walking.tables {
            let set = match &entry {
                Entry::Python(entry) => tables.set_python(process, entry),
                Entry::Ruby(entry) => tables.set_ruby(process, entry),
                Entry::V8(entry) => tables.set_v8(process, entry),
            };
            if let Err(error) = set {
                log::debug!("interpreter of process {pid}: {error}");
            }
        }
    }

    fn publish_list(&mut self, spaces: &mut Spaces, pid: i32, as_of: u64) {
        let Ok(process) = u32::try_from(pid) else {
            return;
        };
        let mapped = spaces.mapped_code(pid);
        let former = self.lists.remove(&pid).unwrap_or_default();
        let mut former = former.into_iter().chain(std::iter::repeat_with(|| None));
        let objects = self.walking.tables.iter_mut().zip(&mut former);
        if mapped.is_empty() {
            for (tables, former) in objects {
                if let Some(list) = former {
                    tables.remove_list(process, list);
                }
            }
            if self.expected == Some(pid) {
                self.lists.entry(pid).or_default();
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
            .map(|row| self.caches.covers(pid, &row).unwrap_or(row))
            .collect();
        let mut lists = Vec::new();
        for (tables, former) in objects {
            let list = tables.set_list(process, as_of, &rows, former);
            lists.push(list.unwrap_or_else(|error| {
                log::debug!("list of process {pid}: {error}");
                None
            }));
        }
        self.lists.insert(pid, lists);
    }

    /// Returns the number of walks by aggregating programs that ended for this reason, as [`WalkTables::ended`].
    pub(super) fn ended(&self, end: Option<WalkEnd>) -> u64 {
        let tables = self.walking.tables.iter();
        tables.map(|tables| tables.ended(end)).sum()
    }

    /// Logs the total size.
    pub(super) fn finish(self) {
        log::info!(
            "unwind tables of {} files, {} KiB of the kernel's memory",
            self.files.len(),
            self.walking.memory_bytes() >> 10
        );
    }
}
