//! Python functions in stacks. The interpreter runs all of them in one C function; the program in the kernel reads the
//! interpreter's frames together with the stack (`ebpf/src/python.h`), and here both become one stack.
//!
//! ```text
//! native   read, _PyEval_EvalFrameDefault, list_sort, _PyEval_EvalFrameDefault, Py_RunMain, main
//! Python   [key], [main, <module>]                        runs, each called from C
//! stack    read, key, list_sort, main, <module>, Py_RunMain, main
//! ```
//! A function and line get an address in the module `[python]`, which each Python process maps outside of all memory. The
//! journal has its symbol before its first sample. Names are read from the process's memory after the sample; a code
//! object that was freed before that has none, and the native frame remains.

mod lines;
mod offsets;
mod process;
mod share;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perfquet_ebpf::walk_tables::PythonEntry;
use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::wire::update;
use perfquet_trace::symbols::limits::{
    PYTHON_BYTES_MAX, PYTHON_NAMES_BYTES_MAX, PYTHON_PERCENT_MAX, PYTHON_PROCESS_PERCENT_MAX,
};

use crate::journal::record::{Records, kind, misc};
use process::Process;
pub(super) use process::may_be_python;
use share::Share;

/// The module's name.
const MODULE: &[u8] = b"[python]";
/// Above the memory of all processes, and below the kernel's.
const BASE: u64 = 1 << 55;
const BYTES: u64 = 1 << 40;
/// Addresses per function and line. A caller's address minus 1 is in the gap before its symbol.
const SLOT_BYTES: u64 = 16;
const SYMBOL_BYTES: u32 = 8;
/// Functions and lines with names.
const PLACES_MAX: usize = 1 << 18;
/// CPU time for a process, and for all, in which a percentage does not matter: finding an interpreter takes 20 ms.
const ALLOWANCE: Duration = Duration::from_millis(100);
const ALL_ALLOWANCE: Duration = Duration::from_millis(500);
/// Processes whose CPU time is counted.
const SHARES_MAX: usize = 1 << 16;

/// Numbers of stacks with Python frames.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PythonCounts {
    /// All runs of Python frames have their place.
    pub(super) complete: u64,
    /// Some were omitted, or their names could not be read.
    pub(super) incomplete: u64,
}

/// The Python processes, and the functions in the trace.
#[derive(Default)]
pub(super) struct Pythons {
    processes: HashMap<i32, Option<Process>>,
    /// CPU time for each process, kept when it maps files or executes a program.
    shares: HashMap<i32, Share>,
    /// CPU time for all processes.
    share: Share,
    /// Memory of the code objects of all processes.
    bytes: u64,
    places: HashMap<(Arc<str>, Arc<str>, u32), u64>,
    /// Memory of their names.
    name_bytes: u64,
    /// ID of any event: updates need one.
    event: u64,
    pub(super) counts: PythonCounts,
}

/// Python frames of one call from C, innermost first; `None` if one has no name.
type Run = Option<Vec<u64>>;

impl Pythons {
    pub(super) fn new(event: u64) -> Pythons {
        Pythons {
            event,
            ..Pythons::default()
        }
    }

    /// Returns where the frames of a process are; `None` if it runs no supported Python.
    pub(super) fn entry(&mut self, pid: i32) -> Option<PythonEntry> {
        self.process(pid).map(|process| *process.entry())
    }

    /// Forgets a process: it has ended, or runs another program.
    pub(super) fn forget(&mut self, pid: i32) {
        let known = self.processes.remove(&pid).flatten();
        self.bytes -= known.map_or(0, |process| process.bytes());
    }

    /// Searches a process without an interpreter again, since it mapped a file.
    pub(super) fn retry(&mut self, pid: i32) {
        if self.processes.get(&pid).is_some_and(Option::is_none) {
            self.processes.remove(&pid);
        }
    }

    fn process(&mut self, pid: i32) -> Option<&mut Process> {
        if !self.processes.contains_key(&pid) {
            let began = Instant::now();
            if !self.has_time(pid, began) {
                return None;
            }
            let found = Process::find(pid);
            self.spend(pid, began);
            self.processes.insert(pid, found);
        }
        self.processes.get_mut(&pid)?.as_mut()
    }

    /// Whether more may be read of a process: a program may have endless frames, and rings fill meanwhile.
    fn has_time(&mut self, pid: i32, now: Instant) -> bool {
        if self.shares.len() >= SHARES_MAX && !self.shares.contains_key(&pid) {
            self.shares.clear();
        }
        let own = self.shares.entry(pid).or_default();
        own.is_below(now, PYTHON_PROCESS_PERCENT_MAX, ALLOWANCE)
            && self.share.is_below(now, PYTHON_PERCENT_MAX, ALL_ALLOWANCE)
    }

    fn spend(&mut self, pid: i32, began: Instant) {
        let spent = began.elapsed();
        self.share.spend(spent);
        self.shares.entry(pid).or_default().spend(spent);
    }

    /// Replaces the interpreter's frames in a stack by those of Python functions. New symbols go to `out`.
    pub(super) fn merge(
        &mut self,
        (pid, time): (i32, u64),
        frames: &[u8],
        stack: &mut Vec<u64>,
        is_complete: bool,
        out: &mut Vec<u8>,
    ) {
        let began = Instant::now();
        if !self.has_time(pid, began) {
            self.counts.incomplete += 1;
            return;
        }
        let runs = self.runs((pid, time), frames, out);
        self.spend(pid, began);
        let Some((runs, is_cut)) = runs else {
            self.counts.incomplete += 1;
            return;
        };
        let Some(process) = self.process(pid) else {
            return;
        };
        // A caller's address is the one after the call.
        let is_it = |(index, address): (usize, &u64)| {
            let code = address.wrapping_sub(u64::from(index > 0));
            process.evaluates(code).then_some(index)
        };
        let evaluations: Vec<usize> = stack.iter().enumerate().filter_map(is_it).collect();
        let (natives, pythons) = (evaluations.len(), runs.len());
        // Whole stacks have their outermost frames in common: an innermost call may have no Python frame yet.
        let (skipped_natives, skipped_runs) = match is_complete && !is_cut {
            true => (
                natives.saturating_sub(pythons),
                pythons.saturating_sub(natives),
            ),
            false => (0, 0),
        };
        let mut is_whole = natives == pythons && !is_cut && is_complete;
        let pairs = { evaluations }.into_iter().skip(skipped_natives);
        let pairs: Vec<(usize, Run)> = pairs.zip(runs.into_iter().skip(skipped_runs)).collect();
        for (index, run) in pairs.into_iter().rev() {
            match run {
                Some(run) => drop(stack.splice(index..=index, run)),
                None => is_whole = false,
            }
        }
        match is_whole {
            true => self.counts.complete += 1,
            false => self.counts.incomplete += 1,
        }
    }

    /// Returns the runs of a record, innermost first, and whether outer frames are missing.
    fn runs(
        &mut self,
        (pid, time): (i32, u64),
        frames: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<(Vec<Run>, bool)> {
        let mut cursor = Cursor::new(frames, 0, Endian::Little);
        cursor.u32().ok()?; // kind
        let count = cursor.u32().ok()?;
        let is_cut = cursor.u32().ok()? != 0;
        cursor.u32().ok()?;
        let mut runs = Vec::new();
        let mut run: Run = Some(Vec::new());
        let mut is_open = false;
        for _ in 0..count {
            let (code, instruction) = (cursor.u64().ok()?, cursor.u64().ok()?);
            let name = cursor.u64().ok()?;
            let place = self.place((pid, time), (code & !1, instruction, name), out);
            match (&mut run, place) {
                (Some(run), Some(place)) => run.push(place),
                _ => run = None,
            }
            is_open = code & 1 == 0;
            if !is_open {
                runs.push(run.replace(Vec::new()));
            }
        }
        if is_open {
            runs.push(run);
        }
        Some((runs, is_cut))
    }

    /// Returns the address of a function and line.
    fn place(
        &mut self,
        (pid, time): (i32, u64),
        (code, instruction, name): (u64, u64, u64),
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        let (event, room) = (self.event, PYTHON_BYTES_MAX.saturating_sub(self.bytes));
        let process = self.process(pid)?;
        let before = process.bytes();
        let code = process.code(code, name, room);
        let more = process.bytes() - before;
        self.bytes += more;
        let code = code?;
        let process = self.process(pid)?;
        let line = code.line_at(instruction);
        let mut records = Records::new();
        if !std::mem::replace(&mut process.is_mapped, true) {
            add_mapping(&mut records, pid, time);
        }
        let key = (code.file.clone(), code.function.clone(), line);
        let offset = match self.places.get(&key) {
            Some(&offset) => offset,
            None if self.places.len() >= PLACES_MAX
                || self.name_bytes >= PYTHON_NAMES_BYTES_MAX =>
            {
                return None;
            }
            None => {
                self.name_bytes += (key.0.len() + key.1.len()) as u64;
                let offset = (self.places.len() as u64 + 1) * SLOT_BYTES;
                records.add(kind::EVENT_UPDATE, 0, |body| {
                    body.u64(update::SYMBOL);
                    body.u64(event);
                    body.u64(offset);
                    body.u32(SYMBOL_BYTES);
                    body.u32(line);
                    for text in [code.function.as_bytes(), code.file.as_bytes(), MODULE] {
                        body.raw(text);
                        body.u8(0);
                    }
                });
                self.places.insert(key, offset);
                offset
            }
        };
        out.extend_from_slice(records.bytes());
        Some(BASE + offset)
    }
}

fn add_mapping(records: &mut Records, pid: i32, time: u64) {
    records.add(kind::MMAP2, misc::USER, |body| {
        body.i32(pid);
        body.i32(pid);
        body.u64(BASE);
        body.u64(BYTES);
        body.u64(0); // offset in the file
        body.raw(&[0; 24]); // device, inode, generation
        body.u32(libc::PROT_EXEC as u32);
        body.u32(libc::MAP_PRIVATE as u32);
        body.text(MODULE);
        body.trailer(pid, pid, time, 0, 0);
    });
}
