//! Functions of Python, Ruby and JavaScript in stacks. The interpreters of Python and Ruby run all of them in one C function;
//! the program in the kernel reads the interpreter's frames together with the stack (`ebpf/src/python.h`, `ruby.h`), and here both
//! become one stack.
//!
//! ```text
//! native        read, _PyEval_EvalFrameDefault, list_sort, _PyEval_EvalFrameDefault, Py_RunMain, main
//! interpreted   [key], [main, <module>]                   runs, each called from C
//! stack         read, key, list_sort, main, <module>, Py_RunMain, main
//! ```
//! V8 runs each JavaScript function in a native frame of its own, without a name (`ebpf/src/v8.h`): the function replaces it.
//!
//! A function and line get an address in the module `[python]`, `[ruby]` or `[javascript]`, which each process with an interpreter
//! maps outside of all memory. The journal has its symbol before its first sample. Names are read from the process's memory after
//! the sample; a function that was freed before that has none, and the native frame remains.

mod code;
mod known;
mod process;
mod python;
mod ruby;
mod share;
mod v8;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::wire::update;
use perfquet_trace::symbols::limits::{
    INTERPRETED_BYTES_MAX, INTERPRETED_NAMES_BYTES_MAX, INTERPRETED_PERCENT_MAX,
    INTERPRETED_PROCESS_PERCENT_MAX,
};

use crate::journal::record::{Records, kind, misc};
pub(super) use code::Memory;
use known::KnownObjects;
pub(super) use process::{Entry, Mapped, may_be_interpreter};
use process::{Language, Process, Role};
use share::Share;

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
/// Processes whose CPU time is counted, and that are known to have names.
const SHARES_MAX: usize = 1 << 16;

/// Numbers of stacks with interpreted functions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LanguageCounts {
    /// All runs of interpreted frames have their place.
    pub(super) complete: u64,
    /// Some were omitted, or their names could not be read.
    pub(super) incomplete: u64,
}

/// The same by language.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InterpreterCounts {
    python: LanguageCounts,
    ruby: LanguageCounts,
    javascript: LanguageCounts,
}

impl InterpreterCounts {
    fn of(&mut self, language: Language) -> &mut LanguageCounts {
        match language {
            Language::Python => &mut self.python,
            Language::Ruby => &mut self.ruby,
            Language::JavaScript => &mut self.javascript,
        }
    }

    /// The languages of stacks that were seen.
    pub(super) fn seen(&self) -> impl Iterator<Item = (&'static str, LanguageCounts)> {
        let all = [
            (Language::Python, self.python),
            (Language::Ruby, self.ruby),
            (Language::JavaScript, self.javascript),
        ];
        all.into_iter()
            .filter(|(_, counts)| counts.complete + counts.incomplete > 0)
            .map(|(language, counts)| (language.name(), counts))
    }
}

/// The processes with interpreters, and their functions in the trace.
#[derive(Default)]
pub(super) struct Interpreters {
    processes: HashMap<i32, Option<Process>>,
    objects: KnownObjects,
    /// CPU time for each process, kept when it maps files or executes a program.
    shares: HashMap<i32, Share>,
    /// CPU time for all processes.
    share: Share,
    /// Memory of the functions of all processes.
    bytes: u64,
    places: HashMap<Place, u64>,
    /// Memory of their names.
    name_bytes: u64,
    /// ID of any event: updates need one.
    event: u64,
    pub(super) counts: InterpreterCounts,
    /// Processes of Node.js with names of functions.
    pub(super) javascript: BTreeSet<i32>,
}

/// Module, file, function and line.
type Place = (&'static [u8], Arc<str>, Arc<str>, u32);

/// Interpreted frames of one call from C, innermost first; `None` if one has no name.
type Run = Option<Vec<u64>>;

impl Interpreters {
    pub(super) fn new(event: u64) -> Interpreters {
        Interpreters {
            event,
            ..Interpreters::default()
        }
    }

    /// Returns where the frames of a process are; `None` if it has no supported interpreter.
    pub(super) fn entry(&mut self, pid: i32) -> Option<Entry> {
        self.process(pid).map(|process| process.entry())
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
            let found = Process::find(pid, &mut self.objects);
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
        own.is_below(now, INTERPRETED_PROCESS_PERCENT_MAX, ALLOWANCE)
            && self
                .share
                .is_below(now, INTERPRETED_PERCENT_MAX, ALL_ALLOWANCE)
    }

    fn spend(&mut self, pid: i32, began: Instant) {
        let spent = began.elapsed();
        self.share.spend(spent);
        self.shares.entry(pid).or_default().spend(spent);
    }

    /// Replaces the interpreter's frames in a stack by those of the functions that it runs. New symbols go to `out`.
    pub(super) fn merge(
        &mut self,
        (pid, time): (i32, u64),
        frames: &[u8],
        stack: &mut Vec<u64>,
        is_complete: bool,
        out: &mut Vec<u8>,
    ) {
        let began = Instant::now();
        let Some(language) = self.process(pid).map(|process| process.language()) else {
            return;
        };
        if !self.has_time(pid, began) {
            self.counts.of(language).incomplete += 1;
            return;
        }
        if language == Language::JavaScript {
            let is_whole = self.replace((pid, time, began), frames, stack, out) == Some(true);
            self.spend(pid, began);
            let counts = self.counts.of(language);
            match is_whole && is_complete {
                true => counts.complete += 1,
                false => counts.incomplete += 1,
            }
            return;
        }
        let runs = self.runs((pid, time), frames, out);
        self.spend(pid, began);
        let Some((runs, is_cut)) = runs else {
            self.counts.of(language).incomplete += 1;
            return;
        };
        let Some(process) = self.process(pid) else {
            return;
        };
        let evaluations = evaluations(process, stack);
        let (natives, interpreted) = (evaluations.len(), runs.len());
        // Whole stacks have their outermost frames in common: an innermost call may have no interpreted frame yet.
        let (skipped_natives, skipped_runs) = match is_complete && !is_cut {
            true => (
                natives.saturating_sub(interpreted),
                interpreted.saturating_sub(natives),
            ),
            false => (0, 0),
        };
        let mut is_whole = natives == interpreted && !is_cut && is_complete;
        let pairs = { evaluations }.into_iter().skip(skipped_natives);
        let pairs: Vec<(Range<usize>, Run)> =
            pairs.zip(runs.into_iter().skip(skipped_runs)).collect();
        for (range, run) in pairs.into_iter().rev() {
            match run {
                Some(run) => drop(stack.splice(range, run)),
                None => is_whole = false,
            }
        }
        match is_whole {
            true => self.counts.of(language).complete += 1,
            false => self.counts.of(language).incomplete += 1,
        }
    }

    /// Puts functions whose native frames are known in their places: in place of code without a name, and below the builtin that
    /// runs in their frame. Returns whether all have a name.
    fn replace(
        &mut self,
        (pid, time, began): (i32, u64, Instant),
        frames: &[u8],
        stack: &mut Vec<u64>,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        let mut rows = Rows::of(frames)?;
        let mut is_whole = !rows.is_cut;
        let mut has_names = false;
        let mut from = 0;
        while let Some((function, address, name)) = rows.next()? {
            // Each may be in another script, whose text is read.
            if began.elapsed() > ALLOWANCE {
                is_whole = false;
                break;
            }
            let is_it = |found: &u64| *found == address;
            let Some(index) = stack.iter().skip(from).position(is_it) else {
                is_whole = false;
                break;
            };
            let index = from + index;
            from = index + 1;
            match self.place((pid, time), (function, address, name), out) {
                Some(Placed::At(place)) => {
                    has_names = true;
                    let is_in_builtin =
                        index == 0 && self.process(pid)?.role(address) == Role::Other;
                    match (is_in_builtin, stack.get_mut(index)) {
                        (false, Some(native)) => *native = place,
                        _ => {
                            stack.insert(from, place);
                            from += 1;
                        }
                    }
                }
                Some(Placed::Builtin) => {}
                None => is_whole = false,
            }
        }
        if has_names && self.javascript.len() < SHARES_MAX {
            self.javascript.insert(pid);
        }
        Some(is_whole)
    }

    /// Returns the runs of a record, innermost first, and whether outer frames are missing.
    fn runs(
        &mut self,
        (pid, time): (i32, u64),
        frames: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<(Vec<Run>, bool)> {
        let mut rows = Rows::of(frames)?;
        let mut runs = Vec::new();
        let mut run: Run = Some(Vec::new());
        let mut is_open = false;
        while let Some((code, instruction, name)) = rows.next()? {
            let place = self.place((pid, time), (code & !1, instruction, name), out);
            match (&mut run, place) {
                (Some(run), Some(Placed::At(place))) => run.push(place),
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
        Some((runs, rows.is_cut))
    }

    /// Returns the address of a function and line.
    fn place(
        &mut self,
        (pid, time): (i32, u64),
        (code, instruction, name): (u64, u64, u64),
        out: &mut Vec<u8>,
    ) -> Option<Placed> {
        let (event, room) = (self.event, INTERPRETED_BYTES_MAX.saturating_sub(self.bytes));
        let process = self.process(pid)?;
        let before = process.bytes();
        let code = process.code(code, name, room);
        let more = process.bytes() - before;
        self.bytes += more;
        let code = code?;
        if code.is_builtin {
            return Some(Placed::Builtin);
        }
        let process = self.process(pid)?;
        let line = code.line_at(instruction);
        let module = process.language().module();
        let mut records = Records::new();
        if !std::mem::replace(&mut process.is_mapped, true) {
            add_mapping(&mut records, module, pid, time);
        }
        let key = (module, code.file.clone(), code.function.clone(), line);
        let offset = match self.places.get(&key) {
            Some(&offset) => offset,
            None if self.places.len() >= PLACES_MAX
                || self.name_bytes >= INTERPRETED_NAMES_BYTES_MAX =>
            {
                return None;
            }
            None => {
                self.name_bytes += (key.1.len() + key.2.len()) as u64;
                let offset = (self.places.len() as u64 + 1) * SLOT_BYTES;
                records.add(kind::EVENT_UPDATE, 0, |body| {
                    body.u64(update::SYMBOL);
                    body.u64(event);
                    body.u64(offset);
                    body.u32(SYMBOL_BYTES);
                    body.u32(line);
                    for text in [code.function.as_bytes(), code.file.as_bytes(), module] {
                        body.raw(text);
                        body.u8(0);
                    }
                });
                self.places.insert(key, offset);
                offset
            }
        };
        out.extend_from_slice(records.bytes());
        Some(Placed::At(BASE + offset))
    }
}

/// Where a function is in the trace.
enum Placed {
    At(u64),
    /// A builtin function, which has the name of its native code.
    Builtin,
}

/// The rows of a record: function, instruction or native address, and name.
struct Rows<'a> {
    cursor: Cursor<'a>,
    left: u32,
    /// Outer frames are missing.
    is_cut: bool,
}

impl<'a> Rows<'a> {
    fn of(record: &'a [u8]) -> Option<Rows<'a>> {
        let mut cursor = Cursor::new(record, 0, Endian::Little);
        cursor.u32().ok()?; // kind
        let left = cursor.u32().ok()?;
        let is_cut = cursor.u32().ok()? != 0;
        cursor.u32().ok()?;
        Some(Rows {
            cursor,
            left,
            is_cut,
        })
    }

    /// Returns the next row; `None` if the record is too short for it.
    fn next(&mut self) -> Option<Option<(u64, u64, u64)>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Some(None);
        };
        self.left = left;
        let mut word = || self.cursor.u64().ok();
        Some(Some((word()?, word()?, word()?)))
    }
}

/// Returns the native frames of each evaluation, innermost first: the function that evaluates, and its parts inside of it.
fn evaluations(process: &Process, stack: &[u64]) -> Vec<Range<usize>> {
    let mut evaluations = Vec::new();
    let mut first_part = None;
    for (index, address) in stack.iter().enumerate() {
        // A caller's address is the one after the call.
        let code = address.wrapping_sub(u64::from(index > 0));
        match process.role(code) {
            Role::Evaluates => evaluations.push(first_part.take().unwrap_or(index)..index + 1),
            Role::Part => {
                first_part.get_or_insert(index);
            }
            Role::Other => first_part = None,
        }
    }
    evaluations
}

fn add_mapping(records: &mut Records, module: &[u8], pid: i32, time: u64) {
    records.add(kind::MMAP2, misc::USER, |body| {
        body.i32(pid);
        body.i32(pid);
        body.u64(BASE);
        body.u64(BYTES);
        body.u64(0); // offset in the file
        body.raw(&[0; 24]); // device, inode, generation
        body.u32(libc::PROT_EXEC as u32);
        body.u32(libc::MAP_PRIVATE as u32);
        body.text(module);
        body.trailer(pid, pid, time, 0, 0);
    });
}
